package writers

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// Get reads a call's row, consistently. Errors: ErrInvalid, ErrMissingTenant, ErrNotFound, ErrUnavailable.
func (s Session) Get(ctx context.Context, k Key) (Row, error) {
	const op = "get"
	key, err := s.checkKey(op, k)
	if err != nil {
		return Row{}, err
	}
	row, err := s.t.l.readRow(ctx, key)
	switch {
	case err != nil:
		return Row{}, failure(ctx, op, err)
	case row == nil:
		return Row{}, notFound(op, k)
	}
	return s.row(ctx, op, k, row)
}

func (s Session) row(ctx context.Context, op string, k Key, r *schema.Row) (Row, error) {
	row := publicRow(s.info(k, r), r)
	if r.State == schema.StateApplied {
		text, err := s.t.l.loadResult(ctx, op, r)
		if err != nil {
			return Row{}, err
		}
		row.Result = text
	}
	return row, nil
}

func publicRow(info CallInfo, r *schema.Row) Row {
	row := Row{
		CallInfo: info, State: State(r.State), Failure: r.Failure, Version: r.Version, Reserved: r.Reserved, Charged: r.Charged,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ExpiresAt: r.ExpiresAt, Held: r.Held, Unverified: r.Unverified > 0,
		Suspects: slices.Clone(r.Suspects),
	}
	if r.Failure != "" && r.Why != "" {
		row.Failure += ": " + r.Why
	}
	_, row.Compensates, _ = strings.Cut(r.Compensates, ":")
	_, row.CompensatedBy, _ = strings.Cut(r.CompensatedBy, ":")
	if r.ResultJSON != nil {
		row.Result = json.RawMessage(*r.ResultJSON)
	}
	return row
}

// Wait reads until the call is no longer pending or ctx ends; then it gives the row that is still pending beside
// ErrInProgress. Errors: as Get, ErrInProgress.
func (s Session) Wait(ctx context.Context, k Key) (Row, error) {
	var row Row // as last seen
	for gap := pollFirst; ; gap = min(gap*2, pollMost) {
		seen, err := s.Get(ctx, k)
		if err == nil {
			row = seen
		}
		interrupted := err != nil && ctx.Err() != nil && row.State == StatePending
		if !interrupted && (err != nil || row.State != StatePending) {
			return seen, err
		}
		if protocol.Sleep(ctx, gap) != nil {
			return row, &Error{
				Code: ErrInProgress, Op: "wait", Call: row.CallInfo, RetryAfter: time.Second, Err: ctx.Err(),
				Reason: "the call is still pending; wait again",
			}
		}
	}
}

// Calls walks the session's calls in key order: what a resumed planner has done, or has to undo. Rows of tenant keys are
// not among them. Reads are consistent, a page at a time.
func (s Session) Calls(ctx context.Context) iter.Seq2[Row, error] { return s.calls(ctx, Key{}, 0) }

// CallsAfter is Calls from behind a key, whether or not there is a call of that key: for showing a long session page by
// page, each page reading on where the last one ended. The zero Key begins at the first call. It reads in small pages.
func (s Session) CallsAfter(ctx context.Context, after Key) iter.Seq2[Row, error] {
	return s.calls(ctx, after, callsPage)
}

// callsPage is how many rows CallsAfter reads at once: its callers show that many at most.
const callsPage = 256

// calls walks the calls behind a key; page 0 reads as much at once as DynamoDB gives.
func (s Session) calls(ctx context.Context, after Key, page int32) iter.Seq2[Row, error] {
	const op = "calls"
	return func(yield func(Row, error) bool) {
		in, err := s.callsQuery(op, after, page)
		if err != nil {
			yield(Row{}, err)
			return
		}
		l := s.t.l
		for r, err := range l.rows(ctx, op, in, schema.DecodeRow) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			if r.Expired(l.now()) || after.id != "" && r.Key.SK == schema.RowPrefix+after.id {
				continue
			}
			row, err := s.row(ctx, op, SessionKey(strings.TrimPrefix(r.Key.SK, schema.RowPrefix)), r)
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// callsQuery reads the session's rows from a key on. Errors: ErrInvalid, ErrMissingTenant.
func (s Session) callsQuery(op string, after Key, page int32) (*dynamodb.QueryInput, error) {
	if err := s.check(op); err != nil {
		return nil, err
	}
	in := &dynamodb.QueryInput{
		TableName: &s.t.l.cfg.Table, ConsistentRead: new(true),
		KeyConditionExpression:    new("#pk = :pk AND begins_with(#sk, :prefix)"),
		ExpressionAttributeNames:  map[string]string{"#pk": schema.PK, "#sk": schema.SK},
		ExpressionAttributeValues: schema.Item{":pk": schema.S(s.key().PK), ":prefix": schema.S(schema.RowPrefix)},
	}
	if page > 0 {
		in.Limit = &page
	}
	if after == (Key{}) {
		return in, nil
	}
	if err := after.check(); err != nil {
		return nil, invalidID(op, err)
	}
	if after.tenant {
		return nil, invalid(op, "after", "must be a session key: calls of tenant keys are not among the session's")
	}
	// Calls are the rows of one prefix; the byte behind its '#' bounds them from above.
	end := schema.RowPrefix[:len(schema.RowPrefix)-1] + "$"
	in.KeyConditionExpression = new("#pk = :pk AND #sk BETWEEN :after AND :end")
	in.ExpressionAttributeValues = schema.Item{
		":pk": schema.S(s.key().PK), ":after": schema.S(schema.RowPrefix + after.id), ":end": schema.S(end),
	}
	return in, nil
}

// rows walks the pages of a query.
func (l *Ledger) rows(ctx context.Context, op string, in *dynamodb.QueryInput, decodeRow func(schema.Fields) (*schema.Row, error)) iter.Seq2[*schema.Row, error] {
	return func(yield func(*schema.Row, error) bool) {
		for {
			out, err := l.db.Query(ctx, in)
			if err != nil {
				yield(nil, failure(ctx, op, err))
				return
			}
			for _, item := range out.Items {
				r, err := decodeRow(schema.FieldsOf(item))
				if err != nil {
					yield(nil, unreadable(op, err))
					return
				}
				if !yield(r, nil) {
					return
				}
			}
			if len(out.LastEvaluatedKey) == 0 {
				return
			}
			in.ExclusiveStartKey = out.LastEvaluatedKey
		}
	}
}

// Cursor reads the session's cursor, consistently; "" where none was set.
// Errors: ErrInvalid, ErrMissingTenant, ErrUnavailable.
func (s Session) Cursor(ctx context.Context) (string, error) {
	const op = "cursor"
	if err := s.check(op); err != nil {
		return "", err
	}
	item, err := s.t.l.getItem(ctx, s.t.l.cfg.Table, s.key())
	if err != nil {
		return "", failure(ctx, op, err)
	}
	if item == nil {
		return "", nil
	}
	session, err := schema.DecodeSession(schema.FieldsOf(item))
	if err != nil {
		return "", unreadable(op, err)
	}
	return session.Cursor, nil
}

// Pending walks the reservations of all tenants whose deadline passed at least that long ago, held ones included, oldest
// first. It reads an index, which may be a moment behind the table. Errors: ErrInvalid, ErrUnavailable.
func (l *Ledger) Pending(ctx context.Context, overdue time.Duration) iter.Seq2[Row, error] {
	const op = "pending"
	return func(yield func(Row, error) bool) {
		if overdue < 0 {
			yield(Row{}, invalid(op, "overdue", "must not be negative"))
			return
		}
		before := l.now().Add(-overdue)
		var heads []*bucketHead
		defer func() {
			for _, h := range heads {
				h.stop()
			}
		}()
		for _, name := range slices.Concat(schema.BucketNames(false), schema.BucketNames(true)) {
			h := l.bucket(ctx, op, name, before)
			heads = append(heads, h)
			if h.err != nil {
				yield(Row{}, h.err)
				return
			}
		}
		mergeBuckets(heads, yield)
	}
}

// bucketHead is the oldest row of one index partition that was not given yet.
type bucketHead struct {
	row  *schema.Row // nil: the partition is done
	err  error
	next func() (*schema.Row, error, bool)
	stop func()
}

func (h *bucketHead) advance() {
	row, err, ok := h.next()
	if !ok {
		row, err = nil, nil
	}
	h.row, h.err = row, err
}

func (l *Ledger) bucket(ctx context.Context, op, name string, before time.Time) *bucketHead {
	h := &bucketHead{}
	h.next, h.stop = iter.Pull2(l.rows(ctx, op, &dynamodb.QueryInput{
		TableName: &l.cfg.Table, IndexName: new(schema.PendingIndex),
		KeyConditionExpression:    new("#pendingBucket = :bucket AND #deadline <= :before"),
		ExpressionAttributeNames:  map[string]string{"#pendingBucket": schema.APendingBucket, "#deadline": schema.ADeadline},
		ExpressionAttributeValues: schema.Item{":bucket": schema.S(name), ":before": schema.Millis(before)},
	}, schema.DecodePending))
	h.advance()
	return h
}

// mergeBuckets gives the rows of all partitions, oldest first.
func mergeBuckets(heads []*bucketHead, yield func(Row, error) bool) {
	for {
		var oldest *bucketHead
		for _, h := range heads {
			if h.row != nil && (oldest == nil || h.row.Deadline.Before(oldest.row.Deadline)) {
				oldest = h
			}
		}
		if oldest == nil {
			return
		}
		info, err := infoOf(oldest.row)
		if !yield(publicRow(info, oldest.row), err) || err != nil {
			return
		}
		if oldest.advance(); oldest.err != nil {
			yield(Row{}, oldest.err)
			return
		}
	}
}

// infoOf is CallInfo from a row alone.
func infoOf(r *schema.Row) (CallInfo, error) {
	id, err := schema.ParseKey(r.Key)
	if err != nil {
		return CallInfo{}, unreadable("read", err)
	}
	s := Session{Tenant{nil, TenantID(id.Tenant)}, r.Session}
	return s.info(Key{id: id.CallKey, tenant: id.Scope == schema.ScopeTenant}, r), nil
}
