package sweeper

import (
	"cmp"
	"slices"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// window is how many transactions' worth of one tenant's rows are sorted by quota item before they are cut into
// transactions: enough to bring rows of one item together, few enough to stay oldest first.
const window = 8

// lanes parts steps by tenant: each tenant's transactions follow one another, since they would contend for its quota
// items, while those of different tenants may run at once.
func lanes(steps []step, n int) [][]step {
	parts := make([][]step, n)
	for _, s := range steps {
		i := schema.Bucket(s.tenant, n)
		parts[i] = append(parts[i], s)
	}
	return parts
}

// pack cuts the steps of a lane into transactions of at most rows rows and protocol.MaxItems items. Tenants take turns
// of one transaction's worth; small turns share a transaction.
func pack(steps []step, rows int) [][]step {
	var tenants []string
	queue := map[string][]step{}
	for _, s := range steps {
		if queue[s.tenant] == nil {
			tenants = append(tenants, s.tenant)
		}
		queue[s.tenant] = append(queue[s.tenant], s)
	}
	for _, t := range tenants {
		for part := range slices.Chunk(queue[t], window*rows) {
			slices.SortStableFunc(part, byQuotaItem)
		}
	}
	var packed [][]step
	var current []step
	for left := len(steps); left > 0; {
		for _, t := range tenants {
			turn := queue[t][:min(rows, len(queue[t]))]
			queue[t], left = queue[t][len(turn):], left-len(turn)
			if len(current)+len(turn) > rows {
				packed, current = appendBatches(packed, current), nil
			}
			current = append(current, turn...)
		}
	}
	return appendBatches(packed, current)
}

// appendBatches appends steps as one transaction, or as several where they touch too many quota items for one.
func appendBatches(packed [][]step, steps []step) [][]step {
	for len(steps) > 0 {
		n := fits(steps)
		packed, steps = append(packed, steps[:n:n]), steps[n:]
	}
	return packed
}

// fits is how many of steps, at least one, one transaction holds.
func fits(steps []step) int {
	items := map[schema.Key]bool{}
	for i, s := range steps {
		items[s.row.Key] = true
		if s.do == expire {
			for _, d := range s.row.Debits {
				items[d.Key(s.tenant)] = true
			}
		}
		if len(items) > protocol.MaxItems {
			return max(i, 1)
		}
	}
	return len(steps)
}

func byQuotaItem(a, b step) int { return compareDebits(a.row.Debits, b.row.Debits) }

func compareDebits(a, b []schema.Debit) int {
	return slices.CompareFunc(a, b, func(x, y schema.Debit) int {
		return cmp.Or(cmp.Compare(x.Period, y.Period), cmp.Compare(x.Shard, y.Shard))
	})
}
