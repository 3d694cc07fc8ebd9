package streams

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// ScanTable is the part of *dynamodb.Client that Rebuild calls. It only reads.
type ScanTable interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// RebuildConfig says what Rebuild reads and where the events go. DynamoDB, Tables and Publisher are required.
type RebuildConfig struct {
	DynamoDB  ScanTable
	Tables    []string  // walked one after the other: the ledger table, and the control table for plans
	Publisher Publisher // nothing is counted as a metric: what the stream gave was counted then

	Tenant       string    // only this tenant's items; "" means all
	Since, Until time.Time // only items last written at Since or later and before Until, by their writers' clocks; zero: no bound
	Likely       bool      // see RebuildItem
	From         string    // go on where RebuildReport.Cursor says; "" means from the beginning
	Rate         int       // items a second at most; 0 means 1,000

	Progress func(*RebuildReport) // called after every page; nil: not
}

// RebuildReport is what Rebuild has done.
type RebuildReport struct {
	Items      int            `json:"items"`  // read, those of other tenants and times left out
	Events     int            `json:"events"` // published
	ByType     map[string]int `json:"by_type"`
	Untold     int            `json:"untold"`     // items that leave open which event their present state is of
	Unreadable int            `json:"unreadable"` // items that Derive could not read either
	Reasons    map[string]int `json:"reasons"`    // why items are untold or unreadable
	Keys       []RebuildKey   `json:"keys"`       // of the first 100 of them
	Cursor     string         `json:"cursor,omitempty"`
	Done       bool           `json:"done"` // all is read; else Cursor says where to go on
}

// RebuildKey names an item whose event is not told.
type RebuildKey struct {
	PK     string `json:"pk"`
	SK     string `json:"sk"`
	Reason string `json:"reason"`
}

// The bounds of a rebuild.
const (
	rebuildRate = 1000
	rebuildPage = 250
	rebuildKeys = 100
	maxScans    = 100_000_000 // pages: more than any table has
)

// ErrCursor is returned by Rebuild for a RebuildConfig.From that no rebuild of these tables has given.
var ErrCursor = errors.New("streams: not a cursor of a rebuild of these tables")

// Rebuild walks tables and publishes the events of what is in them, as RebuildItem reads them: what a stretch of stream that
// was lost told of the present. It writes nothing. A page counts as read once its events are out, so that going on from the
// cursor after a failure loses none, and gives some again with the same ids. The report is never nil.
// Errors: ErrConfig, ErrCursor, the client's, the publisher's, ctx's; with each the report holds the cursor to go on from.
func Rebuild(ctx context.Context, cfg RebuildConfig) (*RebuildReport, error) {
	r := &rebuild{cfg: cfg, report: &RebuildReport{
		ByType: map[string]int{}, Reasons: map[string]int{}, Keys: []RebuildKey{}, Cursor: cfg.From,
	}}
	switch {
	case cfg.DynamoDB == nil || cfg.Publisher == nil || len(cfg.Tables) == 0:
		return r.report, configError("DynamoDB, Tables and Publisher", "are required")
	case cfg.Rate < 0:
		return r.report, configError("Rate", "must not be negative")
	case !cfg.Since.IsZero() && !cfg.Until.IsZero() && !cfg.Since.Before(cfg.Until):
		return r.report, configError("Until", "must be after Since")
	}
	setDefault(&r.cfg.Rate, rebuildRate)
	tables, after, err := resume(cfg.From, cfg.Tables)
	if err != nil {
		return r.report, err
	}
	for _, table := range tables {
		if err := r.walk(ctx, table, after); err != nil {
			return r.report, err
		}
		after = nil
	}
	r.report.Done, r.report.Cursor = true, ""
	return r.report, nil
}

// rebuildCursor is a place in a table: behind the item of this key, or, without one, before the first.
type rebuildCursor struct {
	Table string `json:"t"`
	PK    string `json:"p,omitempty"`
	SK    string `json:"s,omitempty"`
}

func (c rebuildCursor) String() string {
	b, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// resume reads a cursor: the tables that are left, and the key of the first one's item behind which to begin.
func resume(from string, tables []string) ([]string, schema.Item, error) {
	if from == "" {
		return tables, nil, nil
	}
	var c rebuildCursor
	text, err := base64.RawURLEncoding.DecodeString(from)
	if err != nil || json.Unmarshal(text, &c) != nil || (c.PK == "") != (c.SK == "") {
		return nil, nil, ErrCursor
	}
	at := slices.Index(tables, c.Table)
	if at < 0 {
		return nil, nil, fmt.Errorf("%w: it is of table %s", ErrCursor, c.Table)
	}
	if c.PK == "" {
		return tables[at:], nil, nil
	}
	return tables[at:], schema.Key{PK: c.PK, SK: c.SK}.Item(), nil
}

type rebuild struct {
	cfg    RebuildConfig
	report *RebuildReport
}

// walk reads one table page by page.
func (r *rebuild) walk(ctx context.Context, table string, after schema.Item) error {
	if after == nil {
		r.report.Cursor = rebuildCursor{Table: table}.String()
	}
	in := &dynamodb.ScanInput{
		TableName: &table, ConsistentRead: aws.Bool(true), Limit: aws.Int32(int32(min(rebuildPage, r.cfg.Rate))), //nolint:gosec // at most 250
		ExclusiveStartKey: after,
	}
	if t := r.cfg.Tenant; t != "" {
		pk := schema.PlanKey(t).PK
		in.FilterExpression = aws.String("#pk = :pk OR begins_with(#pk, :own) OR begins_with(#pk, :observed)")
		in.ExpressionAttributeNames = map[string]string{"#pk": schema.PK}
		in.ExpressionAttributeValues = schema.Item{
			":pk": schema.S(pk), ":own": schema.S(pk + "#"), ":observed": schema.S(schema.ObservationKey(schema.Key{PK: pk}).PK + "#"),
		}
	}
	for range maxScans {
		out, err := r.cfg.DynamoDB.Scan(ctx, in)
		if err != nil {
			return fmt.Errorf("scan %s: %w", table, err)
		}
		if err := r.page(ctx, out.Items); err != nil {
			return err
		}
		last := schema.Key{PK: schema.ValueOf(out.LastEvaluatedKey[schema.PK]).Text, SK: schema.ValueOf(out.LastEvaluatedKey[schema.SK]).Text}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
		r.report.Cursor = rebuildCursor{table, last.PK, last.SK}.String()
		if r.cfg.Progress != nil {
			r.cfg.Progress(r.report)
		}
		sleep(ctx, time.Duration(out.ScannedCount)*time.Second/time.Duration(r.cfg.Rate), nil)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("scan %s: the table does not end", table)
}

// page publishes the events of a page, and only then counts what was in it.
func (r *rebuild) page(ctx context.Context, items []schema.Item) error {
	var evs []events.Event
	var open []RebuildKey
	read, unreadable := 0, 0
	for _, item := range items {
		if !r.wanted(item) {
			continue
		}
		read++
		rb, err := RebuildItem(ImageOf(item), r.cfg.Likely)
		evs = append(evs, rb.Events...)
		key := RebuildKey{PK: schema.ValueOf(item[schema.PK]).Text, SK: schema.ValueOf(item[schema.SK]).Text, Reason: rb.Untold}
		if err != nil {
			unreadable++
			key.Reason = err.Error()
		}
		if key.Reason != "" {
			open = append(open, key)
		}
	}
	if len(evs) > 0 {
		if out, err := r.cfg.Publisher.Publish(ctx, evs); err != nil || out < len(evs) {
			if err == nil {
				err = errSilent
			}
			return fmt.Errorf("publish: %w", err)
		}
	}
	rep := r.report
	rep.Items += read
	rep.Events += len(evs)
	rep.Unreadable += unreadable
	rep.Untold += len(open) - unreadable
	for _, ev := range evs {
		rep.ByType[ev.DetailType()]++
	}
	for _, key := range open {
		rep.Reasons[key.Reason]++
		if len(rep.Keys) < rebuildKeys {
			rep.Keys = append(rep.Keys, key)
		}
	}
	if r.cfg.Progress != nil {
		r.cfg.Progress(rep)
	}
	return nil
}

// wanted tells whether an item was last written in the time that is asked for. One that does not say when is wanted: what
// cannot be read must be seen.
func (r *rebuild) wanted(item schema.Item) bool {
	if r.cfg.Since.IsZero() && r.cfg.Until.IsZero() {
		return true
	}
	millis, err := strconv.ParseInt(schema.ValueOf(item[schema.AUpdatedAt]).Text, 10, 64)
	at := time.UnixMilli(millis)
	return err != nil || !at.Before(r.cfg.Since) && (r.cfg.Until.IsZero() || at.Before(r.cfg.Until))
}
