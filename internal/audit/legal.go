package audit

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"toolledger/internal/schema"
)

// subject is the item that is being looked at.
type subject struct {
	*pass
	key schema.Key
	id  schema.ItemID
	at  *schema.Row // nil where it is no ledger row that can be read
}

func (s *subject) finding(attr, rule string) Finding {
	f := Finding{
		PK: s.key.PK, SK: s.key.SK, Kind: s.id.Kind.String(), Tenant: s.id.Tenant, Session: s.id.Session, Key: s.id.CallKey,
		Attr: attr, Rule: rule,
	}
	if s.at != nil {
		f.Session, f.RowID, f.State = s.at.Session, s.at.RowID, s.at.State
	}
	return f
}

func (s *subject) illegal(attr, rule string) {
	if s.checks {
		s.report.Illegal.add(s.finding(attr, rule), s.cfg.Limit)
	}
}

func (s *subject) note(attr, rule string) {
	if s.checks {
		s.report.Notes.add(s.finding(attr, rule), s.cfg.Limit)
	}
}

// foreign reports an item whose key is none of ours. Where it lies among a tenant's items it is ours gone wrong; elsewhere
// somebody keeps other things in the table.
func (p *pass) foreign(key schema.Key) {
	s := subject{pass: p, key: key}
	if strings.HasPrefix(strings.TrimPrefix(key.PK, "OBS#"), "TENANT#") {
		s.illegal("", "its key is not one that toolledger makes")
		return
	}
	s.note("", "is foreign: its key is not one of toolledger's")
}

func (s *subject) unreadable(err error) bool {
	if err == nil {
		return false
	}
	attr, rule := "", "cannot be read"
	if e, ok := errors.AsType[*schema.DecodeError](err); ok {
		attr, rule = e.Attr, "cannot be read: "+e.Rule
	}
	s.illegal(attr, rule)
	return true
}

func (s *subject) quota(item schema.Item) {
	q, err := schema.DecodeQuota(schema.FieldsOf(item))
	if s.unreadable(err) {
		return
	}
	s.quotas[s.key] = q
	// A plan lowered below what other shards have spent takes the rest from shard 0, whatever that was granted.
	s.require(q.Granted >= 0 || q.Shard == 0, schema.AGranted, "must not be negative")
	s.require(q.Shard == int64(s.id.Shard), schema.AShard, "must agree with the key")
	if s.id.Period == schema.AlwaysPeriod {
		s.require(q.ExpiresAt.IsZero(), schema.AExpiresAt, "must not be set: the period never ends")
		return
	}
	s.require(q.ExpiresAt.IsZero() || q.ExpiresAt.After(schema.PeriodEnd(s.id.Period)), schema.AExpiresAt,
		"must be after the period's end")
}

func (s *subject) require(holds bool, attr, rule string) {
	if !holds {
		s.illegal(attr, rule)
	}
}

func (s *subject) row(item schema.Item) {
	r, err := schema.DecodeRow(schema.FieldsOf(item))
	if s.unreadable(err) {
		return
	}
	s.at = r
	s.report.States[r.State]++
	if r.State != schema.StateFailed { // a failed row keeps its debits for a late settlement; they do not count
		for _, d := range r.Debits {
			key := d.Key(s.id.Tenant)
			s.debits[key] = add(s.debits[key], d.Tokens)
		}
	}
	if !s.checks {
		return
	}
	s.anyState()
	switch r.State {
	case schema.StatePending:
		s.pending()
	case schema.StateApplied:
		s.applied()
	case schema.StateFailed:
		s.failed()
	}
}

func (s *subject) anyState() {
	r := s.at
	s.require(r.Reserved >= 0 && schema.CheckText("", r.Tool, schema.MaxTool) == nil && r.Tool != "", schema.ATool,
		"must name the tool")
	s.require(!r.CreatedAt.IsZero(), schema.ACreatedAt, "is missing")
	s.require(!r.UpdatedAt.IsZero(), schema.AUpdatedAt, "is missing")
	s.require(r.Unverified <= schema.UnverifiedVouched, schema.AUnverified, "must be 0, 1 or 2")
	s.require(r.CompensatedAt.IsZero() || r.CompensatedBy != "", schema.ACompensatedAt, "must not be set without compensatedBy")
	s.require(r.CompensatedIn == "" || r.CompensatedBy != "", schema.ACompensatedIn, "must not be set without compensatedBy")
	if r.Terminal() {
		s.require(!r.ExpiresAt.IsZero(), schema.AExpiresAt, "is missing on a call that has ended")
		s.require(r.Deadline.IsZero(), schema.ADeadline, "must not be set on a call that has ended")
		s.require(r.PendingBucket == "", schema.APendingBucket, "must not be set on a call that has ended")
	}
	if r.State != schema.StateApplied {
		s.require(r.AppliedAttempt == 0, schema.AApplied, "must not be set on a call that did not take effect")
		s.require(r.ResultJSON == nil, schema.AResultJSON, "must not be set on a call that did not take effect")
		s.require(r.ResultRef == nil, schema.AResultRef, "must not be set on a call that did not take effect")
		s.require(r.CompensatedBy == "", schema.ACompensatedBy, "must not be set on a call that did not take effect")
	}
}

func (s *subject) pending() {
	r := s.at
	bucket := schema.PendingBucket(s.id.CallKey)
	if r.Held {
		bucket = schema.HeldBucket(s.id.CallKey)
	}
	s.require(!r.Deadline.IsZero(), schema.ADeadline, "is missing on a pending call")
	s.require(r.PendingBucket == bucket, schema.APendingBucket, "must be the bucket of the call key, or no sweep finds the call")
	s.require(r.ExpiresAt.IsZero(), schema.AExpiresAt, "must not be set: a pending call must never vanish by TTL")
	s.require(r.Failure == "", schema.AFailure, "must not be set on a pending call")
	s.require(sum(r.Debits) == r.Reserved, schema.ADebits, "must add up to what was reserved")
	if !r.Deadline.IsZero() {
		s.overdue()
	}
}

// overdue reports a reservation whose effect can have landed and that is still open, and whether a sweeper that runs would
// have taken it by now: it takes what is past the deadline and the clocks' margin, but leaves alone what is to be looked at
// later.
func (s *subject) overdue() {
	r := s.at
	if r.Deadline.Add(s.cfg.Skew + orDefault(r.Horizon, defaultHorizon)).Before(s.now) {
		rule := "its deadline has passed and nobody has settled it"
		if r.Held {
			rule = "is held: a person has to say what became of it"
		}
		s.report.Overdue.add(s.finding(schema.ADeadline, rule), s.cfg.Limit)
	}
	due := r.Deadline.Add(s.cfg.Skew)
	if r.SweepAt.After(due) {
		due = r.SweepAt
	}
	if !r.Held && due.Add(2*s.cfg.Sweep).Before(s.now) {
		s.report.Neglected.add(s.finding(schema.ADeadline, "two sweeps should have taken it since: does the sweeper run?"), s.cfg.Limit)
	}
}

func (s *subject) applied() {
	r := s.at
	s.require(r.AppliedAttempt >= 1 && r.AppliedAttempt <= r.Attempt, schema.AApplied, "must be between 1 and attempt")
	s.require((r.ResultJSON == nil) != (r.ResultRef == nil), schema.AResultJSON, "there must be one result, stored or referred to")
	// An empty one is legal too: the caller said that there is no result.
	s.require(r.ResultJSON == nil || *r.ResultJSON == "" || json.Valid([]byte(*r.ResultJSON)), schema.AResultJSON, "must be JSON")
	s.require(r.Failure == "", schema.AFailure, "must not be set on a call that took effect")
	s.require(slices.Contains(settlers, r.SettledBy), schema.ASettledBy, "must be holder, verify or person")
	if r.CompensatedAt.IsZero() { // with a refund, a compensation clears the debits and leaves what was charged
		s.require(add(sum(r.Debits), r.Shortfall) == r.Charged, schema.ACharged, "must be debits and shortfall together")
	}
}

var settlers = []string{"", schema.SettledByHolder, schema.SettledByVerify, schema.SettledByPerson}

func (s *subject) failed() {
	r := s.at
	switch r.Failure {
	case schema.FailureReleased:
	case schema.FailureExpired, schema.FailureResolved:
		s.require(r.Unverified > 0, schema.AUnverified, "is missing on a call that expired or was resolved")
	default:
		s.illegal(schema.AFailure, "must be released, expired or resolved")
	}
}

// unknown notes attributes that this version of the program passes over.
func (s *subject) unknown(item schema.Item) {
	known := attributes[s.id.Kind]
	if known == nil || !s.checks {
		return
	}
	for name := range item {
		if !known[name] {
			s.note(name, "is an attribute that this version does not know")
		}
	}
}

var attributes = map[schema.Kind]map[string]bool{
	schema.KindRow: set(schema.PK, schema.SK, schema.AFormat, schema.AVersion, schema.ACreatedAt, schema.AUpdatedAt,
		schema.AExpiresAt, schema.ARowID, schema.AHolder, schema.AAttempt, schema.AState, schema.ATool, schema.AIntentHash,
		schema.AArgHashes, schema.ASession, schema.AScope, schema.AIdempotent, schema.AVerifier, schema.AHorizon, schema.AKeep,
		schema.ACursor, schema.AExpectCursor, schema.ATrace, schema.ALookup, schema.AReserved, schema.ACharged,
		schema.AShortfall, schema.ADebits, schema.AResultJSON, schema.AResultRef, schema.AFailure, schema.AUnverified,
		schema.ASuspects, schema.AApplied, schema.AContention, schema.ADeadline, schema.ALastDeadline, schema.APendingBucket,
		schema.ASweepAt, schema.AHeld, schema.AReservedAt, schema.ASettledBy, schema.ASettledFrom, schema.ABy, schema.AWhy, schema.ACompensates,
		schema.ARefundOrig, schema.ACompensatedBy, schema.ACompensatedIn, schema.ACompensatedAt, schema.AErasing),
	schema.KindQuota: set(schema.PK, schema.SK, schema.AFormat, schema.AQuotaID, schema.AVersion, schema.AGranted,
		schema.ARemaining, schema.AExtra, schema.AShard, schema.APlanVersion, schema.ASuspended, schema.ACreatedAt,
		schema.AUpdatedAt, schema.AExpiresAt),
	schema.KindSession: set(schema.PK, schema.SK, schema.AFormat, schema.AVersion, schema.ACursor, schema.AUpdatedAt,
		schema.AExpiresAt),
	schema.KindObservation: set(schema.PK, schema.SK, schema.AFormat, schema.AObsID, schema.AVersion, schema.ATool,
		schema.ASession, schema.AUpdatedAt, schema.AExpiresAt, schema.ADuplicates, schema.AInFlight, schema.AKeyConflicts,
		schema.AQuotaDenials, schema.AGiveUps),
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
