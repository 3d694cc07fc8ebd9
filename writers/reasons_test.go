package writers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

// Promise: messages say what happened, why, and what to do, in these words; programs match codes, people read this.
func TestMessages(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 53, 2, 0, time.UTC)
	l := testLedger(t, &fakeDB{})
	s := l.Tenant("acme").Session("s")
	r, err := s.newRequest("reserve", Call{Key: SessionKey("pr-7f3c"), Tool: "create_pr", Args: map[string]any{"branch": "b"}, Tokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	other, err := canon.HashArgs("create_pr", map[string]any{"branch": "secret"})
	if err != nil {
		t.Fatal(err)
	}
	row := &schema.Row{
		Key: r.key, RowID: "r", Attempt: 1, State: schema.StatePending, Tool: "create_pr", Session: "s", ArgHashes: canon.EncodeArgHashes(other.Args),
		CreatedAt: at, Deadline: at.Add(time.Minute),
	}
	settles := row.Deadline.Add(3 * time.Minute)
	changed := func(change func(*schema.Row)) *schema.Row { c := *row; change(&c); return &c }
	held := changed(func(r *schema.Row) { r.Held = true })
	failed := changed(func(r *schema.Row) { r.State, r.Deadline, r.LastDeadline = schema.StateFailed, time.Time{}, r.Deadline })
	hold := s.hold(r.Key, row)
	for want, err := range map[string]error{
		`reserve: key_conflict: key "pr-7f3c" was first used for another action (differs: branch); nothing was written; use a new key for a new action, or send the first arguments to get its result`:                           r.conflict(row),
		`reserve: key_conflict: key "pr-7f3c" was first used for another action (differs: tool, branch); nothing was written; use a new key for a new action, or send the first arguments to get its result`:                     r.conflict(changed(func(r *schema.Row) { r.Tool = "x" })),
		`reserve: in_progress: attempt 1 of "pr-7f3c" is running until 01:54:02Z; it was not started again; repeat the same call in 5s or wait for its result`:                                                                   r.inProgress(row, settles, at),
		`reserve: in_progress: attempt 1 of "pr-7f3c" is running until 2026-11-30T01:54:02Z; it was not started again; repeat the same call in 5s or wait for its result`:                                                        r.inProgress(row, settles, at.AddDate(0, 0, -9)),
		`reserve: in_progress: attempt 1 of "pr-7f3c" ended at 01:54:02Z unrecorded and may still land until 01:57:02Z; it was not started again; repeat the same call in 2s or wait for its result`:                             r.inProgress(row, settles, settles.Add(-2*time.Second)),
		`reserve: in_progress: attempt 1 of "pr-7f3c" was given back, but may still land until 01:57:02Z; it was not started again; repeat the same call in 1s or wait for its result`:                                           r.inProgress(failed, settles, settles),
		`reserve: in_progress: attempt 1 of "pr-7f3c" is held for a person to decide; it was not started again; repeat the same call in 5s or wait for its result`:                                                               r.inProgress(held, settles, at),
		`reserve: outcome_unknown: attempt 1 of "pr-7f3c" ended without a record and may have taken effect; it was not started again; ask the outside system, then resolve it as applied or repeat the call with VerifiedAbsent`: r.unknown(row),
		`reserve: outcome_unknown: attempt 1 of "pr-7f3c" is held: nobody could tell whether it took effect; it was not started again; a person must resolve it`:                                                                 r.unknown(held),
		`reserve: quota_exhausted: needs 20 tokens, 19 of 1,000 remain in 2026-11; nothing was done; the next period begins 2026-12-01T00:00Z; raise the plan or wait, retrying does not help`:                                   r.exhausted(&exhaustedError{"2026-11", 1000, 19}),
		`reserve: quota_exhausted: needs 20 tokens, -1,234 of 1,000 remain in ALWAYS; nothing was done; the quota never resets; raise the plan or wait, retrying does not help`:                                                  r.exhausted(&exhaustedError{"ALWAYS", 1000, -1234}),
		`reserve: quota_not_provisioned: tenant "acme" has no plan; nothing was done; give it one (toolledger plan, Tenant.PutPlan)`:                                                                                             notProvisioned("reserve", "acme"),
		`reserve: tenant_suspended: an operator stopped tenant "acme"; nothing was done; try again once it is resumed`:                                                                                                           suspended("reserve", "acme"),
		`commit: session_moved: session "s" is at cursor "c2", not at "c1"; nothing was written; read the session's calls and plan again`:                                                                                        sessionMoved("commit", "s", "c2", new("c1")),
		`commit: unavailable: contention did not end after 30 tries; nothing was written; repeat the call with the same key, or give the tenant more shards`:                                                                     contention("commit", 30),
		`commit: invalid_request: tokens must be between 0 and 2^53; nothing was written`:                                                                                                                                        invalid("commit", "tokens", "must be between 0 and 2^53"),
		`get: not_found: no call with key "pr-7f3c" in this session`:                                                                                notFound("get", r.Key),
		`release: attempt_superseded: the call is recorded as applied; read its result with the same key`:                                           hold.superseded("release", changed(func(r *schema.Row) { r.State = schema.StateApplied })),
		`extend: attempt_superseded: a newer attempt owns the call; stop`:                                                                           hold.superseded("extend", changed(func(r *schema.Row) { r.Attempt = 2 })),
		`extend: attempt_superseded: the call is held for a person to decide; finalize is still accepted`:                                           hold.superseded("extend", held),
		`extend: attempt_superseded: the call is not in the ledger any more; nothing was written`:                                                   hold.superseded("extend", nil),
		`commit: unavailable: DynamoDB did not answer; the call may or may not be recorded; repeat it with the same key: context deadline exceeded`: unavailable("commit", context.DeadlineExceeded),
		`act: not_applied: no seats`: NotApplied(errors.New("no seats")),
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("an argument is told: %s", err)
		}
	}
}

// Promise: what may be tried again says after how long, and what may not says 0, which means stop.
func TestRetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left := time.Duration(rapid.Int64().Draw(t, "left"))
		if got := retryIn(left); got < time.Second || got > retryMost {
			t.Fatalf("%s: %s", left, got)
		}
	})
	for _, e := range []*Error{
		notProvisioned("x", "a"), suspended("x", "a"), sessionMoved("x", "s", "", nil), invalid("x", "f", "r"), notFound("x", Key{}), rejected("x", nil), unreadable("x", nil),
	} {
		if e.RetryAfter != 0 {
			t.Errorf("%v: %s", e, e.RetryAfter)
		}
	}
	for _, e := range []*Error{contention("x", 3), unavailable("x", nil)} {
		if e.RetryAfter <= 0 {
			t.Errorf("%v: stop", e)
		}
	}
}

// Promise: numbers are written with their thousands apart, and read as themselves.
func TestTokensText(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567", -1 << 63: "-9,223,372,036,854,775,808"} {
		if got := tokens(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		if got := strings.ReplaceAll(tokens(n), ",", ""); got != fmt.Sprint(n) {
			t.Fatalf("%d: %s", n, got)
		}
	})
}

// Promise: free text that explains is cut to its limit and cleaned, never refused: what is left is what an item may hold.
func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		got := clip(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || schema.CheckText("why", got, limit) != nil {
			t.Fatalf("%q in %d: %q", s, limit, got)
		}
		if schema.CheckText("why", s, limit) == nil && got != s {
			t.Fatalf("%q was changed to %q", s, got)
		}
		if len(got) < limit-3 && len(s) > limit {
			t.Fatalf("%q in %d lost more than it had to: %q", s, limit, got)
		}
	})
	if got := clip("a\nb\xffcé", 6); got != "a b?c" {
		t.Errorf("%q", got)
	}
}

// Promise: sizes are told as people read them.
func TestSizeText(t *testing.T) {
	for n, want := range map[int]string{0: "0.0 KB", 1536: "1.5 KB", 256 << 10: "256.0 KB", 5347738: "5.1 MB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
