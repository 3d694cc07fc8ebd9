package writers

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"toolledger/internal/schema"
)

// Do makes the effect once: reserve, Act, finalize. A retry with the same key gets the stored result; finds an attempt
// in flight and asks Verify, or waits; never acts blindly. A finished Act is recorded even when ctx has ended. If it
// could not be recorded, Value is set beside the error and the row stays pending.
// Errors: ErrInvalid, ErrMissingTenant, ErrKeyConflict, ErrInProgress, ErrOutcomeUnknown, ErrNotApplied, ErrQuotaExhausted,
// ErrNotProvisioned, ErrSuspended, ErrNotCompensable, ErrSessionMoved, ErrSuperseded, ErrTooLarge, ErrUnavailable; before anything is
// written, ctx's.
func (t *Tool[A, R]) Do(ctx context.Context, s Session, k Key, args A, opts ...func(*Call)) (Result[R], error) {
	const op = "do"
	if t.Act == nil {
		return Result[R]{}, invalid(op, "Act", "is required")
	}
	if t.ReadOnly {
		return t.look(ctx, s, k, args)
	}
	if err := t.fits(s); err != nil {
		return Result[R]{}, err
	}
	call := t.Call(k, args, opts...)
	for range verifyRounds {
		hold, done, err := s.Reserve(ctx, call)
		switch {
		case done != nil:
			return typed[R](op, *done)
		case hold != nil:
			return t.act(ctx, hold, args)
		}
		out, again, err := t.settle(ctx, s, k, &call, err)
		if !again {
			return out, err
		}
	}
	return Result[R]{}, contention(op, verifyRounds)
}

// verifyRounds bounds how often one Do verifies: each round ends because the row changed in between.
const verifyRounds = 8

// look runs a tool that changes nothing; the ledger is not asked.
func (t *Tool[A, R]) look(ctx context.Context, s Session, k Key, args A) (Result[R], error) {
	key, err := s.checkKey("do", k)
	if err != nil {
		return Result[R]{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout())
	defer cancel()
	info := CallInfo{Tenant: s.t.id, Session: s.id, Key: k, Tool: t.Name, EffectKey: schema.EffectKey(key)}
	value, err := t.Act(ctx, Attempt[A]{info, args})
	if err != nil {
		return Result[R]{}, err
	}
	text, err := encodeResult("do", value)
	return Result[R]{Outcome: OutcomeApplied, Value: value, JSON: text, EffectKey: info.EffectKey}, err
}

func (t *Tool[A, R]) timeout() time.Duration {
	if t.Timeout > 0 {
		return t.Timeout
	}
	return defaultTimeout
}

// fits refuses, before Act can run, a tool whose results could not be stored.
func (t *Tool[A, R]) fits(s Session) error {
	if err := s.check("do"); err != nil {
		return err
	}
	if !encodable(reflect.TypeFor[R]()) {
		return invalid("do", "result", "is of a type that cannot be encoded as JSON")
	}
	if l := s.t.l; t.MaxResult > inlineMost && l.cfg.Results == nil {
		return &Error{Code: ErrTooLarge, Op: "do", Field: "MaxResult", Reason: fmt.Sprintf(
			"results of up to %s need Config.Results; nothing was done", size(t.MaxResult))}
	}
	return nil
}

// encodable tells whether values of a type can become JSON, as far as the outermost type says: what it holds is seen only
// once there is a value.
func encodable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	default:
		return true
	}
}

// settle deals with a call that was refused because another attempt may have taken effect: it asks Verify. again asks for
// another reserve, which may now take over.
func (t *Tool[A, R]) settle(ctx context.Context, s Session, k Key, call *Call, refusal error) (out Result[R], again bool, err error) {
	e, ok := errors.AsType[*Error](refusal)
	if !ok || t.Verify == nil || e.Code != ErrInProgress && e.Code != ErrOutcomeUnknown {
		return out, false, refusal
	}
	found, verdict, verifyErr := t.VerifyJSON(ctx, e.Call)
	switch {
	case verifyErr != nil || verdict == EffectUnknown:
		if verifyErr != nil {
			e.Err = verifyErr
		}
		return out, false, e
	case verdict == EffectAbsent && e.Code == ErrInProgress:
		return out, false, e // while the holder may still act, its absence proves nothing
	case verdict == EffectAbsent:
		call.VerifiedAbsent = e.Call.Ref()
		return out, true, nil
	}
	return t.recordVerified(ctx, s, k, e.Call, found)
}

// recordVerified records what Verify found, if the row is still the one that was verified.
func (t *Tool[A, R]) recordVerified(ctx context.Context, s Session, k Key, c CallInfo, found json.RawMessage) (out Result[R], again bool, err error) {
	l := s.t.l
	row, err := l.readRow(ctx, s.rowKey(k))
	if err != nil {
		return out, false, failure(ctx, "do", err)
	}
	if row == nil || row.RowID != c.RowID || row.Attempt != int64(c.Attempt) || row.State == schema.StateApplied {
		return out, true, nil // it moved on: reserve tells what is there now
	}
	moved, err := l.settleVerified(ctx, row, found)
	if err != nil || !moved {
		return out, err == nil, err
	}
	out, err = typed[R]("do", Raw{
		Outcome: OutcomeReplayed, JSON: found, Attempt: c.Attempt, Charged: row.Reserved, RowID: row.RowID, EffectKey: c.EffectKey,
	})
	return out, false, err
}

// act runs Act under the reservation and records how it ended.
func (t *Tool[A, R]) act(ctx context.Context, hold *Reservation, args A) (Result[R], error) {
	info := hold.info() // before anybody extends it
	keeper := keep(ctx, hold, t.timeout())
	value, err := func() (R, error) {
		defer keeper.end() // also when Act panics: then the row stays pending, which is the truth
		if keeper.ctx.Err() != nil {
			var none R
			return none, NotApplied(fmt.Errorf("no time is left to act: %w", context.Cause(keeper.ctx)))
		}
		return t.Act(keeper.ctx, Attempt[A]{info, args})
	}()
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if err != nil {
		return Result[R]{}, t.actFailed(after, hold, err)
	}
	charged := hold.Tokens
	if t.Charge != nil {
		charged = t.Charge(args, value)
	}
	out := Result[R]{Value: value, Attempt: hold.Attempt, RowID: hold.RowID, EffectKey: hold.EffectKey}
	raw, err := hold.Finalize(after, value, charged)
	if err != nil && raw.Outcome == "" {
		return out, err
	}
	if raw.Outcome == OutcomeApplied && err == nil {
		out.Outcome, out.JSON, out.Charged, out.RowID = raw.Outcome, raw.JSON, raw.Charged, raw.RowID
		if same, encodeErr := json.Marshal(value); encodeErr == nil && string(same) == string(raw.JSON) {
			return out, nil
		}
	}
	stored, decodeErr := typed[R]("do", raw)
	return stored, errors.Join(err, decodeErr)
}

// recordTime is how long recording may take after Act; it does not depend on the caller's context, which may have ended.
const recordTime = 10 * time.Second

// actFailed records that Act failed for certain, or tells that nobody knows.
func (t *Tool[A, R]) actFailed(ctx context.Context, hold *Reservation, cause error) error {
	if notApplied(cause) {
		e := &Error{
			Code: ErrNotApplied, Op: "do", Call: hold.CallInfo, Err: cause,
			Reason: "the tool says that the effect did not happen; the reservation was given back; the same key may be tried again",
		}
		if err := hold.Release(ctx, "act: not applied"); err != nil {
			e.Reason = "the tool says that the effect did not happen; the reservation could not be given back now and will be swept"
			e.Err = errors.Join(cause, err)
		}
		return e
	}
	e := &Error{Code: ErrOutcomeUnknown, Op: "do", Call: hold.CallInfo, Err: cause, RetryAfter: retryMost}
	how := "call again with the same key to verify"
	switch {
	case hold.row.Idempotent:
		how = "call again with the same key once the deadline has passed"
	case t.Verify == nil:
		e.RetryAfter = 0
		how = "the tool cannot verify: a person must resolve it"
	}
	e.Reason = fmt.Sprintf("Act failed without saying whether the effect happened; the reservation stays and %s tokens stay debited; %s",
		tokens(hold.Tokens), how)
	return e
}

// notApplied tells whether Act marked its error. That a call which Act itself made was not applied marks nothing: what Act
// did before it may have happened.
func notApplied(cause error) bool {
	if e, ok := errors.AsType[*Error](cause); ok {
		return e.Code == ErrNotApplied && e.Op == opAct
	}
	return errors.Is(cause, ErrNotApplied)
}

// leaseKeeper extends a reservation while Act runs, and ends Act's context before the reservation does.
type leaseKeeper struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup
	stop   context.CancelFunc
}

// errNoTime is why Act's context ends while the caller's has not.
var errNoTime = errors.New("the reservation or the caller's time is about to end")

// actMargin is what Do keeps for recording: at most five seconds, at most a fifth of what is left.
func actMargin(left time.Duration) time.Duration { return min(5*time.Second, left/5) }

// keep starts extending hold; the context that Act gets ends after timeout, well before ctx's deadline, and when the
// reservation is lost or cannot be extended in time.
func keep(ctx context.Context, hold *Reservation, timeout time.Duration) *leaseKeeper {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline) //nolint:forbidigo // a context's deadline is in real time
		timeout = min(timeout, left-actMargin(left))
	}
	limited, stop := context.WithTimeout(ctx, timeout)
	k := &leaseKeeper{stop: stop}
	k.ctx, k.cancel = context.WithCancelCause(limited)
	lease := hold.deadline().Sub(hold.s.t.l.now())
	if lease <= 0 { // the reserve took longer than it reserved for
		k.cancel(errNoTime)
	}
	k.done.Go(func() { k.extend(hold, lease) })
	return k
}

// extend moves the deadline every third of a lease. As long as it cannot, Act goes on until shortly before the deadline
// that is still recorded, also while an extension waits for its answer.
func (k *leaseKeeper) extend(hold *Reservation, lease time.Duration) {
	end := time.AfterFunc(lease-actMargin(lease), func() { k.cancel(errNoTime) })
	defer end.Stop()
	tick := time.NewTicker(max(lease/3, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
		err := hold.Extend(k.ctx, lease)
		switch {
		case err == nil: // from the deadline that was written, which a slow answer has brought nearer
			left := hold.deadline().Sub(hold.s.t.l.now())
			end.Reset(left - actMargin(left))
		case errors.Is(err, ErrSuperseded):
			k.cancel(err)
			return
		case k.ctx.Err() == nil:
			hold.s.t.l.cfg.Logger.LogAttrs(k.ctx, slog.LevelWarn, "reservation not extended",
				slog.String("tool", hold.Tool), slog.String("row_id", hold.RowID), slog.String("error", err.Error()))
		}
	}
}

func (k *leaseKeeper) end() {
	k.cancel(nil)
	k.done.Wait()
	k.stop()
}
