package jitter_test

import (
	"testing"
	"testing/cryptotest"
	"time"

	"toolledger/internal/jitter"
)

// Promise: draws stay in their range, reach all of it, and nothing is drawn from an empty one.
func TestRange(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 {
		n := jitter.IntN(4)
		if n < 0 || n > 3 {
			t.Fatalf("IntN(4) = %d", n)
		}
		seen[n] = true
		if d := jitter.N(time.Second); d < 0 || d >= time.Second {
			t.Fatalf("N(1s) = %s", d)
		}
	}
	if len(seen) != 4 {
		t.Errorf("of 4 numbers only %d came", len(seen))
	}
	if jitter.IntN(0) != 0 || jitter.IntN(-1) != 0 || jitter.N(0) != 0 || jitter.N(-time.Second) != 0 {
		t.Error("something was drawn from an empty range")
	}
}

// Promise: with the global source seeded the same draws come again, which a simulation's replay stands on.
func TestSeeded(t *testing.T) {
	draw := func(seed uint64) (all [20]int) {
		cryptotest.SetGlobalRandom(t, seed)
		for i := range all {
			all[i] = jitter.IntN(1_000_000)
		}
		return all
	}
	first, again, other := draw(1), draw(1), draw(2)
	if first != again {
		t.Error("one seed gave two histories")
	}
	if first == other {
		t.Error("two seeds gave one history")
	}
}
