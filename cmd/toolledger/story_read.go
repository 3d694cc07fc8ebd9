package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"toolledger/metrics"
	"toolledger/streams"
	"toolledger/streams/events"
)

// reading is what one consumer was told, from the beginning of the stream. It stands where on AWS the event bus and the
// metrics are.
type reading struct {
	tenants map[string]bool // whose events are kept; trouble that belongs to nobody is kept too

	mu      sync.Mutex
	events  map[string]events.Event // by id: redelivery is no second event
	metrics map[string]float64      // sums
}

func newReading(tenants map[string]bool) *reading {
	return &reading{tenants: tenants, events: map[string]events.Event{}, metrics: map[string]float64{}}
}

// Publish takes events as the bus does.
func (r *reading) Publish(_ context.Context, evs []events.Event) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range evs {
		if h := ev.Head(); h.Tenant == "" || r.tenants[h.Tenant] {
			r.events[h.ID] = ev
		}
	}
	return len(evs), nil
}

// Record takes metrics as CloudWatch does.
func (r *reading) Record(_ context.Context, data []metrics.Datum) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range data {
		if d.Tenant == "" || r.tenants[d.Tenant] {
			r.metrics[d.Name] += d.Value
		}
	}
	return nil
}

// counts are the events by type.
func (r *reading) counts() map[string]int {
	n := map[string]int{}
	for _, ev := range r.events {
		n[ev.DetailType()]++
	}
	return n
}

// sums are the metrics; all of them count whole things.
func (r *reading) sums() map[string]int64 {
	n := map[string]int64{}
	for name, value := range r.metrics {
		n[name] = int64(value)
	}
	return n
}

// reader is a consumer of the streams of both tables that begins at the beginning.
type reader struct {
	*reading
	pollers []*streams.Poller
}

func (s *story) newReader(tenants map[string]bool) (*reader, error) {
	r := &reader{reading: newReading(tenants)}
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: r, Metrics: r, Now: s.clock.Now, Logger: s.app.log,
		Unreadable: func(context.Context, []byte) error { return nil }, // told as an event, which the proof does not expect
	})
	if err != nil {
		return nil, err
	}
	for _, stream := range []string{s.place.ledgerStream, s.place.planStream} {
		p, err := streams.NewPoller(streams.PollerConfig{
			Streams: s.place.streams, StreamARN: stream, FromHorizon: true, Logger: s.app.log,
		}, consumer)
		if err != nil {
			return nil, err
		}
		r.pollers = append(r.pollers, p)
	}
	return r, nil
}

// drain reads all that the streams have.
func (r *reader) drain(ctx context.Context) error {
	for _, p := range r.pollers {
		if err := p.Drain(ctx); err != nil {
			return fmt.Errorf("read the stream: %w", err)
		}
	}
	return nil
}

// AWS shows a write in the stream a little later.
const (
	drainTries = 6
	drainPause = time.Second
)

// drainUntil reads until nothing is wrong any more, or until it will not get better.
func (s *story) drainUntil(ctx context.Context, r *reader, compare func() []string) ([]string, error) {
	for try := 1; ; try++ {
		if err := r.drain(ctx); err != nil {
			return nil, err
		}
		wrong := compare()
		if len(wrong) == 0 || s.place.server != nil || try == drainTries {
			return wrong, nil
		}
		if err := pause(ctx, drainPause); err != nil {
			return nil, err
		}
	}
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

// lose forgets that an effect was told, so that the proof can be seen to fail.
func (r *reading) lose() {
	for id, ev := range r.events {
		if _, ok := ev.(*events.ToolEffectApplied); ok {
			delete(r.events, id)
			return
		}
	}
}
