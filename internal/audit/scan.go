package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/schema"
)

// pass is what one reading of the table gathers. Rows are looked at and let go; only sums stay.
type pass struct {
	now    time.Time
	cfg    Config
	checks bool // also check states, which a second pass has no need of

	mu     sync.Mutex
	report *Report
	quotas map[schema.Key]*schema.Quota
	debits map[schema.Key]int64
}

func newPass(now time.Time, cfg Config, checks bool) *pass {
	return &pass{
		now: now, cfg: cfg, checks: checks,
		report: &Report{Items: map[string]int{}, States: map[string]int{}},
		quotas: map[schema.Key]*schema.Quota{}, debits: map[schema.Key]int64{},
	}
}

// scan reads the whole table once.
func (a *auditor) scan(ctx context.Context, p *pass) error {
	readers, ctx := errgroup.WithContext(ctx)
	for segment := range a.cfg.Segments {
		readers.Go(func() error { return a.scanSegment(ctx, p, segment) })
	}
	return readers.Wait()
}

func (a *auditor) scanSegment(ctx context.Context, p *pass, segment int) error {
	in := &dynamodb.ScanInput{TableName: aws.String(a.cfg.Table), ConsistentRead: aws.Bool(true)}
	if a.cfg.Segments > 1 {
		in.Segment, in.TotalSegments = aws.Int32(int32(segment)), aws.Int32(int32(a.cfg.Segments)) //nolint:gosec // at most 64
	}
	if t := a.cfg.Tenant; t != "" {
		in.FilterExpression = aws.String("#pk = :pk OR begins_with(#pk, :own) OR begins_with(#pk, :observed)")
		in.ExpressionAttributeNames = map[string]string{"#pk": schema.PK}
		pk := schema.QuotaKey(t, schema.AlwaysPeriod, 0).PK
		in.ExpressionAttributeValues = schema.Item{
			":pk": schema.S(pk), ":own": schema.S(pk + "#"),
			":observed": schema.S(schema.ObservationKey(schema.Key{PK: pk}).PK + "#"),
		}
	}
	for {
		out, err := a.client.Scan(ctx, in)
		if err != nil {
			return fmt.Errorf("scan %s: %w", a.cfg.Table, err)
		}
		p.add(out.Items)
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

func (p *pass) add(items []schema.Item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range items {
		p.item(item)
	}
	if p.cfg.Progress != nil {
		p.cfg.Progress(len(items))
	}
}

// item sorts one item by its key and reads it.
func (p *pass) item(item schema.Item) {
	key := schema.Key{PK: schema.ValueOf(item[schema.PK]).Text, SK: schema.ValueOf(item[schema.SK]).Text}
	id, err := schema.ParseKey(key)
	if err != nil {
		p.report.Items[schema.KindUnknown.String()]++
		p.foreign(key)
		return
	}
	p.report.Items[id.Kind.String()]++
	s := subject{pass: p, key: key, id: id}
	switch id.Kind {
	case schema.KindRow:
		s.row(item)
	case schema.KindQuota:
		s.quota(item)
	case schema.KindSession:
		_, err := schema.DecodeSession(schema.FieldsOf(item))
		s.unreadable(err)
	case schema.KindObservation:
		_, err := schema.DecodeObservation(schema.FieldsOf(item))
		s.unreadable(err)
	case schema.KindPlan, schema.KindGrant, schema.KindLease, schema.KindUnknown:
		s.illegal("", "belongs in the control table")
	}
	s.unknown(item)
}
