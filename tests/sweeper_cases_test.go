package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/sweeper"
	"toolledger/writers"
)

type seat struct {
	Flight string `json:"flight"`
}

// booking is a paid call: an outside world that counts what was booked, and a tool that can ask it.
type booking struct {
	mu     sync.Mutex
	booked map[string]int // by effect key
}

func (b *booking) act(_ context.Context, a writers.Attempt[seat]) (string, error) {
	b.book(a.EffectKey)
	return "PNR", nil
}

func (b *booking) book(effectKey string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.booked == nil {
		b.booked = map[string]int{}
	}
	b.booked[effectKey]++
}

func (b *booking) effects() (sum int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.booked {
		sum += n
	}
	return sum
}

func (b *booking) verify(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.booked[c.EffectKey] > 0 {
		return "PNR", writers.EffectApplied, nil
	}
	return "", writers.EffectAbsent, nil
}

func (g *sweepRig) plan(tenant writers.TenantID, tokens int64) writers.Session {
	g.Helper()
	g.must(g.ledger.Tenant(tenant).PutPlan(g.Context(), writers.Plan{Tokens: tokens}))
	return g.ledger.Tenant(tenant).Session("s")
}

func (g *sweepRig) remaining(tenant string) int64 {
	g.Helper()
	return g.quota(tenant, schema.PeriodAt(schema.Monthly, g.now()), 0).Remaining
}

// HC13: the external call succeeds at 14:59 of 15:00 and the function is killed. Promise: the sweeper asks the outside
// world and records what it finds; the retry gets that result; the paid call is made once and debited once.
func TestHC13PaidCallIsNotRepeated(t *testing.T) {
	for name, retryFirst := range map[string]bool{"sweep, then retry": false, "retry, then sweep": true} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			ctx := t.Context()
			out := &booking{}
			tool := &writers.Tool[seat, string]{Name: "book", Cost: 20, Act: out.act, Verify: out.verify, Lease: 15 * time.Minute}
			cfg := sweeper.Config{Tools: []writers.AnyTool{tool}}
			session := g.plan("acme", 1000)
			hold, _, err := session.Reserve(ctx, tool.Call(writers.SessionKey("k4"), seat{"LH1"}))
			g.must(err)
			g.advance(14*time.Minute + 59*time.Second)
			out.book(hold.EffectKey) // and killed
			g.advance(2 * time.Second)
			if report := g.sweep(cfg); report.Found != 0 {
				t.Errorf("swept within the margin: %+v", report)
			}
			retry := func() {
				res, err := tool.Do(ctx, session, writers.SessionKey("k4"), seat{"LH1"})
				if err != nil || res.Value != "PNR" || res.Attempt != 1 {
					t.Errorf("the retry got %+v, %v", res, err)
				}
			}
			if retryFirst {
				retry()
			}
			g.advance(2 * time.Minute)
			want := sweeper.Report{Found: 1, Verified: 1, Finalized: 1}
			if retryFirst {
				want = sweeper.Report{}
			}
			sameReport(t, g.sweep(cfg), want)
			retry()
			if out.effects() != 1 || g.remaining("acme") != 980 {
				t.Errorf("%d bookings, %d tokens remain", out.effects(), g.remaining("acme"))
			}
			g.wantStates(map[string]int{schema.StateApplied: 1})
		})
	}
}

// HC14: the worker crashes before it acts. Promise: before the deadline a retry waits; after the sweep an idempotent tool's
// call is free again and refunded once, one with a verifier is asked about first, and one with neither waits for a person.
func TestHC14StuckRows(t *testing.T) {
	out := &booking{}
	for name, tt := range map[string]struct {
		tool   *writers.Tool[seat, string]
		report sweeper.Report
		err    error // of the retry after the sweep
	}{
		"idempotent": {
			&writers.Tool[seat, string]{Name: "ping", Cost: 30, Act: out.act, Idempotent: true},
			sweeper.Report{Found: 1, Expired: 1, RefundedTokens: 30},
			nil,
		},
		"with a verifier": {
			&writers.Tool[seat, string]{Name: "book", Cost: 30, Act: out.act, Verify: out.verify},
			sweeper.Report{Found: 1, Verified: 1, Expired: 1, RefundedTokens: 30},
			nil,
		},
		"with neither": {
			&writers.Tool[seat, string]{Name: "pay", Cost: 30, Act: out.act},
			sweeper.Report{Found: 1, Held: 1},
			writers.ErrOutcomeUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out.booked = nil // another world
			g := newSweepRig(t)
			ctx := t.Context()
			session, key := g.plan("acme", 1000), writers.SessionKey("k5")
			call := tt.tool.Call(key, seat{"LH2"}, func(c *writers.Call) { c.Lease = 15 * time.Minute })
			_, _, err := session.Reserve(ctx, call)
			g.must(err)
			for _, wait := range []time.Duration{time.Second, 5 * time.Minute} {
				g.advance(wait)
				if _, _, err := session.Reserve(ctx, call); !errors.Is(err, writers.ErrInProgress) {
					t.Errorf("before the deadline: %v", err)
				}
				if report := g.sweep(sweeper.Config{}); report.Found != 0 {
					t.Errorf("a live reservation was swept: %+v", report)
				}
			}
			g.advance(time.Hour)
			cfg := sweeper.Config{Tools: []writers.AnyTool{tt.tool}}
			sameReport(t, g.sweep(cfg), tt.report)
			sameReport(t, g.sweep(cfg), sweeper.Report{})
			before := out.effects()
			res, err := tt.tool.Do(ctx, session, key, seat{"LH2"})
			if !errors.Is(err, tt.err) || tt.err == nil && (res.Outcome != writers.OutcomeApplied || res.Attempt != 2 || out.effects() != before+1) {
				t.Errorf("after the sweep: %+v, %v, %d effects", res, err, out.effects()-before)
			}
			if g.remaining("acme") != 970 {
				t.Errorf("%d tokens remain, want 970", g.remaining("acme"))
			}
			g.balanced()
		})
	}
}

// HC20: a refund commits and what follows it fails, so that settling starts again. Promise: the refund belongs to the row's
// own transition: settling and sweeping again change nothing, and what remains is never above the grant.
func TestHC20RefundOnce(t *testing.T) {
	g := newSweepRig(t)
	ctx := t.Context()
	session := g.plan("acme", 1000)
	call := writers.Call{Key: writers.SessionKey("a"), Tool: "pay", Args: seat{}, Tokens: 220, Idempotent: true}
	hold, _, err := session.Reserve(ctx, call)
	g.must(err)
	for range 3 {
		_, err = hold.Finalize(ctx, "paid", 55)
		g.must(err)
		g.advance(24 * time.Hour)
		if report := g.sweep(sweeper.Config{}); report.Found != 0 || g.remaining("acme") != 945 {
			t.Errorf("%+v, %d remain", report, g.remaining("acme"))
		}
	}
	// The same with the refund made by the sweeper, its answers lost, and the effect reported afterwards.
	call.Key = writers.SessionKey("b")
	hold, _, err = session.Reserve(ctx, call)
	g.must(err)
	g.advance(time.Hour)
	var n atomic.Int64
	g.faults.harm(nil, func(op string, _ any) error {
		if op == "write" && n.Add(1) == 1 {
			return errLost
		}
		return nil
	})
	sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 1, Expired: 1, RefundedTokens: 220})
	for range 3 {
		if report := g.sweep(sweeper.Config{}); report.Found != 0 || g.remaining("acme") != 945 {
			t.Errorf("%+v, %d remain", report, g.remaining("acme"))
		}
	}
	for range 2 {
		_, err = hold.Finalize(ctx, "paid", 55)
		g.must(err)
		if g.remaining("acme") != 890 {
			t.Errorf("%d remain, want 890", g.remaining("acme"))
		}
	}
	g.balanced()
}

// HC22: finalizes and sweeps of one row start together. Promise: one of them wins, whoever loses adds nothing, and the
// books balance after every round.
func TestHC22FinalizeAgainstSweep(t *testing.T) { finalizeAgainstSweep(t, 12, 6) }

func TestSoakHC22FinalizeAgainstSweep(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	finalizeAgainstSweep(t, 1_000, 5)
	finalizeAgainstSweep(t, 40, 25)
}

func finalizeAgainstSweep(t *testing.T, rounds, each int) {
	g := newSweepRig(t)
	ctx := t.Context()
	session := g.plan("acme", 1_000_000)
	swept, others := 0, g.ledgerOf(g.db, 0)
	for i := range rounds {
		hold, _, err := session.Reserve(ctx, writers.Call{
			Key: writers.SessionKey(keyN(i)), Tool: "ping", Args: seat{}, Tokens: 10, Idempotent: true,
		})
		g.must(err)
		g.advance(10 * time.Minute)
		meet, writing := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var wg sync.WaitGroup
		var expired, applied atomic.Int64
		finalize := meet
		if i%2 == 1 { // a sweep has read the index by then and is about to write
			finalize = writing
		}
		g.faults.harm(func(op string, _ any) error {
			if op == "write" {
				once.Do(func() { close(writing) })
			}
			return nil
		}, nil)
		for range each {
			holder, err := others.Tenant("acme").Resume(hold.Token())
			g.must(err)
			wg.Go(func() {
				<-finalize
				if res, err := holder.Finalize(ctx, "done", 4); err != nil {
					t.Error(err)
				} else if res.Outcome != writers.OutcomeReplayed {
					applied.Add(1)
				}
			})
			wg.Go(func() {
				<-meet
				report, err := g.sweeper(sweeper.Config{}).Run(ctx)
				if err != nil || report.Errors > 0 {
					t.Error(err, report)
				}
				expired.Add(int64(report.Expired))
			})
		}
		close(meet)
		wg.Wait()
		row := g.row(schema.RowKey("acme", "s", schema.ScopeSession, keyN(i)))
		if row.State != schema.StateApplied || row.Charged != 4 || expired.Load() > 1 {
			t.Fatalf("round %d: swept %d times, %+v", i, expired.Load(), row)
		}
		swept += int(expired.Load())
		if want := 1_000_000 - 4*int64(i+1); g.remaining("acme") != want {
			t.Fatalf("round %d: %d remain, want %d", i, g.remaining("acme"), want)
		}
	}
	t.Logf("the sweep was first in %d of %d rounds", swept, rounds)
	g.balanced()
}

// HC24: the row is renewed or finalized between the sweeper's query and its write. Promise: the sweep of that row is
// cancelled quietly: no refund, no error, the row as its holder left it.
func TestHC24SweepAfterRenewal(t *testing.T) {
	for name, renew := range map[string]func(context.Context, *writers.Reservation) error{
		"finalize": func(ctx context.Context, r *writers.Reservation) error { _, err := r.Finalize(ctx, 1, 5); return err },
		"extend":   func(ctx context.Context, r *writers.Reservation) error { return r.Extend(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			ctx := t.Context()
			session := g.plan("acme", 100)
			reserved, _, err := session.Reserve(ctx, writers.Call{Key: writers.SessionKey("k7"), Tool: "ping", Args: seat{}, Tokens: 5, Idempotent: true})
			g.must(err)
			hold, err := g.ledgerOf(g.db, 0).Tenant("acme").Resume(reserved.Token())
			g.must(err)
			g.advance(time.Hour)
			var once atomic.Bool
			g.faults.harm(func(op string, _ any) error {
				if op == "write" && once.CompareAndSwap(false, true) {
					g.must(renew(ctx, hold))
				}
				return nil
			}, nil)
			sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 1, LostRaces: 1})
			g.faults.harm(nil, nil)
			sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{})
			if g.remaining("acme") != 95 {
				t.Errorf("%d remain", g.remaining("acme"))
			}
			g.balanced()
		})
	}
}

// HC26: one schedule starts two invocations, and a second run starts while the first is half way through. Promise: both
// succeed, every row is refunded once, and their counts add up to the number of stale rows.
func TestHC26OverlappingRuns(t *testing.T) {
	for name, halfway := range map[string]bool{"same time": false, "half way": true} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			rows, tokens := g.manyRows(500, 5)
			g.seed(rows...)
			meet := make(chan struct{})
			var writes atomic.Int64
			g.faults.harm(func(op string, _ any) error {
				if op == "write" && writes.Add(1) == 10 {
					close(meet)
				}
				return nil
			}, nil)
			var wg sync.WaitGroup
			var first, second sweeper.Report
			wg.Go(func() { first = g.sweep(sweeper.Config{Concurrency: 1}) })
			wg.Go(func() {
				if halfway {
					<-meet
				}
				s, err := sweeper.New(g.ledgerOf(g.db, 0), sweeper.Config{})
				if err == nil {
					second, err = s.Run(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if first.Expired+second.Expired != 500 || first.RefundedTokens+second.RefundedTokens != tokens || first.Errors+second.Errors != 0 {
				t.Errorf("first %+v\nsecond %+v", first, second)
			}
			if halfway && second.Found == 500 {
				t.Error("the second run was not half way through")
			}
			g.wantStates(map[string]int{schema.StateFailed: 500})
			g.allRefunded()
		})
	}
}

// HC28: the guard is pointed at a key that nobody writes. Promise: writer, sweeper and index mean the same bytes, for both
// scopes and for odd ids: the rows that were reserved are the rows that are swept, and no others appear.
func TestHC28SameKeys(t *testing.T) {
	g := newSweepRig(t)
	ctx := t.Context()
	odd := []string{
		"plain", "with space", "TOOL", "QUOTA", "a/b/../c", `q"uote'`, "ünïcödé", "日本", "a\u2028b", "%23", "k=v&x", "{}", "-", "0", "00",
		"🙂", "e\u0301", "\u00e9", strings.Repeat("x", 128),
	}
	var want []schema.Key
	for i, id := range odd {
		session := g.ledger.Tenant(writers.TenantID(id)).Session(id)
		g.must(g.ledger.Tenant(writers.TenantID(id)).PutPlan(ctx, writers.Plan{Tokens: 100}))
		for scope, key := range map[schema.Scope]writers.Key{
			schema.ScopeSession: writers.SessionKey(id), schema.ScopeTenant: writers.TenantKey(id),
		} {
			_, _, err := session.Reserve(ctx, writers.Call{Key: key, Tool: "ping", Args: seat{}, Tokens: 1, Idempotent: true})
			g.must(err)
			want = append(want, schema.RowKey(id, id, scope, id))
		}
		_, err := session.Commit(ctx, writers.Call{Key: writers.SessionKey("commit-" + fmt.Sprint(i)), Tool: "log", Args: seat{}, Tokens: 1}, "ok")
		g.must(err)
	}
	before := g.all()
	g.advance(time.Hour)
	sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: len(want), Expired: len(want), RefundedTokens: int64(len(want))})
	after := g.all()
	if len(after) != len(before) {
		t.Errorf("%d items became %d", len(before), len(after))
	}
	for _, key := range want {
		if _, there := before[key]; !there {
			t.Errorf("the writer has no row %q", key)
		}
		if row := g.row(key); row == nil || row.State != schema.StateFailed {
			t.Errorf("%q was not swept", key)
		}
	}
	g.wantStates(map[string]int{schema.StateFailed: len(want), schema.StateApplied: len(odd)})
}
