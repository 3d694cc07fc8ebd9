package ops

import (
	"strings"

	"toolledger/metrics"
)

// What CloudWatch does where an alarm's metric has no data.
const (
	MissingOK       = "notBreaching"
	MissingBreaches = "breaching"
	MissingIgnored  = "ignore" // the state stays as it is
)

// The comparisons that are used.
const (
	AtLeast  = "GreaterThanOrEqualToThreshold"
	Above    = "GreaterThanThreshold"
	LessThan = "LessThanThreshold"
)

// Alarm is one alarm over one metric, or over an expression of several.
type Alarm struct {
	ID         string  // logical id in the template
	Name       string  // its name after the stack's, and its anchor in the runbook
	Says       string  // what it means when it goes off, one sentence
	Page       bool    // wakes somebody; otherwise it is read in office hours
	Metric     Metric  // where there is no Expression
	Stat       string  // of Metric
	Expression string  // over Queries, by their ids
	Queries    []Query // all of one period
	Compare    string
	Threshold  float64
	Period     int    // seconds
	Of         int    // periods looked at
	Points     int    // of these, how many have to be beyond the threshold
	Missing    string // MissingOK, MissingBreaches or MissingIgnored
	MissingWhy string // why that is right
	Condition  string // of the template, under which it exists
}

// Query is a metric that an expression uses. A sum is written SUM([FILL(a, 0), …]): a metric that was never sent takes no part
// in it, where a plain + might have no value at all. FILL also fills the newest period of a metric that comes late, so that such an
// alarm looks at more periods than it needs.
type Query struct {
	ID     string // lower-case
	Metric Metric
	Stat   string
}

// Conditions and mappings of the template.
const (
	hasHTTP        = "HasHttp"    // the HTTP door
	hasAPI         = "HasHttpApi" // the API before it and before the admin door
	ledgerMapping  = "StreamFunctionLedger"
	controlMapping = "StreamFunctionControl"
)

// Thresholds that dashboards draw too.
const (
	oldestReservation = 300     // seconds
	streamLag         = 300_000 // milliseconds
)

const fiveMinutes = 5 * minute

// Alarms lists every alarm.
func Alarms() []Alarm {
	all := append(effectAlarms(), sweepAlarms()...)
	all = append(all, streamAlarms()...)
	all = append(all, doorAlarms()...)
	return append(all, noticeAlarms()...)
}

const neverCounted = "what never happens is never counted"

// event is an alarm on the first occurrence of something that must not happen. It looks back three periods: points bear the time
// of what they tell, so that those of a stream that is some minutes late are in the past when they arrive.
func event(id, name, metric, says string, page bool) Alarm {
	return Alarm{
		ID: id, Name: name, Says: says, Page: page, Metric: own(metric), Stat: metrics.StatisticSum,
		Compare: AtLeast, Threshold: 1, Period: fiveMinutes, Of: 3, Points: 1, Missing: MissingOK, MissingWhy: neverCounted,
	}
}

func effectAlarms() []Alarm {
	return []Alarm{
		event("SuspectedDoubleEffectsAlarm", "suspected-double-effects", metrics.DoubleEffectsSuspected,
			"Two attempts of one call may both have taken effect.", true),
		event("TamperedRowsAlarm", "tampered-rows", metrics.RowsTampered,
			"Somebody changed a row of the ledger past the protocol.", true),
	}
}

func sweepAlarms() []Alarm {
	return []Alarm{
		{
			ID: "SweepSilenceAlarm", Name: "sweep-silence", Says: "No sweep has run for five minutes: reservations stay open and tokens held.",
			Page: true, Metric: own(metrics.SweepRuns), Stat: metrics.StatisticSum, Compare: LessThan, Threshold: 1, Period: minute,
			Of: 5, Points: 5, Missing: MissingBreaches, MissingWhy: "a sweeper that does not run reports nothing",
		},
		{
			ID: "SweepFailuresAlarm", Name: "sweep-failures", Says: "Sweeps fail, whole or for some reservations, again and again.",
			Page: true, Expression: "SUM([FILL(errors, 0), FILL(failed, 0)])",
			Queries: []Query{
				{"errors", own(metrics.SweepErrors), metrics.StatisticSum},
				{"failed", function("Errors", "SweeperFunction"), metrics.StatisticSum},
			},
			Compare: AtLeast, Threshold: 1, Period: minute, Of: 5, Points: 3, Missing: MissingOK,
			MissingWhy: "silence has an alarm of its own, sweep-silence",
		},
		{
			ID: "OldestReservationAlarm", Name: "oldest-reservation", Says: "A reservation has been overdue for five minutes and no sweep settles it.",
			Metric: own(metrics.OldestReservationAge), Stat: metrics.StatisticMax, Compare: Above, Threshold: oldestReservation,
			Period: minute, Of: 5, Points: 5, Missing: MissingOK, MissingWhy: "silence has an alarm of its own, sweep-silence",
		},
	}
}

func streamAlarms() []Alarm {
	return []Alarm{
		{
			ID: "StreamLagAlarm", Name: "stream-lag", Says: "Audit events and metrics are five minutes late; records are lost after 24 hours.",
			Page: true, Metric: function("IteratorAge", "StreamFunction"), Stat: metrics.StatisticMax, Compare: Above, Threshold: streamLag,
			Period: minute, Of: 5, Points: 5, Missing: MissingOK, MissingWhy: "no record, no age; a mapping that is off is found by stream-silence",
		},
		{
			ID: "StreamSilenceAlarm", Name: "stream-silence", Says: "The ledger table is written to and nobody reads its stream.",
			Page: true, Expression: "IF(FILL(written, 0) > 0 AND FILL(read, 0) == 0, 1, 0)",
			Queries: []Query{
				{"written", table("ConsumedWriteCapacityUnits", "LedgerTable"), metrics.StatisticSum},
				{"read", function("Invocations", "StreamFunction"), metrics.StatisticSum},
			},
			Compare: AtLeast, Threshold: 1, Period: fiveMinutes, Of: 4, Points: 3, Missing: MissingOK,
			MissingWhy: "neither writes nor reads is an idle ledger",
		},
		{
			ID: "StreamFailuresAlarm", Name: "stream-failures", Says: "Stream records were given up and set aside, or lost: the audit trail has holes until they are redriven.",
			Page: true, Expression: "SUM([FILL(ledger, 0), FILL(control, 0), FILL(dropledger, 0), FILL(dropcontrol, 0), FILL(undelivered, 0)])",
			Queries: []Query{
				{"ledger", mapping("OnFailureDestinationDeliveredEventCount", ledgerMapping), metrics.StatisticSum},
				{"control", mapping("OnFailureDestinationDeliveredEventCount", controlMapping), metrics.StatisticSum},
				{"dropledger", mapping("DroppedEventCount", ledgerMapping), metrics.StatisticSum},
				{"dropcontrol", mapping("DroppedEventCount", controlMapping), metrics.StatisticSum},
				{"undelivered", function("DestinationDeliveryFailures", "StreamFunction"), metrics.StatisticSum},
			},
			Compare: AtLeast, Threshold: 1, Period: fiveMinutes, Of: 3, Points: 1, Missing: MissingOK, MissingWhy: neverCounted,
		},
		event("AuditGapsAlarm", "audit-gaps", metrics.AuditGaps, "A stretch of the stream was lost unread; reported by stand-alone pollers.", true),
	}
}

func doorAlarms() []Alarm {
	index := Alarm{
		ID: "IndexThrottlingAlarm", Name: "index-throttling", Says: "Writes are throttled by the index of reservations or the ledger table, and calls fail for it.",
		Page: true, Expression: "SUM([FILL(onindex, 0), FILL(ontable, 0)])",
		Queries: []Query{
			{"onindex", index("WriteThrottleEvents"), metrics.StatisticSum},
			{"ontable", table("WriteThrottleEvents", "LedgerTable"), metrics.StatisticSum},
		},
		Compare: AtLeast, Threshold: 1, Period: minute, Of: 5, Points: 3, Missing: MissingOK, MissingWhy: "DynamoDB reports throttling only where there is some",
	}
	errors := Alarm{
		ID: "WriterErrorsAlarm", Name: "writer-errors", Says: "More than 5 % of the HTTP door's answers are errors of the server.",
		Page: true, Expression: "IF(FILL(count, 0) >= 20, 100 * FILL(bad, 0) / count, 0)",
		Queries: []Query{
			{"bad", api("5xx"), metrics.StatisticSum},
			{"count", api("Count"), metrics.StatisticSum},
		},
		Compare: Above, Threshold: 5, Period: minute, Of: 5, Points: 3, Missing: MissingOK,
		MissingWhy: fewRequests, Condition: hasAPI,
	}
	list := []Alarm{index, errors}
	for _, d := range doors {
		list = append(list, d.errors())
	}
	return list
}

const fewRequests = "no request, no error; a handful of requests gives no rate"

// door is a function that callers invoke, but for the HTTP door, of which the API tells more.
type door struct {
	function, condition string
	name                string // of its alarm
	title               string
}

var doors = []door{
	{"WriterDirectFunction", "HasDirect", "direct-errors", "direct"},
	{"BedrockFunction", "HasBedrock", "bedrock-errors", "Bedrock"},
	{"AgentCoreFunction", "HasAgentCore", "agentcore-errors", "AgentCore"},
	{"AdminFunction", "HasAdmin", "admin-errors", "admin"},
}

func (d door) errors() Alarm {
	return Alarm{
		ID: strings.TrimSuffix(d.function, "Function") + "ErrorsAlarm", Name: d.name, Condition: d.condition,
		Says: "More than 5 % of the invocations of the " + d.title + " door fail or are throttled.", Page: true,
		Expression: "IF(FILL(count, 0) + FILL(throttled, 0) >= 20, 100 * (FILL(bad, 0) + FILL(throttled, 0)) / (FILL(count, 0) + FILL(throttled, 0)), 0)",
		Queries: []Query{
			{"bad", function("Errors", d.function), metrics.StatisticSum},
			{"throttled", function("Throttles", d.function), metrics.StatisticSum},
			{"count", function("Invocations", d.function), metrics.StatisticSum},
		},
		Compare: Above, Threshold: 5, Period: minute, Of: 5, Points: 3, Missing: MissingOK, MissingWhy: fewRequests,
	}
}

// waiting is an alarm on messages in a queue that should have none.
func waiting(id, name, of, says string) Alarm {
	a := event(id, name, "", says, false)
	a.Metric, a.Stat, a.Of = queue(of), metrics.StatisticMax, 1
	// Missing as well-being would turn the alarm off with the messages still there.
	a.Missing, a.MissingWhy = MissingIgnored, "six hours after its last use a queue reports nothing, whatever is in it"
	return a
}

// noticeAlarms are read in office hours: nothing is lost by that.
func noticeAlarms() []Alarm {
	repeated := func(a Alarm, threshold float64) Alarm { // two of three periods: not the first bad one
		a.Threshold, a.Of, a.Points = threshold, 3, 2
		return a
	}
	stream := event("StreamErrorsAlarm", "stream-errors", "", "The stream function fails and tries again; what it cannot do in the end is stream-failures.", false)
	stream.Metric, stream.Missing, stream.MissingWhy = function("Errors", "StreamFunction"), MissingOK, "no invocation, no error"
	stream = repeated(stream, 3)
	dlq := waiting("SweepFailuresQueueAlarm", "failure-queue", "SweepFailures", "Invocations of the sweeper ended in the queue of failures.")
	undelivered := waiting("EventDeadLettersAlarm", "event-dead-letters", "EventDeadLetters",
		"EventBridge could not deliver events to a subscriber and left them in the queue of dead letters.")
	lost := event("MetricsLostAlarm", "metrics-lost", "", "Points of metrics were dropped or may have been: sums are too low.", false)
	lost.Metric, lost.Stat = Metric{}, ""
	lost.Expression = "SUM([FILL(dropped, 0), FILL(uncertain, 0)])"
	lost.Queries = []Query{
		{"dropped", own(metrics.MetricsDropped), metrics.StatisticSum},
		{"uncertain", own(metrics.MetricsUncertain), metrics.StatisticSum},
	}
	held := event("HeldReservationsAlarm", "held-reservations", metrics.ReservationsHeld,
		"Calls are held: nobody can find out by program whether they took effect, and a person has to decide.", false)
	held.Stat, held.MissingWhy = metrics.StatisticMax, "silence has an alarm of its own, sweep-silence"
	return []Alarm{
		held,
		event("UnreadableRecordsAlarm", "unreadable-records", metrics.RecordsUnreadable,
			"Stream records could not be understood and were kept for a redrive.", false),
		event("EventsRefusedAlarm", "events-refused", metrics.EventsRefused, "The event bus refused events for good; they were kept.", false),
		repeated(event("QuotaDenialsAlarm", "quota-denials", metrics.QuotaDenials,
			"Tenants run out of quota, or one of them runs away.", false), 100),
		repeated(event("ContentionAlarm", "contention", metrics.ContentionGiveUps,
			"Calls fail on transaction conflicts after all retries: a tenant is too hot for its shards.", false), 10),
		repeated(event("KeyConflictsAlarm", "key-conflicts", metrics.KeyConflicts,
			"Callers use one key for different actions.", false), 20),
		stream, dlq, undelivered, lost,
	}
}

// pagingARNs are the alarms that page, as references for an alarm widget.
func pagingARNs() []string {
	var list []string
	for _, a := range Alarms() {
		if a.Page {
			list = append(list, a.arn())
		}
	}
	return list
}
