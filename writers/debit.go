package writers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/jitter"
	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// payer finds the quota items that pay for one call. It begins at the shard that the call key hashes to, which spreads a
// tenant's calls without coordination, and looks at all shards together only once that one refuses.
type payer struct {
	l      *Ledger
	tenant TenantID
	op     string
	key    string
	tokens int64

	plan   *schema.Plan
	shard  int            // that pays alone
	split  []schema.Debit // set where no single shard can
	splitP string         // the period that split was made for
}

// debits returns what the next try takes. Errors: ErrNotProvisioned, DynamoDB's.
func (p *payer) debits(ctx context.Context) ([]schema.Debit, error) {
	if p.tokens == 0 {
		return nil, nil
	}
	if p.plan == nil {
		plan, err := p.l.plan(ctx, p.op, p.tenant)
		if err != nil {
			return nil, err
		}
		p.use(plan)
	}
	period := schema.PeriodAt(p.plan.Period, p.l.now())
	if p.split != nil && p.splitP == period {
		return p.split, nil
	}
	p.split = nil
	return []schema.Debit{{Period: period, Shard: p.shard, Tokens: p.tokens}}, nil
}

func (p *payer) use(plan *schema.Plan) {
	p.plan, p.split = plan, nil
	p.shard = schema.Bucket(p.key, int(plan.Shards))
}

// contended moves on to another shard: the one in use is busy.
func (p *payer) contended() {
	if p.plan != nil && p.plan.Shards > 1 && p.split == nil {
		p.shard = jitter.IntN(int(p.plan.Shards))
	}
}

// refused is called when the condition of a debit failed, with the quota item that refused; nil where there is none. It
// returns nil where another try may succeed.
func (p *payer) refused(ctx context.Context, key schema.Key, item schema.Item) error {
	if item == nil {
		id, err := schema.ParseKey(key)
		if err != nil {
			return err
		}
		plan, err := p.l.createQuota(ctx, p.op, p.tenant, id.Period)
		if err != nil {
			return err
		}
		p.use(plan)
		return nil
	}
	q, err := schema.DecodeQuota(schema.FieldsOf(item))
	switch {
	case err != nil:
		return unreadable(p.op, err)
	case q.Suspended:
		return suspended(p.op, p.tenant)
	}
	return p.survey(ctx)
}

// survey reads the plan and all shards together and chooses who pays: the first shard, from the call's own on, that can pay
// alone, or several. Only a sum that is too small at one moment is "exhausted": read one by one, tokens that move between
// shards would be missed.
func (p *payer) survey(ctx context.Context) error {
	period := schema.PeriodAt(p.plan.Period, p.l.now())
	plan, shards, err := p.l.readQuota(ctx, p.tenant, period, int(p.plan.Shards))
	if err != nil {
		return failure(ctx, p.op, err)
	}
	if plan == nil {
		p.l.plans.forget(p.tenant)
		return notProvisioned(p.op, p.tenant)
	}
	if plan.Version != p.plan.Version {
		p.l.plans.put(plan, p.tenant, p.l.now())
		p.use(plan)
		return nil
	}
	return p.choose(period, shards)
}

func (p *payer) choose(period string, shards []*schema.Quota) error {
	var sum, known int64
	own := schema.Bucket(p.key, len(shards))
	for i := range shards {
		q := shards[(own+i)%len(shards)]
		if q == nil {
			continue // not created yet: the debit will say so
		}
		known++
		if q.Suspended {
			return suspended(p.op, p.tenant)
		}
		if q.Remaining >= p.tokens {
			p.shard, p.split = int(q.Shard), nil
			return nil
		}
		sum += max(q.Remaining, 0)
	}
	if known == 0 {
		return nil // the period is new, or rolled over while we looked
	}
	if sum < p.tokens {
		return p.exhausted(period, shards)
	}
	p.split, p.splitP = splitDebit(period, shards, p.tokens), period
	return nil
}

func (p *payer) exhausted(period string, shards []*schema.Quota) error {
	no := &exhaustedError{period: period}
	for _, q := range shards {
		if q != nil {
			no.granted += q.Granted
			no.remaining += q.Remaining
		}
	}
	return no
}

// exhaustedError is turned into ErrQuotaExhausted by the call that knows what it needed.
type exhaustedError struct {
	period             string
	granted, remaining int64
}

func (e *exhaustedError) Error() string { return string(ErrQuotaExhausted) }

// splitDebit takes from the richest shards first, which names the fewest of them.
func splitDebit(period string, shards []*schema.Quota, tokens int64) []schema.Debit {
	rich := slices.DeleteFunc(slices.Clone(shards), func(q *schema.Quota) bool { return q == nil || q.Remaining <= 0 })
	slices.SortStableFunc(rich, func(a, b *schema.Quota) int {
		switch {
		case a.Remaining > b.Remaining:
			return -1
		case a.Remaining < b.Remaining:
			return 1
		}
		return 0
	})
	var debits []schema.Debit
	for _, q := range rich {
		n := min(q.Remaining, tokens)
		debits = append(debits, schema.Debit{Period: period, Shard: int(q.Shard), Tokens: n})
		if tokens -= n; tokens == 0 {
			break
		}
	}
	return debits
}

// denied turns the payer's refusal into the answer, and counts a denial.
func (c *request) denied(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exhaustedError](err); ok {
		c.observe(ctx, observation{quotaDenials: 1}, nil)
		return c.exhausted(e)
	}
	return c.failed(ctx, err)
}

// planLife is how long a plan is believed without reading it again: a change reaches every process within it, and the
// conditions of the debits never depend on it.
const (
	planLife    = time.Minute
	plansCached = 10_000
)

// planCache remembers the plans of busy tenants.
type planCache struct {
	mu    sync.Mutex
	plans map[TenantID]cachedPlan
}

type cachedPlan struct {
	plan *schema.Plan
	at   time.Time
}

func (pc *planCache) get(t TenantID, now time.Time) *schema.Plan {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	c, ok := pc.plans[t]
	if !ok || now.Sub(c.at) >= planLife || now.Before(c.at) {
		return nil
	}
	return c.plan
}

func (pc *planCache) put(p *schema.Plan, t TenantID, now time.Time) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.plans == nil || len(pc.plans) >= plansCached {
		pc.plans = make(map[TenantID]cachedPlan)
	}
	pc.plans[t] = cachedPlan{p, now}
}

func (pc *planCache) forget(t TenantID) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	delete(pc.plans, t)
}

// plan returns the tenant's plan, at most planLife old. Errors: ErrNotProvisioned, ErrUnavailable.
func (l *Ledger) plan(ctx context.Context, op string, t TenantID) (*schema.Plan, error) {
	if p := l.plans.get(t, l.now()); p != nil {
		return p, nil
	}
	return l.readPlan(ctx, op, t)
}

// readPlan reads the plan itself.
func (l *Ledger) readPlan(ctx context.Context, op string, t TenantID) (*schema.Plan, error) {
	item, err := l.getItem(ctx, l.cfg.Control, schema.PlanKey(string(t)))
	if err != nil {
		return nil, failure(ctx, op, err)
	}
	if item == nil {
		l.plans.forget(t)
		return nil, notProvisioned(op, t)
	}
	p, err := schema.DecodePlan(schema.FieldsOf(item))
	if err != nil {
		return nil, unreadable(op, err)
	}
	l.plans.put(p, t, l.now())
	return p, nil
}

// readQuota reads a plan and the shards of one period at one moment. plan is nil where there is none, a shard where it
// does not exist.
func (l *Ledger) readQuota(ctx context.Context, t TenantID, period string, shards int) (*schema.Plan, []*schema.Quota, error) {
	get := func(table *string, k schema.Key) types.TransactGetItem {
		return types.TransactGetItem{Get: &types.Get{
			TableName: table, Key: k.Item(),
		}}
	}
	items := []types.TransactGetItem{get(&l.cfg.Control, schema.PlanKey(string(t)))}
	for i := range shards {
		items = append(items, get(&l.cfg.Table, schema.QuotaKey(string(t), period, i)))
	}
	out, err := l.transactGet(ctx, items)
	if err != nil {
		return nil, nil, err
	}
	var plan *schema.Plan
	if len(out[0].Item) > 0 {
		if plan, err = schema.DecodePlan(schema.FieldsOf(out[0].Item)); err != nil {
			return nil, nil, err
		}
	}
	quotas := make([]*schema.Quota, shards)
	for i := range quotas {
		if len(out[i+1].Item) == 0 {
			continue
		}
		if quotas[i], err = schema.DecodeQuota(schema.FieldsOf(out[i+1].Item)); err != nil {
			return nil, nil, err
		}
		if quotas[i].Shard != int64(i) {
			return nil, nil, &schema.DecodeError{Attr: schema.AShard, Rule: "must agree with the key"}
		}
	}
	return plan, quotas, nil
}

// transactGet reads several items at one moment; a write in between cancels the read, which is then done again.
func (l *Ledger) transactGet(ctx context.Context, items []types.TransactGetItem) ([]types.ItemResponse, error) {
	var err error
	for n := range protocol.MaxTries {
		var out *dynamodb.TransactGetItemsOutput
		out, err = l.db.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{TransactItems: items})
		if err == nil && len(out.Responses) == len(items) {
			return out.Responses, nil
		}
		if err == nil {
			return nil, errors.New("DynamoDB answered fewer items than were asked for")
		}
		if _, ok := errors.AsType[*types.TransactionCanceledException](err); !ok {
			return nil, err
		}
		if pause := protocol.Pause(ctx, n+1); pause != nil {
			return nil, pause
		}
	}
	return nil, err
}

// createQuota creates all shards of a period from the plan as it is now; it succeeds also where somebody else was first.
// It returns the plan that the period now has. Errors: ErrNotProvisioned, ErrUnavailable.
func (l *Ledger) createQuota(ctx context.Context, op string, t TenantID, period string) (*schema.Plan, error) {
	for n := range protocol.MaxTries {
		plan, err := l.readPlan(ctx, op, t)
		if err != nil {
			return nil, err
		}
		now := l.now()
		if schema.PeriodAt(plan.Period, now) != period && schema.PeriodAt(plan.Period, now.Add(-l.cfg.Skew)) != period {
			return plan, nil // the plan has another kind of period by now, or the period is over: the next debit names the right item
		}
		err = protocol.Send(ctx, l.db, l.tables.CreateQuota(string(t), plan, newShards(string(t), plan, period, now)))
		if err == nil {
			return plan, nil
		}
		if no, refused := errors.AsType[*protocol.Refused](err); refused {
			switch answer, _ := no.Decide(); answer {
			case protocol.QuotaRefused:
				return plan, nil
			case protocol.Broken:
				return nil, rejected(op, no)
			default: // the plan has changed, or there was contention: again
			}
		} else if !lost(err) || ctx.Err() != nil || n+1 >= protocol.MaxLost {
			return nil, failure(ctx, op, err)
		} // after a lost answer, again: what was created refuses to be created twice
		if err := protocol.Pause(ctx, n+1); err != nil {
			return nil, failure(ctx, op, err)
		}
	}
	return nil, contention(op, protocol.MaxTries)
}

// newShards shares a plan's tokens out; the first shards get one token more where they do not divide.
func newShards(tenant string, plan *schema.Plan, period string, now time.Time) []*schema.Quota {
	shards := make([]*schema.Quota, plan.Shards)
	for i := range shards {
		q := newShard(tenant, period, i, plan, now)
		q.Granted = share(plan.Tokens, i, len(shards))
		q.Remaining = q.Granted
		shards[i] = q
	}
	return shards
}

// share is the i-th of n parts of total.
func share(total int64, i, n int) int64 {
	part := total / int64(n)
	if int64(i) < total%int64(n) {
		part++
	}
	return part
}
