package streams

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

func newTestPoller(t testing.TB, s *streamServer, l *leaseTable, p Publisher, edit ...func(*PollerConfig)) *Poller {
	t.Helper()
	return pollerFor(t, s, l, newTestConsumer(t, p, nil), edit...)
}

func pollerFor(t testing.TB, s *streamServer, l *leaseTable, c *Consumer, edit ...func(*PollerConfig)) *Poller {
	t.Helper()
	cfg := PollerConfig{
		Streams: s.client(), StreamARN: testStream, DynamoDB: l, Control: "control", Owner: "me", Idle: 5 * time.Millisecond,
		Discover: 20 * time.Millisecond,
	}
	for _, e := range edit {
		e(&cfg)
	}
	poller, err := NewPoller(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	return poller
}

func drain(t testing.TB, p *Poller) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Drain(ctx); err != nil {
		t.Fatal(err)
	}
}

// keysOf are the call keys of events in their order.
func keysOf(evs []events.Event) []string {
	keys := make([]string, len(evs))
	for i, ev := range evs {
		keys[i] = ev.Head().Key
	}
	return keys
}

func callsOf(shards ...*scriptedShard) []string {
	var calls []string
	for _, s := range shards {
		for _, c := range s.records {
			calls = append(calls, strings.TrimPrefix(c.Keys.SK, "TOOL#"))
		}
	}
	return calls
}

// Whatever the topology, every record is published once, and no shard before the end of its parent.
func TestPollerTopologies(t *testing.T) {
	for name, shards := range map[string][]*scriptedShard{
		"one open shard": {shardOf("a", "", false, 9, 25)},
		"empty stream":   {},
		"empty shard":    {shardOf("a", "", false, 1, 0)},
		"split":          {shardOf("p", "", true, 1, 9), shardOf("c1", "p", false, 20, 9), shardOf("c2", "p", false, 30, 9)},
		"chain":          {shardOf("a", "", true, 1, 3), shardOf("b", "a", true, 10, 3), shardOf("c", "b", true, 20, 0), shardOf("d", "c", false, 30, 3)},
		"merge":          {shardOf("a", "", true, 1, 3), shardOf("b", "", true, 10, 3), shardOf("c", "b", false, 20, 3)},
		"parent is gone": {shardOf("c", "long-gone", false, 1, 5)},
		"child first":    {shardOf("c", "p", false, 20, 5), shardOf("p", "", true, 1, 5)},
		"all closed":     {shardOf("a", "", true, 1, 3), shardOf("b", "", true, 10, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, leases := newStream(t, shards...), &Collector{}, newLeaseTable()
			s.page, s.limit = 2, 4
			drain(t, newTestPoller(t, s, leases, out))
			got := keysOf(out.Events())
			if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(callsOf(shards...)))) || out.Delivered() != len(got) {
				t.Errorf("got %v, %d delivered", got, out.Delivered())
			}
			for _, sh := range shards {
				parent := s.find(sh.parent)
				if parent == nil || len(sh.records) == 0 || len(parent.records) == 0 {
					continue
				}
				last, first := callsOf(parent)[len(parent.records)-1], callsOf(sh)[0]
				if slices.Index(got, last) > slices.Index(got, first) {
					t.Errorf("%s before %s", first, last)
				}
			}
			for _, sh := range shards {
				p, owner := leases.lease(sh.id)
				if owner != "" || p.finished != sh.closed || len(sh.records) > 0 && p.checkpoint != sh.records[len(sh.records)-1].Sequence {
					t.Errorf("%s: lease %+v of %q", sh.id, p, owner)
				}
			}
		})
	}
}

// HC56: children that appear by a split start at their first record, after their parent's end: a record that was on a child
// before the child was discovered is not missed.
func TestHC56SplitWhileReading(t *testing.T) {
	parent := shardOf("p", "", false, 1, 6)
	c1, c2 := shardOf("c1", "p", false, 100, 4), shardOf("c2", "p", false, 200, 4)
	c1.hidden, c2.hidden = true, true
	s, out := newStream(t, parent, c1, c2), &Collector{}
	s.limit = 2
	p := newTestPoller(t, s, newLeaseTable(), out)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	drain(t, p)
	s.change(func() { parent.closed, c1.hidden, c2.hidden = true, false, false })
	drain(t, p)
	cancel()
	running.Wait()
	got := keysOf(out.Events())
	if len(got) != 14 || slices.Index(got, "p-5") > slices.Index(got, "c1-0") || slices.Index(got, "p-5") > slices.Index(got, "c2-0") {
		t.Errorf("got %v", got)
	}
	for _, r := range s.asked("GetShardIterator") {
		if r.shard != "p" && r.kind != "TRIM_HORIZON" {
			t.Errorf("%s is read from %s", r.shard, r.kind)
		}
	}
}

// HC54: an iterator that expired is replaced by one behind the last record that was processed, without a gap or a
// repetition, and other shards keep moving meanwhile.
func TestHC54ExpiredIterator(t *testing.T) {
	a, b := shardOf("a", "", false, 1, 10), shardOf("b", "", false, 100, 10)
	s, out := newStream(t, a, b), &Collector{}
	s.limit = 3
	s.fail = func(r streamRequest) string {
		if r.op == "GetRecords" && r.shard == "a" && (r.n == 1 || r.n == 3) {
			return "ExpiredIteratorException"
		}
		return ""
	}
	drain(t, newTestPoller(t, s, newLeaseTable(), out))
	if got := out.Delivered(); got != 20 || len(out.Events()) != 20 {
		t.Errorf("%d delivered, %d events", got, len(out.Events()))
	}
	var after []string
	for _, r := range s.asked("GetShardIterator") {
		if r.shard == "a" {
			after = append(after, r.kind+r.after)
		}
	}
	if want := []string{"TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER3", "AFTER_SEQUENCE_NUMBER6"}; !slices.Equal(after, want) {
		t.Errorf("got %v, want %v", after, want)
	}
}

// Records that were trimmed before they were read are a gap that is told, once, as event and metric, and reading goes on.
func TestPollerTrimmed(t *testing.T) {
	for name, edit := range map[string]func(*streamServer, *scriptedShard){
		"at the iterator": func(_ *streamServer, sh *scriptedShard) { sh.trimmed = 7 },
		"while reading": func(s *streamServer, _ *scriptedShard) {
			s.fail = func(r streamRequest) string {
				if r.op == "GetRecords" && r.n == 4 {
					return "TrimmedDataAccessException"
				}
				return ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sh := shardOf("a", "", false, 1, 5)
			s, out, leases, count := newStream(t, sh), &Collector{}, newLeaseTable(), &sums{}
			s.limit = 5
			c := newTestConsumer(t, out, count)
			drain(t, pollerFor(t, s, leases, c))
			s.change(func() {
				sh.records = append(sh.records, shardOf("later", "", false, 6, 5).records...)
				s.log = nil
				edit(s, sh)
			})
			if s.fail != nil {
				s.change(func() { s.log = slices.Repeat([]streamRequest{{op: "GetRecords", shard: "a"}}, 4) })
			}
			for range 2 {
				drain(t, pollerFor(t, s, leases, c))
			}
			n := out.Count()
			if n["AuditGap"] != 1 || count.of(metrics.AuditGaps) != 1 || !slices.Contains(keysOf(out.Events()), "later-4") {
				t.Errorf("got %v, counted %v", n, count.total)
			}
			for _, ev := range out.Events() {
				if g, ok := ev.(*events.AuditGap); ok && (g.Stream != testStream || g.Shard != "a" || g.AfterSequence != "5") {
					t.Errorf("got %+v", g)
				}
			}
		})
	}
}

// A shard that vanished from the stream unread is a gap too, when its child is read.
func TestPollerParentVanished(t *testing.T) {
	parent := shardOf("p", "", false, 1, 5)
	s, out, leases := newStream(t, parent), &Collector{}, newLeaseTable()
	drain(t, newTestPoller(t, s, leases, out))
	s.change(func() { s.shards = []*scriptedShard{shardOf("c", "p", false, 50, 3)} })
	drain(t, newTestPoller(t, s, leases, out))
	if n := out.Count(); n["AuditGap"] != 1 || n["ToolEffectApplied"] != 8 {
		t.Errorf("got %v", n)
	}
}

// Throttling, faults and lost answers are waited out: nothing is lost and nothing is published twice.
func TestPollerTrouble(t *testing.T) {
	for _, code := range []string{"LimitExceededException", "InternalServerError", "ThrottlingException", "drop"} {
		t.Run(code, func(t *testing.T) {
			s, out := newStream(t, shardOf("a", "", true, 1, 10), shardOf("b", "a", false, 100, 10)), &Collector{}
			s.limit = 4
			s.fail = func(r streamRequest) string {
				if r.n%3 == 1 || r.op != "GetRecords" && r.n == 0 {
					return code
				}
				return ""
			}
			drain(t, newTestPoller(t, s, newLeaseTable(), out))
			if out.Delivered() != 20 || len(out.Events()) != 20 {
				t.Errorf("%d delivered, %d events", out.Delivered(), len(out.Events()))
			}
		})
	}
}

// What no waiting mends ends Run and Drain with an error that says where.
func TestPollerPermanentFailure(t *testing.T) {
	for op, code := range map[string]string{
		"DescribeStream": "ResourceNotFoundException", "GetShardIterator": "AccessDeniedException", "GetRecords": "AccessDeniedException",
	} {
		s := newStream(t, shardOf("a", "", false, 1, 3))
		s.fail = func(r streamRequest) string {
			if r.op == op {
				return code
			}
			return ""
		}
		for name, run := range map[string]func(*Poller, context.Context) error{"Run": (*Poller).Run, "Drain": (*Poller).Drain} {
			err := run(newTestPoller(t, s, newLeaseTable(), &Collector{}), t.Context())
			if err == nil || !strings.Contains(err.Error(), code) {
				t.Errorf("%s, %s: got %v", op, name, err)
			}
		}
	}
}

// The checkpoint never passes a record whose events are not out, and a new poller goes on exactly there.
func TestPollerCheckpointAfterPublish(t *testing.T) {
	sh := shardOf("a", "", false, 1, 20)
	s, leases, out := newStream(t, sh), newLeaseTable(), &Collector{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var room atomic.Int64
	room.Store(7)
	full := errors.New("bus is full")
	limited := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		n := int(min(room.Load(), int64(len(evs))))
		room.Add(int64(-n))
		_, _ = out.Publish(ctx, evs[:n])
		if n < len(evs) {
			stop()
			return n, full
		}
		return n, nil
	})
	count := &sums{}
	if err := pollerFor(t, s, leases, newTestConsumer(t, limited, count)).Run(ctx); err != nil {
		t.Fatal(err)
	}
	p, owner := leases.lease("a")
	if p.checkpoint != "7" || owner != "" || len(out.Events()) != 7 || count.of(metrics.EffectsApplied) != 7 {
		t.Fatalf("lease %+v of %q, %d events, counted %v", p, owner, len(out.Events()), count.total)
	}
	room.Store(1000)
	drain(t, pollerFor(t, s, leases, newTestConsumer(t, limited, count), func(c *PollerConfig) { c.Owner = "another" }))
	if len(out.Events()) != 20 || out.Delivered() != 20 || count.of(metrics.EffectsApplied) != 20 {
		t.Errorf("%d events, %d delivered, counted %v", len(out.Events()), out.Delivered(), count.total)
	}
}

// Drain gives up on what keeps failing instead of waiting for ever.
func TestDrainGivesUp(t *testing.T) {
	down := errors.New("bus is down")
	p := newTestPoller(t, newStream(t, shardOf("a", "", false, 1, 3)), newLeaseTable(), PublisherFunc(
		func(context.Context, []events.Event) (int, error) { return 0, down }))
	if err := p.Drain(t.Context()); !errors.Is(err, down) || !strings.Contains(err.Error(), "shard a") {
		t.Errorf("got %v", err)
	}
}

// Two pollers share a stream without ever owning a shard together: each record is published by one of them.
func TestTwoPollers(t *testing.T) {
	var shards []*scriptedShard
	for i, id := range []string{"a", "b", "c", "d"} {
		shards = append(shards, shardOf(id, "", true, 1+100*i, 30))
	}
	s, leases, out := newStream(t, shards...), newLeaseTable(), &Collector{}
	s.limit = 3
	var running sync.WaitGroup
	for _, owner := range []string{"one", "two"} {
		p := newTestPoller(t, s, leases, out, func(c *PollerConfig) { c.Owner = owner })
		running.Go(func() { drain(t, p) })
	}
	running.Wait()
	if len(out.Events()) != 120 || out.Delivered() != 120 {
		t.Errorf("%d events, %d delivered", len(out.Events()), out.Delivered())
	}
}

// A lease that is held is respected until it is overdue; a poller whose lease was taken over stops, and moves no checkpoint.
func TestLeaseTakeover(t *testing.T) {
	s, leases := newStream(t, shardOf("a", "", false, 1, 5)), newLeaseTable()
	now := t0
	lease := func(owner string) *tableLeases {
		return &tableLeases{leases, "control", testStream, owner, time.Minute, func() time.Time { return now }}
	}
	first, second := lease("first"), lease("second")
	p, owned, err := first.acquire(t.Context(), "a", "")
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	if _, owned, err := second.acquire(t.Context(), "a", ""); err != nil || owned {
		t.Fatalf("a held lease was taken: %v, %v", owned, err)
	}
	now = now.Add(time.Minute + 2*leaseSkew)
	q, owned, err := second.acquire(t.Context(), "a", "")
	if err != nil || !owned {
		t.Fatalf("an overdue lease was not taken: %v, %v", owned, err)
	}
	p.checkpoint = "3"
	if err := first.save(t.Context(), "a", &p); !errors.Is(err, errLeaseLost) {
		t.Errorf("the former owner moved the checkpoint: %v", err)
	}
	if err := first.release(t.Context(), "a", &p); !errors.Is(err, errLeaseLost) {
		t.Errorf("the former owner gave the lease back: %v", err)
	}
	q.checkpoint = "2"
	if err := second.save(t.Context(), "a", &q); err != nil {
		t.Errorf("the owner: %v", err)
	}
	// The owner's lost answer is recognised; somebody else's write is not taken for it.
	leases.fail = func(string, int) (bool, error) {
		leases.fail = nil
		return true, errors.New("answer lost")
	}
	q.checkpoint = "4"
	if err := second.save(t.Context(), "a", &q); err == nil {
		t.Fatal("no error")
	}
	if err := second.save(t.Context(), "a", &q); err != nil {
		t.Errorf("own write not recognised: %v", err)
	}
	if got, _ := leases.lease("a"); got.checkpoint != "4" {
		t.Errorf("checkpoint %q", got.checkpoint)
	}
	_ = s
}

// A control table that fails now and then costs time, not records.
func TestPollerControlTableTrouble(t *testing.T) {
	for _, after := range []bool{false, true} {
		s, leases, out := newStream(t, shardOf("a", "", true, 1, 10), shardOf("b", "a", true, 50, 10)), newLeaseTable(), &Collector{}
		s.limit = 2
		leases.fail = func(_ string, n int) (bool, error) {
			if n%3 == 0 {
				return after, errors.New("try again")
			}
			return false, nil
		}
		drain(t, newTestPoller(t, s, leases, out))
		if len(out.Events()) != 20 || out.Delivered() != 20 {
			t.Errorf("after %v: %d events, %d delivered", after, len(out.Events()), out.Delivered())
		}
	}
}

// Reading from the horizon beside another poller gives the same ids and leaves its checkpoints alone.
func TestFromHorizonSecondReading(t *testing.T) {
	s, leases, first, second := newStream(t, shardOf("p", "", true, 1, 8), shardOf("c", "p", false, 50, 8)), newLeaseTable(), &Collector{}, &Collector{}
	drain(t, newTestPoller(t, s, leases, first))
	before := leases.n
	again := newTestPoller(t, s, leases, second, func(c *PollerConfig) { c.FromHorizon, c.DynamoDB, c.Control = true, nil, "" })
	drain(t, again)
	if !slices.Equal(idsOf(first.Events()), idsOf(second.Events())) || len(second.Events()) != 16 || leases.n != before {
		t.Errorf("%d and %d events, %d requests to the control table", len(first.Events()), len(second.Events()), leases.n-before)
	}
	// It remembers for itself: draining once more reads only what is new.
	s.change(func() {
		sh := s.find("c")
		sh.records = append(sh.records, shardOf("new", "", false, 90, 2).records...)
	})
	drain(t, again)
	if len(second.Events()) != 18 || second.Delivered() != 18 {
		t.Errorf("%d events, %d delivered", len(second.Events()), second.Delivered())
	}
}

// Empty answers are followed by pauses that grow: an idle stream is not hammered.
func TestPollerIdles(t *testing.T) {
	s := newStream(t, shardOf("a", "", false, 1, 1))
	p := newTestPoller(t, s, newLeaseTable(), &Collector{}, func(c *PollerConfig) { c.Idle, c.Discover = 10*time.Second, 10*time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.asked("GetRecords")); n > 8 || n < 1 {
		t.Errorf("%d requests in half a second", n)
	}
}

// Only one loop polls at a time, and a configuration that cannot work is refused with the field's name.
func TestPollerRefuses(t *testing.T) {
	s, c := newStream(t, shardOf("a", "", false, 1, 1)), newTestConsumer(t, &Collector{}, nil)
	p := pollerFor(t, s, newLeaseTable(), c)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	for len(s.asked("DescribeStream")) == 0 {
		runtime.Gosched()
	}
	drain(t, p)
	if err := p.Run(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("got %v", err)
	}
	cancel()
	running.Wait()
	full := PollerConfig{Streams: s.client(), StreamARN: testStream, DynamoDB: newLeaseTable(), Control: "c"}
	for field, edit := range map[string]func(*PollerConfig){
		"Streams": func(c *PollerConfig) { c.Streams = nil }, "StreamARN": func(c *PollerConfig) { c.StreamARN = "" },
		"DynamoDB": func(c *PollerConfig) { c.DynamoDB = nil }, "Control": func(c *PollerConfig) { c.Control = "" },
		"Lease": func(c *PollerConfig) { c.Lease = -1 },
	} {
		cfg := full
		edit(&cfg)
		if _, err := NewPoller(cfg, c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if _, err := NewPoller(full, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v", err)
	}
}

// A bus that refuses the poller for now is waited out where a gap is told, as it is everywhere else: a permission or a bus
// that is missing can be given while the poller runs.
func TestPollerWaitsForBusToTellGap(t *testing.T) {
	for name, gap := range map[string]func(*streamServer){
		"parent vanished": func(s *streamServer) { s.shards = []*scriptedShard{shardOf("c", "a", false, 50, 3)} },
		"shard trimmed": func(s *streamServer) {
			s.shards[0].records, s.shards[0].trimmed = append(s.shards[0].records, shardOf("l", "", false, 50, 3).records...), 6
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, leases, out := newStream(t, shardOf("a", "", false, 1, 5)), newLeaseTable(), &Collector{}
			drain(t, newTestPoller(t, s, leases, out))
			s.change(func() { gap(s) })
			refusals := 0
			denied := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
				if refusals++; refusals < 3 {
					return 0, &smithy.GenericAPIError{Code: []string{"AccessDeniedException", "ResourceNotFoundException"}[refusals%2]}
				}
				return out.Publish(ctx, evs)
			})
			drain(t, newTestPoller(t, s, leases, denied))
			if n := out.Count(); n["AuditGap"] != 1 || refusals < 3 {
				t.Errorf("got %v after %d calls", n, refusals)
			}
		})
	}
}

// What was read while the lease ran out is not published: another poller reads the shard by then.
func TestPollerSlowPage(t *testing.T) {
	s, leases, out := newStream(t, shardOf("a", "", false, 1, 5)), newLeaseTable(), &Collector{}
	var mu sync.Mutex
	now := t0
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	thief := &tableLeases{leases, "control", testStream, "thief", time.Hour, clock}
	s.fail = func(r streamRequest) string {
		if r.op == "GetRecords" && r.n == 0 {
			mu.Lock()
			now = now.Add(2 * time.Minute)
			mu.Unlock()
			if _, owned, err := thief.acquire(context.Background(), "a", ""); err != nil || !owned {
				t.Errorf("the lease was not taken: %v, %v", owned, err)
			}
		}
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := newTestPoller(t, s, leases, out, func(c *PollerConfig) { c.Now = clock }).Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, owner := leases.lease("a"); owner != "thief" || out.Delivered() != 0 {
		t.Errorf("%d events published under the lease of %q", out.Delivered(), owner)
	}
}

// A record without a number to name it by does not send the next poller back to where the shard begins.
func TestPollerRecordWithoutNumber(t *testing.T) {
	sh := shardOf("a", "", false, 1, 4)
	sh.records[3].Sequence = ""
	s, leases, out := newStream(t, sh), newLeaseTable(), &Collector{}
	drain(t, newTestPoller(t, s, leases, out))
	if p, _ := leases.lease("a"); p.checkpoint != "3" || len(out.Events()) != 4 {
		t.Errorf("lease %+v, %d events", p, len(out.Events()))
	}
}

// A server that takes a request and never answers stops no shard, whichever request it is, and a bus that does so stops none
// that has a gap to tell: requests are given up and made again.
func TestPollerSilentServer(t *testing.T) {
	for _, op := range []string{"DescribeStream", "GetShardIterator", "GetRecords", "lease", "gap"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				silent := &silentServer{op: op, shard: shardOf("a", "", true, 1, 3)}
				out := &Collector{}
				bus := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
					if err := silent.answer(ctx, "gap"); op == "gap" && err != nil {
						return 0, err
					}
					return out.Publish(ctx, evs)
				})
				leases := newLeaseTable()
				leases.items[stored(schema.LeaseKey(testStream, "a").Item())] = schema.Item{schema.ACheckpoint: schema.S("1")}
				p, err := NewPoller(PollerConfig{
					Streams: silent, StreamARN: testStream, DynamoDB: silentLeases{leases, silent}, Control: "control",
				}, newTestConsumer(t, bus, nil))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := p.Drain(ctx); err != nil || silent.unanswered != 1 || out.Count()["ToolEffectApplied"] != 3 {
					t.Errorf("got %v, %d unanswered, %v", err, silent.unanswered, out.Count())
				}
			})
		})
	}
}

// silentServer is a stream of one closed shard that leaves the first request of one operation without an answer. The iterator
// behind the checkpoint is trimmed.
type silentServer struct {
	op         string
	shard      *scriptedShard
	mu         sync.Mutex
	unanswered int
}

func (s *silentServer) answer(ctx context.Context, op string) error {
	s.mu.Lock()
	silent := op == s.op && s.unanswered == 0
	if silent {
		s.unanswered++
	}
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *silentServer) DescribeStream(
	ctx context.Context, _ *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.DescribeStreamOutput, error) {
	d := &streamtypes.StreamDescription{Shards: []streamtypes.Shard{{ShardId: &s.shard.id}}}
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: d}, s.answer(ctx, "DescribeStream")
}

func (s *silentServer) GetShardIterator(
	ctx context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.GetShardIteratorOutput, error) {
	if in.SequenceNumber != nil {
		return nil, &streamtypes.TrimmedDataAccessException{}
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: new("i")}, s.answer(ctx, "GetShardIterator")
}

func (s *silentServer) GetRecords(
	ctx context.Context, _ *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options),
) (*dynamodbstreams.GetRecordsOutput, error) {
	out := &dynamodbstreams.GetRecordsOutput{}
	for i := range s.shard.records {
		out.Records = append(out.Records, *streamRecord(s.shard.records[i]))
	}
	return out, s.answer(ctx, "GetRecords")
}

// silentLeases are leases whose first read is not answered.
type silentLeases struct {
	*leaseTable
	s *silentServer
}

func (l silentLeases) GetItem(
	ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	if err := l.s.answer(ctx, "lease"); err != nil {
		return nil, err
	}
	return l.leaseTable.GetItem(ctx, in, opts...)
}
