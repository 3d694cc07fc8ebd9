package sweeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// write writes steps in batched transactions.
func (r *run) write(steps []step) {
	if len(steps) == 0 {
		return
	}
	if r.cfg.DryRun {
		r.committed(steps, nil)
		return
	}
	var wg sync.WaitGroup
	for _, lane := range lanes(steps, r.cfg.Concurrency) {
		if len(lane) > 0 {
			wg.Go(func() { r.writeLane(pack(lane, r.cfg.Batch)) })
		}
	}
	wg.Wait()
}

// writeLane writes the batches one after the other. A batch that is split comes back as two.
func (r *run) writeLane(batches [][]step) {
	for len(batches) > 0 {
		next := batches[0]
		batches = batches[1:]
		if r.work.Err() != nil {
			r.cutShort(len(next))
			continue
		}
		b := &batch{run: r, steps: next, stamp: r.l.Now(), gone: map[schema.Key]bool{}}
		batches = append(b.write(), batches...)
	}
}

// splitAfter is how many conflicts a batch meets before it is cut in halves: a smaller transaction has fewer items that
// another one can be at.
const splitAfter = 3

// maxTries bounds the tries of one batch: what contention does not let through now, the next run takes up.
const maxTries = 12

// maxLostAnswers is how many answers in one batch may be lost before the table counts as unreachable.
const maxLostAnswers = 4

// batch is one transaction through all its tries.
type batch struct {
	*run
	steps []step
	stamp time.Time           // updatedAt of what it writes, by which it knows its own lost write
	gone  map[schema.Key]bool // quota items that are not there

	conflicts   int
	lostAnswers int
	unsure      *sent // the last try whose answer was lost
}

// sent is what a try wrote, if it did.
type sent struct {
	steps []step
	gone  map[schema.Key]bool
}

// write tries until every row is written, dropped, or handed back in halves.
func (b *batch) write() (halves [][]step) {
	for try := 1; try <= maxTries && len(b.steps) > 0; try++ {
		tx := b.transaction()
		b.count(func(p *Report) { p.Requests++ })
		err := protocol.Send(b.ctx, b.l.Client, tx)
		if err == nil {
			b.committed(b.steps, b.gone)
			return nil
		}
		if halves, done := b.failed(err); done {
			return halves
		}
		if b.conflicts+b.lostAnswers > 0 && protocol.Pause(b.work, b.conflicts+b.lostAnswers) != nil {
			break
		}
	}
	if len(b.steps) > 0 {
		b.cutShort(len(b.steps))
	}
	return nil
}

// failed decides what a try that failed means; done says that the batch is not to be tried again as it is.
func (b *batch) failed(err error) (halves [][]step, done bool) {
	if refused, ok := errors.AsType[*protocol.Refused](err); ok {
		if b.refused(refused) {
			return nil, true
		}
		if b.toSplit(refused) {
			return b.split(), true
		}
		return nil, false
	}
	if _, ok := errors.AsType[*protocol.Unsure](err); ok {
		if b.lost() {
			return nil, true
		}
		if b.lostAnswers++; b.lostAnswers < maxLostAnswers || b.ctx.Err() != nil {
			return nil, false
		}
	}
	if b.ctx.Err() != nil {
		b.cutShort(len(b.steps))
		return nil, true
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == codeValidation {
		return b.split(), true // one of the rows does not fit; the others must not suffer
	}
	b.count(func(p *Report) { p.Errors += len(b.steps) })
	b.fail(fmt.Errorf("write %d rows: %w", len(b.steps), err))
	return nil, true
}

// transaction builds the rows' transitions and their refunds, netted per quota item.
func (b *batch) transaction() *protocol.Tx {
	tables := b.tables()
	tx := protocol.NewTx(2 * len(b.steps))
	var refunds []protocol.Amount
	for i, s := range b.steps {
		tx.Add(protocol.Part{Kind: protocol.PartRow, Index: i, Key: s.row.Key}, b.transition(s))
		if s.do != expire {
			continue
		}
		for _, a := range protocol.Refunds(s.tenant, s.row.Debits) {
			if !b.gone[a.Key] {
				refunds = append(refunds, a)
			}
		}
	}
	tables.AddAmounts(tx, refunds)
	return tx
}

func (b *batch) transition(s step) types.TransactWriteItem {
	tables := b.tables()
	switch s.do {
	case hold:
		id, _ := schema.ParseKey(s.row.Key) // it was read from the table by this key
		return tables.Hold(s.row, schema.HeldBucket(id.CallKey), b.stamp)
	case postpone:
		return tables.Defer(s.row, s.at, b.stamp)
	case expire, settle: // settled rows are written one by one, elsewhere
	}
	return tables.Fail(s.row.Key, protocol.AsRead(s.row), protocol.Failure{
		Kind: schema.FailureExpired, Unverified: schema.UnverifiedExpired, Now: b.stamp,
		ExpiresAt: b.l.ExpiresAt(s.row, s.row.Debits, b.stamp),
	})
}

// refused reads all reasons: rows whose condition failed have been moved by somebody else and drop out, quota items that
// are gone are refunded no more. done is true where nothing is left to do.
func (b *batch) refused(e *protocol.Refused) (done bool) {
	lost := map[int]bool{}
	for i, reason := range e.Reasons {
		part := e.Parts[i]
		switch {
		case reason.Code != codeCondition:
		case part.Kind == protocol.PartQuota:
			b.gone = with(b.gone, part.Key)
		case b.unsure != nil && b.own(b.steps[part.Index], reason.Item):
			b.committed(b.unsure.steps, b.unsure.gone) // the lost try came through, whole
			return true
		default:
			lost[part.Index] = true
		}
	}
	if len(lost) == 0 {
		return false
	}
	var rest []step
	for i, s := range b.steps {
		if !lost[i] {
			rest = append(rest, s)
		}
	}
	b.count(func(p *Report) { p.LostRaces += len(lost) })
	b.steps = rest
	return len(rest) == 0
}

// Codes of cancellation reasons that say something about one item.
const (
	codeNone      = "None"
	codeCondition = "ConditionalCheckFailed"

	codeValidation = "ValidationException" // of a whole request
)

// toSplit tells whether the batch should go on in halves: it keeps meeting other transactions, or holds a row that
// DynamoDB does not take.
func (b *batch) toSplit(e *protocol.Refused) bool {
	answer, _ := e.Decide()
	contended := false
	for _, reason := range e.Reasons {
		if reason.Code != codeNone && reason.Code != codeCondition {
			contended = true
		}
	}
	if !contended {
		return false
	}
	b.conflicts++
	if answer == protocol.Broken {
		return true
	}
	return len(b.steps) > 1 && b.conflicts >= splitAfter
}

// split hands the rows back in two halves; a single row that is not taken is counted.
func (b *batch) split() [][]step {
	n := len(b.steps)
	if n == 1 {
		key := b.steps[0].row.Key
		b.count(func(p *Report) { p.Errors++ })
		b.l.Logger.LogAttrs(b.ctx, slog.LevelError, "overdue reservation cannot be written",
			slog.String("pk", key.PK), slog.String("sk", key.SK))
		return nil
	}
	return [][]step{b.steps[: n/2 : n/2], b.steps[n/2:]}
}

// lost looks what became of a try whose answer was lost, before anything else is done.
func (b *batch) lost() (done bool) {
	b.unsure = &sent{b.steps, b.gone}
	rows, err := b.readBack()
	if err != nil {
		return false // the conditions hold; what they refuse will tell
	}
	for i, item := range rows {
		if b.own(b.steps[i], item) {
			b.committed(b.steps, b.gone)
			return true
		}
	}
	return false
}

// readBack reads the batch's rows in one consistent view.
func (b *batch) readBack() ([]schema.Item, error) {
	ctx, cancel := outlive(b.ctx)
	defer cancel()
	return readRows(ctx, b.run, b.steps)
}

func readRows(ctx context.Context, r *run, steps []step) ([]schema.Item, error) {
	in := &dynamodb.TransactGetItemsInput{}
	for _, s := range steps {
		in.TransactItems = append(in.TransactItems, types.TransactGetItem{
			Get: &types.Get{TableName: aws.String(r.tables().Ledger), Key: s.row.Key.Item()},
		})
	}
	r.count(func(p *Report) { p.Requests++ })
	out, err := r.l.Client.TransactGetItems(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(out.Responses) != len(steps) {
		return nil, fmt.Errorf("read back %d rows of %d", len(out.Responses), len(steps))
	}
	items := make([]schema.Item, len(steps))
	for i, res := range out.Responses {
		items[i] = res.Item
	}
	return items, nil
}

// own tells whether an item is what this batch made of the row: the next version, written at the batch's own moment.
func (b *batch) own(s step, item schema.Item) bool {
	if len(item) == 0 {
		return false
	}
	now, err := schema.DecodeRow(schema.FieldsOf(item))
	if err != nil || now.RowID != s.row.RowID || now.Version != s.row.Version+1 || !now.UpdatedAt.Equal(b.stamp) {
		return false
	}
	switch s.do {
	case expire:
		return now.State == schema.StateFailed && now.Failure == schema.FailureExpired
	case hold:
		return now.State == schema.StatePending && now.Held
	case postpone:
		return now.State == schema.StatePending && now.SweepAt.Equal(s.at)
	case settle:
	}
	return false
}

// committed counts what was written, and in a dry run what would be.
func (r *run) committed(steps []step, gone map[schema.Key]bool) {
	r.count(func(p *Report) {
		for _, s := range steps {
			switch {
			case s.do == hold:
				p.Held++
			case s.do == postpone && s.early:
				p.Early++
			case s.do == postpone:
				p.Unknown++
			case s.do == expire:
				p.Expired++
				for _, d := range s.row.Debits {
					if gone[d.Key(s.tenant)] {
						p.GoneTokens += d.Tokens
					} else {
						p.RefundedTokens += d.Tokens
					}
				}
			}
		}
	})
}

// with returns a copy of set with k: earlier tries remember theirs.
func with(set map[schema.Key]bool, k schema.Key) map[schema.Key]bool {
	more := make(map[schema.Key]bool, len(set)+1)
	for old := range set {
		more[old] = true
	}
	more[k] = true
	return more
}
