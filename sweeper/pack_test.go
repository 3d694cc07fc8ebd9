package sweeper

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

func stepsGen() *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		n := rapid.IntRange(0, 120).Draw(t, "rows")
		tenants := rapid.IntRange(1, 8).Draw(t, "tenants")
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		steps := make([]step, n)
		for i := range steps {
			tenant := fmt.Sprintf("t%d", rapid.IntRange(0, tenants-1).Draw(t, "tenant"))
			row := &schema.Row{
				Key:      schema.RowKey(tenant, "s", schema.ScopeSession, fmt.Sprintf("k%d", i)),
				Deadline: noon.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "deadline")) * time.Second),
			}
			first := rapid.IntRange(0, shards-1).Draw(t, "shard")
			for d := range rapid.IntRange(0, 64).Draw(t, "debits") {
				row.Debits = append(row.Debits, schema.Debit{Period: "2026-11", Shard: (first + d) % 64, Tokens: 1})
			}
			do := rapid.SampledFrom([]action{expire, hold, postpone}).Draw(t, "do")
			steps[i] = step{found: found{row: row, tenant: tenant}, do: do}
		}
		return steps
	})
}

// Promise: packing loses and doubles no row, keeps every transaction within DynamoDB's limit and Config.Batch, and a
// tenant in one lane.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := stepsGen().Draw(t, "steps")
		rows := rapid.IntRange(1, 50).Draw(t, "batch")
		seen := map[schema.Key]bool{}
		laneOf := map[string]int{}
		for i, lane := range lanes(steps, 4) {
			for _, s := range lane {
				if other, known := laneOf[s.tenant]; known && other != i {
					t.Fatalf("tenant %s is in lanes %d and %d", s.tenant, other, i)
				}
				laneOf[s.tenant] = i
			}
			for _, batch := range pack(lane, rows) {
				items := map[schema.Key]bool{}
				for _, s := range batch {
					if seen[s.row.Key] {
						t.Fatalf("%v is written twice", s.row.Key)
					}
					seen[s.row.Key], items[s.row.Key] = true, true
					for _, d := range s.row.Debits {
						if s.do == expire {
							items[d.Key(s.tenant)] = true
						}
					}
				}
				if len(batch) == 0 || len(batch) > rows || len(items) > protocol.MaxItems {
					t.Fatalf("a transaction of %d rows and %d items", len(batch), len(items))
				}
			}
		}
		if len(seen) != len(steps) {
			t.Fatalf("%d of %d rows are written", len(seen), len(steps))
		}
	})
}

// Promise: rows that share a quota item share a transaction, so that each transaction touches few of a tenant's shards.
func TestPackGroupsByQuotaItem(t *testing.T) {
	var steps []step
	for i := range 200 {
		row := &schema.Row{
			Key:    schema.RowKey("acme", "s", schema.ScopeSession, fmt.Sprintf("k%d", i)),
			Debits: []schema.Debit{{Period: "2026-11", Shard: i * 7 % 16, Tokens: 1}},
		}
		steps = append(steps, step{found: found{row: row, tenant: "acme"}})
	}
	for _, batch := range pack(steps, 25) {
		shards := map[int]bool{}
		for _, s := range batch {
			shards[s.row.Debits[0].Shard] = true
		}
		if len(shards) > 4 {
			t.Errorf("a transaction of %d rows touches %d shards", len(batch), len(shards))
		}
	}
}

// Promise: tenants take turns, so that the rows of the smaller ones come before the flood of one; each tenant's own
// rows stay oldest first.
func TestInTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "rows")
		rows := make([]found, n)
		total := map[string]int{}
		for i := range rows {
			tenant := rapid.SampledFrom([]string{"flood", "flood", "flood", "a", "b"}).Draw(t, "tenant")
			age := time.Duration(rapid.IntRange(0, 1000).Draw(t, "age")) * time.Second
			rows[i] = found{&schema.Row{Deadline: noon.Add(-age)}, tenant}
			total[tenant]++
		}
		had := map[string]int{}
		last := map[string]time.Time{}
		for _, f := range inTurns(rows) {
			if f.row.Deadline.Before(last[f.tenant]) {
				t.Fatal("a newer row of a tenant comes first")
			}
			last[f.tenant] = f.row.Deadline
			for other := range total {
				if had[other] < total[other] && had[f.tenant] > had[other] {
					t.Fatalf("%s has had %d turns while %s had %d of %d", f.tenant, had[f.tenant], other, had[other], total[other])
				}
			}
			had[f.tenant]++
		}
		for tenant := range total {
			if had[tenant] != total[tenant] {
				t.Fatal("rows are lost")
			}
		}
	})
}
