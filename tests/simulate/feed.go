package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"toolledger/metrics"
	"toolledger/streams"
)

// The feed delivers what the tables' streams tell: to consumers in the shape of a Lambda event source mapping, which cuts
// batches anywhere, delivers them again, and keeps order per item only; and to a poller, as shards that split and close.

// lane is what an event source mapping keeps in order: the records of some partition keys.
type lane struct {
	name    string
	records []*record
	done    int // the mapping's checkpoint
	busy    bool
}

type feed struct {
	w        *world
	lanes    []*lane
	shards   []*shard
	lambda   *bus
	poller   *bus
	sinks    map[instance]*metrics.CloudWatch
	counted  map[string]float64 // metrics that CloudWatch took, without dimensions
	byTenant map[string]float64 // the same, over all tenants
	most     map[string]float64 // the most that they may come to
	shardOf  map[string]*shard  // of an expected event
	polling  bool
	lossy    bool // CloudWatch did not take something
	eventsOf map[*record][]happening
}

const lanesOfLedger = 3

func newFeed(w *world) *feed {
	f := &feed{
		w: w, lambda: newBus(w), poller: newBus(w), sinks: map[instance]*metrics.CloudWatch{}, counted: map[string]float64{},
		byTenant: map[string]float64{}, most: map[string]float64{}, shardOf: map[string]*shard{}, eventsOf: map[*record][]happening{},
	}
	for i := range lanesOfLedger {
		f.lanes = append(f.lanes, &lane{name: fmt.Sprintf("ledger %d", i)})
	}
	f.lanes = append(f.lanes, &lane{name: "control"})
	f.shards = []*shard{{id: "shardId-00000000000000000001", low: 0, high: math.MaxUint32}}
	return f
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

// add routes a record to its lane and its shard.
func (f *feed) add(r *record, evs []happening) {
	f.eventsOf[r] = evs
	if r.control {
		f.lanes[lanesOfLedger].records = append(f.lanes[lanesOfLedger].records, r)
		return
	}
	h := hashOf(r.key.pk)
	l := f.lanes[h%lanesOfLedger]
	l.records = append(l.records, r)
	for _, s := range f.shards {
		if !s.closed && s.low <= h && h <= s.high {
			s.records = append(s.records, r)
			for _, ev := range evs {
				f.shardOf[ev.name] = s
			}
		}
	}
}

// busName is the bus that publishers are told.
const busName = "audit"

// bus is where events come to: EventBridge, as far as a publisher sees it.
type bus struct {
	w   *world
	got map[string]map[string]string // by type|entity|version: the ids it came with, and its detail
	ids map[string]string            // by id: the event that came with it
}

func newBus(w *world) *bus { return &bus{w: w, got: map[string]map[string]string{}} }

// PutEvents takes events, or some of them, or says that it did not.
func (b *bus) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	a := b.w.call(ctx, "PutEvents", orderOfEvent(in.Entries[0]), func(f fault) answer { return b.take(in, f) })
	out, _ := a.value.(*eventbridge.PutEventsOutput)
	return out, a.err
}

// orderOfEvent tells apart what one invocation publishes at one moment, by all that is not drawn at random.
func orderOfEvent(e ebtypes.PutEventsRequestEntry) string {
	var detail map[string]any
	_ = json.Unmarshal([]byte(aws.ToString(e.Detail)), &detail) // what is no object has no order
	for _, random := range []string{"id", "row_id", "replaced", "settled_from", "suspects"} {
		delete(detail, random)
	}
	text, _ := json.Marshal(detail) // it came as JSON
	return aws.ToString(e.DetailType) + string(text)
}

func apiError(code string) error { return &smithy.GenericAPIError{Code: code} }

func (b *bus) take(in *eventbridge.PutEventsInput, f fault) answer {
	switch f.kind {
	case throttled:
		return answer{err: apiError("ThrottlingException")}
	case internalBefore:
		return answer{err: apiError("InternalException")}
	}
	out := &eventbridge.PutEventsOutput{Entries: make([]ebtypes.PutEventsResultEntry, len(in.Entries))}
	for i, e := range in.Entries {
		if f.kind == partial && (f.pick>>(i%60)&1 == 1 || i == int(f.pick%uint64(len(in.Entries)))) {
			out.FailedEntryCount++
			out.Entries[i].ErrorCode = aws.String([]string{"InternalFailure", "ThrottlingException"}[i%2])
			continue
		}
		if name := aws.ToString(e.EventBusName); name != busName {
			return answer{err: b.w.broken(invEvents, "an event goes to the bus %q", name)}
		}
		out.Entries[i].EventId = aws.String(strconv.Itoa(i))
		b.accept(aws.ToString(e.DetailType), aws.ToString(e.Detail))
	}
	if f.kind == lostAnswer {
		return answer{err: errBroken()}
	}
	return answer{value: out}
}

// accept takes one event.
func (b *bus) accept(kind, detail string) {
	var head struct {
		ID      string `json:"id"`
		RowID   string `json:"row_id"`
		Version int64  `json:"version"`
		Tenant  string `json:"tenant"`
	}
	if json.Unmarshal([]byte(detail), &head) != nil || head.ID == "" {
		_ = b.w.broken(invEvents, "an event cannot be read: %s", detail)
		return
	}
	if b.w.oracle.reborn[head.RowID] {
		return
	}
	name := fmt.Sprintf("%s|%s|%d", kind, head.RowID, head.Version)
	if kind == "LedgerRowTampered" || kind == "AuditRecordUnreadable" {
		_ = b.w.broken(invEvents, "%s: %s", kind, detail)
	}
	if isModelled(kind) && b.w.oracle.expected[name] == 0 {
		_ = b.w.broken(invEvents, "%s was published, and no transition stands behind it", name)
	}
	_ = b.w.oracle.tells(name, head.Tenant, detail)
	if b.got[name] == nil {
		b.got[name] = map[string]string{}
	}
	if before, again := b.got[name][head.ID]; again && before != detail {
		_ = b.w.broken(invEvents, "%s was published twice with different details: %s and %s", name, before, detail)
	}
	b.got[name][head.ID] = detail
	b.acceptedID(head.ID, name)
	b.w.count("event", kind)
	if b == b.w.feed.poller {
		b.w.feed.parentsFirst(name)
	}
}

// parentsFirst holds that nothing of a shard comes before all of its parent.
func (f *feed) parentsFirst(name string) {
	s := f.shardOf[name]
	if s == nil || s.parent == nil {
		return
	}
	for _, r := range s.parent.records {
		for _, ev := range f.eventsOf[r] {
			if f.w.oracle.ofReborn(ev.name) {
				continue
			}
			if f.poller.got[ev.name] == nil {
				_ = f.w.broken(invEvents, "%s of shard %s was published before %s of its parent", name, s.id, ev.name)
				return
			}
		}
	}
}

// PutMetricData takes metrics, or not.
func (f *feed) PutMetricData(ctx context.Context, in *cloudwatch.PutMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.PutMetricDataOutput, error) {
	a := f.w.call(ctx, "PutMetricData", strconv.Itoa(len(in.MetricData)), func(ft fault) answer {
		switch ft.kind {
		case throttled:
			f.lossy = true
			return answer{err: apiError("Throttling")}
		case permanent:
			f.lossy = true
			return answer{err: apiError("InvalidParameterValue")}
		}
		for _, d := range in.MetricData {
			sums := f.byTenant
			if len(d.Dimensions) == 0 {
				sums = f.counted
			}
			sums[aws.ToString(d.MetricName)] += aws.ToFloat64(d.StatisticValues.Sum)
		}
		if ft.kind == lostAnswer {
			return answer{err: errBroken()}
		}
		return answer{value: &cloudwatch.PutMetricDataOutput{}}
	})
	if a.err != nil { // also where the sender's time ended first
		f.w.mu.Lock()
		f.lossy = true
		f.w.mu.Unlock()
	}
	out, _ := a.value.(*cloudwatch.PutMetricDataOutput)
	return out, a.err
}

// consumer is what runs in a process of the stream, and how it publishes.
func (f *feed) consumer(p *process, b *bus, sink streams.MetricSink) (*streams.Consumer, error) {
	pub, err := streams.NewEventBridgePublisher(b, streams.PublisherConfig{Bus: busName, Concurrency: 3, Attempts: 3, Now: p.now})
	if err != nil {
		return nil, err
	}
	return streams.NewConsumer(streams.ConsumerConfig{Publisher: pub, Metrics: sink, Margin: time.Second, Now: p.now})
}

// instance is one instance of the stream's function: it serves one lane's invocations, one at a time. (Its sink holds a lock
// while it sends, which no two goroutines of the bubble may meet at: time would stand still.)
type instance struct {
	p *process
	l *lane
}

func (f *feed) sink(p *process, l *lane) (*metrics.CloudWatch, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	in := instance{p, l}
	if s := f.sinks[in]; s != nil {
		return s, nil
	}
	s, err := metrics.NewCloudWatch(f, metrics.CloudWatchConfig{Tenants: 3, Now: p.now})
	f.sinks[in] = s
	return s, err
}

// runDeliver is one invocation of the stream's function.
func runDeliver(ctx context.Context, w *world, op *operation) error {
	f := w.feed
	l := f.lanes[op.rng.IntN(len(f.lanes))]
	size, back := 1+op.rng.IntN(12), 0
	if op.rng.IntN(4) == 0 {
		back = op.rng.IntN(6) // delivered again, although it was done
	}
	return f.deliver(ctx, op, l, size, back)
}

func (f *feed) deliver(ctx context.Context, op *operation, l *lane, size, back int) error {
	f.w.mu.Lock()
	from := max(l.done-back, 0)
	batch := slices.Clone(l.records[from:min(from+size, len(l.records))])
	skip := l.busy || len(batch) == 0
	l.busy = l.busy || !skip
	f.w.mu.Unlock()
	if skip {
		return nil // a mapping has one invocation per lane at a time
	}
	defer func() {
		f.w.mu.Lock()
		defer f.w.mu.Unlock()
		l.busy = false
	}()
	sink, err := f.sink(op.proc, l)
	if err != nil {
		return err
	}
	c, err := f.consumer(op.proc, f.lambda, sink)
	if err != nil {
		return err
	}
	event, err := f.event(l, batch)
	if err != nil {
		return err
	}
	text, err := c.HandleBatch(ctx, event)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if op.proc.killed() {
		f.mayCount(batch) // nobody knows how far it came
		f.lossy = true
		return errDead
	}
	if err != nil {
		f.mayCount(batch)
		return err
	}
	return f.answered(l, from, batch, text)
}

// answered reads a partial batch response: the checkpoint moves to the first record that failed.
func (f *feed) answered(l *lane, from int, batch []*record, text []byte) error {
	var out struct {
		BatchItemFailures []struct{ ItemIdentifier string } `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("no batch response: %w", err)
	}
	done := len(batch)
	for _, fail := range out.BatchItemFailures {
		at := slices.IndexFunc(batch, func(r *record) bool { return sequence(r) == fail.ItemIdentifier })
		if at < 0 {
			return f.w.broken(invEvents, "a batch response names record %q, which was not in the batch", fail.ItemIdentifier)
		}
		done = min(done, at)
	}
	f.mayCount(batch[:done])
	if from < l.done {
		f.w.countN("redelivered", "records", min(l.done, from+done)-from)
	}
	l.done = max(l.done, from+done)
	return nil
}

// mayCount raises the most that metrics may come to.
func (f *feed) mayCount(batch []*record) {
	for _, r := range batch {
		for _, ev := range f.eventsOf[r] {
			for metric, n := range ev.metrics() {
				f.most[metric] += n
			}
		}
	}
}

func sequence(r *record) string { return strconv.Itoa(100 + r.n*7) }

// event is a batch as Lambda delivers it.
func (f *feed) event(l *lane, batch []*record) (json.RawMessage, error) {
	list := make([]map[string]any, len(batch))
	arn := f.w.store.ledger.arn
	if l.name == "control" {
		arn = f.w.store.control.arn
	}
	for i, r := range batch {
		change := map[string]any{
			"Keys": item{"pk": {"S": r.key.pk}, "sk": {"S": r.key.sk}}, "SequenceNumber": sequence(r), "SizeBytes": 100,
			"StreamViewType": "NEW_AND_OLD_IMAGES", "ApproximateCreationDateTime": r.at.Unix(),
		}
		if r.old != nil {
			change["OldImage"] = r.old
		}
		if r.new != nil {
			change["NewImage"] = r.new
		}
		list[i] = map[string]any{
			"eventID": base64.RawURLEncoding.EncodeToString([]byte(sequence(r))), "eventName": r.op, "eventVersion": "1.1",
			"eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "eventSourceARN": arn, "dynamodb": change,
		}
		if r.ttl {
			list[i]["userIdentity"] = map[string]any{"type": "Service", "principalId": "dynamodb.amazonaws.com"}
		}
	}
	return json.Marshal(map[string]any{"Records": list})
}

// final holds the buses against the transitions, and the metrics against their guarantee.
func (f *feed) final() error {
	for _, b := range []*bus{f.lambda, f.poller} {
		name := map[bool]string{true: "the function", false: "the poller"}[b == f.lambda]
		for _, ev := range slices.Sorted(maps.Keys(f.w.oracle.expected)) {
			n := f.w.oracle.expected[ev]
			if f.w.oracle.ofReborn(ev) {
				continue
			}
			if b == f.poller && strings.HasPrefix(ev, "PlanChanged|") {
				continue // of the other table
			}
			if len(b.got[ev]) != n {
				return f.w.broken(invEvents, "%s: %d times with an id of its own by %s, want %d", ev, len(b.got[ev]), name, n)
			}
			if b == f.poller && !maps.Equal(b.got[ev], f.lambda.got[ev]) {
				return f.w.broken(invEvents, "%s is %v by the poller and %v by the function", ev, b.got[ev], f.lambda.got[ev])
			}
		}
	}
	if len(f.w.oracle.reborn) > 0 {
		return nil // what became of rows that were written twice is nobody's promise
	}
	for _, metric := range slices.Sorted(maps.Keys(f.w.oracle.owed)) {
		switch n := f.counted[metric]; {
		case n > f.most[metric]:
			return f.w.broken(invMetrics, "%s came to %v, what was delivered and done to %v", metric, n, f.most[metric])
		case !f.lossy && n < f.w.oracle.owed[metric]:
			return f.w.broken(invMetrics, "%s came to %v of %v, and nothing was lost", metric, n, f.w.oracle.owed[metric])
		case !f.lossy && f.byTenant[metric] != n:
			return f.w.broken(invMetrics, "%s came to %v, and to %v over the tenants", metric, n, f.byTenant[metric])
		}
	}
	return nil
}
