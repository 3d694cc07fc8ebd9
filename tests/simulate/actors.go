package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

var kindPlanSet = &opKind{name: "set plan", slot: "operator", weight: 3, prepare: preparePlan, run: runPlan}

var kindSweep = &opKind{name: "sweep", slot: "sweeper", weight: 12, run: func(ctx context.Context, _ *world, op *operation) error {
	_, err := op.proc.sweeper.Run(ctx)
	return err
}}

// kinds is everything that somebody may do.
var kinds = []*opKind{
	{name: "do", slot: "worker", weight: 24, prepare: prepareCall, run: runDo},
	{name: "steps", slot: "worker", weight: 14, prepare: prepareCall, run: runSteps},
	{name: "sleeper", slot: "worker", weight: 9, prepare: prepareSleeper, run: runSteps},
	{name: "commit", slot: "worker", weight: 9, prepare: prepareCommit, run: runCommit},
	{name: "look", slot: "worker", weight: 5, prepare: prepareCall, run: runLook},
	{name: "http", slot: "http", weight: 14, prepare: prepareCall, run: runDoor},
	{name: "direct", slot: "direct", weight: 9, prepare: prepareCall, run: runDoor},
	kindSweep,
	kindPlanSet,
	{name: "grant", slot: "operator", weight: 3, prepare: prepareTenant, run: runGrant},
	{name: "suspend", slot: "operator", weight: 2, prepare: prepareTenant, run: runSuspend},
	{name: "resolve", slot: "operator", weight: 5, prepare: prepareCall, run: runResolve},
	{name: "erase", slot: "operator", weight: 1, prepare: prepareErase, run: runErase},
	{name: "deliver", slot: "consumer", weight: 10, run: runDeliver},
	{name: "poll", slot: "poller", weight: 3, run: runPoll},
	{name: "expire", slot: "operator", weight: 1, immortal: true, run: runExpire},
	{name: "hasty person", slot: "operator", weight: 4, prepare: prepareCall, run: runHastyPerson},
	{name: "hibernate", slot: "worker", weight: 1, immortal: true, prepare: prepareHibernate, run: runHibernate},
	{name: "rival poll", slot: "poller", weight: 2, run: runRivalPoll},
	{name: "impostor", slot: "worker", weight: 3, prepare: prepareImpostor, run: runDo},
	{name: "undo", slot: "worker", weight: 4, prepare: prepareUndo, run: runDo},
	{name: "grant again", slot: "operator", weight: 2, prepare: prepareTenant, run: runGrantAgain},
	{name: "old word", slot: "worker", weight: 3, prepare: prepareOldWord, run: runOldWord},
	{name: "plan twice", slot: "operator", weight: 2, prepare: preparePlan, run: runPlanTwice},
	{name: "late extension", slot: "direct", weight: 2, prepare: prepareLateExtension, run: runCoHolder},
}

// window is how many actions are going on at a time.
const window = 4

// intentFor picks one of the actions that are going on, which move on as operations come: sooner or later every key is used up.
func (w *world) intentFor(op *operation) *intent {
	pace := 7
	if w.cfg.profile.aimed {
		pace = 14
	}
	at := min(op.id/pace+op.rng.IntN(window), len(w.pool)-1)
	return w.pool[at]
}

func prepareCall(w *world, op *operation) {
	op.intent = w.intentFor(op)
	if in := w.intentAimed(op); in != nil {
		op.intent = in
	}
	if op.rng.IntN(7) == 0 && (!w.cfg.profile.aimed || op.rng.IntN(4) == 0) {
		op.variant = 1 // another action under the same key
	}
}

// prepareSleeper is a worker that pauses between its effect and the recording of it, past every deadline.
func prepareSleeper(w *world, op *operation) {
	prepareCall(w, op)
	for range 6 {
		if op.intent.service.idempotent {
			break
		}
		op.intent = w.intentFor(op)
	}
	op.limit, op.hasty = 4*time.Minute, op.rng.IntN(3) > 0
	if op.rng.IntN(3) == 0 {
		op.limit = 70 * time.Minute
	}
	if op.nap = op.limit; w.cfg.profile.aimed {
		op.nap, op.limit = 2*time.Minute, patient
	}
}

func prepareCommit(w *world, op *operation) {
	prepareCall(w, op)
	for range 20 {
		if op.intent.service.commit || op.intent.service.idempotent || w.cfg.profile.aimed && w.aim().state == rowHeld {
			return
		}
		op.intent = w.intentFor(op)
	}
}

func prepareTenant(w *world, op *operation) { op.tenant = w.tenants[op.rng.IntN(len(w.tenants))] }

func preparePlan(w *world, op *operation) {
	prepareTenant(w, op)
	op.plan = op.tenant.plan
	op.plan.Tokens = op.plan.Tokens * int64(50+op.rng.IntN(120)) / 100
	if op.rng.IntN(3) == 0 && op.plan.Shards < 6 {
		op.plan.Shards += 1 + op.rng.IntN(2)
	}
}

func prepareErase(w *world, op *operation) {
	i := slices.IndexFunc(w.tenants, func(t *tenantPlan) bool { return t.erases })
	op.tenant, op.limit = w.tenants[i], w.cfg.profile.patience(3*time.Minute)
}

// runDo is the way of most tools.
func runDo(ctx context.Context, _ *world, op *operation) error {
	if op.intent.service.commit {
		return runCommit(ctx, op.w, op)
	}
	tool := op.proc.tools[op.intent.service.name]
	out, err := tool.Do(ctx, op.session(op.proc), op.intent.key(), op.args(), op.options())
	op.got(out.Outcome, out.JSON, out.RowID)
	return err
}

func runCommit(ctx context.Context, _ *world, op *operation) error {
	tool := op.proc.tools[op.intent.service.name]
	out, err := tool.Commit(ctx, op.session(op.proc), op.intent.key(), op.args(), receipt{Ref: op.args().Ref}, op.options())
	op.got(out.Outcome, out.JSON, out.RowID)
	return err
}

// runSteps reserves, acts and finalizes by hand, sometimes handing the reservation to another process in between.
func runSteps(ctx context.Context, w *world, op *operation) error {
	if op.intent.service.commit {
		return runCommit(ctx, w, op)
	}
	tool := op.proc.tools[op.intent.service.name]
	hold, done, err := op.session(op.proc).Reserve(ctx, tool.Call(op.intent.key(), op.args(), op.options()))
	if err != nil {
		return err
	}
	if done != nil {
		op.got(done.Outcome, done.JSON, done.RowID)
		return nil
	}
	return op.goOn(ctx, w, hold)
}

// goOn acts on a reservation and finalizes it by hand.
func (op *operation) goOn(ctx context.Context, w *world, hold *writers.Reservation) error {
	if op.rng.IntN(3) == 0 {
		sleep(ctx, w.resting(time.Duration(op.rng.Int64N(int64(lease/2)))))
		if err := hold.Extend(ctx, lease+time.Duration(op.rng.Int64N(int64(lease)))); err != nil {
			return err
		}
	}
	if op.kind.name == "sleeper" && op.rng.IntN(3) == 0 {
		op.doze(ctx) // and never acts
		return hold.Release(recording(ctx), "gave up")
	}
	left := hold.Deadline.Sub(op.proc.now()) * 4 / 5
	if left <= 0 || ctx.Err() != nil {
		return hold.Release(recording(ctx), "no time left")
	}
	acting, cancel := context.WithTimeout(ctx, left)
	r, err := w.act(acting, op.intent.service, hold.CallInfo, op.args())
	cancel()
	if errors.Is(err, writers.ErrNotApplied) {
		return errors.Join(err, hold.Release(recording(ctx), "refused"))
	}
	if err != nil {
		return errNobodyKnows // the row stays pending
	}
	if op.kind.name == "sleeper" {
		op.doze(ctx)
		if op.rng.IntN(4) == 0 {
			_ = hold.Extend(recording(ctx), lease) // long too late, which it may be told
		}
	} else if op.rng.IntN(3) == 0 {
		return op.handOver(ctx, hold.Token(), r)
	}
	raw, err := hold.Finalize(recording(ctx), r, chargeOf(op.args()))
	op.got(raw.Outcome, raw.JSON, raw.RowID)
	return err
}

// errNobodyKnows is what became of an action that may have happened.
var errNobodyKnows = errors.New("the action may have happened")

// doze pauses, mostly past every deadline.
func (op *operation) doze(ctx context.Context) {
	sleep(ctx, op.nap/5+time.Duration(op.rng.Int64N(int64(op.nap*3/5))))
}

// handOver lets another process finalize, after a while that may be longer than the lease.
func (op *operation) handOver(ctx context.Context, token string, r receipt) error {
	w := op.w
	w.killing.Lock()
	all := slotsOf("worker")
	other := w.procs[all[op.rng.IntN(len(all))]]
	w.killing.Unlock()
	child := &operation{
		w: w, id: op.id + childOf, kind: op.kind, proc: other, intent: op.intent, variant: op.variant, started: op.started, limit: op.limit,
		step: op.step,
	}
	w.mu.Lock()
	w.children = append(w.children, child)
	w.mu.Unlock()
	sleep(ctx, w.resting(time.Duration(op.rng.Int64N(int64(2*lease)))))
	hold, err := other.ledger.Tenant(writers.TenantID(op.intent.tenant.id)).Resume(token)
	if err != nil {
		return err
	}
	raw, err := hold.Finalize(context.WithValue(recording(ctx), opKey{}, child), r, chargeOf(op.args()))
	if other.killed() {
		return errDead
	}
	op.cursorKept = child.cursorKept
	op.got(raw.Outcome, raw.JSON, raw.RowID)
	return err
}

// recording is a context that outlives the caller's, as Do has it.
func recording(ctx context.Context) context.Context {
	if op, ok := ctx.Value(opKey{}).(*operation); ok && op.limit == patient {
		return context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// runLook reads.
func runLook(ctx context.Context, _ *world, op *operation) error {
	s := op.session(op.proc)
	switch op.rng.IntN(5) {
	case 0:
		_, err := s.Wait(ctx, op.intent.key())
		return err
	case 1:
		_, err := s.Tenant().Quota(ctx)
		return err
	case 2:
		for _, err := range s.Calls(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	case 3:
		_, err := s.Cursor(ctx)
		return err
	}
	row, err := s.Get(ctx, op.intent.key())
	if err == nil && row.State == writers.StateApplied {
		op.got(writers.OutcomeReplayed, row.Result, row.RowID)
	}
	return err
}

// doorError is a refusal that came as a document.
type doorError struct {
	code, rowID, deadline string
	attempt               int
}

func (e *doorError) Error() string { return e.code }

// document is what a door answers.
type document struct {
	Outcome   string          `json:"outcome"`
	Code      string          `json:"code"`
	RowID     string          `json:"row_id"`
	Attempt   int             `json:"attempt"`
	EffectKey string          `json:"effect_key"`
	Deadline  string          `json:"deadline"`
	Lease     float64         `json:"lease_seconds"`
	Result    json.RawMessage `json:"result"`
}

// ask sends one request to a door.
func (op *operation) ask(ctx context.Context, what string, body map[string]any) (document, error) {
	var answer []byte
	if op.kind.name == "direct" {
		body["op"], body["tenant"] = what, op.intent.tenant.id
		event, err := json.Marshal(body)
		if err != nil {
			return document{}, err
		}
		if answer, err = op.proc.direct(ctx, event); err != nil {
			return document{}, err
		}
	} else {
		text, err := json.Marshal(body)
		if err != nil {
			return document{}, err
		}
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/"+what, bytes.NewReader(text))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Tenant-Id", op.intent.tenant.id)
		rec := httptest.NewRecorder()
		op.proc.handler.ServeHTTP(rec, req)
		answer = rec.Body.Bytes()
	}
	var d document
	if err := json.Unmarshal(answer, &d); err != nil {
		return d, fmt.Errorf("the door answered no document: %w", err)
	}
	if d.Code != "" {
		return d, &doorError{d.Code, d.RowID, d.Deadline, d.Attempt}
	}
	return d, nil
}

// runDoor is a caller in another language: reserve, act, finalize over a door; it verifies what is unknown itself.
func runDoor(ctx context.Context, w *world, op *operation) error {
	in, a := op.intent, op.args()
	ref := map[string]any{"session": in.session, "key": in.id}
	if in.wide {
		ref["scope"] = "tenant"
	}
	with := func(more map[string]any) map[string]any {
		for k, v := range ref {
			more[k] = v
		}
		return more
	}
	call := func() map[string]any {
		c := with(map[string]any{"tool": in.service.name, "args": a, "tokens": a.Amount, "lookup": a.Ref, "horizon_seconds": horizon.Seconds()})
		if in.service.idempotent {
			c["idempotent"] = true
		}
		if in.cursor != "" {
			c["cursor"] = in.cursor
		}
		if in.expect != nil {
			c["expect_cursor"] = *in.expect
		}
		if o := in.compensates; o != nil {
			c["compensates"] = map[string]any{"key": o.id, "scope": map[bool]string{true: "tenant", false: "session"}[o.wide]}
			c["refund_original"] = in.refund
		}
		return c
	}
	if in.service.commit {
		c := call()
		delete(c, "lookup")
		c["result"] = receipt{Ref: a.Ref}
		d, err := op.ask(ctx, "commit", c)
		op.got(writers.Outcome(d.Outcome), d.Result, d.RowID)
		return err
	}
	c := call()
	c["lease_seconds"] = lease.Seconds()
	d, err := op.ask(ctx, "reserve", c)
	if e, ok := errors.AsType[*doorError](err); ok && e.code == string(writers.ErrOutcomeUnknown) && in.service.verifies && e.rowID != "" {
		d, err = op.verifyAtDoor(ctx, w, e, c, with)
	}
	if err != nil || d.Outcome != "reserved" {
		op.got(writers.Outcome(d.Outcome), d.Result, d.RowID)
		return err
	}
	return op.actAtDoor(ctx, w, d, with)
}

// verifyAtDoor asks the outside system and says at the door what it said.
func (op *operation) verifyAtDoor(ctx context.Context, w *world, e *doorError, c map[string]any, with func(map[string]any) map[string]any) (document, error) {
	deadline, _ := time.Parse(time.RFC3339Nano, e.deadline)
	r, verdict, err := w.verify(ctx, op.intent.service, writers.CallInfo{
		RowID: e.rowID, Attempt: e.attempt, Deadline: deadline, Lookup: op.args().Ref,
	})
	switch {
	case err != nil:
		return document{}, errNobodyKnows
	case verdict == writers.EffectApplied:
		d, err := op.ask(ctx, "resolve", with(map[string]any{
			"row_id": e.rowID, "attempt": e.attempt, "verdict": "applied", "result": r, "by": "caller", "why": "verified",
		}))
		d.Outcome = "" // which is what became of the row, and not of a call
		return d, err
	case verdict == writers.EffectAbsent:
		c["verified_absent"] = map[string]any{"row_id": e.rowID, "attempt": e.attempt, "deadline": e.deadline}
		return op.ask(ctx, "reserve", c)
	}
	return document{}, e
}

// actAtDoor acts on a reservation and finalizes or releases it.
func (op *operation) actAtDoor(ctx context.Context, w *world, d document, with func(map[string]any) map[string]any) error {
	a := op.args()
	left := time.Duration(d.Lease * float64(time.Second) * 4 / 5)
	held := with(map[string]any{"row_id": d.RowID, "attempt": d.Attempt})
	if left <= 0 || ctx.Err() != nil {
		_, err := op.ask(recording(ctx), "release", held)
		return err
	}
	deadline, _ := time.Parse(time.RFC3339Nano, d.Deadline)
	acting, cancel := context.WithTimeout(ctx, left)
	r, err := w.act(acting, op.intent.service, writers.CallInfo{
		RowID: d.RowID, Attempt: d.Attempt, EffectKey: d.EffectKey, Lookup: a.Ref, Deadline: deadline,
	}, a)
	cancel()
	if errors.Is(err, writers.ErrNotApplied) {
		held["reason"] = "refused"
		_, e := op.ask(recording(ctx), "release", held)
		return errors.Join(err, e)
	}
	if err != nil {
		return errNobodyKnows
	}
	held["result"], held["charged_tokens"] = r, chargeOf(a)
	out, err := op.ask(recording(ctx), "finalize", held)
	if err == nil { // a door tells beside session_moved that it is recorded, and not what: its caller has just said it
		op.got(writers.Outcome(out.Outcome), out.Result, out.RowID)
	}
	return err
}

func runPlan(ctx context.Context, _ *world, op *operation) error {
	return op.proc.ledger.Tenant(writers.TenantID(op.tenant.id)).PutPlan(ctx, op.plan)
}

func runGrant(ctx context.Context, w *world, op *operation) error {
	n := op.rng.IntN(4)
	op.order = fmt.Sprintf("order-%d", n)
	return op.proc.ledger.Tenant(writers.TenantID(op.tenant.id)).Grant(ctx, op.order, grantOf(n))
}

// grantOf is what an order is worth: always the same for one key.
func grantOf(n int) int64 { return int64(5 + 10*n) }

func runSuspend(ctx context.Context, _ *world, op *operation) error {
	t := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id))
	if err := t.Suspend(ctx, true); err != nil {
		return err
	}
	sleep(ctx, op.w.resting(time.Duration(op.rng.Int64N(int64(20*time.Second)))))
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return t.Suspend(again, false)
}

// runResolve is a person who looked: the verdict is the truth of that moment.
func runResolve(ctx context.Context, w *world, op *operation) error {
	s := op.session(op.proc)
	row, err := s.Get(ctx, op.intent.key())
	if err != nil || row.State == writers.StateApplied {
		return err
	}
	early := !personMay(&row, op.proc.now())
	got := w.call(ctx, "person looks", "", func(fault) answer {
		op.looked = w.now()
		return w.find(op.intent.service, row.Lookup, fault{})
	})
	if got.err != nil {
		return got.err
	}
	f, _ := got.value.(found)
	res := writers.Resolution{Verdict: f.verdict, RowID: row.RowID, Attempt: row.Attempt, By: "operator", Why: "looked"}
	if f.verdict == writers.EffectApplied {
		res.Result = f.receipt
	} else if early || row.State == writers.StatePending && !row.Held {
		return nil // it may still be under way
	}
	_, err = s.Resolve(ctx, op.intent.key(), res)
	return err
}

func runErase(ctx context.Context, w *world, op *operation) error {
	if w.cfg.profile.aimed { // an erase that is refused for a call under way has other profiles
		w.quiet(ctx, op)
	}
	report, err := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id)).Erase(ctx, writers.Erasure{
		Scan: op.proc.dynamo, Segments: 2, By: "operator", Why: "leaves",
		Verify: func(ctx context.Context, c writers.CallInfo) (json.RawMessage, writers.Verdict, error) {
			for i := range services {
				if services[i].name == c.Tool && services[i].verifies {
					r, v, err := w.verify(ctx, &services[i], c)
					return r.json(), v, err
				}
			}
			return nil, writers.EffectUnknown, nil
		},
	})
	if err == nil && !report.Complete {
		return errors.New("an erase without an error is complete")
	}
	return err
}

// runExpire lets days pass, after which the store removes what has expired, as it does behind everybody's back.
func runExpire(ctx context.Context, w *world, op *operation) error {
	_, err := w.askUntil(ctx, 5*time.Second, func(int) bool {
		alone := !slices.ContainsFunc(w.alive, func(o *operation) bool { return o != op && o.kind.name != "sleeper" })
		if alone {
			w.jump = []time.Duration{time.Hour, 26 * time.Hour, 4 * 24 * time.Hour}[op.rng.IntN(3)]
		}
		return alone
	})
	return err
}

// asksMost is how often somebody asks whether days may pass.
const asksMost = 20

// askUntil asks the scheduler, with a pause in between, until it says yes, or has been asked often enough.
func (w *world) askUntil(ctx context.Context, pause time.Duration, may func(n int) bool) (yes bool, err error) {
	for n := range asksMost {
		a := w.call(ctx, "days pass", "", func(fault) answer {
			yes = may(n)
			return answer{}
		})
		if a.err != nil || yes {
			return yes, a.err
		}
		sleep(ctx, pause)
	}
	return false, nil
}

// quiet waits until nobody else is under way, for a while; nothing new begins meanwhile.
func (w *world) quiet(ctx context.Context, op *operation) {
	_, _ = w.askUntil(ctx, lease, func(n int) bool { // whoever is killed meanwhile finds that out by himself
		op.still = len(w.alive) > 1 && n < asksMost-1
		return !op.still
	})
}

// tenantOf is the tenant that a partition key belongs to; "" where it is nobody's.
func tenantOf(pk string) string {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(pk, "OBS#"), "TENANT#")
	if !ok {
		return ""
	}
	t, _, _ := strings.Cut(rest, "#")
	return t
}

// deliverKind is an invocation for what is left of one lane, cut anywhere, at times with what it has had before.
func deliverKind(l *lane) *opKind {
	return &opKind{name: "deliver", slot: "consumer", run: func(ctx context.Context, w *world, op *operation) error {
		return w.feed.deliver(ctx, op, l, 1+op.rng.IntN(150), op.rng.IntN(2)*op.rng.IntN(12))
	}}
}
