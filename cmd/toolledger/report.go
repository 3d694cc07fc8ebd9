package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"toolledger/internal/audit"
)

// report is what demo and replay found. The counts are outcomes of the recorded or intended calls, one each, however often
// each was tried; events and metrics count everything that happened.
type report struct {
	Command string `json:"command"`
	OK      bool   `json:"ok"` // all checks hold
	Seed    uint64 `json:"seed"`
	Table   string `json:"table"`
	Where   string `json:"where"`

	Calls         int   `json:"calls"`
	Mutating      int   `json:"mutating"`
	Applied       int   `json:"applied"`
	Replayed      int   `json:"replayed"`      // the key was applied by an earlier call
	KeyConflicts  int   `json:"key_conflicts"` // the key belongs to another action
	Released      int   `json:"released"`      // the tool refused: surely no effect
	Refunded      int64 `json:"refunded"`      // tokens of the released calls
	QuotaDenied   int   `json:"quota_denied"`
	Unsettled     int   `json:"unsettled"` // calls that came to none of these: must be 0
	Effects       int   `json:"effects"`   // that the outside world counted
	DoubleEffects int   `json:"double_effects"`
	WrongReplays  int   `json:"wrong_replays"` // answers that differ from what the effect answered

	Attempts int `json:"attempts"` // how often calls were made, retries and concurrent callers included
	Crashes  int `json:"crashes"`  // workers that died
	Dropped  int `json:"dropped"`  // effects whose answer was lost on the way
	Sweeps   int `json:"sweeps"`
	Pending  int `json:"pending"` // rows after the last sweep

	Books   audit.Books      `json:"books"`
	Tokens  audit.Tokens     `json:"tokens"`
	Events  map[string]int   `json:"events"`  // by type, each id once
	Metrics map[string]int64 `json:"metrics"` // sums
	Checks  []check          `json:"checks"`
	Seconds float64          `json:"seconds"`
}

// check is one promise and whether it held.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // the figures; where it did not hold, what is wrong
}

func (r *report) check(name string, ok bool, format string, args ...any) {
	r.Checks = append(r.Checks, check{name, ok, fmt.Sprintf(format, args...)})
}

// finish draws the conclusion.
func (r *report) finish(took time.Duration) {
	r.Seconds = float64(took.Milliseconds()) / 1000
	r.OK = !slices.ContainsFunc(r.Checks, func(c check) bool { return !c.OK })
}

// failed names the checks that did not hold.
func (r *report) failed() string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

// printReport shows the report as JSON or to a person, and returns the error that ends the program where a promise is
// broken.
func (a *app) printReport(r *report, story string) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.print("%s\n%s\n", story, r.table())
		for _, c := range r.Checks {
			a.print("%s %-24s %s\n", mark(c.OK), c.Name, c.Detail)
		}
	}
	if !r.OK {
		return broken("a promise is broken: %s", r.failed())
	}
	return nil
}

// table puts the outcomes beside what was written down about them.
func (r *report) table() string {
	t := newTable()
	t.AppendHeader(table.Row{"what became of the calls", "", "what the stream told", ""})
	left := [][2]string{
		{"calls", strconv.Itoa(r.Calls)},
		{"  of these mutating", strconv.Itoa(r.Mutating)},
		{"applied", strconv.Itoa(r.Applied)},
		{"replayed", strconv.Itoa(r.Replayed)},
		{"refused by the tool, released", strconv.Itoa(r.Released)},
		{"  tokens given back", strconv.FormatInt(r.Refunded, 10)},
		{"denied by quota", strconv.Itoa(r.QuotaDenied)},
		{"key conflicts", strconv.Itoa(r.KeyConflicts)},
		{"attempts made for them", strconv.Itoa(r.Attempts)},
		{"workers that died", strconv.Itoa(r.Crashes)},
		{"answers that were lost", strconv.Itoa(r.Dropped)},
		{"effects outside", strconv.Itoa(r.Effects)},
	}
	var right [][2]string
	for _, name := range slices.Sorted(maps.Keys(r.Events)) {
		right = append(right, [2]string{name, strconv.Itoa(r.Events[name])})
	}
	for i := range max(len(left), len(right)) {
		row := table.Row{"", "", "", ""}
		if i < len(left) {
			row[0], row[1] = left[i][0], left[i][1]
		}
		if i < len(right) {
			row[2], row[3] = right[i][0], right[i][1]
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// newTable returns a table in the one style of this program; numbers and text as they are.
func newTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = 0 // as written
	return t
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// printable makes a string of unknown origin harmless for a terminal.
func printable(s string) string {
	quoted := strconv.Quote(s)
	if quoted == `"`+s+`"` {
		return s
	}
	return quoted
}
