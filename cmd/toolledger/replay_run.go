package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"toolledger/internal/outside"
	"toolledger/internal/recorded"
	"toolledger/writers"
)

// settleRounds is how often callers that were told to come back do so. All but the first time the deadline has passed.
const settleRounds = 12

// mostDeaths is how many workers die of one recorded call: with --crash 1 somebody must live to hear that the tool refuses.
const mostDeaths = 3

// refusedStatus is how the outside world says that it did nothing.
const refusedStatus = 422

// replayAt plays the calls at a place.
func (a *app) replayAt(ctx context.Context, place *location, o replayOptions, calls []recorded.Call, total int64) (*report, error) {
	byLine := make(map[int]*recorded.Call, len(calls))
	for i := range calls {
		byLine[calls[i].Line] = &calls[i]
	}
	s, err := a.newStory(ctx, place, func(req outside.Request) outside.Answer {
		if c := byLine[req.Case]; c == nil || c.IsError {
			return outside.Answer{Refuse: refusedStatus}
		}
		return outside.Answer{Result: byLine[req.Case].Result}
	})
	if err != nil {
		return nil, err
	}
	defer s.end(ctx)
	if o.quota >= 0 {
		total = o.quota
	}
	if err := s.ledger.Tenant(writers.TenantID(o.tenant)).PutPlan(ctx, writers.Plan{Tokens: total}); err != nil {
		return nil, err
	}
	r := &report{Command: "replay", Seed: o.seed, Table: place.table, Where: place.String(), Calls: len(calls)}
	if err := s.play(ctx, r, o, calls); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	swept, err := s.sweep(ctx)
	if err != nil {
		return nil, err
	}
	s.tally(r)
	r.check("outcomes", r.Unsettled == 0 && swept.Found == 0,
		"%d mutating calls came to one outcome each, %d did not; a sweep found %d left over", r.Mutating-r.Unsettled, r.Unsettled, swept.Found)
	return r, s.prove(ctx, r, map[string]bool{o.tenant: true})
}

// play makes the mutating calls one after the other, in the order of the file.
func (s *story) play(ctx context.Context, r *report, o replayOptions, calls []recorded.Call) error {
	bar := s.app.progress("replaying", int64(len(calls)))
	defer bar.Done()
	actions := map[string]*action{} // by reference: several calls may be one action
	for i := range calls {
		bar.Add(1)
		c := &calls[i]
		if !c.Mutating {
			continue
		}
		r.Mutating++
		n := s.intent(o, c, actions)
		out, err := s.storm(ctx, n, o.storm)
		if err != nil {
			return fmt.Errorf("line %d: %w", c.Line, err)
		}
		r.count(out, n.tokens)
	}
	for _, act := range actions {
		r.WrongReplays += act.wrong
	}
	return nil
}

// intent makes what callers want of a recorded call.
func (s *story) intent(o replayOptions, c *recorded.Call, actions map[string]*action) *intent {
	key := o.callKey(c)
	n := &intent{
		line: c.Line, tenant: o.tenant, session: c.Session, key: key, tool: s.tool(c.Tool), args: c.Args, tokens: *c.Tokens,
		ref: refOf(o.tenant, c.Session, key),
		fate: func(act int) fate {
			if act <= mostDeaths && rand.New(rand.NewPCG(o.seed, uint64(c.Line)<<20|uint64(act))).Float64() < o.crash {
				return diesAfter
			}
			return lives
		},
	}
	if actions[n.ref] == nil {
		actions[n.ref] = &action{}
	}
	n.action = actions[n.ref]
	return n
}

// storm makes one call by several callers at once, lets each of them try again, and returns what the call came to.
func (s *story) storm(ctx context.Context, n *intent, callers int) (outcome, error) {
	before := len(s.world.Find(n.ref))
	answers := make([]answer, callers)
	s.wave(ctx, n, answers, false)
	for round := range settleRounds {
		if err := firstFatal(ctx, answers); err != nil {
			return unsettled, err
		}
		left := s.unanswered(answers)
		if left == 0 && (round > 0 || callers == 1) {
			break
		}
		if round > 0 {
			s.clock.skip(settleTime)
		}
		s.wave(ctx, n, answers, true)
	}
	out := common(answers)
	if out == applied && len(s.world.Find(n.ref)) == before {
		out = replayed
	}
	return out, ctx.Err()
}

// wave lets all callers that may try again do so at once: those without an answer, and, to prove the replay, those whose call
// took effect.
func (s *story) wave(ctx context.Context, n *intent, answers []answer, retry bool) {
	var callers sync.WaitGroup
	for i := range answers {
		if out := outcomeOf(answers[i]); retry && out != unsettled && out != applied {
			continue
		}
		callers.Go(func() {
			answers[i] = s.attempt(ctx, n, retry)
			n.judge(answers[i])
		})
	}
	callers.Wait()
}

func (s *story) unanswered(answers []answer) int {
	left := 0
	for _, a := range answers {
		if outcomeOf(a) == unsettled {
			left++
		}
	}
	return left
}

func firstFatal(ctx context.Context, answers []answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, a := range answers {
		if err := fatal(a); err != nil {
			return err
		}
	}
	return nil
}

// common is the outcome that all callers of one call agree on. One that took effect outweighs callers that were refused before
// or after; a key that is another's is so for everybody.
func common(answers []answer) outcome {
	out := outcomeOf(answers[0])
	for _, a := range answers[1:] {
		switch other := outcomeOf(a); {
		case other == out:
		case other == unsettled || out == unsettled || other == conflicted || out == conflicted:
			return unsettled
		case other == applied || out == applied:
			out = applied
		case other == released || out == released:
			out = released
		}
	}
	return out
}

// count adds one call's outcome.
func (r *report) count(out outcome, tokens int64) {
	switch out {
	case applied:
		r.Applied++
	case replayed:
		r.Replayed++
	case conflicted:
		r.KeyConflicts++
	case released:
		r.Released++
		r.Refunded += tokens
	case denied:
		r.QuotaDenied++
	case unsettled:
		r.Unsettled++
	}
}

// tally adds what the outside world and the story counted.
func (s *story) tally(r *report) {
	t := s.world.Tally()
	r.Effects, r.DoubleEffects, r.Dropped = t.Effects, t.Double, t.Dropped
	r.Attempts, r.Crashes, r.Sweeps = int(s.attempts.Load()), int(s.crashes.Load()), s.sweeps
	r.check("effects per intent", r.DoubleEffects == 0 && r.Effects == r.Applied,
		"%d effects for %d applied calls, %d double", r.Effects, r.Applied, r.DoubleEffects)
	r.check("replays", r.WrongReplays == 0, "%d answers differ from what the effect answered", r.WrongReplays)
}
