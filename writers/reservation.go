package writers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"toolledger/internal/canon"
	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Reservation is the right to act on one attempt of a call. Its methods are safe for concurrent use; Extend moves Deadline,
// which must not be read meanwhile.
type Reservation struct {
	CallInfo
	Tokens int64 // debited

	s    Session
	row  schema.Row // as reserved: what a late settlement has to know when the row itself is gone
	late string     // rowId of the row that SettleNew writes, chosen once
	mu   sync.Mutex
}

func (c *request) reservation(row *schema.Row) *Reservation { return c.s.hold(c.Key, row) }

func (s Session) hold(k Key, row *schema.Row) *Reservation {
	return &Reservation{CallInfo: s.info(k, row), Tokens: row.Reserved, s: s, row: *row}
}

// Reservation returns the reservation of an attempt whose row id and number the caller kept, from the row as it is now:
// for doors whose callers hold no Token. It decides nothing: whether the attempt still owns the call is found out by
// Finalize, Release and Extend. One read. Errors: ErrInvalid, ErrMissingTenant, ErrNotFound, ErrUnavailable.
func (s Session) Reservation(ctx context.Context, k Key, rowID string, attempt int) (*Reservation, error) {
	const op = "reservation"
	key, err := s.checkKey(op, k)
	if err != nil {
		return nil, err
	}
	if err := schema.CheckID("row_id", rowID, maxRowID); err != nil { // it may end up among the suspects of the row that is there
		return nil, invalidID(op, err)
	}
	if attempt < 1 {
		return nil, invalid(op, "attempt", "must be at least 1")
	}
	row, err := s.t.l.readRow(ctx, key)
	switch {
	case err != nil:
		return nil, failure(ctx, op, err)
	case row == nil:
		return nil, notFound(op, k)
	}
	if row.RowID != rowID {
		row.Idempotent = false // nothing is known of the row that was meant: the result that is here may be another action's
	}
	row.RowID, row.Attempt = rowID, int64(attempt)
	return s.hold(k, row), nil
}

// Release records that the effect surely did not happen, and refunds. A reservation that has expired, or is gone, was
// refunded already: that is no error. why, up to 1 KB, is kept in the row.
// Errors: ErrInvalid, ErrSuperseded, ErrUnavailable.
func (r *Reservation) Release(ctx context.Context, why string) error {
	const op = "release"
	if err := r.check(op); err != nil {
		return err
	}
	why = clip(why, maxWhy)
	l, gone := r.s.t.l, map[schema.Key]bool{}
	for n := range protocol.MaxTries {
		now := l.now()
		tx := protocol.NewTx(1 + len(r.row.Debits))
		tx.Add(protocol.Part{Kind: protocol.PartRow}, l.tables.Fail(r.row.Key, protocol.Holder(r.RowID, r.row.Attempt), protocol.Failure{
			Kind: schema.FailureReleased, Why: why, Now: now, ExpiresAt: l.expiresAt(&r.row, r.row.Debits, now),
		}))
		l.tables.AddAmounts(tx, refundable(string(r.s.t.id), r.row.Debits, gone))
		found, again, err := r.sent(ctx, op, protocol.Send(ctx, l.db, tx), n, gone)
		if err != nil {
			return err
		}
		if !again {
			if found == nil {
				return nil
			}
			again, err = r.afterRelease(found)
			if !again || err != nil {
				return err
			}
		}
	}
	return contention(op, protocol.MaxTries)
}

// afterRelease decides on the row that a release found instead of its own pending attempt.
func (r *Reservation) afterRelease(found *schema.Row) (again bool, err error) {
	switch {
	case found.RowID != r.RowID || found.Attempt != r.row.Attempt: // lower: a number that the row has not come to
		return false, r.superseded("release", found)
	case found.State == schema.StateFailed:
		return false, nil
	case found.State == schema.StateApplied:
		return false, r.superseded("release", found)
	}
	return true, nil
}

// sent sorts the answer to a transaction of the holder: found is the row that decides (nil where the transaction was
// applied, or where the row is gone), again asks for the next try.
func (r *Reservation) sent(ctx context.Context, op string, err error, n int, gone map[schema.Key]bool) (found *schema.Row, again bool, _ error) {
	if err == nil {
		return nil, false, nil
	}
	if _, ok := errors.AsType[*protocol.Unsure](err); ok {
		row, readErr := r.s.t.l.readBack(ctx, r.row.Key)
		if readErr != nil || row != nil && row.State == schema.StatePending && (ctx.Err() != nil || n+1 >= protocol.MaxLost) {
			return nil, false, unavailable(op, errors.Join(err, readErr))
		}
		if row != nil && row.State == schema.StatePending && protocol.Pause(ctx, n+1) != nil {
			return nil, false, unavailable(op, err)
		}
		return row, false, nil
	}
	no, ok := errors.AsType[*protocol.Refused](err)
	if !ok {
		if row := r.s.t.l.lookAfter(ctx, err, r.row.Key); row != nil && row.Terminal() {
			return row, false, nil
		}
		return nil, false, failure(ctx, op, err)
	}
	switch answer, i := no.Decide(); answer {
	case protocol.RowRefused:
		row, err := decodeFound(op, no.Reasons[i].Item)
		return row, false, err
	case protocol.QuotaRefused:
		gone[no.Parts[i].Key] = true
		return nil, true, nil
	case protocol.Contended:
		if err := protocol.Pause(ctx, n+1); err != nil {
			return nil, false, failure(ctx, op, err)
		}
		return nil, true, nil
	default:
		return nil, false, rejected(op, no)
	}
}

func decodeFound(op string, item schema.Item) (*schema.Row, error) {
	if item == nil {
		return nil, nil
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	if err != nil {
		return nil, unreadable(op, err)
	}
	return row, nil
}

// Extend moves the deadline to lease from now, never back. Errors: ErrInvalid, ErrSuperseded (also where a person holds the call),
// ErrUnavailable.
func (r *Reservation) Extend(ctx context.Context, lease time.Duration) error {
	const op = "extend"
	if err := r.check(op); err != nil {
		return err
	}
	if lease == 0 {
		lease = defaultLease
	}
	if lease < time.Millisecond || lease > maxLease {
		return invalid(op, "lease", "must be between 1ms and "+maxLease.String())
	}
	l := r.s.t.l
	for n := range protocol.MaxTries {
		now := l.now()
		deadline := deadlineOf(now, lease)
		tx := protocol.NewTx(1)
		tx.Add(protocol.Part{Kind: protocol.PartRow}, l.tables.Extend(r.row.Key, r.RowID, r.row.Attempt, deadline, now))
		err := protocol.Send(ctx, l.db, tx)
		if err == nil {
			r.moved(deadline)
			return nil
		}
		found, again, err := r.sent(ctx, op, err, n, nil)
		switch {
		case err != nil:
			return err
		case again:
			continue
		case found == nil || found.RowID != r.RowID || found.Attempt != r.row.Attempt || found.State != schema.StatePending || found.Held:
			return r.superseded(op, found)
		case !found.Deadline.Before(deadline):
			r.moved(found.Deadline)
			return nil
		}
	}
	return contention(op, protocol.MaxTries)
}

func (r *Reservation) moved(deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if deadline.After(r.Deadline) {
		r.Deadline = deadline
	}
}

func (r *Reservation) deadline() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Deadline
}

// info copies what is told of the call, whose deadline an extension may be moving.
func (r *Reservation) info() CallInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.CallInfo
}

func (r *Reservation) superseded(op string, found *schema.Row) *Error {
	e := &Error{Code: ErrSuperseded, Op: op, Call: r.info()}
	if found == nil {
		e.Reason = "the call is not in the ledger any more; nothing was written"
		return e
	}
	e.Call = r.s.info(r.Key, found)
	switch {
	case found.RowID != r.RowID:
		e.Reason = "the key belongs to another action by now; this attempt owns nothing"
	case found.State == schema.StateApplied:
		e.Reason = "the call is recorded as applied; read its result with the same key"
	case found.Held:
		e.Reason = "the call is held for a person to decide; finalize is still accepted"
	case found.Attempt > r.row.Attempt:
		e.Reason = "a newer attempt owns the call; stop"
	case found.Attempt < r.row.Attempt:
		e.Reason = "the call has had no such attempt; nothing was written"
	default:
		e.Reason = "the reservation has been given back; stop, and finalize if the effect happened"
	}
	return e
}

func (r *Reservation) check(op string) error {
	if r == nil || r.s.t.l == nil {
		return invalid(op, "reservation", "must come from Reserve or Resume")
	}
	return nil
}

func notFound(op string, k Key) *Error {
	return &Error{Code: ErrNotFound, Op: op, Reason: "no call with key " + quoted(k.id) + " in this session"}
}

// token is a Reservation as it crosses processes.
type token struct {
	Version    int            `json:"v"`
	Tenant     string         `json:"t"`
	Session    string         `json:"s"`
	Key        string         `json:"k"`
	Wide       bool           `json:"w,omitempty"`
	RowID      string         `json:"r"`
	Attempt    int64          `json:"a"`
	Tool       string         `json:"o"`
	Intent     []byte         `json:"i"`
	ArgHashes  []byte         `json:"h,omitempty"`
	Debits     []schema.Debit `json:"d,omitempty"`
	Tokens     int64          `json:"n,omitempty"`
	Reserved   int64          `json:"c"`
	Deadline   int64          `json:"e"`
	Cursor     string         `json:"u,omitempty"`
	Expect     *string        `json:"x,omitempty"`
	Lookup     string         `json:"l,omitempty"`
	Keep       int64          `json:"p,omitempty"`
	Horizon    int64          `json:"z,omitempty"`
	Idempotent bool           `json:"m,omitempty"`
	Verifier   bool           `json:"f,omitempty"`
	Undoes     string         `json:"b,omitempty"`
	Refund     bool           `json:"g,omitempty"`
	Trace      string         `json:"q,omitempty"`
}

const (
	tokenVersion = 1
	maxRowID     = 64
)

// Token serialises the Reservation for another process (a Step Functions state, a queue); see Tenant.Resume. It holds
// identifiers, amounts and the lookup, no arguments. It is not signed: the tenant is checked where it is resumed, the amounts that
// a Release gives back are believed. Keep it where only your own programs write, and hand it to no client.
func (r *Reservation) Token() string {
	w := &r.row
	b, err := json.Marshal(token{
		Version: tokenVersion, Tenant: string(r.Tenant), Session: r.s.id, Key: r.Key.id, Wide: r.Key.tenant, RowID: r.RowID,
		Attempt: w.Attempt, Tool: w.Tool, Intent: w.IntentHash, ArgHashes: w.ArgHashes, Debits: w.Debits, Tokens: r.Tokens,
		Reserved: r.ReservedAt.UnixMilli(), Deadline: r.deadline().UnixMilli(), Cursor: w.Cursor, Expect: w.ExpectCursor,
		Lookup: w.Lookup, Keep: w.Keep.Milliseconds(), Horizon: w.Horizon.Milliseconds(), Idempotent: w.Idempotent,
		Verifier: w.Verifier, Undoes: w.Compensates, Refund: w.RefundOriginal, Trace: w.Trace,
	})
	if err != nil {
		return "" // strings, numbers and bytes always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// Resume turns a Reservation's Token into the Reservation again; a token of another tenant is refused. No request.
// Errors: ErrInvalid, ErrMissingTenant.
func (t Tenant) Resume(text string) (*Reservation, error) {
	const op = "resume"
	if err := t.check(op); err != nil {
		return nil, err
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	var k token
	if err != nil || json.Unmarshal(b, &k) != nil || k.Version != tokenVersion {
		return nil, invalid(op, "token", "is not one that Reservation.Token has made")
	}
	if k.Tenant != string(t.id) {
		return nil, invalid(op, "token", "belongs to another tenant")
	}
	key := Key{id: k.Key, tenant: k.Wide}
	s := t.Session(k.Session)
	rowKey, err := s.checkKey(op, key)
	if err != nil {
		return nil, err
	}
	if !k.valid() {
		return nil, invalid(op, "token", "is not one that Reservation.Token has made")
	}
	row := &schema.Row{
		Key: rowKey, RowID: k.RowID, Attempt: k.Attempt, State: schema.StatePending, Tool: k.Tool, IntentHash: k.Intent,
		ArgHashes: k.ArgHashes, Session: k.Session, Scope: key.scope(), Idempotent: k.Idempotent, Verifier: k.Verifier,
		Horizon: time.Duration(k.Horizon) * time.Millisecond, Keep: time.Duration(k.Keep) * time.Millisecond, Cursor: k.Cursor,
		ExpectCursor: k.Expect, Trace: k.Trace, Lookup: k.Lookup, Reserved: k.Tokens, Debits: k.Debits,
		CreatedAt: time.UnixMilli(k.Reserved).UTC(), Deadline: time.UnixMilli(k.Deadline).UTC(), Compensates: k.Undoes, RefundOriginal: k.Refund,
	}
	return s.hold(key, row), nil
}

// valid refuses what would put an item into the table that no writer could have put there.
func (k *token) valid() bool {
	for _, text := range []struct {
		value string
		limit int
	}{{k.RowID, maxRowID}, {k.Lookup, maxLookup}, {k.Cursor, maxCursor}, {deref(k.Expect), maxCursor}, {k.Trace, maxTrace}} {
		if schema.CheckText("", text.value, text.limit) != nil {
			return false
		}
	}
	bad := k.RowID == "" || k.Attempt < 1 || len(k.Intent) != 32 || len(k.ArgHashes) > canon.MaxEncodedBytes || k.Tokens < 0 ||
		k.Tokens > schema.MaxTokens || k.Keep < 0 || k.Keep > maxKeep.Milliseconds() || k.Horizon < 0 || k.Horizon > maxLease.Milliseconds() ||
		schema.CheckID("tool", k.Tool, schema.MaxTool) != nil || !millis(k.Deadline) || !millis(k.Reserved)
	if scope, id, _ := strings.Cut(k.Undoes, ":"); k.Undoes != "" {
		bad = bad || scope != string(schema.ScopeSession) && scope != string(schema.ScopeTenant) || SessionKey(id).check() != nil
	}
	return !bad && k.validDebits()
}

// millis tells whether n is a time that an item may hold.
func millis(n int64) bool { return n >= 1e12 && n <= 1e14 }

func (k *token) validDebits() bool {
	named := map[schema.Key]bool{}
	for _, d := range k.Debits {
		key := d.Key(k.Tenant)
		if d.Shard < 0 || d.Shard >= schema.MaxShards || d.Tokens < 1 || d.Tokens > schema.MaxTokens || !schema.ValidPeriod(d.Period) || named[key] {
			return false
		}
		named[key] = true
	}
	return true
}
