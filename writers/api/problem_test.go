package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolledger/writers"
)

// TestProblems holds the status, the members and Retry-After of every refusal: the contract that clients branch on.
func TestProblems(t *testing.T) {
	deadline := time.Date(2026, 11, 30, 1, 54, 2, 5e6, time.UTC)
	call := writers.CallInfo{RowID: "r1", Attempt: 2, Deadline: deadline}
	for _, tc := range []struct {
		err        writers.Error
		status     int
		retryAfter string
		want       map[string]any
	}{
		{writers.Error{Code: writers.ErrInvalid, Field: "tokens", Reason: "tokens must be"}, 400, "", map[string]any{"field": "tokens", "detail": "tokens must be"}},
		{writers.Error{Code: writers.ErrInvalid, Field: "args", Reason: "args", Err: errors.New("duplicate key")}, 400, "", map[string]any{"detail": "args: duplicate key"}},
		{writers.Error{Code: writers.ErrMissingTenant}, 403, "", nil},
		{writers.Error{Code: writers.ErrSuspended}, 403, "", nil},
		{writers.Error{Code: writers.ErrNotProvisioned}, 403, "", nil},
		{writers.Error{Code: writers.ErrNotFound}, 404, "", nil},
		{
			writers.Error{Code: writers.ErrInProgress, Call: call, RetryAfter: 4200 * time.Millisecond},
			409, "5",
			map[string]any{"row_id": "r1", "attempt": 2.0, "deadline": "2026-11-30T01:54:02.005Z"},
		},
		{writers.Error{Code: writers.ErrInProgress, Call: call}, 409, "1", nil},
		{writers.Error{Code: writers.ErrSuperseded, Call: call}, 409, "", map[string]any{"attempt": 2.0}},
		{writers.Error{Code: writers.ErrSessionMoved, Cursor: ""}, 409, "", map[string]any{"cursor": ""}},
		{writers.Error{Code: writers.ErrOutcomeUnknown, Call: call}, 409, "", map[string]any{"row_id": "r1", "deadline": "2026-11-30T01:54:02.005Z"}},
		{writers.Error{Code: writers.ErrOutcomeUnknown, RetryAfter: time.Second}, 409, "1", nil},
		{writers.Error{Code: writers.ErrNotCompensable}, 409, "", nil},
		{writers.Error{Code: writers.ErrNotApplied}, 409, "", nil},
		{writers.Error{Code: writers.ErrWriteRefused}, 409, "", nil},
		{writers.Error{Code: writers.ErrTooLarge, Field: "result"}, 413, "", map[string]any{"field": "result"}},
		{writers.Error{Code: writers.ErrKeyConflict, Differs: []string{"branch"}}, 422, "", map[string]any{"differs": []any{"branch"}}},
		{
			writers.Error{Code: writers.ErrQuotaExhausted, Need: 20, Remaining: 0, ResetsAt: deadline, RetryAfter: 400 * time.Hour},
			429, "",
			map[string]any{"need": 20.0, "remaining": 0.0, "resets_at": "2026-11-30T01:54:02.005Z"},
		},
		{writers.Error{Code: writers.ErrUnavailable, Err: errors.New("https://internal.host")}, 503, "1", map[string]any{"detail": "The ledger did not answer in time"}},
		{writers.Error{Code: "something_new"}, 500, "", map[string]any{"code": "internal_error"}},
	} {
		t.Run(string(tc.err.Code), func(t *testing.T) {
			rep := problemReply(fmt.Errorf("step: %w", &tc.err))
			var doc map[string]any
			if err := json.Unmarshal(rep.body, &doc); err != nil {
				t.Fatal(err)
			}
			if rep.status != tc.status || rep.retryAfter != tc.retryAfter || rep.contentType != "application/problem+json" {
				t.Fatalf("status %d, Retry-After %q, %s", rep.status, rep.retryAfter, rep.contentType)
			}
			if tc.want["code"] == nil && (doc["code"] != string(tc.err.Code) || doc["type"] != "urn:problem-type:toolledger:"+string(tc.err.Code)) {
				t.Fatalf("code %v, type %v", doc["code"], doc["type"])
			}
			if doc["status"] != float64(tc.status) || doc["title"] == "" || doc["detail"] == "" {
				t.Fatalf("%s", rep.body)
			}
			for name, want := range tc.want {
				if fmt.Sprint(doc[name]) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v", name, doc[name], want)
				}
			}
			if strings.Contains(string(rep.body), "internal.host") {
				t.Error("the cause of a failure is told to the caller")
			}
		})
	}
}

// TestProblemsOfOtherErrors: what is not a refusal is told apart from one, and gives nothing away.
func TestProblemsOfOtherErrors(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		code   string
	}{
		{errors.New("secret"), 500, "internal_error"},
		{context.DeadlineExceeded, 503, "unavailable"},
		{context.Canceled, 503, "unavailable"},
		{writers.ErrNotFound, 404, "not_found"},
		{&writers.Error{Code: writers.ErrOutcomeUnknown, Err: &writers.Error{Code: writers.ErrUnavailable}}, 409, "outcome_unknown"},
	} {
		if p := problemOf(tc.err); p.Status != tc.status || p.Code != tc.code || strings.Contains(p.Detail, "secret") {
			t.Errorf("%v: %+v", tc.err, p)
		}
	}
	moved := &recordedError{&writers.Error{Code: writers.ErrSessionMoved, Cursor: "c"}, writers.OutcomeApplied}
	if p := problemOf(moved); p.Outcome != "applied" || p.Code != "session_moved" || *p.Cursor != "c" {
		t.Errorf("%+v", p)
	}
}
