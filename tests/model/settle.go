package model

import (
	"bytes"
	"strconv"
	"time"
)

// settlement is how an effect is recorded.
type settlement struct {
	call    Call
	result  string
	charged int64
	by      string // holder, person
	who     string
	why     string
	holder  bool // moves the cursor also where none was expected
}

// Finalize records that the effect of a hold happened.
func (m *Model) Finalize(now time.Time, h *Hold, result string, charged int64) Answer {
	key := h.rowKey(h.Key)
	r := m.live(now, key)
	s := settlement{call: h.Call, result: result, charged: charged, by: "holder"}
	switch {
	case r == nil:
		return m.settleNew(now, h, s)
	case r.settledFrom == h.RowID && r.AppliedAttempt == h.Attempt:
		return m.stored(r, "settled_late")
	case r.RowID != h.RowID, r.State == Applied && r.AppliedAttempt != h.Attempt:
		return m.suspect(now, h, r)
	case r.State == Applied:
		a := m.stored(r, "applied")
		a.Again = "settled_late" // where that is how it was recorded
		return a
	case r.State == Failed:
		return m.settle(now, r, s, h.Attempt, m.debitAgain(r, charged), "settled_late")
	case r.Attempt > h.Attempt:
		r.suspects[r.RowID+"/"+strconv.FormatInt(r.Attempt, 10)] = true
		s.charged = r.debits.Sum() // the newer attempt has paid
		return m.settle(now, r, s, h.Attempt, r.debits, "settled_late")
	}
	s.holder = true
	return m.settle(now, r, s, h.Attempt, m.finalBill(now, r, charged), "applied")
}

func (m *Model) stored(r *Row, outcome string) Answer {
	return Answer{Outcome: outcome, JSON: r.Result, Attempt: r.AppliedAttempt, Charged: r.Charged}
}

// suspect marks the row of another attempt.
func (m *Model) suspect(now time.Time, h *Hold, r *Row) Answer {
	name := h.RowID + "/" + strconv.FormatInt(h.Attempt, 10)
	if !r.suspects[name] {
		r.suspects[name] = true
		m.touch(r, now)
	}
	if r.State == Applied && h.Idempotent && r.Idempotent && bytes.Equal(intentOf(h.Call), intentOf(r.Call)) {
		return m.stored(r, "replayed")
	}
	return Answer{Code: Superseded, Row: r}
}

// settle moves a row to applied with the debits that it then has.
func (m *Model) settle(now time.Time, r *Row, s settlement, attempt int64, debits Debits, outcome string) Answer {
	m.compensated(now, s.call)
	m.adjust(r.Tenant, m.moves)
	m.moves = nil
	r.shortfall = s.charged - debits.Sum()
	r.debits, r.Charged = debits, s.charged
	if r.State == Pending {
		m.leavePending(r)
	}
	r.State, r.AppliedAttempt, r.Result = Applied, attempt, s.result
	r.settledBy, r.by, r.why, r.failure = s.by, s.who, s.why, ""
	r.expires = m.expiry(s.call.Keep, debits, now)
	m.touch(r, now)
	return m.answer(now, s, r, outcome)
}

// answer moves the cursor and answers.
func (m *Model) answer(now time.Time, s settlement, r *Row, outcome string) Answer {
	a := m.stored(r, outcome)
	if s.call.Cursor == "" || !s.holder && s.call.Expect == nil {
		return a
	}
	if moved, refused := m.cursor(now, s.call, true); refused {
		a.Code, a.Cursor = moved.Code, moved.Cursor
	}
	return a
}

// settleNew records the effect of a hold whose row is gone.
func (m *Model) settleNew(now time.Time, h *Hold, s settlement) Answer {
	key := h.rowKey(h.Key)
	m.gone(key)
	seen := m.Table[key]
	debits := seen.debits()
	t := m.tenant(h.Tenant)
	if s.charged == 0 || t.plan == nil {
		if len(debits) > 0 {
			m.fault("debits %v for nothing, or without a plan", debits)
		}
	} else {
		period := PeriodOf(t.plan.Kind, now)
		m.create(now, h.Tenant, period)
		for p, n := range debits {
			if p.Period != period || !m.shardsOf(t, h.Key.ID)[p.Shard] || n != s.charged {
				m.fault("the late debit %v is not %d from the key's own shard of %s", debits, s.charged, period)
			}
		}
		if len(debits) != 1 {
			m.fault("the late debit of %d is %v", s.charged, debits)
		}
	}
	m.take(nil, debits)
	id := seen.text("rowId")
	if id != h.late { // a holder that repeats itself recognises its row by its id
		h.late = m.fresh(id, "rowId")
	}
	c := h.Call
	c.Commit = false
	r := &Row{
		Call: c, RowID: id, holder: id, Attempt: h.Attempt, State: Failed, created: h.Reserved, LastDeadline: h.Deadline,
		settledFrom: h.RowID, suspects: map[string]bool{},
	}
	m.rows[key] = r
	return m.settle(now, r, s, h.Attempt, debits, "settled_late")
}

// take notes what moves from the debits that a row had to those that it then has. One transaction names an item once: settle
// nets all that was noted.
func (m *Model) take(had, has Debits) {
	if m.moves == nil {
		m.moves = Debits{}
	}
	for p, n := range had {
		m.moves[p] += n
	}
	for p, n := range has {
		m.moves[p] -= n
	}
}

// debitAgain debits the last items of a row that had been given back, whatever remains there.
func (m *Model) debitAgain(r *Row, charged int64) Debits {
	last := r.debits
	there := m.existing(r.Tenant, last)
	debits := m.Table[r.rowKey(r.Key)].debits()
	want := charged - max(0, last.Sum()-there.Sum())
	if charged <= last.Sum() {
		want = min(charged, there.Sum())
	}
	if len(there) == 0 {
		want = 0
	}
	if debits.Sum() != want {
		m.fault("%d of %d debited again on %v: %v", debits.Sum(), want, last, debits)
	}
	for p, n := range debits {
		if there[p] == 0 || charged <= last.Sum() && n > there[p] {
			m.fault("%v debited again, not on %v", debits, there)
		}
	}
	m.take(nil, debits)
	return debits
}

// finalBill turns a reservation's debits into the final charge.
func (m *Model) finalBill(now time.Time, r *Row, charged int64) Debits {
	debits := m.Table[r.rowKey(r.Key)].debits()
	there := m.existing(r.Tenant, r.debits)
	for p, n := range r.debits {
		if debits[p] == n { // nothing moves there: nobody asked whether the item is still there
			there[p] = n
		}
	}
	if charged <= r.debits.Sum() {
		if want := min(charged, there.Sum()); debits.Sum() != want {
			m.fault("%d of %d kept of %v: %v", debits.Sum(), want, there, debits)
		}
		for p, n := range debits {
			if n > there[p] {
				m.fault("%d kept of %v", n, there)
			}
		}
		m.take(there, debits)
		return debits
	}
	m.checkExtra(now, r, there, debits, charged-r.debits.Sum())
	m.take(there, debits)
	return debits
}

// checkExtra checks what was taken on top of a reservation: from one item, down to the overdraft, and as much as there is.
func (m *Model) checkExtra(now time.Time, r *Row, there, debits Debits, extra int64) {
	t := m.tenant(r.Tenant)
	taken := debits.Sum() - there.Sum()
	choices := map[Purse]bool{} // the items that may be asked
	for p := range m.existing(r.Tenant, there) {
		choices[p] = true
	}
	if len(there) == 0 && t.plan != nil {
		period := PeriodOf(t.plan.Kind, now)
		if len(r.debits) == 0 {
			m.create(now, r.Tenant, period)
		}
		for shard := range m.shardsOf(t, r.Key.ID) {
			if p := (Purse{period, shard}); t.quotas[p] != nil {
				choices[p] = true
			}
		}
	}
	more := 0
	for p, n := range debits {
		if n != there[p] {
			more++
		}
		if n < there[p] || n > there[p] && !choices[p] {
			m.fault("final debits %v of %v", debits, there)
		}
	}
	switch {
	case taken < 0 || taken > extra || more > 1:
		m.fault("%d of %d taken on top, by %d items", taken, extra, more)
	case len(choices) == 0 && taken > 0:
		m.fault("%d taken from nobody", taken)
	case len(choices) > 0 && !m.allowedExtra(t, r.Call, choices, there, debits, extra):
		m.fault("%d of %d taken on top: %v of %v", taken, extra, debits, there)
	}
}

func (m *Model) allowedExtra(t *tenant, c Call, choices map[Purse]bool, there, debits Debits, extra int64) bool {
	taken := debits.Sum() - there.Sum()
	back := m.originalRefund(c)
	for _, plan := range m.believed(t) {
		var overdraft int64
		for p := range choices {
			q := t.quotas[p]
			if plan != nil {
				overdraft = share(plan.Overdraft, p.Shard, max(plan.Shards, p.Shard+1))
			}
			asked := debits[p]-there[p] == taken
			if asked && taken == min(extra, max(0, q.remaining+overdraft+back[p])) {
				return true
			}
		}
	}
	return false
}

// original is the row that a call compensates, where it may still be marked.
func (m *Model) original(c Call, now time.Time) *Row {
	if c.Compensates == nil {
		return nil
	}
	o := m.live(now, c.rowKey(*c.Compensates))
	if o == nil || o.State != Applied || !o.undoneBy(c) || !o.CompensatedAt.IsZero() {
		return nil
	}
	return o
}

func (m *Model) originalRefund(c Call) Debits {
	if c.Compensates == nil || !c.Refund {
		return Debits{}
	}
	o := m.rows[c.rowKey(*c.Compensates)]
	if o == nil {
		return Debits{}
	}
	return m.existing(c.Tenant, o.debits)
}

// compensated is the original's part of every transition of a compensating row to applied.
func (m *Model) compensated(now time.Time, c Call) {
	o := m.original(c, now)
	if o == nil {
		return
	}
	o.CompensatedAt = now
	m.touch(o, now)
	if c.Refund {
		m.take(m.existing(c.Tenant, o.debits), nil)
		o.debits = nil
	}
}

// Release records that the effect of a hold did not happen.
func (m *Model) Release(now time.Time, h *Hold, why string) Answer {
	r := m.rows[h.rowKey(h.Key)]
	switch {
	case r == nil:
		return Answer{}
	case r.RowID != h.RowID || r.Attempt > h.Attempt || r.State == Applied:
		return Answer{Code: Superseded, Row: r}
	case r.State == Pending:
		m.fail(now, r, "released", 0, "", why)
	}
	return Answer{}
}

// Extend moves a hold's deadline forward.
func (m *Model) Extend(now time.Time, h *Hold, lease time.Duration) Answer {
	r := m.rows[h.rowKey(h.Key)]
	if r == nil || r.RowID != h.RowID || r.Attempt != h.Attempt || r.State != Pending || r.Held {
		return Answer{Code: Superseded, Row: r}
	}
	if at := now.Add(lease); r.Deadline.Before(at) {
		r.Deadline = at
		m.touch(r, now)
	}
	if r.Deadline.After(h.Deadline) {
		h.Deadline = r.Deadline
	}
	return Answer{}
}

// Expire is the sweeper's end of an overdue row; Hold and Defer what it does where it cannot tell.
func (m *Model) Expire(now time.Time, c Call) {
	m.fail(now, m.rows[c.rowKey(c.Key)], "expired", 1, "", "")
}

// HoldRow gives a pending row to a person.
func (m *Model) HoldRow(now time.Time, c Call) {
	r := m.rows[c.rowKey(c.Key)]
	r.Held, r.sweepAt = true, time.Time{}
	r.bucket = "HELD#" + strconv.Itoa(Bucket(c.Key.ID, 16))
	m.touch(r, now)
}

// Defer makes the sweeper come back later.
func (m *Model) Defer(now time.Time, c Call, at time.Time) {
	r := m.rows[c.rowKey(c.Key)]
	r.sweepAt = at
	m.touch(r, now)
}

// Verdict is a person's verdict.
type Verdict struct {
	Applied bool
	RowID   string
	Attempt int64
	Result  string
	By, Why string
}

// Resolve records a person's verdict.
func (m *Model) Resolve(now time.Time, c Call, v Verdict) Answer {
	r := m.live(now, c.rowKey(c.Key))
	switch {
	case r == nil:
		return Answer{Code: NotFound}
	case v.RowID != "" && v.RowID != r.RowID || v.Attempt != r.Attempt:
		return Answer{Code: Superseded, Row: r}
	case v.Applied && r.State == Applied:
		return Answer{Row: r}
	case v.Applied:
		m.resolveApplied(now, r, v)
		return Answer{Row: r}
	case r.State == Applied:
		return Answer{Code: Superseded, Row: r}
	case r.State == Failed && (r.failure == "resolved" || r.unverified == 0):
		return Answer{Row: r}
	case !now.After(m.Settles(r)):
		return Answer{Code: InProgress, Row: r}
	}
	unverified := int64(2)
	if r.Verifier {
		unverified = 1
	}
	m.fail(now, r, "resolved", unverified, v.By, v.Why)
	return Answer{Row: r}
}

func (m *Model) resolveApplied(now time.Time, r *Row, v Verdict) {
	s := settlement{call: r.Call, result: v.Result, charged: r.Tokens, by: "person", who: v.By, why: v.Why}
	if r.State == Failed {
		m.settle(now, r, s, r.Attempt, m.debitAgain(r, r.Tokens), "")
		return
	}
	m.settle(now, r, s, r.Attempt, m.finalBill(now, r, r.Tokens), "")
}
