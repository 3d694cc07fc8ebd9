package writers

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// mode is how an effect is recorded, by what is known of the row.
type mode int

const (
	modeHolder mode = iota // Finalize: the holder's attempt is pending
	modeFenced             // SettleFenced: a newer attempt is pending
	modeFailed             // SettleLate: the row has failed
	modeNew                // SettleNew: the row is gone
	modeRead               // SweepFinalize, VerifySettle, Resolve: somebody who looked, on the row as read
)

// settler records one effect: row, quota, cursor and the call that is compensated, in one transaction. What may not stop
// it (quota items that are gone, a cursor that moved, an original that changed) is left out on the next try.
type settler struct {
	l       *Ledger
	op      string
	s       Session
	key     Key
	row     schema.Row // as reserved or as read: what the call is
	result  stored
	charged int64
	by      string // SettledByHolder, SettledByVerify, SettledByPerson
	who     string
	why     string
	late    string // row id of modeNew

	mode    mode
	applied int64       // the attempt that took effect
	found   *schema.Row // modeFenced, modeFailed: the row in the way

	gone          map[schema.Key]bool // quota items that are not there any more
	created       bool                // the running period's quota was created on the way
	capped        bool                // a debit on top of the reservation was refused
	cap           int64               // what the item had that refused it
	cursorRefused bool
	cursorFound   string
	original      *schema.Row
	losses        int   // tries so far whose answer was lost
	appliedCharge int64 // what the applied transaction charged
}

// settled is how one try ended: applied, to be tried again, or refused because of the row that is there (nil: none).
type settled struct {
	applied, again bool
	row            *schema.Row
}

// try sends one transaction and reads the answer.
func (s *settler) try(ctx context.Context, n int) (settled, error) {
	tx, charged, err := s.build(ctx)
	if err != nil {
		return settled{}, err
	}
	err = protocol.Send(ctx, s.l.db, tx)
	if err == nil {
		s.appliedCharge = charged
		return settled{applied: true}, nil
	}
	if _, ok := errors.AsType[*protocol.Unsure](err); ok {
		row, readErr := s.l.readBack(ctx, s.row.Key)
		s.losses++
		if readErr != nil || !s.recorded(row) && (ctx.Err() != nil || s.losses >= protocol.MaxLost) {
			return settled{}, s.unavailable(errors.Join(err, readErr))
		}
		if protocol.Pause(ctx, n+1) != nil && !s.recorded(row) {
			return settled{}, s.unavailable(err)
		}
		return settled{row: row}, nil
	}
	no, ok := errors.AsType[*protocol.Refused](err)
	if !ok {
		if row := s.l.lookAfter(ctx, err, s.row.Key); s.recorded(row) {
			return settled{row: row}, nil
		}
		return settled{}, failure(ctx, s.op, err)
	}
	return s.refused(ctx, no, n)
}

func (s *settler) recorded(row *schema.Row) bool {
	return row != nil && row.State == schema.StateApplied
}

func (s *settler) unavailable(err error) *Error {
	e := unavailable(s.op, err)
	e.Call = s.s.info(s.key, &s.row)
	e.Reason = "DynamoDB did not answer; the effect may or may not be recorded; finalize again, or call again with the same key"
	return e
}

func (s *settler) refused(ctx context.Context, no *protocol.Refused, n int) (settled, error) {
	answer, i := no.Decide()
	switch item := no.Reasons[i].Item; answer {
	case protocol.RowRefused:
		row, err := decodeFound(s.op, item)
		return settled{row: row}, err
	case protocol.Contended:
		if err := protocol.Pause(ctx, n+1); err != nil {
			return settled{}, s.unavailable(err)
		}
	case protocol.QuotaRefused:
		if err := s.quotaRefused(ctx, no.Parts[i].Key, item); err != nil {
			return settled{}, err
		}
	case protocol.SessionRefused:
		s.cursorRefused, s.cursorFound = true, cursorOf(item)
	case protocol.OriginalRefused:
		s.original = nil // the original was replaced, or compensated by another key: recorded without it
	default:
		return settled{}, rejected(s.op, no)
	}
	return settled{again: true}, nil
}

// quotaRefused notes an item that is gone, or that has less than a final charge asks on top. Where nothing was debited
// before, the running period may just not have been used yet: only without a plan is its item left out, not because of a
// failure to create it, which would make the effect free of charge.
func (s *settler) quotaRefused(ctx context.Context, key schema.Key, item schema.Item) error {
	if item == nil {
		id, err := schema.ParseKey(key)
		if err == nil && !s.created && (s.mode == modeNew || len(s.row.Debits) == 0) {
			s.created = true
			if _, err = s.l.createQuota(ctx, s.op, s.s.t.id, id.Period); !errors.Is(err, ErrNotProvisioned) {
				return err
			}
		}
		s.gone[key] = true
		return nil
	}
	q, err := schema.DecodeQuota(schema.FieldsOf(item))
	if err != nil || s.capped {
		s.cap = math.MinInt64 / 2 // refused again, or not readable: record without more debits
	} else {
		s.cap = q.Remaining
	}
	s.capped = true
	return nil
}

// build makes the transaction of the current mode.
func (s *settler) build(ctx context.Context) (*protocol.Tx, int64, error) {
	if s.gone == nil {
		s.gone = map[schema.Key]bool{}
	}
	now, t := s.l.now(), s.l.tables
	bill, err := s.bill(ctx)
	if err != nil {
		return nil, 0, err
	}
	tx := protocol.NewTx(4)
	part := protocol.Part{Kind: protocol.PartRow}
	st := protocol.Settlement{
		Applied: s.applied, ResultJSON: s.result.inline, ResultRef: s.result.ref, Charged: bill.charged, Shortfall: bill.shortfall,
		Debits: bill.debits, SettledBy: s.by, By: s.who, Why: s.why, Now: now, ExpiresAt: s.l.expiresAt(&s.row, bill.debits, now),
	}
	rowID, attempt := s.row.RowID, s.row.Attempt
	switch s.mode {
	case modeHolder:
		tx.Add(part, t.Settle(s.row.Key, protocol.Holder(rowID, attempt), st))
	case modeFenced:
		st.KeepDebits, st.Suspect = true, schema.SuspectName(rowID, s.found.Attempt)
		st.ExpiresAt = s.l.expiresAt(&s.row, s.found.Debits, now)
		tx.Add(part, t.Settle(s.row.Key, protocol.Guard{
			State: schema.StatePending, RowID: rowID, Attempt: s.found.Attempt, Compare: "=",
		}, st))
	case modeFailed:
		tx.Add(part, t.Settle(s.row.Key, protocol.Guard{
			State: schema.StateFailed, RowID: rowID, Attempt: attempt, Compare: ">=", Version: s.found.Version,
		}, st))
	case modeNew:
		tx.Add(part, t.PutRow(s.newRow(st, now), now))
	case modeRead:
		tx.Add(part, t.Settle(s.row.Key, protocol.AsRead(&s.row), st))
	}
	s.addRest(tx, bill, now)
	return tx, bill.charged, nil
}

// addRest adds quota, cursor and original, netted so that no item is named twice.
func (s *settler) addRest(tx *protocol.Tx, b bill, now time.Time) {
	t, amounts := s.l.tables, b.amounts
	if o := s.original; o != nil {
		link := protocol.Link{Original: o, By: s.key.undoes(o, s.row.Session), End: true, Refund: s.row.RefundOriginal}
		if link.Refund {
			amounts = append(amounts, refundable(string(s.s.t.id), o.Debits, s.gone)...)
		}
		tx.Add(protocol.Part{Kind: protocol.PartOriginal}, t.Compensate(link, now))
	}
	amounts = protocol.Net(append(amounts, b.extra...))
	for _, a := range amounts {
		part := protocol.Part{Kind: protocol.PartQuota, Key: a.Key}
		if a.Tokens < 0 && b.bounded {
			tx.Add(part, t.DebitExtra(a.Key, -a.Tokens, b.overdraft))
			continue
		}
		tx.Add(part, t.Adjust(a.Key, a.Tokens))
	}
	expect := s.row.ExpectCursor
	if s.row.Cursor == "" || s.cursorRefused || s.mode != modeHolder && expect == nil {
		return
	}
	session := schema.SessionKey(string(s.s.t.id), s.row.Session)
	tx.Add(protocol.Part{Kind: protocol.PartSession}, t.MoveCursor(session, s.row.Cursor, expect, now, now.Add(s.l.sessionKeep())))
}

// newRow is the row of an effect whose own row is gone.
func (s *settler) newRow(st protocol.Settlement, now time.Time) *schema.Row {
	o := &s.row
	return &schema.Row{
		Key: o.Key, RowID: s.late, Holder: s.late, Version: 1, Attempt: st.Applied, State: schema.StateApplied, Tool: o.Tool,
		IntentHash: o.IntentHash, ArgHashes: o.ArgHashes, Session: o.Session, Scope: o.Scope, Idempotent: o.Idempotent,
		Verifier: o.Verifier, Horizon: o.Horizon, Keep: o.Keep, Cursor: o.Cursor, ExpectCursor: o.ExpectCursor, Trace: o.Trace,
		Lookup: o.Lookup, Reserved: o.Reserved, Charged: st.Charged, Shortfall: st.Shortfall, Debits: st.Debits,
		ResultJSON: st.ResultJSON, ResultRef: st.ResultRef, AppliedAttempt: st.Applied, SettledBy: st.SettledBy, SettledFrom: o.RowID,
		CreatedAt: o.CreatedAt, UpdatedAt: now, LastDeadline: o.Deadline, ExpiresAt: st.ExpiresAt,
		Compensates: o.Compensates, RefundOriginal: o.RefundOriginal,
	}
}

// bill is what an effect costs and where that comes from: charged = the sum of debits + shortfall.
type bill struct {
	charged   int64
	debits    []schema.Debit
	shortfall int64
	amounts   []protocol.Amount // refunds, and debits that are made whatever remains
	extra     []protocol.Amount // debits on top of the reservation
	bounded   bool              // extra takes only what is there and the overdraft
	overdraft int64
}

// bill works out the debits of the current mode.
func (s *settler) bill(ctx context.Context) (bill, error) {
	tenant := string(s.s.t.id)
	switch s.mode {
	case modeFenced: // the newer attempt has paid, for the one effect that there is
		paid := schema.SumDebits(s.found.Debits)
		return bill{charged: paid, debits: s.found.Debits}, nil
	case modeFailed:
		return s.debitAgain(tenant, s.found.Debits), nil
	case modeNew:
		debits, err := s.current(ctx, s.charged)
		if err != nil {
			return bill{}, err
		}
		return s.debitAgain(tenant, debits), nil
	case modeRead:
		if s.row.State == schema.StateFailed {
			return s.debitAgain(tenant, s.row.Debits), nil
		}
		return s.keepOrRefund(ctx, tenant)
	case modeHolder:
	}
	return s.keepOrRefund(ctx, tenant)
}

// debitAgain debits an effect that had been given back, on the given items as far as they exist, whatever remains there.
func (s *settler) debitAgain(tenant string, last []schema.Debit) bill {
	b := bill{charged: s.charged}
	left := s.charged
	for i, d := range s.present(tenant, last) {
		n := min(d.Tokens, left)
		if i == 0 { // what is charged on top of the reservation goes to the first item
			n = min(d.Tokens+max(s.charged-schema.SumDebits(last), 0), left)
		}
		if n > 0 {
			b.debits = append(b.debits, schema.Debit{Period: d.Period, Shard: d.Shard, Tokens: n})
			b.amounts = append(b.amounts, protocol.Amount{Key: d.Key(tenant), Tokens: -n})
		}
		left -= n
	}
	b.shortfall = left
	return b
}

func (s *settler) present(tenant string, debits []schema.Debit) []schema.Debit {
	var there []schema.Debit
	for _, d := range debits {
		if !s.gone[d.Key(tenant)] {
			there = append(there, d)
		}
	}
	return there
}

// keepOrRefund turns a reservation's debits into the final charge: the rest goes back, more is taken where it is there.
func (s *settler) keepOrRefund(ctx context.Context, tenant string) (bill, error) {
	b := bill{charged: s.charged}
	left := s.charged
	for _, d := range s.present(tenant, s.row.Debits) {
		n := min(d.Tokens, left)
		left -= n
		if n > 0 {
			b.debits = append(b.debits, schema.Debit{Period: d.Period, Shard: d.Shard, Tokens: n})
		}
		if n < d.Tokens {
			b.amounts = append(b.amounts, protocol.Amount{Key: d.Key(tenant), Tokens: d.Tokens - n})
		}
	}
	b.shortfall = left
	extra := s.charged - schema.SumDebits(s.row.Debits)
	if extra <= 0 || s.mode != modeHolder {
		return b, nil
	}
	return b, s.addExtra(ctx, tenant, &b, extra)
}

// addExtra takes what a final charge asks on top of the reservation, as far as the quota and the plan's overdraft go.
func (s *settler) addExtra(ctx context.Context, tenant string, b *bill, extra int64) error {
	plan, err := s.l.plan(ctx, s.op, s.s.t.id)
	if err != nil {
		plan = &schema.Plan{Shards: 1} // no plan to be had: no overdraft, and recording goes on
	}
	target := b.debits
	if len(target) == 0 {
		if target, err = s.current(ctx, extra); err != nil {
			return err
		}
		target = s.present(tenant, target)
	}
	if len(target) == 0 {
		return nil
	}
	d := target[0]
	b.overdraft = share(plan.Overdraft, d.Shard, int(max(plan.Shards, int64(d.Shard)+1)))
	if s.capped {
		extra = min(extra, s.cap+b.overdraft+s.undone(d.Key(tenant)))
	}
	if extra <= 0 {
		return nil
	}
	b.bounded = true
	b.shortfall -= extra
	b.extra = []protocol.Amount{{Key: d.Key(tenant), Tokens: -extra}}
	if len(b.debits) == 0 {
		b.debits = []schema.Debit{{Period: d.Period, Shard: d.Shard, Tokens: extra}}
		return nil
	}
	b.debits[0].Tokens += extra
	return nil
}

// undone is what the same transaction gives back to a quota item, since the call undoes one that had debited it.
func (s *settler) undone(item schema.Key) (n int64) {
	if s.original == nil || !s.row.RefundOriginal {
		return 0
	}
	for _, a := range refundable(string(s.s.t.id), s.original.Debits, s.gone) {
		if a.Key == item {
			n += a.Tokens
		}
	}
	return n
}

// current names the quota item of the running period that pays where no earlier debit says which; none where the tenant
// has no plan.
func (s *settler) current(ctx context.Context, n int64) ([]schema.Debit, error) {
	if n == 0 {
		return nil, nil
	}
	pay := payer{l: s.l, tenant: s.s.t.id, op: s.op, key: s.key.id, tokens: n}
	debits, err := pay.debits(ctx)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == ErrNotProvisioned {
		return nil, nil
	}
	if err != nil {
		return nil, failure(ctx, s.op, err)
	}
	return debits, nil
}

// settleVerified records an effect that the outside world reports, on the row as it was read; moved is false where the
// row has changed since. It charges what was reserved, and moves the cursor only where an expected one is stored and holds.
func (l *Ledger) settleVerified(ctx context.Context, row *schema.Row, result json.RawMessage) (moved bool, err error) {
	const op = "verify"
	text, err := encodeResult(op, result)
	if err != nil {
		return false, err
	}
	return l.settleRead(ctx, op, row, text, schema.SettledByVerify, "", "")
}

// settleRead is settleVerified for a verifier or a person.
func (l *Ledger) settleRead(ctx context.Context, op string, row *schema.Row, result json.RawMessage, by, who, why string) (moved bool, err error) {
	id, err := schema.ParseKey(row.Key)
	if err != nil {
		return false, unreadable(op, err)
	}
	session := l.Tenant(TenantID(id.Tenant)).Session(row.Session)
	res, err := l.storeResult(ctx, op, TenantID(id.Tenant), row.RowID, result)
	if err != nil {
		return false, err
	}
	s := &settler{
		l: l, op: op, s: session, key: Key{id: id.CallKey, tenant: id.Scope == schema.ScopeTenant}, row: *row, result: res,
		charged: row.Reserved, by: by, who: who, why: why, mode: modeRead, applied: row.Attempt,
	}
	if err := s.readOriginal(ctx); err != nil {
		return false, err
	}
	for n := range protocol.MaxTries {
		end, err := s.try(ctx, n)
		switch {
		case err != nil:
			return false, err
		case end.applied:
			return true, nil
		case end.again:
			continue
		case end.row != nil && end.row.Version == row.Version && end.row.RowID == row.RowID:
			continue // nothing was written yet
		}
		return false, nil
	}
	return false, contention(op, protocol.MaxTries)
}
