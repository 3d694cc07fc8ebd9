package writers

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// Promise: bad input is refused before any request, naming the field, whichever way it came.
func TestCallsRefused(t *testing.T) {
	db := &fakeDB{}
	s := testLedger(t, db).Tenant("acme").Session("s")
	put := func(table string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(table), Item: schema.Item{"id": schema.S("1")}}}
	}
	long := strings.Repeat("x", 2000)
	for name, tt := range map[string]struct {
		field  string
		change func(*Call)
	}{
		"no key":                     {"key", func(c *Call) { c.Key = Key{} }},
		"blank key":                  {"key", func(c *Call) { c.Key = SessionKey("   ") }},
		"a key with #":               {"key", func(c *Call) { c.Key = TenantKey("a#b") }},
		"long key":                   {"key", func(c *Call) { c.Key = SessionKey(long) }},
		"a key of bad arguments":     {"key", func(c *Call) { c.Key = IntentKey("t", json.RawMessage(`{"a":1,"a":2}`)) }},
		"a key of nothing":           {"key", func(c *Call) { c.Key = IntentKey("t", make(chan int)) }},
		"no tool":                    {"tool", func(c *Call) { c.Tool = "" }},
		"long tool":                  {"tool", func(c *Call) { c.Tool = long }},
		"arguments that are a list":  {"args", func(c *Call) { c.Args = []int{1} }},
		"arguments twice":            {"args", func(c *Call) { c.Args = json.RawMessage(`{"a":1,"a":2}`) }},
		"arguments that are no JSON": {"args", func(c *Call) { c.Args = json.RawMessage(`{`) }},
		"arguments not encodable":    {"args", func(c *Call) { c.Args = map[string]any{"a": math.NaN()} }},
		"negative tokens":            {"tokens", func(c *Call) { c.Tokens = -1 }},
		"too many tokens":            {"tokens", func(c *Call) { c.Tokens = schema.MaxTokens + 1 }},
		"long cursor":                {"cursor", func(c *Call) { c.Cursor = long }},
		"long expected cursor":       {"expect_cursor", func(c *Call) { c.ExpectCursor = &long }},
		"long lookup":                {"lookup", func(c *Call) { c.Lookup = long }},
		"lookup with control":        {"lookup", func(c *Call) { c.Lookup = "a\x00" }},
		"long trace":                 {"trace", func(c *Call) { c.Trace = long }},
		"negative lease":             {"lease", func(c *Call) { c.Lease = -1 }},
		"short lease":                {"lease", func(c *Call) { c.Lease = time.Microsecond }},
		"long lease":                 {"lease", func(c *Call) { c.Lease = 31 * 24 * time.Hour }},
		"negative horizon":           {"horizon", func(c *Call) { c.Horizon = -1 }},
		"negative keep":              {"keep", func(c *Call) { c.Keep = -1 }},
		"negative wait":              {"wait", func(c *Call) { c.Wait = -1 }},
		"refund of nothing":          {"refund_original", func(c *Call) { c.RefundOriginal = true }},
		"undoing itself":             {"compensates", func(c *Call) { c.Compensates = c.Key }},
		"undoing a bad key":          {"compensates", func(c *Call) { c.Compensates = SessionKey("#") }},
	} {
		c := Call{Key: SessionKey("k"), Tool: "t"}
		tt.change(&c)
		_, _, err := s.Reserve(t.Context(), c)
		checkRefused(t, name, err, "reserve", tt.field)
		_, err = s.Commit(t.Context(), c, 1)
		checkRefused(t, name, err, "commit", tt.field)
	}
	for name, writes := range map[string][]types.TransactWriteItem{
		"empty":             {{}},
		"two at once":       {{Put: put("x").Put, Delete: &types.Delete{TableName: aws.String("x")}}},
		"no table":          {put("")},
		"the ledger":        {put("ledger")},
		"the ledger's ARN":  {put("arn:aws:dynamodb:eu-west-1:123456789012:table/ledger")},
		"the control table": {{ConditionCheck: &types.ConditionCheck{TableName: aws.String("ledger-control")}}},
		"an update of it":   {put("x"), {Update: &types.Update{TableName: aws.String("ledger")}}},
		"a delete of it":    {{Delete: &types.Delete{TableName: aws.String("ledger")}}},
		"a put of nothing":  {{Put: &types.Put{TableName: aws.String("x")}}},
		"an update only":    {{Update: &types.Update{TableName: aws.String("x"), UpdateExpression: aws.String("SET a = b")}}},
		"a delete of what":  {{Delete: &types.Delete{TableName: aws.String("x")}}},
		"a check of what":   {{ConditionCheck: &types.ConditionCheck{TableName: aws.String("x"), Key: schema.Item{"id": schema.S("1")}}}},
		"too many":          make([]types.TransactWriteItem, maxWrites+1),
	} {
		_, err := s.Commit(t.Context(), Call{Key: SessionKey("k"), Tool: "t", Writes: writes}, 1)
		checkRefused(t, name, err, "commit", "writes")
		_, _, err = s.Reserve(t.Context(), Call{Key: SessionKey("k"), Tool: "t", Writes: writes})
		checkRefused(t, name, err, "reserve", "writes")
	}
	for _, result := range []any{make(chan int), json.RawMessage(`{`), json.RawMessage("\"\xff\""), math.Inf(1)} {
		_, err := s.Commit(t.Context(), Call{Key: SessionKey("k"), Tool: "t"}, result)
		checkRefused(t, "result", err, "commit", "result")
	}
	if len(db.writes) > 0 {
		t.Errorf("%d requests were sent", len(db.writes))
	}
}

func checkRefused(t *testing.T, name string, err error, op, field string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != ErrInvalid || e.Op != op || e.RetryAfter != 0 || !strings.HasPrefix(e.Field, field) || !strings.Contains(e.Error(), field) {
		t.Errorf("%s: %v (field %q)", name, err, field)
	}
	if strings.Contains(err.Error(), "xxxxxxxx") {
		t.Errorf("%s: the value is told: %v", name, err)
	}
}

// Promise: nobody without a tenant gets as far as a request, and a bad id is reported by the first use.
func TestHandlesRefused(t *testing.T) {
	l := testLedger(t, &fakeDB{})
	call := Call{Key: SessionKey("k"), Tool: "t"}
	for _, tt := range []struct {
		s     Session
		code  Code
		field string
	}{
		{Session{}, ErrInvalid, "tenant"},
		{l.Tenant("").Session("s"), ErrMissingTenant, "tenant"},
		{l.Tenant("a#b").Session("s"), ErrInvalid, "tenant"},
		{l.Tenant("a").Session(""), ErrInvalid, "session"},
		{l.Tenant("a").Session("a\nb"), ErrInvalid, "session"},
	} {
		for name, err := range map[string]error{
			"commit":  second(tt.s.Commit(t.Context(), call, 1)),
			"get":     second(tt.s.Get(t.Context(), SessionKey("k"))),
			"cursor":  second(tt.s.Cursor(t.Context())),
			"resolve": second(tt.s.Resolve(t.Context(), SessionKey("k"), Resolution{Verdict: EffectAbsent, Attempt: 1})),
		} {
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != tt.code || e.Field != tt.field {
				t.Errorf("%s of %+v: %v", name, tt.s, err)
			}
		}
		for _, err := range tt.s.Calls(t.Context()) {
			if !errors.Is(err, tt.code) {
				t.Error(err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Promise: the defaults are those that the API names, and what a call says itself stays.
func TestRequestDefaults(t *testing.T) {
	s := testLedger(t, &fakeDB{}).Tenant("acme").Session("s")
	r, err := s.newRequest("reserve", Call{Key: SessionKey("k"), Tool: "t"})
	if err != nil || r.Lease != time.Minute || r.Horizon != time.Minute || r.Keep != 0 || r.Wait != 0 || len(r.nonce) < 20 {
		t.Errorf("%+v %v", r, err)
	}
	r, err = s.newRequest("reserve", Call{Key: SessionKey("k"), Tool: "t", Lease: time.Hour, Horizon: time.Second, Keep: 2 * time.Hour})
	if err != nil || r.Lease != time.Hour || r.Horizon != time.Second || r.Keep != 2*time.Hour {
		t.Errorf("%+v %v", r, err)
	}
}

// Promise: equal arguments give one key, however they are spelled; others, another tool included, give another.
func TestIntentKey(t *testing.T) {
	a := IntentKey("t", map[string]any{"a": 1, "b": "x"})
	if b := IntentKey("t", json.RawMessage(` {"b":"x", "a":1.0}`)); a != b || a.check() != nil || !strings.HasPrefix(a.String(), "intent-") || len(a.String()) != 71 {
		t.Errorf("%v, %v", a, b)
	}
	for _, b := range []Key{IntentKey("u", map[string]any{"a": 1, "b": "x"}), IntentKey("t", nil), IntentKey("t", map[string]any{"a": 2, "b": "x"})} {
		if a == b {
			t.Error("two intents share a key")
		}
	}
	if SessionKey("x") == TenantKey("x") || SessionKey("x").name() == TenantKey("x").name() {
		t.Error("the scope is no part of the key")
	}
}

// Promise: a table is recognised by its name and by its ARN.
func TestSameTable(t *testing.T) {
	const arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/ledger"
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"ledger", "ledger", true},
		{arn, "ledger", true},
		{"ledger", arn, true},
		{arn, arn, true},
		{"ledger", "ledger2", false},
		{arn + "2", "ledger", false},
		{"my-ledger", "ledger", false},
		{"Ledger", "ledger", false},
	} {
		if sameTable(tt.a, tt.b) != tt.same {
			t.Errorf("%s and %s: not %v", tt.a, tt.b, tt.same)
		}
	}
}

// Promise: a ledger is configured once, with the defaults that Config names; what cannot be meant is refused by name.
func TestNew(t *testing.T) {
	l, err := New(&fakeDB{}, Config{Table: "ledger"})
	if err != nil {
		t.Fatal(err)
	}
	if c := l.cfg; c.Control != "ledger-control" || c.Keep != 30*24*time.Hour || c.Skew != 2*time.Minute || c.Coalesce != 0 || c.Now == nil || c.Logger == nil {
		t.Errorf("%+v", c)
	}
	if since := time.Since(l.now()); since < -time.Second || since > time.Minute || l.now().Location() != time.UTC || l.now().Nanosecond()%1e6 != 0 {
		t.Errorf("now is %s", l.now())
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for field, cfg := range map[string]Config{
		"Table": {}, "Control": {Table: "x", Control: "x"}, "Keep": {Table: "x", Keep: -1}, "Skew": {Table: "x", Skew: 2 * time.Hour}, "Coalesce": {Table: "x", Coalesce: time.Hour},
	} {
		_, err := New(&fakeDB{}, cfg)
		checkRefused(t, field, err, "new", field)
	}
	_, err = New(nil, Config{Table: "x"})
	checkRefused(t, "client", err, "new", "client")
}

// Promise: verdicts that say nothing, or of no attempt, are refused.
func TestResolutionRefused(t *testing.T) {
	for field, r := range map[string]Resolution{
		"verdict": {Attempt: 1}, "attempt": {Verdict: EffectAbsent}, "by": {Verdict: EffectAbsent, Attempt: 1, By: strings.Repeat("x", 257)},
		"why": {Verdict: EffectApplied, Attempt: 1, Why: "a\x00"},
	} {
		checkRefused(t, field, r.check("resolve"), "resolve", field)
	}
}
