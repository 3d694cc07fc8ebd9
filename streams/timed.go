package streams

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// timedStreams bounds each request to a stream: the SDK waits for ever for a server that took a request and says nothing, and
// the shard would stand still with it.
type timedStreams struct {
	StreamReader
	most time.Duration
}

func (t timedStreams) DescribeStream(
	ctx context.Context, in *dynamodbstreams.DescribeStreamInput, opts ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.DescribeStreamOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.most)
	defer cancel()
	return t.StreamReader.DescribeStream(ctx, in, opts...)
}

func (t timedStreams) GetShardIterator(
	ctx context.Context, in *dynamodbstreams.GetShardIteratorInput, opts ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.GetShardIteratorOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.most)
	defer cancel()
	return t.StreamReader.GetShardIterator(ctx, in, opts...)
}

func (t timedStreams) GetRecords(
	ctx context.Context, in *dynamodbstreams.GetRecordsInput, opts ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.GetRecordsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.most)
	defer cancel()
	return t.StreamReader.GetRecords(ctx, in, opts...)
}

// timedLeases bounds each request to the control table likewise.
type timedLeases struct {
	LeaseTable
	most time.Duration
}

func (t timedLeases) GetItem(
	ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.most)
	defer cancel()
	return t.LeaseTable.GetItem(ctx, in, opts...)
}

func (t timedLeases) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.most)
	defer cancel()
	return t.LeaseTable.UpdateItem(ctx, in, opts...)
}
