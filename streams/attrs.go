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
	aReservedAt
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
	aCompensatedIn
	aCompensatedAt
	aErasing
)

// attrNames are in the order of the constants; aResult stands for both forms of a result.
var attrNames = [...]string{
	schema.ARowID, schema.AHolder, schema.AVersion, schema.AAttempt, schema.AState, schema.ATool, schema.AIntentHash,
	schema.AArgHashes, schema.ASession, schema.AScope, schema.AIdempotent, schema.AVerifier, schema.AHorizon, schema.AKeep,
	schema.ACursor, schema.AExpectCursor, schema.ATrace, schema.ALookup, schema.AReserved, schema.ACharged, schema.AShortfall,
	schema.ADebits, schema.AResultJSON, schema.AFailure, schema.AUnverified, schema.ASuspects, schema.AApplied,
	schema.AContention, schema.ACreatedAt, schema.AUpdatedAt, schema.AReservedAt, schema.ADeadline, schema.ALastDeadline, schema.APendingBucket,
	schema.ASweepAt, schema.AHeld, schema.ASettledBy, schema.ASettledFrom, schema.ABy, schema.AWhy, schema.AExpiresAt,
	schema.ACompensates, schema.ARefundOrig, schema.ACompensatedBy, schema.ACompensatedIn, schema.ACompensatedAt, schema.AErasing,
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
	return changedTexts(was, is) | changedNumbers(was, is) | changedTimes(was, is) |
		when(!bytes.Equal(was.IntentHash, is.IntentHash), aIntentHash) |
		when(!bytes.Equal(was.ArgHashes, is.ArgHashes), aArgHashes) |
		when(!sameText(was.ExpectCursor, is.ExpectCursor), aExpectCursor) |
		when(!sameResult(was, is), aResult) |
		when(!slices.Equal(was.Debits, is.Debits), aDebits) |
		when(!sameSet(was.Suspects, is.Suspects), aSuspects)
}

func when(differs bool, a attrs) attrs {
	if differs {
		return a
	}
	return 0
}

func changedTexts(was, is *schema.Row) attrs {
	return when(was.RowID != is.RowID, aRowID) |
		when(was.Holder != is.Holder, aHolder) |
		when(was.State != is.State, aState) |
		when(was.Tool != is.Tool, aTool) |
		when(was.Session != is.Session, aSession) |
		when(was.Cursor != is.Cursor, aCursor) |
		when(was.Trace != is.Trace, aTrace) |
		when(was.Lookup != is.Lookup, aLookup) |
		when(was.Failure != is.Failure, aFailure) |
		when(was.PendingBucket != is.PendingBucket, aPendingBucket) |
		when(was.SettledBy != is.SettledBy, aSettledBy) |
		when(was.SettledFrom != is.SettledFrom, aSettledFrom) |
		when(was.By != is.By, aBy) |
		when(was.Why != is.Why, aWhy) |
		when(was.Compensates != is.Compensates, aCompensates) |
		when(was.CompensatedBy != is.CompensatedBy, aCompensatedBy) | when(was.CompensatedIn != is.CompensatedIn, aCompensatedIn) |
		when(was.Scope != is.Scope, aScope)
}

func changedNumbers(was, is *schema.Row) attrs {
	return when(was.Version != is.Version, aVersion) |
		when(was.Attempt != is.Attempt, aAttempt) |
		when(was.Horizon != is.Horizon, aHorizon) |
		when(was.Keep != is.Keep, aKeep) |
		when(was.Reserved != is.Reserved, aReserved) |
		when(was.Charged != is.Charged, aCharged) |
		when(was.Shortfall != is.Shortfall, aShortfall) |
		when(was.Unverified != is.Unverified, aUnverified) |
		when(was.Contention != is.Contention, aContention) |
		when(was.Idempotent != is.Idempotent, aIdempotent) |
		when(was.Verifier != is.Verifier, aVerifier) |
		when(was.Held != is.Held, aHeld) |
		when(was.Erasing != is.Erasing, aErasing) |
		when(was.AppliedAttempt != is.AppliedAttempt, aApplied) |
		when(was.RefundOriginal != is.RefundOriginal, aRefundOriginal)
}

func changedTimes(was, is *schema.Row) attrs {
	return when(!was.CreatedAt.Equal(is.CreatedAt), aCreatedAt) |
		when(!was.UpdatedAt.Equal(is.UpdatedAt), aUpdatedAt) |
		when(!was.ReservedAt.Equal(is.ReservedAt), aReservedAt) |
		when(!was.Deadline.Equal(is.Deadline), aDeadline) |
		when(!was.LastDeadline.Equal(is.LastDeadline), aLastDeadline) |
		when(!was.SweepAt.Equal(is.SweepAt), aSweepAt) |
		when(!was.ExpiresAt.Equal(is.ExpiresAt), aExpiresAt) |
		when(!was.CompensatedAt.Equal(is.CompensatedAt), aCompensatedAt)
}

func sameText(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func sameResult(a, b *schema.Row) bool {
	ra, rb := a.ResultRef, b.ResultRef
	return sameText(a.ResultJSON, b.ResultJSON) && (ra == nil) == (rb == nil) &&
		(ra == nil || ra.Ref == rb.Ref && ra.Bytes == rb.Bytes && bytes.Equal(ra.SHA256, rb.SHA256))
}
