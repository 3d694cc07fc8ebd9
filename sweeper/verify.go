package sweeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// verifier asks about the calls of one tool, in one run.
type verifier struct {
	question func(context.Context, *schema.Row) (json.RawMessage, writers.Verdict, error)
	timeout  time.Duration

	mu      sync.Mutex
	strikes int // failures in a row
}

// maxStrikes is how many failures in a row end a run's questions to one tool's verifier: one that is down must not use
// up the time of the others. Its rows stay as they are for the next run.
const maxStrikes = 5

// verifierOf returns whom to ask about calls of a tool; nil: nobody.
func (r *run) verifierOf(tool string) *verifier {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, known := r.verifiers[tool]
	if known {
		return v
	}
	if t, ok := r.tools[tool]; ok {
		if t.Spec().CanVerify {
			v = &verifier{question: inProcess(t), timeout: r.cfg.VerifyTimeout}
		}
	} else if r.cfg.Remote != nil {
		v = &verifier{question: remote(r.cfg.Remote), timeout: r.cfg.VerifyTimeout}
	}
	r.verifiers[tool] = v
	return v
}

func inProcess(t writers.AnyTool) func(context.Context, *schema.Row) (json.RawMessage, writers.Verdict, error) {
	return func(ctx context.Context, row *schema.Row) (json.RawMessage, writers.Verdict, error) {
		info, err := callInfo(row)
		if err != nil {
			return nil, writers.EffectUnknown, err
		}
		return t.VerifyJSON(ctx, info)
	}
}

func remote(ask func(context.Context, VerifyRequest) (VerifyAnswer, error)) func(context.Context, *schema.Row) (json.RawMessage, writers.Verdict, error) {
	return func(ctx context.Context, row *schema.Row) (json.RawMessage, writers.Verdict, error) {
		info, err := callInfo(row)
		if err != nil {
			return nil, writers.EffectUnknown, err
		}
		answer, err := ask(ctx, requestOf(info, row.Scope))
		if err != nil {
			return nil, writers.EffectUnknown, err
		}
		return answer.read()
	}
}

// callInfo is what a verifier gets of a row.
func callInfo(row *schema.Row) (writers.CallInfo, error) {
	id, err := schema.ParseKey(row.Key)
	if err != nil {
		return writers.CallInfo{}, err
	}
	key := writers.SessionKey(id.CallKey)
	if row.Scope == schema.ScopeTenant {
		key = writers.TenantKey(id.CallKey)
	}
	reserved := row.ReservedAt
	if reserved.IsZero() {
		reserved = row.CreatedAt
	}
	return writers.CallInfo{
		Tenant: writers.TenantID(id.Tenant), Session: row.Session, Key: key, Tool: row.Tool, RowID: row.RowID,
		Attempt: int(row.Attempt), EffectKey: schema.EffectKey(row.Key), Lookup: row.Lookup,
		ReservedAt: reserved, Deadline: row.Deadline,
	}, nil
}

// ask asks the verifier, within its time. A verifier that fails too often in a row is not asked again in this run.
func (v *verifier) ask(ctx context.Context, row *schema.Row) (json.RawMessage, writers.Verdict, error) {
	v.mu.Lock()
	down := v.strikes >= maxStrikes
	v.mu.Unlock()
	if down {
		return nil, writers.EffectUnknown, errHungUp
	}
	result, verdict, err := v.bounded(ctx, row)
	if err == nil && verdict == writers.EffectApplied {
		result, err = checkResult(result)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil || errors.Is(err, ErrNoVerifier) {
		v.strikes = 0
	} else {
		v.strikes++
		verdict = writers.EffectUnknown
	}
	return result, verdict, err
}

type answer struct {
	result  json.RawMessage
	verdict writers.Verdict
	err     error
}

// bounded gives up on a verifier that does not heed its context: its goroutine ends when the verifier returns, and what
// it says then is not heard.
func (v *verifier) bounded(ctx context.Context, row *schema.Row) (json.RawMessage, writers.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	said := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				said <- answer{err: errPanicked}
			}
		}()
		var a answer
		a.result, a.verdict, a.err = v.question(ctx, row)
		said <- a
	}()
	select {
	case a := <-said:
		return a.result, a.verdict, a.err
	case <-ctx.Done():
		return nil, writers.EffectUnknown, ctx.Err()
	}
}

func checkResult(result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 {
		return json.RawMessage("null"), nil
	}
	if !json.Valid(result) {
		return nil, fmt.Errorf("%w: result is not JSON", ErrVerifier)
	}
	return result, nil
}

// verifierFailed logs a failure by its type: a verifier's own words may hold what it was asked with.
func (r *run) verifierFailed(tool string, err error) {
	r.l.Logger.LogAttrs(r.ctx, slog.LevelWarn, "verifier failed",
		slog.String("tool", tool), slog.String("failure", failureOf(err)), slog.String("error_type", fmt.Sprintf("%T", err)))
}

func failureOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errPanicked):
		return "panic"
	case errors.Is(err, ErrVerifier):
		return "bad answer"
	}
	return "error"
}

// warnNoVerifier says once a run that a tool which can be verified cannot be from here.
func (r *run) warnNoVerifier(tool string) {
	r.mu.Lock()
	first := !r.warned[tool]
	r.warned[tool] = true
	r.mu.Unlock()
	if first {
		r.l.Logger.LogAttrs(r.ctx, slog.LevelWarn, "tool has a verifier that this sweeper was not given", slog.String("tool", tool))
	}
}
