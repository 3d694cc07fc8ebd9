package writerstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// crash is a point at which a worker dies, or something is lost.
type crash struct {
	name      string
	beforeAct bool // dies with the reservation in hand
	inAct     bool // acts, and dies before Act returns
	lostAct   bool // acts, and gets an error instead of the answer
	sendLost  int  // the n-th transaction (from 1) is never sent, and the worker is dead
	replyLost int  // the n-th transaction is applied, its answer is lost, and the worker is dead
	replyGone int  // the same, but the worker lives on
	stall     bool // the lease expires between Act and Finalize
	storm     int  // callers at once on the first try; 0 means 1
}

func crashes() []crash {
	return []crash{
		{name: "no crash"},
		{name: "storm of callers", storm: 16},
		{name: "dies before reserving", sendLost: 1},
		{name: "dies after reserving, the answer lost", replyLost: 1},
		{name: "answer of the reserve lost", replyGone: 1},
		{name: "dies between reserve and Act", beforeAct: true},
		{name: "dies in Act after the effect", inAct: true},
		{name: "answer of the outside system lost", lostAct: true},
		{name: "dies between Act and finalize", sendLost: 2},
		{name: "dies in finalize, the answer lost", replyLost: 2},
		{name: "answer of the finalize lost", replyGone: 2},
		{name: "lease expires between Act and finalize", stall: true},
		{name: "storm, and the holder dies between Act and finalize", sendLost: 2, storm: 16},
		{name: "storm, and the answer of the outside system lost", lostAct: true, storm: 16},
	}
}

// ExactlyOnce tries to make tool act twice: it dies before, in and after Act and Finalize, loses responses, lets leases
// expire, and calls from many goroutines, then retries until the call ends. args makes the arguments of each round, which must
// differ in what the outside world sees; effects counts what the outside world saw.
// It fails the test, naming the crash point, unless that rose by one, all callers got the same bytes and the books balance.
//
// A tool that can neither verify nor be repeated fails here at the points where nobody can know what happened: in
// production its calls are held for a person.
func ExactlyOnce[A, R any](tb testing.TB, tool *writers.Tool[A, R], args func(round int) A, effects func() int) {
	tb.Helper()
	w := newWorld(tb)
	w.provision(tb, w.ledger(tb, w.db))
	for round, c := range crashes() {
		r := &run[A, R]{tb: tb, w: w, tool: tool, crash: c, key: writers.SessionKey(fmt.Sprint("round-", round)), args: args(round)}
		before := effects()
		r.first()
		r.retry()
		if n := effects() - before; n != 1 {
			tb.Errorf("%s: %d effects, want 1", c.name, n)
		}
		r.same()
	}
	Balanced(tb, w.ledger(tb, w.db))
}

// run is one round: one call at one crash point.
type run[A, R any] struct {
	tb    testing.TB
	w     *world
	tool  *writers.Tool[A, R]
	crash crash
	key   writers.Key
	args  A

	struck atomic.Bool // the crash has happened
	mu     sync.Mutex
	bytes  [][]byte // what each caller got
}

// mortal is the client of a process that dies: from then on nothing it does reaches anybody.
type mortal struct {
	*dynamodb.Client
	crash crash
	sent  atomic.Int32
	dead  atomic.Bool
}

var errDead = errors.New("writerstest: the worker is dead")

// TransactWriteItems loses the transaction or its answer where the crash point says so.
func (m *mortal) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	n := int(m.sent.Add(1))
	if m.dead.Load() || n == m.crash.sendLost {
		m.dead.Store(true)
		return nil, errDead
	}
	out, err := m.Client.TransactWriteItems(ctx, in, opts...)
	if err != nil {
		return out, err
	}
	switch n {
	case m.crash.replyLost:
		m.dead.Store(true)
		return nil, errDead
	case m.crash.replyGone:
		return nil, errors.New("writerstest: the answer was lost")
	}
	return out, err
}

// GetItem answers the living only.
func (m *mortal) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Client.GetItem(ctx, in, opts...)
}

// first makes the first try, or the storm of first tries, one of which meets the crash.
func (r *run[A, R]) first() {
	var callers sync.WaitGroup
	m := &mortal{Client: r.w.db, crash: r.crash}
	warm := r.w.ledger(r.tb, m)
	for range max(r.crash.storm, 1) {
		callers.Go(func() { _ = r.attempt(warm) }) // what counts is what the retries find
	}
	callers.Wait()
}

// attempt is one Do; a crash in Act is a panic that ends the worker.
func (r *run[A, R]) attempt(l *writers.Ledger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != errDead { //nolint:errorlint // the very value that die panics with
				panic(p)
			}
			err = errDead
		}
	}()
	tool := *r.tool
	tool.Act = r.act
	out, err := tool.Do(r.tb.Context(), l.Tenant(tenant).Session("exactly-once"), r.key, r.args)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes = append(r.bytes, out.JSON)
	}
	return err
}

// act is the tool's own Act with the crash point around it, which strikes once in a round.
func (r *run[A, R]) act(ctx context.Context, a writers.Attempt[A]) (R, error) {
	c := r.crash
	if !c.beforeAct && !c.inAct && !c.lostAct && !c.stall || !r.struck.CompareAndSwap(false, true) {
		return r.tool.Act(ctx, a)
	}
	if c.beforeAct {
		panic(errDead)
	}
	value, err := r.tool.Act(ctx, a)
	switch {
	case c.inAct:
		panic(errDead)
	case c.lostAct && err == nil:
		var none R
		return none, errors.New("writerstest: the answer of the outside system was lost")
	case c.stall:
		r.w.clock.Advance(patience)
		answer := "answered"
		if err := r.attempt(r.w.ledger(r.tb, r.w.db)); err != nil {
			answer = err.Error()
		}
		r.tb.Log("retry while the first worker stalls:", answer)
	}
	return value, err
}

// patience is longer than a lease, the clocks' skew and the effect horizon together, for tools that do not set their own far
// above the defaults; a retry moves the clock by it.
const (
	patience = 10 * time.Minute
	tries    = 8
)

// retry calls again, as an orchestrator would, until the call ends.
func (r *run[A, R]) retry() {
	r.tb.Helper()
	wait := max(patience, 2*(r.tool.Lease+r.tool.Horizon))
	var err error
	for range tries {
		if err = r.attempt(r.w.ledger(r.tb, r.w.db)); err == nil {
			return
		}
		r.w.clock.Advance(wait)
	}
	r.tb.Errorf("%s: the call never ended: %v", r.crash.name, err)
}

// same checks that every caller that got a result got the same bytes.
func (r *run[A, R]) same() {
	r.tb.Helper()
	for _, b := range r.bytes {
		if !bytes.Equal(b, r.bytes[0]) {
			r.tb.Errorf("%s: callers got different results", r.crash.name)
			return
		}
	}
}
