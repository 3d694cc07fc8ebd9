package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/jsonschema-go/jsonschema"

	"toolledger/internal/stack"
	"toolledger/writers"
)

// server is one local DynamoDB for all tests of this package; every test has tables of its own.
var local struct {
	once sync.Once
	srv  *stack.Server
	err  error
	n    int
	mu   sync.Mutex
}

func TestMain(m *testing.M) {
	code := m.Run()
	if local.srv != nil {
		local.srv.Stop()
	}
	os.Exit(code)
}

// clock is a clock that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 30, 1, 53, 2, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// newTestLedger returns an empty ledger whose tenant acme has 1,000 tokens a month.
func newTestLedger(t testing.TB, c *clock) *writers.Ledger {
	t.Helper()
	local.once.Do(func() { local.srv, local.err = stack.Start(context.Background(), stack.Config{}) })
	if errors.Is(local.err, stack.ErrNotInstalled) {
		t.Skip(local.err)
	}
	if local.err != nil {
		t.Fatal(local.err)
	}
	client := dynamodb.NewFromConfig(local.srv.AWSConfig())
	local.mu.Lock()
	local.n++
	table := fmt.Sprintf("toolledger-api-%d", local.n)
	local.mu.Unlock()
	if _, err := stack.CreateTables(t.Context(), client, table, table+"-control", false); err != nil {
		t.Fatal(err)
	}
	l, err := writers.New(client, writers.Config{Table: table, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	return l
}

// tenantHeader authenticates as toolledger dev does.
func tenantHeader(r *http.Request) (writers.TenantID, error) {
	return writers.TenantID(r.Header.Get("X-Tenant-Id")), nil
}

// door is a handler under test. Every answer is held against the served document.
type door struct {
	t       testing.TB
	h       http.Handler
	schemas map[string]*jsonschema.Resolved
}

func newDoor(t testing.TB, l *writers.Ledger, c *clock, more ...func(*HandlerConfig)) *door {
	t.Helper()
	cfg := HandlerConfig{Tenant: tenantHeader, Now: c.Now}
	for _, f := range more {
		f(&cfg)
	}
	h, err := NewHandler(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &door{t, h, answerSchemas(t)}
}

// reply is what a request got.
type got struct {
	status int
	header http.Header
	doc    map[string]any
	raw    string
}

func (d *door) do(r *http.Request) got {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	res := w.Result()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	g := got{status: res.StatusCode, header: res.Header, raw: string(body)}
	if strings.Contains(res.Header.Get("Content-Type"), "json") && r.Method != http.MethodHead {
		if err := json.Unmarshal(body, &g.doc); err != nil {
			d.t.Fatalf("%s %s: %v: %s", r.Method, r.URL, err, body)
		}
		d.validate(r, g)
	}
	return g
}

// validate holds an answer against the schema that the document has for it.
func (d *door) validate(r *http.Request, g got) {
	d.t.Helper()
	var name string
	switch {
	case g.status >= 400:
		name = "Problem"
		if ct := g.header.Get("Content-Type"); ct != "application/problem+json" {
			d.t.Fatalf("a problem as %s", ct)
		}
	case r.Method == http.MethodPost:
		name = "Answer"
	case r.URL.Path == "/v1/calls":
		name = "Call"
	case r.URL.Path == "/v1/quota":
		name = "Quota"
	case r.Method == http.MethodPut:
		name = "Plan"
	default:
		return
	}
	if err := d.schemas[name].Validate(g.doc); err != nil {
		d.t.Fatalf("%s %s: not a %s of the document: %v: %s", r.Method, r.URL, name, err, g.raw)
	}
}

// as makes a request of a tenant; body "" means none.
func (d *door) as(tenant, method, path, body string) got {
	d.t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	if tenant != "" {
		r.Header.Set("X-Tenant-Id", tenant)
	}
	return d.do(r)
}

func (d *door) post(op, body string) got {
	d.t.Helper()
	return d.as("acme", http.MethodPost, "/v1/"+op, body)
}

// want fails the test unless the request got this status and, for a problem, this code; else this outcome.
func (g got) want(t testing.TB, status int, word string) got {
	t.Helper()
	said := g.doc["outcome"]
	if g.status >= 400 {
		said = g.doc["code"]
	}
	if g.status != status || word != "" && said != word {
		t.Fatalf("got %d %s, want %d %s", g.status, g.raw, status, word)
	}
	return g
}

// answerSchemas are the document's schemas of answers.
func answerSchemas(t testing.TB) map[string]*jsonschema.Resolved {
	t.Helper()
	text := strings.ReplaceAll(jsonOf(t, at(t, doc(t), "components", "schemas")), "#/components/schemas/", "#/$defs/")
	out := map[string]*jsonschema.Resolved{}
	for _, name := range []string{"Answer", "Call", "Problem", "Quota", "Plan"} {
		var s jsonschema.Schema
		if err := json.Unmarshal([]byte(`{"$ref":"#/$defs/`+name+`","$defs":`+text+`}`), &s); err != nil {
			t.Fatal(err)
		}
		resolved, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = resolved
	}
	return out
}
