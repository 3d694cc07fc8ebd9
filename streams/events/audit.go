package events

// LedgerRowArchived says that an ended call left the table as it should: its key is forgotten from now on.
type LedgerRowArchived struct {
	Header
	State  string `json:"state"`  // the one that it ended in: "applied" or "failed"
	Reason string `json:"reason"` // "ttl", "expired" (removed by somebody after its time), "replaced" (by a new call of the key) or "erased"
}

// LedgerRowTampered says that a ledger row changed in a way that no writer of toolledger may cause.
type LedgerRowTampered struct {
	Header
	Operation  string   `json:"operation"`            // "insert", "modify" or "remove"
	From       string   `json:"from,omitempty"`       // state before
	To         string   `json:"to,omitempty"`         // state after
	Replaced   string   `json:"replaced,omitempty"`   // row id of the row that was there before, where it was another one
	Rule       string   `json:"rule"`                 // the rule of the protocol that was broken
	Attributes []string `json:"attributes,omitempty"` // names of the attributes that broke it
}

// AuditGap says that a stretch of the stream is lost, because it was not read within the 24 hours that it is kept: events
// of that stretch are missing until they are rebuilt from the table.
type AuditGap struct {
	Header
	Stream        string `json:"stream"`                   // ARN of the stream
	Shard         string `json:"shard"`                    // id of the shard that the stretch is of
	AfterSequence string `json:"after_sequence,omitempty"` // the last record that was read; absent: none was
}

// AuditRecordUnreadable says that a stream record could not be understood. The record is kept elsewhere; the stream went on.
type AuditRecordUnreadable struct {
	Header
	Stream    string `json:"stream,omitempty"`    // ARN of the stream
	Sequence  string `json:"sequence,omitempty"`  // sequence number of the record
	Operation string `json:"operation,omitempty"` // "insert", "modify" or "remove"
	Attribute string `json:"attribute,omitempty"` // where it could not be read
	Rule      string `json:"rule"`                // what would have been right there
}

// Observation is common to the events that say what left no trace in the ledger itself, because nothing was written.
// RowID is that of the counting item; Count runs on, Delta is what this event adds.
type Observation struct {
	Delta int64 `json:"delta"` // how many of these events this one stands for
	Count int64 `json:"count"` // how many there have been of the call
}

// ToolCallReplayed says that the stored result was returned again. Like the other observations it carries the counter of
// the call it was counted on; one event may stand for several replays (Delta).
type ToolCallReplayed struct {
	Header
	Observation
}

// ToolCallInFlight says that a call was refused because an attempt of the same key was running.
type ToolCallInFlight struct {
	Header
	Observation
}

// IdempotencyKeyConflict says that a call key was used for another action and refused.
type IdempotencyKeyConflict struct {
	Header
	Observation
}

// QuotaExhausted says that a call was refused because its tenant's quota could not pay for it.
type QuotaExhausted struct {
	Header
	Observation
}

// ContentionGaveUp says that a call failed because others were at the same items all the time.
type ContentionGaveUp struct {
	Header
	Observation
}

// DetailType returns the detail-type.
func (*LedgerRowArchived) DetailType() string { return "LedgerRowArchived" }

// DetailType returns the detail-type.
func (*LedgerRowTampered) DetailType() string { return "LedgerRowTampered" }

// DetailType returns the detail-type.
func (*AuditGap) DetailType() string { return "AuditGap" }

// DetailType returns the detail-type.
func (*AuditRecordUnreadable) DetailType() string { return "AuditRecordUnreadable" }

// DetailType returns the detail-type.
func (*ToolCallReplayed) DetailType() string { return "ToolCallReplayed" }

// DetailType returns the detail-type.
func (*ToolCallInFlight) DetailType() string { return "ToolCallInFlight" }

// DetailType returns the detail-type.
func (*IdempotencyKeyConflict) DetailType() string { return "IdempotencyKeyConflict" }

// DetailType returns the detail-type.
func (*QuotaExhausted) DetailType() string { return "QuotaExhausted" }

// DetailType returns the detail-type.
func (*ContentionGaveUp) DetailType() string { return "ContentionGaveUp" }
