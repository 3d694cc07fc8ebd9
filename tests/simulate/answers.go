package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// A ledger that refuses everything breaks none of the promises about what it writes. So everybody who is refused has to be refused for a
// reason that can be seen in the raw items, and once nothing goes wrong any more, every action comes to its end.

const invAnswers = "what can be done is done, and what is answered is true"

// askedForOnceMore asks for every action of the run once more, with nothing in the way: it ends with its result, or with a refusal that
// the raw items account for.
func (w *world) askedForOnceMore() {
	w.pass(10 * time.Minute) // whatever was under way has landed, and what was unverified can be verified
	for _, in := range w.pool {
		it := w.store.ledger.items[in.rowKey()]
		if w.failure != nil {
			return
		}
		w.start(kindNamed("do"), func(op *operation) {
			op.intent, op.variant, op.seen, op.last = in, variantStored(in, it), it, true
			op.limit = 10 * time.Minute
		})
		w.settleDown(3000)
	}
}

// variantStored is the variant that a row keeps; the first, where there is none or its time is over.
func variantStored(in *intent, it item) int {
	var r receipt
	if json.Unmarshal([]byte(it.str("resultJson")), &r) == nil && r.Ref == in.variants[1].Ref {
		return 1
	}
	return variantOf(in, it)
}

// lastAnswer holds what a caller was told whom nothing stood in the way of.
func (o *oracle) lastAnswer(op *operation, code string) error {
	if code == "ok" || op.intent == nil && slices.Contains(o.obstacles(op.tenant.id), code) || op.intent != nil && slices.Contains(o.grounds(op), code) {
		return nil
	}
	return o.w.broken(invAnswers, "with nothing in the way, operation %d %s of %s, which was %s, ends with %s: %v",
		op.id, op.name(), op.rowKey().sk, op.seen.str("state"), code, op.err)
}

// obstacles are what an erase of a tenant may be refused for: nobody knows what became of a call.
func (o *oracle) obstacles(tenant string) (codes []string) {
	for k, it := range o.w.store.ledger.items {
		if isRow(k) && tenantOf(k.pk) == tenant && it.has("unverified") && it.str("state") == "failed" {
			return []string{string(writers.ErrOutcomeUnknown), string(writers.ErrInProgress)}
		}
	}
	return nil
}

// grounds are the refusals of an action that the raw items account for.
func (o *oracle) grounds(op *operation) (codes []string) {
	in, tenant := op.intent, op.intent.tenant.id
	row, plan := o.w.store.ledger.items[op.rowKey()], o.w.store.control.items[key{"TENANT#" + tenant, "PLAN"}]
	may := func(reason bool, code writers.Code) {
		if reason {
			codes = append(codes, string(code))
		}
	}
	amount := op.args().Amount
	if in.service.commit {
		amount = max(amount, chargeOf(op.args())) // which is known at once
	}
	may(plan == nil, writers.ErrNotProvisioned)
	may(plan.has("suspended"), writers.ErrSuspended)
	may(plan != nil && o.left(plan, tenant) < amount, writers.ErrQuotaExhausted)
	may(row.has("erasing"), writers.ErrUnavailable)
	if c := in.compensates; c != nil {
		original := o.w.store.ledger.items[c.rowKey()]
		scope := map[bool]string{true: "tenant", false: "session"}[in.wide]
		mine := original.str("compensatedBy") == scope+":"+in.id && (!original.has("compensatedIn") || original.str("compensatedIn") == in.session)
		gone := original.str("state") != "applied" || original.num("expiresAt") <= o.w.now().Add(skew).Unix()
		may(gone || original.has("compensatedAt") || original.has("compensatedBy") && !mine, writers.ErrNotCompensable)
	}
	if in.expect != nil {
		session := o.w.store.ledger.items[key{"TENANT#" + tenant + "#SESSION#" + in.session, "META"}]
		may(session.str("cursor") != *in.expect, writers.ErrSessionMoved)
	}
	return codes
}

// left is what a tenant has left in the period that is current; an item below zero takes from what the others have.
func (o *oracle) left(plan item, tenant string) int64 { return o.leftAt(plan, tenant, o.w.now()) }

func (o *oracle) leftAt(plan item, tenant string, at time.Time) (n int64) {
	period := "QUOTA#" + o.period(plan, at)
	found := false
	for k, it := range o.w.store.ledger.items {
		if k.sk == period && tenantOf(k.pk) == tenant {
			n, found = n+it.num("remaining"), true
		}
	}
	if !found {
		return plan.num("tokens")
	}
	return n
}

// answered holds what operators are told: done means done.
func (o *oracle) answered(op *operation, code string) error {
	if op.last {
		if err := o.lastAnswer(op, code); err != nil {
			return err
		}
	}
	switch {
	case code == "error" && slices.Contains(typed, op.kind.name):
		return o.w.broken(invAnswers, "operation %d %s ends with an error that no program can tell: %v", op.id, op.name(), op.err)
	case code != "ok":
		return nil
	}
	switch op.kind {
	case kindNamed("grant"), kindNamed("grant again"):
		if !o.written[key{"TENANT#" + op.tenant.id, "GRANT#" + op.order}] {
			return o.w.broken(invAnswers, "operation %d granted order %s, which nothing tells of", op.id, op.order)
		}
	case kindPlanSet:
		if !slices.ContainsFunc(o.plans[op.tenant.id], func(p planned) bool {
			return p.tokens == op.plan.Tokens && (p.until.IsZero() || p.until.After(op.started))
		}) {
			return o.w.broken(invAnswers, "operation %d set a plan of %d tokens, which %s never had", op.id, op.plan.Tokens, op.tenant.id)
		}
	case kindNamed("erase"):
		return o.allErased(op)
	}
	return nil
}

// typed are the operations whose errors have codes.
var typed = []string{
	"do", "steps", "sleeper", "commit", "look", "http", "direct", "set plan", "grant", "grant again", "suspend", "resolve", "erase",
	"hasty person", "hibernate", "impostor", "undo", "old word", "late extension", "plan twice", "audit", "provide", "reserve only", "co-holder",
}

// planned is a plan that a tenant had.
type planned struct {
	tokens int64
	until  time.Time // zero: it has it
}

// planSet keeps account of plans, and of grants that were made.
func (o *oracle) planSet(r *record) {
	switch {
	case strings.HasPrefix(r.key.sk, "GRANT#") && r.new != nil:
		o.written[r.key] = true
	case r.key.sk == "PLAN":
		t := tenantOf(r.key.pk)
		if list := o.plans[t]; len(list) > 0 && list[len(list)-1].until.IsZero() {
			list[len(list)-1].until = o.w.now()
		}
		if r.new != nil {
			o.plans[t] = append(o.plans[t], planned{tokens: r.new.num("tokens")})
		}
	}
}

// allErased holds that nothing of a tenant that was there when its erase began is there when it ends.
func (o *oracle) allErased(op *operation) error {
	for _, t := range []*table{o.w.store.ledger, o.w.store.control} {
		for _, k := range slices.SortedFunc(maps.Keys(t.items), key.compare) {
			old := isRow(k) && t.items[k].num("createdAt") < op.started.Add(-skew).UnixMilli() || !o.changed[k].After(op.started)
			if tenantOf(k.pk) == op.tenant.id && old {
				return o.w.broken(invAnswers, "operation %d erased %s, and %s %s is still there", op.id, op.tenant.id, k.pk, k.sk)
			}
		}
	}
	return nil
}
