package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"toolledger/writers"
)

// operation is one thing that somebody in the world does: a call of the library, a request at a door, a sweep, a batch of
// stream records. What it is, and what goes wrong in it, follows from its number alone.
type operation struct {
	w        *world
	id       int
	kind     *opKind
	proc     *process
	ctx      context.Context //nolint:containedctx // it is the operation's own, which the scheduler cancels
	cancel   context.CancelFunc
	started  time.Time
	limit    time.Duration
	nap      time.Duration // about how long a sleeper pauses
	requests int
	rng      *rand.Rand

	intent  *intent
	variant int
	hasty   bool // a short lease and a short horizon
	moves   bool // it moves a row to where the run wants it (drive.go)
	how     string

	// A first reservation or a commit may have been written, and is sent again: retention has to exceed the life of its caller.
	unanswered bool

	metAt, metState string // where a request of it was met by a fault
	mets            int

	seen   item // the row, as it was when the operation began
	last   bool // nothing stands in its way
	order  string
	looked time.Time // when a person looked outside
	step   int       // at which it began

	absent     []verdictOn  // of which a verifier said that it did not happen
	together   bool         // it has read the plan and all quota items of a period at once
	refused    map[part]int // how often on end the store refused a thing
	cursorKept bool         // what it applied found its session's cursor elsewhere
	tenant     *tenantPlan
	plan       writers.Plan
	actRef     writers.CallInfo

	// What it came to, set before finished is closed.
	finished chan struct{}
	err      error
	results  []returned
	wrote    []*record
	lost     bool // its process died
	still    bool // nothing new begins while it waits for days to pass
}

// returned is a result that the caller was given.
type returned struct {
	outcome string
	json    string
	rowID   string
}

// opKind is one kind of operation.
type opKind struct {
	name     string
	slot     string
	weight   int
	immortal bool // its process is not killed
	prepare  func(w *world, op *operation)
	run      func(ctx context.Context, w *world, op *operation) error
}

func (op *operation) name() string {
	if op.intent == nil {
		return op.kind.name
	}
	return op.kind.name + " " + op.intent.service.name
}

func (op *operation) rowKey() key {
	if op.intent == nil {
		return key{}
	}
	return op.intent.rowKey()
}

func (op *operation) args() args { return op.intent.variants[op.variant] }

func (op *operation) session(p *process) writers.Session {
	return p.ledger.Tenant(writers.TenantID(op.intent.tenant.id)).Session(op.intent.session)
}

// begin starts the next operation.
func (w *world) begin() {
	kind := w.kindOf(len(w.ops) + 1)
	w.start(kind, nil)
}

// kindOf draws what the operation with a number is.
func (w *world) kindOf(id int) *opKind {
	sum := 0
	for _, k := range kinds {
		sum += w.weightOf(k)
	}
	at := w.rng("kind", id).IntN(sum)
	for _, k := range kinds {
		if at -= w.weightOf(k); at < 0 {
			return k
		}
	}
	return kinds[0]
}

// prepared makes an operation.
func (w *world) prepared(kind *opKind, prepare func(*operation)) *operation {
	op := &operation{w: w, id: len(w.ops) + 1, kind: kind, finished: make(chan struct{})}
	w.ops = append(w.ops, op)
	op.rng = w.rng("op", op.id)
	all := slotsOf(kind.slot)
	w.killing.Lock()
	op.proc = w.procs[all[op.rng.IntN(len(all))]]
	w.killing.Unlock()
	op.limit = []time.Duration{3 * time.Second, 20 * time.Second, time.Minute, 3 * time.Minute}[op.rng.IntN(4)]
	if w.calm {
		op.limit = 3 * time.Minute
	} else if w.cfg.profile.aimed && !slices.Contains(hurried, kind.name) {
		op.limit = patient
	}
	if kind.prepare != nil {
		kind.prepare(w, op)
	}
	if prepare != nil {
		prepare(op)
	}
	return op
}

// patient is the limit of callers without one.
const patient = 1000 * 24 * time.Hour

// hurried are the operations that wait for as long as they are let.
var hurried = []string{"look", "poll", "rival poll", "deliver"}

// start makes an operation and lets it begin.
func (w *world) start(kind *opKind, prepare func(*operation)) {
	op := w.prepared(kind, prepare)
	if w.cfg.without(opName(op.id)) && !w.calm {
		return
	}
	w.launch(op)
}

// launch lets an operation begin.
func (w *world) launch(op *operation) {
	op.started, op.step = w.now(), w.step
	w.note("%s op %d begins: %s in %s", op.started.Format("15:04:05.000000000"), op.id, op.name(), op.proc.slot)
	w.count("operation", op.kind.name)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), opKey{}, op), op.limit)
	op.ctx, op.cancel = ctx, cancel
	w.alive = append(w.alive, op)
	w.wg.Go(func() {
		defer close(op.finished)
		defer w.gate.nudge()
		defer cancel()
		op.err = op.kind.run(ctx, w, op)
	})
}

// grace is how long an operation may take to come back after its context ended: recording an effect outlives it.
const grace = 25 * time.Second

// reap looks at what has ended, and at what should have.
func (w *world) reap() error {
	var err error
	w.alive = slices.DeleteFunc(w.alive, func(op *operation) bool {
		select {
		case <-op.finished:
			if e := w.finishedOp(op); e != nil && err == nil {
				err = e
			}
			return true
		default:
		}
		if took := w.now().Sub(op.started); took > op.limit+grace && err == nil {
			err = w.broken("every call ends within its bound", "operation %d %s runs for %s; its context ended after %s", op.id, op.name(), took, op.limit)
		}
		return false
	})
	return err
}

func (w *world) finishedOp(op *operation) error {
	op.lost = op.proc.killed()
	code := "ok"
	if op.err != nil {
		code = codeOf(op.err)
	}
	if op.lost {
		w.note("op %d lost", op.id)
		w.count("answer", "lost with its process")
		return nil
	}
	w.note("op %d ends: %s", op.id, code)
	w.count("answer", code)
	return w.oracle.ended(op, code)
}

// codeOf is the word of an error.
func codeOf(err error) string {
	if d, ok := errors.AsType[*doorError](err); ok {
		return d.code
	}
	if c, ok := errors.AsType[writers.Code](err); ok {
		return string(c)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, errNobodyKnows):
		return "acted, nobody knows"
	case errors.Is(err, errDead):
		return "handed to a process that died"
	}
	return "error"
}

// options are what an intent's calls bring along beside their arguments.
func (op *operation) options() func(*writers.Call) {
	in := op.intent
	retry, wait := op.rng.IntN(3) == 0, time.Duration(op.rng.IntN(3))*5*time.Second
	return func(c *writers.Call) {
		c.Cursor, c.ExpectCursor, c.Retry, c.Wait = in.cursor, in.expect, retry, wait
		if op.hasty {
			c.Lease, c.Horizon = lease/5, op.horizon()
		}
		if in.compensates != nil {
			c.Compensates, c.RefundOriginal = in.compensates.key(), in.refund
		}
	}
}

// horizon is how long after the deadline an act of this operation may land.
func (op *operation) horizon() time.Duration {
	if op.hasty {
		return horizon / hastier
	}
	return horizon
}

// got notes a result that the caller was given.
func (op *operation) got(outcome writers.Outcome, text []byte, rowID string) {
	if outcome != "" {
		op.results = append(op.results, returned{string(outcome), string(text), rowID})
	}
}
