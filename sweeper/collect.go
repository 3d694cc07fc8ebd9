package sweeper

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// The bounds of one reading of the index. Rows of a tenant that has more than its share are left for the next reading,
// which the run goes on to as long as it has time: so the others come first, and memory is bounded.
const (
	pageRows     = 1000 // of one query
	maxPages     = 40   // of one partition
	bucketRows   = 1000 // kept of one partition
	tenantRows   = 250  // kept of one tenant and partition
	readers      = 4    // partitions read at once
	countTimeout = 2 * time.Second
)

// rowVersion names a row as it was read.
type rowVersion struct {
	key     schema.Key
	version int64
}

// found is a row with its tenant.
type found struct {
	row    *schema.Row
	tenant string
}

// collect reads what is overdue in all partitions of the index, each oldest first. more says that there is more than it
// returns.
func (r *run) collect() (rows []found, more bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	buckets := make(chan string)
	for range readers {
		wg.Go(func() {
			for bucket := range buckets {
				part, rest := r.readBucket(bucket)
				mu.Lock()
				rows, more = append(rows, part...), more || rest
				mu.Unlock()
			}
		})
	}
	for _, bucket := range schema.BucketNames(false) {
		buckets <- bucket
	}
	close(buckets)
	wg.Wait()
	for _, f := range rows {
		r.seen[rowVersion{f.row.Key, f.row.Version}] = true
	}
	r.count(func(p *Report) { p.Found += len(rows) })
	return inTurns(rows), more
}

// readBucket reads one partition. A row that cannot be understood is counted and passed over: it must not keep the rest
// from being swept.
func (r *run) readBucket(bucket string) (rows []found, more bool) {
	now := r.l.Now()
	query := r.overdue(bucket, now)
	kept := map[string]int{}
	for range maxPages {
		if r.work.Err() != nil {
			r.cutShort(0)
			return rows, true
		}
		out, err := r.l.Client.Query(r.work, query)
		r.count(func(p *Report) { p.Requests++ })
		if err != nil {
			r.readFailed(bucket, err)
			return rows, false
		}
		for _, item := range out.Items {
			f, ok := r.take(item, now)
			if !ok {
				continue
			}
			if kept[f.tenant] >= tenantRows || len(rows) >= bucketRows {
				more = true
				continue
			}
			kept[f.tenant]++
			rows = append(rows, f)
		}
		if len(out.LastEvaluatedKey) == 0 {
			return rows, more
		}
		if len(rows) >= bucketRows {
			return rows, true
		}
		query.ExclusiveStartKey = out.LastEvaluatedKey
	}
	return rows, true
}

func (r *run) overdue(bucket string, now time.Time) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		TableName:              aws.String(r.tables().Ledger),
		IndexName:              aws.String(schema.PendingIndex),
		KeyConditionExpression: aws.String("#pendingBucket = :bucket AND #deadline < :before"),
		ExpressionAttributeNames: map[string]string{
			"#pendingBucket": schema.APendingBucket, "#deadline": schema.ADeadline,
		},
		ExpressionAttributeValues: schema.Item{":bucket": schema.S(bucket), ":before": schema.Millis(r.skewed(now))},
		ScanIndexForward:          aws.Bool(true),
		Limit:                     aws.Int32(pageRows),
	}
}

// take decodes an item of the index; ok is false where there is nothing to do about it now.
func (r *run) take(item schema.Item, now time.Time) (f found, ok bool) {
	row, err := schema.DecodePending(schema.FieldsOf(item))
	if err == nil && (row.State != schema.StatePending || row.Deadline.IsZero()) {
		err = &schema.DecodeError{Attr: schema.AState, Rule: "must be pending where a deadline is set"}
	}
	if err != nil {
		r.unreadable(item, err)
		return found{}, false
	}
	if r.seen[rowVersion{row.Key, row.Version}] {
		return found{}, false // the index still shows what this run has dealt with
	}
	age := now.Sub(row.Deadline)
	waits := row.SweepAt.After(now)
	r.count(func(p *Report) {
		p.OldestAge = max(p.OldestAge, age)
		if waits && r.firstSight(row) {
			p.Waiting++
		}
	})
	id, err := schema.ParseKey(row.Key)
	if err != nil || waits {
		return found{}, false
	}
	return found{row, id.Tenant}, true
}

// firstSight tells whether a waiting row has not been counted in this run; r.mu is held.
func (r *run) firstSight(row *schema.Row) bool {
	if r.waiting == nil {
		r.waiting = map[rowVersion]bool{}
	}
	v := rowVersion{row.Key, row.Version}
	if r.waiting[v] || len(r.waiting) > maxSeen {
		return false
	}
	r.waiting[v] = true
	return true
}

// unreadable counts and logs, once a run, an item that is not a pending row. Its key says where it is; nothing else of it
// is told.
func (r *run) unreadable(item schema.Item, cause error) {
	var key schema.Key
	if pk, ok := item[schema.PK].(*types.AttributeValueMemberS); ok {
		key.PK = pk.Value
	}
	if sk, ok := item[schema.SK].(*types.AttributeValueMemberS); ok {
		key.SK = sk.Value
	}
	first := false
	r.count(func(p *Report) {
		if first = r.firstSight(&schema.Row{Key: key, Version: -1}); first {
			p.Found++
			p.Errors++
		}
	})
	if first {
		r.l.Logger.LogAttrs(r.ctx, slog.LevelError, "overdue reservation unreadable",
			slog.String("pk", key.PK), slog.String("sk", key.SK), slog.Any("error", cause))
	}
}

func (r *run) readFailed(bucket string, err error) {
	if r.work.Err() != nil { // stopped, not failed
		r.cutShort(0)
		return
	}
	r.count(func(p *Report) { p.Errors++ })
	r.fail(fmt.Errorf("query %s of index %s: %w", bucket, schema.PendingIndex, err))
}

// inTurns orders rows so that tenants take turns, each tenant's oldest first, the tenant with the oldest row beginning.
func inTurns(rows []found) []found {
	slices.SortStableFunc(rows, func(a, b found) int { return a.row.Deadline.Compare(b.row.Deadline) })
	type placed struct {
		found
		turn, tenant int
	}
	order := map[string]int{}
	turns := map[string]int{}
	all := make([]placed, len(rows))
	for i, f := range rows {
		if _, known := order[f.tenant]; !known {
			order[f.tenant] = len(order)
		}
		all[i] = placed{f, turns[f.tenant], order[f.tenant]}
		turns[f.tenant]++
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.tenant, b.tenant))
	})
	for i, p := range all {
		rows[i] = p.found
	}
	return rows
}

// countOpen counts what waits for a person, and what is open beside that: one page of each partition, without reading the
// rows out.
func (r *run) countOpen() {
	if r.work.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.work, countTimeout)
	defer cancel()
	for _, held := range []bool{true, false} {
		for _, bucket := range schema.BucketNames(held) {
			out, err := r.l.Client.Query(ctx, &dynamodb.QueryInput{
				TableName:                 aws.String(r.tables().Ledger),
				IndexName:                 aws.String(schema.PendingIndex),
				KeyConditionExpression:    aws.String("#pendingBucket = :bucket"),
				ExpressionAttributeNames:  map[string]string{"#pendingBucket": schema.APendingBucket},
				ExpressionAttributeValues: schema.Item{":bucket": schema.S(bucket)},
				Select:                    types.SelectCount,
			})
			if err != nil {
				return // only figures
			}
			r.count(func(p *Report) {
				p.Requests++
				if held {
					p.HeldNow += int(out.Count)
				} else {
					p.OpenNow += int(out.Count)
				}
			})
		}
	}
}
