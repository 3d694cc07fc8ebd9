package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/eventcheck"
)

// busServer is an EventBridge that speaks the real protocol to the real client, and fails as it is told.
type busServer struct {
	*httptest.Server
	tb       testing.TB
	mu       sync.Mutex
	requests [][]busEntry                 // as they came
	accepted map[string]int               // event id to how often it got onto the bus
	fail     func(r busRequest) busAnswer // what to do with the nth request; nil accepts all
	largest  int                          // bytes of entries in one request, counted as EventBridge does
	inFlight int
	most     int // requests at a time
}

type busEntry struct {
	Source, DetailType, Detail, EventBusName string
	Time                                     float64
	id                                       string
}

// busRequest is a request to decide about; n counts from 0.
type busRequest struct {
	n       int
	entries []busEntry
}

// busAnswer is how a request ends. The zero value accepts every entry.
type busAnswer struct {
	status  int // above 0: the request fails with it and code
	code    string
	refused map[int]string // entry to its error code; the others are accepted
	drop    bool           // take what is to be taken, then close the connection without an answer
	short   bool           // leave out the last result
}

func newBus(t testing.TB) *busServer {
	b := &busServer{tb: t, accepted: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *busServer) client() *eventbridge.Client {
	return eventbridge.New(eventbridge.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(b.URL), Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
		RetryMaxAttempts: 1, HTTPClient: b.Client(),
	})
}

// PutEvents is the same bus without a network between, for tests that make tens of thousands of requests.
func (b *busServer) PutEvents(
	_ context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options),
) (*eventbridge.PutEventsOutput, error) {
	entries := make([]busEntry, len(in.Entries))
	for i, e := range in.Entries {
		entries[i] = busEntry{Source: *e.Source, DetailType: *e.DetailType, Detail: *e.Detail, EventBusName: *e.EventBusName}
	}
	answer := b.take(entries)
	out := &eventbridge.PutEventsOutput{FailedEntryCount: int32(len(answer.refused))}
	switch {
	case answer.status > 0:
		return nil, &smithy.GenericAPIError{Code: answer.code, Message: "scripted"}
	case answer.drop:
		return nil, errors.New("connection reset by peer")
	}
	for i := range entries {
		var result types.PutEventsResultEntry
		if code := answer.refused[i]; code != "" {
			result.ErrorCode = &code
		} else {
			result.EventId = aws.String("envelope")
		}
		out.Entries = append(out.Entries, result)
	}
	return out, nil
}

func (b *busServer) serve(w http.ResponseWriter, r *http.Request) {
	var in struct{ Entries []busEntry }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Amz-Target") != "AWSEvents.PutEvents" {
		http.Error(w, `{"__type":"SerializationException"}`, http.StatusBadRequest)
		return
	}
	b.answer(w, in.Entries, b.take(in.Entries))
}

// take decides about a request and puts on the bus what it accepts.
func (b *busServer) take(entries []busEntry) busAnswer {
	size := 0
	for i, e := range entries {
		b.check(e)
		entries[i].id = idIn(e.Detail)
		size += 14 + len(e.Source) + len(e.DetailType) + len(e.Detail)
	}
	b.mu.Lock()
	request := busRequest{len(b.requests), entries}
	b.requests = append(b.requests, entries)
	b.largest = max(b.largest, size)
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	fail := b.fail
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.inFlight--; b.mu.Unlock() }()
	var answer busAnswer
	if fail != nil {
		answer = fail(request)
	}
	if answer.status == 0 && (len(entries) > 10 || len(entries) == 0 || size >= 1<<20) {
		answer = busAnswer{status: http.StatusBadRequest, code: "ValidationException"}
	}
	if answer.status > 0 {
		return answer
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range entries {
		if answer.refused[i] == "" {
			b.accepted[e.id]++
		}
	}
	return answer
}

// idIn cuts an event's id out of its detail: within a string, the quotes around a name are escaped.
func idIn(detail string) string {
	_, rest, _ := strings.Cut(detail, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// check holds what reaches the bus against the schemas that its subscribers have.
func (b *busServer) check(e busEntry) {
	if measures(b.tb) {
		return
	}
	if err := eventcheck.Detail(e.DetailType, []byte(e.Detail)); err != nil {
		b.tb.Errorf("an entry does not fit its schema: %v", err)
	}
}

func (b *busServer) answer(w http.ResponseWriter, entries []busEntry, answer busAnswer) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if answer.status > 0 {
		w.WriteHeader(answer.status)
		fmt.Fprintf(w, `{"__type":%q,"message":"scripted"}`, answer.code)
		return
	}
	results := make([]map[string]string, 0, len(entries))
	for i := range entries {
		if code := answer.refused[i]; code != "" {
			results = append(results, map[string]string{"ErrorCode": code, "ErrorMessage": "scripted"})
			continue
		}
		results = append(results, map[string]string{"EventId": fmt.Sprintf("envelope-%d", i)})
	}
	if answer.drop {
		panic(http.ErrAbortHandler)
	}
	if answer.short {
		results = results[:len(results)-1]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"FailedEntryCount": len(answer.refused), "Entries": results})
}

// ids are the ids on the bus, each once.
func (b *busServer) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]string, 0, len(b.accepted))
	for id := range b.accepted {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (b *busServer) publisher(t testing.TB, edit ...func(*PublisherConfig)) *EventBridgePublisher {
	t.Helper()
	return publisherTo(t, b.client(), edit...)
}

func publisherTo(t testing.TB, client EventBridge, edit ...func(*PublisherConfig)) *EventBridgePublisher {
	t.Helper()
	cfg := PublisherConfig{Bus: "audit", Pause: 1, Attempts: 4}
	for _, e := range edit {
		e(&cfg)
	}
	p, err := NewEventBridgePublisher(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onlyFor fails the first times requests that hold one of the ids.
func onlyFor(times int, answer func(busRequest, int) busAnswer, ids ...string) func(busRequest) busAnswer {
	var mu sync.Mutex
	return func(r busRequest) busAnswer {
		mu.Lock()
		defer mu.Unlock()
		for i, e := range r.entries {
			if slices.Contains(ids, e.id) && times > 0 {
				times--
				return answer(r, i)
			}
		}
		return busAnswer{}
	}
}
