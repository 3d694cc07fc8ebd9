package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func echo(t *testing.T) gateway {
	t.Helper()
	return gateway{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		tenant, err := tenantOf(r)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.String()+" "+r.Header.Get("Idempotency-Key"))
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, string(tenant)+":"+string(body))
	}), "tenant"}
}

func event(body string, base64Encoded bool, claims string) json.RawMessage {
	quoted, _ := json.Marshal(body)
	encoded := "false"
	if base64Encoded {
		encoded = "true"
	}
	return json.RawMessage(`{"version":"2.0","rawPath":"/v1/reserve","rawQueryString":"a=b","headers":{"idempotency-key":"k1"},"body":` + string(quoted) +
		`,"isBase64Encoded":` + encoded + `,"requestContext":{"authorizer":{"jwt":{"claims":` + claims + `}},"http":{"method":"POST","path":"/v1/reserve"}}}`)
}

// A request reaches the handler as it was sent, whether the gateway encoded its body or not; the tenant comes from the
// authorizer's claim and from nothing that a caller writes.
func TestGatewayPassesRequestsOn(t *testing.T) {
	for name, c := range map[string]struct {
		event  json.RawMessage
		status int
		body   string
	}{
		"text":          {event(`{"a":1}`, false, `{"tenant":"acme"}`), 200, `acme:{"a":1}`},
		"base64":        {event(base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)), true, `{"tenant":"acme"}`), 200, `acme:{"a":1}`},
		"bad base64":    {event("%%%", true, `{"tenant":"acme"}`), 400, "invalid_request"},
		"absent body":   {event("", false, `{"tenant":"acme"}`), 200, "acme:"},
		"no claim":      {event("{}", false, `{"sub":"acme"}`), 403, ""},
		"list of names": {event("{}", false, `{"tenant":"[acme other]"}`), 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := echo(t).handle(t.Context(), c.event)
			if err != nil || got.StatusCode != c.status || !strings.Contains(got.Body, c.body) {
				t.Fatalf("got %d %q %v", got.StatusCode, got.Body, err)
			}
			if seen := got.Headers["X-Seen"]; c.status == 200 && seen != "POST /v1/reserve?a=b k1" {
				t.Fatalf("the handler saw %q", seen)
			}
		})
	}
}

// What is no event of an HTTP API is refused, not guessed at: a model's arguments must never be taken for a request.
func TestGatewayRefusesOtherEvents(t *testing.T) {
	for _, e := range []string{`{}`, `[]`, `null`, `"x"`, `{"op":"reserve","tenant":"victim"}`, `{"version":"1.0","httpMethod":"POST"}`} {
		if _, err := echo(t).handle(t.Context(), json.RawMessage(e)); !errors.Is(err, errShape) {
			t.Errorf("%s: got %v", e, err)
		}
	}
}

// A function that is configured wrongly says what is wrong before it takes any event.
func TestSetUpRefusesBadSettings(t *testing.T) {
	for _, env := range []map[string]string{{}, {"LEDGER_TABLE": "t"}, {"LEDGER_TABLE": "t", "DOOR": "sniff"}, {"LEDGER_TABLE": "t", "DOOR": "bedrock"}} {
		if _, err := setUp(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%v was accepted", env)
		}
	}
}
