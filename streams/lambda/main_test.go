package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/streams"
	"toolledger/streams/events"
)

// shelf is a bucket in memory; with err set it takes nothing.
type shelf struct {
	bucket  string
	objects map[string]string
	err     error
}

func (s *shelf) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if s.err != nil {
		return nil, s.err
	}
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	s.bucket, s.objects[*in.Key] = *in.Bucket, string(body)
	return &s3.PutObjectOutput{}, nil
}

// Promise: a record that cannot be understood does not stop its shard. It is kept as it came, once however often it is
// delivered, and its event tells of it; where it cannot be kept, it comes again.
func TestUnreadableRecordIsKept(t *testing.T) {
	const record = `{"eventName":"INSERT","dynamodb":{"SequenceNumber":"7","Keys":{"pk":{"S":"x"},"sk":{"S":"y"}},"NewImage":{}}}`
	store := &shelf{objects: map[string]string{}}
	told := &streams.Collector{}
	c, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: told, Unreadable: (&keeper{store, "failures"}).record})
	if err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("no bucket")
	batch := json.RawMessage(`{"Records":[` + record + `]}`)
	if out, err := c.HandleBatch(t.Context(), batch); err != nil || string(out) != `{"batchItemFailures":[{"itemIdentifier":"7"}]}` {
		t.Fatalf("without a bucket: %s, %v", out, err)
	}
	store.err = nil
	for range 2 {
		if out, err := c.HandleBatch(t.Context(), batch); err != nil || string(out) != `{"batchItemFailures":[]}` {
			t.Fatalf("%s, %v", out, err)
		}
	}
	if len(store.objects) != 1 || store.bucket != "failures" {
		t.Fatalf("kept %v in %q", store.objects, store.bucket)
	}
	for name, body := range store.objects {
		if body != record {
			t.Errorf("%s holds %s", name, body)
		}
	}
	if n := told.Count()["AuditRecordUnreadable"]; n != 1 {
		t.Errorf("%d events", n)
	}
}

// Promise: an event that the bus refuses for good is not lost: it can be sent again from what is kept.
func TestRefusedEventIsKept(t *testing.T) {
	store := &shelf{objects: map[string]string{}}
	ev := events.All()[0]
	detail, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{store, "failures"}
	if err := k.event(t.Context(), streams.Refusal{Event: ev, Detail: detail, Code: "NotAuthorized", Message: "no"}); err != nil {
		t.Fatal(err)
	}
	var kept refusedEvent
	if err := json.Unmarshal([]byte(store.objects["refused/"+ev.Head().ID+".json"]), &kept); err != nil {
		t.Fatal(err)
	}
	if again, err := events.ParseDetail(kept.DetailType, kept.Detail); err != nil || again.Head() != ev.Head() || kept.Code != "NotAuthorized" {
		t.Errorf("%+v, %v", kept, err)
	}
}

// Promise: a function that was deployed without its bus says so when it starts.
func TestWireNeedsABus(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	logger := slog.New(slog.DiscardHandler)
	env := map[string]string{"METRICS_SINK": "none"}
	get := func(name string) string { return env[name] }
	if _, err := wire(t.Context(), get, logger); err == nil {
		t.Error("no EVENT_BUS is taken for one")
	}
	env["EVENT_BUS"], env["FAILURE_BUCKET"] = "bus", "failures"
	if _, err := wire(t.Context(), get, logger); err != nil {
		t.Error(err)
	}
}
