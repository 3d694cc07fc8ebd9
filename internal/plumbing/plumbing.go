// Package plumbing is what a writers.Ledger lends to the sweeper and to this module's own tools: its client, its tables,
// its clock. It is internal, so that nobody outside builds on it.
package plumbing

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Client is the part of *dynamodb.Client that a ledger has.
type Client interface {
	protocol.Client
	TransactGetItems(context.Context, *dynamodb.TransactGetItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Ledger is what a ledger lends.
type Ledger struct {
	Client Client
	Tables protocol.Tables
	Now    func() time.Time
	Skew   time.Duration // how far apart clocks may be
	Keep   time.Duration // how long an ended row is kept where it says nothing else itself
	Logger *slog.Logger

	// ExpiresAt is when a row that ends now may be removed: after Keep, and after the last period that it debited.
	ExpiresAt func(row *schema.Row, debits []schema.Debit, now time.Time) time.Time

	// Settle records that the effect of a pending or failed row happened, as the outside world said (SweepFinalize,
	// VerifySettle): the row as it was read is the condition. It charges what was reserved. moved is false where the row
	// has changed since it was read, in which case nothing was written.
	Settle func(ctx context.Context, row *schema.Row, result json.RawMessage) (moved bool, err error)
}
