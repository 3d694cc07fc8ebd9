package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"toolledger/internal/outside"
	"toolledger/writers"
)

// tool returns the tool of that name.
func (s *story) tool(name string) *storyTool {
	if s.tools[name] == nil {
		s.tools[name] = &storyTool{s, name}
	}
	return s.tools[name]
}

// storyTool is one tool of a story. Arguments are whatever JSON was recorded or made up; the result is text.
type storyTool struct {
	s    *story
	name string
}

type (
	tool  = writers.Tool[json.RawMessage, string]
	trial = writers.Attempt[json.RawMessage]
)

// verifier is the tool as the sweeper knows it: it can ask, and nothing else.
func (t *storyTool) verifier() *tool { return &tool{Name: t.name, Verify: t.verify} }

// verify asks the outside world by the reference that the call left in its row.
func (t *storyTool) verify(ctx context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
	result, happened, err := t.s.client.Find(ctx, c.Lookup)
	switch {
	case err != nil:
		return "", writers.EffectUnknown, err
	case happened:
		return result, writers.EffectApplied, nil
	}
	return "", writers.EffectAbsent, nil
}

// fate is what befalls the worker that acts.
type fate int

const (
	lives      fate = iota
	diesBefore      // reserved, and never acts
	diesAfter       // acted, and never records it
	stalls          // reserved, and acts only much later
)

// intent is one intended action: what callers want, and what became of it.
type intent struct {
	line    int // of the recording, or its number in the demo; the outside world's case
	tenant  string
	session string
	key     writers.Key
	tool    *storyTool
	args    json.RawMessage
	tokens  int64
	ref     string // what the outside world knows the action by: one per tenant, session and key

	// fate decides on each act of the intent, counted from 1.
	fate func(act int) fate
	wake chan struct{} // what a stalled worker waits for

	*action
}

// action is what is known of one action outside, which several recorded calls may mean.
type action struct {
	mu    sync.Mutex
	acts  int
	first json.RawMessage // the bytes of the first answer
	wrong int             // answers that were others
}

func refOf(tenant, session string, key writers.Key) string {
	return strings.Join([]string{tenant, session, key.String()}, "/")
}

// call calls the tool once and looks at the answer.
func (c *intent) call(ctx context.Context, s *story, retry bool) answer {
	t := &tool{Name: c.tool.name, Cost: c.tokens, Act: c.act, Verify: c.tool.verify}
	r, err := t.Do(ctx, s.ledger.Tenant(writers.TenantID(c.tenant)).Session(c.session), c.key, c.args, func(call *writers.Call) {
		call.Lookup, call.Retry = c.ref, retry
	})
	if err != nil {
		return answer{err: err}
	}
	return answer{json: r.JSON}
}

// act makes the effect outside, if its worker lives that long.
func (c *intent) act(ctx context.Context, a trial) (string, error) {
	w, fate := workerOf(ctx), c.next()
	switch fate {
	case diesBefore:
		c.tool.s.crashes.Add(1)
		w.die()
		return "", errDead
	case stalls:
		select {
		case <-c.wake:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	case lives, diesAfter:
	}
	result, err := c.tool.s.client.Act(ctx, outside.Request{Tool: c.tool.name, Args: a.Args, Ref: c.ref, Case: c.line, Key: a.EffectKey})
	if fate == diesAfter {
		c.tool.s.crashes.Add(1)
		w.die()
	}
	if refused, ok := errors.AsType[*outside.RefusedError](err); ok {
		return "", writers.NotApplied(refused)
	}
	return result, err
}

func (c *intent) next() fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acts++
	if c.fate == nil {
		return lives
	}
	return c.fate(c.acts)
}

// judge compares an answer with what the effect answered and with every answer before, byte for byte.
func (c *intent) judge(a answer) {
	if a.err != nil || a.died {
		return
	}
	var value string
	effects := c.tool.s.world.Find(c.ref)
	right := json.Unmarshal(a.json, &value) == nil && (len(effects) == 0 || value == effects[0].Result)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = a.json
	}
	if !right || string(c.first) != string(a.json) {
		c.wrong++
	}
}

// outcome is what a call came to.
type outcome int

const (
	unsettled outcome = iota // nobody knows yet, or the answer was no answer
	applied
	replayed
	conflicted
	released
	denied
)

// outcomeOf reads an answer; whether a call that took effect was applied or replayed only its history tells.
func outcomeOf(a answer) outcome {
	code, _ := errors.AsType[writers.Code](a.err)
	switch {
	case a.died:
		return unsettled
	case a.err == nil:
		return applied
	case code == writers.ErrKeyConflict:
		return conflicted
	case code == writers.ErrNotApplied:
		return released
	case code == writers.ErrQuotaExhausted, code == writers.ErrNotProvisioned:
		return denied
	}
	return unsettled
}

// answers are the refusals that a caller understands: final ones, and those that ask to come back later.
var answers = []writers.Code{
	writers.ErrKeyConflict, writers.ErrNotApplied, writers.ErrQuotaExhausted, writers.ErrNotProvisioned,
	writers.ErrInProgress, writers.ErrOutcomeUnknown, writers.ErrSuperseded, writers.ErrUnavailable,
}

// fatal is an answer that no retry mends: the story cannot go on.
func fatal(a answer) error {
	if a.err == nil || a.died {
		return nil
	}
	code, _ := errors.AsType[writers.Code](a.err)
	if slices.Contains(answers, code) {
		return nil
	}
	return a.err
}
