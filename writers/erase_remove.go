package writers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// The bounds of one transaction of an Erase. Together the items that a transaction names must stay under 4 MB (DynamoDB's
// own limit), and a row may hold a result of 256 KB.
const (
	eraseBatch = 25
	eraseBytes = 3 << 20
	eraseTries = 12
)

// remove empties what a look found: rows first, the plan and the grants last, so that whoever goes on after an
// interruption finds a suspended tenant until the end.
func (e *erasure) remove(ctx context.Context, seen *look) error {
	observed, called, quota := seen.sorted()
	for _, step := range []func() error{
		func() error { return e.each(ctx, called, e.rows) },
		func() error { return e.results(ctx) },
		func() error { return e.each(ctx, observed, e.others) },
		func() error { return e.each(ctx, called, e.others) },
		func() error { return e.quota(ctx, quota) },
		func() error { return e.plan(ctx, seen.plan) },
		func() error { return e.grants(ctx, seen.grants) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// rows erases the rows of one partition.
func (e *erasure) rows(ctx context.Context, pk string) error {
	return e.partition(ctx, e.l.cfg.Table, pk, schema.RowPrefix, func(items []schema.Item) error {
		var batch []*schema.Row
		size := 0
		for _, item := range items {
			row, err := schema.DecodeRow(schema.FieldsOf(item))
			if err != nil {
				continue // it came after the look; the next one reports it
			}
			if why, _, err := e.obstacle(ctx, row); err != nil || why != obstacleNone {
				if err != nil {
					return err
				}
				continue
			}
			weight := rowWeight(row)
			if len(batch) == eraseBatch || len(batch) > 0 && size+weight > eraseBytes {
				if err := e.eraseRows(ctx, batch); err != nil {
					return err
				}
				batch, size = nil, 0
			}
			batch, size = append(batch, row), size+weight
		}
		return e.eraseRows(ctx, batch)
	})
}

// rowWeight is the size of a row, rounded up.
func rowWeight(r *schema.Row) int {
	n := 8 << 10 // identifiers, hashes and lookup, each at their limit
	if r.ResultJSON != nil {
		n += len(*r.ResultJSON)
	}
	return n
}

// eraseRows marks rows, removes their results, then the rows themselves. Rows that changed meanwhile stay for the next
// look.
func (e *erasure) eraseRows(ctx context.Context, rows []*schema.Row) error {
	marked, err := e.send(ctx, rows, e.mark)
	if err != nil {
		return err
	}
	for _, r := range marked {
		if r.ResultRef == nil {
			continue
		}
		if err := e.l.cfg.Results.Delete(ctx, r.ResultRef.Ref); err != nil {
			return e.resultsFailed(err)
		}
		e.count(func(p *ErasureReport) { p.Results++ })
	}
	gone, err := e.send(ctx, marked, func(r *schema.Row) (types.TransactWriteItem, bool) {
		return e.l.tables.DeleteRow(r.Key, r.RowID, r.Version), true
	})
	e.count(func(p *ErasureReport) { p.Erased.Rows += len(gone) })
	return err
}

// mark marks a row, unless it is marked already or past its retention, when anybody may remove it. A row that was sent
// carries the version that it then has.
func (e *erasure) mark(r *schema.Row) (types.TransactWriteItem, bool) {
	if r.Erasing || r.Expired(e.l.now()) {
		return types.TransactWriteItem{}, false
	}
	item := e.l.tables.MarkErasing(r, e.cfg.By, e.cfg.Why, e.l.now())
	return item, true
}

// send writes one item for each row for which write gives one, in one transaction, and returns the rows that are done,
// with the version that a mark gives them. Rows whose condition fails drop out; a row that is gone counts as deleted.
func (e *erasure) send(ctx context.Context, rows []*schema.Row, write func(*schema.Row) (types.TransactWriteItem, bool)) ([]*schema.Row, error) {
	var done, todo []*schema.Row
	var items []types.TransactWriteItem
	for _, r := range rows {
		if item, ok := write(r); ok {
			todo, items = append(todo, r), append(items, item)
		} else {
			done = append(done, r)
		}
	}
	for n := 1; len(todo) > 0; n++ {
		refused, err := e.transact(ctx, items, n)
		switch {
		case err != nil:
			return nil, err
		case refused == nil:
			for i, r := range todo {
				if items[i].Update != nil {
					r.Version++
				}
			}
			return append(done, todo...), nil
		}
		rest, restItems := todo[:0:0], items[:0:0]
		for i, reason := range refused.Reasons {
			switch {
			case reason.Code != codeConditionFailed:
				rest, restItems = append(rest, todo[i]), append(restItems, items[i])
			case reason.Item == nil && items[i].Delete != nil: // gone: most likely by a try whose answer was lost
				done = append(done, todo[i])
			}
		}
		todo, items = rest, restItems
	}
	return done, nil
}

const codeConditionFailed = "ConditionalCheckFailed"

// transact sends items once. Refused conditions are returned; contention and lost answers are waited out. After a lost
// answer all conditions of what came through fail, and the next look takes such rows up where they are.
func (e *erasure) transact(ctx context.Context, items []types.TransactWriteItem, n int) (*protocol.Refused, error) {
	tx := protocol.NewTx(len(items))
	for i, item := range items {
		tx.Add(protocol.Part{Kind: protocol.PartRow, Index: i}, item)
	}
	err := protocol.Send(ctx, e.l.db, tx)
	if err == nil {
		return nil, nil
	}
	no, refused := errors.AsType[*protocol.Refused](err)
	_, unsure := errors.AsType[*protocol.Unsure](err)
	if !refused && !unsure || ctx.Err() != nil {
		return nil, e.failed(ctx, err)
	}
	if refused {
		answer, _ := no.Decide()
		if answer == protocol.Broken {
			return nil, rejected(e.op, no)
		}
		if answer == protocol.RowRefused {
			return no, nil
		}
	}
	if n >= eraseTries {
		return nil, e.failed(ctx, err)
	}
	if err := protocol.Pause(ctx, n); err != nil {
		return nil, e.failed(ctx, err)
	}
	return &protocol.Refused{Reasons: make([]protocol.Reason, len(items))}, nil // all of them again
}

// results removes what the store has of the tenant beyond what rows point at, where it can.
func (e *erasure) results(ctx context.Context) error {
	store, ok := e.l.cfg.Results.(TenantEraser)
	if !ok {
		return nil
	}
	n, err := store.EraseTenant(ctx, e.t.id)
	e.count(func(p *ErasureReport) { p.Results += n })
	if err != nil {
		return e.resultsFailed(err)
	}
	return nil
}

func (e *erasure) resultsFailed(err error) error {
	f := unavailable(e.op, err)
	f.Reason = "the result store did not remove a result; what is erased stays erased; erase again to go on"
	return f
}

// others erases the observations or the session of one partition.
func (e *erasure) others(ctx context.Context, pk string) error {
	return e.partition(ctx, e.l.cfg.Table, pk, "", func(items []schema.Item) error {
		var batch []types.TransactWriteItem
		var erased ErasedItems
		for _, item := range items {
			key := keyOf(item)
			switch id, err := schema.ParseKey(key); {
			case err != nil:
				continue
			case id.Kind == schema.KindObservation:
				erased.Observations++
			case id.Kind == schema.KindSession:
				erased.Sessions++
			default: // a row that came after the look
				continue
			}
			batch = append(batch, e.l.tables.DeleteItem(key))
			if len(batch) == eraseBatch {
				if err := e.deleteAll(ctx, batch, erased); err != nil {
					return err
				}
				batch, erased = nil, ErasedItems{}
			}
		}
		return e.deleteAll(ctx, batch, erased)
	})
}

// quota erases quota items, all shards of a period at once: they are made at once, and whoever meets only some of them
// could neither read the period nor make it anew.
func (e *erasure) quota(ctx context.Context, partitions []string) error {
	periods := map[string][]schema.Key{}
	for _, pk := range partitions {
		if err := e.partition(ctx, e.l.cfg.Table, pk, "", func(items []schema.Item) error {
			for _, item := range items {
				key := keyOf(item)
				if id, err := schema.ParseKey(key); err == nil && id.Kind == schema.KindQuota {
					periods[id.Period] = append(periods[id.Period], key)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for _, period := range slices.Sorted(maps.Keys(periods)) {
		if err := e.period(ctx, period, periods[period]); err != nil {
			return err
		}
	}
	return nil
}

// period erases the quota items of a period: those that were found, and those that the plan says there may be, since a look that takes its
// time can find some of a period that began meanwhile. The plan has to be suspended still, or gone: under any other one calls are paid
// from these items, and its giver wins.
func (e *erasure) period(ctx context.Context, period string, found []schema.Key) error {
	tenant := string(e.t.id)
	for n := 1; n <= eraseTries; n++ {
		plan, err := e.l.peekPlan(ctx, e.t.id)
		if err != nil {
			return e.failed(ctx, err)
		}
		keys, check := slices.Clone(found), e.l.tables.CheckNoPlan(tenant)
		if plan != nil && !plan.Suspended {
			return nil
		}
		if plan != nil {
			check = e.l.tables.CheckPlan(tenant, plan.Version)
			for i := range int(plan.Shards) {
				if key := schema.QuotaKey(tenant, period, i); !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
		items := []types.TransactWriteItem{check}
		for _, key := range keys {
			items = append(items, e.l.tables.DeleteItem(key))
		}
		refused, err := e.transact(ctx, items, n)
		switch {
		case err != nil:
			return err
		case refused == nil:
			e.count(func(p *ErasureReport) { p.Erased.QuotaItems += len(found) })
			return nil
		}
	}
	return nil // the plan does not stay the same; the next look finds the items again
}

// deleteAll removes items whatever they hold by now.
func (e *erasure) deleteAll(ctx context.Context, items []types.TransactWriteItem, what ErasedItems) error {
	for n := 1; len(items) > 0; n++ {
		again, err := e.transact(ctx, items, n)
		if err != nil {
			return err
		}
		if again == nil {
			e.count(func(p *ErasureReport) {
				p.Erased.Observations += what.Observations
				p.Erased.Sessions += what.Sessions
				p.Erased.QuotaItems += what.QuotaItems
				p.Erased.Grants += what.Grants
			})
			return nil
		}
	}
	return nil
}

// plan removes the plan as it was looked at; one that changed meanwhile is left to the next look. Suspending changed it.
func (e *erasure) plan(ctx context.Context, seen *schema.Plan) error {
	if seen == nil {
		return nil
	}
	for n := 1; ; n++ {
		now, err := e.l.peekPlan(ctx, e.t.id)
		if err != nil {
			return e.failed(ctx, err)
		}
		if now == nil || !now.Suspended {
			return nil
		}
		refused, err := e.transact(ctx, []types.TransactWriteItem{e.l.tables.DeletePlan(now.Key, now.Version)}, n)
		e.l.plans.forget(e.t.id)
		switch {
		case err != nil:
			return fmt.Errorf("plan: %w", err)
		case refused == nil:
			e.count(func(p *ErasureReport) { p.Erased.Plans++ })
			return nil
		case n >= eraseTries:
			return nil
		}
	}
}

func (e *erasure) grants(ctx context.Context, keys []schema.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), eraseBatch)
		items := make([]types.TransactWriteItem, n)
		for i, key := range keys[:n] {
			items[i] = e.l.tables.DeleteGrant(key)
		}
		if err := e.deleteAll(ctx, items, ErasedItems{Grants: n}); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
