package protocol

import (
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

var (
	exprDebit = newFixed("#remaining >= :n AND attribute_not_exists(#suspended)",
		"SET #remaining = #remaining - :n, #version = #version + :one")
	exprDebitDownTo = newFixed("#remaining >= :floor", "SET #remaining = #remaining - :n, #version = #version + :one")
	exprSettle      = newFixed("attribute_exists(#pk)", "SET #remaining = #remaining - :n, #version = #version + :one")
	exprRefund      = newFixed("attribute_exists(#pk)", "SET #remaining = #remaining + :n, #version = #version + :one")
	exprPutAbsent   = newFixed("attribute_not_exists(#pk)", "")
	exprPlanVersion = newFixed("#version = :v", "")
)

var valueOne = schema.N(1)

// Debit takes n tokens for a new attempt: only what is there, and nothing from a suspended tenant.
func (t Tables) Debit(key schema.Key, n int64) types.TransactWriteItem {
	return exprDebit.updateItem(t.Ledger, key, schema.Item{":n": schema.N(n), ":one": valueOne})
}

// DebitExtra takes n tokens more for a final charge, down to -overdraft; suspension does not stop it.
func (t Tables) DebitExtra(key schema.Key, n, overdraft int64) types.TransactWriteItem {
	return exprDebitDownTo.updateItem(t.Ledger, key, schema.Item{
		":n": schema.N(n), ":floor": schema.N(n - overdraft), ":one": valueOne,
	})
}

// Adjust refunds a positive and debits a negative amount on an item that exists, whatever remains: recording an effect
// never fails on quota.
func (t Tables) Adjust(key schema.Key, refund int64) types.TransactWriteItem {
	if refund < 0 {
		return exprSettle.updateItem(t.Ledger, key, schema.Item{":n": schema.N(-refund), ":one": valueOne})
	}
	return exprRefund.updateItem(t.Ledger, key, schema.Item{":n": schema.N(refund), ":one": valueOne})
}

// Amount is a refund (positive) or debit (negative) of one quota item.
type Amount struct {
	Key    schema.Key
	Tokens int64
}

// Net adds up the amounts per item and leaves out those that come to nothing, in the order of their first mention.
func Net(amounts []Amount) []Amount {
	var net []Amount
	for _, a := range amounts {
		i := slices.IndexFunc(net, func(b Amount) bool { return b.Key == a.Key })
		if i < 0 {
			net = append(net, a)
			continue
		}
		net[i].Tokens += a.Tokens
	}
	return slices.DeleteFunc(net, func(a Amount) bool { return a.Tokens == 0 })
}

// Refunds are the amounts that give debits back.
func Refunds(tenant string, debits []schema.Debit) []Amount {
	amounts := make([]Amount, len(debits))
	for i, d := range debits {
		amounts[i] = Amount{d.Key(tenant), d.Tokens}
	}
	return amounts
}

// AddAmounts appends one part per net amount.
func (t Tables) AddAmounts(tx *Tx, amounts []Amount) {
	for _, a := range Net(amounts) {
		tx.Add(Part{Kind: PartQuota, Key: a.Key}, t.Adjust(a.Key, a.Tokens))
	}
}

// CheckPlan makes a transaction hold only under one version of the plan.
func (t Tables) CheckPlan(tenant string, version int64) types.TransactWriteItem {
	return exprPlanVersion.check(t.Control, schema.PlanKey(tenant), schema.Item{":v": schema.N(version)})
}

// CheckNoPlan holds that a tenant has no plan.
func (t Tables) CheckNoPlan(tenant string) types.TransactWriteItem {
	return exprPutAbsent.check(t.Control, schema.PlanKey(tenant), nil)
}

// CreateQuota creates all shards of a period at once under the plan that was read, or none: a shard created alone, or
// from a plan that has changed, would grant tokens that nobody gave.
func (t Tables) CreateQuota(tenant string, plan *schema.Plan, shards []*schema.Quota) *Tx {
	tx := NewTx(len(shards) + 1)
	tx.Add(Part{Kind: PartPlan}, t.CheckPlan(tenant, plan.Version))
	for _, q := range shards {
		tx.Add(Part{Kind: PartQuota, Key: q.Key}, exprPutAbsent.put(t.Ledger, q.Item(), nil))
	}
	return tx
}

// CheckAbsent makes a transaction hold only while an item does not exist.
func (t Tables) CheckAbsent(key schema.Key) types.TransactWriteItem {
	return exprPutAbsent.check(t.Ledger, key, nil)
}

// PutPlan writes a plan over the version that was read; 0 means that there was none.
func (t Tables) PutPlan(p *schema.Plan, read int64) types.TransactWriteItem {
	if read == 0 {
		return exprPutAbsent.put(t.Control, p.Item(), nil)
	}
	return exprPlanVersion.put(t.Control, p.Item(), schema.Item{":v": schema.N(read)})
}

// PutShard creates one quota item that must not exist.
func (t Tables) PutShard(q *schema.Quota) types.TransactWriteItem {
	return exprPutAbsent.put(t.Ledger, q.Item(), nil)
}

// Grant records in the control table that a grant has happened; a second one of the same key is refused.
func (t Tables) Grant(tenant, key string, tokens int64, now time.Time) types.TransactWriteItem {
	k := schema.GrantKey(tenant, key)
	return exprPutAbsent.put(t.Control, schema.Item{
		schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK), schema.AFormat: schema.N(schema.Format),
		schema.ATokens: schema.N(tokens), schema.ACreatedAt: schema.Millis(now),
	}, nil)
}

// QuotaChange changes one quota item relatively.
type QuotaChange struct {
	Granted   int64 // added to granted
	Remaining int64 // added to remaining
	Extra     int64 // added to the part of granted that grants gave
	AtLeast   int64 // remaining must be at least this; 0: whatever it is
	Suspend   *bool // nil: left alone
}

// ChangeQuota is the quota part of a plan change, a grant, a suspension.
func (t Tables) ChangeQuota(key schema.Key, q QuotaChange, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.AUpdatedAt, schema.Millis(now))
	c.increase(schema.AGranted, q.Granted)
	c.increase(schema.ARemaining, q.Remaining)
	if q.Extra != 0 {
		c.set.item("#extra = if_not_exists(#extra, :zero) + :extra")
		c.values[":zero"], c.values[":extra"] = schema.N(0), schema.N(q.Extra)
	}
	if q.Suspend != nil {
		c.putOr(schema.ASuspended, *q.Suspend, schema.Bool(true))
	}
	cond := "attribute_exists(#pk)"
	if q.AtLeast > 0 {
		cond += " AND #remaining >= :atLeast"
		c.values[":atLeast"] = schema.N(q.AtLeast)
	}
	return c.item(t.Ledger, key, cond)
}

func (c *change) increase(attr string, n int64) {
	if n == 0 {
		return
	}
	c.set.item("#", attr, " = #", attr, " + :", attr)
	c.values[":"+attr] = schema.N(n)
}
