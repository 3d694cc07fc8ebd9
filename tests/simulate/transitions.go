package main

import (
	"fmt"
	"slices"
	"strings"
)

// expect reads one change by the table of the protocol, and remembers the events that it stands for. It is the third reading
// of that table, after the writers' and the stream's, and shares nothing with either.
func (o *oracle) expect(r *record) error {
	o.reading = r
	switch {
	case r.control && r.key.sk == "PLAN":
		if r.new != nil {
			o.event("PlanChanged", tenantOf(r.key.pk), r.new.num("version"))
		} else {
			o.event("PlanChanged", tenantOf(r.key.pk), r.old.num("version"))
		}
	case strings.HasPrefix(r.key.pk, "OBS#"):
		o.observation(r)
	case isQuota(r.key):
		o.quotaEvents(r)
	case isRow(r.key):
		return o.rowEvents(r)
	}
	return nil
}

func (o *oracle) event(kind, entity string, version int64) {
	if o.reborn[entity] {
		return
	}
	name := fmt.Sprintf("%s|%s|%d", kind, entity, version)
	h := happening{name, taleOf(kind, o.reading)}
	o.expected[name]++
	o.tales[name] = append(o.tales[name], h.tale)
	o.fresh = append(o.fresh, h)
	for metric, n := range h.metrics() {
		o.owed[metric] += n
	}
}

// ofReborn tells whether an event is of a row that was written once more after its retention.
func (o *oracle) ofReborn(name string) bool {
	_, rest, _ := strings.Cut(name, "|")
	return o.reborn[rest[:strings.LastIndexByte(rest, '|')]]
}

func (o *oracle) observation(r *record) {
	if r.new == nil {
		return
	}
	old := r.old
	if old.str("obsId") != r.new.str("obsId") {
		old = nil
	}
	for _, c := range []struct{ attr, kind string }{
		{"duplicates", "ToolCallReplayed"},
		{"inFlight", "ToolCallInFlight"},
		{"keyConflicts", "IdempotencyKeyConflict"},
		{"quotaDenials", "QuotaExhausted"},
		{"contentionGiveUps", "ContentionGaveUp"},
	} {
		if r.new.num(c.attr) > old.num(c.attr) {
			name := fmt.Sprintf("%s|%s|%d", c.kind, r.new.str("obsId"), r.new.num("version"))
			again := o.expected[name] > 0
			o.event(c.kind, r.new.str("obsId"), r.new.num("version"))
			// The SDK's repetition of an update that had been applied, on an item that an erase had removed in between, is the
			// same observation again: one event.
			if o.expected[name] = 1; again {
				o.owed[metricOf[c.kind]] -= float64(r.new.num(c.attr) - old.num(c.attr))
			}
		}
	}
}

func (o *oracle) quotaEvents(r *record) {
	if r.new == nil {
		return
	}
	if r.new.num("granted") != r.old.num("granted") {
		o.event("QuotaGranted", r.new.str("quotaId"), r.new.num("version"))
	}
	same := r.old.str("quotaId") == r.new.str("quotaId") // else it begins full
	for _, percent := range []int64{20, 5, 0} {
		if r.new.num("granted") > 0 && low(r.new, percent) && (!same || !low(r.old, percent)) {
			o.event("QuotaLow", r.new.str("quotaId"), r.new.num("version"))
		}
	}
}

// low tells whether a quota item has a percentage of its grant left, or less.
func low(it item, percent int64) bool {
	return it.num("remaining") <= 0 || it.num("remaining")*100 <= it.num("granted")*percent
}

// rowEvents reads a change of a ledger row.
func (o *oracle) rowEvents(r *record) error {
	was, is := r.old, r.new
	id, version := is.str("rowId"), is.num("version")
	if is != nil && version == 1 && (o.archived[id] || was != nil && was.str("rowId") == id && o.mayLeave(r) == nil) {
		// A call that outlived the retention of its row has written it once more: retention has to exceed the life of a caller.
		o.reborn[id] = true
		o.w.count("beyond promise", "call written again after its retention")
		return nil
	}
	if was != nil && (is == nil || was.str("rowId") != id) {
		if err := o.mayLeave(r); err != nil {
			return err
		}
		o.event("LedgerRowArchived", was.str("rowId"), was.num("version"))
		if is == nil {
			return nil
		}
		was = nil
	}
	if was == nil {
		return o.appeared(r)
	}
	if version != was.num("version")+1 {
		return o.illegal(r, "its version went from %d to %d", was.num("version"), version)
	}
	if err := o.kept(r); err != nil {
		return err
	}
	switch from, to := was.str("state"), is.str("state"); {
	case from == "pending" && to == "pending":
		return o.stayedPending(r)
	case from == "pending" && to == "applied":
		o.event("ToolEffectApplied", id, version)
		if is.num("appliedAttempt") < is.num("attempt") {
			o.event("SuspectedDoubleEffect", id, version)
		}
	case from == "pending" && to == "failed":
		return o.failedNow(r)
	case from == "failed" && to == "pending":
		if is.num("attempt") != was.num("attempt")+1 {
			return o.illegal(r, "a takeover went from attempt %d to %d", was.num("attempt"), is.num("attempt"))
		}
		o.event("ToolCallReserved", id, version)
	case from == "failed" && to == "applied":
		return o.settledNow(r)
	case from == "failed" && to == "failed":
		return o.stayedFailed(r)
	case from == "applied" && to == "applied":
		return o.stayedApplied(r)
	default:
		return o.illegal(r, "it went from %s to %s", from, to)
	}
	return nil
}

func (o *oracle) illegal(r *record, format string, a ...any) error {
	return o.w.broken(invTransition, "%s %s: %s", r.key.pk, r.key.sk, fmt.Sprintf(format, a...))
}

// mayLeave holds that a row leaves only after its time, or marked for erasure, and never while it is pending.
func (o *oracle) mayLeave(r *record) error {
	s := r.old.str("state")
	if s != "applied" && s != "failed" {
		return o.illegal(r, "a %s row left the table", s)
	}
	if r.old.has("erasing") {
		return nil
	}
	if end := r.old.num("expiresAt"); end == 0 || end > o.w.now().Add(skew).Unix() {
		return o.illegal(r, "a %s row left the table before its time", s)
	}
	return nil
}

func (o *oracle) appeared(r *record) error {
	id, version := r.new.str("rowId"), r.new.num("version")
	if version != 1 {
		return o.illegal(r, "a new row has version %d", version)
	}
	if err := o.shape(r); err != nil {
		return err
	}
	switch {
	case r.new.str("state") == "pending" && r.new.num("attempt") == 1:
		o.event("ToolCallReserved", id, 1)
	case r.new.str("state") == "applied" && r.new.has("settledFrom"):
		o.event("ToolEffectSettledLate", id, 1)
	case r.new.str("state") == "applied" && r.new.num("appliedAttempt") == 1:
		o.event("ToolEffectApplied", id, 1)
	default:
		return o.illegal(r, "a new row is %s, attempt %d", r.new.str("state"), r.new.num("attempt"))
	}
	return nil
}

// shape holds what every row of a state has.
func (o *oracle) shape(r *record) error {
	it := r.new
	pending := it.str("state") == "pending"
	switch {
	case pending && it.has("expiresAt"):
		return o.illegal(r, "a pending row would vanish by its time to live")
	case pending != it.has("pendingBucket") || pending != it.has("deadline"):
		return o.illegal(r, "a %s row is in the index of pending rows: %t", it.str("state"), it.has("pendingBucket"))
	case !pending && !it.has("expiresAt"):
		return o.illegal(r, "a %s row has no end", it.str("state"))
	case it.str("state") == "applied" && !it.has("resultJson") && !it.has("resultRef"):
		return o.illegal(r, "an applied row has no result")
	case it.str("state") == "applied" && sum(it.debits())+it.num("shortfall") != it.num("chargedTokens") && !it.has("compensatedAt"):
		return o.illegal(r, "charged %d, debited %d, short of %d", it.num("chargedTokens"), sum(it.debits()), it.num("shortfall"))
	}
	return nil
}

func sum[K comparable](amounts map[K]int64) (n int64) {
	for _, a := range amounts {
		n += a
	}
	return n
}

// kept holds what never changes, or never goes away, within a row's life.
func (o *oracle) kept(r *record) error {
	was, is := r.old, r.new
	for _, attr := range []string{"intentHash", "tool", "scope", "createdAt", "settledFrom"} {
		if was.text(attr) != is.text(attr) {
			return o.illegal(r, "%s changed", attr)
		}
	}
	if was.str("state") == "applied" {
		for _, attr := range []string{"resultJson", "resultRef", "appliedAttempt"} {
			if was.text(attr) != is.text(attr) {
				return o.w.broken(invOneIntent, "%s of an applied row changed: %s", attr, r.key.sk)
			}
		}
	}
	if was.num("unverified") != 0 && is.num("unverified") == 0 {
		return o.illegal(r, "unverified was cleared")
	}
	for s := range was.suspects() {
		if !is.suspects()[s] {
			return o.illegal(r, "a suspect was dropped")
		}
	}
	if is.num("attempt") < was.num("attempt") {
		return o.illegal(r, "its attempt went back from %d to %d", was.num("attempt"), is.num("attempt"))
	}
	return o.shape(r)
}

func (o *oracle) stayedPending(r *record) error {
	was, is := r.old, r.new
	id, version := is.str("rowId"), is.num("version")
	switch {
	case is.num("attempt") != was.num("attempt"):
		return o.illegal(r, "its attempt changed while it was pending")
	case is.has("held") && !was.has("held"):
		o.event("ReservationStuck", id, version)
	case is.num("deadline") != was.num("deadline"):
		if is.num("deadline") < was.num("deadline") || was.has("held") {
			return o.illegal(r, "its deadline moved back, or while it was held")
		}
		o.event("ReservationExtended", id, version)
	case is.text("suspects") != was.text("suspects"):
		o.event("SuspectedDoubleEffect", id, version)
	case is.num("sweepAt") == 0:
		return o.illegal(r, "a pending row changed for no reason")
	}
	return nil
}

func (o *oracle) failedNow(r *record) error {
	kinds := map[string]string{"released": "ReservationReleased", "expired": "ReservationExpired", "resolved": "ReservationResolved"}
	kind := kinds[r.new.str("failure")]
	if kind == "" {
		return o.illegal(r, "it failed by %q", r.new.str("failure"))
	}
	if kind != "ReservationReleased" {
		if r.new.num("unverified") == 0 {
			return o.illegal(r, "it was %s and is not unverified", r.new.str("failure"))
		}
		if due := r.old.num("deadline"); o.w.now().UnixMilli() < due {
			return o.illegal(r, "it was %s before its deadline", r.new.str("failure"))
		}
		if s := serviceOf(r.new.str("tool")); r.new.str("failure") == "expired" && s != nil && !s.verifies && !s.idempotent {
			return o.illegal(r, "it expired, and nobody can tell whether it happened")
		}
	}
	o.event(kind, r.new.str("rowId"), r.new.num("version"))
	return nil
}

func (o *oracle) settledNow(r *record) error {
	was, is := r.old, r.new
	id, version := is.str("rowId"), is.num("version")
	switch {
	case is.num("attempt") == was.num("attempt")+1 && is.num("appliedAttempt") == is.num("attempt"):
		o.event("ToolEffectApplied", id, version)
	case is.num("attempt") == was.num("attempt") && is.num("appliedAttempt") <= is.num("attempt"):
		o.event("ToolEffectSettledLate", id, version)
		if is.text("suspects") != was.text("suspects") {
			o.event("SuspectedDoubleEffect", id, version)
		}
	default:
		return o.illegal(r, "a failed row of attempt %d was applied by %d, attempt %d", was.num("attempt"), is.num("appliedAttempt"), is.num("attempt"))
	}
	return nil
}

func (o *oracle) stayedFailed(r *record) error {
	was, is := r.old, r.new
	switch {
	case is.text("suspects") != was.text("suspects"):
		o.event("SuspectedDoubleEffect", is.str("rowId"), is.num("version"))
	case is.has("erasing") && !was.has("erasing"):
		if is.num("unverified") != 0 {
			return o.illegal(r, "a failed row that nobody verified is erased")
		}
	case is.str("failure") == "resolved":
		o.event("ReservationResolved", is.str("rowId"), is.num("version"))
	default:
		return o.illegal(r, "a failed row changed for no reason")
	}
	return nil
}

func (o *oracle) stayedApplied(r *record) error {
	was, is := r.old, r.new
	id, version := is.str("rowId"), is.num("version")
	switch {
	case is.text("suspects") != was.text("suspects"):
		o.event("SuspectedDoubleEffect", id, version)
	case is.has("erasing") && !was.has("erasing"):
	case was.has("compensatedAt") || was.has("compensatedBy") && was.str("compensatedBy") != is.str("compensatedBy"):
		return o.illegal(r, "a compensation was taken over, or came twice")
	case is.has("compensatedAt"):
		if !was.has("compensatedBy") {
			o.event("CompensationStarted", id, version)
		}
		o.event("ToolEffectCompensated", id, version)
	case is.has("compensatedBy"):
		o.event("CompensationStarted", id, version)
	default:
		return o.illegal(r, "an applied row changed for no reason")
	}
	return nil
}

// modelled are the types of events that the oracle expects one by one.
var modelled = []string{
	"ToolCallReserved", "ToolEffectApplied", "ReservationExtended", "ReservationStuck", "ReservationReleased", "ReservationExpired",
	"ReservationResolved", "ToolEffectSettledLate", "SuspectedDoubleEffect", "CompensationStarted", "ToolEffectCompensated",
	"LedgerRowArchived", "LedgerRowTampered", "ToolCallReplayed", "ToolCallInFlight", "IdempotencyKeyConflict", "QuotaExhausted",
	"ContentionGaveUp", "QuotaGranted", "QuotaLow", "PlanChanged", "AuditRecordUnreadable",
}

func isModelled(kind string) bool { return slices.Contains(modelled, kind) }
