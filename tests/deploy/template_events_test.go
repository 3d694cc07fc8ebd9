package deploy_test

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// eventRules: changes become events, whatever fails ends where somebody finds it.
func eventRules() []rule {
	return []rule{
		{"stream mappings", mappings},
		{"schedule", schedules},
		{"failed invocations", invokeConfigs},
		{"bus", bus},
		{"event schemas", eventSchemas},
		{"rules have targets that work", targets},
	}
}

func mappings(v *view, bad report) {
	read := map[string]bool{}
	for _, m := range v.of("AWS::Lambda::EventSourceMapping") {
		p := m.props
		from := v.target(p["EventSourceArn"])
		if from == nil || p["EventSourceArn"] != "${"+from.id+".StreamArn}" {
			bad("%s: reads %v, which is no stream", m.id, p["EventSourceArn"])
			continue
		}
		read[from.id] = true
		mappingSettings(v, m, bad)
		passes := filterPasses(list(dig(p, "FilterCriteria", "Filters")), func(why string) { bad("%s: %s", m.id, why) })
		if from == v.ledger() {
			ledgerFilter(m, passes, bad)
		} else {
			plan := schema.PlanKey("acme")
			for _, name := range []string{"INSERT", "MODIFY", "REMOVE"} {
				if !passes(record(name, plan)) {
					bad("%s: the filter drops %s of a plan", m.id, name)
				}
			}
		}
	}
	for _, t := range []*resource{v.ledger(), v.control()} {
		if t != nil && !read[t.id] {
			bad("nobody reads the stream of %s", t.id)
		}
	}
}

func mappingSettings(v *view, m *resource, bad report) {
	p := m.props
	if !slices.Equal(texts(p["FunctionResponseTypes"]), []string{"ReportBatchItemFailures"}) {
		bad("%s: without ReportBatchItemFailures one record fails its whole batch", m.id)
	}
	if !yes(p["BisectBatchOnFunctionError"]) {
		bad("%s: a batch that kills the function is never halved", m.id)
	}
	if n := number(p["MaximumRetryAttempts"]); n < 1 || n > 100 {
		bad("%s: %v retries: one bad record would block its shard", m.id, p["MaximumRetryAttempts"])
	}
	if n := number(p["MaximumRecordAgeInSeconds"]); n < 600 || n > 12*3600 {
		bad("%s: records of %v seconds are still tried, and the stream forgets after 24 hours", m.id, p["MaximumRecordAgeInSeconds"])
	}
	if n := number(p["ParallelizationFactor"]); p["ParallelizationFactor"] != nil && (n < 1 || n > 10) {
		bad("%s: parallelization factor %v", m.id, p["ParallelizationFactor"])
	}
	if n := number(p["BatchSize"]); n < 1 || n > 10_000 {
		bad("%s: batches of %v", m.id, p["BatchSize"])
	}
	if p["StartingPosition"] != "TRIM_HORIZON" {
		bad("%s: starts at %v and leaves out what was written before", m.id, p["StartingPosition"])
	}
	if !slices.Contains(texts(dig(p, "MetricsConfig", "Metrics")), "EventCount") {
		bad("%s: no EventCount metrics: what it gave up is not counted", m.id)
	}
	if e, ok := p["Enabled"]; ok && !yes(e) {
		bad("%s: is off", m.id)
	}
	bucket := v.target(dig(p, "DestinationConfig", "OnFailure", "Destination"))
	if bucket == nil || bucket.kind != "AWS::S3::Bucket" {
		bad("%s: what it gives up goes to %v; only S3 keeps the records", m.id, dig(p, "DestinationConfig", "OnFailure", "Destination"))
		return
	}
	if f := v.functionOf(p["FunctionName"]); f != nil {
		if role := v.target(f.props["Role"]); role != nil &&
			(!v.can(role, "s3:PutObject", exactly("${"+bucket.id+".Arn}/*"), free) || !v.can(role, "s3:ListBucket", exactly("${"+bucket.id+".Arn}"), free)) {
			bad("%s: %s cannot write what is given up to %s", m.id, role.id, bucket.id)
		}
	} else {
		bad("%s: calls no function of this stack", m.id)
	}
}

// ledgerFilter: session records are skipped, whatever happens to them, and no other is.
func ledgerFilter(m *resource, passes func(object) bool, bad report) {
	row := schema.RowKey("acme", "s1", schema.ScopeSession, "call-1")
	kinds := map[string]schema.Key{
		"a row": row, "a quota item": schema.QuotaKey("acme", "2026-10", 0), "an observation": schema.ObservationKey(row),
		"a quota shard": schema.QuotaKey("acme", "2026-10", 3),
	}
	for _, name := range []string{"INSERT", "MODIFY", "REMOVE"} {
		for _, kind := range sorted(kinds) {
			if !passes(record(name, kinds[kind])) {
				bad("%s: the filter drops %s of %s", m.id, name, kind)
			}
		}
		if passes(record(name, schema.SessionKey("acme", "s1"))) {
			bad("%s: %s of a session is not filtered: every cursor moved would cost an invocation", m.id, name)
		}
	}
}

// record is a stream record as filters see it: keys always, images never, which a REMOVE lacks anyhow.
func record(name string, k schema.Key) object {
	return object{"eventName": name, "dynamodb": object{"Keys": object{"pk": object{"S": k.PK}, "sk": object{"S": k.SK}}}}
}

// filterPasses compiles the filters of a mapping. One that is not understood is reported and passes nothing.
func filterPasses(filters []any, bad func(string)) func(object) bool {
	var patterns []object
	for _, f := range filters {
		var p object
		if err := json.Unmarshal([]byte(str(asObject(f)["Pattern"])), &p); err != nil || len(p) == 0 {
			bad("a filter is not a JSON object: " + str(asObject(f)["Pattern"]))
			continue
		}
		patterns = append(patterns, p)
	}
	if len(filters) > 5 {
		bad("more than five filters")
	}
	return func(event object) bool {
		return len(filters) == 0 || slices.ContainsFunc(patterns, func(p object) bool { return matches(p, event, bad) })
	}
}

// matches evaluates an event pattern: every field of the pattern must be one of its alternatives.
func matches(pattern, event object, bad func(string)) bool {
	for name, want := range pattern {
		got, there := event[name]
		switch want := want.(type) {
		case object:
			if !there || !matches(want, asObject(got), bad) {
				return false
			}
		case []any:
			if !slices.ContainsFunc(want, func(w any) bool { return alternative(w, got, there, bad) }) {
				return false
			}
		default:
			bad(fmt.Sprintf("the pattern of %s is no list", name))
			return false
		}
	}
	return true
}

func alternative(want, got any, there bool, bad func(string)) bool {
	operator, ok := want.(object)
	if !ok {
		return there && want == got
	}
	for name, arg := range operator {
		switch name {
		case "exists":
			return yes(arg) == there
		case "prefix":
			return there && strings.HasPrefix(str(got), str(arg))
		case "suffix":
			return there && strings.HasSuffix(str(got), str(arg))
		case "anything-but":
			if prefix := str(asObject(arg)["prefix"]); prefix != "" {
				return there && !strings.HasPrefix(str(got), prefix)
			}
			return there && !slices.Contains(texts(arg), str(got))
		default:
			bad("operator " + name + " is none that a stream of DynamoDB takes")
		}
	}
	return false
}

func schedules(v *view, bad report) {
	var minutely int
	for _, s := range v.of("AWS::Scheduler::Schedule") {
		p := s.props
		if p["ScheduleExpression"] != "rate(1 minute)" {
			bad("%s: runs at %v, reservations are to be looked at every minute", s.id, p["ScheduleExpression"])
		}
		if state := str(p["State"]); state != "" && state != "ENABLED" {
			bad("%s: is %s", s.id, state)
		}
		if str(dig(p, "FlexibleTimeWindow", "Mode")) != "OFF" {
			bad("%s: may run whenever it likes", s.id)
		}
		target := child(p, "Target")
		f := v.functionOf(target["Arn"])
		if f == nil || v.mains[f.id] != "./sweeper/lambda" {
			bad("%s: does not call the sweeper", s.id)
			continue
		}
		minutely++
		if n := number(dig(target, "RetryPolicy", "MaximumRetryAttempts")); n < 0 || n > 3 {
			bad("%s: %v retries of a sweep that the next minute repeats anyhow", s.id, dig(target, "RetryPolicy", "MaximumRetryAttempts"))
		}
		if n := number(dig(target, "RetryPolicy", "MaximumEventAgeInSeconds")); n < 60 || n > 300 {
			bad("%s: a sweep may come %v seconds late", s.id, dig(target, "RetryPolicy", "MaximumEventAgeInSeconds"))
		}
		role := v.target(target["RoleArn"])
		if role == nil {
			bad("%s: no role", s.id)
			continue
		}
		trusts(role, "scheduler.amazonaws.com", bad)
		for _, st := range statements(role.props["AssumeRolePolicyDocument"]) {
			if st.cond["StringEquals"]["aws:SourceAccount"] == "" && st.cond["ArnLike"]["aws:SourceArn"] == "" && st.cond["StringEquals"]["aws:SourceArn"] == "" {
				bad("%s: lends itself to schedules of any account", role.id)
			}
		}
		if !v.can(role, "lambda:InvokeFunction", func(on string) bool { return v.covers(on, target["Arn"]) }, free) {
			bad("%s: cannot invoke %v", role.id, target["Arn"])
		}
		v.deadLetters(s.id, dig(target, "DeadLetterConfig", "Arn"), role, bad)
	}
	if minutely != 1 {
		bad("%d schedules call the sweeper", minutely)
	}
}

// covers tells whether a permission on one ARN holds for another: one on a function does not hold for its aliases.
func (v *view) covers(on string, arn any) bool {
	if on == str(arn) {
		return true
	}
	alias := v.target(arn)
	if alias == nil || alias.kind != "AWS::Lambda::Alias" {
		return false
	}
	f := v.functionOf(arn)
	return f != nil && slices.Contains([]string{"${" + f.id + ".Arn}:" + str(alias.props["Name"]), "${" + f.id + ".Arn}:*"}, on)
}

// deadLetters: a queue, and a role that may send to it.
func (v *view) deadLetters(of string, arn any, role *resource, bad report) {
	q := v.target(arn)
	if q == nil || q.kind != "AWS::SQS::Queue" || str(arn) != "${"+q.id+".Arn}" {
		bad("%s: no queue for what fails", of)
		return
	}
	if role != nil && !v.can(role, "sqs:SendMessage", exactly("${"+q.id+".Arn}"), free) {
		bad("%s: %s cannot send to %s", of, role.id, q.id)
	}
}

func invokeConfigs(v *view, bad report) {
	var sweeper bool
	for _, c := range v.of("AWS::Lambda::EventInvokeConfig") {
		f := v.functionOf(c.props["FunctionName"])
		if f == nil {
			bad("%s: for no function of this stack", c.id)
			continue
		}
		v.deadLetters(c.id, dig(c.props, "DestinationConfig", "OnFailure", "Destination"), v.target(f.props["Role"]), bad)
		if v.mains[f.id] != "./sweeper/lambda" {
			continue
		}
		sweeper = true
		if alias := v.aliasOf(f.id); alias != nil && c.props["Qualifier"] != alias.props["Name"] {
			bad("%s: is for %v, but the schedule calls alias %v", c.id, c.props["Qualifier"], alias.props["Name"])
		}
		if n, ok := c.props["MaximumRetryAttempts"]; !ok || number(n) != 0 {
			bad("%s: %v retries of a sweep that the next minute repeats anyhow", c.id, n)
		}
		if age := number(c.props["MaximumEventAgeInSeconds"]); age != 60 {
			bad("%s: a sweep may come %v seconds late", c.id, c.props["MaximumEventAgeInSeconds"])
		}
	}
	if !sweeper {
		bad("nothing says what becomes of a sweep that fails")
	}
}

func bus(v *view, bad report) {
	buses := v.of("AWS::Events::EventBus")
	if len(buses) != 1 {
		bad("%d event buses", len(buses))
		return
	}
	b := buses[0]
	if arn := dig(b.props, "DeadLetterConfig", "Arn"); v.target(arn) == nil {
		bad("%s: no queue for what it cannot deliver", b.id)
	} else {
		v.queueTakes(b.id, v.target(arn), "events.amazonaws.com", "${"+b.id+".Arn}", bad)
	}
	archived := slices.ContainsFunc(v.of("AWS::Events::Archive"), func(a *resource) bool {
		_, limited := a.props["RetentionDays"]
		passes := filterPasses([]any{object{"Pattern": mustJSON(a.props["EventPattern"])}}, func(why string) { bad("%s: %s", a.id, why) })
		return a.props["SourceArn"] == "${"+b.id+".Arn}" && limited && (a.props["EventPattern"] == nil || passes(object{"source": events.Source}))
	})
	if !archived {
		bad("%s: its events are not archived", b.id)
	}
	shared := len(list(v.params["SubscriberAccounts"])) > 0
	policies := v.of("AWS::Events::EventBusPolicy")
	if shared != (len(policies) == 1) {
		bad("%d policies of the bus for %v", len(policies), v.params["SubscriberAccounts"])
	}
	for _, p := range policies {
		subscribers(v, p, b, bad)
	}
}

// subscribers: other accounts put rules of their own on the bus, and events they do not.
func subscribers(v *view, p, b *resource, bad report) {
	if v.target(p.props["EventBusName"]) != b {
		bad("%s: for another bus", p.id)
	}
	for _, s := range statements(object{"Statement": p.props["Statement"]}) {
		for _, a := range s.actions {
			if !strings.HasPrefix(a, "events:") || a == "events:PutEvents" || strings.Contains(a, "*") {
				bad("%s: lets other accounts %s", p.id, a)
			}
		}
		if !slices.Contains(s.actions, "events:PutRule") || !slices.Contains(s.actions, "events:PutTargets") {
			bad("%s: lets nobody subscribe", p.id)
		}
		if s.cond["StringEqualsIfExists"]["events:creatorAccount"] != "${aws:PrincipalAccount}" && s.cond["StringEquals"]["events:creatorAccount"] != "${aws:PrincipalAccount}" {
			bad("%s: one subscriber may change the rules of another", p.id)
		}
	}
}

// queueTakes: the queue's own policy lets a service send to it, for a source.
func (v *view) queueTakes(of string, q *resource, service, source string, bad report) {
	for _, p := range v.of("AWS::SQS::QueuePolicy") {
		on := slices.ContainsFunc(list(p.props["Queues"]), func(x any) bool { return v.target(x) == q })
		if !on {
			continue
		}
		for _, s := range statements(p.props["PolicyDocument"]) {
			from := s.cond["ArnLike"]["aws:SourceArn"] + "," + s.cond["ArnEquals"]["aws:SourceArn"]
			if s.effect == "Allow" && dig(s.principal, "Service") == service && slices.Contains(s.actions, "sqs:SendMessage") &&
				slices.Contains(s.resources, "${"+q.id+".Arn}") && slices.ContainsFunc(strings.Split(from, ","), func(pattern string) bool {
				ok, err := path.Match(strings.ReplaceAll(pattern, "/", "|"), strings.ReplaceAll(source, "/", "|"))
				return ok && err == nil && pattern != ""
			}) {
				return
			}
		}
	}
	bad("%s: %s may not send to %s for it", of, service, q.id)
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// eventSchemas: the registry has every event, as the schema that is generated from its type.
func eventSchemas(v *view, bad report) {
	registries := v.of("AWS::EventSchemas::Registry")
	if len(registries) != 1 {
		bad("%d schema registries", len(registries))
		return
	}
	seen := map[string]bool{}
	for _, s := range v.of("AWS::EventSchemas::Schema") {
		p := s.props
		if v.target(p["RegistryName"]) != registries[0] {
			bad("%s: in another registry", s.id)
		}
		name := strings.TrimPrefix(str(p["SchemaName"]), events.Source+"@")
		if seen[name] {
			bad("%s: %s twice", s.id, name)
		}
		seen[name] = true
		suffix := map[string]string{"OpenApi3": "openapi", "JSONSchemaDraft4": "schema"}[str(p["Type"])]
		if suffix == "" {
			bad("%s: the registry takes no %v", s.id, p["Type"])
			continue
		}
		var content, published any
		if json.Unmarshal([]byte(str(p["Content"])), &content) != nil {
			bad("%s: its content is not JSON", s.id)
			continue
		}
		if len(str(p["Content"])) > 100_000 {
			bad("%s: its content is too long", s.id)
		}
		if json.Unmarshal([]byte(v.file("streams/events/schemas/"+name+"."+suffix+".json")), &published) != nil || mustJSON(content) != mustJSON(published) {
			bad("%s: not the schema that is published for %s", s.id, name)
		}
	}
	for _, ev := range events.All() {
		if name := ev.DetailType(); !seen[name] {
			bad("no schema for %s", name)
		}
	}
	if len(seen) > len(events.All()) {
		bad("%d schemas for %d events", len(seen), len(events.All()))
	}
}

// targets: rules are on the bus, take events of ours, and what they cannot deliver goes to a queue that takes it.
func targets(v *view, bad report) {
	for _, r := range v.of("AWS::Events::Rule") {
		passes := filterPasses([]any{object{"Pattern": mustJSON(r.props["EventPattern"])}}, func(why string) { bad("%s: %s", r.id, why) })
		on := v.target(r.props["EventBusName"])
		if on == nil || on.kind != "AWS::Events::EventBus" {
			bad("%s: on no bus of this stack", r.id)
		}
		some := slices.ContainsFunc(events.All(), func(e events.Event) bool {
			return passes(object{"source": events.Source, "detail-type": e.DetailType()})
		})
		if !some {
			bad("%s: takes no event of ours", r.id)
		}
		for _, t := range list(r.props["Targets"]) {
			q := v.target(dig(t, "DeadLetterConfig", "Arn"))
			if q == nil {
				bad("%s: what it cannot deliver is lost", r.id)
				continue
			}
			source := "${" + r.id + ".Arn}"
			if on != nil { // its ARN as the queue's policy can know it without knowing the rule
				source = fmt.Sprintf("arn:aws:events:eu-central-1:123456789012:rule/${%s}/rule", on.id)
			}
			v.queueTakes(r.id, q, "events.amazonaws.com", source, bad)
		}
	}
}

// goFiles are the files of a package without its tests, by their path from the module's root.
func (v *view) goFiles(pkg string) []string {
	var all []string
	names, _ := filepath.Glob(filepath.Join(v.repo, pkg, "*.go")) // the pattern is well formed
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			all = append(all, filepath.ToSlash(filepath.Join(pkg, filepath.Base(name))))
		}
	}
	return all
}
