package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// coverKey is one cell of the coverage table.
type coverKey struct{ fault, operation, state string }

// total adds up runs.
type total struct {
	runs, steps int
	earlier     int // runs whose coverage was read from files
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

// counted is what a file of figures has.
type counted struct {
	Runs  int
	Cells []cellCount
}

type cellCount struct {
	Fault, Operation, State string
	Count                   int
}

// read adds what earlier runs covered.
func (t *total) read(files string) error {
	for name := range strings.SplitSeq(files, ",") {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var c counted
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("simulate: %s holds no figures of coverage: %w", name, err)
		}
		t.earlier += c.Runs
		for _, cell := range c.Cells {
			t.cover[coverKey{cell.Fault, cell.Operation, cell.State}] += cell.Count
		}
	}
	return nil
}

// write writes the table, or its figures, to a file.
func (t *total) write(name string) error {
	if name == "" {
		return nil
	}
	var text string
	if !strings.HasSuffix(name, ".json") {
		text, _ = t.table()
	} else {
		c := counted{Runs: t.earlier + t.runs}
		for k, n := range t.cover {
			c.Cells = append(c.Cells, cellCount{k.fault, k.operation, k.state, n})
		}
		slices.SortFunc(c.Cells, func(a, b cellCount) int {
			return cmp.Or(strings.Compare(a.Operation, b.Operation), strings.Compare(a.State, b.State), strings.Compare(a.Fault, b.Fault))
		})
		figures, err := json.Marshal(c)
		if err != nil {
			return err
		}
		text = string(figures)
	}
	return os.WriteFile(name, []byte(text), 0o600)
}

// emptyLines are the lines with an empty cell that runs can be aimed at.
func (t *total) emptyLines() (lines []coverLine) {
	byClass := t.byClass()
	for _, l := range aimedLines() {
		empty := func(class string) bool { return byClass[l][class] == 0 }
		if slices.ContainsFunc(classesOf(faultsOf(l.purpose)), empty) && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return lines
}

// byClass counts the classes of faults of each line; also of lines that nobody has met, which are as empty as one can be.
func (t *total) byClass() map[coverLine]map[string]int {
	lines := map[coverLine]map[string]int{}
	for _, l := range aimedLines() {
		lines[l] = map[string]int{}
	}
	for k, n := range t.cover {
		l := coverLine{k.operation, k.state}
		if lines[l] == nil {
			lines[l] = map[string]int{}
		}
		lines[l][classOf(k.fault)] += n
	}
	return lines
}

// table is which faults met which operation of the protocol in which state of its row, and which kinds of faults met which
// operation. empty are the cells of both that the runs did not reach.
func (t *total) table() (text string, empty []string) {
	lines, kinds := t.byClass(), map[string]map[string]int{}
	for k, n := range t.cover {
		if kinds[k.operation] == nil {
			kinds[k.operation] = map[string]int{}
		}
		kinds[k.operation][k.fault] += n
	}
	order := slices.SortedFunc(maps.Keys(lines), func(a, b coverLine) int {
		return cmp.Or(strings.Compare(a.purpose, b.purpose), strings.Compare(a.state, b.state))
	})
	var b strings.Builder
	cells := 0
	cell := func(where, what string, n int) {
		cells++
		if n == 0 {
			empty = append(empty, where+": "+what)
		}
		_, _ = fmt.Fprintf(&b, " %s %d,", what, n)
	}
	for _, l := range order {
		requests := 0
		for _, n := range lines[l] {
			requests += n
		}
		_, _ = fmt.Fprintf(&b, "%-18s %-22s %7d:", l.purpose, l.state, requests)
		for _, class := range classesOf(faultsOf(l.purpose)) {
			cell(l.purpose+", "+l.state, class, lines[l][class])
		}
		_, _ = fmt.Fprintln(&b)
	}
	for _, operation := range slices.Sorted(maps.Keys(kinds)) {
		_, _ = fmt.Fprintf(&b, "%-18s %-22s        :", operation, "any")
		for _, kind := range faultsOf(operation) {
			cell(operation, kind, kinds[operation][kind])
		}
		_, _ = fmt.Fprintln(&b)
	}
	return fmt.Sprintf("%d runs; %d lines of operation and state, %d cells, %d of them empty\n\n%s\nempty:\n  %s\n",
		t.earlier+t.runs, len(order), cells, len(empty), &b, strings.Join(empty, "\n  ")), empty
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
