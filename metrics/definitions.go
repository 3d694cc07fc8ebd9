package metrics

import "time"

// Datum is one measurement of one record.
type Datum struct {
	Name   string
	Tenant string // "" for totals only
	Value  float64
	Time   time.Time // of the record
}

// The units of CloudWatch that are used.
const (
	UnitCount   = "Count"
	UnitSeconds = "Seconds"
)

// The statistics that a metric is meant to be read by.
const (
	StatisticSum = "Sum"
	StatisticMax = "Maximum"
)

// DimensionTenant is the dimension of per-tenant series: a tenant by name as [TenantValue] writes it, or [OtherTenants].
const DimensionTenant = "Tenant"

// Definition is one metric. Every metric has a total without dimensions; Dimensions adds the series that also exist.
type Definition struct {
	Name, Unit, Meaning string
	Event               string   // detail-type of the event that feeds it; "" where none does
	Emitter             string   // who emits it: "consumer" (all that have an Event too), "publisher", "poller", "sink" or "sweeper"
	Statistic           string   // how to read it over time: StatisticSum or StatisticMax
	Dimensions          []string // of the series beside the total
}

// Metrics fed by events. Each event adds to the first metric that names it exactly what it stands for: 1, or the delta
// that an observation carries.
const (
	CallsReserved          = "CallsReserved"
	EffectsApplied         = "EffectsApplied"
	ReservationsExtended   = "ReservationsExtended"
	ReservationsStuck      = "ReservationsStuck"
	ReservationsReleased   = "ReservationsReleased"
	ReservationsExpired    = "ReservationsExpired"
	ReservationsResolved   = "ReservationsResolved"
	EffectsSettledLate     = "EffectsSettledLate"
	DoubleEffectsSuspected = "DoubleEffectsSuspected"
	CompensationsStarted   = "CompensationsStarted"
	EffectsCompensated     = "EffectsCompensated"
	RowsArchived           = "RowsArchived"
	RowsTampered           = "RowsTampered"
	CallsReplayed          = "CallsReplayed"
	CallsInFlight          = "CallsInFlight"
	KeyConflicts           = "KeyConflicts"
	QuotaDenials           = "QuotaDenials"
	ContentionGiveUps      = "ContentionGiveUps"
	QuotaGrants            = "QuotaGrants"
	QuotaWarnings          = "QuotaWarnings"
	PlanChanges            = "PlanChanges"
	AuditGaps              = "AuditGaps"
	RecordsUnreadable      = "RecordsUnreadable"

	TokensReserved    = "TokensReserved"
	TokensCharged     = "TokensCharged"
	TokensRefunded    = "TokensRefunded"
	TokensShort       = "TokensShort"
	TokensGranted     = "TokensGranted"
	TokensWithdrawn   = "TokensWithdrawn"
	ContentionRetries = "ContentionRetries"
	EffectsUnverified = "EffectsUnverified"
)

// Metrics of the programs' own work.
const (
	RecordsProcessed    = "RecordsProcessed"
	RecordTimesReplaced = "RecordTimesReplaced"
	EventsRefused       = "EventsRefused"
	MetricsDropped      = "MetricsDropped"
	MetricsUncertain    = "MetricsUncertain"

	SweepRuns            = "SweepRuns"
	SweepFound           = "SweepFound"
	SweepVerified        = "SweepVerified"
	SweepFinalized       = "SweepFinalized"
	SweepExpired         = "SweepExpired"
	SweepUnknown         = "SweepUnknown"
	SweepHeld            = "SweepHeld"
	SweepLostRaces       = "SweepLostRaces"
	SweepErrors          = "SweepErrors"
	SweepIncomplete      = "SweepIncomplete"
	SweepRefundedTokens  = "SweepRefundedTokens"
	OldestReservationAge = "OldestReservationAge"
	ReservationsOverdue  = "ReservationsOverdue"
	ReservationsHeld     = "ReservationsHeld"
	ReservationsOpen     = "ReservationsOpen"
	emitterConsumer      = "consumer"
	emitterPublisher     = "publisher"
	emitterPoller        = "poller"
	emitterSink          = "sink"
	emitterSweeper       = "sweeper"
)

// Definitions returns every metric that the code emits, those fed by events first.
func Definitions() []Definition {
	all := append(callDefinitions(), auditDefinitions()...)
	all = append(all, tokenDefinitions()...)
	return append(all, ownDefinitions()...)
}

func perTenant(name, event, meaning string) Definition {
	return Definition{name, UnitCount, meaning, event, emitterConsumer, StatisticSum, []string{DimensionTenant}}
}

func callDefinitions() []Definition {
	return []Definition{
		perTenant(CallsReserved, "ToolCallReserved", "Attempts begun: quota debited, effect not yet known."),
		perTenant(EffectsApplied, "ToolEffectApplied", "Effects recorded as having happened, without those settled late."),
		perTenant(ReservationsExtended, "ReservationExtended", "Deadlines that a long-running holder moved forward."),
		perTenant(ReservationsStuck, "ReservationStuck", "Reservations held until a person decides; above 0 somebody must look."),
		perTenant(ReservationsReleased, "ReservationReleased", "Attempts whose effect surely did not happen; refunded."),
		perTenant(ReservationsExpired, "ReservationExpired", "Stale reservations given back; many mean that workers die or leases are short."),
		perTenant(ReservationsResolved, "ReservationResolved", "Calls that a person decided not to have happened."),
		perTenant(EffectsSettledLate, "ToolEffectSettledLate", "Effects recorded after their reservation was given back; debited again."),
		perTenant(DoubleEffectsSuspected, "SuspectedDoubleEffect", "Calls of which two attempts may have taken effect; above 0 somebody must look."),
		perTenant(CompensationsStarted, "CompensationStarted", "Applied calls that another call began to undo."),
		perTenant(EffectsCompensated, "ToolEffectCompensated", "Applied calls that another call undid."),
	}
}

func auditDefinitions() []Definition {
	gaps := Definition{
		AuditGaps, UnitCount, "Stretches of stream lost unread; above 0 the audit trail has holes until it is rebuilt.",
		"AuditGap", emitterPoller, StatisticSum, nil,
	}
	return []Definition{
		perTenant(RowsArchived, "LedgerRowArchived", "Ended calls that left the table after their retention."),
		perTenant(RowsTampered, "LedgerRowTampered", "Row changes that no writer may cause; above 0 somebody wrote past the protocol."),
		perTenant(CallsReplayed, "ToolCallReplayed", "Repeated calls answered with the stored result."),
		perTenant(CallsInFlight, "ToolCallInFlight", "Calls refused because an attempt of their key was running."),
		perTenant(KeyConflicts, "IdempotencyKeyConflict", "Calls refused because their key belongs to another action."),
		perTenant(QuotaDenials, "QuotaExhausted", "Calls refused because the quota could not pay for them."),
		perTenant(ContentionGiveUps, "ContentionGaveUp", "Calls that failed on transaction conflicts after all retries; use more shards."),
		perTenant(QuotaGrants, "QuotaGranted", "Quota items created or changed in what they grant."),
		perTenant(QuotaWarnings, "QuotaLow", "Falls of a quota item to 20 %, 5 % or 0 of its grant."),
		perTenant(PlanChanges, "PlanChanged", "Plans set, suspended, resumed or removed."),
		gaps,
		perTenant(RecordsUnreadable, "AuditRecordUnreadable", "Stream records that could not be understood and were kept elsewhere."),
	}
}

func tokenDefinitions() []Definition {
	return []Definition{
		perTenant(TokensReserved, "ToolCallReserved", "Tokens debited for attempts."),
		perTenant(TokensCharged, "ToolEffectApplied", "Tokens charged for effects; those of ToolEffectSettledLate too."),
		perTenant(TokensRefunded, "ReservationReleased", "Tokens given back: released, expired, resolved, compensated, or reserved and not charged."),
		perTenant(TokensShort, "ToolEffectApplied", "The part of charges that no quota covered; those of ToolEffectSettledLate too."),
		perTenant(TokensGranted, "QuotaGranted", "Tokens that quota items gained by a new period, plan or grant."),
		perTenant(TokensWithdrawn, "QuotaGranted", "Tokens that quota items lost by a lower plan."),
		perTenant(ContentionRetries, "ToolCallReserved", "Transactions lost to conflicts before a reserve or commit came through."),
		perTenant(EffectsUnverified, "ToolEffectApplied", "Effects of calls that had an attempt whose own effect was never disproved."),
	}
}

func ownDefinitions() []Definition {
	own := func(name, unit, emitter, statistic, meaning string) Definition {
		return Definition{name, unit, meaning, "", emitter, statistic, nil}
	}
	sweep := func(name, meaning string) Definition {
		return own(name, UnitCount, emitterSweeper, StatisticSum, meaning)
	}
	return []Definition{
		own(RecordsProcessed, UnitCount, emitterConsumer, StatisticSum, "Stream records done with; flat while the table is written to means that the audit stands still."),
		own(RecordTimesReplaced, UnitCount, emitterConsumer, StatisticSum, "Records without a usable time, counted under the time of processing."),
		own(EventsRefused, UnitCount, emitterPublisher, StatisticSum, "Events that the bus refused for good, set aside with the reason."),
		own(MetricsDropped, UnitCount, emitterSink, StatisticSum, "Points that CloudWatch would not take: malformed, or outside its window of 14 days back to 2 hours ahead."),
		own(MetricsUncertain, UnitCount, emitterSink, StatisticSum, "Points sent without an answer; not sent again, since that could count them twice."),
		sweep(SweepRuns, "Runs of the sweeper; none for five minutes means that reservations pile up."),
		sweep(SweepFound, "Overdue reservations found."),
		sweep(SweepVerified, "Overdue reservations of which a verifier said whether they took effect."),
		sweep(SweepFinalized, "Overdue reservations whose effect turned out to have happened."),
		sweep(SweepExpired, "Overdue reservations given back."),
		sweep(SweepUnknown, "Overdue reservations put off because their tool could not tell."),
		sweep(SweepHeld, "Overdue reservations held for a person."),
		sweep(SweepLostRaces, "Overdue reservations that somebody else settled first; harmless."),
		sweep(SweepErrors, "Overdue reservations that could not be dealt with."),
		sweep(SweepIncomplete, "Runs that ran out of time; the next one goes on."),
		sweep(SweepRefundedTokens, "Tokens given back by the sweeper."),
		own(OldestReservationAge, UnitSeconds, emitterSweeper, StatisticMax, "How long the most overdue reservation found has been overdue."),
		own(ReservationsOverdue, UnitCount, emitterSweeper, StatisticMax, "Reservations that a sweep found overdue, those put off to a later look included; held ones count beside them."),
		own(ReservationsHeld, UnitCount, emitterSweeper, StatisticMax, "Reservations that wait for a person to decide; above 0 somebody must look."),
		own(ReservationsOpen, UnitCount, emitterSweeper, StatisticMax, "Other reservations that were open when a sweep ended, in time or overdue."),
	}
}
