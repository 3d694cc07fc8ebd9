package ops

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Markers of the regions of a template that are generated, and the regions' names.
const (
	begin = "# BEGIN generated: "
	end   = "# END generated: "

	RegionAlarms  = "alarms"
	RegionSchemas = "schemas"
)

const resultID = "result" // of the query that an alarm over an expression looks at

// Replace puts text where the named region of a template is, between its two marker lines. Errors: ErrTemplate where the
// markers are not there once each and in order.
func Replace(template, region, text string) (string, error) {
	marker := func(prefix string) (from, to int) {
		all := regexp.MustCompile(`(?m)^[ \t]*`+regexp.QuoteMeta(prefix+region)+`\b.*\n`).FindAllStringIndex(template, -1)
		if len(all) != 1 {
			return -1, -1
		}
		return all[0][0], all[0][1]
	}
	_, from := marker(begin)
	to, _ := marker(end)
	if from < 0 || to < from {
		return "", fmt.Errorf("%w: want one line %q and after it one line %q", ErrTemplate, begin+region, end+region)
	}
	return template[:from] + text + template[to:], nil
}

// AlarmsYAML is the region of the alarms: the dashboard, each alarm, and the two composite alarms that notify.
func AlarmsYAML() (string, error) {
	var b strings.Builder
	if err := dashboardYAML(&b, Dashboard()); err != nil {
		return "", err
	}
	for _, a := range Alarms() {
		a.yaml(&b)
	}
	compositeYAML(&b, "PageAlarm", "page", "Somebody must act now.", "PageTopicArn", "HasPageTopic", true)
	compositeYAML(&b, "NoticeAlarm", "notice", "Somebody should look in office hours.", "NoticeTopicArn", "HasNoticeTopic", false)
	return b.String(), nil
}

// dashboardYAML writes a widget a line. What is about a resource that may not exist is a variable of the substitution: a
// plain reference to it would refuse the whole template.
func dashboardYAML(b *strings.Builder, body Body) error {
	var vars []string
	b.WriteString("  Dashboard:\n    Type: AWS::CloudWatch::Dashboard\n    Properties:\n      DashboardName: !Sub \"${AWS::StackName}\"\n" +
		"      DashboardBody:\n        Fn::Sub:\n          - |\n")
	fmt.Fprintf(b, "            {\"start\":%q,\"periodOverride\":%q,\"widgets\":[\n", body.Start, body.PeriodOverride)
	for i, w := range body.Widgets {
		raw, err := encode(w)
		if err != nil {
			return err
		}
		line := strings.ReplaceAll(string(raw), "${PROP(", "${!PROP(")
		for _, part := range conditional(w) {
			name := fmt.Sprintf("Only%d", len(vars)+1)
			if strings.Count(line, part.text) != 1 {
				return fmt.Errorf("%w: %s is not in its widget once", ErrTemplate, part.text)
			}
			line = strings.Replace(line, part.text, "${"+name+"}", 1)
			vars = append(vars, fmt.Sprintf("%s: !If [%s, !Sub '%s', \"\"]", name, part.condition, part.text))
		}
		if i < len(body.Widgets)-1 {
			line += ","
		}
		b.WriteString("            " + line + "\n")
	}
	b.WriteString("            ]}\n          -\n")
	for _, v := range vars {
		b.WriteString("            " + v + "\n")
	}
	return nil
}

// conditionalPart is a piece of a widget's JSON, with the comma before it, that is there under a condition.
type conditionalPart struct{ condition, text string }

func conditional(w Widget) []conditionalPart {
	var parts []conditionalPart
	for _, e := range w.Properties.Metrics {
		if e.Condition != "" {
			raw, _ := e.MarshalJSON() // of strings only: encodes always
			parts = append(parts, conditionalPart{e.Condition, "," + string(raw)})
		}
	}
	for _, a := range Alarms() {
		if i := slices.Index(w.Properties.Alarms, a.arn()); i > 0 && a.Condition != "" {
			parts = append(parts, conditionalPart{a.Condition, `,"` + a.arn() + `"`})
		}
	}
	return parts
}

func (a Alarm) arn() string {
	return "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:${AWS::StackName}-" + a.Name
}

// description is what a notification shows.
func (a Alarm) description() string {
	return fmt.Sprintf("%s Missing data is %s: %s. Runbook: %s", a.Says, a.Missing, a.MissingWhy, link(a.Name))
}

func (a Alarm) yaml(b *strings.Builder) {
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(b, strings.Repeat(" ", indent)+format+"\n", args...)
	}
	line(2, "%s:", a.ID)
	line(4, "Type: AWS::CloudWatch::Alarm")
	if a.Condition != "" {
		line(4, "Condition: %s", a.Condition)
	}
	line(4, "Properties:")
	line(6, "AlarmName: !Sub \"${AWS::StackName}-%s\"", a.Name)
	line(6, "AlarmDescription: !Sub %q", a.description())
	line(6, "ComparisonOperator: %s", a.Compare)
	line(6, "Threshold: %v", int64(a.Threshold))
	line(6, "EvaluationPeriods: %d", a.Of)
	line(6, "DatapointsToAlarm: %d", a.Points)
	line(6, "TreatMissingData: %s", a.Missing)
	if a.Expression == "" {
		line(6, "Period: %d", a.Period)
		line(6, "Statistic: %s", a.Stat)
		a.Metric.yaml(line, 6)
		return
	}
	line(6, "Metrics:")
	line(8, "- { Id: %s, Expression: %q, Label: %s, ReturnData: true }", resultID, a.Expression, a.Name)
	for _, q := range a.Queries {
		line(8, "- Id: %s", q.ID)
		line(10, "ReturnData: false")
		line(10, "MetricStat:")
		line(12, "Period: %d", a.Period)
		line(12, "Stat: %s", q.Stat)
		line(12, "Metric:")
		q.Metric.yaml(line, 14)
	}
}

func (m Metric) yaml(line func(int, string, ...any), indent int) {
	line(indent, "Namespace: %s", substituted(m.namespace()))
	line(indent, "MetricName: %s", m.Name)
	if len(m.Dimensions) == 0 {
		return
	}
	line(indent, "Dimensions:")
	for _, d := range m.Dimensions {
		line(indent+2, "- { Name: %s, Value: %s }", d.Name, substituted(d.Value))
	}
}

func substituted(text string) string {
	if strings.Contains(text, "${") {
		return fmt.Sprintf("!Sub %q", text)
	}
	return text
}

// compositeYAML writes an alarm that goes off with any of its kind. Only these notify: one incident is one message.
func compositeYAML(b *strings.Builder, id, name, says, topic, condition string, page bool) {
	var rule []string
	var vars strings.Builder
	for _, a := range Alarms() {
		if a.Page != page {
			continue
		}
		text := fmt.Sprintf(`ALARM("${%s}")`, a.ID)
		if a.Condition == "" {
			rule = append(rule, text)
			continue
		}
		fmt.Fprintf(&vars, "            Or%s: !If [%s, !Sub ' OR %s', \"\"]\n", a.ID, a.Condition, text)
	}
	text := strings.Join(rule, " OR\n            ")
	for _, a := range Alarms() {
		if a.Page == page && a.Condition != "" {
			text += "${Or" + a.ID + "}"
		}
	}
	ruleYAML := " !Sub >-\n          " + strings.ReplaceAll(text, "\n            ", "\n          ") + "\n"
	if vars.Len() > 0 {
		ruleYAML = "\n        Fn::Sub:\n          - >-\n            " + text + "\n          -\n" + vars.String()
	}
	fmt.Fprintf(b, `  %s:
    Type: AWS::CloudWatch::CompositeAlarm
    Properties:
      AlarmName: !Sub "${AWS::StackName}-%s"
      AlarmDescription: !Sub "%s The alarms in red say what it is. Runbook: %s"
      AlarmRule:%s      AlarmActions: !If [%s, [!Ref %s], !Ref "AWS::NoValue"]
      OKActions: !If [%s, [!Ref %s], !Ref "AWS::NoValue"]
`, id, name, says, link("alarms"), ruleYAML, condition, topic, condition, topic)
}

// Generate writes the regions of a template anew. Errors: ErrTemplate.
func Generate(template string) (string, error) {
	alarms, err := AlarmsYAML()
	if err != nil {
		return "", err
	}
	published, err := SchemasYAML()
	if err != nil {
		return "", err
	}
	if template, err = Replace(template, RegionAlarms, alarms); err != nil {
		return "", err
	}
	return Replace(template, RegionSchemas, published)
}
