// Package audit checks a ledger table against the promises that can be seen in it at rest: that the books balance, that
// every item is readable and in a legal state, and which reservations are overdue. It reads consistently and writes nothing.
//
// The books of one quota item are granted − remaining = Σ debits of its pending and applied rows. Where rows may have been
// archived they are ≥: in ALWAYS periods, and in periods that ended more than a day ago. After an erase they are ≥ as well,
// which a table does not tell: such a period is reported.
//
// A Scan is no snapshot. An item that does not balance at first sight is looked at again: it is unbalanced only if it did
// not change while all rows were read once more, which its version tells, since whatever changes a row's debits raises the
// version of the quota item in the same transaction. Items that keep moving are reported as moving, neither way. An item
// that balances at first sight is believed: a fault can hide behind a change of the same amount, once, on an item in use.
//
// A difference below zero is a refund without a matching debit: more was given back than had been taken.
package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
)

// DynamoDB is the part of *dynamodb.Client that an audit calls.
type DynamoDB interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Config configures an audit. Table is required.
type Config struct {
	Table    string           // the ledger table
	Tenant   string           // only this tenant's items; "" means all, and foreign items too
	Segments int              // parts of the table read at once; 0 means 1, at most 64
	Rechecks int              // how often an item that does not balance is looked at again; 0 means 3
	Limit    int              // findings listed of each sort, all are counted; 0 means 1,000
	Skew     time.Duration    // how far apart clocks may be; 0 means 2 minutes
	Sweep    time.Duration    // how often the sweeper runs; 0 means 1 minute
	Now      func() time.Time // nil means time.Now
	Progress func(items int)  // called, never twice at once, with the items read since the last call; nil: not
}

// ErrConfig is returned by Run for a Config that cannot be meant.
var ErrConfig = errors.New("audit: bad config")

const (
	maxSegments     = 64
	defaultRechecks = 3
	defaultLimit    = 1000
	defaultSkew     = 2 * time.Minute
	defaultSweep    = time.Minute
	defaultHorizon  = time.Minute // of rows that store none
)

func (c *Config) defaults() error {
	switch {
	case c.Table == "":
		return fmt.Errorf("%w: Table is required", ErrConfig)
	case c.Segments < 0 || c.Segments > maxSegments:
		return fmt.Errorf("%w: Segments must be between 0 and %d", ErrConfig, maxSegments)
	case c.Rechecks < 0 || c.Limit < 0 || c.Skew < 0 || c.Sweep < 0:
		return fmt.Errorf("%w: Rechecks, Limit, Skew and Sweep must not be negative", ErrConfig)
	}
	if c.Tenant != "" {
		if err := schema.CheckID("tenant", c.Tenant, schema.MaxTenant); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	c.Segments, c.Rechecks = max(c.Segments, 1), orDefault(c.Rechecks, defaultRechecks)
	c.Limit, c.Skew, c.Sweep = orDefault(c.Limit, defaultLimit), orDefault(c.Skew, defaultSkew), orDefault(c.Sweep, defaultSweep)
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	return nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Run audits a table. The Report is complete or there is an error. Errors: ErrConfig, those of the client, ctx's.
func Run(ctx context.Context, client DynamoDB, cfg Config) (*Report, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	a := &auditor{cfg: cfg, client: client, now: cfg.Now()}
	first := newPass(a.now, cfg, true)
	if err := a.scan(ctx, first); err != nil {
		return nil, err
	}
	report := first.report
	report.Table, report.Tenant, report.At = cfg.Table, cfg.Tenant, a.now.UTC()
	suspects := first.settle(report)
	for range cfg.Rechecks {
		if len(suspects) == 0 {
			break
		}
		var err error
		if suspects, err = a.recheck(ctx, suspects, report); err != nil {
			return nil, err
		}
	}
	for _, s := range suspects {
		report.Moving.add(s.book, cfg.Limit)
	}
	report.finish()
	return report, nil
}

type auditor struct {
	cfg    Config
	client DynamoDB
	now    time.Time
}

// Books says whether the books balance.
type Books string

// What Books says.
const (
	Balanced   Books = "balanced"
	Unbalanced Books = "unbalanced"
	Moving     Books = "moving" // no fault was found, and some items changed each time that they were looked at
)

// List is findings of one sort: all are counted, the first of them are listed.
type List[T any] struct {
	Count int `json:"count"`
	Items []T `json:"items"`
}

func (l *List[T]) add(v T, limit int) {
	l.Count++
	if len(l.Items) < limit {
		l.Items = append(l.Items, v)
	}
}

// Report is what an audit found.
type Report struct {
	Table  string         `json:"table"`
	Tenant string         `json:"tenant,omitempty"` // the only one looked at
	At     time.Time      `json:"at"`
	OK     bool           `json:"ok"` // the books balance and nothing is illegal
	Books  Books          `json:"books"`
	Items  map[string]int `json:"items"`  // by kind
	States map[string]int `json:"states"` // ledger rows by state
	Tokens Tokens         `json:"tokens"` // of all quota items

	Unbalanced List[Book]    `json:"unbalanced"`            // these break a promise
	Refunds    List[Book]    `json:"refunds_without_debit"` // of the unbalanced: more was given back than had been taken
	Illegal    List[Finding] `json:"illegal"`               // these break a promise
	Moving     List[Book]    `json:"moving"`                // changed each time that they were looked at: no verdict
	Overdue    List[Finding] `json:"overdue"`               // reservations that a sweep should have settled
	Neglected  List[Finding] `json:"neglected"`             // of these: not held, and two sweeps should have taken them since
	Notes      List[Finding] `json:"notes"`                 // what this program does not know and passes over
}

// Tokens adds up the quota items that were seen.
type Tokens struct {
	Granted   int64 `json:"granted"`
	Remaining int64 `json:"remaining"`
	Debited   int64 `json:"debited"` // by pending and applied rows
}

// Book is the books of one quota item.
type Book struct {
	PK         string `json:"pk"`
	SK         string `json:"sk"`
	Tenant     string `json:"tenant"`
	Period     string `json:"period"`
	Shard      int    `json:"shard"`
	Granted    int64  `json:"granted"`
	Remaining  int64  `json:"remaining"`
	Debits     int64  `json:"debits"`     // Σ debits of pending and applied rows
	Difference int64  `json:"difference"` // granted − remaining − debits
	AtLeast    bool   `json:"at_least"`   // rows may have been archived: a difference above 0 is no fault
	Missing    bool   `json:"missing"`    // rows were debited here, and the item does not exist
}

// Finding is one item and the rule that it breaks. It never holds values of attributes other than ids and state.
type Finding struct {
	PK      string `json:"pk"`
	SK      string `json:"sk"`
	Kind    string `json:"kind"` // of item
	Tenant  string `json:"tenant,omitempty"`
	Session string `json:"session,omitempty"`
	Key     string `json:"key,omitempty"`
	RowID   string `json:"row_id,omitempty"`
	State   string `json:"state,omitempty"`
	Attr    string `json:"attribute,omitempty"`
	Rule    string `json:"rule"`
}

func (r *Report) finish() {
	byKey := func(a, b Finding) int { return strings.Compare(a.PK+"\x00"+a.SK+a.Attr, b.PK+"\x00"+b.SK+b.Attr) }
	books := func(a, b Book) int { return strings.Compare(a.PK+"\x00"+a.SK, b.PK+"\x00"+b.SK) }
	for _, l := range []*List[Finding]{&r.Illegal, &r.Overdue, &r.Neglected, &r.Notes} {
		slices.SortFunc(l.Items, byKey)
		l.Items = slices.Clip(append([]Finding{}, l.Items...))
	}
	for _, l := range []*List[Book]{&r.Unbalanced, &r.Refunds, &r.Moving} {
		slices.SortFunc(l.Items, books)
		l.Items = slices.Clip(append([]Book{}, l.Items...))
	}
	switch {
	case r.Unbalanced.Count > 0:
		r.Books = Unbalanced
	case r.Moving.Count > 0:
		r.Books = Moving
	default:
		r.Books = Balanced
	}
	r.OK = r.Unbalanced.Count == 0 && r.Illegal.Count == 0 // what moves is not called wrong
}
