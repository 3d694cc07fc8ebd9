package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// provider is an outside system that knows keys: what it did for a key it does not do again.
type provider struct {
	mu   sync.Mutex
	keys map[string]int
}

func (p *provider) act(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil {
		p.keys = map[string]int{}
	}
	p.keys[key]++
}

// acts returns how often the provider was asked, and the number of different keys.
func (p *provider) acts() (asked, keys int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.keys {
		asked += n
	}
	return asked, len(p.keys)
}

// paying is a tool of that provider with a verifier.
func (p *provider) paying(act func() error) *writers.Tool[struct{}, string] {
	return &writers.Tool[struct{}, string]{
		Name: "pay", Cost: 5,
		Act: func(_ context.Context, a writers.Attempt[struct{}]) (string, error) {
			p.act(a.EffectKey)
			return "paid", act()
		},
		Verify: func(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.keys[c.EffectKey] > 0 {
				return "paid", writers.EffectApplied, nil
			}
			return "", writers.EffectAbsent, nil
		},
	}
}

// A function that is killed right after it paid: the retry finds what was paid and does not pay again.
func TestHC13KilledAfterActing(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { g.in.Kill(); return nil })
	if g.in.Run(func() { _, _ = tool.Do(t.Context(), g.session(), writers.SessionKey("k4"), struct{}{}) }) {
		t.Fatal("the worker survived")
	}
	g.wantRow("k4", schema.StatePending, 1, 0)
	g.in.Revive()
	g.advance(2 * time.Second)
	out, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k4"), struct{}{})
	if err != nil || out.Value != "paid" || out.Outcome != writers.OutcomeReplayed {
		t.Errorf("%+v, %v", out, err)
	}
	if asked, _ := p.acts(); asked != 1 {
		t.Errorf("paid %d times", asked)
	}
	g.wantRow("k4", schema.StateApplied, 1, 1)
	g.wantRemaining(995)
	g.balanced()
}

// A worker that dies before it acts blocks nobody for good: the next one waits, then a sweep gives the row back, or asks,
// or holds it for a person, by what the tool can do.
func TestHC14StaleReservation(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	lease := func(c *writers.Call) { c.Lease = 15 * time.Minute }
	harmless := func(c *writers.Call) { c.Idempotent = true }
	var p provider
	verified := p.paying(func() error { return nil })
	g.reserve(g.session(), call("idempotent", lease, harmless))
	g.reserve(g.session(), verified.Call(writers.SessionKey("verified"), struct{}{}, lease))
	g.reserve(g.session(), call("neither", lease))
	for _, at := range []time.Duration{time.Second, 5 * time.Minute} {
		g.set(ledgerStart.Add(at))
		_, _, err := g.session().Reserve(t.Context(), call("idempotent", harmless))
		if e := g.wantCode(err, writers.ErrInProgress); e.RetryAfter <= 0 {
			t.Error("not told to retry")
		}
	}
	g.set(ledgerStart.Add(time.Hour))
	s, err := sweeper.New(g.clean, sweeper.Config{Tools: []writers.AnyTool{verified}})
	g.must(err)
	for range 3 { // a hard deadline of a day holds what nobody can decide
		_, err = s.Run(t.Context())
		g.must(err)
		g.advance(25 * time.Hour)
	}
	g.wantRow("idempotent", schema.StateFailed, 1, 0)
	g.wantRow("verified", schema.StateFailed, 1, 0)
	if row := g.wantRow("neither", schema.StatePending, 1, 0); !row.Held {
		t.Error("not held for a person")
	}
	g.wantRemaining(995)
	g.reserve(g.session(), call("idempotent", harmless))
	g.wantRow("idempotent", schema.StatePending, 2, 0)
	if out, err := verified.Do(t.Context(), g.session(), writers.SessionKey("verified"), struct{}{}); err != nil || out.Attempt != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	_, _, err = g.session().Reserve(t.Context(), call("neither"))
	if e := g.wantCode(err, writers.ErrOutcomeUnknown); e.RetryAfter != 0 {
		t.Error("told to retry what a person must decide")
	}
	g.balanced()
}

// A step that is replayed because the next one failed gets the stored bytes; nothing is debited or recorded anew.
func TestHC16ReplayedStep(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { return nil })
	first, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k6"), struct{}{})
	g.must(err)
	g.unchanged(func() {
		again, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k6"), struct{}{})
		if err != nil || again.Outcome != writers.OutcomeReplayed || string(again.JSON) != string(first.JSON) || again.Charged != 5 {
			t.Errorf("%+v, %v", again, err)
		}
	})
	if asked, _ := p.acts(); asked != 1 {
		t.Errorf("paid %d times", asked)
	}
	if o := g.observation("k6"); o.Duplicates != 1 {
		t.Errorf("%d duplicates counted", o.Duplicates)
	}
}

// Three layers that retry, all losing answers after the write landed: one effect, and a bounded number of requests.
func TestHC17RetryLayers(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	// Every second try of a transaction loses its answer after it was applied.
	g.in.Set(func(e faults.Event) faults.Fault {
		if e.Level == faults.Try && e.Op == "TransactWriteItems" && e.N%4 != 0 {
			return faults.Lose()
		}
		return faults.Fault{}
	})
	var p provider
	tool := p.paying(func() error { return nil })
	for range 3 * 3 {
		if _, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	if asked, keys := p.acts(); asked != 1 || keys != 1 {
		t.Errorf("paid %d times", asked)
	}
	if n := g.in.Count(faults.Try, "TransactWriteItems"); n > 9*8 {
		t.Errorf("%d requests", n)
	}
	// A service that never answers ends each call after a bounded number of tries.
	g.in.Set(faults.Every(faults.Try, "", faults.Fail(faults.Broken())))
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("dead"), struct{}{})
	g.wantCode(err, writers.ErrUnavailable)
	if n := g.in.Count(faults.Try, ""); n > 12 {
		t.Errorf("%d requests to a dead service", n)
	}
	g.wantRemaining(995)
	g.balanced()
}

// A provider that commits and drops the connection: where it knows keys, the next try carries the same one; where it does
// not, the outcome is unknown and nobody tries blindly.
func TestHC18DroppedConnection(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	dropped := errors.New("connection dropped")
	var knows provider
	tool := knows.paying(func() error { return dropped })
	tool.Verify, tool.Idempotent = nil, true
	_, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	if e := g.wantCode(err, writers.ErrOutcomeUnknown); !errors.Is(e, dropped) {
		t.Errorf("the cause is lost: %v", e)
	}
	g.pastVerdict()
	_, err = tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	g.wantCode(err, writers.ErrOutcomeUnknown)
	if asked, keys := knows.acts(); asked != 2 || keys != 1 {
		t.Errorf("asked %d times with %d keys", asked, keys)
	}

	var blind provider
	tool = blind.paying(func() error { return dropped })
	tool.Verify = nil
	for range 3 {
		_, err = tool.Do(t.Context(), g.session(), writers.SessionKey("blind"), struct{}{})
		if errors.Is(err, writers.ErrNotApplied) {
			t.Errorf("told that it did not happen: %v", err)
		}
		g.pastVerdict()
	}
	g.wantCode(err, writers.ErrOutcomeUnknown)
	if asked, _ := blind.acts(); asked != 1 {
		t.Errorf("acted %d times", asked)
	}
	g.wantRow("blind", schema.StatePending, 1, 0)
	g.balanced()
}

// No act without a durable pending row: a death before the reserve leaves nothing, one after it leaves a row to reconcile,
// and the effect key is the same for whoever comes next.
func TestHC19DeathAroundTheReserve(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var p provider
	tool := p.paying(func() error { return nil })
	die := func(key string, f faults.Fault) {
		g.in.Set(faults.At(faults.Call, "TransactWriteItems", 1, f))
		if g.in.Run(func() { _, _ = tool.Do(t.Context(), g.session(), writers.SessionKey(key), struct{}{}) }) {
			t.Error("the worker survived")
		}
		g.in.Set(nil)
		g.in.Revive()
	}
	g.unchanged(func() { die("k", faults.Crash()) })
	die("k", faults.CrashAfter())
	g.wantRow("k", schema.StatePending, 1, 0)
	if asked, _ := p.acts(); asked != 0 {
		t.Errorf("acted %d times", asked)
	}
	before, err := g.clean.Tenant("acme").Session("s1").Get(t.Context(), writers.SessionKey("k"))
	g.must(err)
	g.pastVerdict()
	out, err := tool.Do(t.Context(), g.session(), writers.SessionKey("k"), struct{}{})
	if err != nil || out.Attempt != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if p.keys[before.EffectKey] != 1 || len(p.keys) != 1 {
		t.Errorf("the next attempt has another effect key: %v", p.keys)
	}
	g.wantRemaining(995)
	g.balanced()
}

// The rest of a reservation comes back once, whatever fails afterwards and however often it is settled.
func TestHC20SettledTwice(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	hold := g.reserve(g.session(), call("k", func(c *writers.Call) { c.Tokens = 220 }))
	g.wantRemaining(780)
	for range 3 {
		if out, err := hold.Finalize(t.Context(), "r", 55); err != nil || out.Charged != 55 {
			t.Fatalf("%+v, %v", out, err)
		}
		g.wantRemaining(945)
	}
	g.wantCode(hold.Release(t.Context(), ""), writers.ErrSuperseded)
	g.wantRemaining(945)
	released := g.reserve(g.session(), call("released"))
	for range 2 {
		g.must(released.Release(t.Context(), ""))
		g.wantRemaining(945)
	}
	g.balanced()
}

// Finalizes and expiries of one row on a barrier: one of them wins, and the books balance each time.
func TestHC22OneWinner(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	var finalized, expired int
	for round := range soak(12, 1000) {
		key := fmt.Sprint("k", round)
		hold := g.reserve(g.session(), call(key))
		row := g.row(key)
		g.pastVerdict()
		var wins atomic.Int64
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 50 {
			group.Go(func() {
				<-start
				if i%2 == 0 {
					_, _ = hold.Finalize(t.Context(), "r", 5)
				} else if g.expireRow(row) == nil {
					wins.Add(1)
				}
			})
		}
		close(start)
		group.Wait()
		if n := wins.Load(); n > 1 {
			t.Fatalf("round %d: expired %d times", round, n)
		} else if n == 1 {
			expired++
		} else {
			finalized++
		}
		after := g.row(key)
		if after.State != schema.StateApplied { // a finalize that came second settles late
			t.Fatalf("round %d: the row is %s", round, after.State)
		}
	}
	t.Logf("finalize was first %d times, expire %d times", finalized, expired)
	g.balanced()
}

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
	if out.Outcome != writers.OutcomeReplayed || out.JSON == nil || string(out.JSON) != string(first.JSON) || len(out.JSON) > 0 && string(out.JSON) != "null" {
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
