package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolledger/internal/stack"
)

// Promise: a cell that one run has left empty is filled by that run again, with its fault put at the request that met the line; and what
// files keep of runs is enough for that.
func TestFillsCellsThatRunsHaveMet(t *testing.T) {
	s := newSession(8)
	defer s.close()
	first := newTotal()
	cfg := config{seed: 3, steps: 120, profile: profiles[storm]}
	out, err := s.simulate(t, cfg)
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	first.add(out)
	file := filepath.Join(t.TempDir(), "first.json")
	if err := first.write(file); err != nil {
		t.Fatal(err)
	}
	sum := newTotal()
	if err := sum.read(file); err != nil {
		t.Fatal(err)
	}
	empty, tried := sum.emptyCells(), 0
	if before := len(first.emptyCells()); len(empty) != before {
		t.Fatalf("%d cells are empty, %d by what was written", before, len(empty))
	}
	for _, c := range empty {
		if _, met := sum.filling(c, 0); !met || c.line.state == anyState || tried == 6 {
			continue
		}
		tried++
		for round := 0; round < 3 && isEmpty(sum, c); round++ { // a request that is late at the end of a run arrives after it
			cfg, _ := sum.filling(c, round)
			out, err := s.simulate(t, cfg)
			if err != nil || out.Violation != nil {
				t.Fatalf("%s: %v %v", c.name(), err, out.Violation)
			}
			sum.add(out)
		}
		if isEmpty(sum, c) {
			t.Errorf("%s is empty still", c.name())
		}
	}
	if tried == 0 {
		t.Error("no empty cell's line had been met: the test tries nothing")
	}
}

func isEmpty(t *total, c *cell) bool {
	return slices.ContainsFunc(t.emptyCells(), func(o *cell) bool { return o.name() == c.name() })
}

// Promise: faults that are put by hand read as they are printed, and what is none is refused with its name.
func TestPuts(t *testing.T) {
	const text = "12/3 answer lost, 7/1 process killed before"
	p, err := parsePuts(text)
	if err != nil || len(p) != 2 || p["fault 12/3"] != lostAnswer || p.String() != text {
		t.Errorf("%v %v", p, err)
	}
	for _, bad := range []string{"12 answer lost", "12/3", "12/3 nonsense", "x/y delayed", "12/3 delayed; 1/1 hangs"} {
		if _, err := parsePuts(bad); err == nil || !strings.Contains(err.Error(), "--put") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Promise: every line that runs can be aimed at is one of a known state, and a state that a condition is named for is reachable.
func TestLinesAreOfKnownStates(t *testing.T) {
	states := map[string]bool{}
	for _, s := range rowStates {
		states[s] = true
	}
	lines := map[coverLine]bool{}
	for _, l := range aimedLines() {
		lines[l] = true
		if !states[l.state] {
			t.Errorf("%s: no such state", l.name())
		}
	}
	for purpose, in := range acts {
		for _, state := range in {
			if l := (coverLine{purpose, state}); !lines[l] {
				t.Errorf("%s is no line, and its condition holds there", l.name())
			}
		}
	}
}
