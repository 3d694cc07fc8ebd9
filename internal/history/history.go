// Package history reads from a table's stream what happened to a few items, as long as the stream remembers: 24 hours.
package history

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/schema"
)

// Streams is the part of *dynamodbstreams.Client that Read calls.
type Streams interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Config says whose history is read. Keys and Until are required.
type Config struct {
	Stream   string       // ARN
	Keys     []schema.Key // the items
	Until    time.Time    // records of later writes end the reading of a shard; now is meant
	Progress func()       // called after every page, never twice at once; nil: not
}

// History is what a stream still knows.
type History struct {
	Records  []types.Record // of each item in the order of its writes
	Read     int            // records that were looked at
	Shards   int            // that the stream has
	Missed   int            // of these: not read to the end, since time ran out or their records are gone
	Complete bool           // nothing is missed
}

// The bounds of a reading. GetRecords may be called five times a second on a shard (AWS), and an answer without records
// does not prove that the end is reached.
const (
	readers    = 8
	maxShards  = 10_000
	pageSize   = 1000
	emptyPages = 3
	emptyPause = 50 * time.Millisecond
)

// Read reads all shards of a stream until ctx ends, and returns what it has by then. Errors: the client's where the stream
// itself cannot be read.
func Read(ctx context.Context, client Streams, cfg Config) (*History, error) {
	shards, err := describe(ctx, client, cfg.Stream)
	switch {
	case ctx.Err() != nil:
		return &History{}, nil //nolint:nilerr // out of time is no failure: the History says that it is not complete
	case err != nil:
		return nil, err
	}
	r := &reader{client: client, cfg: cfg, parts: make([]part, len(shards))}
	var work errgroup.Group
	work.SetLimit(readers)
	for i, shard := range shards {
		work.Go(func() error { r.parts[i].err = r.shard(ctx, shard, &r.parts[i]); return nil })
	}
	_ = work.Wait()
	h := &History{Shards: len(shards)}
	for i := range r.parts {
		p := &r.parts[i]
		h.Records, h.Read = append(h.Records, p.records...), h.Read+p.read
		if p.err != nil || !p.ended {
			h.Missed++
		}
	}
	h.Complete = h.Missed == 0
	return h, nil
}

// part is what one shard had.
type part struct {
	records []types.Record
	read    int
	ended   bool
	err     error
}

type reader struct {
	client Streams
	cfg    Config
	parts  []part
	mu     sync.Mutex // of Progress
}

// describe lists the shards, parents before their children: an item's writes continue in a child of its shard.
func describe(ctx context.Context, client Streams, arn string) ([]string, error) {
	in := &dynamodbstreams.DescribeStreamInput{StreamArn: &arn}
	parent := map[string]string{}
	var ids []string
	for len(ids) < maxShards {
		out, err := client.DescribeStream(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("describe stream: %w", err)
		}
		for _, s := range out.StreamDescription.Shards {
			if s.ShardId == nil {
				continue
			}
			ids = append(ids, *s.ShardId)
			if s.ParentShardId != nil {
				parent[*s.ShardId] = *s.ParentShardId
			}
		}
		if out.StreamDescription.LastEvaluatedShardId == nil {
			break
		}
		in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId
	}
	depth := func(id string) (n int) {
		for p, ok := parent[id]; ok && n < len(ids); p, ok = parent[p] {
			n++
		}
		return n
	}
	slices.SortStableFunc(ids, func(a, b string) int { return depth(a) - depth(b) })
	return ids, nil
}

// shard reads one shard from its beginning.
func (r *reader) shard(ctx context.Context, id string, p *part) error {
	start, err := r.client.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &r.cfg.Stream, ShardId: &id, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return err
	}
	limit := int32(pageSize)
	iterator, empty := start.ShardIterator, 0
	for iterator != nil && *iterator != "" {
		out, err := r.client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: iterator, Limit: &limit})
		if err != nil {
			return err
		}
		if r.take(p, out.Records) {
			break
		}
		iterator = out.NextShardIterator
		if len(out.Records) > 0 {
			empty = 0
			continue
		}
		if empty++; empty == emptyPages {
			break
		}
		if err := pause(ctx, emptyPause); err != nil {
			return err
		}
	}
	p.ended = true
	return nil
}

// take keeps the records of the items. over says that the shard has come to writes after Config.Until.
func (r *reader) take(p *part, records []types.Record) (over bool) {
	for _, rec := range records {
		p.read++
		if rec.Dynamodb == nil {
			continue
		}
		if at := rec.Dynamodb.ApproximateCreationDateTime; at != nil && at.After(r.cfg.Until.Add(time.Minute)) {
			over = true
		}
		if slices.Contains(r.cfg.Keys, keyOf(rec.Dynamodb.Keys)) {
			p.records = append(p.records, rec)
		}
	}
	if r.cfg.Progress != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cfg.Progress()
	}
	return over
}

func keyOf(keys map[string]types.AttributeValue) schema.Key {
	var k schema.Key
	if pk, ok := keys[schema.PK].(*types.AttributeValueMemberS); ok {
		k.PK = pk.Value
	}
	if sk, ok := keys[schema.SK].(*types.AttributeValueMemberS); ok {
		k.SK = sk.Value
	}
	return k
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
