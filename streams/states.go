package streams

import "toolledger/internal/schema"

// checkPending holds a pending row against what every pending row is: sought by the sweeper, safe from TTL, and with its
// whole reservation debited.
func checkPending(r *schema.Row, id *schema.ItemID) *breach {
	bucket := schema.PendingBucket(id.CallKey)
	if r.Held {
		bucket = schema.HeldBucket(id.CallKey)
	}
	switch {
	case r.Deadline.IsZero():
		return &breach{"a pending row has a deadline", aDeadline}
	case r.PendingBucket != bucket:
		return &breach{"a pending row is in its bucket of the index", aPendingBucket}
	case !r.ExpiresAt.IsZero():
		return &breach{"a pending row never expires by TTL", aExpiresAt}
	case !r.LastDeadline.IsZero():
		return &breach{"a pending row has no last deadline", aLastDeadline}
	case r.ResultJSON != nil || r.ResultRef != nil:
		return &breach{"a pending row has no result", aResult}
	case r.AppliedAttempt != 0 || r.SettledBy != "":
		return &breach{"a pending row is not settled", aApplied | aSettledBy}
	case r.Failure != "":
		return &breach{"a pending row has not failed", aFailure}
	case r.Charged != 0 || r.Shortfall != 0:
		return &breach{"a pending row is not charged", aCharged | aShortfall}
	case r.Undoer() != (schema.Undoer{}) || !r.CompensatedAt.IsZero():
		return &breach{"only an applied row is compensated", aCompensatedBy | aCompensatedAt}
	case schema.SumDebits(r.Debits) != r.Reserved:
		return &breach{"the debits of a reservation are what it reserved", aDebits | aReserved}
	}
	return nil
}

// checkEnded holds an applied or failed row against what every ended row is.
func checkEnded(r *schema.Row) *breach {
	switch {
	case !r.Deadline.IsZero():
		return &breach{"an ended row has no deadline", aDeadline}
	case r.PendingBucket != "":
		return &breach{"an ended row leaves the index", aPendingBucket}
	case r.Held:
		return &breach{"an ended row is not held", aHeld}
	case r.ExpiresAt.IsZero():
		return &breach{"an ended row expires", aExpiresAt}
	case r.ExpiresAt.Unix() < r.UpdatedAt.Unix():
		return &breach{"a row does not expire before it ends", aExpiresAt}
	}
	return nil
}

// checkApplied holds a row against what every row is at the moment that its effect is recorded.
func checkApplied(r *schema.Row) *breach {
	if broken := checkEnded(r); broken != nil {
		return broken
	}
	switch {
	case (r.ResultJSON == nil) == (r.ResultRef == nil):
		return &breach{"an applied row has one result", aResult}
	case r.AppliedAttempt < 1 || r.AppliedAttempt > r.Attempt:
		return &breach{"an attempt of the row took effect", aApplied}
	case r.SettledBy != schema.SettledByHolder && r.SettledBy != schema.SettledByVerify && r.SettledBy != schema.SettledByPerson:
		return &breach{"an effect is recorded by the holder, a verifier or a person", aSettledBy}
	case r.Failure != "":
		return &breach{"an applied row has not failed", aFailure}
	case r.Charged != schema.SumDebits(r.Debits)+r.Shortfall:
		return &breach{"the charge is debits and shortfall", aCharged | aDebits | aShortfall}
	}
	return nil
}

// checkFailed holds a row against what every failed row is.
func checkFailed(r *schema.Row) *breach {
	if broken := checkEnded(r); broken != nil {
		return broken
	}
	switch {
	case r.Failure != schema.FailureReleased && r.Failure != schema.FailureExpired && r.Failure != schema.FailureResolved:
		return &breach{"a row fails by release, expiry or a person's verdict", aFailure}
	case r.ResultJSON != nil || r.ResultRef != nil:
		return &breach{"a failed row has no result", aResult}
	case r.AppliedAttempt != 0 || r.SettledBy != "":
		return &breach{"a failed row is not settled", aApplied | aSettledBy}
	case r.Charged != 0 || r.Shortfall != 0:
		return &breach{"a failed row is not charged", aCharged | aShortfall}
	case r.Undoer() != (schema.Undoer{}) || !r.CompensatedAt.IsZero():
		return &breach{"only an applied row is compensated", aCompensatedBy | aCompensatedAt}
	}
	return nil
}
