package writers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Commit records an effect that is harmless to repeat, or made by c.Writes: quota, row, cursor and writes in one
// transaction. result is stored and replayed byte for byte. A call that was applied before gives its stored result with
// OutcomeReplayed.
// Errors: ErrInvalid, ErrMissingTenant, ErrKeyConflict, ErrInProgress, ErrOutcomeUnknown, ErrQuotaExhausted, ErrNotProvisioned,
// ErrSuspended, ErrSessionMoved, ErrWriteRefused, ErrNotCompensable, ErrTooLarge, ErrUnavailable; ctx's, before anything is
// sent.
func (s Session) Commit(ctx context.Context, c Call, result any) (Raw, error) {
	r, err := s.newRequest("commit", c)
	if err != nil {
		return Raw{}, err
	}
	r.commit = true
	if err := r.checkWrites(); err != nil {
		return Raw{}, err
	}
	text, err := encodeResult(r.op, result)
	if err != nil {
		return Raw{}, err
	}
	if r.result, err = r.l.storeResult(ctx, r.op, s.t.id, r.nonce, text); err != nil {
		return Raw{}, err
	}
	out, err := r.write(ctx)
	switch {
	case err != nil:
		return Raw{}, err
	case out.done != nil:
		return *out.done, nil
	}
	return Raw{
		Outcome: OutcomeApplied, Value: text, JSON: text, Attempt: int(out.row.AppliedAttempt), Charged: out.row.Charged,
		RowID: out.row.RowID, EffectKey: schema.EffectKey(r.key),
	}, nil
}

// Reserve debits c.Tokens and records the call as pending. Exactly one of the three results is set: act only with a
// Reservation; done is the stored result of an earlier attempt.
// Errors: as Commit, without ErrWriteRefused.
func (s Session) Reserve(ctx context.Context, c Call) (hold *Reservation, done *Raw, err error) {
	r, err := s.newRequest("reserve", c)
	if err != nil {
		return nil, nil, err
	}
	out, err := r.write(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case out.done != nil:
		raw := *out.done
		return nil, &raw, nil
	}
	return r.reservation(out.row), nil, nil
}

// written is how the first transaction of a call ended: our own row, or what an earlier attempt left.
type written struct {
	row   *schema.Row
	done  *Raw
	again bool // nothing has ended: the row has changed, and is to be looked at anew before anything is done about it
}

// write sends the call's transaction until it is written, or until what is found decides otherwise. Each turn does one
// request that may change something; turns are bounded.
func (c *request) write(ctx context.Context) (written, error) {
	pay := payer{l: c.l, tenant: c.s.t.id, op: c.op, key: c.Key.id, tokens: c.Tokens}
	var found *schema.Row // the row that is there, as last seen
	if c.Retry {
		row, err := c.l.readRow(ctx, c.key)
		if err != nil {
			return written{}, c.failed(ctx, err)
		}
		found = row
	}
	if err := c.readOriginal(ctx); err != nil {
		return written{}, err
	}
	waits := c.newWaiter()
	for range protocol.MaxTries {
		if found != nil {
			out, next, err := c.decide(ctx, found, &waits)
			if err != nil || out.row != nil || out.done != nil {
				return out, err
			}
			found = next // nil: nothing is in the way; failed: to be taken over
			if out.again && found != nil {
				continue
			}
		}
		debits, err := pay.debits(ctx)
		if err != nil {
			if found, err = c.rowFirst(ctx, found, err); err != nil {
				return written{}, c.denied(ctx, err)
			}
			continue
		}
		if c.losses >= protocol.MaxLost {
			return written{}, unavailable(c.op, c.loss)
		}
		row, err := c.attempt(ctx, found, debits)
		if err == nil {
			return written{row: row}, nil
		}
		if found, err = c.refused(ctx, err, found, &pay); err != nil {
			return written{}, err
		}
	}
	c.observe(ctx, observation{giveUps: 1}, nil)
	return written{}, contention(c.op, protocol.MaxTries)
}

// rowFirst believes a refusal for which no transaction was asked at the same moment (no plan, tokens that are gone, an
// original that is not what it was) only where the row has not changed since: it decides first. Another caller of the same
// call may have spent the last tokens, or compensated the original, on behalf of this one.
func (c *request) rowFirst(ctx context.Context, found *schema.Row, refusal error) (*schema.Row, error) {
	if e, ok := errors.AsType[*Error](refusal); ok && e.Code == ErrUnavailable {
		return nil, refusal
	}
	row, err := c.l.readRow(ctx, c.key)
	switch {
	case err != nil:
		return nil, c.failed(ctx, err)
	case row == nil, found != nil && row.RowID == found.RowID && row.Version == found.Version:
		return nil, refusal
	}
	return row, nil
}

// attempt sends one transaction. With found, a failed row, it is a takeover, else a first reserve or commit.
func (c *request) attempt(ctx context.Context, found *schema.Row, debits []schema.Debit) (*schema.Row, error) {
	now := c.l.now()
	row := c.newRow(debits, now)
	tx := protocol.NewTx(2 + len(debits) + len(c.Writes)) // with row and session
	t := c.l.tables
	switch {
	case found == nil:
		tx.Add(protocol.Part{Kind: protocol.PartRow}, t.PutRow(row, now))
	case c.commit:
		tx.Add(protocol.Part{Kind: protocol.PartRow}, t.CommitFailed(found, row))
	default:
		tx.Add(protocol.Part{Kind: protocol.PartRow}, t.Takeover(found, row))
	}
	if err := c.addQuota(tx, row, now); err != nil {
		return nil, err
	}
	c.addSession(tx, now)
	for i, w := range c.Writes {
		tx.Add(protocol.Part{Kind: protocol.PartWrite, Index: i}, w)
	}
	if len(tx.Items) > protocol.MaxItems {
		return nil, invalid(c.op, "writes", fmt.Sprintf("are %d; with the %d items of the call itself, which several quota shards pay, "+
			"they are more than the %d that a transaction takes", len(c.Writes), len(tx.Items)-len(c.Writes), protocol.MaxItems))
	}
	if err := protocol.Send(ctx, c.l.db, tx); err != nil {
		return nil, err
	}
	if found != nil {
		row.RowID, row.Attempt, row.Version = found.RowID, found.Attempt+1, found.Version+1
		if c.commit {
			row.AppliedAttempt = row.Attempt
		}
	}
	return row, nil
}

// addSession checks the cursor where a reservation expects one, and moves it where a commit says so.
func (c *request) addSession(tx *protocol.Tx, now time.Time) {
	part, t := protocol.Part{Kind: protocol.PartSession}, c.l.tables
	switch {
	case c.commit && c.Cursor != "":
		tx.Add(part, t.MoveCursor(c.s.key(), c.Cursor, c.ExpectCursor, now, now.Add(c.l.sessionKeep())))
	case c.ExpectCursor != nil:
		tx.Add(part, t.CheckCursor(c.s.key(), *c.ExpectCursor))
	}
}

// sessionKeep is how long a session's cursor outlives its last move: longer than any reservation that may still move it.
func (l *Ledger) sessionKeep() time.Duration { return l.cfg.Keep + maxLease }

// refused turns a failed try into the row to look at next, or into the answer.
func (c *request) refused(ctx context.Context, err error, found *schema.Row, pay *payer) (*schema.Row, error) {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == ErrNotCompensable {
		return c.rowFirst(ctx, found, err)
	}
	no, ok := errors.AsType[*protocol.Refused](err)
	if !ok {
		return c.lost(ctx, err)
	}
	answer, i := no.Decide()
	reason := no.Reasons[i]
	switch answer {
	case protocol.RowRefused:
		return c.foundRow(reason.Item)
	case protocol.Contended:
		c.tries++
		pay.contended()
		if err := protocol.Pause(ctx, int(c.tries)); err != nil {
			return nil, c.failed(ctx, err)
		}
		return found, nil
	case protocol.OriginalRefused:
		return found, c.readOriginal(ctx) // it has changed since it was read
	case protocol.WriteRefused:
		return c.writeRefused(ctx, no.Parts[i].Index)
	case protocol.QuotaRefused:
		if key := no.Parts[i].Key; reason.Item == nil && c.refundsTo(key) {
			if c.gone == nil {
				c.gone = map[schema.Key]bool{}
			}
			c.gone[key] = true
			return found, nil
		}
		if err := pay.refused(ctx, no.Parts[i].Key, reason.Item); err != nil {
			row, err := c.rowFirst(ctx, found, err)
			return row, c.denied(ctx, err)
		}
		return found, nil
	case protocol.SessionRefused:
		return nil, sessionMoved(c.op, c.s.id, cursorOf(reason.Item), c.ExpectCursor)
	case protocol.PlanRefused, protocol.GrantRefused, protocol.Broken:
	}
	return nil, c.broken(no, i)
}

// broken answers an item that DynamoDB does not take. Where it is the tool's own write, the caller has to mend it.
func (c *request) broken(no *protocol.Refused, i int) error {
	if no.Parts[i].Kind == protocol.PartWrite {
		e := invalid(c.op, "writes", "are not accepted by DynamoDB")
		e.Index, e.Err = no.Parts[i].Index, no
		return e
	}
	return rejected(c.op, no)
}

// foundRow reads the row that a refused transaction returned. None means that it is gone: the next try begins anew.
func (c *request) foundRow(item schema.Item) (*schema.Row, error) {
	if item == nil {
		return nil, nil
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	if err != nil {
		return nil, unreadable(c.op, err)
	}
	return row, nil
}

// lost decides after an answer that says nothing: a consistent read tells whether the transaction was applied. Only an
// absent row is sent again, with the same nonce, so that even a late arrival of the first is recognised.
func (c *request) lost(ctx context.Context, err error) (*schema.Row, error) {
	if row := c.l.lookAfter(ctx, err, c.key); row != nil && c.own(row) {
		return row, nil
	}
	if _, ok := errors.AsType[*protocol.Unsure](err); !ok {
		return nil, c.failed(ctx, err)
	}
	c.losses, c.loss = c.losses+1, err
	row, readErr := c.l.readBack(ctx, c.key)
	switch {
	case readErr != nil:
		return nil, unavailable(c.op, errors.Join(err, readErr))
	case row != nil:
		return row, nil
	case ctx.Err() != nil:
		return nil, unavailable(c.op, err)
	}
	c.tries++
	if protocol.Pause(ctx, int(c.tries)) != nil {
		return nil, unavailable(c.op, err)
	}
	return nil, nil
}

// lost tells whether err is that of a transaction whose answer was lost, and nobody has looked yet whether it was applied.
func lost(err error) bool {
	_, told := errors.AsType[*Error](err)
	_, unsure := errors.AsType[*protocol.Unsure](err)
	return unsure && !told
}

// failed turns an error of a request that surely changed nothing into the answer.
func (c *request) failed(ctx context.Context, err error) error { return failure(ctx, c.op, err) }

func failure(ctx context.Context, op string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*schema.DecodeError](err); ok {
		return unreadable(op, err)
	}
	if _, ok := errors.AsType[*protocol.Rejected](err); ok {
		return rejected(op, err)
	}
	if _, ok := errors.AsType[*protocol.Unsure](err); ok {
		return unavailable(op, err)
	}
	if cause := ctx.Err(); cause != nil {
		e := unavailable(op, cause)
		e.Reason = "the context ended before anything was written"
		return e
	}
	return unavailable(op, err)
}

// writeRefused believes that the tool's own write failed only after looking at the row: where an earlier try of ours was
// applied and its answer lost, the write fails because of itself.
func (c *request) writeRefused(ctx context.Context, index int) (*schema.Row, error) {
	row, err := c.l.readRow(ctx, c.key)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if row != nil && (c.own(row) || row.State != schema.StateFailed) {
		return row, nil
	}
	return nil, &Error{
		Code: ErrWriteRefused, Op: c.op, Index: index,
		Reason: "the condition of the tool's own write does not hold; nothing was written; another action was first",
	}
}

func cursorOf(item schema.Item) string {
	if item == nil {
		return ""
	}
	s, err := schema.DecodeSession(schema.FieldsOf(item))
	if err != nil {
		return ""
	}
	return s.Cursor
}
