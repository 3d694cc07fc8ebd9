package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// total adds up runs.
type total struct {
	runs, steps int
	earlier     int // runs whose coverage was read from files
	stats       map[string]map[string]int
	cover       map[coverKey]int
	seen        map[coverKey][]witness
	violations  []*violation
}

func newTotal() *total {
	return &total{stats: map[string]map[string]int{}, cover: map[coverKey]int{}, seen: map[coverKey][]witness{}}
}

// witnessesMost is how many runs are remembered for a line.
const witnessesMost = 6

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
	for k, at := range r.seen {
		t.saw(k, witness{r.cfg.seed, r.cfg.steps, r.cfg.profile.name, r.cfg.aim.name(), r.cfg.put.String(), at})
	}
	if r.Violation != nil {
		t.violations = append(t.violations, r.Violation)
	}
}

func (t *total) saw(k coverKey, w witness) {
	if len(t.seen[k]) < witnessesMost {
		t.seen[k] = append(t.seen[k], w)
	}
}

func (t *total) text() string {
	return fmt.Sprintf("%d runs, %d steps, %d violations\n%s", t.runs, t.steps, len(t.violations), statsText(t.stats))
}

// counted is what a file of figures has.
type counted struct {
	Runs  int
	Cells []cellCount
	Seen  []cellSeen
}

type cellCount struct {
	Fault, Operation, State string
	Count                   int
}

type cellSeen struct {
	Fault, Operation, State string
	In                      []witness
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
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err = strict.Decode(&c); err == nil {
			err = c.check()
		}
		if err != nil {
			return fmt.Errorf("simulate: %s holds no figures of coverage: %w", name, err)
		}
		t.earlier += c.Runs
		for _, cell := range c.Cells {
			t.cover[coverKey{cell.Fault, cell.Operation, cell.State}] += cell.Count
		}
		for _, s := range c.Seen {
			for _, w := range s.In {
				t.saw(coverKey{s.Fault, s.Operation, s.State}, w)
			}
		}
	}
	return nil
}

// check finds what no run has counted.
func (c *counted) check() error {
	if c.Runs < 1 || len(c.Cells) == 0 {
		return errors.New("no runs")
	}
	for _, cell := range c.Cells {
		if cell.Count < 1 || cell.Fault == "" || cell.Operation == "" || cell.State == "" {
			return fmt.Errorf("no cell of the table: %+v", cell)
		}
	}
	return nil
}

// write writes the table, or its figures, to a file.
func (t *total) write(name string) error {
	if name == "" {
		return nil
	}
	if !strings.HasSuffix(name, ".json") {
		text, _ := t.table()
		return os.WriteFile(name, []byte(text), 0o600)
	}
	c := counted{Runs: t.earlier + t.runs}
	for _, k := range slices.SortedFunc(maps.Keys(t.cover), coverKey.compare) {
		c.Cells = append(c.Cells, cellCount{k.fault, k.operation, k.state, t.cover[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.seen), coverKey.compare) {
		c.Seen = append(c.Seen, cellSeen{k.fault, k.operation, k.state, t.seen[k]})
	}
	figures, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(name, figures, 0o600)
}

func (k coverKey) compare(o coverKey) int {
	return cmp.Or(strings.Compare(k.operation, o.operation), strings.Compare(k.state, o.state), strings.Compare(k.fault, o.fault))
}

// cell is a cell of the table: one class of faults in one state, or one kind of faults in any.
type cell struct {
	line  coverLine
	class string
	kinds []string // the faults of the class
	n     int
}

// anyState stands for all states together, in the lines that have the faults one by one.
const anyState = "any"

func (c *cell) name() string { return c.line.name() + ": " + c.class }

// cells are all cells that can be reached, line by line.
func (t *total) cells() (all []*cell) {
	lines, states := t.lines(), map[string][]coverLine{}
	for _, l := range lines {
		states[l.purpose] = append(states[l.purpose], l)
		kinds := faultsOf(l.purpose)
		for _, class := range classesOf(kinds) {
			c := &cell{line: l, class: class, kinds: slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return classOf(k) != class })}
			if t.counts(c, l) {
				all = append(all, c)
			}
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(states)) {
		for _, kind := range faultsOf(operation) {
			c := &cell{line: coverLine{operation, anyState}, class: kind, kinds: []string{kind}}
			if t.counts(c, states[operation]...) {
				all = append(all, c)
			}
		}
	}
	return all
}

// counts adds up what a cell has met in some lines. It tells whether the cell can be reached: some faults need an occasion.
func (t *total) counts(c *cell, lines ...coverLine) (reached bool) {
	for _, l := range lines {
		for _, k := range c.kinds {
			n := t.cover[coverKey{k, l.purpose, l.state}]
			c.n += n
			reached = reached || n > 0 || !needsOccasion(k) || t.cover[coverKey{occasion + k, l.purpose, l.state}] > 0 ||
				k == mixedReasons && refusedIn(l)
		}
	}
	return reached
}

// lines are the lines of the table, in order: those that have been met, and those that nobody has met, which are as empty as one can be.
func (t *total) lines() []coverLine {
	lines := map[coverLine]bool{}
	for _, l := range aimedLines() {
		lines[l] = true
	}
	for k := range t.cover {
		lines[coverLine{k.operation, k.state}] = true
	}
	return slices.SortedFunc(maps.Keys(lines), func(a, b coverLine) int {
		return cmp.Or(strings.Compare(a.purpose, b.purpose), strings.Compare(a.state, b.state))
	})
}

// table is which faults met which operation of the protocol in which state of its row, and which kinds of faults met which
// operation. empty are the cells of both that the runs did not reach.
func (t *total) table() (text string, empty []string) {
	var b strings.Builder
	cells, lines, last := t.cells(), 0, coverLine{}
	for _, c := range cells {
		if c.line != last {
			if last = c.line; c.line.state != anyState {
				lines++
			}
			_, _ = fmt.Fprintf(&b, "\n%-18s %-22s:", c.line.purpose, c.line.state)
		}
		if c.n == 0 {
			empty = append(empty, c.name())
		}
		_, _ = fmt.Fprintf(&b, " %s %d,", c.class, c.n)
	}
	text = fmt.Sprintf("%d runs; %d lines of operation and state, %d cells, %d of them empty\n%s\n",
		t.earlier+t.runs, lines, len(cells), len(empty), &b)
	if len(empty) > 0 {
		text += "\nempty:\n  " + strings.Join(empty, "\n  ") + "\n"
	}
	return text, empty
}

// emptyCells are those that nothing has met so far.
func (t *total) emptyCells() []*cell {
	return slices.DeleteFunc(t.cells(), func(c *cell) bool { return c.n > 0 })
}

// witness is a request at which a fault of a cell can be put; round after round another one.
func (t *total) witness(c *cell, kind string, round int) (witness, bool) {
	need := ""
	if needsOccasion(kind) {
		need = kind
	}
	states := []string{c.line.state}
	if c.line.state == anyState {
		states = states[:0]
		for _, l := range t.lines() {
			if l.purpose == c.line.purpose {
				states = append(states, l.state)
			}
		}
	}
	var all []witness
	for _, state := range states {
		all = append(all, t.seen[coverKey{need, c.line.purpose, state}]...)
	}
	if len(all) == 0 {
		return witness{}, false
	}
	return all[round%len(all)], true
}

// filling is the run that puts a fault of an empty cell where an earlier one met the line of the cell.
func (t *total) filling(c *cell, round int) (config, bool) {
	kind := c.kinds[round%len(c.kinds)]
	if slices.Contains(c.kinds, straggler) {
		kind = straggler // of those that are late, the one that always arrives
	}
	w, ok := t.witness(c, kind, round)
	return w.config(kind), ok
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
