// Files, skills and session resources by the official Go SDK, and the methods of the other resources that resources.go does not call.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// What get and want panic with, and caught returns.
type failure struct{ err error }

func get[T any](v T, err error) T {
	if err != nil {
		panic(failure{err})
	}
	return v
}

func want(ok bool, what ...any) {
	if !ok {
		panic(failure{fmt.Errorf("%v", what)})
	}
}

func refusal[T any](status int, words string) func(T, error) {
	return func(_ T, err error) {
		var e *anthropic.Error
		want(errors.As(err, &e) && e.StatusCode == status && strings.Contains(err.Error(), words), status, words, err)
	}
}

func caught(fn func()) func() error {
	return func() (err error) {
		defer func() {
			if f, ok := recover().(failure); ok {
				err = f.err
			}
		}()
		fn()
		return nil
	}
}

func whole(r *http.Response, err error) []byte {
	get(r, err)
	defer r.Body.Close()
	return get(io.ReadAll(r.Body))
}

func filesAndSessionResources() {
	files, data := client.Beta.Files, bytes.Repeat([]byte("mango "), 50000)
	var ids []string
	for i := range 3 {
		f := get(files.Upload(ctx, anthropic.BetaFileUploadParams{File: anthropic.File(bytes.NewReader(data), fmt.Sprintf("%d.txt", i), "text/plain")}))
		want(f.SizeBytes == int64(len(data)) && f.MimeType == "text/plain", f.RawJSON())
		ids = append(ids, f.ID)
	}
	want(get(files.GetMetadata(ctx, ids[0], anthropic.BetaFileGetMetadataParams{})).Filename == "0.txt")
	want(bytes.Equal(whole(files.Download(ctx, ids[0], anthropic.BetaFileDownloadParams{})), data))
	listed := get(files.List(ctx, anthropic.BetaFileListParams{Limit: param.NewOpt[int64](2)}))
	want(len(listed.Data) == 2 && listed.Data[0].ID == ids[2], listed.RawJSON())
	seen := 0
	for pages := files.ListAutoPaging(ctx, anthropic.BetaFileListParams{Limit: param.NewOpt[int64](2)}); pages.Next(); {
		for _, id := range ids {
			if pages.Current().ID == id {
				seen++
			}
		}
	}
	want(seen == 3, seen)
	file := func(id string) anthropic.BetaManagedAgentsFileResourceParams {
		return anthropic.BetaManagedAgentsFileResourceParams{FileID: id, Type: "file"}
	}
	first := file(ids[0])
	s := get(client.Beta.Sessions.New(ctx, anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: param.NewOpt(agentID)},
		EnvironmentID: envID,
		Resources:     []anthropic.BetaSessionNewParamsResourceUnion{{OfFile: &first}},
	}))
	resources := client.Beta.Sessions.Resources
	added := get(resources.Add(ctx, s.ID, anthropic.BetaSessionResourceAddParams{BetaManagedAgentsFileResourceParams: file(ids[1])}))
	want(len(get(resources.List(ctx, s.ID, anthropic.BetaSessionResourceListParams{})).Data) == 2)
	want(get(resources.Get(ctx, added.ID, anthropic.BetaSessionResourceGetParams{SessionID: s.ID})).ID == added.ID)
	refusal[*anthropic.BetaSessionResourceUpdateResponseUnion](400, "authorization_token")(
		resources.Update(ctx, added.ID, anthropic.BetaSessionResourceUpdateParams{SessionID: s.ID, AuthorizationToken: "t"}))
	want(get(resources.Delete(ctx, added.ID, anthropic.BetaSessionResourceDeleteParams{SessionID: s.ID})).ID == added.ID)
	get(client.Beta.Sessions.Delete(ctx, s.ID, anthropic.BetaSessionDeleteParams{}))
	for _, id := range ids {
		want(get(files.Delete(ctx, id, anthropic.BetaFileDeleteParams{})).ID == id)
	}
	repository := anthropic.BetaManagedAgentsGitHubRepositoryResourceParams{
		URL: "https://github.com/octocat/Hello-World", Type: "github_repository", AuthorizationToken: "gh-t0ken",
		Checkout: anthropic.BetaManagedAgentsGitHubRepositoryResourceParamsCheckoutUnion{
			OfBranch: &anthropic.BetaManagedAgentsBranchCheckoutParam{Name: "main", Type: "branch"}},
	}
	s = get(client.Beta.Sessions.New(ctx, anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: param.NewOpt(agentID)},
		EnvironmentID: envID,
		Resources:     []anthropic.BetaSessionNewParamsResourceUnion{{OfGitHubRepository: &repository}},
	}))
	shown := s.Resources[0]
	want(shown.URL == repository.URL && shown.MountPath == "/workspace/Hello-World" && shown.Checkout.Name == "main", s.RawJSON())
	rotated := get(resources.Update(ctx, shown.ID, anthropic.BetaSessionResourceUpdateParams{SessionID: s.ID, AuthorizationToken: "gh-0ther"}))
	want(rotated.ID == shown.ID && rotated.UpdatedAt.After(shown.UpdatedAt), rotated.RawJSON())
	want(!strings.Contains(s.RawJSON()+rotated.RawJSON(), "gh-"), s.RawJSON())
	get(client.Beta.Sessions.Delete(ctx, s.ID, anthropic.BetaSessionDeleteParams{}))
}

func bundle(text string) []io.Reader {
	skill := "---\nname: hello\ndescription: " + text + "\n---\nSay hello.\n"
	return []io.Reader{
		anthropic.File(strings.NewReader(skill), "hello/SKILL.md", "text/markdown"),
		anthropic.File(strings.NewReader("data"), "hello/data/x.txt", "text/plain"),
	}
}

func skillsAndVersions() {
	skills, versions := client.Beta.Skills, client.Beta.Skills.Versions
	skill := get(skills.New(ctx, anthropic.BetaSkillNewParams{Files: bundle("One.")}))
	second := get(versions.New(ctx, skill.ID, anthropic.BetaSkillVersionNewParams{Files: bundle("Two.")}))
	want(get(skills.Get(ctx, skill.ID, anthropic.BetaSkillGetParams{})).LatestVersionID == second.ID)
	first := get(versions.Get(ctx, skill.LatestVersionID, anthropic.BetaSkillVersionGetParams{SkillID: skill.ID}))
	want(first.Name == "hello" && first.Description == "One.", first.RawJSON())
	listed := get(versions.List(ctx, skill.ID, anthropic.BetaSkillVersionListParams{}))
	want(len(listed.Data) == 2 && listed.Data[0].ID == second.ID, listed.RawJSON())
	want(get(skills.List(ctx, anthropic.BetaSkillListParams{})).Data[0].ID == skill.ID)
	zip := whole(versions.Download(ctx, first.ID, anthropic.BetaSkillVersionDownloadParams{SkillID: skill.ID}))
	want(bytes.HasPrefix(zip, []byte("PK\x03\x04")))
	for _, id := range []string{first.ID, second.ID} {
		get(versions.Delete(ctx, id, anthropic.BetaSkillVersionDeleteParams{SkillID: skill.ID}))
	}
	want(get(skills.Delete(ctx, skill.ID, anthropic.BetaSkillDeleteParams{})).ID == skill.ID)
}

func otherMethodsOfVaults() {
	v := get(client.Beta.Vaults.New(ctx, anthropic.BetaVaultNewParams{DisplayName: "Ada"}))
	want(get(client.Beta.Vaults.Get(ctx, v.ID, anthropic.BetaVaultGetParams{})).DisplayName == "Ada")
	want(get(client.Beta.Vaults.Update(ctx, v.ID, anthropic.BetaVaultUpdateParams{DisplayName: param.NewOpt("B")})).DisplayName == "B")
	want(get(client.Beta.Vaults.List(ctx, anthropic.BetaVaultListParams{})).Data[0].ID == v.ID)
	credentials := client.Beta.Vaults.Credentials
	c := get(credentials.New(ctx, v.ID, anthropic.BetaVaultCredentialNewParams{
		Auth: anthropic.BetaVaultCredentialNewParamsAuthUnion{OfStaticBearer: &anthropic.BetaManagedAgentsStaticBearerCreateParams{
			Type: "static_bearer", Token: "t", MCPServerURL: "https://go2.example/mcp",
		}},
	}))
	want(get(credentials.Get(ctx, c.ID, anthropic.BetaVaultCredentialGetParams{VaultID: v.ID})).ID == c.ID)
	want(get(credentials.Update(ctx, c.ID, anthropic.BetaVaultCredentialUpdateParams{VaultID: v.ID, DisplayName: param.NewOpt("n")})).DisplayName == "n")
	said := get(credentials.MCPOAuthValidate(ctx, c.ID, anthropic.BetaVaultCredentialMCPOAuthValidateParams{VaultID: v.ID}))
	want(said.CredentialID == c.ID && !said.HasRefreshToken, said.RawJSON()) // nothing answers at that name
	want(get(credentials.Delete(ctx, c.ID, anthropic.BetaVaultCredentialDeleteParams{VaultID: v.ID})).ID == c.ID)
	want(!get(client.Beta.Vaults.Archive(ctx, v.ID, anthropic.BetaVaultArchiveParams{})).ArchivedAt.IsZero())
}

func otherMethodsOfMemory() {
	stores := client.Beta.MemoryStores
	s := get(stores.New(ctx, anthropic.BetaMemoryStoreNewParams{Name: "Other"}))
	want(get(stores.Get(ctx, s.ID, anthropic.BetaMemoryStoreGetParams{})).Name == "Other")
	want(get(stores.Update(ctx, s.ID, anthropic.BetaMemoryStoreUpdateParams{Description: param.NewOpt("d")})).Description == "d")
	want(get(stores.List(ctx, anthropic.BetaMemoryStoreListParams{})).Data[0].ID == s.ID)
	m := get(stores.Memories.New(ctx, s.ID, anthropic.BetaMemoryStoreMemoryNewParams{Path: "/x", Content: param.NewOpt("one")}))
	want(get(stores.Memories.Get(ctx, m.ID, anthropic.BetaMemoryStoreMemoryGetParams{MemoryStoreID: s.ID})).Path == "/x")
	version := get(stores.MemoryVersions.List(ctx, s.ID, anthropic.BetaMemoryStoreMemoryVersionListParams{})).Data[0]
	got := get(stores.MemoryVersions.Get(ctx, version.ID, anthropic.BetaMemoryStoreMemoryVersionGetParams{MemoryStoreID: s.ID}))
	want(got.ID == version.ID && got.MemoryID == m.ID, got.RawJSON())
	want(!get(stores.Archive(ctx, s.ID, anthropic.BetaMemoryStoreArchiveParams{})).ArchivedAt.IsZero())
	want(get(stores.Delete(ctx, s.ID, anthropic.BetaMemoryStoreDeleteParams{})).ID == s.ID)
}

func otherMethodsOfDeployments() {
	deployments := client.Beta.Deployments
	d := get(deployments.New(ctx, anthropic.BetaDeploymentNewParams{
		Name:          "by hand",
		Agent:         anthropic.BetaDeploymentNewParamsAgentUnion{OfString: param.NewOpt(agentID)},
		EnvironmentID: envID,
		InitialEvents: []anthropic.BetaManagedAgentsDeploymentInitialEventParamsUnion{{
			OfUserMessage: message("hello").Events[0].OfUserMessage,
		}},
	}))
	want(get(deployments.Get(ctx, d.ID, anthropic.BetaDeploymentGetParams{})).Name == "by hand")
	want(get(deployments.Update(ctx, d.ID, anthropic.BetaDeploymentUpdateParams{Description: param.NewOpt("x")})).Description == "x")
	want(get(deployments.List(ctx, anthropic.BetaDeploymentListParams{})).Data[0].ID == d.ID)
	run := get(deployments.Run(ctx, d.ID, anthropic.BetaDeploymentRunParams{}))
	again := get(client.Beta.DeploymentRuns.Get(ctx, run.ID, anthropic.BetaDeploymentRunGetParams{}))
	want(again.SessionID == run.SessionID && time.Since(again.CreatedAt) < time.Hour, again.RawJSON())
}
