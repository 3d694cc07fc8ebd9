package tests_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/writers"
)

// countingStreams counts reads.
type countingStreams struct {
	*dynamodbstreams.Client
	reads atomic.Int64
}

func (c *countingStreams) GetRecords(ctx context.Context, in *dynamodbstreams.GetRecordsInput, opts ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	c.reads.Add(1)
	return c.Client.GetRecords(ctx, in, opts...)
}

// A poller of the control table's stream, which carries its own leases, comes to rest: leases give no event and move no
// checkpoint, so that Drain ends and an idle system stays idle.
func TestPollerOfTheControlStreamComesToRest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv, err := stack.Start(ctx, stack.Config{})
	if err != nil {
		t.Skip(err)
	}
	defer srv.Stop()
	db := dynamodb.NewFromConfig(srv.AWSConfig())
	tables, err := stack.CreateTables(ctx, db, "poller-rest", "poller-rest-control", true)
	if err != nil {
		t.Fatal(err)
	}
	l, err := writers.New(db, writers.Config{Table: "poller-rest"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Tenant("acme").PutPlan(ctx, writers.Plan{Tokens: 5}); err != nil {
		t.Fatal(err)
	}
	var published atomic.Int64
	c, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: checked(t, streams.PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) {
		published.Add(int64(len(evs)))
		return len(evs), nil
	}))})
	if err != nil {
		t.Fatal(err)
	}
	reader := &countingStreams{Client: dynamodbstreams.NewFromConfig(srv.AWSConfig())}
	p, err := streams.NewPoller(streams.PollerConfig{
		StreamARN: tables[1].StreamARN, Control: "poller-rest-control", Streams: reader, DynamoDB: db,
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if n := published.Load(); n != 1 {
		t.Errorf("%d events, want PlanChanged alone", n)
	}
	if n := reader.reads.Load(); n > 50 {
		t.Errorf("%d reads to drain a stream of one plan", n)
	}
}
