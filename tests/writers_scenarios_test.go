package tests_test

import (
	"context"
	"errors"
	"time"

	"toolledger/internal/schema"
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
