package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

// The parallel mode lets the same actors run truly at once, for the race detector: no bubble, no scheduler, real time, and
// whatever order the machine gives. Faults come at once or not at all, nobody pauses past a lease, and the oracle looks once
// everybody has come to rest: no double effect is excused, the books balance, events and transitions agree.
type parallel struct {
	w      *world
	offset time.Duration // added to every clock, once everybody rests
}

// parallelKinds are the operations that need no simulated time.
var parallelKinds = []string{"do", "steps", "commit", "look", "http", "direct", "set plan", "grant", "suspend", "resolve", "sweep"}

// simulateParallel runs ops operations, a few at once, restarting the store in between.
func simulateParallel(ctx context.Context, b *backend, cfg config, ops, atOnce int) (run, error) {
	s, err := newStore(ctx, b, fmt.Sprintf("parallel-%d-%d", cfg.seed, b.tables.Add(1)))
	if err != nil {
		return run{}, err
	}
	defer s.drop()
	w := &world{
		cfg: cfg, store: s, out: newOutside(), lies: map[string]string{}, told: map[string]string{}, stats: map[string]map[string]int{},
		cover: map[coverKey]int{}, seen: map[coverKey]string{}, hash: fnv.New64a(),
	}
	w.began, w.base = time.Now(), begins[1].Add(-12*time.Hour)
	w.gate.wake, w.parallel = make(chan struct{}, 1), &parallel{w: w}
	w.oracle = newOracle(w)
	for _, t := range []*table{s.ledger, s.control} {
		if err := s.open(t); err != nil {
			return run{}, err
		}
	}
	err = w.parallel.run(ops, atOnce)
	w.end()
	out := run{Seed: cfg.seed, Profile: cfg.profile.name + ", parallel", Steps: ops, Stats: w.stats, Ops: ops, cover: w.cover}
	if v, ok := err.(*violation); ok { //nolint:errorlint // made here, and wrapped by nobody
		out.Violation = v
		return out, nil
	}
	return out, err
}

func (p *parallel) run(ops, atOnce int) error {
	w := p.w
	w.populate()
	room := make(chan struct{}, atOnce)
	for n := range ops {
		room <- struct{}{}
		if n == ops/2 {
			w.parallel.restart()
		}
		kind := kindNamed(parallelKinds[w.rng("parallel", n).IntN(len(parallelKinds))])
		op := w.prepared(kind, nil)
		w.launch(op)
		w.wg.Go(func() {
			<-op.finished
			<-room
		})
	}
	p.join()
	return p.rest()
}

// restart kills the store under everybody and starts it again on its file.
func (p *parallel) restart() {
	p.w.store.restarting.Lock()
	defer p.w.store.restarting.Unlock()
	if a := p.w.store.do(backendRequest{restart: true}); a.err != nil {
		_ = p.w.broken(invLeftovers, "the store did not come back: %v", a.err)
	}
	for _, t := range []*table{p.w.store.ledger, p.w.store.control} {
		_ = p.w.store.seek(t)
	}
	p.w.count("store", "restarted")
}

// join waits for everybody.
func (p *parallel) join() {
	p.w.wg.Wait()
	p.w.alive = nil
}

// rest brings everything to its end and checks what holds then.
func (p *parallel) rest() error {
	w := p.w
	w.calm = true
	for range 4 {
		p.w.mu.Lock()
		p.offset += 10 * time.Minute
		p.w.mu.Unlock()
		w.launch(w.prepared(kindSweep, nil))
		p.join()
		if err := p.pull(); err != nil {
			return err
		}
		for _, in := range w.pool {
			if it := w.store.ledger.items[in.rowKey()]; it.has("held") {
				w.launch(w.prepared(kindNamed("resolve"), func(op *operation) { op.intent = in }))
			}
		}
		p.join()
		if err := p.pull(); err != nil || len(w.openRows()) == 0 {
			break
		}
	}
	for _, l := range w.feed.lanes {
		for range 20 + len(l.records) { // an invocation takes one record at least, but where it is given old ones alone
			if l.done == len(l.records) {
				break
			}
			w.launch(w.prepared(deliverKind(l), nil))
			p.join()
		}
	}
	w.launch(w.prepared(kindNamed("poll"), nil))
	p.join()
	if w.failure != nil {
		return w.failure
	}
	if err := p.effects(); err != nil {
		return err
	}
	if err := p.pull(); err != nil { // the poller's own leases
		return err
	}
	return w.atRest()
}

// pull reads the streams, and looks at all that happened meanwhile.
func (p *parallel) pull() error {
	for _, t := range []*table{p.w.store.ledger, p.w.store.control} {
		fresh, err := p.w.store.pull(t, p.w.now())
		if err != nil {
			return err
		}
		touched := map[key]bool{}
		for _, r := range fresh {
			if isRow(r.key) && !r.control {
				p.w.oracle.move(r, touched)
			}
			if isQuota(r.key) {
				touched[r.key] = true
			}
			p.w.oracle.fresh = nil
			if err := p.w.oracle.expect(r); err != nil {
				return err
			}
			p.w.feed.add(r, p.w.oracle.fresh)
		}
		if err := p.w.oracle.balance(touched); err != nil {
			return err
		}
	}
	return nil
}

// effects holds that nothing happened twice: no act lands late here, so nothing excuses it.
func (p *parallel) effects() error {
	for ref, list := range p.w.out.byRef {
		if s := list[0].service; len(list) > 1 && !s.idempotent {
			return p.w.broken(invEffects, "%s happened %d times", ref, len(list))
		}
	}
	return nil
}

// answer runs one request at once.
func (p *parallel) answer(ctx context.Context, e *entry) answer {
	w := p.w
	w.mu.Lock()
	e.op.requests++
	e.seq = e.op.requests
	w.mu.Unlock()
	f := w.drawFault(e)
	switch f.kind {
	case delayed, straggler, slowAnswer, hangs, hangsApplied, slowAct, lateAct, tooLateAct, storeRestart, liesAbsent, liesApplied:
		f.kind = pass
	}
	w.count("fault", f.kind)
	switch {
	case f.kind == killedBefore:
		p.kill(e.op.proc)
		return answer{err: errDead}
	case !e.dynamo():
		w.acting.Lock()
		a := e.act(f)
		w.acting.Unlock()
		if f.kind == killedAfter {
			p.kill(e.op.proc)
			return answer{err: errDead}
		}
		return a
	}
	switch f.kind {
	case refusedConn:
		return answer{err: errBroken()}
	case throttled, overCapacity, inProgress, internalBefore, conflict:
		return refusal(e, f)
	}
	w.store.restarting.RLock()
	a := httpAnswer(w.store.b.roundTrip(context.WithoutCancel(ctx), backendRequest{header: e.header, body: e.body}))
	w.store.restarting.RUnlock()
	w.count("request", e.target)
	switch f.kind {
	case lostAnswer:
		return answer{err: errBroken()}
	case internalApplied:
		return serviceError("InternalServerError", nil)
	case mixedReasons:
		return w.mixed(a, f)
	case killedAfter:
		p.kill(e.op.proc)
		return answer{err: errDead}
	}
	return a
}

func (p *parallel) kill(proc *process) {
	p.w.killing.Lock()
	defer p.w.killing.Unlock()
	p.w.kill(proc)
}

// refusal is what the service says of a request that it does not take.
func refusal(e *entry, f fault) answer {
	switch f.kind {
	case throttled:
		return serviceError("ThrottlingException", nil)
	case overCapacity:
		return serviceError("ProvisionedThroughputExceededException", nil)
	case inProgress:
		return serviceError("TransactionInProgressException", nil)
	case internalBefore:
		return serviceError("InternalServerError", nil)
	}
	return conflictAnswer(e, f)
}

// isParallel tells a world of this mode.
func (w *world) isParallel() bool { return w.parallel != nil }

// resting scales a pause of an actor: here it takes real time.
func (w *world) resting(d time.Duration) time.Duration {
	if w.isParallel() {
		return d / 200
	}
	return d
}
