package streams

import (
	"math"
	"slices"
	"testing"

	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

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
	released := next(rich, fail(schema.FailureReleased))
	evs, _, err = derived(t, changeOf(rich, released))
	if err != nil || len(evs) != 1 || evs[0].(*events.ReservationReleased).RefundedTokens != math.MaxInt64 {
		t.Errorf("got %+v, %v", evs, err)
	}
	rb, err := RebuildItem(ImageOf(released.Item()), false)
	eventcheck.All(t, rb.Events)
	if err != nil || len(rb.Events) != 1 || rb.Events[0].(*events.ReservationReleased).RefundedTokens != math.MaxInt64 {
		t.Errorf("rebuilt: got %+v, %v", rb, err)
	}
}

// Promise: debits that come to 2^64 are not what a reservation of nothing debited.
func TestDebitsDoNotComeRound(t *testing.T) {
	forged := pendingRow()
	forged.Reserved, forged.Debits = 0, nil
	for shard := range 2048 {
		forged.Debits = append(forged.Debits, schema.Debit{Period: "2026-11", Shard: shard, Tokens: schema.MaxTokens})
	}
	evs, _, err := derived(t, changeOf(nil, forged))
	if got := typesOf(evs); err != nil || !slices.Equal(got, []string{"LedgerRowTampered"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Promise: a record that a client of the stream read, written as Lambda has it, reads the same: what is kept of it and fed
// again later gives the same events with the same ids.
func TestKeptRecordsReadTheSame(t *testing.T) {
	for _, tr := range transitions() {
		was := changeOf(tr.was, tr.is)
		read := ChangeOf(was.Stream, streamRecord(was))
		changes, err := decoded(string(lambdaBatch(string(read.lambdaJSON()))))
		if err != nil || len(changes) != 1 || changes[0].Err != nil {
			t.Fatalf("%s: %v, %v", tr.name, changes, err)
		}
		c := changes[0]
		if c.Op != was.Op || c.Keys != was.Keys || c.Sequence != was.Sequence || !c.Time.Equal(was.Time) || c.TTL != was.TTL || c.Stream != was.Stream {
			t.Errorf("%s: got %+v, want %+v", tr.name, c, was)
		}
		if !sameImage(c.Old, was.Old) || !sameImage(c.New, was.New) || (c.Old == nil) != (was.Old == nil) || (c.New == nil) != (was.New == nil) {
			t.Errorf("%s: the images differ", tr.name)
		}
		before, _, _ := derived(t, was)
		again, _, err := derived(t, c)
		if err != nil || !slices.Equal(idsOf(again), idsOf(before)) {
			t.Errorf("%s: got %v, %v, want %v", tr.name, typesOf(again), err, typesOf(before))
		}
	}
}

// streamRecord is a change as a client of the stream reads it.
func streamRecord(c Change) *streamtypes.Record {
	return &streamtypes.Record{EventName: streamtypes.OperationType(c.Op), Dynamodb: &streamtypes.StreamRecord{
		SequenceNumber: &c.Sequence, ApproximateCreationDateTime: &c.Time, OldImage: streamItem(c.Old), NewImage: streamItem(c.New),
		Keys: map[string]streamtypes.AttributeValue{
			schema.PK: &streamtypes.AttributeValueMemberS{Value: c.Keys.PK}, schema.SK: &streamtypes.AttributeValueMemberS{Value: c.Keys.SK},
		},
	}}
}
