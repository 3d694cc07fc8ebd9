package prbot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toolledger/examples/prbot"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

// memForge opens a pull request on every call, as a forge without idempotency keys does.
type memForge struct {
	mu     sync.Mutex
	open   map[string]prbot.PR
	opens  int
	refuse bool
	opened func() // when a pull request is there
}

func newForge() *memForge { return &memForge{open: map[string]prbot.PR{}} }

func (f *memForge) Open(_ context.Context, repo, branch, _ string) (prbot.PR, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse {
		return prbot.PR{}, fmt.Errorf("no such branch: %w", prbot.ErrRefused)
	}
	f.opens++
	pr := prbot.PR{Number: f.opens, URL: fmt.Sprintf("https://forge.example/%s/pull/%d", repo, f.opens)}
	f.open[repo+" "+branch] = pr
	if f.opened != nil {
		f.opened()
	}
	return pr, nil
}

func (f *memForge) FindByBranch(_ context.Context, repo, branch string) (prbot.PR, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pr, ok := f.open[repo+" "+branch]
	return pr, ok, nil
}

func (f *memForge) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opens
}

func args(branch string) prbot.Args {
	return prbot.Args{Repo: "acme/api", Branch: branch, Title: "Fix it"}
}

// TestExactlyOnePullRequest: whenever the worker dies and whoever retries, a branch gets one pull request.
func TestExactlyOnePullRequest(t *testing.T) {
	forge := newForge()
	writerstest.ExactlyOnce(t, prbot.New(forge), func(round int) prbot.Args { return args(fmt.Sprintf("fix/%d", round)) }, forge.count)
}

// TestNoQuotaNoPullRequest: a tenant without tokens gets an answer, not an error to retry, and the forge is not asked.
func TestNoQuotaNoPullRequest(t *testing.T) {
	ledger, clock := writerstest.NewLedger(t)
	poor := ledger.Tenant("poor")
	if err := poor.PutPlan(t.Context(), writers.Plan{Tokens: 19}); err != nil {
		t.Fatal(err)
	}
	forge := newForge()
	_, err := prbot.New(forge).Do(t.Context(), poor.Session("s"), writers.SessionKey("k"), args("fix/1"))
	if !errors.Is(err, writers.ErrQuotaExhausted) || forge.count() != 0 {
		t.Fatalf("got %v, %d pull requests", err, forge.count())
	}
	clock.Advance(31 * 24 * time.Hour)
	writerstest.Balanced(t, ledger)
}

// TestRefusalGivesTokensBack: where the forge said no, the step says so and nothing was spent.
func TestRefusalGivesTokensBack(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	acme := ledger.Tenant("acme")
	before, err := acme.Quota(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forge := newForge()
	forge.refuse = true
	_, err = prbot.New(forge).Do(t.Context(), acme.Session("s"), writers.SessionKey("k"), args("gone"))
	if !errors.Is(err, writers.ErrNotApplied) || !errors.Is(err, prbot.ErrRefused) {
		t.Fatal(err)
	}
	after, err := acme.Quota(t.Context())
	if err != nil || after.Remaining != before.Remaining {
		t.Fatalf("remaining %d, before %d, %v", after.Remaining, before.Remaining, err)
	}
	writerstest.Balanced(t, ledger)
}

// TestStepAnswersWhatARetryCannotMend: a step out of turn is an answer for the planner.
func TestStepAnswersWhatARetryCannotMend(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	forge := newForge()
	said, err := prbot.Step(t.Context(), prbot.New(forge), ledger.Tenant("acme").Session("s"), "pr-1", args("fix/1"))
	if err != nil || !strings.HasPrefix(said, "not done: ") || !strings.Contains(said, string(writers.ErrSessionMoved)) {
		t.Fatalf("said %q, %v", said, err)
	}
	if forge.count() != 0 {
		t.Fatalf("%d pull requests", forge.count())
	}
}

// TestStepNeverDeniesAPullRequest: where the pull request is there, or may be, the planner is not told that it was not done: it
// would open another.
func TestStepNeverDeniesAPullRequest(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	forge, s := newForge(), ledger.Tenant("acme").Session("s")
	move := func(key, cursor string) {
		if _, err := s.Commit(t.Context(), writers.Call{Key: writers.SessionKey(key), Tool: "move", Cursor: cursor}, nil); err != nil {
			t.Fatal(err)
		}
	}
	move("m1", "branch-pushed")
	forge.opened = func() { move("m2", "elsewhere") } // the session moves on while the forge works
	said, err := prbot.Step(t.Context(), prbot.New(forge), s, "pr-1", args("fix/1"))
	if err != nil || !strings.HasPrefix(said, "#1 ") || forge.count() != 1 {
		t.Fatalf("said %q, %v, %d pull requests", said, err, forge.count())
	}
}

// TestNamesOnly: what a model passes off as a name neither reaches another path of the forge nor is looked up as another one.
func TestNamesOnly(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	forge, s := newForge(), ledger.Tenant("acme").Session("s")
	for i, a := range []prbot.Args{
		{Repo: "acme/api x", Branch: "b"},
		{Repo: "acme/../admin", Branch: "b"},
		{Repo: "acme/..", Branch: "b"},
		{Repo: "acme/api?x=", Branch: "b"},
		{Repo: "acme/api#", Branch: "b"},
		{Repo: "acme", Branch: "b"},
		{Repo: "acme/api", Branch: "a b"},
		{Repo: "acme/api", Branch: ""},
	} {
		if _, err := prbot.New(forge).Do(t.Context(), s, writers.SessionKey(fmt.Sprint(i)), a); !errors.Is(err, writers.ErrNotApplied) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if forge.count() != 0 {
		t.Fatalf("%d pull requests", forge.count())
	}
	writerstest.Balanced(t, ledger)
}
