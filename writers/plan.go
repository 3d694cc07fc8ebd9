package writers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Plan is what a tenant may spend.
type Plan struct {
	Tokens    int64  // per period, 0 to 2^53
	Period    Period // zero means Monthly
	Shards    int    // quota items to spread a busy tenant over, at most 64; 0 means 1; they may only grow within a period
	Overdraft int64  // how far below zero a final charge may take the quota; late settlement always debits in full
}

// Period is how long a plan's tokens last. Periods begin at midnight UTC.
type Period int

// The periods.
const (
	Monthly Period = iota
	Daily
	Always
)

// Quota is the state of one period, summed over its shards.
type Quota struct {
	Period             string // "2026-11", "2026-11-30", "ALWAYS"
	Granted, Remaining int64
	ResetsAt           time.Time // zero for Always
	Suspended          bool
	Shards             []QuotaShard
}

// QuotaShard is one quota item.
type QuotaShard struct{ Granted, Remaining int64 }

// quotaKeep is how long a past period's quota items stay, so that late refunds find them.
const quotaKeep = 40 * 24 * time.Hour

func newShard(tenant, period string, shard int, plan *schema.Plan, now time.Time) *schema.Quota {
	q := &schema.Quota{
		Key: schema.QuotaKey(tenant, period, shard), QuotaID: rand.Text(), Version: 1, Shard: int64(shard),
		PlanVersion: plan.Version, Suspended: plan.Suspended, CreatedAt: now, UpdatedAt: now,
	}
	if end := schema.PeriodEnd(period); !end.IsZero() {
		q.ExpiresAt = end.Add(quotaKeep)
	}
	return q
}

// opPlan is the Op of errors about plans.
const opPlan = "plan"

func (p Plan) check() error {
	const op = opPlan
	switch {
	case p.Tokens < 0 || p.Tokens > schema.MaxTokens:
		return invalid(op, "tokens", "must be between 0 and 2^53")
	case p.Period < Monthly || p.Period > Always:
		return invalid(op, "period", "must be Monthly, Daily or Always")
	case p.Shards < 0 || p.Shards > schema.MaxShards:
		return invalid(op, "shards", fmt.Sprintf("must be between 1 and %d", schema.MaxShards))
	case p.Overdraft < 0 || p.Overdraft > schema.MaxTokens:
		return invalid(op, "overdraft", "must be between 0 and 2^53")
	}
	return nil
}

// running is one period that is current now, or is so on a clock within the skew.
type running struct {
	name   string
	shards []*schema.Quota // those that exist
}

// snapshot is a plan with the quota items that a change of it must reach, read at one moment.
type snapshot struct {
	plan    *schema.Plan // nil: none
	periods []running
}

// readSnapshot reads the plan and, for each period of the given kind that is current within the skew, all its shards.
func (l *Ledger) readSnapshot(ctx context.Context, t TenantID, kind *schema.PeriodKind) (snapshot, error) {
	for range protocol.MaxTries {
		plan, err := l.peekPlan(ctx, t)
		if err != nil {
			return snapshot{}, err
		}
		snap := snapshot{plan: plan}
		k := periodKind(kind, snap)
		same := true
		for _, name := range l.currentPeriods(k) {
			again, shards, err := l.readQuota(ctx, t, name, schema.MaxShards)
			if err != nil {
				return snapshot{}, err
			}
			same = same && sameVersion(plan, again)
			if shards, err = present(shards); err != nil {
				return snapshot{}, err
			}
			snap.periods = append(snap.periods, running{name, shards})
		}
		if same && l.stillCurrent(snap, k) {
			return snap, nil
		}
	}
	return snapshot{}, errors.New("the plan does not stay the same")
}

// currentPeriods are the periods that some process may take for the running one: a fast clock may have created the next, a
// slow one still debits the last.
func (l *Ledger) currentPeriods(k schema.PeriodKind) []string {
	now := l.now()
	return slices.Compact([]string{schema.PeriodAt(k, now.Add(-l.cfg.Skew)), schema.PeriodAt(k, now.Add(l.cfg.Skew))})
}

// stillCurrent tells whether a snapshot holds every period that is current now: reading it may have taken until another one
// began, which a change made from it would then miss.
func (l *Ledger) stillCurrent(s snapshot, k schema.PeriodKind) bool {
	return !slices.ContainsFunc(l.currentPeriods(k), func(name string) bool {
		return !slices.ContainsFunc(s.periods, func(r running) bool { return r.name == name })
	})
}

// periodKind is the kind that is asked for, else the plan's.
func periodKind(kind *schema.PeriodKind, s snapshot) schema.PeriodKind {
	switch {
	case kind != nil:
		return *kind
	case s.plan != nil:
		return s.plan.Period
	}
	return schema.Monthly
}

// present cuts off the shards that do not exist. They are created and grow without gaps: a period with a gap was changed by
// hand.
func present(shards []*schema.Quota) ([]*schema.Quota, error) {
	n := slices.Index(shards, nil)
	if n < 0 {
		return shards, nil
	}
	if slices.ContainsFunc(shards[n:], func(q *schema.Quota) bool { return q != nil }) {
		return nil, &schema.DecodeError{Rule: "a shard of the period is missing"}
	}
	return shards[:n], nil
}

func sameVersion(a, b *schema.Plan) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version
}

// samePlan tells whether now is the very plan that was sent: whoever else sent an equal one over the same version wanted
// the same.
func samePlan(now, sent *schema.Plan) bool {
	if now == nil {
		return false
	}
	a, b := *now, *sent
	same := a.UpdatedAt.Equal(b.UpdatedAt)
	a.UpdatedAt, b.UpdatedAt = time.Time{}, time.Time{}
	return same && a == b
}

func (l *Ledger) peekPlan(ctx context.Context, t TenantID) (*schema.Plan, error) {
	item, err := l.getItem(ctx, l.cfg.Control, schema.PlanKey(string(t)))
	if err != nil || item == nil {
		return nil, err
	}
	return schema.DecodePlan(schema.FieldsOf(item))
}

// peekBack reads a plan after an answer was lost, also where the caller's context has ended.
func (l *Ledger) peekBack(ctx context.Context, t TenantID) (*schema.Plan, error) {
	ctx, cancel := outlive(ctx, readBackTime)
	defer cancel()
	return l.peekPlan(ctx, t)
}

// changePlan reads, builds and sends until the change went through under the plan that it was made from.
func (t Tenant) changePlan(ctx context.Context, op string, kind *schema.PeriodKind,
	build func(snapshot) (*schema.Plan, *protocol.Tx, error),
) error {
	for n := range protocol.MaxTries {
		snap, err := t.l.readSnapshot(ctx, t.id, kind)
		if err != nil {
			return failure(ctx, op, err)
		}
		plan, tx, err := build(snap)
		if err != nil || tx == nil {
			return err
		}
		if !t.l.stillCurrent(snap, periodKind(kind, snap)) {
			continue // building read more, and a period began meanwhile
		}
		err = protocol.Send(ctx, t.l.db, tx)
		if err == nil {
			t.l.plans.put(plan, t.id, t.l.now())
			return nil
		}
		t.l.plans.forget(t.id)
		no, refused := errors.AsType[*protocol.Refused](err)
		_, unsure := errors.AsType[*protocol.Unsure](err)
		switch {
		case unsure:
			// The plan itself tells whether the change was applied.
			now, readErr := t.l.peekBack(ctx, t.id)
			if readErr == nil && samePlan(now, plan) {
				return nil
			}
			if ctx.Err() != nil || n+1 >= protocol.MaxLost {
				return failure(ctx, op, err)
			}
		case !refused:
			return failure(ctx, op, err)
		default:
			if answer, _ := no.Decide(); answer == protocol.Broken {
				return rejected(op, no)
			}
		}
		if err := protocol.Pause(ctx, n+1); err != nil {
			return failure(ctx, op, err)
		}
	}
	return contention(op, protocol.MaxTries)
}

// PutPlan sets the tenant's plan, at once for the running period too; it leaves suspension alone. Running quota items
// change relatively: what was spent stays spent, what was granted on top stays granted.
// Errors: ErrInvalid, ErrMissingTenant, ErrUnavailable.
func (t Tenant) PutPlan(ctx context.Context, p Plan) error {
	const op = opPlan
	if err := t.check(op); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if p.Shards == 0 {
		p.Shards = 1
	}
	kind := schema.PeriodKind(p.Period)
	return t.changePlan(ctx, op, &kind, func(s snapshot) (*schema.Plan, *protocol.Tx, error) {
		return t.planChange(op, p, s)
	})
}

func (t Tenant) planChange(op string, p Plan, s snapshot) (*schema.Plan, *protocol.Tx, error) {
	now := t.l.now()
	next := &schema.Plan{
		Key: schema.PlanKey(string(t.id)), Version: 1, Tokens: p.Tokens, Period: schema.PeriodKind(p.Period),
		Shards: int64(p.Shards), Overdraft: p.Overdraft, UpdatedAt: now,
	}
	var read int64
	if s.plan != nil {
		read = s.plan.Version
		next.Version, next.Suspended = read+1, s.plan.Suspended
	}
	tx := protocol.NewTx(8)
	tx.Add(protocol.Part{Kind: protocol.PartPlan}, t.l.tables.PutPlan(next, read))
	for _, r := range s.periods {
		if len(r.shards) > p.Shards {
			return nil, nil, invalid(op, "shards", fmt.Sprintf(
				"may only grow within a period: %s has %d", r.name, len(r.shards)))
		}
		if len(r.shards) == 0 {
			key := schema.QuotaKey(string(t.id), r.name, 0)
			tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: key}, t.l.tables.CheckAbsent(key))
			continue
		}
		t.changePeriod(tx, r, next, now)
	}
	if len(tx.Items) > protocol.MaxItems {
		return nil, nil, &Error{
			Code: ErrUnavailable, Op: op, RetryAfter: 2 * t.l.cfg.Skew,
			Reason: "two periods of many shards are current at once; nothing was written; repeat it once the new period has begun",
		}
	}
	return next, tx, nil
}

// changePeriod changes the quota items of one running period by the difference of the plans, and moves tokens to shards
// that are new.
func (t Tenant) changePeriod(tx *protocol.Tx, r running, next *schema.Plan, now time.Time) {
	var base int64
	remaining := make([]int64, next.Shards)
	for _, q := range r.shards {
		base += q.Granted - q.Extra
		remaining[q.Shard] = q.Remaining
	}
	deltas := spread(remaining, len(r.shards) < len(remaining), next.Tokens-base)
	for i, delta := range deltas {
		key := schema.QuotaKey(string(t.id), r.name, i)
		part := protocol.Part{Kind: protocol.PartQuota, Key: key}
		if i >= len(r.shards) {
			q := newShard(string(t.id), r.name, i, next, now)
			q.Granted, q.Remaining = delta, delta
			tx.Add(part, t.l.tables.PutShard(q))
			continue
		}
		change := protocol.QuotaChange{Granted: delta, Remaining: delta}
		if r.shards[i].Suspended != next.Suspended {
			change.Suspend = &next.Suspended
		}
		if delta == 0 && change.Suspend == nil {
			continue
		}
		if delta < 0 && remaining[i]+delta >= 0 {
			change.AtLeast = -delta
		}
		tx.Add(part, t.l.tables.ChangeQuota(key, change, now))
	}
}

// spread shares delta out over shards with the given remaining tokens. A raise first fills what is below zero, since what
// one shard owes another must not spend, and goes to all alike then; tokens are taken from the richest, never more than
// they have; where shards are new the whole is levelled, which moves tokens to them. What cannot be taken anywhere takes
// shard 0 below zero: the plan was lowered below what is spent.
func spread(remaining []int64, grown bool, delta int64) []int64 {
	if grown && sum(remaining)+delta >= 0 {
		return level(remaining, delta)
	}
	if delta < 0 {
		return lower(remaining, -delta)
	}
	deltas := make([]int64, len(remaining))
	for i, r := range remaining {
		deltas[i] = min(max(-r, 0), delta)
		delta -= deltas[i]
	}
	for i := range deltas {
		deltas[i] += share(delta, i, len(remaining))
	}
	return deltas
}

// level brings all shards as near to each other as the total allows.
func level(remaining []int64, delta int64) []int64 {
	total := sum(remaining) + delta
	deltas := make([]int64, len(remaining))
	for i, r := range remaining {
		deltas[i] = share(total, i, len(remaining)) - r
	}
	return deltas
}

// lower takes n tokens from the richest shards.
func lower(remaining []int64, n int64) []int64 {
	deltas := make([]int64, len(remaining))
	order := make([]int, len(remaining))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case remaining[a] > remaining[b]:
			return -1
		case remaining[a] < remaining[b]:
			return 1
		}
		return 0
	})
	for _, i := range order {
		take := min(max(remaining[i], 0), n)
		deltas[i] -= take
		if n -= take; n == 0 {
			return deltas
		}
	}
	deltas[0] -= n
	return deltas
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}

// Grant adds tokens to the running period once per key: the same grant again changes nothing.
// Errors: ErrInvalid, ErrMissingTenant, ErrNotProvisioned, ErrUnavailable.
func (t Tenant) Grant(ctx context.Context, key string, tokens int64) error {
	const op = "grant"
	if err := t.check(op); err != nil {
		return err
	}
	if err := schema.CheckID("key", key, schema.MaxGrant); err != nil {
		return invalidID(op, err)
	}
	if tokens < 1 || tokens > schema.MaxTokens {
		return invalid(op, "tokens", "must be between 1 and 2^53")
	}
	for n := range protocol.MaxTries {
		done, err := t.tryGrant(ctx, op, key, tokens)
		if lost(err) && ctx.Err() == nil && n+1 < protocol.MaxLost {
			err = nil // the next try finds the grant, if it was made
		}
		if done || err != nil {
			return wrapFailure(ctx, op, err)
		}
		if err := protocol.Pause(ctx, n+1); err != nil {
			return failure(ctx, op, err)
		}
	}
	return contention(op, protocol.MaxTries)
}

func (t Tenant) tryGrant(ctx context.Context, op, key string, tokens int64) (done bool, err error) {
	plan, err := t.l.readPlan(ctx, op, t.id)
	if err != nil {
		return false, err
	}
	now := t.l.now()
	period := schema.PeriodAt(plan.Period, now)
	quota := schema.QuotaKey(string(t.id), period, schema.Bucket(key, int(plan.Shards)))
	tx := protocol.NewTx(2)
	tx.Add(protocol.Part{Kind: protocol.PartGrant}, t.l.tables.Grant(string(t.id), key, tokens, now))
	tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: quota}, t.l.tables.ChangeQuota(quota,
		protocol.QuotaChange{Granted: tokens, Remaining: tokens, Extra: tokens}, now))
	err = protocol.Send(ctx, t.l.db, tx)
	no, refused := errors.AsType[*protocol.Refused](err)
	if err == nil || !refused {
		return err == nil, err
	}
	switch answer, i := no.Decide(); answer {
	case protocol.GrantRefused:
		return true, checkGrant(op, tokens, no.Reasons[i].Item)
	case protocol.QuotaRefused:
		_, err := t.l.createQuota(ctx, op, t.id, period)
		return false, err
	case protocol.Contended:
		return false, nil
	default:
		return false, rejected(op, no)
	}
}

// checkGrant tells a repeated grant from another one under the same key.
func checkGrant(op string, tokens int64, item schema.Item) error {
	if item == nil {
		return nil
	}
	if v := schema.ValueOf(item[schema.ATokens]); v.Text != fmt.Sprint(tokens) {
		return invalid(op, "key", "was used for a grant of "+v.Text+" tokens")
	}
	return nil
}

func wrapFailure(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	return failure(ctx, op, err)
}

// Suspend refuses, or accepts again, every new debit of the tenant from now on. Refunds, final charges and calls that
// cost nothing go on. Errors: ErrMissingTenant, ErrInvalid, ErrNotProvisioned, ErrUnavailable.
func (t Tenant) Suspend(ctx context.Context, suspended bool) error {
	const op = "suspend"
	if err := t.check(op); err != nil {
		return err
	}
	return t.changePlan(ctx, op, nil, func(s snapshot) (*schema.Plan, *protocol.Tx, error) {
		if s.plan == nil {
			return nil, nil, notProvisioned(op, t.id)
		}
		now := t.l.now()
		next := *s.plan
		next.Version, next.Suspended, next.UpdatedAt = s.plan.Version+1, suspended, now
		tx := protocol.NewTx(4)
		tx.Add(protocol.Part{Kind: protocol.PartPlan}, t.l.tables.PutPlan(&next, s.plan.Version))
		for _, r := range s.periods {
			t.suspendPeriod(tx, r, suspended, now)
		}
		if err := t.suspendFormer(ctx, tx, s.plan.Period, suspended, now); err != nil {
			return nil, nil, failure(ctx, op, err)
		}
		if len(tx.Items) > protocol.MaxItems {
			return nil, nil, &Error{
				Code: ErrUnavailable, Op: op, RetryAfter: 2 * t.l.cfg.Skew,
				Reason: "two periods of many shards are current at once; nothing was written; repeat it once the new period has begun",
			}
		}
		return &next, tx, nil
	})
}

func (t Tenant) suspendPeriod(tx *protocol.Tx, r running, suspended bool, now time.Time) {
	if len(r.shards) == 0 {
		key := schema.QuotaKey(string(t.id), r.name, 0)
		tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: key}, t.l.tables.CheckAbsent(key))
		return
	}
	for _, q := range r.shards {
		if q.Suspended != suspended {
			tx.Add(protocol.Part{Kind: protocol.PartQuota, Key: q.Key},
				t.l.tables.ChangeQuota(q.Key, protocol.QuotaChange{Suspend: &suspended}, now))
		}
	}
}

// suspendFormer does the same to what runs of the other kinds of period: a process that read the plan before its kind was
// changed still debits there. What is not there yet it cannot make, since the plan's version is a condition of that. A
// period that does not fit in beside the plan's own is left to the minute after which every process reads the plan again.
func (t Tenant) suspendFormer(ctx context.Context, tx *protocol.Tx, own schema.PeriodKind, suspended bool, now time.Time) error {
	for _, kind := range []schema.PeriodKind{schema.Monthly, schema.Daily, schema.Always} {
		if kind == own {
			continue
		}
		former, err := t.l.readSnapshot(ctx, t.id, &kind)
		if err != nil {
			return err
		}
		for _, r := range former.periods {
			if len(r.shards) > 0 && len(tx.Items)+len(r.shards) <= protocol.MaxItems {
				t.suspendPeriod(tx, r, suspended, now)
			}
		}
	}
	return nil
}

// Quota reads the running period. A period that nobody has used yet is as the plan grants it.
// Errors: ErrMissingTenant, ErrInvalid, ErrNotProvisioned, ErrUnavailable.
func (t Tenant) Quota(ctx context.Context) (Quota, error) {
	const op = "quota"
	if err := t.check(op); err != nil {
		return Quota{}, err
	}
	for range protocol.MaxTries {
		plan, err := t.l.plan(ctx, op, t.id)
		if err != nil {
			return Quota{}, err
		}
		period := schema.PeriodAt(plan.Period, t.l.now())
		now, shards, err := t.l.readQuota(ctx, t.id, period, int(plan.Shards))
		if err != nil {
			return Quota{}, failure(ctx, op, err)
		}
		if !sameVersion(plan, now) {
			t.l.plans.forget(t.id)
			continue
		}
		q := Quota{Period: period, ResetsAt: schema.PeriodEnd(period), Suspended: plan.Suspended}
		for i, s := range shards {
			shard := QuotaShard{share(plan.Tokens, i, len(shards)), share(plan.Tokens, i, len(shards))}
			if s != nil {
				shard = QuotaShard{s.Granted, s.Remaining}
			}
			q.Granted += shard.Granted
			q.Remaining += shard.Remaining
			q.Shards = append(q.Shards, shard)
		}
		return q, nil
	}
	return Quota{}, contention(op, protocol.MaxTries)
}
