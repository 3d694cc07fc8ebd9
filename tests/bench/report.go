package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"
)

// benchmark makes the results of the given names.
type benchmark struct {
	name    string
	results []string
	run     func(context.Context, *env) ([]result, error)
}

func (b benchmark) matches(re *regexp.Regexp) bool {
	return re.MatchString(b.name) || slices.ContainsFunc(b.results, re.MatchString)
}

// result is one measured figure. Its name is what scripts look for.
type result struct {
	Name  string  `json:"-"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Floor float64 `json:"floor"` // the same figure of what is compared against
	Ratio float64 `json:"ratio"` // value / floor; where rounds alternate, the median over the rounds

	target target
	failed bool // whatever the figures say
	note   string
}

// quotient is value / floor; 0 where there is no floor, as when a round was too short for one call.
func quotient(value, floor float64) float64 {
	if floor == 0 {
		return 0
	}
	return value / floor
}

// target is what a result is held against.
type target struct {
	most   float64 // ratio at most
	least  float64 // ratio at least
	above  float64 // value above floor at most
	atMost float64 // value at most
}

func (t target) String() string {
	switch {
	case t.most != 0:
		return "<= " + number(t.most) + "x"
	case t.least != 0:
		return ">= " + number(t.least) + "x"
	case t.above != 0:
		return "<= +" + number(t.above)
	case t.atMost != 0:
		return "<= " + number(t.atMost)
	}
	return ""
}

func (r result) verdict() string {
	t := r.target
	switch {
	case t == target{} && !r.failed:
		return ""
	case r.failed, t.most != 0 && r.Ratio > t.most, t.least != 0 && r.Ratio < t.least, t.above != 0 && r.Value-r.Floor > t.above,
		t.atMost != 0 && r.Value > t.atMost:
		return "MISSED"
	}
	return "ok"
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// round keeps four digits, which is more than these figures are good for.
func round(f float64) string {
	switch {
	case f >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

func printTable(to io.Writer, results []result) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tvalue\tfloor\tratio\tunit\ttarget\t\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\t%s\t%s\t%s\t%s\n",
			r.Name, round(r.Value), round(r.Floor), r.Ratio, r.Unit, r.target, r.verdict(), r.note)
	}
	_ = w.Flush() // a table that cannot be printed has no reader
}

func writeJSON(file string, results []result) error {
	byName := make(map[string]result, len(results))
	for _, r := range results {
		byName[r.Name] = r
	}
	text, err := json.MarshalIndent(byName, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
