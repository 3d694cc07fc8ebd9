package streams

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/smithy-go"

	"toolledger/internal/jitter"
)

type shardName struct{ id, parent string }

// maxPages bounds a listing: 100 shards a page, and no stream has a million of them.
const maxPages = 10_000

// listShards returns the shards of a stream, in the order of DynamoDB.
func listShards(ctx context.Context, client StreamReader, arn string) ([]shardName, error) {
	var found []shardName
	var after *string
	for range maxPages {
		out, err := client.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &arn, ExclusiveStartShardId: after})
		if err != nil {
			return nil, err
		}
		d := out.StreamDescription
		if d == nil {
			return nil, errors.New("the answer holds no description")
		}
		for _, s := range d.Shards {
			if id := aws.ToString(s.ShardId); id != "" {
				found = append(found, shardName{id, aws.ToString(s.ParentShardId)})
			}
		}
		after = d.LastEvaluatedShardId
		if aws.ToString(after) == "" {
			return found, nil
		}
	}
	return nil, errors.New("the list of shards does not end")
}

// permanent tells whether an error of a client will be the same however often the request is repeated.
func permanent(err error) bool {
	if _, publishing := errors.AsType[*publishError](err); publishing {
		return false
	}
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	switch e.ErrorCode() {
	case "ResourceNotFoundException", "AccessDeniedException", "ValidationException", "UnrecognizedClientException",
		"InvalidSignatureException", "MissingAuthenticationTokenException", "IncompleteSignatureException",
		"MissingAuthenticationToken", "SerializationException":
		return true
	}
	return false
}

// backoff is a pause that grows with each failure in a row, with full jitter.
type backoff struct {
	most     time.Duration
	failures int
}

const firstPause = 50 * time.Millisecond

func (b *backoff) next() time.Duration {
	ceiling := b.most
	if b.failures < 20 {
		ceiling = min(firstPause<<b.failures, b.most)
	}
	b.failures++
	// Half of it is certain, so that many empty answers do not make a tight loop by luck.
	return ceiling/2 + jitter.N(ceiling/2+1)
}

func (b *backoff) reset() { b.failures = 0 }

// sleep waits for d, for wake, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}
