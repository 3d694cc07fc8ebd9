package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"toolledger/writers"
)

// Codes that only HTTP knows: they say that a request did not reach an operation, or broke this program.
const (
	codeForbidden = "forbidden"
	codeMethod    = "method_not_allowed"
	codeMediaType = "unsupported_media_type"
	codeInternal  = "internal_error"
)

// typePrefix makes a problem's type from its code.
const typePrefix = "urn:problem-type:toolledger:"

// statuses maps every refusal of the ledger to its HTTP status.
func statuses() map[writers.Code]int {
	return map[writers.Code]int{
		writers.ErrInvalid:        http.StatusBadRequest,
		writers.ErrMissingTenant:  http.StatusForbidden,
		writers.ErrSuspended:      http.StatusForbidden,
		writers.ErrNotProvisioned: http.StatusForbidden,
		writers.ErrNotFound:       http.StatusNotFound,
		writers.ErrInProgress:     http.StatusConflict,
		writers.ErrSuperseded:     http.StatusConflict,
		writers.ErrSessionMoved:   http.StatusConflict,
		writers.ErrOutcomeUnknown: http.StatusConflict,
		writers.ErrNotCompensable: http.StatusConflict,
		writers.ErrNotApplied:     http.StatusConflict,
		writers.ErrWriteRefused:   http.StatusConflict,
		writers.ErrTooLarge:       http.StatusRequestEntityTooLarge,
		writers.ErrKeyConflict:    http.StatusUnprocessableEntity,
		writers.ErrQuotaExhausted: http.StatusTooManyRequests,
		writers.ErrUnavailable:    http.StatusServiceUnavailable,
	}
}

// httpError is a refusal that is HTTP's own.
type httpError struct {
	status       int
	code, detail string
	allow        string // the methods of a 405
}

// Error returns code and detail.
func (e *httpError) Error() string { return e.code + ": " + e.detail }

// errInternal is all that a caller is told of a panic or of an error that is not the ledger's.
var errInternal = &httpError{
	status: http.StatusInternalServerError, code: codeInternal,
	detail: "the server failed; whether anything was written is not known; repeat the same request with the same key",
}

// problem is an RFC 9457 document.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail"`
	Code      string   `json:"code"`
	Field     string   `json:"field,omitempty"`
	Differs   []string `json:"differs,omitempty"`
	RowID     string   `json:"row_id,omitempty"`
	Attempt   int      `json:"attempt,omitempty"`
	Deadline  string   `json:"deadline,omitempty"`
	Need      *int64   `json:"need,omitempty"`
	Remaining *int64   `json:"remaining,omitempty"`
	ResetsAt  string   `json:"resets_at,omitempty"`
	Cursor    *string  `json:"cursor,omitempty"`
	Outcome   string   `json:"outcome,omitempty"` // what was recorded nevertheless
	Retry     int64    `json:"retry_after_seconds,omitempty"`

	allow string
}

// problemOf says in HTTP's words what err says in Go's. Errors that are not the ledger's give errInternal.
func problemOf(err error) problem {
	if h, ok := errors.AsType[*httpError](err); ok {
		p := newProblem(h.status, h.code, h.detail, h.allow)
		p.Title = http.StatusText(h.status) // of a path that is not there, not of a call
		return p
	}
	code, ok := errors.AsType[writers.Code](err)
	if !ok && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		code, ok = writers.ErrUnavailable, true
	}
	status, known := statuses()[code]
	if !ok || !known {
		return problemOf(errInternal)
	}
	p := newProblem(status, string(code), titles()[code], "")
	if e, ok := errors.AsType[*writers.Error](err); ok && e.Code == code {
		p.describe(e)
	}
	if code == writers.ErrInProgress || code == writers.ErrUnavailable {
		p.Retry = max(p.Retry, 1)
	}
	if r, ok := errors.AsType[*recordedError](err); ok {
		p.Outcome = string(r.outcome)
	}
	return p
}

func newProblem(status int, code, detail, allow string) problem {
	return problem{Type: typePrefix + code, Title: titles()[writers.Code(code)], Status: status, Detail: detail, Code: code, allow: allow}
}

// describe copies what the refusal knows. A cause is told only where it is about the request itself: elsewhere it names
// endpoints and request ids, which are for the log.
func (p *problem) describe(e *writers.Error) {
	if e.Reason != "" {
		p.Detail = e.Reason
	}
	if e.Err != nil && (e.Code == writers.ErrInvalid || e.Code == writers.ErrTooLarge) {
		p.Detail += ": " + e.Err.Error()
	}
	p.Field, p.Differs = e.Field, e.Differs
	p.RowID, p.Attempt, p.Deadline = e.Call.RowID, e.Call.Attempt, timestamp(e.Call.Deadline)
	switch e.Code {
	case writers.ErrQuotaExhausted:
		p.Need, p.Remaining, p.ResetsAt = &e.Need, &e.Remaining, timestamp(e.ResetsAt)
		return // the next period may begin in weeks: its time is in the body, and no Retry-After invites to loop
	case writers.ErrSessionMoved:
		p.Cursor = &e.Cursor
	default:
	}
	p.Retry = int64(math.Ceil(e.RetryAfter.Seconds()))
}

// titles says each refusal in a few words that do not vary with the request.
func titles() map[writers.Code]string {
	return map[writers.Code]string{
		writers.ErrInvalid:        "The request is not valid",
		writers.ErrMissingTenant:  "The caller is not authenticated as a tenant",
		writers.ErrSuspended:      "The tenant is suspended",
		writers.ErrNotProvisioned: "The tenant has no plan",
		writers.ErrNotFound:       "There is no such call",
		writers.ErrInProgress:     "An attempt is in progress",
		writers.ErrSuperseded:     "This attempt does not own the call",
		writers.ErrSessionMoved:   "The session's cursor has moved",
		writers.ErrOutcomeUnknown: "It is not known whether the effect happened",
		writers.ErrNotCompensable: "The original call cannot be compensated",
		writers.ErrNotApplied:     "The effect did not happen",
		writers.ErrWriteRefused:   "One of the call's own writes was refused",
		writers.ErrTooLarge:       "The request or its result is too large",
		writers.ErrKeyConflict:    "The key belongs to another action",
		writers.ErrQuotaExhausted: "The quota is exhausted",
		writers.ErrUnavailable:    "The ledger did not answer in time",
	}
}

// recordedError is a refusal beside which the effect was recorded all the same.
type recordedError struct {
	error
	outcome writers.Outcome
}

// Unwrap returns the refusal.
func (e *recordedError) Unwrap() error { return e.error }

func problemReply(err error) *reply {
	p := problemOf(err)
	body, merr := json.Marshal(p)
	if merr != nil { // a struct of strings and numbers always encodes
		body = []byte(`{"code":"` + codeInternal + `"}`)
	}
	rep := &reply{status: p.Status, contentType: "application/problem+json", body: body, code: p.Code, allow: p.allow}
	if p.Retry > 0 {
		rep.retryAfter = strconv.FormatInt(p.Retry, 10)
	}
	return rep
}

// timestamp is RFC 3339 in UTC with milliseconds, which is what the ledger keeps; "" for no time.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
