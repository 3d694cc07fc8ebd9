package ops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolledger/internal/ops"
	"toolledger/metrics"
)

// TestDashboardAndAlarms: CloudWatch takes the dashboard and the alarms, and every metric in them is emitted with exactly
// the dimensions that they name.
func TestDashboardAndAlarms(t *testing.T) {
	defined := metrics.Definitions()
	if err := ops.Dashboard().Check(defined); err != nil {
		t.Error(err)
	}
	if err := ops.CheckAlarms(ops.Alarms(), defined); err != nil {
		t.Error(err)
	}
}

// TestNoMetricIsLeftOver: a metric that the code stops emitting, or emits under another name, is noticed wherever a widget
// or an alarm names it.
func TestNoMetricIsLeftOver(t *testing.T) {
	all := metrics.Definitions()
	text, used := bodyText(t)+alarmText(t), 0
	for i, gone := range all {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		dashboard, alarms := ops.Dashboard().Check(rest), ops.CheckAlarms(ops.Alarms(), rest)
		for what, err := range map[string]error{"dashboard": dashboard, "alarms": alarms} {
			named := strings.Contains(text, gone.Name)
			if err != nil && (!errors.Is(err, ops.ErrUnknownMetric) || !strings.Contains(err.Error(), gone.Name)) {
				t.Errorf("%s without %s: %v", what, gone.Name, err)
			}
			if named && dashboard == nil && alarms == nil {
				t.Errorf("nobody notices that %s is gone", gone.Name)
			}
		}
		if dashboard != nil || alarms != nil {
			used++
		}
	}
	if used < 20 {
		t.Errorf("only %d metrics are looked at", used)
	}
}

func bodyText(t *testing.T) string {
	t.Helper()
	text, err := ops.Dashboard().JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func alarmText(t *testing.T) string {
	t.Helper()
	text, err := ops.AlarmsYAML()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCheckNoticesWidgets: each single fault in a dashboard is refused, and says where it is.
func TestCheckNoticesWidgets(t *testing.T) {
	first := func(b *ops.Body, kind string) *ops.Widget {
		i := slices.IndexFunc(b.Widgets, func(w ops.Widget) bool { return w.Type == kind })
		return &b.Widgets[i]
	}
	graph := func(b *ops.Body) *ops.Properties { return &first(b, ops.TypeMetric).Properties }
	for name, tt := range map[string]struct {
		breaks func(*ops.Body)
		want   error
	}{
		"no widgets":            {func(b *ops.Body) { b.Widgets = nil }, ops.ErrBody},
		"a start that is none":  {func(b *ops.Body) { b.Start = "3 hours" }, ops.ErrBody},
		"over the edge":         {func(b *ops.Body) { first(b, ops.TypeMetric).X = 20 }, ops.ErrBody},
		"no height":             {func(b *ops.Body) { first(b, ops.TypeText).Height = 0 }, ops.ErrBody},
		"one above another":     {func(b *ops.Body) { b.Widgets[3].X, b.Widgets[3].Y = b.Widgets[2].X, b.Widgets[2].Y }, ops.ErrBody},
		"an unknown type":       {func(b *ops.Body) { b.Widgets[1].Type = "graph" }, ops.ErrBody},
		"no text":               {func(b *ops.Body) { first(b, ops.TypeText).Properties.Markdown = "" }, ops.ErrBody},
		"no alarm":              {func(b *ops.Body) { first(b, ops.TypeAlarm).Properties.Alarms = nil }, ops.ErrBody},
		"an alarm by name":      {func(b *ops.Body) { first(b, ops.TypeAlarm).Properties.Alarms[0] = "stream-lag" }, ops.ErrBody},
		"no region":             {func(b *ops.Body) { graph(b).Region = "" }, ops.ErrBody},
		"no title":              {func(b *ops.Body) { graph(b).Title = "" }, ops.ErrBody},
		"half a minute":         {func(b *ops.Body) { graph(b).Period = 90 }, ops.ErrBody},
		"a statistic of none":   {func(b *ops.Body) { graph(b).Stat = "Total" }, ops.ErrBody},
		"a view of none":        {func(b *ops.Body) { graph(b).View = "lines" }, ops.ErrBody},
		"no metrics":            {func(b *ops.Body) { graph(b).Metrics = nil }, ops.ErrBody},
		"a color by name":       {func(b *ops.Body) { graph(b).Metrics[0].Color = "red" }, ops.ErrBody},
		"all under a condition": {func(b *ops.Body) { graph(b).Metrics[0].Condition = "HasHttpApi" }, ops.ErrBody},
		"501 series": {func(b *ops.Body) {
			graph(b).Metrics[0] = ops.Entry{Search: &ops.Search{Name: metrics.EffectsApplied, Stat: "Sum", Period: 60, Top: 501}}
		}, ops.ErrBody},
		"a misspelt metric":        {func(b *ops.Body) { graph(b).Metrics[0].Metric.Name = "EffectApplied" }, ops.ErrUnknownMetric},
		"a misspelt namespace":     {func(b *ops.Body) { graph(b).Metrics[0].Metric.Namespace = "toolledger" }, ops.ErrUnknownMetric},
		"a dimension nobody emits": {func(b *ops.Body) { graph(b).Metrics[0].Metric.Dimensions = []ops.Dimension{{"Service", "x"}} }, ops.ErrUnknownMetric},
		"a dimension without a value": {func(b *ops.Body) {
			graph(b).Metrics[0].Metric.Dimensions = []ops.Dimension{{metrics.DimensionTenant, ""}}
		}, ops.ErrUnknownMetric},
		"the sum of a maximum": {func(b *ops.Body) {
			graph(b).Metrics[0] = ops.Entry{Metric: ops.Metric{Name: metrics.OldestReservationAge}}
		}, ops.ErrUnknownMetric},
		"a search by tenant of what has none": {func(b *ops.Body) {
			graph(b).Metrics[0] = ops.Entry{Search: &ops.Search{Name: metrics.SweepRuns, Stat: "Sum", Period: 60, Top: 10}}
		}, ops.ErrUnknownMetric},
	} {
		t.Run(name, func(t *testing.T) {
			body := ops.Dashboard()
			tt.breaks(&body)
			if err := body.Check(metrics.Definitions()); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestCheckNoticesAlarms: each single fault in an alarm is refused: what cannot go off, what CloudWatch would not take, and
// what leaves open what missing data mean.
func TestCheckNoticesAlarms(t *testing.T) {
	math := func(list []ops.Alarm) *ops.Alarm {
		return &list[slices.IndexFunc(list, func(a ops.Alarm) bool { return a.Expression != "" })]
	}
	for name, tt := range map[string]struct {
		breaks func([]ops.Alarm)
		want   error
	}{
		"missing data not stated": {func(l []ops.Alarm) { l[0].Missing = "" }, ops.ErrAlarm},
		"missing data, no reason": {func(l []ops.Alarm) { l[0].MissingWhy = "" }, ops.ErrAlarm},
		"no meaning":              {func(l []ops.Alarm) { l[0].Says = "" }, ops.ErrAlarm},
		"too much to say":         {func(l []ops.Alarm) { l[0].Says = strings.Repeat("x", 1024) }, ops.ErrAlarm},
		"two of a name":           {func(l []ops.Alarm) { l[0].Name = l[1].Name }, ops.ErrAlarm},
		"a name with blanks":      {func(l []ops.Alarm) { l[0].Name = "stream lag" }, ops.ErrAlarm},
		"a comparison of none":    {func(l []ops.Alarm) { l[0].Compare = ">" }, ops.ErrAlarm},
		"half a minute":           {func(l []ops.Alarm) { l[0].Period = 90 }, ops.ErrAlarm},
		"4 of 3":                  {func(l []ops.Alarm) { l[0].Points, l[0].Of = 4, 3 }, ops.ErrAlarm},
		"a week":                  {func(l []ops.Alarm) { l[0].Points, l[0].Of, l[0].Period = 7, 7, 24*3600 }, ops.ErrAlarm},
		"missing data, no word":   {func(l []ops.Alarm) { l[0].Missing = "missing" }, ops.ErrAlarm},
		"no room for late data":   {func(l []ops.Alarm) { m := math(l); m.Of = m.Points }, ops.ErrAlarm},
		"a misspelt metric":       {func(l []ops.Alarm) { l[0].Metric.Name = "DoubleEffectSuspected" }, ops.ErrUnknownMetric},
		"by tenant": {func(l []ops.Alarm) {
			l[0].Metric.Dimensions = []ops.Dimension{{"TenantId", "acme"}}
		}, ops.ErrUnknownMetric},
		"the sum of a maximum": {func(l []ops.Alarm) { l[0].Metric.Name = metrics.OldestReservationAge }, ops.ErrUnknownMetric},
		"a search": {func(l []ops.Alarm) {
			a := math(l)
			a.Expression = "SEARCH(" + a.Queries[0].ID + ")"
		}, ops.ErrAlarm},
		"a query left over":  {func(l []ops.Alarm) { math(l).Expression = math(l).Queries[0].ID }, ops.ErrAlarm},
		"an unknown query":   {func(l []ops.Alarm) { math(l).Expression += " + nothing" }, ops.ErrAlarm},
		"no queries":         {func(l []ops.Alarm) { math(l).Queries = nil }, ops.ErrAlarm},
		"a query of nothing": {func(l []ops.Alarm) { math(l).Queries[0].Metric.Name = "Nothing" }, ops.ErrUnknownMetric},
	} {
		t.Run(name, func(t *testing.T) {
			list := ops.Alarms()
			tt.breaks(list)
			if err := ops.CheckAlarms(list, metrics.Definitions()); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestBodyJSON: the body has the form that CloudWatch documents: an array per metric, ending in its options.
func TestBodyJSON(t *testing.T) {
	var body struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Markdown string
				Metrics  [][]any
			}
		}
	}
	if err := json.Unmarshal([]byte(bodyText(t)), &body); err != nil {
		t.Fatal(err)
	}
	graphs := 0
	for i, w := range body.Widgets {
		switch w.Type {
		case ops.TypeMetric, ops.TypeAlarm:
			graphs++
			if above := body.Widgets[i-1]; above.Type != ops.TypeText || !strings.Contains(above.Properties.Markdown, "[runbook](${RunbookUrl}#") {
				t.Errorf("widget %d has no link to the runbook above it", i)
			}
		}
		for _, m := range w.Properties.Metrics {
			if _, ok := m[len(m)-1].(map[string]any); !ok {
				t.Errorf("widget %d: %v does not end in options", i, m)
			}
			if len(m) > 1 && (m[0] == "" || len(m)%2 != 1) {
				t.Errorf("widget %d: %v", i, m)
			}
		}
	}
	if graphs < 15 {
		t.Errorf("%d graphs", graphs)
	}
}

// TestExpand: a body without references comes out as it is, and a name that was forgotten is named.
func TestExpand(t *testing.T) {
	text := bodyText(t)
	names := map[string]string{}
	for i, ref := range ops.References(text) {
		names[ref] = fmt.Sprintf("name-%d", i)
	}
	got, err := ops.Expand(text, names)
	if err != nil || len(ops.References(got)) > 0 || !strings.Contains(got, "${PROP('Dim.Tenant')}") {
		t.Error(err, ops.References(got))
	}
	delete(names, "LedgerTable")
	if _, err := ops.Expand(text, names); !errors.Is(err, ops.ErrName) || !strings.Contains(err.Error(), "LedgerTable") {
		t.Error(err)
	}
}

// TestReplace: only what is between the markers changes, and a template without a place for it is refused.
func TestReplace(t *testing.T) {
	const text = "a\n  # BEGIN generated: alarms (by hand: no)\nold\n  # END generated: alarms\nb\n"
	got, err := ops.Replace(text, ops.RegionAlarms, "new\n")
	if want := strings.Replace(text, "old", "new", 1); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := ops.Replace(got, ops.RegionAlarms, "new\n"); err != nil || again != got {
		t.Errorf("%q, %v", again, err)
	}
	for _, bad := range []string{"", "# BEGIN generated: alarms\n", "# END generated: alarms\n# BEGIN generated: alarms\n", text + text} {
		if _, err := ops.Replace(bad, ops.RegionAlarms, ""); !errors.Is(err, ops.ErrTemplate) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestDashboardOfTemplate: whatever doors a stack has, what CloudFormation makes of the template is the body that the code
// has, with the parts of the doors left out that are not there.
func TestDashboardOfTemplate(t *testing.T) {
	_, text, ok := strings.Cut(alarmText(t), "          - |\n")
	text, vars, ok2 := strings.Cut(text, "            ]}\n          -\n")
	if !ok || !ok2 {
		t.Fatal("the dashboard has another form")
	}
	parts := regexp.MustCompile(`(Only\d+): !If \[(\w+), !Sub '([^']+)', ""\]`).FindAllStringSubmatch(vars, -1)
	if len(parts) < 8 {
		t.Fatalf("%d conditional parts", len(parts))
	}
	for _, conditions := range [][]string{nil, {"HasHttp", "HasHttpApi"}, {"HasDirect"}, {"HasHttp", "HasHttpApi", "HasDirect", "HasBedrock", "HasAgentCore", "HasAdmin"}} {
		made := text + "]}"
		for _, p := range parts {
			value := ""
			if slices.Contains(conditions, p[2]) {
				value = p[3]
			}
			if strings.Count(made, "${"+p[1]+"}") != 1 {
				t.Errorf("%s is not used once", p[1])
			}
			made = strings.Replace(made, "${"+p[1]+"}", value, 1)
		}
		made = strings.ReplaceAll(made, "${!", "${")
		there := ops.Dashboard()
		there = there.Having(func(name string) bool {
			for door, condition := range map[string]string{
				"WriterHttpFunction": "HasHttp", "HttpApi": "HasHttpApi", "WriterErrorsAlarm": "HasHttpApi", "WriterDirectFunction": "HasDirect",
				"WriterDirectErrorsAlarm": "HasDirect", "BedrockFunction": "HasBedrock", "BedrockErrorsAlarm": "HasBedrock",
				"AgentCoreFunction": "HasAgentCore", "AgentCoreErrorsAlarm": "HasAgentCore", "AdminFunction": "HasAdmin", "AdminErrorsAlarm": "HasAdmin",
			} {
				if name == door {
					return slices.Contains(conditions, condition)
				}
			}
			return true
		})
		raw, err := there.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := errors.Join(json.Unmarshal([]byte(made), &got), json.Unmarshal(raw, &want)); err != nil {
			t.Fatalf("with %v: %v", conditions, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with %v the template's dashboard is another", conditions)
		}
		if err := there.Check(metrics.Definitions()); err != nil {
			t.Errorf("with %v: %v", conditions, err)
		}
	}
}
