package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"toolledger/writers"
)

// A quota item is held this long by a transaction; another one that names it meanwhile is refused.
const quotaHeld = 5 * time.Millisecond

// Shards to compare; the first is the floor. Rounds alternate between them.
var shardCounts = []int{1, 4, 16}

const (
	contentionRounds = 3
	contentionRound  = 2500 * time.Millisecond
)

// contention measures how many calls of one tenant get through when its quota items are in each other's way.
func contention(ctx context.Context, e *env) ([]result, error) {
	s, err := start(ctx, contentionScripts())
	if err != nil {
		return nil, err
	}
	defer s.stop()
	rounds, length := contentionRounds, contentionRound
	if e.quick {
		rounds, length = 1, 100*time.Millisecond
	}
	var next atomic.Int64
	tenants := make([]*contended, len(shardCounts))
	for i, shards := range shardCounts {
		ledger, err := newLedger(client(s.url, contentionPath(shards)))
		if err != nil {
			return nil, err
		}
		tenants[i] = &contended{session: ledger.Tenant(tenant).Session(session), next: &next}
	}
	for range rounds {
		for _, t := range tenants {
			if err := t.round(ctx, length); err != nil {
				return nil, err
			}
		}
	}
	floor := tenants[0].perSecond()
	results := make([]result, 0, len(tenants)-1)
	for i, least := range []float64{2.5, 6} {
		t := tenants[i+1]
		results = append(results, result{
			Name: fmt.Sprintf("contention_%d_shards", shardCounts[i+1]), Value: t.perSecond(), Unit: "calls/s", Floor: floor,
			Ratio: quotient(t.perSecond(), floor), target: target{least: least}, failed: t.gaveUp.Load() > 0,
			note: fmt.Sprintf("%d of %d calls gave up (at 1 shard: %d of %d)",
				t.gaveUp.Load(), t.calls.Load(), tenants[0].gaveUp.Load(), tenants[0].calls.Load()),
		})
	}
	return results, nil
}

func contentionPath(shards int) string { return "held-" + strconv.Itoa(shards) }

func contentionScripts() scripts {
	all := scripts{}
	for _, shards := range shardCounts {
		all[contentionPath(shards)] = script{
			Hold:    quotaHeld,
			Answers: map[string]answer{planRead: planAnswer(shards), "TransactWriteItems": done, "UpdateItem": done},
		}
	}
	return all
}

// contended is one tenant with 32 callers.
type contended struct {
	session writers.Session
	next    *atomic.Int64

	calls, gaveUp atomic.Int64 // that ended, however late
	done          atomic.Int64 // within the rounds
	spent         time.Duration
}

// round calls for so long. What is in flight at its end is finished, since every call that gives up must be seen, but it
// does not count as done.
func (t *contended) round(ctx context.Context, length time.Duration) error {
	begun := time.Now()
	var failed error
	var once sync.Once
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for time.Since(begun) < length && ctx.Err() == nil {
				if err := t.call(ctx, begun.Add(length)); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	wg.Wait()
	t.spent += length
	return errors.Join(failed, ctx.Err())
}

func (t *contended) call(ctx context.Context, end time.Time) error {
	_, err := t.session.Commit(ctx, committed(t.next.Add(1)), received)
	t.calls.Add(1)
	switch {
	case errors.Is(err, writers.ErrUnavailable):
		t.gaveUp.Add(1)
	case err != nil:
		return err
	case time.Now().Before(end):
		t.done.Add(1)
	}
	return nil
}

func (t *contended) perSecond() float64 { return float64(t.done.Load()) / t.spent.Seconds() }
