package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"toolledger/metrics"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/sweeper"
	"toolledger/writers"
)

// pictureStory is what a picture shows: some minutes, a round each, with more to do in the middle.
type pictureStory struct{ rounds, intents int }

var anHour = pictureStory{rounds: 60, intents: 540}

const (
	pictureTenants = 5
	pictureSeries  = 20 // tenants with series of their own where the ledger is not ours
	pictureStall   = 7  // rounds until a stalled worker wakes: its reservation was given back by then
)

// collector takes the metrics of a reader of the streams and of the sweeps, as CloudWatch does.
type collector struct {
	sums *metrics.Aggregator
	at   func() time.Time // when a datum counts; nil leaves the time of its record
}

// Publish takes events as a bus that nobody listens to.
func (c *collector) Publish(_ context.Context, evs []events.Event) (int, error) { return len(evs), nil }

// Record takes metrics.
func (c *collector) Record(_ context.Context, data []metrics.Datum) error {
	if c.at != nil {
		now := c.at()
		for i := range data {
			data[i].Time = now
		}
	}
	c.sums.Add(data...)
	return nil
}

// localPoints are the metrics of the ledger that w names, or of a story, with a name for the place.
func (a *app) localPoints(ctx context.Context, w *where) ([]metrics.Point, string, error) {
	if w.local == "" && w.endpoint == "" && w.stack == "" && w.table == "" && w.region == "" {
		place, err := a.tryLocation(ctx, w)
		if err != nil {
			return nil, "", err
		}
		defer place.close()
		points, err := a.storyPoints(ctx, place, anHour)
		return points, "an hour of a story", err
	}
	place, err := a.lookLocation(ctx, w)
	if err != nil {
		return nil, "", err
	}
	defer place.close()
	c := &collector{sums: metrics.NewAggregator(pictureSeries)}
	r, err := a.collectingReader(place, c)
	if err != nil {
		return nil, "", err
	}
	if err := r.drain(ctx); err != nil {
		return nil, "", err
	}
	return c.sums.Take(a.now()), place.table, nil
}

// collectingReader reads the streams of a place from their beginning, without a lease: it changes nothing there.
func (a *app) collectingReader(place *location, c *collector) (*reader, error) {
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: c, Metrics: c, Now: a.now, Logger: a.log,
		Unreadable: func(context.Context, []byte) error { return nil }, // counted, and whoever publishes keeps the record
	})
	if err != nil {
		return nil, err
	}
	r := &reader{}
	for _, stream := range []string{place.ledgerStream, place.planStream} {
		if stream == "" {
			return nil, badInput("%s: a table has no stream", place)
		}
		p, err := streams.NewPoller(streams.PollerConfig{Streams: place.streams, StreamARN: stream, FromHorizon: true, Logger: a.log}, consumer)
		if err != nil {
			return nil, err
		}
		r.pollers = append(r.pollers, p)
	}
	return r, nil
}

// storyPoints tells the story on a fresh local stack. Its clock is moved by a minute after each round, and what the streams
// then tell counts in the round's minute.
func (a *app) storyPoints(ctx context.Context, place *location, told pictureStory) ([]metrics.Point, error) {
	quiet := *a
	quiet.stdout, quiet.stderr = io.Discard, io.Discard // what the demo says as it goes on
	o := demoOptions{intents: told.intents, tenants: pictureTenants, seed: 1}
	p := o.plan("")
	s, err := quiet.newStory(ctx, place, p.script(o))
	if err != nil {
		return nil, err
	}
	defer s.end(ctx)
	s.clock.skip(-time.Duration(told.rounds) * time.Minute) // it ends now
	for _, c := range p.calls {
		c.tool = s.tool(c.tool.name)
	}
	if err := s.plans(ctx, p); err != nil {
		return nil, err
	}
	c := &collector{sums: metrics.NewAggregator(pictureTenants), at: s.clock.Now}
	r, err := a.collectingReader(place, c)
	if err != nil {
		return nil, err
	}
	bar := a.progress("the story", int64(told.rounds))
	defer bar.Done()
	if err := s.rounds(ctx, told, p, func() error { bar.Add(1); return s.minuteEnds(ctx, r, c) }); err != nil {
		return nil, err
	}
	return c.sums.Take(a.now()), nil
}

// rounds tells the story a minute at a time, and says when each ends.
func (s *story) rounds(ctx context.Context, told pictureStory, p *demoPlan, minuteEnds func() error) error {
	done, again := 0, 0
	wake := map[int]func(){}
	defer func() {
		for _, f := range wake {
			f()
		}
	}()
	for round := range told.rounds {
		now := &demoPlan{calls: p.calls[done:told.share(round)], tenants: p.tenants}
		done = told.share(round)
		wake[round+pictureStall] = s.stormAll(ctx, now)
		if f := wake[round]; f != nil {
			f()
			delete(wake, round)
		}
		if before := round - pictureStall; before >= 0 { // callers come again when it is settled
			late := &demoPlan{calls: p.calls[again:told.share(before)], tenants: p.tenants}
			again = told.share(before)
			if err := s.everybody(ctx, late, "", func(*demoCall) bool { return true }); err != nil {
				return err
			}
		}
		if err := minuteEnds(); err != nil {
			return err
		}
	}
	return nil
}

// minuteEnds sweeps, reads the streams, and moves the clock.
func (s *story) minuteEnds(ctx context.Context, r *reader, c *collector) error {
	tools := make([]writers.AnyTool, 0, len(s.tools))
	for _, t := range s.tools {
		tools = append(tools, t.verifier())
	}
	sw, err := sweeper.New(s.ledger, sweeper.Config{Tools: tools})
	if err != nil {
		return err
	}
	report, err := sw.Run(ctx)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if err := c.Record(ctx, report.Metrics()); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	s.clock.skip(time.Minute)
	return nil
}

// share is how many intents have been wanted by the end of a round: few a round, then more, then few again.
func (p pictureStory) share(round int) int {
	weight := func(n int) int { return min(n+1, p.rounds-n) + p.rounds/4 }
	sum, all := 0, 0
	for n := range p.rounds {
		all += weight(n)
		if n <= round {
			sum += weight(n)
		}
	}
	return p.intents * sum / all
}
