package tests_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"toolledger/metrics"
)

var update = flag.Bool("update", false, "write generated parts of documents anew")

const (
	metricsBegin = "<!-- metrics:begin (go test ./tests -run TestReadmeMetrics -update) -->\n"
	metricsEnd   = "<!-- metrics:end -->"
)

// TestReadmeMetrics: the README's table of metrics is what the code emits, no more and no less.
func TestReadmeMetrics(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), metricsBegin)
	_, after, ok2 := strings.Cut(rest, metricsEnd)
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the table of metrics")
	}
	want := before + metricsBegin + metricsTable() + metricsEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatal("the table of metrics in README.md is not what package metrics defines; run this test with -update")
	}
	if err := os.WriteFile(readme, []byte(want), 0o644); err != nil { //nolint:gosec // a document that everybody reads
		t.Fatal(err)
	}
}

func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | unit | by tenant | fed by | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, d := range metrics.Definitions() {
		by, tenant := d.Event, ""
		if by == "" {
			by = d.Emitter
		}
		if len(d.Dimensions) > 0 {
			tenant = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Unit, tenant, by, d.Meaning)
	}
	return b.String()
}
