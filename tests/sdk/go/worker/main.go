// The official EnvironmentWorker of the Go SDK, unmodified: serves an environment until SIGTERM. The variables are those of worker.mjs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
	"github.com/anthropics/anthropic-sdk-go/tools/agenttoolset"
)

type city struct {
	City string `json:"city" jsonschema:"required"`
}

func weather(_ context.Context, in city) (anthropic.BetaToolResultBlockParamContentUnion, error) {
	return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny in " + in.City}}, nil
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func drain(ctx context.Context, client anthropic.Client) {
	poller := environments.NewWorkPoller(ctx, client, environments.WorkPollerOptions{
		EnvironmentID:  os.Getenv("WORKER_ENVIRONMENT"),
		EnvironmentKey: os.Getenv("WORKER_KEY"),
		Drain:          true,
		AutoStop:       anthropic.Bool(false),
	})
	for poller.Next() {
		fmt.Println("drained", poller.Current().Data.ID)
	}
	check(poller.Err())
}

func serve(ctx context.Context, client anthropic.Client) {
	ms, err := strconv.Atoi(os.Getenv("WORKER_IDLE_MS"))
	check(err)
	idle := time.Duration(ms) * time.Millisecond
	worker := environments.NewEnvironmentWorker(client, environments.EnvironmentWorkerOptions{
		EnvironmentID:  os.Getenv("WORKER_ENVIRONMENT"),
		EnvironmentKey: os.Getenv("WORKER_KEY"),
		Workdir:        os.Getenv("WORKER_DIR"),
		WorkerID:       os.Getenv("WORKER_ID"),
		MaxIdle:        &idle,
		ToolsFunc: func(env *agenttoolset.AgentToolContext) []anthropic.BetaTool {
			tool, err := toolrunner.NewBetaToolFromJSONSchema("weather", "The weather of a city.", weather)
			check(err)
			return append(agenttoolset.BetaAgentToolset20260401(env), tool)
		},
	})
	if err := worker.Run(ctx); err != nil && ctx.Err() == nil {
		check(err)
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	client := anthropic.NewClient(option.WithBaseURL(os.Getenv("MANGO_BASE_URL")), option.WithAPIKey("of-no-use"))
	fmt.Println("ready go")
	if os.Getenv("WORKER_MODE") == "drain" {
		drain(ctx, client)
	} else {
		serve(ctx, client)
	}
	fmt.Println("ended")
}
