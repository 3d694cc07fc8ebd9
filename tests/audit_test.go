package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"toolledger/internal/audit"
	"toolledger/internal/schema"
	"toolledger/writers"
)

// audited is a ledger with calls of two tenants in every state.
func audited(t *testing.T) *ledgerRig {
	g := bareLedgerRig(t)
	g.set(time.Now()) // the program's clock is real
	g.plan("acme2", writers.Plan{Tokens: 100, Shards: 3, Period: writers.Always})
	g.plan("acme", writers.Plan{Tokens: 1000})
	s, ctx := g.session(), t.Context()
	finalized := g.reserve(s, call("finalized"))
	_, err := finalized.Finalize(ctx, "ok", 3)
	g.must(err)
	g.must(g.reserve(s, call("released")).Release(ctx, "because"))
	g.reserve(s, call("pending"))
	g.commit(s, call("committed"), "ok")
	for n := range 5 {
		_, err := g.ledger.Tenant("acme2").Session("s").Commit(ctx, call(fmt.Sprint("k", n)), "ok")
		g.must(err)
	}
	return g
}

func (g *ledgerRig) place() []string {
	return []string{"--endpoint", *g.db.Options().BaseEndpoint, "--table", g.table, "--control", g.table + "-control"}
}

// auditProgram runs audit with --json and reads its one object.
func (g *ledgerRig) auditProgram(t *testing.T, code int, args ...string) audit.Report {
	t.Helper()
	got := runProgram(t, nil, append(append([]string{"audit", "--json"}, g.place()...), args...)...)
	var r audit.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != code {
		t.Fatalf("exit code %d, want %d: %v\n%+v", got.code, code, err, got)
	}
	return r
}

// What writers do is legal and balances, in all states, scopes and kinds of periods.
func TestAuditOfASoundLedger(t *testing.T) {
	g := audited(t)
	r := g.auditProgram(t, 0)
	if !r.OK || r.States["applied"] != 7 || r.States["pending"] != 1 || r.States["failed"] != 1 || r.Items["quota"] != 4 ||
		r.Notes.Count != 0 || r.Moving.Count != 0 {
		t.Fatalf("%+v", r)
	}
	got := runProgram(t, nil, append([]string{"audit"}, g.place()...)...)
	if got.code != 0 || strings.Count(got.stdout, "✓") != 2 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
}

// One tenant's audit sees that tenant's items alone: a name that begins with it is somebody else's, and nobody's name is an
// error and no clean bill.
func TestAuditOfOneTenant(t *testing.T) {
	g := audited(t)
	row := g.row("committed")
	row.ResultJSON = nil
	g.replace(row.Item())
	if r := g.auditProgram(t, 0, "--tenant", "acme2"); !r.OK || r.Items["row"] != 5 || r.Items["quota"] != 3 {
		t.Fatalf("%+v", r)
	}
	if r := g.auditProgram(t, 1, "--tenant", "acme"); r.Items["row"] != 4 || r.Items["quota"] != 1 || r.Illegal.Count != 1 {
		t.Fatalf("%+v", r)
	}
	got := runProgram(t, nil, append([]string{"audit", "--tenant", "acm"}, g.place()...)...)
	if got.code != 2 || !strings.Contains(got.stderr, "there is nothing of tenant acm ") || strings.Contains(got.stdout, "✓") {
		t.Fatalf("%+v", got)
	}
}

// Every broken promise ends the audit with 1 and shows the offending item, for programs and for persons.
func TestAuditNotices(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(g *ledgerRig)
		books  audit.Books
		want   string // in the report
	}{
		"a token from nowhere": {func(g *ledgerRig) {
			q := g.shard("acme", g.period(), 0)
			q.Remaining++
			g.replace(q.Item())
		}, audit.Unbalanced, `"difference":-1`},
		"a row that is gone": {func(g *ledgerRig) { g.remove(rowKey("finalized")) }, audit.Unbalanced, `"difference":3`},
		"a refund beyond a period without end": {func(g *ledgerRig) {
			q := g.shard("acme2", schema.AlwaysPeriod, 1)
			q.Remaining += 50
			g.replace(q.Item())
		}, audit.Unbalanced, `"at_least":true`},
		"a pending row with a time to live": {func(g *ledgerRig) {
			r := g.row("pending")
			r.ExpiresAt = r.Deadline
			g.replace(r.Item())
		}, audit.Balanced, `"attribute":"expiresAt"`},
		"a row in a state that is none": {func(g *ledgerRig) {
			r := g.row("released")
			r.State = "undone"
			g.replace(r.Item())
		}, audit.Balanced, `"attribute":"state"`},
		"an item under a key that is none": {func(g *ledgerRig) {
			g.replace(schema.Item{schema.PK: schema.S("TENANT#acme"), schema.SK: schema.S("QUOTA#soon")})
		}, audit.Balanced, `"sk":"QUOTA#soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := audited(t)
			c.damage(g)
			r := g.auditProgram(t, 1)
			text, err := json.Marshal(r)
			if err != nil || r.OK || r.Books != c.books || !strings.Contains(string(text), c.want) {
				t.Errorf("%v, want %s in\n%s", err, c.want, text)
			}
			got := runProgram(t, nil, append([]string{"audit"}, g.place()...)...)
			if got.code != 1 || !strings.Contains(got.stdout, "✗") || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func (g *ledgerRig) period() string { return schema.PeriodAt(schema.Monthly, g.now()) }

// A ledger in use is never called unbalanced: calls come in all the time while it is audited.
func TestAuditOfALedgerInUse(t *testing.T) {
	g := newLedgerRig(t)
	g.plan("acme", writers.Plan{Tokens: 1_000_000})
	ctx, cancel := context.WithCancel(t.Context())
	var callers errgroup.Group
	for n := range 3 {
		callers.Go(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				hold, _, err := g.clean.Tenant("acme").Session(fmt.Sprint("s", n)).Reserve(ctx, call(fmt.Sprint("k", i)))
				if err == nil && i%3 == 0 {
					err = hold.Release(ctx, "no")
				} else if err == nil {
					_, err = hold.Finalize(ctx, i, int64(i%5))
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
			}
			return nil
		})
	}
	moved := 0
	for range soak(8, 24) {
		r, err := audit.Run(t.Context(), g.db, audit.Config{Table: g.table, Now: g.now, Segments: 2})
		if err != nil || !r.OK {
			t.Errorf("%v: %+v", err, r)
			break
		}
		moved += r.Moving.Count
	}
	cancel()
	if err := callers.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d times the quota item kept moving", moved)
	if r := g.balanced(); r.Moving.Count != 0 {
		t.Fatalf("moving at rest: %+v", r)
	}
}
