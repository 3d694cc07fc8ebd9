package main

import (
	"slices"
	"strings"
	"time"
)

// What a row's write needs beside it in the same transaction: the session's cursor, the call that it undoes, the items that pay.

const (
	invUndone  = "3: a compensation undoes its call, once"
	invCharged = "2: an effect is charged as far as tokens are there"
	invSigned  = "a row tells who decided"
	invVerdict = "a verdict counts for the attempt that was asked about"
)

// ending is a write of a row, by how it says that its effect took place.
type ending struct {
	*record
	fresh   bool // the row is a new one
	applies bool // it says so now
	late    bool // after it had been given back, or without its own row
	holder  bool // whoever holds the newest attempt says so, in time
}

func endingOf(r *record) ending {
	e := ending{record: r, fresh: r.old.str("rowId") != r.new.str("rowId")}
	e.applies = r.new.str("state") == "applied" && (e.fresh || r.old.str("state") != "applied")
	given := !e.fresh && r.old.str("state") == "failed" && r.new.num("attempt") == r.old.num("attempt")
	e.late = e.applies && (e.fresh && r.new.has("settledFrom") || given)
	e.holder = e.applies && !e.late && r.new.str("settledBy") == "holder" && r.new.num("appliedAttempt") == r.new.num("attempt")
	return e
}

// quotaOf is the quota item that a debit names.
func quotaOf(tenant, debit string) key {
	period, shard, _ := strings.Cut(debit, "/")
	k := key{"TENANT#" + tenant, "QUOTA#" + period}
	if shard != "0" {
		k.pk += "#SHARD#" + shard
	}
	return k
}

// metaOf is the item of a row's session.
func metaOf(row key, it item) key {
	return key{"TENANT#" + tenantOf(row.pk) + "#SESSION#" + it.str("session"), "META"}
}

// of is what the same request did to another item.
func of(all []*record, k key) *record {
	if at := slices.IndexFunc(all, func(r *record) bool { return r.key == k && !r.control }); at >= 0 {
		return all[at]
	}
	return nil
}

func (o *oracle) beside(op *operation, r *record, all []*record) error {
	e := endingOf(r)
	for _, err := range []error{
		o.moved(op, e, all), o.undone(e, all), o.paidAgain(e), o.paidOnTop(op, e, all), o.signed(op, e), o.onThatVerdict(op, e), o.byItsHolder(op, e), o.putOff(op, e),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// moved holds that a holder moves its session's cursor, others only where it was expected, and that a call which expects a cursor begins
// where it is.
func (o *oracle) moved(op *operation, e ending, all []*record) error {
	is, k := e.new, metaOf(e.key, e.new)
	cursor := o.w.store.ledger.items[k].str("cursor")
	switch meta := of(all, k); {
	case is.str("state") == "pending" && beginsAnew(e.record) && is.has("expectCursor") && cursor != is.str("expectCursor"):
		return o.w.broken(invCursor, "%s was reserved at cursor %q, expects %q", e.key.sk, cursor, is.str("expectCursor"))
	case !is.has("cursor") || !e.applies:
	case e.holder && cursor != is.str("cursor") && !is.has("expectCursor"):
		return o.w.broken(invCursor, "%s was applied by its holder, and its session's cursor is %q, want %q", e.key.sk, cursor, is.str("cursor"))
	case e.holder && cursor != is.str("cursor") && op != nil:
		op.cursorKept = true
	case !e.holder && !is.has("expectCursor") && meta != nil && meta.new.str("cursor") != meta.old.str("cursor"):
		return o.w.broken(invCursor, "%s was settled by %s, late: %t, and moved the cursor", e.key.sk, is.str("settledBy"), e.late)
	}
	return nil
}

// undone holds what a compensation does to the call that it undoes: linked when it begins, marked when it ends, refunded where that was asked.
func (o *oracle) undone(e ending, all []*record) error {
	is := e.new
	scope, name, ok := strings.Cut(is.str("compensates"), ":")
	if !ok || !e.applies && !beginsAnew(e.record) {
		return nil
	}
	k := rowKeyOf(tenantOf(e.key.pk), is.str("session"), name, scope == "tenant")
	mine := is.str("scope") + ":" + strings.TrimPrefix(e.key.sk, "TOOL#")
	original, write := o.w.store.ledger.items[k], of(all, k)
	if original.str("state") != "applied" || o.stateOf(k) == rowPast || original.num("expiresAt") <= o.w.now().Add(skew).Unix() {
		return nil // it is forgotten, or about to be
	}
	id, linked := original.str("rowId"), original.str("compensatedBy") == mine
	other, known := o.undoers[id]
	if linked && !known && beginsAnew(e.record) {
		o.undoers[id] = e.key
	}
	switch {
	case known && other != e.key && (beginsAnew(e.record) || write != nil):
		return o.w.broken(invUndone, "%v and %v both undo %s", other, e.key, k.sk)
	case is.str("state") == "pending" && !linked:
		return o.w.broken(invUndone, "%s is reserved, and %s, which it undoes, is linked to %q", e.key.sk, k.sk, original.str("compensatedBy"))
	case !e.applies:
	case write == nil && linked && !original.has("compensatedAt"):
		return o.w.broken(invUndone, "%s is applied, and %s, which it undoes, is not marked", e.key.sk, k.sk)
	case write != nil && write.new.has("compensatedAt") && is.has("refundOriginal") && len(write.new.debits()) > 0:
		return o.w.broken(invUndone, "%s is to refund %s, which keeps its debits", e.key.sk, k.sk)
	case write != nil && write.new.has("compensatedAt") && !is.has("refundOriginal") && write.new.text("debits") != write.old.text("debits"):
		return o.w.broken(invUndone, "%s is not to refund %s, whose debits went", e.key.sk, k.sk)
	}
	return nil
}

// paidAgain holds that an effect which is recorded late is debited once more where it had been given back.
func (o *oracle) paidAgain(e ending) error {
	debits := e.old.debits()
	if !e.late || e.fresh || e.new.num("shortfall") == 0 || len(debits) == 0 {
		return nil
	}
	for name := range debits {
		if o.w.store.ledger.items[quotaOf(tenantOf(e.key.pk), name)] == nil {
			return nil // an erase has removed what it debited
		}
	}
	return o.w.broken(invCharged, "%s was settled late with a shortfall of %d, and all that it had debited is there", e.key.sk, e.new.num("shortfall"))
}

// paidOnTop holds that a final charge above the reservation takes what is there and the overdraft, and not more.
func (o *oracle) paidOnTop(op *operation, e ending, all []*record) error {
	if !e.holder || e.fresh || op == nil || e.old.str("state") != "pending" {
		return nil
	}
	tenant, debits := tenantOf(e.key.pk), e.new.debits()
	overdraft := o.w.tenants[slices.IndexFunc(o.w.tenants, func(t *tenantPlan) bool { return t.id == tenant })].plan.Overdraft
	for name := range debits {
		k := quotaOf(tenant, name)
		if q := of(all, k); q != nil && q.new != nil && q.new.num("remaining") < min(q.old.num("remaining"), -overdraft) {
			return o.w.broken(invQuota, "%s took on top what %v does not have: it is at %d", e.key.sk, k, q.new.num("remaining"))
		}
		it := o.w.store.ledger.items[k]
		if last := o.movers[k]; len(debits) == 1 && it.num("remaining") > 0 && e.new.num("shortfall") > 0 &&
			(last.op%childOf == op.id%childOf || last.step < op.step) {
			return o.w.broken(invCharged, "%s has a shortfall of %d, and %v has %d left", e.key.sk, e.new.num("shortfall"), k, it.num("remaining"))
		}
	}
	return nil
}

// mover is who changed a quota item last.
type mover struct{ op, step int }

// persons are the operations that say what somebody decided who is called operator.
var persons = []string{"resolve", "hasty person"}

// signed holds that a row tells who settled it or gave it up, and that a person's word stands in for a verifier only where there is none.
func (o *oracle) signed(op *operation, e ending) error {
	if op == nil {
		return nil
	}
	is, was := e.new, e.old
	person := slices.Contains(persons, op.kind.name)
	resolved := is.str("failure") == "resolved" && (was.str("failure") != "resolved" || was.num("version") != is.num("version"))
	if resolved = resolved && !is.has("erasing") && is.text("suspects") == was.text("suspects"); !resolved && !e.applies {
		return nil
	}
	byPerson := resolved || is.str("settledBy") == "person"
	want := map[bool]string{true: "operator", false: "caller"}[person]
	switch {
	case person && !byPerson:
		return o.w.broken(invSigned, "%s was settled by a person, and says by %q", e.key.sk, is.str("settledBy"))
	case byPerson && is.str("by") != want:
		return o.w.broken(invSigned, "%s was decided by %s, and says by %q", e.key.sk, want, is.str("by"))
	case resolved && (is.num("unverified") == 2) == is.has("verifier"):
		return o.w.broken(invSigned, "a person vouched for %s, whose tool has a verifier: %t, and unverified is %d",
			e.key.sk, is.has("verifier"), is.num("unverified"))
	}
	return nil
}

// onThatVerdict holds that a call is given up as not applied, or begun anew after that, only by who has asked about exactly that attempt.
func (o *oracle) onThatVerdict(op *operation, e ending) error {
	was, is := e.old, e.new
	expires := was.str("state") == "pending" && is.str("failure") == "expired"
	anew := !e.fresh && was.str("state") == "failed" && is.num("attempt") > was.num("attempt") && was.has("unverified")
	s := serviceOf(is.str("tool"))
	if !expires && !anew || op == nil || s == nil || s.idempotent || anew && was.num("unverified") == 2 && !was.has("verifier") {
		return nil
	}
	about := verdictOn{was.str("rowId"), was.num("attempt"), max(was.num("deadline"), was.num("lastDeadline"))}
	if slices.Contains(op.absent, about) {
		return nil
	}
	return o.w.broken(invVerdict, "operation %d %s went on with %s, of whose attempt %d, deadline %d, it knows nothing",
		op.id, op.name(), e.key.sk, about.attempt, about.deadline)
}

// byItsHolder holds that an attempt is extended, released or finalized only by who holds it.
func (o *oracle) byItsHolder(op *operation, e ending) error {
	was, is := e.old, e.new
	if op == nil || e.fresh || was.str("state") != "pending" {
		return nil
	}
	extended := is.str("state") == "pending" && is.num("deadline") != was.num("deadline")
	if !extended && is.str("failure") != "released" && !e.holder || op.holds(is.str("rowId"), is.num("attempt")) {
		return nil
	}
	return o.w.broken(invFence, "operation %d %s changed attempt %d of %s, which it does not hold", op.id, op.name(), is.num("attempt"), e.key.sk)
}

// holds tells whether an operation, or the one that it goes on for, has begun an attempt, or shares it with who has.
func (op *operation) holds(rowID string, attempt int64) bool {
	if op.id > childOf && op.w.ops[op.id%childOf-1].holds(rowID, attempt) {
		return true
	}
	return op.seen.str("rowId") == rowID && op.seen.num("attempt") == attempt || slices.ContainsFunc(op.wrote, func(r *record) bool {
		return r.new.str("rowId") == rowID && r.new.num("attempt") == attempt && beginsAnew(r)
	})
}

// putOff holds that a sweep which finds a row past the time for its verifier puts it off no more: it is a person's, or expires.
func (o *oracle) putOff(op *operation, e ending) error {
	is := e.new
	if op == nil || op.kind != kindSweep || is.str("state") != "pending" || is.num("sweepAt") == 0 || is.num("sweepAt") == e.old.num("sweepAt") {
		return nil
	}
	within := max(giveUp, skew+time.Duration(is.num("horizon"))*time.Millisecond)
	if end := time.UnixMilli(is.num("deadline")).Add(within + skew); op.started.After(end) {
		return o.w.broken(invTransition, "operation %d puts %s off, for whose verifier there was time until %s", op.id, e.key.sk, end.UTC().Format(time.TimeOnly))
	}
	return nil
}

// verdictOn names what a verifier was asked about.
type verdictOn struct {
	rowID    string
	attempt  int64
	deadline int64 // in milliseconds
}
