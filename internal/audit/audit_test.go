package audit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// table answers Scan and GetItem from memory, in pages of two items, so that paging is always part of a test.
type table struct {
	mu    sync.Mutex
	items []schema.Item
	scans int
	// meanwhile is called before every page, with the table locked: it is what other people write during an audit.
	meanwhile func(page int)
	err       error
}

func (t *table) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return nil, t.err
	}
	if !aws.ToBool(in.ConsistentRead) {
		return nil, errors.New("an audit must read consistently")
	}
	at := 0
	if k, ok := in.ExclusiveStartKey["at"]; ok {
		at = len(schema.ValueOf(k).Text)
	}
	if t.meanwhile != nil {
		t.meanwhile(t.scans)
	}
	t.scans++
	out := &dynamodb.ScanOutput{}
	for i := at; i < min(at+2, len(t.items)); i++ {
		out.Items = append(out.Items, maps.Clone(t.items[i]))
	}
	if at+2 < len(t.items) {
		out.LastEvaluatedKey = schema.Item{"at": schema.S(strings.Repeat("x", at+2))}
	}
	return out, nil
}

func (t *table) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, it := range t.items {
		if keyOf(it) == keyOf(in.Key) {
			return &dynamodb.GetItemOutput{Item: maps.Clone(it)}, nil
		}
	}
	return &dynamodb.GetItemOutput{}, nil
}

func keyOf(it schema.Item) schema.Key {
	return schema.Key{PK: schema.ValueOf(it[schema.PK]).Text, SK: schema.ValueOf(it[schema.SK]).Text}
}

func quota(tenant, period string, shard int, granted, remaining int64) *schema.Quota {
	return &schema.Quota{
		Key: schema.QuotaKey(tenant, period, shard), QuotaID: "q", Version: 1, Granted: granted, Remaining: remaining,
		Shard: int64(shard), PlanVersion: 1, CreatedAt: now, UpdatedAt: now,
	}
}

func row(state string, tokens int64) *schema.Row {
	r := &schema.Row{
		Key: schema.RowKey("acme", "s", schema.ScopeSession, "k-"+state), RowID: "r", Holder: "h", Version: 1, Attempt: 1,
		State: state, Tool: "pay", IntentHash: make([]byte, 32), Session: "s", Scope: schema.ScopeSession, Reserved: tokens,
		CreatedAt: now, UpdatedAt: now,
	}
	if tokens > 0 {
		r.Debits = []schema.Debit{{Period: "2026-11", Tokens: tokens}}
	}
	switch state {
	case schema.StatePending:
		r.Deadline, r.PendingBucket = now.Add(time.Minute), schema.PendingBucket("k-pending")
		return r
	case schema.StateApplied:
		r.AppliedAttempt, r.Charged, r.ResultJSON, r.SettledBy = 1, tokens, new(`"ok"`), schema.SettledByHolder
	case schema.StateFailed:
		r.Failure = schema.FailureReleased
	}
	r.LastDeadline, r.ExpiresAt = now.Add(time.Minute), now.Add(30*24*time.Hour)
	return r
}

// sound is a table that keeps every promise.
func sound() *table {
	held := row(schema.StatePending, 3)
	held.Key = schema.RowKey("acme", "s", schema.ScopeSession, "k-held")
	held.Held, held.PendingBucket = true, schema.HeldBucket("k-held")
	wide := row(schema.StateApplied, 0)
	wide.Key, wide.Scope = schema.RowKey("acme", "", schema.ScopeTenant, "wide"), schema.ScopeTenant
	other := row(schema.StateApplied, 4)
	other.Key = schema.RowKey("acme2", "s", schema.ScopeSession, "k")
	undone := row(schema.StateApplied, 8)
	undone.Key = schema.RowKey("acme", "s", schema.ScopeSession, "k-undone")
	undone.Debits, undone.CompensatedBy, undone.CompensatedAt = nil, "session:k-applied", now
	undone.ResultJSON = new("") // json.RawMessage without a byte: no result
	obs := schema.ObservationKey(other.Key)
	meta := schema.SessionKey("acme", "s")
	return &table{items: []schema.Item{
		quota("acme", "2026-11", 0, 100, 100-5-7-3).Item(), row(schema.StatePending, 5).Item(), row(schema.StateApplied, 7).Item(),
		row(schema.StateFailed, 9).Item(), held.Item(), wide.Item(), quota("acme2", "2026-11", 0, 10, 6).Item(), other.Item(),
		undone.Item(),
		{
			schema.PK: schema.S(obs.PK), schema.SK: schema.S(obs.SK), schema.AFormat: schema.N(1), schema.AObsID: schema.S("o"),
			schema.AVersion: schema.N(1), schema.ADuplicates: schema.N(2),
		},
		{
			schema.PK: schema.S(meta.PK), schema.SK: schema.S(meta.SK), schema.AFormat: schema.N(1),
			schema.AVersion: schema.N(1), schema.ACursor: schema.S("c"),
		},
	}}
}

func run(t *testing.T, tab *table, cfg Config) *Report {
	t.Helper()
	cfg.Table, cfg.Now = "ledger", func() time.Time { return now }
	r, err := Run(t.Context(), tab, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A table that keeps every promise is found to, with everything counted.
func TestSound(t *testing.T) {
	r := run(t, sound(), Config{})
	if !r.OK || r.Books != Balanced || r.Illegal.Count+r.Unbalanced.Count+r.Notes.Count+r.Overdue.Count+r.Moving.Count != 0 {
		t.Fatalf("%+v", r)
	}
	if r.Items["row"] != 7 || r.Items["quota"] != 2 || r.Items["session"] != 1 || r.Items["observation"] != 1 ||
		r.States["pending"] != 2 || r.States["applied"] != 4 || r.States["failed"] != 1 ||
		r.Tokens != (Tokens{Granted: 110, Remaining: 91, Debited: 19}) {
		t.Fatalf("%+v", r)
	}
	if b, err := json.Marshal(r); err != nil || strings.Contains(string(b), "null") {
		t.Fatalf("%s %v", b, err)
	}
}

// Every rule notices the one change that breaks it, and names the item, the attribute and nothing of its content.
func TestIllegal(t *testing.T) {
	const pending, applied, failed, quotaItem = 1, 2, 3, 0
	n, s := schema.N, schema.S
	for name, c := range map[string]struct {
		item int
		attr string
		to   types.AttributeValue // nil: removed
		want string
	}{
		"pending without deadline":   {pending, schema.ADeadline, nil, "deadline: is missing on a pending call"},
		"pending outside the index":  {pending, schema.APendingBucket, nil, "pendingBucket: must be the bucket"},
		"pending in another bucket":  {pending, schema.APendingBucket, s("PENDING#99"), "pendingBucket: must be the bucket"},
		"pending that TTL takes":     {pending, schema.AExpiresAt, n(now.Unix()), "expiresAt: must not be set"},
		"pending and failed":         {pending, schema.AFailure, s("released"), "failure: must not be set"},
		"pending with attempt":       {pending, schema.AApplied, n(1), "appliedAttempt: must not be set"},
		"pending with result":        {pending, schema.AResultJSON, s(`"secret"`), "resultJson: must not be set"},
		"pending reserved more":      {pending, schema.AReserved, n(6), "debits: must add up"},
		"pending never made":         {pending, schema.ACreatedAt, nil, "createdAt: is missing"},
		"applied without attempt":    {applied, schema.AApplied, nil, "appliedAttempt: must be between"},
		"applied by the future":      {applied, schema.AApplied, n(2), "appliedAttempt: must be between"},
		"applied without result":     {applied, schema.AResultJSON, nil, "resultJson: there must be one result"},
		"applied with bad result":    {applied, schema.AResultJSON, s("secret"), "resultJson: must be JSON"},
		"applied for ever":           {applied, schema.AExpiresAt, nil, "expiresAt: is missing"},
		"applied with a deadline":    {applied, schema.ADeadline, schema.Millis(now), "deadline: must not be set"},
		"applied in the index":       {applied, schema.APendingBucket, s("PENDING#1"), "pendingBucket: must not be set"},
		"applied and failed":         {applied, schema.AFailure, s("expired"), "failure: must not be set"},
		"applied, charged more":      {applied, schema.ACharged, n(8), "chargedTokens: must be debits and shortfall"},
		"applied, charged nothing":   {applied, schema.ACharged, nil, "chargedTokens: must be debits and shortfall"},
		"applied with shortfall":     {applied, schema.AShortfall, n(1), "chargedTokens: must be debits and shortfall"},
		"applied by nobody":          {applied, schema.ASettledBy, s("secret"), "settledBy: must be"},
		"compensated by nobody":      {applied, schema.ACompensatedAt, schema.Millis(now), "compensatedAt: must not be set"},
		"unverified 3":               {applied, schema.AUnverified, n(3), "unverified: must be 0, 1 or 2"},
		"failed for no reason":       {failed, schema.AFailure, nil, "failure: must be released"},
		"failed for another reason":  {failed, schema.AFailure, s("secret"), "failure: must be released"},
		"expired, but verified":      {failed, schema.AFailure, s("expired"), "unverified: is missing"},
		"failed with result":         {failed, schema.AResultJSON, s(`1`), "resultJson: must not be set"},
		"failed, compensated":        {failed, schema.ACompensatedBy, s("session:k"), "compensatedBy: must not be set"},
		"failed for ever":            {failed, schema.AExpiresAt, nil, "expiresAt: is missing"},
		"another state":              {failed, schema.AState, s("secret"), "state: cannot be read: must be pending"},
		"no row id":                  {failed, schema.ARowID, nil, "rowId: cannot be read: is missing"},
		"newer format":               {failed, schema.AFormat, n(2), "format: cannot be read: is of a version"},
		"TTL in milliseconds":        {failed, schema.AExpiresAt, schema.Millis(now), "expiresAt: cannot be read: must be epoch seconds"},
		"tokens with a fraction":     {failed, schema.AReserved, &types.AttributeValueMemberN{Value: "1.5"}, "reservedTokens: cannot be read"},
		"quota without id":           {quotaItem, schema.AQuotaID, nil, "quotaId: cannot be read: is missing"},
		"quota of another shard":     {quotaItem, schema.AShard, n(1), "shard: must agree with the key"},
		"quota that ends too early":  {quotaItem, schema.AExpiresAt, n(now.Unix()), "expiresAt: must be after the period's end"},
		"observation without id":     {9, schema.AObsID, nil, "obsId: cannot be read: is missing"},
		"session cursor of a number": {10, schema.ACursor, n(1), "cursor: cannot be read: must be a string"},
		"no sort key":                {10, schema.SK, nil, ": its key is not one that toolledger makes"},
		"shard 0 by another name":    {quotaItem, schema.PK, s("TENANT#acme#SHARD#0"), ": its key is not one that toolledger makes"},
	} {
		t.Run(name, func(t *testing.T) {
			tab := sound()
			delete(tab.items[c.item], c.attr)
			if c.to != nil {
				tab.items[c.item][c.attr] = c.to
			}
			r := run(t, tab, Config{})
			if r.OK || r.Illegal.Count == 0 {
				t.Fatal("not noticed")
			}
			f := r.Illegal.Items[0]
			if got := f.Attr + ": " + f.Rule; !strings.HasPrefix(got, c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			if f.PK == "" || strings.Contains(f.Rule, "secret") {
				t.Fatalf("%+v", f)
			}
		})
	}
}

// Items of the control table have no place in the ledger table, where the writers' permissions would reach them.
func TestControlItemsAreIllegal(t *testing.T) {
	tab := sound()
	plan := schema.Plan{Key: schema.PlanKey("acme"), Version: 1, Shards: 1, UpdatedAt: now}
	tab.items = append(tab.items, plan.Item())
	if r := run(t, tab, Config{}); r.OK || r.Illegal.Count != 1 || r.Illegal.Items[0].Rule != "belongs in the control table" {
		t.Fatalf("%+v", r.Illegal)
	}
}

// What the program does not know is told and is no fault: the next version of it may have written that.
func TestNotes(t *testing.T) {
	tab := sound()
	tab.items[1]["colour"] = schema.S("secret")
	tab.items = append(tab.items, schema.Item{schema.PK: schema.S("elsewhere"), schema.SK: schema.S("x"), "a": schema.S("secret")})
	r := run(t, tab, Config{})
	if !r.OK || r.Notes.Count != 2 || r.Items["unknown"] != 1 {
		t.Fatalf("%+v", r)
	}
	if r.Notes.Items[0].Attr != "colour" || r.Notes.Items[1].PK != "elsewhere" {
		t.Fatalf("%+v", r.Notes)
	}
}

// The books of every quota item are made up by themselves, exactly where rows must be there and as a lower bound where they
// may be gone.
func TestBooks(t *testing.T) {
	for name, c := range map[string]struct {
		period           string
		granted, remains int64
		want             Books
		atLeast          bool
	}{
		"exact":                  {"2026-11", 100, 93, Balanced, false},
		"a token too many left":  {"2026-11", 100, 94, Unbalanced, false},
		"a token lost":           {"2026-11", 100, 92, Unbalanced, false},
		"overdrawn":              {"2026-11", 0, -7, Balanced, false},
		"yesterday, still there": {"2026-11-29", 100, 92, Unbalanced, false},
		"two days ago, archived": {"2026-11-28", 100, 92, Balanced, true},
		"two days ago, refunded": {"2026-11-28", 100, 94, Unbalanced, true},
		"always, archived":       {"ALWAYS", 100, 0, Balanced, true},
		"always, refunded twice": {"ALWAYS", 100, 94, Unbalanced, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := row(schema.StateApplied, 7)
			r.Debits[0].Period, r.Debits[0].Shard = c.period, 3
			got := run(t, &table{items: []schema.Item{quota("acme", c.period, 3, c.granted, c.remains).Item(), r.Item()}}, Config{})
			if got.Books != c.want || got.OK != (c.want == Balanced) {
				t.Fatalf("%+v", got)
			}
			if c.want == Unbalanced {
				b := got.Unbalanced.Items[0]
				if b.PK != "TENANT#acme#SHARD#3" || b.Debits != 7 || b.Difference != c.granted-c.remains-7 || b.AtLeast != c.atLeast {
					t.Fatalf("%+v", b)
				}
			}
		})
	}
}

// A plan lowered below what other shards have spent leaves shard 0 with less than nothing granted, which no other may have.
func TestGrantedBelowZero(t *testing.T) {
	for shard, illegal := range map[int]int{0: 0, 1: 1} {
		got := run(t, &table{items: []schema.Item{quota("acme", "2026-11", shard, -40, -40).Item()}}, Config{})
		if got.Illegal.Count != illegal || got.Unbalanced.Count != 0 {
			t.Errorf("shard %d: %+v %+v", shard, got.Illegal, got.Unbalanced)
		}
	}
}

// Debits of a quota item that is not there are tokens that nobody granted; after the period the item may have gone first.
func TestMissingQuota(t *testing.T) {
	r := row(schema.StatePending, 7)
	if got := run(t, &table{items: []schema.Item{r.Item()}}, Config{}); got.OK || !got.Unbalanced.Items[0].Missing {
		t.Fatalf("%+v", got)
	}
	r.Debits[0].Period = "2026-09"
	if got := run(t, &table{items: []schema.Item{r.Item()}}, Config{}); !got.OK {
		t.Fatalf("%+v", got)
	}
}

// Reservations past deadline, skew and horizon are listed, and break no promise: a sweep will come.
func TestOverdue(t *testing.T) {
	r := row(schema.StatePending, 0)
	for age, want := range map[time.Duration]int{3 * time.Minute: 0, 3*time.Minute + time.Second: 1} {
		r.Deadline = now.Add(-age)
		if got := run(t, &table{items: []schema.Item{r.Item()}}, Config{}); !got.OK || got.Overdue.Count != want {
			t.Fatalf("%s: %+v", age, got)
		}
	}
}

// What two sweeps should have taken is listed as neglected, however it is to be settled; what is held, or waits for a later
// look, is not.
func TestNeglected(t *testing.T) {
	for name, c := range map[string]struct {
		age, sweepAt time.Duration // ago
		held         bool
		want         int
	}{
		"just in time":   {4 * time.Minute, 0, false, 0},
		"neglected":      {4*time.Minute + time.Second, 0, false, 1},
		"held":           {time.Hour, 0, true, 0},
		"looked at soon": {time.Hour, -time.Minute, false, 0},
		"was to be seen": {time.Hour, 2*time.Minute + time.Second, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := row(schema.StatePending, 0)
			r.Deadline = now.Add(-c.age)
			if c.sweepAt != 0 {
				r.SweepAt = now.Add(-c.sweepAt)
			}
			if c.held {
				r.Held, r.PendingBucket = true, schema.HeldBucket("k-pending")
			}
			read := 0
			got := run(t, &table{items: []schema.Item{r.Item()}}, Config{Progress: func(n int) { read += n }})
			if !got.OK || got.Neglected.Count != c.want || read != 1 {
				t.Fatalf("%+v, %d items told", got, read)
			}
		})
	}
	r := row(schema.StatePending, 0)
	r.Deadline = now.Add(-time.Hour)
	if got := run(t, &table{items: []schema.Item{r.Item()}}, Config{Sweep: time.Hour}); got.Neglected.Count != 0 {
		t.Fatalf("a sweeper that runs every hour: %+v", got)
	}
}

// A refund without a matching debit is told apart from a debit that nobody can explain.
func TestRefundsWithoutDebit(t *testing.T) {
	for difference, want := range map[int64]int{0: 0, 5: 0, -5: 1} {
		tab := &table{items: []schema.Item{quota("acme", "2026-11", 0, 1000, 1000-7-difference).Item(), row(schema.StateApplied, 7).Item()}}
		if got := run(t, tab, Config{}); got.Refunds.Count != want || got.OK != (difference == 0) || want == 1 && got.Refunds.Items[0].Difference != -5 {
			t.Errorf("%d: %+v", difference, got)
		}
	}
}

// The audit of one tenant asks for that tenant's items alone; a name that begins with it is somebody else's. (The filter
// itself is DynamoDB's: tests/ holds it against the real one.)
func TestTenantIsAsked(t *testing.T) {
	asked := &filterSpy{table: sound()}
	if _, err := Run(t.Context(), asked, Config{Table: "ledger", Tenant: "acme", Segments: 2}); err != nil {
		t.Fatal(err)
	}
	for _, in := range asked.inputs {
		v := in.ExpressionAttributeValues
		if schema.ValueOf(v[":pk"]).Text != "TENANT#acme" || schema.ValueOf(v[":own"]).Text != "TENANT#acme#" ||
			schema.ValueOf(v[":observed"]).Text != "OBS#TENANT#acme#" || aws.ToInt32(in.TotalSegments) != 2 {
			t.Fatalf("%+v", in)
		}
	}
}

type filterSpy struct {
	*table
	mu     sync.Mutex
	inputs []*dynamodb.ScanInput
}

func (f *filterSpy) Scan(ctx context.Context, in *dynamodb.ScanInput, o ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	f.mu.Lock()
	f.inputs = append(f.inputs, in)
	f.mu.Unlock()
	return f.table.Scan(ctx, in, o...)
}

// charge debits one token for a new row, as a transaction does: both at once, and the quota's version with it.
func charge(tab *table, q *schema.Quota, name string) {
	r := row(schema.StateApplied, 1)
	r.Key = schema.RowKey("acme", "s", schema.ScopeSession, name)
	q.Remaining--
	q.Version++
	tab.items[0] = q.Item()
	tab.items = append(tab.items, r.Item())
}

// Calls that are made while the audit reads do not make the books look wrong; books that are wrong are found all the same
// once the table rests.
func TestMovingTable(t *testing.T) {
	for name, c := range map[string]struct {
		until  int // the page before which the last call is made
		wrong  int64
		want   Books
		moving int
	}{
		"comes to rest":            {4, 0, Balanced, 0},
		"comes to rest, was wrong": {4, 500, Unbalanced, 0},
		"never rests":              {math.MaxInt, 500, Moving, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := quota("acme", "2026-11", 0, 1000, 1000-12-c.wrong)
			tab := &table{items: []schema.Item{q.Item(), row(schema.StateApplied, 7).Item(), row(schema.StatePending, 5).Item()}}
			tab.meanwhile = func(page int) {
				if page > 0 && page <= c.until && page < 100 {
					charge(tab, q, strings.Repeat("n", page))
				}
			}
			r := run(t, tab, Config{Rechecks: 2})
			if r.Books != c.want || r.Moving.Count != c.moving || r.OK != (c.want != Unbalanced) {
				t.Fatalf("%+v after %d pages", r, tab.scans)
			}
		})
	}
}

// Findings are counted beyond the limit and listed up to it.
func TestLimit(t *testing.T) {
	tab := &table{}
	for i := range 7 {
		r := row(schema.StateFailed, 0)
		r.Key, r.Failure = schema.RowKey("acme", "s", schema.ScopeSession, strings.Repeat("k", i+1)), "secret"
		tab.items = append(tab.items, r.Item())
	}
	if r := run(t, tab, Config{Limit: 3}); r.Illegal.Count != 7 || len(r.Illegal.Items) != 3 {
		t.Fatalf("%+v", r.Illegal)
	}
}

// A Config that cannot be meant is refused before anything is read; an error of the table is passed on.
func TestRunErrors(t *testing.T) {
	for _, cfg := range []Config{{}, {Table: "t", Segments: 65}, {Table: "t", Segments: -1}, {Table: "t", Limit: -1}, {Table: "t", Tenant: "a#b"}} {
		if _, err := Run(t.Context(), nil, cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	broken := errors.New("broken")
	if _, err := Run(t.Context(), &table{err: broken}, Config{Table: "t"}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

// Sums never wrap around, whatever a table holds: a wrapped sum could look balanced.
func TestSaturation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		exact := float64(a) + float64(b)
		if got := add(a, b); math.Abs(exact) < 1<<62 && got != a+b || exact > 1<<63 && got != math.MaxInt64 || exact < -(1<<63) && got != math.MinInt64 {
			t.Fatalf("%d + %d = %d", a, b, got)
		}
		exact = float64(a) - float64(b)
		if got := sub(a, b); math.Abs(exact) < 1<<62 && got != a-b || exact > 1<<63 && got != math.MaxInt64 || exact < -(1<<63) && got != math.MinInt64 {
			t.Fatalf("%d - %d = %d", a, b, got)
		}
	})
	if sub(-1, math.MinInt64) != math.MaxInt64 || sub(0, math.MinInt64) != math.MaxInt64 || sub(-2, math.MinInt64) != math.MaxInt64-1 {
		t.Fatal("the smallest number has no positive")
	}
}

// No item of any shape makes an audit fail or panic.
func FuzzItems(f *testing.F) {
	f.Add("TENANT#acme", "QUOTA#2026-11", "granted", "-9223372036854775808", byte(1))
	f.Add("TENANT#acme#SESSION#s", "TOOL#k", "state", "pending", byte(0))
	f.Fuzz(func(t *testing.T, pk, sk, attr, value string, kind byte) {
		tab := sound()
		odd := maps.Clone(tab.items[int(kind/4)%len(tab.items)])
		odd[schema.PK], odd[schema.SK] = schema.S(pk), schema.S(sk)
		odd[attr] = []types.AttributeValue{schema.S(value), &types.AttributeValueMemberN{Value: value}, schema.B([]byte(value)), nil}[kind%4]
		tab.items = append(tab.items, odd)
		if r := run(t, tab, Config{}); r.OK && r.Items["unknown"] == 0 && r.Items["row"] < 7 {
			t.Fatalf("%+v", r)
		}
	})
}

// Every attribute that the codec writes is known to the audit, so that no version notes its own rows.
func TestKnownAttributes(t *testing.T) {
	var r schema.Row
	fill(reflect.ValueOf(&r).Elem())
	q := schema.Quota{Extra: 1, Suspended: true, ExpiresAt: now}
	for kind, item := range map[schema.Kind]schema.Item{schema.KindRow: r.Item(), schema.KindQuota: q.Item()} {
		for name := range item {
			if !attributes[kind][name] {
				t.Errorf("%s: %s", kind, name)
			}
		}
	}
}

// fill sets every field to something that is stored.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Interface().(type) {
		case time.Time:
			f.Set(reflect.ValueOf(now))
			continue
		case *schema.ResultRef:
			f.Set(reflect.ValueOf(&schema.ResultRef{Ref: "r", SHA256: make([]byte, 32), Bytes: 1}))
			continue
		case []schema.Debit:
			f.Set(reflect.ValueOf([]schema.Debit{{Period: "2026-11", Tokens: 1}}))
			continue
		case time.Duration:
			f.SetInt(int64(time.Second))
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int64:
			f.SetInt(1)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
		}
	}
}
