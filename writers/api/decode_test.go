package api

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolledger/writers"
)

func opNamed(t testing.TB, name string) *operation {
	t.Helper()
	i := slices.IndexFunc(operations(), func(o *operation) bool { return o.name == name })
	if i < 0 {
		t.Fatalf("no operation %q", name)
	}
	return operations()[i]
}

// TestDecodeRefuses keeps the promise that a request is understood whole or refused whole, naming the field.
func TestDecodeRefuses(t *testing.T) {
	const base = `"session":"s","key":"k","tool":"t"`
	const row = `"session":"s","key":"k","row_id":"r","attempt":1`
	for _, tc := range []struct{ name, op, body, field, says string }{
		{"no body", "commit", "", "body", "required"},
		{"white space", "commit", " \n", "body", "required"},
		{"not JSON", "commit", "{", "body", "not valid JSON"},
		{"an array", "commit", "[]", "body", "object"},
		{"null", "commit", "null", "body", "object"},
		{"trailing data", "commit", `{` + base + `} {}`, "body", "data after"},
		{"byte order mark", "commit", "\ufeff{" + base + `}`, "body", "not valid JSON"},
		{"duplicate field", "commit", `{` + base + `,"session":"s"}`, "body", "duplicate key"},
		{"duplicate by escape", "commit", `{` + base + `,"sess\u0069on":"s"}`, "body", "duplicate key"},
		{"duplicate in args", "commit", `{` + base + `,"args":{"a":1,"a":1}}`, "body", "duplicate key"},
		{"duplicate deep in result", "commit", `{` + base + `,"result":[{"a":{"b":1,"b":2}}]}`, "body", "duplicate key"},
		{"bad UTF-8", "commit", "{" + base + ",\"lookup\":\"\xff\"}", "body", "UTF-8"},
		{"lone surrogate", "commit", `{` + base + `,"lookup":"\ud800"}`, "body", "surrogate"},
		{"too deep", "commit", `{` + base + `,"args":{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}}`, "body", "deep"},

		{"unknown field", "commit", `{` + base + `,"tenant":"victim"}`, "tenant", "not a field"},
		{"another case", "commit", `{` + base + `,"Args":{}}`, "Args", "not a field"},
		{"field of another operation", "commit", `{` + base + `,"row_id":"r"}`, "row_id", "not a field of commit"},
		{"result on reserve", "reserve", `{` + base + `,"result":1}`, "result", "not a field of reserve"},
		{"lease on commit", "commit", `{` + base + `,"lease_seconds":1}`, "lease_seconds", "not a field of commit"},
		{"tokens on finalize", "finalize", `{` + row + `,"tokens":1}`, "tokens", "needs tool"},
		{"lease on finalize", "finalize", `{` + row + `,"lease_seconds":1}`, "lease_seconds", "not a field of finalize"},
		{"tool on release", "release", `{` + row + `,"tool":"t"}`, "tool", "not a field of release"},

		{"no session", "commit", `{"key":"k","tool":"t"}`, "session", "required"},
		{"no tool", "reserve", `{"key":"k","session":"s"}`, "tool", "required"},
		{"no row", "finalize", `{"key":"k","session":"s","attempt":1}`, "row_id", "required"},
		{"no attempt", "release", `{"key":"k","session":"s","row_id":"r"}`, "attempt", "required"},
		{"no verdict", "resolve", `{` + row + `}`, "verdict", "required"},
		{"no key", "commit", `{"session":"s","tool":"t"}`, "key", "required"},
		{"empty key", "commit", `{"session":"s","tool":"t","key":""}`, "key", "empty"},
		{"blank key", "commit", `{"session":"s","tool":"t","key":"   "}`, "key", "empty"},

		{"session a number", "commit", `{"session":1,"key":"k","tool":"t"}`, "session", "string"},
		{"session null", "commit", `{"session":null,"key":"k","tool":"t"}`, "session", "string"},
		{"tokens a string", "commit", `{` + base + `,"tokens":"5"}`, "tokens", "integer"},
		{"tokens null", "commit", `{` + base + `,"tokens":null}`, "tokens", "integer"},
		{"tokens with a point", "commit", `{` + base + `,"tokens":5.0}`, "tokens", "integer"},
		{"tokens with an exponent", "commit", `{` + base + `,"tokens":5e0}`, "tokens", "integer"},
		{"tokens negative", "commit", `{` + base + `,"tokens":-1}`, "tokens", "from 0 to 9007199254740992"},
		{"tokens too many", "commit", `{` + base + `,"tokens":9007199254740993}`, "tokens", "integer"},
		{"tokens far too many", "commit", `{` + base + `,"tokens":99999999999999999999}`, "tokens", "integer"},
		{"args an array", "commit", `{` + base + `,"args":[]}`, "args", "object"},
		{"args a string", "commit", `{` + base + `,"args":"{}"}`, "args", "object"},
		{"args null", "commit", `{` + base + `,"args":null}`, "args", "object"},
		{"idempotent a number", "commit", `{` + base + `,"idempotent":1}`, "idempotent", "true or false"},
		{"scope unknown", "commit", `{` + base + `,"scope":"global"}`, "scope", "one of"},
		{"scope in capitals", "commit", `{` + base + `,"scope":"Tenant"}`, "scope", "one of"},
		{"lease zero", "reserve", `{` + base + `,"lease_seconds":0}`, "lease_seconds", "from 1"},
		{"lease endless", "reserve", `{` + base + `,"lease_seconds":9000000000}`, "lease_seconds", "to 2592000"},
		{"wait negative", "reserve", `{` + base + `,"wait_seconds":-1}`, "wait_seconds", "from 0"},
		{"attempt zero", "finalize", `{"session":"s","key":"k","row_id":"r","attempt":0}`, "attempt", "from 1"},
		{"verdict unknown", "resolve", `{` + row + `,"verdict":"unknown"}`, "verdict", "one of"},

		{"intent with a key", "commit", `{` + base + `,"scope":"intent"}`, "key", "absent"},
		{"intent on finalize", "finalize", `{` + row + `,"scope":"intent"}`, "scope", "session"},

		{"verified_absent a string", "reserve", `{` + base + `,"verified_absent":"r"}`, "verified_absent", "object"},
		{"verified_absent half", "reserve", `{` + base + `,"verified_absent":{"row_id":"r","attempt":1}}`, "verified_absent", "deadline is required"},
		{"verified_absent and more", "reserve", `{` + base + `,"verified_absent":{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02.000Z","x":1}}`, "verified_absent", "x is not a field"},
		{"deadline without zone", "reserve", `{` + base + `,"verified_absent":{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02"}}`, "verified_absent", "RFC 3339"},
		{"deadline too fine", "reserve", `{` + base + `,"verified_absent":{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02.0001Z"}}`, "verified_absent", "RFC 3339"},
		{"deadline a number", "reserve", `{` + base + `,"verified_absent":{"row_id":"r","attempt":1,"deadline":1764467642}}`, "verified_absent", "RFC 3339"},
		{"compensates a number", "commit", `{` + base + `,"compensates":1}`, "compensates", "key"},
		{"compensates nothing", "commit", `{` + base + `,"compensates":""}`, "compensates", "empty"},
		{"compensates by intent", "commit", `{` + base + `,"compensates":{"key":"k","scope":"intent"}}`, "compensates", "one of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := decode(opNamed(t, tc.op), []byte(tc.body), "")
			e, ok := errors.AsType[*writers.Error](err)
			if !ok || e.Code != writers.ErrInvalid || req != nil {
				t.Fatalf("accepted: %+v, %v", req, err)
			}
			if e.Field != tc.field || !strings.Contains(e.Reason, tc.says) {
				t.Fatalf("field %q, reason %q", e.Field, e.Reason)
			}
		})
	}
}

// TestDecodeNeverQuotesValues keeps arguments, lookups and results out of error texts.
func TestDecodeNeverQuotesValues(t *testing.T) {
	const secret = "s3cr3t-value"
	op := opNamed(t, "commit")
	op.optional = slices.Concat(op.optional, []string{"row_id", "attempt", "lease_seconds", "charged_tokens", "verdict", "reason", "by", "why"})
	for name := range (&request{}).fields() {
		for _, bad := range []string{`["` + secret + `"]`, `{"` + secret + `x":"` + secret + `"}`, `"` + secret + `"`} {
			body := `{"session":"s","tool":"t","key":"k"` + `,"` + name + `":` + bad + `}`
			if name == "session" || name == "tool" || name == "key" {
				body = `{"` + name + `":` + bad + `}`
			}
			_, err := decode(op, []byte(body), "")
			if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), secret+"x", ""), secret) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestDecodeAccepts holds what a full request becomes: a call that says what the body said.
func TestDecodeAccepts(t *testing.T) {
	body := `{"session":"s","key":"k","scope":"tenant","tool":"t","args": {"b": 1, "a":"<"},"tokens":9007199254740992,
		"cursor":"c2","expect_cursor":"","lease_seconds":90,"horizon_seconds":5,"lookup":"l","idempotent":true,
		"verified_absent":{"row_id":"r","attempt":3,"deadline":"2026-11-30T02:54:02.123+01:00"},"retry":true,
		"compensates":{"key":"o","scope":"tenant"},"refund_original":true,"trace":"00-x","wait_seconds":3600}`
	req, err := decode(opNamed(t, "reserve"), []byte(body), "k")
	if err != nil {
		t.Fatal(err)
	}
	got := req.call(MaxWait)
	want := writers.Call{
		Key: writers.TenantKey("k"), Tool: "t", Args: json.RawMessage(`{"b": 1, "a":"<"}`), Tokens: 1 << 53,
		Cursor: "c2", ExpectCursor: new(""), Lease: 90 * time.Second, Horizon: 5 * time.Second, Lookup: "l", Idempotent: true,
		VerifiedAbsent: writers.AttemptRef{RowID: "r", Attempt: 3, Deadline: time.Date(2026, 11, 30, 1, 54, 2, 123e6, time.UTC)},
		Retry:          true, Compensates: writers.TenantKey("o"), RefundOriginal: true, Trace: "00-x", Wait: MaxWait,
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// TestResultKeepsItsBytes: what is stored, and so what a replay answers, is what was sent.
func TestResultKeepsItsBytes(t *testing.T) {
	for _, result := range []string{`null`, `""`, `{"b": 1.50,  "a":"<&>\u00e9"}`, `[1e400]`, `12345678901234567890.10`} {
		req, err := decode(opNamed(t, "commit"), []byte(`{"session":"s","key":"k","tool":"t","result": `+result+` }`), "")
		if err != nil || string(req.Result) != result {
			t.Errorf("%s became %s, %v", result, req.Result, err)
		}
		a := &answer{Outcome: "replayed", Key: "k", State: "applied", result: req.Result}
		if rep := a.reply(); !strings.Contains(string(rep.body), `,"result":`+result+`}`) || !json.Valid(rep.body) || !rep.replayed {
			t.Errorf("answered %s", rep.body)
		}
	}
}

// TestIdempotencyKeyHeader: the header stands for the field, and two different keys are no key.
func TestIdempotencyKeyHeader(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header []string
		body   string
		key    string // "" means refused
	}{
		{"header only", []string{"h"}, ``, "h"},
		{"quoted header", []string{`"h"`}, ``, "h"},
		{"both equal", []string{"h"}, `,"key":"h"`, "h"},
		{"both different", []string{"h"}, `,"key":"k"`, ""},
		{"body empty", []string{"h"}, `,"key":""`, ""},
		{"header empty", []string{""}, ``, ""},
		{"header empty beside a key", []string{""}, `,"key":"k"`, ""},
		{"header blank in quotes", []string{`" "`}, ``, ""},
		{"two headers", []string{"h", "h"}, ``, ""},
		{"two headers, joined by a gateway", []string{"h,h"}, ``, ""},
		{"two quoted headers, joined", []string{`"h","h"`}, ``, ""},
		{"a comma in quotes", []string{`"h,h"`}, ``, "h,h"},
		{"quote within", []string{`h"h`}, ``, ""},
		{"with intent", []string{"h"}, `,"scope":"intent"`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, err := headerKey("commit", http.Header{"Idempotency-Key": tc.header})
			var req *request
			if err == nil {
				req, err = decode(opNamed(t, "commit"), []byte(`{"session":"s","tool":"t"`+tc.body+`}`), key)
			}
			switch {
			case tc.key == "" && !errors.Is(err, writers.ErrInvalid):
				t.Fatalf("accepted: %+v, %v", req, err)
			case tc.key != "" && (err != nil || req.Key != tc.key):
				t.Fatalf("got %+v, %v", req, err)
			}
		})
	}
}

// FuzzDecode: no body and no header makes the decoder panic, accept what is not JSON, or refuse without naming a field.
func FuzzDecode(f *testing.F) {
	f.Add("commit", []byte(`{"session":"s","key":"k","tool":"t","args":{"a":[1,{"b":null}]},"result":"x","tokens":5}`), "")
	f.Add("reserve", []byte(`{"session":"s","tool":"t","verified_absent":{"row_id":"r","attempt":1,"deadline":"2026-11-30T01:54:02.000Z"}}`), "k")
	f.Add("finalize", []byte(`{"session":"s","key":"k","row_id":"r","attempt":1,"charged_tokens":0}`), "")
	f.Add("resolve", []byte(`{"session":"s","key":"k","row_id":"r","attempt":1,"verdict":"absent","compensates":{"key":"k"}}`), `"k"`)
	f.Fuzz(func(t *testing.T, name string, body []byte, header string) {
		i := slices.IndexFunc(operations(), func(o *operation) bool { return o.name == name })
		if i < 0 {
			i = len(body) % len(operations())
		}
		op := operations()[i]
		key, err := headerKey(op.name, http.Header{"Idempotency-Key": {header}})
		if err != nil {
			key = ""
		}
		req, err := decode(op, body, key)
		if err != nil {
			if e, ok := errors.AsType[*writers.Error](err); !ok || e.Code != writers.ErrInvalid || e.Field == "" || e.Reason == "" {
				t.Fatalf("refused without a field: %v", err)
			}
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		for field := range maps.Keys(m) {
			if !slices.Contains(op.required, field) && !slices.Contains(op.optional, field) {
				t.Fatalf("accepted the field %q", field)
			}
		}
		if req.Session == "" && m["session"] == nil {
			t.Fatal("accepted without a session")
		}
		if req.Tokens < 0 || req.Tokens > maxTokens || req.Wait < 0 || req.Lease < 0 {
			t.Fatalf("out of range: %+v", req)
		}
	})
}
