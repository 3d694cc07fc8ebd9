package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/audit"
	"toolledger/internal/protocol"
	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// ledgerStart is when the clocks of these tests begin.
var ledgerStart = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

// ledgerServer is the dynoxide that the writers' tests share; each test has tables of its own. The child ends with this
// process.
var ledgerServer = sync.OnceValues(func() (*stack.Server, error) { return stack.Start(context.Background(), stack.Config{}) })

var ledgerTables atomic.Int64

// ledgerRig is an empty ledger with a clock that the test moves, seen by two processes: the one under test, whose requests
// meet faults, and a clean one that prepares and looks.
type ledgerRig struct {
	testing.TB
	db     *dynamodb.Client // clean
	faulty *dynamodb.Client
	in     *faults.Injector
	table  string
	ledger *writers.Ledger // under test
	clean  *writers.Ledger
	millis atomic.Int64
	log    *ledgerLog
}

// newLedgerRig makes a rig. Tenant "acme" has a plan of 1,000 tokens a month in one shard.
func newLedgerRig(tb testing.TB, changes ...func(*writers.Config)) *ledgerRig {
	tb.Helper()
	g := bareLedgerRig(tb, changes...)
	g.plan("acme", writers.Plan{Tokens: 1000})
	g.warm("acme")
	return g
}

// warm creates a tenant's quota items of the running period.
func (g *ledgerRig) warm(tenant string) {
	g.Helper()
	hold, _, err := g.clean.Tenant(writers.TenantID(tenant)).Session("warm").Reserve(g.Context(), call("warm"))
	g.must(err)
	g.must(hold.Release(g.Context(), "warm"))
}

func bareLedgerRig(tb testing.TB, changes ...func(*writers.Config)) *ledgerRig {
	tb.Helper()
	srv, err := ledgerServer()
	if errors.Is(err, stack.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	g := &ledgerRig{
		TB: tb, db: dynamodb.NewFromConfig(srv.AWSConfig(), faults.Quick), in: faults.New(nil), log: &ledgerLog{},
		table: fmt.Sprintf("toolledger-writers-%d", ledgerTables.Add(1)),
	}
	g.faulty = dynamodb.NewFromConfig(srv.AWSConfig(), g.in.Attach, faults.Quick)
	if _, err := stack.CreateTables(tb.Context(), g.db, g.table, g.table+"-control", false); err != nil {
		tb.Fatal(err)
	}
	g.set(ledgerStart)
	g.ledger, g.clean = g.process(g.faulty, changes...), g.process(g.db, changes...)
	return g
}

// process is a ledger of the rig's tables as another process would have it.
func (g *ledgerRig) process(db writers.DynamoDB, changes ...func(*writers.Config)) *writers.Ledger {
	g.Helper()
	cfg := writers.Config{
		Table: g.table, Now: g.now, Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, change := range changes {
		change(&cfg)
	}
	l, err := writers.New(db, cfg)
	g.must(err)
	return l
}

func (g *ledgerRig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *ledgerRig) now() time.Time          { return time.UnixMilli(g.millis.Load()).UTC() }
func (g *ledgerRig) set(t time.Time)         { g.millis.Store(t.UnixMilli()) }
func (g *ledgerRig) advance(d time.Duration) { g.millis.Add(d.Milliseconds()) }

// pastVerdict moves the clock to where "absent" counts for a reservation made now: deadline, skew and horizon are over.
func (g *ledgerRig) pastVerdict() { g.advance(time.Minute + 2*time.Minute + time.Minute + time.Second) }

func (g *ledgerRig) plan(tenant string, p writers.Plan) {
	g.Helper()
	g.must(g.clean.Tenant(writers.TenantID(tenant)).PutPlan(g.Context(), p))
}

// session is acme's session s1 in the process under test; other is the same in the clean process.
func (g *ledgerRig) session() writers.Session { return g.ledger.Tenant("acme").Session("s1") }
func (g *ledgerRig) other() writers.Session   { return g.clean.Tenant("acme").Session("s1") }

// call is a call of 5 tokens.
func call(key string, changes ...func(*writers.Call)) writers.Call {
	c := writers.Call{Key: writers.SessionKey(key), Tool: "book", Args: json.RawMessage(`{"a":1}`), Tokens: 5}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// reserve makes a reservation that must succeed.
func (g *ledgerRig) reserve(s writers.Session, c writers.Call) *writers.Reservation {
	g.Helper()
	hold, done, err := s.Reserve(g.Context(), c)
	g.must(err)
	if hold == nil || done != nil {
		g.Fatalf("want a reservation, got %v and %v", hold, done)
	}
	return hold
}

// commit makes a commit that must succeed.
func (g *ledgerRig) commit(s writers.Session, c writers.Call, result any) writers.Raw {
	g.Helper()
	out, err := s.Commit(g.Context(), c, result)
	g.must(err)
	return out
}

// verified reserves anew as somebody who has verified that the attempt on the row did not take effect.
func (g *ledgerRig) verified(s writers.Session, c writers.Call) *writers.Reservation {
	g.Helper()
	row, err := s.Get(g.Context(), c.Key)
	g.must(err)
	c.VerifiedAbsent = row.Ref()
	return g.reserve(s, c)
}

// expire gives a pending reservation of the key back, as the sweeper would.
func (g *ledgerRig) expire(key string) {
	g.Helper()
	row := g.row(key)
	g.pastVerdict()
	g.must(g.expireRow(row))
}

func (g *ledgerRig) expireRow(row *schema.Row) error {
	p, now := g.clean.Plumbing(), g.now()
	tx := protocol.NewTx(2)
	tx.Add(protocol.Part{Kind: protocol.PartRow}, p.Tables.Fail(row.Key, protocol.AsRead(row), protocol.Failure{
		Kind: schema.FailureExpired, Unverified: schema.UnverifiedExpired, Now: now, ExpiresAt: p.ExpiresAt(row, row.Debits, now),
	}))
	p.Tables.AddAmounts(tx, protocol.Refunds("acme", row.Debits))
	return protocol.Send(context.WithoutCancel(g.Context()), g.db, tx)
}

// wantCode fails the test unless err is a *writers.Error of that code.
func (g *ledgerRig) wantCode(err error, code writers.Code) *writers.Error {
	g.Helper()
	e, ok := errors.AsType[*writers.Error](err)
	if !ok || e.Code != code {
		g.Fatalf("want %s, got %v", code, err)
	}
	if strings.Contains(e.Error(), secret) {
		g.Errorf("the error tells an argument: %v", e)
	}
	return e
}

// secret is in arguments that must not come out again.
const secret = "hunter2"

// rowKey is the key of one of acme's rows.
func rowKey(key string) schema.Key { return schema.RowKey("acme", "s1", schema.ScopeSession, key) }

// row reads one of acme's rows; nil where there is none.
func (g *ledgerRig) row(key string) *schema.Row {
	g.Helper()
	item := g.item(g.table, rowKey(key))
	if item == nil {
		return nil
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	g.must(err)
	return row
}

func (g *ledgerRig) item(table string, key schema.Key) schema.Item {
	g.Helper()
	out, err := g.db.GetItem(context.WithoutCancel(g.Context()), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true), Key: keyItem(key),
	})
	g.must(err)
	if len(out.Item) == 0 {
		return nil
	}
	return out.Item
}

// remove deletes an item, as DynamoDB's TTL would.
func (g *ledgerRig) remove(key schema.Key) {
	g.Helper()
	_, err := g.db.DeleteItem(context.WithoutCancel(g.Context()), &dynamodb.DeleteItemInput{TableName: &g.table, Key: keyItem(key)})
	g.must(err)
}

// replace writes an item as it is.
func (g *ledgerRig) replace(item schema.Item) {
	g.Helper()
	_, err := g.db.PutItem(context.WithoutCancel(g.Context()), &dynamodb.PutItemInput{TableName: &g.table, Item: item})
	g.must(err)
}

func keyItem(k schema.Key) schema.Item {
	return schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)}
}

// shard reads one quota item; nil where there is none.
func (g *ledgerRig) shard(tenant, period string, shard int) *schema.Quota {
	g.Helper()
	item := g.item(g.table, schema.QuotaKey(tenant, period, shard))
	if item == nil {
		return nil
	}
	q, err := schema.DecodeQuota(schema.FieldsOf(item))
	g.must(err)
	return q
}

// remaining is what acme has left in the running month.
func (g *ledgerRig) remaining() int64 {
	g.Helper()
	q, err := g.clean.Tenant("acme").Quota(context.WithoutCancel(g.Context()))
	g.must(err)
	return q.Remaining
}

func (g *ledgerRig) wantRemaining(want int64) {
	g.Helper()
	if got := g.remaining(); got != want {
		g.Errorf("%d tokens remain, want %d", got, want)
	}
}

// balanced audits the table.
func (g *ledgerRig) balanced() *audit.Report {
	g.Helper()
	report, err := audit.Run(context.WithoutCancel(g.Context()), g.db, audit.Config{Table: g.table, Now: g.now})
	g.must(err)
	if !report.OK {
		g.Errorf("the books do not balance: %+v", report)
	}
	return report
}

// wantRow checks a row's state and attempts; suspects are named in full.
func (g *ledgerRig) wantRow(key, state string, attempt, applied int64, suspects ...string) *schema.Row {
	g.Helper()
	row := g.row(key)
	if row == nil {
		g.Fatalf("%s: no row, want %s", key, state)
	}
	if row.State != state || row.Attempt != attempt || row.AppliedAttempt != applied {
		g.Errorf("%s: %s, attempt %d, applied %d; want %s, %d, %d", key, row.State, row.Attempt, row.AppliedAttempt, state, attempt, applied)
	}
	got := slices.Sorted(slices.Values(row.Suspects))
	if !slices.Equal(got, slices.Sorted(slices.Values(suspects))) {
		g.Errorf("%s: suspects %v, want %v", key, got, suspects)
	}
	return row
}

// items counts all items of both tables: what a refused call must leave as it was.
func (g *ledgerRig) items() map[string]schema.Item {
	g.Helper()
	all := map[string]schema.Item{}
	for _, table := range []string{g.table, g.table + "-control"} {
		pages := dynamodb.NewScanPaginator(g.db, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(context.WithoutCancel(g.Context()))
			g.must(err)
			for _, item := range page.Items {
				pk, sk := item[schema.PK].(*types.AttributeValueMemberS).Value, item[schema.SK].(*types.AttributeValueMemberS).Value
				if !strings.HasPrefix(pk, "OBS#") {
					all[table+" "+pk+" "+sk] = item
				}
			}
		}
	}
	return all
}

// observation reads the counters of one of acme's calls; zero where there are none.
func (g *ledgerRig) observation(key string) schema.Observation {
	g.Helper()
	item := g.item(g.table, schema.ObservationKey(rowKey(key)))
	if item == nil {
		return schema.Observation{}
	}
	o, err := schema.DecodeObservation(schema.FieldsOf(item))
	g.must(err)
	return *o
}

// once lets run happen just before the nth transaction of the process under test.
func (g *ledgerRig) once(n int, run func()) {
	g.in.Set(faults.At(faults.Call, "TransactWriteItems", n, faults.Pass().Before(run)))
}

// ledgerLog is a log that goroutines share.
type ledgerLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *ledgerLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *ledgerLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
