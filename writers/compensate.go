package writers

import (
	"context"
	"strings"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// readOriginal reads the call that this one compensates, where it does: its identity is a condition of what follows.
func (c *request) readOriginal(ctx context.Context) error {
	if c.Compensates == (Key{}) {
		return nil
	}
	row, err := c.l.readRow(ctx, c.s.rowKey(c.Compensates))
	if err != nil {
		return c.failed(ctx, err)
	}
	c.original = row
	return nil
}

// sameOriginal tells whether the row undoes the same call as this one, or none as this one does. Which call is undone is part
// of the action: taken over for another one, the first would stay linked to this key for good, and a replay would say
// that something was undone which never was.
func (c *request) sameOriginal(found *schema.Row) bool {
	if c.Compensates == (Key{}) {
		return found.Compensates == ""
	}
	return found.Compensates == c.Compensates.name() && (c.Compensates.tenant || found.Session == c.s.id)
}

// notCompensable says why a call cannot be undone.
func (c *request) notCompensable(why string) *Error {
	return &Error{Code: ErrNotCompensable, Op: c.op, Reason: "the call with key " + quoted(c.Compensates.id) + " " + why +
		"; nothing was written"}
}

// addQuota adds the debits and, for a compensating call, the original's part, netted with them.
func (c *request) addQuota(tx *protocol.Tx, row *schema.Row, now time.Time) error {
	t, tenant := c.l.tables, string(c.s.t.id)
	if c.Compensates == (Key{}) {
		for _, d := range row.Debits {
			key := d.Key(tenant)
			tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: key}, t.Debit(key, d.Tokens))
		}
		return nil
	}
	o := c.original
	switch {
	case o == nil:
		return c.notCompensable("is not in the ledger")
	case o.State != schema.StateApplied:
		return c.notCompensable("has not taken effect")
	case o.CompensatedBy != "" && o.Undoer() != c.Key.undoes(o, c.s.id):
		return c.notCompensable("is compensated by another call")
	case !o.CompensatedAt.IsZero():
		return c.notCompensable("is compensated already")
	}
	link := protocol.Link{Original: o, By: c.Key.undoes(o, c.s.id), Begin: true, End: c.commit, Refund: c.commit && c.RefundOriginal}
	tx.Add(protocol.Part{Kind: protocol.PartOriginal}, t.Compensate(link, now))
	refunds := map[schema.Key]int64{}
	var order []protocol.Amount
	if link.Refund {
		for _, a := range refundable(tenant, o.Debits, c.gone) {
			refunds[a.Key] += a.Tokens
			order = append(order, a)
		}
	}
	for _, d := range row.Debits {
		key := d.Key(tenant)
		part := protocol.Part{Kind: protocol.PartQuota, Key: key}
		back := refunds[key]
		delete(refunds, key)
		switch {
		case back < d.Tokens:
			tx.Add(part, t.Debit(key, d.Tokens-back))
		case back > d.Tokens:
			tx.Add(part, t.Adjust(key, back-d.Tokens))
		}
	}
	for _, a := range order {
		if n, ok := refunds[a.Key]; ok {
			delete(refunds, a.Key)
			tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: a.Key}, t.Adjust(a.Key, n))
		}
	}
	return nil
}

// refundsTo tells whether a quota item takes part because the original is refunded to it, not because this call pays:
// periods that are over are not made anew for a refund.
func (c *request) refundsTo(key schema.Key) bool {
	if c.original == nil || !c.commit || !c.RefundOriginal || c.gone[key] {
		return false
	}
	id, err := schema.ParseKey(key)
	if err != nil || schema.PeriodEnd(id.Period).IsZero() || schema.PeriodEnd(id.Period).After(c.l.now()) {
		return false
	}
	return true
}

// readOriginal reads the call that the settled one compensates; nil where it is gone or not linked to this key.
func (s *settler) readOriginal(ctx context.Context) error {
	scope, id, ok := strings.Cut(s.row.Compensates, ":")
	if !ok {
		return nil
	}
	k := Key{id: id, tenant: scope == string(schema.ScopeTenant)}
	row, err := s.l.readRow(ctx, schema.RowKey(string(s.s.t.id), s.row.Session, k.scope(), id))
	if err != nil {
		return failure(ctx, s.op, err)
	}
	if row != nil && row.State == schema.StateApplied && row.Undoer() == s.key.undoes(row, s.row.Session) && row.CompensatedAt.IsZero() {
		s.original = row
	}
	return nil
}
