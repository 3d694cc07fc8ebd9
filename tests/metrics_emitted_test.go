package tests_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"toolledger/metrics"
)

// TestEveryMetricIsEmitted: what is defined – and so may stand in a widget or an alarm – is emitted by whoever the definition
// says. Each metric's constant bears its name.
func TestEveryMetricIsEmitted(t *testing.T) {
	used := emittedNames(moduleSources(t))
	where := map[string][]string{ // of each emitter
		"consumer": {"streams"}, "publisher": {"streams"}, "poller": {"streams"}, "sink": {"metrics"}, "sweeper": {"sweeper"},
	}
	for _, d := range metrics.Definitions() {
		dirs, ok := where[d.Emitter]
		if !ok {
			t.Errorf("%s has the emitter %q", d.Name, d.Emitter)
		}
		if !slices.ContainsFunc(dirs, func(dir string) bool { return used[dir][d.Name] }) {
			t.Errorf("%s is defined, and nothing in %v emits it", d.Name, dirs)
		}
	}
}

// emittedNames are the constants of package metrics that each package uses, by its first folder; in package metrics itself those
// that stand in a Datum.
func emittedNames(all []source) map[string]map[string]bool {
	used := map[string]map[string]bool{}
	for _, s := range all {
		if s.test() {
			continue
		}
		dir, _, _ := strings.Cut(s.pkg(), "/")
		if used[dir] == nil {
			used[dir] = map[string]bool{}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "metrics" {
					used[dir][n.Sel.Name] = true
				}
			case *ast.KeyValueExpr:
				key, isKey := n.Key.(*ast.Ident)
				if value, ok := n.Value.(*ast.Ident); ok && isKey && key.Name == "Name" && dir == "metrics" {
					used[dir][value.Name] = true
				}
			}
			return true
		})
	}
	return used
}
