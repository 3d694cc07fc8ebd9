package model

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The states of a row.
const (
	Pending = "pending"
	Applied = "applied"
	Failed  = "failed"
)

// The answers of operations beside "": what the codes of refusals are called.
const (
	Invalid        = "invalid_request"
	KeyConflict    = "key_conflict"
	InProgress     = "in_progress"
	OutcomeUnknown = "outcome_unknown"
	Superseded     = "attempt_superseded"
	Exhausted      = "quota_exhausted"
	NotProvisioned = "quota_not_provisioned"
	SessionMoved   = "session_moved"
	NotFound       = "not_found"
	NotCompensable = "not_compensable"
	Suspended      = "tenant_suspended"
)

// What the protocol fixes.
const (
	defaultHorizon = time.Minute
	rowsOutlive    = 2 * 24 * time.Hour  // a row the last period that it debited
	sessionsKeep   = 30 * 24 * time.Hour // a session the retention: the longest lease
	planLife       = time.Minute         // how long a process believes a plan
)

// Key is a call key with its scope.
type Key struct {
	ID   string
	Wide bool
}

func (k Key) scope() string {
	if k.Wide {
		return "tenant"
	}
	return "session"
}

func (k Key) name() string { return k.scope() + ":" + k.ID }

// Ref names an attempt with the deadline that it had.
type Ref struct {
	RowID    string
	Attempt  int64
	Deadline time.Time
}

// Call is one call.
type Call struct {
	Tenant, Session string
	Key             Key
	Tool, Args      string // Args in canonical form
	Tokens          int64
	Cursor          string
	Expect          *string
	Trace, Lookup   string
	Lease           time.Duration
	Horizon, Keep   time.Duration
	Idempotent      bool
	Verifier        bool
	Compensates     *Key
	Refund          bool
	Absent          Ref
	Commit          bool
	Result          string // of a Commit
}

// undoes is the row of the call that c compensates; the zero key for none. It is part of what a key stands for.
func (c Call) undoes() ItemKey {
	if c.Compensates == nil {
		return ItemKey{}
	}
	return c.rowKey(*c.Compensates)
}

func (c Call) horizon() time.Duration {
	if c.Horizon == 0 {
		return defaultHorizon
	}
	return c.Horizon
}

func (c Call) rowKey(k Key) ItemKey {
	if k.Wide {
		return ItemKey{"TENANT#" + c.Tenant + "#CALLS#" + strconv.Itoa(Bucket(k.ID, 16)), "TOOL#" + k.ID}
	}
	return ItemKey{"TENANT#" + c.Tenant + "#SESSION#" + c.Session, "TOOL#" + k.ID}
}

func (c Call) sessionKey() ItemKey {
	return ItemKey{"TENANT#" + c.Tenant + "#SESSION#" + c.Session, "META"}
}

// Row is a ledger row; Call is the call of its latest attempt.
type Row struct {
	Call
	RowID          string
	Version        int64
	Attempt        int64
	State          string
	Charged        int64
	Result         string
	AppliedAttempt int64
	Deadline       time.Time
	LastDeadline   time.Time
	Held           bool
	CompensatedBy  string
	CompensatedIn  string
	CompensatedAt  time.Time

	holder                     string
	shortfall                  int64
	debits                     Debits
	failure                    string
	unverified                 int64
	suspects                   map[string]bool
	created, updated, reserved time.Time
	bucket                     string
	sweepAt                    time.Time
	settledBy, settledFrom     string
	by, why                    string
	expires                    int64 // epoch seconds; 0 while pending
}

func (r *Row) overdue() time.Time {
	if r.State == Pending {
		return r.Deadline
	}
	return r.LastDeadline
}

// Hold is a reservation as its holder knows it.
type Hold struct {
	Call
	RowID    string
	Attempt  int64
	Reserved time.Time
	Deadline time.Time
	debits   Debits
	late     string // the id of the row that a settlement wrote anew
}

// Answer is what an operation answers. A Finalize may have both a Code and an Outcome.
type Answer struct {
	Code    string
	Or      string // a Code that would be as good, since two things are wrong at once
	Outcome string
	Again   string // an Outcome that would be as good
	JSON    string
	Attempt int64
	Charged int64
	Hold    *Hold
	Row     *Row // the row that a refusal speaks of

	Need, Remaining int64
	Cursor          string
}

type plan struct {
	Tokens    int64
	Kind      string
	Shards    int
	Overdraft int64

	version   int64
	suspended bool
	updated   time.Time
	until     time.Time // when it was replaced, on the test's clock
}

// Plan is what PutPlan sets.
type Plan struct {
	Tokens    int64
	Kind      string
	Shards    int
	Overdraft int64
}

type quota struct {
	id                 string
	version            int64
	granted, remaining int64
	extra              int64
	planVersion        int64
	suspended          bool
	created, updated   time.Time
	archived           int64 // debits of rows that are not there any more
}

type grant struct {
	tokens int64
	at     time.Time
}

type tenant struct {
	plan   *plan
	past   []*plan
	quotas map[Purse]*quota
	grants map[string]grant
}

type session struct {
	cursor  string
	version int64
	updated time.Time
	expires int64
}

type observation struct {
	id            string
	version       int64
	tool, session string
	updated       time.Time
	expires       int64
	counters      map[string]int64
}

// Model is a ledger.
type Model struct {
	Skew, Keep time.Duration
	Base       time.Time // the test's clock, which the processes' clocks are off from
	Table      Items     // the witness: the tables as they are after the operation that is asked about

	rows         map[ItemKey]*Row
	sessions     map[ItemKey]*session
	observations map[ItemKey]*observation
	tenants      map[string]*tenant
	ids          map[string]bool // random ids that were seen
	moves        Debits          // of the transaction that is being worked out
	faults       []string
}

// New returns an empty ledger.
func New(skew, keep time.Duration) *Model {
	return &Model{
		Skew: skew, Keep: keep, rows: map[ItemKey]*Row{}, sessions: map[ItemKey]*session{},
		observations: map[ItemKey]*observation{}, tenants: map[string]*tenant{}, ids: map[string]bool{},
	}
}

// Faults are choices that the table shows and the protocol does not allow.
func (m *Model) Faults() []string { return m.faults }

func (m *Model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *Model) tenant(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = &tenant{quotas: map[Purse]*quota{}, grants: map[string]grant{}}
		m.tenants[name] = t
	}
	return t
}

// fresh takes over a random id: it must be there, and not have been used.
func (m *Model) fresh(id, what string) string {
	if id == "" || m.ids[id] {
		m.fault("%s %q is not new", what, id)
	}
	m.ids[id] = true
	return id
}

// Look returns a row as a reader sees it: nil where it is absent or expired.
func (m *Model) Look(now time.Time, c Call) *Row { return m.live(now, c.rowKey(c.Key)) }

// Calls are all rows, in the order of their keys.
func (m *Model) Calls() []*Row {
	var rows []*Row
	for _, k := range slices.SortedFunc(maps.Keys(m.rows), func(a, b ItemKey) int { return strings.Compare(a.PK+"\x00"+a.SK, b.PK+"\x00"+b.SK) }) {
		rows = append(rows, m.rows[k])
	}
	return rows
}

func (m *Model) live(now time.Time, k ItemKey) *Row {
	r := m.rows[k]
	if r == nil || r.State != Pending && r.expires < now.Unix() {
		return nil
	}
	return r
}

func (m *Model) touch(r *Row, now time.Time) {
	r.Version++
	r.updated = now
}

// expiry is when a row that ends now may be forgotten.
func (m *Model) expiry(keep time.Duration, debits Debits, now time.Time) int64 {
	if keep == 0 {
		keep = m.Keep
	}
	at := now.Add(keep)
	for p := range debits {
		if end := EndOf(p.Period); !end.IsZero() && end.Add(rowsOutlive).After(at) {
			at = end.Add(rowsOutlive)
		}
	}
	return seconds(at)
}

func (m *Model) observe(now time.Time, c Call, found *Row, counter string) {
	row := c.rowKey(c.Key)
	k := ItemKey{"OBS#" + row.PK, row.SK}
	o := m.observations[k]
	if o == nil {
		o = &observation{id: m.fresh(m.Table[k].text("obsId"), "obsId"), counters: map[string]int64{}}
		m.observations[k] = o
	}
	o.version++
	o.tool, o.session = c.Tool, c.Session
	if found != nil {
		o.session = found.Session
	}
	o.updated, o.expires = now, seconds(now.Add(m.Keep))
	o.counters[counter]++
}

// Write is Commit and Reserve.
func (m *Model) Write(now time.Time, c Call) Answer {
	key := c.rowKey(c.Key)
	r := m.live(now, key)
	if r != nil {
		if a, done := m.decide(now, c, r); done {
			return a
		}
	}
	var original *Row
	if c.Compensates != nil {
		original = m.live(now, c.rowKey(*c.Compensates))
		if original == nil || original.State != Applied || !original.CompensatedAt.IsZero() ||
			original.CompensatedBy != "" && !original.undoneBy(c) {
			a := Answer{Code: NotCompensable}
			if c.Tokens > 0 && m.tenant(c.Tenant).plan == nil {
				a.Or = NotProvisioned
			}
			return a
		}
	}
	back := Debits{}
	if original != nil && c.Commit && c.Refund {
		back = m.existing(c.Tenant, original.debits)
	}
	debits, refusal := m.pay(now, c, back)
	if refusal != nil {
		return *refusal
	}
	if a, moved := m.cursor(now, c, c.Commit); moved {
		return a
	}
	if original != nil {
		m.link(now, c, original)
	}
	net := back
	for p, n := range debits {
		net[p] -= n
	}
	m.adjust(c.Tenant, net)
	return m.written(now, c, r, debits)
}

// decide is what a row that is there means; done is false where the call goes on.
func (m *Model) decide(now time.Time, c Call, r *Row) (Answer, bool) {
	switch {
	case !bytes.Equal(intentOf(r.Call), intentOf(c)) || r.undoes() != c.undoes():
		m.observe(now, c, r, "keyConflicts")
		return Answer{Code: KeyConflict, Row: r}, true
	case r.State == Applied:
		m.observe(now, c, r, "duplicates")
		return Answer{Outcome: "replayed", JSON: r.Result, Attempt: r.AppliedAttempt, Charged: r.Charged}, true
	case r.State == Failed && r.unverified == 0:
		return Answer{}, false
	case !now.After(m.Settles(r)):
		m.observe(now, c, r, "inFlight")
		return Answer{Code: InProgress, Row: r}, true
	}
	verified := c.Absent.RowID == r.RowID && c.Absent.Attempt == r.Attempt && c.Absent.Deadline.Equal(r.overdue())
	vouched := r.State == Failed && r.unverified == 2 && !c.Verifier
	if !verified && !vouched && (!c.Idempotent || !r.Idempotent) {
		m.observe(now, c, r, "inFlight")
		return Answer{Code: OutcomeUnknown, Row: r}, true
	}
	if r.State == Pending {
		m.fail(now, r, "expired", 1, "", "")
	}
	return Answer{}, false
}

// Settles is the moment from which "absent" counts.
func (m *Model) Settles(r *Row) time.Time { return r.overdue().Add(m.Skew + r.horizon()) }

// cursor checks, and moves where asked to, the session's cursor.
func (m *Model) cursor(now time.Time, c Call, move bool) (Answer, bool) {
	k := c.sessionKey()
	s := m.sessions[k]
	at := ""
	if s != nil {
		at = s.cursor
	}
	if c.Expect != nil && at != *c.Expect {
		return Answer{Code: SessionMoved, Cursor: at}, true
	}
	if !move || c.Cursor == "" {
		return Answer{}, false
	}
	if s == nil {
		s = &session{}
		m.sessions[k] = s
	}
	s.version++
	s.cursor, s.updated, s.expires = c.Cursor, now, seconds(now.Add(m.Keep+sessionsKeep))
	return Answer{}, false
}

// undoesIn is the session of a call that undoes another one, where its key does not say which call it is: several sessions may have the
// same key, and undo one call of their tenant.
func (c Call) undoesIn(original *Row) string {
	if original.Key.Wide && !c.Key.Wide {
		return c.Session
	}
	return ""
}

func (r *Row) undoneBy(c Call) bool {
	return r.CompensatedBy == c.Key.name() && r.CompensatedIn == c.undoesIn(r)
}

// link is the original's part of a compensating Commit or Reserve.
func (m *Model) link(now time.Time, c Call, original *Row) {
	if !c.Commit && original.undoneBy(c) {
		return
	}
	original.CompensatedBy, original.CompensatedIn = c.Key.name(), c.undoesIn(original)
	if c.Commit {
		original.CompensatedAt = now
		if c.Refund {
			original.debits = nil
		}
	}
	m.touch(original, now)
}

// written writes the row of a Commit or Reserve; r is the failed row that it follows, or nil.
func (m *Model) written(now time.Time, c Call, r *Row, debits Debits) Answer {
	key := c.rowKey(c.Key)
	seen := m.Table[key]
	if r == nil {
		m.gone(key)
		id := m.fresh(seen.text("rowId"), "rowId")
		r = &Row{RowID: id, holder: id, created: now, suspects: map[string]bool{}}
		m.rows[key] = r
	} else {
		r.holder = m.fresh(seen.text("holder"), "holder")
		r.reserved = now
	}
	r.Call, r.debits = c, debits
	r.Attempt++
	r.failure, r.by, r.why, r.Held, r.sweepAt, r.shortfall = "", "", "", false, time.Time{}, 0
	m.touch(r, now)
	if c.Commit {
		r.State, r.AppliedAttempt, r.Result, r.Charged, r.settledBy = Applied, r.Attempt, c.Result, c.Tokens, "holder"
		r.expires = m.expiry(c.Keep, debits, now)
		return Answer{Outcome: "applied", JSON: c.Result, Attempt: r.Attempt, Charged: c.Tokens}
	}
	r.State, r.Charged, r.settledBy = Pending, 0, ""
	r.Deadline, r.LastDeadline, r.expires = now.Add(c.Lease), time.Time{}, 0
	r.bucket = "PENDING#" + strconv.Itoa(Bucket(c.Key.ID, 16))
	return Answer{Hold: &Hold{Call: c, RowID: r.RowID, Attempt: r.Attempt, Reserved: now, Deadline: r.Deadline, debits: debits}}
}

// gone forgets a row that was removed or replaced: its debits leave the books.
func (m *Model) gone(k ItemKey) {
	r := m.rows[k]
	if r == nil {
		return
	}
	delete(m.rows, k)
	if r.State == Failed {
		return
	}
	for p, n := range r.debits {
		if q := m.tenant(r.Tenant).quotas[p]; q != nil {
			q.archived += n
		}
	}
}

// fail ends a pending row whose effect did not happen, or may not have: its debits go back and stay in the row.
func (m *Model) fail(now time.Time, r *Row, failure string, unverified int64, by, why string) {
	if r.State == Pending {
		m.adjust(r.Tenant, m.existing(r.Tenant, r.debits))
		m.leavePending(r)
	}
	r.State, r.failure, r.by, r.why = Failed, failure, by, why
	if unverified != 0 {
		r.unverified = unverified
	}
	r.expires = m.expiry(r.Keep, r.debits, now)
	m.touch(r, now)
}

func (m *Model) leavePending(r *Row) {
	r.LastDeadline, r.Deadline, r.bucket, r.sweepAt, r.Held = r.Deadline, time.Time{}, "", time.Time{}, false
}

// Forget removes what DynamoDB's time to live removes.
func (m *Model) Forget(now time.Time) (removed []ItemKey) {
	for k, it := range m.All() {
		if at := it.number("expiresAt"); at != 0 && at < now.Unix() {
			removed = append(removed, k)
		}
	}
	for _, k := range removed {
		m.gone(k)
		delete(m.sessions, k)
		delete(m.observations, k)
		for name, t := range m.tenants {
			for p := range t.quotas {
				if quotaKey(name, p) == k {
					delete(t.quotas, p)
				}
			}
		}
	}
	return removed
}

// Books says which quota items do not balance: granted − remaining = Σ debits of pending and applied rows, and of those
// archived.
func (m *Model) Books() (wrong []string) {
	for name, t := range m.tenants {
		for p, q := range t.quotas {
			sum := q.archived
			for _, r := range m.rows {
				if r.Tenant == name && r.State != Failed {
					sum += r.debits[p]
				}
			}
			if q.granted-q.remaining != sum {
				wrong = append(wrong, fmt.Sprintf("%s %v: granted %d, remaining %d, debits %d", name, p, q.granted, q.remaining, sum))
			}
		}
	}
	return wrong
}
