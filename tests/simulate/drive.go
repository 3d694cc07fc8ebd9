package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"toolledger/writers"
)

// drive takes one step towards the state in which the run wants the row of a request that it keeps back. It returns false
// where there is none to be taken now. busy tells that requests wait, before which no days can pass.
func (w *world) drive(busy bool) (bool, error) {
	if !w.cfg.profile.aimed || w.calm || len(w.kept) == 0 || slices.ContainsFunc(w.alive, func(op *operation) bool { return op.moves }) {
		w.still = w.still && len(w.kept) > 0
		return false, nil
	}
	f := w.kept[0]
	for _, other := range w.kept { // what the run is about comes before what only leads there
		if w.part(f.e).purpose != w.aim().purpose && w.part(other.e).purpose == w.aim().purpose {
			f = other
		}
	}
	in := w.intentOf(w.part(f.e).row)
	if in == nil {
		f.drives = drivesMost
		return false, nil
	}
	it := w.store.ledger.items[w.part(f.e).row]
	if w.meets(f.e) == f.want { // watched
		if slices.ContainsFunc(w.alive, func(op *operation) bool { return op.kind.name == "do" && op.intent == in }) {
			return false, nil // somebody is at it
		}
		f.drives += 2
		w.start(kindNamed("do"), func(op *operation) { op.intent, op.variant = in, variantOf(in, it) })
		return true, w.failure
	}
	step := w.firstStep(f, in, it)
	if step == "leap" && busy {
		w.still = true // nothing new begins before
		return false, nil
	}
	w.still = false
	if f.drives++; step == "leap" && slices.ContainsFunc(w.alive, func(op *operation) bool { return op.unanswered }) {
		return false, nil
	}
	return w.takeStep(step, f, in, it)
}

// takeStep does what next says.
func (w *world) takeStep(step string, f *focus, in *intent, it item) (bool, error) {
	w.note("to have %s %s for op %d: %s", in.rowKey().sk, f.want, f.e.op.id, step)
	switch step {
	case "there":
		return false, nil
	case "wait":
		w.pass(max(w.untilOverdue(it), failedLongAgo(it).Sub(w.now())))
	case "leap":
		w.jump = max(time.Unix(it.num("expiresAt"), 0).Sub(w.now())+time.Minute, 0)
	case "remove":
		return true, w.removeExpired(w.part(f.e).row)
	case "provide":
		w.start(kindProvide, func(op *operation) {
			op.moves, op.limit, op.tenant, op.plan = true, 5*time.Minute, in.tenant, in.tenant.plan
		})
	case "original":
		w.begins(kindNamed("do"), in.compensates, w.store.ledger.items[in.compensates.rowKey()], "")
	case "release", "extend", "finalize":
		w.begins(kindCoHolder, in, it, step)
	default:
		kind := movers[step]
		if kind == nil { // it can go nowhere from here
			f.drives = drivesMost
			return false, nil
		}
		w.begins(kind, in, it, "")
	}
	return true, w.failure
}

// movers are the operations that steps are.
var movers = map[string]*opKind{"sweep": kindSweep, "reserve": kindReserve, "do": kindNamed("do"), "person": kindNamed("resolve")}

// firstStep is the step to where the row is wanted, or to the next state in turn that can be reached from where it is.
func (w *world) firstStep(f *focus, in *intent, it item) string {
	wants := reachable(w.part(f.e).purpose)
	for range wants {
		if step := w.next(f, in, it); step != "" {
			return w.first(step, in, it)
		}
		if f.e.leads { // it is of no use anywhere else
			return ""
		}
		f.want = wants[w.turn("state", w.part(f.e).purpose)%uint64(len(wants))]
		if w.meets(f.e) == f.want {
			return "there"
		}
	}
	return ""
}

// first is what has to come before a step: its time, a plan, and what a compensation undoes.
func (w *world) first(step string, in *intent, it item) string {
	if step == "sweep" && it.num("sweepAt") > w.now().UnixMilli() {
		return "wait"
	}
	if step != "reserve" && step != "do" {
		return step
	}
	plan := w.store.control.items[key{"TENANT#" + in.tenant.id, "PLAN"}]
	switch {
	case plan == nil || plan.has("suspended"):
		return "provide"
	case in.compensates != nil && w.oracle.stateOf(in.compensates.rowKey()) != rowApplied:
		return "original"
	}
	return step
}

// next is the next step from the state of a row to the one that is wanted.
func (w *world) next(f *focus, in *intent, it item) string {
	state := w.oracle.stateOf(w.part(f.e).row)
	pending := state == rowPending || state == rowOverdue
	ended := state == rowApplied || state == rowReleased || state == rowUnverified
	if w.part(f.e).rowID != "" && f.want != rowAbsent && f.want != rowPast && f.want != rowOther {
		// The row that the request is about does not come back.
		if gone := state == rowAbsent || state == rowPast || it.str("rowId") != w.part(f.e).rowID; gone || state == rowApplied ||
			state == rowUnverified && f.want == rowReleased {
			return ""
		}
	}
	switch state {
	case rowAbsent, rowPast:
		switch {
		case state == rowPast && f.want == rowAbsent:
			return "remove"
		case f.want == rowApplied:
			return "do"
		}
		return "reserve"
	}
	switch want := f.want; {
	case want == rowAbsent || want == rowPast || want == rowOther && it.str("rowId") == w.part(f.e).rowID:
		return w.towardsTheEnd(state, in, it)
	case want == rowOther:
		return ""
	case want == rowTakenOver && pending && (f.e.purpose == "outside.act" || f.e.purpose == "extend" || f.e.leads && w.aim().state == rowReleased):
		return "release" // there is no time to wait; or the row is not to be unverified, which it would stay
	case want == rowPending && state == rowOverdue:
		return "extend"
	case want == rowReleased && pending:
		return "release"
	case want == rowApplied && pending:
		return "finalize"
	case state == rowPending && (want == rowOverdue || want == rowHeld || want == rowUnverified || want == rowTakenOver):
		return "wait"
	case state == rowOverdue && (want == rowHeld || want == rowUnverified || want == rowTakenOver):
		return "sweep" // whoever asks for the call himself takes it over at once, and acts
	case state == rowHeld:
		return "person"
	case want == rowApplied && (state == rowReleased || state == rowUnverified):
		return "do"
	case state == rowApplied, state == rowUnverified && want == rowReleased:
		return "leap"
	case ended && !in.service.idempotent && w.now().Before(failedLongAgo(it)):
		return "wait"
	case ended:
		return "reserve"
	}
	return ""
}

// failedLongAgo is when an act of a failed row can no longer land, by every clock: before that nobody looks whether it did.
func failedLongAgo(it item) time.Time {
	if it.num("unverified") == 0 {
		return time.Time{}
	}
	return time.UnixMilli(it.num("lastDeadline")).Add(2*skew + time.Duration(it.num("horizon"))*time.Millisecond)
}

// towardsTheEnd ends a row, and waits until nobody remembers it.
func (w *world) towardsTheEnd(state string, in *intent, it item) string {
	switch state {
	case rowApplied, rowReleased, rowUnverified:
		return "leap"
	case rowHeld:
		return "person"
	}
	if len(w.out.byRef[it.str("lookup")]) > 0 || in.service.idempotent {
		return "finalize"
	}
	return "release"
}

// untilOverdue is how long it takes until the sweeper may decide about a row.
func (w *world) untilOverdue(it item) time.Duration {
	end := time.UnixMilli(max(it.num("deadline"), it.num("sweepAt")))
	return max(end.Sub(w.now()), 0) + skew + time.Duration(it.num("horizon"))*time.Millisecond + time.Second
}

// begins starts an operation that moves a row, as whoever asked for its action.
func (w *world) begins(kind *opKind, in *intent, it item, how string) {
	w.start(kind, func(op *operation) {
		op.moves, op.limit = true, 5*time.Minute
		if kind == kindSweep {
			return
		}
		op.intent, op.variant, op.seen, op.how = in, 0, it, how
		if state := w.oracle.stateOf(in.rowKey()); state != rowAbsent && state != rowPast {
			op.variant = variantOf(in, it)
		}
	})
}

// variantOf is the variant of an action that a row is about.
func variantOf(in *intent, it item) int {
	if it.str("lookup") == in.variants[1].Ref {
		return 1
	}
	return 0
}

// intentOf is the action whose call a row keeps.
func (w *world) intentOf(row key) *intent {
	for _, in := range w.pool {
		if in.rowKey() == row {
			return in
		}
	}
	return nil
}

// kindProvide gives a tenant what it needs.
var kindProvide = &opKind{name: "provide", slot: "operator", run: func(ctx context.Context, _ *world, op *operation) error {
	t := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id))
	if err := t.Suspend(ctx, false); err == nil {
		return nil
	}
	return t.PutPlan(ctx, op.plan)
}}

// kindReserve is somebody who reserves, and is not seen again.
var kindReserve = &opKind{name: "reserve only", slot: "worker", run: func(ctx context.Context, w *world, op *operation) error {
	if op.intent.service.commit {
		return runCommit(ctx, w, op)
	}
	call := op.proc.tools[op.intent.service.name].Call(op.intent.key(), op.args(), op.options())
	_, done, err := op.session(op.proc).Reserve(ctx, call)
	if e, ok := errors.AsType[*writers.Error](err); ok && e.Code == writers.ErrOutcomeUnknown && op.intent.service.verifies {
		if _, verdict, err := w.verify(ctx, op.intent.service, e.Call); err != nil || verdict != writers.EffectAbsent {
			return err
		}
		call.VerifiedAbsent = e.Call.Ref()
		_, done, err = op.session(op.proc).Reserve(ctx, call)
	}
	if done != nil {
		op.got(done.Outcome, done.JSON, done.RowID)
	}
	return err
}}

// kindCoHolder is somebody else who holds the same reservation, and says what became of it: the truth or not.
var kindCoHolder = &opKind{name: "co-holder", slot: "direct", run: runCoHolder}

func runCoHolder(ctx context.Context, w *world, op *operation) error {
	it := op.seen
	if it.str("state") != "pending" {
		return nil
	}
	held := map[string]any{"session": op.intent.session, "key": op.intent.id, "row_id": it.str("rowId"), "attempt": it.num("attempt")}
	if op.intent.wide {
		held["scope"] = "tenant"
	}
	switch op.how {
	case "extend":
		held["lease_seconds"] = (2 * lease).Seconds()
	case "finalize":
		r := receipt{Ref: op.args().Ref, Amount: op.args().Amount}
		if list := w.out.byRef[it.str("lookup")]; len(list) > 0 {
			r.Receipt = list[0].n
		}
		held["result"], held["charged_tokens"] = r, chargeOf(op.args())
	case "release":
		held["reason"] = "given up"
	}
	d, err := op.ask(ctx, op.how, held)
	if op.how == "finalize" && err == nil {
		op.got(writers.Outcome(d.Outcome), d.Result, d.RowID)
	}
	return err
}
