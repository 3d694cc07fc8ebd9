package writers

import (
	"bytes"
	"context"
	"errors"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// own tells whether a row that was found is what this very call wrote, its answer having been lost.
func (c *request) own(r *schema.Row) bool { return r.Holder == c.nonce }

// decide says what an existing row means for the call: it is our own, it has the result, or it refuses the call (out or
// err is set). Else next is what the following try has to deal with: nil for nothing, a failed row to be taken over, or,
// with out.again, the row as it is by now, of which nothing has been decided.
func (c *request) decide(ctx context.Context, found *schema.Row, waits *waiter) (out written, next *schema.Row, err error) {
	now := c.l.now()
	if found.Expired(now) {
		return written{}, nil, nil
	}
	if c.own(found) && (c.commit && found.State == schema.StateApplied || !c.commit && found.State == schema.StatePending) {
		return written{row: found}, nil, nil
	}
	if !bytes.Equal(found.IntentHash, c.intent.Hash[:]) || !c.sameOriginal(found) { // first of all: a key that belongs to another action is never answered as this one
		c.observe(ctx, observation{keyConflicts: 1}, found)
		return written{}, nil, c.conflict(found)
	}
	switch found.State {
	case schema.StateApplied:
		c.observe(ctx, observation{duplicates: 1}, found)
		done, err := c.l.raw(ctx, c.op, found, OutcomeReplayed)
		if err != nil {
			return written{}, nil, err
		}
		return written{done: &done}, nil, nil
	case schema.StateFailed:
		if found.Unverified == 0 {
			return written{}, found, nil // released: it surely did not happen
		}
	}
	return c.unsettled(ctx, found, waits, now)
}

// unsettled decides on a row whose effect nobody has recorded: pending, held, or given back unverified. Until the
// deadline, the clocks' skew and the effect horizon have passed an act may still land, and waiting is all there is.
// After that, whoever verified exactly this attempt goes on, and so does an idempotent tool.
func (c *request) unsettled(ctx context.Context, found *schema.Row, waits *waiter, now time.Time) (written, *schema.Row, error) {
	settles := c.l.settles(found)
	if !now.After(settles) {
		row, changed, err := waits.wait(ctx, found)
		if changed || err != nil {
			if err != nil {
				err = c.failed(ctx, err)
			}
			return written{again: true}, row, err
		}
		c.observe(ctx, observation{inFlight: 1}, found)
		return written{}, nil, c.inProgress(found, settles, c.l.now())
	}
	if !c.mayRepeat(found) {
		c.observe(ctx, observation{inFlight: 1}, found)
		return written{}, nil, c.unknown(found)
	}
	if found.State == schema.StateFailed {
		return written{}, found, nil
	}
	row, err := c.expire(ctx, found)
	return written{again: true}, row, err // somebody else may have come first: only the attempt that was verified is taken over
}

// settles is the moment from which "absent" counts: an act issued in time has landed by then.
func (l *Ledger) settles(r *schema.Row) time.Time {
	deadline := r.Deadline
	if deadline.IsZero() {
		deadline = r.LastDeadline
	}
	horizon := r.Horizon
	if horizon == 0 {
		horizon = defaultHorizon
	}
	return deadline.Add(l.cfg.Skew + horizon)
}

// mayRepeat tells whether another attempt may follow one whose outcome is not recorded. A person who vouched stands in
// for a verifier only where there is none.
func (c *request) mayRepeat(found *schema.Row) bool {
	info := c.info(found)
	v := c.VerifiedAbsent
	verified := v.RowID == info.RowID && v.Attempt == info.Attempt && v.Deadline.Equal(info.Deadline)
	vouched := found.State == schema.StateFailed && found.Unverified == schema.UnverifiedVouched && !c.verifier
	return verified || vouched || c.Idempotent && found.Idempotent
}

// expire gives an overdue reservation back on behalf of a caller that knows that it did not take effect, or that repeating
// it is harmless. It returns the row as it then is.
func (c *request) expire(ctx context.Context, found *schema.Row) (*schema.Row, error) {
	gone := map[schema.Key]bool{}
	if c.losses >= protocol.MaxLost {
		return nil, unavailable(c.op, c.loss)
	}
	for n := range protocol.MaxTries {
		now := c.l.now()
		tx := protocol.NewTx(1 + len(found.Debits))
		tx.Add(protocol.Part{Kind: protocol.PartRow}, c.l.tables.Fail(found.Key, protocol.AsRead(found), protocol.Failure{
			Kind: schema.FailureExpired, Unverified: schema.UnverifiedExpired, Now: now,
			ExpiresAt: c.l.expiresAt(found, found.Debits, now),
		}))
		c.l.tables.AddAmounts(tx, refundable(string(c.s.t.id), found.Debits, gone))
		err := protocol.Send(ctx, c.l.db, tx)
		no, refused := errors.AsType[*protocol.Refused](err)
		if err == nil || !refused {
			if _, unsure := errors.AsType[*protocol.Unsure](err); err != nil && !unsure {
				return nil, c.failed(ctx, err)
			}
			if err != nil {
				c.losses, c.loss = c.losses+1, err
			}
			row, err := c.l.readBack(ctx, c.key)
			if err != nil {
				return nil, c.failed(ctx, err)
			}
			return row, nil
		}
		switch answer, i := no.Decide(); answer {
		case protocol.RowRefused:
			return c.foundRow(no.Reasons[i].Item)
		case protocol.Contended:
			if err := protocol.Pause(ctx, n+1); err != nil {
				return nil, c.failed(ctx, err)
			}
		case protocol.QuotaRefused:
			gone[no.Parts[i].Key] = true
		default:
			return nil, c.broken(no, i)
		}
	}
	return nil, contention(c.op, protocol.MaxTries)
}

// refundable are the refunds of debits whose quota items still exist.
func refundable(tenant string, debits []schema.Debit, gone map[schema.Key]bool) []protocol.Amount {
	var amounts []protocol.Amount
	for _, a := range protocol.Refunds(tenant, debits) {
		if !gone[a.Key] {
			amounts = append(amounts, a)
		}
	}
	return amounts
}

// waiter waits for a call in flight, once per call and bounded by Call.Wait in real time.
type waiter struct {
	c    *request
	left time.Duration
}

func (c *request) newWaiter() waiter { return waiter{c, c.Wait} }

// How often a waiting call looks: soon at first, since most tools are quick.
const (
	pollFirst = 25 * time.Millisecond
	pollMost  = time.Second
)

// wait polls until the row is no longer as found was, and returns it; changed is false once the time is up.
func (w *waiter) wait(ctx context.Context, found *schema.Row) (row *schema.Row, changed bool, err error) {
	for gap := pollFirst; w.left > 0; gap = min(gap*2, pollMost) {
		nap := min(gap, w.left)
		w.left -= nap
		if err := protocol.Sleep(ctx, nap); err != nil {
			return nil, false, err
		}
		row, err := w.c.l.readRow(ctx, w.c.key)
		if err != nil {
			return nil, false, err
		}
		if row == nil || row.State != found.State || row.RowID != found.RowID || row.Attempt != found.Attempt {
			return row, true, nil
		}
	}
	return nil, false, nil
}
