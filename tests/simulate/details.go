package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolledger/metrics"
)

// What events tell beside their names: whose they are, and how many tokens; and what metrics come to by them.

// tale is what an event has to tell.
type tale struct {
	tenant  string
	amounts map[string]int64 // by the names of its fields
}

// taleOf reads a change of an item. Fields that are not named are not held.
func taleOf(kind string, r *record) tale {
	t, was, is := tale{tenant: tenantOf(r.key.pk)}, r.old, r.new
	same := is != nil && was.str("rowId") == is.str("rowId") && was.str("quotaId") == is.str("quotaId") && was.str("obsId") == is.str("obsId")
	if !same {
		was = nil
	}
	observed := func(attr string) map[string]int64 {
		return map[string]int64{"delta": is.num(attr) - was.num(attr), "count": is.num(attr)}
	}
	switch kind {
	case "ToolCallReserved":
		t.amounts = map[string]int64{"reserved_tokens": sum(is.debits()), "attempt": is.num("attempt")}
	case "ToolEffectApplied":
		held := sum(debitsOf(r.key, was))
		t.amounts = map[string]int64{
			"reserved_tokens": is.num("reservedTokens"), "charged_tokens": is.num("chargedTokens"), "shortfall_tokens": is.num("shortfall"),
			"refunded_tokens": max(held-is.num("chargedTokens"), 0), "applied_attempt": is.num("appliedAttempt"),
		}
	case "ToolEffectSettledLate":
		t.amounts = map[string]int64{
			"charged_tokens": is.num("chargedTokens"), "shortfall_tokens": is.num("shortfall"), "applied_attempt": is.num("appliedAttempt"),
		}
	case "ReservationReleased", "ReservationExpired", "ReservationResolved":
		t.amounts = map[string]int64{"refunded_tokens": sum(debitsOf(r.key, was)) - lostOf(r)}
	case "ToolEffectCompensated":
		t.amounts = map[string]int64{"refunded_tokens": sum(was.debits()) - sum(is.debits())}
	case "QuotaGranted":
		t.amounts = map[string]int64{
			"granted": is.num("granted"), "remaining": is.num("remaining"), "delta_tokens": is.num("granted") - was.num("granted"), "shard": is.num("shard"),
		}
	case "QuotaLow":
		t.amounts = map[string]int64{"granted": is.num("granted"), "remaining": is.num("remaining"), "shard": is.num("shard")}
	case "PlanChanged":
		if is != nil {
			t.amounts = map[string]int64{"tokens": is.num("tokens"), "shards": is.num("shards"), "overdraft": is.num("overdraft")}
		}
	case "ToolCallReplayed":
		t.amounts = observed("duplicates")
	case "ToolCallInFlight":
		t.amounts = observed("inFlight")
	case "IdempotencyKeyConflict":
		t.amounts = observed("keyConflicts")
	case "QuotaExhausted":
		t.amounts = observed("quotaDenials")
	case "ContentionGaveUp":
		t.amounts = observed("contentionGiveUps")
	}
	return t
}

// lostOf is what a row cannot give back, since an erase has removed what it debited: it keeps the rest alone.
func lostOf(r *record) int64 {
	if r.old.str("state") != "pending" {
		return 0
	}
	return sum(r.old.debits()) - sum(r.new.debits())
}

// tells holds what an event says of whose it is and how much.
func (o *oracle) tells(name, tenant, detail string) error {
	var fields map[string]any
	if err := json.Unmarshal([]byte(detail), &fields); err != nil {
		return o.w.broken(invEvents, "%s cannot be read: %s", name, detail)
	}
	told := ""
	for _, t := range o.tales[name] {
		if t.tenant != tenant {
			return o.w.broken(invTenants, "%s of %s says that it is of %q", name, t.tenant, tenant)
		}
		if told = t.differs(fields); told == "" {
			return nil
		}
	}
	if told != "" {
		return o.w.broken(invEvents, "%s says %s", name, told)
	}
	return nil
}

// differs names a field that does not tell the tale; "" where there is none.
func (t tale) differs(fields map[string]any) string {
	for _, field := range slices.Sorted(maps.Keys(t.amounts)) {
		if got, _ := fields[field].(float64); int64(got) != t.amounts[field] {
			return fmt.Sprintf("%s %v, want %d", field, fields[field], t.amounts[field])
		}
	}
	return ""
}

// happening is an event that is expected.
type happening struct {
	name string // type|entity|version
	tale
}

// metrics are the counts that it feeds.
func (h happening) metrics() map[string]float64 {
	kind, _, _ := strings.Cut(h.name, "|")
	out := map[string]float64{}
	add := func(metric, field string) { out[metric] += float64(h.amounts[field]) }
	switch metric := metricOf[kind]; {
	case observations[kind]:
		add(metric, "delta")
	case metric != "":
		out[metric] = 1
	}
	switch kind {
	case "ToolCallReserved":
		add(metrics.TokensReserved, "reserved_tokens")
	case "ToolEffectApplied", "ToolEffectSettledLate":
		add(metrics.TokensCharged, "charged_tokens")
		add(metrics.TokensShort, "shortfall_tokens")
		add(metrics.TokensRefunded, "refunded_tokens")
	case "ReservationReleased", "ReservationExpired", "ReservationResolved", "ToolEffectCompensated":
		add(metrics.TokensRefunded, "refunded_tokens")
	case "QuotaGranted":
		out[metrics.TokensGranted] = float64(max(h.amounts["delta_tokens"], 0))
		out[metrics.TokensWithdrawn] = float64(max(-h.amounts["delta_tokens"], 0))
	}
	return out
}

// metricOf is the metric that an event feeds: by one for each, or by what it stands for.
var metricOf = map[string]string{
	"ToolCallReserved": metrics.CallsReserved, "ToolEffectApplied": metrics.EffectsApplied, "ReservationExtended": metrics.ReservationsExtended,
	"ReservationStuck": metrics.ReservationsStuck, "ReservationReleased": metrics.ReservationsReleased,
	"ReservationExpired": metrics.ReservationsExpired, "ReservationResolved": metrics.ReservationsResolved,
	"ToolEffectSettledLate": metrics.EffectsSettledLate, "SuspectedDoubleEffect": metrics.DoubleEffectsSuspected,
	"CompensationStarted": metrics.CompensationsStarted, "ToolEffectCompensated": metrics.EffectsCompensated, "LedgerRowArchived": metrics.RowsArchived,
	"QuotaGranted": metrics.QuotaGrants, "QuotaLow": metrics.QuotaWarnings, "PlanChanged": metrics.PlanChanges,
	"ToolCallReplayed": metrics.CallsReplayed, "ToolCallInFlight": metrics.CallsInFlight, "IdempotencyKeyConflict": metrics.KeyConflicts,
	"QuotaExhausted": metrics.QuotaDenials, "ContentionGaveUp": metrics.ContentionGiveUps,
}

// observations are events that stand for several at once.
var observations = map[string]bool{
	"ToolCallReplayed": true, "ToolCallInFlight": true, "IdempotencyKeyConflict": true, "QuotaExhausted": true, "ContentionGaveUp": true,
}
