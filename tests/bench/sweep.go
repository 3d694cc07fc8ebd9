package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/sweeper"
)

// How many overdue reservations are swept, of how many tenants. Each reserved this many tokens.
const (
	staleRows    = 10_000
	staleTenants = 50
	staleTokens  = 5
)

// sweep counts the requests that giving overdue reservations back takes, on the local DynamoDB. The floor is a transaction for
// each row.
func sweep(ctx context.Context, e *env) ([]result, error) {
	rows := staleRows
	if e.quick {
		rows = 4 * staleTenants
	}
	server, err := stack.Start(ctx, stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		fmt.Fprintln(os.Stderr, "sweep: left out:", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	var requests atomic.Int64
	db := dynamodb.NewFromConfig(server.AWSConfig(), func(o *dynamodb.Options) { o.HTTPClient = counter{o.HTTPClient, &requests} })
	if _, err := stack.CreateTables(ctx, db, table, control, false); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	period := schema.PeriodAt(schema.Monthly, now)
	if err := seed(ctx, db, staleItems(rows, period, now)); err != nil {
		return nil, err
	}
	ledger, err := newLedger(db)
	if err != nil {
		return nil, err
	}
	s, err := sweeper.New(ledger, sweeper.Config{})
	if err != nil {
		return nil, err
	}
	requests.Store(0)
	begun := time.Now()
	report, err := s.Run(ctx)
	took := time.Since(begun)
	sent := requests.Load()
	if err != nil {
		return nil, err
	}
	if report.Expired != rows || !report.Complete {
		return nil, fmt.Errorf("%d of %d rows expired", report.Expired, rows)
	}
	if err := refunded(ctx, db, period); err != nil {
		return nil, err
	}
	return []result{{
		Name: "sweep_requests", Value: float64(sent), Unit: fmt.Sprintf("requests/%d rows", rows), Floor: float64(rows),
		Ratio: quotient(float64(sent), float64(rows)), target: target{most: 0.1}, note: fmt.Sprintf("%.1f s", took.Seconds()),
	}}, nil
}

// staleItems are plans' quota items with all tokens of the rows debited, and the rows, an hour after their deadline.
func staleItems(rows int, period string, now time.Time) []schema.Item {
	var items []schema.Item
	begun := now.Add(-2 * time.Hour)
	debited := make([]int64, staleTenants)
	for i := range rows {
		t := i % staleTenants
		debited[t] += staleTokens
		key := keyOf(int64(i))
		row := schema.Row{
			Key: schema.RowKey(staleTenant(t), session, schema.ScopeSession, key), RowID: "row-" + key, Holder: "row-" + key, Version: 1,
			Attempt: 1, State: schema.StatePending, Tool: tool, IntentHash: make([]byte, 32), Session: session, Scope: schema.ScopeSession,
			Idempotent: true, Horizon: time.Minute, Reserved: staleTokens, Debits: []schema.Debit{{Period: period, Tokens: staleTokens}},
			CreatedAt: begun, UpdatedAt: begun, Deadline: begun.Add(time.Hour), PendingBucket: schema.PendingBucket(key),
		}
		items = append(items, row.Item())
	}
	for t, spent := range debited {
		quota := schema.Quota{
			Key: schema.QuotaKey(staleTenant(t), period, 0), QuotaID: fmt.Sprintf("quota-%d", t), Version: 1, Granted: 1 << 30,
			Remaining: 1<<30 - spent, PlanVersion: 1, CreatedAt: begun, UpdatedAt: begun,
		}
		items = append(items, quota.Item())
	}
	return items
}

func staleTenant(n int) string { return fmt.Sprintf("tenant-%02d", n) }

// seed writes items as they are.
func seed(ctx context.Context, db *dynamodb.Client, items []schema.Item) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for part := range slices.Chunk(items, 25) {
		g.Go(func() error {
			writes := make([]types.WriteRequest, len(part))
			for i, it := range part {
				writes[i] = types.WriteRequest{PutRequest: &types.PutRequest{Item: it}}
			}
			out, err := db.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: writes}})
			if err == nil && len(out.UnprocessedItems) > 0 {
				return errors.New("items were left unwritten")
			}
			return err
		})
	}
	return g.Wait()
}

// refunded checks that the tenants have back all that they had.
func refunded(ctx context.Context, db *dynamodb.Client, period string) error {
	for t := range staleTenants {
		key := schema.QuotaKey(staleTenant(t), period, 0)
		out, err := db.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: aws.String(table), Key: key.Item(),
		})
		if err != nil {
			return err
		}
		q, err := schema.DecodeQuota(schema.FieldsOf(out.Item))
		if err != nil {
			return err
		}
		if q.Remaining != q.Granted {
			return fmt.Errorf("%s has %d of %d tokens after the sweep", staleTenant(t), q.Remaining, q.Granted)
		}
	}
	return nil
}

// counter counts requests, those that the SDK repeats included.
type counter struct {
	client   dynamodb.HTTPClient
	requests *atomic.Int64
}

// Do implements the SDK's HTTPClient.
func (c counter) Do(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.client.Do(r)
}
