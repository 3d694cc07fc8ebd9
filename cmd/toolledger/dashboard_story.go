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

// The story that a picture shows: an hour, a minute a round, with more to do in its middle.
const (
	pictureRounds  = 60
	pictureTenants = 5
	pictureIntents = 540
	pictureStall   = 7 // rounds until a stalled worker wakes: its reservation was given back by then
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
		points, err := a.storyPoints(ctx, place)
		return points, "an hour of a story", err
	}
	place, err := a.lookLocation(ctx, w)
	if err != nil {
		return nil, "", err
	}
	defer place.close()
	c := &collector{sums: metrics.NewAggregator(pictureTenants * 4)}
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
func (a *app) storyPoints(ctx context.Context, place *location) ([]metrics.Point, error) {
	quiet := *a
	quiet.stdout, quiet.stderr = io.Discard, io.Discard
	o := demoOptions{intents: pictureIntents, tenants: pictureTenants, seed: 1}
	p := o.plan("")
	s, err := quiet.newStory(ctx, place, p.script(o))
	if err != nil {
		return nil, err
	}
	defer s.end(ctx)
	s.clock.skip(-pictureRounds * time.Minute) // it ends now
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
	if err := s.rounds(ctx, p, r, c); err != nil {
		return nil, err
	}
	return c.sums.Take(a.now()), nil
}

// rounds tells the story a minute at a time.
func (s *story) rounds(ctx context.Context, p *demoPlan, r *reader, c *collector) error {
	bar := s.app.progress("an hour", pictureRounds)
	defer bar.Done()
	done, again := 0, 0
	wake := map[int]func(){}
	defer func() {
		for _, f := range wake {
			f()
		}
	}()
	for round := range pictureRounds {
		now := &demoPlan{calls: p.calls[done:pictureShare(round)], tenants: p.tenants}
		done = pictureShare(round)
		wake[round+pictureStall] = s.stormAll(ctx, now)
		if f := wake[round]; f != nil {
			f()
			delete(wake, round)
		}
		if before := round - pictureStall; before >= 0 { // callers come again when it is settled
			late := &demoPlan{calls: p.calls[again:pictureShare(before)], tenants: p.tenants}
			again = pictureShare(before)
			if err := s.everybody(ctx, late, "", func(*demoCall) bool { return true }); err != nil {
				return err
			}
		}
		if err := s.minuteEnds(ctx, r, c); err != nil {
			return err
		}
		bar.Add(1)
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

// pictureShare is how many intents have been wanted by the end of a round: few, then twice as many, then few again.
func pictureShare(round int) int {
	weight := func(n int) int { return min(n+1, pictureRounds-n) + pictureRounds/4 }
	sum, all := 0, 0
	for n := range pictureRounds {
		all += weight(n)
		if n <= round {
			sum += weight(n)
		}
	}
	return pictureIntents * sum / all
}
