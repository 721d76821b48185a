// The official Go SDK against mangod, with nothing changed but the base URL and the key.
// MANGO_BASE_URL and MANGO_API_KEY name the server. One line per check, a count at the end, status 1 when one failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

var (
	ctx, cancel    = context.WithTimeout(context.Background(), 2*time.Minute)
	baseURL        = os.Getenv("MANGO_BASE_URL")
	client         = anthropic.NewClient(option.WithBaseURL(baseURL+"/"), option.WithAPIKey(os.Getenv("MANGO_API_KEY")))
	agentID, envID string
	sessionID      string
	passed, failed int
)

func check(name string, fn func() error) {
	if err := fn(); err != nil {
		failed++
		fmt.Printf("not ok - go: %s\n  %v\n", name, err)
		return
	}
	passed++
	fmt.Printf("ok - go: %s\n", name)
}

func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func message(text string) anthropic.BetaSessionEventSendParams {
	return anthropic.BetaSessionEventSendParams{Events: []anthropic.BetaManagedAgentsEventParamsUnion{{
		OfUserMessage: &anthropic.BetaManagedAgentsUserMessageEventParams{
			Type: "user.message",
			Content: []anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{{
				OfText: &anthropic.BetaManagedAgentsTextBlockParam{Type: "text", Text: text},
			}},
		},
	}}}
}

func agents() error {
	a, err := client.Beta.Agents.New(ctx, anthropic.BetaAgentNewParams{
		Name:  "go agent",
		Model: anthropic.BetaManagedAgentsModelConfigParams{ID: "claude-sonnet-4-5"},
		Tools: []anthropic.BetaAgentNewParamsToolUnion{{
			OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{Type: "agent_toolset_20260401"},
		}},
	})
	if err != nil {
		return err
	}
	agentID = a.ID
	b, err := client.Beta.Agents.Update(ctx, a.ID, anthropic.BetaAgentUpdateParams{Version: param.NewOpt[int64](1), Description: param.NewOpt("d")})
	if err != nil {
		return err
	}
	found := false
	for pager := client.Beta.Agents.ListAutoPaging(ctx, anthropic.BetaAgentListParams{Limit: param.NewOpt[int64](2)}); pager.Next(); {
		found = found || pager.Current().ID == a.ID
	}
	return must(b.Version == 2 && found && !a.CreatedAt.IsZero(), "version %d, listed %v", b.Version, found)
}

func environments() error {
	e, err := client.Beta.Environments.New(ctx, anthropic.BetaEnvironmentNewParams{
		Name: fmt.Sprintf("go %d", time.Now().UnixNano()),
		Config: anthropic.BetaEnvironmentNewParamsConfigUnion{
			OfCloud: &anthropic.BetaCloudConfigParams{Type: "cloud"},
		},
	})
	if err != nil {
		return err
	}
	envID = e.ID
	got, err := client.Beta.Environments.Get(ctx, e.ID, anthropic.BetaEnvironmentGetParams{})
	if err != nil {
		return err
	}
	return must(got.Config.Type == "cloud", "config type %s", got.Config.Type)
}

func runBash() error {
	s, err := client.Beta.Sessions.New(ctx, anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: param.NewOpt(agentID)},
		EnvironmentID: envID,
	})
	if err != nil {
		return err
	}
	sessionID = s.ID
	stream := client.Beta.Sessions.Events.StreamEvents(ctx, s.ID, anthropic.BetaSessionEventStreamParams{})
	defer stream.Close()
	if _, err = client.Beta.Sessions.Events.Send(ctx, s.ID, message("run: echo from-the-sandbox")); err != nil {
		return err
	}
	seen := map[string]int{}
	for stream.Next() {
		event := stream.Current()
		seen[string(event.Type)]++
		if event.Type == "session.status_idle" {
			break
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return must(seen["agent.tool_use"] == 1 && seen["agent.tool_result"] == 1 && seen["agent.message"] > 0, "seen %v", seen)
}

func listEvents() error {
	var asc, desc []string
	for pager := client.Beta.Sessions.Events.ListAutoPaging(ctx, sessionID, anthropic.BetaSessionEventListParams{Limit: param.NewOpt[int64](2)}); pager.Next(); {
		asc = append(asc, pager.Current().ID)
	}
	for pager := client.Beta.Sessions.Events.ListAutoPaging(ctx, sessionID, anthropic.BetaSessionEventListParams{Limit: param.NewOpt[int64](3), Order: "desc"}); pager.Next(); {
		desc = append(desc, pager.Current().ID)
	}
	if len(asc) == 0 || len(asc) != len(desc) {
		return fmt.Errorf("%d ascending, %d descending", len(asc), len(desc))
	}
	for i := range asc {
		if asc[i] != desc[len(desc)-1-i] {
			return fmt.Errorf("the orders differ at %d", i)
		}
	}
	return nil
}

func refused(status int, err error) error {
	var apiErr *anthropic.Error
	if !errors.As(err, &apiErr) {
		return fmt.Errorf("not an API error: %v", err)
	}
	return must(apiErr.StatusCode == status && apiErr.RequestID != "", "status %d instead of %d, request id %q", apiErr.StatusCode, status, apiErr.RequestID)
}

func errorClasses() error {
	_, err := client.Beta.Agents.Get(ctx, "agent_missing", anthropic.BetaAgentGetParams{})
	if e := refused(404, err); e != nil {
		return e
	}
	_, err = client.Beta.Agents.Update(ctx, agentID, anthropic.BetaAgentUpdateParams{Version: param.NewOpt[int64](1), Description: param.NewOpt("x")})
	if e := refused(409, err); e != nil {
		return e
	}
	bad := anthropic.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey("mango_wrong"), option.WithMaxRetries(0))
	_, err = bad.Beta.Agents.List(ctx, anthropic.BetaAgentListParams{})
	return refused(401, err)
}

func deleteSession() error {
	stream := client.Beta.Sessions.Events.StreamEvents(ctx, sessionID, anthropic.BetaSessionEventStreamParams{})
	defer stream.Close()
	if _, err := client.Beta.Sessions.Delete(ctx, sessionID, anthropic.BetaSessionDeleteParams{}); err != nil {
		return err
	}
	last := ""
	for stream.Next() {
		last = string(stream.Current().Type)
	}
	if last != "session.deleted" {
		return fmt.Errorf("the stream ended with %q", last)
	}
	_, err := client.Beta.Sessions.Get(ctx, sessionID, anthropic.BetaSessionGetParams{})
	return refused(404, err)
}

func main() {
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "webhooks" {
		check("webhooks: unwrap takes every notice, and no other body", webhooks)
		finish()
	}
	check("agents: new, update, list", agents)
	check("environments: new, get", environments)
	check("a message makes the model run bash, and the stream shows it", runBash)
	check("events list in both orders", listEvents)
	check("errors: 404, 409, 401", errorClasses)
	check("deleting ends an open stream", deleteSession)
	check("vaults and credentials", vaults)
	check("memory stores, memories, versions", memory)
	check("deployments and runs", deployments)
	check("files and session resources: every method", caught(filesAndSessionResources))
	check("skills and versions: every method", caught(skillsAndVersions))
	check("vaults and credentials: the other methods", caught(otherMethodsOfVaults))
	check("memory stores, memories, versions: the other methods", caught(otherMethodsOfMemory))
	check("deployments and runs: the other methods", caught(otherMethodsOfDeployments))
	finish()
}

func finish() {
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}
