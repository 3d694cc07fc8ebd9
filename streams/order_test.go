package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// life draws a lawful history of one row: the records that its table would write, in order.
func life(t *rapid.T, call string) []Change {
	row := pendingRow()
	row.Key, row.RowID = schema.RowKey(testTenant, testSession, schema.ScopeSession, call), "row-"+call
	row.PendingBucket = schema.PendingBucket(call)
	changes := []Change{changeOf(nil, row)}
	move := func(edits ...func(*schema.Row)) {
		is := next(row, edits...)
		if is.PendingBucket != "" { // the helpers name the bucket of their own call
			is.PendingBucket = schema.PendingBucket(call)
			if is.Held {
				is.PendingBucket = schema.HeldBucket(call)
			}
		}
		changes = append(changes, changeOf(row, is))
		row = is
	}
	for range rapid.IntRange(0, 6).Draw(t, "moves") {
		steps := map[string][]string{
			schema.StatePending: {"extend", "defer", "hold", "finalize", "release", "expire", "suspect"},
			schema.StateFailed:  {"takeover", "settle", "commit", "resolve", "suspect"},
			schema.StateApplied: {"suspect", "link", "compensate"},
		}[row.State]
		switch rapid.SampledFrom(steps).Draw(t, "step") {
		case "extend":
			if !row.Held {
				move(func(r *schema.Row) { r.Deadline = r.Deadline.Add(1e10) })
			}
		case "defer":
			move(func(r *schema.Row) { r.SweepAt = r.UpdatedAt.Add(1e10) })
		case "hold":
			if !row.Held {
				move(hold)
			}
		case "finalize":
			move(finalize(int64(rapid.IntRange(1, 20).Draw(t, "charge"))))
		case "release":
			move(fail(schema.FailureReleased))
		case "expire":
			move(fail(schema.FailureExpired))
		case "takeover":
			move(takeover)
		case "settle":
			move(settleLate(schema.SettledByHolder))
		case "commit":
			move(commitFailed)
		case "resolve":
			move(resolveAbsent)
		case "suspect":
			move(func(r *schema.Row) { r.Suspects = append(r.Suspects, fmt.Sprintf("x/%d", r.Version)) })
		case "link":
			if row.CompensatedAt.IsZero() {
				move(func(r *schema.Row) { r.CompensatedBy = "session:undo" })
			}
		case "compensate":
			if row.CompensatedAt.IsZero() {
				move(func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits = "session:undo", r.UpdatedAt, nil })
			}
		}
	}
	if row.Terminal() && rapid.Bool().Draw(t, "gone") {
		gone := changeOf(row, nil)
		gone.TTL = true
		changes = append(changes, gone)
	}
	return changes
}

// quotaLife draws a history of the tenant's quota item.
func quotaLife(t *rapid.T) []Change {
	var changes []Change
	var was Image
	q := quotaItem(100, 100)
	q.Version = 0
	for range rapid.IntRange(1, 6).Draw(t, "debits") {
		q.Version++
		if was != nil {
			q.Remaining = int64(rapid.IntRange(-20, 100).Draw(t, "remaining"))
			q.Granted = int64(rapid.SampledFrom([]int{100, 200}).Draw(t, "granted"))
		}
		is := ImageOf(q.Item())
		changes = append(changes, itemChange(q.Key, was, is))
		was = is
	}
	return changes
}

// observationLife draws a history of the counters of one call.
func observationLife(t *rapid.T) []Change {
	var changes []Change
	var was Image
	n := int64(0)
	for range rapid.IntRange(1, 4).Draw(t, "observed") {
		n += int64(rapid.IntRange(1, 3).Draw(t, "more"))
		is := observationItem(n)
		changes = append(changes, itemChange(schema.ObservationKey(pendingRow().Key), was, is))
		was = is
	}
	return changes
}

// interleave merges histories at random, keeping the order within each, and numbers the records as a shard does.
func interleave(seed uint64, lives [][]Change, renumber bool) []Change {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	at := make([]int, len(lives))
	var merged []Change
	for {
		var open []int
		for i := range lives {
			if at[i] < len(lives[i]) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		i := open[random.IntN(len(open))]
		merged = append(merged, lives[i][at[i]])
		at[i]++
	}
	for i := range merged {
		if renumber {
			merged[i].Sequence = strconv.Itoa(95 + 3*i)
		}
	}
	return merged
}

// The audit is a function of the table: for 1,000 random lawful histories, any interleaving that keeps the order of each
// item, any batching, any redelivery and any point of failure gives the same set of events, and totals equal to it where
// nothing is delivered again after it succeeded. No lawful step is taken for tampering on the way.
func TestOrderFree(t *testing.T) {
	var histories atomic.Int64
	t.Run("hundreds", func(t *testing.T) {
		for i := range 10 { // rapid checks a hundred at a time
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) { histories.Add(1); orderFree(t) })
			})
		}
	})
	if n := histories.Load(); n < 1000 {
		t.Errorf("%d histories", n)
	}
}

func orderFree(t *rapid.T) {
	lives := [][]Change{quotaLife(t), observationLife(t)}
	for i := range rapid.IntRange(1, 5).Draw(t, "rows") {
		lives = append(lives, life(t, fmt.Sprintf("call-%d", i)))
	}
	want, total := told(t, lives)
	for range 2 {
		changes := interleave(rapid.Uint64().Draw(t, "order"), lives, true)
		out, count := &Collector{}, &sums{}
		c := &Consumer{ConsumerConfig{Publisher: valid(t, flaky(t, out)), Metrics: count, Margin: 1, Now: fixedNow, Logger: silent}}
		consume(t, c, changes)
		if got := idsOf(out.Events()); !slices.Equal(got, want) {
			t.Fatalf("%d events, want %d", len(got), len(want))
		}
		delete(count.total, metrics.RecordsProcessed)
		if !maps.Equal(count.total, total) {
			t.Fatalf("counted %v, want %v", count.total, total)
		}
		// Delivered again after all of it succeeded, the events are the same; only metrics may count again.
		consume(t, c, changes[rapid.IntRange(0, len(changes)-1).Draw(t, "again"):])
		if got := idsOf(out.Events()); !slices.Equal(got, want) {
			t.Fatalf("redelivery: %d events, want %d", len(got), len(want))
		}
	}
}

// told are the ids of all events of lawful histories, each row for itself, and the sums of their metrics.
func told(t *rapid.T, lives [][]Change) (ids []string, total map[string]float64) {
	total = map[string]float64{}
	for _, changes := range lives {
		for _, c := range changes {
			evs, data, err := derived(t, c)
			if err != nil || slices.Contains(typesOf(evs), "LedgerRowTampered") {
				t.Fatalf("got %v, %v: %+v", typesOf(evs), err, evs)
			}
			ids = append(ids, idsOf(evs)...)
			for _, d := range data {
				total[d.Name] += d.Value
			}
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Fatal("two events share an id")
	}
	return ids, total
}

// flaky publishes to out, and fails at any point: more than it reports may be out then.
func flaky(t *rapid.T, out *Collector) Publisher {
	return PublisherFunc(func(ctx context.Context, evs []events.Event) (int, error) {
		n := rapid.IntRange(0, 2*len(evs)).Draw(t, "room") // beyond all: no failure
		if n >= len(evs) {
			return out.Publish(ctx, evs)
		}
		_, _ = out.Publish(ctx, evs[:rapid.IntRange(n, len(evs)).Draw(t, "beyond")])
		return n, errors.New("scripted")
	})
}

// consume delivers batches of random size, each again from where it failed, as a mapping or a poller does.
func consume(t *rapid.T, c *Consumer, changes []Change) {
	for len(changes) > 0 {
		size := rapid.IntRange(1, len(changes)).Draw(t, "batch")
		done, err := c.HandleRecords(context.Background(), changes[:size])
		if (done < size) != (err != nil) {
			t.Fatalf("%d of %d, %v", done, size, err)
		}
		changes = changes[done:]
	}
}
