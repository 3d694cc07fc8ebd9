package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutant is the source without one rule.
type mutant struct {
	rule  string // what is missing
	test  string // the test that notices
	edits []edit
	files map[string]string // files of the mutant's own, by path in the module
}

// edit replaces one piece of text, which must occur exactly once.
type edit struct{ file, old, new string }

// testFiles hold the tests of the rules and what they need: compiled alone, a mutant does not wait for the rest.
var testFiles = []string{"tests/ledger_helpers_test.go", "tests/writers_rules_test.go", "tests/writers_rules_quota_test.go"}

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("no source file")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// apply returns the mutant's files by path in the module.
func (m mutant) apply(dir string) (map[string]string, error) {
	files := map[string]string{}
	for path, text := range m.files {
		files[path] = text
	}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(dir, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d places like %q, want 1", e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// TestMutantsFit: each mutant applies to the source as it is, its test exists, and the list of rules beside the tests names
// that test.
func TestMutantsFit(t *testing.T) {
	t.Parallel()
	dir := root(t)
	var tests strings.Builder
	for _, f := range testFiles {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	var list strings.Builder // the list of rules at the head of the tests
	for line := range strings.Lines(tests.String()) {
		if strings.HasPrefix(line, "//\t") {
			list.WriteString(line)
		}
	}
	for _, m := range mutants {
		if _, err := m.apply(dir); err != nil {
			t.Errorf("%s: %v", m.rule, err)
		}
		if !strings.Contains(tests.String(), "func "+m.test+"(t *testing.T)") {
			t.Errorf("%s: there is no %s", m.rule, m.test)
		}
		if !strings.Contains(list.String(), m.test) {
			t.Errorf("%s: the list of rules does not name %s", m.rule, m.test)
		}
	}
	for line := range strings.Lines(tests.String()) {
		name, ok := strings.CutPrefix(line, "func ")
		name, _, _ = strings.Cut(name, "(")
		if ok && strings.HasPrefix(name, "TestRule") && !slices.ContainsFunc(mutants, func(m mutant) bool { return m.test == name }) {
			t.Errorf("no mutant shows that %s can fail", name)
		}
	}
}

// TestMutantsAreNoticed: without the rule, its test fails.
func TestMutantsAreNoticed(t *testing.T) {
	if os.Getenv("TOOLLEDGER_MUTANTS") == "" {
		t.Skip("set TOOLLEDGER_MUTANTS=1 to run the mutants")
	}
	dir := root(t)
	if out, err := run(t.Context(), dir, "", "^TestRule"); err != nil {
		t.Fatalf("the tests fail without any mutant: %v\n%s", err, out)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.rule, " ", "_"), func(t *testing.T) {
			out, err := run(t.Context(), dir, overlay(t, dir, m), "^"+m.test+"$")
			switch {
			case err == nil:
				t.Errorf("%s did not notice", m.test)
			case !strings.Contains(out, "--- FAIL: "+m.test):
				t.Errorf("%s did not run: %v\n%s", m.test, err, out)
			default:
				t.Log(firstFailure(out))
			}
		})
	}
}

// overlay writes the mutant's files and the overlay that puts them in place.
func overlay(t *testing.T, dir string, m mutant) string {
	t.Helper()
	files, err := m.apply(dir)
	if err != nil {
		t.Fatal(err)
	}
	tmp, replace := t.TempDir(), map[string]string{}
	for path, text := range files {
		place := filepath.Join(tmp, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(place, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, path)] = place
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(place, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return place
}

// run runs the tests that match under an overlay; "" is none.
func run(ctx context.Context, dir, overlay, match string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	args := []string{"test", "-count=1", "-timeout=60s", "-run", match}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	for _, f := range testFiles {
		args = append(args, "./"+f)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// firstFailure is the line that says what went wrong.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") {
			return strings.TrimSpace(line)
		}
	}
	return "failed"
}
