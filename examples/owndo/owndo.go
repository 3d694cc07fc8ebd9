// Package owndo is Tool.Do written with nothing but the exported API, which shows that a team can build a variant of its
// own. It leaves out what the real one adds: extending the lease while Act runs, and looking for the result where a
// finalize could not be sent.
package owndo

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"toolledger/writers"
)

// margin is how long before the deadline Act has to stop, so that its effect is recorded in time.
const margin = 5 * time.Second

// maxRounds bounds the rounds of reserve and verify; more than two mean that others keep starting attempts.
const maxRounds = 5

// Do makes the effect once. Errors: as Tool.Do.
func Do[A, R any](ctx context.Context, t *writers.Tool[A, R], s writers.Session, k writers.Key, args A) (writers.Raw, error) {
	call := t.Call(k, args)
	var err error
	for range maxRounds {
		var hold *writers.Reservation
		var done *writers.Raw
		hold, done, err = s.Reserve(ctx, call)
		if done != nil {
			return *done, nil
		}
		if hold != nil {
			return act(ctx, t, hold, args)
		}
		e, ok := errors.AsType[*writers.Error](err)
		if !ok || t.Verify == nil || (e.Code != writers.ErrInProgress && e.Code != writers.ErrOutcomeUnknown) {
			return writers.Raw{}, err
		}
		found, verdict, verr := t.Verify(ctx, e.Call)
		if verr != nil || verdict == writers.EffectUnknown {
			return writers.Raw{}, errors.Join(err, verr)
		}
		if verdict == writers.EffectApplied {
			return record(ctx, s, k, e.Call, found)
		}
		if e.Code == writers.ErrInProgress {
			return writers.Raw{}, err // its holder may still act: that it is absent now proves nothing
		}
		call.VerifiedAbsent = e.Call.Ref()
	}
	return writers.Raw{}, err
}

// record stores the effect that an earlier attempt made.
func record(ctx context.Context, s writers.Session, k writers.Key, c writers.CallInfo, found any) (writers.Raw, error) {
	row, err := s.Resolve(ctx, k, writers.Resolution{
		Verdict: writers.EffectApplied, RowID: c.RowID, Attempt: c.Attempt, Result: found, By: "verify",
	})
	return writers.Raw{
		Outcome: writers.OutcomeReplayed, Value: row.Result, JSON: row.Result, Attempt: row.Attempt, Charged: row.Charged,
		RowID: row.RowID, EffectKey: row.EffectKey,
	}, err
}

// act runs Act and records how it ended, whether or not the caller still waits for it.
func act[A, R any](ctx context.Context, t *writers.Tool[A, R], hold *writers.Reservation, args A) (writers.Raw, error) {
	acting, cancel := context.WithDeadline(ctx, hold.Deadline.Add(-margin))
	defer cancel()
	result, err := t.Act(acting, writers.Attempt[A]{CallInfo: hold.CallInfo, Args: args})
	recording := context.WithoutCancel(ctx)
	if errors.Is(err, writers.ErrNotApplied) {
		return writers.Raw{}, errors.Join(err, hold.Release(recording, "the tool refused"))
	}
	if err != nil {
		return writers.Raw{}, &writers.Error{
			Code: writers.ErrOutcomeUnknown, Op: "do", Call: hold.CallInfo, RetryAfter: time.Second, Err: err,
		}
	}
	charged := hold.Tokens
	if t.Charge != nil {
		charged = t.Charge(args, result)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return writers.Raw{}, err
	}
	return hold.Finalize(recording, json.RawMessage(body), charged)
}
