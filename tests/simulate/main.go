package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolledger/internal/progress"
)

// flags are what the program is told.
type flags struct {
	seed, seeds     uint64
	steps           int
	profile         string
	json, verbose   bool
	untilViolation  bool
	minimise        bool
	coverage, add   string
	covered         bool
	aim, put        string
	fill            int
	putSelected     puts
	lineSelected    coverLine
	bar             *progress.Bar
	perStore        int
	history         int
	parallel        int
	profileSelected profile
}

func parse(arguments []string) (*flags, error) {
	f, named := &flags{}, false
	set := flag.NewFlagSet("simulate", flag.ContinueOnError)
	set.Uint64Var(&f.seed, "seed", 1, "the first seed")
	set.Uint64Var(&f.seeds, "seeds", 1, "how many seeds to run, one after the other")
	set.IntVar(&f.steps, "steps", 200, "steps of each run, before everything is brought to its end")
	set.StringVar(&f.profile, "profile", "storm", "calm, storm, chaos or aimed; all: aimed every second time, the others in turn")
	set.BoolVar(&f.json, "json", false, "print one JSON document a run")
	set.BoolVar(&f.verbose, "v", false, "print every step")
	set.BoolVar(&f.untilViolation, "until-violation", false, "stop at the first violation; exit code 1 and one line naming seed, step and invariant")
	set.BoolVar(&f.minimise, "minimise", true, "shorten the history of a violation")
	set.StringVar(&f.coverage, "coverage", "", "write the table of faults, operations and states to this file; its figures where the name ends with .json")
	set.StringVar(&f.add, "add", "", "count what these .json files (separated by commas) of earlier runs cover as well")
	set.StringVar(&f.aim, "aim", "", `what an aimed run is about, as in "settle late, released"; else the seed decides`)
	set.StringVar(&f.put, "put", "", `faults beside those of the seed, as in "12/3 answer lost, 14/1 delayed": of operation 12 the third request`)
	set.IntVar(&f.fill, "fill", 0, "then run up to this many more worlds for each empty cell of the table")
	set.BoolVar(&f.covered, "covered", false, "exit code 1 also where a cell of the table is empty, which is then named")
	set.IntVar(&f.perStore, "per-store", 8, "runs that share one store process, which slows down as its streams grow")
	set.IntVar(&f.parallel, "parallel", 0, "run this many operations truly at once instead, in real time (go run -race)")
	set.IntVar(&f.history, "history", 40, "steps of a violation's history to print")
	if err := set.Parse(arguments); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("simulate: unknown argument %q", set.Arg(0))
	}
	set.Visit(func(g *flag.Flag) { named = named || g.Name == "profile" })
	if f.aim != "" && !named {
		f.profile = "aimed"
	}
	return f, f.check()
}

// Bounds of one campaign. Nobody reaches them: they are where a typing error ends.
const (
	stepsMost = 1_000_000
	seedsMost = 10_000_000
)

// check finds what goes with nothing, and looks up what the flags name.
func (f *flags) check() (err error) {
	at := slices.IndexFunc(profiles, func(p profile) bool { return p.name == f.profile })
	switch {
	case f.aim != "" && f.profile != "aimed":
		return fmt.Errorf("simulate: --aim is for profile aimed, not %s", f.profile)
	case at < 0 && f.profile != "all":
		return fmt.Errorf("simulate: unknown profile %q: calm, storm, chaos, aimed or all", f.profile)
	case f.parallel > 0 && (f.profile == "aimed" || f.profile == "all" || f.fill > 0 || f.put != ""):
		return errors.New("simulate: --parallel takes profile calm, storm or chaos, and neither --fill nor --put: nobody decides there what meets what")
	case f.steps < 0 || f.steps > stepsMost || f.parallel < 0 || f.fill < 0 || f.history < 0:
		return fmt.Errorf("simulate: --steps wants 0 to %d, and --parallel, --fill and --history 0 or more", stepsMost)
	case f.seeds > seedsMost || f.seed > math.MaxUint64-2*seedsMost: // with room for those that --fill adds
		return fmt.Errorf("simulate: --seeds wants at most %d, and --seed leaves room for as many", seedsMost)
	case f.perStore < 1 || f.seeds < 1 && f.add == "":
		return errors.New("simulate: --per-store wants 1 or more, and --seeds too, but where --add gives earlier runs")
	case at >= 0:
		f.profileSelected = profiles[at]
	}
	if f.aim != "" {
		purpose, state, _ := strings.Cut(f.aim, ", ")
		f.lineSelected = coverLine{purpose, state}
		if !slices.Contains(aimedLines(), f.lineSelected) {
			return fmt.Errorf("simulate: no aimed run is about %q: want an operation and a state%s", f.aim, statesOf(purpose))
		}
	}
	if f.putSelected, err = parsePuts(f.put); err != nil || f.coverage == "" {
		return err
	}
	if err := writable(f.coverage); err != nil {
		return fmt.Errorf("simulate: --coverage: %w", err)
	}
	return nil
}

// writable tells now whether a file can be written when all has been run.
func writable(name string) error {
	_, err := os.Stat(name)
	fresh := errors.Is(err, os.ErrNotExist)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = file.Close(); fresh {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// statesOf tells which states an aimed run can be about, for one operation, or which operations there are.
func statesOf(purpose string) string {
	var states, purposes []string
	for _, l := range aimedLines() {
		if l.purpose == purpose && !slices.Contains(states, l.state) {
			states = append(states, l.state)
		}
		if !slices.Contains(purposes, l.purpose) {
			purposes = append(purposes, l.purpose)
		}
	}
	if len(states) > 0 {
		return ": " + purpose + " has " + strings.Join(states, ", ")
	}
	return "; operations are " + strings.Join(purposes, ", ")
}

func main() {
	f, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	inTest(func(t *testing.T) { os.Exit(f.run(t)) })
}

// inTest runs f as a test does: a bubble of simulated time belongs to one.
func inTest(f func(t *testing.T)) {
	os.Args = []string{os.Args[0], "-test.timeout=0"}
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "Simulation", F: f}}, nil, nil)
}

// run runs the seeds and returns the exit code.
func (f *flags) run(t *testing.T) int {
	s := newSession(f.perStore)
	defer s.close()
	defer s.endedBySignal()()
	total := newTotal()
	if err := total.read(f.add); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	f.bar = progress.Start(os.Stderr, f.verbose || f.seeds < 2, "worlds", int64(f.seeds)) //nolint:gosec // nobody runs as many
	defer func() { f.bar.Done() }()
	for seed := f.seed; seed < f.seed+f.seeds; seed++ {
		cfg := config{seed: seed, steps: f.steps, profile: f.profileSelected, aim: f.lineSelected, put: f.putSelected}
		if f.profile == "all" {
			cfg.profile = inTurn(seed)
		}
		if err := f.one(t, s, total, cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if f.untilViolation && len(total.violations) > 0 {
			break
		}
	}
	f.bar.Done()
	f.bar = nil
	if err := f.fillCells(t, s, total); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if f.seeds > 1 && !f.json {
		fmt.Print(total.text())
	}
	if err := total.write(f.coverage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if f.covered {
		if _, empty := total.table(); len(empty) > 0 {
			fmt.Printf("%d cells are empty:\n  %s\n", len(empty), strings.Join(empty, "\n  "))
			return 1
		}
	}
	if len(total.violations) > 0 {
		return 1
	}
	return 0
}

// one runs one seed and tells of it.
func (f *flags) one(t *testing.T, s *session, total *total, cfg config) error {
	if f.verbose {
		cfg.verbose = os.Stderr
	}
	run := s.simulate
	if f.parallel > 0 {
		run = s.parallel(f.parallel)
	}
	out, err := run(t, cfg)
	if err != nil {
		return fmt.Errorf("simulate: seed %d: %w", cfg.seed, err)
	}
	total.add(out)
	f.bar.Add(1)
	f.print(out, cfg)
	if len(f.putSelected) > 0 && len(out.Missed) > 0 && out.Violation == nil {
		return fmt.Errorf("simulate: seed %d has no request %s for --put", cfg.seed, strings.Join(out.Missed, ", "))
	}
	if out.Violation != nil && f.minimise && f.parallel == 0 {
		f.printMinimised(s.minimise(t, cfg, out))
	}
	return nil
}

// fillCells fills empty cells of the table, in rounds, and counts for all what one run finds. Where an earlier run has met the line of a
// cell, it is run once more, with the fault put at that request. Where none has, a run is aimed at the line, with the seeds after the last.
func (f *flags) fillCells(t *testing.T, s *session, total *total) error {
	seed := f.seed + f.seeds
	for round := range f.fill {
		if err := f.fillRound(t, s, total, round, &seed); err != nil {
			return err
		}
	}
	return nil
}

func (f *flags) fillRound(t *testing.T, s *session, total *total, round int, seed *uint64) error {
	tried, empty := map[coverLine]bool{}, total.emptyCells()
	bar := progress.Start(os.Stderr, f.verbose, "empty cells", int64(len(empty)))
	defer bar.Done()
	for _, c := range empty {
		if bar.Add(1); !slices.ContainsFunc(total.emptyCells(), func(o *cell) bool { return o.name() == c.name() }) {
			continue // filled meanwhile
		}
		cfg, met := total.filling(c, round)
		aim := slices.Contains(aimedLines(), c.line) && (!met || round%2 == 1) // every other round: what one world cannot, another one may
		if !met && !aim || aim && tried[c.line] {
			continue
		}
		if aim {
			tried[c.line] = true
			cfg = config{seed: *seed, steps: f.steps, profile: profiles[aimed], aim: c.line}
			*seed++
		}
		if err := f.one(t, s, total, cfg); err != nil {
			return err
		}
		if f.untilViolation && len(total.violations) > 0 {
			break
		}
	}
	return nil
}

// inTurn is the profile of a seed where all take turns: every second run is aimed, since its line is the narrower.
func inTurn(seed uint64) profile {
	if seed%2 == 1 {
		return profiles[aimed]
	}
	return profiles[seed/2%aimed]
}

func (f *flags) print(out run, cfg config) {
	if f.json {
		_ = json.NewEncoder(os.Stdout).Encode(out) // to a terminal or a pipe
		return
	}
	if v := out.Violation; v != nil {
		fmt.Printf("VIOLATION seed %d step %d profile %s: %s: %s\n", v.Seed, v.Step, out.Profile, v.Invariant, v.Detail)
		if !f.untilViolation {
			fmt.Println(strings.Join(out.History[max(0, len(out.History)-f.history):], "\n"))
		}
		fmt.Printf("again: %s\n", f.again(cfg))
		return
	}
	if f.seeds == 1 {
		fmt.Printf("seed %d, profile %s: %d steps, %s of simulated time, trace %s: no violation\n", out.Seed, out.Profile, out.Steps, out.Simulated.Round(1e9), out.Hash)
		fmt.Print(statsText(out.Stats))
	}
}

// again is the command that runs a configuration again.
func (f *flags) again(cfg config) string {
	if f.parallel > 0 { // which goes another way each time
		return fmt.Sprintf("go run -race ./tests/simulate --seed %d --profile %s --parallel %d", cfg.seed, cfg.profile.name, f.parallel)
	}
	text := fmt.Sprintf("go run ./tests/simulate --seed %d --steps %d --profile %s", cfg.seed, cfg.steps, cfg.profile.name)
	if cfg.aim != (coverLine{}) {
		text += fmt.Sprintf(" --aim %q", cfg.aim.name())
	}
	if len(cfg.put) > 0 {
		text += fmt.Sprintf(" --put %q", cfg.put)
	}
	return text
}

func (f *flags) printMinimised(m *minimised) {
	if m == nil || f.json {
		return
	}
	fmt.Printf("shortened to %d of %d operations and %d of %d faults in %d runs:\n%s\n",
		m.ops, m.opsBefore, m.faults, m.faultsBefore, m.runs, strings.Join(m.history[max(0, len(m.history)-3*f.history):], "\n"))
}

// session runs seeds on stores that it starts and ends.
type session struct {
	perStore int
	used     int

	mu  sync.Mutex
	b   *backend
	dir string
}

func newSession(perStore int) *session { return &session{perStore: perStore} }

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b != nil {
		s.b.stop()
		s.b = nil
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// abandon ends the program in the middle of a run, and leaves neither a store nor its file.
func (s *session) abandon(code int) {
	s.mu.Lock()
	if s.b != nil {
		s.b.srv.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	os.Exit(code)
}

// endedBySignal abandons the session when somebody ends the program. What it returns stops that.
func (s *session) endedBySignal() func() {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			s.abandon(130)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// parallel runs operations truly at once.
func (s *session) parallel(ops int) func(*testing.T, config) (run, error) {
	return func(t *testing.T, cfg config) (run, error) {
		if err := s.open(t.Context()); err != nil {
			return run{}, err
		}
		return simulateParallel(t.Context(), s.b, cfg, ops, 8)
	}
}

// open sees to it that there is a store that is not too old.
func (s *session) open(ctx context.Context) error {
	if s.used >= s.perStore {
		s.close()
		s.used = 0
	}
	s.used++
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "simulate")
	if err != nil {
		return err
	}
	s.dir = dir
	s.b, err = startBackend(ctx, filepath.Join(dir, "store.db"))
	return err
}

// simulate runs one seed. It takes the runtime's own choices away: one processor, and garbage collection between steps only.
func (s *session) simulate(t *testing.T, cfg config) (run, error) {
	if err := s.open(t.Context()); err != nil {
		return run{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GC()
	cfg.alive = new(atomic.Int64)
	done := make(chan struct{})
	defer close(done)
	go s.watch(cfg.seed, cfg.alive, done)
	return simulate(t, s.b, cfg)
}

// standstill is how long a run may stand still in real time. A goroutine that waits for a lock, not for the scheduler, lets no
// time pass in the bubble, and nothing but the real clock can tell.
const standstill = 30 * time.Second

func (s *session) watch(seed uint64, alive *atomic.Int64, done chan struct{}) {
	tick := time.NewTicker(standstill)
	defer tick.Stop()
	before := int64(-1)
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now := alive.Load()
		if now == before {
			buf := make([]byte, 4<<20)
			buf = buf[:runtime.Stack(buf, true)]
			fmt.Printf("VIOLATION seed %d step %d: %s: it stands still\n%s\n", seed, now, invBound, buf)
			s.abandon(1)
		}
		before = now
	}
}

func statsText(stats map[string]map[string]int) string {
	var b strings.Builder
	groups := make([]string, 0, len(stats))
	for g := range stats {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	for _, g := range groups {
		names := make([]string, 0, len(stats[g]))
		for n := range stats[g] {
			names = append(names, n)
		}
		slices.Sort(names)
		for i, n := range names {
			names[i] = fmt.Sprintf("%s %d", n, stats[g][n])
		}
		_, _ = io.WriteString(&b, fmt.Sprintf("  %-14s %s\n", g, strings.Join(names, ", ")))
	}
	return b.String()
}
