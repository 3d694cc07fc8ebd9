package deploy_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// functionRules: each function is what its binary needs, and nothing is shared that one could spoil for another.
func functionRules() []rule {
	return []rule{
		{"functions", func(v *view, bad report) {
			doors := map[string]int{}
			for _, f := range v.functions() {
				doors[f.door]++
				functionSettings(v, f, bad)
			}
			for _, want := range []string{"stream", "sweeper"} {
				if doors[want] != 1 {
					bad("%d functions for %s", doors[want], want)
				}
			}
			for _, d := range []struct {
				door string
				open bool
			}{
				{"http", v.params["HttpAuth"] == "jwt" || v.params["HttpAuth"] == "iam"},
				{"direct", v.params["DirectDoor"] == "true"},
				{"admin", str(v.params["AdminRoles"]) != ""},
			} {
				if (doors[d.door] == 1) != d.open {
					bad("door %s: %d functions although its parameter says %v", d.door, doors[d.door], d.open)
				}
			}
		}},
		{"a log group each", func(v *view, bad report) {
			used := map[string]string{}
			for _, f := range v.functions() {
				g := v.target(dig(f.props, "LoggingConfig", "LogGroup"))
				if g == nil || g.kind != "AWS::Logs::LogGroup" {
					bad("%s: no log group of its own: Lambda's would be kept for ever", f.id)
					continue
				}
				if other := used[g.id]; other != "" {
					bad("%s and %s share log group %s", f.id, other, g.id)
				}
				used[g.id] = f.id
			}
			for _, g := range v.of("AWS::Logs::LogGroup") {
				if number(g.props["RetentionInDays"]) < 1 {
					bad("%s: kept for ever", g.id)
				}
			}
		}},
		{"environment", environment},
		{"concurrency", func(v *view, bad report) {
			for _, f := range v.functions() {
				_, reserved := f.props["ReservedConcurrentExecutions"]
				if asked := v.name == "" || strings.HasSuffix(v.name, "/open"); reserved && !asked {
					bad("%s: reserves concurrency by default, which small accounts cannot deploy", f.id)
				}
			}
		}},
		{"rollout", rollout},
	}
}

var heap = regexp.MustCompile(`^([0-9]+)MiB$`)

func functionSettings(v *view, f function, bad report) {
	p := f.props
	if str(p["Runtime"]) != "provided.al2023" || str(p["Handler"]) != "bootstrap" {
		bad("%s: runtime %v with handler %v", f.id, p["Runtime"], p["Handler"])
	}
	if got := texts(p["Architectures"]); !slices.Equal(got, []string{str(v.params["Architecture"])}) {
		bad("%s: built for %v, the stack is for %v", f.id, got, v.params["Architecture"])
	}
	if str(dig(p, "LoggingConfig", "LogFormat")) != "JSON" {
		bad("%s: logs are not JSON", f.id)
	}
	if str(dig(p, "TracingConfig", "Mode")) != "Active" {
		bad("%s: tracing is not active", f.id)
	}
	limit := map[string]float64{"http": 29, "admin": 29, "sweeper": 59}[f.door]
	if timeout := number(p["Timeout"]); timeout < 5 || timeout > 900 || limit > 0 && timeout > limit {
		bad("%s: a timeout of %v seconds does not fit a function for %s", f.id, p["Timeout"], f.door)
	}
	memory := number(p["MemorySize"])
	m := heap.FindStringSubmatch(str(f.env["GOMEMLIMIT"]))
	if m == nil {
		bad("%s: no GOMEMLIMIT", f.id)
	} else if mib, _ := strconv.ParseFloat(m[1], 64); mib < 0.6*memory || mib > 0.95*memory {
		bad("%s: GOMEMLIMIT %v with %v MB", f.id, f.env["GOMEMLIMIT"], memory)
	}
	if str(f.env["GOGC"]) == "" {
		bad("%s: no GOGC", f.id)
	}
	tags := map[string]bool{}
	for _, t := range list(p["Tags"]) {
		tags[str(asObject(t)["Key"])] = true
	}
	if !tags["application"] || !tags["stage"] {
		bad("%s: no tags that costs can be told by", f.id)
	}
}

var (
	literal  = regexp.MustCompile(`"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)"`)
	required = regexp.MustCompile(`(?m)^//\s+([A-Z][A-Z0-9_]+)\s+(?:(\w+), )?required`)
	inline   = regexp.MustCompile(`([A-Z][A-Z0-9_]+) \(required`)
)

// environment: a function is given what its main package reads, under those very names, and all that it cannot do without.
func environment(v *view, bad report) {
	for _, f := range v.functions() {
		if f.main == "" {
			bad("%s: make has no target build-%s", f.id, f.id)
			continue
		}
		text := v.sources(f.main)
		var reads []string
		for _, m := range literal.FindAllStringSubmatch(text, -1) {
			reads = append(reads, m[1])
		}
		for _, name := range sorted(f.env) {
			ours := f.door == "example" && name == "LOG_LEVEL" // given to all functions
			if name != "GOGC" && name != "GOMEMLIMIT" && !ours && !slices.Contains(reads, name) {
				bad("%s: %s does not read %s", f.id, f.main, name)
			}
			if strings.HasPrefix(name, "AWS_") {
				bad("%s: %s is Lambda's own", f.id, name)
			}
		}
		needs := inline.FindAllStringSubmatch(text, -1)
		for _, m := range required.FindAllStringSubmatch(text, -1) {
			if m[2] == "" || m[2] == f.door {
				needs = append(needs, m)
			}
		}
		for _, m := range needs {
			if _, ok := f.env[m[1]]; !ok {
				bad("%s: cannot start without %s", f.id, m[1])
			}
		}
	}
	sharedSettings(v, bad)
}

// sources is the text of a main package and of what it leaves to packages beside it.
func (v *view) sources(main string) string {
	var all strings.Builder
	for _, name := range v.goFiles(main) {
		all.WriteString(v.file(name))
	}
	return all.String()
}

// sharedSettings: what must be equal in writers and sweeper is.
func sharedSettings(v *view, bad report) {
	for _, name := range []string{"LEDGER_TABLE", "LEDGER_CONTROL_TABLE", "LEDGER_KEEP", "LEDGER_SKEW", "METRICS_NAMESPACE"} {
		seen := map[string]string{}
		for _, f := range v.functions() {
			if value, ok := f.env[name]; ok {
				seen[scalar(value)] = f.id
			}
		}
		if len(seen) > 1 {
			bad("%s differs between functions: %v", name, sorted(seen))
		}
		if len(seen) == 0 {
			bad("no function is given %s", name)
		}
	}
	for _, f := range v.functions() {
		wants := []string{}
		switch f.door {
		case "http", "direct", "admin":
			wants = []string{"DOOR", "LEDGER_TABLE", "LEDGER_CONTROL_TABLE", "LEDGER_KEEP", "LEDGER_SKEW"}
		case "example":
			if f.env["LEDGER_TABLE"] != nil { // its tools write through a ledger of their own
				wants = []string{"DOOR", "LEDGER_TABLE", "LEDGER_CONTROL_TABLE", "LEDGER_KEEP", "LEDGER_SKEW"}
			}
		case "stream":
			wants = []string{"EVENT_BUS", "FAILURE_BUCKET", "METRICS_NAMESPACE"}
		case "sweeper":
			wants = []string{"LEDGER_TABLE", "LEDGER_CONTROL_TABLE", "LEDGER_KEEP", "LEDGER_SKEW", "METRICS_NAMESPACE"}
		}
		for _, name := range wants {
			if str(f.env[name]) == "" {
				bad("%s: %s is not set, and its default is not what this stack has", f.id, name)
			}
		}
	}
}

// rollout: a new version takes over by alias, the writer's by canary, and alarms roll each back.
func rollout(v *view, bad report) {
	groups := v.of("AWS::CodeDeploy::DeploymentGroup")
	for _, f := range v.functions() {
		var group *resource
		for _, g := range groups {
			if strings.HasPrefix(g.id, f.id) {
				group = g
			}
		}
		alias := v.aliasOf(f.id)
		if alias == nil || group == nil {
			bad("%s: no alias, or no deployment group that moves it", f.id)
			continue
		}
		want := "CodeDeployDefault.LambdaAllAtOnce"
		if f.door == "http" || f.door == "direct" {
			want = "CodeDeployDefault.LambdaCanary10Percent5Minutes"
		}
		if got := str(group.props["DeploymentConfigName"]); got != want && f.door != "example" {
			bad("%s: rolled out by %s, not %s", f.id, got, want)
		}
		alarms := list(dig(group.props, "AlarmConfiguration", "Alarms"))
		if !yes(dig(group.props, "AlarmConfiguration", "Enabled")) || len(alarms) == 0 {
			bad("%s: no alarm rolls a bad version back", f.id)
		}
		for _, a := range alarms {
			if r := v.target(asObject(a)["Name"]); r == nil || r.kind != "AWS::CloudWatch::Alarm" {
				bad("%s: rolled back by %v, which is no alarm", f.id, asObject(a)["Name"])
			}
		}
		if !yes(dig(group.props, "AutoRollbackConfiguration", "Enabled")) {
			bad("%s: a failed rollout is not rolled back", f.id)
		}
	}
}

// aliasOf is the alias of a function; nil where it has none.
func (v *view) aliasOf(function string) *resource {
	for _, a := range v.of("AWS::Lambda::Alias") {
		if r := v.target(a.props["FunctionName"]); r != nil && r.id == function {
			return a
		}
	}
	return nil
}

// functionOf is the function that an ARN, an alias or a name of either stands for.
func (v *view) functionOf(value any) *resource {
	text := strings.TrimSuffix(str(value), ":live")
	r := v.target(text)
	if r != nil && r.kind == "AWS::Lambda::Alias" {
		r = v.target(r.props["FunctionName"])
	}
	if r == nil || r.kind != "AWS::Lambda::Function" {
		return nil
	}
	return r
}
