package streams

import (
	"time"

	"toolledger/metrics"
	"toolledger/streams/events"
)

// Measure appends the metrics that one event feeds, at the time of its record. It is the only way from events to
// metrics, so that whoever counts events can count the metrics again.
func Measure(data []metrics.Datum, ev events.Event, at time.Time) []metrics.Datum {
	m := measure{data, ev.Head().Tenant, at}
	switch e := ev.(type) {
	case *events.ToolCallReserved:
		m.one(metrics.CallsReserved)
		m.add(metrics.TokensReserved, e.ReservedTokens)
		m.add(metrics.ContentionRetries, e.ContentionRetries)
	case *events.ToolEffectApplied:
		m.one(metrics.EffectsApplied)
		m.add(metrics.TokensCharged, e.ChargedTokens)
		m.add(metrics.TokensShort, e.ShortfallTokens)
		m.add(metrics.TokensRefunded, e.RefundedTokens)
		m.add(metrics.ContentionRetries, e.ContentionRetries)
		m.flag(metrics.EffectsUnverified, e.Unverified)
	case *events.ToolEffectSettledLate:
		m.one(metrics.EffectsSettledLate)
		m.add(metrics.TokensCharged, e.ChargedTokens)
		m.add(metrics.TokensShort, e.ShortfallTokens)
		m.flag(metrics.EffectsUnverified, e.Unverified)
	case *events.ReservationReleased:
		m.one(metrics.ReservationsReleased)
		m.add(metrics.TokensRefunded, e.RefundedTokens)
	case *events.ReservationExpired:
		m.one(metrics.ReservationsExpired)
		m.add(metrics.TokensRefunded, e.RefundedTokens)
	case *events.ReservationResolved:
		m.one(metrics.ReservationsResolved)
		m.add(metrics.TokensRefunded, e.RefundedTokens)
	case *events.ToolEffectCompensated:
		m.one(metrics.EffectsCompensated)
		m.add(metrics.TokensRefunded, e.RefundedTokens)
	default:
		m.rest(ev)
	}
	return m.data
}

type measure struct {
	data   []metrics.Datum
	tenant string
	at     time.Time
}

// add leaves out amounts of 0: they would be paid for and say nothing.
func (m *measure) add(name string, n int64) {
	if n != 0 {
		m.data = append(m.data, metrics.Datum{Name: name, Tenant: m.tenant, Value: float64(n), Time: m.at})
	}
}

func (m *measure) one(name string) { m.add(name, 1) }

func (m *measure) flag(name string, set bool) {
	if set {
		m.one(name)
	}
}

// rest measures the events that feed no tokens but those of quotas.
func (m *measure) rest(ev events.Event) {
	switch e := ev.(type) {
	case *events.ReservationExtended:
		m.one(metrics.ReservationsExtended)
	case *events.ReservationStuck:
		m.one(metrics.ReservationsStuck)
	case *events.SuspectedDoubleEffect:
		m.one(metrics.DoubleEffectsSuspected)
	case *events.CompensationStarted:
		m.one(metrics.CompensationsStarted)
	case *events.LedgerRowArchived:
		m.one(metrics.RowsArchived)
	case *events.LedgerRowTampered:
		m.one(metrics.RowsTampered)
	case *events.QuotaGranted:
		m.one(metrics.QuotaGrants)
		m.add(metrics.TokensGranted, max(e.DeltaTokens, 0))
		m.add(metrics.TokensWithdrawn, max(-e.DeltaTokens, 0))
	case *events.QuotaLow:
		m.one(metrics.QuotaWarnings)
	case *events.PlanChanged:
		m.one(metrics.PlanChanges)
	case *events.AuditGap:
		m.one(metrics.AuditGaps)
	case *events.AuditRecordUnreadable:
		m.one(metrics.RecordsUnreadable)
	default:
		m.observation(ev)
	}
}

// observation counts what the event stands for, which may be several refusals or replays.
func (m *measure) observation(ev events.Event) {
	switch e := ev.(type) {
	case *events.ToolCallReplayed:
		m.add(metrics.CallsReplayed, e.Delta)
	case *events.ToolCallInFlight:
		m.add(metrics.CallsInFlight, e.Delta)
	case *events.IdempotencyKeyConflict:
		m.add(metrics.KeyConflicts, e.Delta)
	case *events.QuotaExhausted:
		m.add(metrics.QuotaDenials, e.Delta)
	case *events.ContentionGaveUp:
		m.add(metrics.ContentionGiveUps, e.Delta)
	}
}
