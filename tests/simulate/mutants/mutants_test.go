package mutants

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"toolledger/internal/stack"
)

var update = flag.Bool("update", false, "write README.md from what the runs of all mutants found")

const (
	least = 40               // mutants that there must be
	steps = 200              // of a run
	seeds = 100              // of storm and of chaos, in which a mutant must be found: half a minute each where nobody else works
	aimed = 350              // of aimed worlds, which are about one line of the table in turn: five minutes
	most  = 20 * time.Minute // for them, where others work
)

// sample are the mutants that every test run builds and finds: of writers, streams, sweeper and metrics one each, and one that
// aimed worlds alone find.
var sample = []string{"refund-to-shard-zero", "key-conflict-not-compared", "sweeper-leaves-no-mark", "last-page-dropped", "held-row-extended"}

// mutant is the source without one rule.
type mutant struct {
	name   string
	path   string
	rule   string // what is missing
	breaks string // what should notice
	files  []string
}

// finding is the violation by which a mutant was noticed.
type finding struct {
	seed      uint64
	profile   string
	step      int
	invariant string
	detail    string
	took      time.Duration
}

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("no source file")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// load reads the patches in the order of their numbers.
func load(t *testing.T) []mutant {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), "tests", "simulate", "mutants", "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	number := func(path string) int {
		n, _, _ := strings.Cut(filepath.Base(path), "-")
		i, _ := strconv.Atoi(n) // a patch without a number comes first
		return i
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(number(a)-number(b), strings.Compare(a, b)) })
	all := make([]mutant, 0, len(paths))
	for _, path := range paths {
		m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), path: path}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if rest, ok := strings.CutPrefix(line, "Rule: "); ok {
				m.rule = rest
			} else if rest, ok := strings.CutPrefix(line, "Breaks: "); ok {
				m.breaks = rest
			} else if rest, ok := strings.CutPrefix(line, "+++ b/"); ok {
				m.files = append(m.files, rest)
			}
		}
		all = append(all, m)
	}
	return all
}

// overlay applies the patch to copies of its files, and returns the overlay that puts them in place.
func (m *mutant) overlay(t *testing.T) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	for _, f := range m.files {
		source, copied := filepath.Join(root(t), f), filepath.Join(dir, f)
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(copied), 0o700), os.WriteFile(copied, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		replace[source] = copied
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", m.path)
	apply.Dir = dir
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // the copies belong to no repository
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%s does not apply: %v\n%s", m.name, err, out)
	}
	for source, copied := range replace {
		before, err := os.ReadFile(source)
		after, err2 := os.ReadFile(copied)
		if err := errors.Join(err, err2); err != nil || bytes.Equal(before, after) {
			t.Fatalf("%s does not change %s (%v)", m.name, source, err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	place := filepath.Join(dir, "overlay.json")
	if err := errors.Join(err, os.WriteFile(place, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return place
}

// build builds the simulation with the mutant in it.
func (m *mutant) build(t *testing.T) string {
	t.Helper()
	return build(t, m.name, "-overlay", m.overlay(t))
}

// build builds the simulation.
func build(t *testing.T, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "simulate")
	arguments := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", program}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(arguments, "./tests/simulate")...)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not build: %v\n%s", name, err, out)
	}
	return program
}

// innocent holds that the source as it is breaks no promise in the world in which a mutant was found.
func innocent(t *testing.T, program string, f finding) {
	t.Helper()
	control := mutant{name: "the source as it is"}
	if other, broken := control.run(t, program, f.seed, 1, f.profile); broken {
		t.Errorf("seed %d, %s: without the fault, too: %s: %s", f.seed, f.profile, other.invariant, other.detail)
	}
}

// find runs worlds until one notices: the recorded one first, then seed after seed.
func (m *mutant) find(t *testing.T, recorded finding) (finding, bool) {
	t.Helper()
	program := m.build(t)
	begin := time.Now()
	if recorded.seed != 0 {
		if f, ok := m.run(t, program, recorded.seed, 1, recorded.profile); ok {
			f.took = time.Since(begin)
			return f, true
		}
	}
	for _, profile := range slices.Compact([]string{cmp.Or(recorded.profile, "storm"), "storm", "chaos", "aimed"}) {
		if f, ok := m.run(t, program, 1, worlds(profile), profile); ok {
			f.took = time.Since(begin)
			return f, true
		}
	}
	return finding{}, false
}

func worlds(profile string) uint64 {
	if profile == "aimed" {
		return aimed
	}
	return seeds
}

// run runs seeds of one profile until a violation.
func (m *mutant) run(t *testing.T, program string, seed, seeds uint64, profile string) (finding, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--json", "--until-violation", "--minimise=false", "--steps", strconv.Itoa(steps),
		"--seed", strconv.FormatUint(seed, 10), "--seeds", strconv.FormatUint(seeds, 10), "--profile", profile)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = root(t), &out, os.Stderr, 5*time.Second
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // what a program that is killed leaves behind goes with the test
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if f, ok := violation(out.Bytes()); ok {
		return f, code == 1
	}
	if code > 1 {
		t.Fatalf("%s: the simulation could not go on: %v", m.name, err)
	}
	return finding{}, false
}

// violation reads what the program printed.
func violation(out []byte) (finding, bool) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var run struct {
			Seed      uint64
			Profile   string
			Violation *struct {
				Step              int
				Invariant, Detail string
			}
		}
		if json.Unmarshal(lines.Bytes(), &run) == nil && run.Violation != nil {
			v := run.Violation
			return finding{seed: run.Seed, profile: run.Profile, step: v.Step, invariant: v.Invariant, detail: v.Detail}, true
		}
	}
	return finding{}, false
}

var row = regexp.MustCompile(`(?m)^\| (\S+) \| [^|]* \| (\d+) \| (\w+) \| \d+ \| [^|]* \|$`)

// recorded is which seed found which mutant, as README.md has it.
func recorded(t *testing.T) map[string]finding {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "tests", "simulate", "mutants", "README.md"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	all := map[string]finding{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		seed, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = finding{seed: seed, profile: m[3]}
	}
	return all
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git, which applies the patches, is not installed")
	}
}

func needStore(t *testing.T) {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	srv.Stop()
}

// Promise: there are enough mutants, each says what it is, changes the product and nothing else, applies to the source as it is,
// and was found by a seed that is written down.
func TestMutantsApply(t *testing.T) {
	needGit(t)
	all, found := load(t), recorded(t)
	if len(all) < least {
		t.Errorf("%d mutants, want %d", len(all), least)
	}
	for _, m := range all {
		if m.rule == "" || m.breaks == "" || len(m.files) == 0 {
			t.Errorf("%s says neither its rule nor what breaks, or changes nothing", m.name)
		}
		for _, f := range m.files {
			if strings.HasPrefix(f, "tests/") || strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s changes %s: that is no fault of the product", m.name, f)
			}
		}
		m.overlay(t)
		if found[m.name].seed == 0 {
			t.Errorf("README.md does not say which seed found %s", m.name)
		}
	}
	for name := range found {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			t.Errorf("README.md tells of %s, which is not there", name)
		}
	}
}

// Promise: the simulation finds some of the mutants, each by breaking a promise that the source as it is keeps in the same world.
func TestMutantsSample(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulation anew")
	}
	needGit(t)
	needStore(t)
	found, control := recorded(t), build(t, "the source as it is")
	for _, m := range load(t) {
		if _, name, _ := strings.Cut(m.name, "-"); !slices.Contains(sample, name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			f, ok := m.find(t, found[m.name])
			if !ok {
				t.Fatalf("not found: %s", m.rule)
			}
			innocent(t, control, f)
			t.Logf("seed %d, %s, step %d: %s: %s", f.seed, f.profile, f.step, f.invariant, f.detail)
		})
	}
}

// Promise: the simulation finds every mutant in the time that it has, by breaking a promise that the source as it is keeps.
func TestSimulationMutants(t *testing.T) {
	if os.Getenv("TOOLLEDGER_MUTANTS") == "" && os.Getenv("TOOLLEDGER_SOAK") == "" {
		t.Skip("set TOOLLEDGER_MUTANTS=1 to run all mutants")
	}
	needGit(t)
	needStore(t)
	all, known, control := load(t), recorded(t), build(t, "the source as it is")
	var mu sync.Mutex
	found := map[string]finding{}
	t.Run("mutant", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				f, ok := m.find(t, known[m.name])
				if !ok {
					t.Fatalf("not found in %d worlds: %s", 2*seeds+aimed, m.rule)
				}
				innocent(t, control, f)
				t.Logf("%s: seed %d, %s, step %d: %s: %s",
					f.took.Round(100*time.Millisecond), f.seed, f.profile, f.step, f.invariant, f.detail)
				mu.Lock()
				defer mu.Unlock()
				found[m.name] = f
			})
		}
	})
	t.Logf("%d of %d found\n%s", len(found), len(all), table(all, found))
	if *update && len(found) == len(all) {
		text := readme + table(all, found)
		if err := os.WriteFile(filepath.Join(root(t), "tests", "simulate", "mutants", "README.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const readme = `# Planted faults

Each patch takes one rule out of the source; the simulation has to find it, as a broken promise, in the first 100 worlds of storm or of
chaos, or the first 600 that are aimed, without being told where to look. How they are run: [doc.go](doc.go). This file is written by the tests (-update).

`

func table(all []mutant, found map[string]finding) string {
	var b strings.Builder
	b.WriteString("| fault | rule that is missing | seed | profile | step | broken promise |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range all {
		f, ok := found[m.name]
		if !ok {
			fmt.Fprintf(&b, "| %s | %s | - | - | - | not found |\n", m.name, m.rule)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %d | %s |\n", m.name, m.rule, f.seed, f.profile, f.step, f.invariant)
	}
	return b.String()
}
