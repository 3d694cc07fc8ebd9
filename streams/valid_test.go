package streams

import (
	"math"
	"slices"
	"testing"

	"toolledger/internal/eventcheck"
	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// Promise of all tests of this package: every event that any of them sees fits its published schema, with no member beside
// it. So no test calls Derive, makes a consumer or takes what is on the bus but through the functions below.

// derived is Derive.
func derived(t eventcheck.Reporter, c Change) ([]events.Event, []metrics.Datum, error) {
	evs, data, err := Derive(c)
	eventcheck.All(t, evs)
	return evs, data, err
}

// valid is p with a look at what goes through it.
func valid(t eventcheck.Reporter, p Publisher) Publisher {
	if _, toBus := p.(*EventBridgePublisher); toBus || measures(t) {
		return p // the bus checks what reaches it
	}
	return PublisherFunc(eventcheck.Publish(t, p.Publish))
}

// measures tells benchmarks apart, which would measure the checking.
func measures(t eventcheck.Reporter) bool {
	_, bench := t.(*testing.B)
	return bench
}

// Promise: an event fits its schema also where the table holds what no writer of ours wrote: no list is null, and no
// number turns around.
func TestEventsOfForgedRowsFit(t *testing.T) {
	suspected := next(next(next(pendingRow(), fail(schema.FailureExpired)), takeover), func(r *schema.Row) {
		r.Suspects = []string{schema.SuspectName(r.RowID, r.Attempt)}
	})
	recorded := next(suspected, fenced)
	recorded.Suspects = suspected.Suspects
	evs, _, err := derived(t, changeOf(suspected, recorded))
	if got := typesOf(evs); err != nil || !slices.Equal(got, []string{"ToolEffectApplied"}) {
		t.Errorf("nobody new is suspected: got %v, %v", got, err)
	}
	rich := pendingRow()
	rich.Debits = nil
	for shard := range 1100 {
		rich.Debits = append(rich.Debits, schema.Debit{Period: "2026-11", Shard: shard, Tokens: schema.MaxTokens})
	}
	evs, _, err = derived(t, changeOf(rich, next(rich, fail(schema.FailureReleased))))
	if err != nil || len(evs) != 1 || evs[0].(*events.ReservationReleased).RefundedTokens != math.MaxInt64 {
		t.Errorf("got %+v, %v", evs, err)
	}
}
