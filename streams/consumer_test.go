package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

func newTestConsumer(t testing.TB, p Publisher, sink MetricSink, edit ...func(*ConsumerConfig)) *Consumer {
	t.Helper()
	cfg := ConsumerConfig{Publisher: valid(t, p), Metrics: sink, Now: func() time.Time { return t0.Add(2 * time.Hour) }}
	for _, e := range edit {
		e(&cfg)
	}
	c, err := NewConsumer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// failures reads an answer as Lambda does, strictly.
func failures(t testing.TB, answer json.RawMessage) []string {
	t.Helper()
	var a map[string][]map[string]string
	if err := json.Unmarshal(answer, &a); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	list, ok := a["batchItemFailures"]
	if len(a) != 1 || !ok || list == nil {
		t.Fatalf("answer %s", answer)
	}
	var ids []string
	for _, f := range list {
		id := f["itemIdentifier"]
		if len(f) != 1 || id == "" {
			t.Fatalf("answer %s", answer)
		}
		ids = append(ids, id)
	}
	return ids
}

func recordsOf(t testing.TB, changes []Change) []string {
	t.Helper()
	records := make([]string, len(changes))
	for i, c := range changes {
		records[i] = lambdaRecord(t, c)
	}
	return records
}

func batchOf(t testing.TB, changes []Change) json.RawMessage {
	return lambdaBatch(recordsOf(t, changes)...)
}

// deliver does what Lambda does: hands the batch over, and again from the reported number on, until nothing fails.
func deliver(t testing.TB, c *Consumer, changes []Change, most int) (deliveries int) {
	t.Helper()
	return deliverRecords(t, c, changes, recordsOf(t, changes), most)
}

func deliverRecords(t testing.TB, c *Consumer, changes []Change, records []string, most int) (deliveries int) {
	t.Helper()
	for deliveries < most {
		deliveries++
		answer, err := c.HandleBatch(t.Context(), lambdaBatch(records...))
		if err != nil {
			t.Fatal(err)
		}
		failed := failures(t, answer)
		if len(failed) == 0 {
			return deliveries
		}
		i := slices.IndexFunc(changes, func(c Change) bool { return c.Sequence == failed[0] })
		if i < 0 || len(failed) != 1 {
			t.Fatalf("reported %v, which is not in the batch", failed)
		}
		changes, records = changes[i:], records[i:]
	}
	t.Fatalf("not done after %d deliveries", most)
	return 0
}

// HC46: wherever publishing fails, what is delivered again carries the same ids and no metric is counted twice: the
// totals equal the set of events. Every position in the first, a middle and the last ten of a batch of 1,000 fails once.
func TestHC46PartialFailure(t *testing.T) {
	t.Parallel()
	partialFailure(t, false)
}

// Promise: the same with each way to fail at every position, also where the ten of a request fail as one.
func TestSoakHC46PartialFailure(t *testing.T) {
	soak(t)
	t.Parallel()
	partialFailure(t, true)
}

func partialFailure(t *testing.T, full bool) {
	changes := history(1000, func(r *schema.Row) { // what a row need not have only takes time here
		r.ArgHashes, r.Cursor, r.ExpectCursor, r.Trace, r.Lookup, r.Horizon = nil, "", nil, "", "", 0
	})
	records := recordsOf(t, changes)
	var want []string
	for _, c := range changes {
		evs, _, err := derived(t, c)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, evs[0].Head().ID)
	}
	for name, answer := range map[string]busAnswer{
		"fails":            {status: http.StatusInternalServerError, code: "InternalException"},
		"throttles":        {status: http.StatusBadRequest, code: "ThrottlingException"},
		"drops the answer": {drop: true},
		"answers in part":  {refused: map[int]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, at := range positions(full || answer.refused != nil) {
				failsAt(t, answer, changes, records, want, at)
			}
		})
	}
}

// positions are the first, a middle and the last ten of a batch of 1,000: all of them, or the ends of each ten. The ten go out
// in one request, so where a request fails as a whole, all of them are one and the same failure.
func positions(all bool) (at []int) {
	for _, first := range []int{0, 500, 990} {
		for i := range 10 {
			if all || i == 0 || i == 9 {
				at = append(at, first+i)
			}
		}
	}
	return at
}

// soak skips what is for long runs.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("TOOLLEDGER_SOAK") == "" {
		t.Skip("set TOOLLEDGER_SOAK, as make soak does, to run it")
	}
}

// failsAt fails the entry at a place of the batch once for good, as answer says, and checks what came of it.
func failsAt(t *testing.T, answer busAnswer, changes []Change, records, want []string, at int) {
	t.Helper()
	bus, count := newBus(t), &sums{}
	defer bus.Close()
	bus.fail = onlyFor(4, func(_ busRequest, entry int) busAnswer {
		if answer.refused != nil {
			return busAnswer{refused: map[int]string{entry: "InternalFailure"}}
		}
		return answer
	}, want[at])
	var client EventBridge = bus
	if at == 500 {
		client = bus.client() // the real one, over HTTP
	}
	c := newTestConsumer(t, publisherTo(t, client), count)
	deliveries := deliverRecords(t, c, changes, records, 3)
	if deliveries != 2 || !slices.Equal(bus.ids(), slices.Sorted(slices.Values(want))) {
		t.Errorf("at %d: %d of %d events are out after %d deliveries", at, len(bus.ids()), len(want), deliveries)
	}
	if count.of(metrics.EffectsApplied) != 1000 || count.of(metrics.TokensCharged) != 20000 || count.of(metrics.RecordsProcessed) != 1000 {
		t.Errorf("at %d: counted %v", at, count.total)
	}
}

// HC46, documented bound: a batch that is delivered again after it succeeded counts again, with the same event ids.
func TestHC46RedeliveryAfterSuccess(t *testing.T) {
	out, count := &Collector{}, &sums{}
	c := newTestConsumer(t, out, count)
	changes := history(10)
	for range 2 {
		if n := deliver(t, c, changes, 1); n != 1 {
			t.Fatal(n)
		}
	}
	if len(out.Events()) != 10 || out.Delivered() != 20 || count.of(metrics.EffectsApplied) != 20 {
		t.Errorf("%d events, %d delivered, counted %v", len(out.Events()), out.Delivered(), count.total)
	}
}

// HC47: a removal and a call that failed, each delivered three times, have one event id each; a delivery that failed moved no
// counter, so the third moves each by one: it is told apart by identity, and no counter is clamped at zero.
func TestHC47Redelivery(t *testing.T) {
	ended := next(pendingRow(), fail(schema.FailureExpired))
	gone := changeOf(ended, nil)
	gone.TTL = true
	for name, tc := range map[string]struct {
		change  Change
		counter string
	}{
		"removal":           {gone, metrics.RowsArchived},
		"pending to failed": {changeOf(pendingRow(), ended), metrics.ReservationsExpired},
	} {
		out, count := &Collector{}, &sums{total: map[string]float64{tc.counter: 10}}
		deliveries := 0
		p := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
			deliveries++
			n, err := out.Publish(ctx, evs) // they are out, and the answer is lost
			if deliveries < 3 {
				return 0, errors.New("no answer")
			}
			return n, err
		})
		if n := deliver(t, newTestConsumer(t, p, count), []Change{tc.change}, 3); n != 3 {
			t.Errorf("%s: %d deliveries", name, n)
		}
		if len(out.Events()) != 1 || out.Delivered() != 3 || count.of(tc.counter) != 11 {
			t.Errorf("%s: %d events, %d delivered, the counter went from 10 to %v", name, len(out.Events()), out.Delivered(), count.of(tc.counter))
		}
	}
}

// HC49: success is an empty list, never null; an identifier is a sequence number, never empty; a record that cannot be
// reported fails the whole batch.
func TestHC49Identifiers(t *testing.T) {
	down := PublisherFunc(func(context.Context, []events.Event) (int, error) { return 0, errors.New("bus is down") })
	good, bad := newTestConsumer(t, &Collector{}, nil), newTestConsumer(t, down, nil)
	for _, batch := range []json.RawMessage{lambdaBatch(), batchOf(t, history(3))} {
		answer, err := good.HandleBatch(t.Context(), batch)
		if err != nil || string(answer) != `{"batchItemFailures":[]}` {
			t.Errorf("success: got %s, %v", answer, err)
		}
	}
	changes := history(3)
	answer, err := bad.HandleBatch(t.Context(), batchOf(t, changes))
	if want := fmt.Sprintf(`{"batchItemFailures":[{"itemIdentifier":%q}]}`, changes[0].Sequence); err != nil || string(answer) != want {
		t.Errorf("failure: got %s, %v, want %s", answer, err, want)
	}
	for name, sequence := range map[string]string{"missing": "", "no number": "shardId-1", "negative": "-1", "an event id": "c4ca4238a0b92382"} {
		numberless := slices.Clone(changes)
		numberless[1].Sequence = sequence
		answer, err := bad.HandleBatch(t.Context(), batchOf(t, numberless))
		if _, ok := errors.AsType[*BatchError](err); !ok || answer != nil {
			t.Errorf("%s: got %s, %v", name, answer, err)
		}
		// Where nothing fails, nothing needs a number.
		if answer, err := good.HandleBatch(t.Context(), batchOf(t, numberless)); err != nil || len(failures(t, answer)) != 0 {
			t.Errorf("%s, all well: got %s, %v", name, answer, err)
		}
	}
}

// The lowest failing number is reported by its value and not by its place or its spelling, and what will be delivered
// again is not counted although it is out.
func TestLowestSequenceNumber(t *testing.T) {
	changes := history(4)
	for i, n := range []string{"1001", "9", "998", "10000"} {
		changes[i].Sequence = n
	}
	published := 0
	stops := PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) { published++; return 2, errors.New("full") })
	count := &sums{}
	answer, err := newTestConsumer(t, stops, count).HandleBatch(t.Context(), batchOf(t, changes))
	if got := failures(t, answer); err != nil || !slices.Equal(got, []string{"998"}) {
		t.Fatalf("got %v, %v", got, err)
	}
	if count.of(metrics.EffectsApplied) != 1 || count.of(metrics.RecordsProcessed) != 1 || published != 1 {
		t.Errorf("counted %v: 1001 is above 998 and comes again", count.total)
	}
}

// HC50: a record that nobody can understand is kept and announced; the 999 others are published and counted, and the shard
// moves on.
func TestHC50PoisonRecord(t *testing.T) {
	changes := history(1000)
	records := make([]string, len(changes))
	for i, c := range changes {
		records[i] = lambdaRecord(t, c)
	}
	records[400] = strings.Replace(records[400], `"resultJson":{"S":`, `"resultJson":{"N":`, 1)
	out, count := &Collector{}, &sums{}
	var kept []string
	c := newTestConsumer(t, out, count, func(cfg *ConsumerConfig) {
		cfg.Unreadable = func(_ context.Context, record []byte) error { kept = append(kept, string(record)); return nil }
	})
	answer, err := c.HandleBatch(t.Context(), lambdaBatch(records...))
	if err != nil || len(failures(t, answer)) != 0 {
		t.Fatalf("got %s, %v", answer, err)
	}
	if !slices.Equal(kept, records[400:401]) {
		t.Errorf("kept %d records", len(kept))
	}
	if n := out.Count(); n["ToolEffectApplied"] != 999 || n["AuditRecordUnreadable"] != 1 || count.of(metrics.EffectsApplied) != 999 || count.of(metrics.RecordsUnreadable) != 1 {
		t.Errorf("got %v, counted %v", n, count.total)
	}
	for _, ev := range out.Events() {
		if u, ok := ev.(*events.AuditRecordUnreadable); ok {
			if u.Attribute != "resultJson" || u.Sequence != changes[400].Sequence || u.Tenant != testTenant || u.Key != "call-400" || u.Operation != "insert" {
				t.Errorf("announced %+v", u)
			}
		}
	}
}

// HC50: without a place to keep it, the batch fails at the poison record and not before, so that the mapping's retries end
// in its destination; a place that fails is no place.
func TestHC50NowhereToKeep(t *testing.T) {
	changes := history(10)
	records := make([]string, len(changes))
	for i, c := range changes {
		records[i] = lambdaRecord(t, c)
	}
	records[4] = strings.Replace(records[4], `"state":{"S":`, `"state":{"N":`, 1)
	for name, keep := range map[string]func(context.Context, []byte) error{
		"no place": nil, "place is full": func(context.Context, []byte) error { return errors.New("full") },
	} {
		out, count := &Collector{}, &sums{}
		c := newTestConsumer(t, out, count, func(cfg *ConsumerConfig) { cfg.Unreadable = keep })
		answer, err := c.HandleBatch(t.Context(), lambdaBatch(records...))
		if got := failures(t, answer); err != nil || !slices.Equal(got, []string{changes[4].Sequence}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if len(out.Events()) != 4 || count.of(metrics.EffectsApplied) != 4 {
			t.Errorf("%s: %d events, counted %v", name, len(out.Events()), count.total)
		}
	}
}

// HC63: a record without a usable time counts under the time of processing, which is counted itself; 1970 is never sent.
func TestHC63MissingTime(t *testing.T) {
	changes := history(3)
	changes[0].Time, changes[1].Time = time.Time{}, time.Unix(0, 0)
	now := t0.Add(2 * time.Hour)
	var times []time.Time
	sink := sinkFunc(func(data []metrics.Datum) {
		for _, d := range data {
			times = append(times, d.Time)
			if d.Name == metrics.RecordTimesReplaced && !d.Time.Equal(now) {
				t.Errorf("%+v", d)
			}
		}
	})
	c := newTestConsumer(t, &Collector{}, sink)
	if n := deliver(t, c, changes, 1); n != 1 {
		t.Fatal(n)
	}
	replaced := 0
	for _, at := range times {
		if at.Equal(now) {
			replaced++
		} else if !at.Equal(changes[2].Time) {
			t.Errorf("time %v", at)
		}
	}
	if replaced != 2*3+1 { // applied, charged, replaced for two records, and processed
		t.Errorf("%d data at the time of processing", replaced)
	}
}

type sinkFunc func([]metrics.Datum)

func (f sinkFunc) Record(_ context.Context, data []metrics.Datum) error { f(data); return nil }

// Before its time is up the consumer stops, answers, and reports what is left: Lambda would kill it and deliver everything
// again.
func TestStopsBeforeDeadline(t *testing.T) {
	changes := history(1200) // three windows
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	deadline, _ := ctx.Deadline()
	calls := 0
	var budget time.Duration
	slow := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		calls++
		end, ok := ctx.Deadline()
		if !ok {
			t.Error("publishing has no deadline")
		}
		budget = deadline.Sub(end)
		if calls == 2 {
			return 100, context.DeadlineExceeded
		}
		return len(evs), nil
	})
	count := &sums{}
	c := newTestConsumer(t, slow, count, func(cfg *ConsumerConfig) { cfg.Margin = 7 * time.Second })
	answer, err := c.HandleBatch(ctx, batchOf(t, changes))
	if got := failures(t, answer); err != nil || !slices.Equal(got, []string{changes[600].Sequence}) || calls != 2 || budget != 7*time.Second {
		t.Errorf("got %v, %v after %d calls with %v to spare", got, err, calls, budget)
	}
	if count.of(metrics.EffectsApplied) != 600 {
		t.Errorf("counted %v", count.total)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	answer, err = newTestConsumer(t, &Collector{}, count).HandleBatch(ended, batchOf(t, changes[:2]))
	if got := failures(t, answer); err != nil || !slices.Equal(got, []string{changes[0].Sequence}) {
		t.Errorf("no time at all: got %v, %v", got, err)
	}
}

// Counting ends before Lambda ends the function: without an answer by then the whole batch would be delivered again, and what
// was counted would be counted twice. However slow the sink is, half of what is left stays for the answer.
func TestCountingStopsBeforeDeadline(t *testing.T) {
	for _, left := range []time.Duration{time.Second, 8 * time.Second, time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		deadline, _ := ctx.Deadline()
		counted := false
		sink := deadlineSink(func(end time.Time) {
			counted = true
			if spare := deadline.Sub(end); spare < left/2-100*time.Millisecond {
				t.Errorf("%v left: counting may go on until %v before the end", left, spare)
			}
		})
		_, err := newTestConsumer(t, &Collector{}, sink).HandleBatch(ctx, batchOf(t, history(2)))
		cancel()
		if err != nil || !counted {
			t.Errorf("%v left: got %v, counted %v", left, err, counted)
		}
	}
}

// deadlineSink is told until when metrics may be sent.
type deadlineSink func(time.Time)

func (f deadlineSink) Record(ctx context.Context, _ []metrics.Datum) error {
	end, _ := ctx.Deadline()
	f(end)
	return nil
}

// A batch full of records that nobody understands gets on with every delivery, even where keeping them takes longer than
// the function may: else it would come again, from its beginning, until Lambda gives it up with the good ones in it.
func TestUnreadableRecordsGetOn(t *testing.T) {
	changes := history(200)
	records := recordsOf(t, changes)
	for i := range records {
		records[i] = strings.Replace(records[i], `"state":{"S":`, `"state":{"N":`, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kept, out := 0, &Collector{}
	c := newTestConsumer(t, out, nil, func(cfg *ConsumerConfig) {
		cfg.Unreadable = func(ctx context.Context, _ []byte) error {
			if kept++; kept == 90 {
				cancel()
			}
			return ctx.Err()
		}
	})
	answer, err := c.HandleBatch(ctx, lambdaBatch(records...))
	got := failures(t, answer)
	if err != nil || len(got) != 1 || kept != 90 {
		t.Fatalf("got %v, %v after %d", got, err, kept)
	}
	if i := slices.IndexFunc(changes, func(c Change) bool { return c.Sequence == got[0] }); i < 90-windowKept || len(out.Events()) != i {
		t.Errorf("kept 90 in time, and begins again at %d with %d events out", i, len(out.Events()))
	}
}

// Metrics that cannot be sent never make a record fail: delivering it again would count twice what got through.
func TestMetricsFailureFailsNoRecord(t *testing.T) {
	count := &sums{fail: errors.New("CloudWatch is down")}
	if n := deliver(t, newTestConsumer(t, &Collector{}, count), history(5), 1); n != 1 {
		t.Errorf("%d deliveries", n)
	}
}

// A publisher that sends less than everything without saying why does not pass for success.
func TestSilentPublisher(t *testing.T) {
	silent := PublisherFunc(func(context.Context, []events.Event) (int, error) { return 1, nil })
	changes := history(3)
	answer, err := newTestConsumer(t, silent, nil).HandleBatch(t.Context(), batchOf(t, changes))
	if got := failures(t, answer); err != nil || !slices.Equal(got, []string{changes[1].Sequence}) {
		t.Errorf("got %v, %v", got, err)
	}
	if done, err := newTestConsumer(t, silent, nil).HandleRecords(t.Context(), changes); done != 1 || err == nil {
		t.Errorf("got %d, %v", done, err)
	}
}

// A configuration that cannot work is refused with the field's name.
func TestNewConsumerRefuses(t *testing.T) {
	if _, err := NewConsumer(ConsumerConfig{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "Publisher") {
		t.Errorf("got %v", err)
	}
	if _, err := NewConsumer(ConsumerConfig{Publisher: &Collector{}, Margin: -1}); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v", err)
	}
}

// A batch of 10,000 records, larger than the 6 MB that Lambda delivers, takes less than 64 MB above idle: records are not held
// decoded, and events only until they are out.
func TestMemoryOfLargestBatch(t *testing.T) {
	one := recordsOf(t, history(1000))
	var records []string
	for i := range 10_000 {
		record := one[i%1000]
		records = append(records, strings.Replace(record, `"eventID":`, `"eventID": `+strings.Repeat(" ", max(0, 600-len(record))), 1))
	}
	batch := lambdaBatch(records...)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	idle, most := heap(), int64(0)
	watched := PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) {
		most = max(most, heap())
		return len(evs), nil
	})
	// Made without newTestConsumer, whose check of each event takes memory of its own.
	c := &Consumer{ConsumerConfig{Publisher: watched, Metrics: &sums{}, Margin: time.Second, Now: fixedNow, Logger: silent}}
	answer, err := c.HandleBatch(t.Context(), batch)
	if err != nil || len(failures(t, answer)) != 0 {
		t.Fatalf("got %s, %v", answer, err)
	}
	t.Logf("a batch of %.1f MB took %.1f MB", float64(len(batch))/1e6, float64(most-idle)/1e6)
	if most-idle > 64<<20 {
		t.Errorf("%d MB above idle", (most-idle)>>20)
	}
}

// Records that nobody understands and that have no number are told apart, and each has one id and one text however often
// it is delivered, by Lambda or by a poller: an id that two share would make subscribers drop the second.
func TestUnreadableRecordsAreToldApart(t *testing.T) {
	out, kept := &Collector{}, map[string]bool{}
	now := t0
	c := newTestConsumer(t, out, nil, func(cfg *ConsumerConfig) {
		cfg.Now = func() time.Time { now = now.Add(time.Second); return now }
		cfg.Unreadable = func(_ context.Context, record []byte) error { kept[string(record)] = true; return nil }
	})
	records := []string{`null`, `17`, `{}`, `[1]`, `{"eventName":"INSERT"}`, `{"dynamodb":{"SequenceNumber":""}}`}
	polled := []streamtypes.Record{{}, {EventName: streamtypes.OperationTypeInsert, Dynamodb: &streamtypes.StreamRecord{}}}
	for range 3 {
		if answer, err := c.HandleBatch(t.Context(), lambdaBatch(records...)); err != nil || len(failures(t, answer)) != 0 {
			t.Fatalf("got %s, %v", answer, err)
		}
		if done, err := c.handleStream(t.Context(), testStream, polled); done != len(polled) || err != nil {
			t.Fatalf("got %d, %v", done, err)
		}
	}
	if want := len(records) + len(polled); len(out.Events()) != want || len(kept) != want || out.Delivered() != 3*want {
		t.Errorf("%d events and %d texts of %d records", len(out.Events()), len(kept), want)
	}
}
