package checks

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// Bounds of the search for a record of an expired item.
const (
	maxShards        = 40
	maxReadsPerShard = 25
)

// How DynamoDB names itself in the record of an item that it has removed because its time had passed.
const (
	ttlType      = "Service"
	ttlPrincipal = "dynamodb.amazonaws.com"
)

// timeToLive checks that expired items leave, and who the stream says has removed them.
func (r *run) timeToLive(ctx context.Context) {
	const group = "ttl"
	out, err := r.cfg.Clients.DynamoDB.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(r.stack.ledger())})
	if err != nil {
		r.add(group, "enabled", Failed, "%v", err)
		return
	}
	d := out.TimeToLiveDescription
	r.must(group, "enabled", d != nil && d.TimeToLiveStatus == dynamodbtypes.TimeToLiveStatusEnabled && aws.ToString(d.AttributeName) == "expiresAt",
		"items do not expire by expiresAt: %+v", d)
	seen, strange, err := r.removals(ctx, r.stack.outputs["LedgerStreamArn"])
	switch {
	case err != nil:
		r.add(group, "identity", Failed, "%v", err)
	case strange != "":
		r.add(group, "identity", Failed, "an expired item was removed by %s: the consumer takes it for tampering", strange)
	case seen:
		r.add(group, "identity", OK, "the stream names DynamoDB where it removed an expired item")
	default:
		r.add(group, "identity", Unknown, "no item has expired within a day: run with -write, and again a day or two later")
	}
}

// removals reads the stream, within bounds, for the removal of an item by a service.
func (r *run) removals(ctx context.Context, stream string) (seen bool, strange string, err error) {
	in := &dynamodbstreams.DescribeStreamInput{StreamArn: &stream}
	left := maxShards
	for range maxPages {
		page, err := r.cfg.Clients.Streams.DescribeStream(ctx, in)
		if err != nil {
			return seen, strange, err
		}
		for _, shard := range page.StreamDescription.Shards {
			if left--; left < 0 {
				return seen, strange, nil
			}
			if seen, strange, err = r.removalsOfShard(ctx, stream, shard.ShardId); seen || strange != "" || err != nil {
				return seen, strange, err
			}
		}
		if in.ExclusiveStartShardId = page.StreamDescription.LastEvaluatedShardId; in.ExclusiveStartShardId == nil {
			return seen, strange, nil
		}
	}
	return seen, strange, nil
}

func (r *run) removalsOfShard(ctx context.Context, stream string, shard *string) (seen bool, strange string, err error) {
	at, err := r.cfg.Clients.Streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &stream, ShardId: shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return false, "", err
	}
	next := at.ShardIterator
	for range maxReadsPerShard {
		if next == nil {
			break
		}
		page, err := r.cfg.Clients.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
		if err != nil {
			return false, "", err
		}
		for _, record := range page.Records {
			who := record.UserIdentity
			if record.EventName != types.OperationTypeRemove || who == nil {
				continue
			}
			if aws.ToString(who.Type) != ttlType || aws.ToString(who.PrincipalId) != ttlPrincipal {
				return false, aws.ToString(who.Type) + " " + aws.ToString(who.PrincipalId), nil
			}
			seen = true
		}
		if seen {
			break
		}
		next = page.NextShardIterator
	}
	return seen, "", nil
}
