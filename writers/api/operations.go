package api

import (
	"context"
	"net/http"
	"net/url"

	"toolledger/writers"
)

// operation is one POST endpoint of the HTTP door, and one op of the direct door.
type operation struct {
	name     string
	required []string // beside key, which a header or scope intent may stand for
	optional []string
	intent   bool // scope "intent" is offered
	run      func(s *server, ctx context.Context, ses writers.Session, r *request) (*answer, error)
}

// operations is every POST endpoint; the OpenAPI document is checked against it.
func operations() []*operation {
	call := []string{
		"key", "scope", "args", "tokens", "cursor", "expect_cursor", "horizon_seconds", "lookup", "idempotent",
		"verified_absent", "retry", "compensates", "refund_original", "trace", "wait_seconds",
	}
	with := func(more ...string) []string { return append(more, call...) }
	ref := []string{"session", "row_id", "attempt"}
	return []*operation{
		{"commit", []string{"session", "tool"}, with("result"), true, (*server).commit},
		{"reserve", []string{"session", "tool"}, with("lease_seconds"), true, (*server).reserve},
		{"finalize", ref, append(whatItWas(), "tool", "key", "scope", "result", "charged_tokens"), false, (*server).finalize},
		{"release", ref, []string{"key", "scope", "reason"}, false, (*server).release},
		{"extend", ref, []string{"key", "scope", "lease_seconds"}, false, (*server).extend},
		{"resolve", append(ref, "verdict"), []string{"key", "scope", "result", "by", "why"}, false, (*server).resolve},
	}
}

// whatItWas are the fields beside tool that say of a finalized call what it was, for an effect whose row is gone.
func whatItWas() []string {
	return []string{
		"args", "tokens", "cursor", "expect_cursor", "horizon_seconds", "lookup", "idempotent", "compensates", "refund_original", "trace",
	}
}

// serve reads one request, runs the operation and answers.
func (o *operation) serve(s *server, r *http.Request, t writers.Tenant) (*reply, error) {
	remaining, err := includesRemaining(o.name, r.URL)
	if err != nil {
		return nil, err
	}
	key, err := headerKey(o.name, r.Header)
	if err != nil {
		return nil, err
	}
	body, err := readBody(o.name, r, s.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	req, err := decode(o, body, key)
	if err != nil {
		return nil, err
	}
	return o.do(r.Context(), s, t, req, remaining)
}

// do runs the operation; the same at every door that offers it.
func (o *operation) do(ctx context.Context, s *server, t writers.Tenant, req *request, remaining bool) (*reply, error) {
	whole, cancel := s.bounded(ctx) // the operation's time and the quota's together
	defer cancel()
	a, err := o.run(s, ctx, t.Session(req.Session), req)
	if err != nil {
		return nil, err
	}
	if remaining {
		a.Remaining = s.remaining(whole, t)
	}
	return a.reply(), nil
}

// includesRemaining reads ?include=remaining_tokens, the only parameter of a POST operation.
func includesRemaining(op string, u *url.URL) (bool, error) {
	q := readQuery(op, u, "include")
	given := q.choice("include", "", "remaining_tokens")
	return given != "", q.err
}

// remaining reads the quota after an operation that went well. It is left out where it cannot be read: the operation is
// not undone by that.
func (s *server) remaining(ctx context.Context, t writers.Tenant) *int64 {
	q, err := t.Quota(ctx)
	if err != nil {
		return nil
	}
	return &q.Remaining
}

func (s *server) commit(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	c := r.call(maxWait(ctx))
	raw, err := ses.Commit(ctx, c, orNull(r.Result))
	if err != nil {
		return nil, err
	}
	return applied(c.Key, raw), nil
}

func (s *server) reserve(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	c := r.call(maxWait(ctx))
	hold, done, err := ses.Reserve(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case done != nil:
		return applied(c.Key, *done), nil
	}
	return held("reserved", hold, s.cfg.Now()), nil
}

func (s *server) finalize(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.recording(ctx)
	defer cancel()
	hold, err := reservationOf(ctx, ses, r)
	if err != nil {
		return nil, err
	}
	charged := hold.Tokens
	if r.Charged != nil {
		charged = *r.Charged
	}
	raw, err := hold.Finalize(ctx, orNull(r.Result), charged)
	if err != nil {
		if raw.Outcome != "" { // recorded, but the session's cursor had moved
			err = &recordedError{err, raw.Outcome}
		}
		return nil, err
	}
	return applied(hold.Key, raw), nil
}

func (s *server) release(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.recording(ctx)
	defer cancel()
	hold, err := reservation(ctx, ses, r)
	if err != nil {
		return nil, err
	}
	if err := hold.Release(ctx, r.Reason); err != nil {
		return nil, err
	}
	return &answer{
		Outcome: "released", Key: hold.Key.String(), State: string(writers.StateFailed),
		Attempt: hold.Attempt, RowID: hold.RowID, EffectKey: hold.EffectKey,
	}, nil
}

func (s *server) extend(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	hold, err := reservation(ctx, ses, r)
	if err != nil {
		return nil, err
	}
	if err := hold.Extend(ctx, r.Lease); err != nil {
		return nil, err
	}
	return held("extended", hold, s.cfg.Now()), nil
}

func (s *server) resolve(ctx context.Context, ses writers.Session, r *request) (*answer, error) {
	ctx, cancel := s.recording(ctx)
	defer cancel()
	res := writers.Resolution{Verdict: writers.EffectAbsent, RowID: r.RowID, Attempt: r.Attempt, By: r.By, Why: r.Cause}
	outcome := "released"
	if r.Verdict == verdictApplied {
		res.Verdict, res.Result, outcome = writers.EffectApplied, orNull(r.Result), string(writers.OutcomeApplied)
	} else if r.Result != nil {
		return nil, invalid("resolve", "result", `goes with the verdict "applied" only`)
	}
	row, err := ses.Resolve(ctx, r.callKey(), res)
	if err != nil {
		return nil, err
	}
	a := &answer{
		Outcome: outcome, Key: row.Key.String(), State: string(row.State),
		Attempt: row.Attempt, RowID: row.RowID, EffectKey: row.EffectKey,
	}
	if row.State == writers.StateApplied {
		a.Charged, a.result = &row.Charged, orNull(row.Result)
	}
	return a, nil
}

// reservationOf is the reservation that the request names, also where its row is gone and the request says what the call was.
func reservationOf(ctx context.Context, ses writers.Session, r *request) (*writers.Reservation, error) {
	if r.Tool == "" {
		return reservation(ctx, ses, r)
	}
	return ses.ReservationOf(ctx, r.call(0), r.RowID, r.Attempt)
}

// reservation is the reservation that the request names by row and attempt.
func reservation(ctx context.Context, ses writers.Session, r *request) (*writers.Reservation, error) {
	return ses.Reservation(ctx, r.callKey(), r.RowID, r.Attempt)
}
