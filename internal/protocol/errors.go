package protocol

import "fmt"

// Refused is a cancelled transaction: nothing was written, and each part has its reason.
type Refused struct {
	Parts   []Part
	Reasons []Reason
	Cause   error
}

// Error returns the codes in request order.
func (e *Refused) Error() string {
	codes := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		codes[i] = r.Code
	}
	return fmt.Sprintf("transaction cancelled: %v", codes)
}

// Unwrap returns the SDK's error.
func (e *Refused) Unwrap() error { return e.Cause }

// Unsure is a transaction of which nobody knows whether it was applied: a time-out, a lost answer, an error of the
// service, or a refusal of a later try by the SDK while an earlier one may have come through.
type Unsure struct{ Cause error }

// Error returns the cause.
func (e *Unsure) Error() string {
	return "transaction may or may not have been applied: " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Unsure) Unwrap() error { return e.Cause }

// Rejected is a transaction that DynamoDB did not accept as a request: surely nothing was written.
type Rejected struct{ Cause error }

// Error returns the cause.
func (e *Rejected) Error() string { return "transaction rejected: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *Rejected) Unwrap() error { return e.Cause }
