package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
)

// fakeStream answers as AWS does: shards in no order, pages without records in the middle, shards that split.
type fakeStream struct {
	shards map[string]*fakeShard
	order  []string // in which DescribeStream lists them, two a page
	err    error
}

type fakeShard struct {
	parent string
	pages  [][]types.Record // an empty one is an answer without records
	open   bool
	err    error
}

func (f *fakeStream) DescribeStream(_ context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	if f.err != nil {
		return nil, f.err
	}
	at := 0
	if in.ExclusiveStartShardId != nil {
		at = slices.Index(f.order, *in.ExclusiveStartShardId) + 1
	}
	out := &dynamodbstreams.DescribeStreamOutput{StreamDescription: &types.StreamDescription{}}
	for _, id := range f.order[at:min(at+2, len(f.order))] {
		shard := types.Shard{ShardId: new(id)}
		if p := f.shards[id].parent; p != "" {
			shard.ParentShardId = new(p)
		}
		out.StreamDescription.Shards = append(out.StreamDescription.Shards, shard)
		if at+2 < len(f.order) {
			out.StreamDescription.LastEvaluatedShardId = new(id)
		}
	}
	return out, nil
}

func (f *fakeStream) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	if in.ShardIteratorType != types.ShardIteratorTypeTrimHorizon {
		return nil, errors.New("a history begins at the beginning")
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: new(*in.ShardId + "/0")}, nil
}

func (f *fakeStream) GetRecords(ctx context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var id string
	var page int
	if _, err := fmt.Sscanf(*in.ShardIterator, "%1s/%d", &id, &page); err != nil {
		return nil, err
	}
	s := f.shards[id]
	if s.err != nil && page == len(s.pages) {
		return nil, s.err
	}
	out := &dynamodbstreams.GetRecordsOutput{}
	if page < len(s.pages) {
		out.Records = s.pages[page]
	}
	if s.open || page+1 < len(s.pages) || s.err != nil {
		out.NextShardIterator = new(fmt.Sprintf("%s/%d", id, page+1))
	}
	return out, nil
}

var (
	wanted = schema.RowKey("acme", "s1", schema.ScopeSession, "k")
	other  = schema.RowKey("acme", "s1", schema.ScopeSession, "k2")
)

func record(key schema.Key, sequence string, at time.Time) types.Record {
	return types.Record{Dynamodb: &types.StreamRecord{
		SequenceNumber: new(sequence), ApproximateCreationDateTime: new(at),
		Keys: map[string]types.AttributeValue{
			schema.PK: &types.AttributeValueMemberS{Value: key.PK}, schema.SK: &types.AttributeValueMemberS{Value: key.SK},
		},
	}}
}

func sequences(h *History) (out []string) {
	for _, r := range h.Records {
		out = append(out, *r.Dynamodb.SequenceNumber)
	}
	return out
}

// Promise: an item's writes come in their order, across shards that split and answers without records, and nobody else's.
func TestReadInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &fakeStream{order: []string{"c", "b", "a", "x"}, shards: map[string]*fakeShard{
			"a": {pages: [][]types.Record{{record(wanted, "1", now)}, nil, nil, {record(other, "2", now), record(wanted, "3", now)}}},
			"b": {parent: "a", pages: [][]types.Record{nil, {record(wanted, "5", now)}}},
			"c": {parent: "b", pages: [][]types.Record{{record(wanted, "9", now)}}, open: true},
			"x": {pages: [][]types.Record{{record(other, "7", now)}}, open: true},
		}}
		pages := 0
		h, err := Read(t.Context(), f, Config{Stream: "arn", Keys: []schema.Key{wanted}, Until: now, Progress: func() { pages++ }})
		if err != nil || !slices.Equal(sequences(h), []string{"1", "3", "5", "9"}) {
			t.Fatalf("%v, %v", sequences(h), err)
		}
		if !h.Complete || h.Shards != 4 || h.Read != 6 || pages < 10 {
			t.Errorf("%+v, %d pages", h, pages)
		}
	})
}

// Promise: a shard whose records are gone, or time that ran out, is said, and the rest is there.
func TestReadSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &fakeStream{order: []string{"a", "b"}, shards: map[string]*fakeShard{
			"a": {pages: [][]types.Record{{record(wanted, "1", now)}}, err: &types.TrimmedDataAccessException{}},
			"b": {parent: "a", pages: [][]types.Record{{record(wanted, "2", now)}}},
		}}
		h, err := Read(t.Context(), f, Config{Keys: []schema.Key{wanted}, Until: now})
		if err != nil || h.Complete || h.Missed != 1 || !slices.Equal(sequences(h), []string{"1", "2"}) {
			t.Fatalf("%+v, %v", h, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), emptyPause/2)
		defer cancel()
		f.shards["a"] = &fakeShard{pages: [][]types.Record{{record(wanted, "1", now)}}, open: true}
		h, err = Read(ctx, f, Config{Keys: []schema.Key{wanted}, Until: now})
		if err != nil || h.Complete || len(h.Records) == 0 {
			t.Fatalf("out of time: %+v, %v", h, err)
		}
		f.err = errors.New("no such stream")
		if _, err := Read(t.Context(), f, Config{Until: now}); !errors.Is(err, f.err) {
			t.Errorf("got %v", err)
		}
	})
}

// Promise: on a table that is written to all the time the reading ends.
func TestReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		busy := &fakeShard{open: true}
		for n := range 1000 {
			busy.pages = append(busy.pages, []types.Record{record(other, fmt.Sprint(n), now.Add(time.Duration(n)*time.Minute))})
		}
		h, err := Read(t.Context(), &fakeStream{order: []string{"a"}, shards: map[string]*fakeShard{"a": busy}}, Config{Until: now})
		if err != nil || !h.Complete || h.Read > 10 {
			t.Fatalf("%+v, %v", h, err)
		}
	})
}
