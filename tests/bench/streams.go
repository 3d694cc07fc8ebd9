package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"toolledger/internal/stack"
	"toolledger/metrics"
	"toolledger/streams"
	"toolledger/streams/events"
)

// batchRecords is the size of a Lambda batch, and of a page of GetRecords.
const batchRecords = 1000

// pollerPages is how many pages the poller reads in a round.
const pollerPages = 10

var (
	deriveEffort = effort{rounds: 25, atLeast: 5, time: 5 * time.Second, calls: 1, callers: 1, units: batchRecords, collect: true}
	putEffort    = effort{rounds: 40, atLeast: 5, time: 8 * time.Second, calls: 1, callers: 1, units: batchRecords, collect: true}
	pollerEffort = effort{rounds: 15, atLeast: 5, time: 10 * time.Second, calls: 1, callers: 1, units: pollerPages * batchRecords, collect: true}
)

// nowhere takes events and forgets them.
var nowhere = streams.PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) { return len(evs), nil })

// derive measures the way from a Lambda batch to events and metrics, against decoding it into aws-lambda-go's types, which
// is what everybody begins with.
func derive(ctx context.Context, e *env) ([]result, error) {
	records, err := recordsOf(batchRecords)
	if err != nil {
		return nil, err
	}
	batch := list(records)
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: nowhere})
	if err != nil {
		return nil, err
	}
	got, err := compare(ctx, e.cut(deriveEffort),
		func(ctx context.Context, _ int64) error {
			out, err := consumer.HandleBatch(ctx, batch)
			if err == nil && string(out) != `{"batchItemFailures":[]}` {
				err = errors.New("records failed")
			}
			return err
		},
		func(context.Context, int64) error {
			var ev lambdaevents.DynamoDBEvent
			return json.Unmarshal(batch, &ev)
		})
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("records of %.1f KB; the floor only decodes", float64(len(batch))/batchRecords/1000)
	return []result{
		{
			Name: "derive_us", Value: got.value.cpu, Unit: "us/record", Floor: got.floor.cpu, Ratio: got.ratio.cpu,
			target: target{most: 0.15}, note: note,
		},
		{
			Name: "derive_allocs", Value: got.value.allocs, Unit: "allocations/record", Floor: got.floor.allocs, Ratio: got.ratio.allocs,
			target: target{atMost: 16},
		},
	}, nil
}

// putEvents measures publishing to EventBridge against the plain loop over the SDK that sends the same entries.
func putEvents(ctx context.Context, e *env) ([]result, error) {
	evs, err := eventsOf(ctx, batchRecords)
	if err != nil {
		return nil, err
	}
	ids := strings.TrimSuffix(strings.Repeat(`{"EventId":"11710aed-b79e-4468-a20b-bb3c0c3b4860"},`, 10), ",")
	s, err := start(ctx, scripts{"": {Answers: map[string]answer{
		"PutEvents": {http.StatusOK, json.RawMessage(`{"FailedEntryCount":0,"Entries":[` + ids + `]}`)},
	}}})
	if err != nil {
		return nil, err
	}
	defer s.stop()
	bus := eventbridge.NewFromConfig(stack.AWSConfig(s.url))
	publisher, err := streams.NewEventBridgePublisher(bus, streams.PublisherConfig{Bus: "audit"})
	if err != nil {
		return nil, err
	}
	got, err := compare(ctx, e.cut(putEffort),
		func(ctx context.Context, _ int64) error {
			_, err := publisher.Publish(ctx, evs)
			return err
		},
		func(ctx context.Context, _ int64) error { return putInTens(ctx, bus, evs) })
	if err != nil {
		return nil, err
	}
	return []result{{
		Name: "putevents_us", Value: got.value.cpu, Unit: "us/event", Floor: got.floor.cpu, Ratio: got.ratio.cpu, target: target{most: 1.15},
	}}, nil
}

// putInTens is the plain loop.
func putInTens(ctx context.Context, bus *eventbridge.Client, evs []events.Event) error {
	for len(evs) > 0 {
		n := min(10, len(evs))
		entries := make([]types.PutEventsRequestEntry, n)
		for i, ev := range evs[:n] {
			detail, err := json.Marshal(ev)
			if err != nil {
				return err
			}
			entries[i] = types.PutEventsRequestEntry{
				Source: aws.String(events.Source), DetailType: aws.String(ev.DetailType()), Detail: aws.String(string(detail)),
				EventBusName: aws.String("audit"), Time: aws.Time(ev.Head().Time),
			}
		}
		out, err := bus.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
		if err != nil {
			return err
		}
		if out.FailedEntryCount > 0 {
			return errors.New("entries failed")
		}
		evs = evs[n:]
	}
	return nil
}

// eventsOf returns n events that the consumer derives.
func eventsOf(ctx context.Context, n int) ([]events.Event, error) {
	records, err := recordsOf(2 * n) // two of three give an event
	if err != nil {
		return nil, err
	}
	var all streams.Collector
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: &all})
	if err != nil {
		return nil, err
	}
	if _, err := consumer.HandleBatch(ctx, list(records)); err != nil {
		return nil, err
	}
	evs := all.Events()
	if len(evs) < n {
		return nil, fmt.Errorf("%d events, not %d", len(evs), n)
	}
	return evs[:n], nil
}

// poll measures how fast the poller reads a shard, decodes, derives and keeps its checkpoint, against a loop that only calls
// GetRecords.
func poll(ctx context.Context, e *env) ([]result, error) {
	records, err := recordsOf(batchRecords)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, scripts{"": {Pages: pollerPages, Answers: map[string]answer{
		"DescribeStream": {http.StatusOK, json.RawMessage(`{"StreamDescription":{"StreamArn":"` + streamARN + `","StreamStatus":"ENABLED",` +
			`"Shards":[{"ShardId":"shardId-00000001","SequenceNumberRange":{"StartingSequenceNumber":"1","EndingSequenceNumber":"9"}}]}}`)},
		"GetShardIterator": {http.StatusOK, json.RawMessage(`{"ShardIterator":"0"}`)},
		"GetRecords":       {http.StatusOK, list(records)},
		planRead:           {http.StatusOK, json.RawMessage(`{}`)}, // the lease: there is none
		"UpdateItem":       {http.StatusOK, json.RawMessage(`{"Attributes":{"version":{"N":"1"}}}`)},
	}}})
	if err != nil {
		return nil, err
	}
	defer s.stop()
	reader := dynamodbstreams.NewFromConfig(stack.AWSConfig(s.url))
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: nowhere})
	if err != nil {
		return nil, err
	}
	got, err := compare(ctx, e.cut(pollerEffort),
		func(ctx context.Context, _ int64) error {
			poller, err := streams.NewPoller(streams.PollerConfig{
				Streams: reader, StreamARN: streamARN, DynamoDB: client(s.url, ""), Control: control,
			}, consumer)
			if err != nil {
				return err
			}
			return poller.Drain(ctx)
		},
		func(ctx context.Context, _ int64) error { return readShard(ctx, reader) })
	if err != nil {
		return nil, err
	}
	return []result{{
		Name: "poller_rate", Value: 1e6 / got.value.wall, Unit: "records/s", Floor: 1e6 / got.floor.wall, Ratio: 1 / got.ratio.wall,
		target: target{least: 0.8}, note: fmt.Sprintf("processor time %.2fx", got.ratio.cpu),
	}}, nil
}

// readShard is the plain loop.
func readShard(ctx context.Context, reader *dynamodbstreams.Client) error {
	at, err := reader.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: aws.String(streamARN), ShardId: aws.String("shardId-00000001"), ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return err
	}
	read := 0
	for next := at.ShardIterator; next != nil; {
		out, err := reader.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next, Limit: aws.Int32(batchRecords)})
		if err != nil {
			return err
		}
		read += len(out.Records)
		next = out.NextShardIterator
	}
	if read != pollerPages*batchRecords {
		return fmt.Errorf("read %d records", read)
	}
	return nil
}

// aggregate measures adding up metrics against a bare map of the same keys.
func aggregate(ctx context.Context, e *env) ([]result, error) {
	data := dataOf(batchRecords)
	aggregator := metrics.NewAggregator(20)
	bare := map[bareKey]*bareSum{}
	const times = 20 // a call has to be long enough to be measured
	got, err := compare(ctx, e.cut(effort{rounds: 51, atLeast: 5, time: 4 * time.Second, calls: 1, callers: 1, units: times * batchRecords}),
		func(context.Context, int64) error {
			for range times {
				aggregator.Add(data...)
			}
			return nil
		},
		func(context.Context, int64) error {
			for range times {
				addUp(bare, data)
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	return []result{{
		Name: "aggregate_ns", Value: got.value.cpu * 1e3, Unit: "ns/datum", Floor: got.floor.cpu * 1e3, Ratio: got.ratio.cpu,
		target: target{most: 2}, note: fmt.Sprintf("%d keys", len(bare)),
	}}, nil
}

// dataOf returns n data of 64 keys: 8 metrics, each as a total and for 7 tenants, within a minute.
func dataOf(n int) []metrics.Datum {
	names := []string{
		metrics.CallsReserved, metrics.EffectsApplied, metrics.ReservationsExtended, metrics.ReservationsReleased,
		metrics.ReservationsExpired, metrics.TokensReserved, metrics.TokensCharged, metrics.TokensRefunded,
	}
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	data := make([]metrics.Datum, n)
	for i := range data {
		data[i] = metrics.Datum{Name: names[i%len(names)], Tenant: tenantOf(int64(i)), Value: 1, Time: at.Add(time.Duration(i) * time.Millisecond)}
	}
	return data
}

type (
	bareKey struct {
		name, tenant string
		minute       int64
	}
	bareSum struct{ samples, sum, least, most float64 }
)

// addUp is the bare map: a total and a series of the tenant for each datum.
func addUp(sums map[bareKey]*bareSum, data []metrics.Datum) {
	for _, d := range data {
		minute := d.Time.Unix() / 60
		for _, k := range [2]bareKey{{d.Name, "", minute}, {d.Name, d.Tenant, minute}} {
			s := sums[k]
			if s == nil {
				s = &bareSum{least: d.Value, most: d.Value}
				sums[k] = s
			}
			s.samples++
			s.sum += d.Value
			s.least, s.most = min(s.least, d.Value), max(s.most, d.Value)
		}
	}
}
