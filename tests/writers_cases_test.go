package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/tests/faults"
	"toolledger/writers"
)

// The failures that others have lived through, each with what must happen here instead.

// unchanged runs f, which must leave every item as it was, observations aside.
func (g *ledgerRig) unchanged(f func()) {
	g.Helper()
	before := fmt.Sprint(schemaValues(g.items()))
	f()
	if after := fmt.Sprint(schemaValues(g.items())); after != before {
		g.Errorf("items changed from\n%s\nto\n%s", before, after)
	}
}

func schemaValues(items map[string]schema.Item) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(items)) {
		for _, name := range slices.Sorted(maps.Keys(items[key])) {
			lines = append(lines, fmt.Sprintf("%s %s=%v", key, name, schema.ValueOf(items[key][name])))
		}
	}
	return lines
}

// A call without a key is refused before anything is written: it must not share a row with every other such call.
func TestHC01NoKey(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	for _, key := range []writers.Key{{}, writers.SessionKey(""), writers.SessionKey("   "), writers.TenantKey("\t")} {
		for i, tokens := range []int64{5, 7} {
			g.unchanged(func() {
				_, err := g.session().Commit(t.Context(), call("", func(c *writers.Call) { c.Key, c.Tokens = key, tokens }), i)
				if e := g.wantCode(err, writers.ErrInvalid); e.Field != "key" {
					t.Errorf("field %q", e.Field)
				}
				_, _, err = g.session().Reserve(t.Context(), call("", func(c *writers.Call) { c.Key = key }))
				g.wantCode(err, writers.ErrInvalid)
			})
		}
	}
	if n := g.in.Count(faults.Call, ""); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// A key that comes again with other arguments is a conflict, also where the row is only seen in a refused transaction.
func TestHC02OtherPayload(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("k1"), "r")
	for _, retry := range []bool{false, true} {
		g.unchanged(func() {
			_, err := g.session().Commit(t.Context(), call("k1", func(c *writers.Call) {
				c.Tokens, c.Args, c.Retry = 50, json.RawMessage(`{"a":2}`), retry
			}), "r2")
			g.wantCode(err, writers.ErrKeyConflict)
		})
	}
	g.wantRemaining(995)
}

// No memory of the process answers a call whose payload differs, however often it comes.
func TestHC03NoCacheBeforeTheCheck(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("k1"), "r")
	b := call("k1", func(c *writers.Call) { c.Args = json.RawMessage(`{"a":"b"}`) })
	for range 2 {
		_, err := g.session().Commit(t.Context(), b, "r")
		g.wantCode(err, writers.ErrKeyConflict)
		if out := g.commit(g.session(), call("k1"), "r2"); string(out.JSON) != `"r"` {
			t.Errorf("the first call's result is %s", out.JSON)
		}
	}
}

// White space, key order and spellings of one number do not make another call; numbers that differ do.
func TestHC05CanonicalArguments(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	with := func(args string) writers.Call {
		return call("k", func(c *writers.Call) { c.Args = json.RawMessage(args) })
	}
	g.commit(g.session(), with(`{"cost":5,"args":{"a":1,"b":9007199254740993}}`), "r")
	for _, same := range []string{
		`{"args":{"b":9007199254740993, "a":1},"cost":5}`, `{"cost":5.0,"args":{"a":1e0,"b":9007199254740993}}`,
		`{"cost":5e0,"args":{"a":1,"b":9007199254740993.00}}`,
	} {
		if out := g.commit(g.session(), with(same), "r2"); out.Outcome != writers.OutcomeReplayed {
			t.Errorf("%s: %s", same, out.Outcome)
		}
	}
	_, err := g.session().Commit(t.Context(), with(`{"cost":5,"args":{"a":1,"b":9007199254740992}}`), "r")
	g.wantCode(err, writers.ErrKeyConflict)
	_, err = g.session().Commit(t.Context(), with(`{"cost":5,"cost":5,"args":{}}`), "r")
	g.wantCode(err, writers.ErrInvalid)
	g.wantRemaining(995)
}

// A planner's intent key makes one effect of two tool ids; without it two ids are two effects.
func TestHC06IntentKey(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	acts := 0
	tool := &writers.Tool[map[string]int, string]{
		Name: "pr", Cost: 5, Act: func(context.Context, writers.Attempt[map[string]int]) (string, error) { acts++; return "ok", nil },
	}
	args := map[string]int{"a": 1}
	for i, key := range []writers.Key{writers.SessionKey("pr-7f3c9a1e"), writers.SessionKey("pr-7f3c9a1e")} {
		out, err := tool.Do(t.Context(), g.session(), key, args)
		if err != nil || (out.Outcome == writers.OutcomeReplayed) != (i == 1) {
			t.Errorf("call %d: %s, %v", i, out.Outcome, err)
		}
	}
	if key := writers.IntentKey("pr", args); key != writers.IntentKey("pr", json.RawMessage(`{"a":1.0}`)) || key == writers.IntentKey("pq", args) {
		t.Error("the intent key is not made of tool and arguments")
	}
	if acts != 1 {
		t.Errorf("acted %d times for one intent", acts)
	}
	for _, id := range []string{"toolu_A", "toolu_B"} {
		if _, err := tool.Do(t.Context(), g.session(), writers.SessionKey(id), args); err != nil {
			t.Error(err)
		}
	}
	if acts != 3 {
		t.Errorf("acted %d times for three keys", acts)
	}
}

// Ids that are equal up to a limit of somebody else's stay different.
func TestHC08LongIds(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var rec faults.Recorder
	g.in.Set(rec.Hook)
	for _, end := range []string{"-1", "-2"} {
		if out := g.commit(g.session(), call(strings.Repeat("x", 36)+end), end); out.Outcome != writers.OutcomeApplied {
			t.Errorf("%s: %s", end, out.Outcome)
		}
	}
	g.commit(g.session(), call(strings.Repeat("y", 255)), "r")
	_, err := g.session().Commit(t.Context(), call(strings.Repeat("y", 256)), "r")
	g.wantCode(err, writers.ErrInvalid)
	tokens := map[string]bool{}
	for _, e := range rec.Events(faults.Try, "TransactWriteItems") {
		tokens[e.Token] = true
	}
	if len(tokens) != 3 {
		t.Errorf("%d request tokens for three transactions", len(tokens))
	}
}

// An honest retry, with another time and another cursor, is a replay and no mismatch; and where DynamoDB does say mismatch,
// the row decides.
func TestHC09HonestRetry(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("k3", func(c *writers.Call) { c.Cursor = "c1" }), "r")
	g.advance(3 * time.Second)
	out := g.commit(g.session(), call("k3", func(c *writers.Call) { c.Cursor = "c2" }), "r2")
	if out.Outcome != writers.OutcomeReplayed || string(out.JSON) != `"r"` {
		t.Errorf("got %s %s", out.Outcome, out.JSON)
	}
	if cursor, err := g.session().Cursor(t.Context()); err != nil || cursor != "c1" {
		t.Errorf("the replay moved the cursor to %q, %v", cursor, err)
	}
	for name, f := range map[string]faults.Fault{"applied": faults.LoseAs(faults.Mismatch()), "not": faults.Fail(faults.Mismatch())} {
		g.in.Set(faults.At(faults.Try, "TransactWriteItems", 1, f))
		if out := g.commit(g.session(), call("mismatch-"+name), "r"); out.Outcome != writers.OutcomeApplied {
			t.Errorf("%s: %s", name, out.Outcome)
		}
	}
	g.wantRemaining(985)
	g.balanced()
}

// A time-out after which the service says "in progress" for as long as the SDK asks is settled by reading the row; only an
// absent row is sent again, with the same id.
func TestHC10InProgress(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		g := newLedgerRig(t)
		var rec faults.Recorder
		first := faults.Fail(faults.Broken())
		if applied {
			first = faults.Lose()
		}
		g.in.Set(faults.All(rec.Hook, faults.At(faults.Try, "TransactWriteItems", 1, first),
			faults.When(faults.Try, "TransactWriteItems", 3, func(e faults.Event) (faults.Fault, bool) {
				return faults.Fail(faults.InProgress()), e.N > 1
			})))
		out := g.commit(g.session(), call("k"), "r")
		tries := rec.Events(faults.Try, "TransactWriteItems")
		var ids, tokens []string
		for _, e := range tries {
			ids = append(ids, schema.ValueOf(e.Input.(*dynamodb.TransactWriteItemsInput).TransactItems[0].Put.Item[schema.ARowID]).Text)
			tokens = append(tokens, e.Token)
		}
		if len(slices.Compact(ids)) != 1 || len(slices.Compact(tokens[:4])) != 1 || out.Outcome != writers.OutcomeApplied {
			t.Errorf("%s: %s with ids %v and tokens %v", name, out.Outcome, ids, tokens)
		}
		if sent := len(rec.Events(faults.Call, "TransactWriteItems")); applied && sent != 1 || !applied && sent != 2 {
			t.Errorf("%s: %d transactions", name, sent)
		}
		if reads := len(rec.Events(faults.Call, "GetItem")); reads < 1 {
			t.Errorf("%s: the row was not read", name)
		}
		g.wantRemaining(995)
		g.balanced()
	}
}

// The stand-in keeps request tokens as AWS does; and with no token at all the row's condition holds alone.
func TestHC12Tokens(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	key := schema.Key{PK: "TENANT#acme#SESSION#hc12", SK: "META"}
	add := func(n int64) error {
		_, err := g.db.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
			ClientRequestToken: aws.String("token-1"),
			TransactItems: []types.TransactWriteItem{{Update: &types.Update{
				TableName: &g.table, Key: keyItem(key), UpdateExpression: aws.String("ADD #n :n"),
				ExpressionAttributeNames: map[string]string{"#n": "n"}, ExpressionAttributeValues: schema.Item{":n": schema.N(n)},
			}}},
		})
		return err
	}
	g.must(add(5))
	g.must(add(5))
	if n := schema.ValueOf(g.item(g.table, key)["n"]).Text; n != "5" {
		t.Errorf("one token added to %s", n)
	}
	if err := add(6); err == nil {
		t.Error("another transaction under the same token was taken")
	} else if _, ok := errors.AsType[*types.IdempotentParameterMismatchException](err); !ok {
		t.Errorf("got %v", err)
	}
	g.remove(key)
	for i := range 2 { // the same transaction under two tokens, as after ten minutes
		out := g.commit(g.process(g.db).Tenant("acme").Session("s1"), call("k"), "r")
		if (out.Outcome == writers.OutcomeReplayed) != (i == 1) {
			t.Errorf("call %d: %s", i, out.Outcome)
		}
	}
	g.wantRemaining(995)
}
