package main

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many intents are in flight at a time, each with its callers.
const atOnce = 12

// demoAt tells the story at a place.
func (a *app) demoAt(ctx context.Context, place *location, o demoOptions) (*report, error) {
	suffix, err := a.demoSuffix(ctx, place)
	if err != nil {
		return nil, err
	}
	p := o.plan(suffix)
	s, err := a.newStory(ctx, place, p.script(o))
	if err != nil {
		return nil, err
	}
	defer s.end(ctx)
	for _, c := range p.calls {
		c.tool = s.tool(c.tool.name)
	}
	if err := s.plans(ctx, p); err != nil {
		return nil, err
	}
	r := &report{Command: "demo", Seed: o.seed, Table: place.table, Where: place.String(), Calls: len(p.calls), Mutating: len(p.calls)}
	if err := s.tell(ctx, p, o); err != nil {
		return nil, err
	}
	s.conclude(r, p)
	if err := s.sabotageBooks(ctx, p, o); err != nil {
		return nil, err
	}
	s.dropEvent = o.sabotage == sabotageEvents
	tenants := map[string]bool{}
	for _, t := range p.tenants {
		tenants[t] = true
	}
	return r, s.prove(ctx, r, tenants)
}

// tell lets everything happen.
func (s *story) tell(ctx context.Context, p *demoPlan, o demoOptions) error {
	stalled := s.stormAll(ctx, p)
	defer stalled() // also where the story ends early
	if err := s.everybody(ctx, p, "callers try again at once", func(c *demoCall) bool {
		return c.trouble != workerStalls && c.line%2 == 0 // the others have given up
	}); err != nil {
		return err
	}
	s.app.print("The deadlines pass, and a sweep settles what was left:")
	swept, err := s.sweep(ctx)
	if err != nil {
		return err
	}
	s.app.print(" %d overdue, %d of them had taken effect and are recorded, %d had not and are given back.\n",
		swept.Found, swept.Finalized, swept.Expired)
	stalled()
	p.calm.Store(true)
	if err := s.sabotageReplay(ctx, p, o); err != nil {
		return err
	}
	if err := s.everybody(ctx, p, "everybody tries once more", func(*demoCall) bool { return true }); err != nil {
		return err
	}
	if err := s.reuse(ctx, p); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	_, err = s.sweep(ctx)
	return err
}

// stormAll tries every intent by all its callers at once. Intents whose worker stalls come last, and are left waiting; the
// function that is returned wakes them and waits for them.
func (s *story) stormAll(ctx context.Context, p *demoPlan) func() {
	callers := 0
	for _, c := range p.calls {
		callers += len(c.answers)
	}
	s.app.print("The storm: %d intents of %d tenants, tried by %d callers at once.\n", len(p.calls), len(p.tenants), callers)
	bar := s.app.progress("the storm", int64(len(p.calls)))
	defer bar.Done()
	var storm errgroup.Group
	storm.SetLimit(atOnce)
	for _, c := range p.calls {
		if c.trouble == workerStalls {
			continue
		}
		storm.Go(func() error {
			s.wave(ctx, c.intent, c.answers, false)
			bar.Add(1)
			return nil
		})
	}
	_ = storm.Wait() // answers are looked at when everybody had a last one
	var asleep []func()
	for _, c := range p.calls {
		if c.trouble == workerStalls {
			asleep = append(asleep, s.stall(ctx, c))
			bar.Add(1)
		}
	}
	return func() {
		for _, wake := range asleep {
			wake()
		}
	}
}

// stall tries an intent by all its callers, one of which stalls, and returns when the others have their answers: one that asked
// after the deadline would rightly take over, and the stalled worker would then act a second time, which no ledger can prevent
// where the outside world knows no keys. The function that is returned wakes the stalled one and waits for it.
func (s *story) stall(ctx context.Context, c *demoCall) (wake func()) {
	var callers sync.WaitGroup
	answered := make(chan struct{}, len(c.answers))
	for i := range c.answers {
		callers.Go(func() {
			c.answers[i] = s.attempt(ctx, c.intent, false)
			c.judge(c.answers[i])
			answered <- struct{}{}
		})
	}
	for range len(c.answers) - 1 {
		<-answered
	}
	return sync.OnceFunc(func() {
		close(c.wake)
		callers.Wait()
	})
}

// everybody tries the intents once more, by one caller each, and again until there is an answer.
func (s *story) everybody(ctx context.Context, p *demoPlan, what string, who func(*demoCall) bool) error {
	bar := s.app.progress(what, int64(len(p.calls)))
	defer bar.Done()
	s.app.print("Then %s.\n", what)
	callers, ctx := errgroup.WithContext(ctx)
	callers.SetLimit(atOnce)
	for _, c := range p.calls {
		if !who(c) {
			bar.Add(1)
			continue
		}
		callers.Go(func() error {
			defer bar.Add(1)
			c.last = s.attempt(ctx, c.intent, true)
			c.judge(c.last)
			return firstFatal(ctx, []answer{c.last})
		})
	}
	return callers.Wait()
}

// reuse calls with a key that belongs to another action by now.
func (s *story) reuse(ctx context.Context, p *demoPlan) error {
	for _, c := range p.calls {
		if c.trouble != none || outcomeOf(c.last) != applied {
			continue
		}
		again := *c.intent
		again.line, again.args, again.fate = len(p.calls)+1, []byte(`{"subject":"another matter","urgent":false}`), nil
		again.key = c.key
		p.reuse = &demoCall{intent: &again, reused: true, answers: make([]answer, 1)}
		p.reuse.last = s.attempt(ctx, p.reuse.intent, false)
		s.app.print("And somebody uses the key of %s no. %d for another action.\n", c.tool.name, c.line)
		return firstFatal(ctx, []answer{p.reuse.last})
	}
	return nil
}

// conclude counts what became of the calls.
func (s *story) conclude(r *report, p *demoPlan) {
	calls := p.calls
	if p.reuse != nil {
		calls = append(calls[:len(calls):len(calls)], p.reuse)
	}
	r.Calls, r.Mutating = len(calls), len(calls)
	twice := 0
	for _, c := range calls {
		out := outcomeOf(c.last)
		r.count(out, c.tokens)
		r.WrongReplays += c.wrong
		effects := len(s.world.Find(c.ref))
		if c.reused {
			continue
		}
		if want := map[bool]int{true: 1}[out == applied]; effects != want {
			twice++
		}
	}
	s.tally(r)
	r.check("each intent", twice == 0 && r.Unsettled == 0,
		"%d intents with as many effects as they should have, %d with others, %d without an answer", len(p.calls)-twice, twice, r.Unsettled)
	r.check("the key used again", p.reuse != nil && r.KeyConflicts == 1, "refused as key conflict: %d", r.KeyConflicts)
	poor := p.tenants[len(p.tenants)-1]
	r.check("the tenant without quota", r.QuotaDenied > 0, "%d calls of %s denied, nothing happened for them", r.QuotaDenied, poor)
}
