package functions_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
	"toolledger/writers"
)

// services are EventBridge, CloudWatch and S3 as far as the functions use them.
type services struct {
	url     string
	failing string // events that hold this text are refused for now

	mu      sync.Mutex
	events  []published
	objects map[string]string // path and body
	metrics []string          // bodies of PutMetricData
}

type published struct {
	Source     string
	DetailType string
	Detail     string
}

func newServices(t *testing.T) *services {
	t.Helper()
	s := &services{objects: map[string]string{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(plain)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Header.Get("X-Amz-Target") == "AWSEvents.PutEvents":
		s.putEvents(w, body)
	case strings.HasSuffix(r.URL.Path, "/PutMetricData"):
		s.metrics = append(s.metrics, string(body))
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		w.Header().Set("Content-Type", "application/cbor")
		_, _ = w.Write([]byte{0xbf, 0xff})
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path] = string(body)
	default:
		http.Error(w, r.Method+" "+r.URL.Path, http.StatusNotImplemented)
	}
}

func (s *services) putEvents(w http.ResponseWriter, body []byte) {
	var in struct{ Entries []published }
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answers := make([]map[string]string, len(in.Entries))
	failed := 0
	for i, e := range in.Entries {
		if s.failing != "" && strings.Contains(e.Detail, s.failing) {
			answers[i] = map[string]string{"ErrorCode": "InternalFailure", "ErrorMessage": "try again"}
			failed++
			continue
		}
		s.events = append(s.events, e)
		answers[i] = map[string]string{"EventId": fmt.Sprint(len(s.events))}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"FailedEntryCount": failed, "Entries": answers})
}

// seen are the kinds of the events that came through, in their order.
func (s *services) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		out = append(out, e.DetailType)
	}
	return out
}

// counted tells whether a metric of that name was sent.
func (s *services) counted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.metrics, " "), name)
}

// database is a ledger's tables in the local DynamoDB; acme has 1,000 tokens.
type database struct {
	srv    *stack.Server
	client *dynamodb.Client
	ledger *writers.Ledger
}

const (
	table   = "functions-ledger"
	control = "functions-control"
)

func newDatabase(t *testing.T) *database {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	d := &database{srv: srv, client: dynamodb.NewFromConfig(srv.AWSConfig())}
	if _, err := stack.CreateTables(t.Context(), d.client, table, control, false); err != nil {
		t.Fatal(err)
	}
	if d.ledger, err = writers.New(d.client, writers.Config{Table: table, Control: control}); err != nil {
		t.Fatal(err)
	}
	if err := d.ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	return d
}

// environ is what a function needs to find the tables.
func (d *database) environ() []string {
	return []string{"LEDGER_TABLE=" + table, "LEDGER_CONTROL_TABLE=" + control, "AWS_ENDPOINT_URL_DYNAMODB=" + d.srv.Endpoint()}
}

func (d *database) remaining(t *testing.T) int64 {
	t.Helper()
	q, err := d.ledger.Tenant("acme").Quota(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return q.Remaining
}
