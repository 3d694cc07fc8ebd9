// Package rig gives tests of doors and examples a whole ledger on a local DynamoDB: tables with streams, a clock, and the
// events that the streams tell of.
package rig

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/eventcheck"
	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/writers"
)

// server is the one local DynamoDB of a test process. It ends with it.
var server = sync.OnceValues(func() (*stack.Server, error) { return stack.Start(context.Background(), stack.Config{}) })

// Rig is a ledger of its own, whose tenant "acme" has 1,000 tokens a month.
type Rig struct {
	TB     testing.TB
	AWS    aws.Config
	DB     *dynamodb.Client
	Table  string
	Ledger *writers.Ledger

	arn string
	mu  sync.Mutex
	now time.Time
}

// New returns an empty rig. It skips the test where no local DynamoDB is.
func New(tb testing.TB, changes ...func(*writers.Config)) *Rig {
	tb.Helper()
	srv, err := server()
	if errors.Is(err, stack.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	g := &Rig{
		TB: tb, AWS: srv.AWSConfig(), DB: dynamodb.NewFromConfig(srv.AWSConfig()), Table: "rig-" + strings.ToLower(rand.Text()[:10]),
		now: time.Date(2026, time.November, 30, 1, 53, 2, 0, time.UTC),
	}
	made, err := stack.CreateTables(tb.Context(), g.DB, g.Table, g.Table+"-control", true)
	if err != nil {
		tb.Fatal(err)
	}
	g.arn = made[0].StreamARN
	g.Ledger = g.Process(g.DB, changes...)
	g.Plan("acme", writers.Plan{Tokens: 1000})
	return g
}

// Process is the ledger as another process has it.
func (g *Rig) Process(db writers.DynamoDB, changes ...func(*writers.Config)) *writers.Ledger {
	g.TB.Helper()
	cfg := writers.Config{Table: g.Table, Now: g.Now}
	for _, change := range changes {
		change(&cfg)
	}
	l, err := writers.New(db, cfg)
	if err != nil {
		g.TB.Fatal(err)
	}
	return l
}

// Now is the rig's time. It stands still.
func (g *Rig) Now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// Advance moves the clock.
func (g *Rig) Advance(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

// Plan gives a tenant a plan.
func (g *Rig) Plan(tenant string, p writers.Plan) {
	g.TB.Helper()
	if err := g.Ledger.Tenant(writers.TenantID(tenant)).PutPlan(g.TB.Context(), p); err != nil {
		g.TB.Fatal(err)
	}
}

// Remaining is what a tenant has left.
func (g *Rig) Remaining(tenant string) int64 {
	g.TB.Helper()
	q, err := g.Ledger.Tenant(writers.TenantID(tenant)).Quota(g.TB.Context())
	if err != nil {
		g.TB.Fatal(err)
	}
	return q.Remaining
}

// CreateTable makes a table of a tool's own with one string key.
func (g *Rig) CreateTable(name, key string) {
	g.TB.Helper()
	_, err := g.DB.CreateTable(g.TB.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		g.TB.Fatal(err)
	}
}

// Items are all items of a table.
func (g *Rig) Items(table string) []map[string]types.AttributeValue {
	g.TB.Helper()
	var all []map[string]types.AttributeValue
	pages := dynamodb.NewScanPaginator(g.DB, &dynamodb.ScanInput{TableName: &table, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(g.TB.Context())
		if err != nil {
			g.TB.Fatal(err)
		}
		all = append(all, page.Items...)
	}
	return all
}

// Events are all events that the ledger's stream has told of, as the deployed consumer would publish them.
func (g *Rig) Events() []events.Event {
	g.TB.Helper()
	all := &streams.Collector{}
	c, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: streams.PublisherFunc(eventcheck.Publish(g.TB, all.Publish)), Now: g.Now})
	if err != nil {
		g.TB.Fatal(err)
	}
	p, err := streams.NewPoller(streams.PollerConfig{
		Streams: dynamodbstreams.NewFromConfig(g.AWS), StreamARN: g.arn, FromHorizon: true, Idle: 10 * time.Millisecond,
	}, c)
	if err != nil {
		g.TB.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.TB.Context(), time.Minute)
	defer cancel()
	if err := p.Drain(ctx); err != nil {
		g.TB.Fatal(err)
	}
	return all.Events()
}

// Envelope is an event as EventBridge delivers it.
func Envelope(tb testing.TB, ev events.Event) json.RawMessage {
	tb.Helper()
	b, err := json.Marshal(map[string]any{
		"version": "0", "id": rand.Text(), "source": events.Source, "detail-type": ev.DetailType(), "detail": ev,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
