package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// scenario is one operation at a moment that matters, for the process under test. prepare brings the ledger there, with
// the clean process, and returns the operation; that may be repeated, as a caller would, until it succeeds. check holds
// afterwards, however often it was tried and whatever became of its requests.
type scenario struct {
	name    string
	prepare func(g *ledgerRig) func(context.Context) error
	check   func(g *ledgerRig)
	want    writers.Code // what the operation ends with; "" means success
	bare    bool         // where its context ends the operation may say just that
}

// ignore drops a result.
func ignore[T any](_ T, err error) error { return err }

var scenarios = []scenario{
	{
		name: "commit",
		prepare: func(g *ledgerRig) func(context.Context) error {
			return func(ctx context.Context) error {
				return ignore(g.session().Commit(ctx, call("k", func(c *writers.Call) { c.Cursor, c.ExpectCursor = "c1", new("") }), "r"))
			}
		},
		check: func(g *ledgerRig) {
			g.wantRow("k", schema.StateApplied, 1, 1)
			g.wantCursor("c1")
			g.wantRemaining(995)
		},
	},
	{
		name: "commit, first of a period",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.set(time.Date(2026, 11, 1, 0, 0, 1, 0, time.UTC))
			return func(ctx context.Context) error { return ignore(g.session().Commit(ctx, call("k"), "r")) }
		},
		check: func(g *ledgerRig) {
			g.wantRow("k", schema.StateApplied, 1, 1)
			if q := g.shard("acme", "2026-11", 0); q.Granted != 1000 || q.Remaining != 995 {
				g.Errorf("granted %d, remaining %d", q.Granted, q.Remaining)
			}
		},
	},
	{
		name: "commit, split over shards",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.plan("acme", writers.Plan{Tokens: 1000, Shards: 4})
			return func(ctx context.Context) error {
				return ignore(g.session().Commit(ctx, call("k", func(c *writers.Call) { c.Tokens = 900 }), "r"))
			}
		},
		check: func(g *ledgerRig) { g.wantRemaining(100) },
	},
	{
		name: "commit of a failed row",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.must(g.reserve(g.other(), call("k")).Release(g.Context(), ""))
			return func(ctx context.Context) error { return ignore(g.session().Commit(ctx, call("k"), "r")) }
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StateApplied, 2, 2); g.wantRemaining(995) },
	},
	{
		name: "replay",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("k"), "first")
			return func(ctx context.Context) error {
				out, err := g.session().Commit(ctx, call("k", func(c *writers.Call) { c.Retry = true }), "second")
				if err == nil && string(out.JSON) != `"first"` {
					g.Errorf("replayed %s", out.JSON)
				}
				return err
			}
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StateApplied, 1, 1); g.wantRemaining(995) },
	},
	{
		name: "reserve",
		prepare: func(g *ledgerRig) func(context.Context) error {
			return g.holding(call("k"), func(writers.Session, context.Context, *writers.Reservation) error { return nil })
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StatePending, 1, 0); g.wantRemaining(995) },
	},
	{
		name: "takeover",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.must(g.reserve(g.other(), call("k")).Release(g.Context(), ""))
			return g.holding(call("k"), func(writers.Session, context.Context, *writers.Reservation) error { return nil })
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StatePending, 2, 0); g.wantRemaining(995) },
	},
	{
		name: "expire and takeover",
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.other(), call("k"))
			g.pastVerdict()
			c := call("k", func(c *writers.Call) { c.VerifiedAbsent = hold.Ref() })
			return g.holding(c, func(writers.Session, context.Context, *writers.Reservation) error { return nil })
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StatePending, 2, 0); g.wantRemaining(995) },
	},
	finalizing("finalize", 5, 995, nil),
	finalizing("finalize, lower", 2, 998, nil),
	finalizing("finalize, higher", 9, 991, nil),
	finalizing("finalize, for nothing", 0, 1000, nil),
	{
		name: "finalize, moving the cursor",
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.session(), call("k", func(c *writers.Call) { c.Cursor = "c1" }))
			return func(ctx context.Context) error { return ignore(hold.Finalize(ctx, "r", 5)) }
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StateApplied, 1, 1); g.wantCursor("c1") },
	},
	{
		name: "finalize, the cursor having moved", want: writers.ErrSessionMoved,
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.session(), call("k", func(c *writers.Call) { c.Cursor, c.ExpectCursor = "c1", new("") }))
			g.commit(g.other(), call("other", func(c *writers.Call) { c.Cursor, c.Tokens = "c9", 0 }), "x")
			first := true
			return func(ctx context.Context) error {
				out, err := hold.Finalize(ctx, "r", 5)
				if err == nil && !first { // recorded before: what the cursor did is no longer known
					err = writers.ErrSessionMoved
				}
				if errors.Is(err, writers.ErrSessionMoved) && string(out.JSON) != `"r"` {
					g.Errorf("the result is lost: %+v", out)
				}
				first = false
				return err
			}
		},
		check: func(g *ledgerRig) {
			g.wantRow("k", schema.StateApplied, 1, 1)
			g.wantCursor("c9")
			g.wantRemaining(995)
		},
	},
	finalizing("settle late", 5, 995, func(g *ledgerRig) { g.expire("k") }),
	finalizing("settle late, higher", 9, 991, func(g *ledgerRig) { g.expire("k") }),
	{
		name: "settle fenced",
		prepare: func(g *ledgerRig) func(context.Context) error {
			old, _ := g.replaced()
			return func(ctx context.Context) error { return ignore(old.Finalize(ctx, "r", 5)) }
		},
		check: func(g *ledgerRig) {
			row := g.row("k")
			g.wantRow("k", schema.StateApplied, 2, 1, row.RowID+"/2")
			g.wantRemaining(995)
		},
	},
	finalizing("settle new", 5, 995, func(g *ledgerRig) { g.expire("k"); g.forget(); g.remove(rowKey("k")) }),
	{
		name: "suspect", want: writers.ErrSuperseded,
		prepare: func(g *ledgerRig) func(context.Context) error {
			old, _ := g.forgotten()
			return func(ctx context.Context) error { return ignore(old.Finalize(ctx, "r", 5)) }
		},
		check: func(g *ledgerRig) {
			if row := g.row("k"); row.State != schema.StatePending || len(row.Suspects) != 1 {
				g.Errorf("%s, suspects %v", row.State, row.Suspects)
			}
		},
	},
	{
		name: "release",
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.session(), call("k"))
			return func(ctx context.Context) error { return hold.Release(ctx, "no") }
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StateFailed, 1, 0); g.wantRemaining(1000) },
	},
	{
		name: "extend",
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.session(), call("k"))
			return func(ctx context.Context) error { return hold.Extend(ctx, time.Hour) }
		},
		check: func(g *ledgerRig) {
			if row := g.wantRow("k", schema.StatePending, 1, 0); !row.Deadline.Equal(ledgerStart.Add(time.Hour)) {
				g.Errorf("deadline %s", row.Deadline)
			}
		},
	},
	resolving("resolve as applied", writers.EffectApplied, schema.StateApplied, 995, false),
	resolving("resolve as absent", writers.EffectAbsent, schema.StateFailed, 1000, false),
	resolving("resolve a failed row as applied", writers.EffectApplied, schema.StateApplied, 995, true),
	resolving("resolve a failed row as absent", writers.EffectAbsent, schema.StateFailed, 1000, true),
	{
		name: "compensate by commit",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("original"), "r")
			return func(ctx context.Context) error { return ignore(g.session().Commit(ctx, undo("u"), "undone")) }
		},
		check: checkUndone,
	},
	{
		name: "compensate by reserve and finalize",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("original"), "r")
			return g.holding(undo("u"), func(_ writers.Session, ctx context.Context, hold *writers.Reservation) error {
				return ignore(hold.Finalize(ctx, "undone", 1))
			})
		},
		check: checkUndone,
	},
	{
		name: "compensate late",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("original"), "r")
			hold := g.reserve(g.session(), undo("u"))
			g.expire("u")
			return func(ctx context.Context) error { return ignore(hold.Finalize(ctx, "undone", 1)) }
		},
		check: checkUndone,
	},
	{
		name: "do",
		prepare: func(g *ledgerRig) func(context.Context) error {
			p := &provider{}
			tool := p.paying(func() error { return nil })
			tool.Idempotent = true
			return func(ctx context.Context) error {
				_, err := tool.Do(ctx, g.session(), writers.SessionKey("k"), struct{}{})
				if _, keys := p.acts(); keys > 1 {
					g.Error("acted with two keys")
				}
				if e, ok := errors.AsType[*writers.Error](err); ok && (e.Code == writers.ErrInProgress || e.Code == writers.ErrOutcomeUnknown) {
					g.pastVerdict() // as a caller waits
				}
				return err
			}
		},
		check: func(g *ledgerRig) {
			if row := g.row("k"); row.State != schema.StateApplied {
				g.Errorf("the row is %s", row.State)
			}
			g.wantRemaining(995)
		},
	},
	{
		name: "do, verifying an earlier attempt",
		prepare: func(g *ledgerRig) func(context.Context) error {
			p := &provider{}
			tool := p.paying(func() error { return errors.New("dropped") })
			_, err := tool.Do(g.Context(), g.other(), writers.SessionKey("k"), struct{}{})
			g.wantCode(err, writers.ErrOutcomeUnknown)
			return func(ctx context.Context) error {
				_, err := tool.Do(ctx, g.session(), writers.SessionKey("k"), struct{}{})
				if asked, _ := p.acts(); asked != 1 {
					g.Errorf("acted %d times", asked)
				}
				return err
			}
		},
		check: func(g *ledgerRig) { g.wantRow("k", schema.StateApplied, 1, 1); g.wantRemaining(995) },
	},
	{
		name: "plan",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("k"), "r")
			return func(ctx context.Context) error {
				return g.ledger.Tenant("acme").PutPlan(ctx, writers.Plan{Tokens: 2000, Shards: 3})
			}
		},
		check: func(g *ledgerRig) { g.wantRemaining(1995) },
	},
	{
		name: "plan, the tenant's first",
		prepare: func(g *ledgerRig) func(context.Context) error {
			return func(ctx context.Context) error {
				return g.ledger.Tenant("fresh").PutPlan(ctx, writers.Plan{Tokens: 70})
			}
		},
		check: func(g *ledgerRig) {
			if q, err := g.clean.Tenant("fresh").Quota(g.Context()); err != nil || q.Granted != 70 {
				g.Errorf("%+v, %v", q, err)
			}
		},
	},
	{
		name: "suspend",
		prepare: func(g *ledgerRig) func(context.Context) error {
			return func(ctx context.Context) error { return g.ledger.Tenant("acme").Suspend(ctx, true) }
		},
		check: func(g *ledgerRig) {
			if q := g.shard("acme", "2026-10", 0); !q.Suspended {
				g.Error("not suspended")
			}
		},
	},
	{
		name: "grant",
		prepare: func(g *ledgerRig) func(context.Context) error {
			return func(ctx context.Context) error { return g.ledger.Tenant("acme").Grant(ctx, "gift", 50) }
		},
		check: func(g *ledgerRig) { g.wantRemaining(1050) },
	},
	{
		name: "grant, first of a period",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.set(time.Date(2026, 11, 1, 0, 0, 1, 0, time.UTC))
			return func(ctx context.Context) error { return g.ledger.Tenant("acme").Grant(ctx, "gift", 50) }
		},
		check: func(g *ledgerRig) {
			if q := g.shard("acme", "2026-11", 0); q.Granted != 1050 || q.Remaining != 1050 || q.Extra != 50 {
				g.Errorf("%+v", q)
			}
		},
	},
	{
		name: "erase", bare: true,
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("k"), "r")
			g.must(g.reserve(g.other(), call("released")).Release(g.Context(), ""))
			g.commit(g.clean.Tenant("acme").Session("s2"), call("k2", func(c *writers.Call) { c.Key, c.Cursor = writers.TenantKey("k2"), "c1" }), "r")
			g.pastVerdict()
			return func(ctx context.Context) error {
				return ignore(g.ledger.Tenant("acme").Erase(ctx, writers.Erasure{Segments: 1, By: "ann"}))
			}
		},
		check: func(g *ledgerRig) {
			if left := g.items(); len(left) != 0 {
				g.Errorf("%d items are left", len(left))
			}
		},
	},
	{
		name: "reads",
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.commit(g.other(), call("k"), "r")
			return func(ctx context.Context) error {
				_, err := g.session().Get(ctx, writers.SessionKey("k"))
				for _, e := range g.session().Calls(ctx) {
					err = errors.Join(err, e)
				}
				for _, e := range g.ledger.Pending(ctx, 0) {
					err = errors.Join(err, e)
				}
				_, cursorErr := g.session().Cursor(ctx)
				_, quotaErr := g.ledger.Tenant("acme").Quota(ctx)
				return errors.Join(err, cursorErr, quotaErr)
			}
		},
		check: func(*ledgerRig) {},
	},
}

// holding reserves c and goes on with then; once it holds a reservation it keeps it, as a caller does. Where the answer of
// its own reserve was lost together with the context, nobody has the reservation: the caller waits and takes over.
func (g *ledgerRig) holding(c writers.Call, then func(writers.Session, context.Context, *writers.Reservation) error) func(context.Context) error {
	var hold *writers.Reservation
	return func(ctx context.Context) error {
		if hold == nil {
			h, done, err := g.session().Reserve(ctx, c)
			if err != nil {
				return err
			}
			if done != nil {
				return nil
			}
			hold = h
		}
		return then(g.session(), ctx, hold)
	}
}

func finalizing(name string, charged, remaining int64, meanwhile func(*ledgerRig)) scenario {
	return scenario{
		name: name,
		prepare: func(g *ledgerRig) func(context.Context) error {
			hold := g.reserve(g.session(), call("k"))
			if meanwhile != nil {
				meanwhile(g)
			}
			return func(ctx context.Context) error {
				out, err := hold.Finalize(ctx, "r", charged)
				if err == nil && (out.Charged != charged || string(out.JSON) != `"r"`) {
					g.Errorf("%+v", out)
				}
				return err
			}
		},
		check: func(g *ledgerRig) {
			row := g.wantRow("k", schema.StateApplied, 1, 1)
			if row.Charged != charged || row.Charged != schema.SumDebits(row.Debits)+row.Shortfall {
				g.Errorf("charged %d, debits %v, shortfall %d", row.Charged, row.Debits, row.Shortfall)
			}
			g.wantRemaining(remaining)
		},
	}
}

func resolving(name string, verdict writers.Verdict, state string, remaining int64, failed bool) scenario {
	return scenario{
		name: name,
		prepare: func(g *ledgerRig) func(context.Context) error {
			g.reserve(g.other(), call("k"))
			if failed {
				g.expire("k")
			}
			g.pastVerdict()
			return func(ctx context.Context) error {
				return ignore(g.session().Resolve(ctx, writers.SessionKey("k"), writers.Resolution{
					Verdict: verdict, Attempt: 1, Result: "found", By: "ann", Why: "looked",
				}))
			}
		},
		check: func(g *ledgerRig) {
			if row := g.row("k"); row.State != state || row.By != "ann" {
				g.Errorf("%s by %q", row.State, row.By)
			}
			g.wantRemaining(remaining)
		},
	}
}

func checkUndone(g *ledgerRig) {
	g.wantRow("u", schema.StateApplied, g.row("u").Attempt, g.row("u").AppliedAttempt)
	if o := g.row("original"); o.CompensatedAt.IsZero() || len(o.Debits) != 0 {
		g.Errorf("the original is %+v", o)
	}
	g.wantRemaining(999)
}

func (g *ledgerRig) wantCursor(want string) {
	g.Helper()
	if got, err := g.clean.Tenant("acme").Session("s1").Cursor(context.WithoutCancel(g.Context())); err != nil || got != want {
		g.Errorf("cursor %q, %v; want %q", got, err, want)
	}
}

// misfortune is what becomes of one request. sure means that the operation must come through by itself.
type misfortune struct {
	name  string
	sure  bool
	level faults.Level
	fault func(e faults.Event, cancel context.CancelFunc) (faults.Fault, bool)
	kind  kind
}

// kind says how often a misfortune is met where there is no time for all.
type kind int

const (
	each  kind = iota // at each request
	turns             // at some
	rare              // never: it is like another
)

func always(f func() faults.Fault) func(faults.Event, context.CancelFunc) (faults.Fault, bool) {
	return func(faults.Event, context.CancelFunc) (faults.Fault, bool) { return f(), true }
}

// onTransactions cancels with one code at the items of a kind.
func onTransactions(code, prefix string) func(faults.Event, context.CancelFunc) (faults.Fault, bool) {
	return func(e faults.Event, _ context.CancelFunc) (faults.Fault, bool) {
		at := faults.Find(e.Input, prefix)
		return faults.Fail(faults.CancelledAt(e.Input, code, at...)), len(at) > 0 && strings.HasPrefix(e.Op, "Transact")
	}
}

var misfortunes = []misfortune{
	{"answer lost on the wire", true, faults.Try, always(faults.Lose), turns},
	{"connection broken on the wire", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.Broken()) }), rare},
	{"throttled once", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.Throttled()) }), turns},
	{"over capacity once", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.OverCapacity()) }), rare},
	{"internal error after applying", true, faults.Try, always(func() faults.Fault { return faults.LoseAs(faults.Internal()) }), rare},
	{"conflict on the row", true, faults.Try, onTransactions(faults.Conflict, "TOOL#"), turns},
	{"conflict on quota", true, faults.Try, onTransactions(faults.Conflict, "QUOTA#"), turns},
	{"conflict on the plan", true, faults.Try, onTransactions(faults.Conflict, "PLAN"), turns},
	{"conflict on the grant", true, faults.Try, onTransactions(faults.Conflict, "GRANT#"), turns},
	{"conflict on the session", true, faults.Try, onTransactions(faults.Conflict, "META"), turns},
	{"throttled at quota", true, faults.Try, onTransactions(faults.ThrottlingReason, "QUOTA#"), rare},
	{"over capacity at the row", true, faults.Try, onTransactions(faults.Capacity, "TOOL#"), rare},
	{"answer lost", false, faults.Call, always(faults.Lose), each},
	{"never sent", false, faults.Call, always(func() faults.Fault { return faults.Fail(faults.Broken()) }), rare},
	{"in progress, applied", false, faults.Call, always(func() faults.Fault { return faults.LoseAs(faults.InProgress()) }), rare},
	{"in progress, not applied", false, faults.Call, always(func() faults.Fault { return faults.Fail(faults.InProgress()) }), turns},
	{"mismatch, applied", false, faults.Call, always(func() faults.Fault { return faults.LoseAs(faults.Mismatch()) }), turns},
	{"cancelled before", false, faults.Call, func(_ faults.Event, cancel context.CancelFunc) (faults.Fault, bool) {
		return faults.Fail(context.Canceled).Before(cancel), true
	}, each},
	{"cancelled after", false, faults.Call, func(_ faults.Event, cancel context.CancelFunc) (faults.Fault, bool) {
		return faults.LoseAs(context.Canceled).After(cancel), true
	}, each},
	{"hanging until the deadline", false, faults.Call, always(faults.Hang), turns},
	{"applied and hanging until the deadline", false, faults.Call, always(faults.Stall), turns},
	{"the process dies before", false, faults.Call, always(faults.Crash), each},
	{"the process dies after", false, faults.Call, always(faults.CrashAfter), each},
}

// TestFaults: every operation, at every one of its requests, meets every misfortune. The operation ends in bounded time;
// what the ledger says is retried succeeds; then there is one effect and one debit, and the books balance. An answer that is
// lost on a transaction is found out about within the same call.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			turn := len(s.name)
			for i, e := range requestsOf(t, s) {
				for _, m := range misfortunes {
					if _, fits := m.fault(e, func() {}); !fits {
						continue
					}
					turn++ // where there is no time for all, those that are seldom the only ones to find something take turns
					if soaking() || m.kind == each || m.kind == turns && turn%3 == 0 {
						meet(t, s, m, i+1)
					}
				}
			}
		})
	}
}

// requestsOf is what an operation asks of DynamoDB where nothing goes wrong.
func requestsOf(t *testing.T, s scenario) []faults.Event {
	g := newLedgerRig(t)
	op := s.prepare(g)
	var rec faults.Recorder
	g.in.Set(rec.Hook)
	if err := op(t.Context()); !s.ended(err) {
		t.Fatalf("without any fault: %v", err)
	}
	s.check(g)
	g.balanced()
	return rec.Events(faults.Call, "")
}

func (s scenario) ended(err error) bool {
	if s.want == "" {
		return err == nil
	}
	return errors.Is(err, s.want)
}

// inTime is how long an operation may take with one request hanging until its context's deadline, reading back included.
const (
	deadlineOfFaults = 150 * time.Millisecond
	inTime           = 15 * time.Second
)

// errDied is how an operation ends whose process does.
var errDied = errors.New("the process died")

func meet(t *testing.T, s scenario, m misfortune, n int) {
	t.Helper()
	g := newLedgerRig(t)
	op := s.prepare(g)
	ctx, cancel := context.WithCancel(t.Context())
	if strings.Contains(m.name, "deadline") {
		ctx, cancel = context.WithTimeout(t.Context(), deadlineOfFaults)
	}
	defer cancel()
	met, isWrite := false, false
	g.in.Set(func(e faults.Event) faults.Fault {
		if e.Level != m.level || e.Seq != n || met {
			return faults.Fault{}
		}
		var f faults.Fault
		if f, met = m.fault(e, cancel); !met {
			return faults.Fault{}
		}
		isWrite = e.Op == "TransactWriteItems"
		return f
	})
	where := fmt.Sprintf("%s at request %d of %s", m.name, n, s.name)
	began := time.Now()
	err := errDied
	g.in.Run(func() { err = op(ctx) })
	g.in.Revive()
	if took := time.Since(began); took > inTime {
		t.Errorf("%s: took %s", where, took)
	}
	if !met {
		return
	}
	lost := m.name == "answer lost" || m.name == "mismatch, applied" || m.name == "in progress, applied"
	if !s.ended(err) && (m.sure || lost && isWrite) {
		t.Errorf("%s: %v", where, err)
	}
	if !s.ended(err) && !errors.Is(err, errDied) && !(s.bare && ctx.Err() != nil && errors.Is(err, ctx.Err())) {
		wantHonest(t, where, err)
	}
	g.in.Set(nil)
	for i := 0; !s.ended(err); i++ {
		if i == 3 {
			t.Errorf("%s: does not come through: %v", where, err)
			return
		}
		if err = op(t.Context()); errors.Is(err, writers.ErrInProgress) {
			if strings.Contains(s.name, "reserve") || strings.Contains(s.name, "takeover") {
				g.orphaned(where)
				return
			}
		}
	}
	s.check(g)
	g.balanced()
	if t.Failed() {
		t.Fatalf("%s", where)
	}
}

// orphaned checks a reservation that was made for a caller whose context ended before it knew: it is there once, paid
// once, and whoever verifies goes on.
func (g *ledgerRig) orphaned(where string) {
	g.Helper()
	report := g.balanced()
	if report.States[schema.StatePending] != 1 {
		g.Errorf("%s: %v", where, report.States)
	}
}

// wantHonest: an operation that did not come through says so as writers.Error, and does not claim that nothing was written
// where it cannot know.
func wantHonest(t *testing.T, where string, err error) {
	t.Helper()
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		t.Errorf("%s: %T: %v", where, err, err)
		return
	}
	if e.Code != writers.ErrUnavailable && e.Code != writers.ErrOutcomeUnknown && e.Code != writers.ErrNotApplied {
		t.Errorf("%s: %v", where, err)
	}
}

// TestFaultsForEver: where contention, throttling or silence do not end, every operation ends by itself, in a bounded number
// of requests, and says that it may be repeated.
func TestFaultsForEver(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(faults.Event) faults.Fault{
		"conflict":  func(e faults.Event) faults.Fault { return faults.Fail(faults.CancelledAt(e.Input, faults.Conflict, 0)) },
		"throttled": func(faults.Event) faults.Fault { return faults.Fail(faults.Throttled()) },
		"silence":   func(faults.Event) faults.Fault { return faults.Fail(faults.Broken()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var group sync.WaitGroup
			for _, s := range scenarios {
				if s.name == "reads" || s.name == "replay" {
					continue
				}
				g := newLedgerRig(t)
				op := s.prepare(g)
				g.in.Set(func(e faults.Event) faults.Fault {
					if e.Level != faults.Try || e.Op != "TransactWriteItems" {
						return faults.Fault{}
					}
					return fault(e)
				})
				group.Go(func() {
					err := op(t.Context())
					e, ok := errors.AsType[*writers.Error](err)
					if !ok || e.Code != writers.ErrUnavailable || e.RetryAfter <= 0 {
						t.Errorf("%s: %v", s.name, err)
					}
					if n, most := g.in.Count(faults.Try, "TransactWriteItems"), 30; n > most {
						t.Errorf("%s: %d requests", s.name, n)
					}
				})
			}
			group.Wait()
		})
	}
}

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
