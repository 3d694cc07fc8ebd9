package faults

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// Wrap puts level Call around a client of any kind.
func (in *Injector) Wrap(db writers.DynamoDB) writers.DynamoDB { return &wrapped{in, db} }

type wrapped struct {
	in *Injector
	db writers.DynamoDB
}

func through[I, O any](ctx context.Context, in *Injector, input *I, opts []func(*dynamodb.Options),
	send func(context.Context, *I, ...func(*dynamodb.Options)) (*O, error),
) (*O, error) {
	in.live()
	f := in.decide(Event{Level: Call, Op: opOf(input), Input: input})
	return around(ctx, in, f, func() (*O, error) { return send(ctx, input, opts...) })
}

// TransactWriteItems is the client's, with faults.
func (w *wrapped) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return through(ctx, w.in, in, opts, w.db.TransactWriteItems)
}

// TransactGetItems is the client's, with faults.
func (w *wrapped) TransactGetItems(ctx context.Context, in *dynamodb.TransactGetItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	return through(ctx, w.in, in, opts, w.db.TransactGetItems)
}

// GetItem is the client's, with faults.
func (w *wrapped) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return through(ctx, w.in, in, opts, w.db.GetItem)
}

// UpdateItem is the client's, with faults.
func (w *wrapped) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return through(ctx, w.in, in, opts, w.db.UpdateItem)
}

// Query is the client's, with faults.
func (w *wrapped) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return through(ctx, w.in, in, opts, w.db.Query)
}
