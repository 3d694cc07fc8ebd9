package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"toolledger/metrics"
)

// awsMetrics are metrics of AWS services that exist, by namespace, with the dimensions that tell one series from another.
var awsMetrics = map[string]map[string][]string{
	"AWS/Lambda": {
		"FunctionName": {
			"Invocations", "Errors", "Throttles", "Duration", "IteratorAge", "ConcurrentExecutions", "DestinationDeliveryFailures",
			"DeadLetterErrors", "AsyncEventsDropped", "AsyncEventsReceived", "AsyncEventAge",
		},
		"FunctionName,Resource": {"Invocations", "Errors", "Throttles", "Duration"},
		"EventSourceMappingUUID": {
			"PolledEventCount", "FilteredOutEventCount", "InvokedEventCount", "FailedInvokeEventCount", "DroppedEventCount",
			"OnFailureDestinationDeliveredEventCount", "DeletedEventCount",
		},
	},
	"AWS/DynamoDB": {
		"TableName": {
			"ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits", "WriteThrottleEvents", "ReadThrottleEvents", "TransactionConflict",
			"TimeToLiveDeletedItemCount", "OnDemandMaxWriteRequestUnits", "OnDemandMaxReadRequestUnits",
		},
		"GlobalSecondaryIndexName,TableName": {
			"ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits", "WriteThrottleEvents", "ReadThrottleEvents",
			"OnlineIndexThrottleEvents",
		},
		"Operation,TableName": {"SuccessfulRequestLatency", "ThrottledRequests", "SystemErrors", "ReturnedItemCount"},
	},
	"AWS/SQS": {
		"QueueName": {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage", "NumberOfMessagesSent"},
	},
	"AWS/Events": {
		"EventBusName":          {"MatchedEvents"},
		"EventBusName,RuleName": {"FailedInvocations", "Invocations", "MatchedEvents", "InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq"},
	},
	"AWS/ApiGateway": {
		"ApiId":       {"4xx", "5xx", "Count", "Latency", "IntegrationLatency", "DataProcessed"},
		"ApiId,Stage": {"4xx", "5xx", "Count", "Latency", "IntegrationLatency", "DataProcessed"},
	},
	"AWS/Scheduler": {
		"ScheduleGroup": {"InvocationAttemptCount", "TargetErrorCount", "InvocationDroppedCount", "InvocationsSentToDeadLetterCount"},
	},
}

// dimensionKinds are the kinds of resources that dimensions name.
var dimensionKinds = map[string]string{
	"FunctionName": "AWS::Lambda::Function", "EventSourceMappingUUID": "AWS::Lambda::EventSourceMapping", "TableName": "AWS::DynamoDB::Table",
	"QueueName": "AWS::SQS::Queue", "EventBusName": "AWS::Events::EventBus", "RuleName": "AWS::Events::Rule", "ApiId": "AWS::ApiGatewayV2::Api",
}

// series is one metric as an alarm or a widget names it.
type series struct {
	namespace, name string
	dims            map[string]any
}

// emitted finds fault with a series that nobody ever fills: an alarm on it never goes off, a widget stays empty.
func (v *view) emitted(where string, s series, bad report) {
	if s.namespace == v.namespace() {
		for _, d := range metrics.Definitions() {
			if d.Name == s.name {
				for _, name := range sorted(s.dims) {
					if !slices.Contains(d.Dimensions, name) {
						bad("%s: %s has no dimension %s", where, s.name, name)
					}
				}
				return
			}
		}
		bad("%s: no code emits %s", where, s.name)
		return
	}
	known := awsMetrics[s.namespace][strings.Join(sorted(s.dims), ",")]
	if !slices.Contains(known, s.name) {
		bad("%s: %s has no metric %s by %v", where, s.namespace, s.name, sorted(s.dims))
	}
	for name, value := range s.dims {
		v.dimension(where, name, value, s.dims, bad)
	}
}

func (v *view) dimension(where, name string, value any, dims map[string]any, bad report) {
	r := v.target(value)
	kind := dimensionKinds[name]
	switch {
	case kind != "" && (r == nil || r.kind != kind):
		bad("%s: %s=%v is none of this stack", where, name, value)
	case name == "QueueName" && value != "${"+r.id+".QueueName}":
		bad("%s: %s is the queue's URL or ARN, not its name", where, name)
	case name == "GlobalSecondaryIndexName":
		table := v.target(dims["TableName"])
		if table == nil || !slices.ContainsFunc(list(table.props["GlobalSecondaryIndexes"]), func(g any) bool { return asObject(g)["IndexName"] == value }) {
			bad("%s: no index %v", where, value)
		}
	case name == "Resource":
		f := v.target(dims["FunctionName"])
		if f == nil || v.aliasOf(f.id) == nil || value != "${"+f.id+"}:"+str(v.aliasOf(f.id).props["Name"]) {
			bad("%s: no alias %v", where, value)
		}
	}
}

// namespace is where the code puts its metrics in this stack.
func (v *view) namespace() string {
	for _, f := range v.functions() {
		if n := str(f.env["METRICS_NAMESPACE"]); n != "" {
			return n
		}
	}
	return metrics.DefaultNamespace
}

// alarmRules: every alarm can go off, says what to do, and is heard.
func alarmRules() []rule {
	return []rule{
		{"alarms", func(v *view, bad report) {
			for _, a := range v.of("AWS::CloudWatch::Alarm") {
				alarm(v, a, bad)
			}
		}},
		{"all that must be watched is", watched},
		{"composite alarms", composites},
	}
}

func alarm(v *view, a *resource, bad report) {
	p := a.props
	if !slices.Contains([]string{"breaching", "notBreaching", "ignore"}, str(p["TreatMissingData"])) {
		bad("%s: does not say what missing data means", a.id)
	}
	if number(p["EvaluationPeriods"]) < number(p["DatapointsToAlarm"]) {
		bad("%s: wants more periods than it looks at", a.id)
	}
	if p["MetricName"] == nil && len(list(p["Metrics"])) == 0 {
		bad("%s: watches nothing", a.id)
	}
	for _, s := range alarmSeries(a) {
		v.emitted(a.id, s, bad)
		if stat := str(p["Statistic"]); s.namespace == v.namespace() && stat != "" {
			for _, d := range metrics.Definitions() {
				if d.Name == s.name && d.Statistic != stat {
					bad("%s: reads %s by %s, it is meant to be read by %s", a.id, s.name, stat, d.Statistic)
				}
			}
		}
	}
	returns := 0
	for _, q := range list(p["Metrics"]) {
		o := asObject(q)
		if shown, set := o["ReturnData"]; !set || yes(shown) {
			returns++
		}
		if strings.Contains(str(o["Expression"]), "SEARCH") {
			bad("%s: SEARCH is not allowed in alarms", a.id)
		}
	}
	if len(list(p["Metrics"])) > 0 && returns != 1 {
		bad("%s: %d of its metrics are compared with the threshold", a.id, returns)
	}
	expression(a, bad)
	if !rollsBack(v, a) {
		v.runbook(a.id, str(p["AlarmDescription"]), bad)
	}
}

var operand = regexp.MustCompile(`\b[a-z][a-zA-Z0-9_]*\b`)

// expression: it uses the metrics that are there, and all of them.
func expression(a *resource, bad report) {
	ids := map[string]bool{}
	for _, q := range list(a.props["Metrics"]) {
		if o := asObject(q); o["MetricStat"] != nil {
			ids[str(o["Id"])] = false
		}
	}
	for _, q := range list(a.props["Metrics"]) {
		for _, name := range operand.FindAllString(str(asObject(q)["Expression"]), -1) {
			if _, ok := ids[name]; !ok {
				bad("%s: its expression names %s, which is none of its metrics", a.id, name)
				continue
			}
			ids[name] = true
		}
	}
	for id, used := range ids {
		if !used {
			bad("%s: reads %s and does not use it", a.id, id)
		}
	}
}

// alarmSeries are the metrics that an alarm reads.
func alarmSeries(a *resource) []series {
	var all []series
	read := func(o object) {
		s := series{str(o["Namespace"]), str(o["MetricName"]), map[string]any{}}
		for _, d := range list(o["Dimensions"]) {
			s.dims[str(asObject(d)["Name"])] = asObject(d)["Value"]
		}
		all = append(all, s)
	}
	if a.props["MetricName"] != nil {
		read(a.props)
	}
	for _, q := range list(a.props["Metrics"]) {
		if m := asObject(dig(q, "MetricStat", "Metric")); len(m) > 0 {
			read(m)
		}
	}
	return all
}

// alarm is the alarm of a name or an ARN; nil where there is none.
func (v *view) alarm(name string) *resource {
	name = strings.TrimPrefix(name, "arn:aws:cloudwatch:eu-central-1:123456789012:alarm:")
	for _, r := range slices.Concat(v.of("AWS::CloudWatch::Alarm"), v.of("AWS::CloudWatch::CompositeAlarm")) {
		if v.target(name) == r || r.props["AlarmName"] == name {
			return r
		}
	}
	return nil
}

// rollsBack tells whether an alarm is there for a rollout alone, which it stops by itself.
func rollsBack(v *view, a *resource) bool {
	return slices.ContainsFunc(v.of("AWS::CodeDeploy::DeploymentGroup"), func(g *resource) bool {
		return slices.ContainsFunc(list(dig(g.props, "AlarmConfiguration", "Alarms")), func(x any) bool { return v.target(asObject(x)["Name"]) == a })
	})
}

var (
	runbookLink = regexp.MustCompile(`#([a-z0-9-]+)`)
	heading     = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

var anchorsRead sync.Map

// anchors are the headings of a Markdown file as links name them.
func (v *view) anchors(name string) []string {
	if known, ok := anchorsRead.Load(name); ok {
		return known.([]string)
	}
	var all []string
	defer func() { anchorsRead.Store(name, all) }()
	for _, m := range heading.FindAllStringSubmatch(v.file(name), -1) {
		text := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(strings.TrimSpace(text), " ", "-"))
	}
	return all
}

// runbook: a text links to an entry of the runbook that is there.
func (v *view) runbook(where, text string, bad report) {
	links := runbookLink.FindAllStringSubmatch(text, -1)
	if len(links) == 0 {
		bad("%s: names no entry of the runbook", where)
	}
	for _, m := range links {
		if !slices.Contains(v.anchors("docs/runbook.md"), m[1]) {
			bad("%s: the runbook has no entry %s", where, m[1])
		}
	}
}

// watched: what the operations team has to be told about has an alarm.
func watched(v *view, bad report) {
	type want struct {
		what, metric string
		fits         func(a *resource, s series) bool
	}
	all := func(*resource, series) bool { return true }
	wants := []want{
		{"the stream's age", "IteratorAge", all},
		{"records given up", "OnFailureDestinationDeliveredEventCount", all},
		{"unreadable records", metrics.RecordsUnreadable, all},
		{"tampering", metrics.RowsTampered, all},
		{"failing sweeps", metrics.SweepErrors, all},
		{"silence of the sweeper", metrics.SweepRuns, func(a *resource, _ series) bool { return a.props["TreatMissingData"] == "breaching" }},
		{"the oldest reservation", metrics.OldestReservationAge, all},
		{"queues of failures", "ApproximateNumberOfMessagesVisible", all},
		{"quota denials", metrics.QuotaDenials, all},
		{"contention", metrics.ContentionGiveUps, all},
		{"throttling of the index", "WriteThrottleEvents", func(_ *resource, s series) bool { return s.dims["GlobalSecondaryIndexName"] != nil }},
		{"suspected double effects", metrics.DoubleEffectsSuspected, all},
	}
	read := func(fits func(*resource, series) bool) bool {
		for _, a := range v.of("AWS::CloudWatch::Alarm") {
			for _, s := range alarmSeries(a) {
				if !rollsBack(v, a) && fits(a, s) {
					return true
				}
			}
		}
		return false
	}
	for _, w := range wants {
		if !read(func(a *resource, s series) bool { return s.name == w.metric && w.fits(a, s) }) {
			bad("no alarm for %s", w.what)
		}
	}
	if !read(func(_ *resource, s series) bool {
		return strings.HasPrefix(s.name, "ReservationsStuck") || strings.Contains(s.name, "Held")
	}) {
		bad("no alarm for held calls")
	}
	for _, f := range v.functions() {
		if f.door == "example" {
			continue
		}
		// An error of the function behind HTTP is an answer of 5xx.
		if !read(func(_ *resource, s series) bool {
			return s.name == "Errors" && v.target(s.dims["FunctionName"]) == f.resource || f.door == "http" && s.name == "5xx"
		}) {
			bad("no alarm for errors of %s", f.id)
		}
	}
	for _, q := range v.of("AWS::SQS::Queue") {
		if !read(func(_ *resource, s series) bool { return v.target(s.dims["QueueName"]) == q }) {
			bad("no alarm for what is in %s", q.id)
		}
	}
}

var stateOf = regexp.MustCompile(`(?:ALARM|OK|INSUFFICIENT_DATA)\s*\(\s*"?([^")]+)"?\s*\)`)

// composites: one that pages and one that does not, over alarms that exist, and none is forgotten.
func composites(v *view, bad report) {
	heard := map[string]bool{}
	all := v.of("AWS::CloudWatch::CompositeAlarm")
	if len(all) < 2 {
		bad("%d composite alarms: what pages and what does not must be apart", len(all))
	}
	for _, c := range all {
		rule := str(c.props["AlarmRule"])
		names := stateOf.FindAllStringSubmatch(rule, -1)
		if len(names) == 0 || strings.Count(rule, "(") < len(names) {
			bad("%s: watches no alarm", c.id)
		}
		for _, m := range names {
			r := v.alarm(strings.TrimSpace(m[1]))
			if r == nil {
				bad("%s: no alarm %s", c.id, m[1])
				continue
			}
			if heard[r.id] {
				bad("%s: %s is in another composite alarm too", c.id, r.id)
			}
			heard[r.id] = true
		}
		left := strings.TrimSpace(stateOf.ReplaceAllString(rule, "x"))
		if !regexp.MustCompile(`^\(*x\)*(\s+(OR|AND)\s+\(*x\)*)*$`).MatchString(left) {
			bad("%s: its rule cannot be read: %s", c.id, left)
		}
	}
	for _, a := range v.of("AWS::CloudWatch::Alarm") {
		if !heard[a.id] && !rollsBack(v, a) && len(list(a.props["AlarmActions"])) == 0 {
			bad("%s: nobody hears it", a.id)
		}
	}
}
