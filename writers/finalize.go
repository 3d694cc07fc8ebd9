package writers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Finalize records that the effect happened. charged may be lower (the rest is refunded) or higher than Tokens; what the
// quota and the plan's overdraft cannot cover is recorded as a shortfall, since recording never fails on quota.
// After an expiry it settles late and debits again. Where the session's cursor has moved on, the effect is recorded and
// the Result is set beside ErrSessionMoved. Finalizing twice gives the stored result again.
// Errors: ErrInvalid (charged, or a result that is not JSON), ErrSuperseded, ErrSessionMoved, ErrTooLarge, ErrUnavailable; the row
// is then as it was, but for ErrSuperseded and ErrSessionMoved.
func (r *Reservation) Finalize(ctx context.Context, result any, charged int64) (Raw, error) {
	const op = "finalize"
	if err := r.check(op); err != nil {
		return Raw{}, err
	}
	if charged < 0 || charged > schema.MaxTokens {
		return Raw{}, invalid(op, "charged", "must be between 0 and 2^53")
	}
	text, err := encodeResult(op, result)
	if err != nil {
		return Raw{}, err
	}
	l := r.s.t.l
	res, err := l.storeResult(ctx, op, r.s.t.id, r.RowID, text)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Code == ErrTooLarge {
			e.Call = r.info()
			e.Reason += "; the effect happened and the row is still pending; finalize again with a smaller result before " + clock(r.deadline(), l.now())
		}
		return Raw{}, err
	}
	s := &settler{l: l, op: op, s: r.s, key: r.Key, row: r.row, result: res, charged: charged, by: schema.SettledByHolder}
	s.row.Deadline = r.deadline() // as extended: what the row of a settlement that has to write a new one says
	return r.finalize(ctx, s)
}

// finalize tries to record until the row says that it is recorded, or that it belongs to somebody else.
func (r *Reservation) finalize(ctx context.Context, s *settler) (Raw, error) {
	s.mode, s.applied, s.late = modeHolder, r.row.Attempt, r.lateID()
	if err := s.readOriginal(ctx); err != nil {
		return Raw{}, err
	}
	for n := range protocol.MaxTries {
		found, err := s.try(ctx, n)
		switch {
		case err != nil:
			return Raw{}, err
		case found.again:
			continue
		case found.applied:
			return s.answer(s.outcome(), s.result.json, s.appliedCharge, s.writtenRow())
		}
		if out, done, err := r.afterFinalize(ctx, s, found.row); done {
			return out, err
		}
	}
	return Raw{}, contention(s.op, protocol.MaxTries)
}

// lateID chooses the row id of a settlement that has to write a new row, once per reservation, so that its repeat is
// recognised.
func (r *Reservation) lateID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late == "" {
		r.late = rand.Text()
	}
	return r.late
}

// afterFinalize looks at the row that stood in the way. Either it has the answer (done), or it says how to record the
// effect that happened all the same.
func (r *Reservation) afterFinalize(ctx context.Context, s *settler, found *schema.Row) (out Raw, done bool, err error) {
	attempt := r.row.Attempt
	switch {
	case found == nil || found.Expired(s.l.now()):
		s.mode, s.found = modeNew, nil
		return Raw{}, false, nil
	case found.RowID == s.late, found.SettledFrom == r.RowID && found.AppliedAttempt == attempt:
		return s.stored(ctx, found, OutcomeSettledLate)
	case found.RowID != r.RowID:
		return r.suspect(ctx, s, found)
	case found.State == schema.StateApplied && found.AppliedAttempt == attempt:
		return s.stored(ctx, found, s.outcome())
	case found.State == schema.StateApplied:
		return r.suspect(ctx, s, found)
	case found.Attempt < attempt:
		return Raw{}, true, r.superseded(s.op, found)
	case found.State == schema.StateFailed:
		s.mode, s.found = modeFailed, found
	case found.Attempt > attempt:
		s.mode, s.found = modeFenced, found
	default:
		s.mode, s.found = modeHolder, nil // still ours: nothing was written yet
	}
	return Raw{}, false, nil
}

// suspect records on the row of another attempt that this one may have taken effect too. An idempotent tool's caller
// gets the result that counts, any other is told that it was superseded.
func (r *Reservation) suspect(ctx context.Context, s *settler, found *schema.Row) (Raw, bool, error) {
	name := schema.SuspectName(r.RowID, r.row.Attempt)
	tx := protocol.NewTx(1)
	tx.Add(protocol.Part{Kind: protocol.PartRow}, s.l.tables.Suspect(found.Key, found.RowID, name, s.l.now()))
	err := protocol.Send(ctx, s.l.db, tx)
	no, refused := errors.AsType[*protocol.Refused](err)
	if _, unsure := errors.AsType[*protocol.Unsure](err); unsure {
		if s.losses++; s.losses < protocol.MaxLost && protocol.Pause(ctx, 1) == nil {
			return Raw{}, false, nil // look again: what was recorded refuses to be recorded twice
		}
	}
	if err != nil && !refused {
		return Raw{}, true, failure(ctx, s.op, err)
	}
	if refused {
		answer, i := no.Decide()
		if answer != protocol.RowRefused {
			err := protocol.Pause(ctx, 1)
			return Raw{}, err != nil, wrapFailure(ctx, s.op, err)
		}
		row, err := decodeFound(s.op, no.Reasons[i].Item)
		if err != nil {
			return Raw{}, true, err
		}
		if row == nil || row.RowID != found.RowID {
			return Raw{}, false, nil // yet another row by now: look again
		}
		found = row // recorded before
	}
	if found.State == schema.StateApplied && r.row.Idempotent && found.Idempotent && string(found.IntentHash) == string(r.row.IntentHash) {
		return s.stored(ctx, found, OutcomeReplayed)
	}
	return Raw{}, true, r.superseded(s.op, found)
}

// stored answers with what the row has.
func (s *settler) stored(ctx context.Context, found *schema.Row, outcome Outcome) (Raw, bool, error) {
	text, err := s.l.loadResult(ctx, s.op, found)
	if err != nil {
		return Raw{}, true, err
	}
	s.applied = found.AppliedAttempt
	out, err := s.answer(outcome, text, found.Charged, found.RowID)
	return out, true, err
}

// writtenRow is the id of the row that the last transaction wrote.
func (s *settler) writtenRow() string {
	if s.mode == modeNew {
		return s.late
	}
	return s.row.RowID
}

func (s *settler) answer(outcome Outcome, text json.RawMessage, charged int64, rowID string) (Raw, error) {
	out := Raw{
		Outcome: outcome, Value: text, JSON: text, Attempt: int(s.applied), Charged: charged,
		RowID: rowID, EffectKey: schema.EffectKey(s.row.Key),
	}
	if s.cursorRefused {
		e := sessionMoved(s.op, s.s.id, s.cursorFound, s.row.ExpectCursor)
		e.Call = s.s.info(s.key, &s.row)
		e.Reason = "the effect is recorded, but the session's cursor was moved by somebody else and stays; read the session's calls and plan again"
		return out, e
	}
	return out, nil
}

func (s *settler) outcome() Outcome {
	if s.mode == modeHolder || s.mode == modeRead {
		return OutcomeApplied
	}
	return OutcomeSettledLate
}
