package model

import (
	"time"
)

// current are the shards of one period, from 0 on; none where it was not used yet.
func (t *tenant) current(period string) (shards []*quota) {
	for i := 0; ; i++ {
		q := t.quotas[Purse{period, i}]
		if q == nil {
			return shards
		}
		shards = append(shards, q)
	}
}

// believed are the plans that some process may still believe: the current one, and those replaced within a minute.
func (m *Model) believed(t *tenant) []*plan {
	all := []*plan{t.plan}
	for _, p := range t.past {
		if m.Base.Sub(p.until) < planLife {
			all = append(all, p)
		}
	}
	return all
}

// shardsOf are the shards that a process may begin with for a key.
func (m *Model) shardsOf(t *tenant, key string) map[int]bool {
	shards := map[int]bool{}
	for _, p := range m.believed(t) {
		shards[Bucket(key, p.Shards)] = true
	}
	return shards
}

func share(total int64, i, n int) int64 {
	part := total / int64(n)
	if int64(i) < total%int64(n) {
		part++
	}
	return part
}

// create makes all shards of a period that was not used yet.
func (m *Model) create(now time.Time, name, period string) {
	t := m.tenant(name)
	if len(t.current(period)) > 0 {
		return
	}
	for i := range t.plan.Shards {
		p := Purse{period, i}
		part := share(t.plan.Tokens, i, t.plan.Shards)
		t.quotas[p] = m.newQuota(now, name, p, part)
	}
}

func (m *Model) newQuota(now time.Time, name string, p Purse, tokens int64) *quota {
	t := m.tenant(name)
	return &quota{
		id: m.fresh(m.Table[quotaKey(name, p)].text("quotaId"), "quotaId"), version: 1, granted: tokens, remaining: tokens,
		planVersion: t.plan.version, suspended: t.plan.suspended, created: now, updated: now,
	}
}

// existing are the debits whose items are still there.
func (m *Model) existing(name string, debits Debits) Debits {
	there := Debits{}
	for p, n := range debits {
		if m.tenant(name).quotas[p] != nil {
			there[p] = n
		}
	}
	return there
}

// adjust gives back positive and takes negative amounts.
func (m *Model) adjust(name string, amounts Debits) {
	for p, n := range amounts {
		q := m.tenant(name).quotas[p]
		if n == 0 {
			continue
		}
		if q == nil {
			m.fault("%d tokens move on %v, which is not there", n, p)
			continue
		}
		q.remaining += n
		q.version++
	}
}

// pay says who pays for a call, or why nobody does. back is what the same transaction gives back.
func (m *Model) pay(now time.Time, c Call, back Debits) (Debits, *Answer) {
	if c.Tokens == 0 {
		return nil, nil
	}
	t := m.tenant(c.Tenant)
	if t.plan == nil {
		return nil, &Answer{Code: NotProvisioned}
	}
	period := PeriodOf(t.plan.Kind, now)
	m.create(now, c.Tenant, period)
	shards := t.current(period)
	if seen := m.Table[c.rowKey(c.Key)]; m.isNew(seen) {
		debits := seen.debits()
		m.checkPaid(c, period, debits, back)
		return debits, nil
	}
	var sum, remaining int64
	for _, q := range shards {
		if q.suspended {
			return nil, &Answer{Code: Suspended}
		}
		sum += max(q.remaining, 0)
		remaining += q.remaining
	}
	if sum < c.Tokens {
		m.observe(now, c, nil, "quotaDenials")
		return nil, &Answer{Code: Exhausted, Need: c.Tokens, Remaining: remaining}
	}
	return nil, nil // it could be paid: something else must have refused the call
}

// isNew tells whether the table has a row that the call wrote which is asked about.
func (m *Model) isNew(seen Item) bool {
	holder := seen.text("holder")
	return holder != "" && !m.ids[holder]
}

// checkPaid checks the choice of shards: the one that the key hashes to where it can pay, else any that can pay alone, else
// several.
func (m *Model) checkPaid(c Call, period string, debits, back Debits) {
	t := m.tenant(c.Tenant)
	shards := t.current(period)
	if debits.Sum() != c.Tokens {
		m.fault("debits %v do not add up to %d", debits, c.Tokens)
	}
	alone, first := false, false
	for i, q := range shards {
		alone = alone || q.remaining >= c.Tokens
		own := m.shardsOf(t, c.Key.ID)[i]
		first = first || own && len(m.believed(t)) == 1 && q.remaining >= c.Tokens
	}
	for p, n := range debits {
		q := t.quotas[p]
		switch {
		case p.Period != period || q == nil:
			m.fault("debit of %v, which is no item of %s", p, period)
		case back[p] >= n: // netted: nothing is taken
		case q.suspended:
			m.fault("debit of %v, which is suspended", p)
		case q.remaining+back[p] < n:
			m.fault("debit of %d from %v, which had %d", n, p, q.remaining)
		case len(debits) > 1 && alone:
			m.fault("debits are split %v although one shard could have paid", debits)
		case len(debits) == 1 && first && !m.shardsOf(t, c.Key.ID)[p.Shard]:
			m.fault("debit of %v although the key's own shard could have paid", p)
		}
	}
}

// PutPlan sets a plan.
func (m *Model) PutPlan(now time.Time, name string, p Plan) Answer {
	t := m.tenant(name)
	periods := m.running(now, p.Kind)
	for _, period := range periods {
		if len(t.current(period)) > p.Shards {
			return Answer{Code: Invalid}
		}
	}
	next := &plan{Tokens: p.Tokens, Kind: p.Kind, Shards: p.Shards, Overdraft: p.Overdraft, version: 1, updated: now}
	if t.plan != nil {
		next.version, next.suspended = t.plan.version+1, t.plan.suspended
	}
	m.replace(t, next)
	for _, period := range periods {
		if len(t.current(period)) > 0 {
			m.changePeriod(now, name, period)
		}
	}
	return Answer{}
}

func (m *Model) replace(t *tenant, next *plan) {
	if t.plan != nil {
		t.plan.until = m.Base
		t.past = append(t.past, t.plan)
	}
	t.plan = next
}

// running are the periods of a kind that are current within the skew.
func (m *Model) running(now time.Time, kind string) []string {
	a, b := PeriodOf(kind, now.Add(-m.Skew)), PeriodOf(kind, now.Add(m.Skew))
	if a == b {
		return []string{a}
	}
	return []string{a, b}
}

// changePeriod applies the current plan to a period that is in use. How the difference is shared out is the witness's.
func (m *Model) changePeriod(now time.Time, name, period string) {
	t := m.tenant(name)
	before := t.current(period)
	grown := len(before) < t.plan.Shards
	var base, moved int64
	owed, owes := int64(0), false
	for _, q := range before {
		base += q.granted - q.extra
		owed += max(-q.remaining, 0)
		owes = owes || q.remaining < 0
	}
	delta := t.plan.Tokens - base
	var below, rich []Purse
	for i := range t.plan.Shards {
		p := Purse{period, i}
		seen := m.Table[quotaKey(name, p)]
		if i >= len(before) {
			n := seen.number("granted")
			t.quotas[p] = m.newQuota(now, name, p, n)
			moved += n
			if n < 0 {
				m.fault("%v begins with %d", p, n)
			}
			continue
		}
		q := before[i]
		change := seen.number("granted") - q.granted
		moved += change
		if change != 0 || q.suspended != t.plan.suspended {
			q.granted, q.remaining, q.suspended = q.granted+change, q.remaining+change, t.plan.suspended
			q.version++
			q.updated = now
		}
		if change < 0 && q.remaining < 0 {
			below = append(below, p)
		}
		if q.remaining > 0 {
			rich = append(rich, p)
		}
		if owes && !grown && delta >= 0 && delta <= owed && change > max(change-q.remaining, 0) {
			m.fault("%v gets %d to spend while others are owed %d of %d", p, change, owed, delta)
		}
		if even := share(delta, i, t.plan.Shards); delta >= 0 && !grown && !owes && change != even {
			m.fault("%v is raised by %d, not by its share %d of %d", p, change, even, delta)
		}
	}
	if moved != delta {
		m.fault("%s changes by %d, not by %d", period, moved, delta)
	}
	if len(below) > 0 && (len(below) > 1 || below[0].Shard != 0 || len(rich) > 0) {
		m.fault("%v are taken below zero while %v are not empty", below, rich)
	}
}

// Grant adds tokens once.
func (m *Model) Grant(now time.Time, name, key string, tokens int64) Answer {
	t := m.tenant(name)
	if t.plan == nil {
		return Answer{Code: NotProvisioned}
	}
	if g, ok := t.grants[key]; ok {
		if g.tokens != tokens {
			return Answer{Code: Invalid}
		}
		return Answer{}
	}
	period := PeriodOf(t.plan.Kind, now)
	m.create(now, name, period)
	q := t.quotas[Purse{period, Bucket(key, t.plan.Shards)}]
	q.granted, q.remaining, q.extra = q.granted+tokens, q.remaining+tokens, q.extra+tokens
	q.version++
	q.updated = now
	t.grants[key] = grant{tokens, now}
	return Answer{}
}

// Suspend stops or resumes a tenant.
func (m *Model) Suspend(now time.Time, name string, suspended bool) Answer {
	t := m.tenant(name)
	if t.plan == nil {
		return Answer{Code: NotProvisioned}
	}
	next := *t.plan
	next.version, next.suspended, next.updated = next.version+1, suspended, now
	m.replace(t, &next)
	for _, kind := range []string{"month", "day", "always"} { // a process may still debit the kind that was
		for _, period := range m.running(now, kind) {
			for _, q := range t.current(period) {
				if q.suspended != suspended {
					q.suspended, q.updated = suspended, now
					q.version++
				}
			}
		}
	}
	return Answer{}
}

// Quota is the state of the running period.
type Quota struct {
	Period             string
	Granted, Remaining int64
	Suspended          bool
	Shards             int
}

// Quota reads the running period.
func (m *Model) Quota(now time.Time, name string) (Quota, Answer) {
	t := m.tenant(name)
	if t.plan == nil {
		return Quota{}, Answer{Code: NotProvisioned}
	}
	q := Quota{Period: PeriodOf(t.plan.Kind, now), Suspended: t.plan.suspended, Shards: t.plan.Shards}
	shards := t.current(q.Period)
	if len(shards) == 0 {
		q.Granted, q.Remaining = t.plan.Tokens, t.plan.Tokens
	}
	for _, s := range shards {
		q.Granted += s.granted
		q.Remaining += s.remaining
	}
	return q, Answer{}
}
