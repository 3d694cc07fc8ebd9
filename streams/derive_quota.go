package streams

import (
	"math/bits"
	"strconv"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// quotaThresholds are the percentages of its grant whose crossing a quota item reports.
var quotaThresholds = [...]int{20, 5, 0}

// deriveQuota reports what a quota item grants and how low it fell. Its removal is no event: past periods expire.
func deriveQuota(evs []events.Event, c *Change, id *schema.ItemID) ([]events.Event, error) {
	if c.New == nil {
		return evs, nil
	}
	was, is, err := decodeBoth(c, schema.DecodeQuota, func(q *schema.Quota) schema.Key { return q.Key })
	if err != nil {
		return evs, err
	}
	if was == nil || was.QuotaID != is.QuotaID {
		// Tokens that an item never had cannot be crossed by their absence: a new one begins full.
		was = &schema.Quota{Remaining: max(is.Granted, 1)}
	}
	head := events.Header{
		Schema: events.Schema, Tenant: id.Tenant, RowID: is.QuotaID, Version: is.Version, Time: c.Time,
	}
	if delta := is.Granted - was.Granted; delta != 0 {
		ev := &events.QuotaGranted{
			Header: head, Period: id.Period, Shard: id.Shard, Granted: is.Granted, Remaining: is.Remaining, DeltaTokens: delta,
		}
		evs = append(evs, events.Identify(ev, is.QuotaID))
	}
	for _, percent := range quotaThresholds {
		if is.Granted <= 0 || low(was.Remaining, max(was.Granted, 1), percent) || !low(is.Remaining, is.Granted, percent) {
			continue
		}
		ev := &events.QuotaLow{
			Header: head, Period: id.Period, Shard: id.Shard, Granted: is.Granted, Remaining: is.Remaining, Percent: percent,
		}
		evs = append(evs, events.Identify(ev, is.QuotaID+"/"+strconv.Itoa(percent)))
	}
	return evs, nil
}

// low tells whether remaining is at or below percent of granted, exactly, for any int64.
func low(remaining, granted int64, percent int) bool {
	if remaining <= 0 {
		return true
	}
	hi, lo := bits.Mul64(uint64(remaining), 100)
	mostHi, mostLo := bits.Mul64(uint64(max(granted, 0)), uint64(percent)) //nolint:gosec // neither is negative
	return hi < mostHi || hi == mostHi && lo <= mostLo
}
