package picture

import (
	"cmp"
	"slices"
	"time"

	"toolledger/internal/ops"
	"toolledger/metrics"
)

// Data is what was measured, by minute.
type Data struct {
	points     map[key]map[int64]metrics.Point
	start, end int64 // minutes since 1970, both included
}

type key struct{ name, tenant string }

// maxMinutes is how far back a picture goes: what the dashboard shows when it is opened.
const maxMinutes = 180

// Collect orders points as [metrics.Aggregator.Take] returns them. Points of one series and minute are added up.
func Collect(points []metrics.Point) *Data {
	d := &Data{points: map[key]map[int64]metrics.Point{}}
	for _, p := range points {
		at := p.Minute.Unix() / 60
		if len(d.points) == 0 {
			d.start, d.end = at, at
		}
		d.start, d.end = min(d.start, at), max(d.end, at)
		k := key{p.Name, p.Tenant}
		if d.points[k] == nil {
			d.points[k] = map[int64]metrics.Point{}
		}
		if old, ok := d.points[k][at]; ok {
			p.Sum, p.Samples, p.Max = p.Sum+old.Sum, p.Samples+old.Samples, max(p.Max, old.Max)
		}
		d.points[k][at] = p
	}
	d.start = max(d.start, d.end-maxMinutes+1)
	return d
}

// minutes is how many there are.
func (d *Data) minutes() int { return int(d.end-d.start) + 1 }

// labels are the minutes as a clock shows them.
func (d *Data) labels() []string {
	list := make([]string, d.minutes())
	for i := range list {
		list[i] = time.Unix((d.start+int64(i))*60, 0).UTC().Format("15:04")
	}
	return list
}

// line is one series ready to be drawn.
type line struct {
	label, color string
	right        bool
	values       []float64
	measured     []bool // values has something to show there
	here         bool   // somebody on this machine measures it
}

func (l *line) empty() bool { return !slices.Contains(l.measured, true) }

// total is the sum, or the maximum, of all that was measured.
func (l *line) total(stat string) float64 {
	all := 0.0
	for i, v := range l.values {
		if l.measured[i] && stat == metrics.StatisticMax {
			all = max(all, v)
		} else if l.measured[i] {
			all += v
		}
	}
	return all
}

// series reads one metric.
func (d *Data) series(k key, stat string) line {
	l := line{values: make([]float64, d.minutes()), measured: make([]bool, d.minutes())}
	for at, p := range d.points[k] {
		i := int(at - d.start)
		if i < 0 {
			continue
		}
		l.values[i], l.measured[i] = p.Sum, true
		if stat == metrics.StatisticMax {
			l.values[i] = p.Max
		}
	}
	return l
}

// tenantColors tell up to ten tenants apart.
var tenantColors = []string{
	"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
}

// lines are the series of an entry: one, or those that its search finds.
func (d *Data) lines(e ops.Entry, stat string) []line {
	if e.Search != nil {
		return d.search(e.Search)
	}
	if e.Metric.Namespace != "" {
		l := line{values: make([]float64, d.minutes()), measured: make([]bool, d.minutes())}
		l.label, l.color, l.right = e.Label, e.Color, e.Right
		return []line{l}
	}
	l := d.series(key{name: e.Metric.Name}, cmp.Or(e.Stat, stat))
	l.label, l.color, l.right, l.here = e.Label, e.Color, e.Right, true
	return []line{l}
}

func (d *Data) search(s *ops.Search) []line {
	var found []line
	for k := range d.points {
		if k.name == s.Name && k.tenant != "" {
			l := d.series(k, s.Stat)
			l.label, l.here = k.tenant, true
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.total(s.Stat), a.total(s.Stat)), cmp.Compare(a.label, b.label))
	})
	found = found[:min(len(found), s.Top)]
	for i := range found {
		found[i].color = tenantColors[i%len(tenantColors)]
	}
	if len(found) == 0 {
		return []line{{label: "no tenant", here: true, measured: make([]bool, d.minutes()), values: make([]float64, d.minutes())}}
	}
	return found
}

// State is what an alarm would say of the data.
type State string

// The states of alarms.
const (
	StateOK      State = "OK"
	StateAlarm   State = "ALARM"
	StateUnknown State = "INSUFFICIENT_DATA" // nobody on this machine measures it
)

// state judges an alarm over one of the ledger's metrics by its last periods. Alarms over expressions and AWS's own metrics
// are unknown here.
func (d *Data) state(a ops.Alarm) State {
	if a.Expression != "" || a.Metric.Namespace != "" {
		return StateUnknown
	}
	l := d.series(key{name: a.Metric.Name}, a.Stat)
	width, beyond := a.Period/60, 0
	for n := range a.Of {
		to := len(l.values) - n*width
		value, measured := 0.0, false
		for i := max(0, to-width); i < to; i++ {
			if !l.measured[i] {
				continue
			}
			measured = true
			if a.Stat == metrics.StatisticMax {
				value = max(value, l.values[i])
			} else {
				value += l.values[i]
			}
		}
		if measured && breaches(a, value) || !measured && a.Missing == ops.MissingBreaches {
			beyond++
		}
	}
	if beyond >= a.Points {
		return StateAlarm
	}
	return StateOK
}

func breaches(a ops.Alarm, value float64) bool {
	switch a.Compare {
	case ops.AtLeast:
		return value >= a.Threshold
	case ops.Above:
		return value > a.Threshold
	default:
		return value < a.Threshold
	}
}
