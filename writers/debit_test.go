package writers

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

func shardsOf(remaining []int64) []*schema.Quota {
	shards := make([]*schema.Quota, len(remaining))
	for i, n := range remaining {
		if n != -999 { // not there
			shards[i] = &schema.Quota{Shard: int64(i), Remaining: n}
		}
	}
	return shards
}

// Promise: a split pays exactly, takes from no shard more than it has, and names as few as can pay.
func TestSplitDebit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := rapid.SliceOfN(rapid.OneOf(rapid.Just[int64](-999), rapid.Int64Range(-10, 50)), 1, 10).Draw(t, "remaining")
		var there int64
		var rich []int64
		for _, n := range remaining {
			if n > 0 {
				there += n
				rich = append(rich, n)
			}
		}
		if there == 0 {
			return
		}
		tokens := rapid.Int64Range(1, there).Draw(t, "tokens")
		debits := splitDebit("2026-11", shardsOf(remaining), tokens)
		if schema.SumDebits(debits) != tokens {
			t.Fatalf("%d of %v: %v", tokens, remaining, debits)
		}
		for i, d := range debits {
			if d.Tokens <= 0 || d.Tokens > remaining[d.Shard] || d.Period != "2026-11" ||
				slices.ContainsFunc(debits[:i], func(e schema.Debit) bool { return e.Shard == d.Shard }) {
				t.Fatalf("%d of %v: %v", tokens, remaining, debits)
			}
		}
		slices.Sort(rich)
		slices.Reverse(rich)
		fewest := 0
		for left := tokens; left > 0; fewest++ {
			left -= rich[fewest]
		}
		if len(debits) != fewest {
			t.Fatalf("%d of %v: %d shards, %d could pay", tokens, remaining, len(debits), fewest)
		}
	})
}

// Promise: of all shards, read at one moment, the call's own pays where it can, else the next that can, else several; exhausted
// is said only where all that is left, together, is too little.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]int64{-999, 0, -5, 40}), rapid.Int64Range(0, 40)), 1, 8).Draw(t, "remaining")
		p := &payer{key: fmt.Sprint("k", rapid.IntRange(0, 50).Draw(t, "key")), tokens: rapid.Int64Range(1, 60).Draw(t, "tokens"), shard: -1}
		shards := shardsOf(remaining)
		err := p.choose("2026-11", shards)
		var there, total int64
		alone, known := false, 0
		for _, q := range shards {
			if q == nil {
				continue
			}
			known++
			alone = alone || q.Remaining >= p.tokens
			there += max(q.Remaining, 0)
			total += q.Remaining
		}
		own := shards[schema.Bucket(p.key, len(shards))]
		no, exhausted := errors.AsType[*exhaustedError](err)
		switch {
		case known == 0:
			if err != nil {
				t.Fatalf("a period that nobody has used is %v", err)
			}
		case there < p.tokens:
			if !exhausted || no.remaining != total || no.period != "2026-11" {
				t.Fatalf("%d of %v: %v", p.tokens, remaining, err)
			}
		case err != nil:
			t.Fatalf("%d of %v: %v", p.tokens, remaining, err)
		case own != nil && own.Remaining >= p.tokens && p.shard != int(own.Shard):
			t.Fatalf("%d of %v: shard %d, not its own", p.tokens, remaining, p.shard)
		case alone && (p.split != nil || remaining[p.shard] < p.tokens):
			t.Fatalf("%d of %v: split %v, shard %d", p.tokens, remaining, p.split, p.shard)
		case !alone && schema.SumDebits(p.split) != p.tokens:
			t.Fatalf("%d of %v: split %v", p.tokens, remaining, p.split)
		}
	})
}

// Promise: a suspended tenant is told so, not that his tokens are gone.
func TestChooseSuspended(t *testing.T) {
	p := &payer{op: "reserve", tenant: "acme", key: "k", tokens: 5}
	shards := shardsOf([]int64{0, 0})
	shards[0].Suspended, shards[1].Suspended = true, true
	if err := p.choose("2026-11", shards); !errors.Is(err, ErrSuspended) {
		t.Error(err)
	}
}

// Promise: a plan is believed for a minute, no longer, not at all where the clock went back, and the cache is bounded.
func TestPlanCache(t *testing.T) {
	var pc planCache
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	plan := &schema.Plan{Version: 1}
	pc.put(plan, "acme", now)
	for offset, want := range map[time.Duration]bool{0: true, planLife - 1: true, planLife: false, -1: false} {
		if got := pc.get("acme", now.Add(offset)); (got == plan) != want {
			t.Errorf("after %s: %v", offset, got)
		}
	}
	if pc.get("acme2", now) != nil {
		t.Error("another tenant's plan")
	}
	pc.forget("acme")
	if pc.get("acme", now) != nil {
		t.Error("forgotten")
	}
	for i := range 3 * plansCached {
		pc.put(plan, TenantID(fmt.Sprint(i)), now)
	}
	if len(pc.plans) > plansCached {
		t.Errorf("%d plans are kept", len(pc.plans))
	}
}
