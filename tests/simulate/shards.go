package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/streams"
)

// shard is a part of the ledger table's stream, as the poller sees it. The local store has one shard that never ends; this
// stream has the same records in shards that split and close.
type shard struct {
	id        string
	parent    *shard
	low, high uint32 // of the hashes of partition keys
	records   []*record
	closed    bool
}

// split closes a shard and gives its keys to two others.
func (f *feed) split(n int) {
	var open []*shard
	for _, s := range f.shards {
		if !s.closed {
			open = append(open, s)
		}
	}
	if len(f.shards) > 12 {
		return
	}
	s := open[n%len(open)]
	if s.high-s.low < 2 {
		return
	}
	s.closed = true
	mid := s.low + (s.high-s.low)/2
	for _, half := range [][2]uint32{{s.low, mid}, {mid + 1, s.high}} {
		f.shards = append(f.shards, &shard{
			id: fmt.Sprintf("shardId-%020d", len(f.shards)+1), parent: s, low: half[0], high: half[1],
		})
	}
	f.w.count("stream", "shard split")
}

// runPoll is a poller that runs until it has read everything, or is stopped.
func runPoll(ctx context.Context, w *world, op *operation) error {
	f := w.feed
	w.mu.Lock()
	busy := f.polling
	f.polling = true
	w.mu.Unlock()
	if busy {
		return nil
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f.polling = false
	}()
	if op.rng.IntN(2) == 0 {
		n := op.rng.IntN(64)
		if a := w.call(ctx, "shards split", "", func(fault) answer { f.split(n); return answer{} }); a.err != nil {
			return a.err
		}
	}
	c, err := f.consumer(op.proc, f.poller, nil)
	if err != nil {
		return err
	}
	p, err := streams.NewPoller(streams.PollerConfig{
		Streams: f, StreamARN: w.store.ledger.arn, DynamoDB: op.proc.dynamo, Control: w.store.control.name, Owner: "poller", Now: op.proc.now,
	}, c)
	if err != nil {
		return err
	}
	return p.Drain(ctx)
}

// ask asks the stream something.
func (f *feed) ask(ctx context.Context, what, order string, do func() (any, error)) (any, error) {
	a := f.w.call(ctx, what, order, func(ft fault) answer {
		switch ft.kind {
		case throttled:
			return answer{err: &streamtypes.LimitExceededException{}}
		case internalBefore:
			return answer{err: &streamtypes.InternalServerError{}}
		case expired:
			return answer{err: &streamtypes.ExpiredIteratorException{}}
		}
		v, err := do()
		return answer{value: v, err: err}
	})
	return a.value, a.err
}

// DescribeStream lists the shards.
func (f *feed) DescribeStream(ctx context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	v, err := f.ask(ctx, "DescribeStream", aws.ToString(in.ExclusiveStartShardId), func() (any, error) {
		d := &streamtypes.StreamDescription{StreamArn: in.StreamArn, StreamStatus: streamtypes.StreamStatusEnabled}
		after := in.ExclusiveStartShardId == nil
		for i, s := range f.shards {
			if after {
				out := streamtypes.Shard{ShardId: aws.String(s.id), SequenceNumberRange: &streamtypes.SequenceNumberRange{StartingSequenceNumber: aws.String("1")}}
				if s.parent != nil {
					out.ParentShardId = aws.String(s.parent.id)
				}
				if s.closed {
					out.SequenceNumberRange.EndingSequenceNumber = aws.String("999999999")
				}
				d.Shards = append(d.Shards, out)
			}
			after = after || s.id == aws.ToString(in.ExclusiveStartShardId)
			if len(d.Shards) == 4 && i+1 < len(f.shards) {
				d.LastEvaluatedShardId = aws.String(s.id)
				break
			}
		}
		return &dynamodbstreams.DescribeStreamOutput{StreamDescription: d}, nil
	})
	out, _ := v.(*dynamodbstreams.DescribeStreamOutput)
	return out, err
}

func (f *feed) shardByID(id string) (*shard, error) {
	for _, s := range f.shards {
		if s.id == id {
			return s, nil
		}
	}
	return nil, &streamtypes.ResourceNotFoundException{}
}

// GetShardIterator makes an iterator: shard and position.
func (f *feed) GetShardIterator(ctx context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	v, err := f.ask(ctx, "GetShardIterator", aws.ToString(in.ShardId), func() (any, error) {
		s, err := f.shardByID(aws.ToString(in.ShardId))
		if err != nil {
			return nil, err
		}
		at := 0
		switch in.ShardIteratorType {
		case streamtypes.ShardIteratorTypeLatest:
			at = len(s.records)
		case streamtypes.ShardIteratorTypeAtSequenceNumber, streamtypes.ShardIteratorTypeAfterSequenceNumber:
			want, _ := strconv.ParseInt(aws.ToString(in.SequenceNumber), 10, 64)
			for at < len(s.records) {
				have, _ := strconv.ParseInt(sequence(s.records[at]), 10, 64)
				if have > want || have == want && in.ShardIteratorType == streamtypes.ShardIteratorTypeAtSequenceNumber {
					break
				}
				at++
			}
		case streamtypes.ShardIteratorTypeTrimHorizon, streamtypes.ShardIteratorTypeAtTimestamp:
		}
		return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: aws.String(s.id + "@" + strconv.Itoa(at))}, nil
	})
	out, _ := v.(*dynamodbstreams.GetShardIteratorOutput)
	return out, err
}

// GetRecords reads a page.
func (f *feed) GetRecords(ctx context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	v, err := f.ask(ctx, "GetRecords", aws.ToString(in.ShardIterator), func() (any, error) {
		id, at, _ := strings.Cut(aws.ToString(in.ShardIterator), "@")
		s, err := f.shardByID(id)
		if err != nil {
			return nil, err
		}
		from, _ := strconv.Atoi(at)
		to := min(from+20, len(s.records))
		out := &dynamodbstreams.GetRecordsOutput{}
		for _, r := range s.records[from:to] {
			out.Records = append(out.Records, streamRecord(r))
		}
		if !s.closed || to < len(s.records) {
			out.NextShardIterator = aws.String(s.id + "@" + strconv.Itoa(to))
		}
		return out, nil
	})
	out, _ := v.(*dynamodbstreams.GetRecordsOutput)
	return out, err
}

func streamRecord(r *record) streamtypes.Record {
	at := r.at
	out := streamtypes.Record{
		EventID: aws.String(sequence(r)), EventName: streamtypes.OperationType(r.op), EventSource: aws.String("aws:dynamodb"),
		Dynamodb: &streamtypes.StreamRecord{
			ApproximateCreationDateTime: &at, SequenceNumber: aws.String(sequence(r)), Keys: streamItem(item{"pk": {"S": r.key.pk}, "sk": {"S": r.key.sk}}),
			OldImage: streamItem(r.old), NewImage: streamItem(r.new), StreamViewType: streamtypes.StreamViewTypeNewAndOldImages,
		},
	}
	if r.ttl {
		out.UserIdentity = &streamtypes.Identity{Type: aws.String("Service"), PrincipalId: aws.String("dynamodb.amazonaws.com")}
	}
	return out
}

func streamItem(it item) map[string]streamtypes.AttributeValue {
	if it == nil {
		return nil
	}
	out := make(map[string]streamtypes.AttributeValue, len(it))
	for name, v := range it {
		out[name] = streamValue(v)
	}
	return out
}

func streamValue(v map[string]any) streamtypes.AttributeValue {
	for tag, x := range v {
		switch x := x.(type) {
		case string:
			switch tag {
			case "S":
				return &streamtypes.AttributeValueMemberS{Value: x}
			case "N":
				return &streamtypes.AttributeValueMemberN{Value: x}
			case "B":
				b, _ := base64.StdEncoding.DecodeString(x)
				return &streamtypes.AttributeValueMemberB{Value: b}
			}
		case bool:
			return &streamtypes.AttributeValueMemberBOOL{Value: x}
		case []any:
			var set []string
			for _, s := range x {
				set = append(set, fmt.Sprint(s))
			}
			return &streamtypes.AttributeValueMemberSS{Value: set}
		case map[string]any:
			m := map[string]streamtypes.AttributeValue{}
			for k, inner := range x {
				if one, ok := inner.(map[string]any); ok {
					m[k] = streamValue(one)
				}
			}
			return &streamtypes.AttributeValueMemberM{Value: m}
		}
	}
	return &streamtypes.AttributeValueMemberNULL{Value: true}
}
