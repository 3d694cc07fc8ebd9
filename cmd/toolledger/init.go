package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"toolledger/internal/stack"
)

// initResult is what init prints with --json.
type initResult struct {
	Endpoint string        `json:"endpoint,omitempty"` // absent for AWS itself
	Region   string        `json:"region"`
	Table    string        `json:"table"`
	Control  string        `json:"control_table"`
	Tables   []stack.Table `json:"tables"`
}

func newInitCommand(a *app) *cobra.Command {
	w := &where{}
	var noStream bool
	cmd := &cobra.Command{
		Use: "init", GroupID: groupDeploy, Args: noArgs,
		Short: "Make the ledger table and the control table, for those who deploy without SAM",
		Long: `Makes the ledger table and the control table and switches on their streams and TTL.
Tables that are there already are checked and left alone, so it may be run again.
The place is --endpoint URL, or AWS as the SDK's own variables say (AWS_REGION, AWS_PROFILE, ...).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.initTables(cmd.Context(), w, !noStream) },
	}
	cmd.Flags().StringVar(&w.endpoint, "endpoint", "", "the DynamoDB at `URL`")
	cmd.Flags().BoolVar(&noStream, "no-stream", false, "without streams: no events and no metrics then")
	w.addTables(cmd)
	return cmd
}

func (a *app) initTables(ctx context.Context, w *where, stream bool) error {
	if w.endpoint == "" && w.region == "" && os.Getenv("AWS_REGION") == "" && os.Getenv("AWS_PROFILE") == "" {
		return badInput("say where to make the tables: --endpoint URL, or --region R for AWS")
	}
	if w.endpoint != "" {
		if err := checkEndpoint(w.endpoint); err != nil {
			return err
		}
	}
	if err := w.checkTables(); err != nil {
		return err
	}
	l, err := a.openAWS(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	tables, err := stack.CreateTables(ctx, l.client, l.table, l.control, stream)
	if err != nil {
		return badInput("%s: %w", l, err)
	}
	if a.json {
		return a.printJSON(initResult{Endpoint: l.endpoint, Region: l.region, Table: l.table, Control: l.control, Tables: tables})
	}
	for _, t := range tables {
		verb := "was there"
		if t.Created {
			verb = "made"
		}
		a.print("%-10s %s\n", verb, t.ARN)
		if !t.TTL {
			a.print("%-10s TTL could not be switched on: ended calls stay in the table\n", "")
		}
	}
	return nil
}
