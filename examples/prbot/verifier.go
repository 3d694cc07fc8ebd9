package prbot

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"

	"toolledger/sweeper"
	"toolledger/writers"
)

// Serve makes the tool's Verify a Lambda function, which the deployed sweeper asks before it gives a reservation back. It
// does not return.
func Serve(forge Forge) { lambda.Start(sweeper.VerifierHandler(New(forge))) }

// StepEvent is what a workflow's state hands to ServeStep. Whoever starts the workflow writes it; no model does.
type StepEvent struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Key     string `json:"key"`
	Args    Args   `json:"args"`
}

// ServeStep makes Step a Lambda function, for a state of a workflow whose Retry comes back on an error. It does not return.
func ServeStep(l *writers.Ledger, forge Forge) {
	tool := New(forge)
	lambda.Start(func(ctx context.Context, e StepEvent) (string, error) {
		return Step(ctx, tool, l.Tenant(writers.TenantID(e.Tenant)).Session(e.Session), e.Key, e.Args)
	})
}
