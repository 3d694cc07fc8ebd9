package writers

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

var anyRemaining = rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-20, 100), rapid.Int64Range(0, schema.MaxTokens)), 1, schema.MaxShards)

// Promise: parts add up to the whole and differ by one at most.
func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, n := rapid.Int64Range(0, schema.MaxTokens).Draw(t, "total"), rapid.IntRange(1, schema.MaxShards).Draw(t, "n")
		var parts []int64
		for i := range n {
			parts = append(parts, share(total, i, n))
		}
		if sum(parts) != total || slices.Max(parts)-slices.Min(parts) > 1 || slices.Min(parts) < 0 {
			t.Fatalf("%d in %d parts: %v", total, n, parts)
		}
	})
}

// Promise: a plan change moves exactly the difference. Nobody is taken more than he has unless all are empty, and then
// shard 0 alone; a raise fills what is below zero before anybody gets more to spend, and goes to all alike then; a new shard
// never begins below zero.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := anyRemaining.Draw(t, "remaining")
		fresh := rapid.IntRange(0, len(remaining)-1).Draw(t, "new shards")
		for i := len(remaining) - fresh; i < len(remaining); i++ {
			remaining[i] = 0
		}
		delta := rapid.OneOf(rapid.Int64Range(-200, 200), rapid.Int64Range(-schema.MaxTokens, schema.MaxTokens)).Draw(t, "delta")
		before := slices.Clone(remaining)
		deltas := spread(remaining, fresh > 0, delta)
		if !slices.Equal(before, remaining) {
			t.Fatal("its argument was changed")
		}
		if len(deltas) != len(remaining) || sum(deltas) != delta {
			t.Fatalf("%v moves %d, not %d", deltas, sum(deltas), delta)
		}
		after := make([]int64, len(remaining))
		for i := range after {
			after[i] = remaining[i] + deltas[i]
		}
		for i, d := range deltas {
			switch {
			case d < 0 && after[i] < 0 && (i != 0 || slices.Max(after) > 0):
				t.Fatalf("shard %d of %v is taken below zero: %v", i, remaining, after)
			case i >= len(remaining)-fresh && d < 0:
				t.Fatalf("new shard %d begins with %d", i, d)
			case delta >= 0 && fresh == 0 && slices.Min(remaining) >= 0 && d != share(delta, i, len(deltas)):
				t.Fatalf("%d is raised by %v", delta, deltas)
			case delta > 0 && (fresh == 0 || sum(after) < 0) && d > max(-remaining[i], 0) && slices.Min(after) < 0:
				t.Fatalf("shard %d of %v gets more to spend while another owes: %v", i, remaining, after)
			}
		}
	})
}

// Promise: where shards are new, all are as near to each other as the total allows, so that the new ones spread load at once.
func TestLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := anyRemaining.Draw(t, "remaining")
		delta := rapid.Int64Range(0, 1000).Draw(t, "delta")
		if sum(remaining)+delta < 0 {
			return
		}
		deltas := level(remaining, delta)
		for i := range deltas {
			deltas[i] += remaining[i]
		}
		if slices.Max(deltas)-slices.Min(deltas) > 1 || sum(deltas) != sum(remaining)+delta {
			t.Fatalf("%v by %d became %v", remaining, delta, deltas)
		}
	})
}

// Promise: tokens are taken from the richest shards: none is touched while a richer one has any left.
func TestLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining, n := anyRemaining.Draw(t, "remaining"), rapid.Int64Range(1, 500).Draw(t, "n")
		deltas := lower(remaining, n)
		if sum(deltas) != -n {
			t.Fatalf("%d taken: %v", n, deltas)
		}
		for i, a := range deltas {
			for j, b := range deltas {
				if a < 0 && i != 0 && remaining[j] > remaining[i] && remaining[j]+b > 0 {
					t.Fatalf("%v: shard %d is taken from while %d has more: %v", remaining, i, j, deltas)
				}
			}
		}
	})
}

// Promise: plans that cannot be meant are refused, by name.
func TestPlanCheck(t *testing.T) {
	for field, p := range map[string]Plan{
		"tokens": {Tokens: -1}, "period": {Period: 3}, "shards": {Shards: 65}, "overdraft": {Overdraft: -1},
	} {
		e, ok := p.check().(*Error) //nolint:errorlint // as it is made
		if !ok || e.Code != ErrInvalid || e.Field != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	for _, p := range []Plan{{Tokens: schema.MaxTokens + 1}, {Period: -1}, {Shards: -1}, {Overdraft: schema.MaxTokens + 1}} {
		if p.check() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	if err := (Plan{Tokens: schema.MaxTokens, Period: Always, Shards: 64, Overdraft: schema.MaxTokens}).check(); err != nil {
		t.Error(err)
	}
}

// Promise: the shards of a new period are worth the plan, whoever makes them, and live until the last refund.
func TestNewShards(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	plan := &schema.Plan{Version: 7, Tokens: 100, Shards: 3, Suspended: true}
	ids := map[string]bool{}
	var total int64
	for i, q := range newShards("acme", plan, "2026-11", now) {
		total += q.Granted
		ids[q.QuotaID] = true
		if q.Remaining != q.Granted || q.Key != schema.QuotaKey("acme", "2026-11", i) || !q.Suspended || q.PlanVersion != 7 || q.Version != 1 ||
			!q.ExpiresAt.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).Add(quotaKeep)) {
			t.Errorf("%+v", q)
		}
	}
	if total != 100 || len(ids) != 3 {
		t.Error(total, ids)
	}
	if q := newShards("acme", plan, schema.AlwaysPeriod, now)[0]; !q.ExpiresAt.IsZero() {
		t.Errorf("the period that never ends does: %+v", q)
	}
}
