package writerstest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/audit"
	"toolledger/internal/stack"
	"toolledger/writers"
)

// Clock is a clock that tests move. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock; back, too, where d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// begin is where a Clock starts: in the middle of a month, so that no test meets a roll-over that it did not ask for.
func begin() time.Time { return time.Date(2026, time.January, 15, 12, 0, 0, 0, time.UTC) }

// tenant is the tenant that NewLedger provisions, and its tokens.
const (
	tenant       = "acme"
	tenantTokens = 1_000_000
)

// world is a local DynamoDB with the ledger's tables.
type world struct {
	db    *dynamodb.Client
	table string
	clock *Clock
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	ctx := tb.Context()
	srv, err := stack.Start(ctx, stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Stop)
	w := &world{
		db: dynamodb.NewFromConfig(srv.AWSConfig()), table: "writerstest-" + strings.ToLower(rand.Text()[:8]),
		clock: &Clock{now: begin()},
	}
	if _, err := stack.CreateTables(ctx, w.db, w.table, w.table+"-control", false); err != nil {
		tb.Fatal(err)
	}
	return w
}

// ledger is one process's view of the world.
func (w *world) ledger(tb testing.TB, db writers.DynamoDB) *writers.Ledger {
	tb.Helper()
	l, err := writers.New(db, writers.Config{Table: w.table, Now: w.clock.Now})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (w *world) provision(tb testing.TB, l *writers.Ledger) {
	tb.Helper()
	if err := l.Tenant(tenant).PutPlan(tb.Context(), writers.Plan{Tokens: tenantTokens}); err != nil {
		tb.Fatal(err)
	}
}

// NewLedger returns an empty ledger in memory whose tenant "acme" has a million tokens a month, stopped with the test. Its
// clock stands still until it is moved. It skips the test, saying how to install it, where no local DynamoDB is.
func NewLedger(tb testing.TB) (*writers.Ledger, *Clock) {
	tb.Helper()
	w := newWorld(tb)
	l := w.ledger(tb, w.db)
	w.provision(tb, l)
	return l, w.clock
}

// Balanced fails the test unless the books balance, every item is in a legal state and nothing is pending.
func Balanced(tb testing.TB, l *writers.Ledger) {
	tb.Helper()
	p := l.Plumbing()
	db, ok := p.Client.(audit.DynamoDB)
	if !ok {
		tb.Fatal("writerstest.Balanced: the ledger's client cannot Scan; make the ledger with *dynamodb.Client or with NewLedger")
	}
	report, err := audit.Run(context.WithoutCancel(tb.Context()), db, audit.Config{Table: p.Tables.Ledger, Skew: p.Skew, Now: p.Now})
	if err != nil {
		tb.Fatal(err)
	}
	for _, b := range report.Unbalanced.Items {
		tb.Errorf("books of %s in %s (shard %d): granted %d, remaining %d, debits %d", b.Tenant, b.Period, b.Shard, b.Granted, b.Remaining, b.Debits)
	}
	for _, f := range report.Illegal.Items {
		tb.Errorf("%s %s %s: %s %s", f.Kind, f.PK, f.SK, f.Attr, f.Rule)
	}
	if n := report.States[string(writers.StatePending)]; n > 0 {
		tb.Errorf("%d reservations are still pending", n)
	}
	if !report.OK && !tb.Failed() {
		tb.Errorf("the audit is not content: %+v", report)
	}
}
