package tests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolledger/internal/ops"
	"toolledger/streams/events"
)

const runbook = "../docs/runbook.md"

// procedures are the entries of the runbook that belong to no alarm.
var procedures = []string{"failure-destination-redrive", "stream-gap", "kill-switch", "hot-tenant", "restore-from-backup", "cost"}

var (
	heading      = regexp.MustCompile(`(?m)^(#{1,3}) (.+)$`)
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// anchorOf is how a renderer of Markdown names a heading.
func anchorOf(title string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// entries are the sections of the third level, by anchor, and all anchors.
func entries(text string) (bodies map[string]string, anchors []string) {
	bodies = map[string]string{}
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		anchor, end := anchorOf(text[m[4]:m[5]]), len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		anchors = append(anchors, anchor)
		if m[3]-m[2] == 3 {
			bodies[anchor] = text[m[1]:end]
		}
	}
	return bodies, anchors
}

// TestRunbook: whoever is woken by an alarm finds its entry, with meaning, first look and fix, and no entry is about an alarm
// that is no more.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	bodies, anchors := entries(string(text))
	alarms := map[string]bool{}
	for _, a := range ops.Alarms() {
		alarms[a.Name] = true
		body, ok := bodies[a.Name]
		if !ok {
			t.Errorf("alarm %s has no entry", a.Name)
			continue
		}
		last := -1
		for _, part := range []string{"**Meaning.**", "**First look.**", "**Fix.**"} {
			here := strings.Index(body, part)
			if here <= last {
				t.Errorf("entry %s has no %s in its place", a.Name, part)
			}
			last = here
		}
	}
	for anchor := range bodies {
		if !alarms[anchor] && !slices.Contains(procedures, anchor) {
			t.Errorf("entry %s is about no alarm and no procedure", anchor)
		}
	}
	for _, p := range procedures {
		if bodies[p] == "" {
			t.Errorf("no entry %s", p)
		}
	}
	for i, a := range anchors {
		if slices.Contains(anchors[:i], a) {
			t.Errorf("two headings make the anchor %s", a)
		}
	}
}

// TestRunbookLinks: every link of the runbook, of the dashboard and of the alarms leads somewhere.
func TestRunbookLinks(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	body, err := ops.Dashboard().JSON()
	if err != nil {
		t.Fatal(err)
	}
	alarms, err := ops.AlarmsYAML()
	if err != nil {
		t.Fatal(err)
	}
	_, anchors := entries(string(text))
	n := 0
	for _, m := range markdownLink.FindAllStringSubmatch(string(text), -1) {
		n++
		file, anchor, _ := strings.Cut(m[1], "#")
		if file == "" && !slices.Contains(anchors, anchor) {
			t.Errorf("%s leads nowhere", m[1])
		}
		if _, err := os.Stat(filepath.Join("../docs", file)); err != nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\$\{RunbookUrl\}#([a-z-]+)`).FindAllStringSubmatch(string(body)+alarms, -1) {
		n++
		if !slices.Contains(anchors, m[1]) {
			t.Errorf("dashboard or alarms link to %s, which is no entry", m[1])
		}
	}
	if n < 80 {
		t.Errorf("only %d links found", n)
	}
}

// awsWords are names in the runbook that are AWS's own.
var awsWords = strings.Fields("EventBridge CloudWatch CloudTrail CloudFormation AgentCore UpdateItem PutItem PutMetricData WarmThroughput " +
	"OnDemandThroughput LastProcessingResult EventSourceMappings EventSourceArn FilterArns ToolLedger")

// TestRunbookNames: the parameters, log groups, resources and events that the runbook sends somebody to are there.
func TestRunbookNames(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Clone(awsWords)
	for _, ev := range events.All() {
		known = append(known, ev.DetailType())
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+):$`).FindAllStringSubmatch(string(template), -1) {
		known = append(known, m[1])
	}
	for _, name := range regexp.MustCompile(`\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b`).FindAllString(string(text), -1) {
		if !slices.Contains(known, name) {
			t.Errorf("the runbook speaks of %s, which is no parameter, resource or event", name)
		}
	}
	groups := regexp.MustCompile(`/toolledger/S/([a-z-]+)`).FindAllStringSubmatch(string(text), -1)
	for _, m := range groups {
		if !strings.Contains(string(template), `LogGroupName: !Sub "/toolledger/${AWS::StackName}/`+m[1]+`"`) {
			t.Errorf("there is no log group %s", m[0])
		}
	}
	if len(groups) < 10 {
		t.Errorf("only %d log groups found", len(groups))
	}
}

// TestTemplateGenerated: dashboard, alarms and schemas in the template are those of the code (go generate ./internal/ops).
func TestTemplateGenerated(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ops.Generate(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Error("template.yaml is not what internal/ops generates: go generate ./internal/ops")
	}
}
