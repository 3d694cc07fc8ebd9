package tests_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/sweeper"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// provider is an outside system that knows keys: what it did for a key it does not do again.
type provider struct {
	mu   sync.Mutex
	keys map[string]int
}

func (p *provider) act(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil {
		p.keys = map[string]int{}
	}
	p.keys[key]++
}

// acts returns how often the provider was asked, and the number of different keys.
func (p *provider) acts() (asked, keys int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.keys {
		asked += n
	}
	return asked, len(p.keys)
}

// paying is a tool of that provider with a verifier.
func (p *provider) paying(act func() error) *writers.Tool[struct{}, string] {
	return &writers.Tool[struct{}, string]{
		Name: "pay", Cost: 5,
		Act: func(_ context.Context, a writers.Attempt[struct{}]) (string, error) {
			p.act(a.EffectKey)
			return "paid", act()
		},
		Verify: func(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.keys[c.EffectKey] > 0 {
				return "paid", writers.EffectApplied, nil
			}
			return "", writers.EffectAbsent, nil
		},
	}
}

// A function that is killed right after it paid: the retry finds what was paid and does not pay again.
func TestHC13KilledAfterActing(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { g.in.Kill(); return nil })
	if g.in.Run(func() { _, _ = tool.Do(t.Context(), g.session(), writers.SessionKey("k4"), struct{}{}) }) {
		t.Fatal("the worker survived")
	}
	g.wantRow("k4", schema.StatePending, 1, 0)
	g.in.Revive()
	g.advance(2 * time.Second)
	out, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k4"), struct{}{})
	if err != nil || out.Value != "paid" || out.Outcome != writers.OutcomeReplayed {
		t.Errorf("%+v, %v", out, err)
	}
	if asked, _ := p.acts(); asked != 1 {
		t.Errorf("paid %d times", asked)
	}
	g.wantRow("k4", schema.StateApplied, 1, 1)
	g.wantRemaining(995)
	g.balanced()
}

// A worker that dies before it acts blocks nobody for good: the next one waits, then a sweep gives the row back, or asks,
// or holds it for a person, by what the tool can do.
func TestHC14StaleReservation(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	lease := func(c *writers.Call) { c.Lease = 15 * time.Minute }
	harmless := func(c *writers.Call) { c.Idempotent = true }
	var p provider
	verified := p.paying(func() error { return nil })
	g.reserve(g.session(), call("idempotent", lease, harmless))
	g.reserve(g.session(), verified.Call(writers.SessionKey("verified"), struct{}{}, lease))
	g.reserve(g.session(), call("neither", lease))
	for _, at := range []time.Duration{time.Second, 5 * time.Minute} {
		g.set(ledgerStart.Add(at))
		_, _, err := g.session().Reserve(t.Context(), call("idempotent", harmless))
		if e := g.wantCode(err, writers.ErrInProgress); e.RetryAfter <= 0 {
			t.Error("not told to retry")
		}
	}
	g.set(ledgerStart.Add(time.Hour))
	s, err := sweeper.New(g.clean, sweeper.Config{Tools: []writers.AnyTool{verified}})
	g.must(err)
	for range 3 { // a hard deadline of a day holds what nobody can decide
		_, err = s.Run(t.Context())
		g.must(err)
		g.advance(25 * time.Hour)
	}
	g.wantRow("idempotent", schema.StateFailed, 1, 0)
	g.wantRow("verified", schema.StateFailed, 1, 0)
	if row := g.wantRow("neither", schema.StatePending, 1, 0); !row.Held {
		t.Error("not held for a person")
	}
	g.wantRemaining(995)
	g.reserve(g.session(), call("idempotent", harmless))
	g.wantRow("idempotent", schema.StatePending, 2, 0)
	if out, err := verified.Do(t.Context(), g.session(), writers.SessionKey("verified"), struct{}{}); err != nil || out.Attempt != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	_, _, err = g.session().Reserve(t.Context(), call("neither"))
	if e := g.wantCode(err, writers.ErrOutcomeUnknown); e.RetryAfter != 0 {
		t.Error("told to retry what a person must decide")
	}
	g.balanced()
}

// A step that is replayed because the next one failed gets the stored bytes; nothing is debited or recorded anew.
func TestHC16ReplayedStep(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { return nil })
	first, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k6"), struct{}{})
	g.must(err)
	g.unchanged(func() {
		again, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k6"), struct{}{})
		if err != nil || again.Outcome != writers.OutcomeReplayed || string(again.JSON) != string(first.JSON) || again.Charged != 5 {
			t.Errorf("%+v, %v", again, err)
		}
	})
	if asked, _ := p.acts(); asked != 1 {
		t.Errorf("paid %d times", asked)
	}
	if o := g.observation("k6"); o.Duplicates != 1 {
		t.Errorf("%d duplicates counted", o.Duplicates)
	}
}

// Three layers that retry, all losing answers after the write landed: one effect, and a bounded number of requests.
func TestHC17RetryLayers(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	// Every second try of a transaction loses its answer after it was applied.
	g.in.Set(func(e faults.Event) faults.Fault {
		if e.Level == faults.Try && e.Op == "TransactWriteItems" && e.N%4 != 0 {
			return faults.Lose()
		}
		return faults.Fault{}
	})
	var p provider
	tool := p.paying(func() error { return nil })
	for range 3 * 3 {
		if _, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	if asked, keys := p.acts(); asked != 1 || keys != 1 {
		t.Errorf("paid %d times", asked)
	}
	if n := g.in.Count(faults.Try, "TransactWriteItems"); n > 9*8 {
		t.Errorf("%d requests", n)
	}
	// A service that never answers ends each call after a bounded number of tries.
	g.in.Set(faults.Every(faults.Try, "", faults.Fail(faults.Broken())))
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("dead"), struct{}{})
	g.wantCode(err, writers.ErrUnavailable)
	if n := g.in.Count(faults.Try, ""); n > 12 {
		t.Errorf("%d requests to a dead service", n)
	}
	g.wantRemaining(995)
	g.balanced()
}

// A provider that commits and drops the connection: where it knows keys, the next try carries the same one; where it does
// not, the outcome is unknown and nobody tries blindly.
func TestHC18DroppedConnection(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	dropped := errors.New("connection dropped")
	var knows provider
	tool := knows.paying(func() error { return dropped })
	tool.Verify, tool.Idempotent = nil, true
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	if e := g.wantCode(err, writers.ErrOutcomeUnknown); !errors.Is(e, dropped) {
		t.Errorf("the cause is lost: %v", e)
	}
	g.pastVerdict()
	_, err = tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	g.wantCode(err, writers.ErrOutcomeUnknown)
	if asked, keys := knows.acts(); asked != 2 || keys != 1 {
		t.Errorf("asked %d times with %d keys", asked, keys)
	}

	var blind provider
	tool = blind.paying(func() error { return dropped })
	tool.Verify = nil
	for range 3 {
		_, err = tool.Do(t.Context(), g.session(), writers.SessionKey("blind"), struct{}{})
		if errors.Is(err, writers.ErrNotApplied) {
			t.Errorf("told that it did not happen: %v", err)
		}
		g.pastVerdict()
	}
	g.wantCode(err, writers.ErrOutcomeUnknown)
	if asked, _ := blind.acts(); asked != 1 {
		t.Errorf("acted %d times", asked)
	}
	g.wantRow("blind", schema.StatePending, 1, 0)
	g.balanced()
}

// No act without a durable pending row: a death before the reserve leaves nothing, one after it leaves a row to reconcile,
// and the effect key is the same for whoever comes next.
func TestHC19DeathAroundTheReserve(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { return nil })
	die := func(key string, f faults.Fault) {
		g.in.Set(faults.At(faults.Call, "TransactWriteItems", 1, f))
		if g.in.Run(func() { _, _ = tool.Do(t.Context(), g.session(), writers.SessionKey(key), struct{}{}) }) {
			t.Error("the worker survived")
		}
		g.in.Set(nil)
		g.in.Revive()
	}
	g.unchanged(func() { die("k", faults.Crash()) })
	die("k", faults.CrashAfter())
	g.wantRow("k", schema.StatePending, 1, 0)
	if asked, _ := p.acts(); asked != 0 {
		t.Errorf("acted %d times", asked)
	}
	before, err := g.clean.Tenant("acme").Session("s1").Get(t.Context(), writers.SessionKey("k"))
	g.must(err)
	g.pastVerdict()
	out, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	if err != nil || out.Attempt != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if p.keys[before.EffectKey] != 1 || len(p.keys) != 1 {
		t.Errorf("the next attempt has another effect key: %v", p.keys)
	}
	g.wantRemaining(995)
	g.balanced()
}

// The rest of a reservation comes back once, whatever fails afterwards and however often it is settled.
func TestHC20SettledTwice(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k", func(c *writers.Call) { c.Tokens = 220 }))
	g.wantRemaining(780)
	for range 3 {
		if out, err := hold.Finalize(t.Context(), "r", 55); err != nil || out.Charged != 55 {
			t.Fatalf("%+v, %v", out, err)
		}
		g.wantRemaining(945)
	}
	g.wantCode(hold.Release(t.Context(), ""), writers.ErrSuperseded)
	g.wantRemaining(945)
	released := g.reserve(g.session(), call("released"))
	for range 2 {
		g.must(released.Release(t.Context(), ""))
		g.wantRemaining(945)
	}
	g.balanced()
}

// Finalizes and expiries of one row on a barrier: one of them wins, and the books balance each time.
func TestHC22OneWinner(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var finalized, expired int
	for round := range soak(12, 1000) {
		key := fmt.Sprint("k", round)
		hold := g.reserve(g.session(), call(key))
		row := g.row(key)
		g.pastVerdict()
		var wins atomic.Int64
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 50 {
			group.Go(func() {
				<-start
				if i%2 == 0 {
					_, _ = hold.Finalize(t.Context(), "r", 5)
				} else if g.expireRow(row) == nil {
					wins.Add(1)
				}
			})
		}
		close(start)
		group.Wait()
		if n := wins.Load(); n > 1 {
			t.Fatalf("round %d: expired %d times", round, n)
		} else if n == 1 {
			expired++
		} else {
			finalized++
		}
		after := g.row(key)
		if after.State != schema.StateApplied { // a finalize that came second settles late
			t.Fatalf("round %d: the row is %s", round, after.State)
		}
	}
	t.Logf("finalize was first %d times, expire %d times", finalized, expired)
	g.balanced()
}
