package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/stack"
	"toolledger/writers"
)

// units counts what DynamoDB would bill for each operation, on the local DynamoDB. The floor is what the operation's items
// cost at 1 KB each: 2 units in a transaction, 1 for each change of the index of pending rows, 1 for an observation.
func units(ctx context.Context, _ *env) ([]result, error) {
	server, err := stack.Start(ctx, stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		fmt.Fprintln(os.Stderr, "units: left out:", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	meter := &meter{Client: dynamodb.NewFromConfig(server.AWSConfig())}
	if _, err := stack.CreateTables(ctx, meter, table, control, false); err != nil {
		return nil, err
	}
	ledger, err := newLedger(meter)
	if err != nil {
		return nil, err
	}
	t := ledger.Tenant(tenant)
	if err := t.PutPlan(ctx, writers.Plan{Tokens: 1 << 40}); err != nil {
		return nil, err
	}
	u := &unitsRun{session: t.Session(session)}
	if err := u.commit(ctx, u.next()); err != nil { // creates the period's quota
		return nil, err
	}
	var results []result
	for _, op := range unitCases {
		if op.before != nil {
			if err := op.before(u, ctx); err != nil {
				return nil, fmt.Errorf("before %s: %w", op.name, err)
			}
		}
		meter.reset()
		if err := op.do(u, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		results = append(results, result{
			Name: op.name + "_write_units", Value: meter.writes, Unit: "write units/call", Floor: op.floor,
			Ratio: meter.writes / op.floor, target: target{most: 1}, note: meter.String(),
		})
	}
	return results, nil
}

// unitCase is one operation; what before does is not counted.
type unitCase struct {
	name       string
	floor      float64
	before, do func(*unitsRun, context.Context) error
}

var unitCases = []unitCase{
	{"commit", 4, nil, func(u *unitsRun, ctx context.Context) error { return u.commit(ctx, u.next()) }},
	{"commit_cursor", 6, nil, func(u *unitsRun, ctx context.Context) error { return u.commit(ctx, u.nextWithCursor()) }},
	{"reserve", 5, nil, (*unitsRun).reserve},
	{"extend", 4, (*unitsRun).reserve, func(u *unitsRun, ctx context.Context) error { return u.hold.Extend(ctx, time.Hour) }},
	{"finalize", 3, (*unitsRun).reserve, func(u *unitsRun, ctx context.Context) error { return u.finalize(ctx, cost) }},
	{"finalize_refund", 5, (*unitsRun).reserve, func(u *unitsRun, ctx context.Context) error { return u.finalize(ctx, cost/2) }},
	{"reserve_finalize", 8, nil, func(u *unitsRun, ctx context.Context) error {
		if err := u.reserve(ctx); err != nil {
			return err
		}
		return u.finalize(ctx, cost)
	}},
	{"release", 5, (*unitsRun).reserve, func(u *unitsRun, ctx context.Context) error { return u.hold.Release(ctx, "not applied") }},
	{"replay", 5, nil, func(u *unitsRun, ctx context.Context) error { return u.commit(ctx, u.call) }},
	{"replay_read", 1, nil, func(u *unitsRun, ctx context.Context) error {
		c := u.call
		c.Retry = true
		return u.commit(ctx, c)
	}},
}

func unitNames() []string {
	names := make([]string, len(unitCases))
	for i, c := range unitCases {
		names[i] = c.name + "_write_units"
	}
	return names
}

// unitsRun makes the operations, each on a call of its own but for replays, which repeat the last commit.
type unitsRun struct {
	session writers.Session
	n       int64
	call    writers.Call // of the last commit
	hold    *writers.Reservation
}

func (u *unitsRun) next() writers.Call {
	c := u.nextWithCursor()
	c.Cursor = ""
	return c
}

func (u *unitsRun) nextWithCursor() writers.Call {
	u.n++
	return committed(u.n)
}

func (u *unitsRun) commit(ctx context.Context, c writers.Call) error {
	_, err := u.session.Commit(ctx, c, received)
	if c.Cursor == "" {
		u.call = c
	}
	return err
}

func (u *unitsRun) reserve(ctx context.Context) error {
	hold, _, err := u.session.Reserve(ctx, u.next())
	u.hold = hold
	return err
}

func (u *unitsRun) finalize(ctx context.Context, charged int64) error {
	_, err := u.hold.Finalize(ctx, received, charged)
	return err
}

// meter adds up what requests consume. DynamoDB bills a refused transaction too but does not say how much: that is
// counted by the size of its items.
type meter struct {
	*dynamodb.Client

	requests      int
	writes, reads float64
	bySize        bool // some of it
}

func (m *meter) reset() { m.requests, m.writes, m.reads, m.bySize = 0, 0, 0, false }

func (m *meter) String() string {
	text := fmt.Sprintf("%d requests", m.requests)
	if m.requests == 1 {
		text = "1 request"
	}
	if m.reads > 0 {
		text += fmt.Sprintf(", %g read units", m.reads)
	}
	if m.bySize {
		text += ", the refused transaction by item size"
	}
	return text
}

func (m *meter) wrote(c *types.ConsumedCapacity) {
	if c != nil && c.CapacityUnits != nil {
		m.writes += *c.CapacityUnits
	}
}

// TransactWriteItems counts write units.
func (m *meter) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	m.requests++
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.TransactWriteItems(ctx, in, opts...)
	if _, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		m.bySize = true
		return out, errors.Join(err, m.refused(ctx, in.TransactItems))
	}
	if err != nil {
		return out, err
	}
	for i := range out.ConsumedCapacity {
		m.wrote(&out.ConsumedCapacity[i])
	}
	return out, nil
}

// refused counts a refused transaction: two units for each KB of each of its items, as it is in the table or would be.
func (m *meter) refused(ctx context.Context, items []types.TransactWriteItem) error {
	for _, it := range items {
		size := 0
		switch {
		case it.Put != nil:
			size = sizeOf(it.Put.Item)
		case it.Update != nil:
			out, err := m.Client.GetItem(ctx, &dynamodb.GetItemInput{TableName: it.Update.TableName, Key: it.Update.Key})
			if err != nil {
				return err
			}
			size = sizeOf(out.Item)
		}
		m.writes += float64(2 * kilobytes(size))
	}
	return nil
}

// UpdateItem counts write units.
func (m *meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	m.requests++
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, in, opts...)
	if err == nil {
		m.wrote(out.ConsumedCapacity)
	}
	return out, err
}

// GetItem counts read units.
func (m *meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	m.requests++
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.GetItem(ctx, in, opts...)
	if err == nil && out.ConsumedCapacity != nil && out.ConsumedCapacity.CapacityUnits != nil {
		m.reads += *out.ConsumedCapacity.CapacityUnits
	}
	return out, err
}
