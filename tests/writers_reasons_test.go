package tests_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// tell cancels the next transaction of the process under test with reasons by kind of item.
func (g *ledgerRig) tell(reasons map[string]faults.Reason) {
	g.in.Set(faults.When(faults.Try, "TransactWriteItems", 1, func(e faults.Event) (faults.Fault, bool) {
		at := map[int]faults.Reason{}
		for prefix, r := range reasons {
			for _, i := range faults.Find(e.Input, prefix) {
				at[i] = r
			}
		}
		return faults.Fail(faults.Cancelled(e.Input, at)), len(at) > 0
	}))
}

// TestMixedReasons: of several reasons the row's own decides first, then its contention, then the tool's own write, quota and
// session; an item that DynamoDB does not take is no contention.
func TestMixedReasons(t *testing.T) {
	t.Parallel()
	failed, conflict := faults.Reason{Code: faults.ConditionFailed}, faults.Reason{Code: faults.Conflict}
	busy := faults.Reason{Code: faults.Capacity}
	table := func(g *ledgerRig) *string { return new(g.table + "-own") }
	for _, c := range []struct {
		name    string
		reasons func(g *ledgerRig) map[string]faults.Reason
		want    writers.Code // "": applied, in the second transaction
		sent    int
	}{
		{"row is there, quota contended", func(g *ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": {Code: faults.ConditionFailed, Item: g.otherRow()}, "QUOTA#": conflict}
		}, writers.ErrKeyConflict, 1},
		{"row contended, quota refused", func(g *ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": conflict, "QUOTA#": {Code: faults.ConditionFailed, Item: g.drained(false)}}
		}, "", 2},
		{"row over capacity, session and write refused", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": busy, "META": failed, "own": failed}
		}, "", 2},
		{"row is gone since", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": failed, "QUOTA#": conflict}
		}, "", 2},
		{"write refused, quota contended", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"own": failed, "QUOTA#": conflict}
		}, writers.ErrWriteRefused, 1},
		{"write and session refused", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"own": failed, "META": failed}
		}, writers.ErrWriteRefused, 1},
		{"quota suspended, session refused", func(g *ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"META": failed, "QUOTA#": {Code: faults.ConditionFailed, Item: g.drained(true)}}
		}, writers.ErrSuspended, 1},
		{"session refused, write contended", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"META": failed, "own": conflict}
		}, writers.ErrSessionMoved, 1},
		{"only contention", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"META": busy, "own": conflict, "QUOTA#": {Code: faults.ThrottlingReason}}
		}, "", 2},
		{"own write not valid", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"own": {Code: faults.Validation}}
		}, writers.ErrInvalid, 1},
		{"own write too large for its collection, quota contended", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"own": {Code: faults.CollectionSize}, "QUOTA#": conflict}
		}, writers.ErrInvalid, 1},
		{"row not valid", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": {Code: faults.Validation}}
		}, writers.ErrUnavailable, 1},
		{"a reason that nobody knows", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"QUOTA#": {Code: "SomethingNew"}}
		}, writers.ErrUnavailable, 1},
		{"no code, and contention", func(*ledgerRig) map[string]faults.Reason {
			return map[string]faults.Reason{"TOOL#": {Code: faults.NoCode}, "META": {Code: faults.NoCode}, "QUOTA#": conflict}
		}, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newLedgerRig(t)
			g.must(g.makeTable(*table(g)))
			reasons := c.reasons(g)
			own := types.TransactWriteItem{Put: &types.Put{TableName: table(g), Item: keyItem(schema.Key{PK: "mine", SK: "own"})}}
			g.tell(reasons)
			commit := func() (writers.Raw, error) {
				return g.session().Commit(t.Context(), call("k", func(c *writers.Call) {
					c.Cursor, c.ExpectCursor, c.Writes = "c1", new(""), []types.TransactWriteItem{own}
				}), "r")
			}
			if c.want != "" {
				g.unchanged(func() { _, err := commit(); g.wantCode(err, c.want) })
				return
			}
			if out, err := commit(); err != nil || out.Outcome != writers.OutcomeApplied {
				t.Fatalf("%+v, %v", out, err)
			}
			if n := g.in.Count(faults.Call, "TransactWriteItems"); n != c.sent {
				t.Errorf("%d transactions, want %d", n, c.sent)
			}
			g.wantRemaining(995)
			g.balanced()
		})
	}
}

// otherRow is the row of another action under the key "k", as a refused transaction shows it.
func (g *ledgerRig) otherRow() schema.Item {
	row := schema.Row{
		Key: rowKey("k"), RowID: "x", Holder: "x", Version: 2, Attempt: 1, State: schema.StateApplied, Tool: "another",
		IntentHash: make([]byte, 32), Session: "s1", Scope: schema.ScopeSession, AppliedAttempt: 1, CreatedAt: g.now(), UpdatedAt: g.now(),
		ExpiresAt: g.now().Add(time.Hour),
	}
	return row.Item()
}

// drained is acme's quota item without tokens, as a refused transaction shows it.
func (g *ledgerRig) drained(suspended bool) schema.Item {
	q := g.shard("acme", "2026-10", 0)
	q.Remaining, q.Suspended = 0, suspended
	return q.Item()
}

// makeTable makes a table for a tool's own writes.
func (g *ledgerRig) makeTable(name string) error {
	_, err := g.db.CreateTable(g.Context(), schema.ControlTable(name, false))
	return err
}

// TestObservationsNeverFailACall: a replay is answered whatever becomes of counting it, in bounded time, and what was not
// counted is told.
func TestObservationsNeverFailACall(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.other(), call("k"), "r")
	for name, f := range map[string]faults.Fault{
		"conflict": faults.Fail(faults.ItemConflict()), "throttled": faults.Fail(faults.Throttled()), "lost": faults.Lose(),
		"denied": faults.Fail(faults.Denied()), "hanging": faults.Hang(),
	} {
		g.in.Set(faults.Every(faults.Call, "UpdateItem", f))
		began := time.Now()
		if out := g.commit(g.session(), call("k"), "r"); out.Outcome != writers.OutcomeReplayed {
			t.Errorf("%s: %s", name, out.Outcome)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
	if !strings.Contains(g.log.String(), "observation not written") {
		t.Error("nobody was told")
	}
	if strings.Contains(g.log.String(), secret) {
		t.Error("the log tells an argument")
	}
}

// TestObservationsGathered: a storm on one call is one write, and Close writes what is gathered.
func TestObservationsGathered(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t, func(c *writers.Config) { c.Coalesce = time.Minute })
	g.commit(g.other(), call("k"), "r")
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() { _, _ = g.session().Commit(context.WithoutCancel(t.Context()), call("k"), "r") })
	}
	group.Wait()
	g.must(g.ledger.Close(t.Context()))
	if o := g.observation("k"); o.Duplicates != 64 || o.Version != 1 {
		t.Errorf("%d duplicates in %d writes", o.Duplicates, o.Version)
	}
	g.must(g.ledger.Close(t.Context()))
}

// TestOwnWritesLost: a commit with writes of the tool's own whose answer was lost is not refused by its own write.
func TestOwnWritesLost(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	table := g.table + "-own"
	g.must(g.makeTable(table))
	once := types.TransactWriteItem{Put: &types.Put{
		TableName: &table, Item: keyItem(schema.Key{PK: "mine", SK: "own"}), ConditionExpression: new("attribute_not_exists(#pk)"),
		ExpressionAttributeNames: map[string]string{"#pk": "pk"},
	}}
	own := func(key string) writers.Call {
		return call(key, func(c *writers.Call) { c.Writes = []types.TransactWriteItem{once} })
	}
	g.in.Set(faults.At(faults.Call, "TransactWriteItems", 1, faults.Lose()))
	if out := g.commit(g.session(), own("k"), "r"); out.Outcome != writers.OutcomeApplied {
		t.Errorf("got %s", out.Outcome)
	}
	g.in.Set(nil)
	if out := g.commit(g.session(), own("k"), "r"); out.Outcome != writers.OutcomeReplayed {
		t.Errorf("got %s", out.Outcome)
	}
	g.unchanged(func() {
		_, err := g.session().Commit(t.Context(), own("k2"), "r")
		if e := g.wantCode(err, writers.ErrWriteRefused); e.Index != 0 || e.RetryAfter != 0 {
			t.Errorf("index %d, retry after %s", e.Index, e.RetryAfter)
		}
	})
	g.wantRemaining(995)
}
