package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/eventcheck"
	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/metrics"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/sweeper"
	"toolledger/writers"
)

// streamRig is a ledger whose streams are read: the writers on one side, the consumer on the other.
type streamRig struct {
	testing.TB
	srv    *stack.Server
	db     *dynamodb.Client
	tables []stack.Table
	table  string
	ledger *writers.Ledger
	millis atomic.Int64
}

// streamServer is the dynoxide of the streams' tests; each test has tables of its own.
var streamServer = sync.OnceValues(func() (*stack.Server, error) { return stack.Start(context.Background(), stack.Config{}) })

var streamTables atomic.Int64

func newStreamRig(tb testing.TB) *streamRig {
	tb.Helper()
	srv, err := streamServer()
	if errors.Is(err, stack.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	g := &streamRig{TB: tb, srv: srv, db: dynamodb.NewFromConfig(srv.AWSConfig()), table: fmt.Sprintf("toolledger-streams-%d", streamTables.Add(1))}
	g.tables, err = stack.CreateTables(tb.Context(), g.db, g.table, g.table+"-control", true)
	g.must(err)
	g.millis.Store(ledgerStart.UnixMilli())
	g.ledger, err = writers.New(g.db, writers.Config{Table: g.table, Now: g.now})
	g.must(err)
	g.must(g.tenant().PutPlan(tb.Context(), writers.Plan{Tokens: 1000, Overdraft: 100}))
	return g
}

func (g *streamRig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *streamRig) now() time.Time           { return time.UnixMilli(g.millis.Load()).UTC() }
func (g *streamRig) advance(d time.Duration)  { g.millis.Add(d.Milliseconds()) }
func (g *streamRig) pastVerdict()             { g.advance(5 * time.Minute) }
func (g *streamRig) tenant() writers.Tenant   { return g.ledger.Tenant("acme") }
func (g *streamRig) session() writers.Session { return g.tenant().Session("s1") }

func (g *streamRig) reserve(key string, changes ...func(*writers.Call)) *writers.Reservation {
	g.Helper()
	hold, done, err := g.session().Reserve(g.Context(), call(key, changes...))
	g.must(err)
	if done != nil {
		g.Fatalf("%s is applied already", key)
	}
	return hold
}

func (g *streamRig) finalize(r *writers.Reservation, charged int64) {
	g.Helper()
	_, err := r.Finalize(g.Context(), map[string]any{"ok": true}, charged)
	g.must(err)
}

// totals is a MetricSink that adds up.
type totals struct {
	mu  sync.Mutex
	sum map[string]float64
}

func (s *totals) Record(_ context.Context, data []metrics.Datum) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range data {
		s.sum[d.Name] += d.Value
	}
	return nil
}

// checked fails the test for each event that does not fit its published schema, on its way to out.
func checked(t testing.TB, out streams.Publisher) streams.Publisher {
	return streams.PublisherFunc(eventcheck.Publish(t, out.Publish))
}

// read publishes all that the streams of both tables hold, from the checkpoints or, with beside, from the beginning.
func (g *streamRig) read(out streams.Publisher, beside bool) map[string]float64 {
	g.Helper()
	count := &totals{sum: map[string]float64{}}
	c, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: checked(g, out), Metrics: count, Now: g.now})
	g.must(err)
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	for _, table := range g.tables {
		p, err := streams.NewPoller(streams.PollerConfig{
			Streams: dynamodbstreams.NewFromConfig(g.srv.AWSConfig()), StreamARN: table.StreamARN, DynamoDB: g.db, Control: g.table + "-control",
			FromHorizon: beside, Now: g.now,
		}, c)
		g.must(err)
		g.must(p.Drain(ctx))
	}
	return count.sum
}

// story makes the writers go through every transition of the protocol that one process can cause.
func (g *streamRig) story() (want map[string]int) {
	g.Helper()
	ctx, s := g.Context(), g.session()
	want = map[string]int{}
	expect := func(types ...string) {
		for _, name := range types {
			want[name]++
		}
	}
	g.must(g.tenant().Grant(ctx, "gift", 50))
	_, err := s.Commit(ctx, call("commit"), "r")
	g.must(err)
	expect("PlanChanged", "QuotaGranted", "QuotaGranted", "ToolEffectApplied")

	lower, equal, higher := g.reserve("lower"), g.reserve("equal", func(c *writers.Call) { c.Cursor = "c1" }), g.reserve("higher")
	g.must(lower.Extend(ctx, 2*time.Minute))
	g.finalize(lower, 2)
	g.finalize(equal, 5)
	g.finalize(higher, 9)
	expect("ToolCallReserved", "ToolCallReserved", "ToolCallReserved", "ReservationExtended", "ToolEffectApplied", "ToolEffectApplied", "ToolEffectApplied")

	g.must(g.reserve("released").Release(ctx, "refused by the other side"))
	g.finalize(g.reserve("released"), 5) // taken over
	g.must(g.reserve("committed later").Release(ctx, ""))
	_, err = s.Commit(ctx, call("committed later"), "r")
	g.must(err)
	expect("ToolCallReserved", "ReservationReleased", "ToolCallReserved", "ToolEffectApplied", "ToolCallReserved", "ReservationReleased", "ToolEffectApplied")

	// Refusals and replays.
	_, err = s.Commit(ctx, call("commit"), "r")
	g.must(err)
	_, err = s.Commit(ctx, call("commit", func(c *writers.Call) { c.Args = json.RawMessage(`{"a":2}`) }), "r")
	g.refused(err, writers.ErrKeyConflict)
	_, err = s.Commit(ctx, call("dear", func(c *writers.Call) { c.Tokens = 5000 }), "r")
	g.refused(err, writers.ErrQuotaExhausted)
	expect("ToolCallReplayed", "IdempotencyKeyConflict", "QuotaExhausted")

	g.overdue(expect)
	g.compensations(expect)

	// A plan that changes, a tenant that is stopped and goes on.
	g.must(g.tenant().PutPlan(ctx, writers.Plan{Tokens: 900}))
	g.must(g.tenant().Suspend(ctx, true))
	g.must(g.tenant().Suspend(ctx, false))
	expect("PlanChanged", "QuotaGranted", "PlanChanged", "PlanChanged")

	// After retention a key is new.
	g.advance(62 * 24 * time.Hour)
	_, err = s.Commit(ctx, call("commit"), "r")
	g.must(err)
	expect("QuotaGranted", "LedgerRowArchived", "ToolEffectApplied")
	return want
}

// refused checks the code of a refusal.
func (g *streamRig) refused(err error, code writers.Code) {
	g.Helper()
	if !errors.Is(err, code) {
		g.Fatalf("got %v, want %s", err, code)
	}
}

// overdue lets reservations pass their deadline: given back, settled late, replaced by another attempt, held, resolved.
func (g *streamRig) overdue(expect func(...string)) {
	ctx := g.Context()
	idempotent := func(c *writers.Call) { c.Idempotent = true }
	late, fenced, lost := g.reserve("late", idempotent), g.reserve("fenced", idempotent), g.reserve("lost", idempotent)
	stuck, vouched := g.reserve("stuck"), g.reserve("vouched")
	_, _, err := g.session().Reserve(ctx, call("late", idempotent))
	g.refused(err, writers.ErrInProgress)
	expect("ToolCallReserved", "ToolCallReserved", "ToolCallReserved", "ToolCallReserved", "ToolCallReserved", "ToolCallInFlight")
	g.pastVerdict()
	sweep, err := sweeper.New(g.ledger, sweeper.Config{})
	g.must(err)
	report, err := sweep.Run(ctx)
	g.must(err)
	if report.Expired != 3 || report.Held != 2 {
		g.Fatalf("swept %+v", report)
	}
	expect("ReservationExpired", "ReservationExpired", "ReservationExpired", "ReservationStuck", "ReservationStuck")
	g.finalize(late, 5)
	_ = lost
	expect("ToolEffectSettledLate")
	second := g.reserve("fenced", idempotent)
	g.finalize(fenced, 5) // the worker of attempt 1 comes back while attempt 2 runs
	expect("ToolCallReserved", "ToolEffectApplied", "SuspectedDoubleEffect")
	_ = second
	_, err = g.session().Resolve(ctx, stuck.Key, writers.Resolution{Verdict: writers.EffectAbsent, Attempt: stuck.Attempt, By: "ops"})
	g.must(err)
	_, err = g.session().Resolve(ctx, vouched.Key, writers.Resolution{
		Verdict: writers.EffectApplied, Attempt: vouched.Attempt, Result: "seen", By: "ops",
	})
	g.must(err)
	expect("ReservationResolved", "ToolEffectApplied")
}

// compensations undo calls: at once, and with a reservation in between.
func (g *streamRig) compensations(expect func(...string)) {
	ctx, s := g.Context(), g.session()
	undo := func(original string) func(*writers.Call) {
		return func(c *writers.Call) {
			c.Tool, c.Compensates, c.RefundOriginal, c.Tokens = "undo", writers.SessionKey(original), true, 1
		}
	}
	_, err := s.Commit(ctx, call("undo-lower", undo("lower")), "undone")
	g.must(err)
	expect("ToolEffectApplied", "CompensationStarted", "ToolEffectCompensated")
	g.must(g.reserve("undo-equal", undo("equal")).Release(ctx, ""))
	g.finalize(g.reserve("undo-equal", undo("equal")), 1)
	expect("ToolCallReserved", "CompensationStarted", "ReservationReleased", "ToolCallReserved", "ToolEffectApplied", "ToolEffectCompensated")
}

// Events equal the ledger's transitions one for one: whatever the writers and the sweeper do, each step gives its event and
// nothing is taken for tampering; metrics equal the events; a second reading from the horizon finds the same ids.
func TestEventsEqualTransitions(t *testing.T) {
	g := newStreamRig(t)
	want := g.story()
	first, second := &streams.Collector{}, &streams.Collector{}
	sums := g.read(first, false)
	got := first.Count()
	for _, ev := range first.Events() {
		if e, ok := ev.(*events.LedgerRowTampered); ok {
			t.Errorf("taken for tampering: %+v", e)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if first.Delivered() != len(first.Events()) {
		t.Errorf("%d of %d deliveries were repetitions", first.Delivered()-len(first.Events()), first.Delivered())
	}
	again := map[string]float64{}
	for _, ev := range first.Events() {
		for _, d := range streams.Measure(nil, ev, ev.Head().Time) {
			again[d.Name] += d.Value
		}
	}
	delete(sums, metrics.RecordsProcessed)
	if !maps.Equal(sums, again) {
		t.Errorf("metrics %v\nevents  %v", sums, again)
	}
	g.booksEqual(sums)
	g.read(second, true)
	if ids := idSet(second); !maps.Equal(ids, idSet(first)) {
		t.Errorf("the second reading has %d ids, the first %d", len(ids), len(first.Events()))
	}
	// From the checkpoints there is nothing new.
	third := &streams.Collector{}
	if g.read(third, false); len(third.Events()) != 0 {
		t.Errorf("read again from the checkpoint: %v", third.Count())
	}
}

func idSet(c *streams.Collector) map[string]bool {
	ids := map[string]bool{}
	for _, ev := range c.Events() {
		ids[ev.Head().ID] = true
	}
	return ids
}

// booksEqual holds the tokens of the metrics against the quota items: what was taken and not given back is missing there.
func (g *streamRig) booksEqual(sums map[string]float64) {
	g.Helper()
	var granted, remaining int64
	for _, item := range g.scan() {
		if q, err := schema.DecodeQuota(schema.FieldsOf(item)); err == nil {
			granted, remaining = granted+q.Granted, remaining+q.Remaining
		}
	}
	if float64(granted) != sums[metrics.TokensGranted]-sums[metrics.TokensWithdrawn] {
		g.Errorf("%d tokens are granted, the metrics say %v", granted, sums[metrics.TokensGranted]-sums[metrics.TokensWithdrawn])
	}
	if remaining >= granted || sums[metrics.TokensRefunded] == 0 || sums[metrics.TokensReserved] == 0 {
		g.Errorf("%d of %d remain, metrics %v", remaining, granted, sums)
	}
}

func (g *streamRig) scan() []schema.Item {
	g.Helper()
	out, err := g.db.Scan(g.Context(), &dynamodb.ScanInput{TableName: &g.table, ConsistentRead: aws.Bool(true)})
	g.must(err)
	return out.Items
}

// Whoever writes past the protocol is seen: a result changed, a row made to vanish, a refund invented, a foreign item left.
func TestTamperingIsSeen(t *testing.T) {
	g := newStreamRig(t)
	ctx := t.Context()
	for _, key := range []string{"result", "state", "gone", "quiet"} {
		// The stream's clock is real: kept for a year, the row is not past its retention there.
		_, err := g.session().Commit(ctx, call(key, func(c *writers.Call) { c.Keep = 365 * 24 * time.Hour }), "r")
		g.must(err)
	}
	out := &streams.Collector{}
	g.read(out, false)
	before := len(out.Events())
	update := func(key, expression string, values schema.Item) {
		k := schema.RowKey("acme", "s1", schema.ScopeSession, key)
		_, err := g.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &g.table, Key: schema.Item{"pk": schema.S(k.PK), "sk": schema.S(k.SK)}, UpdateExpression: &expression,
			ExpressionAttributeNames: map[string]string{"#v": schema.AVersion}, ExpressionAttributeValues: values,
		})
		g.must(err)
	}
	update("result", "SET resultJson = :r, #v = #v + :one", schema.Item{":r": schema.S(`"forged"`), ":one": schema.N(1)})
	update("state", "SET chargedTokens = :zero, #v = #v + :one REMOVE debits", schema.Item{":zero": schema.N(0), ":one": schema.N(1)})
	update("quiet", "SET chargedTokens = :zero, #v = #v + :none", schema.Item{":zero": schema.N(0), ":none": schema.N(0)})
	gone := schema.RowKey("acme", "s1", schema.ScopeSession, "gone")
	_, err := g.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &g.table, Key: schema.Item{"pk": schema.S(gone.PK), "sk": schema.S(gone.SK)},
	})
	g.must(err)
	_, err = g.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &g.table, Item: map[string]types.AttributeValue{
		"pk": schema.S("USER#1"), "sk": schema.S("PROFILE"), "name": schema.S("Ada"),
	}})
	g.must(err)
	count := &totals{sum: map[string]float64{}}
	var kept [][]byte
	c, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: checked(t, out), Metrics: count, Unreadable: func(_ context.Context, record []byte) error { kept = append(kept, record); return nil },
	})
	g.must(err)
	p, err := streams.NewPoller(streams.PollerConfig{
		Streams: dynamodbstreams.NewFromConfig(g.srv.AWSConfig()), StreamARN: g.tables[0].StreamARN, DynamoDB: g.db, Control: g.table + "-control",
	}, c)
	g.must(err)
	g.must(p.Drain(ctx))
	var rules []string
	for _, ev := range out.Events()[before:] {
		if e, ok := ev.(*events.LedgerRowTampered); ok {
			rules = append(rules, e.Key+": "+e.Rule)
		}
	}
	if len(rules) != 4 || count.sum[metrics.RowsTampered] != 4 || count.sum[metrics.RecordsUnreadable] != 1 {
		t.Errorf("got %q, counted %v", rules, count.sum)
	}
	// What was kept can be handed to the consumer again as Lambda would hand it over.
	if len(kept) != 1 || !json.Valid(kept[0]) {
		t.Fatalf("kept %d records", len(kept))
	}
	twice := &streams.Collector{}
	again, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: checked(t, twice), Unreadable: func(context.Context, []byte) error { return nil },
	})
	g.must(err)
	_, err = again.HandleBatch(ctx, json.RawMessage(`{"Records":[`+string(kept[0])+`]}`))
	g.must(err)
	ids := idSet(out)
	for id := range idSet(twice) {
		if !ids[id] {
			t.Errorf("fed again, the record has another id")
		}
	}
}

// An erased tenant leaves an archive entry for each of its rows and is not taken for tampering.
func TestErasureIsLawful(t *testing.T) {
	g := newStreamRig(t)
	ctx := t.Context()
	_, err := g.session().Commit(ctx, call("applied"), "r")
	g.must(err)
	g.must(g.reserve("released").Release(ctx, ""))
	g.advance(time.Hour)
	report, err := g.tenant().Erase(ctx, writers.Erasure{By: "dpo", Why: "asked"})
	g.must(err)
	if !report.Complete {
		t.Fatalf("%+v", report)
	}
	out := &streams.Collector{}
	g.read(out, false)
	n := out.Count()
	if n["LedgerRowArchived"] != 2 || n["LedgerRowTampered"] != 0 || n["AuditRecordUnreadable"] != 0 {
		t.Errorf("got %v", n)
	}
	for _, ev := range out.Events() {
		if a, ok := ev.(*events.LedgerRowArchived); ok && a.Reason != "erased" {
			t.Errorf("%+v", a)
		}
	}
}

// While Run follows the streams live, Drain waits for what was written before it was called.
func TestPollerFollowsLive(t *testing.T) {
	g := newStreamRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &streams.Collector{}
	c, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: checked(t, out)})
	g.must(err)
	p, err := streams.NewPoller(streams.PollerConfig{
		Streams: dynamodbstreams.NewFromConfig(g.srv.AWSConfig()), StreamARN: g.tables[0].StreamARN, DynamoDB: g.db, Control: g.table + "-control",
	}, c)
	g.must(err)
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(following); err != nil {
			t.Error(err)
		}
	})
	for i := range 5 {
		_, err := g.session().Commit(ctx, call(fmt.Sprintf("live-%d", i)), "r")
		g.must(err)
		g.must(p.Drain(ctx))
		if n := out.Count()["ToolEffectApplied"]; n != i+1 {
			t.Errorf("after call %d: %d events", i, n)
		}
	}
	stop()
	running.Wait()
	var keys []string
	for _, ev := range out.Events() {
		if ev.DetailType() == "ToolEffectApplied" {
			keys = append(keys, ev.Head().Key)
		}
	}
	if !slices.IsSorted(keys) {
		t.Errorf("out of order: %v", keys)
	}
}
