package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"toolledger/internal/outside"
	"toolledger/internal/schema"
	"toolledger/sweeper"
	"toolledger/writers"
)

// The durations of the protocol that the stories let pass. They are the library's defaults: only the clock is moved.
const (
	storyLease   = time.Minute
	storySkew    = 2 * time.Minute
	storyHorizon = time.Minute
	settleTime   = storyLease + storySkew + storyHorizon + time.Second

	coalesce = 100 * time.Millisecond
)

// clock is real time plus what the story has skipped. Ledger and sweeper share it.
type clock struct {
	real    func() time.Time
	skipped atomic.Int64
}

// Now is the story's time.
func (c *clock) Now() time.Time { return c.real().Add(time.Duration(c.skipped.Load())) }

// skip moves the clock forward.
func (c *clock) skip(d time.Duration) { c.skipped.Add(int64(d)) }

// avoidMonthEnd starts in the next month where this one is about to end: a new period would give everybody new tokens in the
// middle of the story.
func (c *clock) avoidMonthEnd() {
	now := c.Now()
	end := schema.PeriodEnd(schema.PeriodAt(schema.Monthly, now))
	if left := end.Sub(now); left < time.Hour {
		c.skip(left + time.Minute)
	}
}

// story is a ledger, an outside world, and workers that may die between the two.
type story struct {
	app    *app
	place  *location
	clock  *clock
	ledger *writers.Ledger
	world  *outside.World
	client *outside.Client
	tools  map[string]*storyTool // by name; filled before the first call

	workers  sync.WaitGroup // of calls, the abandoned ones of the dead included
	attempts atomic.Int64
	crashes  atomic.Int64
	sweeps   int
	expired  int // reservations that sweeps gave back

	dropEvent bool // sabotage: the first reading loses an event
}

// newStory starts an outside world beside the ledger of place. end must be called.
func (a *app) newStory(ctx context.Context, place *location, script func(outside.Request) outside.Answer) (*story, error) {
	s := &story{app: a, place: place, clock: &clock{real: a.now}, tools: map[string]*storyTool{}}
	s.clock.avoidMonthEnd()
	var err error
	s.ledger, err = writers.New(mortal{place.client}, writers.Config{
		Table: place.table, Control: place.control, Coalesce: coalesce, Now: s.clock.Now, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	if s.world, err = outside.Start(ctx, outside.Config{Script: script}); err != nil {
		return nil, err
	}
	s.client = &outside.Client{URL: s.world.URL(), HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	return s, nil
}

// endTime is how long the end of a story may take after it was interrupted.
const endTime = 5 * time.Second

// end waits for the workers and stops the outside world.
func (s *story) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	s.workers.Wait()
	s.client.HTTP.CloseIdleConnections() // first: the server waits for connections that were opened and never used
	if err := errors.Join(s.ledger.Close(ctx), s.world.Close(ctx)); err != nil {
		s.app.log.Warn("the story did not end well", slog.Any("error", err))
	}
}

// settle lets everything that is under way end: observations that wait are written, dead workers' goroutines are gone.
func (s *story) settle(ctx context.Context) error {
	s.workers.Wait()
	return s.ledger.Close(ctx)
}

// sweep lets the deadlines of all reservations pass and sweeps.
func (s *story) sweep(ctx context.Context) (sweeper.Report, error) {
	tools := make([]writers.AnyTool, 0, len(s.tools))
	for _, t := range s.tools {
		tools = append(tools, t.verifier())
	}
	sw, err := sweeper.New(s.ledger, sweeper.Config{Tools: tools})
	if err != nil {
		return sweeper.Report{}, err
	}
	s.clock.skip(settleTime)
	r, err := sw.Run(ctx)
	s.sweeps++
	s.expired += r.Expired
	if err == nil && !r.Complete {
		err = errors.New("the sweep ran out of time")
	}
	if err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	return r, nil
}
