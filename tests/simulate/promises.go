package main

import (
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// Promises beside those of oracle.go, each of which a planted fault showed to be missing (tests/simulate/mutants).
const (
	invKept       = "kept for its time"
	invHorizon    = "absent counts only after the effect horizon"
	invOwnWrite   = "a call recognises its own write"
	invSuperseded = "an effect is recorded, or its attempt suspected, before its worker is sent away"
	invCursor     = "a session's cursor moves from where the call expects it"
	invReader     = "one reader for each shard"
	invEventIDs   = "7: no two events have one id"
)

// wroteMore looks at what one request wrote.
func (o *oracle) wroteMore(op *operation, all []*record) error {
	for _, r := range all {
		var err error
		switch {
		case r.control && strings.HasPrefix(r.key.sk, "LEASE#"):
			err = o.leaseMoved(r)
		case isRow(r.key) && !r.control && r.new != nil:
			if err = o.rowHeld(r); err == nil {
				err = o.beside(op, r, all)
			}
		case isQuota(r.key) && !r.control:
			err = o.quotaVersion(r)
		case r.key.sk == "META":
			err = o.cursorMoved(r, all)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range all {
		if o.changed[r.key] = o.w.now(); isQuota(r.key) && op != nil {
			o.movers[r.key] = mover{op.id, o.w.step}
		}
	}
	return nil
}

// rowHeld holds what every version of a row must hold.
func (o *oracle) rowHeld(r *record) error {
	if r.old != nil && r.old.str("rowId") == r.new.str("rowId") && r.old.str("lookup") != r.new.str("lookup") {
		return o.w.broken(invOneIntent, "%s was about %s and is about %s", r.key.sk, r.old.str("lookup"), r.new.str("lookup"))
	}
	for _, check := range []func(*record) error{o.keptLong, o.paidByToday, o.mayBeAbsent, o.asAsked} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

// asAsked holds that a call reserves what its action costs, and is charged what its holder says in the end; where somebody else records
// it, what was reserved.
func (o *oracle) asAsked(r *record) error {
	a, known := o.asked[r.new.str("lookup")]
	if !known {
		return nil
	}
	if r.old.str("state") == "pending" && r.new.num("appliedAttempt") < r.new.num("attempt") {
		return nil // the newer attempt has paid, for the one effect that there is
	}
	applied := r.new.str("state") == "applied" && (r.old.str("state") != "applied" || r.old.str("rowId") != r.new.str("rowId"))
	switch by := r.new.str("settledBy"); {
	case r.new.str("state") == "pending" && beginsAnew(r) && sum(r.new.debits()) != a.Amount:
		return o.w.broken(invBooks, "%s costs %d and reserves %d", r.key.sk, a.Amount, sum(r.new.debits()))
	case applied && beginsAnew(r) && r.new.num("chargedTokens") != a.Amount && r.new.num("chargedTokens") != chargeOf(a):
		// A door's commit costs what it says; the library's, what its tool charges.
		return o.w.broken(invBooks, "%s costs %d or %d and is charged %d", r.key.sk, a.Amount, chargeOf(a), r.new.num("chargedTokens"))
	case applied && !beginsAnew(r) && by == "holder" && r.new.num("chargedTokens") != chargeOf(a):
		return o.w.broken(invBooks, "%s comes to %d and is charged %d", r.key.sk, chargeOf(a), r.new.num("chargedTokens"))
	case applied && !beginsAnew(r) && by != "holder" && r.new.num("chargedTokens") != a.Amount:
		return o.w.broken(invBooks, "%s costs %d and is charged %d by %s", r.key.sk, a.Amount, r.new.num("chargedTokens"), by)
	}
	return nil
}

// mayBeAbsent holds that nobody gives a call up as not applied while an act that was issued in time may still land. The clocks
// are less apart than the margin that is waited beside the horizon.
func (o *oracle) mayBeAbsent(r *record) error {
	failure := r.new.str("failure")
	if r.new.str("state") != "failed" || failure == "released" || r.old.str("failure") == failure {
		return nil
	}
	if s := serviceOf(r.new.str("tool")); s != nil && s.idempotent && failure == "expired" {
		return nil // acting again is harmless
	}
	within := horizon
	if stored := time.Duration(r.old.num("horizon")) * time.Millisecond; stored == horizon/hastier {
		within = stored // a hasty call says that its act lands sooner; nobody says any other horizon
	}
	if lands := time.UnixMilli(r.new.num("lastDeadline")).Add(within); o.w.now().Before(lands) {
		return o.w.broken(invHorizon, "%s %s was %s at %s, and may land until %s", r.key.pk, r.key.sk, failure,
			o.w.now().Format(time.TimeOnly), lands.UTC().Format(time.TimeOnly))
	}
	return nil
}

// keptLong holds that an ended row stays for its time, and until the periods that it debited are over.
func (o *oracle) keptLong(r *record) error {
	end := r.new.num("expiresAt")
	if s := r.new.str("state"); s != "applied" && s != "failed" || end == r.old.num("expiresAt") {
		return nil
	}
	least := r.new.num("updatedAt")/1000 + int64(keep/time.Second)
	most := least
	for _, it := range []item{r.old, r.new} { // what it gave back counts as well
		for name := range it.debits() {
			period, _, _ := strings.Cut(name, "/")
			most = max(most, periodEnd(period)+int64(closing/time.Second))
		}
	}
	for name := range r.new.debits() {
		period, _, _ := strings.Cut(name, "/")
		least = max(least, periodEnd(period))
	}
	switch {
	case end < least:
		return o.w.broken(invKept, "%s %s expires %d seconds early", r.key.pk, r.key.sk, least-end)
	case end > most+1:
		return o.w.broken(invKept, "%s %s expires %d seconds late", r.key.pk, r.key.sk, end-most)
	}
	return nil
}

// How long rows and quota items outlive a period, so that its books can be checked and late refunds find them.
const (
	closing   = 2 * 24 * time.Hour
	quotaKept = 40 * 24 * time.Hour
)

// periodEnd is when a period ends, in seconds; 0: never.
func periodEnd(name string) int64 {
	if day, err := time.Parse(time.DateOnly, name); err == nil {
		return day.AddDate(0, 0, 1).Unix()
	}
	if month, err := time.Parse("2006-01", name); err == nil {
		return month.AddDate(0, 1, 0).Unix()
	}
	return 0
}

// paidByToday holds that what begins is paid from the period that is current by the clock of whoever began it.
func (o *oracle) paidByToday(r *record) error {
	if !beginsAnew(r) {
		return nil
	}
	now := time.UnixMilli(r.new.num("updatedAt")).UTC()
	for name := range r.new.debits() {
		period, _, _ := strings.Cut(name, "/")
		if period != "ALWAYS" && period != now.Format(time.DateOnly) && period != now.Format("2006-01") {
			return o.w.broken(invQuota, "%s of %s is paid from period %s", r.key.sk, now.Format(time.DateTime), period)
		}
	}
	return nil
}

// quotaVersion holds that every change of a quota item raises its version by one: the ids of its events depend on it.
func (o *oracle) quotaVersion(r *record) error {
	want, end := int64(1), periodEnd(strings.TrimPrefix(r.key.sk, "QUOTA#"))
	switch {
	case r.new == nil:
		return nil
	case end != 0 && r.new.num("expiresAt") != end+int64(quotaKept/time.Second):
		return o.w.broken(invKept, "%v expires at %d, its period ends at %d", r.key, r.new.num("expiresAt"), end)
	case r.old != nil && r.old.str("quotaId") == r.new.str("quotaId"):
		want = r.old.num("version") + 1
	}
	if got := r.new.num("version"); got != want {
		return o.w.broken(invQuota, "%v has version %d, want %d", r.key, got, want)
	}
	return nil
}

// cursorMoved holds that a call which says where it expects its session's cursor finds it there.
func (o *oracle) cursorMoved(r *record, all []*record) error {
	if r.new == nil || r.old.str("cursor") == r.new.str("cursor") {
		return nil
	}
	for _, row := range all {
		moves := isRow(row.key) && !row.control && row.new.str("state") == "applied" && row.old.str("state") != "applied"
		if moves && row.new.has("expectCursor") && row.new.str("expectCursor") != r.old.str("cursor") {
			return o.w.broken(invCursor, "%s expects %q, and moved it from %q to %q",
				row.key.sk, row.new.str("expectCursor"), r.old.str("cursor"), r.new.str("cursor"))
		}
	}
	return nil
}

// leaseMoved holds that a shard is taken from a reader only once its lease is over, by whichever clock.
func (o *oracle) leaseMoved(r *record) error {
	was, is := r.old.str("owner"), r.new.str("owner")
	if was == "" || is == "" || was == is {
		return nil
	}
	if end := time.UnixMilli(r.old.num("deadline")); end.After(o.w.now().Add(skew)) {
		return o.w.broken(invReader, "%s took shard %s from %s at %s, whose lease lasted until %s",
			is, r.key.sk, was, o.w.now().Format(time.TimeOnly), end.UTC().Format(time.TimeOnly))
	}
	return nil
}

// endedMore looks at what an operation's caller was told.
func (o *oracle) endedMore(op *operation, code string) error {
	if op.intent == nil {
		return nil
	}
	it := o.w.store.ledger.items[op.rowKey()]
	if code == string(writers.ErrInProgress) {
		for _, r := range op.wrote {
			if beginsAnew(r) && r.key == op.rowKey() && r.new.str("state") == "pending" && it.str("state") == "pending" &&
				it.str("rowId") == r.new.str("rowId") && it.num("attempt") == r.new.num("attempt") {
				return o.w.broken(invOwnWrite, "operation %d %s was told in_progress by its own attempt %d",
					op.id, op.name(), it.num("attempt"))
			}
		}
	}
	for _, got := range op.results {
		if got.outcome != string(writers.OutcomeReplayed) || op.kind.name == "look" {
			continue
		}
		for _, r := range op.wrote {
			if beginsAnew(r) && r.key == op.rowKey() && r.new.str("state") == "applied" && r.new.str("rowId") == got.rowID {
				return o.w.broken(invOwnWrite, "operation %d %s was told that its own commit is a replay", op.id, op.name())
			}
		}
	}
	if code == string(writers.ErrSuperseded) {
		if err := o.sentAway(op, it); err != nil {
			return err
		}
	}
	return o.saidTruly(op, code)
}

// sentAway holds that a worker whose effect happened is told superseded only once the ledger knows of its attempt.
func (o *oracle) sentAway(op *operation, it item) error {
	name := attemptName(op.actRef.RowID, int64(op.actRef.Attempt))
	at := slices.IndexFunc(o.w.out.log, func(e *effect) bool {
		return e.opID == op.id && e.rowID == op.actRef.RowID && e.attempt == op.actRef.Attempt
	})
	known := func(it item) bool {
		mine := it.str("rowId") == op.actRef.RowID || it.str("settledFrom") == op.actRef.RowID
		return it.suspects()[name] || mine && it.str("state") == "applied" && it.num("appliedAttempt") == int64(op.actRef.Attempt)
	}
	if at < 0 || known(it) || slices.ContainsFunc(op.wrote, func(r *record) bool { return r.key == op.rowKey() && known(r.new) }) {
		return nil
	}
	o.w.mu.Lock()
	children := slices.Clone(o.w.children)
	o.w.mu.Unlock()
	for _, child := range children {
		if child.id%childOf == op.id && slices.ContainsFunc(child.wrote, func(r *record) bool { return known(r.new) }) {
			return nil
		}
	}
	return o.w.broken(invSuperseded, "operation %d was told superseded; its effect %s is nowhere, and %s is %s",
		op.id, o.w.out.log[at].ref, op.rowKey().sk, o.stateOf(op.rowKey()))
}

// childOf is what a child's number has above its parent's.
const childOf = 1_000_000

// acceptedID holds that an id belongs to one event. name is type, entity and version.
func (b *bus) acceptedID(id, name string) {
	if b.ids == nil {
		b.ids = map[string]string{}
	}
	if other, taken := b.ids[id]; taken && other != name {
		_ = b.w.broken(invEventIDs, "%s and %s have the id %s", other, name, id)
	}
	b.ids[id] = name
}
