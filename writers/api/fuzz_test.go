package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRandomRequests: whatever is sent, the answer is one that the document describes, and never the server's failure. The
// requests are drawn from the document: its paths, parameters and fields, with values that fit and values that do not.
// TOOLLEDGER_REQUESTS raises their number.
func TestRandomRequests(t *testing.T) {
	n := 600
	if v, err := strconv.Atoi(os.Getenv("TOOLLEDGER_REQUESTS")); err == nil {
		n = v
	}
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c, func(cfg *HandlerConfig) { cfg.Admin = func(*http.Request) bool { return true } })
	paths := at(t, doc(t), "paths")
	statuses := map[int]int{}
	request := rapid.Custom(func(r *rapid.T) *http.Request { return drawRequest(r, t, paths) })
	for seed := range n {
		req := request.Example(seed)
		what := req.Method + " " + req.URL.String()
		g := d.do(req)
		statuses[g.status]++
		if g.status >= 500 {
			t.Fatalf("seed %d: %s: %d %s", seed, what, g.status, g.raw)
		}
	}
	if statuses[200] == 0 || statuses[400] == 0 {
		t.Fatalf("the requests reach too little: %v", statuses)
	}
	t.Log(statuses)
}

func drawRequest(r *rapid.T, t *testing.T, paths map[string]any) *http.Request {
	path := rapid.SampledFrom(sortedNames(paths)).Draw(r, "path")
	methods := at(t, paths, path)
	method := rapid.SampledFrom(sortedNames(methods)).Draw(r, "method")
	op := at(t, methods, method)
	var body string
	if op["requestBody"] != nil {
		body = drawBody(r, at(t, op, "requestBody", "content", "application/json", "schema"))
	}
	query := url.Values{}
	for _, p := range listOf(op["parameters"]) {
		name, _ := p["name"].(string)
		if name != "" && p["in"] == "query" && rapid.IntRange(0, 3).Draw(r, "give") > 0 {
			query.Set(name, drawText(r))
		}
	}
	segment := strings.ReplaceAll(url.PathEscape(drawText(r)), ".", "%2E")
	target := strings.NewReplacer("{session}", "s"+segment, "{tenant}", "t"+segment).Replace(path) + "?" + query.Encode()
	req := httptest.NewRequest(strings.ToUpper(method), target, strings.NewReader(body))
	req.Header.Set("X-Tenant-Id", rapid.SampledFrom([]string{"acme", "acme", "acme", "other", "a#b", ""}).Draw(r, "tenant"))
	if rapid.IntRange(0, 9).Draw(r, "header") == 0 {
		req.Header.Set("Idempotency-Key", drawText(r))
	}
	return req
}

func listOf(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, m)
	}
	return out
}

func drawText(r *rapid.T) string {
	return rapid.SampledFrom([]string{"s", "k", "k2", "1", "0", "tenant", "session", "remaining_tokens", "", " ", "a#b", "é\u0000", "\xff", strings.Repeat("x", 300)}).Draw(r, "text")
}

// drawBody draws an object that has some of the schema's fields, mostly the required ones, and damages it now and then.
func drawBody(r *rapid.T, schema map[string]any) string {
	properties, _ := schema["properties"].(map[string]any)
	required := sortedStrings(schema["required"])
	var members []string
	for _, name := range sortedNames(properties) {
		likely := 2
		if slices.Contains(required, name) || name == "key" {
			likely = 19
		}
		if rapid.IntRange(0, 19).Draw(r, "has") <= likely {
			members = append(members, fmt.Sprintf("%q:%s", name, drawValue(r, name)))
		}
	}
	body := "{" + strings.Join(members, ",") + "}"
	if rapid.IntRange(0, 19).Draw(r, "damage") == 0 {
		cut := rapid.IntRange(0, len(body)).Draw(r, "cut")
		body = body[:cut] + rapid.SampledFrom([]string{"", "}", `"`, "\x00", "[[", `,"session":"s"`}).Draw(r, "put") + body[cut:]
	}
	return body
}

// fitting are values that a field takes; any field is also given what others take.
func fitting() map[string][]string {
	return map[string][]string{
		"session": {`"s"`}, "key": {`"k"`, `"k2"`}, "tool": {`"t"`}, "scope": {`"session"`, `"tenant"`, `"intent"`},
		"args": {`{}`, `{"a":1}`}, "row_id": {`"r"`}, "attempt": {`1`, `2`}, "verdict": {`"applied"`, `"absent"`},
		"verified_absent": {`{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02.000Z"}`},
		"tokens":          {`0`, `1`, `5`, `9007199254740992`}, "period": {`"daily"`, `"always"`}, "shards": {`1`, `3`},
		"compensates": {`"k"`, `{"key":"k","scope":"tenant"}`}, "expect_cursor": {`""`, `"c"`}, "cursor": {`"c"`},
	}
}

func drawValue(r *rapid.T, name string) string {
	odd := []string{
		`null`, `true`, `1`, `-1`, `1e3`, `0.5`, `""`, `"x"`, `"a#b"`, `"\u0000"`, `"\ud800"`, `[]`, `{}`, `{"a":1,"a":2}`, `1e999999`,
		`99999999999999999999`, `"` + strings.Repeat("y", 2000) + `"`, strings.Repeat("[", 200) + strings.Repeat("]", 200),
	}
	if fits := fitting()[name]; fits != nil && rapid.IntRange(0, 9).Draw(r, "fit") > 0 {
		return rapid.SampledFrom(fits).Draw(r, "value")
	}
	return rapid.SampledFrom(odd).Draw(r, "odd")
}

// TestRandomValuesAreJSON: what drawValue means to fit is JSON, or the test above would only try damaged bodies.
func TestRandomValuesAreJSON(t *testing.T) {
	for name, values := range fitting() {
		for _, v := range values {
			if !json.Valid([]byte(v)) {
				t.Errorf("%s: %s", name, v)
			}
		}
	}
}
