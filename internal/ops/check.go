package ops

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolledger/metrics"
)

// Limits of CloudWatch.
const (
	maxWidgets     = 500
	maxSeries      = 500 // of one graph
	maxDescription = 1024
	maxQueries     = 10
	maxHeight      = 1000
	day            = 24 * 60 * minute
)

var (
	color      = regexp.MustCompile(`^#[0-9a-f]{6}$`)
	startRange = regexp.MustCompile(`^-P(T\d+[HM]|\d+D)$`)
	percentile = regexp.MustCompile(`^p\d{1,2}(\.\d+)?$`)
	queryID    = regexp.MustCompile(`^[a-z][a-zA-Z0-9_]*$`)
	alarmName  = regexp.MustCompile(`^[a-z][a-z0-9-]{2,60}$`)
	logicalID  = regexp.MustCompile(`^[A-Za-z0-9]{1,255}$`)
	word       = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)
)

// periods that CloudWatch takes from metrics of one-minute resolution.
func goodPeriod(seconds int) bool { return seconds >= minute && seconds%minute == 0 && seconds <= day }

func goodStat(stat string) bool {
	return slices.Contains([]string{"Sum", "Maximum", "Minimum", "Average", "SampleCount"}, stat) || percentile.MatchString(stat)
}

// Check holds the body against the syntax and limits of CloudWatch, and every metric against what is emitted: the given
// definitions and the list of AWS's own. Errors: ErrBody and ErrUnknownMetric, all that are found, each naming its widget.
func (b Body) Check(defined []metrics.Definition) error {
	var errs []error
	if !startRange.MatchString(b.Start) || b.PeriodOverride != "inherit" && b.PeriodOverride != "auto" {
		errs = append(errs, fmt.Errorf("%w: start %q, periodOverride %q", ErrBody, b.Start, b.PeriodOverride))
	}
	if len(b.Widgets) == 0 || len(b.Widgets) > maxWidgets {
		errs = append(errs, fmt.Errorf("%w: %d widgets", ErrBody, len(b.Widgets)))
	}
	for i, w := range b.Widgets {
		errs = append(errs, w.check(fmt.Sprintf("widget %d (%s)", i, w.Properties.Title), defined)...)
		for j, other := range b.Widgets[:i] {
			if w.overlaps(other) {
				errs = append(errs, fmt.Errorf("%w: widgets %d and %d overlap", ErrBody, j, i))
			}
		}
	}
	return errors.Join(errs...)
}

func (w Widget) overlaps(o Widget) bool {
	return w.X < o.X+o.Width && o.X < w.X+w.Width && w.Y < o.Y+o.Height && o.Y < w.Y+w.Height
}

func (w Widget) check(name string, defined []metrics.Definition) []error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: "+format, append([]any{ErrBody, name}, args...)...))
	}
	if w.X < 0 || w.Y < 0 || w.Width < 1 || w.Height < 1 || w.X+w.Width > Columns || w.Height > maxHeight {
		wrong("%d×%d at %d,%d is not on the grid", w.Width, w.Height, w.X, w.Y)
	}
	p := w.Properties
	switch w.Type {
	case TypeText:
		if p.Markdown == "" || len(p.Metrics) > 0 || p.Background != "" && p.Background != "transparent" && p.Background != "solid" {
			wrong("a text widget has markdown and nothing else")
		}
	case TypeAlarm:
		if len(p.Alarms) == 0 || len(p.Alarms) > 100 || slices.ContainsFunc(p.Alarms, func(a string) bool { return !strings.HasPrefix(a, "arn:") }) {
			wrong("an alarm widget has 1 to 100 ARNs")
		}
	case TypeMetric:
		errs = append(errs, w.checkGraph(wrong, defined)...)
		return errs
	default:
		wrong("type %q", w.Type)
	}
	return errs
}

// checkGraph checks a metric widget; wrong notes what is.
func (w Widget) checkGraph(wrong func(string, ...any), defined []metrics.Definition) []error {
	p := w.Properties
	if p.View != ViewTimeSeries && p.View != ViewSingleValue {
		wrong("view %q", p.View)
	}
	if p.Region == "" || p.Title == "" || !goodPeriod(p.Period) || !goodStat(p.Stat) {
		wrong("region %q, title %q, period %d, stat %q", p.Region, p.Title, p.Period, p.Stat)
	}
	if len(p.Metrics) == 0 || p.Metrics[0].Condition != "" {
		wrong("a graph needs a metric, the first one without a condition")
	}
	series := 0
	var errs []error
	for _, e := range p.Metrics {
		series += max(1, e.top())
		if e.Color != "" && !color.MatchString(e.Color) || e.Stat != "" && !goodStat(e.Stat) {
			wrong("color %q, stat %q", e.Color, e.Stat)
		}
		if err := e.known(p.Stat, defined); err != nil {
			errs = append(errs, fmt.Errorf("graph %q: %w", p.Title, err))
		}
	}
	if series > maxSeries {
		wrong("%d series, CloudWatch draws %d", series, maxSeries)
	}
	return errs
}

func (e Entry) top() int {
	if e.Search == nil {
		return 1
	}
	return e.Search.Top
}

// known also tells whether one of the ledger's metrics is read as it is defined: the sum of a maximum says nothing.
func (e Entry) known(stat string, defined []metrics.Definition) error {
	m := e.Metric
	if e.Stat != "" {
		stat = e.Stat
	}
	if e.Search != nil {
		m, stat = Metric{Name: e.Search.Name, Dimensions: []Dimension{{metrics.DimensionTenant, "*"}}}, e.Search.Stat
	}
	return m.readAs(stat, defined)
}

func (m Metric) readAs(stat string, defined []metrics.Definition) error {
	if err := m.known(defined); err != nil {
		return err
	}
	if want := statistic(defined, m.Name); m.Namespace == "" && stat != want {
		return fmt.Errorf("%w: %s is read by its %s, not its %s", ErrUnknownMetric, m.Name, want, stat)
	}
	return nil
}

// CheckAlarms holds alarms against the syntax and limits of CloudWatch and against what is emitted. Errors: ErrAlarm and
// ErrUnknownMetric, all that are found, each naming its alarm.
func CheckAlarms(alarms []Alarm, defined []metrics.Definition) error {
	var errs []error
	seen := map[string]bool{}
	for _, a := range alarms {
		if seen[a.ID] || seen[a.Name] {
			errs = append(errs, fmt.Errorf("%w: %s is there twice", ErrAlarm, a.Name))
		}
		seen[a.ID], seen[a.Name] = true, true
		for _, err := range a.check(defined) {
			errs = append(errs, fmt.Errorf("%s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (a Alarm) check(defined []metrics.Definition) []error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrAlarm}, args...)...))
	}
	if !logicalID.MatchString(a.ID) || !alarmName.MatchString(a.Name) {
		wrong("id %q, name %q", a.ID, a.Name)
	}
	stated := slices.Contains([]string{MissingOK, MissingBreaches, MissingIgnored}, a.Missing) && a.MissingWhy != ""
	if a.Says == "" || !stated || len(a.description()) > maxDescription {
		wrong("it must say what it means, and what missing data mean and why, in %d bytes", maxDescription)
	}
	if !slices.Contains([]string{AtLeast, Above, LessThan}, a.Compare) {
		wrong("comparison %q", a.Compare)
	}
	if !goodPeriod(a.Period) || a.Points < 1 || a.Points > a.Of || a.Of*a.Period > day {
		wrong("%d of %d periods of %d s", a.Points, a.Of, a.Period)
	}
	if a.Expression == "" {
		if len(a.Queries) > 0 {
			wrong("queries without an expression")
		}
		if err := a.Metric.readAs(a.Stat, defined); err != nil {
			errs = append(errs, err)
		}
		return errs
	}
	return append(errs, a.checkExpression(defined)...)
}

func (a Alarm) checkExpression(defined []metrics.Definition) []error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrAlarm}, args...)...))
	}
	if a.Metric.Name != "" || a.Stat != "" || len(a.Queries) == 0 || len(a.Queries)+1 > maxQueries {
		wrong("an expression goes over 1 to %d queries and nothing else", maxQueries-1)
	}
	if strings.Contains(a.Expression, "FILL(") && a.Of <= a.Points {
		wrong("FILL hides the newest period while its metric is late: %d of %d periods leave no room", a.Points, a.Of)
	}
	known := []string{"IF", "FILL", "AND", "OR", "SUM"}
	for _, q := range a.Queries {
		if !queryID.MatchString(q.ID) || slices.Contains(known, q.ID) || q.ID == resultID {
			wrong("query id %q", q.ID)
		}
		if !slices.Contains(word.FindAllString(a.Expression, -1), q.ID) {
			wrong("query %s is not used", q.ID)
		}
		known = append(known, q.ID)
		if err := q.Metric.readAs(q.Stat, defined); err != nil {
			errs = append(errs, err)
		}
	}
	for _, w := range word.FindAllString(a.Expression, -1) { // SEARCH among them: CloudWatch takes none in an alarm
		if !slices.Contains(known, w) {
			wrong("%s in the expression is no query", w)
		}
	}
	return errs
}
