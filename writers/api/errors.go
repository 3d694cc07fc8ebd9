package api

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"toolledger/writers"
)

// ShapeError is returned by the doors that are Lambda functions for an event that is not theirs: another kind of event, or
// one that came through another service. Nothing was read or written. Lambda reports it as the function error "ShapeError",
// which no retry mends.
type ShapeError struct {
	Door   string // "bedrock", "agentcore", "direct"
	Reason string // which rule the event breaks; never quotes it
}

// Error names the door and the rule.
func (e *ShapeError) Error() string { return "api: this is the " + e.Door + " door: " + e.Reason }

// UnavailableError is returned by Direct where a request failed for a reason that says nothing about the request: DynamoDB
// did not answer, contention did not end, this program failed. Lambda reports it as the function error
// "UnavailableError"; the same event may simply be sent again. Unwrap gives the cause, which is for logs.
type UnavailableError struct {
	Code   string // "unavailable" or "internal_error"
	Detail string
	Err    error
}

// Error gives code and detail, without the cause, which may name endpoints.
func (e *UnavailableError) Error() string { return e.Code + ": " + e.Detail }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// errNoLedger is why a door that was made of nothing refuses everything.
var errNoLedger = errors.New("api: the door was made without a ledger or without tools")

// guard turns a panic into errInternal: one bad event must not end the process. The value may quote an event, so its type
// and the stack are all that is logged.
func guard(ctx context.Context, log *slog.Logger, err *error) {
	v := recover()
	if v == nil {
		return
	}
	log.LogAttrs(ctx, slog.LevelError, "door panicked", slog.String("type", typeName(v)), slog.String("stack", string(debug.Stack())))
	*err = errInternal
}

// missingTenant is the refusal of a caller who is nobody.
func missingTenant(cause error) error {
	return &writers.Error{
		Code: writers.ErrMissingTenant, Op: "authenticate", Err: cause,
		Reason: "the request is not authenticated as a tenant; nothing was done",
	}
}
