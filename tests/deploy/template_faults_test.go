package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTemplateFaults takes one thing after another out of the template and wants each noticed, by the rung that is named for
// it: a ladder that lets a fault through is found here and not by an operations team. A linter takes seconds for each, so that
// without TOOLLEDGER_MUTANTS=1 only every sixth of the faults that are a linter's is looked at.
func TestTemplateFaults(t *testing.T) {
	t.Parallel()
	all := mutants()
	rows := make([]string, len(all))
	t.Cleanup(func() { table(t, all, rows) })
	linted := 0
	for i, m := range all {
		if m.rung < 3 {
			linted++
			if !whole() && linted%6 != 1 {
				continue
			}
		}
		t.Run(fmt.Sprintf("%d %s", i+1, m.fault), func(t *testing.T) {
			t.Parallel()
			mutated := parsed(t)
			if err := m.edit(mutated); err != nil {
				t.Fatalf("the fault does not fit the template: %v", err)
			}
			rows[i] = fmt.Sprintf("%-55s NOT CAUGHT", m.fault)
			if found := climb(t, m.rung, mutated); len(found) > 0 {
				rows[i] = fmt.Sprintf("%-55s rung %d  %s", m.fault, m.rung, short(found[0].String()))
				return
			}
			t.Errorf("rung %d does not notice it", m.rung)
		})
	}
}

func whole() bool { return os.Getenv("TOOLLEDGER_MUTANTS") != "" }

// TestTemplateFaultsPassLinters: the rung that is named for a fault is the first that notices it, so that no rung is there for
// nothing. Many faults at once that a linter does not notice are as many that it does not notice alone.
func TestTemplateFaultsPassLinters(t *testing.T) {
	t.Parallel()
	if !whole() {
		t.Skip("slow: TOOLLEDGER_MUTANTS=1 runs it")
	}
	for rung := 1; rung <= 2; rung++ {
		later := slices.DeleteFunc(mutants(), func(m mutant) bool { return m.rung <= rung })
		for chunk := range slices.Chunk(later, 24) {
			t.Run(fmt.Sprintf("rung %d %s", rung, chunk[0].fault), func(t *testing.T) {
				t.Parallel()
				passes(t, rung, chunk)
			})
		}
	}
}

// passes finds the faults of a group that a rung notices, by halving.
func passes(t *testing.T, rung int, group []mutant) {
	t.Helper()
	mutated := parsed(t)
	var left []mutant // those that do not go together with others
	for _, m := range group {
		before := text(t, mutated)
		if err := m.edit(mutated); err != nil {
			left = append(left, m)
			mutated = object{}
			if err := json.Unmarshal([]byte(before), &mutated); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(left) == len(group) {
		t.Fatalf("%s: the fault does not fit the template", group[0].fault)
	}
	if found := climb(t, rung, mutated); len(found) > 0 {
		if len(group) == 1 {
			t.Errorf("%s: rung %d notices it already: %v", group[0].fault, rung, found[0])
			return
		}
		passes(t, rung, group[:len(group)/2])
		passes(t, rung, group[len(group)/2:])
		return
	}
	if len(left) > 0 {
		passes(t, rung, left)
	}
}

// table prints what became of each fault.
func table(t *testing.T, all []mutant, rows []string) {
	t.Helper()
	count := map[int]int{}
	for _, m := range all {
		count[m.rung]++
	}
	rows = slices.DeleteFunc(rows, func(r string) bool { return r == "" })
	t.Logf("%d faults: rung 1 catches %d, rung 2 %d, rung 3 %d; seen now:\n%s", len(all), count[1], count[2], count[3], strings.Join(rows, "\n"))
}

func short(s string) string {
	if len(s) > 110 {
		return s[:110] + "…"
	}
	return s
}

// faultVariants are the stacks that mutants are judged in: together they have every resource and every stage that differs.
func faultVariants() []variant {
	var chosen []variant
	for _, v := range variants() {
		if slices.Contains([]string{"prod/arm64/open", "dev/x86_64/closed", "prod/arm64/iam"}, v.name) {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// climb is what one rung of the ladder finds in a template. TestTemplateLint, -Transforms and -Rules hold that it is nothing in
// the template as it is.
func climb(t *testing.T, rung int, template object) []finding {
	t.Helper()
	switch rung {
	case 1:
		return ask(t, question{Op: "lint", Template: text(t, template)}).Findings
	case 2:
		return transformFindings(t, template, faultVariants()[0], true)
	}
	for _, v := range faultVariants() {
		out, findings := transform(t, template, v.params)
		if len(findings) == 0 {
			findings = judge(look(t, v, template, out))
		}
		if len(findings) > 0 {
			return findings
		}
	}
	return nil
}
