package sweeper

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// Promise: a request goes from the sweeper to a verifier without loss: whichever scope and ids, it is the same call there.
func TestRequestRoundTrip(t *testing.T) {
	for _, scope := range []schema.Scope{schema.ScopeSession, schema.ScopeTenant} {
		row := &schema.Row{
			Key: schema.RowKey("acmé", "s 1/2", scope, "k\u2028\"<"), RowID: "r1", Attempt: 3, Tool: "book", Session: "s 1/2", Scope: scope,
			Lookup: `{"pnr":"X"}`, CreatedAt: noon, Deadline: noon.Add(time.Minute),
		}
		info, err := callInfo(row)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(requestOf(info, scope))
		if err != nil {
			t.Fatal(err)
		}
		req, err := decodeRequest(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := req.info(); got != info {
			t.Errorf("%s: arrived as %+v, sent %+v", scope, got, info)
		}
		if info.EffectKey != schema.EffectKey(row.Key) || info.Tenant != "acmé" || info.Attempt != 3 {
			t.Errorf("%+v", info)
		}
	}
}

const goodRequest = `{"tenant":"acme","session":"s","key":"k","tool":"book","row_id":"r","attempt":1,"effect_key":"e","lookup":""}`

// Promise: a request that is not one is refused with the field and the rule, and never quoted.
func TestDecodeRequestRefuses(t *testing.T) {
	if _, err := decodeRequest([]byte(goodRequest)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ request, says string }{
		"nothing":         {``, "is not whole"},
		"not JSON":        {`{"tenant":`, "is not whole"},
		"other event":     {`{"version":"0","detail-type":"Scheduled Event"}`, "unknown field"},
		"unknown field":   {strings.Replace(goodRequest, `"lookup"`, `"look"`, 1), "unknown field"},
		"two documents":   {goodRequest + goodRequest, "one JSON object"},
		"no tenant":       {strings.Replace(goodRequest, `"acme"`, `""`, 1), "tenant is required"},
		"forged tenant":   {strings.Replace(goodRequest, `"acme"`, `"a#b"`, 1), "tenant must not contain '#'"},
		"attempt zero":    {strings.Replace(goodRequest, `"attempt":1`, `"attempt":0`, 1), "attempt must be at least 1"},
		"attempt is text": {strings.Replace(goodRequest, `"attempt":1`, `"attempt":"secret"`, 1), `"attempt" must not be a JSON string`},
		"bad scope":       {strings.Replace(goodRequest, `"lookup"`, `"scope":"world","lookup"`, 1), "scope must be"},
		"null":            {`null`, "tenant is required"},
		"bad time":        {strings.Replace(goodRequest, `"lookup"`, `"deadline":"secret","lookup"`, 1), "RFC 3339"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeRequest([]byte(tt.request))
			if err == nil || !errors.Is(err, ErrVerifier) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the request: %v", err)
			}
		})
	}
}

// Promise: no bytes make the decoders panic, and what they accept satisfies the rules.
func FuzzVerifierJSON(f *testing.F) {
	f.Add([]byte(goodRequest))
	f.Add([]byte(`{"verdict":"applied","result":{"a":1}}`))
	f.Add([]byte(`{"verdict":"absent"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if req, err := decodeRequest(b); err == nil {
			if req.Tenant == "" || req.Attempt < 1 || strings.Contains(req.Tenant, "#") {
				t.Errorf("accepted %q", b)
			}
		} else if !errors.Is(err, ErrVerifier) {
			t.Errorf("%T", err)
		}
		if a, err := decodeAnswer(b); err == nil {
			if _, v, err := a.read(); err != nil || v != writers.EffectApplied && a.Result != nil {
				t.Errorf("accepted %q", b)
			}
		}
	})
}
