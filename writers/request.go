package writers

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

// Limits of what a call brings along.
const (
	maxCursor = 1024
	maxLookup = 1024
	maxTrace  = 256
	maxWhy    = 1024
	maxWrites = 90 // with row, session and quota items within DynamoDB's 100
)

// request is a Call that has been checked, with everything that is equal on all its tries. Nothing keeps a pointer to one
// beyond the call, so that it can stay on the stack.
type request struct {
	Call
	op     string
	s      Session
	l      *Ledger
	key    schema.Key
	intent canon.Intent
	nonce  string // rowId of a first attempt, holder of any: tells our own lost write from somebody else's
	commit bool
	result stored     // commit only
	tries  int64      // contention retries so far
	losses int        // tries so far whose answer was lost
	loss   error      // the last of these
	row    schema.Row // what the last try wrote

	original *schema.Row         // the call that this one compensates, as read
	gone     map[schema.Key]bool // quota items of the original's debits that are not there any more
}

// newRequest checks c. Errors: ErrInvalid, ErrMissingTenant.
func (s Session) newRequest(op string, c Call) (r request, err error) {
	r = request{Call: c, op: op, s: s, l: s.t.l, nonce: rand.Text()}
	if r.key, err = s.checkKey(op, c.Key); err != nil {
		return r, err
	}
	if err := r.check(); err != nil {
		return r, err
	}
	if r.intent, err = canon.HashArgs(c.Tool, c.Args); err != nil {
		return r, invalidID(op, err)
	}
	return r, nil
}

func (c *request) check() error {
	if err := schema.CheckID("tool", c.Tool, schema.MaxTool); err != nil {
		return invalidID(c.op, err)
	}
	if c.Tokens < 0 || c.Tokens > schema.MaxTokens {
		return invalid(c.op, "tokens", "must be between 0 and 2^53")
	}
	for _, text := range []struct {
		field, value string
		limit        int
	}{
		{"cursor", c.Cursor, maxCursor},
		{"expect_cursor", deref(c.ExpectCursor), maxCursor},
		{"lookup", c.Lookup, maxLookup},
		{"trace", c.Trace, maxTrace},
	} {
		if err := schema.CheckText(text.field, text.value, text.limit); err != nil {
			return invalidID(c.op, err)
		}
	}
	return c.checkTimes()
}

func (c *request) checkTimes() error {
	for _, d := range []struct {
		field       string
		value, most time.Duration
	}{
		{"lease", c.Lease, maxLease},
		{"horizon", c.Horizon, maxLease},
		{"keep", c.Keep, maxKeep},
		{"wait", c.Wait, time.Hour},
	} {
		if d.value < 0 || d.value > d.most {
			return invalid(c.op, d.field, "must be between 0 and "+d.most.String())
		}
	}
	c.Lease, c.Horizon = cmp.Or(c.Lease, defaultLease), cmp.Or(c.Horizon, defaultHorizon)
	if c.Lease < time.Millisecond {
		return invalid(c.op, "lease", "must be at least 1ms")
	}
	if len(c.Writes) > 0 && c.op != "commit" {
		return invalid(c.op, "writes", "belong to Commit: a reservation cannot carry them")
	}
	return c.checkCompensates()
}

func (c *request) checkCompensates() error {
	if c.Compensates == (Key{}) {
		if c.RefundOriginal {
			return invalid(c.op, "refund_original", "needs compensates")
		}
		return nil
	}
	if err := c.Compensates.check(); err != nil {
		if e, ok := errors.AsType[*schema.IDError](err); ok {
			e.Field = "compensates"
		}
		return invalidID(c.op, err)
	}
	if c.Compensates == c.Key {
		return invalid(c.op, "compensates", "must be another call")
	}
	return nil
}

// checkWrites keeps the tool's own writes out of the ledger's tables: its items change by the ledger's rules only.
func (c *request) checkWrites() error {
	if len(c.Writes) > maxWrites {
		return invalid(c.op, "writes", fmt.Sprintf("are %d; the limit is %d", len(c.Writes), maxWrites))
	}
	for i, w := range c.Writes {
		field := fmt.Sprintf("writes[%d]", i)
		table, n, whole := partsOf(w)
		switch {
		case n != 1 || table == nil || *table == "":
			return invalid(c.op, field, "must be exactly one put, update, delete or check of a named table")
		case sameTable(*table, c.l.cfg.Table) || sameTable(*table, c.l.cfg.Control):
			return invalid(c.op, field, "must not name the ledger's tables")
		case !whole:
			return invalid(c.op, field, "must have its item, or its key and expression")
		}
	}
	return nil
}

// partsOf returns the table of a write, how many writes it is, and whether it has what DynamoDB requires of it: the SDK refuses
// to send one that has not, which would look like an answer that was lost.
func partsOf(w types.TransactWriteItem) (table *string, n int, whole bool) {
	if w.Put != nil {
		table, n, whole = w.Put.TableName, n+1, w.Put.Item != nil
	}
	if w.Update != nil {
		table, n, whole = w.Update.TableName, n+1, w.Update.Key != nil && w.Update.UpdateExpression != nil
	}
	if w.Delete != nil {
		table, n, whole = w.Delete.TableName, n+1, w.Delete.Key != nil
	}
	if w.ConditionCheck != nil {
		table, n, whole = w.ConditionCheck.TableName, n+1, w.ConditionCheck.Key != nil && w.ConditionCheck.ConditionExpression != nil
	}
	return table, n, whole
}

// sameTable tells whether two names or ARNs may mean one table.
func sameTable(a, b string) bool { return tableName(a) == tableName(b) }

func tableName(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '/' || s[i] == ':' {
			return s[i+1:]
		}
	}
	return s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// info is what a caller may know of a row.
func (c *request) info(r *schema.Row) CallInfo { return c.s.info(c.Key, r) }

func (s Session) info(k Key, r *schema.Row) CallInfo {
	info := CallInfo{
		Tenant: s.t.id, Session: r.Session, Key: k, Tool: r.Tool, RowID: r.RowID, Attempt: int(r.Attempt),
		EffectKey: schema.EffectKey(r.Key), Lookup: r.Lookup, Deadline: r.Deadline,
	}
	if info.Deadline.IsZero() {
		info.Deadline = r.LastDeadline
	}
	info.ReservedAt = r.ReservedAt
	if info.ReservedAt.IsZero() {
		info.ReservedAt = r.CreatedAt
	}
	return info
}

// newRow is the row that this try writes.
func (c *request) newRow(debits []schema.Debit, now time.Time) *schema.Row {
	r := &c.row
	*r = schema.Row{
		Key: c.key, RowID: c.nonce, Holder: c.nonce, Version: 1, Attempt: 1, State: schema.StatePending, Tool: c.Tool,
		IntentHash: bytes.Clone(c.intent.Hash[:]), ArgHashes: canon.EncodeArgHashes(c.intent.Args), Session: c.s.id, Scope: c.Key.scope(),
		Idempotent: c.Idempotent, Verifier: c.verifier, Horizon: c.Horizon, Keep: c.Keep, Cursor: c.Cursor, ExpectCursor: c.ExpectCursor,
		Trace: c.Trace, Lookup: c.Lookup, Reserved: c.Tokens, Debits: debits, Contention: c.tries, CreatedAt: now, UpdatedAt: now,
	}
	if c.Compensates != (Key{}) {
		r.Compensates, r.RefundOriginal = c.Compensates.name(), c.RefundOriginal
	}
	if c.commit {
		r.State, r.AppliedAttempt, r.SettledBy, r.Charged = schema.StateApplied, 1, schema.SettledByHolder, c.Tokens
		r.ResultJSON, r.ResultRef = c.result.inline, c.result.ref
		r.ExpiresAt = c.l.expiresAt(r, debits, now)
		return r
	}
	r.Deadline = deadlineOf(now, c.Lease)
	r.PendingBucket = schema.PendingBucket(c.Key.id)
	return r
}

// deadlineOf is the end of a lease in the resolution of the table: what the holder knows must equal what the row says, or an
// extension of the same moment looks like one that is not recorded yet, and a verdict on this deadline like one on another.
func deadlineOf(now time.Time, lease time.Duration) time.Time {
	return now.Add(lease).Truncate(time.Millisecond)
}
