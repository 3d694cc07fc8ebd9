package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// The invariants, by the words that a violation names.
const (
	invOneIntent   = "1: one call key, one intent, one result"
	invBooks       = "2: books balance"
	invRefund      = "3: a refund goes back where it came from, once"
	invFence       = "4: only the holder of the current attempt acts"
	invRecorded    = "5: an effect that happened is recorded"
	invRefused     = "6: nothing is written for a request that is refused"
	invEvents      = "7: events are the transitions"
	invTenants     = "8: tenants are apart"
	invBound       = "every call ends within its bound"
	invEffects     = "one effect for each action"
	invTransition  = "the protocol's transitions"
	invQuota       = "quota items"
	invMetrics     = "metrics within their guarantee"
	invLeftovers   = "nothing is left behind"
	invReplayed    = "1: a replay returns the stored bytes"
	invNotInvented = "5: what is recorded as applied happened"
)

// oracle holds the promises against the raw items, as the store's own stream tells of them, and against the outside
// system's log. Nothing of the code under test has a part in it.
type oracle struct {
	w         *world
	debits    map[key]int64               // of each quota item: by pending and applied rows, and by those that left the table as such
	taken     map[key]map[key]taken       // of each row: what it has debited now
	epochs    map[key]int                 // of each quota item: how often it was removed
	erased    map[key]bool                // quota items of whose debits some went with an earlier one of the same name
	deadlines map[string]time.Time        // of each attempt, the latest
	archived  map[string]bool             // row ids that have left the table by the rules
	reborn    map[string]bool             // row ids that were written once more after that
	attempts  map[string]map[string]bool  // per row id: the intents that were stored
	expected  map[string]int              // events, as type|entity|version
	observed  map[string]map[string]int64 // of observations: counters
	rowOf     map[string]key              // of a row id
	asked     map[string]args             // by lookup: what an action is
	fresh     []happening                 // events of the record that is being read
	recorded  map[string]bool             // row ids of actions that are recorded as applied
	written   map[key]bool                // grants that were ever there
	plans     map[string][]planned        // of each tenant, one after the other
	undoers   map[string]key              // by row id: the call that undoes it
	tales     map[string][]tale           // by event; mostly one
	owed      map[string]float64          // what metrics come to where nothing is counted twice
	reading   *record                     // that events are expected of
	movers    map[key]mover               // of each quota item
	changed   map[key]time.Time           // of each item
}

type taken struct {
	tokens int64
	epoch  int
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, debits: map[key]int64{}, taken: map[key]map[key]taken{}, epochs: map[key]int{}, erased: map[key]bool{}, deadlines: map[string]time.Time{},
		archived: map[string]bool{}, reborn: map[string]bool{}, attempts: map[string]map[string]bool{}, expected: map[string]int{},
		recorded: map[string]bool{}, written: map[key]bool{}, plans: map[string][]planned{}, tales: map[string][]tale{}, owed: map[string]float64{}, movers: map[key]mover{}, undoers: map[string]key{},
		changed:  map[key]time.Time{},
		observed: map[string]map[string]int64{}, rowOf: map[string]key{}, asked: map[string]args{},
	}
}

// stateOf is a row's state in the words of the coverage table.
func (o *oracle) stateOf(k key) string {
	if k == (key{}) {
		return "-"
	}
	it := o.w.store.ledger.items[k]
	ended := it.str("state") == "applied" || it.str("state") == "failed"
	switch end := it.num("expiresAt"); {
	case it.str("state") == "":
		return rowAbsent
	case ended && end != 0 && end < o.w.now().Unix():
		return rowPast
	case it.str("state") == "applied":
		return rowApplied
	case it.str("state") == "failed" && it.has("unverified"):
		return rowUnverified
	case it.str("state") == "failed":
		return rowReleased
	case it.has("held"):
		return rowHeld
	case it.num("deadline") < o.w.now().UnixMilli():
		return rowOverdue
	}
	return rowPending
}

func isRow(k key) bool { return strings.HasPrefix(k.sk, "TOOL#") && strings.HasPrefix(k.pk, "TENANT#") }

func isQuota(k key) bool { return strings.HasPrefix(k.sk, "QUOTA#") }

// wrote looks at what one request wrote.
func (o *oracle) wrote(op *operation, all []*record) error {
	touched := map[key]bool{}
	var rows, quotas, plans, grants []*record
	for _, r := range all {
		switch {
		case isRow(r.key) && !r.control:
			rows = append(rows, r)
			o.move(r, touched)
		case isQuota(r.key) && !r.control:
			quotas = append(quotas, r)
			touched[r.key] = true
		case r.key.sk == "PLAN":
			plans = append(plans, r)
		case strings.HasPrefix(r.key.sk, "GRANT#"):
			grants = append(grants, r)
		}
		o.planSet(r)
		o.fresh = nil
		if err := o.expect(r); err != nil {
			return err
		}
		o.w.feed.add(r, o.fresh)
		if err := o.own(op, r); err != nil {
			return err
		}
		if err := o.theRightRow(op, r); err != nil {
			return err
		}
	}
	if op != nil {
		op.wrote = append(op.wrote, all...)
	}
	for _, check := range []func() error{
		func() error { return o.rowsMoved(op, rows) },
		func() error { return o.quotaMoved(op, rows, quotas, plans, grants) },
		func() error { return o.plansMoved(plans, quotas) },
		func() error { return o.balance(touched) },
		func() error { return o.wroteMore(op, all) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// own holds that an operation writes to its own tenant alone.
func (o *oracle) own(op *operation, r *record) error {
	if op == nil || op.intent == nil && op.tenant == nil {
		return nil
	}
	mine := op.tenant
	if op.intent != nil {
		mine = op.intent.tenant
	}
	if t := tenantOf(r.key.pk); t != mine.id {
		return o.w.broken(invTenants, "operation %d %s of tenant %s wrote %v", op.id, op.name(), mine.id, r.key)
	}
	return nil
}

// debitsOf is what a row has taken from quota items, as far as its state lets it count.
func debitsOf(k key, it item) map[key]int64 {
	out := map[key]int64{}
	if s := it.str("state"); s != "pending" && s != "applied" {
		return out
	}
	t := tenantOf(k.pk)
	for name, n := range it.debits() {
		out[quotaOf(t, name)] += n
	}
	return out
}

// move keeps account of what rows have debited. What leaves the table, by time or by an erase, stays accounted for.
func (o *oracle) move(r *record, touched map[key]bool) {
	replaced := r.old != nil && (r.new == nil || r.new.str("rowId") != r.old.str("rowId") || r.new.num("version") == 1)
	before := o.taken[r.key]
	if !replaced {
		after := debitsOf(r.key, r.new)
		for q, t := range before {
			touched[q] = true
			switch {
			case t.epoch == o.epochs[q]:
				o.debits[q] -= t.tokens
			case after[q] != t.tokens: // an erase has removed the item that it debited, and another one is refunded or debited
				o.erased[q] = true
			}
		}
	}
	delete(o.taken, r.key)
	if r.new == nil {
		return
	}
	now := map[key]taken{}
	for q, n := range debitsOf(r.key, r.new) {
		touched[q] = true
		now[q] = taken{n, o.epochs[q]}
		if t, ok := before[q]; ok && !replaced && t.epoch != o.epochs[q] {
			now[q] = taken{n, t.epoch}
			continue
		}
		o.debits[q] += n
	}
	o.taken[r.key] = now
}

// balance holds the books: granted − remaining = Σ debits, to the token, at every moment.
func (o *oracle) balance(touched map[key]bool) error {
	for _, q := range slices.SortedFunc(maps.Keys(touched), key.compare) {
		it := o.w.store.ledger.items[q]
		if it == nil {
			continue // gone: what was debited there is nobody's any more
		}
		if o.erased[q] {
			o.w.count("beyond promise", "books of a period that was erased while calls went on")
			continue
		}
		if diff := it.num("granted") - it.num("remaining") - o.debits[q]; diff != 0 {
			what := invBooks
			if diff < 0 {
				what = invRefund
			}
			return o.w.broken(what, "%s %s: granted %d, remaining %d, debits %d", q.pk, q.sk, it.num("granted"), it.num("remaining"), o.debits[q])
		}
	}
	return nil
}

// rowsMoved looks at what became of rows beyond the state machine.
func (o *oracle) rowsMoved(op *operation, rows []*record) error {
	for _, r := range rows {
		if r.new == nil {
			o.archived[r.old.str("rowId")] = true
			continue
		}
		id := r.new.str("rowId")
		if r.old != nil && r.old.str("rowId") != id {
			o.archived[r.old.str("rowId")] = true
		}
		o.rowOf[id] = r.key
		if r.new.has("deadline") {
			o.deadlines[attemptName(id, r.new.num("attempt"))] = time.UnixMilli(r.new.num("deadline")).UTC()
		}
		if o.attempts[id] == nil {
			o.attempts[id] = map[string]bool{}
		}
		o.attempts[id][r.new.text("intentHash")] = true
		if len(o.attempts[id]) > 1 {
			return o.w.broken(invOneIntent, "row %s holds a second intent", r.key.sk)
		}
		o.believed(op, r)
		if r.new.str("state") == "applied" {
			o.recorded[id], o.recorded[r.new.str("settledFrom")] = true, true
		}
		if err := o.happened(op, r); err != nil {
			return err
		}
	}
	return nil
}

func attemptName(rowID string, attempt int64) string { return fmt.Sprintf("%s/%d", rowID, attempt) }

// believed notes where the ledger believes somebody who does not tell the truth: a verifier, somebody else who holds the same reservation, a
// person who looked too early. It has to, and cannot keep its promises about that action. What nobody acted on excuses nothing.
func (o *oracle) believed(op *operation, r *record) {
	ref, from, to := r.new.str("lookup"), r.old.str("state"), r.new.str("state")
	if ref == "" || r.old.str("rowId") == r.new.str("rowId") && from == to && to != "failed" {
		return
	}
	list := o.w.out.byRef[ref]
	since := func(t time.Time) bool {
		return slices.ContainsFunc(list, func(e *effect) bool { return e.at.After(t) })
	}
	mine := slices.ContainsFunc(list, func(e *effect) bool { return e.rowID == r.new.str("rowId") })
	switch told := o.w.told[ref]; {
	case op != nil && op.kind == kindCoHolder && r.new.str("failure") == "released": // it cannot know
		o.w.lied(ref, "a co-holder lies: release")
	case op != nil && op.kind == kindCoHolder && to == "applied" && !mine:
		o.w.lied(ref, "a co-holder lies: finalize")
	case op != nil && !op.looked.IsZero() && r.new.str("failure") == "resolved" && since(op.looked):
		o.w.lied(ref, "a person's word is out of date")
	case told == liesAbsent && (r.new.str("failure") == "expired" || beginsAnew(r)):
		o.w.lied(ref, told)
	case told == liesApplied && to == "applied" && len(list) == 0:
		o.w.lied(ref, told)
	}
}

// happened holds that nothing is recorded as applied that did not happen.
func (o *oracle) happened(_ *operation, r *record) error {
	if r.new.str("state") != "applied" || r.old.str("state") == "applied" && r.old.str("rowId") == r.new.str("rowId") {
		return nil
	}
	s := serviceOf(r.new.str("tool"))
	ref := r.new.str("lookup")
	if s == nil || s.commit || ref == "" || beginsAnew(r) { // a commit is its own effect
		return nil
	}
	if len(o.w.out.byRef[ref]) == 0 && o.w.lies[ref] == "" {
		return o.w.broken(invNotInvented, "row %s is applied by %s, and nothing happened", r.key.sk, r.new.str("settledBy"))
	}
	return nil
}

func serviceOf(name string) *service {
	i := slices.IndexFunc(services, func(s service) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &services[i]
}

// quotaMoved holds what a change of quota items needs beside it, and what it may not do.
func (o *oracle) quotaMoved(op *operation, rows, quotas, plans, grants []*record) error {
	spends := slices.ContainsFunc(rows, func(r *record) bool { return beginsAnew(r) })
	var extra int64
	for _, q := range quotas {
		if q.new == nil {
			o.epochs[q.key]++
			o.debits[q.key] = 0
			continue
		}
		extra += q.new.num("extra") - q.old.num("extra")
		fell := q.old != nil && q.new.num("remaining") < q.old.num("remaining")
		switch {
		case fell && spends && q.new.num("remaining") < 0 && !slices.ContainsFunc(rows, settles):
			return o.w.broken(invQuota, "%v was debited below zero by operation %d", q.key, op.id)
		case fell && spends && q.old.has("suspended"):
			return o.w.broken(invQuota, "%v of a suspended tenant was debited by operation %d", q.key, op.id)
		case q.old != nil && len(rows) == 0 && len(plans) == 0 && len(grants) == 0 && q.old.num("remaining") != q.new.num("remaining"):
			return o.w.broken(invQuota, "%v moved without a row, a plan or a grant", q.key)
		}
		if q.old == nil {
			if err := o.created(q); err != nil {
				return err
			}
		}
	}
	var granted int64
	for _, g := range grants {
		if g.old == nil && g.new != nil {
			granted += g.new.num("tokens")
		}
	}
	if erased := len(grants) > 0 && grants[0].new == nil; !erased && extra != granted {
		if !slices.ContainsFunc(quotas, func(q *record) bool { return q.new == nil }) {
			return o.w.broken(invQuota, "grants of %d tokens added %d", granted, extra)
		}
	}
	return nil
}

// beginsAnew tells whether a row change is one that needs tokens: a reservation or a commit.
func beginsAnew(r *record) bool {
	if r.new == nil {
		return false
	}
	fresh := r.old == nil || r.old.str("rowId") != r.new.str("rowId")
	switch r.new.str("state") {
	case "pending":
		return fresh || r.old.str("state") == "failed"
	case "applied":
		return fresh && !r.new.has("settledFrom") || r.old.str("state") == "failed" && r.new.num("attempt") > r.old.num("attempt")
	}
	return false
}

// settles tells whether a row change is a settlement, which never fails on quota.
func settles(r *record) bool { return r.new.str("state") == "applied" && !beginsAnew(r) }

// created holds that a period's quota items come all at once, from the plan as it is.
func (o *oracle) created(q *record) error {
	tenant, period := tenantOf(q.key.pk), strings.TrimPrefix(q.key.sk, "QUOTA#")
	plan := o.w.store.control.items[key{"TENANT#" + tenant, "PLAN"}]
	if plan == nil {
		return o.w.broken(invQuota, "%v was created without a plan", q.key)
	}
	n, base := o.shards(tenant, period)
	if n != plan.num("shards") || base != plan.num("tokens") {
		return o.w.broken(invQuota, "period %s of %s has %d shards of %d tokens; its plan has %d and %d",
			period, tenant, n, base, plan.num("shards"), plan.num("tokens"))
	}
	if q.new.has("suspended") != plan.has("suspended") {
		return o.w.broken(invQuota, "%v was created suspended: %t", q.key, q.new.has("suspended"))
	}
	return nil
}

// shards counts the quota items of a period, from shard 0 on, and what the plan has granted them.
func (o *oracle) shards(tenant, period string) (n, base int64) {
	for {
		k := key{"TENANT#" + tenant, "QUOTA#" + period}
		if n > 0 {
			k.pk += fmt.Sprintf("#SHARD#%d", n)
		}
		it := o.w.store.ledger.items[k]
		if it == nil {
			return n, base
		}
		base += it.num("granted") - it.num("extra")
		n++
	}
}

// plansMoved holds that a plan change reaches the running period with it.
func (o *oracle) plansMoved(plans, _ []*record) error {
	for _, p := range plans {
		if p.new == nil {
			continue
		}
		if p.old != nil && p.new.num("version") != p.old.num("version")+1 {
			return o.w.broken(invQuota, "a plan went from version %d to %d", p.old.num("version"), p.new.num("version"))
		}
		if sent := o.w.sending; sent != nil && o.period(p.new, sent.posted.Add(skew/2)) != o.period(p.new, o.w.now()) {
			o.w.count("beyond promise", "plan change that arrived in a later period")
			continue
		}
		tenant, period := tenantOf(p.key.pk), o.period(p.new, o.w.now())
		n, base := o.shards(tenant, period)
		if n > 0 && (base != p.new.num("tokens") || n != p.new.num("shards")) {
			return o.w.broken(invQuota, "the plan of %s grants %d over %d, its period %s has %d over %d",
				tenant, p.new.num("tokens"), p.new.num("shards"), period, base, n)
		}
		for i := range n {
			k := key{"TENANT#" + tenant, "QUOTA#" + period}
			if i > 0 {
				k.pk += fmt.Sprintf("#SHARD#%d", i)
			}
			if it := o.w.store.ledger.items[k]; it.has("suspended") != p.new.has("suspended") {
				return o.w.broken(invQuota, "%v is suspended: %t; its plan is: %t", k, it.has("suspended"), p.new.has("suspended"))
			}
		}
	}
	return nil
}

// period is the name of a plan's period at a moment.
func (o *oracle) period(plan item, at time.Time) string {
	switch kind := plan.str("period"); kind {
	case "always":
		return "ALWAYS"
	case "day":
		return at.Format("2006-01-02")
	}
	return at.Format("2006-01")
}

// landsBy is until when an effect has to land for the promises to hold: the deadline of its attempt and the horizon that its worker
// gave itself, by the clock of the worker.
func (o *oracle) landsBy(e *effect) time.Time {
	return o.deadlines[attemptName(e.rowID, int64(e.attempt))].Add(e.horizon)
}

// checkFence is asked at the moment that a tool's Act begins.
func (w *world) checkFence(op *operation, c writers.CallInfo) {
	if op.proc.killed() || w.isParallel() {
		return
	}
	w.meet()
	it := w.store.ledger.items[op.rowKey()]
	now := op.proc.now()
	deadline, known := w.oracle.deadlines[attemptName(c.RowID, int64(c.Attempt))]
	switch {
	case c.EffectKey != effectKeyOf(op.rowKey()):
		_ = w.broken(invTenants, "operation %d acts on %v with the key %q", op.id, op.rowKey(), c.EffectKey)
	case !known:
		_ = w.broken(invFence, "operation %d acts on attempt %d of %s, which was never reserved", op.id, c.Attempt, op.rowKey().sk)
	case !now.Before(deadline):
		_ = w.broken(invFence, "operation %d acts on attempt %d of %s at %s, after its deadline %s", op.id, c.Attempt, op.rowKey().sk, now, deadline)
	case it.str("state") == "pending" && it.str("rowId") == c.RowID && it.num("attempt") == int64(c.Attempt):
	case w.lies[op.args().Ref] != "", it.str("rowId") == c.RowID && it.num("attempt") == int64(c.Attempt) && w.harmless(op):
		w.count("beyond promise", "act after the call was settled by somebody else, harmless or after a lie")
	default:
		_ = w.broken(invFence, "operation %d acts on attempt %d of %s, which is %s, attempt %d",
			op.id, c.Attempt, op.rowKey().sk, w.oracle.stateOf(op.rowKey()), it.num("attempt"))
	}
}

// harmless tells whether a second effect of an operation's action is no broken promise. Somebody may settle a call as applied while
// its holder is about to act, where an earlier effect is found late: that needs a tool that may be repeated, or an action that was asked
// for once more after the time for which its call was remembered.
func (w *world) harmless(op *operation) bool {
	return op.intent.service.idempotent ||
		slices.ContainsFunc(w.out.byRef[op.args().Ref], func(e *effect) bool { return w.oracle.archived[e.rowID] })
}

// effectLanded holds that one action has one effect, but for what the protocol says that it cannot hold, which is counted.
func (w *world) effectLanded(s *service, e *effect) {
	if w.isParallel() {
		w.count("effect", s.name)
		return
	}
	deadline := w.oracle.deadlines[attemptName(e.rowID, int64(e.attempt))]
	e.deadline, e.tooLate = deadline, e.byClock.After(w.oracle.landsBy(e))
	w.count("effect", s.name)
	list := w.out.byRef[e.ref]
	if e.tooLate {
		e.excused = "landed beyond the horizon"
		w.count("beyond promise", "effect landed beyond its horizon")
	}
	var blamed []*effect
	for _, other := range list {
		switch {
		case other.excused != "":
		case other != e && other.rowID != e.rowID && w.oracle.archived[other.rowID]:
			w.count("beyond promise", "key used again after its retention")
		default:
			blamed = append(blamed, other)
		}
	}
	if len(blamed) < 2 {
		if len(list) > 1 {
			w.count("beyond promise", "two effects")
		}
		return
	}
	switch {
	case s.idempotent && !s.keys:
		w.count("beyond promise", "idempotent tool acted twice, harmlessly")
	case w.lies[e.ref] != "":
		w.count("beyond promise", "two effects after a lie")
	default:
		a, b := blamed[0], blamed[1]
		_ = w.broken(invEffects, "%s happened twice: attempt %d at %s (operation %d), attempt %d at %s (operation %d)",
			e.ref, a.attempt, a.at.Format(time.TimeOnly), a.opID, b.attempt, b.at.Format(time.TimeOnly), b.opID)
	}
}

// ended looks at what an operation's caller was told.
func (o *oracle) ended(op *operation, code string) error {
	if o.w.failure != nil || o.w.isParallel() {
		return o.w.failure
	}
	for _, got := range op.results {
		if err := o.told(op, got); err != nil {
			return err
		}
	}
	if err := o.endedMore(op, code); err != nil {
		return err
	}
	if err := o.answered(op, code); err != nil {
		return err
	}
	if op.intent == nil || !slices.Contains(nothingWritten, writers.Code(code)) {
		return nil
	}
	for _, r := range op.wrote {
		if !isRow(r.key) || r.key.pk != op.rowKey().pk || r.new.str("failure") == "expired" || r.new.str("settledBy") == "verify" {
			continue
		}
		if o.archived[r.new.str("rowId")] || o.outlived(r) {
			o.w.count("beyond promise", "call refused after the retention of its own row")
			continue
		}
		if it := o.w.store.ledger.items[r.key]; r.new.str("state") == "pending" && it.str("state") == "failed" && it.str("rowId") == r.new.str("rowId") {
			continue // its own attempt, of which it never heard, was given back by somebody else
		}
		return o.w.broken(invRefused, "operation %d %s was refused with %s and wrote %v", op.id, op.name(), code, r.key)
	}
	return nil
}

// outlived tells whether the row of a record is past its time.
func (o *oracle) outlived(r *record) bool {
	return o.stateOf(r.key) == rowPast && o.w.store.ledger.items[r.key].str("rowId") == r.new.str("rowId")
}

// nothingWritten are refusals of a call's first transaction, and of nothing after it.
var nothingWritten = []writers.Code{
	writers.ErrKeyConflict, writers.ErrQuotaExhausted, writers.ErrNotProvisioned, writers.ErrSuspended, writers.ErrNotCompensable,
}

// told holds a result that a caller was given against the row.
func (o *oracle) told(op *operation, got returned) error {
	it := o.w.store.ledger.items[op.rowKey()]
	if got.rowID != "" && it.str("rowId") != got.rowID {
		if !o.archived[got.rowID] && !it.has("settledFrom") {
			return o.w.broken(invReplayed, "operation %d was told of row %s, which is not there", op.id, got.rowID)
		}
		return nil
	}
	if it.str("state") != "applied" {
		return o.w.broken(invRecorded, "operation %d was told %s, and %s is %s", op.id, got.outcome, op.rowKey().sk, o.stateOf(op.rowKey()))
	}
	if stored := it.str("resultJson"); stored != got.json {
		return o.w.broken(invReplayed, "operation %d was told %s, and the row has %s", op.id, got.json, stored)
	}
	var r receipt
	if json.Unmarshal([]byte(got.json), &r) != nil || op.kind.name != "look" && r.Ref != op.args().Ref {
		return o.w.broken(invOneIntent, "operation %d asked for %s and was told %s", op.id, op.args().Ref, got.json)
	}
	log := o.w.out.log
	if r.Receipt != 0 && o.w.lies[r.Ref] == "" && (r.Receipt > len(log) || log[r.Receipt-1].ref != r.Ref) { // 0: a commit, which is its own effect, or a lie
		return o.w.broken(invReplayed, "operation %d was told %s, and there is no such effect", op.id, got.json)
	}
	return nil
}

// leftBehind looks for goroutines that outlived the processes they belonged to.
func (o *oracle) leftBehind() error {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	mine := true
	for g := range bytes.SplitSeq(buf, []byte("\n\n")) {
		head, _, _ := bytes.Cut(g, []byte("\n"))
		if !bytes.Contains(head, []byte("synctest bubble")) {
			mine = false
			continue
		}
		if mine || bytes.Contains(g, []byte("simulate.(*world).run(")) || bytes.Contains(g, []byte("main.(*world).run(")) ||
			bytes.Contains(g, []byte("internal/synctest.Run(")) || bytes.Contains(g, []byte("testing/synctest.testingSynctestTest(")) {
			mine = false
			continue
		}
		return o.w.broken(invLeftovers, "a goroutine outlived its process: %s", g)
	}
	return nil
}
