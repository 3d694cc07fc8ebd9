package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// TestLifeOfACall: reserve, extend, finalize and every later retry, as a client in another language goes through them.
func TestLifeOfACall(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	const call = `{"session":"s1","key":"k1","tool":"pr","args":{"branch":"b"},"tokens":20,"lookup":"b","cursor":"done"}`

	r := d.post("reserve?include=remaining_tokens", call).want(t, 200, "reserved")
	if r.doc["state"] != "pending" || r.doc["lease_seconds"] != 60.0 || r.doc["attempt"] != 1.0 || r.doc["remaining_tokens"] != 980.0 ||
		r.doc["deadline"] != "2026-11-30T01:54:02.000Z" || len(fmt.Sprint(r.doc["effect_key"])) != 32 {
		t.Fatal(r.raw)
	}
	row := fmt.Sprintf(`{"session":"s1","key":"k1","row_id":%q,"attempt":1`, r.doc["row_id"])
	pending := d.as("acme", "GET", "/v1/calls?session=s1&key=k1", "").want(t, 200, "")
	if pending.doc["state"] != "pending" || pending.doc["lookup"] != "b" || pending.doc["result"] != nil {
		t.Fatal(pending.raw)
	}

	c.advance(30 * time.Second)
	e := d.post("extend", row+`,"lease_seconds":120}`).want(t, 200, "extended")
	if e.doc["deadline"] != "2026-11-30T01:55:32.000Z" || e.doc["lease_seconds"] != 120.0 {
		t.Fatal(e.raw)
	}
	if e := d.post("extend", row+`,"lease_seconds":1}`).want(t, 200, "extended"); e.doc["deadline"] != "2026-11-30T01:55:32.000Z" {
		t.Fatalf("the deadline moved back: %s", e.raw)
	}
	busy := d.post("reserve", call).want(t, 409, "in_progress")
	if busy.header.Get("Retry-After") == "" || busy.doc["row_id"] != r.doc["row_id"] || busy.doc["attempt"] != 1.0 || busy.doc["deadline"] == nil {
		t.Fatal(busy.raw, busy.header)
	}

	const result = `{"url": "https://x/<1>",  "n": 1.50}`
	for range 2 { // an answer may be lost: the same bytes again
		f := d.post("finalize", row+`,"result":`+result+`,"charged_tokens":5}`).want(t, 200, "applied")
		if f.doc["state"] != "applied" || f.doc["charged_tokens"] != 5.0 || f.header.Get("Idempotent-Replayed") != "" {
			t.Fatal(f.raw, f.header)
		}
	}
	again := d.post("reserve?include=remaining_tokens", strings.Replace(call, `"tokens"`, `"retry":true,"tokens"`, 1)).want(t, 200, "replayed")
	if again.header.Get("Idempotent-Replayed") != "true" || !strings.Contains(again.raw, `"result":`+result+`}`) || again.doc["remaining_tokens"] != 995.0 {
		t.Fatal(again.raw, again.header)
	}
	if g := d.as("acme", "GET", "/v1/calls?session=s1&key=k1&wait_seconds=20", "").want(t, 200, ""); !strings.Contains(g.raw, `"result":`+result+`}`) {
		t.Fatal(g.raw)
	}
	if q := d.as("acme", "GET", "/v1/quota", "").want(t, 200, ""); q.doc["remaining_tokens"] != 995.0 || q.doc["period"] != "2026-11" {
		t.Fatal(q.raw)
	}
}

// TestOtherOperations: commit and its replay, release, a key of each scope, a compensation, and a page of the session.
func TestOtherOperations(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	commit := `{"session":"s1","scope":"tenant","tool":"order","args":{"id":1},"tokens":7,"result":"ok"}`
	for i, want := range []string{"applied", "replayed"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/commit", strings.NewReader(commit))
		r.Header.Set("X-Tenant-Id", "acme")
		r.Header.Set("Idempotency-Key", "order-1")
		if g := d.do(r).want(t, 200, want); g.doc["key"] != "order-1" || (g.header.Get("Idempotent-Replayed") == "true") != (i == 1) {
			t.Fatal(g.raw)
		}
	}
	if g := d.as("acme", "GET", "/v1/calls?session=s2&key=order-1&scope=tenant", "").want(t, 200, ""); g.doc["session"] == "" {
		t.Fatal(g.raw)
	}

	intent := d.post("reserve", `{"session":"s1","scope":"intent","tool":"mail","args":{"to":"x"},"tokens":5}`).want(t, 200, "reserved")
	key := fmt.Sprint(intent.doc["key"])
	if !strings.HasPrefix(key, "intent-") {
		t.Fatal(intent.raw)
	}
	release := fmt.Sprintf(`{"session":"s1","key":%q,"row_id":%q,"attempt":1,"reason":"address refused"}`, key, intent.doc["row_id"])
	for range 2 {
		d.post("release", release).want(t, 200, "released")
	}
	if g := d.as("acme", "GET", "/v1/calls?session=s1&key="+key, "").want(t, 200, ""); g.doc["state"] != "failed" || g.doc["failure"] != "released: address refused" {
		t.Fatal(g.raw)
	}

	undo := `{"session":"s1","key":"undo-1","tool":"cancel","compensates":{"key":"order-1","scope":"tenant"},"refund_original":true}`
	if g := d.post("commit", undo); g.status == 200 { // offered where the ledger offers it
		g.want(t, 200, "applied")
	}

	for i := range 5 {
		d.post("commit", fmt.Sprintf(`{"session":"many","key":"k%d","tool":"t","result":[ %d ]}`, i, i)).want(t, 200, "applied")
	}
	var keys []string
	path := "/v1/sessions/many/calls?limit=2"
	for range 4 {
		g := d.as("acme", "GET", path, "").want(t, 200, "")
		calls, ok := g.doc["calls"].([]any)
		if !ok {
			t.Fatal(g.raw)
		}
		for _, call := range calls {
			m, _ := call.(map[string]any)
			if err := d.schemas["Call"].Validate(m); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, fmt.Sprint(m["key"]))
		}
		next, more := g.doc["next"].(string)
		if !more {
			break
		}
		path = "/v1/sessions/many/calls?limit=2&after=" + next
	}
	if fmt.Sprint(keys) != "[k0 k1 k2 k3 k4]" {
		t.Fatal(keys)
	}
	if g := d.as("acme", "GET", "/v1/sessions/none/calls", "").want(t, 200, ""); g.raw != `{"calls":[]}` {
		t.Fatal(g.raw)
	}
}

// TestVerifiedAbsent: after deadline, skew and horizon a caller that looked may take over, for exactly what it looked at.
func TestVerifiedAbsent(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	call := `{"session":"s","key":"k","tool":"t","tokens":1}`
	d.post("reserve", call).want(t, 200, "reserved")
	c.advance(3 * time.Minute)
	d.post("reserve", call).want(t, 409, "in_progress")
	c.advance(2 * time.Minute)
	p := d.post("reserve", call).want(t, 409, "outcome_unknown")
	ref := func(deadline any) string {
		return strings.TrimSuffix(call, "}") + fmt.Sprintf(`,"verified_absent":{"row_id":%q,"attempt":%v,"deadline":%q}}`, p.doc["row_id"], p.doc["attempt"], deadline)
	}
	d.post("reserve", ref("2026-11-30T01:54:03.000Z")).want(t, 409, "outcome_unknown")
	if g := d.post("reserve", ref(p.doc["deadline"])).want(t, 200, "reserved"); g.doc["attempt"] != 2.0 || g.doc["row_id"] != p.doc["row_id"] {
		t.Fatal(g.raw)
	}
	d.post("reserve", ref(p.doc["deadline"])).want(t, 409, "in_progress")
}

// TestResolve: a verdict from somebody who is not the holder, with its proper times.
func TestResolve(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	verdict := func(key string, attempt int, more string) string {
		r := d.as("acme", "GET", "/v1/calls?session=s&key="+key, "")
		return fmt.Sprintf(`{"session":"s","key":%q,"row_id":%q,"attempt":%d,"by":"ann","why":"looked"%s}`, key, r.doc["row_id"], attempt, more)
	}
	d.post("reserve", `{"session":"s","key":"a","tool":"t","tokens":3}`).want(t, 200, "reserved")
	d.post("reserve", `{"session":"s","key":"b","tool":"t","tokens":3}`).want(t, 200, "reserved")
	d.post("resolve", verdict("a", 2, `,"verdict":"applied","result":1`)).want(t, 409, "attempt_superseded")
	if g := d.post("resolve", verdict("a", 1, `,"verdict":"applied","result": 1`)).want(t, 200, "applied"); g.doc["result"] != 1.0 || g.doc["charged_tokens"] != 3.0 {
		t.Fatal(g.raw)
	}
	d.post("resolve", verdict("b", 1, `,"verdict":"absent"`)).want(t, 409, "in_progress")
	d.post("resolve", verdict("b", 1, `,"verdict":"absent","result":1`)).want(t, 400, "invalid_request")
	c.advance(10 * time.Minute)
	if g := d.post("resolve", verdict("b", 1, `,"verdict":"absent"`)).want(t, 200, "released"); g.doc["state"] != "failed" {
		t.Fatal(g.raw)
	}
	if q := d.as("acme", "GET", "/v1/quota", ""); q.doc["remaining_tokens"] != 997.0 {
		t.Fatal(q.raw)
	}
}

// TestRefusals: every code of the ledger that this door can meet comes with its status and members, from a real ledger.
func TestRefusals(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c, func(cfg *HandlerConfig) { cfg.MaxBody = 4096 })
	d.post("commit", `{"session":"s","key":"k","tool":"t","args":{"a":1,"b":2},"cursor":"c1"}`).want(t, 200, "applied")

	g := d.post("commit", `{"session":"s","key":"k","tool":"t","args":{"a":1,"b":3}}`).want(t, 422, "key_conflict")
	if fmt.Sprint(g.doc["differs"]) != "[b]" || strings.Contains(g.raw, "3") && strings.Contains(g.raw, `"b":3`) {
		t.Fatal(g.raw)
	}
	d.post("commit", `{"session":"s","key":"k","tool":"t","args":{"b":2.0,"a":1e0}}`).want(t, 200, "replayed")
	if g := d.post("commit", `{"session":"s#x","key":"k2","tool":"t"}`).want(t, 400, "invalid_request"); g.doc["field"] != "session" {
		t.Fatal(g.raw)
	}
	if g := d.post("reserve", `{"session":"s","key":"big","tool":"t","tokens":1001}`).want(t, 429, "quota_exhausted"); g.header.Get("Retry-After") != "" ||
		g.doc["resets_at"] != "2026-12-01T00:00:00.000Z" || g.doc["need"] != 1001.0 || g.doc["remaining"] != 1000.0 {
		t.Fatal(g.raw, g.header)
	}
	d.as("poor", "POST", "/v1/commit", `{"session":"s","key":"k","tool":"t","tokens":1}`).want(t, 403, "quota_not_provisioned")
	d.as("poor", "GET", "/v1/quota", "").want(t, 403, "quota_not_provisioned")
	if g := d.post("commit", `{"session":"s","key":"k3","tool":"t","cursor":"c3","expect_cursor":"c2"}`).want(t, 409, "session_moved"); g.doc["cursor"] != "c1" {
		t.Fatal(g.raw)
	}
	d.as("acme", "GET", "/v1/calls?session=s&key=none", "").want(t, 404, "not_found")
	d.post("finalize", `{"session":"s","key":"none","row_id":"r","attempt":1}`).want(t, 404, "not_found")
	d.post("commit", `{"session":"s","key":"k4","tool":"t","result":"`+strings.Repeat("x", 5000)+`"}`).want(t, 413, "too_large")

	r := d.post("reserve", `{"session":"s","key":"held","tool":"t"}`).want(t, 200, "reserved")
	d.post("release", fmt.Sprintf(`{"session":"s","key":"held","row_id":%q,"attempt":1}`, r.doc["row_id"])).want(t, 200, "released")
	d.post("reserve", `{"session":"s","key":"held","tool":"t"}`).want(t, 200, "reserved")
	d.post("extend", fmt.Sprintf(`{"session":"s","key":"held","row_id":%q,"attempt":1}`, r.doc["row_id"])).want(t, 409, "attempt_superseded")

	for _, path := range []string{
		"/v1/calls?session=s", "/v1/calls?session=s&key=k&scope=intent", "/v1/calls?session=s&key=k&key=k",
		"/v1/calls?session=s&key=k&tenant=victim", "/v1/calls?session=s&key=k&wait_seconds=x", "/v1/quota?tenant=victim",
		"/v1/sessions/s/calls?limit=0", "/v1/sessions/s/calls?limit=201", "/v1/calls?session=s&key=%zz", "/v1/sessions/a%23b/calls",
	} {
		d.as("acme", "GET", path, "").want(t, 400, "invalid_request")
	}
	for _, after := range []string{"a%23b", "%00", "%ff", strings.Repeat("a", 256), "%20"} {
		if g := d.as("acme", "GET", "/v1/sessions/s/calls?after="+after, "").want(t, 400, "invalid_request"); g.doc["field"] != "after" {
			t.Errorf("%s: %s", after, g.raw)
		}
	}
	if err := l.Tenant("acme").Suspend(t.Context(), true); err == nil {
		d.post("commit", `{"session":"s","key":"k5","tool":"t","tokens":1}`).want(t, 403, "tenant_suspended")
	}
}

// TestDoorKeepsTenantsApart: whoever does not authenticate gets nothing, and nothing in a request makes one tenant another.
func TestDoorKeepsTenantsApart(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c)
	d.post("commit", `{"session":"s","key":"k","tool":"t","result":"secret"}`).want(t, 200, "applied")
	for _, rt := range routes() {
		path := strings.NewReplacer("{session}", "s", "{tenant}", "acme").Replace(rt.path)
		g := d.as("", rt.method, path, "")
		switch rt.access {
		case forTenant:
			g.want(t, 403, "missing_tenant")
		case forAdmin:
			g.want(t, 403, "forbidden")
		case forAnybody:
			g.want(t, 200, "")
		}
	}
	d.as("victim", "GET", "/v1/calls?session=s&key=k", "").want(t, 404, "not_found")
	for _, tenant := range []string{"acme#SESSION#s", "acme#", "a\x00", strings.Repeat("a", 129)} {
		if g := d.as(tenant, "GET", "/v1/calls?session=s&key=k", ""); g.status != 400 {
			t.Errorf("tenant %q got %d", tenant, g.status)
		}
	}
	d.post("commit", `{"tenant":"victim","session":"s","key":"k2","tool":"t"}`).want(t, 400, "invalid_request")
	refuse := newDoor(t, l, c, func(cfg *HandlerConfig) {
		cfg.Tenant = func(*http.Request) (writers.TenantID, error) { return "acme", errors.New("signature 123") }
	})
	if g := refuse.post("commit", `{}`).want(t, 403, "missing_tenant"); strings.Contains(g.raw, "123") {
		t.Fatal(g.raw)
	}
}

// TestPlanEndpoint: only an administrator sets plans, and what is set counts at once.
func TestPlanEndpoint(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c, func(cfg *HandlerConfig) {
		cfg.Admin = func(r *http.Request) bool { return r.Header.Get("X-Tenant-Id") == "root" }
	})
	d.as("acme", "PUT", "/v1/tenants/acme/plan", `{"tokens":5}`).want(t, 403, "forbidden")
	for _, body := range []string{"", `{}`, `{"tokens":-1}`, `{"tokens":5,"suspended":true}`, `{"tokens":5,"period":"weekly"}`, `{"tokens":5,"shards":0}`} {
		d.as("root", "PUT", "/v1/tenants/new/plan", body).want(t, 400, "invalid_request")
	}
	d.as("root", "PUT", "/v1/tenants/a%23b/plan", `{"tokens":5}`).want(t, 400, "invalid_request")
	if g := d.as("root", "PUT", "/v1/tenants/new/plan", `{"tokens":5,"period":"daily","overdraft":2}`).want(t, 200, ""); g.doc["tenant"] != "new" || g.doc["period"] != "daily" || g.doc["shards"] != 1.0 {
		t.Fatal(g.raw)
	}
	d.as("new", "POST", "/v1/commit", `{"session":"s","key":"k","tool":"t","tokens":5}`).want(t, 200, "applied")
	if q := d.as("new", "GET", "/v1/quota", ""); q.doc["period"] != "2026-11-30" || q.doc["remaining_tokens"] != 0.0 {
		t.Fatal(q.raw)
	}
}

// TestRouting: unknown paths and methods are problems too, and HEAD is GET without a body.
func TestRouting(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	if g := d.as("acme", "GET", "/", "").want(t, 404, "not_found"); g.doc["title"] != "Not Found" {
		t.Errorf("a path that is not there is %s", g.raw)
	}
	d.as("acme", "POST", "/v1/undo", "{}").want(t, 404, "not_found")
	if g := d.as("acme", "POST", "/v1/quota", "").want(t, 405, "method_not_allowed"); g.header.Get("Allow") != "GET, HEAD" {
		t.Fatal(g.header)
	}
	for _, method := range []string{"OPTIONS", "TRACE", "CONNECT", "PATCH", "BREW"} {
		d.as("acme", method, "/v1/commit", "").want(t, 405, "method_not_allowed")
	}
	for _, path := range []string{
		"//v1/commit", "/v1//commit", "/v1/../v1/commit", "/./v1/commit", "/v1/commit/", "/v1/commit/..", "/v1/sessions/../../quota", "/v1/sessions//calls", "//", "/v1/%2e%2e/quota",
		"/v1/commit%00", "/V1/commit",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "HEAD", "OPTIONS"} {
			if g := d.as("acme", method, path, `{"session":"s","key":"k","tool":"t"}`).want(t, 404, ""); g.header.Get("Location") != "" || g.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %v", method, path, g.header)
			}
		}
	}
	for target, want := range map[string]int{"*": 404, "": 404} {
		r := httptest.NewRequest(http.MethodPost, "/v1/commit", strings.NewReader("{}"))
		r.RequestURI, r.URL.Path = target, target
		d.do(r).want(t, want, "not_found")
	}
	for _, encoding := range []string{"gzip", "br", "identity, gzip", "aws-chunked"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/commit", strings.NewReader(`{"session":"s","key":"k","tool":"t"}`))
		r.Header.Set("X-Tenant-Id", "acme")
		r.Header.Set("Content-Encoding", encoding)
		d.do(r).want(t, 415, "unsupported_media_type")
	}
	if g := d.as("", "HEAD", "/healthz", "").want(t, 200, ""); g.raw != "" || g.header.Get("Content-Length") != "15" {
		t.Fatal(g.raw, g.header)
	}
	if g := d.as("acme", "GET", "/v1/commit", "").want(t, 405, "method_not_allowed"); g.header.Get("Allow") != "POST" {
		t.Fatal(g.header)
	}
	d.as("acme", "HEAD", "/v1/quota", "").want(t, 200, "")
	if g := d.as("", "GET", "/openapi.yaml", ""); g.status != 200 || g.raw != string(OpenAPI()) || g.header.Get("Content-Type") != "application/yaml" {
		t.Fatal(g.status, g.header)
	}
	if _, err := NewHandler(nil, HandlerConfig{}); !errors.Is(err, writers.ErrInvalid) {
		t.Fatal(err)
	}
}

// TestRefusalsDoNotGrow: a body that is one enormous name is refused in a few words: a function cannot answer with 6 MB.
func TestRefusalsDoNotGrow(t *testing.T) {
	d, name := brokenDoor(t, nil), strings.Repeat("\u00e9\x01", 1<<18)
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{` + string(quoted) + `:1}`, `{"verified_absent":{` + string(quoted) + `:1}}`, `{` + string(quoted) + `:1,` + string(quoted) + `:1}`,
	} {
		if g := d.post("commit", body).want(t, 400, "invalid_request"); len(g.raw) > 2000 || !utf8.ValidString(g.raw) {
			t.Errorf("a refusal of %d bytes", len(g.raw))
		}
	}
	d.as("acme", "GET", "/v1/quota?"+strings.Repeat("x", 1<<20)+"=1", "").want(t, 400, "invalid_request")
}

// TestPagesFitAFunction: a page of the longest results fits what a Lambda function may answer, also as the JSON string that
// it is in a gateway's answer; and all pages together hold every call.
func TestPagesFitAFunction(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	p := l.Plumbing()
	client, ok := p.Client.(*dynamodb.Client)
	if !ok {
		t.Fatalf("the client is a %T", p.Client)
	}
	big, err := writers.New(client, writers.Config{Table: p.Tables.Ledger, Now: c.Now, Results: memory{}})
	if err != nil {
		t.Fatal(err)
	}
	d, calls := newDoor(t, big, c), 0
	result := json.RawMessage(`"` + strings.Repeat(`\"`, 120<<10) + `"`)
	for i := range 20 {
		if _, err := l.Tenant("acme").Session("s").Commit(t.Context(), writers.Call{Key: writers.SessionKey(fmt.Sprintf("k%02d", i)), Tool: "t"}, result); err != nil {
			t.Fatal(err)
		}
	}
	large := json.RawMessage(`"` + strings.Repeat(`x`, 5<<20) + `"`) // as a function with a bucket may keep it
	if _, err := big.Tenant("acme").Session("s").Commit(t.Context(), writers.Call{Key: writers.SessionKey("k10-large"), Tool: "t"}, large); err != nil {
		t.Fatal(err)
	}
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		g := d.as("acme", "GET", "/v1/sessions/s/calls?"+map[bool]string{true: "after=" + after}[after != ""], "").want(t, 200, "")
		text, err := json.Marshal(g.raw)
		if err != nil || len(text) > 6<<20-(1<<10) || pages > 20 {
			t.Fatalf("page %d has %d bytes, %v", pages, len(text), err)
		}
		list, _ := g.doc["calls"].([]any)
		calls += len(list)
		after, _ = g.doc["next"].(string)
	}
	if calls != 21 {
		t.Fatalf("%d calls", calls)
	}
}

// memory is a writers.ResultStore.
type memory map[string][]byte

func (m memory) Put(_ context.Context, _ writers.TenantID, rowID string, _ [32]byte, body []byte) (string, error) {
	m[rowID] = bytes.Clone(body)
	return rowID, nil
}

func (m memory) Get(_ context.Context, ref string) ([]byte, error) { return m[ref], nil }

func (m memory) Delete(_ context.Context, ref string) error {
	delete(m, ref)
	return nil
}

// TestTheQuotaTakesNoTimeOfItsOwn: a request that asks for the remaining tokens too ends within the time of one request, and its
// operation is done all the same.
func TestTheQuotaTakesNoTimeOfItsOwn(t *testing.T) {
	const most, took = 10 * time.Second, 50 * time.Millisecond
	var asked []time.Duration
	d := brokenDoor(t, func(ctx context.Context) error {
		until, _ := ctx.Deadline()
		asked = append(asked, time.Until(until))
		return errors.New("no")
	}, func(cfg *HandlerConfig) { cfg.Timeout = most })
	s, ok := d.h.(*server)
	if !ok {
		t.Fatalf("the handler is a %T", d.h)
	}
	slow := &operation{name: "slow", run: func(*server, context.Context, writers.Session, *request) (*answer, error) {
		time.Sleep(took)
		return &answer{Outcome: "applied", Key: "k", State: "applied"}, nil
	}}
	if rep, err := slow.do(t.Context(), s, s.ledger.Tenant("acme"), &request{Session: "s"}, true); err != nil || rep.status != 200 {
		t.Fatal(rep, err)
	}
	if len(asked) == 0 || asked[0] > most-took {
		t.Errorf("the quota was asked for with %v to go", asked)
	}
}

// strictDB fails the test when anything is asked of it, or does what fault says.
type strictDB struct {
	writers.DynamoDB
	t     testing.TB
	fault func(context.Context) error
}

func (s *strictDB) hit(ctx context.Context) error {
	if s.fault == nil {
		s.t.Error("a refused request reached DynamoDB")
		return errors.New("refused")
	}
	return s.fault(ctx)
}

func (s *strictDB) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return nil, s.hit(ctx)
}

func (s *strictDB) TransactWriteItems(ctx context.Context, _ *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return nil, s.hit(ctx)
}

func (s *strictDB) TransactGetItems(ctx context.Context, _ *dynamodb.TransactGetItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	return nil, s.hit(ctx)
}

func (s *strictDB) UpdateItem(ctx context.Context, _ *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return nil, s.hit(ctx)
}

func (s *strictDB) Query(ctx context.Context, _ *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return nil, s.hit(ctx)
}

func brokenDoor(t *testing.T, fault func(context.Context) error, more ...func(*HandlerConfig)) *door {
	t.Helper()
	c := newClock()
	l, err := writers.New(&strictDB{t: t, fault: fault}, writers.Config{Table: "toolledger", Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return newDoor(t, l, c, more...)
}

// TestRefusedRequestsReachNothing: what is not understood is refused before anything is read or written.
func TestRefusedRequestsReachNothing(t *testing.T) {
	d := brokenDoor(t, nil, func(cfg *HandlerConfig) { cfg.MaxBody = 1024 })
	for _, body := range []string{
		"", "{", `{"session":"s","key":"k","tool":"t","tokens":-1}`, `{"session":"s","key":" ","tool":"t"}`,
		`{"session":"s","key":"k","tool":"t"}{}`, `{"session":"s","session":"s","key":"k","tool":"t"}`,
	} {
		if g := d.post("commit", body).want(t, 400, "invalid_request"); strings.Contains(g.raw, "canon") {
			t.Errorf("the refusal of %q names a package: %s", body, g.raw)
		}
	}
	d.post("commit", `{"session":"`+strings.Repeat("s", 1024)+`"}`).want(t, 413, "too_large")
	r := httptest.NewRequest(http.MethodPost, "/v1/commit", iotest.ErrReader(errors.New("cut")))
	r.Header.Set("X-Tenant-Id", "acme")
	r.ContentLength = -1
	d.do(r).want(t, 400, "invalid_request")
	r = httptest.NewRequest(http.MethodPost, "/v1/commit", strings.NewReader(strings.Repeat(" ", 2000)))
	r.Header.Set("X-Tenant-Id", "acme")
	r.ContentLength = -1 // chunked: the length is not announced
	d.do(r).want(t, 413, "too_large")
}

// TestFailuresAreProblems: a panic, a dead DynamoDB and a slow one are problem documents that tell nothing of the inside.
func TestFailuresAreProblems(t *testing.T) {
	const call = `{"session":"s","key":"k","tool":"t","lookup":"s3cr3t"}`
	var log bytes.Buffer
	logged := func(cfg *HandlerConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
	d := brokenDoor(t, func(context.Context) error { panic("s3cr3t") }, logged)
	d.post("reserve", call).want(t, 500, "internal_error")
	d.as("acme", "GET", "/v1/calls?session=s&key=k", "").want(t, 500, "internal_error")
	if !strings.Contains(log.String(), "request panicked") || strings.Contains(log.String(), "s3cr3t") {
		t.Fatalf("log: %s", log.String())
	}

	d = brokenDoor(t, func(context.Context) error { return errors.New("dial 10.0.0.1: refused") }, logged)
	g := d.post("reserve", call).want(t, 503, "unavailable")
	if g.header.Get("Retry-After") == "" || strings.Contains(g.raw, "10.0.0.1") {
		t.Fatal(g.raw, g.header)
	}

	slow := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	d = brokenDoor(t, slow, func(cfg *HandlerConfig) { cfg.Timeout = 50 * time.Millisecond })
	began := time.Now()
	d.post("reserve", call).want(t, 503, "unavailable")
	if took := time.Since(began); took > 10*time.Second {
		t.Fatalf("took %s", took)
	}
}

// TestFinalizeOutlivesTheCaller: an effect is recorded although its caller has hung up.
func TestFinalizeOutlivesTheCaller(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c)
	r := d.post("reserve", `{"session":"s","key":"k","tool":"t"}`).want(t, 200, "reserved")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := fmt.Sprintf(`{"session":"s","key":"k","row_id":%q,"attempt":1,"result":1}`, r.doc["row_id"])
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/finalize", strings.NewReader(body))
	req.Header.Set("X-Tenant-Id", "acme")
	d.do(req)
	if g := d.as("acme", "GET", "/v1/calls?session=s&key=k", ""); g.doc["state"] != "applied" {
		t.Fatal(g.raw)
	}
}

// TestWaitIsCapped: no wait_seconds keeps a request longer than the handler's own time.
func TestWaitIsCapped(t *testing.T) {
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c, func(cfg *HandlerConfig) { cfg.Timeout = 2 * time.Second })
	d.post("reserve", `{"session":"s","key":"k","tool":"t"}`).want(t, 200, "reserved")
	began := time.Now()
	if g := d.as("acme", "GET", "/v1/calls?session=s&key=k&wait_seconds=3600", "").want(t, 200, ""); g.doc["state"] != "pending" {
		t.Fatal(g.raw)
	}
	d.post("reserve", `{"session":"s","key":"k","tool":"t","wait_seconds":3600}`).want(t, 409, "in_progress")
	if took := time.Since(began); took > 20*time.Second {
		t.Fatalf("took %s", took)
	}
}
