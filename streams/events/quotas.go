package events

// QuotaGranted says that what a tenant may spend in a period changed: the period began, the plan changed, or tokens were
// granted beside it. It is about one shard of the period's quota.
type QuotaGranted struct {
	Header
	Period      string `json:"period"`       // "2026-11", "2026-11-30" or "ALWAYS"
	Shard       int    `json:"shard"`        // number of the shard, from 0
	Granted     int64  `json:"granted"`      // tokens of the shard for the period
	Remaining   int64  `json:"remaining"`    // tokens that are left of them
	DeltaTokens int64  `json:"delta_tokens"` // below 0 where a plan was lowered
}

// QuotaLow says that a quota fell to Percent of what was granted: 20, 5 or 0; one event for each of them that was crossed.
// It is about one shard: the others of a period with several may have tokens left.
type QuotaLow struct {
	Header
	Period    string `json:"period"`    // "2026-11", "2026-11-30" or "ALWAYS"
	Shard     int    `json:"shard"`     // number of the shard, from 0
	Granted   int64  `json:"granted"`   // tokens of the shard for the period
	Remaining int64  `json:"remaining"` // below 0 after an overdraft or a late settlement
	Percent   int    `json:"percent"`   // 20, 5 or 0
}

// PlanChanged says what a tenant may spend from now on. Head().Version is the plan's.
type PlanChanged struct {
	Header
	Tokens    int64  `json:"tokens"`            // per period
	Period    string `json:"period"`            // "month", "day" or "always"
	Shards    int    `json:"shards"`            // how many items a period's tokens are spread over
	Overdraft int64  `json:"overdraft"`         // how far below 0 a quota may be debited
	Suspended bool   `json:"suspended"`         // every new debit is refused
	Removed   bool   `json:"removed,omitempty"` // the plan is gone; the other fields are the last known ones
}

// DetailType returns the detail-type.
func (*QuotaGranted) DetailType() string { return "QuotaGranted" }

// DetailType returns the detail-type.
func (*QuotaLow) DetailType() string { return "QuotaLow" }

// DetailType returns the detail-type.
func (*PlanChanged) DetailType() string { return "PlanChanged" }
