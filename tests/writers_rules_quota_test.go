package tests_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// A period is created from the plan that holds at that moment.
func TestRuleQuotaPlanCheck(t *testing.T) {
	t.Parallel()
	g := bareLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 100})
	g.once(2, func() { g.plan("acme", writers.Plan{Tokens: 300}) })
	g.commit(g.session(), call("k"), "r")
	if q := g.shard("acme", "2026-10", 0); q.Granted != 300 || q.Remaining != 295 {
		t.Errorf("granted %d, remaining %d", q.Granted, q.Remaining)
	}
	g.balanced()
}

// The first call of a period creates all its shards.
func TestRuleQuotaAllShards(t *testing.T) {
	t.Parallel()
	g := bareLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 10, Shards: 4})
	g.commit(g.session(), call("k", func(c *writers.Call) { c.Tokens = 1 }), "r")
	var granted []int64
	for i := range 4 {
		if q := g.shard("acme", "2026-10", i); q != nil {
			granted = append(granted, q.Granted)
		}
	}
	if fmt.Sprint(granted) != "[3 3 2 2]" {
		t.Errorf("shards were granted %v", granted)
	}
	g.balanced()
}

// A refund goes to the period that paid.
func TestRuleRefundPeriod(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.set(time.Date(2026, 10, 31, 23, 59, 59, 900e6, time.UTC))
	released, finalized := g.reserve(g.session(), call("a")), g.reserve(g.session(), call("b"))
	g.set(time.Date(2026, 11, 1, 0, 0, 10, 0, time.UTC))
	g.commit(g.session(), call("c", func(c *writers.Call) { c.Tokens = 100 }), "r")
	g.must(released.Release(t.Context(), ""))
	if _, err := finalized.Finalize(t.Context(), "r", 2); err != nil {
		t.Fatal(err)
	}
	if q := g.shard("acme", "2026-10", 0); q.Remaining != 998 {
		t.Errorf("October has %d", q.Remaining)
	}
	if q := g.shard("acme", "2026-11", 0); q.Remaining != 900 {
		t.Errorf("November has %d", q.Remaining)
	}
	g.balanced()
}

// keyOf finds a key whose calls begin at the given shard of n.
func keyOf(shard, n int) string {
	for i := range 1000 {
		if key := fmt.Sprint("key-", i); schema.Bucket(key, n) == shard {
			return key
		}
	}
	return ""
}

// A refund goes to the shard that paid, also where the plan has more shards by now.
func TestRuleRefundShard(t *testing.T) {
	t.Parallel()
	g := bareLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 20, Shards: 2})
	hold := g.reserve(g.session(), call(keyOf(1, 2)))
	g.plan("acme", writers.Plan{Tokens: 20, Shards: 2, Overdraft: 1})
	g.must(hold.Release(t.Context(), ""))
	for i := range 2 {
		if q := g.shard("acme", "2026-10", i); q.Remaining != 10 {
			t.Errorf("shard %d has %d", i, q.Remaining)
		}
	}
	g.balanced()
}

// A refund goes to the quota of the plan that paid.
func TestRuleRefundPlan(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.plan("acme", writers.Plan{Tokens: 50, Period: writers.Daily})
	g.commit(g.other(), call("day"), "r")
	g.must(hold.Release(t.Context(), ""))
	if q := g.shard("acme", "2026-10", 0); q.Remaining != 1000 {
		t.Errorf("the month has %d", q.Remaining)
	}
	if q := g.shard("acme", "2026-10-12", 0); q.Remaining != 45 {
		t.Errorf("the day has %d", q.Remaining)
	}
	g.balanced()
}

// Tokens that move between shards while these are looked at are never missed.
func TestRuleShardsTogether(t *testing.T) {
	t.Parallel()
	g := bareLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 20, Shards: 2})
	g.commit(g.other(), call(keyOf(0, 2), func(c *writers.Call) { c.Tokens = 7 }), "r") // 3 and 10 are left
	tables := g.clean.Plumbing().Tables
	move := func() {
		tx := protocol.NewTx(2)
		for i, n := range []int64{7, -7} {
			key := schema.QuotaKey("acme", "2026-10", i)
			tx.Add(protocol.Part{Key: key}, tables.ChangeQuota(key, protocol.QuotaChange{Granted: n, Remaining: n}, g.now()))
		}
		g.must(protocol.Send(t.Context(), g.db, tx))
	}
	second := keyItem(schema.QuotaKey("acme", "2026-10", 1))
	g.in.Set(faults.When(faults.Call, "GetItem", 1, func(e faults.Event) (faults.Fault, bool) {
		key := e.Input.(*dynamodb.GetItemInput).Key
		return faults.Pass().Before(move), fmt.Sprint(schema.ValueOf(key[schema.PK]), schema.ValueOf(key[schema.SK])) ==
			fmt.Sprint(schema.ValueOf(second[schema.PK]), schema.ValueOf(second[schema.SK]))
	}))
	nine := call(keyOf(0, 2), func(c *writers.Call) { c.Tokens = 9 })
	g.commit(g.ledger.Tenant("acme").Session("s2"), nine, "r")
	g.wantRemaining(4)
	// Nor is anything but the sum of one moment "exhausted", and several shards pay together.
	four := call("four", func(c *writers.Call) { c.Tokens = 4 })
	g.commit(g.session(), four, "r")
	_, err := g.session().Commit(t.Context(), call("more", func(c *writers.Call) { c.Tokens = 1 }), "r")
	if e := g.wantCode(err, writers.ErrQuotaExhausted); e.Need != 1 || e.Remaining != 0 || !e.ResetsAt.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("need %d, remaining %d, resets at %s", e.Need, e.Remaining, e.ResetsAt)
	}
	g.balanced()
}

// A plan change keeps what is spent while it is made.
func TestRulePlanRelative(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.once(1, func() { g.commit(g.other(), call("k"), "r") })
	g.must(g.ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 1200}))
	if q := g.shard("acme", "2026-10", 0); q.Granted != 1200 || q.Remaining != 1195 {
		t.Errorf("granted %d, remaining %d", q.Granted, q.Remaining)
	}
	g.balanced()
}

// A suspended tenant is stopped at once, in processes that know its plan from before as well, in the running period and in
// one that begins later; refunds, final charges and calls without cost go on.
func TestRuleSuspension(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	a, b := g.reserve(g.session(), call("a")), g.reserve(g.session(), call("b"))
	g.must(g.clean.Tenant("acme").Suspend(t.Context(), true))
	_, err := g.session().Commit(t.Context(), call("k"), "r")
	g.wantCode(err, writers.ErrSuspended)
	g.commit(g.session(), call("free", func(c *writers.Call) { c.Tokens = 0 }), "r")
	g.must(a.Release(t.Context(), ""))
	if _, err := b.Finalize(t.Context(), "r", 7); err != nil {
		t.Fatal(err)
	}
	g.wantRemaining(993)
	g.set(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC))
	_, err = g.session().Commit(t.Context(), call("k"), "r")
	g.wantCode(err, writers.ErrSuspended)
	g.must(g.clean.Tenant("acme").Suspend(t.Context(), false))
	g.commit(g.session(), call("k"), "r")
	g.balanced()
}

// undo is a call that undoes acme's call "original".
func undo(key string, changes ...func(*writers.Call)) writers.Call {
	return call(key, append([]func(*writers.Call){func(c *writers.Call) {
		c.Compensates, c.RefundOriginal, c.Tokens = writers.SessionKey("original"), true, 1
	}}, changes...)...)
}

// Two keys never both begin to undo one call.
func TestRuleCompensationLinkedAtReserve(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.other(), call("original"), "r")
	g.reserve(g.other(), undo("u1"))
	_, _, err := g.session().Reserve(t.Context(), undo("u2"))
	g.wantCode(err, writers.ErrNotCompensable)
	g.balanced()
}

// A compensation that was given back, by its holder or because it expired, may be tried again by its own key only.
func TestRuleCompensationStaysLinked(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.other(), call("original"), "r")
	g.must(g.reserve(g.other(), undo("u1")).Release(t.Context(), ""))
	_, _, err := g.session().Reserve(t.Context(), undo("u2"))
	g.wantCode(err, writers.ErrNotCompensable)
	g.reserve(g.session(), undo("u1"))
	g.expire("u1")
	_, err = g.session().Commit(t.Context(), undo("u2"), "r")
	g.wantCode(err, writers.ErrNotCompensable)
	if _, err := g.verified(g.session(), undo("u1")).Finalize(t.Context(), "undone", 1); err != nil {
		t.Fatal(err)
	}
	g.wantRemaining(999)
	g.balanced()
}

// What is refunded to a compensated call no longer counts as its debit.
func TestRuleCompensationClearsDebits(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		g := newLedgerRig(t)
		g.commit(g.other(), call("original"), "r")
		if commit {
			g.commit(g.session(), undo("u"), "undone")
		} else if _, err := g.reserve(g.session(), undo("u")).Finalize(t.Context(), "undone", 1); err != nil {
			t.Fatal(err)
		}
		row := g.wantRow("original", schema.StateApplied, 1, 1)
		if len(row.Debits) != 0 || row.CompensatedAt.IsZero() || row.CompensatedBy != "session:u" {
			t.Errorf("the original is %+v", row)
		}
		g.wantRemaining(999)
		g.balanced()
	}
}
