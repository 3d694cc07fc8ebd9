package deploy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolledger/metrics"
)

// dashboardRules: the page shows what the code measures, and every picture says where to read on.
func dashboardRules() []rule {
	return []rule{
		{"dashboard", func(v *view, bad report) {
			boards := v.of("AWS::CloudWatch::Dashboard")
			if len(boards) != 1 {
				bad("%d dashboards", len(boards))
			}
			for _, b := range boards {
				dashboard(v, b, bad)
			}
		}},
	}
}

var dashboardName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)

func dashboard(v *view, b *resource, bad report) {
	if name := str(b.props["DashboardName"]); name != "" && !dashboardName.MatchString(name) {
		bad("%s: CloudWatch takes no name %s", b.id, name)
	}
	var body struct {
		Widgets []widget `json:"widgets"`
	}
	if err := json.Unmarshal([]byte(str(b.props["DashboardBody"])), &body); err != nil {
		bad("%s: its body is not JSON: %v", b.id, err)
		return
	}
	if len(body.Widgets) < 10 || len(body.Widgets) > 500 {
		bad("%s: %d widgets", b.id, len(body.Widgets))
	}
	taken := map[[2]int]int{}
	shown := map[string]bool{}
	graphs := 0
	for i, w := range body.Widgets {
		where := fmt.Sprintf("%s widget %d (%s)", b.id, i, str(w.Properties["title"]))
		place(where, i, w, taken, bad)
		switch w.Type {
		case "text":
			for _, m := range regexp.MustCompile(`\]\([^)]*#([a-z0-9-]+)\)`).FindAllStringSubmatch(str(w.Properties["markdown"]), -1) {
				v.runbook(where, "#"+m[1], bad)
			}
		case "metric":
			graphs++
			graph(v, where, w, shown, bad)
			if !linked(body.Widgets, w) {
				bad("%s: no link into the runbook", where)
			}
		case "alarm":
			for _, a := range texts(w.Properties["alarms"]) {
				if v.alarm(a) == nil {
					bad("%s: no alarm %s", where, a)
				}
			}
		default:
			bad("%s: type %q", where, w.Type)
		}
	}
	for _, name := range []string{
		metrics.EffectsApplied, metrics.CallsReplayed, metrics.KeyConflicts, metrics.QuotaDenials, metrics.ContentionGiveUps,
		metrics.OldestReservationAge, metrics.DoubleEffectsSuspected, "IteratorAge", "ConsumedWriteCapacityUnits", "Errors",
	} {
		if !shown[name] {
			bad("%s: does not show %s", b.id, name)
		}
	}
}

// widget is one part of a dashboard's body.
type widget struct {
	Type                string `json:"type"`
	X, Y, Width, Height int
	Properties          object `json:"properties"`
}

// place: inside the grid, over no other widget.
func place(where string, i int, w widget, taken map[[2]int]int, bad report) {
	if w.Width < 1 || w.Height < 1 || w.X < 0 || w.Y < 0 || w.X+w.Width > 24 || w.Height > 1000 {
		bad("%s: outside the grid of 24 columns", where)
		return
	}
	for x := range w.Width {
		for y := range w.Height {
			at := [2]int{w.X + x, w.Y + y}
			if other, ok := taken[at]; ok {
				bad("%s: lies over widget %d", where, other)
				return
			}
			taken[at] = i
		}
	}
}

// linked tells whether a graph has a link into the runbook in its title's widget: the text right above it.
func linked(all []widget, w widget) bool {
	return slices.ContainsFunc(all, func(t widget) bool {
		return t.Type == "text" && t.X <= w.X && t.X+t.Width >= w.X+w.Width && t.Y+t.Height == w.Y &&
			regexp.MustCompile(`\]\([^)]*#[a-z0-9-]+\)`).MatchString(str(t.Properties["markdown"]))
	})
}

// graph reads the metrics of a widget, as CloudWatch does: namespace, name, then pairs of dimensions, "." for what the row
// above has, and options last.
func graph(v *view, where string, w widget, shown map[string]bool, bad report) {
	if str(w.Properties["region"]) == "" {
		bad("%s: no Region", where)
	}
	rows := list(w.Properties["metrics"])
	if len(rows) == 0 || len(rows) > 500 {
		bad("%s: %d metrics", where, len(rows))
	}
	var above []any
	for _, r := range rows {
		row := list(r)
		if len(row) > 0 {
			if options := asObject(row[len(row)-1]); options != nil {
				row = row[:len(row)-1]
				if e := str(options["expression"]); e != "" {
					search(v, where, e, shown, bad)
				}
			}
		}
		if len(row) == 0 {
			continue
		}
		for i := range row {
			if row[i] == "." && i < len(above) {
				row[i] = above[i]
			}
		}
		above = row
		if len(row) < 2 || len(row)%2 != 0 {
			bad("%s: %v is no metric", where, row)
			continue
		}
		s := series{str(row[0]), str(row[1]), map[string]any{}}
		for i := 2; i < len(row); i += 2 {
			s.dims[str(row[i])] = row[i+1]
		}
		shown[s.name] = true
		v.emitted(where, s, bad)
	}
	for _, line := range list(dig(w.Properties, "annotations", "alarms")) {
		if v.target(line) == nil {
			bad("%s: no alarm %v", where, line)
		}
	}
}

var (
	searchTerm = regexp.MustCompile(`SEARCH\('\{([^,}]+)((?:,[^,}]+)*)\} *([^']*)'`)
	searchName = regexp.MustCompile(`MetricName="?(\w+)"?`)
)

// search: what an expression looks for is emitted with those dimensions.
func search(v *view, where, e string, shown map[string]bool, bad report) {
	m := searchTerm.FindStringSubmatch(e)
	if m == nil {
		if strings.Contains(e, "SEARCH") {
			bad("%s: cannot read %s", where, e)
		}
		return
	}
	name := searchName.FindStringSubmatch(m[3])
	if name == nil {
		bad("%s: searches for no metric: %s", where, e)
		return
	}
	shown[name[1]] = true
	s := series{strings.Trim(m[1], `"`), name[1], map[string]any{}}
	for d := range strings.SplitSeq(strings.Trim(m[2], ","), ",") {
		if d != "" {
			s.dims[strings.Trim(d, `" `)] = "any"
		}
	}
	v.emitted(where, s, bad)
}
