package streams

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"toolledger/streams/events"
)

// A poller from the latest record reads what is written after it was drained once, nothing from before, also of shards that
// come later, loses nothing to a publisher that fails at first, and asks no table for leases.
func TestPollerFromLatest(t *testing.T) {
	old, open := shardOf("old", "", true, 1, 3), shardOf("open", "old", false, 10, 3)
	s, out := newStream(t, old, open), &Collector{}
	fails := 0
	flaky := PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		if fails++; fails == 1 {
			return 0, errors.New("not yet")
		}
		return out.Publish(ctx, evs)
	})
	p := newTestPoller(t, s, nil, flaky, func(cfg *PollerConfig) { cfg.DynamoDB, cfg.Control, cfg.FromLatest = nil, "", true })
	drain(t, p)
	if len(out.Events()) != 0 {
		t.Fatalf("the past: %v", keysOf(out.Events()))
	}
	s.mu.Lock()
	more, child := shardOf("more", "", false, 20, 4), shardOf("child", "open", false, 30, 2)
	open.records, open.closed = append(open.records, more.records...), true
	s.shards = append(s.shards, child)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for len(out.Events()) < 6 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := keysOf(out.Events()); !slices.Equal(got, callsOf(more, child)) || fails < 2 {
		t.Errorf("got %v after %d publishings", got, fails)
	}
	if _, err := NewPoller(PollerConfig{Streams: s.client(), StreamARN: testStream, FromHorizon: true, FromLatest: true}, p.consumer); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}
