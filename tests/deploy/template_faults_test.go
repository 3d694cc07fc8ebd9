package deploy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTemplateFaults takes one thing after another out of the template and wants each noticed, by the rung that is named for
// it: a ladder that lets a fault through is found here and not by an operations team. A linter takes seconds for each, so that
// without TOOLLEDGER_MUTANTS=1 only every sixth fault that is a linter's is looked at; with it every fault climbs the whole
// ladder, and the rung that is named must be the first that notices.
func TestTemplateFaults(t *testing.T) {
	t.Parallel()
	whole := os.Getenv("TOOLLEDGER_MUTANTS") != ""
	all := mutants()
	rows := make([]string, len(all))
	t.Cleanup(func() { table(t, all, rows) })
	linted := 0
	for i, m := range all {
		if m.rung < 3 {
			linted++
			if !whole && linted%6 != 1 {
				continue
			}
		}
		t.Run(fmt.Sprintf("%d %s", i+1, m.fault), func(t *testing.T) {
			t.Parallel()
			mutated := parsed(t)
			if err := m.edit(mutated); err != nil {
				t.Fatalf("the fault does not fit the template: %v", err)
			}
			first := m.rung
			if whole {
				first = 1
			}
			for rung := first; rung <= 3; rung++ {
				found := climb(t, rung, mutated)
				if len(found) == 0 {
					if !whole {
						break
					}
					continue
				}
				rows[i] = fmt.Sprintf("%-55s rung %d  %s", m.fault, rung, short(found[0].String()))
				if rung != m.rung {
					t.Errorf("caught by rung %d, not %d: %s", rung, m.rung, found[0])
				}
				return
			}
			rows[i] = fmt.Sprintf("%-55s NOT CAUGHT", m.fault)
			t.Errorf("rung %d does not notice it", m.rung)
		})
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
