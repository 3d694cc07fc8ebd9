package tests_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
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
	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/sweeper"
	"toolledger/writers"
)

// sweepStart is when the clocks of the sweeper's tests begin.
var sweepStart = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// soaking tells whether there is time for the large numbers.
func soaking() bool { return os.Getenv("TOOLLEDGER_SOAK") != "" }

func soak(small, large int) int {
	if soaking() {
		return large
	}
	return small
}

// sweepRig is an empty ledger on a dynoxide of its own, with a clock that the test moves and a client that the test can
// make fail.
type sweepRig struct {
	testing.TB
	db     *dynamodb.Client
	faults *faultyClient
	table  string
	ledger *writers.Ledger
	millis atomic.Int64
	log    *syncBuffer
}

func newSweepRig(tb testing.TB) *sweepRig {
	tb.Helper()
	srv, err := stack.Start(tb.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Stop)
	g := &sweepRig{TB: tb, db: dynamodb.NewFromConfig(srv.AWSConfig()), table: "toolledger-sweep", log: &syncBuffer{}}
	if _, err := stack.CreateTables(tb.Context(), g.db, g.table, g.table+"-control", false); err != nil {
		tb.Fatal(err)
	}
	g.setTime(sweepStart)
	g.faults = &faultyClient{DynamoDB: g.db}
	g.ledger = g.ledgerOf(g.faults, 0)
	return g
}

// ledgerOf is a ledger of the rig's tables whose clock is off by d.
func (g *sweepRig) ledgerOf(client writers.DynamoDB, d time.Duration) *writers.Ledger {
	l, err := writers.New(client, writers.Config{
		Table: g.table, Now: func() time.Time { return g.now().Add(d) },
		Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	g.must(err)
	return l
}

func (g *sweepRig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *sweepRig) now() time.Time { return time.UnixMilli(g.millis.Load()).UTC() }

func (g *sweepRig) setTime(t time.Time) { g.millis.Store(t.UnixMilli()) }

func (g *sweepRig) advance(d time.Duration) { g.millis.Add(d.Milliseconds()) }

// sweeper makes a sweeper of the rig's ledger.
func (g *sweepRig) sweeper(cfg sweeper.Config) *sweeper.Sweeper {
	g.Helper()
	s, err := sweeper.New(g.ledger, cfg)
	g.must(err)
	return s
}

// sweep runs one sweep, which must succeed.
func (g *sweepRig) sweep(cfg sweeper.Config) sweeper.Report {
	g.Helper()
	report, err := g.sweeper(cfg).Run(g.Context())
	g.must(err)
	g.checkReport(report)
	return report
}

// checkReport holds every report to its own sum: each row that was found became exactly one thing.
func (g *sweepRig) checkReport(r sweeper.Report) {
	g.Helper()
	if sum := r.Finalized + r.Expired + r.Held + r.Unknown + r.Early + r.LostRaces + r.Errors + r.Left; sum != r.Found {
		g.Errorf("found %d rows but accounted for %d: %+v", r.Found, sum, r)
	}
}

// overdueRow is a pending row of 5 tokens whose deadline passed an hour before the rig's time.
func (g *sweepRig) overdueRow(tenant, session, key string, changes ...func(*schema.Row)) *schema.Row {
	now := g.now()
	row := &schema.Row{
		Key: schema.RowKey(tenant, session, schema.ScopeSession, key), RowID: "row-" + tenant + "-" + session + "-" + key,
		Holder: "h", Version: 1, Attempt: 1, State: schema.StatePending, Tool: "book_flight", IntentHash: make([]byte, 32),
		Session: session, Scope: schema.ScopeSession, Idempotent: true, Horizon: time.Minute, Reserved: 5,
		Debits:    []schema.Debit{{Period: schema.PeriodAt(schema.Monthly, now), Tokens: 5}},
		CreatedAt: now.Add(-2 * time.Hour), UpdatedAt: now.Add(-2 * time.Hour), Deadline: now.Add(-time.Hour),
		PendingBucket: schema.PendingBucket(key),
	}
	for _, change := range changes {
		change(row)
	}
	return row
}

// put writes items as they are, in batches.
func (g *sweepRig) put(items ...schema.Item) {
	g.Helper()
	for part := range slices.Chunk(items, 25) {
		var writes []types.WriteRequest
		for _, item := range part {
			writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
		}
		out, err := g.db.BatchWriteItem(g.Context(), &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{g.table: writes},
		})
		g.must(err)
		if len(out.UnprocessedItems) > 0 {
			g.Fatal("unprocessed items")
		}
	}
}

// seed writes pending rows and the quota items that they debited, each granted a million.
func (g *sweepRig) seed(rows ...*schema.Row) {
	g.Helper()
	quotas := map[schema.Key]*schema.Quota{}
	var items []schema.Item
	for _, row := range rows {
		items = append(items, row.Item())
		id, err := schema.ParseKey(row.Key)
		g.must(err)
		for _, d := range row.Debits {
			key := d.Key(id.Tenant)
			if quotas[key] == nil {
				quotas[key] = &schema.Quota{
					Key: key, QuotaID: "q", Version: 1, Granted: 1_000_000, Remaining: 1_000_000, Shard: int64(d.Shard),
					PlanVersion: 1, CreatedAt: sweepStart.AddDate(0, 0, -2), UpdatedAt: sweepStart.AddDate(0, 0, -2),
				}
			}
			quotas[key].Remaining -= d.Tokens
		}
	}
	for _, q := range quotas {
		items = append(items, q.Item())
	}
	g.put(items...)
}

// row reads a row; nil where there is none.
func (g *sweepRig) row(key schema.Key) *schema.Row {
	g.Helper()
	item := g.item(key)
	if item == nil {
		return nil
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	g.must(err)
	return row
}

func (g *sweepRig) quota(tenant, period string, shard int) *schema.Quota {
	g.Helper()
	q, err := schema.DecodeQuota(schema.FieldsOf(g.item(schema.QuotaKey(tenant, period, shard))))
	g.must(err)
	return q
}

func (g *sweepRig) item(key schema.Key) schema.Item {
	g.Helper()
	out, err := g.db.GetItem(context.WithoutCancel(g.Context()), &dynamodb.GetItemInput{
		TableName: &g.table, ConsistentRead: aws.Bool(true),
		Key: schema.Item{schema.PK: schema.S(key.PK), schema.SK: schema.S(key.SK)},
	})
	g.must(err)
	if len(out.Item) == 0 {
		return nil
	}
	return out.Item
}

// all reads the whole table.
func (g *sweepRig) all() map[schema.Key]schema.Item {
	g.Helper()
	items := map[schema.Key]schema.Item{}
	pages := dynamodb.NewScanPaginator(g.db, &dynamodb.ScanInput{TableName: &g.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(g.Context())
		g.must(err)
		for _, item := range page.Items {
			key := schema.Key{PK: item[schema.PK].(*types.AttributeValueMemberS).Value, SK: item[schema.SK].(*types.AttributeValueMemberS).Value}
			items[key] = item
		}
	}
	return items
}

// balanced audits the table and returns how many rows are in each state.
func (g *sweepRig) balanced() map[string]int {
	g.Helper()
	report, err := audit.Run(g.Context(), g.db, audit.Config{Table: g.table, Now: g.now})
	g.must(err)
	if !report.OK {
		g.Errorf("the books do not balance: %+v", report)
	}
	return report.States
}

// wantStates compares the rows' states.
func (g *sweepRig) wantStates(want map[string]int) {
	g.Helper()
	if got := g.balanced(); !maps.Equal(got, want) {
		g.Errorf("states %v, want %v", got, want)
	}
}

// faultyClient is a real client to which a test can do harm: before runs ahead of each request and may answer for it,
// after may replace the answer of a request that went through.
type faultyClient struct {
	writers.DynamoDB

	mu            sync.Mutex
	before, after func(op string, in any) error
	requests      map[string]int
}

// harm sets what happens around requests from now on.
func (f *faultyClient) harm(before, after func(op string, in any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after, f.requests = before, after, nil
}

// count returns the number of requests since the last harm.
func (f *faultyClient) count() (sum int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.requests {
		sum += n
	}
	return sum
}

func through[I, O any](ctx context.Context, f *faultyClient, op string, in *I,
	send func(context.Context, *I, ...func(*dynamodb.Options)) (*O, error), opts []func(*dynamodb.Options),
) (*O, error) {
	f.mu.Lock()
	if f.requests == nil {
		f.requests = map[string]int{}
	}
	f.requests[op]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(op, in); err != nil {
			return nil, err
		}
	}
	out, err := send(ctx, in, opts...)
	if err == nil && after != nil {
		if err := after(op, in); err != nil {
			return nil, err
		}
	}
	return out, err
}

func (f *faultyClient) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return through(ctx, f, "write", in, f.DynamoDB.TransactWriteItems, o)
}

func (f *faultyClient) TransactGetItems(ctx context.Context, in *dynamodb.TransactGetItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	return through(ctx, f, "read", in, f.DynamoDB.TransactGetItems, o)
}

func (f *faultyClient) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return through(ctx, f, "get", in, f.DynamoDB.GetItem, o)
}

func (f *faultyClient) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return through(ctx, f, "query", in, f.DynamoDB.Query, o)
}

// conflict is what DynamoDB answers where another transaction is at item i of n.
func conflict(n, i int) error {
	reasons := make([]types.CancellationReason, n)
	for j := range reasons {
		reasons[j].Code = aws.String("None")
	}
	reasons[i].Code = aws.String("TransactionConflict")
	return &types.TransactionCanceledException{CancellationReasons: reasons}
}

// syncBuffer is a log that goroutines share.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func keyN(i int) string { return fmt.Sprintf("k-%05d", i) }
