package main

import (
	"fmt"
	"testing"
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

func (t *total) table() string { return "" }

type minimised struct {
	ops, opsBefore, faults, faultsBefore, runs int
	history                                    []string
}

func (s *session) minimise(t *testing.T, cfg config, out run) *minimised { return nil }
