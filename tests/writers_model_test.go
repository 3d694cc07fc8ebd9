// The writers against the model of the protocol (tests/model): random operations of several tenants and processes, whose
// clocks differ and jump, on a real local DynamoDB. After each operation the answer and every attribute in both tables have
// to be what the model says, and the books have to balance.
package tests_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"toolledger/internal/audit"
	"toolledger/internal/protocol"
	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/tests/model"
	"toolledger/writers"
)

// modelKeep and modelSkew are the configuration of every process; their clocks are off by modelClocks, within the skew.
const (
	modelKeep = 48 * time.Hour
	modelSkew = 2 * time.Minute
)

var modelClocks = []time.Duration{0, 80 * time.Second, -35 * time.Second}

// Promise: whatever sequence of operations callers send, with whatever clocks within the skew, every answer and every
// attribute of every item is what the protocol says.
func TestSimulationWritersModel(t *testing.T) {
	tables := newModelTables(t)
	for round := range soak(1, 10) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			ran, failed := 0, false
			rapid.Check(t, func(r *rapid.T) {
				defer func() { failed = failed || r.Failed() }()
				if ran++; ran > soak(12, 1_000_000) && !failed { // less than rapid's default, where time is short
					return
				}
				tables.run(r)
			})
		})
	}
}

// modelTables are two tables that every run of the model finds empty and leaves so.
type modelTables struct {
	ctx             context.Context
	db              *dynamodb.Client
	ledger, control string
}

func newModelTables(t *testing.T) *modelTables {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	tables := &modelTables{
		ctx: t.Context(), db: dynamodb.NewFromConfig(srv.AWSConfig()), ledger: "toolledger-model", control: "toolledger-model-control",
	}
	if _, err := stack.CreateTables(t.Context(), tables.db, tables.ledger, tables.control, false); err != nil {
		t.Fatal(err)
	}
	return tables
}

// modelRun is one sequence of operations.
type modelRun struct {
	*modelTables
	t       *rapid.T
	m       *model.Model
	base    time.Time
	ledgers []*writers.Ledger
	holds   []*modelHold
	narrow  bool                          // few tenants, sessions, keys and intents, so that the life of a call goes on for long
	raw     map[model.ItemKey]schema.Item // the tables as last read
	last    map[model.ItemKey]schema.Item // and after the operation before
	log     []string
}

// modelHold is a reservation, as the ledger and as the model know it.
type modelHold struct {
	real  *writers.Reservation
	model *model.Hold
	proc  int
}

func (tables *modelTables) run(t *rapid.T) {
	w := &modelRun{
		modelTables: tables, t: t, m: model.New(modelSkew, modelKeep),
		base: time.Date(2026, 11, 30, 23, 58, 30, 0, time.UTC),
	}
	defer w.clean()
	w.base = w.base.Add(-pick(w, "start", 0, 20*time.Hour, 500*time.Hour))
	for i := range modelClocks {
		l, err := writers.New(w.db, writers.Config{
			Table: w.ledger, Keep: modelKeep, Skew: modelSkew, Now: func() time.Time { return w.now(i) },
		})
		w.must(err)
		w.ledgers = append(w.ledgers, l)
	}
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(w.log, "\n"))
		}
	}()
	w.m.Base, w.narrow = w.base, !w.one("narrow", 3)
	if !w.one("planned", 5) {
		w.plan(0)
	}
	for range 30 + w.index("steps", 60) {
		w.step()
	}
	report, err := audit.Run(w.ctx, w.db, audit.Config{Table: w.ledger, Skew: modelSkew, Now: func() time.Time { return w.base }})
	w.must(err)
	if report.Unbalanced.Count+report.Illegal.Count+report.Notes.Count > 0 {
		t.Fatalf("the audit finds %+v %+v %+v", report.Unbalanced, report.Illegal, report.Notes)
	}
}

func (w *modelRun) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *modelRun) now(proc int) time.Time { return w.base.Add(modelClocks[proc]) }

// The actions, as often as they are named.
var modelActions = []string{
	"commit", "commit", "reserve", "reserve", "reserve", "reserve", "again", "again", "take over", "take over", "take over",
	"finalize", "finalize", "finalize", "finalize", "finalize", "release", "extend", "resolve", "resolve", "resolve", "sweep", "sweep",
	"hold", "tick", "tick", "plan", "plan", "grant", "suspend", "quota", "resume", "resume", "look", "forget", "undo", "undo", "undo",
	"long ago",
}

func (w *modelRun) step() {
	w.m.Base = w.base
	name := pick(w, "action", modelActions...)
	proc := w.index("process", len(modelClocks))
	switch name {
	case "commit", "reserve":
		w.write(proc, w.drawCall(name == "commit"))
	case "again":
		w.again(proc)
	case "take over":
		w.takeOver(proc)
	case "undo":
		w.undo(proc)
	case "finalize", "release", "extend", "resume":
		if len(w.holds) > 0 {
			w.onHold(name, proc, pick(w, "hold", w.holds...))
		}
	case "resolve":
		w.resolve(proc)
	case "sweep", "hold":
		w.sweep(proc, name)
	case "tick":
		w.tick()
	case "plan":
		w.plan(proc)
	case "grant", "suspend", "quota":
		w.tenantOp(name, proc)
	case "look":
		w.look(proc)
	case "forget":
		w.forget()
	case "long ago": // what reservations were made for is gone by now
		w.base = w.base.Add(pick(w, "jump", 33*24*time.Hour, 80*24*time.Hour))
		w.forget()
		if len(w.holds) > 0 {
			w.onHold("finalize", proc, pick(w, "hold", w.holds...))
		}
	}
	w.compare(name)
}

func (w *modelRun) logf(format string, args ...any) {
	w.log = append(w.log, w.base.Format("01-02T15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *modelRun) tick() {
	jumps := []time.Duration{
		time.Second, 20 * time.Second, 61 * time.Second, 3 * time.Minute, 5 * time.Minute, 15 * time.Minute, 3 * time.Hour, 26 * time.Hour,
	}
	if !w.narrow {
		jumps = append(jumps, 4*24*time.Hour, 33*24*time.Hour, 80*24*time.Hour)
	}
	if w.one("midnight", 3) { // where two periods are current
		w.base = w.base.Truncate(24 * time.Hour).Add(24*time.Hour - pick(w, "before", 150*time.Second, 30*time.Second))
	} else {
		w.base = w.base.Add(pick(w, "jump", jumps...))
	}
	w.logf("tick")
}

// index draws one of n, all alike: rapid's own ranges favour the ends, which here mean nothing.
func (w *modelRun) index(label string, n int) int {
	k := 0
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(w.t, label) {
		k *= 2
		if bit {
			k++
		}
	}
	return k % n
}

// one draws something that happens once in n times.
func (w *modelRun) one(label string, n int) bool { return w.index(label, n) == 0 }

// pick draws one of a few values.
func pick[T any](w *modelRun, label string, values ...T) T {
	return values[w.index(label, len(values))]
}

func (w *modelRun) drawTenant() string {
	if w.narrow {
		return "acme"
	}
	return pick(w, "tenant", "acme", "acme", "acme", "acme2")
}

// drawKey draws one of a few keys. How long a row is kept depends on its key, so that all attempts of one agree.
func (w *modelRun) drawKey() (k model.Key, keep time.Duration) {
	i := w.index("key", 5)
	if w.narrow {
		i %= 3
	}
	return model.Key{ID: fmt.Sprint("k", i), Wide: i == 2}, []time.Duration{0, 0, 0, time.Hour, 60 * 24 * time.Hour}[i]
}

func (w *modelRun) drawCall(commit bool) model.Call {
	k, keep := w.drawKey()
	c := model.Call{
		Tenant: w.drawTenant(), Session: pick(w, "session", "s0", "s0", "s1"), Key: k, Keep: keep, Commit: commit,
		Tool: pick(w, "tool", "t", "t", "t", "t", "t", "u"), Args: pick(w, "args", `{}`, `{}`, `{}`, `{}`, `{"a":1}`, `{"a":1,"b":[true]}`),
		Tokens: pick(w, "tokens", int64(0), 1, 5, 5, 20, 60, 100), Cursor: pick(w, "cursor", "", "", "c1", "c2"),
		Lease: pick(w, "lease", 10*time.Second, time.Minute, 10*time.Minute), Horizon: pick(w, "horizon", 0, 0, 5*time.Minute),
		Idempotent: w.one("idempotent", 2), Verifier: w.one("verifier", 2),
		Lookup: pick(w, "lookup", "", "pnr=X"), Trace: pick(w, "trace", "", "00-abc"), Result: pick(w, "result", `1`, `{"ok": true}`, `"x"`),
	}
	c.Expect = pick(w, "expect", nil, nil, nil, new(""), new("c1"))
	if w.narrow {
		c.Session, c.Tool, c.Args = "s0", "t", `{}`
		if c.Expect != nil {
			c.Cursor, c.Expect = pick(w, "cursor", "c1", "c2"), new(w.cursorOf(c))
		}
	}
	w.drawAbsent(&c)
	return c
}

// cursorOf is where the session is.
func (w *modelRun) cursorOf(c model.Call) string {
	key := model.ItemKey{PK: "TENANT#" + c.Tenant + "#SESSION#" + c.Session, SK: "META"}
	return strings.TrimPrefix(w.m.All()[key]["cursor"], "S:")
}

// drawAbsent says of the row that is there, or of one that is not, that it was verified absent.
func (w *modelRun) drawAbsent(c *model.Call) {
	r := w.m.Look(w.base, *c)
	how := w.index("absent", 8)
	if r == nil || how == 0 {
		return
	}
	c.Absent = model.Ref{RowID: r.RowID, Attempt: r.Attempt, Deadline: r.Deadline}
	if r.State != model.Pending {
		c.Absent.Deadline = r.LastDeadline
	}
	switch how {
	case 1:
		c.Absent.Deadline = c.Absent.Deadline.Add(-time.Second)
	case 2:
		c.Absent.Attempt++
	}
}

// again repeats the call of a hold, as a retry does.
func (w *modelRun) again(proc int) {
	if len(w.holds) == 0 {
		return
	}
	holds := w.holds
	if undoing := slices.DeleteFunc(slices.Clone(holds), func(h *modelHold) bool { return h.model.Compensates == nil }); len(undoing) > 0 && w.one("undoing", 2) {
		holds = undoing
	}
	c := pick(w, "hold", holds...).model.Call
	c.Commit = w.one("commit", 4)
	if c.Commit {
		c.Result = `"again"`
	}
	w.drawAbsent(&c)
	w.write(proc, c)
}

// takeOver waits until a verdict on a call that is not recorded counts, and begins its next attempt, most often with the
// verdict.
func (w *modelRun) takeOver(proc int) {
	open := slices.DeleteFunc(w.m.Calls(), func(r *model.Row) bool { return r.State == model.Applied })
	if len(open) == 0 {
		return
	}
	r := pick(w, "call", open...)
	if late := w.m.Settles(r).Add(pick(w, "late", 0, time.Second, time.Second)).Sub(w.now(proc)); late > 0 {
		w.base = w.base.Add(late)
		w.m.Base = w.base
	}
	c := r.Call
	c.Commit, c.Result = w.one("commit", 5), `"after"`
	w.drawAbsent(&c)
	w.write(proc, c)
}

// undo compensates one of the calls, most often one that took effect, or goes on with an undoing that began.
func (w *modelRun) undo(proc int) {
	c := w.drawCall(w.one("commit", 2))
	k, _ := w.drawKey()
	if calls := w.m.Calls(); len(calls) > 0 && !w.one("there", 5) {
		r := pick(w, "original", calls...)
		k, c.Tenant, c.Session = r.Key, r.Tenant, r.Session
		if r.Compensates != nil {
			k = *r.Compensates
		}
	}
	c.Key = model.Key{ID: "undo-" + k.ID + pick(w, "undo", "", "", "", "-too")}
	c.Tool, c.Args = "undo", `{}`
	c.Compensates, c.Refund = &k, !w.one("refund", 3)
	c.Tokens, c.Keep, c.Expect, c.Absent = pick(w, "tokens", int64(0), 0, 5, 60), 0, nil, model.Ref{}
	w.drawAbsent(&c)
	w.write(proc, c)
}

func realKey(k model.Key) writers.Key {
	if k.Wide {
		return writers.TenantKey(k.ID)
	}
	return writers.SessionKey(k.ID)
}

func (w *modelRun) session(proc int, c model.Call) writers.Session {
	return w.ledgers[proc].Tenant(writers.TenantID(c.Tenant)).Session(c.Session)
}

// realCall is the call as a program writes it; only a tool says that it has a verifier.
func realCall(c model.Call, retry bool) writers.Call {
	set := func(out *writers.Call) {
		out.Key, out.Tool, out.Args, out.Tokens = realKey(c.Key), c.Tool, json.RawMessage(c.Args), c.Tokens
		out.Cursor, out.ExpectCursor, out.Trace, out.Lookup = c.Cursor, c.Expect, c.Trace, c.Lookup
		out.Lease, out.Horizon, out.Keep, out.Idempotent, out.Retry = c.Lease, c.Horizon, c.Keep, c.Idempotent, retry
		out.VerifiedAbsent = writers.AttemptRef{RowID: c.Absent.RowID, Attempt: int(c.Absent.Attempt), Deadline: c.Absent.Deadline}
		if c.Compensates != nil {
			out.Compensates, out.RefundOriginal = realKey(*c.Compensates), c.Refund
		}
	}
	tool := &writers.Tool[json.RawMessage, string]{Name: c.Tool}
	if c.Verifier {
		tool.Verify = func(context.Context, writers.CallInfo) (string, writers.Verdict, error) {
			return "", writers.EffectUnknown, nil
		}
	}
	return tool.Call(realKey(c.Key), nil, set)
}

func (w *modelRun) write(proc int, c model.Call) {
	retry := w.one("retry", 5)
	s, call, now := w.session(proc, c), realCall(c, retry), w.now(proc)
	var hold *writers.Reservation
	var done *writers.Raw
	var err error
	if c.Commit {
		raw, commitErr := s.Commit(w.ctx, call, json.RawMessage(c.Result))
		done, err = &raw, commitErr
	} else {
		hold, done, err = s.Reserve(w.ctx, call)
	}
	w.logf("p%d write %+v retry %v: hold %v done %v err %v", proc, c, retry, hold != nil, done, err)
	w.m.Table = w.scan()
	want := w.m.Write(now, c)
	if hold != nil && want.Hold != nil {
		w.checkHold(hold, want.Hold)
		w.holds = append(w.holds, &modelHold{hold, want.Hold, proc})
		return
	}
	if hold != nil || want.Hold != nil {
		w.fatalf("hold %+v, model %+v", hold, want)
	}
	w.checkAnswer(now, done, err, want)
}

func (w *modelRun) checkHold(got *writers.Reservation, want *model.Hold) {
	ok := got.RowID == want.RowID && int64(got.Attempt) == want.Attempt && got.Deadline.Equal(want.Deadline) && got.Tokens == want.Tokens &&
		got.ReservedAt.Equal(want.Reserved) && got.Lookup == want.Lookup && got.Tool == want.Tool && string(got.Tenant) == want.Tenant &&
		got.Session == want.Session && got.Key == realKey(want.Key)
	if !ok {
		w.fatalf("reservation %+v, model %+v", got.CallInfo, want)
	}
}

func (w *modelRun) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format, args...)
}

// checkAnswer compares what a call answered.
func (w *modelRun) checkAnswer(now time.Time, done *writers.Raw, err error, want model.Answer) {
	w.t.Helper()
	code, _ := errors.AsType[writers.Code](err)
	if string(code) != want.Code && (want.Or == "" || string(code) != want.Or) {
		w.fatalf("answer %v, model %+v", err, want)
	}
	if done == nil {
		done = &writers.Raw{}
	}
	outcome := string(done.Outcome)
	if outcome != want.Outcome && (want.Again == "" || outcome != want.Again) {
		w.fatalf("outcome %q, model %+v", outcome, want)
	}
	if want.Outcome != "" && (string(done.JSON) != want.JSON || int64(done.Attempt) != want.Attempt || done.Charged != want.Charged ||
		string(done.Value) != want.JSON) {
		w.fatalf("result %+v, model %+v", done, want)
	}
	if err != nil {
		w.checkRefusal(now, err, want)
	}
}

func (w *modelRun) checkRefusal(now time.Time, err error, want model.Answer) {
	w.t.Helper()
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		w.fatalf("%v is no *Error", err)
	}
	if (e.RetryAfter > 0) != (want.Code == model.InProgress) {
		w.fatalf("%v: retry after %s", err, e.RetryAfter)
	}
	if r := want.Row; r != nil && (e.Call.RowID != r.RowID || int64(e.Call.Attempt) != r.Attempt) {
		w.fatalf("%v speaks of %+v, model %+v", err, e.Call, r)
	}
	switch want.Code {
	case model.Exhausted:
		if e.Need != want.Need || e.Remaining != want.Remaining || !e.ResetsAt.IsZero() && !e.ResetsAt.After(now) {
			w.fatalf("%v: need %d, remaining %d, resets %s; model %+v", err, e.Need, e.Remaining, e.ResetsAt, want)
		}
	case model.SessionMoved:
		if e.Cursor != want.Cursor {
			w.fatalf("%v: cursor %q, model %q", err, e.Cursor, want.Cursor)
		}
	case model.KeyConflict:
		if want.Row.Tool == "t" != !slices.Contains(e.Differs, "tool") && len(e.Differs) == 0 {
			w.fatalf("%v does not say what differs", err)
		}
	}
}

func (w *modelRun) onHold(name string, proc int, h *modelHold) {
	now := w.now(h.proc)
	switch name {
	case "resume":
		resumed, err := w.ledgers[proc].Tenant(writers.TenantID(h.model.Tenant)).Resume(h.real.Token())
		w.must(err)
		w.logf("p%d resume %s/%d", proc, h.real.RowID, h.real.Attempt)
		w.holds = append(w.holds, &modelHold{resumed, new(*h.model), proc})
		w.checkHold(resumed, h.model)
	case "finalize":
		charged := max(0, h.model.Tokens+pick(w, "charge", int64(0), 0, -1, -5, 3, 50, 200))
		result := pick(w, "result", `"r"`, `[1, 2]`)
		raw, err := h.real.Finalize(w.ctx, json.RawMessage(result), charged)
		w.logf("p%d finalize %s/%d charged %d: %+v %v", h.proc, h.real.RowID, h.real.Attempt, charged, raw, err)
		w.m.Table = w.scan()
		w.checkAnswer(now, &raw, err, w.m.Finalize(now, h.model, result, charged))
	case "release":
		why := pick(w, "why", "", "no seats")
		err := h.real.Release(w.ctx, why)
		w.logf("p%d release %s/%d: %v", h.proc, h.real.RowID, h.real.Attempt, err)
		w.m.Table = w.scan()
		w.checkAnswer(now, nil, err, w.m.Release(now, h.model, why))
	case "extend":
		lease := pick(w, "lease", time.Second, time.Minute, time.Hour)
		err := h.real.Extend(w.ctx, lease)
		w.logf("p%d extend %s/%d by %s: %v", h.proc, h.real.RowID, h.real.Attempt, lease, err)
		w.m.Table = w.scan()
		w.checkAnswer(now, nil, err, w.m.Extend(now, h.model, lease))
		if !h.real.Deadline.Equal(h.model.Deadline) {
			w.fatalf("deadline %s, model %s", h.real.Deadline, h.model.Deadline)
		}
	}
}

// target draws a call that is likely there.
func (w *modelRun) target() model.Call {
	if len(w.holds) > 0 && !w.one("held", 5) {
		return pick(w, "hold", w.holds...).model.Call
	}
	if calls := w.m.Calls(); len(calls) > 0 && !w.one("there", 5) {
		return pick(w, "call", calls...).Call
	}
	k, _ := w.drawKey()
	return model.Call{Tenant: w.drawTenant(), Session: pick(w, "session", "s0", "s1"), Key: k}
}

func (w *modelRun) resolve(proc int) {
	c, now := w.target(), w.now(proc)
	v := model.Verdict{
		Applied: w.one("applied", 2), Attempt: 1, Result: `"resolved"`, By: pick(w, "by", "", "ann"), Why: pick(w, "why", "", "seen"),
	}
	if r := w.m.Look(now, c); r != nil {
		v.Attempt = r.Attempt + pick(w, "other", int64(0), 0, 0, 0, 1)
		v.RowID = pick(w, "row", "", r.RowID, r.RowID, "other")
	}
	verdict := writers.EffectAbsent
	if v.Applied {
		verdict = writers.EffectApplied
	}
	row, err := w.session(proc, c).Resolve(w.ctx, realKey(c.Key), writers.Resolution{
		Verdict: verdict, RowID: v.RowID, Attempt: int(v.Attempt), Result: json.RawMessage(v.Result), By: v.By, Why: v.Why,
	})
	w.logf("p%d resolve %s %+v: %v", proc, c.Key.ID, v, err)
	w.m.Table = w.scan()
	want := w.m.Resolve(now, c, v)
	w.checkAnswer(now, nil, err, want)
	if err == nil {
		w.checkRow(row, want.Row)
	}
}

func (w *modelRun) checkRow(got writers.Row, want *model.Row) {
	w.t.Helper()
	deadline := want.Deadline
	if want.State != model.Pending {
		deadline = want.LastDeadline
	}
	if got.RowID != want.RowID || int64(got.Attempt) != want.Attempt || string(got.State) != want.State || got.Version != want.Version ||
		got.Charged != want.Charged || got.Reserved != want.Tokens || string(got.Result) != want.Result || !got.Deadline.Equal(deadline) || got.Held != want.Held {
		w.fatalf("row %+v, model %+v", got, want)
	}
}

// sweep expires, holds or defers a pending row as the sweeper does, on the row as read.
func (w *modelRun) sweep(proc int, name string) {
	c, now := w.target(), w.now(proc)
	r := w.m.Look(now, c)
	if r == nil || r.State != model.Pending {
		return
	}
	row, err := schema.DecodeRow(schema.FieldsOf(w.get(schema.RowKey(c.Tenant, r.Session, schema.Scope(scopeOf(c.Key)), c.Key.ID))))
	w.must(err)
	p := w.ledgers[proc].Plumbing()
	tx := protocol.NewTx(4)
	part := protocol.Part{Kind: protocol.PartRow}
	switch {
	case name == "sweep":
		tx.Add(part, p.Tables.Fail(row.Key, protocol.AsRead(row), protocol.Failure{
			Kind: schema.FailureExpired, Unverified: schema.UnverifiedExpired, Now: now, ExpiresAt: p.ExpiresAt(row, row.Debits, now),
		}))
		var there []protocol.Amount
		for _, a := range protocol.Refunds(c.Tenant, row.Debits) {
			if w.get(a.Key) != nil {
				there = append(there, a)
			}
		}
		p.Tables.AddAmounts(tx, there)
		w.m.Expire(now, c)
	case r.Held || w.one("defer", 2):
		at := now.Add(time.Hour)
		tx.Add(part, p.Tables.Defer(row, at, now))
		w.m.Defer(now, c, at)
	default:
		tx.Add(part, p.Tables.Hold(row, schema.HeldBucket(c.Key.ID), now))
		w.m.HoldRow(now, c)
	}
	w.logf("p%d %s %s", proc, name, row.RowID)
	w.must(protocol.Send(w.ctx, w.db, tx))
}

func scopeOf(k model.Key) string {
	if k.Wide {
		return string(schema.ScopeTenant)
	}
	return string(schema.ScopeSession)
}

func (w *modelRun) plan(proc int) {
	name, now := w.drawTenant(), w.now(proc)
	p := model.Plan{
		Tokens: pick(w, "tokens", int64(0), 10, 61, 100, 1000), Kind: pick(w, "kind", model.Monthly, model.Monthly, model.Monthly, model.Daily, model.Always),
		Shards: pick(w, "shards", 1, 1, 2, 3, 5), Overdraft: pick(w, "overdraft", int64(0), 0, 7, 100),
	}
	if w.narrow {
		p.Tokens = pick(w, "tokens", int64(61), 100, 1000, 1000)
	}
	kind := map[string]writers.Period{model.Monthly: writers.Monthly, model.Daily: writers.Daily, model.Always: writers.Always}[p.Kind]
	before, _ := w.m.Quota(now, name)
	err := w.ledgers[proc].Tenant(writers.TenantID(name)).PutPlan(w.ctx, writers.Plan{
		Tokens: p.Tokens, Period: kind, Shards: p.Shards, Overdraft: p.Overdraft,
	})
	w.logf("p%d plan %s %+v: %v", proc, name, p, err)
	w.m.Table = w.scan()
	w.checkAnswer(now, nil, err, w.m.PutPlan(now, name, p))
	if after, _ := w.m.Quota(now, name); before.Period != after.Period {
		w.compare("plan")
		w.base = w.base.Add(time.Minute) // other processes may debit the other kind of period until then
		w.m.Base = w.base
	}
}

func (w *modelRun) tenantOp(op string, proc int) {
	name, now := w.drawTenant(), w.now(proc)
	tenant := w.ledgers[proc].Tenant(writers.TenantID(name))
	switch op {
	case "grant":
		key, tokens := pick(w, "grant", "g0", "g1", "g2"), pick(w, "tokens", int64(5), 5, 50)
		err := tenant.Grant(w.ctx, key, tokens)
		w.logf("p%d grant %s %s %d: %v", proc, name, key, tokens, err)
		w.m.Table = w.scan()
		w.checkAnswer(now, nil, err, w.m.Grant(now, name, key, tokens))
	case "suspend":
		suspend := w.one("suspend", 4)
		err := tenant.Suspend(w.ctx, suspend)
		w.logf("p%d suspend %s %v: %v", proc, name, suspend, err)
		w.checkAnswer(now, nil, err, w.m.Suspend(now, name, suspend))
	case "quota":
		got, err := tenant.Quota(w.ctx)
		want, answer := w.m.Quota(now, name)
		w.checkAnswer(now, nil, err, answer)
		if err == nil && (got.Period != want.Period || got.Granted != want.Granted || got.Remaining != want.Remaining ||
			got.Suspended != want.Suspended || len(got.Shards) != want.Shards || !got.ResetsAt.Equal(model.EndOf(want.Period))) {
			w.fatalf("quota %+v, model %+v", got, want)
		}
	}
}

// look reads what callers can read.
func (w *modelRun) look(proc int) {
	c, now := w.target(), w.now(proc)
	s := w.session(proc, c)
	row, err := s.Get(w.ctx, realKey(c.Key))
	want := w.m.Look(now, c)
	switch {
	case want == nil && !errors.Is(err, writers.ErrNotFound), want != nil && err != nil:
		w.fatalf("get: %v, model %+v", err, want)
	case want != nil:
		w.checkRow(row, want)
	}
	cursor, err := s.Cursor(w.ctx)
	w.must(err)
	if at := w.cursorOf(c); at != cursor {
		w.fatalf("cursor %q, model %q", cursor, at)
	}
}

// forget does what DynamoDB's time to live does, late as it is.
func (w *modelRun) forget() {
	keys := w.m.Forget(w.base.Add(-modelSkew))
	w.delete(w.ledger, keys)
	w.logf("forget %d", len(keys))
}

// compare holds the tables to the model.
func (w *modelRun) compare(after string) {
	w.t.Helper()
	if faults := w.m.Faults(); len(faults) > 0 {
		w.fatalf("after %s: %s", after, strings.Join(faults, "\n"))
	}
	if diff := w.m.Differences(w.scan()); len(diff) > 0 {
		w.fatalf("after %s:\n%s", after, strings.Join(diff, "\n"))
	}
	if wrong := w.m.Books(); len(wrong) > 0 {
		w.fatalf("after %s: %s", after, strings.Join(wrong, "\n"))
	}
	w.derive(after)
}

// derive reads each change as the stream would: what the writers do is never tampering, and always readable. Where one
// operation wrote an item twice, only the stream has what was between.
func (w *modelRun) derive(after string) {
	w.t.Helper()
	for k, item := range w.raw {
		was := w.last[k]
		version, before := numberOf(item, schema.AVersion), numberOf(was, schema.AVersion)
		replaced := schema.ValueOf(was[schema.ARowID]).Text != schema.ValueOf(item[schema.ARowID]).Text
		if version != before+1 && (!replaced || version != 1) {
			continue
		}
		c := streams.Change{Op: streams.OpModify, Keys: schema.Key{PK: k.PK, SK: k.SK}, Old: streams.ImageOf(was), New: streams.ImageOf(item), Sequence: "1", Time: w.base}
		if was == nil {
			c.Op, c.Old = streams.OpInsert, nil
		}
		w.checkEvents(after, c)
	}
	for k, was := range w.last {
		if w.raw[k] == nil {
			w.checkEvents(after, streams.Change{
				Op: streams.OpRemove, Keys: schema.Key{PK: k.PK, SK: k.SK}, Old: streams.ImageOf(was), Sequence: "1", Time: w.base, TTL: true,
			})
		}
	}
	w.last = w.raw
}

func (w *modelRun) checkEvents(after string, c streams.Change) {
	w.t.Helper()
	evs, _, err := streams.Derive(c)
	if err != nil {
		w.fatalf("after %s: %v: %v", after, c.Keys, err)
	}
	for _, ev := range evs {
		switch ev.(type) {
		case *events.LedgerRowTampered, *events.AuditRecordUnreadable:
			w.fatalf("after %s: %v is %+v\nwas %v\nis  %v", after, c.Keys, ev, c.Old, c.New)
		}
	}
	if id, err := schema.ParseKey(c.Keys); err == nil && id.Kind == schema.KindRow && c.Op == streams.OpInsert && len(evs) == 0 {
		w.fatalf("after %s: a new row gives no event", after)
	}
}

func numberOf(item schema.Item, name string) int64 {
	n, _ := strconv.ParseInt(schema.ValueOf(item[name]).Text, 10, 64)
	return n
}

// scan reads both tables. The hashes of arguments are another package's matter: they have to be there where arguments are.
func (w *modelRun) scan() model.Items {
	items := model.Items{}
	w.raw = map[model.ItemKey]schema.Item{}
	for _, table := range []string{w.ledger, w.control} {
		pages := dynamodb.NewScanPaginator(w.db, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(w.ctx)
			w.must(err)
			for _, raw := range page.Items {
				it := model.Item{}
				for name, v := range raw {
					it[name] = rendered(v)
				}
				delete(it, schema.AArgHashes)
				key := model.ItemKey{PK: strings.TrimPrefix(it["pk"], "S:"), SK: strings.TrimPrefix(it["sk"], "S:")}
				items[key], w.raw[key] = it, raw
			}
		}
	}
	return items
}

func rendered(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return "S:" + v.Value
	case *types.AttributeValueMemberN:
		return "N:" + v.Value
	case *types.AttributeValueMemberB:
		return "B:" + hex.EncodeToString(v.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprintf("BOOL:%t", v.Value)
	case *types.AttributeValueMemberSS:
		return "SS:" + strings.Join(slices.Sorted(slices.Values(v.Value)), ",")
	case *types.AttributeValueMemberM:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v.Value)) {
			parts = append(parts, name+"="+strings.TrimPrefix(rendered(v.Value[name]), "N:"))
		}
		return "M:" + strings.Join(parts, ";")
	}
	return fmt.Sprintf("%T", v)
}

func (w *modelRun) get(k schema.Key) schema.Item {
	out, err := w.db.GetItem(w.ctx, &dynamodb.GetItemInput{
		TableName: &w.ledger, ConsistentRead: aws.Bool(true), Key: schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)},
	})
	w.must(err)
	if len(out.Item) == 0 {
		return nil
	}
	return out.Item
}

// clean leaves the tables empty for the next run.
func (w *modelRun) clean() {
	var ledger, control []model.ItemKey
	for k := range w.scan() {
		if k.SK == "PLAN" || strings.HasPrefix(k.SK, "GRANT#") {
			control = append(control, k)
			continue
		}
		ledger = append(ledger, k)
	}
	w.delete(w.ledger, ledger)
	w.delete(w.control, control)
}

func (w *modelRun) delete(table string, keys []model.ItemKey) {
	for part := range slices.Chunk(keys, 25) {
		var writes []types.WriteRequest
		for _, k := range part {
			writes = append(writes, types.WriteRequest{DeleteRequest: &types.DeleteRequest{
				Key: schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)},
			}})
		}
		_, err := w.db.BatchWriteItem(w.ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: writes}})
		w.must(err)
	}
}
