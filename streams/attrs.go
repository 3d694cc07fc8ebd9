package streams

import (
	"bytes"
	"math/bits"
	"slices"

	"toolledger/internal/schema"
)

// attrs is a set of a row's attributes.
type attrs uint64

// The attributes of a row that a transition may or may not change.
const (
	aRowID attrs = 1 << iota
	aHolder
	aVersion
	aAttempt
	aState
	aTool
	aIntentHash
	aArgHashes
	aSession
	aScope
	aIdempotent
	aVerifier
	aHorizon
	aKeep
	aCursor
	aExpectCursor
	aTrace
	aLookup
	aReserved
	aCharged
	aShortfall
	aDebits
	aResult
	aFailure
	aUnverified
	aSuspects
	aApplied
	aContention
	aCreatedAt
	aUpdatedAt
	aDeadline
	aLastDeadline
	aPendingBucket
	aSweepAt
	aHeld
	aSettledBy
	aSettledFrom
	aBy
	aWhy
	aExpiresAt
	aCompensates
	aRefundOriginal
	aCompensatedBy
	aCompensatedAt
	aErasing
)

// attrNames are in the order of the constants; aResult stands for both forms of a result.
var attrNames = [...]string{
	schema.ARowID, schema.AHolder, schema.AVersion, schema.AAttempt, schema.AState, schema.ATool, schema.AIntentHash,
	schema.AArgHashes, schema.ASession, schema.AScope, schema.AIdempotent, schema.AVerifier, schema.AHorizon, schema.AKeep,
	schema.ACursor, schema.AExpectCursor, schema.ATrace, schema.ALookup, schema.AReserved, schema.ACharged, schema.AShortfall,
	schema.ADebits, schema.AResultJSON, schema.AFailure, schema.AUnverified, schema.ASuspects, schema.AApplied,
	schema.AContention, schema.ACreatedAt, schema.AUpdatedAt, schema.ADeadline, schema.ALastDeadline, schema.APendingBucket,
	schema.ASweepAt, schema.AHeld, schema.ASettledBy, schema.ASettledFrom, schema.ABy, schema.AWhy, schema.AExpiresAt,
	schema.ACompensates, schema.ARefundOrig, schema.ACompensatedBy, schema.ACompensatedAt, schema.AErasing,
}

// names lists the attributes of the set.
func (a attrs) names() []string {
	var names []string
	for ; a != 0; a &= a - 1 {
		names = append(names, attrNames[bits.TrailingZeros64(uint64(a))])
	}
	return names
}

func (a attrs) has(b attrs) bool { return a&b != 0 }

// changedAttrs is what differs between two images of a row.
func changedAttrs(was, is *schema.Row) attrs {
	set := changedTexts(was, is) | changedNumbers(was, is) | changedTimes(was, is)
	for _, d := range [...]struct {
		attr    attrs
		differs bool
	}{
		{aIntentHash, !bytes.Equal(was.IntentHash, is.IntentHash)},
		{aArgHashes, !bytes.Equal(was.ArgHashes, is.ArgHashes)},
		{aIdempotent, was.Idempotent != is.Idempotent},
		{aVerifier, was.Verifier != is.Verifier},
		{aHeld, was.Held != is.Held},
		{aRefundOriginal, was.RefundOriginal != is.RefundOriginal},
		{aErasing, was.Erasing != is.Erasing},
		{aExpectCursor, !sameText(was.ExpectCursor, is.ExpectCursor)},
		{aResult, !sameResult(was, is)},
		{aDebits, !slices.Equal(was.Debits, is.Debits)},
		{aSuspects, !sameSet(was.Suspects, is.Suspects)},
	} {
		if d.differs {
			set |= d.attr
		}
	}
	return set
}

func changedTexts(was, is *schema.Row) (set attrs) {
	for _, d := range [...]struct {
		attr    attrs
		was, is string
	}{
		{aRowID, was.RowID, is.RowID},
		{aHolder, was.Holder, is.Holder},
		{aState, was.State, is.State},
		{aTool, was.Tool, is.Tool},
		{aSession, was.Session, is.Session},
		{aScope, string(was.Scope), string(is.Scope)},
		{aCursor, was.Cursor, is.Cursor},
		{aTrace, was.Trace, is.Trace},
		{aLookup, was.Lookup, is.Lookup},
		{aFailure, was.Failure, is.Failure},
		{aPendingBucket, was.PendingBucket, is.PendingBucket},
		{aSettledBy, was.SettledBy, is.SettledBy},
		{aSettledFrom, was.SettledFrom, is.SettledFrom},
		{aBy, was.By, is.By},
		{aWhy, was.Why, is.Why},
		{aCompensates, was.Compensates, is.Compensates},
		{aCompensatedBy, was.CompensatedBy, is.CompensatedBy},
	} {
		if d.was != d.is {
			set |= d.attr
		}
	}
	return set
}

func changedNumbers(was, is *schema.Row) (set attrs) {
	for _, d := range [...]struct {
		attr    attrs
		was, is int64
	}{
		{aVersion, was.Version, is.Version},
		{aAttempt, was.Attempt, is.Attempt},
		{aHorizon, int64(was.Horizon), int64(is.Horizon)},
		{aKeep, int64(was.Keep), int64(is.Keep)},
		{aReserved, was.Reserved, is.Reserved},
		{aCharged, was.Charged, is.Charged},
		{aShortfall, was.Shortfall, is.Shortfall},
		{aUnverified, was.Unverified, is.Unverified},
		{aApplied, was.AppliedAttempt, is.AppliedAttempt},
		{aContention, was.Contention, is.Contention},
	} {
		if d.was != d.is {
			set |= d.attr
		}
	}
	return set
}

func changedTimes(was, is *schema.Row) (set attrs) {
	for _, d := range [...]struct {
		attr    attrs
		differs bool
	}{
		{aCreatedAt, !was.CreatedAt.Equal(is.CreatedAt)},
		{aUpdatedAt, !was.UpdatedAt.Equal(is.UpdatedAt)},
		{aDeadline, !was.Deadline.Equal(is.Deadline)},
		{aLastDeadline, !was.LastDeadline.Equal(is.LastDeadline)},
		{aSweepAt, !was.SweepAt.Equal(is.SweepAt)},
		{aExpiresAt, !was.ExpiresAt.Equal(is.ExpiresAt)},
		{aCompensatedAt, !was.CompensatedAt.Equal(is.CompensatedAt)},
	} {
		if d.differs {
			set |= d.attr
		}
	}
	return set
}

func sameText(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func sameResult(a, b *schema.Row) bool {
	ra, rb := a.ResultRef, b.ResultRef
	return sameText(a.ResultJSON, b.ResultJSON) && (ra == nil) == (rb == nil) &&
		(ra == nil || ra.Ref == rb.Ref && ra.Bytes == rb.Bytes && bytes.Equal(ra.SHA256, rb.SHA256))
}
