package events

import "time"

// ToolCallReserved says that quota is debited and the effect may or may not happen.
type ToolCallReserved struct {
	Header
	ReservedTokens    int64     `json:"reserved_tokens"`              // debited for the call
	Deadline          time.Time `json:"deadline"`                     // after it the reservation may be given back
	Unverified        bool      `json:"unverified,omitempty"`         // an earlier attempt ended without its effect being disproved
	ContentionRetries int64     `json:"contention_retries,omitempty"` // transactions lost to conflicts before this one came through
}

// ToolEffectApplied says that the effect happened and is recorded.
type ToolEffectApplied struct {
	Header
	ReservedTokens    int64  `json:"reserved_tokens"`              // debited before the effect
	ChargedTokens     int64  `json:"charged_tokens"`               // what the effect costs
	ShortfallTokens   int64  `json:"shortfall_tokens,omitempty"`   // the part of ChargedTokens that no quota covered
	RefundedTokens    int64  `json:"refunded_tokens,omitempty"`    // reserved and not charged
	ResultSHA256      string `json:"result_sha256"`                // hex, of the stored bytes
	ResultBytes       int64  `json:"result_bytes"`                 // size of the stored bytes
	AppliedAttempt    int    `json:"applied_attempt"`              // the attempt that took effect; below Attempt where a newer one had replaced it
	SettledBy         string `json:"settled_by,omitempty"`         // "holder", "verify" or "person"
	Unverified        bool   `json:"unverified,omitempty"`         // an earlier attempt ended without its effect being disproved
	ContentionRetries int64  `json:"contention_retries,omitempty"` // where no reservation came before
}

// ReservationExtended says that the holder moved its deadline forward.
type ReservationExtended struct {
	Header
	PreviousDeadline time.Time `json:"previous_deadline"` // the one before
	Deadline         time.Time `json:"deadline"`          // after it the reservation may be given back
}

// ReservationStuck says that nobody can tell whether the effect happened: the reservation is held until a person decides.
type ReservationStuck struct {
	Header
	ReservedTokens int64     `json:"reserved_tokens"` // debited until then
	Deadline       time.Time `json:"deadline"`        // the one that was missed
}

// ReservationReleased says that the effect surely did not happen.
type ReservationReleased struct {
	Header
	RefundedTokens int64 `json:"refunded_tokens"` // given back to the quota
}

// ReservationExpired says that the sweeper gave a stale reservation back.
type ReservationExpired struct {
	Header
	RefundedTokens int64     `json:"refunded_tokens"` // given back to the quota
	Deadline       time.Time `json:"deadline"`        // the one that was missed
}

// ReservationResolved says that a person decided that the effect did not happen. Head().By names who.
type ReservationResolved struct {
	Header
	From           string `json:"from"`            // state before: "pending" or "failed"
	Held           bool   `json:"held,omitempty"`  // it had been held for a person
	RefundedTokens int64  `json:"refunded_tokens"` // given back to the quota
}

// ToolEffectSettledLate says that an effect given up for lost did happen, and was debited again.
type ToolEffectSettledLate struct {
	Header
	ChargedTokens   int64  `json:"charged_tokens"`             // what the effect costs
	ShortfallTokens int64  `json:"shortfall_tokens,omitempty"` // the part of ChargedTokens that no quota covered
	ResultSHA256    string `json:"result_sha256"`              // hex, of the stored bytes
	ResultBytes     int64  `json:"result_bytes"`               // size of the stored bytes
	AppliedAttempt  int    `json:"applied_attempt"`            // the attempt that took effect
	SettledBy       string `json:"settled_by,omitempty"`       // "holder", "verify" or "person"
	SettledFrom     string `json:"settled_from,omitempty"`     // row id of the reservation, where that row is gone
	Unverified      bool   `json:"unverified,omitempty"`       // an earlier attempt ended without its effect being disproved
}

// SuspectedDoubleEffect says that more than one attempt may have taken effect: somebody should look outside.
type SuspectedDoubleEffect struct {
	Header
	Suspects []string `json:"suspects"` // "<row id>/<attempt>" of the attempts newly suspected beside the recorded one
}

// CompensationStarted says that another call is about to undo this one.
type CompensationStarted struct {
	Header
	CompensatedBy string `json:"compensated_by"` // scope and key of the other call
}

// ToolEffectCompensated says that another call undid this one.
type ToolEffectCompensated struct {
	Header
	CompensatedBy  string `json:"compensated_by"`  // scope and key of the other call
	RefundedTokens int64  `json:"refunded_tokens"` // given back to the quota
}

// DetailType returns the detail-type.
func (*ToolCallReserved) DetailType() string { return "ToolCallReserved" }

// DetailType returns the detail-type.
func (*ToolEffectApplied) DetailType() string { return "ToolEffectApplied" }

// DetailType returns the detail-type.
func (*ReservationExtended) DetailType() string { return "ReservationExtended" }

// DetailType returns the detail-type.
func (*ReservationStuck) DetailType() string { return "ReservationStuck" }

// DetailType returns the detail-type.
func (*ReservationReleased) DetailType() string { return "ReservationReleased" }

// DetailType returns the detail-type.
func (*ReservationExpired) DetailType() string { return "ReservationExpired" }

// DetailType returns the detail-type.
func (*ReservationResolved) DetailType() string { return "ReservationResolved" }

// DetailType returns the detail-type.
func (*ToolEffectSettledLate) DetailType() string { return "ToolEffectSettledLate" }

// DetailType returns the detail-type.
func (*SuspectedDoubleEffect) DetailType() string { return "SuspectedDoubleEffect" }

// DetailType returns the detail-type.
func (*CompensationStarted) DetailType() string { return "CompensationStarted" }

// DetailType returns the detail-type.
func (*ToolEffectCompensated) DetailType() string { return "ToolEffectCompensated" }
