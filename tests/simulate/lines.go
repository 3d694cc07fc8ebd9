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

// name is a line's name at the command line.
func (l coverLine) name() string {
	if l == (coverLine{}) {
		return ""
	}
	return l.purpose + ", " + l.state
}

// leadsTo are the lines after which requests of a purpose are sent.
var leadsTo = map[string][]coverLine{
	"settle late":   {{"finalize", rowUnverified}, {"finalize", rowReleased}},
	"settle fenced": {{"finalize", rowTakenOver}},
	"settle new":    {{"finalize", rowAbsent}, {"finalize", rowPast}},
	"suspect":       {{"finalize", rowApplied}, {"finalize", rowOther}},
	"verify settle": {{"finalize", rowUnverified}},
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
	case "outside.act": // it begins before its deadline, and a row neither leaves nor is held before that
		return []string{rowPending, rowOverdue, rowTakenOver, rowApplied, rowReleased}
	case "reserve", "commit", "settle new", "read row", "person looks":
		return without(wants, rowTakenOver, rowOther) // they name no row and no attempt
	case "link", "compensated":
		return []string{rowAbsent, rowPast, rowApplied, rowOther} // the original has been applied, which is for good
	case "takeover", "commit failed", "settle late":
		return without(wants, rowPending, rowOverdue, rowHeld) // a row that is pending again has a newer attempt
	case "finalize", "release", "extend", "settle fenced", "outside.find":
		return wants
	}
	return without(wants, rowTakenOver) // they name no attempt
}

// acts are the states of a row in which the condition of a transaction on it holds, if the version or the attempt that it names does. Transactions
// that often name no other item are left out: there is nothing beside a refusal then.
var acts = map[string][]string{
	"commit":        {rowAbsent, rowPast},
	"reserve":       {rowAbsent, rowPast},
	"settle new":    {rowAbsent, rowPast},
	"takeover":      {rowReleased, rowUnverified},
	"commit failed": {rowReleased, rowUnverified},
	"finalize":      {rowPending, rowOverdue, rowHeld},
	"release":       {rowPending, rowOverdue, rowHeld},
	"expire":        {rowPending, rowOverdue, rowHeld},
	"settle late":   {rowReleased, rowUnverified},
	"verify settle": {rowReleased, rowUnverified},
	"link":          {rowApplied},
	"compensated":   {rowApplied},
}

// refusedIn tells whether a transaction is surely cancelled by its condition in a state: then another item may say that it met a
// transaction, too.
func refusedIn(l coverLine) bool {
	states, known := acts[l.purpose]
	return known && slices.Contains(rowStates, l.state) && !slices.Contains(states, l.state)
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
func (w *world) bias(e *entry) (often float64, kind string, ok bool) {
	line, act, find := w.aim(), e.purpose == "outside.act", e.purpose == "outside.find"
	state := w.oracle.stateOf(e.row)
	pending := state == rowPending || state == rowOverdue
	kept := slices.ContainsFunc(w.kept, func(f *focus) bool { return f.e.purpose == line.purpose })
	switch settles := line.purpose == "verify settle" || line.purpose == "settle fenced"; {
	case find && e.op.moves && e.op.kind.name == "sweep" && line.state == rowHeld && (kept || !settles):
		return 0.95, verifyUnknown, true // nobody can tell, so that it is held
	case find && e.op.kind.name == "reserve only":
		return 0.95, liesAbsent, true // it is to begin anew
	case settles && act:
		return 0, "", true // the effect happens,
	case settles && find && (pending || kept && e.op.moves):
		return 0.95, liesAbsent, true // is not seen at first, nor by whoever acts anew meanwhile,
	case settles && find:
		return 0, "", true // and is found in the end
	case line.purpose == "defer" && find && !e.op.moves:
		return 0.7, verifyUnknown, true // so that it is asked again later
	case strings.HasPrefix(line.purpose, "erase") && line.state != rowApplied && act:
		return 0.6, refuses, true // rows that have failed may still change while they are erased
	}
	return 0, "", false
}

// favours tells whether a run is rather about actions of a kind: those that can become what it is about.
func (l coverLine) favours(s *service) bool {
	switch {
	case l.purpose == "verify settle", l.purpose == "settle fenced", l.purpose == "defer", l.purpose == "sweep finalize", l.purpose == "outside.find":
		return s.verifies
	case l.state == rowHeld, l.purpose == "hold":
		return !s.idempotent && !s.verifies && !s.commit
	case strings.HasPrefix(l.purpose, "commit"):
		return true
	}
	return !s.commit
}
