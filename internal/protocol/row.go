package protocol

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// A row may be written anew where there is none, or where one has ended and outlived its retention: DynamoDB removes
// expired items days late.
var exprAbsent = newFixed("attribute_not_exists(#pk) OR (#state IN (:applied, :failed) AND #expiresAt < :now)", "")

// PutRow is the row's part of Commit, of the first Reserve and of SettleNew.
func (t Tables) PutRow(r *schema.Row, now time.Time) types.TransactWriteItem {
	return exprAbsent.put(t.Ledger, r.Item(), schema.Item{
		":applied": valueApplied, ":failed": valueFailed, ":now": schema.N(now.Unix()),
	})
}

var (
	valueApplied = schema.S(schema.StateApplied)
	valueFailed  = schema.S(schema.StateFailed)
	valuePending = schema.S(schema.StatePending)
)

// Guard is what must hold of a row for a transition: the state, the row's identity, and the attempt or version that was
// looked at.
type Guard struct {
	State   string
	RowID   string
	Attempt int64
	Compare string // of the stored attempt with Attempt: "=", ">", ">=" or "" for any
	Version int64  // 0: any
	Intent  []byte // nil: any
}

func (g Guard) condition(c *change) string {
	cond := "#state = :guardState AND #rowId = :guardRow"
	c.values[":guardState"], c.values[":guardRow"] = schema.S(g.State), schema.S(g.RowID)
	if g.Compare != "" {
		cond += " AND #attempt " + g.Compare + " :guardAttempt"
		c.values[":guardAttempt"] = schema.N(g.Attempt)
	}
	if g.Version != 0 {
		cond += " AND #version = :guardVersion"
		c.values[":guardVersion"] = schema.N(g.Version)
	}
	if g.Intent != nil {
		cond += " AND #intentHash = :guardIntent"
		c.values[":guardIntent"] = schema.B(g.Intent)
	}
	return cond
}

// Holder is the guard of whoever holds one attempt: P AND R AND attempt = a.
func Holder(rowID string, attempt int64) Guard {
	return Guard{State: schema.StatePending, RowID: rowID, Attempt: attempt, Compare: "="}
}

// AsRead is the guard of whoever read the row and acts on what it said: state AND R AND version = v. The version moves
// with every write, so a deadline extended or an attempt begun in between refuses the transition.
func AsRead(r *schema.Row) Guard {
	return Guard{State: r.State, RowID: r.RowID, Version: r.Version}
}

// Takeover is the guard of the next attempt of a failed row.
func takeoverGuard(r *schema.Row, intent []byte) Guard {
	return Guard{State: schema.StateFailed, RowID: r.RowID, Attempt: r.Attempt, Compare: "=", Version: r.Version, Intent: intent}
}

// Takeover reserves a failed row again: attempt + 1 in the current period. next holds what the new attempt stores.
func (t Tables) Takeover(found, next *schema.Row) types.TransactWriteItem {
	c := newChange().
		put(schema.AState, valuePending).
		put(schema.ADeadline, schema.Millis(next.Deadline)).
		put(schema.APendingBucket, schema.S(next.PendingBucket)).
		drop(schema.AExpiresAt, schema.ALastDeadline)
	setAttempt(c, next)
	return c.item(t.Ledger, found.Key, takeoverGuard(found, next.IntentHash).condition(c))
}

// CommitFailed commits a failed row: straight to applied with attempt + 1; rowId, unverified and suspects are kept.
func (t Tables) CommitFailed(found, next *schema.Row) types.TransactWriteItem {
	c := newChange().
		put(schema.AState, valueApplied).
		put(schema.AApplied, schema.N(found.Attempt+1)).
		put(schema.AExpiresAt, schema.Seconds(next.ExpiresAt)).
		put(schema.ASettledBy, schema.S(schema.SettledByHolder)).
		putOr(schema.ACharged, next.Charged != 0, schema.N(next.Charged))
	setAttempt(c, next)
	setResult(c, next.ResultJSON, next.ResultRef)
	return c.item(t.Ledger, found.Key, takeoverGuard(found, next.IntentHash).condition(c))
}

// setAttempt sets what belongs to the attempt that begins, and clears what was said of the one before.
func setAttempt(c *change, next *schema.Row) {
	c.set.item("#attempt = #attempt + :one")
	c.put(schema.AHolder, schema.S(next.Holder)).
		put(schema.ASession, schema.S(next.Session)).
		put(schema.AUpdatedAt, schema.Millis(next.UpdatedAt)).
		put(schema.AReservedAt, schema.Millis(next.UpdatedAt)).
		putOr(schema.AReserved, next.Reserved != 0, schema.N(next.Reserved)).
		putOr(schema.ADebits, len(next.Debits) > 0, schema.DebitsValue(next.Debits)).
		putOr(schema.AIdempotent, next.Idempotent, schema.Bool(true)).
		putOr(schema.AVerifier, next.Verifier, schema.Bool(true)).
		putOr(schema.AHorizon, next.Horizon > 0, schema.N(next.Horizon.Milliseconds())).
		putOr(schema.AKeep, next.Keep > 0, schema.N(next.Keep.Milliseconds())).
		putOr(schema.ACursor, next.Cursor != "", schema.S(next.Cursor)).
		putOr(schema.ATrace, next.Trace != "", schema.S(next.Trace)).
		putOr(schema.ALookup, next.Lookup != "", schema.S(next.Lookup)).
		putOr(schema.AContention, next.Contention > 0, schema.N(next.Contention)).
		putOr(schema.ACompensates, next.Compensates != "", schema.S(next.Compensates)).
		putOr(schema.ARefundOrig, next.RefundOriginal, schema.Bool(true)).
		drop(schema.AFailure, schema.ABy, schema.AWhy, schema.ASweepAt, schema.AHeld, schema.AShortfall)
	if next.ExpectCursor != nil {
		c.put(schema.AExpectCursor, schema.S(*next.ExpectCursor))
	} else {
		c.drop(schema.AExpectCursor)
	}
	if next.State == schema.StatePending {
		c.drop(schema.ACharged, schema.ASettledBy)
	}
}

func setResult(c *change, inline *string, ref *schema.ResultRef) {
	switch {
	case ref != nil:
		c.put(schema.AResultRef, ref.Value())
	case inline != nil:
		c.put(schema.AResultJSON, schema.S(*inline))
	}
}

// Settlement is a transition to applied of a row that exists.
type Settlement struct {
	Applied    int64 // the attempt that took effect
	ResultJSON *string
	ResultRef  *schema.ResultRef
	Charged    int64 // debits + shortfall
	Shortfall  int64
	Debits     []schema.Debit
	KeepDebits bool   // the row's debits and charge are those of a newer attempt and stay
	SettledBy  string // SettledByHolder, SettledByVerify, SettledByPerson
	By, Why    string
	Suspect    string // an attempt that may have taken effect too
	Now        time.Time
	ExpiresAt  time.Time
}

// Settle moves a row to applied under g: Finalize, SweepFinalize and a person's applied from pending; SettleFenced from
// pending of a newer attempt; SettleLate and VerifySettle from failed.
func (t Tables) Settle(key schema.Key, g Guard, s Settlement) types.TransactWriteItem {
	c := newChange().
		put(schema.AState, valueApplied).
		put(schema.AApplied, schema.N(s.Applied)).
		put(schema.AUpdatedAt, schema.Millis(s.Now)).
		put(schema.AExpiresAt, schema.Seconds(s.ExpiresAt)).
		put(schema.ASettledBy, schema.S(s.SettledBy)).
		drop(schema.AFailure)
	setResult(c, s.ResultJSON, s.ResultRef)
	if !s.KeepDebits {
		c.putOr(schema.ADebits, len(s.Debits) > 0, schema.DebitsValue(s.Debits))
	}
	c.putOr(schema.ACharged, s.Charged != 0, schema.N(s.Charged)).
		putOr(schema.AShortfall, s.Shortfall != 0, schema.N(s.Shortfall)).
		putOr(schema.ABy, s.By != "", schema.S(s.By)).
		putOr(schema.AWhy, s.Why != "", schema.S(s.Why))
	if g.State == schema.StatePending {
		leavePending(c)
	}
	if s.Suspect != "" {
		c.addTo(schema.ASuspects, schema.SS(s.Suspect))
	}
	return c.item(t.Ledger, key, g.condition(c))
}

func leavePending(c *change) {
	c.copy(schema.ALastDeadline, schema.ADeadline).
		drop(schema.ADeadline, schema.APendingBucket, schema.ASweepAt, schema.AHeld)
}

// Failure is a transition to failed.
type Failure struct {
	Kind       string // FailureReleased, FailureExpired, FailureResolved
	Unverified int64  // 0 leaves it as it is: what is unverified stays so
	By, Why    string
	Now        time.Time
	ExpiresAt  time.Time
}

// Fail moves a row to failed under g: Release (the holder's guard), Expire and a person's not-applied (as read). The
// debits stay in the row, where they no longer count, since a late settlement debits the same items again.
func (t Tables) Fail(key schema.Key, g Guard, f Failure) types.TransactWriteItem {
	c := newChange().
		put(schema.AState, valueFailed).
		put(schema.AFailure, schema.S(f.Kind)).
		put(schema.AUpdatedAt, schema.Millis(f.Now)).
		put(schema.AExpiresAt, schema.Seconds(f.ExpiresAt)).
		putOr(schema.ABy, f.By != "", schema.S(f.By)).
		putOr(schema.AWhy, f.Why != "", schema.S(f.Why))
	if f.Unverified != 0 {
		c.put(schema.AUnverified, schema.N(f.Unverified))
	}
	if g.State == schema.StatePending {
		leavePending(c)
	}
	return c.item(t.Ledger, key, g.condition(c))
}

// Extend moves the deadline forward, never back, and not on a row that is held for a person.
func (t Tables) Extend(key schema.Key, rowID string, attempt int64, deadline, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.ADeadline, schema.Millis(deadline)).put(schema.AUpdatedAt, schema.Millis(now))
	cond := Holder(rowID, attempt).condition(c) + " AND #deadline < :deadline AND attribute_not_exists(#held)"
	return c.item(t.Ledger, key, cond)
}

// Defer makes the sweeper come back to a row at a later time; the deadline does not move.
func (t Tables) Defer(r *schema.Row, sweepAt, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.ASweepAt, schema.Millis(sweepAt)).put(schema.AUpdatedAt, schema.Millis(now))
	return c.item(t.Ledger, r.Key, AsRead(r).condition(c))
}

// Hold gives a row to a person: it leaves the sweeper's buckets and stays pending.
func (t Tables) Hold(r *schema.Row, bucket string, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.AHeld, schema.Bool(true)).put(schema.APendingBucket, schema.S(bucket)).
		put(schema.AUpdatedAt, schema.Millis(now)).drop(schema.ASweepAt)
	return c.item(t.Ledger, r.Key, AsRead(r).condition(c))
}

// Suspect records on whatever row is there that another attempt may have taken effect too, once.
func (t Tables) Suspect(key schema.Key, rowID, suspect string, now time.Time) types.TransactWriteItem {
	c := newChange().addTo(schema.ASuspects, schema.SS(suspect)).put(schema.AUpdatedAt, schema.Millis(now))
	c.values[":guardRow"], c.values[":suspect"] = schema.S(rowID), schema.S(suspect)
	return c.item(t.Ledger, key, "#rowId = :guardRow AND NOT contains(#suspects, :suspect)")
}
