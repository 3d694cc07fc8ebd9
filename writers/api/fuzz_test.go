package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRandomRequestsSoak: whatever is sent, the answer is one that the document describes, and never the server's failure. The
// requests are drawn from the document: its paths, methods, parameters, fields and their schemas, with values that fit and
// values that do not.
func TestRandomRequestsSoak(t *testing.T) {
	n := 1_000
	if os.Getenv("TOOLLEDGER_SOAK") != "" {
		n = 10_000
	}
	c := newClock()
	d := newDoor(t, newTestLedger(t, c), c, func(cfg *HandlerConfig) { cfg.Admin = func(*http.Request) bool { return true } })
	document := doc(t)
	paths := at(t, document, "paths")
	statuses, words := map[int]int{}, map[string]int{}
	rows := []string{`"r"`} // ids that were answered: what follows a reserve is of its row
	request := rapid.Custom(func(r *rapid.T) *http.Request { return drawRequest(r, t, drawing{document, rows}, paths) })
	for seed := range n {
		req := request.Example(seed)
		what := req.Method + " " + req.URL.String()
		g := d.do(req)
		statuses[g.status]++
		for _, member := range []string{"outcome", "code"} {
			if word, ok := g.doc[member].(string); ok {
				words[word]++
			}
		}
		if id, ok := g.doc["row_id"].(string); ok && len(rows) < 20 {
			rows = append(rows, jsonOf(t, id))
		}
		if g.status >= 500 {
			t.Fatalf("seed %d: %s: %d %s", seed, what, g.status, g.raw)
		}
	}
	for _, word := range []string{
		"applied", "replayed", "reserved", "in_progress", "key_conflict", "quota_exhausted", "not_found", "invalid_request", "missing_tenant", "method_not_allowed",
	} {
		if words[word] == 0 {
			t.Errorf("the requests never meet %s: %v", word, words)
		}
	}
	t.Log(statuses, words)
}

// drawing is what values are drawn from.
type drawing struct {
	document map[string]any
	rows     []string
}

// Numbers that are drawn lean to the small ones: what is to be rare is asked for by the largest.
func drawRequest(r *rapid.T, t *testing.T, from drawing, paths map[string]any) *http.Request {
	path := rapid.SampledFrom(sortedNames(paths)).Draw(r, "path")
	methods := at(t, paths, path)
	method := rapid.SampledFrom(sortedNames(methods)).Draw(r, "method")
	op := at(t, methods, method)
	var body string
	if op["requestBody"] != nil {
		body = drawBody(r, t, from, at(t, op, "requestBody", "content", "application/json", "schema"))
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
	if rapid.IntRange(0, 29).Draw(r, "other method") == 29 {
		method = rapid.SampledFrom([]string{"get", "post", "put", "delete", "head", "options"}).Draw(r, "another")
	}
	req := httptest.NewRequest(strings.ToUpper(method), target, strings.NewReader(body))
	req.Header.Set("X-Tenant-Id", rapid.SampledFrom([]string{"acme", "acme", "acme", "acme", "acme", "acme", "acme", "acme", "other", "a#b", ""}).Draw(r, "tenant"))
	if rapid.IntRange(0, 29).Draw(r, "header") == 29 {
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
	return rapid.SampledFrom([]string{"s", "k", "k2", "1", "0", "20", "tenant", "session", "remaining_tokens", "", " ", "a#b", "é\u0000", "\xff", strings.Repeat("x", 300)}).Draw(r, "text")
}

// drawBody draws an object that has some of the schema's fields, mostly the required ones, and damages it now and then.
func drawBody(r *rapid.T, t *testing.T, from drawing, schema map[string]any) string {
	properties, _ := schema["properties"].(map[string]any)
	required := sortedStrings(schema["required"])
	var members []string
	for _, name := range sortedNames(properties) {
		has := rapid.IntRange(0, 19).Draw(r, "has")
		if needed := slices.Contains(required, name) || name == "key"; needed && has < 19 || has > 17 {
			members = append(members, fmt.Sprintf("%q:%s", name, drawValue(r, t, from, name, schemaOf(properties[name]))))
		}
	}
	body := "{" + strings.Join(members, ",") + "}"
	if rapid.IntRange(0, 39).Draw(r, "damage") == 39 {
		cut := rapid.IntRange(0, len(body)).Draw(r, "cut")
		body = body[:cut] + rapid.SampledFrom([]string{"", "}", `"`, "\x00", "[[", `,"session":"s"`}).Draw(r, "put") + body[cut:]
	}
	return body
}

// fitting are values that a field takes; any field is also given what others take.
func fitting() map[string][]string {
	return map[string][]string{
		"session": {`"s"`}, "key": {`"k"`, `"k2"`, `"k3"`, `"k4"`, `"k5"`, `"k6"`, `"k7"`}, "scope": {`"session"`, `"tenant"`, `"intent"`},
		"args": {`{}`, `{"a":1}`}, "attempt": {`1`, `2`}, "verdict": {`"applied"`, `"absent"`},
		"verified_absent": {`{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02.000Z"}`},
		"tokens":          {`0`, `1`, `2000`, `5`, `9007199254740992`}, "period": {`"daily"`, `"always"`}, "shards": {`1`, `3`},
		"tool": {`"t"`, `"u"`}, "compensates": {`"k"`, `{"key":"k","scope":"tenant"}`}, "expect_cursor": {`""`, `"c"`}, "cursor": {`"c"`},
	}
}

// drawValue draws a value that meets others (the same session, the same key), one that the schema has, or one that it has not.
func drawValue(r *rapid.T, t *testing.T, from drawing, name string, schema map[string]any) string {
	odd := []string{
		`null`, `true`, `1`, `-1`, `1e3`, `0.5`, `""`, `"x"`, `"a#b"`, `"\u0000"`, `"\ud800"`, `[]`, `{}`, `{"a":1,"a":2}`, `1e999999`,
		`99999999999999999999`, `"` + strings.Repeat("y", 2000) + `"`, strings.Repeat("[", 200) + strings.Repeat("]", 200),
	}
	kind := rapid.IntRange(0, 29).Draw(r, "kind")
	fits := fitting()[name]
	if name == "row_id" {
		fits = from.rows
	}
	if fits != nil && kind < 28 {
		return rapid.SampledFrom(fits).Draw(r, "value")
	}
	if kind < 29 {
		return drawSchema(r, t, from.document, schema, 3)
	}
	return rapid.SampledFrom(odd).Draw(r, "odd")
}

// drawSchema draws a value of a schema of the document, at its limits and just beyond them now and then. deep bounds nesting.
func drawSchema(r *rapid.T, t *testing.T, document, schema map[string]any, deep int) string {
	if ref, ok := schema["$ref"].(string); ok {
		schema = at(t, document, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	if among := listOf(schema["oneOf"]); len(among) > 0 {
		return drawSchema(r, t, document, rapid.SampledFrom(among).Draw(r, "oneOf"), deep)
	}
	if among, ok := schema["enum"].([]any); ok {
		return jsonOf(t, rapid.SampledFrom(among).Draw(r, "enum"))
	}
	kind, _ := schema["type"].(string)
	if kind == "" && deep > 0 {
		kind = rapid.SampledFrom([]string{"string", "integer", "boolean", "object", "array", "null"}).Draw(r, "type")
	}
	switch kind {
	case "integer":
		low, high := limit(schema["minimum"], -1<<62), limit(schema["maximum"], 1<<62)
		return fmt.Sprint(rapid.SampledFrom([]int64{low, low + 1, low + 7, high, high - 1, low, low + 2, high + 1, low - 1}).Draw(r, "integer"))
	case "string":
		if schema["format"] == "date-time" {
			return rapid.SampledFrom([]string{`"2026-11-30T01:54:02.000Z"`, `"2026-11-30T02:54:02+01:00"`, `"2026-02-30T00:00:00Z"`, `"1970-01-01T00:00:00Z"`}).Draw(r, "time")
		}
		n := limit(schema["maxLength"], 40)
		size := rapid.SampledFrom([]int64{0, limit(schema["minLength"], 0), 1, 2, 3, n / 2, n, n + 1}).Draw(r, "length")
		return jsonOf(t, strings.Repeat(rapid.SampledFrom([]string{"a", "Z", "/", "%", "é", "\u2028", "\""}).Draw(r, "letter"), int(size)))
	case "boolean":
		return rapid.SampledFrom([]string{"true", "false"}).Draw(r, "boolean")
	case "array":
		return "[" + drawSchema(r, t, document, nil, deep-1) + "]"
	case "object":
		properties, _ := schema["properties"].(map[string]any)
		var members []string
		for _, name := range sortedNames(properties) {
			members = append(members, fmt.Sprintf("%q:%s", name, drawSchema(r, t, document, schemaOf(properties[name]), deep-1)))
		}
		if properties == nil {
			members = append(members, `"a":`+drawSchema(r, t, document, nil, deep-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	default:
		return "null"
	}
}

// schemaOf is a property's schema, its reference not yet followed.
func schemaOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func limit(v any, absent int64) int64 {
	switch n := v.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(n)
	default:
		return absent
	}
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
