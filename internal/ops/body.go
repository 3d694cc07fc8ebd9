package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The kinds of widgets that are used, and the views of a metric widget.
const (
	TypeText   = "text"
	TypeMetric = "metric"
	TypeAlarm  = "alarm"

	ViewTimeSeries  = "timeSeries"
	ViewSingleValue = "singleValue"
)

// Columns is how wide a dashboard is, in the units of Widget.
const Columns = 24

// Body is a dashboard in CloudWatch's dashboard body syntax.
type Body struct {
	Start          string   `json:"start"` // how far back it shows, as an ISO 8601 duration
	PeriodOverride string   `json:"periodOverride"`
	Widgets        []Widget `json:"widgets"`
}

// Widget is one rectangle of the grid of 24 columns.
type Widget struct {
	Type       string     `json:"type"`
	X          int        `json:"x"`
	Y          int        `json:"y"`
	Width      int        `json:"width"`
	Height     int        `json:"height"`
	Properties Properties `json:"properties"`
}

// Properties are those of a text widget (Markdown, Background), of an alarm widget (Title, Alarms) or of a metric widget
// (all others). Fields that a kind does not have are left empty.
type Properties struct {
	Markdown   string `json:"markdown,omitempty"`
	Background string `json:"background,omitempty"`

	Title  string   `json:"title,omitempty"`
	Alarms []string `json:"alarms,omitempty"` // ARNs

	Region      string       `json:"region,omitempty"`
	View        string       `json:"view,omitempty"`
	Stat        string       `json:"stat,omitempty"`
	Period      int          `json:"period,omitempty"` // seconds
	Stacked     bool         `json:"stacked,omitempty"`
	Sparkline   *bool        `json:"sparkline,omitempty"`
	WholeRange  *bool        `json:"setPeriodToTimeRange,omitempty"` // a single value is of the whole time shown
	YAxis       *YAxis       `json:"yAxis,omitempty"`
	Annotations *Annotations `json:"annotations,omitempty"`
	Metrics     []Entry      `json:"metrics,omitempty"`
}

// YAxis are the vertical axes.
type YAxis struct {
	Left  *Axis `json:"left,omitempty"`
	Right *Axis `json:"right,omitempty"`
}

// Axis is one vertical axis.
type Axis struct {
	Label     string   `json:"label,omitempty"`
	Min       *float64 `json:"min,omitempty"`
	ShowUnits *bool    `json:"showUnits,omitempty"`
}

// Annotations are the lines across a graph.
type Annotations struct {
	Horizontal []Line `json:"horizontal,omitempty"`
}

// Line is a horizontal line, such as the threshold of an alarm.
type Line struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Color string  `json:"color,omitempty"`
	YAxis string  `json:"yAxis,omitempty"`
}

// Entry is one series of a graph, or a search for several.
type Entry struct {
	Metric    Metric
	Search    *Search // instead of Metric
	Label     string
	Color     string // #rrggbb
	Stat      string // "" takes the widget's
	Right     bool   // on the right axis
	Condition string // of the template, under which the resource exists that the metric is about; "" always
}

// Search finds the series per tenant of one of the ledger's metrics, the largest first.
type Search struct {
	Name   string
	Stat   string
	Period int // seconds
	Top    int // at most so many series
}

// expression is the search in CloudWatch's syntax.
func (s *Search) expression() string {
	return fmt.Sprintf(`SLICE(SORT(SEARCH('{"%s",Tenant} MetricName="%s"', '%s', %d), SUM, DESC), 0, %d)`,
		ownNamespace, s.Name, s.Stat, s.Period, s.Top)
}

// tenantLabel labels each series of a search with its tenant.
const tenantLabel = "${PROP('Dim.Tenant')}"

type entryOptions struct {
	Expression string `json:"expression,omitempty"`
	Label      string `json:"label,omitempty"`
	Color      string `json:"color,omitempty"`
	Stat       string `json:"stat,omitempty"`
	YAxis      string `json:"yAxis,omitempty"`
}

// MarshalJSON writes the array of CloudWatch: namespace, name, dimensions, and options as the last element.
func (e Entry) MarshalJSON() ([]byte, error) {
	options := entryOptions{Label: e.Label, Color: e.Color, Stat: e.Stat}
	if e.Right {
		options.YAxis = "right"
	}
	if e.Search != nil {
		options.Expression, options.Label = e.Search.expression(), tenantLabel
		return encode([]any{options})
	}
	parts := []any{e.Metric.namespace(), e.Metric.Name}
	for _, d := range e.Metric.Dimensions {
		parts = append(parts, d.Name, d.Value)
	}
	return encode(append(parts, options))
}

// encode is json.Marshal without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// Having is the body without what is there under a condition and names something that known does not know.
func (b Body) Having(known func(name string) bool) Body {
	unknown := func(text string) bool {
		return slices.ContainsFunc(References(text), func(ref string) bool { return !known(ref) })
	}
	out := b
	out.Widgets = slices.Clone(b.Widgets)
	for i := range out.Widgets {
		p := &out.Widgets[i].Properties
		p.Metrics = slices.DeleteFunc(slices.Clone(p.Metrics), func(e Entry) bool {
			return e.Condition != "" && slices.ContainsFunc(e.Metric.Dimensions, func(d Dimension) bool { return unknown(d.Value) })
		})
		p.Alarms = slices.DeleteFunc(slices.Clone(p.Alarms), func(arn string) bool {
			return slices.ContainsFunc(Alarms(), func(a Alarm) bool { return a.Condition != "" && a.arn() == arn && !known(a.ID) })
		})
	}
	return out
}

// JSON is the body as CloudWatch takes it, with references such as ${LedgerTable} for names.
func (b Body) JSON() ([]byte, error) {
	var out bytes.Buffer
	raw, err := encode(b)
	if err != nil {
		return nil, err
	}
	err = json.Indent(&out, raw, "", " ")
	return out.Bytes(), err
}

// references are what Fn::Sub replaces. A label's ${PROP(…)} is CloudWatch's own.
var references = regexp.MustCompile(`\$\{([A-Za-z0-9:.]+)\}`)

// Expand replaces the references of text by names, by what stands between the braces. Errors: ErrName, naming the first
// that is missing.
func Expand(text string, names map[string]string) (string, error) {
	var missing error
	out := references.ReplaceAllStringFunc(text, func(ref string) string {
		key := strings.TrimSuffix(strings.TrimPrefix(ref, "${"), "}")
		name, ok := names[key]
		if !ok && missing == nil {
			missing = fmt.Errorf("%w: %s", ErrName, key)
		}
		return name
	})
	return out, missing
}

// References lists what has to be known to [Expand] text, each once, in the order of their first use.
func References(text string) []string {
	var list []string
	seen := map[string]bool{}
	for _, m := range references.FindAllStringSubmatch(text, -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			list = append(list, m[1])
		}
	}
	return list
}
