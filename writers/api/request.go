package api

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// The scopes of a key, as in the field scope.
const (
	scopeSession = "session"
	scopeTenant  = "tenant"
	scopeIntent  = "intent"
)

// request is the body of a POST operation; each operation takes some of these fields.
type request struct {
	Session, Key, Scope, Tool  string
	Args, Result               json.RawMessage
	Tokens                     int64
	Charged                    *int64
	Cursor                     string
	ExpectCursor               *string
	Lease, Horizon, Wait       time.Duration
	RowID                      string
	Attempt                    int
	Lookup, Trace              string
	Idempotent, Retry, Refund  bool
	VerifiedAbsent             writers.AttemptRef
	Compensates                writers.Key
	Reason, Verdict, By, Cause string
}

// fields maps every field that any operation takes to where its value goes.
func (r *request) fields() map[string]setter {
	return map[string]setter{
		"session":         text(&r.Session),
		"key":             text(&r.Key),
		"scope":           choice(&r.Scope, scopeSession, scopeTenant, scopeIntent),
		"tool":            text(&r.Tool),
		"args":            object(&r.Args),
		"tokens":          integer(&r.Tokens, 0, maxTokens),
		"charged_tokens":  optionalInteger(&r.Charged, 0, maxTokens),
		"result":          anyValue(&r.Result),
		"cursor":          text(&r.Cursor),
		"expect_cursor":   optionalText(&r.ExpectCursor),
		"lease_seconds":   seconds(&r.Lease, 1, maxLeaseSeconds),
		"horizon_seconds": seconds(&r.Horizon, 1, maxLeaseSeconds),
		"wait_seconds":    seconds(&r.Wait, 0, maxSeconds),
		"row_id":          text(&r.RowID),
		"attempt":         count(&r.Attempt),
		"lookup":          text(&r.Lookup),
		"trace":           text(&r.Trace),
		"idempotent":      boolean(&r.Idempotent),
		"retry":           boolean(&r.Retry),
		"refund_original": boolean(&r.Refund),
		"verified_absent": attemptRef(&r.VerifiedAbsent),
		"compensates":     original(&r.Compensates),
		"reason":          text(&r.Reason),
		"verdict":         choice(&r.Verdict, verdictApplied, verdictAbsent),
		"by":              text(&r.By),
		"why":             text(&r.Cause),
	}
}

// The verdicts of resolve. Unknown is none: there is nothing to record.
const (
	verdictApplied = "applied"
	verdictAbsent  = "absent"
)

// decode reads the body of op. headerKey is the Idempotency-Key header, "" where there was none.
// Errors: writers.ErrInvalid naming the field.
func decode(op *operation, body []byte, headerKey string) (*request, error) {
	m, rule := members(body)
	if rule != "" {
		return nil, invalid(op.name, "body", rule)
	}
	return decodeMembers(op, m, headerKey)
}

// decodeMembers is decode for a body that was taken apart. Errors: writers.ErrInvalid naming the field.
func decodeMembers(op *operation, m map[string]json.RawMessage, headerKey string) (*request, error) {
	req := &request{Scope: scopeSession}
	all, mine := req.fields(), map[string]setter{}
	for _, name := range slices.Concat(op.required, op.optional) {
		mine[name] = all[name]
	}
	if name, rule := fill(m, op.required, mine); rule != "" {
		if _, known := all[name]; known && mine[name] == nil {
			rule = "is not a field of " + op.name
		}
		return nil, invalid(op.name, name, rule)
	}
	if name, rule := needsTool(op, m); rule != "" {
		return nil, invalid(op.name, name, rule)
	}
	_, hasKey := m["key"]
	if field, rule := req.settleKey(hasKey, headerKey, op.intent); rule != "" {
		return nil, invalid(op.name, field, rule)
	}
	return req, nil
}

// needsTool refuses a finalize that says of a call what it was, but for its tool: where the row is gone nothing could be
// recorded under such a half of a call.
func needsTool(op *operation, m map[string]json.RawMessage) (field, rule string) {
	if _, ok := m["tool"]; ok || slices.Contains(op.required, "tool") || !slices.Contains(op.optional, "tool") {
		return "", ""
	}
	for _, name := range sortedNames(m) {
		if slices.Contains(whatItWas(), name) {
			return name, "needs tool beside it"
		}
	}
	return "", ""
}

// settleKey makes one key of the body's and the header's.
func (r *request) settleKey(hasKey bool, headerKey string, intent bool) (field, rule string) {
	switch {
	case r.Scope == scopeIntent && !intent:
		return "scope", `must be "session" or "tenant" here: use the key that the reserve or commit answered`
	case r.Scope == scopeIntent && (hasKey || headerKey != ""):
		return "key", "must be absent with scope intent, whose key is made of tool and arguments"
	case r.Scope == scopeIntent:
		return "", ""
	case hasKey && headerKey != "" && r.Key != headerKey:
		return "key", "differs from the Idempotency-Key header"
	case !hasKey && headerKey == "":
		return "key", "is required, in the body or as the Idempotency-Key header"
	case headerKey != "":
		r.Key = headerKey
	}
	if strings.TrimSpace(r.Key) == "" {
		return "key", "must not be empty"
	}
	return "", ""
}

// callKey is the key that the request names.
func (r *request) callKey() writers.Key {
	if r.Scope == scopeIntent {
		return writers.IntentKey(r.Tool, r.arguments())
	}
	return keyOf(r.Scope, r.Key)
}

func keyOf(scope, key string) writers.Key {
	if scope == scopeTenant {
		return writers.TenantKey(key)
	}
	return writers.SessionKey(key)
}

func (r *request) arguments() json.RawMessage {
	if r.Args == nil {
		return json.RawMessage("{}")
	}
	return r.Args
}

// call is what Commit and Reserve take.
func (r *request) call(maxWait time.Duration) writers.Call {
	return writers.Call{
		Key: r.callKey(), Tool: r.Tool, Args: r.arguments(), Tokens: r.Tokens,
		Cursor: r.Cursor, ExpectCursor: r.ExpectCursor,
		Compensates: r.Compensates, RefundOriginal: r.Refund, Lookup: r.Lookup,
		Lease: r.Lease, Wait: min(r.Wait, maxWait), Horizon: r.Horizon,
		Idempotent: r.Idempotent, Retry: r.Retry, Trace: r.Trace, VerifiedAbsent: r.VerifiedAbsent,
	}
}

// readBody reads the body up to limit bytes. Errors: writers.ErrTooLarge, writers.ErrInvalid, and 415 for an encoding. Whatever
// its Content-Type says, a body is JSON or refused: gateways and command lines put in their own.
func readBody(op string, r *http.Request, limit int64) ([]byte, error) {
	if encoding := strings.TrimSpace(r.Header.Get("Content-Encoding")); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, &httpError{
			status: http.StatusUnsupportedMediaType, code: codeMediaType,
			detail: "the body has a Content-Encoding; send it as plain JSON; nothing was done",
		}
	}
	tooLarge := &writers.Error{Code: writers.ErrTooLarge, Op: op, Field: "body", Reason: "the request's body is too large for this server; nothing was done"}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case int64(len(body)) > limit:
		return nil, tooLarge
	case err != nil:
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge
		}
		return nil, invalid(op, "body", "did not arrive whole")
	}
	return body, nil
}

// headerKey reads Idempotency-Key, bare or quoted as a structured field's string. Errors: writers.ErrInvalid.
func headerKey(op string, h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	quoted := len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"'
	if quoted {
		key = key[1 : len(key)-1]
	}
	switch {
	case len(values) > 1 || !quoted && strings.Contains(key, ","): // gateways join what is given more than once by commas
		return "", invalid(op, "Idempotency-Key", "is given more than once; put a key with a comma into double quotes")
	case strings.TrimSpace(key) == "":
		return "", invalid(op, "Idempotency-Key", "must not be empty")
	case strings.ContainsAny(key, `"\`):
		return "", invalid(op, "Idempotency-Key", "must not contain quotes or backslashes; put such a key into the body")
	}
	return key, nil
}

// invalid is the refusal of one field.
func invalid(op, field, rule string) error {
	return &writers.Error{Code: writers.ErrInvalid, Op: op, Field: field, Reason: field + " " + rule + "; nothing was done"}
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
