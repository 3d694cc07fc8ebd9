package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/eventcheck"
	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/streams/events"
)

// Promise: what the program's own stories, demo and replay, make the streams tell fits the published schemas, event by event.
// The tests that read a stream themselves hold every event that they meet against its schema (see checked).
func TestStoriesFitTheSchemas(t *testing.T) {
	srv, err := stack.Start(t.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	at := []string{"--endpoint", srv.Endpoint()}
	told := prove(t, 0, append([]string{"demo", "--intents=30"}, at...)...).Events
	for name, n := range prove(t, 0, append([]string{"replay", filepath.Join("testdata", "calls.jsonl")}, at...)...).Events {
		told[name] += n
	}
	count := everyEvent(t, srv).Count()
	t.Logf("events: %v", count)
	for name, n := range told {
		if count[name] < n {
			t.Errorf("%s: the streams tell of %d, the stories of %d", name, count[name], n)
		}
	}
}

// parseLine reads an event that the program printed, and holds it against its schema.
func parseLine(line []byte) (events.Event, error) {
	ev, err := events.Parse(line)
	if err != nil {
		return nil, err
	}
	var printed struct{ Detail json.RawMessage }
	if err := json.Unmarshal(line, &printed); err != nil {
		return nil, err
	}
	return ev, eventcheck.Detail(ev.DetailType(), printed.Detail)
}

// everyEvent reads the streams of all tables from their beginnings.
func everyEvent(t *testing.T, srv *stack.Server) *streams.Collector {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, out := dynamodbstreams.NewFromConfig(srv.AWSConfig()), &streams.Collector{}
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: checked(t, out), Unreadable: func(context.Context, []byte) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ListStreams(ctx, &dynamodbstreams.ListStreamsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Streams {
		p, err := streams.NewPoller(streams.PollerConfig{
			Streams: client, StreamARN: *s.StreamArn, DynamoDB: dynamodb.NewFromConfig(srv.AWSConfig()), FromHorizon: true,
		}, consumer)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
