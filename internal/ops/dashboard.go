package ops

import (
	"fmt"
	"strings"

	"toolledger/metrics"
)

// Colors by what a series means, so that a glance tells good from bad.
const (
	colorGood  = "#2ca02c"
	colorInfo  = "#1f77b4"
	colorOther = "#9467bd"
	colorMuted = "#7f7f7f"
	colorWarn  = "#ff7f0e"
	colorBad   = "#d62728"
)

const (
	minute     = 60 // seconds
	dayRange   = "-PT3H"
	topTenants = 10
)

// panel is a metric widget with the caption above it, which says what to look for and where to read on.
type panel struct {
	title   string
	caption string
	anchor  string // of docs/runbook.md
	width   int
	view    string // "" is ViewTimeSeries
	stat    string
	period  int
	left    string // label of the left axis
	right   string
	line    *Line
	stacked bool
	entries []Entry
}

const (
	headerHeight  = 2
	captionHeight = 1
	statusHeight  = 4
	graphHeight   = 6
	statusWidth   = 8
	graphWidth    = Columns / 3
)

// Dashboard is the page that an on-call person reads first: what is red, then calls, reservations, audit trail, tenants and
// cost, from top to bottom.
func Dashboard() Body {
	b := Body{Start: dayRange, PeriodOverride: "inherit"}
	b.text(0, 0, Columns, headerHeight, "# toolledger · ${AWS::StackName}\nRed on top: open its runbook entry. "+
		"All green: effects and replays should look like any other day. [Runbook]("+link("")+") · [What each graph says]("+link("the-dashboard")+")")
	y := headerHeight
	b.caption(0, y, statusWidth, "Paging alarms", "alarms")
	b.add(Widget{TypeAlarm, 0, y + captionHeight, statusWidth, statusHeight, Properties{Title: "Paging alarms", Alarms: pagingARNs()}})
	never := mustBeZero()
	b.caption(statusWidth, y, never.width, never.caption, never.anchor)
	b.add(never.widget(statusWidth, y+captionHeight, statusHeight))
	y += captionHeight + statusHeight
	for _, row := range [][]panel{callPanels(), reservationPanels(), trailPanels(), tenantPanels(), costPanels()} {
		x := 0
		for _, p := range row {
			b.caption(x, y, p.width, p.caption, p.anchor)
			b.add(p.widget(x, y+captionHeight, graphHeight))
			x += p.width
		}
		y += captionHeight + graphHeight
	}
	return b
}

// link is where an entry of the runbook is read.
func link(anchor string) string {
	if anchor == "" {
		return "${RunbookUrl}"
	}
	return "${RunbookUrl}#" + anchor
}

func (b *Body) add(w Widget) { b.Widgets = append(b.Widgets, w) }

func (b *Body) text(x, y, width, height int, markdown string) {
	b.add(Widget{TypeText, x, y, width, height, Properties{Markdown: markdown, Background: "transparent"}})
}

func (b *Body) caption(x, y, width int, says, anchor string) {
	b.text(x, y, width, captionHeight, fmt.Sprintf("%s · [runbook](%s)", says, link(anchor)))
}

func (p panel) widget(x, y, height int) Widget {
	props := Properties{
		Title: p.title, Region: "${AWS::Region}", View: p.view, Stat: p.stat, Period: p.period, Stacked: p.stacked, Metrics: p.entries,
	}
	if p.view == "" {
		props.View = ViewTimeSeries
		props.YAxis = &YAxis{Left: axis(p.left)}
		if p.right != "" {
			props.YAxis.Right = axis(p.right)
		}
	} else {
		props.Sparkline, props.WholeRange = new(true), new(true)
	}
	if p.line != nil {
		props.Annotations = &Annotations{Horizontal: []Line{*p.line}}
	}
	return Widget{TypeMetric, x, y, p.width, height, props}
}

func axis(label string) *Axis { return &Axis{Label: label, Min: new(0.0), ShowUnits: new(false)} }

// count is a total of the ledger's own, read as it is defined.
func count(name, label, color string) Entry {
	return Entry{Metric: own(name), Label: label, Color: color}
}

func graph(title, caption, anchor string, entries ...Entry) panel {
	return panel{
		title: title, caption: caption, anchor: anchor, width: graphWidth, stat: metrics.StatisticSum, period: minute,
		left: "per minute", entries: entries,
	}
}

func mustBeZero() panel {
	return panel{
		title: "Must be 0", caption: "Above 0 somebody must look", anchor: "the-dashboard", width: Columns - statusWidth,
		view: ViewSingleValue, stat: metrics.StatisticSum, period: minute,
		entries: []Entry{
			count(metrics.DoubleEffectsSuspected, "Double effects suspected", colorBad),
			{Metric: own(metrics.ReservationsHeld), Label: "Held for a person", Color: colorBad, Stat: metrics.StatisticMax},
			count(metrics.RowsTampered, "Rows tampered with", colorBad),
			count(metrics.RecordsUnreadable, "Records unreadable", colorBad),
			count(metrics.AuditGaps, "Gaps in the audit", colorBad),
			count(metrics.EventsRefused, "Events refused", colorBad),
		},
	}
}

func callPanels() []panel {
	return []panel{
		graph("Effects and replays", "What took effect, and what was answered from the ledger", "writer-errors",
			count(metrics.EffectsApplied, "Effects", colorGood),
			count(metrics.CallsReplayed, "Replays", colorInfo),
			count(metrics.EffectsSettledLate, "Settled late", colorWarn),
			count(metrics.EffectsCompensated, "Compensated", colorOther)),
		graph("Refusals: conflicts and denials", "Conflicts are bugs of callers; denials are plans that are too small", "quota-denials",
			count(metrics.KeyConflicts, "Key conflicts", colorBad),
			count(metrics.QuotaDenials, "Quota denials", colorWarn),
			count(metrics.CallsInFlight, "In progress elsewhere", colorInfo)),
		graph("Contention", "Give-ups are failed calls: more shards for a hot tenant", "contention",
			count(metrics.ContentionRetries, "Retries before success", colorInfo),
			count(metrics.ContentionGiveUps, "Gave up", colorBad),
			Entry{Metric: table("TransactionConflict", "LedgerTable"), Label: "Conflicts in DynamoDB", Color: colorMuted},
			Entry{Metric: index("WriteThrottleEvents"), Label: "Index throttled", Color: colorWarn}),
	}
}

func reservationPanels() []panel {
	open := graph("Reservations open and their oldest age", "Overdue ones fall with each sweep; the age stays under the line", "oldest-reservation",
		Entry{Metric: own(metrics.ReservationsOpen), Label: "Open", Color: colorInfo, Stat: metrics.StatisticMax},
		Entry{Metric: own(metrics.ReservationsOverdue), Label: "Open past their deadline", Color: colorWarn, Stat: metrics.StatisticMax},
		Entry{Metric: own(metrics.OldestReservationAge), Label: "Oldest overdue, s", Color: colorBad, Stat: metrics.StatisticMax, Right: true})
	open.left, open.right = "reservations", "seconds"
	open.line = &Line{Label: "alarm", Value: oldestReservation, Color: colorBad, YAxis: "right"}
	refunds := graph("Given back: refunds", "Many expired mean that workers die or leases are short", "oldest-reservation",
		count(metrics.ReservationsReleased, "Released by their worker", colorInfo),
		count(metrics.ReservationsExpired, "Expired by a sweep", colorWarn),
		count(metrics.ReservationsResolved, "Resolved by a person", colorOther),
		Entry{Metric: own(metrics.TokensRefunded), Label: "Tokens refunded", Color: colorMuted, Right: true})
	refunds.right = "tokens"
	return []panel{
		open, refunds,
		graph("Sweeps, held and unknown", "One run a minute; held calls wait for a person", "held-reservations",
			count(metrics.SweepRuns, "Runs", colorGood),
			count(metrics.SweepUnknown, "Tool cannot tell yet", colorInfo),
			Entry{Metric: own(metrics.ReservationsHeld), Label: "Held now", Color: colorWarn, Stat: metrics.StatisticMax},
			count(metrics.SweepErrors, "Errors", colorBad)),
	}
}

func trailPanels() []panel {
	lag := graph("Stream lag", "Age of the oldest record being processed; records live 24 hours", "stream-lag",
		Entry{Metric: function("IteratorAge", "StreamFunction"), Label: "Oldest record, ms", Color: colorInfo})
	lag.stat, lag.left = metrics.StatisticMax, "milliseconds"
	lag.line = &Line{Label: "alarm", Value: streamLag, Color: colorBad}
	return []panel{
		lag,
		graph("Failures of functions and doors", "Errors, throttles and answers 5xx, whoever is at fault", "writer-errors",
			Entry{Metric: function("Errors", "StreamFunction"), Label: "Stream errors", Color: colorBad},
			Entry{Metric: function("Errors", "SweeperFunction"), Label: "Sweeper errors", Color: colorWarn},
			Entry{Metric: function("Throttles", "StreamFunction"), Label: "Stream throttled", Color: colorMuted},
			Entry{Metric: function("Errors", "WriterHttpFunction"), Label: "HTTP door errors", Color: colorOther, Condition: hasHTTP},
			Entry{Metric: api("5xx"), Label: "HTTP 5xx", Color: colorInfo, Condition: hasAPI},
			doorErrors(0, "#8c564b"), doorErrors(1, "#e377c2"), doorErrors(2, "#bcbd22"), doorErrors(3, "#17becf")),
		graph("Audit trail", "Records keep flowing; whatever is set aside waits for a redrive", "stream-failures",
			count(metrics.RecordsProcessed, "Records processed", colorGood),
			Entry{Metric: mapping("OnFailureDestinationDeliveredEventCount", ledgerMapping), Label: "Set aside", Color: colorBad},
			Entry{Metric: queue("SweepFailures"), Label: "Failed sweeps queued", Color: colorWarn, Stat: metrics.StatisticMax},
			Entry{Metric: queue("EventDeadLetters"), Label: "Dead letters", Color: colorInfo, Stat: metrics.StatisticMax},
			count(metrics.MetricsDropped, "Points dropped", colorOther),
			count(metrics.MetricsUncertain, "Points uncertain", colorMuted)),
	}
}

func doorErrors(i int, color string) Entry {
	d := doors[i]
	return Entry{Metric: function("Errors", d.function), Label: strings.ToUpper(d.title[:1]) + d.title[1:] + " door errors", Color: color, Condition: d.condition}
}

func tenantPanels() []panel {
	top := func(title, caption, anchor, name string) panel {
		return graph(title, caption, anchor, Entry{Search: &Search{Name: name, Stat: metrics.StatisticSum, Period: minute, Top: topTenants}})
	}
	return []panel{
		top("Effects, top 10 tenants", "The busiest by name, the rest in _other", "hot-tenant", metrics.EffectsApplied),
		top("Quota denials, top 10 tenants", "Who ran out: grant more, or leave it so", "quota-denials", metrics.QuotaDenials),
		top("Contention, top 10 tenants", "Who needs more shards", "hot-tenant", metrics.ContentionRetries),
	}
}

func costPanels() []panel {
	units := graph("Cost: write units", "What DynamoDB bills; transactions count twice", "cost",
		Entry{Metric: table("ConsumedWriteCapacityUnits", "LedgerTable"), Label: "Ledger table", Color: colorInfo},
		Entry{Metric: index("ConsumedWriteCapacityUnits"), Label: "Index of reservations", Color: colorOther},
		Entry{Metric: table("ConsumedWriteCapacityUnits", "ControlTable"), Label: "Control table", Color: colorMuted})
	units.stacked = true
	time := graph("Cost: function time", "Sum of durations, which Lambda bills", "cost",
		Entry{Metric: function("Duration", "StreamFunction"), Label: "Stream, ms", Color: colorInfo},
		Entry{Metric: function("Duration", "SweeperFunction"), Label: "Sweeper, ms", Color: colorWarn},
		Entry{Metric: function("Duration", "WriterHttpFunction"), Label: "HTTP door, ms", Color: colorGood, Condition: hasHTTP})
	time.stacked, time.left = true, "milliseconds per minute"
	latency := graph("Latency", "99 of 100 are faster", "writer-errors",
		Entry{
			Metric: Metric{nsDynamoDB, "SuccessfulRequestLatency", []Dimension{{"TableName", "${LedgerTable}"}, {"Operation", "TransactWriteItems"}}},
			Label:  "Transactions, ms", Color: colorInfo,
		},
		Entry{Metric: api("Latency"), Label: "HTTP door, ms", Color: colorGood, Condition: hasAPI})
	latency.stat, latency.left = "p99", "milliseconds"
	return []panel{units, time, latency}
}
