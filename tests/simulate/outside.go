package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolledger/writers"
)

// The outside system: what tools act on. It has a log of its own, which is the truth that the ledger is held against, and
// it knows nothing of ledgers. Some of its services honour idempotency keys, some do not; some can be asked, some cannot.

// args are the arguments of every tool: ref names the intended action.
type args struct {
	Ref    string `json:"ref"`
	Amount int64  `json:"amount"`
}

// receipt is the result of every tool.
type receipt struct {
	Ref     string `json:"ref"`
	Receipt int    `json:"receipt"` // number of the effect in the outside system's log
	Amount  int64  `json:"amount"`
}

// service is one kind of outside system.
type service struct {
	name       string
	keys       bool // honours idempotency keys
	verifies   bool // can be asked
	idempotent bool // acting twice is harmless
	commit     bool // no outside system at all: recorded only
}

var services = []service{
	{name: "pay", verifies: true},
	{name: "push", keys: true, verifies: true},
	{name: "book"},
	{name: "note", idempotent: true},
	{name: "mark", commit: true},
}

// effect is something that happened outside.
type effect struct {
	n        int
	ref      string
	rowID    string
	attempt  int
	opID     int
	at       time.Time     // by the true clock
	horizon  time.Duration // that its worker gave itself
	byClock  time.Time     // by the clock of the worker that asked for it
	deadline time.Time     // of its attempt, as the ledger's row said when the effect landed
	tooLate  bool          // landed after deadline and horizon: beyond what is promised
	excused  string        // why a second effect of the same action would be no broken promise
	service  *service
}

// outside is the log.
type outside struct {
	log   []*effect
	byRef map[string][]*effect
	byKey map[string]*effect
}

func newOutside() *outside {
	return &outside{byRef: map[string][]*effect{}, byKey: map[string]*effect{}}
}

// act is a tool's Act: it asks the outside system for an effect.
func (w *world) act(ctx context.Context, s *service, c writers.CallInfo, a args) (receipt, error) {
	op, ok := ctx.Value(opKey{}).(*operation)
	if !ok {
		return receipt{}, fmt.Errorf("%s: no operation in the context", s.name)
	}
	w.checkFence(op, c)
	op.actRef = c
	got := w.callFor(ctx, "outside.act", c, func(f fault) answer { return w.perform(op, s, c, a, f) })
	if got.err != nil {
		return receipt{}, got.err
	}
	r, _ := got.value.(receipt)
	return r, nil
}

// perform decides what the outside system does; it runs on the scheduler.
func (w *world) perform(op *operation, s *service, c writers.CallInfo, a args, f fault) answer {
	switch f.kind {
	case refuses:
		return answer{err: writers.NotApplied(fmt.Errorf("the %s service refused", s.name))}
	case unreached:
		return answer{err: errBroken()}
	case lateAct, tooLateAct:
		// The request is under way; the worker sees a broken connection and cannot know.
		wait := w.lateness(f, op, c)
		w.later(wait, func() { w.land(op, s, c, a) })
		return answer{err: errBroken()}
	}
	e := w.land(op, s, c, a)
	if f.kind == dropped {
		return answer{err: errBroken()}
	}
	return answer{value: receipt{Ref: a.Ref, Receipt: e.n, Amount: a.Amount}}
}

// lateness is how long an effect takes to land: within the tool's horizon after the deadline, or beyond.
func (w *world) lateness(f fault, op *operation, c writers.CallInfo) time.Duration {
	left := max(c.Deadline.Sub(op.proc.now()), 0)
	if f.kind == tooLateAct {
		return left + op.horizon() + f.wait
	}
	return time.Duration(f.pick % uint64(left+op.horizon()))
}

// land is the moment of an effect.
func (w *world) land(op *operation, s *service, c writers.CallInfo, a args) *effect {
	if s.keys {
		if first := w.out.byKey[c.EffectKey]; first != nil {
			w.sameKey(first, a)
			return first
		}
	}
	e := &effect{
		n: len(w.out.log) + 1, ref: a.Ref, rowID: c.RowID, attempt: c.Attempt, opID: op.id,
		at: w.now(), horizon: op.horizon(), byClock: op.proc.clock(w.now()), service: s,
	}
	w.out.log = append(w.out.log, e)
	w.out.byRef[a.Ref] = append(w.out.byRef[a.Ref], e)
	if w.out.byKey[c.EffectKey] == nil {
		w.out.byKey[c.EffectKey] = e
	}
	w.effectLanded(s, e)
	return e
}

// sameKey holds that one idempotency key stands for one action, as long as the ledger remembers it.
func (w *world) sameKey(first *effect, a args) {
	switch {
	case first.ref == a.Ref:
	case w.oracle.archived[first.rowID]:
		w.lied(a.Ref, "key used again after its retention, for another action")
	default:
		_ = w.broken(invOneIntent, "the key of %s was used for %s", first.ref, a.Ref)
	}
}

// verify is a tool's Verify, wherever it runs.
func (w *world) verify(ctx context.Context, s *service, c writers.CallInfo) (receipt, writers.Verdict, error) {
	got := w.callFor(ctx, "outside.find", c, func(f fault) answer { return w.find(s, c.Lookup, f) })
	if got.err != nil {
		return receipt{}, writers.EffectUnknown, got.err
	}
	v, _ := got.value.(found)
	if op, ok := ctx.Value(opKey{}).(*operation); ok && v.verdict == writers.EffectAbsent {
		w.mu.Lock()
		op.absent = append(op.absent, verdictOn{c.RowID, int64(c.Attempt), c.Deadline.UnixMilli()})
		w.mu.Unlock()
	}
	return v.receipt, v.verdict, nil
}

type found struct {
	receipt receipt
	verdict writers.Verdict
}

func (w *world) find(_ *service, ref string, f fault) answer {
	switch f.kind {
	case verifyFails:
		return answer{err: errBroken()}
	case verifyUnknown:
		return answer{value: found{}}
	}
	list := w.out.byRef[ref]
	if f.kind == liesAbsent && len(list) > 0 {
		w.told[ref] = f.kind
		return answer{value: found{verdict: writers.EffectAbsent}}
	}
	if len(list) == 0 {
		if f.kind == liesApplied {
			w.told[ref] = f.kind
			return answer{value: found{receipt{Ref: ref}, writers.EffectApplied}}
		}
		return answer{value: found{verdict: writers.EffectAbsent}}
	}
	return answer{value: found{receipt{Ref: ref, Receipt: list[0].n}, writers.EffectApplied}}
}

// lied notes that nothing can be promised about an action any more: the ledger has acted on what is not true.
func (w *world) lied(ref, how string) {
	w.lies[ref] = how
	w.count("beyond promise", how)
}

// tool is the ledger's view of a service.
func (w *world) tool(s *service) *writers.Tool[args, receipt] {
	t := &writers.Tool[args, receipt]{
		Name:   s.name,
		CostOf: func(a args) int64 { return a.Amount },
		Act: func(ctx context.Context, a writers.Attempt[args]) (receipt, error) {
			return w.act(ctx, s, a.CallInfo, a.Args)
		},
		Lookup:  func(a args) string { return a.Ref },
		Horizon: horizon, Lease: lease, Timeout: w.cfg.profile.patience(actTime), Idempotent: s.idempotent,
		Charge: func(a args, _ receipt) int64 { return chargeOf(a) },
	}
	if s.verifies {
		t.Verify = func(ctx context.Context, c writers.CallInfo) (receipt, writers.Verdict, error) {
			return w.verify(ctx, s, c)
		}
	}
	return t
}

// chargeOf is the final charge: what was reserved, less, or more.
func chargeOf(a args) int64 {
	switch a.Amount % 3 {
	case 1:
		return a.Amount / 2
	case 2:
		return a.Amount + 3
	}
	return a.Amount
}

func (r receipt) json() json.RawMessage {
	b, _ := json.Marshal(r) // strings and numbers
	return b
}
