// Demo plays the story of prbot beside `toolledger dev`: a storm of workers opens one pull request at a small forge, the
// worker that opened it is killed before it could say so, and a run without quota is told so instead of retried.
//
//	demo                                                          the story
//	demo worker FORGE TENANT SESSION KEY REPO BRANCH TITLE        one attempt, as an orchestrator starts it
//
// As a Lambda function DOOR says what it is: step (a state of a workflow) or verify (what the deployed sweeper asks). FORGE_URL is the
// forge's address.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/examples/prbot"
	"toolledger/examples/prbot/forge"
	"toolledger/writers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case os.Getenv("AWS_LAMBDA_RUNTIME_API") != "":
		err = serve(ctx, os.Getenv("DOOR"), os.Getenv("FORGE_URL"))
	case len(os.Args) == 9 && os.Args[1] == "worker":
		err = work(ctx, os.Args[2:])
	default:
		err = story(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

var errSettings = errors.New("DOOR must be step or verify, and FORGE_URL the forge's address")

// serve is the Lambda function. It returns only what keeps it from starting.
func serve(ctx context.Context, door, url string) error {
	if url == "" || door != "step" && door != "verify" {
		return fmt.Errorf("%w: %q, %q", errSettings, door, url)
	}
	client := &prbot.Client{Base: url, HTTP: &http.Client{Timeout: 40 * time.Second}}
	if door == "verify" {
		prbot.Serve(client)
	}
	ledger, err := open(ctx)
	if err != nil {
		return err
	}
	prbot.ServeStep(ledger, client)
	return nil
}

func open(ctx context.Context) (*writers.Ledger, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: cmp.Or(os.Getenv("LEDGER_TABLE"), "toolledger")})
}

// work is one attempt. A status other than 0 asks the orchestrator to come again with the same key.
func work(ctx context.Context, args []string) error {
	ledger, err := open(ctx)
	if err != nil {
		return err
	}
	tool := prbot.New(&prbot.Client{Base: args[0]})
	s := ledger.Tenant(writers.TenantID(args[1])).Session(args[2])
	said, err := prbot.Step(ctx, tool, s, args[3], prbot.Args{Repo: args[4], Branch: args[5], Title: args[6]})
	if err != nil {
		return err
	}
	fmt.Println(said)
	return ledger.Close(ctx)
}

// story is an orchestrator that starts workers, and the forge that they work at.
func story(ctx context.Context) error {
	ledger, err := open(ctx)
	if err != nil {
		return err
	}
	session := fmt.Sprintf("story-%d", time.Now().UnixMilli())
	ctx, cancel := context.WithCancel(ctx)
	opened := make(chan struct{})
	var once atomic.Bool
	host := forge.New(func(string, forge.Pull) {
		if once.CompareAndSwap(false, true) { // the forge has it, and nobody is told
			close(opened)
			<-ctx.Done()
		}
	})
	server := httptest.NewServer(host)
	defer server.Close()
	defer cancel() // first: it lets the forge's last answer go
	if err := push(ctx, server.URL, "fix/1"); err != nil {
		return err
	}
	if err := prepare(ctx, ledger, "acme", session); err != nil {
		return err
	}
	worker := func(tenant string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], "worker", server.URL, tenant, session, "pr-1", "acme/api", "fix/1", "Fix it")
		cmd.Stdout = os.Stdout
		return cmd
	}
	killed := worker("acme")
	if err := killed.Start(); err != nil {
		return err
	}
	select {
	case <-opened:
	case <-time.After(30 * time.Second):
		return errors.New("the first worker opens nothing")
	}
	_ = killed.Process.Kill()
	_ = killed.Wait() // killed, which is what it says
	fmt.Println("the worker was killed: the forge has a pull request, and the ledger does not know")
	if err := storm(worker, "acme", 4); err != nil {
		return err
	}
	fmt.Printf("pull requests at the forge: %d\n", host.Opens())

	poor := ledger.Tenant("poor")
	if err := poor.PutPlan(ctx, writers.Plan{Tokens: 1}); err != nil {
		return err
	}
	if err := prepare(ctx, ledger, "poor", session); err != nil {
		return err
	}
	if err := storm(worker, "poor", 1); err != nil {
		return err
	}
	fmt.Printf("pull requests at the forge: %d\n", host.Opens())
	return ledger.Close(ctx)
}

// storm starts workers at once and waits for all of them.
func storm(worker func(string) *exec.Cmd, tenant string, n int) error {
	workers := make([]*exec.Cmd, n)
	for i := range workers {
		workers[i] = worker(tenant)
		if err := workers[i].Start(); err != nil {
			return err
		}
	}
	var failed error
	for _, w := range workers {
		failed = errors.Join(failed, w.Wait())
	}
	return failed
}
