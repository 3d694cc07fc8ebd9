package schema

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Fields yields the attributes of an item.
type Fields func(yield func(name string, v Value) bool)

// FieldsOf yields the attributes of an item that the SDK decoded.
func FieldsOf(item map[string]types.AttributeValue) Fields {
	return func(yield func(string, Value) bool) {
		for name, av := range item {
			if !yield(name, ValueOf(av)) {
				return
			}
		}
	}
}

// decode hands every attribute to set and turns the rule that set returns into a DecodeError.
func decode(fields Fields, set func(name string, v Value) string) error {
	var err error
	for name, v := range fields {
		if rule := set(name, v); rule != "" {
			err = &DecodeError{name, rule}
			break
		}
	}
	return err
}

func readFormat(v Value, to *int64) string {
	if rule := readInt(v, to); rule != "" {
		return rule
	}
	if *to < 1 || *to > Format {
		return "is of a version that this program does not know"
	}
	return ""
}

// DecodeRow reads a whole ledger row. Errors: *DecodeError.
func DecodeRow(fields Fields) (*Row, error) { return decodeRow(fields, true) }

// DecodePending reads what the sparse index has of a row: of a pending one, since it holds no others; the intent hash and
// the result are not there. Errors: *DecodeError.
func DecodePending(fields Fields) (*Row, error) { return decodeRow(fields, false) }

func decodeRow(fields Fields, whole bool) (*Row, error) {
	r := &Row{}
	if !whole {
		r.State = StatePending
	}
	var format int64
	if err := decode(fields, func(name string, v Value) string {
		if name == AFormat {
			return readFormat(v, &format)
		}
		return r.set(name, v)
	}); err != nil {
		return nil, err
	}
	return r, r.check(format, whole)
}

func (r *Row) check(format int64, whole bool) error {
	id, err := ParseKey(r.Key)
	if err != nil {
		return err
	}
	return r.checkAs(&id, format, whole)
}

// checkAs checks a row whose key says id.
func (r *Row) checkAs(id *ItemID, format int64, whole bool) error {
	switch {
	case id.Kind != KindRow:
		return &DecodeError{"", "its key is not a ledger row's"}
	case format == 0:
		return &DecodeError{AFormat, "is missing"}
	case r.RowID == "":
		return &DecodeError{ARowID, "is missing"}
	case r.Version < 1:
		return &DecodeError{AVersion, "must be at least 1"}
	case r.Attempt < 1:
		return &DecodeError{AAttempt, "must be at least 1"}
	case r.State != StatePending && !r.Terminal():
		return &DecodeError{AState, "must be pending, applied or failed"}
	case whole && len(r.IntentHash) != 32:
		return &DecodeError{AIntentHash, "must be 32 bytes"}
	case r.Scope != id.Scope:
		return &DecodeError{AScope, "must agree with the key"}
	case CheckID(ASession, r.Session, MaxSession) != nil, id.Scope == ScopeSession && r.Session != id.Session:
		return &DecodeError{ASession, "must agree with the key"}
	}
	return nil
}

// set reads the attributes that every transition needs; the rest is in setMore and setOutcome.
func (r *Row) set(name string, v Value) string {
	switch name {
	case PK:
		return readString(v, &r.Key.PK)
	case SK:
		return readString(v, &r.Key.SK)
	case ARowID:
		return readString(v, &r.RowID)
	case AHolder:
		return readString(v, &r.Holder)
	case AVersion:
		return readInt(v, &r.Version)
	case AAttempt:
		return readInt(v, &r.Attempt)
	case AState:
		return readString(v, &r.State)
	case ATool:
		return readString(v, &r.Tool)
	case AIntentHash:
		return readBinary(v, &r.IntentHash)
	case AArgHashes:
		return readBinary(v, &r.ArgHashes)
	case ASession:
		return readString(v, &r.Session)
	case AScope:
		return readString(v, (*string)(&r.Scope))
	case ADebits:
		return readDebits(v, &r.Debits)
	case AReserved:
		return readCount(v, &r.Reserved)
	case ACreatedAt:
		return readMillis(v, &r.CreatedAt)
	case AUpdatedAt:
		return readMillis(v, &r.UpdatedAt)
	case ADeadline:
		return readMillis(v, &r.Deadline)
	case APendingBucket:
		return readString(v, &r.PendingBucket)
	case AExpiresAt:
		return readSeconds(v, &r.ExpiresAt)
	}
	return r.setOutcome(name, v)
}

func (r *Row) setOutcome(name string, v Value) string {
	switch name {
	case ACharged:
		return readCount(v, &r.Charged)
	case AShortfall:
		return readCount(v, &r.Shortfall)
	case AResultJSON:
		r.ResultJSON = new(string)
		return readString(v, r.ResultJSON)
	case AResultRef:
		return readResultRef(v, &r.ResultRef)
	case AFailure:
		return readString(v, &r.Failure)
	case AUnverified:
		return readCount(v, &r.Unverified)
	case ASuspects:
		if v.Type != TypeStringSet {
			return "must be a string set"
		}
		r.Suspects = v.Set
	case AApplied:
		return readCount(v, &r.AppliedAttempt)
	case AContention:
		return readCount(v, &r.Contention)
	case ALastDeadline:
		return readMillis(v, &r.LastDeadline)
	case ASweepAt:
		return readMillis(v, &r.SweepAt)
	case AHeld:
		return readBool(v, &r.Held)
	case ASettledBy:
		return readString(v, &r.SettledBy)
	case ASettledFrom:
		return readString(v, &r.SettledFrom)
	case ABy:
		return readString(v, &r.By)
	case AWhy:
		return readString(v, &r.Why)
	}
	return r.setMore(name, v)
}

func (r *Row) setMore(name string, v Value) string {
	switch name {
	case AIdempotent:
		return readBool(v, &r.Idempotent)
	case AVerifier:
		return readBool(v, &r.Verifier)
	case AHorizon:
		return readDuration(v, &r.Horizon)
	case AKeep:
		return readDuration(v, &r.Keep)
	case ACursor:
		return readString(v, &r.Cursor)
	case AExpectCursor:
		r.ExpectCursor = new(string)
		return readString(v, r.ExpectCursor)
	case ATrace:
		return readString(v, &r.Trace)
	case ALookup:
		return readString(v, &r.Lookup)
	case AReservedAt:
		return readMillis(v, &r.ReservedAt)
	case ACompensates:
		return readString(v, &r.Compensates)
	case ARefundOrig:
		return readBool(v, &r.RefundOriginal)
	case ACompensatedBy:
		return readString(v, &r.CompensatedBy)
	case ACompensatedIn:
		return readString(v, &r.CompensatedIn)
	case ACompensatedAt:
		return readMillis(v, &r.CompensatedAt)
	case AErasing:
		return readBool(v, &r.Erasing)
	}
	return ""
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
