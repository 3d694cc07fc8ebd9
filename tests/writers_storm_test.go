// Storms: many callers of one call at once, and everybody who may end a reservation at the same moment, on a real local
// DynamoDB.
package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/audit"
	"toolledger/internal/protocol"
	"toolledger/internal/schema"
	"toolledger/writers"
)

const stormCallers = 64

// stormRig is a ledger as several processes see it, with a clock that the test moves and the tenant "acme".
type stormRig struct {
	*modelTables
	t       *testing.T
	millis  atomic.Int64
	clients []*watchedClient
	ledgers []*writers.Ledger
	effects string // a table of the tool's own
	log     stormLog
}

// stormLog counts what is logged.
type stormLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *stormLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *stormLog) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), message)
}

func newStormRig(t *testing.T, plan writers.Plan) *stormRig {
	t.Helper()
	g := &stormRig{modelTables: newModelTables(t), t: t, effects: "toolledger-effects"}
	g.millis.Store(time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC).UnixMilli())
	for range 4 {
		client := &watchedClient{DynamoDB: g.db}
		l, err := writers.New(client, writers.Config{Table: g.ledger, Now: g.now, Logger: slog.New(slog.NewTextHandler(&g.log, nil))})
		g.must(err)
		g.clients, g.ledgers = append(g.clients, client), append(g.ledgers, l)
	}
	g.must(g.ledgers[0].Tenant("acme").PutPlan(t.Context(), plan))
	own := schema.ControlTable(g.effects, false)
	_, err := g.db.CreateTable(t.Context(), own)
	g.must(err)
	return g
}

func (g *stormRig) now() time.Time { return time.UnixMilli(g.millis.Load()).UTC() }

func (g *stormRig) advance(d time.Duration) { g.millis.Add(d.Milliseconds()) }

func (g *stormRig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *stormRig) session(process int) writers.Session {
	return g.ledgers[process%len(g.ledgers)].Tenant("acme").Session("s")
}

func (g *stormRig) row(key string) *schema.Row {
	g.t.Helper()
	k := schema.RowKey("acme", "s", schema.ScopeSession, key)
	out, err := g.db.GetItem(g.t.Context(), &dynamodb.GetItemInput{
		TableName: &g.ledger, ConsistentRead: aws.Bool(true), Key: schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)},
	})
	g.must(err)
	row, err := schema.DecodeRow(schema.FieldsOf(out.Item))
	g.must(err)
	return row
}

func (g *stormRig) quota() writers.Quota {
	g.t.Helper()
	q, err := g.session(0).Tenant().Quota(g.t.Context())
	g.must(err)
	return q
}

func (g *stormRig) wantSpent(tokens int64) {
	g.t.Helper()
	if q := g.quota(); q.Granted-q.Remaining != tokens {
		g.t.Errorf("%d tokens are spent, want %d", q.Granted-q.Remaining, tokens)
	}
}

func (g *stormRig) balanced() {
	g.t.Helper()
	report, err := audit.Run(g.t.Context(), g.db, audit.Config{Table: g.ledger, Now: g.now})
	g.must(err)
	if !report.OK || report.Moving.Count > 0 {
		g.t.Errorf("the books: %+v %+v %+v", report.Unbalanced, report.Illegal, report.Moving)
	}
}

// together runs n callers that begin at the same moment.
func together(n int, call func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	start := make(chan struct{})
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			call(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// sameAnswers fails unless all callers got the same bytes and one of them made the effect.
func (g *stormRig) sameAnswers(key string, answers []writers.Raw, errs []error) {
	g.t.Helper()
	applied := 0
	for i, err := range errs {
		switch {
		case err != nil:
			g.t.Errorf("%s: caller %d: %v", key, i, err)
		case string(answers[i].JSON) != string(answers[0].JSON):
			g.t.Errorf("%s: caller %d got %s, another %s", key, i, answers[i].JSON, answers[0].JSON)
		case answers[i].Outcome == writers.OutcomeApplied:
			applied++
		}
	}
	if applied != 1 {
		g.t.Errorf("%s: %d callers made the effect", key, applied)
	}
	row := g.row(key)
	if row.ResultJSON == nil || *row.ResultJSON != string(answers[0].JSON) || row.Attempt != 1 || row.Version > 2 {
		g.t.Errorf("%s: row %+v", key, row)
	}
}

// Promise: 64 callers commit the same call at once: its own write is made once, its tokens are debited once, all get the
// bytes of one result, and each of the others is counted, or logged as one that could not be.
func TestSimulationStormOfCommits(t *testing.T) {
	keys := soak(10, 100)
	g := newStormRig(t, writers.Plan{Tokens: 1_000_000, Shards: 2})
	for k := range keys {
		key := keyN(k)
		answers, errs := make([]writers.Raw, stormCallers), make([]error, stormCallers)
		together(stormCallers, func(i int) {
			answers[i], errs[i] = g.session(i).Commit(t.Context(), writers.Call{
				Key: writers.SessionKey(key), Tool: "save", Args: map[string]any{"id": k}, Tokens: 5, Writes: g.effect(key),
			}, i)
		})
		g.sameAnswers(key, answers, errs)
	}
	g.wantSpent(int64(5 * keys))
	var counted int64
	for k := range keys {
		if n := g.effectCount(keyN(k)); n != 1 {
			t.Errorf("%s took effect %d times", keyN(k), n)
		}
		n := g.duplicates(keyN(k))
		if n > stormCallers-1 {
			t.Errorf("%s: %d duplicates are counted", keyN(k), n)
		}
		counted += n
	}
	if lost := int64(g.log.count("observation not written")); counted+lost < int64(keys*(stormCallers-1)) {
		t.Errorf("%d duplicates are counted, %d could not be", counted, lost)
	}
	g.balanced()
}

// effect is the tool's own write: a counter that needs no condition, since the ledger's own has to do.
func (g *stormRig) effect(key string) []types.TransactWriteItem {
	return []types.TransactWriteItem{{Update: &types.Update{
		TableName: &g.effects, Key: schema.Item{"pk": schema.S(key), "sk": schema.S("x")}, UpdateExpression: aws.String("ADD n :one"),
		ExpressionAttributeValues: schema.Item{":one": schema.N(1)},
	}}}
}

func (g *stormRig) effectCount(key string) int {
	out, err := g.db.GetItem(g.t.Context(), &dynamodb.GetItemInput{
		TableName: &g.effects, ConsistentRead: aws.Bool(true), Key: schema.Item{"pk": schema.S(key), "sk": schema.S("x")},
	})
	g.must(err)
	n, _ := strconv.Atoi(schema.ValueOf(out.Item["n"]).Text)
	return n
}

func (g *stormRig) duplicates(key string) int64 {
	k := schema.ObservationKey(schema.RowKey("acme", "s", schema.ScopeSession, key))
	out, err := g.db.GetItem(g.t.Context(), &dynamodb.GetItemInput{
		TableName: &g.ledger, ConsistentRead: aws.Bool(true), Key: schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)},
	})
	g.must(err)
	o, err := schema.DecodeObservation(schema.FieldsOf(out.Item))
	g.must(err)
	return o.Duplicates
}

// Promise: 64 callers of an irreversible tool: one acts, the others wait and get its result; one effect, one debit.
func TestSimulationStormOfActs(t *testing.T) {
	keys := soak(2, 20)
	g := newStormRig(t, writers.Plan{Tokens: 1_000_000})
	acts := make([]atomic.Int64, keys)
	tool := &writers.Tool[struct{ ID int }, int64]{
		Name: "pay", Cost: 5, Act: func(_ context.Context, a writers.Attempt[struct{ ID int }]) (int64, error) {
			return 1000*int64(a.Args.ID) + acts[a.Args.ID].Add(1), nil
		},
	}
	for k := range keys {
		answers, errs := make([]writers.Raw, stormCallers), make([]error, stormCallers)
		together(stormCallers, func(i int) {
			out, err := tool.Do(t.Context(), g.session(i), writers.SessionKey(keyN(k)), struct{ ID int }{k}, func(c *writers.Call) { c.Wait = time.Minute })
			answers[i], errs[i] = writers.Raw{Outcome: out.Outcome, JSON: out.JSON}, err
			if err == nil && out.Value != 1000*int64(k)+1 {
				t.Errorf("value %d", out.Value)
			}
		})
		g.sameAnswers(keyN(k), answers, errs)
		if n := acts[k].Load(); n != 1 {
			t.Errorf("%s acted %d times", keyN(k), n)
		}
	}
	g.wantSpent(int64(5 * keys))
	g.balanced()
}

// Promise: callers of a call that takes the last tokens, from several shards, all get its result: nobody is told that the
// quota is exhausted by the very call that he made.
func TestSimulationStormForTheLastTokens(t *testing.T) {
	g := newStormRig(t, writers.Plan{Tokens: 400, Shards: 4})
	for k := range soak(2, 20) {
		if k > 0 {
			g.must(g.session(0).Tenant().PutPlan(t.Context(), writers.Plan{Tokens: 400 * int64(k+1), Shards: 4}))
		}
		answers, errs := make([]writers.Raw, stormCallers), make([]error, stormCallers)
		together(stormCallers, func(i int) {
			answers[i], errs[i] = g.session(i).Commit(t.Context(), writers.Call{Key: writers.SessionKey(keyN(k)), Tool: "save", Tokens: 400}, i)
		})
		g.sameAnswers(keyN(k), answers, errs)
		if q := g.quota(); q.Remaining != 0 {
			t.Fatalf("%d tokens remain", q.Remaining)
		}
	}
	g.balanced()
}

// Promise: as many calls as the quota has tokens for go through, whoever calls: no token is lost, none is spent twice, and
// the shards are used up to the last.
func TestSimulationStormOnOneQuota(t *testing.T) {
	const tokens, cost = 60, 7
	g := newStormRig(t, writers.Plan{Tokens: tokens, Shards: 4})
	var applied, exhausted atomic.Int64
	together(stormCallers, func(i int) {
		_, err := g.session(i).Commit(t.Context(), writers.Call{Key: writers.SessionKey(keyN(i)), Tool: "save", Tokens: cost}, i)
		switch {
		case err == nil:
			applied.Add(1)
		case errors.Is(err, writers.ErrQuotaExhausted):
			exhausted.Add(1)
		default:
			t.Error(err)
		}
	})
	if applied.Load() != tokens/cost || applied.Load()+exhausted.Load() != stormCallers {
		t.Errorf("%d applied, %d exhausted", applied.Load(), exhausted.Load())
	}
	g.wantSpent(tokens / cost * cost)
	g.balanced()
}

// watchedClient counts what went through: how often a row was changed, and how often an attempt ended.
type watchedClient struct {
	writers.DynamoDB

	changes, ends atomic.Int64
}

func (c *watchedClient) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	out, err := c.DynamoDB.TransactWriteItems(ctx, in, o...)
	if err != nil {
		return out, err
	}
	for _, item := range in.TransactItems {
		u := item.Update
		if u == nil || !strings.HasPrefix(schema.ValueOf(u.Key[schema.SK]).Text, schema.RowPrefix) {
			continue
		}
		c.changes.Add(1)
		was, is := schema.ValueOf(u.ExpressionAttributeValues[":guardState"]).Text, schema.ValueOf(u.ExpressionAttributeValues[":state"]).Text
		if was == schema.StatePending && is != "" && is != schema.StatePending {
			c.ends.Add(1)
		}
	}
	return out, nil
}

// barrier is one round of everybody against everybody over one overdue reservation.
type barrier struct {
	*stormRig
	key                                    string
	finalize                               bool // the worker turns up as well
	finErr, relErr, extErr, resErr, expErr error
	fin                                    writers.Raw
	holds                                  [2]*writers.Reservation
	done                                   [2]*writers.Raw
	takeErrs                               [2]error
}

// Promise: a worker that finalizes, one that releases, an extension, a sweep, a person and two callers that take over meet
// at one overdue reservation at the same moment: each attempt ends once, one of them is recorded, nothing that is counted
// is lost, and the books balance after each round.
func TestSimulationBarrier(t *testing.T) {
	g := newStormRig(t, writers.Plan{Tokens: 1_000_000, Shards: 2})
	var spent int64
	outcomes := map[string]int{}
	for round := range soak(100, 1000) {
		b := &barrier{stormRig: g, key: keyN(round), finalize: round%3 != 0}
		outcomes[b.run(round)]++
		row := g.row(b.key)
		if row.State != schema.StateFailed {
			spent += schema.SumDebits(row.Debits)
		}
		g.wantSpent(spent)
		if t.Failed() {
			t.Fatalf("round %d: %+v\n%+v", round, row, b)
		}
	}
	g.balanced()
	t.Logf("%v", outcomes)
}

func (b *barrier) run(round int) string {
	ctx, key := b.t.Context(), writers.SessionKey(b.key)
	hold, _, err := b.session(0).Reserve(ctx, writers.Call{Key: key, Tool: "pay", Args: map[string]any{"n": round}, Tokens: 20, Lease: time.Minute})
	b.must(err)
	token := hold.Token()
	copies := make([]*writers.Reservation, 2)
	for i := range copies {
		copies[i], err = b.ledgers[1+i].Tenant("acme").Resume(token)
		b.must(err)
	}
	before := b.row(b.key)
	b.advance(time.Minute + 2*time.Minute + time.Minute + time.Second)
	for _, c := range b.clients {
		c.changes.Store(0)
		c.ends.Store(0)
	}
	takeover := writers.Call{Key: key, Tool: "pay", Args: map[string]any{"n": round}, Tokens: 20, VerifiedAbsent: hold.Ref()}
	racers := []func(){
		func() { b.relErr = copies[0].Release(ctx, "not done") },
		func() { b.extErr = copies[1].Extend(ctx, time.Minute) },
		func() {
			_, b.resErr = b.session(3).Resolve(ctx, key, writers.Resolution{Verdict: writers.EffectAbsent, RowID: hold.RowID, Attempt: 1, By: "ann"})
		},
		func() { b.expErr = b.expire(ctx, before) },
		func() { b.holds[0], b.done[0], b.takeErrs[0] = b.session(1).Reserve(ctx, takeover) },
		func() { b.holds[1], b.done[1], b.takeErrs[1] = b.session(2).Reserve(ctx, takeover) },
	}
	if b.finalize {
		racers = append(racers, func() { b.fin, b.finErr = hold.Finalize(ctx, "paid", 17) })
	}
	together(len(racers), func(i int) { racers[(i+round)%len(racers)]() })
	return b.check(hold)
}

// expire is what the sweeper does with a row that it read before.
func (b *barrier) expire(ctx context.Context, row *schema.Row) error {
	p := b.ledgers[3].Plumbing()
	now := p.Now()
	tx := protocol.NewTx(2)
	tx.Add(protocol.Part{Kind: protocol.PartRow}, p.Tables.Fail(row.Key, protocol.AsRead(row), protocol.Failure{
		Kind: schema.FailureExpired, Unverified: schema.UnverifiedExpired, Now: now, ExpiresAt: p.ExpiresAt(row, row.Debits, now),
	}))
	p.Tables.AddAmounts(tx, protocol.Refunds("acme", row.Debits))
	return protocol.Send(ctx, b.clients[3], tx)
}

func (b *barrier) check(hold *writers.Reservation) string {
	t := b.t
	row := b.row(b.key)
	var changes, ends int64
	for _, c := range b.clients {
		changes += c.changes.Load()
		ends += c.ends.Load()
	}
	if row.Version != 1+changes {
		t.Errorf("version %d after %d changes: one was lost", row.Version, changes)
	}
	pending := int64(0)
	if row.State == schema.StatePending {
		pending = 1
	}
	if ends != row.Attempt-pending {
		t.Errorf("%d attempts ended %d times", row.Attempt-pending, ends)
	}
	if b.holds[0] != nil && b.holds[1] != nil {
		t.Error("two callers took over")
	}
	b.checkAnswers(row)
	if b.finalize {
		b.checkFinalized(row)
	}
	winner := row.State + " " + row.Failure + " " + string(b.fin.Outcome)
	b.settle(row)
	return fmt.Sprintf("%s, attempt %d", strings.TrimSpace(winner), row.Attempt)
}

// checkAnswers: whoever lost was told so, in words that say what to do.
func (b *barrier) checkAnswers(row *schema.Row) {
	t := b.t
	if b.relErr != nil && !errors.Is(b.relErr, writers.ErrSuperseded) {
		t.Errorf("release: %v", b.relErr)
	}
	if b.extErr != nil && !errors.Is(b.extErr, writers.ErrSuperseded) {
		t.Errorf("extend: %v", b.extErr)
	}
	if b.resErr != nil && !errors.Is(b.resErr, writers.ErrSuperseded) && !errors.Is(b.resErr, writers.ErrInProgress) {
		t.Errorf("resolve: %v", b.resErr)
	}
	if _, refused := errors.AsType[*protocol.Refused](b.expErr); b.expErr != nil && !refused {
		t.Errorf("expire: %v", b.expErr)
	}
	for i, err := range b.takeErrs {
		switch {
		case b.holds[i] != nil && b.holds[i].Attempt < 2, b.holds[i] != nil && int64(b.holds[i].Attempt) > row.Attempt:
			t.Errorf("a takeover of attempt %d", b.holds[i].Attempt)
		case b.done[i] != nil && string(b.done[i].JSON) != `"paid"`:
			t.Errorf("a replay of %s", b.done[i].JSON)
		case err != nil && !errors.Is(err, writers.ErrInProgress) && !errors.Is(err, writers.ErrOutcomeUnknown):
			t.Errorf("takeover: %v", err)
		case err == nil && b.holds[i] == nil && b.done[i] == nil:
			t.Error("a takeover without an answer")
		}
	}
}

// checkFinalized: a worker that acted is always recorded, once, with its result; only the words differ.
func (b *barrier) checkFinalized(row *schema.Row) {
	t := b.t
	if b.finErr != nil || row.State != schema.StateApplied || row.AppliedAttempt != 1 || row.ResultJSON == nil || *row.ResultJSON != `"paid"` {
		// A takeover of what was given back later is no loss: it cannot be, the row is applied.
		t.Errorf("finalize: %+v %v; row %+v", b.fin, b.finErr, row)
		return
	}
	if b.fin.Outcome == writers.OutcomeApplied && (row.Attempt != 1 || b.relErr == nil || b.resErr == nil || b.expErr == nil) {
		t.Errorf("finalize came first, and somebody else did too: %+v", b)
	}
	if b.fin.Outcome == writers.OutcomeApplied && (row.Charged != 17 || schema.SumDebits(row.Debits) != 17) {
		t.Errorf("charged %d, debits %v", row.Charged, row.Debits)
	}
	if taken := b.holds[0] != nil || b.holds[1] != nil; taken && len(row.Suspects) == 0 {
		t.Error("another attempt may have acted, and the row does not say so")
	}
}

// settle ends what a round left: the attempt that took over finalizes, and is recorded or told that it was superseded.
func (b *barrier) settle(row *schema.Row) {
	for _, hold := range b.holds {
		if hold == nil {
			continue
		}
		raw, err := hold.Finalize(b.t.Context(), "again", 20)
		switch {
		case row.State == schema.StateApplied && !errors.Is(err, writers.ErrSuperseded):
			b.t.Errorf("a second effect was recorded: %+v %v", raw, err)
		case row.State != schema.StateApplied && (err != nil || string(raw.JSON) != `"again"`):
			b.t.Errorf("the attempt that took over was not recorded: %+v %v", raw, err)
		}
		if name := schema.SuspectName(hold.RowID, int64(hold.Attempt)); row.State == schema.StateApplied && !contains(b.row(b.key).Suspects, name) {
			b.t.Errorf("%s is no suspect", name)
		}
	}
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// Promise: a process that commits all day does not grow.
func TestSimulationFlatMemory(t *testing.T) {
	g := newStormRig(t, writers.Plan{Tokens: 1 << 40})
	result := json.RawMessage(`"` + strings.Repeat("x", 4000) + `"`)
	next := 0
	commit := func(n int) {
		for range n {
			next++
			_, err := g.session(0).Commit(t.Context(), writers.Call{
				Key: writers.SessionKey(keyN(next)), Tool: "save", Args: map[string]any{"n": next}, Tokens: 1, Cursor: strconv.Itoa(next),
			}, result)
			g.must(err)
		}
	}
	n := soak(1_000, 10_000)
	commit(n / 10)
	before := heap()
	commit(n)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes more after %d commits", grown, n)
	} else {
		t.Logf("%d bytes more after %d commits", grown, n)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
