package main

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A run of an aimed profile is about one line of the coverage table, which its seed decides: requests of one kind that find their row
// in one state. It lets such requests wait on their way, as a process does that stops just before it sends, moves the row to that
// state meanwhile (drive.go), and lets them go then, mostly into a fault, each fault in turn. A few hundred seeds go through all lines.

// stateFor is the state of a row as a request finds it.
func (w *world) stateFor(e *entry) string {
	return w.stateOfPart(part{e.purpose, e.row, e.rowID}, e.attempt)
}

func (w *world) stateOfPart(p part, attempt int64) string {
	state := w.oracle.stateOf(p.row)
	it := w.store.ledger.items[p.row]
	switch {
	case p.rowID == "" || it == nil || state == rowPast:
	case it.str("rowId") != p.rowID:
		return rowOther
	case attempt > 0 && it.str("state") == "pending" && it.num("attempt") > attempt:
		return rowTakenOver
	}
	return state
}

// part is the part of a request that the run is about: what it does to the call that it compensates, or to its own.
func (w *world) part(e *entry) part {
	if e.undoes.purpose != "" && e.undoes.purpose == w.aim().purpose {
		return e.undoes
	}
	return part{e.purpose, e.row, e.rowID}
}

// meets is the state in which that part finds its row.
func (w *world) meets(e *entry) string {
	if p := w.part(e); p != e.undoes {
		return w.stateOfPart(p, e.attempt)
	}
	return w.stateOfPart(e.undoes, 0)
}

// focus is the request that an aimed run is about at the moment.
type focus struct {
	e      *entry
	want   string
	drives int
}

// Bounds of what is done for one request, and of how many are kept back at once.
const (
	drivesMost = 16
	heldMost   = 5
	metsMost   = 8 // faults that one request meets on end
)

// holdBack keeps requests on their way until their row is where they are wanted to meet it. What has met it goes first, before
// somebody moves the row on.
func (w *world) holdBack(ready []*entry) []*entry {
	if !w.cfg.profile.aimed {
		return ready
	}
	kept := w.kept[:0]
	var met []*entry
	for _, f := range w.kept {
		switch {
		case w.gate.left(f.e):
			w.count("aimed", "its caller left")
		case w.calm || f.drives >= drivesMost || w.meets(f.e) == f.want && !w.watched(f):
			w.gate.release(f.e)
			f.e.met = w.meets(f.e) == f.want
			w.count("aimed", map[bool]string{true: "met", false: "given up"}[f.e.met])
			met = append(met, f.e)
		default:
			kept = append(kept, f)
		}
	}
	w.kept = kept
	if len(met) > 0 {
		return met
	}
	return slices.DeleteFunc(ready, w.keepBack)
}

// watched tells whether a request stays back although its row is where it was wanted: others are to find the row there.
func (w *world) watched(f *focus) bool {
	return w.aim().purpose == "verify settle" && f.e.purpose == "finalize" && f.want == rowUnverified
}

// atOnce tells whether a row can be moved to where a request that has little time wants it before that is over.
func atOnce(e *entry, want string) bool {
	return e.purpose == "outside.act" && (want == rowApplied || want == rowReleased || want == rowTakenOver)
}

func (g *gate) release(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.due = time.Time{}
}

// keepBack decides once for each request whether it is kept back.
func (w *world) keepBack(e *entry) bool {
	if e.asked || w.calm || e.row == (key{}) || e.decided || e.op.moves {
		return false
	}
	e.asked = true
	if w.part(e).purpose == e.op.metAt && e.op.mets < metsMost && w.meets(e) == e.op.metState {
		e.met = true // again, after a fault
		e.op.mets++
		return false
	}
	want := w.wantFor(e)
	switch {
	case want == "":
		return false
	case w.meets(e) == want:
		e.met = true
		return false
	case len(w.kept) >= heldMost || e.op.kind.immortal:
		return false
	case !e.until.IsZero() && time.Until(e.until) < 24*time.Hour && !atOnce(e, want): // its caller will not wait
		return false
	}
	w.gate.mu.Lock()
	e.due = w.now().AddDate(1, 0, 0)
	w.gate.mu.Unlock()
	w.kept = append(w.kept, &focus{e: e, want: want})
	w.note("op %d #%d %s waits until %s is %s", e.op.id, e.seq, e.purpose, w.part(e).row.sk, want)
	return true
}

// wantFor is the state that a request waits for; "" where it does not wait.
func (w *world) wantFor(e *entry) string {
	r := w.rng("keep back", e.op.id, e.seq)
	chance, line := r.Float64(), w.aim()
	if w.part(e).purpose == line.purpose {
		return line.state
	}
	for _, before := range leadsTo[line.purpose] {
		if e.purpose == before.purpose && chance < 0.8 {
			e.leads = true
			return before.state
		}
	}
	if wants := reachable(e.purpose); len(wants) > 0 && chance > 1-rarity(e.purpose)/6 {
		return wants[w.turn("state", e.purpose)%uint64(len(wants))]
	}
	return ""
}

// aim is the line that a run is about: the one that it was given, or the one that its seed decides. Seeds in a row go far apart, but
// that two have the same, since profiles may take turns.
func (w *world) aim() coverLine {
	if w.line = cmp.Or(w.line, w.cfg.aim); w.line == (coverLine{}) {
		lines := aimedLines()
		step := uint64(len(lines)) * 5 / 8
		for gcd(step, uint64(len(lines))) != 1 {
			step++
		}
		w.line = lines[w.cfg.seed/2*step%uint64(len(lines))]
	}
	return w.line
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// intentAimed picks an action of use to the run; nil where there is none, or chance has it otherwise.
func (w *world) intentAimed(op *operation) *intent {
	if !w.cfg.profile.aimed {
		return nil
	}
	chance, line := op.rng.IntN(10), w.aim()
	fits := func(*intent) bool { return false }
	switch states := startsAt[line.purpose]; {
	case chance < 4 && len(w.kept) > 0:
		return w.intentOf(w.part(w.kept[op.rng.IntN(len(w.kept))].e).row)
	case chance < 4:
	case chance < 7 && len(states) > 0:
		fits = func(in *intent) bool { return slices.Contains(states, w.oracle.stateOf(in.rowKey())) }
	case chance < 8 && strings.HasPrefix(line.purpose, "erase"):
		fits = func(in *intent) bool { return in.tenant.erases }
	case chance < 9 && line.state == rowHeld:
		fits = func(in *intent) bool { return in.service.name == "book" }
	case chance < 9 && (line.purpose == "verify settle" || line.purpose == "outside.find"):
		fits = func(in *intent) bool { return in.service.verifies }
	}
	at := op.rng.IntN(len(w.pool))
	for i := range w.pool {
		if in := w.pool[(at+i)%len(w.pool)]; fits(in) {
			return in
		}
	}
	return nil
}

// turn counts up, for each kind of thing by itself, from a place that the seed decides.
func (w *world) turn(parts ...string) uint64 {
	if w.turns == nil {
		w.turns = map[string]uint64{}
	}
	name := strings.Join(parts, "|")
	n, ok := w.turns[name]
	if !ok {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		n = h.Sum64()%1000 + w.draw("turn", name)%64
	}
	w.turns[name] = n + 1
	return n
}

// hostility is how many requests meet a fault: in an aimed run most of those that have met their moment, few on the way there.
func (w *world) hostility(e *entry) float64 {
	if !w.cfg.profile.aimed {
		return w.cfg.profile.faults
	}
	if often, _, ok := w.bias(e); ok {
		return often
	}
	switch {
	case e.leads:
		return 0
	case e.row == (key{}) && e.dynamo(), e.op.moves:
		return 0.04
	case e.row == (key{}):
		return w.cfg.profile.faults
	case e.met:
		return 0.85
	case e.purpose == "outside.act" && w.aim().purpose != "outside.act":
		return 0.4 // what becomes of the action decides what comes next
	case e.target == "outside.find", rarity(e.purpose) > 0.5:
		return 0.3
	}
	return 0.1
}

// aimedFault deals the classes of faults of a request's line in turn.
func (w *world) aimedFault(e *entry, r *rand.Rand) fault {
	if _, kind, ok := w.bias(e); ok {
		return fault{kind: kind, wait: w.drawWait(r), pick: r.Uint64()}
	}
	state := w.meets(e)
	if e.met {
		e.op.metAt, e.op.metState = w.part(e).purpose, state
	}
	kinds := faultsOf(e.purpose)[1:]
	classes := classesOf(kinds)
	if len(classes) == 0 {
		return fault{kind: pass}
	}
	class := classes[w.turn("fault", w.part(e).purpose, state)%uint64(len(classes))]
	if class == storeRestart && r.IntN(3) > 0 { // it takes its time
		class = classes[w.turn("fault", w.part(e).purpose, state)%uint64(len(classes))]
	}
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return classOf(k) != class })
	kind := kinds[r.IntN(len(kinds))]
	if (e.op.kind.immortal || !e.met) && (kind == killedBefore || kind == killedAfter) {
		return fault{kind: pass}
	}
	return fault{kind: kind, wait: w.drawWait(r), pick: r.Uint64()}
}

func (w *world) weightOf(k *opKind) int {
	if !w.cfg.profile.aimed {
		return k.weight
	}
	n := k.weight
	if m, ok := aimedWeights[k.name]; ok {
		n = m
	}
	for _, a := range aimedAt {
		if a.purpose == w.aim().purpose && slices.Contains(a.kinds, k.name) {
			n += 25
		}
	}
	return n
}

// patience is how long a program waits for what it does, where nothing stops it before.
func (p profile) patience(d time.Duration) time.Duration {
	if p.aimed {
		return patient
	}
	return d
}
