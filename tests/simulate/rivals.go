package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolledger/streams"
	"toolledger/writers"
)

// What makes life harder for the others: somebody in a hurry, somebody who sleeps for days, somebody who reads the same shards.

// runHastyPerson says of a call that it did not happen as soon as nothing of it can be seen: the ledger has to refuse that for as
// long as it may still land.
func runHastyPerson(ctx context.Context, w *world, op *operation) error {
	s := op.session(op.proc)
	row, err := s.Get(ctx, op.intent.key())
	if err != nil || row.State == writers.StateApplied {
		return err
	}
	got := w.call(ctx, "person looks", "", func(fault) answer {
		op.looked = w.now()
		return w.find(op.intent.service, row.Lookup, fault{})
	})
	if got.err != nil {
		return got.err
	}
	if f, _ := got.value.(found); f.verdict != writers.EffectAbsent {
		return nil
	}
	if op.rng.IntN(2) == 0 {
		sleep(ctx, time.Duration(op.rng.Int64N(int64(2*lease))))
	}
	_, err = s.Resolve(ctx, op.intent.key(), writers.Resolution{
		Verdict: writers.EffectAbsent, RowID: row.RowID, Attempt: row.Attempt, By: "operator", Why: "hurry",
	})
	return err
}

// prepareHibernate gives the worker the time that it takes.
func prepareHibernate(w *world, op *operation) {
	prepareSleeper(w, op)
	op.limit = 7 * 24 * time.Hour
}

// runHibernate is a worker that acts, and records its effect days later.
func runHibernate(ctx context.Context, w *world, op *operation) error {
	if op.intent.service.commit {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	tool := op.proc.tools[op.intent.service.name]
	hold, done, err := op.session(op.proc).Reserve(ctx, tool.Call(op.intent.key(), op.args(), op.options()))
	if err != nil || done != nil {
		return err
	}
	left := hold.Deadline.Sub(op.proc.now()) * 4 / 5
	if left <= 0 {
		return hold.Release(ctx, "no time left")
	}
	acting, cancel := context.WithTimeout(ctx, left)
	r, err := w.act(acting, op.intent.service, hold.CallInfo, op.args())
	cancel()
	if err != nil {
		return errNobodyKnows // the row stays pending
	}
	sleep(ctx, time.Duration(op.rng.Int64N(int64(6*lease)))) // the others find it overdue, and go on without it
	if err := w.sleepForDays(ctx, op); err != nil {
		return err
	}
	raw, err := hold.Finalize(recording(ctx), r, chargeOf(op.args()))
	op.got(raw.Outcome, raw.JSON, raw.RowID)
	return err
}

// sleepForDays lets days pass once nobody else is under way, and sleeps through them.
func (w *world) sleepForDays(ctx context.Context, op *operation) error {
	days := []time.Duration{time.Hour, 26 * time.Hour, 4 * 24 * time.Hour}[op.rng.IntN(3)]
	alone, err := w.askUntil(ctx, 5*time.Second, func(int) bool {
		if op.still = len(w.alive) > 1; !op.still {
			w.jump = days
		}
		return !op.still
	})
	switch {
	case err != nil:
		return err
	case alone:
		sleep(ctx, days-time.Minute)
		return nil
	}
	_ = w.call(ctx, "days pass", "", func(fault) answer { op.still = false; return answer{} })
	return nil
}

// prepareOldWord looks for a call of which somebody may ask what became of it.
func prepareOldWord(w *world, op *operation) {
	for range 12 {
		prepareCall(w, op)
		if it := w.store.ledger.items[op.rowKey()]; op.intent.service.verifies && (it.str("state") == "pending" || it.has("unverified")) {
			break
		}
	}
	op.limit = max(op.limit, 5*time.Minute)
}

// runOldWord is somebody who asks what became of a call once its act must have landed, and uses the answer after a while: by then it may
// be about an attempt that is over, or a deadline that was moved.
func runOldWord(ctx context.Context, w *world, op *operation) error {
	row, err := op.session(op.proc).Get(ctx, op.intent.key())
	if err != nil || row.State == writers.StateApplied || !op.intent.service.verifies {
		return err
	}
	sleep(ctx, row.Deadline.Add(skew+horizon).Sub(op.proc.now()))
	switch _, verdict, err := w.verify(ctx, op.intent.service, row.CallInfo); {
	case err != nil:
		return errNobodyKnows
	case verdict != writers.EffectAbsent:
		return nil
	}
	sleep(ctx, w.resting(time.Duration(op.rng.Int64N(int64(6*lease)))))
	call := op.proc.tools[op.intent.service.name].Call(op.intent.key(), op.args(), op.options())
	call.VerifiedAbsent = row.Ref()
	hold, done, err := op.session(op.proc).Reserve(ctx, call)
	switch {
	case err != nil:
		return err
	case done != nil:
		op.got(done.Outcome, done.JSON, done.RowID)
		return nil
	}
	return op.goOn(ctx, w, hold)
}

// prepareLateExtension looks for a reservation that is overdue, which whoever shares it gives more time.
func prepareLateExtension(w *world, op *operation) {
	at := op.rng.IntN(len(w.pool))
	for i := range w.pool {
		op.intent = w.pool[(at+i)%len(w.pool)]
		if w.oracle.stateOf(op.rowKey()) == rowOverdue {
			break
		}
	}
	op.how, op.seen = "extend", w.store.ledger.items[op.rowKey()]
	op.variant = variantOf(op.intent, op.seen)
}

// runRivalPoll is another poller, which reads the same shards and feeds the same bus.
func runRivalPoll(ctx context.Context, w *world, op *operation) error {
	c, err := w.feed.consumer(op.proc, w.feed.poller, nil)
	if err != nil {
		return err
	}
	p, err := streams.NewPoller(streams.PollerConfig{
		Streams: w.feed, StreamARN: w.store.ledger.arn, DynamoDB: op.proc.dynamo, Control: w.store.control.name,
		Owner: fmt.Sprintf("rival-%d", op.id), Now: op.proc.now,
	}, c)
	if err != nil {
		return err
	}
	return p.Drain(ctx)
}

// prepareImpostor looks for a key that somebody has given back, and asks for another action under it.
func prepareImpostor(w *world, op *operation) {
	prepareCall(w, op)
	for range 12 {
		if w.store.ledger.items[op.rowKey()].str("state") == "failed" {
			break
		}
		prepareCall(w, op)
	}
	op.variant = 1
}

// prepareUndo looks for an action that undoes one that has taken effect.
func prepareUndo(w *world, op *operation) {
	at := op.rng.IntN(len(w.pool))
	for i := range w.pool {
		op.intent = w.pool[(at+i)%len(w.pool)]
		if o := op.intent.compensates; o != nil && w.store.ledger.items[o.rowKey()].str("state") == "applied" {
			return
		}
	}
}

// runPlanTwice sets one plan twice at the same moment, as two people do who have not spoken.
func runPlanTwice(ctx context.Context, _ *world, op *operation) error {
	t := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id))
	var errs [2]error
	var both sync.WaitGroup
	for i := range errs {
		both.Go(func() { errs[i] = t.PutPlan(ctx, op.plan) })
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

// runGrantAgain grants one order twice, as whoever is not sure about the first time does.
func runGrantAgain(ctx context.Context, _ *world, op *operation) error {
	n := op.rng.IntN(4)
	op.order = fmt.Sprintf("order-%d", n)
	t := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id))
	for range 2 {
		if err := t.Grant(ctx, op.order, grantOf(n)); err != nil {
			return err
		}
	}
	return nil
}
