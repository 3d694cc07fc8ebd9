package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// misfortune is what becomes of one request. sure means that the operation must come through by itself.
type misfortune struct {
	name  string
	sure  bool
	level faults.Level
	fault func(e faults.Event, cancel context.CancelFunc) (faults.Fault, bool)
	kind  kind
}

// kind says how often a misfortune is met where there is no time for all.
type kind int

const (
	each  kind = iota // at each request
	turns             // at some
	rare              // never: it is like another
)

func always(f func() faults.Fault) func(faults.Event, context.CancelFunc) (faults.Fault, bool) {
	return func(faults.Event, context.CancelFunc) (faults.Fault, bool) { return f(), true }
}

// onTransactions cancels with one code at the items of a kind.
func onTransactions(code, prefix string) func(faults.Event, context.CancelFunc) (faults.Fault, bool) {
	return func(e faults.Event, _ context.CancelFunc) (faults.Fault, bool) {
		at := faults.Find(e.Input, prefix)
		return faults.Fail(faults.CancelledAt(e.Input, code, at...)), len(at) > 0 && strings.HasPrefix(e.Op, "Transact")
	}
}

var misfortunes = []misfortune{
	{"answer lost on the wire", true, faults.Try, always(faults.Lose), turns},
	{"connection broken on the wire", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.Broken()) }), rare},
	{"throttled once", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.Throttled()) }), turns},
	{"over capacity once", true, faults.Try, always(func() faults.Fault { return faults.Fail(faults.OverCapacity()) }), rare},
	{"internal error after applying", true, faults.Try, always(func() faults.Fault { return faults.LoseAs(faults.Internal()) }), rare},
	{"conflict on the row", true, faults.Try, onTransactions(faults.Conflict, "TOOL#"), turns},
	{"conflict on quota", true, faults.Try, onTransactions(faults.Conflict, "QUOTA#"), turns},
	{"conflict on the plan", true, faults.Try, onTransactions(faults.Conflict, "PLAN"), turns},
	{"conflict on the grant", true, faults.Try, onTransactions(faults.Conflict, "GRANT#"), turns},
	{"conflict on the session", true, faults.Try, onTransactions(faults.Conflict, "META"), turns},
	{"throttled at quota", true, faults.Try, onTransactions(faults.ThrottlingReason, "QUOTA#"), rare},
	{"over capacity at the row", true, faults.Try, onTransactions(faults.Capacity, "TOOL#"), rare},
	{"answer lost", false, faults.Call, always(faults.Lose), each},
	{"never sent", false, faults.Call, always(func() faults.Fault { return faults.Fail(faults.Broken()) }), rare},
	{"in progress, applied", false, faults.Call, always(func() faults.Fault { return faults.LoseAs(faults.InProgress()) }), rare},
	{"in progress, not applied", false, faults.Call, always(func() faults.Fault { return faults.Fail(faults.InProgress()) }), turns},
	{"mismatch, applied", false, faults.Call, always(func() faults.Fault { return faults.LoseAs(faults.Mismatch()) }), turns},
	{"cancelled before", false, faults.Call, func(_ faults.Event, cancel context.CancelFunc) (faults.Fault, bool) {
		return faults.Fail(context.Canceled).Before(cancel), true
	}, each},
	{"cancelled after", false, faults.Call, func(_ faults.Event, cancel context.CancelFunc) (faults.Fault, bool) {
		return faults.LoseAs(context.Canceled).After(cancel), true
	}, each},
	{"hanging until the deadline", false, faults.Call, always(faults.Hang), turns},
	{"applied and hanging until the deadline", false, faults.Call, always(faults.Stall), turns},
	{"the process dies before", false, faults.Call, always(faults.Crash), each},
	{"the process dies after", false, faults.Call, always(faults.CrashAfter), each},
}

// TestFaults: every operation, at every one of its requests, meets every misfortune. The operation ends in bounded time;
// what the ledger says is retried succeeds; then there is one effect and one debit, and the books balance. An answer that is
// lost on a transaction is found out about within the same call.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			turn := len(s.name)
			for i, e := range requestsOf(t, s) {
				for _, m := range misfortunes {
					if _, fits := m.fault(e, func() {}); !fits {
						continue
					}
					turn++ // where there is no time for all, those that are seldom the only ones to find something take turns
					if soaking() || m.kind == each || m.kind == turns && turn%3 == 0 {
						meet(t, s, m, i+1)
					}
				}
			}
		})
	}
}

// requestsOf is what an operation asks of DynamoDB where nothing goes wrong.
func requestsOf(t *testing.T, s scenario) []faults.Event {
	g := newLedgerRig(t)
	op := s.prepare(g)
	var rec faults.Recorder
	g.in.Set(rec.Hook)
	if err := op(t.Context()); !s.ended(err) {
		t.Fatalf("without any fault: %v", err)
	}
	s.check(g)
	g.balanced()
	return rec.Events(faults.Call, "")
}

func (s scenario) ended(err error) bool {
	if s.want == "" {
		return err == nil
	}
	return errors.Is(err, s.want)
}

// inTime is how long an operation may take with one request hanging until its context's deadline, reading back included.
const (
	deadlineOfFaults = 150 * time.Millisecond
	inTime           = 15 * time.Second
)

// errDied is how an operation ends whose process does.
var errDied = errors.New("the process died")

func meet(t *testing.T, s scenario, m misfortune, n int) {
	t.Helper()
	g := newLedgerRig(t)
	op := s.prepare(g)
	ctx, cancel := context.WithCancel(t.Context())
	if strings.Contains(m.name, "deadline") {
		ctx, cancel = context.WithTimeout(t.Context(), deadlineOfFaults)
	}
	defer cancel()
	met, isWrite := false, false
	g.in.Set(func(e faults.Event) faults.Fault {
		if e.Level != m.level || e.Seq != n || met {
			return faults.Fault{}
		}
		var f faults.Fault
		if f, met = m.fault(e, cancel); !met {
			return faults.Fault{}
		}
		isWrite = e.Op == "TransactWriteItems"
		return f
	})
	where := fmt.Sprintf("%s at request %d of %s", m.name, n, s.name)
	began := time.Now()
	err := errDied
	g.in.Run(func() { err = op(ctx) })
	g.in.Revive()
	if took := time.Since(began); took > inTime {
		t.Errorf("%s: took %s", where, took)
	}
	if !met {
		return
	}
	lost := m.name == "answer lost" || m.name == "mismatch, applied" || m.name == "in progress, applied"
	if !s.ended(err) && (m.sure || lost && isWrite) {
		t.Errorf("%s: %v", where, err)
	}
	if !s.ended(err) && !errors.Is(err, errDied) && (!s.bare || ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		wantHonest(t, where, err)
	}
	g.in.Set(nil)
	for i := 0; !s.ended(err); i++ {
		if i == 3 {
			t.Errorf("%s: does not come through: %v", where, err)
			return
		}
		if err = op(t.Context()); errors.Is(err, writers.ErrInProgress) {
			if strings.Contains(s.name, "reserve") || strings.Contains(s.name, "takeover") {
				g.orphaned(where)
				return
			}
		}
	}
	s.check(g)
	g.balanced()
	if t.Failed() {
		t.Fatalf("%s", where)
	}
}

// orphaned checks a reservation that was made for a caller whose context ended before it knew: it is there once, paid
// once, and whoever verifies goes on.
func (g *ledgerRig) orphaned(where string) {
	g.Helper()
	report := g.balanced()
	if report.States[schema.StatePending] != 1 {
		g.Errorf("%s: %v", where, report.States)
	}
}

// wantHonest: an operation that did not come through says so as writers.Error, and does not claim that nothing was written
// where it cannot know.
func wantHonest(t *testing.T, where string, err error) {
	t.Helper()
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		t.Errorf("%s: %T: %v", where, err, err)
		return
	}
	if e.Code != writers.ErrUnavailable && e.Code != writers.ErrOutcomeUnknown && e.Code != writers.ErrNotApplied {
		t.Errorf("%s: %v", where, err)
	}
}

// TestFaultsForEver: where contention, throttling or silence do not end, every operation ends by itself, in a bounded number
// of requests, and says that it may be repeated.
func TestFaultsForEver(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(faults.Event) faults.Fault{
		"conflict":  func(e faults.Event) faults.Fault { return faults.Fail(faults.CancelledAt(e.Input, faults.Conflict, 0)) },
		"throttled": func(faults.Event) faults.Fault { return faults.Fail(faults.Throttled()) },
		"silence":   func(faults.Event) faults.Fault { return faults.Fail(faults.Broken()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var group sync.WaitGroup
			for _, s := range scenarios {
				if s.name == "reads" || s.name == "replay" {
					continue
				}
				g := newLedgerRig(t)
				op := s.prepare(g)
				g.in.Set(func(e faults.Event) faults.Fault {
					if e.Level != faults.Try || e.Op != "TransactWriteItems" {
						return faults.Fault{}
					}
					return fault(e)
				})
				group.Go(func() {
					err := op(t.Context())
					e, ok := errors.AsType[*writers.Error](err)
					if !ok || e.Code != writers.ErrUnavailable || e.RetryAfter <= 0 {
						t.Errorf("%s: %v", s.name, err)
					}
					if n, most := g.in.Count(faults.Try, "TransactWriteItems"), 30; n > most {
						t.Errorf("%s: %d requests", s.name, n)
					}
				})
			}
			group.Wait()
		})
	}
}
