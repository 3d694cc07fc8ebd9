package schema

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The states of a ledger row.
const (
	StatePending = "pending"
	StateApplied = "applied"
	StateFailed  = "failed"
)

// Why a row is failed.
const (
	FailureReleased = "released" // the holder knows that the effect did not happen
	FailureExpired  = "expired"  // nobody knows; verify before acting again
	FailureResolved = "resolved" // a person said that it did not happen
)

// Who moved a row to applied.
const (
	SettledByHolder = "holder"
	SettledByVerify = "verify"
	SettledByPerson = "person"
)

// The values of Row.Unverified.
const (
	UnverifiedExpired = 1 // verify before the next attempt
	UnverifiedVouched = 2 // a person vouched, and the tool has no verifier that could be asked
)

// ResultRef points at a result that a ResultStore keeps.
type ResultRef struct {
	Ref    string
	SHA256 []byte
	Bytes  int64
}

// Row is a ledger row. Zero fields are not stored.
type Row struct {
	Key            Key
	RowID          string
	Holder         string
	Version        int64
	Attempt        int64
	State          string
	Tool           string
	IntentHash     []byte
	ArgHashes      []byte
	Session        string
	Scope          Scope
	Idempotent     bool
	Verifier       bool
	Horizon        time.Duration
	Keep           time.Duration
	Cursor         string
	ExpectCursor   *string
	Trace          string
	Lookup         string
	Reserved       int64
	Charged        int64
	Shortfall      int64
	Debits         []Debit
	ResultJSON     *string // nil: none; an empty result is stored as such
	ResultRef      *ResultRef
	Failure        string
	Unverified     int64
	Suspects       []string
	AppliedAttempt int64
	Contention     int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
	ReservedAt     time.Time // of attempts after the first, whose time is CreatedAt
	Deadline       time.Time
	LastDeadline   time.Time
	PendingBucket  string
	SweepAt        time.Time
	Held           bool
	SettledBy      string
	SettledFrom    string
	By             string
	Why            string
	ExpiresAt      time.Time
	Compensates    string
	RefundOriginal bool
	CompensatedBy  string
	CompensatedIn  string
	CompensatedAt  time.Time
	Erasing        bool
}

// Terminal tells whether the row's call has ended.
func (r *Row) Terminal() bool { return r.State == StateApplied || r.State == StateFailed }

// Expired tells whether the row counts as absent at now although DynamoDB may still have it.
func (r *Row) Expired(now time.Time) bool {
	return r.Terminal() && !r.ExpiresAt.IsZero() && r.ExpiresAt.Unix() < now.Unix()
}

// Undoer names the call that undoes another one: its scope and key, and its session where these are not enough.
type Undoer struct{ By, In string }

// UndoerOf is the call of that name and session as the one that undoes o. A call of a session can be undone from that session
// alone; one of the tenant from any, and sessions may use the same keys.
func UndoerOf(o *Row, name, session string, scope Scope) Undoer {
	if o.Scope == ScopeTenant && scope == ScopeSession {
		return Undoer{name, session}
	}
	return Undoer{By: name}
}

// Undoer is the call that undoes the row's, or has; zero where none does.
func (r *Row) Undoer() Undoer { return Undoer{r.CompensatedBy, r.CompensatedIn} }

// SuspectName is how a row's suspects name one attempt.
func SuspectName(rowID string, attempt int64) string { return rowID + "/" + formatInt(attempt) }

// Item is the row as stored.
func (r *Row) Item() Item {
	it := make(Item, 28) // the most that a map of 32 slots takes; few rows have more
	it[PK], it[SK] = S(r.Key.PK), S(r.Key.SK)
	it[AFormat], it[AVersion], it[AAttempt] = N(Format), N(r.Version), N(r.Attempt)
	it[ARowID], it[AState], it[ATool] = S(r.RowID), S(r.State), S(r.Tool)
	it[AIntentHash] = B(r.IntentHash)
	it[ASession], it[AScope] = S(r.Session), S(string(r.Scope))
	it[ACreatedAt], it[AUpdatedAt] = Millis(r.CreatedAt), Millis(r.UpdatedAt)
	putString(it, AHolder, r.Holder)
	if len(r.ArgHashes) > 0 {
		it[AArgHashes] = B(r.ArgHashes)
	}
	putBool(it, AIdempotent, r.Idempotent)
	putBool(it, AVerifier, r.Verifier)
	putInt(it, AHorizon, r.Horizon.Milliseconds())
	putInt(it, AKeep, r.Keep.Milliseconds())
	putString(it, ACursor, r.Cursor)
	if r.ExpectCursor != nil {
		it[AExpectCursor] = S(*r.ExpectCursor)
	}
	putString(it, ATrace, r.Trace)
	putString(it, ALookup, r.Lookup)
	putInt(it, AReserved, r.Reserved)
	r.putOutcome(it)
	putMillis(it, AReservedAt, r.ReservedAt)
	putMillis(it, ADeadline, r.Deadline)
	putMillis(it, ALastDeadline, r.LastDeadline)
	putString(it, APendingBucket, r.PendingBucket)
	putMillis(it, ASweepAt, r.SweepAt)
	putBool(it, AHeld, r.Held)
	putSeconds(it, AExpiresAt, r.ExpiresAt)
	putString(it, ACompensates, r.Compensates)
	putBool(it, ARefundOrig, r.RefundOriginal)
	putString(it, ACompensatedBy, r.CompensatedBy)
	putString(it, ACompensatedIn, r.CompensatedIn)
	putMillis(it, ACompensatedAt, r.CompensatedAt)
	putBool(it, AErasing, r.Erasing)
	return it
}

func (r *Row) putOutcome(it Item) {
	putInt(it, ACharged, r.Charged)
	putInt(it, AShortfall, r.Shortfall)
	if len(r.Debits) > 0 {
		it[ADebits] = DebitsValue(r.Debits)
	}
	if r.ResultJSON != nil {
		it[AResultJSON] = S(*r.ResultJSON)
	}
	if r.ResultRef != nil {
		it[AResultRef] = r.ResultRef.Value()
	}
	putString(it, AFailure, r.Failure)
	putInt(it, AUnverified, r.Unverified)
	if len(r.Suspects) > 0 {
		it[ASuspects] = SS(r.Suspects...)
	}
	putInt(it, AApplied, r.AppliedAttempt)
	putInt(it, AContention, r.Contention)
	putString(it, ASettledBy, r.SettledBy)
	putString(it, ASettledFrom, r.SettledFrom)
	putString(it, ABy, r.By)
	putString(it, AWhy, r.Why)
}

// Value is the stored form.
func (f *ResultRef) Value() types.AttributeValue {
	return &types.AttributeValueMemberM{Value: Item{"ref": S(f.Ref), "sha256": B(f.SHA256), "bytes": N(f.Bytes)}}
}

func readResultRef(v Value, to **ResultRef) string {
	if v.Type != TypeMap {
		return "must be a map"
	}
	f := &ResultRef{}
	if readString(v.Map["ref"], &f.Ref) != "" || readBinary(v.Map["sha256"], &f.SHA256) != "" || len(f.SHA256) != 32 ||
		readCount(v.Map["bytes"], &f.Bytes) != "" || f.Ref == "" {
		return "must hold ref, sha256 (32 bytes) and bytes"
	}
	*to = f
	return ""
}
