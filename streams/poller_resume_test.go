package streams

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"toolledger/metrics"
	"toolledger/streams/events"
)

// What a poller from the latest record had read, and could not publish before it was stopped, it publishes when it polls again:
// a shard without a checkpoint goes on where the page began, and not at what is the latest record by then.
func TestPollerFromLatestStopped(t *testing.T) {
	open := shardOf("open", "", false, 1, 2)
	s, out := newStream(t, open), &Collector{}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	down := true
	bus := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		if down {
			stop()
			return 0, errors.New("bus is down")
		}
		return out.Publish(ctx, evs)
	})
	p := newTestPoller(t, s, nil, bus, func(cfg *PollerConfig) { cfg.DynamoDB, cfg.Control, cfg.FromLatest = nil, "", true })
	drain(t, p)
	more := shardOf("more", "", false, 20, 3)
	s.change(func() { open.records = append(open.records, more.records...) })
	if err := p.Run(ctx); err != nil || len(out.Events()) != 0 {
		t.Fatalf("got %v, %v", keysOf(out.Events()), err)
	}
	down = false
	drain(t, p)
	if got := keysOf(out.Events()); !slices.Equal(got, callsOf(more)) {
		t.Errorf("got %v, want %v", got, callsOf(more))
	}
}

// The rest of a page of which a part is out is read again from the checkpoint, and not the page as a whole, where the lease
// cannot be written at first: what is out is not published again, and no metric is counted twice.
func TestPollerRestOfPage(t *testing.T) {
	shard := shardOf("a", "", true, 1, 6)
	s, leases, out, count := newStream(t, shard), newLeaseTable(), &Collector{}, &sums{}
	half := true
	bus := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		if half {
			half = false
			leases.mu.Lock()
			defer leases.mu.Unlock()
			begun := leases.n
			leases.fail = func(_ string, n int) (bool, error) {
				if n == begun+1 {
					return false, errors.New("throttled")
				}
				return false, nil
			}
			n, _ := out.Publish(ctx, evs[:4])
			return n, errors.New("bus is full")
		}
		return out.Publish(ctx, evs)
	})
	drain(t, pollerFor(t, s, leases, newTestConsumer(t, bus, count)))
	if got := keysOf(out.Events()); !slices.Equal(got, callsOf(shard)) || out.Delivered() != 6 || count.of(metrics.EffectsApplied) != 6 {
		t.Errorf("got %v, %d delivered, counted %v", got, out.Delivered(), count.total)
	}
	if p, _ := leases.lease("a"); !p.finished || p.checkpoint != "6" || leases.n < 5 {
		t.Errorf("lease %+v after %d requests", p, leases.n)
	}
}

// A bus that takes little at a time, and fails each time, keeps no shard from moving: Drain gives up after failures in a row
// only, however many there are within one page.
func TestDrainWithABusThatTakesLittle(t *testing.T) {
	shard, out := shardOf("a", "", false, 1, 2*maxFailures), &Collector{}
	little := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		n, _ := out.Publish(ctx, evs[:1])
		if n == len(evs) {
			return n, nil
		}
		return n, errors.New("bus is slow")
	})
	drain(t, newTestPoller(t, newStream(t, shard), newLeaseTable(), little))
	if got := keysOf(out.Events()); !slices.Equal(got, callsOf(shard)) || out.Delivered() != 2*maxFailures {
		t.Errorf("got %v, %d delivered", got, out.Delivered())
	}
}
