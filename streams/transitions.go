package streams

import (
	"slices"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// What stays through the whole life of a row.
const fixedAttrs = aRowID | aTool | aIntentHash | aArgHashes | aScope | aCreatedAt | aSettledFrom

// What may change in every transition: the version must, the rest is information.
const freeAttrs = aVersion | aUpdatedAt | aContention | aVerifier | aKeep | aBy | aWhy

// What belongs to an attempt, and is set anew when one begins.
const attemptAttrs = aState | aAttempt | aHolder | aSession | aReserved | aDebits | aIdempotent | aVerifier | aHorizon | aKeep |
	aCursor | aExpectCursor | aTrace | aLookup | aCompensates | aRefundOriginal | aFailure | aBy | aWhy | aSweepAt | aHeld |
	aShortfall | aCharged | aSettledBy | aReservedAt

// What leaving pending changes.
const endAttrs = aState | aDeadline | aPendingBucket | aLastDeadline | aExpiresAt | aSweepAt | aHeld | aBy | aWhy

// What recording an effect changes.
const effectAttrs = aState | aApplied | aResult | aDebits | aCharged | aShortfall | aSettledBy | aBy | aWhy

// modified reads a change of a row that stays the same row.
func (rc *rowChange) modified() *breach {
	was, is := rc.was, rc.is
	switch {
	case is.Version != was.Version+1:
		return &breach{"every write raises the version by one", aVersion}
	case rc.changed.has(fixedAttrs):
		return &breach{"it never changes in a row", rc.changed & fixedAttrs}
	case was.Unverified != 0 && is.Unverified == 0:
		return &breach{"what is unverified stays so", aUnverified}
	case was.Erasing && !is.Erasing:
		return &breach{"a mark for erasure stays", aErasing}
	}
	if gone := lostSuspect(was, is); gone {
		return &breach{"suspects stay", aSuspects}
	}
	switch was.State {
	case schema.StatePending:
		return rc.fromPending()
	case schema.StateFailed:
		return rc.fromFailed()
	}
	return rc.fromApplied()
}

func lostSuspect(was, is *schema.Row) bool {
	return slices.ContainsFunc(was.Suspects, func(s string) bool { return !slices.Contains(is.Suspects, s) })
}

// only checks that nothing changed beside what the transition may change.
func (rc *rowChange) only(rule string, allowed attrs) *breach {
	if bad := rc.changed &^ (allowed | freeAttrs); bad != 0 {
		return &breach{rule, bad}
	}
	return nil
}

func (rc *rowChange) fromPending() *breach {
	switch rc.is.State {
	case schema.StatePending:
		return rc.pendingKept()
	case schema.StateApplied:
		return rc.finalized()
	}
	return rc.failed()
}

// pendingKept reads Extend, Defer, Hold and Suspect.
func (rc *rowChange) pendingKept() *breach {
	was, is := rc.was, rc.is
	if broken := checkPending(is, rc.id); broken != nil {
		return broken
	}
	switch {
	case is.Held && !was.Held:
		broken := rc.only("holding a row changes nothing else", aHeld|aPendingBucket|aSweepAt)
		return rc.then(broken, func() {
			rc.emit(&events.ReservationStuck{Header: rc.header(), ReservedTokens: is.Reserved, Deadline: is.Deadline})
		})
	case rc.changed.has(aDeadline):
		return rc.extended()
	case rc.changed.has(aSuspects):
		return rc.then(rc.only("a suspect changes nothing else", aSuspects), rc.suspected)
	case is.SweepAt.IsZero():
		return &breach{"a pending row changes by an extension, a deferral, a hold or a suspect", rc.changed | aSweepAt}
	}
	return rc.only("a deferral changes nothing else", aSweepAt)
}

func (rc *rowChange) extended() *breach {
	was, is := rc.was, rc.is
	switch {
	case !is.Deadline.After(was.Deadline):
		return &breach{"a deadline moves forward only", aDeadline}
	case was.Held:
		return &breach{"a held row is not extended", aDeadline | aHeld}
	}
	return rc.then(rc.only("an extension changes nothing else", aDeadline|aSweepAt), func() {
		rc.emit(&events.ReservationExtended{Header: rc.header(), PreviousDeadline: was.Deadline, Deadline: is.Deadline})
	})
}

// finalized reads the end of a reservation whose effect happened: recorded by its holder, a verifier, a person, or by a
// worker that a newer attempt had replaced.
func (rc *rowChange) finalized() *breach {
	was, is := rc.was, rc.is
	allowed := endAttrs | effectAttrs
	fenced := is.AppliedAttempt < is.Attempt
	if fenced {
		allowed = allowed&^aDebits | aSuspects
	}
	broken := checkApplied(is)
	switch {
	case broken != nil:
		return broken
	case !is.LastDeadline.Equal(was.Deadline):
		return &breach{"the deadline is kept as the last one", aLastDeadline}
	case fenced && !slices.Contains(is.Suspects, schema.SuspectName(is.RowID, is.Attempt)):
		return &breach{"a replaced worker's effect makes the newer attempt suspect", aSuspects}
	}
	if broken := rc.only("recording an effect changes nothing else", allowed); broken != nil {
		return broken
	}
	rc.applied(schema.SumDebits(was.Debits))
	if fenced && rc.changed.has(aSuspects) {
		rc.suspected()
	}
	return nil
}

// failed reads the end of a reservation whose effect did not happen, or may not have.
func (rc *rowChange) failed() *breach {
	was, is := rc.was, rc.is
	broken := checkFailed(is)
	switch {
	case broken != nil:
		return broken
	case !is.LastDeadline.Equal(was.Deadline):
		return &breach{"the deadline is kept as the last one", aLastDeadline}
	case !isPart(is.Debits, was.Debits):
		return &breach{"what is refunded was debited", aDebits}
	}
	allowed := endAttrs | aFailure | aUnverified | aDebits
	if is.Failure == schema.FailureReleased {
		allowed &^= aUnverified
	} else if is.Unverified == 0 {
		return &breach{"only its holder knows that an effect did not happen", aUnverified}
	}
	if broken := rc.only("the end of a reservation changes nothing else", allowed); broken != nil {
		return broken
	}
	refund := schema.SumDebits(is.Debits)
	switch is.Failure {
	case schema.FailureReleased:
		rc.emit(&events.ReservationReleased{Header: rc.header(), RefundedTokens: refund})
	case schema.FailureExpired:
		rc.emit(&events.ReservationExpired{Header: rc.header(), RefundedTokens: refund, Deadline: was.Deadline})
	default:
		rc.resolved(was.Held, refund)
	}
	return nil
}

func (rc *rowChange) resolved(held bool, refund int64) {
	ev := &events.ReservationResolved{Header: rc.header(), From: rc.was.State, Held: held, RefundedTokens: refund}
	ev.By = rc.is.By
	rc.emit(ev)
}

// isPart tells whether every debit of some is one of all.
func isPart(some, all []schema.Debit) bool {
	return !slices.ContainsFunc(some, func(d schema.Debit) bool { return !slices.Contains(all, d) })
}

func (rc *rowChange) fromFailed() *breach {
	switch rc.is.State {
	case schema.StatePending:
		return rc.takenOver()
	case schema.StateApplied:
		if rc.changed.has(aAttempt) {
			return rc.committedAgain()
		}
		return rc.settled()
	}
	return rc.failedKept()
}

// takenOver reads the next attempt of a failed row.
func (rc *rowChange) takenOver() *breach {
	broken := checkPending(rc.is, rc.id)
	switch {
	case broken != nil:
		return broken
	case rc.is.Attempt != rc.was.Attempt+1:
		return &breach{"a takeover is the next attempt", aAttempt}
	case rc.is.Held:
		return &breach{"an attempt does not begin held", aHeld}
	}
	broken = rc.only("a takeover keeps what the row knows",
		attemptAttrs|aDeadline|aPendingBucket|aLastDeadline|aExpiresAt)
	return rc.then(broken, rc.reserved)
}

// committedAgain reads the commit of a failed row: a new attempt that took effect at once.
func (rc *rowChange) committedAgain() *breach {
	is := rc.is
	broken := checkApplied(is)
	switch {
	case broken != nil:
		return broken
	case is.Attempt != rc.was.Attempt+1:
		return &breach{"the commit of a failed row is the next attempt", aAttempt}
	case is.AppliedAttempt != is.Attempt:
		return &breach{"a commit records its own attempt", aApplied}
	}
	broken = rc.only("the commit of a failed row keeps what the row knows", attemptAttrs|effectAttrs|aExpiresAt)
	return rc.then(broken, func() { rc.applied(0) })
}

// settled reads an effect recorded after its reservation had been given back.
func (rc *rowChange) settled() *breach {
	broken := checkApplied(rc.is)
	if broken == nil {
		broken = rc.only("a late settlement changes nothing else", effectAttrs|aFailure|aExpiresAt|aSuspects)
	}
	if broken != nil {
		return broken
	}
	rc.settledLate()
	if rc.changed.has(aSuspects) {
		rc.suspected()
	}
	return nil
}

// failedKept reads a person's verdict, a suspect, and the mark for erasure.
func (rc *rowChange) failedKept() *breach {
	was, is := rc.was, rc.is
	if broken := checkFailed(is); broken != nil {
		return broken
	}
	switch {
	case rc.changed.has(aSuspects):
		return rc.then(rc.only("a suspect changes nothing else", aSuspects), rc.suspected)
	case is.Erasing && !was.Erasing:
		if is.Unverified != 0 {
			return &breach{"a failed row whose effect was never disproved is not erased", aErasing | aUnverified}
		}
		return rc.only("the mark for erasure changes nothing else", aErasing|aBy|aWhy)
	case is.Failure != schema.FailureResolved:
		return &breach{"a failed row changes by a verdict, a suspect or the mark for erasure", rc.changed | aFailure}
	case is.Unverified == 0:
		return &breach{"a person's verdict is not a proof", aUnverified}
	}
	broken := rc.only("a person's verdict changes nothing else", aFailure|aBy|aWhy|aUnverified|aExpiresAt)
	return rc.then(broken, func() { rc.resolved(false, 0) })
}

// fromApplied reads a suspect, a compensation and the mark for erasure. Result and applied attempt never change.
func (rc *rowChange) fromApplied() *breach {
	was, is := rc.was, rc.is
	switch {
	case is.State != schema.StateApplied:
		return &breach{"an applied row stays applied", aState}
	case rc.changed.has(aSuspects):
		return rc.then(rc.only("a suspect changes nothing else", aSuspects), rc.suspected)
	case is.Erasing && !was.Erasing:
		return rc.only("the mark for erasure changes nothing else", aErasing|aBy|aWhy)
	case !was.CompensatedAt.IsZero():
		return &breach{"a compensated row changes by a suspect or the mark for erasure", rc.changed}
	case !is.CompensatedAt.IsZero():
		return rc.compensated()
	case is.CompensatedBy == "":
		return &breach{"an applied row changes by a suspect, a compensation or the mark for erasure", rc.changed}
	case was.CompensatedBy != "" && rc.changed.has(aCompensatedBy|aCompensatedIn):
		return &breach{"only its own key may go on with a compensation", aCompensatedBy}
	}
	// A compensation that is tried again by its own key may write the same link.
	return rc.then(rc.only("the link to a compensation changes nothing else", aCompensatedBy|aCompensatedIn), func() {
		rc.emit(&events.CompensationStarted{Header: rc.header(), CompensatedBy: is.CompensatedBy})
	})
}

func (rc *rowChange) compensated() *breach {
	was, is := rc.was, rc.is
	switch {
	case is.CompensatedBy == "":
		return &breach{"a compensation names its call", aCompensatedBy}
	case was.CompensatedBy != "" && rc.changed.has(aCompensatedBy|aCompensatedIn):
		return &breach{"only its own key may finish a compensation", aCompensatedBy}
	case rc.changed.has(aDebits) && len(is.Debits) > 0:
		return &breach{"a compensation refunds all debits or none", aDebits}
	}
	if broken := rc.only("a compensation changes nothing else", aCompensatedBy|aCompensatedIn|aCompensatedAt|aDebits); broken != nil {
		return broken
	}
	if was.CompensatedBy == "" {
		rc.emit(&events.CompensationStarted{Header: rc.header(), CompensatedBy: is.CompensatedBy})
	}
	var refund int64
	if rc.changed.has(aDebits) {
		refund = schema.SumDebits(was.Debits)
	}
	rc.emit(&events.ToolEffectCompensated{Header: rc.header(), CompensatedBy: is.CompensatedBy, RefundedTokens: refund})
	return nil
}
