package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/sweeper"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// A reservation of October is settled in October, whatever is current; November is created once by many who come first.
func TestHC31Rollover(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.set(time.Date(2026, 10, 31, 23, 59, 59, 900e6, time.UTC))
	hold, gone := g.reserve(g.session(), call("a")), g.reserve(g.session(), call("b"))
	g.set(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			if _, err := g.session().Commit(context.WithoutCancel(t.Context()), call(fmt.Sprint("first-", i)), "r"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if q := g.shard("acme", "2026-11", 0); q.Granted != 1000 || q.Remaining != 1000-16*5 {
		t.Errorf("November: granted %d, remaining %d", q.Granted, q.Remaining)
	}
	if _, err := hold.Finalize(t.Context(), "r", 2); err != nil {
		t.Fatal(err)
	}
	g.must(gone.Release(t.Context(), ""))
	if q := g.shard("acme", "2026-10", 0); q.Remaining != 998 {
		t.Errorf("October has %d", q.Remaining)
	}
	if q := g.shard("acme", "2026-11", 0); q.Remaining != 1000-16*5 {
		t.Errorf("November has %d", q.Remaining)
	}
	g.balanced()
}

// Periods are calendar months and days in UTC, also across leap days, whatever the caller's zone.
func TestHC32CalendarPeriods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   string
		kind schema.PeriodKind
		name string
		ends string
	}{
		{"2027-02-28T23:59:59Z", schema.Monthly, "2027-02", "2027-03-01T00:00:00Z"},
		{"2028-02-29T00:00:00Z", schema.Monthly, "2028-02", "2028-03-01T00:00:00Z"},
		{"2028-02-29T23:59:59Z", schema.Daily, "2028-02-29", "2028-03-01T00:00:00Z"},
		{"2027-03-01T00:30:00+01:00", schema.Monthly, "2027-02", "2027-03-01T00:00:00Z"},
		{"2026-12-31T20:00:00-05:00", schema.Daily, "2027-01-01", "2027-01-02T00:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		name := schema.PeriodAt(c.kind, at)
		if got := schema.PeriodEnd(name).Format(time.RFC3339); name != c.name || got != c.ends {
			t.Errorf("%s: %s until %s, want %s until %s", c.at, name, got, c.name, c.ends)
		}
	}
	g := newLedgerRig(t)
	g.set(time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC))
	g.commit(g.session(), call("k"), "r")
	if q, err := g.ledger.Tenant("acme").Quota(t.Context()); err != nil || q.Period != "2028-02" ||
		!q.ResetsAt.Equal(time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", q, err)
	}
}

// Forty commits on one quota item that is contended all the time: all are applied, none twice, and the row says how often
// it had to try.
func TestHC34Contention(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var mu sync.Mutex
	seen := map[string]int{} // how often a row's transaction met a conflict
	g.in.Set(func(e faults.Event) faults.Fault {
		if e.Level != faults.Try || e.Op != "TransactWriteItems" {
			return faults.Fault{}
		}
		put := e.Input.(*dynamodb.TransactWriteItemsInput).TransactItems[0].Put
		if put == nil || put.Item[schema.ARowID] == nil {
			return faults.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		id := schema.ValueOf(put.Item[schema.ARowID]).Text
		if seen[id]++; seen[id] <= 1+len(seen)%3 {
			return faults.Fail(faults.CancelledAt(e.Input, faults.Conflict, faults.Find(e.Input, "QUOTA#")...))
		}
		return faults.Fault{}
	})
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			if _, err := g.session().Commit(context.WithoutCancel(t.Context()), call(fmt.Sprint("k", i)), i); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	g.wantRemaining(800)
	var tries int64
	for i := range 40 {
		tries += g.wantRow(fmt.Sprint("k", i), schema.StateApplied, 1, 1).Contention
	}
	if tries < 40 {
		t.Errorf("the rows count %d conflicts", tries)
	}
	g.balanced()
	// Contention that does not end is given up, told and counted.
	g.in.Set(faults.When(faults.Try, "TransactWriteItems", -1, func(e faults.Event) (faults.Fault, bool) {
		return faults.Fail(faults.CancelledAt(e.Input, faults.Conflict, 0)), true
	}))
	g.unchanged(func() {
		_, err := g.session().Commit(t.Context(), call("never"), "r")
		if e := g.wantCode(err, writers.ErrUnavailable); e.RetryAfter <= 0 {
			t.Error("not told to retry")
		}
	})
	if o := g.observation("never"); o.GiveUps != 1 {
		t.Errorf("%d give-ups counted", o.GiveUps)
	}
}

// Reasons are read by index and code from the wrapped error; a missing code and "None" are no reasons.
func TestHC37TypedReasons(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.other(), call("k"), "first")
	row := g.item(g.table, rowKey("k"))
	for name, other := range map[string]string{"None": faults.None, "no code": faults.NoCode} {
		g.in.Set(faults.When(faults.Try, "TransactWriteItems", 1, func(e faults.Event) (faults.Fault, bool) {
			return faults.Fail(faults.Cancelled(e.Input, map[int]faults.Reason{
				0: {Code: faults.ConditionFailed, Item: row}, 1: {Code: other},
			})), true
		}))
		if out := g.commit(g.session(), call("k"), "second"); out.Outcome != writers.OutcomeReplayed || string(out.JSON) != `"first"` {
			t.Errorf("%s: %s %s", name, out.Outcome, out.JSON)
		}
	}
	// Nor do they keep contention from being what it is.
	g.in.Set(faults.When(faults.Try, "TransactWriteItems", 1, func(e faults.Event) (faults.Fault, bool) {
		return faults.Fail(faults.Cancelled(e.Input, map[int]faults.Reason{0: {Code: faults.NoCode}, 1: {Code: faults.Conflict}})), true
	}))
	if out := g.commit(g.session(), call("contended"), "r"); out.Outcome != writers.OutcomeApplied {
		t.Errorf("contended: %s", out.Outcome)
	}
	// All passing, or no reasons at all, says nothing: the row decides.
	for name, err := range map[string]error{
		"no reasons": &types.TransactionCanceledException{}, "message only": &types.TransactionCanceledException{
			Message: aws.String("Transaction cancelled, specific reasons [ConditionalCheckFailed, None]"),
		},
	} {
		g.in.Set(faults.At(faults.Call, "TransactWriteItems", 1, faults.Fail(err)))
		if out := g.commit(g.session(), call(name), "r"); out.Outcome != writers.OutcomeApplied {
			t.Errorf("%s: %s", name, out.Outcome)
		}
	}
	g.balanced()
}

// Debit and row are one transaction: a call that fails has taken nothing.
func TestHC38OneTransaction(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	for _, code := range []string{faults.Conflict, faults.Capacity, faults.ThrottlingReason} {
		g.in.Set(faults.When(faults.Try, "TransactWriteItems", -1, func(e faults.Event) (faults.Fault, bool) {
			return faults.Fail(faults.CancelledAt(e.Input, code, 0)), true
		}))
		g.unchanged(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, _, err := g.session().Reserve(ctx, call("k"))
			g.wantCode(err, writers.ErrUnavailable)
		})
	}
	var rec faults.Recorder
	g.in.Set(rec.Hook)
	hold := g.reserve(g.session(), call("k"))
	writes := rec.Events(faults.Call, "TransactWriteItems")
	if len(writes) != 1 || len(faults.Find(writes[0].Input, "TOOL#")) != 1 || len(faults.Find(writes[0].Input, "QUOTA#")) != 1 {
		t.Errorf("a reserve is %d transactions", len(writes))
	}
	g.must(hold.Release(t.Context(), ""))
	g.wantRemaining(1000)
}

// No two names share a key: what joins keys is refused in names, and one tenant's prefix finds nothing of another's.
func TestHC39KeysCannotBeForged(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	for _, c := range []struct {
		tenant  writers.TenantID
		session string
		key     string
		ok      bool
	}{
		{"acme#SESSION#s1", "x", "k", false},
		{"acme", "s1#SESSION#x", "k", false},
		{"acme#", "s1", "k", false},
		{"acme", "s1", "a#b", false},
		{"acme", "s1", "nul\x00", false},
		{"acme", "s1", "line\nfeed", false},
		{"acme", "s1", "c1\u0085", false},
		{"acme", "s1", "bad\xff", false},
		{"acme", "s1", "META", true},
		{"acme", "META", "PLAN", true},
		{"acme", "s/1%23", "k%23/x", true},
	} {
		_, err := g.ledger.Tenant(c.tenant).Session(c.session).Commit(t.Context(), writers.Call{Key: writers.SessionKey(c.key), Tool: "t"}, "r")
		if c.ok != (err == nil) || err != nil && !errors.Is(err, writers.ErrInvalid) {
			t.Errorf("%q %q %q: %v", c.tenant, c.session, c.key, err)
		}
	}
	_, err := g.ledger.Tenant("").Session("s").Get(t.Context(), writers.SessionKey("k"))
	g.wantCode(err, writers.ErrMissingTenant)

	g.plan("acme2", writers.Plan{Tokens: 10})
	g.commit(g.ledger.Tenant("acme2").Session("s1"), call("theirs"), "r")
	g.commit(g.session(), call("ours"), "r")
	var keys []string
	for row, err := range g.session().Calls(t.Context()) {
		g.must(err)
		keys = append(keys, row.Key.String())
	}
	if !slices.Equal(keys, []string{"META", "ours"}) {
		t.Errorf("the session has %v", keys)
	}
	a, b := schema.RowKey("acme", "s1", schema.ScopeSession, "k"), schema.RowKey("acme2", "s1", schema.ScopeSession, "k")
	if schema.EffectKey(a) == schema.EffectKey(b) {
		t.Error("two tenants share an effect key")
	}
}

// bareWord is an identifier in an expression that is neither alias nor value nor DynamoDB's own word.
var (
	expressionWord = regexp.MustCompile(`[#:]?[A-Za-z_][A-Za-z0-9_]*`)
	expressionOwn  = map[string]bool{
		"SET": true, "REMOVE": true, "ADD": true, "DELETE": true, "AND": true, "OR": true, "NOT": true, "IN": true, "BETWEEN": true,
		"attribute_exists": true, "attribute_not_exists": true, "if_not_exists": true, "contains": true, "begins_with": true,
	}
)

// checkExpression reports bare identifiers, and aliases and values that are unused or missing.
func checkExpression(t *testing.T, where string, names map[string]string, values schema.Item, expressions ...*string) {
	t.Helper()
	used := map[string]bool{}
	for _, e := range expressions {
		for _, word := range expressionWord.FindAllString(aws.ToString(e), -1) {
			switch {
			case word[0] == '#':
				if names[word] == "" {
					t.Errorf("%s: %s is not named in %q", where, word, *e)
				}
			case word[0] == ':':
				if values[word] == nil {
					t.Errorf("%s: %s has no value in %q", where, word, *e)
				}
			case !expressionOwn[word]:
				t.Errorf("%s: bare identifier %s in %q", where, word, *e)
			}
			used[word] = true
		}
	}
	for word := range names {
		if !used[word] {
			t.Errorf("%s: %s is not used", where, word)
		}
	}
	for word := range values {
		if !used[word] {
			t.Errorf("%s: %s is not used", where, word)
		}
	}
}

// Every expression that writers and sweeper send names attributes by alias only, and none more than it uses.
func TestHC40OnlyAliases(t *testing.T) {
	t.Parallel()
	var rec faults.Recorder
	expressions := 0
	for _, s := range scenarios {
		g := newLedgerRig(t)
		op := s.prepare(g)
		g.in.Set(rec.Hook)
		_ = op(t.Context())
	}
	g := newLedgerRig(t)
	g.in.Set(rec.Hook)
	for _, key := range []string{"a", "b"} {
		g.reserve(g.session(), call(key, func(c *writers.Call) { c.Idempotent = key == "a" }))
	}
	for range g.session().Calls(t.Context()) {
	}
	g.advance(time.Hour)
	for range g.ledger.Pending(t.Context(), 0) {
	}
	for range 3 {
		s, err := sweeper.New(g.ledger, sweeper.Config{})
		g.must(err)
		_, err = s.Run(t.Context())
		g.must(err)
		g.advance(25 * time.Hour)
	}
	for _, e := range rec.Events(faults.Call, "") {
		switch in := e.Input.(type) {
		case *dynamodb.TransactWriteItemsInput:
			for _, item := range in.TransactItems {
				expressions++
				switch {
				case item.Put != nil:
					checkExpression(t, "put", item.Put.ExpressionAttributeNames, item.Put.ExpressionAttributeValues, item.Put.ConditionExpression)
				case item.Update != nil:
					checkExpression(t, "update", item.Update.ExpressionAttributeNames, item.Update.ExpressionAttributeValues, item.Update.ConditionExpression, item.Update.UpdateExpression)
				case item.ConditionCheck != nil:
					c := item.ConditionCheck
					checkExpression(t, "check", c.ExpressionAttributeNames, c.ExpressionAttributeValues, c.ConditionExpression)
				case item.Delete != nil:
					d := item.Delete
					checkExpression(t, "delete", d.ExpressionAttributeNames, d.ExpressionAttributeValues, d.ConditionExpression)
				}
			}
		case *dynamodb.UpdateItemInput:
			expressions++
			checkExpression(t, "observation", in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.UpdateExpression, in.ConditionExpression)
		case *dynamodb.QueryInput:
			expressions++
			checkExpression(t, "query", in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.KeyConditionExpression, in.FilterExpression, in.ProjectionExpression)
		case *dynamodb.ScanInput:
			expressions++
			checkExpression(t, "scan", in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.FilterExpression, in.ProjectionExpression)
		case *dynamodb.GetItemInput:
			checkExpression(t, "get", in.ExpressionAttributeNames, nil, in.ProjectionExpression)
		}
	}
	if expressions < 100 {
		t.Errorf("only %d expressions were seen", expressions)
	}
}

// Empty ids are refused, the sparse index attribute is removed and not blanked, and an empty result is stored as such.
func TestHC41EmptyStrings(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	_, err := g.ledger.Tenant("acme").Session("").Commit(t.Context(), call("k"), "r")
	if e := g.wantCode(err, writers.ErrInvalid); e.Field != "session" {
		t.Errorf("field %q", e.Field)
	}
	hold := g.reserve(g.session(), call("k"))
	first, err := hold.Finalize(t.Context(), json.RawMessage(""), 5)
	g.must(err)
	item := g.item(g.table, rowKey("k"))
	if item[schema.APendingBucket] != nil || item[schema.ADeadline] != nil || item[schema.AResultJSON] == nil {
		t.Errorf("the row is %v", slices.Sorted(maps.Keys(item)))
	}
	out := g.commit(g.session(), call("k"), "x")
	if out.Outcome != writers.OutcomeReplayed || out.JSON == nil || first.JSON == nil || len(out.JSON) > 0 || len(first.JSON) > 0 {
		t.Errorf("%s %q, at first %q", out.Outcome, out.JSON, first.JSON)
	}
	for range g.ledger.Pending(t.Context(), 0) {
		t.Error("the index still has the row")
	}
}

// A row past its retention counts as absent although it is still there, for every operation; the attribute is epoch seconds
// and anything else is not taken for a time.
func TestHC43ExpiredRows(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("k"), "old")
	if at := g.row("k").ExpiresAt; at.Before(g.now().Add(30*24*time.Hour)) || at.After(g.now().Add(60*24*time.Hour)) {
		t.Errorf("expires at %s", at)
	}
	g.forget()
	if _, err := g.session().Get(t.Context(), writers.SessionKey("k")); !errors.Is(err, writers.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	for range g.session().Calls(t.Context()) {
		t.Error("the session still lists it")
	}
	if out := g.commit(g.session(), call("k", func(c *writers.Call) { c.Args = json.RawMessage(`{"b":1}`) }), "new"); out.Outcome != writers.OutcomeApplied {
		t.Errorf("a forgotten key gave %s", out.Outcome)
	}
	hour := g.now().Add(-time.Hour)
	for name, v := range map[string]types.AttributeValue{
		"milliseconds": schema.N(hour.UnixMilli()), "text": schema.S(fmt.Sprint(hour.Unix())),
	} {
		item := g.item(g.table, rowKey("k"))
		item[schema.AExpiresAt] = v
		g.replace(item)
		g.unchanged(func() {
			_, err := g.session().Commit(t.Context(), call("k", func(c *writers.Call) { c.Args = json.RawMessage(`{"b":1}`) }), "x")
			if err == nil {
				t.Errorf("%s: taken for a time", name)
			}
		})
	}
	item := g.item(g.table, rowKey("k"))
	item[schema.AExpiresAt] = schema.N(hour.Unix())
	g.replace(item)
	if out := g.commit(g.session(), call("k", func(c *writers.Call) { c.Args = json.RawMessage(`{"b":1}`) }), "x"); out.Outcome != writers.OutcomeApplied {
		t.Errorf("seconds: %s", out.Outcome)
	}
}
