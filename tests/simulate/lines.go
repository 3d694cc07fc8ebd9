package main

import (
	"slices"
	"strings"
)

// What aimed runs know of the protocol: which lines of the coverage table there are, and what leads to them.

// The states of a row, as far as the conditions of the protocol tell them apart.
const (
	rowAbsent     = "absent"
	rowPast       = "past its time" // ended and remembered for long enough: as good as absent
	rowPending    = "pending"
	rowOverdue    = "overdue"
	rowHeld       = "held"
	rowApplied    = "applied"
	rowReleased   = "released"
	rowUnverified = "unverified"  // failed, and nobody knows whether it happened
	rowTakenOver  = "taken over"  // pending, with a newer attempt than the request's
	rowOther      = "another row" // of the same key, after the time of the request's
)

var rowStates = []string{
	rowAbsent, rowPast, rowPending, rowOverdue, rowTakenOver, rowHeld, rowApplied, rowReleased, rowUnverified, rowOther,
}

// coverLine is a line of the coverage table.
type coverLine struct{ purpose, state string }

// leadsTo are the lines after which requests of a purpose are sent.
var leadsTo = map[string][]coverLine{
	"settle late":   {{"finalize", rowUnverified}, {"finalize", rowReleased}},
	"settle fenced": {{"finalize", rowTakenOver}},
	"settle new":    {{"finalize", rowAbsent}, {"finalize", rowPast}},
	"suspect":       {{"finalize", rowApplied}, {"finalize", rowOther}},
	"verify settle": {{"finalize", rowUnverified}, {"takeover", rowApplied}},
}

// aimedAt are the purposes that aimed runs are about, and the operations that make such requests, which begin more often then.
var aimedAt = []struct {
	purpose string
	kinds   []string
}{
	{"commit", []string{"commit"}},
	{"commit failed", []string{"commit"}},
	{"reserve", []string{"steps", "do"}},
	{"takeover", []string{"steps", "do"}},
	{"finalize", []string{"steps", "sleeper"}},
	{"release", []string{"steps", "sleeper"}},
	{"extend", []string{"steps"}},
	{"expire", []string{"sweep"}},
	{"defer", []string{"sweep", "steps"}},
	{"hold", []string{"sweep", "steps"}},
	{"sweep finalize", []string{"sweep", "steps"}},
	{"settle late", []string{"steps", "sleeper"}},
	{"settle fenced", []string{"steps", "sleeper"}},
	{"settle new", []string{"steps", "sleeper"}},
	{"suspect", []string{"steps", "sleeper"}},
	{"verify settle", []string{"steps", "do"}},
	{"resolve", []string{"resolve", "hasty person"}},
	{"resolve applied", []string{"resolve"}},
	{"erase mark", []string{"erase"}},
	{"erase row", []string{"erase"}},
	{"link", []string{"undo"}},
	{"compensated", []string{"undo"}},
	{"outside.act", []string{"do", "steps"}},
	{"outside.find", []string{"do", "sweep"}},
	{"read row", []string{"look", "resolve"}},
}

// rare are the purposes whose lines come twice.
var rare = []string{
	"commit failed", "defer", "settle late", "settle fenced", "settle new", "suspect", "verify settle", "resolve", "resolve applied", "erase mark",
	"erase row",
}

// aimedLines are the lines that runs are about, in turn.
func aimedLines() (lines []coverLine) {
	for n := range 2 {
		for _, a := range aimedAt {
			if n == 1 && !slices.Contains(rare, a.purpose) {
				continue
			}
			for _, state := range reachable(a.purpose) {
				lines = append(lines, coverLine{a.purpose, state})
			}
		}
	}
	return lines
}

// startsAt are the states in which operations that make requests of a purpose look for their row.
var startsAt = map[string][]string{
	"takeover":        {rowReleased, rowUnverified},
	"commit failed":   {rowReleased, rowUnverified},
	"verify settle":   {rowUnverified},
	"resolve":         {rowHeld, rowUnverified},
	"resolve applied": {rowHeld, rowOverdue},
}

// rarity is how often requests of a purpose are kept back.
func rarity(purpose string) float64 {
	switch purpose {
	case "read row":
		return 0.05
	case "reserve", "outside.act", "outside.find", "person looks":
		return 0.1
	case "commit":
		return 0.2
	}
	return 0.8
}

// reachable are the states in which a request of a purpose can find its row.
func reachable(purpose string) []string {
	wants := slices.Clone(rowStates)
	switch purpose {
	case "days pass", "shards split":
		return nil
	case "reserve", "commit", "settle new", "read row", "outside.act", "outside.find", "person looks":
		return without(wants, rowTakenOver, rowOther) // they name no row and no attempt
	case "link", "compensated":
		return []string{rowAbsent, rowPast, rowApplied, rowOther} // the original has been applied, which is for good
	case "takeover", "commit failed":
		return without(wants, rowPending, rowOverdue, rowHeld) // a row that is pending again has a newer attempt
	case "finalize", "release", "extend", "settle late", "settle fenced":
		return wants
	}
	return without(wants, rowTakenOver) // they name no attempt
}

func without(all []string, names ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(names, s) })
}

// aimedWeights are how often things begin in such a run, where it differs.
var aimedWeights = map[string]int{
	"steps": 20, "sleeper": 16, "look": 2, "http": 10, "sweep": 4, "set plan": 1, "grant": 1, "grant again": 1, "suspend": 1, "resolve": 8,
	"erase": 4, "expire": 0, "hibernate": 0, "deliver": 3, "poll": 1, "rival poll": 1, "hasty person": 6, "impostor": 1, "undo": 8,
}

// bias is what makes a fault likelier, or less likely, where a line needs it: how often, and which.
func bias(line coverLine, purpose, state string) (often float64, kind string, ok bool) {
	pending := state == rowPending || state == rowOverdue
	switch {
	case line.purpose == "verify settle" && purpose == "outside.act":
		return 0, "", true // the effect happens,
	case line.purpose == "verify settle" && purpose == "outside.find" && pending:
		return 0.9, liesAbsent, true // is not seen at first,
	case line.purpose == "verify settle" && purpose == "outside.find":
		return 0, "", true // and is found in the end
	case strings.HasPrefix(line.purpose, "erase") && line.state != rowApplied && purpose == "outside.act":
		return 0.6, refuses, true // rows that have failed may still change while they are erased
	}
	return 0, "", false
}
