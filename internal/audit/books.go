package audit

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
)

// archiveAfter is how long after a period's end its rows may begin to leave the table: they are kept for two days, and a
// clock that is a day wrong would be noticed.
const archiveAfter = 24 * time.Hour

// suspect is a quota item whose books did not balance when it was read.
type suspect struct {
	key  schema.Key
	book Book
}

// settle makes up the books of every quota item after a pass and returns those that do not balance.
func (p *pass) settle(r *Report) []suspect {
	var suspects []suspect
	for key, q := range p.quotas {
		r.Tokens.Granted = add(r.Tokens.Granted, q.Granted)
		r.Tokens.Remaining = add(r.Tokens.Remaining, q.Remaining)
		if b := p.book(key, q); !b.balanced() {
			suspects = append(suspects, suspect{key, b})
		}
	}
	for key, debits := range p.debits {
		r.Tokens.Debited = add(r.Tokens.Debited, debits)
		if p.quotas[key] == nil {
			suspects = append(suspects, suspect{key, p.book(key, nil)})
		}
	}
	return suspects
}

// book makes up the books of one quota item; q is nil where there is none.
func (p *pass) book(key schema.Key, q *schema.Quota) Book {
	id, _ := schema.ParseKey(key) // made by the builder or read from an item that was parsed
	b := Book{PK: key.PK, SK: key.SK, Tenant: id.Tenant, Period: id.Period, Shard: id.Shard, Debits: p.debits[key]}
	b.Missing = q == nil
	if q != nil {
		b.Granted, b.Remaining = q.Granted, q.Remaining
	}
	b.Difference = sub(sub(b.Granted, b.Remaining), b.Debits)
	end := schema.PeriodEnd(id.Period)
	b.AtLeast = id.Period == schema.AlwaysPeriod || end.Add(archiveAfter+p.cfg.Skew).Before(p.now)
	return b
}

func (b Book) balanced() bool {
	if b.Missing { // an item outlives its period until the last refund; rows that outlive it in turn are no fault
		return b.Debits == 0 || b.AtLeast && b.Period != schema.AlwaysPeriod
	}
	return b.Difference == 0 || b.AtLeast && b.Difference > 0
}

// recheck reads the suspects, then all rows, then the suspects again. Those that did not change meanwhile get their verdict;
// the others are returned.
func (a *auditor) recheck(ctx context.Context, suspects []suspect, r *Report) ([]suspect, error) {
	before := make(map[schema.Key]int64, len(suspects))
	for _, s := range suspects {
		q, err := a.quota(ctx, s.key)
		if err != nil {
			return nil, err
		}
		before[s.key] = version(q)
	}
	again := newPass(a.now, a.cfg, false)
	if err := a.scan(ctx, again); err != nil {
		return nil, err
	}
	var moving []suspect
	for _, s := range suspects {
		q, err := a.quota(ctx, s.key)
		if err != nil {
			return nil, err
		}
		s.book = again.book(s.key, q)
		switch {
		case version(q) != before[s.key]:
			moving = append(moving, s)
		case !s.book.balanced():
			r.Unbalanced.add(s.book, a.cfg.Limit)
			if s.book.Difference < 0 && !s.book.Missing {
				r.Refunds.add(s.book, a.cfg.Limit)
			}
		}
	}
	return moving, nil
}

func version(q *schema.Quota) int64 {
	if q == nil {
		return 0
	}
	return q.Version
}

// quota reads one quota item; nil where there is none or it cannot be read, which the first pass has reported.
func (a *auditor) quota(ctx context.Context, key schema.Key) (*schema.Quota, error) {
	out, err := a.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(a.cfg.Table), ConsistentRead: aws.Bool(true),
		Key: key.Item(),
	})
	if err != nil {
		return nil, fmt.Errorf("read quota in %s: %w", a.cfg.Table, err)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	q, err := schema.DecodeQuota(schema.FieldsOf(out.Item))
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	return q, nil
}

// Amounts in a table may be anything that 64 bits hold; sums of them stop at the ends instead of wrapping around.

func add(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

func sub(a, b int64) int64 {
	if b == math.MinInt64 {
		return add(add(a, 1), math.MaxInt64)
	}
	return add(a, -b)
}

func sum(debits []schema.Debit) int64 {
	var total int64
	for _, d := range debits {
		total = add(total, d.Tokens)
	}
	return total
}
