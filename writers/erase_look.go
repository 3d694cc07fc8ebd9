package writers

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/schema"
)

// erasure is one call of Erase.
type erasure struct {
	l   *Ledger
	t   Tenant
	op  string
	cfg Erasure

	mu     sync.Mutex
	report ErasureReport
}

// count changes the report and tells of it.
func (e *erasure) count(change func(*ErasureReport)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.report)
	if e.cfg.Progress != nil {
		e.cfg.Progress(e.report)
	}
}

func (e *erasure) snapshot() ErasureReport {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.report
	r.Blocks = append([]ErasureBlock{}, r.Blocks...)
	return r
}

// maxPartitions bounds what one look remembers; what it leaves out the next round finds.
const maxPartitions = 200_000

// look is what one reading of both tables found of the tenant.
type look struct {
	e *erasure

	mu         sync.Mutex
	found      ErasedItems
	partitions map[string]bool // of the ledger table, up to maxPartitions
	plan       *schema.Plan
	grants     []schema.Key

	blocked, open, unknown int
	blocks                 []ErasureBlock
	until                  time.Time // the latest of the blocks that end by themselves
	stuck                  bool      // some do not
}

// look reads the ledger table in segments and the tenant's partition of the control table.
func (e *erasure) look(ctx context.Context) (*look, error) {
	k := &look{e: e, partitions: map[string]bool{}}
	if err := k.control(ctx); err != nil {
		return nil, err
	}
	readers, scanning := errgroup.WithContext(ctx)
	for segment := range e.cfg.Segments {
		readers.Go(func() error { return k.segment(scanning, segment) })
	}
	if err := readers.Wait(); err != nil {
		return nil, e.failed(ctx, err)
	}
	slices.SortFunc(k.blocks, func(a, b ErasureBlock) int { return strings.Compare(a.PK+"\x00"+a.SK, b.PK+"\x00"+b.SK) })
	return k, nil
}

// control reads the plan and the grants.
func (k *look) control(ctx context.Context) error {
	plan := schema.PlanKey(string(k.e.t.id))
	return k.e.partition(ctx, k.e.l.cfg.Control, plan.PK, "", func(items []schema.Item) error {
		for _, item := range items {
			key := keyOf(item)
			id, err := schema.ParseKey(key)
			switch {
			case err == nil && id.Kind == schema.KindGrant:
				k.found.Grants++
				k.grants = append(k.grants, key)
			case err == nil && id.Kind == schema.KindPlan:
				p, err := schema.DecodePlan(schema.FieldsOf(item))
				if err != nil {
					k.block(obstacleForeign, ErasureBlock{PK: key.PK, SK: key.SK, Reason: "cannot be read: " + err.Error()})
					continue
				}
				k.found.Plans++
				k.plan = p
			default:
				k.block(obstacleForeign, ErasureBlock{PK: key.PK, SK: key.SK, Reason: reasonForeign})
			}
		}
		return nil
	})
}

// partition walks the items of one partition, a page at a time; prefix narrows the sort key.
func (e *erasure) partition(ctx context.Context, table, pk, prefix string, take func([]schema.Item) error) error {
	in := &dynamodb.QueryInput{
		TableName: &table, ConsistentRead: new(true), KeyConditionExpression: new("#pk = :pk"),
		ExpressionAttributeNames:  map[string]string{"#pk": schema.PK},
		ExpressionAttributeValues: schema.Item{":pk": schema.S(pk)},
	}
	if prefix != "" {
		in.KeyConditionExpression = new("#pk = :pk AND begins_with(#sk, :prefix)")
		in.ExpressionAttributeNames["#sk"] = schema.SK
		in.ExpressionAttributeValues[":prefix"] = schema.S(prefix)
	}
	for {
		out, err := e.l.db.Query(ctx, in)
		if err != nil {
			return e.failed(ctx, err)
		}
		if err := take(out.Items); err != nil || len(out.LastEvaluatedKey) == 0 {
			return err
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

func keyOf(item schema.Item) schema.Key {
	return schema.Key{PK: schema.ValueOf(item[schema.PK]).Text, SK: schema.ValueOf(item[schema.SK]).Text}
}

func (k *look) segment(ctx context.Context, segment int) error {
	own := schema.PlanKey(string(k.e.t.id)).PK
	in := &dynamodb.ScanInput{
		TableName: &k.e.l.cfg.Table, ConsistentRead: new(true),
		FilterExpression:         new("#pk = :pk OR begins_with(#pk, :own) OR begins_with(#pk, :observed)"),
		ExpressionAttributeNames: map[string]string{"#pk": schema.PK},
		ExpressionAttributeValues: schema.Item{
			":pk": schema.S(own), ":own": schema.S(own + "#"),
			":observed": schema.S(schema.ObservationKey(schema.Key{PK: own}).PK + "#"),
		},
	}
	if k.e.cfg.Segments > 1 {
		in.Segment, in.TotalSegments = new(int32(segment)), new(int32(k.e.cfg.Segments)) //nolint:gosec // at most 64
	}
	for {
		out, err := k.e.cfg.Scan.Scan(ctx, in)
		if err != nil {
			return err
		}
		for _, item := range out.Items {
			if err := k.item(ctx, item); err != nil {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// item sorts one item and sees whether it is in the way.
func (k *look) item(ctx context.Context, item schema.Item) error {
	key := keyOf(item)
	id, err := schema.ParseKey(key)
	var row *schema.Row
	var in ErasureBlock
	why := obstacleNone
	switch {
	case err != nil:
		why, in.Reason = obstacleForeign, reasonForeign
	case id.Kind == schema.KindRow:
		if row, err = schema.DecodeRow(schema.FieldsOf(item)); err != nil {
			why, in.Reason = obstacleForeign, "cannot be read: "+err.Error()
		} else if why, in, err = k.e.obstacle(ctx, row); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if why != obstacleNone {
		in.PK, in.SK = key.PK, key.SK
		if row != nil {
			in.Session, in.Key, in.Scope, in.State, in.Attempt = row.Session, id.CallKey, string(row.Scope), State(row.State), int(row.Attempt)
		}
		k.block(why, in)
	}
	switch id.Kind {
	case schema.KindRow:
		k.found.Rows++
	case schema.KindObservation:
		k.found.Observations++
	case schema.KindSession:
		k.found.Sessions++
	case schema.KindQuota:
		k.found.QuotaItems++
	case schema.KindPlan, schema.KindGrant, schema.KindLease, schema.KindUnknown: // not in this table
	}
	if len(k.partitions) < maxPartitions {
		k.partitions[key.PK] = true
	}
	return nil
}

func (k *look) block(why obstacle, b ErasureBlock) {
	k.blocked++
	switch why {
	case obstacleOpen:
		k.open++
	case obstacleUnknown:
		k.unknown++
	case obstacleNone, obstacleForeign:
	}
	if b.Until.IsZero() {
		k.stuck = true
	} else if b.Until.After(k.until) {
		k.until = b.Until
	}
	if len(k.blocks) < maxBlocks {
		k.blocks = append(k.blocks, b)
	}
}

// obstacle is why an item must stay.
type obstacle int

const (
	obstacleNone    obstacle = iota
	obstacleOpen             // a call that is not over
	obstacleUnknown          // a call of which nobody knows whether it took effect
	obstacleForeign          // not to be erased by this program, or not as it is configured
)

const (
	reasonOpen    = "is pending: let it end, or let a sweep settle it"
	reasonHeld    = "is held: a person has to resolve it"
	reasonMayLand = "has only just ended: an act that was issued in time may still land"
	reasonUnknown = "failed, and nobody knows whether it took effect: if it did, resolve it as applied; else wait"
	reasonVouched = "failed, and only a person says that it did not take effect: if it did after all, resolve it as applied; else wait"
	reasonForeign = "is none of toolledger's items: remove it by hand"
	reasonStore   = "its result is in a result store that is not configured here"
)

// obstacle tells whether a row must stay for now. A call of which nobody knows is asked about, and recorded where it
// happened.
func (e *erasure) obstacle(ctx context.Context, r *schema.Row) (obstacle, ErasureBlock, error) {
	now := e.l.now()
	switch {
	case r.ResultRef != nil && e.l.cfg.Results == nil:
		return obstacleForeign, ErasureBlock{Reason: reasonStore}, nil
	case r.Expired(now):
		return obstacleNone, ErasureBlock{}, nil
	}
	unknown := r.State == schema.StatePending || r.State == schema.StateFailed && r.Unverified != 0
	if unknown {
		var err error
		if unknown, err = e.unknown(ctx, r); err != nil {
			return obstacleNone, ErasureBlock{}, err
		}
	}
	settles := e.l.settles(r)
	switch {
	case unknown && r.Held:
		return obstacleOpen, ErasureBlock{Reason: reasonHeld}, nil
	case unknown && r.State == schema.StatePending:
		return obstacleOpen, ErasureBlock{Reason: reasonOpen}, nil
	case unknown && r.Unverified == schema.UnverifiedVouched:
		return obstacleUnknown, ErasureBlock{Reason: reasonVouched, Until: r.ExpiresAt}, nil
	case unknown:
		return obstacleUnknown, ErasureBlock{Reason: reasonUnknown, Until: r.ExpiresAt}, nil
	case (!r.Deadline.IsZero() || !r.LastDeadline.IsZero()) && !now.After(settles):
		return obstacleOpen, ErasureBlock{Reason: reasonMayLand, Until: settles}, nil
	}
	return obstacleNone, ErasureBlock{}, nil
}

// unknown asks about a call. What happened is recorded, as any verifier's word is; the rest stays unknown.
func (e *erasure) unknown(ctx context.Context, r *schema.Row) (bool, error) {
	if e.cfg.Verify == nil || e.cfg.DryRun {
		return true, nil
	}
	info, err := infoOf(r)
	if err != nil {
		return false, err
	}
	result, verdict, err := e.ask(ctx, info)
	if err != nil || verdict != EffectApplied {
		return true, ctx.Err()
	}
	moved, err := e.l.settleVerified(ctx, r, result)
	if code, ok := errors.AsType[Code](err); ok && (code == ErrTooLarge || code == ErrInvalid) {
		return true, nil // it happened, and what was said of it cannot be recorded: a person has to
	}
	if err != nil || !moved {
		return true, err
	}
	e.count(func(p *ErasureReport) { p.Settled++ })
	return false, nil
}

// ask asks Erasure.Verify. One that panics knows nothing: it runs beside others, where its panic would end the program.
func (e *erasure) ask(ctx context.Context, info CallInfo) (result json.RawMessage, verdict Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, verdict, err = nil, EffectUnknown, nil
		}
	}()
	result, verdict, err = e.cfg.Verify(ctx, info)
	if err == nil && verdict == EffectApplied && len(result) == 0 {
		result = json.RawMessage("null")
	}
	return result, verdict, err
}

// sorted are the partitions in the order in which they are emptied: observations, sessions and calls, quota items.
func (k *look) sorted() (observed, called, quota []string) {
	own := schema.PlanKey(string(k.e.t.id)).PK
	for _, pk := range slices.Sorted(maps.Keys(k.partitions)) {
		switch {
		case !strings.HasPrefix(pk, own):
			observed = append(observed, pk)
		case pk == own, strings.HasPrefix(pk, own+"#SHARD#"):
			quota = append(quota, pk)
		default:
			called = append(called, pk)
		}
	}
	return observed, called, quota
}

// each does something in several partitions at once.
func (e *erasure) each(ctx context.Context, partitions []string, do func(context.Context, string) error) error {
	workers, working := errgroup.WithContext(ctx)
	workers.SetLimit(eraseWorkers)
	for _, pk := range partitions {
		if working.Err() != nil {
			break
		}
		workers.Go(func() error { return do(working, pk) })
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// failed is the answer to a request that failed. Nothing of an Erase is lost by stopping: what is gone is gone.
func (e *erasure) failed(ctx context.Context, err error) error {
	err = failure(ctx, e.op, err)
	if f, ok := errors.AsType[*Error](err); ok && f.Code == ErrUnavailable && f.RetryAfter > 0 {
		f.Reason = "DynamoDB did not answer; what is erased stays erased; erase again to go on"
	}
	return err
}

const eraseWorkers = 4
