package streams

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// rowChange is one write of one ledger row, being read.
type rowChange struct {
	c       *Change
	id      *schema.ItemID
	was, is *schema.Row // nil: there was none, there is none
	changed attrs
	evs     []events.Event
}

// breach is a rule of the protocol that a change broke, and the attributes that show it.
type breach struct {
	rule  string
	attrs attrs
}

// deriveRow reads the change of a ledger row by the state machine of the protocol. Whatever is not one of its
// transitions, with exactly the attributes that this transition may change, is tampering.
func (d *deriver) deriveRow(evs []events.Event, c *Change) ([]events.Event, error) {
	rc := &d.row
	*rc = rowChange{c: c, id: &d.id, evs: evs}
	if c.Old != nil {
		if err := c.Old.ReadRow(&d.was, c.Keys, &d.id); err != nil {
			return evs, unreadable(err)
		}
		rc.was = &d.was
	}
	if c.New != nil {
		if err := c.New.ReadRow(&d.is, c.Keys, &d.id); err != nil {
			return evs, unreadable(err)
		}
		rc.is = &d.is
	}
	if broken := rc.read(); broken != nil {
		// Events of the same change that were found lawful before the breach do not stand: none of them happened as such.
		rc.evs = rc.evs[:len(evs)]
		rc.tampered(broken)
	}
	return rc.evs, nil
}

func (rc *rowChange) read() *breach {
	switch {
	case rc.is == nil:
		return rc.removed()
	case rc.was == nil:
		return rc.inserted()
	case rc.was.RowID != rc.is.RowID:
		return rc.replaced()
	}
	rc.changed = changedAttrs(rc.was, rc.is)
	if rc.changed == 0 && sameImage(rc.c.Old, rc.c.New) {
		return nil // DynamoDB writes no record for this; a stand-in may
	}
	return rc.modified()
}

// skewMargin is how far ahead of DynamoDB's clock an operator's may be when it removes what has expired.
const skewMargin = 2 * time.Minute

func (rc *rowChange) removed() *breach {
	was := rc.was
	switch {
	case !was.Terminal():
		return &breach{"a pending row is never removed", aState}
	case was.ExpiresAt.IsZero():
		return &breach{"a row that never expires is never removed", aExpiresAt}
	case rc.c.TTL:
		rc.archived("ttl", rc.c.Time)
	case was.Erasing:
		rc.archived("erased", rc.c.Time)
	case !rc.c.Time.Add(skewMargin).Before(was.ExpiresAt):
		rc.archived("expired", rc.c.Time)
	default:
		return &breach{"a row is removed only after it expired or was marked for erasure", aExpiresAt}
	}
	return nil
}

// replaced reads a new row over one that had expired: DynamoDB removes those days late.
func (rc *rowChange) replaced() *breach {
	was, is := rc.was, rc.is
	switch {
	case !was.Terminal():
		return &breach{"a pending row is never replaced", aRowID | aState}
	case was.ExpiresAt.IsZero() || was.ExpiresAt.Unix() >= is.UpdatedAt.Unix(): // a late settlement keeps its reservation's createdAt
		return &breach{"a row is replaced only after it expired", aRowID | aExpiresAt}
	}
	rc.archived("replaced", is.UpdatedAt)
	return rc.inserted()
}

func (rc *rowChange) inserted() *breach {
	is := rc.is
	switch {
	case is.Version != 1:
		return &breach{"a new row begins at version 1", aVersion}
	case is.Erasing:
		return &breach{"a new row is not marked for erasure", aErasing}
	case is.Undoer() != (schema.Undoer{}) || !is.CompensatedAt.IsZero():
		return &breach{"a new row is not compensated", aCompensatedBy | aCompensatedAt}
	case is.State == schema.StateFailed:
		return &breach{"a row does not begin as failed", aState}
	case is.SettledFrom != "":
		return rc.settledNew()
	case is.Attempt != 1:
		return &breach{"a new row begins at attempt 1", aAttempt}
	case is.Unverified != 0 || len(is.Suspects) > 0:
		return &breach{"nothing can be suspected of a new row", aUnverified | aSuspects}
	}
	if is.State == schema.StatePending {
		return rc.then(checkPending(is, rc.id), rc.reserved)
	}
	broken := checkApplied(is)
	switch {
	case broken != nil:
		return broken
	case is.AppliedAttempt != 1:
		return &breach{"a commit takes effect with attempt 1", aApplied}
	case !is.LastDeadline.IsZero():
		return &breach{"a committed row never had a deadline", aLastDeadline}
	}
	rc.applied(0)
	return nil
}

// settledNew reads an effect recorded by a late worker whose row is gone.
func (rc *rowChange) settledNew() *breach {
	is := rc.is
	broken := checkApplied(is)
	switch {
	case is.State != schema.StateApplied:
		return &breach{"a row settled from another one is applied", aState | aSettledFrom}
	case broken != nil:
		return broken
	case is.SettledFrom == is.RowID:
		return &breach{"a row is not settled from itself", aSettledFrom}
	case is.AppliedAttempt != is.Attempt:
		return &breach{"a late worker records its own attempt", aApplied | aAttempt}
	}
	rc.settledLate()
	return nil
}

// then emits where nothing is broken.
func (rc *rowChange) then(broken *breach, emit func()) *breach {
	if broken == nil {
		emit()
	}
	return broken
}

// header is that of the row as it is after the change.
func (rc *rowChange) header() events.Header {
	return rc.headerOf(rc.is, orTime(rc.is.UpdatedAt, rc.c.Time))
}

func (rc *rowChange) headerOf(r *schema.Row, at time.Time) events.Header {
	return events.Header{
		Schema: events.Schema, Tenant: rc.id.Tenant, Session: r.Session, Scope: string(r.Scope), Key: rc.id.CallKey, Tool: r.Tool,
		RowID: r.RowID, Version: r.Version, Attempt: int(r.Attempt), Trace: r.Trace, Time: at,
	}
}

func (rc *rowChange) emit(ev events.Event) {
	rc.evs = append(rc.evs, events.Identify(ev, ev.Head().RowID))
}

func (rc *rowChange) archived(reason string, at time.Time) {
	rc.emit(&events.LedgerRowArchived{Header: rc.headerOf(rc.was, at), State: rc.was.State, Reason: reason})
}

func (rc *rowChange) reserved() {
	rc.emit(&events.ToolCallReserved{
		Header: rc.header(), ReservedTokens: rc.is.Reserved, Deadline: rc.is.Deadline, Unverified: rc.is.Unverified != 0,
		ContentionRetries: rc.is.Contention,
	})
}

// applied reports the effect; held is what quota items had been debited before.
func (rc *rowChange) applied(held int64) {
	is := rc.is
	sum, size := resultDigest(is)
	ev := &events.ToolEffectApplied{
		Header: rc.header(), ReservedTokens: is.Reserved, ChargedTokens: is.Charged, ShortfallTokens: is.Shortfall,
		RefundedTokens: max(held-is.Charged, 0), ResultSHA256: sum, ResultBytes: size,
		AppliedAttempt: int(is.AppliedAttempt), SettledBy: is.SettledBy, Unverified: is.Unverified != 0,
	}
	if rc.was == nil || rc.was.State != schema.StatePending {
		ev.ContentionRetries = is.Contention
	}
	if is.SettledBy == schema.SettledByPerson {
		ev.By = is.By
	}
	rc.emit(ev)
}

func (rc *rowChange) settledLate() {
	is := rc.is
	sum, size := resultDigest(is)
	ev := &events.ToolEffectSettledLate{
		Header: rc.header(), ChargedTokens: is.Charged, ShortfallTokens: is.Shortfall, ResultSHA256: sum, ResultBytes: size,
		AppliedAttempt: int(is.AppliedAttempt), SettledBy: is.SettledBy, SettledFrom: is.SettledFrom, Unverified: is.Unverified != 0,
	}
	if is.SettledBy == schema.SettledByPerson {
		ev.By = is.By
	}
	rc.emit(ev)
}

// suspected reports the attempts that joined the suspects.
func (rc *rowChange) suspected() {
	var before []string
	if rc.was != nil {
		before = rc.was.Suspects
	}
	var added []string
	for _, s := range rc.is.Suspects {
		if !slices.Contains(before, s) {
			added = append(added, strings.ToValidUTF8(s, "\uFFFD"))
		}
	}
	slices.Sort(added)
	rc.emit(&events.SuspectedDoubleEffect{Header: rc.header(), Suspects: added})
}

// tampered reports a breach. The version cannot be trusted to have moved, so the id tells apart by sequence number.
func (rc *rowChange) tampered(broken *breach) {
	ev := &events.LedgerRowTampered{
		Operation: operations[rc.c.Op], Rule: broken.rule, Attributes: broken.attrs.names(),
	}
	row := rc.is
	if row == nil {
		row = rc.was
	}
	ev.Header = rc.headerOf(row, rc.c.Time)
	if rc.was != nil {
		ev.From = rc.was.State
		if rc.was.RowID != row.RowID {
			ev.Replaced = rc.was.RowID
		}
	}
	if rc.is != nil {
		ev.To = rc.is.State
	}
	rc.evs = append(rc.evs, events.Identify(ev, row.RowID+"/"+rc.c.Sequence))
}

var operations = map[string]string{OpInsert: "insert", OpModify: "modify", OpRemove: "remove"}

// resultDigest is the hash and size of the stored result, wherever its bytes are kept.
func resultDigest(r *schema.Row) (sum string, size int64) {
	switch {
	case r.ResultRef != nil:
		return hexDigest(r.ResultRef.SHA256), r.ResultRef.Bytes
	case r.ResultJSON != nil:
		digest := sha256.Sum256([]byte(*r.ResultJSON))
		return hexDigest(digest[:]), int64(len(*r.ResultJSON))
	}
	return "", 0
}

func hexDigest(sum []byte) string {
	var digits [2 * sha256.Size]byte
	return string(digits[:hex.Encode(digits[:], sum[:min(len(sum), sha256.Size)])])
}
