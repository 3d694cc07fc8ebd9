// Demo runs the workflow of package stepfn beside `toolledger dev`: reserve, render and finalize are processes of their own, and
// nothing but the workflow's state, as JSON, goes from one to the next.
//
//	demo                                  the story
//	demo reserve | render | finalize      one function: state on stdin, the next state on stdout
//
// As a Lambda function STATE says which of the three it is.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/examples/stepfn"
	"toolledger/writers"
)

func main() {
	ctx := context.Background()
	var err error
	switch {
	case os.Getenv("AWS_LAMBDA_RUNTIME_API") != "":
		err = serve(ctx, os.Getenv("STATE"))
	case len(os.Args) == 2:
		err = once(ctx, os.Args[1], os.Stdin, os.Stdout)
	default:
		err = story(os.Stdout, fmt.Sprintf("workflow-%d", time.Now().UnixMilli()), child(ctx))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A function is one state of the workflow.
type function func(ctx context.Context, l *writers.Ledger, st stepfn.State) (stepfn.State, error)

// functions are the states by name.
func functions() map[string]function {
	return map[string]function{"reserve": stepfn.Reserve, "render": render, "finalize": stepfn.Finalize}
}

var errState = errors.New("STATE must be reserve, render or finalize")

// render stands for a service that renders for hours. It has the effect key, so rendering again gives the same video.
func render(_ context.Context, _ *writers.Ledger, st stepfn.State) (stepfn.State, error) {
	st.Seconds = 60
	st.Result = json.RawMessage(`{"url":"https://videos.example/` + st.EffectKey + `"}`)
	return st, nil
}

func openLedger(ctx context.Context) (*writers.Ledger, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: cmp.Or(os.Getenv("LEDGER_TABLE"), "toolledger")})
}

// serve is the Lambda function. It returns only what keeps it from starting.
func serve(ctx context.Context, name string) error {
	f, ok := functions()[name]
	if !ok {
		return fmt.Errorf("%w, not %q", errState, name)
	}
	ledger, err := openLedger(ctx)
	if err != nil {
		return err
	}
	lambda.Start(func(ctx context.Context, st stepfn.State) (stepfn.State, error) { return f(ctx, ledger, st) })
	return nil
}

// once runs one function in this process.
func once(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	f, ok := functions()[name]
	if !ok {
		return fmt.Errorf("%w, not %q", errState, name)
	}
	ledger, err := openLedger(ctx)
	if err != nil {
		return err
	}
	var st stepfn.State
	if err := json.NewDecoder(in).Decode(&st); err != nil {
		return err
	}
	if st, err = f(ctx, ledger, st); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(st); err != nil {
		return err
	}
	return ledger.Close(ctx)
}

// A runner runs one function on the state.
type runner func(name string, st stepfn.State) (stepfn.State, error)

// child runs each function in a process of its own.
func child(ctx context.Context) runner {
	return func(name string, st stepfn.State) (stepfn.State, error) {
		text, err := json.Marshal(st)
		if err != nil {
			return st, err
		}
		cmd := exec.CommandContext(ctx, os.Args[0], name)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return st, fmt.Errorf("%s: %w", name, err)
		}
		var next stepfn.State
		return next, json.Unmarshal(out, &next)
	}
}

// story runs the workflow twice. Its last state runs twice too, as a retry policy does after an answer that was lost.
func story(out io.Writer, session string, run runner) error {
	start := stepfn.State{Tenant: "acme", Session: session, Key: "render-1", Args: json.RawMessage(`{"clip":"a"}`)}
	st := start
	for _, name := range []string{"reserve", "render", "finalize"} {
		next, err := run(name, st)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-9s done=%v token=%d bytes result=%s\n", name, next.Done, len(next.Reservation), next.Result)
		if name == "finalize" {
			if next, err = run(name, st); err != nil {
				return err
			}
			fmt.Fprintf(out, "%-9s again, as after a lost answer: done=%v\n", name, next.Done)
		}
		st = next
	}
	again, err := run("reserve", start)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a second run of the workflow renders nothing: done=%v result=%s\n", again.Done, again.Result)
	return nil
}
