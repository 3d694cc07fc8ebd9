package main

import (
	"testing"
	"time"
)

// minimised is a history that breaks the same promise with less.
type minimised struct {
	ops, opsBefore, faults, faultsBefore, runs int
	violation                                  *violation
	history                                    []string
}

// Bounds of minimising.
const (
	minimiseRuns = 150
	minimiseTime = 2 * time.Minute
)

// minimise leaves out operations and faults, halves first, then ever smaller parts, as long as the same promise is broken
// without them.
func (s *session) minimise(t *testing.T, cfg config, out run) *minimised {
	cfg.verbose = nil
	m := &minimised{opsBefore: out.Ops, faultsBefore: len(out.Faults), violation: out.Violation, history: out.History}
	skip := map[string]bool{}
	end := time.Now().Add(minimiseTime)
	broken := func(more []string) bool {
		if m.runs >= minimiseRuns || time.Now().After(end) {
			return false
		}
		m.runs++
		try := cfg
		try.skip = map[string]bool{}
		for name := range skip {
			try.skip[name] = true
		}
		for _, name := range more {
			try.skip[name] = true
		}
		got, err := s.simulate(t, try)
		if err != nil || got.Violation == nil || got.Violation.Invariant != out.Violation.Invariant {
			return false
		}
		m.violation, m.history = got.Violation, got.History
		return true
	}
	m.faults = len(shrink(out.Faults, skip, broken))
	var ops []string
	for id := 1; id <= out.Ops; id++ {
		ops = append(ops, opName(id))
	}
	m.ops = len(shrink(ops, skip, broken))
	return m
}

// shrink returns those names that cannot be left out, and adds the others to skip.
func shrink(names []string, skip map[string]bool, broken func([]string) bool) []string {
	for size := len(names); size > 0; size /= 2 {
		for from := 0; from < len(names); {
			to := min(from+size, len(names))
			if !broken(names[from:to]) {
				from = to
				continue
			}
			for _, name := range names[from:to] {
				skip[name] = true
			}
			names = append(names[:from:from], names[to:]...)
		}
	}
	return names
}
