package tests_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/sweeper"
	"toolledger/writers"
)

// Promise: five sweepers at once give back each row once: their counts add up to the number of stale rows, and the quota
// to what was granted.
func TestSweepFiveAtOnce(t *testing.T) { sweepAtOnce(t, 500) }

func TestSoakSweepFiveAtOnce(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	sweepAtOnce(t, 10_000)
}

func sweepAtOnce(t *testing.T, n int) {
	g := newSweepRig(t)
	rows, tokens := g.manyRows(n, 50)
	g.seed(rows...)
	reports := make([]sweeper.Report, 5)
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() {
			s, err := sweeper.New(g.ledgerOf(g.db, 0), sweeper.Config{})
			if err == nil {
				reports[i], err = s.Run(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			g.checkReport(reports[i])
		})
	}
	wg.Wait()
	var sum sweeper.Report
	for _, r := range reports {
		sum.Expired += r.Expired
		sum.RefundedTokens += r.RefundedTokens
		sum.Errors += r.Errors
		sum.LostRaces += r.LostRaces
	}
	t.Logf("%d rows, %d lost races", n, sum.LostRaces)
	if sum.Expired != n || sum.RefundedTokens != tokens || sum.Errors != 0 {
		t.Errorf("together: %+v, want %d rows and %d tokens", sum, n, tokens)
	}
	g.wantStates(map[string]int{schema.StateFailed: n})
	g.allRefunded()
}

// rowsOf is how many ledger rows a transaction changes, and whether one of them has the key.
func rowsOf(in any, key string) (n int, has bool) {
	for _, item := range in.(*dynamodb.TransactWriteItemsInput).TransactItems {
		if sk := schema.ValueOf(item.Update.Key[schema.SK]).Text; strings.HasPrefix(sk, schema.RowPrefix) {
			n++
			has = has || sk == schema.RowPrefix+key
		}
	}
	return n, has
}

// Promise: contention splits a batch until it gets through; what stays contended is left for the next run without
// holding up the rest, and is no error.
func TestSweepContention(t *testing.T) {
	t.Run("on every large transaction", func(t *testing.T) {
		g := newSweepRig(t)
		rows, tokens := g.manyRows(60, 2)
		g.seed(rows...)
		g.faults.harm(func(op string, in any) error {
			if op != "write" {
				return nil
			}
			if n, _ := rowsOf(in, ""); n > 4 {
				return conflict(len(in.(*dynamodb.TransactWriteItemsInput).TransactItems), n) // at the quota item
			}
			return nil
		}, nil)
		sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 60, Expired: 60, RefundedTokens: tokens})
	})
	t.Run("on one row for good", func(t *testing.T) {
		g := newSweepRig(t)
		rows, _ := g.manyRows(30, 1)
		g.seed(rows...)
		g.faults.harm(func(op string, in any) error {
			if op != "write" {
				return nil
			}
			if _, has := rowsOf(in, keyN(7)); has {
				return conflict(len(in.(*dynamodb.TransactWriteItemsInput).TransactItems), 0)
			}
			return nil
		}, nil)
		report := g.sweep(sweeper.Config{})
		if report.Expired != 29 || report.Left != 1 || report.Errors != 0 || report.Complete {
			t.Errorf("%+v", report)
		}
		g.faults.harm(nil, nil)
		if report := g.sweep(sweeper.Config{}); report.Expired != 1 {
			t.Errorf("the next run: %+v", report)
		}
	})
	t.Run("now and then", func(t *testing.T) {
		g := newSweepRig(t)
		rows, tokens := g.manyRows(200, 3)
		g.seed(rows...)
		g.faults.harm(func(op string, in any) error {
			if op == "write" && rand.N(3) == 0 {
				n := len(in.(*dynamodb.TransactWriteItemsInput).TransactItems)
				return conflict(n, rand.N(n))
			}
			return nil
		}, nil)
		sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 200, Expired: 200, RefundedTokens: tokens})
	})
}

var errLost = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}

// Promise: a lost answer is looked into before anything else is done: what was written counts once, what was not is
// written, also where the transaction is applied only after the look.
func TestSweepLostAnswers(t *testing.T) {
	for name, arm := range map[string]func(g *sweepRig){
		"after it was applied": func(g *sweepRig) {
			var n atomic.Int64
			g.faults.harm(nil, func(op string, _ any) error {
				if op == "write" && n.Add(1)%2 == 1 {
					return errLost
				}
				return nil
			})
		},
		"before it was applied": func(g *sweepRig) {
			var n atomic.Int64
			g.faults.harm(func(op string, _ any) error {
				if op == "write" && n.Add(1)%2 == 1 {
					return errLost
				}
				return nil
			}, nil)
		},
		"applied and reading back fails": func(g *sweepRig) {
			var n atomic.Int64
			g.faults.harm(func(op string, _ any) error {
				if op == "read" {
					return errLost
				}
				return nil
			}, func(op string, _ any) error {
				if op == "write" && n.Add(1)%2 == 1 {
					return errLost
				}
				return nil
			})
		},
		"applied after the look": func(g *sweepRig) {
			var mu sync.Mutex
			var late *dynamodb.TransactWriteItemsInput
			n := 0
			g.faults.harm(func(op string, in any) error {
				mu.Lock()
				defer mu.Unlock()
				if op != "write" {
					return nil
				}
				if late != nil {
					_, err := g.db.TransactWriteItems(context.Background(), late)
					g.must(err)
					late = nil
				} else if n++; n%2 == 1 {
					late = in.(*dynamodb.TransactWriteItemsInput)
					return errLost
				}
				return nil
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			rows, tokens := g.manyRows(100, 3)
			held := g.overdueRow("t-00", "s", "held", func(r *schema.Row) { r.Idempotent = false })
			unknown := g.overdueRow("t-00", "s", "unknown", func(r *schema.Row) {
				r.Idempotent, r.Verifier, r.Deadline = false, true, g.now().Add(-20*time.Minute)
			})
			g.seed(append(rows, held, unknown)...)
			arm(g)
			report := g.sweep(sweeper.Config{Concurrency: 1})
			sameReport(t, report, sweeper.Report{Found: 102, Expired: 100, Held: 1, Unknown: 1, RefundedTokens: tokens})
			for _, row := range rows {
				if got := g.row(row.Key); got.Version != 2 {
					t.Fatalf("%v was written %d times", row.Key, got.Version-1)
				}
			}
			g.wantStates(map[string]int{schema.StateFailed: 100, schema.StatePending: 2})
		})
	}
}

// Promise: a run that is cancelled at any request leaves a table that balances, and the next run goes on: nothing is
// refunded twice, nothing is forgotten.
func TestSweepKilledAnywhere(t *testing.T) {
	g := newSweepRig(t)
	rows, _ := g.manyRows(400, 7)
	g.seed(rows...)
	expired := 0
	for range 25 {
		ctx, cancel := context.WithCancel(t.Context())
		fatal, n := int64(1+rand.N(40)), atomic.Int64{}
		kill := func(string, any) error {
			if n.Add(1) == fatal {
				cancel()
			}
			return nil
		}
		if rand.N(2) == 0 {
			g.faults.harm(kill, nil)
		} else {
			g.faults.harm(nil, kill)
		}
		report, err := g.sweeper(sweeper.Config{Batch: 7}).Run(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err != nil && report.Complete {
			t.Errorf("a cancelled run calls itself complete: %+v", report)
		}
		g.checkReport(report)
		expired += report.Expired
		cancel()
		g.balanced()
	}
	g.faults.harm(nil, nil)
	last := g.sweep(sweeper.Config{})
	if expired+last.Expired > 400 {
		t.Errorf("%d rows were counted as given back, of 400", expired+last.Expired)
	}
	g.wantStates(map[string]int{schema.StateFailed: 400})
	g.allRefunded()
}

const sweepChild = "TOOLLEDGER_SWEEP_CHILD" // the endpoint that a child process sweeps

// TestSweepChildProcess is the sweeper that TestSweepKill9 kills.
func TestSweepChildProcess(t *testing.T) {
	endpoint := os.Getenv(sweepChild)
	if endpoint == "" {
		t.Skip("only as a child")
	}
	client := &faultyClient{DynamoDB: dynamodb.NewFromConfig(stack.AWSConfig(endpoint))}
	client.harm(nil, func(op string, _ any) error { fmt.Println(op); return nil })
	l, err := writers.New(client, writers.Config{
		Table: "toolledger-sweep", Now: func() time.Time { return sweepStart },
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := sweeper.New(l, sweeper.Config{Batch: 1, Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context())
	fmt.Println("swept", err)
}

// Promise: kill -9 of the sweeper's process at any point leaves nothing half done.
func TestSweepKill9(t *testing.T) { sweepKill9(t, 8) }

func TestSoakSweepKill9(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	sweepKill9(t, 100)
}

func sweepKill9(t *testing.T, times int) {
	g := newSweepRig(t)
	rows, _ := g.manyRows(50*times, 9)
	g.seed(rows...)
	endpoint := *g.db.Options().BaseEndpoint
	killed := 0
	for range times {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSweepChildProcess$", "-test.v") //nolint:gosec // this very program
		cmd.Env = append(os.Environ(), sweepChild+"="+endpoint)
		out, err := cmd.StdoutPipe()
		g.must(err)
		g.must(cmd.Start())
		lines := bufio.NewScanner(out)
		for left := 1 + rand.N(60); left > 0 && lines.Scan(); {
			if lines.Text() == "write" {
				left--
			}
		}
		time.Sleep(rand.N(3 * time.Millisecond)) // somewhere in one of the next writes
		_ = cmd.Process.Kill()
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		if !strings.Contains(string(rest), "swept") {
			killed++
		}
		g.balanced()
	}
	done := g.balanced()[schema.StateFailed]
	t.Logf("killed %d of %d while sweeping; %d of %d rows done then", killed, times, done, len(rows))
	if killed == 0 || done == 0 {
		t.Error("no sweep was killed half way: the test shows nothing")
	}
	if last := g.sweep(sweeper.Config{}); last.Expired != len(rows)-done {
		t.Errorf("the clean run expired %d, want %d", last.Expired, len(rows)-done)
	}
	g.wantStates(map[string]int{schema.StateFailed: len(rows)})
	g.allRefunded()
}

// Promise: finalize, release, extend, resolve, takeover and sweeps that meet on one row have one winner, and the books
// balance, whatever the order.
func TestSweepBarrier(t *testing.T) { sweepBarrier(t, 40) }

func TestSoakSweepBarrier(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	sweepBarrier(t, 1_000)
}

func sweepBarrier(t *testing.T, rounds int) {
	g := newSweepRig(t)
	ctx := t.Context()
	session := g.ledger.Tenant("acme").Session("s")
	g.must(g.ledger.Tenant("acme").PutPlan(ctx, writers.Plan{Tokens: 1_000_000}))
	won := map[string]int{}
	for i := range rounds {
		key := writers.SessionKey(keyN(i))
		call := writers.Call{Key: key, Tool: "ping", Args: map[string]int{"n": i}, Tokens: 3, Idempotent: true}
		hold, _, err := session.Reserve(ctx, call)
		g.must(err)
		g.advance(10 * time.Minute)
		meet := make(chan struct{})
		var wg sync.WaitGroup
		var finalized atomic.Bool
		var next atomic.Pointer[writers.Reservation]
		start := func(f func()) { wg.Go(func() { <-meet; f() }) }
		holder := func() *writers.Reservation { // each from a process of its own
			r, err := g.ledger.Tenant("acme").Resume(hold.Token())
			g.must(err)
			return r
		}
		finalizing, releasing, extending := holder(), holder(), holder()
		if i%2 == 0 { // an effect that is reported wins in the end, also late; without one the others settle it among them
			start(func() { _, err := finalizing.Finalize(ctx, "done", 3); finalized.Store(err == nil) })
		}
		start(func() { _ = releasing.Release(ctx, "no") })
		start(func() { _ = extending.Extend(ctx, time.Minute) })
		start(func() {
			_, _ = session.Resolve(ctx, key, writers.Resolution{Verdict: writers.EffectAbsent, Attempt: 1, By: "op"})
		})
		start(func() {
			if taken, _, err := session.Reserve(ctx, call); err == nil && taken != nil {
				next.Store(taken)
			}
		})
		for range 2 {
			start(func() {
				if _, err := g.sweeper(sweeper.Config{}).Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		close(meet)
		wg.Wait()
		row := g.row(schema.RowKey("acme", "s", schema.ScopeSession, keyN(i)))
		won[row.State+"/"+row.Failure]++
		if finalized.Load() && row.State != schema.StateApplied {
			t.Fatalf("round %d: finalize succeeded and the row is %s", i, row.State)
		}
		if row.State == schema.StatePending { // extended, or taken over: end it for the books of the next round
			r := hold
			if taken := next.Load(); taken != nil {
				r = taken
			}
			if err := r.Release(ctx, "end"); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		if i%10 == 9 {
			g.balanced()
		}
	}
	t.Log("rows ended as ", won)
	g.balanced()
}

// Promise: whatever the rows, the verdicts and the time, a sweep does to each row what the rules say, and no more.
func TestSweepModel(t *testing.T) {
	g := newSweepRig(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > soak(30, 300) {
			return
		}
		g.sweepModel(rt, fmt.Sprintf("toolledger-model-%d", n))
	})
}

type modelRow struct {
	row                    *schema.Row
	verdict                writers.Verdict
	state                  string
	held, waits            bool
	idempotent, verifiable bool
}

func drawModelRow(rt *rapid.T, g *sweepRig, i int) modelRow {
	m := modelRow{
		idempotent: rapid.Bool().Draw(rt, "idempotent"),
		verifiable: rapid.Bool().Draw(rt, "verifiable"),
		verdict:    writers.Verdict(rapid.IntRange(0, 2).Draw(rt, "verdict")),
	}
	age := time.Duration(rapid.SampledFrom([]int{-60, 30, 119, 121, 179, 181, 300, 599, 1200, 3599, 3601, 90000}).Draw(rt, "age")) * time.Second
	horizon := time.Duration(rapid.SampledFrom([]int{0, 60, 600, 7200}).Draw(rt, "horizon")) * time.Second
	waits := time.Duration(rapid.SampledFrom([]int{0, 0, -60, 60}).Draw(rt, "sweepAt")) * time.Second
	tenant := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "tenant")
	m.row = g.overdueRow(tenant, "s", keyN(i), func(r *schema.Row) {
		r.Idempotent, r.Horizon, r.Deadline = m.idempotent, horizon, g.now().Add(-age)
		if r.Tool = "ping"; m.verifiable {
			r.Tool = "book_flight"
		}
		if waits != 0 {
			r.SweepAt = g.now().Add(waits)
		}
		r.Debits = nil
		for shard := range rapid.IntRange(0, 3).Draw(rt, "debits") {
			r.Debits = append(r.Debits, schema.Debit{Period: "2026-11", Shard: shard, Tokens: int64(1 + shard)})
		}
		r.Reserved = schema.SumDebits(r.Debits)
	})
	m.expect(age, max(horizon, map[bool]time.Duration{true: time.Minute}[horizon == 0]), waits)
	return m
}

// expect is the table of the package comment, written down a second time.
func (m *modelRow) expect(age, horizon, waits time.Duration) {
	m.state = schema.StatePending
	unknown := func(limit time.Duration) {
		switch {
		case age <= limit:
			m.waits = true
		case m.idempotent:
			m.state = schema.StateFailed
		default:
			m.held = true
		}
	}
	switch {
	case age <= 2*time.Minute || waits > 0:
	case !m.verifiable && m.idempotent:
		m.state = schema.StateFailed
	case !m.verifiable:
		m.held = true
	case m.verdict == writers.EffectApplied:
		m.state = schema.StateApplied
	case m.verdict == writers.EffectAbsent && age > 2*time.Minute+horizon:
		m.state = schema.StateFailed
	case m.verdict == writers.EffectAbsent:
		m.waits = true
	default:
		unknown(max(time.Hour, 2*time.Minute+horizon))
	}
}

func (g *sweepRig) sweepModel(rt *rapid.T, table string) {
	ctx := context.Background()
	if _, err := stack.CreateTables(ctx, g.db, table, table+"-control", false); err != nil {
		rt.Fatal(err)
	}
	g.table = table
	g.ledger = g.ledgerOf(g.faults, 0)
	model := map[string]modelRow{}
	var rows []*schema.Row
	for i := range rapid.IntRange(1, 40).Draw(rt, "rows") {
		m := drawModelRow(rt, g, i)
		model[keyN(i)] = m
		rows = append(rows, m.row)
	}
	g.seed(rows...)
	tool := verdictTool(func(c writers.CallInfo) (string, writers.Verdict, error) {
		return "r", model[c.Key.String()].verdict, nil
	})
	if _, err := g.sweeper(sweeper.Config{Tools: []writers.AnyTool{tool}, Batch: rapid.IntRange(1, 25).Draw(rt, "batch")}).Run(ctx); err != nil {
		rt.Fatal(err)
	}
	for key, m := range model {
		got := g.row(m.row.Key)
		if got.State != m.state || got.Held != m.held || m.waits != (got.Version == 2 && got.SweepAt.After(g.now())) {
			rt.Fatalf("%s: %+v became %s, held %v, sweepAt %s; want %s, %v, waiting %v",
				key, m.row, got.State, got.Held, got.SweepAt, m.state, m.held, m.waits)
		}
	}
	g.balanced()
}
