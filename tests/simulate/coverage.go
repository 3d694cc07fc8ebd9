package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// coverKey is one cell of the coverage table.
type coverKey struct{ fault, operation, state string }

// total adds up runs.
type total struct {
	runs, steps int
	stats       map[string]map[string]int
	cover       map[coverKey]int
	violations  []*violation
}

func newTotal() *total { return &total{stats: map[string]map[string]int{}, cover: map[coverKey]int{}} }

func (t *total) add(r run) {
	t.runs++
	t.steps += r.Steps
	for g, m := range r.Stats {
		if t.stats[g] == nil {
			t.stats[g] = map[string]int{}
		}
		for k, n := range m {
			t.stats[g][k] += n
		}
	}
	for k, n := range r.cover {
		t.cover[k] += n
	}
	if r.Violation != nil {
		t.violations = append(t.violations, r.Violation)
	}
}

func (t *total) text() string {
	return fmt.Sprintf("%d runs, %d steps, %d violations\n%s", t.runs, t.steps, len(t.violations), statsText(t.stats))
}

// table is which faults met which operation of the protocol in which state of its row. An empty cell beside filled ones of
// its line is a combination that the seeds did not reach.
func (t *total) table() string {
	type line struct{ operation, state string }
	lines, byLine := map[line]int{}, map[line]map[string]int{}
	for k, n := range t.cover {
		l := line{k.operation, k.state}
		lines[l] += n
		if byLine[l] == nil {
			byLine[l] = map[string]int{}
		}
		byLine[l][k.fault] += n
	}
	order := slices.SortedFunc(maps.Keys(lines), func(a, b line) int {
		return cmp.Or(strings.Compare(a.operation, b.operation), strings.Compare(a.state, b.state))
	})
	var b, empty strings.Builder
	cells, missing := 0, 0
	for _, l := range order {
		_, _ = fmt.Fprintf(&b, "%-18s %-22s %7d:", l.operation, l.state, lines[l])
		for _, kind := range faultsOf(l.operation) {
			n := byLine[l][kind]
			cells++
			if n == 0 {
				missing++
			}
			if n == 0 && expectedHits(l.operation, kind, lines[l]) >= surely {
				_, _ = fmt.Fprintf(&empty, "  %s, %s: %s (%d requests)\n", l.operation, l.state, kind, lines[l])
			}
			_, _ = fmt.Fprintf(&b, " %s %d,", kind, n)
		}
		_, _ = fmt.Fprintln(&b)
	}
	return fmt.Sprintf("%d runs; %d lines of operation and state, %d cells, %d of them empty\n\n%s\nempty, although that many requests should have met it:\n%s", t.runs, len(order), cells, missing, &b, &empty)
}

// surely is how often a fault must be expected in a cell for its absence to mean something: e^-5 is below one in a hundred.
const surely = 5

// expectedHits is how often requests of a line should have met a fault, by its weight, where a fifth of all meet one.
func expectedHits(purpose, kind string, requests int) float64 {
	weight, sum := 0, 0
	for _, f := range faultsFor(targetOf(purpose)) {
		sum += f.weight
		if f.kind == kind && !f.chaos {
			weight += f.weight
		}
	}
	if sum == 0 || kind == pass {
		return 0
	}
	return float64(requests) / 5 * float64(weight) / float64(sum)
}

// faultsOf are the faults that requests of one purpose can meet.
func faultsOf(purpose string) []string {
	kinds := []string{pass}
	for _, f := range faultsFor(targetOf(purpose)) {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

// targetOf is the operation of the service that requests of one purpose are.
func targetOf(purpose string) string {
	target := purpose
	switch purpose {
	case "read row", "read plan", "read session", "GetItem lease":
		target = "GetItem"
	case "read shards":
		target = "TransactGetItems"
	case "observe", "UpdateItem lease":
		target = "UpdateItem"
	case "outside.act", "outside.find", "PutEvents", "PutMetricData", "GetRecords", "DescribeStream", "GetShardIterator", "Query", "Scan",
		"GetItem", "UpdateItem", "TransactGetItems", "days pass", "person looks", "shards split":
	default:
		target = "TransactWriteItems"
	}
	return target
}
