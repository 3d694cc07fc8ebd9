package writers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Resolution is a verdict and who gave it.
type Resolution struct {
	Verdict Verdict // EffectAbsent counts only after deadline, skew and horizon
	RowID   string  // the row that was looked at; "" does not ask for one
	Attempt int     // the attempt that was looked at; a newer one makes the Resolution fail with ErrSuperseded
	Result  any     // for EffectApplied
	By, Why string  // kept in the row; up to 256 bytes and 1 KB
}

const maxBy = 256

// Resolve records a verdict on a pending or expired call from somebody who is not its holder: a host that looked, an
// operator. EffectApplied counts at any time and charges what was reserved; EffectAbsent refunds, and counts only after the
// deadline, the skew and the effect horizon. The same verdict again changes nothing.
// Errors: ErrInvalid, ErrMissingTenant, ErrNotFound, ErrInProgress, ErrSuperseded, ErrTooLarge, ErrUnavailable.
func (s Session) Resolve(ctx context.Context, k Key, r Resolution) (Row, error) {
	const op = "resolve"
	key, err := s.checkKey(op, k)
	if err != nil {
		return Row{}, err
	}
	if err := r.check(op); err != nil {
		return Row{}, err
	}
	for n := range protocol.MaxTries {
		row, err := s.t.l.readRow(ctx, key)
		switch {
		case err != nil:
			return Row{}, failure(ctx, op, err)
		case row == nil:
			return Row{}, notFound(op, k)
		case r.RowID != "" && row.RowID != r.RowID, row.Attempt != int64(r.Attempt):
			return Row{}, s.resolvedOther(op, k, row, "another attempt is there by now; look at that one")
		}
		done, err := s.resolve(ctx, op, k, row, r)
		if lost(err) && ctx.Err() == nil && n+1 < protocol.MaxLost {
			err = nil // the next read tells
		}
		switch {
		case err != nil:
			return Row{}, failure(ctx, op, err)
		case done:
			return s.Get(ctx, k)
		}
		if err := protocol.Pause(ctx, n+1); err != nil {
			return Row{}, failure(ctx, op, err)
		}
	}
	return Row{}, contention(op, protocol.MaxTries)
}

func (r Resolution) check(op string) error {
	if r.Verdict != EffectApplied && r.Verdict != EffectAbsent {
		return invalid(op, "verdict", "must be EffectApplied or EffectAbsent")
	}
	if r.Attempt < 1 {
		return invalid(op, "attempt", "must be at least 1")
	}
	for field, v := range map[string]struct {
		text  string
		limit int
	}{"by": {r.By, maxBy}, "why": {r.Why, maxWhy}} {
		if err := schema.CheckText(field, v.text, v.limit); err != nil {
			return invalidID(op, err)
		}
	}
	return nil
}

func (s Session) resolvedOther(op string, k Key, row *schema.Row, why string) *Error {
	return &Error{Code: ErrSuperseded, Op: op, Call: s.info(k, row), Reason: why + "; nothing was written"}
}

// resolve writes one verdict on the row as read; done is false where the row has changed since.
func (s Session) resolve(ctx context.Context, op string, k Key, row *schema.Row, r Resolution) (done bool, err error) {
	if r.Verdict == EffectApplied {
		if row.State == schema.StateApplied {
			return true, nil
		}
		text, err := encodeResult(op, r.Result)
		if err != nil {
			return false, err
		}
		moved, err := s.t.l.settleRead(ctx, op, row, text, schema.SettledByPerson, r.By, r.Why)
		return moved, err
	}
	l := s.t.l
	now, settles := l.now(), l.settles(row)
	switch {
	case row.State == schema.StateApplied:
		return false, s.resolvedOther(op, k, row, "the call is recorded as applied")
	case row.State == schema.StateFailed && (row.Failure == schema.FailureResolved || row.Unverified == 0):
		return true, nil
	case !now.After(settles):
		return false, &Error{
			Code: ErrInProgress, Op: op, Call: s.info(k, row), RetryAfter: settles.Sub(now) + time.Millisecond, Reason: fmt.Sprintf(
				"attempt %d may still land until %s; before that its absence proves nothing; nothing was written", row.Attempt, clock(settles, now)),
		}
	}
	return s.resolveAbsent(ctx, op, row, r)
}

// resolveAbsent is a person's "it did not happen". Where the tool has no verifier that could be asked before the next attempt, the
// person's word stands in for it.
func (s Session) resolveAbsent(ctx context.Context, op string, row *schema.Row, r Resolution) (done bool, err error) {
	l, gone := s.t.l, map[schema.Key]bool{}
	unverified := int64(schema.UnverifiedVouched)
	if row.Verifier {
		unverified = schema.UnverifiedExpired
	}
	for n := range protocol.MaxTries {
		now := l.now()
		tx := protocol.NewTx(1 + len(row.Debits))
		tx.Add(protocol.Part{Kind: protocol.PartRow}, l.tables.Fail(row.Key, protocol.AsRead(row), protocol.Failure{
			Kind: schema.FailureResolved, Unverified: unverified, By: r.By, Why: r.Why, Now: now,
			ExpiresAt: l.expiresAt(row, row.Debits, now),
		}))
		if row.State == schema.StatePending {
			l.tables.AddAmounts(tx, refundable(string(s.t.id), row.Debits, gone))
		}
		err := protocol.Send(ctx, l.db, tx)
		if err == nil {
			return true, nil
		}
		if _, ok := errors.AsType[*protocol.Unsure](err); ok {
			return false, err // the next read tells
		}
		no, ok := errors.AsType[*protocol.Refused](err)
		if !ok {
			return false, failure(ctx, op, err)
		}
		switch answer, i := no.Decide(); answer {
		case protocol.RowRefused:
			return false, nil
		case protocol.QuotaRefused:
			gone[no.Parts[i].Key] = true
		case protocol.Contended:
			if err := protocol.Pause(ctx, n+1); err != nil {
				return false, failure(ctx, op, err)
			}
		default:
			return false, rejected(op, no)
		}
	}
	return false, contention(op, protocol.MaxTries)
}
