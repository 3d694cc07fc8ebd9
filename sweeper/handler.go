package sweeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// VerifyRequest asks a remote verifier about one call; the tenant is plain text here, since the sweeper wrote it. As JSON:
//
//	{"tenant": "acme", "session": "s-1", "key": "pr-7f3c", "scope": "session", "tool": "open_pr", "row_id": "…",
//	 "attempt": 1, "effect_key": "…32 hex digits…", "lookup": "…", "reserved_at": "2026-11-03T01:53:02.117Z",
//	 "deadline": "2026-11-03T01:54:02.117Z"}
//
// All but lookup, scope and the two times are required. scope says how far key reaches: "session", which "" means too,
// or "tenant".
type VerifyRequest struct {
	Tenant     string    `json:"tenant"`
	Session    string    `json:"session"`
	Key        string    `json:"key"`
	Scope      string    `json:"scope,omitempty"`
	Tool       string    `json:"tool"`
	RowID      string    `json:"row_id"`
	Attempt    int       `json:"attempt"`
	EffectKey  string    `json:"effect_key"`
	Lookup     string    `json:"lookup"`
	ReservedAt time.Time `json:"reserved_at,omitzero"` // of the first attempt
	Deadline   time.Time `json:"deadline,omitzero"`    // of this attempt
}

// VerifyAnswer is its answer; an error means unknown.
type VerifyAnswer struct {
	Verdict string          `json:"verdict"` // "applied", "absent" or "unknown"
	Result  json.RawMessage `json:"result,omitempty"`
}

// The verdicts as words.
const (
	verdictApplied = "applied"
	verdictAbsent  = "absent"
	verdictUnknown = "unknown"
)

func requestOf(c writers.CallInfo, scope schema.Scope) VerifyRequest {
	return VerifyRequest{
		Tenant: string(c.Tenant), Session: c.Session, Key: c.Key.String(), Scope: string(scope), Tool: c.Tool, RowID: c.RowID,
		Attempt: c.Attempt, EffectKey: c.EffectKey, Lookup: c.Lookup, ReservedAt: c.ReservedAt, Deadline: c.Deadline,
	}
}

// read turns an answer into a verdict; a word that is none is an error and so unknown.
func (a VerifyAnswer) read() (json.RawMessage, writers.Verdict, error) {
	switch a.Verdict {
	case verdictApplied:
		return a.Result, writers.EffectApplied, nil
	case verdictAbsent:
		return nil, writers.EffectAbsent, nil
	case verdictUnknown:
		return nil, writers.EffectUnknown, nil
	}
	return nil, writers.EffectUnknown, fmt.Errorf("%w: verdict must be applied, absent or unknown", ErrVerifier)
}

// VerifierHandler makes a tool's Verify a Lambda function that the deployed sweeper asks. Hand it to lambda.Start. It
// takes a [VerifyRequest] and answers a [VerifyAnswer], both as JSON, unknown fields refused. Several tools share a
// function where they share what they talk to.
//
// The function is asked by the sweeper alone: grant nobody else the right to invoke it, since it believes the tenant that
// it is told.
//
// Errors of the handler: ErrVerifier for a request that is malformed or about a tool that is not among tools, or that has
// no Verify; Verify's own. The sweeper takes all of them for unknown.
func VerifierHandler(tools ...writers.AnyTool) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	named, misuse := byName(tools)
	return func(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
		if misuse != nil {
			return nil, misuse
		}
		req, err := decodeRequest(event)
		if err != nil {
			return nil, err
		}
		tool, ok := named[req.Tool]
		if !ok {
			return nil, fmt.Errorf("%w: tool %q is not one of this function's", ErrVerifier, req.Tool)
		}
		if !tool.Spec().CanVerify {
			return nil, fmt.Errorf("%w: tool %q has no Verify", ErrVerifier, req.Tool)
		}
		result, verdict, err := tool.VerifyJSON(ctx, req.info())
		if err != nil {
			return nil, err
		}
		return json.Marshal(answerOf(verdict, result))
	}
}

func answerOf(v writers.Verdict, result json.RawMessage) VerifyAnswer {
	switch v {
	case writers.EffectApplied:
		return VerifyAnswer{verdictApplied, result}
	case writers.EffectAbsent:
		return VerifyAnswer{verdictAbsent, nil}
	case writers.EffectUnknown:
	}
	return VerifyAnswer{verdictUnknown, nil}
}

func decodeRequest(event json.RawMessage) (VerifyRequest, error) {
	var req VerifyRequest
	dec := json.NewDecoder(bytes.NewReader(event))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return req, fmt.Errorf("%w: request: %s", ErrVerifier, decodeFault(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, fmt.Errorf("%w: request: must be one JSON object", ErrVerifier)
	}
	return req, req.check()
}

// decodeFault says what is wrong with a document without quoting its values.
func decodeFault(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("field %q must not be a JSON %s", e.Field, e.Value)
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "is not JSON"
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return "a time must be as in RFC 3339"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "is not whole"
	}
	return err.Error() // names an unknown field
}

func (r VerifyRequest) check() error {
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"tenant", r.Tenant, schema.MaxTenant},
		{"session", r.Session, schema.MaxSession},
		{"key", r.Key, schema.MaxCallKey},
		{"tool", r.Tool, schema.MaxTool},
		{"row_id", r.RowID, schema.MaxCallKey},
		{"effect_key", r.EffectKey, schema.MaxCallKey},
	} {
		if err := schema.CheckID(f.name, f.value, f.limit); err != nil {
			return fmt.Errorf("%w: request: %w", ErrVerifier, err)
		}
	}
	if r.Attempt < 1 {
		return fmt.Errorf("%w: request: attempt must be at least 1", ErrVerifier)
	}
	switch schema.Scope(r.Scope) {
	case "", schema.ScopeSession, schema.ScopeTenant:
		return nil
	}
	return fmt.Errorf("%w: request: scope must be session or tenant", ErrVerifier)
}

func (r VerifyRequest) info() writers.CallInfo {
	key := writers.SessionKey(r.Key)
	if schema.Scope(r.Scope) == schema.ScopeTenant {
		key = writers.TenantKey(r.Key)
	}
	return writers.CallInfo{
		Tenant: writers.TenantID(r.Tenant), Session: r.Session, Key: key, Tool: r.Tool, RowID: r.RowID, Attempt: r.Attempt,
		EffectKey: r.EffectKey, Lookup: r.Lookup, ReservedAt: r.ReservedAt, Deadline: r.Deadline,
	}
}
