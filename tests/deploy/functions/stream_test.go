package functions_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// batchAnswer is what an event source mapping with ReportBatchItemFailures reads.
type batchAnswer struct {
	Failures []struct {
		Identifier string `json:"itemIdentifier"`
	} `json:"batchItemFailures"`
	ErrorMessage string `json:"errorMessage"`
}

func (l *lambda) batch(event []byte) batchAnswer {
	l.t.Helper()
	body := l.invoke(event)
	var a batchAnswer
	if err := json.Unmarshal(body, &a); err != nil || a.ErrorMessage != "" || !bytes.HasPrefix(body, []byte(`{"batchItemFailures":[`)) {
		l.t.Fatalf("%v: %s", err, body)
	}
	return a
}

// The records of stream.json, in their order.
const (
	goodRecord       = "100000000000000001231"
	unreadableRecord = "100000000000000001232"
	unluckyRecord    = "100000000000000001233"
	lastRecord       = "100000000000000001234"
)

// Promise: of a batch with a record that is good, one that cannot be understood and one whose event the bus does not take,
// the mapping gets the third one's sequence number, and only that: what is before it is done with, the unreadable one kept in
// the bucket, and what is behind it comes again.
func TestStreamBatch(t *testing.T) {
	s := newServices(t)
	s.failing = `"tenant":"unlucky"`
	l := start(t, "streams/lambda", "AWS_ENDPOINT_URL="+s.url, "EVENT_BUS=audit", "FAILURE_BUCKET=failures", "METRICS_NAMESPACE=toolledger")
	a := l.batch(golden(t, "stream.json"))
	if len(a.Failures) != 1 || a.Failures[0].Identifier != unluckyRecord {
		t.Fatalf("%+v", a)
	}
	if got := s.seen(); len(got) < 2 || got[0] != "ToolCallReserved" || got[1] != "AuditRecordUnreadable" {
		t.Errorf("events %v", got)
	}
	s.mu.Lock()
	kept := slices.Collect(maps.Keys(s.objects))
	if len(kept) != 1 || !strings.HasPrefix(kept[0], "/failures/unreadable/") || !strings.Contains(s.objects[kept[0]], unreadableRecord) {
		t.Errorf("kept %v", s.objects)
	}
	s.failing = ""
	s.mu.Unlock()
	if !s.counted("RecordsProcessed") {
		t.Error("no metrics were sent")
	}

	// The mapping delivers again, from the failed record on.
	var batch struct{ Records []json.RawMessage }
	if err := json.Unmarshal(golden(t, "stream.json"), &batch); err != nil {
		t.Fatal(err)
	}
	batch.Records = batch.Records[2:]
	rest, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	if a := l.batch(rest); len(a.Failures) != 0 {
		t.Errorf("%+v", a)
	}
	count := map[string]int{}
	for _, e := range s.events {
		if e.Source != "toolledger" {
			t.Errorf("source %q", e.Source)
		}
		count[e.DetailType]++
	}
	if count["ToolCallReserved"] < 3 || count["AuditRecordUnreadable"] != 1 {
		t.Errorf("%v, want a reservation for each of three rows", count)
	}
}

// Promise: without a bucket a record that cannot be understood stops the shard at its own number until the mapping gives it
// to its failure destination; what was before it is not sent again.
func TestStreamWithoutBucket(t *testing.T) {
	s := newServices(t)
	l := start(t, "streams/lambda", "AWS_ENDPOINT_URL="+s.url, "EVENT_BUS=audit", "METRICS_SINK=none")
	if a := l.batch(golden(t, "stream.json")); len(a.Failures) != 1 || a.Failures[0].Identifier != unreadableRecord {
		t.Fatalf("%+v", a)
	}
	if got := s.seen(); len(got) != 1 || got[0] != "ToolCallReserved" {
		t.Errorf("events %v", got)
	}
}

// Promise: an event that is no batch of a stream is an error, never an empty success: the mapping must not move on.
func TestStreamWrongDoor(t *testing.T) {
	s := newServices(t)
	l := start(t, "streams/lambda", "AWS_ENDPOINT_URL="+s.url, "EVENT_BUS=audit", "METRICS_SINK=none")
	for _, name := range []string{"http-jwt.json", "direct.json", "bedrock-api.json", "schedule.json"} {
		l.refuses(name, golden(t, name), "")
	}
	if got := s.seen(); len(got) != 0 {
		t.Errorf("events %v", got)
	}
}
