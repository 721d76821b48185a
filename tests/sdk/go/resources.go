// Vaults, memory stores and deployments by the official Go SDK.
package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

func sha(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

func vaults() error {
	v, err := client.Beta.Vaults.New(ctx, anthropic.BetaVaultNewParams{DisplayName: "Ada"})
	if err != nil {
		return err
	}
	c, err := client.Beta.Vaults.Credentials.New(ctx, v.ID, anthropic.BetaVaultCredentialNewParams{
		Auth: anthropic.BetaVaultCredentialNewParamsAuthUnion{OfStaticBearer: &anthropic.BetaManagedAgentsStaticBearerCreateParams{
			Type: "static_bearer", Token: "tok3n", MCPServerURL: "https://go.example/mcp",
		}},
	})
	if err != nil {
		return err
	}
	list, err := client.Beta.Vaults.Credentials.List(ctx, v.ID, anthropic.BetaVaultCredentialListParams{})
	if err != nil {
		return err
	}
	if len(list.Data) != 1 || list.Data[0].ID != c.ID || strings.Contains(c.RawJSON(), "tok3n") {
		return fmt.Errorf("%s", c.RawJSON())
	}
	if _, err = client.Beta.Vaults.Credentials.Archive(ctx, c.ID, anthropic.BetaVaultCredentialArchiveParams{VaultID: v.ID}); err != nil {
		return err
	}
	_, err = client.Beta.Vaults.Delete(ctx, v.ID, anthropic.BetaVaultDeleteParams{})
	return err
}

func memory() error {
	s, err := client.Beta.MemoryStores.New(ctx, anthropic.BetaMemoryStoreNewParams{Name: "Notes"})
	if err != nil {
		return err
	}
	m, err := client.Beta.MemoryStores.Memories.New(ctx, s.ID, anthropic.BetaMemoryStoreMemoryNewParams{Path: "/a/b.md", Content: param.NewOpt("one"), View: "full"})
	if err != nil {
		return err
	}
	if m.Content != "one" || m.ContentSha256 != sha("one") {
		return fmt.Errorf("%s", m.RawJSON())
	}
	update := anthropic.BetaMemoryStoreMemoryUpdateParams{
		MemoryStoreID: s.ID,
		Content:       param.NewOpt("two"),
		Precondition:  anthropic.BetaManagedAgentsPreconditionParam{Type: "content_sha256", ContentSha256: param.NewOpt(sha("one"))},
	}
	if _, err = client.Beta.MemoryStores.Memories.Update(ctx, m.ID, update); err != nil {
		return err
	}
	update.Content = param.NewOpt("three")
	_, err = client.Beta.MemoryStores.Memories.Update(ctx, m.ID, update)
	if e := refused(409, err); e != nil {
		return e
	}
	items, err := client.Beta.MemoryStores.Memories.List(ctx, s.ID, anthropic.BetaMemoryStoreMemoryListParams{Depth: param.NewOpt[int64](1)})
	if err != nil {
		return err
	}
	if len(items.Data) != 1 || items.Data[0].Type != "memory_prefix" || items.Data[0].Path != "/a/" {
		return fmt.Errorf("%s", items.RawJSON())
	}
	if _, err = client.Beta.MemoryStores.Memories.Delete(ctx, m.ID, anthropic.BetaMemoryStoreMemoryDeleteParams{MemoryStoreID: s.ID, ExpectedContentSha256: param.NewOpt(sha("two"))}); err != nil {
		return err
	}
	versions, err := client.Beta.MemoryStores.MemoryVersions.List(ctx, s.ID, anthropic.BetaMemoryStoreMemoryVersionListParams{})
	if err != nil {
		return err
	}
	if len(versions.Data) != 3 || versions.Data[0].Operation != "deleted" {
		return fmt.Errorf("%s", versions.RawJSON())
	}
	r, err := client.Beta.MemoryStores.MemoryVersions.Redact(ctx, versions.Data[2].ID, anthropic.BetaMemoryStoreMemoryVersionRedactParams{MemoryStoreID: s.ID})
	if err != nil {
		return err
	}
	return must(!r.RedactedAt.IsZero(), "%s", r.RawJSON())
}

func deployments() error {
	a, err := client.Beta.Agents.New(ctx, anthropic.BetaAgentNewParams{Name: "deployed", Model: anthropic.BetaManagedAgentsModelConfigParams{ID: "claude-sonnet-4-5"}})
	if err != nil {
		return err
	}
	d, err := client.Beta.Deployments.New(ctx, anthropic.BetaDeploymentNewParams{
		Name:          "nightly",
		Agent:         anthropic.BetaDeploymentNewParamsAgentUnion{OfString: param.NewOpt(a.ID)},
		EnvironmentID: envID,
		InitialEvents: []anthropic.BetaManagedAgentsDeploymentInitialEventParamsUnion{{
			OfUserMessage: &anthropic.BetaManagedAgentsUserMessageEventParams{
				Type: "user.message",
				Content: []anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{{
					OfText: &anthropic.BetaManagedAgentsTextBlockParam{Type: "text", Text: "hello"},
				}},
			},
		}},
		Schedule: anthropic.BetaManagedAgentsScheduleParams{Type: "cron", Expression: "30 2 * * *", Timezone: "Europe/Berlin"},
	})
	if err != nil {
		return err
	}
	if d.Agent.Version != 1 || len(d.Schedule.UpcomingRunsAt) != 5 || d.Schedule.UpcomingRunsAt[0].Before(time.Now()) {
		return fmt.Errorf("%s", d.RawJSON())
	}
	run, err := client.Beta.Deployments.Run(ctx, d.ID, anthropic.BetaDeploymentRunParams{})
	if err != nil {
		return err
	}
	runs, err := client.Beta.DeploymentRuns.List(ctx, anthropic.BetaDeploymentRunListParams{DeploymentID: param.NewOpt(d.ID)})
	if err != nil {
		return err
	}
	if len(runs.Data) != 1 || runs.Data[0].ID != run.ID || run.SessionID == "" {
		return fmt.Errorf("%s", runs.RawJSON())
	}
	if _, err = client.Beta.Deployments.Pause(ctx, d.ID, anthropic.BetaDeploymentPauseParams{}); err != nil {
		return err
	}
	if _, err = client.Beta.Deployments.Unpause(ctx, d.ID, anthropic.BetaDeploymentUnpauseParams{}); err != nil {
		return err
	}
	_, err = client.Beta.Deployments.Archive(ctx, d.ID, anthropic.BetaDeploymentArchiveParams{})
	return err
}
