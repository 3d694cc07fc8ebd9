package streams

import (
	"context"
	"errors"
	"slices"
	"sync"

	"toolledger/streams/events"
)

// Publisher sends events. It is the way to any bus.
//
// Publish returns how many of evs, counted from the first, are out for good: it is the index of the first event that is
// not out, or len(evs). Later ones may be out too; they will be handed over again, with the same ids. err says why out is
// below len(evs), and is nil where it is not. An event that the bus refuses for good counts as out once it is set aside,
// or it would stop the audit of everything behind it.
type Publisher interface {
	Publish(ctx context.Context, evs []events.Event) (out int, err error)
}

// PublisherFunc makes a function a Publisher.
type PublisherFunc func(ctx context.Context, evs []events.Event) (out int, err error)

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, evs []events.Event) (int, error) {
	return f(ctx, evs)
}

// FanOut publishes to several Publishers, one after the other; an event is out where it is out on all of them.
func FanOut(publishers ...Publisher) Publisher {
	return PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		out := len(evs)
		var errs []error
		for _, p := range publishers {
			n, err := p.Publish(ctx, evs)
			out, errs = min(out, n), append(errs, err)
		}
		return out, errors.Join(errs...)
	})
}

// Collector is a Publisher that keeps events in memory, each once by its id, in the order in which they came first. It is
// for programs that hold everything in one process, and for tests. The zero value is ready; it is safe for concurrent use.
type Collector struct {
	mu        sync.Mutex
	seen      map[string]struct{}
	events    []events.Event
	delivered int
}

// Publish keeps evs. It never fails.
func (c *Collector) Publish(_ context.Context, evs []events.Event) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[string]struct{})
	}
	for _, ev := range evs {
		c.delivered++
		id := ev.Head().ID
		if _, again := c.seen[id]; again {
			continue
		}
		c.seen[id] = struct{}{}
		c.events = append(c.events, ev)
	}
	return len(evs), nil
}

// Events returns the events so far.
func (c *Collector) Events() []events.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// Delivered returns how many events were published, repetitions included.
func (c *Collector) Delivered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// Count returns how many different events of each type there are.
func (c *Collector) Count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[string]int)
	for _, ev := range c.events {
		counts[ev.DetailType()]++
	}
	return counts
}
