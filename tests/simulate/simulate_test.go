package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolledger/internal/stack"
)

// runSeeds runs seeds until one breaks a promise.
func runSeeds(t *testing.T, first, seeds uint64, steps int, more func() bool) *total {
	t.Helper()
	s := newSession(8)
	defer s.close()
	sum := newTotal()
	for seed := first; seed < first+seeds && more(); seed++ {
		cfg := config{seed: seed, steps: steps, profile: inTurn(seed)}
		out, err := s.simulate(t, cfg)
		if errors.Is(err, stack.ErrNotInstalled) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.add(out)
		if out.Violation != nil {
			t.Fatalf("%v\n%s\nagain: go run ./tests/simulate --seed %d --steps %d --profile %s",
				out.Violation, strings.Join(out.History[max(0, len(out.History)-60):], "\n"), seed, steps, cfg.profile.name)
		}
	}
	return sum
}

// Promise: every promise of the design, in the worlds of a fixed set of seeds.
func TestSimulation(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 3
	}
	files := t.TempDir()
	t.Setenv("TMPDIR", files)
	before := heap()
	end := time.Now().Add(75 * time.Second) // a slow machine runs fewer of them
	sum := runSeeds(t, 1, seeds, 200, func() bool { return time.Now().Before(end) })
	t.Log(sum.text())
	if !testing.Short() && sum.runs < 4 {
		t.Errorf("only %d runs in the time that there is", sum.runs)
	}
	if left, err := os.ReadDir(files); err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v (%v)", left, err)
	}
	if grown := int64(heap()) - int64(before); grown > heapMost {
		t.Errorf("%d runs left %d MB behind", sum.runs, grown>>20)
	}
}

// heapMost is what may be left in memory once all runs are over, which took many times as much: 32 MB.
const heapMost = 32 << 20

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Promise: the same, for as long as TOOLLEDGER_SOAK says.
func TestSimulationSoak(t *testing.T) {
	text := os.Getenv("TOOLLEDGER_SOAK")
	if text == "" {
		t.Skip("set TOOLLEDGER_SOAK, as in 10m, to run on")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(d)
	first := uint64(time.Now().Unix())
	sum := runSeeds(t, first, 1<<40, 300, func() bool { return time.Now().Before(end) })
	t.Logf("from seed %d on: %s", first, sum.text())
}

// Promise: one seed is one history; else no violation could be looked at again.
func TestSeedReplays(t *testing.T) {
	s := newSession(8)
	defer s.close()
	for _, cfg := range []config{
		{seed: 5, steps: 120, profile: profiles[storm]},
		{seed: 8, steps: 120, profile: profiles[chaos]},
		{seed: 41, steps: 60, profile: profiles[aimed]},
		{seed: 269, steps: 100, profile: profiles[aimed]},
	} {
		var first run
		var told [2]bytes.Buffer
		for n := range 2 {
			cfg.verbose = &told[n]
			out, err := s.simulate(t, cfg)
			if errors.Is(err, stack.ErrNotInstalled) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first = out
				other := cfg // in between, so that the same seed comes at another place of the store
				other.verbose, other.seed = nil, cfg.seed+100
				if out, err := s.simulate(t, other); err != nil || out.Hash == first.Hash {
					t.Errorf("another seed has the same history (%v)", err)
				}
				continue
			}
			if out.Hash != first.Hash || out.Steps != first.Steps {
				t.Errorf("seed %d: %s in %d steps, then %s in %d%s", cfg.seed, first.Hash, first.Steps, out.Hash, out.Steps, parting(&told))
			}
		}
	}
}

// Promise: the same promises where everybody runs at once, with the store killed in the middle.
func TestSimulationParallel(t *testing.T) {
	b, err := startBackend(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.stop()
	out, err := simulateParallel(t.Context(), b, config{seed: 1, steps: 200, profile: profiles[storm], alive: new(atomic.Int64)}, 150, 8)
	if err != nil {
		t.Fatal(err)
	}
	if out.Violation != nil {
		t.Fatal(out.Violation)
	}
	t.Log(statsText(out.Stats))
}

// parting is where two histories part.
func parting(told *[2]bytes.Buffer) string {
	a, b := strings.Split(told[0].String(), "\n"), strings.Split(told[1].String(), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "\n" + strings.Join(a[max(0, i-5):i], "\n") + "\nfirst: " + a[i] + "\nthen:  " + b[i]
		}
	}
	return ""
}
