package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"toolledger/metrics"
	"toolledger/streams/events"
)

func someEvents(n int) []events.Event {
	evs := make([]events.Event, n)
	for i := range evs {
		row := fmt.Sprintf("row-%d", i)
		evs[i] = events.Identify(&events.ToolCallReserved{
			Header: events.Header{
				Schema: events.Schema, Tenant: testTenant, Session: testSession, Scope: "session", Key: testCall, RowID: row,
				Version: 1, Attempt: 1, Time: t0,
			},
			ReservedTokens: 20, Deadline: t0.Add(time.Minute),
		}, row)
	}
	return evs
}

func idsOf(evs []events.Event) []string {
	ids := make([]string, len(evs))
	for i, ev := range evs {
		ids[i] = ev.Head().ID
	}
	slices.Sort(ids)
	return ids
}

// sums is a MetricSink that adds up.
type sums struct {
	mu    sync.Mutex
	total map[string]float64
	calls int
	fail  error
}

func (s *sums) Record(_ context.Context, data []metrics.Datum) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.total == nil {
		s.total = map[string]float64{}
	}
	for _, d := range data {
		s.total[d.Name] += d.Value
	}
	return s.fail
}

func (s *sums) of(name string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total[name]
}

// HC61: requests hold at most ten entries, whatever the number of events, several at a time and not more than allowed.
func TestHC61Tens(t *testing.T) {
	for _, n := range []int{1, 10, 11, 25, 400} {
		bus := newBus(t)
		evs := someEvents(n)
		out, err := bus.publisher(t, func(c *PublisherConfig) { c.Concurrency = 3 }).Publish(t.Context(), evs)
		if err != nil || out != n {
			t.Fatalf("%d: got %d, %v", n, out, err)
		}
		if !slices.Equal(bus.ids(), idsOf(evs)) || len(bus.requests) != (n+9)/10 || bus.most > 3 {
			t.Errorf("%d: %d ids, %d requests, %d at a time", n, len(bus.ids()), len(bus.requests), bus.most)
		}
		e := bus.requests[0][0]
		if e.Source != "toolledger" || e.DetailType != "ToolCallReserved" || e.EventBusName != "audit" || int64(e.Time) != t0.Unix() {
			t.Errorf("entry %+v", e)
		}
		back, err := events.ParseDetail(e.DetailType, []byte(e.Detail))
		if err != nil || back.(*events.ToolCallReserved).ReservedTokens != 20 {
			t.Errorf("detail %s: %v", e.Detail, err)
		}
	}
}

// HC61: requests stay under 1 MB as EventBridge counts it, and an event that is too large alone is set aside, not sent.
func TestHC61Bytes(t *testing.T) {
	bus := newBus(t)
	evs := someEvents(12)
	for i, ev := range evs {
		size := 200_000
		if i == 5 {
			size = 1 << 20
		}
		ev.(*events.ToolCallReserved).Trace = strings.Repeat("é", size/2)
	}
	var refused []Refusal
	count := &sums{}
	p := bus.publisher(t, func(c *PublisherConfig) {
		c.Refused = func(_ context.Context, r Refusal) error { refused = append(refused, r); return nil }
		c.Metrics = count
	})
	out, err := p.Publish(t.Context(), evs)
	if err != nil || out != 12 {
		t.Fatalf("got %d, %v", out, err)
	}
	if len(bus.ids()) != 11 || bus.largest >= 1<<20 || len(bus.requests) != 3 {
		t.Errorf("%d ids, %d bytes, %d requests", len(bus.ids()), bus.largest, len(bus.requests))
	}
	if len(refused) != 1 || refused[0].Code != CodeTooLarge || refused[0].Event != evs[5] || len(refused[0].Detail) < 1<<20 || count.of(metrics.EventsRefused) != 1 {
		t.Errorf("set aside %d, counted %v", len(refused), count.total)
	}
}

// HC58: an answer of 200 hides failures: only the entries that failed are sent again, matched by index.
func TestHC58OnlyFailedEntriesAgain(t *testing.T) {
	bus := newBus(t)
	bus.fail = func(r busRequest) busAnswer {
		if r.n == 0 {
			return busAnswer{refused: map[int]string{3: "ThrottlingException", 7: "InternalFailure"}}
		}
		return busAnswer{}
	}
	evs := someEvents(10)
	out, err := bus.publisher(t).Publish(t.Context(), evs)
	if err != nil || out != 10 {
		t.Fatalf("got %d, %v", out, err)
	}
	if len(bus.requests) != 2 || len(bus.requests[1]) != 2 || bus.requests[1][0].id != evs[3].Head().ID || bus.requests[1][1].id != evs[7].Head().ID {
		t.Errorf("sent again: %v", bus.requests[1])
	}
	for id, n := range bus.accepted {
		if n != 1 {
			t.Errorf("%s is on the bus %d times", id, n)
		}
	}
}

// HC58: entries that go on failing are reported by the first of them; the pauses and attempts are bounded.
func TestHC58StillFailing(t *testing.T) {
	bus := newBus(t)
	evs := someEvents(30)
	stuck := evs[17].Head().ID
	bus.fail = func(r busRequest) busAnswer {
		for i, e := range r.entries {
			if e.id == stuck {
				return busAnswer{refused: map[int]string{i: "ThrottlingException"}}
			}
		}
		return busAnswer{}
	}
	out, err := bus.publisher(t).Publish(t.Context(), evs)
	if out != 17 || err == nil || !strings.Contains(err.Error(), "ThrottlingException") {
		t.Fatalf("got %d, %v", out, err)
	}
	if n := len(bus.requests); n > 3+3 {
		t.Errorf("%d requests", n)
	}
}

// Whatever one request meets, every event gets onto the bus in the end, and none is refused by mistake.
func TestPublishSurvives(t *testing.T) {
	for name, answer := range map[string]busAnswer{
		"throttled":          {status: http.StatusBadRequest, code: "ThrottlingException"},
		"fault":              {status: http.StatusInternalServerError, code: "InternalException"},
		"unavailable":        {status: http.StatusServiceUnavailable, code: "x"},
		"answer lost":        {drop: true},
		"partly, then lost":  {refused: map[int]string{1: "InternalFailure"}, drop: true},
		"results missing":    {refused: map[int]string{1: "InternalFailure"}, short: true},
		"throttled in part":  {refused: map[int]string{0: "ThrottlingException", 9: "ThrottlingException"}},
		"throttled as a lot": {refused: map[int]string{0: "ThrottlingException", 1: "ThrottlingException", 2: "ThrottlingException"}},
	} {
		t.Run(name, func(t *testing.T) {
			evs := someEvents(30)
			for _, at := range []int{0, 12, 29} {
				bus := newBus(t)
				bus.fail = onlyFor(2, func(busRequest, int) busAnswer { return answer }, evs[at].Head().ID)
				out, err := bus.publisher(t, func(c *PublisherConfig) {
					c.Refused = func(context.Context, Refusal) error { t.Error("an event was refused"); return nil }
				}).Publish(t.Context(), evs)
				if err != nil || out != 30 || !slices.Equal(bus.ids(), idsOf(evs)) {
					t.Errorf("at %d: got %d, %v, %d ids", at, out, err, len(bus.ids()))
				}
			}
		})
	}
}

// A permanent refusal is set aside with its reason and does not stop what comes behind it; if it cannot be set aside, it
// is not out.
func TestPublishRefused(t *testing.T) {
	evs := someEvents(20)
	refusing := func(r busRequest) busAnswer {
		for i, e := range r.entries {
			if e.id == evs[4].Head().ID {
				return busAnswer{refused: map[int]string{i: "MalformedDetail"}}
			}
		}
		return busAnswer{}
	}
	bus := newBus(t)
	bus.fail = refusing
	var got []Refusal
	count := &sums{}
	out, err := bus.publisher(t, func(c *PublisherConfig) {
		c.Refused, c.Metrics = func(_ context.Context, r Refusal) error { got = append(got, r); return nil }, count
	}).Publish(t.Context(), evs)
	if err != nil || out != 20 || len(got) != 1 || got[0].Code != "MalformedDetail" || got[0].Message != "scripted" || len(bus.ids()) != 19 || count.of(metrics.EventsRefused) != 1 {
		t.Errorf("got %d, %v, %v", out, err, got)
	}
	bus.fail = refusing
	full := errors.New("disk full")
	out, err = bus.publisher(t, func(c *PublisherConfig) {
		c.Refused = func(context.Context, Refusal) error { return full }
	}).Publish(t.Context(), evs)
	if out != 4 || !errors.Is(err, full) {
		t.Errorf("cannot be set aside: got %d, %v", out, err)
	}
}

// A request that is refused as a whole for one entry is taken apart; one that is refused for who sends it sets nothing aside.
func TestPublishRequestRefused(t *testing.T) {
	evs := someEvents(10)
	bad := evs[6].Head().ID
	bus := newBus(t)
	bus.fail = onlyFor(100, func(busRequest, int) busAnswer {
		return busAnswer{status: http.StatusBadRequest, code: "ValidationException"}
	}, bad)
	var got []string
	out, err := bus.publisher(t, func(c *PublisherConfig) {
		c.Refused = func(_ context.Context, r Refusal) error { got = append(got, r.Event.Head().ID); return nil }
	}).Publish(t.Context(), evs)
	if err != nil || out != 10 || !slices.Equal(got, []string{bad}) || len(bus.ids()) != 9 {
		t.Errorf("got %d, %v, set aside %v", out, err, got)
	}
	bus = newBus(t)
	bus.fail = func(busRequest) busAnswer {
		return busAnswer{status: http.StatusBadRequest, code: "AccessDeniedException"}
	}
	out, err = bus.publisher(t, func(c *PublisherConfig) {
		c.Refused = func(context.Context, Refusal) error { t.Error("an event was refused"); return nil }
	}).Publish(t.Context(), evs)
	if out != 0 || err == nil || len(bus.requests) != 1 {
		t.Errorf("access denied: got %d, %v after %d requests", out, err, len(bus.requests))
	}
}

// A publisher whose time is up reports what is not out, and leaves nothing running (see TestMain).
func TestPublishOutOfTime(t *testing.T) {
	bus := newBus(t)
	bus.fail = func(busRequest) busAnswer {
		return busAnswer{status: http.StatusBadRequest, code: "ThrottlingException"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	out, err := bus.publisher(t, func(c *PublisherConfig) { c.Attempts, c.Pause = 1000, 10*time.Millisecond }).Publish(ctx, someEvents(30))
	if out != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %d, %v", out, err)
	}
}

// HC60: a missing bus name is refused at construction: EventBridge would take the default bus and nobody would notice.
func TestHC60EmptyBus(t *testing.T) {
	if _, err := NewEventBridgePublisher(newBus(t).client(), PublisherConfig{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "Bus") {
		t.Errorf("got %v", err)
	}
	if _, err := NewEventBridgePublisher(nil, PublisherConfig{Bus: "b"}); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v", err)
	}
}

// With several publishers an event is out when all have it.
func TestFanOut(t *testing.T) {
	first, second := &Collector{}, &Collector{}
	broken := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		n, _ := second.Publish(ctx, evs[:2])
		return n, errors.New("no more")
	})
	evs := someEvents(5)
	if out, err := FanOut(first, broken).Publish(t.Context(), evs); out != 2 || err == nil {
		t.Errorf("got %d, %v", out, err)
	}
	if out, err := FanOut(first, second).Publish(t.Context(), evs); out != 5 || err != nil {
		t.Errorf("got %d, %v", out, err)
	}
	if len(first.Events()) != 5 || first.Delivered() != 10 || second.Count()["ToolCallReserved"] != 5 {
		t.Errorf("first has %d of %d, second %v", len(first.Events()), first.Delivered(), second.Count())
	}
}

// Refusals are counted in one request, and once: those that will be handed over again, since an event before them is not
// out, count when they come again.
func TestRefusalsCountOnce(t *testing.T) {
	evs, bus, count := someEvents(40), newBus(t), &sums{}
	var down atomic.Bool
	down.Store(true)
	bus.fail = func(r busRequest) busAnswer {
		refused := map[int]string{}
		for i, e := range r.entries {
			switch at := slices.IndexFunc(evs, func(ev events.Event) bool { return ev.Head().ID == e.id }); {
			case at == 15 && down.Load():
				refused[i] = "ThrottlingException"
			case at%3 == 0 && at != 15:
				refused[i] = "MalformedDetail"
			}
		}
		return busAnswer{refused: refused}
	}
	p := bus.publisher(t, func(c *PublisherConfig) { c.Metrics, c.Concurrency = count, 1 })
	out, err := p.Publish(t.Context(), evs)
	if out != 15 || err == nil || count.of(metrics.EventsRefused) != 5 || count.calls != 1 {
		t.Fatalf("got %d, %v, counted %v in %d requests", out, err, count.total, count.calls)
	}
	down.Store(false)
	out, err = p.Publish(t.Context(), evs[out:])
	if out != 25 || err != nil || count.of(metrics.EventsRefused) != 13 || count.calls != 2 {
		t.Errorf("got %d, %v, counted %v in %d requests", out, err, count.total, count.calls)
	}
}

// An answer that tells of failures without saying of which leaves nothing for sent that it does not name.
func TestHC58FailureWithoutCode(t *testing.T) {
	evs, calls := someEvents(3), 0
	vague := busFunc(func(in *eventbridge.PutEventsInput) *eventbridge.PutEventsOutput {
		out := &eventbridge.PutEventsOutput{Entries: make([]types.PutEventsResultEntry, len(in.Entries))}
		calls++
		for i := range out.Entries {
			if calls == 1 && i == 1 {
				out.FailedEntryCount = 1
				continue
			}
			out.Entries[i].EventId = aws.String("envelope")
		}
		return out
	})
	if out, err := publisherTo(t, vague).Publish(t.Context(), evs); out != 3 || err != nil || calls != 2 {
		t.Errorf("got %d, %v after %d requests", out, err, calls)
	}
}

type busFunc func(*eventbridge.PutEventsInput) *eventbridge.PutEventsOutput

func (f busFunc) PutEvents(
	_ context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options),
) (*eventbridge.PutEventsOutput, error) {
	return f(in), nil
}
