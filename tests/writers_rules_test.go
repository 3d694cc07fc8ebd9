package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// Each rule of the protocol holds something up. The tests below fail where the rule is missing; package mutants takes the
// rules out of the source one by one and sees them fail. The rules that concern events are the streams' to test.
//
//	reserve without the absence test            TestRuleReserveAbsence
//	takeover without attempt and version        TestRuleTakeoverAttemptAndVersion
//	takeover without rowId                      TestRuleTakeoverRowID
//	takeover without intent                     TestRuleTakeoverIntent
//	finalize without state, attempt, rowId      TestRuleFinalizeState, TestRuleFinalizeAttempt, TestRuleFinalizeRowID
//	release without state, attempt, rowId       TestRuleReleaseState, TestRuleReleaseAttempt, TestRuleReleaseRowID
//	extend without state, attempt, deadline     TestRuleExtendState, TestRuleExtendAttempt, TestRuleExtendDeadline, TestRuleExtendHeld
//	expire without version                      TestRuleExpireVersion
//	person's not-applied without version        TestRuleResolveVersion
//	person's not-applied before it counts       TestRuleResolveWaits
//	settle without state                        TestRuleSettleState
//	settle without the debit                    TestRuleSettleDebit
//	settle obeying quota                        TestRuleSettleQuota
//	settle on the same attempt only             TestRuleSettleAttempt
//	suspect without rowId                       TestRuleSuspectRowID
//	settle-new without the absence test         TestRuleSettleNewAbsence
//	no holder nonce                             TestRuleHolderNonce
//	sticky unverified dropped                   TestRuleUnverifiedSticks
//	verify skipped                              TestRuleVerify
//	verdict of another deadline counted         TestRuleVerdictDeadline
//	no skew margin, no horizon                  TestRuleSkewAndHorizon
//	version computed by the client              TestRuleVersion
//	a fenced worker dropping its effect         TestRuleFencedEffect
//	a late finalize on an absent row dropped    TestRuleLateOnAbsent
//	an ambiguous act releasing                  TestRuleAmbiguousAct
//	a pending row with TTL                      TestRulePendingTTL
//	a failed row skipping the intent check      TestRuleFailedIntent
//	quota created without the plan check        TestRuleQuotaPlanCheck
//	quota created shard by shard                TestRuleQuotaAllShards
//	refund to today's period, shard, plan       TestRuleRefundPeriod, TestRuleRefundShard, TestRuleRefundPlan
//	shards read one by one                      TestRuleShardsTogether
//	absolute remaining on a plan change         TestRulePlanRelative
//	suspension copied to no quota item          TestRuleSuspension
//	compensation linked only at finalize        TestRuleCompensationLinkedAtReserve
//	compensation unlinked on expiry             TestRuleCompensationStaysLinked
//	compensation refunded without clearing      TestRuleCompensationClearsDebits

// forget moves the clock past the retention of every row.
func (g *ledgerRig) forget() { g.advance(70 * 24 * time.Hour) }

// Two callers of one key: the second finds the first's row and writes nothing, while it is pending and once it is applied.
func TestRuleReserveAbsence(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.other(), call("k"))
	_, _, err := g.session().Reserve(t.Context(), call("k"))
	g.wantCode(err, writers.ErrInProgress)
	_, err = g.session().Commit(t.Context(), call("k"), "mine")
	g.wantCode(err, writers.ErrInProgress)
	if row := g.wantRow("k", schema.StatePending, 1, 0); row.RowID != hold.RowID {
		t.Error("the row was written over")
	}
	if _, err := hold.Finalize(t.Context(), "first", 5); err != nil {
		t.Fatal(err)
	}
	if out := g.commit(g.session(), call("k"), "mine"); out.Outcome != writers.OutcomeReplayed || string(out.JSON) != `"first"` {
		t.Errorf("got %s %s", out.Outcome, out.JSON)
	}
	g.wantRemaining(995)
	g.balanced()
}

// Between the look at a failed row and its takeover somebody else takes over and gives back: the attempt in hand is the one
// in the row.
func TestRuleTakeoverAttemptAndVersion(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.must(g.reserve(g.other(), call("k")).Release(t.Context(), ""))
	g.once(2, func() { g.must(g.reserve(g.other(), call("k")).Release(t.Context(), "")) })
	hold := g.reserve(g.session(), call("k"))
	g.wantRow("k", schema.StatePending, 3, 0)
	if hold.Attempt != 3 {
		t.Errorf("holds attempt %d of 3", hold.Attempt)
	}
	g.balanced()
}

// The failed row is another one by the time of the takeover, alike but for its id.
func TestRuleTakeoverRowID(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.must(g.reserve(g.other(), call("k")).Release(t.Context(), ""))
	g.once(2, func() {
		item := g.item(g.table, rowKey("k"))
		item[schema.ARowID] = schema.S("another")
		g.replace(item)
	})
	hold := g.reserve(g.session(), call("k"))
	if row := g.wantRow("k", schema.StatePending, 2, 0); hold.RowID != row.RowID {
		t.Errorf("holds row %q, which is %q", hold.RowID, row.RowID)
	}
	g.balanced()
}

// A failed row belongs to its action: no other takes it over, neither by reserve nor by commit.
func TestRuleTakeoverIntent(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.must(g.reserve(g.other(), call("k")).Release(t.Context(), ""))
	other := call("k", func(c *writers.Call) { c.Args = json.RawMessage(`{"a":"` + secret + `"}`) })
	_, _, err := g.session().Reserve(t.Context(), other)
	if err == nil {
		t.Error("another action took the row over")
	}
	_, err = g.session().Commit(t.Context(), other, "x")
	if err == nil {
		t.Error("another action committed the row")
	}
	g.wantRow("k", schema.StateFailed, 1, 0)
	g.balanced()
}

// A reservation that was given back is settled late, with its debit made again.
func TestRuleFinalizeState(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.expire("k")
	out, err := hold.Finalize(t.Context(), "r", 5)
	if err != nil || out.Outcome != writers.OutcomeSettledLate {
		t.Fatalf("%+v, %v", out, err)
	}
	g.wantRow("k", schema.StateApplied, 1, 1)
	g.wantRemaining(995)
	g.balanced()
}

// replaced makes an attempt whose worker stalls, and a newer one that is running.
func (g *ledgerRig) replaced() (old, now *writers.Reservation) {
	g.Helper()
	old = g.reserve(g.session(), call("k"))
	g.expire("k")
	return old, g.verified(g.other(), call("k"))
}

// A stalled worker does not finalize the newer attempt as its own: that one is suspected of a second effect.
func TestRuleFinalizeAttempt(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.replaced()
	if _, err := old.Finalize(t.Context(), "r", 5); err != nil {
		t.Fatal(err)
	}
	g.wantRow("k", schema.StateApplied, 2, 1, old.RowID+"/2")
	g.wantRemaining(995)
	g.balanced()
}

// forgotten makes an attempt whose worker stalls for so long that the key has a new row by now.
func (g *ledgerRig) forgotten(changes ...func(*writers.Call)) (old, now *writers.Reservation) {
	g.Helper()
	old = g.reserve(g.session(), call("k", changes...))
	g.expire("k")
	g.forget()
	return old, g.reserve(g.other(), call("k", changes...))
}

// A worker whose row is forgotten does not finalize the row that has its key now.
func TestRuleFinalizeRowID(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.forgotten()
	_, err := old.Finalize(t.Context(), "r", 5)
	g.wantCode(err, writers.ErrSuperseded)
	g.wantRow("k", schema.StatePending, 1, 0, old.RowID+"/1")
	g.balanced()
}

// What was given back is not given back again.
func TestRuleReleaseState(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.expire("k")
	g.must(hold.Release(t.Context(), "late"))
	if row := g.wantRow("k", schema.StateFailed, 1, 0); row.Failure != schema.FailureExpired {
		t.Errorf("failure %q", row.Failure)
	}
	g.wantRemaining(1000)
	g.balanced()
}

// A stalled worker does not give the newer attempt back.
func TestRuleReleaseAttempt(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.replaced()
	g.wantCode(old.Release(t.Context(), ""), writers.ErrSuperseded)
	g.wantRow("k", schema.StatePending, 2, 0)
	g.wantRemaining(995)
	g.balanced()
}

// A worker whose row is forgotten does not give back the row that has its key now.
func TestRuleReleaseRowID(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.forgotten()
	g.wantCode(old.Release(t.Context(), ""), writers.ErrSuperseded)
	g.wantRow("k", schema.StatePending, 1, 0)
	g.balanced()
}

// Only a pending row is extended, whatever else it may still carry.
func TestRuleExtendState(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	deadline := g.item(g.table, rowKey("k"))[schema.ADeadline]
	g.expire("k")
	item := g.item(g.table, rowKey("k"))
	item[schema.ADeadline] = deadline // as no writer leaves it
	g.replace(item)
	g.wantCode(hold.Extend(t.Context(), time.Hour), writers.ErrSuperseded)
	g.wantRow("k", schema.StateFailed, 1, 0)
}

// A stalled worker does not extend the newer attempt.
func TestRuleExtendAttempt(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, now := g.replaced()
	g.wantCode(old.Extend(t.Context(), time.Hour), writers.ErrSuperseded)
	if row := g.wantRow("k", schema.StatePending, 2, 0); !row.Deadline.Equal(now.Deadline) {
		t.Errorf("the deadline moved to %s", row.Deadline)
	}
}

// A deadline never moves back: whoever has seen it may rely on it.
func TestRuleExtendDeadline(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.must(hold.Extend(t.Context(), time.Hour))
	far := hold.Deadline
	g.must(hold.Extend(t.Context(), time.Minute))
	if row := g.row("k"); !row.Deadline.Equal(far) || !hold.Deadline.Equal(far) {
		t.Errorf("the deadline is %s here and %s there, want %s", hold.Deadline, row.Deadline, far)
	}
}

// A row that waits for a person is not taken back by its stalled worker.
func TestRuleExtendHeld(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	tx := protocol.NewTx(1)
	tx.Add(protocol.Part{}, g.clean.Plumbing().Tables.Hold(g.row("k"), schema.HeldBucket("k"), g.now()))
	g.must(protocol.Send(t.Context(), g.db, tx))
	g.wantCode(hold.Extend(t.Context(), time.Hour), writers.ErrSuperseded)
	if row := g.row("k"); !row.Held || row.Deadline.After(hold.Deadline) {
		t.Errorf("the row is %+v", row)
	}
	if _, err := hold.Finalize(t.Context(), "r", 5); err != nil {
		t.Errorf("finalize of a held row: %v", err)
	}
	g.balanced()
}

// A reservation that its holder extends at the last moment is not given back by somebody who saw the old deadline.
func TestRuleExpireVersion(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.other(), call("k"))
	g.pastVerdict()
	g.once(2, func() { g.must(hold.Extend(t.Context(), time.Hour)) })
	_, _, err := g.session().Reserve(t.Context(), call("k", func(c *writers.Call) { c.VerifiedAbsent = hold.Ref() }))
	g.wantCode(err, writers.ErrInProgress)
	g.wantRow("k", schema.StatePending, 1, 0)
	g.wantRemaining(995)
	g.balanced()
}

// A person's verdict is on the row that the person saw: extended since, it is in progress.
func TestRuleResolveVersion(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.other(), call("k"))
	g.pastVerdict()
	g.once(1, func() { g.must(hold.Extend(t.Context(), time.Hour)) })
	_, err := g.session().Resolve(t.Context(), writers.SessionKey("k"), writers.Resolution{Verdict: writers.EffectAbsent, Attempt: 1})
	g.wantCode(err, writers.ErrInProgress)
	g.wantRow("k", schema.StatePending, 1, 0)
	g.balanced()
}

// While an act may still land, a person's "not applied" is not taken.
func TestRuleResolveWaits(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.reserve(g.other(), call("k"))
	absent := writers.Resolution{Verdict: writers.EffectAbsent, Attempt: 1}
	g.advance(4 * time.Minute) // deadline, skew and horizon to the millisecond
	_, err := g.session().Resolve(t.Context(), writers.SessionKey("k"), absent)
	g.wantCode(err, writers.ErrInProgress)
	g.wantRemaining(995)
	g.advance(time.Millisecond)
	if _, err := g.session().Resolve(t.Context(), writers.SessionKey("k"), absent); err != nil {
		t.Fatal(err)
	}
	g.wantRemaining(1000)
	g.balanced()
}

// Between a late worker's look at its failed row and its settlement a newer attempt begins: that one has paid.
func TestRuleSettleState(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old := g.reserve(g.session(), call("k"))
	g.expire("k")
	g.once(2, func() { g.verified(g.other(), call("k")) })
	if _, err := old.Finalize(t.Context(), "r", 5); err != nil {
		t.Fatal(err)
	}
	g.wantRow("k", schema.StateApplied, 2, 1, old.RowID+"/2")
	g.wantRemaining(995)
	g.balanced()
}

// What is settled late is paid, in parts where less or more is charged than was reserved.
func TestRuleSettleDebit(t *testing.T) {
	t.Parallel()
	for _, charged := range []int64{0, 3, 5, 8} {
		g := newLedgerRig(t)
		hold := g.reserve(g.session(), call("k"))
		g.expire("k")
		g.wantRemaining(1000)
		if out, err := hold.Finalize(t.Context(), "r", charged); err != nil || out.Charged != charged {
			t.Fatalf("%+v, %v", out, err)
		}
		g.wantRemaining(1000 - charged)
		g.balanced()
	}
}

// Recording never fails on quota.
func TestRuleSettleQuota(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.expire("k")
	g.commit(g.other(), call("rest", func(c *writers.Call) { c.Tokens = 1000 }), "x")
	g.must(g.clean.Tenant("acme").Suspend(t.Context(), true))
	if _, err := hold.Finalize(t.Context(), "r", 5); err != nil {
		t.Fatal(err)
	}
	g.wantRemaining(-5)
	g.balanced()
}

// A worker whose successor has failed as well still settles.
func TestRuleSettleAttempt(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.replaced()
	g.expire("k")
	if out, err := old.Finalize(t.Context(), "r", 5); err != nil || out.Outcome != writers.OutcomeSettledLate {
		t.Fatalf("%+v, %v", out, err)
	}
	g.wantRow("k", schema.StateApplied, 2, 1)
	g.wantRemaining(995)
	g.balanced()
}

// Suspicion falls on the row that was seen, and not on one that records this very effect.
func TestRuleSuspectRowID(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, _ := g.forgotten(func(c *writers.Call) { c.Tokens = 0 })
	twin, err := g.clean.Tenant("acme").Resume(old.Token())
	g.must(err)
	g.once(2, func() {
		g.remove(rowKey("k"))
		_, err := twin.Finalize(t.Context(), "r", 0)
		g.must(err)
	})
	if _, err := old.Finalize(t.Context(), "r", 0); err != nil {
		t.Error(err)
	}
	if row := g.wantRow("k", schema.StateApplied, 1, 1); row.SettledFrom != old.RowID {
		t.Errorf("settled from %q", row.SettledFrom)
	}
}

// A late settlement does not write over the row of somebody who came in the meantime.
func TestRuleSettleNewAbsence(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old := g.reserve(g.session(), call("k"))
	g.expire("k")
	g.forget()
	g.remove(rowKey("k"))
	var now *writers.Reservation
	g.in.Set(faults.When(faults.Call, "TransactWriteItems", 1, func(e faults.Event) (faults.Fault, bool) {
		put := e.Input.(*dynamodb.TransactWriteItemsInput).TransactItems[0].Put
		return faults.Pass().Before(func() { now = g.reserve(g.other(), call("k")) }), put != nil && put.Item[schema.ARowID] != nil
	}))
	_, err := old.Finalize(t.Context(), "r", 5)
	g.wantCode(err, writers.ErrSuperseded)
	if row := g.wantRow("k", schema.StatePending, 1, 0, old.RowID+"/1"); row.RowID != now.RowID {
		t.Error("the row was written over")
	}
	g.balanced()
}

// A takeover, and a commit of a failed row, whose answer was lost is known again by its nonce.
func TestRuleHolderNonce(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.must(g.reserve(g.other(), call("k")).Release(t.Context(), ""))
	g.in.Set(faults.At(faults.Call, "TransactWriteItems", 2, faults.Lose()))
	hold := g.reserve(g.session(), call("k"))
	g.wantRow("k", schema.StatePending, 2, 0)
	g.must(hold.Release(t.Context(), ""))
	g.in.Set(faults.At(faults.Call, "TransactWriteItems", 2, faults.Lose()))
	if out := g.commit(g.session(), call("k"), "r"); out.Outcome != writers.OutcomeApplied || out.Attempt != 3 {
		t.Errorf("got %+v", out)
	}
	g.wantRow("k", schema.StateApplied, 3, 3)
	g.wantRemaining(995)
	g.balanced()
}

// What is unverified once stays so through takeover and release: nobody acts again without verifying.
func TestRuleUnverifiedSticks(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	_, now := g.replaced()
	if row := g.row("k"); row.Unverified != schema.UnverifiedExpired {
		t.Errorf("the takeover left unverified at %d", row.Unverified)
	}
	g.must(now.Release(t.Context(), ""))
	g.pastVerdict()
	_, _, err := g.session().Reserve(t.Context(), call("k"))
	g.wantCode(err, writers.ErrOutcomeUnknown)
	_, err = g.session().Commit(t.Context(), call("k"), "x")
	g.wantCode(err, writers.ErrOutcomeUnknown)
	c := call("k")
	c.VerifiedAbsent = g.wantCode(err, writers.ErrOutcomeUnknown).Call.Ref()
	g.commit(g.session(), c, "x")
	if row := g.wantRow("k", schema.StateApplied, 3, 3); row.Unverified != schema.UnverifiedExpired {
		t.Errorf("the commit left unverified at %d", row.Unverified)
	}
	g.balanced()
}

// Nobody acts where an attempt may have taken effect, pending or given back, unless it was verified or repeating is harmless.
func TestRuleVerify(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.reserve(g.other(), call("k"))
	g.pastVerdict()
	_, _, err := g.session().Reserve(t.Context(), call("k"))
	g.wantCode(err, writers.ErrOutcomeUnknown)
	g.wantRow("k", schema.StatePending, 1, 0)
	g.expire("k")
	_, _, err = g.session().Reserve(t.Context(), call("k"))
	g.wantCode(err, writers.ErrOutcomeUnknown)
	g.wantRow("k", schema.StateFailed, 1, 0)

	harmless := func(c *writers.Call) { c.Idempotent = true }
	g.reserve(g.other(), call("i", harmless))
	g.pastVerdict()
	g.reserve(g.session(), call("i", harmless))
	g.wantRow("i", schema.StatePending, 2, 0)
	g.balanced()
}

// A verdict counts for the row, attempt and deadline that were verified and for nothing else.
func TestRuleVerdictDeadline(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.other(), call("k"))
	for name, ref := range map[string]writers.AttemptRef{
		"another row":      {RowID: "x", Attempt: 1, Deadline: hold.Deadline},
		"another attempt":  {RowID: hold.RowID, Attempt: 2, Deadline: hold.Deadline},
		"another deadline": {RowID: hold.RowID, Attempt: 1, Deadline: hold.Deadline.Add(-time.Millisecond)},
		"no deadline":      {RowID: hold.RowID, Attempt: 1},
	} {
		g.set(ledgerStart)
		g.pastVerdict()
		_, _, err := g.session().Reserve(t.Context(), call("k", func(c *writers.Call) { c.VerifiedAbsent = ref }))
		if e, ok := errors.AsType[*writers.Error](err); !ok || e.Code != writers.ErrOutcomeUnknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.reserve(g.session(), call("k", func(c *writers.Call) { c.VerifiedAbsent = hold.Ref() }))
	g.balanced()
}

// "Absent" proves nothing before deadline, skew and horizon are over: an act in time may still land.
func TestRuleSkewAndHorizon(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	far := func(c *writers.Call) { c.Horizon = 10 * time.Minute }
	hold := g.reserve(g.other(), call("k", far))
	g.advance(time.Minute + 10*time.Minute + 2*time.Minute)
	again := call("k", far, func(c *writers.Call) { c.VerifiedAbsent = hold.Ref() })
	_, _, err := g.session().Reserve(t.Context(), again)
	g.wantCode(err, writers.ErrInProgress)
	g.must(g.expireRow(g.row("k"))) // a sweeper that is too early
	_, _, err = g.session().Reserve(t.Context(), again)
	g.wantCode(err, writers.ErrInProgress)
	g.advance(time.Millisecond)
	g.reserve(g.session(), again)
	g.wantRow("k", schema.StatePending, 2, 0)
	g.balanced()
}

// Each write raises the version by one, from wherever it is: two holders of one token count together.
func TestRuleVersion(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	before := g.shard("acme", "2026-10", 0).Version
	hold := g.reserve(g.session(), call("k"))
	twin, err := g.clean.Tenant("acme").Resume(hold.Token())
	g.must(err)
	for i, r := range []*writers.Reservation{hold, twin, hold} {
		g.must(r.Extend(t.Context(), time.Duration(i+2)*time.Minute))
		if row := g.row("k"); row.Version != int64(i+2) {
			t.Errorf("version %d after %d writes", row.Version, i+2)
		}
	}
	if _, err := twin.Finalize(t.Context(), "r", 4); err != nil {
		t.Fatal(err)
	}
	if row := g.row("k"); row.Version != 5 {
		t.Errorf("version %d after 5 writes", row.Version)
	}
	if q := g.shard("acme", "2026-10", 0); q.Version != before+2 {
		t.Errorf("the quota's version rose by %d in two writes", q.Version-before)
	}
}

// A worker that is replaced by a newer attempt records its effect; the newer one then learns of it.
func TestRuleFencedEffect(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	old, now := g.replaced()
	out, err := old.Finalize(t.Context(), "old", 5)
	if err != nil || out.Attempt != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	_, err = now.Finalize(t.Context(), "new", 5)
	g.wantCode(err, writers.ErrSuperseded)
	row := g.wantRow("k", schema.StateApplied, 2, 1, old.RowID+"/2")
	if *row.ResultJSON != `"old"` {
		t.Errorf("result %s", *row.ResultJSON)
	}
	g.wantRemaining(995)
	g.balanced()
}

// An effect is recorded even where its row is gone.
func TestRuleLateOnAbsent(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	g.expire("k")
	g.forget()
	g.remove(rowKey("k"))
	out, err := hold.Finalize(t.Context(), "r", 5)
	if err != nil || out.Outcome != writers.OutcomeSettledLate {
		t.Fatalf("%+v, %v", out, err)
	}
	if row := g.wantRow("k", schema.StateApplied, 1, 1); row.SettledFrom != hold.RowID || row.RowID == hold.RowID {
		t.Errorf("row %q, settled from %q", row.RowID, row.SettledFrom)
	}
	g.wantRemaining(995)
	g.balanced()
	if out, err = hold.Finalize(t.Context(), "again", 5); err != nil || string(out.JSON) != `"r"` {
		t.Errorf("finalize again: %s, %v", out.JSON, err)
	}
	g.wantRemaining(995)
}

// An act that fails without saying so keeps its reservation: it may have happened.
func TestRuleAmbiguousAct(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	tool := &writers.Tool[struct{}, string]{
		Name: "book", Cost: 5,
		Act: func(context.Context, writers.Attempt[struct{}]) (string, error) {
			return "", errors.New("connection reset")
		},
	}
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	g.wantCode(err, writers.ErrOutcomeUnknown)
	g.wantRow("k", schema.StatePending, 1, 0)
	g.wantRemaining(995)
	g.balanced()
}

// A pending row cannot vanish by TTL, neither of a first attempt nor of a later one.
func TestRulePendingTTL(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k"))
	for range 2 {
		if item := g.item(g.table, rowKey("k")); item[schema.AExpiresAt] != nil {
			t.Errorf("attempt %d is pending and would expire", hold.Attempt)
		}
		g.must(hold.Release(t.Context(), ""))
		if item := g.item(g.table, rowKey("k")); item[schema.AExpiresAt] == nil {
			t.Errorf("attempt %d is over and would stay", hold.Attempt)
		}
		hold = g.reserve(g.session(), call("k"))
	}
}

// A failed row is compared by intent like any other, and the answer says which argument differs, not how.
func TestRuleFailedIntent(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.must(g.reserve(g.other(), call("k")).Release(t.Context(), ""))
	_, _, err := g.session().Reserve(t.Context(), call("k", func(c *writers.Call) { c.Args = json.RawMessage(`{"a":"` + secret + `"}`) }))
	if e := g.wantCode(err, writers.ErrKeyConflict); len(e.Differs) != 1 || e.Differs[0] != "a" || e.RetryAfter != 0 {
		t.Errorf("differs %v, retry after %s", e.Differs, e.RetryAfter)
	}
	if o := g.observation("k"); o.KeyConflicts != 1 {
		t.Errorf("%d conflicts counted", o.KeyConflicts)
	}
	g.wantRow("k", schema.StateFailed, 1, 0)
}
