package tests_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The retry storm: every kind of trouble occurs, every intent has its effect once or is refused, and all that is promised of
// books, events and metrics holds.
func TestDemo(t *testing.T) {
	intents := soak(60, 600)
	for seed := range soak(2, 5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := prove(t, 0, "demo", fmt.Sprint("--intents=", intents), fmt.Sprint("--seed=", seed))
			if p.Calls != intents+1 || p.KeyConflicts != 1 || p.QuotaDenied == 0 || p.Released == 0 || p.Crashes == 0 ||
				p.Effects != p.Applied {
				t.Errorf("%s, %d crashes", p.outcomes(), p.Crashes)
			}
			for _, event := range []string{
				"PlanChanged", "QuotaGranted", "QuotaLow", "QuotaExhausted", "ToolCallReserved", "ToolEffectApplied", "ToolCallReplayed",
				"ToolCallInFlight", "IdempotencyKeyConflict", "ReservationReleased", "ReservationExpired", "ToolEffectSettledLate",
			} {
				if p.Events[event] == 0 {
					t.Errorf("no %s in the whole story", event)
				}
			}
			p.consistent(t)
		})
	}
}

// The smallest stories, where every kind of trouble has one intent, and a tenant may have one call, hold as well.
func TestSmallDemos(t *testing.T) {
	for _, args := range [][]string{{"--tenants=1"}, {"--tenants=3", "--seed=3"}, {"--tenants=10", "--seed=2"}} {
		p := prove(t, 0, append([]string{"demo", "--intents=10"}, args...)...)
		if p.Calls != 11 || p.QuotaDenied == 0 {
			t.Errorf("%v: %s", args, p.outcomes())
		}
	}
}

// A demo that is told again on the same file keeps apart from the first one.
func TestDemoTwice(t *testing.T) {
	data := filepath.Join(t.TempDir(), "ledger.db")
	for range 2 {
		if p := prove(t, 0, "demo", "--intents=20", "--data", data); p.Applied == 0 {
			t.Fatalf("%s", p.outcomes())
		}
	}
	if got := runProgram(t, nil, "audit", "--local", data); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// The proof can fail: each promise, broken on purpose, is noticed by the checks that stand for it, the others hold, and the
// program ends with 1 and still prints its one object.
func TestDemoProofCanFail(t *testing.T) {
	for sabotage, want := range map[string][]string{
		"effects": {"each intent", "effects per intent"},
		"books":   {"books"},
		"replays": {"events", "replays"},
		"events":  {"events", "events, read again", "metrics"},
	} {
		t.Run(sabotage, func(t *testing.T) {
			p := prove(t, 1, "demo", "--intents=20", "--sabotage", sabotage)
			var broken []string
			for _, c := range p.Checks {
				if !c.OK {
					broken = append(broken, c.Name)
				}
			}
			slices.Sort(broken)
			if p.OK || !slices.Equal(broken, want) {
				t.Errorf("broken: %v, want %v", broken, want)
			}
		})
	}
}

// A person sees the story, a table, and each promise with its verdict.
func TestDemoForAPerson(t *testing.T) {
	got := runProgram(t, nil, "demo", "--intents=20")
	if got.code != 0 || got.stderr != "" || strings.Contains(got.stdout, "✗") || strings.Count(got.stdout, "✓") < 10 ||
		!strings.Contains(got.stdout, "The storm") || !strings.Contains(got.stdout, "effects outside") {
		t.Fatalf("%+v", got)
	}
	got = runProgram(t, nil, "demo", "--intents=20", "--sabotage=books")
	if got.code != 1 || !strings.Contains(got.stdout, "✗ books") || got.stderr != "toolledger: demo: a promise is broken: books\n" {
		t.Fatalf("%+v", got)
	}
}
