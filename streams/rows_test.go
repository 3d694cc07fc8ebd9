package streams

import (
	"crypto/sha256"
	"slices"
	"time"

	"toolledger/internal/schema"
)

// The rows below are what the protocol says of each state, written by hand and not by any code of the writers.

var t0 = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

const (
	testTenant  = "acme"
	testSession = "s-1"
	testCall    = "pr-7f3c"
	testRow     = "row-1"
)

func hashOf(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:]
}

func pendingRow() *schema.Row {
	return &schema.Row{
		Key:   schema.RowKey(testTenant, testSession, schema.ScopeSession, testCall),
		RowID: testRow, Holder: "h-1", Version: 1, Attempt: 1, State: schema.StatePending, Tool: "push_branch",
		IntentHash: hashOf("intent"), ArgHashes: []byte("abcd"), Session: testSession, Scope: schema.ScopeSession,
		Horizon: time.Minute, Cursor: "c-2", ExpectCursor: new("c-1"), Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Lookup: "branch", Reserved: 20, Debits: []schema.Debit{{Period: "2026-11", Tokens: 20}},
		CreatedAt: t0, UpdatedAt: t0, Deadline: t0.Add(time.Minute), PendingBucket: schema.PendingBucket(testCall),
	}
}

// next is r after one more write.
func next(r *schema.Row, edits ...func(*schema.Row)) *schema.Row {
	n := clone(r)
	n.Version++
	n.UpdatedAt = n.UpdatedAt.Add(10 * time.Second)
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func clone(r *schema.Row) *schema.Row {
	n := *r
	n.Debits, n.Suspects = slices.Clone(r.Debits), slices.Clone(r.Suspects)
	return &n
}

func ended(r *schema.Row) {
	r.LastDeadline, r.Deadline, r.PendingBucket, r.Held = r.Deadline, time.Time{}, "", false
	r.SweepAt = time.Time{}
	r.ExpiresAt = r.UpdatedAt.Add(30 * 24 * time.Hour).Truncate(time.Second)
}

func finalize(charged int64) func(*schema.Row) {
	return func(r *schema.Row) {
		ended(r)
		r.State, r.AppliedAttempt, r.ResultJSON, r.SettledBy = schema.StateApplied, r.Attempt, new(`{"pr":7}`), schema.SettledByHolder
		r.Charged, r.Debits = charged, []schema.Debit{{Period: "2026-11", Tokens: charged}}
	}
}

func fail(kind string) func(*schema.Row) {
	return func(r *schema.Row) {
		ended(r)
		r.State, r.Failure = schema.StateFailed, kind
		if kind != schema.FailureReleased {
			r.Unverified = schema.UnverifiedExpired
		}
	}
}

func takeover(r *schema.Row) {
	r.State, r.Attempt, r.Holder = schema.StatePending, r.Attempt+1, "h-2"
	r.Deadline, r.PendingBucket = r.UpdatedAt.Add(time.Minute), schema.PendingBucket(testCall)
	r.Failure, r.By, r.Why, r.SettledBy = "", "", "", ""
	r.ExpiresAt, r.LastDeadline = time.Time{}, time.Time{}
}

func settleLate(by string) func(*schema.Row) {
	return func(r *schema.Row) {
		r.State, r.AppliedAttempt, r.ResultJSON, r.SettledBy = schema.StateApplied, r.Attempt, new(`{"pr":7}`), by
		r.Charged, r.Failure = schema.SumDebits(r.Debits), ""
		r.ExpiresAt = r.UpdatedAt.Add(30 * 24 * time.Hour)
	}
}

func commitFailed(r *schema.Row) {
	last := r.LastDeadline
	takeover(r)
	r.State, r.AppliedAttempt, r.ResultJSON, r.SettledBy = schema.StateApplied, r.Attempt, new(`{"pr":7}`), schema.SettledByHolder
	r.Charged, r.Deadline, r.PendingBucket = schema.SumDebits(r.Debits), time.Time{}, ""
	r.LastDeadline, r.ExpiresAt = last, r.UpdatedAt.Add(30*24*time.Hour)
}

func committedRow() *schema.Row {
	r := pendingRow()
	finalize(20)(r)
	r.LastDeadline = time.Time{}
	return r
}

// fenced is what a replaced worker leaves: its effect, with the newer attempt as suspect.
func fenced(r *schema.Row) {
	debits := r.Debits
	finalize(schema.SumDebits(debits))(r)
	r.Debits, r.AppliedAttempt = debits, r.Attempt-1
	r.Suspects = append(r.Suspects, schema.SuspectName(r.RowID, r.Attempt))
}

func hold(r *schema.Row) {
	r.Held, r.PendingBucket, r.SweepAt = true, schema.HeldBucket(testCall), time.Time{}
}

func resolveAbsent(r *schema.Row) {
	if r.State == schema.StatePending {
		ended(r)
	}
	r.State, r.Failure, r.By, r.Why = schema.StateFailed, schema.FailureResolved, "ops", "looked"
	r.Unverified = schema.UnverifiedExpired
}

// changeOf is the stream record of one write; nil: there was no item, there is none.
func changeOf(was, is *schema.Row) Change {
	c := Change{Sequence: "4711", Time: t0.Add(time.Hour), Op: OpModify, Stream: "arn:aws:dynamodb:eu-central-1:1:table/ledger/stream/x"}
	switch {
	case was == nil:
		c.Op = OpInsert
	case is == nil:
		c.Op = OpRemove
	}
	if was != nil {
		c.Keys, c.Old = was.Key, ImageOf(was.Item())
	}
	if is != nil {
		c.Keys, c.New = is.Key, ImageOf(is.Item())
	}
	return c
}
