package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fence:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// run fences the table that LEDGER_TABLE names.
func run(ctx context.Context, from io.Reader, to io.Writer) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	l, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{
		Table: os.Getenv("LEDGER_TABLE"), Control: os.Getenv("LEDGER_CONTROL_TABLE"),
	})
	if err != nil {
		return err
	}
	r, err := Fence(ctx, l, from)
	r.print(to)
	return err
}

func (r Report) print(to io.Writer) {
	fmt.Fprintf(to, "%d events: %d effects known, %d planted, %d to settle, %d unclear\n",
		r.Events, r.Known, r.Planted, len(r.Settle), len(r.Unclear))
	for _, c := range r.Settle {
		fmt.Fprintf(to, "settle   %s %s %s  %s, attempt %d, event %s\n", c.Call.Tenant, c.Call.Session, c.Call.Key, c.State, c.Attempt, c.Event)
	}
	for _, c := range r.Unclear {
		fmt.Fprintf(to, "unclear  %s %s %s  forgotten, attempt %d, event %s\n", c.Call.Tenant, c.Call.Session, c.Call.Key, c.Attempt, c.Event)
	}
}
