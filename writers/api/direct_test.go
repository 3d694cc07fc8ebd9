package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"toolledger/writers"
)

// throughGateway is the context of an invocation by an AgentCore gateway.
func throughGateway(ctx context.Context, custom map[string]string) context.Context {
	return lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: custom}})
}

// direct sends an event and decodes the answer, which the document must describe.
func (d *door) direct(f function, event string) (map[string]any, error) {
	d.t.Helper()
	raw, err := f(d.t.Context(), json.RawMessage(event))
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		d.t.Fatal(err)
	}
	name := "Answer"
	switch {
	case doc["code"] != nil:
		name = "Problem"
	case strings.Contains(event, `"op":"get"`):
		name = "Call"
	case strings.Contains(event, `"op":"quota"`):
		name = "Quota"
	case strings.Contains(event, `"op":"calls"`):
		return doc, nil
	}
	if err := d.schemas[name].Validate(doc); err != nil {
		d.t.Fatalf("%s: not a %s of the document: %v: %s", event, name, err, raw)
	}
	return doc, nil
}

// TestDirectLife: a workflow's states go through reserve, extend, finalize, replay and the reads by events alone.
func TestDirectLife(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c)
	f := Direct(l)
	ask := func(event string) map[string]any {
		t.Helper()
		doc, err := d.direct(f, event)
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	const call = `"tenant":"acme","session":"s","key":"k","tool":"t","args":{"a":1},"tokens":20`
	r := ask(`{"op":"reserve","include":"remaining_tokens",` + call + `}`)
	if r["outcome"] != "reserved" || r["remaining_tokens"] != 980.0 || r["row_id"] == nil {
		t.Fatal(r)
	}
	held := fmt.Sprintf(`"tenant":"acme","session":"s","key":"k","row_id":%q,"attempt":1`, r["row_id"])
	if e := ask(`{"op":"extend","lease_seconds":90,` + held + `}`); e["outcome"] != "extended" || e["lease_seconds"] != 90.0 {
		t.Fatal(e)
	}
	if p := ask(`{"op":"reserve",` + call + `}`); p["code"] != "in_progress" || p["retry_after_seconds"] == nil || p["row_id"] != r["row_id"] {
		t.Fatal(p)
	}
	if p := ask(`{"op":"finalize","result":[1],"charged_tokens":5,` + held + `}`); p["outcome"] != "applied" || p["effect_key"] != r["effect_key"] {
		t.Fatal(p)
	}
	if p := ask(`{"op":"reserve",` + call + `}`); p["outcome"] != "replayed" || fmt.Sprint(p["result"]) != "[1]" || p["row_id"] != r["row_id"] {
		t.Fatal(p)
	}
	if p := ask(`{"op":"get","tenant":"acme","session":"s","key":"k","wait_seconds":1}`); p["state"] != "applied" {
		t.Fatal(p)
	}
	if p := ask(`{"op":"calls","tenant":"acme","session":"s","limit":1}`); len(p["calls"].([]any)) != 1 || p["next"] != nil {
		t.Fatal(p)
	}
	if p := ask(`{"op":"calls","tenant":"acme","session":"s","after":"k"}`); len(p["calls"].([]any)) != 0 {
		t.Fatal(p)
	}
	if p := ask(`{"op":"quota","tenant":"acme"}`); p["remaining_tokens"] != 995.0 {
		t.Fatal(p)
	}
}

// TestDirectTellsErrorsApart: what a workflow can branch on is an answer; what it should send again is one type of error;
// and an event of another door is another one, before anything is read.
func TestDirectTellsErrorsApart(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c)
	f := Direct(l)
	for event, code := range map[string]string{
		`{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"t","tokens":5000}`:        "quota_exhausted",
		`{"op":"reserve","session":"s","key":"k","tool":"t"}`:                                      "missing_tenant",
		`{"op":"reserve","tenant":"","session":"s","key":"k","tool":"t"}`:                          "missing_tenant",
		`{"op":"reserve","tenant":["acme"],"session":"s","key":"k","tool":"t"}`:                    "invalid_request",
		`{"op":"reserve","tenant":"a#b","session":"s","key":"k","tool":"t"}`:                       "invalid_request",
		`{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"t","X-Tenant-Id":"root"}`: "invalid_request",
		`{"op":"put_plan","tenant":"acme","tokens":5}`:                                             "invalid_request",
		`{"op":"quota","tenant":"acme","include":"remaining_tokens"}`:                              "invalid_request",
		`{"op":"quota","tenant":"acme","session":"s"}`:                                             "invalid_request",
		`{"op":"get","tenant":"acme","session":"s"}`:                                               "invalid_request",
		`{"op":"get","tenant":"acme","session":"s","key":"none"}`:                                  "not_found",
		`{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"t","include":"all"}`:      "invalid_request",
		`{"op":"calls","tenant":"acme","session":"s","limit":201}`:                                 "invalid_request",
	} {
		if doc, err := d.direct(f, event); err != nil || doc["code"] != code {
			t.Errorf("%s: %v, %v", event, doc, err)
		}
	}
	for _, event := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `{"tenant":"acme"}`, `{"op":5,"tenant":"acme"}`, `{"op":"quota","tenant":"acme","tenant":"victim"}`,
		`{"version":"2.0","requestContext":{"http":{"method":"POST"}}}`, `{"messageVersion":"1.0","function":"f","sessionId":"s"}`, `{"Op":"quota","tenant":"acme"}`,
	} {
		if _, err := f(t.Context(), json.RawMessage(event)); !isShape(err) {
			t.Errorf("%s: %v", event, err)
		}
	}
	ctx := throughGateway(t.Context(), map[string]string{"bedrockAgentCoreToolName": "ledger___quota"})
	if _, err := f(ctx, json.RawMessage(`{"op":"quota","tenant":"acme"}`)); !isShape(err) {
		t.Error(err)
	}
	down := &strictDB{t: t, fault: func(context.Context) error { return errors.New("dial 10.0.0.1: refused") }}
	broken, err := writers.New(down, writers.Config{Table: "toolledger", Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Direct(broken)(t.Context(), json.RawMessage(`{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"t"}`))
	u, ok := errors.AsType[*UnavailableError](err)
	if !ok || u.Code != "unavailable" || strings.Contains(err.Error(), "10.0.0.1") || !errors.Is(err, writers.ErrUnavailable) {
		t.Fatal(err)
	}
	down.fault = func(context.Context) error { panic("s3cr3t") }
	_, err = Direct(broken)(t.Context(), json.RawMessage(`{"op":"get","tenant":"acme","session":"s","key":"k"}`))
	if u, ok := errors.AsType[*UnavailableError](err); !ok || u.Code != "internal_error" || strings.Contains(err.Error(), "s3cr3t") {
		t.Fatal(err)
	}
	if _, err := Direct(nil)(t.Context(), nil); err == nil {
		t.Fatal("a door without a ledger answers")
	}
}

func isShape(err error) bool {
	_, ok := errors.AsType[*ShapeError](err)
	return ok
}

// TestPagesReadOn: a page begins behind the key that it is told, also where no call has that key, and none is told twice.
func TestPagesReadOn(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	s := l.Tenant("acme").Session("s")
	for _, key := range []string{"a", "b", "b1", "c", "z"} {
		if _, err := s.Commit(t.Context(), writers.Call{Key: writers.SessionKey(key), Tool: "t"}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(t.Context(), writers.Call{Key: writers.TenantKey("t"), Tool: "t", Cursor: "c"}, 1); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[string]string{"": "[a b b1 c z]", "a": "[b b1 c z]", "aa": "[b b1 c z]", "b": "[b1 c z]", "z": "[]", "é": "[]"} {
		got := []string{}
		k := writers.SessionKey(after)
		if after == "" {
			k = writers.Key{}
		}
		for row, err := range s.CallsAfter(t.Context(), k) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row.Key.String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("after %q: %v, want %s", after, got, want)
		}
	}
	for _, bad := range []writers.Key{writers.TenantKey("a"), writers.SessionKey("a#b"), writers.SessionKey(" ")} {
		for _, err := range s.CallsAfter(t.Context(), bad) {
			if !errors.Is(err, writers.ErrInvalid) {
				t.Errorf("%v: %v", bad, err)
			}
		}
	}
}
