package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// TestCompensationIsReplayed: a compensating call that was applied is replayed like any other, although its original is
// compensated by now, or gone.
func TestCompensationIsReplayed(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("original"), "booked")
	undo := call("undo", func(c *writers.Call) {
		c.Compensates, c.RefundOriginal, c.Tokens = writers.SessionKey("original"), true, 1
	})
	first := g.commit(g.session(), undo, "cancelled")
	again := g.commit(g.session(), undo, "another")
	if again.Outcome != writers.OutcomeReplayed || string(again.JSON) != string(first.JSON) {
		t.Errorf("got %s %s", again.Outcome, again.JSON)
	}
	_, done, err := g.session().Reserve(t.Context(), undo)
	if err != nil || done == nil || done.Outcome != writers.OutcomeReplayed {
		t.Errorf("reserve: %v, %v", done, err)
	}
	other := undo
	other.Tool = "another"
	_, err = g.session().Commit(t.Context(), other, "x")
	g.wantCode(err, writers.ErrKeyConflict)
	g.remove(rowKey("original"))
	if again := g.commit(g.session(), undo, "another"); again.Outcome != writers.OutcomeReplayed {
		t.Errorf("the original is gone: %s", again.Outcome)
	}
	second := undo
	second.Key = writers.SessionKey("undo-2")
	_, err = g.session().Commit(t.Context(), second, "x")
	g.wantCode(err, writers.ErrNotCompensable)
	g.wantRemaining(999)
	g.remove(rowKey("undo"))
}

// TestNoActAfterTheDeadline: a reserve whose answer took longer than the lease gives no right to act.
func TestNoActAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for range 20 {
		g := newLedgerRig(t)
		g.in.Set(faults.At(faults.Call, "TransactWriteItems", 1, faults.Pass().After(func() { g.advance(2 * time.Minute) })))
		acts := 0
		tool := &writers.Tool[struct{}, string]{
			Name: "book", Cost: 5, Act: func(context.Context, writers.Attempt[struct{}]) (string, error) { acts++; return "x", nil },
		}
		_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
		g.wantCode(err, writers.ErrNotApplied)
		if acts != 0 {
			t.Fatal("acted after the deadline")
		}
		g.wantRow("k", schema.StateFailed, 1, 0)
		g.balanced()
	}
}

// TestLeaseFinerThanTheTable: a lease of fractions of a millisecond ends when the row says so: extending it twice in one moment is
// no contention, and a verdict on the deadline that the holder was told counts.
func TestLeaseFinerThanTheTable(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	lease := time.Minute + 900*time.Microsecond
	hold := g.reserve(g.session(), call("k", func(c *writers.Call) { c.Lease = lease }))
	for range 2 {
		g.must(hold.Extend(t.Context(), lease))
	}
	g.advance(time.Second)
	g.must(hold.Extend(t.Context(), lease))
	row, err := g.session().Get(t.Context(), writers.SessionKey("k"))
	g.must(err)
	if row.Ref() != hold.Ref() {
		t.Errorf("the row says %v, the holder %v", row.Ref(), hold.Ref())
	}
	g.pastVerdict()
	again := g.reserve(g.session(), call("k", func(c *writers.Call) { c.VerifiedAbsent, c.Lease = hold.Ref(), lease }))
	if again.Attempt != 2 {
		t.Errorf("attempt %d", again.Attempt)
	}
	g.must(again.Release(t.Context(), ""))
	g.balanced()
}

// TestActEndsWithTheLease: while an extension hangs, Act's context still ends before the deadline that is recorded.
func TestActEndsWithTheLease(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.in.Set(faults.When(faults.Call, "TransactWriteItems", 1, func(e faults.Event) (faults.Fault, bool) { return faults.Hang(), e.N == 2 }))
	tool := &writers.Tool[struct{}, string]{
		Name: "book", Cost: 5, Lease: 600 * time.Millisecond,
		Act: func(ctx context.Context, _ writers.Attempt[struct{}]) (string, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(5 * time.Second):
				return "acted too long", nil
			}
		},
	}
	began := time.Now()
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	g.wantCode(err, writers.ErrOutcomeUnknown)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestNestedNotApplied: that an inner call did not take effect says nothing about the tool that made it.
func TestNestedNotApplied(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	inner := &writers.Tool[struct{}, string]{
		Name: "inner", Act: func(context.Context, writers.Attempt[struct{}]) (string, error) {
			return "", writers.NotApplied(errors.New("no seats"))
		},
	}
	outer := &writers.Tool[struct{}, string]{
		Name: "outer", Cost: 5, Act: func(ctx context.Context, _ writers.Attempt[struct{}]) (string, error) {
			_, err := inner.Do(ctx, g.session(), writers.SessionKey("inner"), struct{}{})
			return "", err
		},
	}
	_, err := outer.Do(t.Context(), g.session(), writers.SessionKey("outer"), struct{}{})
	g.wantCode(err, writers.ErrOutcomeUnknown)
	g.wantRow("outer", schema.StatePending, 1, 0)
	g.wantRow("inner", schema.StateFailed, 1, 0)
	for name, mark := range map[string]error{
		"marked": writers.NotApplied(errors.New("x")), "wrapped": errors.Join(errors.New("x"), writers.NotApplied(errors.New("y"))),
		"the code": writers.ErrNotApplied,
	} {
		plain := &writers.Tool[struct{}, string]{
			Name: "plain", Act: func(context.Context, writers.Attempt[struct{}]) (string, error) { return "", mark },
		}
		_, err = plain.Do(t.Context(), g.session(), writers.SessionKey(name), struct{}{})
		g.wantCode(err, writers.ErrNotApplied)
	}
}

// TestWaitGivesTheRow: Wait whose context ends in the middle of a read still gives the pending row beside ErrInProgress.
func TestWaitGivesTheRow(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.reserve(g.other(), call("k"))
	g.in.Set(faults.At(faults.Call, "GetItem", 2, faults.Hang()))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	row, err := g.session().Wait(ctx, writers.SessionKey("k"))
	g.wantCode(err, writers.ErrInProgress)
	if row.State != writers.StatePending || row.Attempt != 1 {
		t.Errorf("got %+v", row)
	}
}

// TestShardIsMissing: a period of which somebody has removed a shard by hand is refused, not stumbled over.
func TestShardIsMissing(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 1000, Shards: 4})
	g.remove(schema.QuotaKey("acme", "2026-10", 0))
	g.wantCode(g.ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 10, Shards: 3}), writers.ErrUnavailable)
	g.wantCode(g.ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 10, Shards: 4}), writers.ErrUnavailable)

	item := g.item(g.table, schema.QuotaKey("acme", "2026-10", 1))
	item[schema.AShard] = schema.N(60)
	g.replace(item)
	_, err := g.ledger.Tenant("acme").Quota(t.Context())
	g.wantCode(err, writers.ErrUnavailable)
}

// TestRejectedAfterALostAnswer: the SDK loses an answer, tries again and is rejected, its credentials having run out: what
// the first try wrote is recognised all the same.
func TestRejectedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		switch s.name {
		case "commit", "reserve", "takeover", "finalize", "settle late", "settle new", "release", "commit of a failed row":
		default:
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var writes int
			for _, e := range requestsOf(t, s) {
				if e.Op == "TransactWriteItems" {
					writes++
				}
			}
			g := newLedgerRig(t)
			op := s.prepare(g)
			last := 0
			g.in.Set(func(e faults.Event) faults.Fault {
				if e.Level == faults.Call && e.Op == "TransactWriteItems" {
					last = e.N
				}
				switch {
				case e.Level != faults.Try || e.Op != "TransactWriteItems" || last != writes:
					return faults.Fault{}
				case e.Try == 1:
					return faults.Lose()
				}
				return faults.Fail(faults.Denied())
			})
			if err := op(t.Context()); err != nil {
				t.Error(err)
			}
			s.check(g)
			g.balanced()
		})
	}
}

// TestTooManyWrites: writes of the tool's own that leave no room for the shards that pay are refused in so many words.
func TestTooManyWrites(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 32, Shards: 32})
	own := make([]types.TransactWriteItem, 90)
	for i := range own {
		own[i].Delete = &types.Delete{TableName: new(g.table + "-own"), Key: keyItem(schema.Key{PK: "mine", SK: fmt.Sprint(i)})}
	}
	g.must(g.makeTable(g.table + "-own"))
	big := call("k", func(c *writers.Call) { c.Tokens, c.Writes = 30, own })
	g.unchanged(func() {
		_, err := g.session().Commit(t.Context(), big, "r")
		if e := g.wantCode(err, writers.ErrInvalid); e.Field != "writes" {
			t.Errorf("field %q", e.Field)
		}
	})
	big.Tokens = 1
	g.commit(g.session(), big, "r")
	g.balanced()
}

// TestReservationOfAnotherRow: who finalizes by row id and attempt, and finds the row of a later action under its key, is told
// that it was superseded, also where repeating is harmless: the result that is there answers other arguments. What names no row
// that could ever be is refused before it can be kept as a suspect.
func TestReservationOfAnotherRow(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("k", func(c *writers.Call) { c.Idempotent = true }), "the later action's")
	old, err := g.session().Reservation(t.Context(), writers.SessionKey("k"), "row-of-an-earlier-action", 1)
	if err != nil {
		t.Fatal(err)
	}
	out, err := old.Finalize(t.Context(), "the earlier action's", 0)
	g.wantCode(err, writers.ErrSuperseded)
	if out.JSON != nil {
		t.Errorf("got the result of another action: %s", out.JSON)
	}
	if row := g.row("k"); !slices.Contains(row.Suspects, "row-of-an-earlier-action/1") {
		t.Errorf("suspects %v", row.Suspects)
	}
	for _, id := range []string{"", " ", "a#b", strings.Repeat("x", 65)} {
		_, err := g.session().Reservation(t.Context(), writers.SessionKey("k"), id, 1)
		g.wantCode(err, writers.ErrInvalid)
	}
}
