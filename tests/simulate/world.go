package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The periods of the world. The ledger's clocks are at most skew apart.
const (
	lease   = 30 * time.Second
	horizon = 45 * time.Second
	hastier = 10 // the horizon of a hasty call is that much shorter
	skew    = 20 * time.Second
	actTime = 2 * time.Minute
	giveUp  = 8 * time.Minute // after it a person decides about what no verifier knows
)

// begin is a moment before midnight, so that daily periods roll over within a run, and monthly ones in half of them.
var begins = []time.Time{
	time.Date(2026, time.October, 31, 23, 56, 0, 0, time.UTC),
	time.Date(2026, time.November, 12, 23, 50, 0, 0, time.UTC),
	time.Date(2026, time.December, 31, 23, 58, 0, 0, time.UTC),
}

// profile is how hostile the world is.
type profile struct {
	name    string
	faults  float64 // how many requests meet one
	chaos   bool    // also what the protocol cannot hold: lies, effects beyond every horizon, restarts of the store
	start   float64 // how eagerly operations begin
	pause   float64 // how often time passes while requests wait
	flights int     // operations under way at once
	aimed   bool    // requests wait for their row to be in the state that the run is about (aim.go)
}

// The places of the profiles; aimed is the last one.
const (
	calm = iota
	storm
	chaos
	aimed
)

var profiles = []profile{
	{name: "calm", faults: 0.05, start: 0.25, pause: 0.02, flights: 4},
	{name: "storm", faults: 0.25, start: 0.35, pause: 0.05, flights: 8},
	{name: "chaos", faults: 0.35, start: 0.35, pause: 0.08, flights: 8, chaos: true},
	{name: "aimed", faults: 0.3, start: 0.35, pause: 0.04, flights: 16, chaos: true, aimed: true},
}

// config is one run.
type config struct {
	seed    uint64
	steps   int
	profile profile
	skip    map[string]bool // operations ("op 7") and faults ("fault 7/3") that the minimiser leaves out
	aim     coverLine       // that an aimed run is about; zero: the seed decides
	put     puts            // faults that are put where no chance decides
	verbose io.Writer       // nil: silent
	alive   *atomic.Int64   // counts steps, for whoever watches that time goes on
}

func (c *config) without(name string) bool { return c.skip[name] }

func faultName(e *entry) string { return fmt.Sprintf("fault %d/%d", e.op.id, e.seq) }

func opName(id int) string { return fmt.Sprintf("op %d", id) }

// violation is a broken promise.
type violation struct {
	Seed      uint64 `json:"seed"`
	Step      int    `json:"step"`
	Invariant string `json:"invariant"`
	Detail    string `json:"detail"`
}

func (v *violation) Error() string {
	return fmt.Sprintf("seed %d, step %d: %s: %s", v.Seed, v.Step, v.Invariant, v.Detail)
}

// timed is something that happens at a moment.
type timed struct {
	at time.Time
	n  int
	do func()
}

// world is one run.
type world struct {
	cfg   config
	began time.Time // of the bubble
	base  time.Time // what the true clock said then
	gate
	store       *store
	out         *outside
	procs       []*process
	alive       []*operation // under way
	ops         []*operation
	mu          sync.Mutex
	statsMu     sync.Mutex
	timers      []timed
	timerN      int
	step        int
	calm        bool // no more faults
	failure     error
	hash        hash.Hash64
	oracle      *oracle
	told        map[string]string // what verifiers said of actions that was not true
	lies        map[string]string // actions about which the ledger believed what was not true
	stats       map[string]map[string]int
	cover       map[coverKey]int
	seen        map[coverKey]string // where a request met a line first, and could have met a fault
	wg          sync.WaitGroup
	pool        []*intent
	tenants     []*tenantPlan
	feed        *feed
	met         []string        // faults that were met
	placed      map[string]bool // those of cfg.put that found their request
	parallel    *parallel       // nil: the scheduler decides
	acting      sync.Mutex      // of the parallel mode: the outside world does one thing at a time
	killing     sync.Mutex
	swept       time.Time // when the schedule last began a sweep
	sending     *entry    // whose writes the oracle looks at
	history     []string  // of the last steps
	spent       time.Duration
	requests    int
	incarnation int
	children    []*operation  // of operations that went on in another process
	jump        time.Duration // days that are about to pass
	touched     int           // requests that may change a row, but for those that drive it
	line        coverLine     // that an aimed run is about
	kept        []*focus      // requests that are kept back
	turns       map[string]uint64
	still       bool // nothing new begins, since days are to pass
}

// run is what became of a run.
type run struct {
	Seed      uint64                    `json:"seed"`
	Profile   string                    `json:"profile"`
	Steps     int                       `json:"steps"`
	Hash      string                    `json:"trace_hash"`
	Violation *violation                `json:"violation,omitempty"`
	Stats     map[string]map[string]int `json:"stats"`
	Simulated time.Duration             `json:"simulated"`
	History   []string                  `json:"history,omitempty"`
	Ops       int                       `json:"-"`
	Faults    []string                  `json:"-"`
	Missed    []string                  `json:"missed,omitempty"` // faults that were put at requests which never came
	cover     map[coverKey]int
	seen      map[coverKey]string
	cfg       config
}

// simulate runs one seed in a bubble of its own. The store's tables are made before and dropped after.
func simulate(t *testing.T, b *backend, cfg config) (run, error) {
	s, err := newStore(context.Background(), b, fmt.Sprintf("simulate-%d-%d", cfg.seed, b.tables.Add(1)))
	if err != nil {
		return run{}, err
	}
	w := &world{
		cfg: cfg, store: s, out: newOutside(), lies: map[string]string{}, told: map[string]string{}, stats: map[string]map[string]int{},
		cover: map[coverKey]int{}, seen: map[coverKey]string{}, hash: fnv.New64a(),
		placed: map[string]bool{},
	}
	defer seedRandom(cfg.seed, b.tables.Load(), func() uint64 { return w.draw("jitter", w.now().UnixNano()) })()
	synctest.Test(t, func(*testing.T) {
		err = w.run()
	})
	s.drop()
	out := run{
		Seed: cfg.seed, Profile: cfg.profile.name, Steps: w.step, Hash: fmt.Sprintf("%016x", w.hash.Sum64()), Stats: w.stats,
		Simulated: w.spent, Ops: len(w.ops), Faults: w.met, cover: w.cover, seen: w.seen, cfg: cfg,
	}
	for _, at := range slices.Sorted(maps.Keys(cfg.put)) {
		if !w.placed[at] {
			out.Missed = append(out.Missed, strings.TrimPrefix(at, "fault "))
		}
	}
	v, isViolation := err.(*violation) //nolint:errorlint // made here, and wrapped by nobody
	if isViolation {
		out.Violation, out.History = v, w.history
		return out, nil
	}
	return out, err
}

// run is the scheduler: it alone decides what happens next.
func (w *world) run() error {
	w.began, w.gate.wake = time.Now(), make(chan struct{}, 1)
	w.base = begins[w.rng("begin").IntN(len(begins))]
	defer func() { w.spent = time.Since(w.began) }()
	w.oracle = newOracle(w)
	for _, t := range []*table{w.store.ledger, w.store.control} {
		if err := w.store.open(t); err != nil {
			return err
		}
	}
	w.populate()
	err := w.loop(w.cfg.steps)
	if err == nil {
		err = w.drain()
	}
	w.end()
	if err == nil {
		err = w.oracle.leftBehind()
	}
	return err
}

// loop takes steps.
func (w *world) loop(steps int) error {
	for taken, ticks := 0, 0; taken < steps && ticks < aimedMost*steps; ticks++ {
		before := w.touched
		if err := w.tick(); err != nil {
			return err
		}
		if w.touched != before || !w.cfg.profile.aimed {
			taken++
		}
	}
	return nil
}

// aimedMost bounds an aimed run, of whose steps only those count that have to do with a row.
const aimedMost = 10

// tick takes one step: an operation begins, time passes, or one waiting request runs.
func (w *world) tick() error {
	w.step++
	w.cfg.alive.Add(1)
	synctest.Wait()
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.reap(); err != nil {
		return err
	}
	if w.jump > 0 {
		w.leap()
		if err := w.expireItems(); err != nil {
			return err
		}
	}
	w.sweepEachMinute()
	ready := w.holdBack(w.ready(w.now()))
	r := w.rng("step", w.step)
	start, pause := r.Float64(), r.Float64()
	if start < 0.8 {
		if driven, err := w.drive(len(ready) > 0); driven || err != nil {
			return err
		}
	}
	switch room := len(w.alive) < w.flights() && !w.calm && !w.daysPass() && !w.still; {
	case room && (len(ready) == 0 || start < w.cfg.profile.start):
		if len(ready) == 0 && pause < 0.5 {
			w.pass(w.drawWait(r))
		}
		w.begin()
	case len(ready) == 0:
		w.idle()
	case pause < w.cfg.profile.pause && !w.calm:
		w.pass(w.drawWait(r))
	default:
		e := w.choose(ready)
		if e.row != (key{}) && !e.op.moves && e.purpose != "read row" {
			w.touched++
		}
		if err := w.execute(e); err != nil {
			return err
		}
	}
	return w.failure
}

// flights is how many operations may be under way: fewer while requests are kept back, so that these come to their end.
func (w *world) flights() int {
	if len(w.kept) > 0 {
		return w.cfg.profile.flights / 2
	}
	return w.cfg.profile.flights
}

// sweepEachMinute is the schedule of the deployed sweeper. Runs of other sweepers come on top.
func (w *world) sweepEachMinute() {
	if w.swept.IsZero() {
		w.swept = w.now()
	}
	pause := time.Minute
	if w.calm {
		pause = 10 * time.Minute // nothing new goes wrong: sleepers are waited for
	} else if w.cfg.profile.aimed {
		pause = time.Hour // drive sweeps where it has to
	}
	if len(w.alive) == 0 || w.now().Sub(w.swept) < pause {
		return
	}
	w.swept = w.now()
	w.start(kindSweep, nil)
}

// daysPass tells whether somebody waits for days to pass: nothing new begins until they have.
func (w *world) daysPass() bool {
	return slices.ContainsFunc(w.alive, func(op *operation) bool { return op.kind.name == "expire" || op.still })
}

// choose picks a request by a priority that is its own, so that leaving out others does not change it.
func (w *world) choose(ready []*entry) *entry {
	if moving := slices.DeleteFunc(slices.Clone(ready), func(e *entry) bool { return !e.op.moves }); len(moving) > 0 {
		ready = moving
	}
	return slices.MaxFunc(ready, func(a, b *entry) int {
		pa, pb := w.draw("priority", a.op.id, a.seq), w.draw("priority", b.op.id, b.seq)
		switch {
		case pa < pb:
			return -1
		case pa > pb:
			return 1
		}
		return 0
	})
}

// idle lets time pass until something happens.
func (w *world) idle() {
	wait := 30 * time.Second
	for _, t := range w.timers {
		wait = min(wait, t.at.Sub(w.now()))
	}
	if due := w.nextDue(); !due.IsZero() {
		wait = min(wait, due.Sub(w.now()))
	}
	select {
	case <-w.wake: // from before
	default:
	}
	timer := time.NewTimer(max(wait, time.Nanosecond))
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	}
}

// pass lets time pass. What is due in between happens at its moment.
func (w *world) pass(d time.Duration) {
	until := w.now().Add(d)
	for range 10_000 {
		next := until
		for _, t := range w.timers {
			if t.at.Before(next) {
				next = t.at
			}
		}
		time.Sleep(next.Sub(w.now()))
		synctest.Wait()
		if w.flush() != nil || !w.now().Before(until) {
			return
		}
	}
}

// leap lets hours or days pass, or as many of them as nobody wakes up in.
func (w *world) leap() {
	until := w.now().Add(w.jump)
	if until.Sub(w.base) > 7*24*time.Hour {
		w.feed.lossy = true // CloudWatch takes no metrics that are two weeks old
	}
	w.jump = 0
	for w.now().Before(until) && len(w.ready(w.now())) == 0 && w.failure == nil {
		w.pass(min(until.Sub(w.now()), leapStep(w.cfg.profile)))
	}
}

func leapStep(p profile) time.Duration {
	if p.aimed {
		return 6 * time.Hour
	}
	return 10 * time.Minute
}

// later does something after a while.
func (w *world) later(d time.Duration, do func()) {
	w.timerN++
	w.timers = append(w.timers, timed{w.now().Add(d), w.timerN, do})
}

// flush does what is due.
func (w *world) flush() error {
	for {
		at := -1
		for i, t := range w.timers {
			if !t.at.After(w.now()) && (at < 0 || t.at.Before(w.timers[at].at) || t.at.Equal(w.timers[at].at) && t.n < w.timers[at].n) {
				at = i
			}
		}
		if at < 0 {
			return w.failure
		}
		do := w.timers[at].do
		w.timers = slices.Delete(w.timers, at, at+1)
		do()
		w.meet()
		synctest.Wait()
	}
}

// send sends a request to the store and looks at what it wrote.
func (w *world) send(e *entry) (answer, error) {
	a := w.store.do(backendRequest{header: e.header, body: e.body})
	w.requests++
	w.count("request", e.target)
	w.sending = e
	if a.err == nil && writes(e.target) {
		if err := w.look(e.op, e.body); err != nil {
			w.failure = err
			return answer{}, err
		}
	}
	if err := w.oracle.answeredWith(e, a); a.err == nil && err != nil {
		return answer{}, err
	}
	if a.err != nil {
		w.failure = a.err
	}
	w.note(" → %d", a.status)
	return httpAnswer(a), w.failure
}

// look reads what the streams tell of a request, and asks the oracle.
func (w *world) look(op *operation, body []byte) error {
	tables := []*table{w.store.ledger}
	if body == nil || strings.Contains(string(body), w.store.control.name) {
		tables = append(tables, w.store.control)
	}
	var all []*record
	for _, t := range tables {
		fresh, err := w.store.pull(t, w.now())
		if err != nil {
			return err
		}
		all = append(all, fresh...)
	}
	return w.oracle.wrote(op, all)
}

// restartStore kills the store and starts it again on its file.
func (w *world) restartStore() error {
	if a := w.store.do(backendRequest{restart: true}); a.err != nil {
		return a.err
	}
	for _, t := range []*table{w.store.ledger, w.store.control} {
		if err := w.store.seek(t); err != nil {
			return err
		}
	}
	return nil
}

// now is the true time.
func (w *world) now() time.Time {
	at := w.base.Add(time.Since(w.began))
	if w.parallel != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		at = at.Add(w.parallel.offset)
	}
	return at
}

// draw is a number that the seed and the parts decide.
func (w *world) draw(parts ...any) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, w.cfg.seed)
	_, _ = fmt.Fprintf(h, "%s %v", w.cfg.profile.name, parts)
	z := h.Sum64() // mixed once more, since FNV's high bits lag behind
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// rng is a source of its own for one decision.
func (w *world) rng(parts ...any) *rand.Rand {
	return rand.New(rand.NewPCG(w.cfg.seed, w.draw(parts...))) //nolint:gosec // a simulation must be able to say it again
}

// trace puts a decision into the hash of the history, and remembers the last ones.
func (w *world) trace(e *entry, f fault) {
	row := w.stateFor(e)
	if f.kind != pass {
		w.met = append(w.met, faultName(e))
	}
	w.note("%s op %d %s #%d %s %s %s: %s", w.now().Format("15:04:05.000000000"), e.op.id, e.op.name(), e.seq, e.purpose, e.row.sk, row, f.kind)
}

// note adds to the history.
func (w *world) note(format string, a ...any) {
	if w.isParallel() {
		return
	}
	line := fmt.Sprintf(format, a...)
	_, _ = io.WriteString(w.hash, line)
	if strings.HasPrefix(line, " → ") && len(w.history) > 0 {
		w.history[len(w.history)-1] += line
	} else {
		w.history = append(w.history, fmt.Sprintf("%4d %s", w.step, line))
	}
	if len(w.history) > 4000 {
		w.history = slices.Delete(w.history, 0, 2000)
	}
	if w.cfg.verbose != nil {
		_, _ = fmt.Fprintf(w.cfg.verbose, "%4d %s\n", w.step, line)
	}
}

func (w *world) count(group, what string) { w.countN(group, what, 1) }

func (w *world) countN(group, what string, n int) {
	w.statsMu.Lock()
	defer w.statsMu.Unlock()
	if w.stats[group] == nil {
		w.stats[group] = map[string]int{}
	}
	w.stats[group][what] += n
}

func (w *world) broken(invariant, format string, a ...any) error {
	v := &violation{w.cfg.seed, w.step, invariant, fmt.Sprintf(format, a...)}
	w.statsMu.Lock()
	defer w.statsMu.Unlock()
	if w.failure == nil {
		w.failure = v
	}
	return v
}
