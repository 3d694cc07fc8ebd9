package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"toolledger/writers"
)

const (
	defaultPage = 50
	maxPage     = 200

	// maxPageBytes ends a page early: a Lambda function cannot answer with more than 6 MB, and a gateway's answer holds the page as
	// a JSON string, which doubles quotes and backslashes. A call whose result alone is longer has a page of its own.
	maxPageBytes = 5 << 19
)

// callDoc is a ledger row as the reads show it.
type callDoc struct {
	Session       string   `json:"session"`
	Key           string   `json:"key"`
	Tool          string   `json:"tool"`
	State         string   `json:"state"`
	Attempt       int      `json:"attempt"`
	RowID         string   `json:"row_id"`
	EffectKey     string   `json:"effect_key"`
	Version       int64    `json:"version"`
	Reserved      int64    `json:"reserved_tokens"`
	Charged       int64    `json:"charged_tokens"`
	Lookup        string   `json:"lookup,omitempty"`
	Failure       string   `json:"failure,omitempty"`
	Held          bool     `json:"held,omitempty"`
	Unverified    bool     `json:"unverified,omitempty"`
	Compensates   string   `json:"compensates,omitempty"`
	CompensatedBy string   `json:"compensated_by,omitempty"`
	Suspects      []string `json:"suspects,omitempty"`
	Deadline      string   `json:"deadline,omitempty"`
	CreatedAt     string   `json:"created_at"`
	UpdatedAt     string   `json:"updated_at"`
	ExpiresAt     string   `json:"expires_at,omitempty"`
}

// document encodes the row; the result as it was stored.
func document(row writers.Row) (json.RawMessage, error) {
	doc, err := encode(callDoc{
		Session: row.Session, Key: row.Key.String(), Tool: row.Tool, State: string(row.State), Attempt: row.Attempt,
		RowID: row.RowID, EffectKey: row.EffectKey, Version: row.Version, Reserved: row.Reserved, Charged: row.Charged,
		Lookup: row.Lookup, Failure: row.Failure, Held: row.Held, Unverified: row.Unverified, Suspects: row.Suspects,
		Compensates: row.Compensates, CompensatedBy: row.CompensatedBy,
		Deadline: timestamp(row.Deadline), CreatedAt: timestamp(row.CreatedAt), UpdatedAt: timestamp(row.UpdatedAt),
		ExpiresAt: timestamp(row.ExpiresAt),
	})
	if err == nil && row.State == writers.StateApplied {
		doc = withMember(doc, "result", orNull(row.Result))
	}
	return doc, err
}

// getCall answers GET /v1/calls: one call, after waiting for its end where asked to. A call that is still pending then is
// an answer, not a refusal.
func (s *server) getCall(r *http.Request, t writers.Tenant) (*reply, error) {
	q := readQuery("get", r.URL, "session", "key", "scope", "wait_seconds")
	session, key := q.required("session"), q.required("key")
	scope := q.choice("scope", scopeSession, scopeTenant)
	wait := time.Duration(q.number("wait_seconds", 0, 0, maxSeconds)) * time.Second
	if q.err != nil {
		return nil, q.err
	}
	return s.call(r.Context(), t.Session(session), keyOf(scope, key), wait)
}

// call answers with one call.
func (s *server) call(ctx context.Context, ses writers.Session, key writers.Key, wait time.Duration) (*reply, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	row, err := read(ctx, ses, key, min(wait, maxWait(ctx)))
	if err != nil {
		return nil, err
	}
	doc, err := document(row)
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, contentType: "application/json", body: doc}, nil
}

// read waits up to wait for the end of a call in flight, then reads it as it is.
func read(ctx context.Context, ses writers.Session, key writers.Key, wait time.Duration) (writers.Row, error) {
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		row, err := ses.Wait(waiting, key)
		cancel()
		if err == nil || waiting.Err() == nil {
			return row, err
		}
	}
	return ses.Get(ctx, key)
}

// listCalls answers GET /v1/sessions/{session}/calls: the session's calls in key order, a page at a time.
func (s *server) listCalls(r *http.Request, t writers.Tenant) (*reply, error) {
	q := readQuery("list", r.URL, "after", "limit")
	after, limit := q.values["after"], q.number("limit", defaultPage, 1, maxPage)
	if q.err != nil {
		return nil, q.err
	}
	return s.page(r.Context(), t.Session(r.PathValue("session")), after, limit)
}

// page answers with up to limit calls behind the key after, "" meaning from the first one.
func (s *server) page(ctx context.Context, ses writers.Session, after string, limit int64) (*reply, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var begin writers.Key
	if after != "" {
		begin = writers.SessionKey(after)
	}
	var calls []json.RawMessage
	var last, next string
	size := 0
	for row, err := range ses.CallsAfter(ctx, begin) {
		if err != nil {
			return nil, afterRefused(err)
		}
		doc, err := document(row)
		if err != nil {
			return nil, err
		}
		if n := len(calls); int64(n) == limit || n > 0 && size+len(doc) > maxPageBytes {
			next = last
			break
		}
		calls, last, size = append(calls, doc), row.Key.String(), size+len(doc)
	}
	return pageReply(calls, next)
}

// afterRefused names a bad key to begin after as the caller does.
func afterRefused(err error) error {
	if e, ok := errors.AsType[*writers.Error](err); ok && e.Code == writers.ErrInvalid && e.Field == "key" {
		return invalid("list", "after", "is the key of no call: take it from the next of the page before")
	}
	return err
}

// pageReply joins the documents by hand, so that results keep their bytes.
func pageReply(calls []json.RawMessage, next string) (*reply, error) {
	body := []byte(`{"calls":[`)
	for i, doc := range calls {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, doc...)
	}
	body = append(body, "]}"...)
	if next != "" {
		name, err := encode(next)
		if err != nil {
			return nil, err
		}
		body = withMember(body, "next", name)
	}
	return &reply{status: http.StatusOK, contentType: "application/json", body: body}, nil
}

// getQuota answers GET /v1/quota: the tenant's running period.
func (s *server) getQuota(r *http.Request, t writers.Tenant) (*reply, error) {
	if q := readQuery("quota", r.URL); q.err != nil {
		return nil, q.err
	}
	return s.quota(r.Context(), t)
}

// quota answers with the tenant's running period.
func (s *server) quota(ctx context.Context, t writers.Tenant) (*reply, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	q, err := t.Quota(ctx)
	if err != nil {
		return nil, err
	}
	return jsonReply(struct {
		Period    string `json:"period"`
		Granted   int64  `json:"granted_tokens"`
		Remaining int64  `json:"remaining_tokens"`
		ResetsAt  string `json:"resets_at,omitempty"`
	}{q.Period, q.Granted, q.Remaining, timestamp(q.ResetsAt)}), nil
}
