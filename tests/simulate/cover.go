package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What a run covers is counted when it happens: a request that was delayed counts when it arrives, by the state that it meets then, and
// one whose caller had gone by then not at all; a reason beside a cancellation counts only where there was a cancellation, and a lie where
// it was one.

// coverKey is one cell of the coverage table.
type coverKey struct{ fault, operation, state string }

// witness is a request of a run where a fault can be put: runs with the same seed are the same up to there.
type witness struct {
	Seed         uint64
	Steps        int
	Profile, Aim string
	Put          string // the faults that were put into it
	At           string
}

// config is the run once more, with a fault at that request.
func (s witness) config(kind string) config {
	put, _ := parsePuts(s.Put) // it was written by puts.String
	purpose, state, _ := strings.Cut(s.Aim, ", ")
	at := slices.IndexFunc(profiles, func(p profile) bool { return p.name == s.Profile })
	return config{
		seed: s.Seed, steps: s.Steps, profile: profiles[max(at, 0)], aim: coverLine{purpose, state}, put: put.with(s.At, kind),
	}
}

// linesOf are the lines of the coverage table that a request is about to meet.
func (w *world) linesOf(e *entry) []coverLine {
	lines := []coverLine{{e.purpose, w.stateFor(e)}}
	if u := e.undoes; u.purpose != "" {
		lines = append(lines, coverLine{u.purpose, w.stateOfPart(u, 0)})
	}
	return lines
}

// happens counts a fault, or none, that a request meets now.
func (w *world) happens(e *entry, kind string) {
	lines := w.linesOf(e)
	if e.target == "outside.find" {
		lie := liesApplied
		if len(w.out.byRef[e.lookup]) > 0 {
			lie = liesAbsent
		}
		w.couldMeet(e, lines, lie)
		if kind != lie && (kind == liesApplied || kind == liesAbsent) {
			kind = pass // it is the truth
		}
	}
	w.covered(e, lines, kind)
}

func (w *world) covered(e *entry, lines []coverLine, kind string) {
	if kind == arrives {
		kind = delayed
	}
	w.count("fault", kind)
	if w.calm { // no faults are possible
		return
	}
	for _, l := range lines {
		w.cover[coverKey{kind, l.purpose, l.state}]++
		w.saw(e, coverKey{"", l.purpose, l.state})
	}
}

// couldMeet notes that one of the faults which need an occasion could have met a request.
func (w *world) couldMeet(e *entry, lines []coverLine, kind string) {
	if w.calm || e.late { // which is its fault; it meets no other one
		return
	}
	for _, l := range lines {
		w.cover[coverKey{occasion + kind, l.purpose, l.state}]++
		w.saw(e, coverKey{kind, l.purpose, l.state})
	}
}

// occasion is before the name of a fault where it could have been.
const occasion = "occasion: "

// needsOccasion are the faults that cannot be put anywhere.
func needsOccasion(kind string) bool {
	return kind == mixedReasons || kind == liesAbsent || kind == liesApplied
}

// saw remembers where a fault can be put in a run like this one, to fill a cell: at the first request that met the line, but for those whose
// process is not to be killed, and those that arrived late.
func (w *world) saw(e *entry, k coverKey) {
	if _, known := w.seen[k]; !known && !e.op.kind.immortal && !e.late && !w.isParallel() {
		w.seen[k] = faultName(e)
	}
}

// puts are faults that are put where no chance decides, by the requests' names as the minimiser has them.
type puts map[string]string

// with is these and one more.
func (p puts) with(at, kind string) puts {
	out := maps.Clone(p)
	if out == nil {
		out = puts{}
	}
	out[at] = kind
	return out
}

// String is what parsePuts reads.
func (p puts) String() string {
	var all []string
	for _, at := range slices.Sorted(maps.Keys(p)) {
		all = append(all, strings.TrimPrefix(at, "fault ")+" "+p[at])
	}
	return strings.Join(all, ", ")
}

// parsePuts reads faults as in "12/3 answer lost, 14/1 delayed": of operation 12, request 3.
func parsePuts(text string) (puts, error) {
	var out puts
	for one := range strings.SplitSeq(text, ", ") {
		if one == "" {
			continue
		}
		at, kind, ok := strings.Cut(one, " ")
		if !ok || !request.MatchString(at) {
			return nil, fmt.Errorf(`simulate: --put wants an operation, a request of it and a fault, as in "12/3 answer lost", not %q`, one)
		}
		if !slices.ContainsFunc(faulted, func(target string) bool {
			return slices.ContainsFunc(faultsFor(target), func(f weighted) bool { return f.kind == kind })
		}) {
			return nil, fmt.Errorf("simulate: --put knows no fault %q", kind)
		}
		out = out.with("fault "+at, kind)
	}
	return out, nil
}

// request names one: its operation and its place among the requests of that.
var request = regexp.MustCompile(`^[1-9]\d*/[1-9]\d*$`)

// faulted are requests of all the kinds that have faults of their own.
var faulted = []string{"TransactWriteItems", "TransactGetItems", "UpdateItem", "outside.act", "outside.find", "PutEvents", "PutMetricData", "GetRecords"}
