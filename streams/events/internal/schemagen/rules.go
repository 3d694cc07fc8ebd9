package main

import "math"

// rule is what holds for the values of a field beyond their Go type: only what every publisher keeps to, also where
// somebody tampered with the table.
type rule struct {
	enum      []any
	pattern   string
	min, max  int64 // both 0: the type's own
	maxLength int   // in characters; 0: none
	minItems  int
}

// maxTokens is the largest number of tokens or bytes that the ledger accepts.
const maxTokens = 1 << 53

// idPattern is what every name that a caller gives keeps to: no '#', no control characters.
const idPattern = `^[^#\x00-\x1f\x7f-\x9f]+$`

var (
	count    = rule{min: 0, max: maxTokens}
	positive = rule{min: 1, max: maxTokens}
	counter  = rule{min: 1, max: math.MaxInt64}
	anyInt   = rule{min: math.MinInt64, max: math.MaxInt64}
	hash     = rule{pattern: `^[0-9a-f]{64}$`}
	period   = rule{pattern: `^(ALWAYS|[0-9]{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)$`}
	states   = rule{enum: []any{"pending", "applied", "failed"}}
	settlers = rule{enum: []any{"holder", "verify", "person"}}
	writes   = rule{enum: []any{"insert", "modify", "remove"}}
)

// rules are by JSON name, or by type and JSON name where a name means different things. Every number has one.
var rules = map[string]rule{
	"id":      {pattern: `^[0-9a-f]{32}$`},
	"tenant":  {pattern: idPattern, maxLength: 128},
	"session": {pattern: idPattern, maxLength: 128},
	"key":     {pattern: idPattern, maxLength: 255},
	"scope":   {enum: []any{"session", "tenant"}},
	"version": counter,
	"attempt": counter,

	"reserved_tokens":    count,
	"charged_tokens":     count,
	"shortfall_tokens":   count,
	"refunded_tokens":    {min: 0, max: math.MaxInt64},
	"contention_retries": count,
	"result_sha256":      hash,
	"result_bytes":       count,
	"applied_attempt":    positive,
	"settled_by":         settlers,
	"suspects":           {minItems: 1},

	"ReservationResolved.from":    {enum: []any{"pending", "failed"}},
	"LedgerRowArchived.state":     {enum: []any{"applied", "failed"}},
	"LedgerRowArchived.reason":    {enum: []any{"ttl", "expired", "replaced", "erased"}},
	"LedgerRowTampered.operation": writes,
	"LedgerRowTampered.from":      states,
	"LedgerRowTampered.to":        states,

	"AuditRecordUnreadable.operation": writes,

	"delta": positive,
	"count": positive,

	"QuotaGranted.period": period,
	"QuotaGranted.shard":  count,
	"QuotaLow.period":     period,
	"QuotaLow.shard":      count,
	"QuotaLow.granted":    counter,
	"granted":             anyInt,
	"remaining":           anyInt,
	"delta_tokens":        anyInt,
	"percent":             {enum: []any{20, 5, 0}},

	"PlanChanged.tokens":    count,
	"PlanChanged.period":    {enum: []any{"month", "day", "always"}},
	"PlanChanged.shards":    {min: 1, max: 64},
	"PlanChanged.overdraft": count,
}

// Members of the header that an event always has although others leave them out.
var (
	ofCall        = []string{"tenant", "session", "scope", "key", "row_id", "version", "attempt"}
	ofObservation = []string{"tenant", "scope", "key", "row_id", "version"}
	ofTenant      = []string{"tenant", "row_id", "version"}
)

// always are the members that an event always has although its type could leave them out.
var always = map[string][]string{
	"ToolCallReserved":       ofCall,
	"ToolEffectApplied":      append([]string{"settled_by"}, ofCall...),
	"ReservationExtended":    ofCall,
	"ReservationStuck":       ofCall,
	"ReservationReleased":    ofCall,
	"ReservationExpired":     ofCall,
	"ReservationResolved":    ofCall,
	"ToolEffectSettledLate":  append([]string{"settled_by"}, ofCall...),
	"SuspectedDoubleEffect":  ofCall,
	"CompensationStarted":    ofCall,
	"ToolEffectCompensated":  ofCall,
	"LedgerRowArchived":      ofCall,
	"LedgerRowTampered":      ofCall,
	"AuditGap":               nil,
	"AuditRecordUnreadable":  nil,
	"ToolCallReplayed":       ofObservation,
	"ToolCallInFlight":       ofObservation,
	"IdempotencyKeyConflict": ofObservation,
	"QuotaExhausted":         ofObservation,
	"ContentionGaveUp":       ofObservation,
	"QuotaGranted":           ofTenant,
	"QuotaLow":               ofTenant,
	"PlanChanged":            ofTenant,
}
