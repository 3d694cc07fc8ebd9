// The sweeper on a real local DynamoDB. Rules of the protocol that concern it, and the tests that fail without them:
//
//	expire without version (an extend in between)    TestSweepLosesRaces, TestHC24SweepAfterRenewal
//	expire without state (a finalize in between)     TestSweepLosesRaces, TestHC22FinalizeAgainstSweep
//	expire without row id (the row replaced)         TestSweepLosesRaces
//	no skew margin                                   TestSweepKeepsTheMargin, TestSweepClocksApart
//	absent before the effect horizon                 TestSweepVerdicts, sweeper.TestJudge
//	verify skipped                                   TestSweepVerdicts, TestHC13PaidCallIsNotRepeated
//	absent counted from its answer                   TestSweepSlowAnswer
//	unknown refunded                                 TestSweepVerdicts
//	refund to today's period                         TestSweepRefundsWhereDebited
//	refund to today's shard or plan                  TestSweepRefundsWhereDebited
//	one item twice in a transaction (no netting)     TestSweepRefundsExactly
//	a quota item that is gone stops the expiry       TestSweepQuotaItemGone
//	refusals read by message or by the first reason  TestSweepLosesRaces, TestSweepContention
//	a lost answer counted as failure, or twice       TestSweepLostAnswers, TestSweepKilledAnywhere
//	neither verifier nor idempotent: expired         TestSweepHolds, TestHC14StuckRows
//	unverified not set by expire                     TestSweepExpiresWhole
//	TTL on a pending row                             TestSweepHolds
//	deadline moved by a deferral                     TestSweepVerdicts
//	version computed by the client                   TestSweepLosesRaces
package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/sweeper"
	"toolledger/writers"
)

// Promise: reservations that died are all given back, to the token, in a tenth of the requests that one transaction a
// row would take; the sweep after it finds nothing.
func TestSweepRefundsExactly(t *testing.T) { sweepRefundsExactly(t, 1_000) }

func TestSoakSweepRefundsExactly(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	sweepRefundsExactly(t, 10_000)
}

func sweepRefundsExactly(t *testing.T, n int) {
	g := newSweepRig(t)
	rows, tokens := g.manyRows(n, 50)
	g.seed(rows...)

	g.faults.harm(nil, nil)
	start := time.Now()
	report := g.sweep(sweeper.Config{})
	t.Logf("%d rows in %d requests, %s", n, g.faults.count(), time.Since(start).Round(time.Millisecond))
	if report.Found != n || report.Expired != n || report.RefundedTokens != tokens || !report.Complete {
		t.Errorf("report %+v, want %d rows and %d tokens", report, n, tokens)
	}
	if got := g.faults.count(); got > n/10 || got != report.Requests {
		t.Errorf("%d requests (reported %d) for %d rows", got, report.Requests, n)
	}
	g.wantStates(map[string]int{schema.StateFailed: n})
	g.allRefunded()

	if again := g.sweep(sweeper.Config{}); again.Found != 0 || again.RefundedTokens != 0 {
		t.Errorf("the second sweep did %+v", again)
	}
}

// manyRows makes n overdue rows of different amounts, over so many tenants.
func (g *sweepRig) manyRows(n, tenants int) (rows []*schema.Row, tokens int64) {
	rows = make([]*schema.Row, n)
	for i := range rows {
		rows[i] = g.overdueRow(fmt.Sprintf("t-%02d", i%tenants), fmt.Sprintf("s-%d", i%7), keyN(i), func(r *schema.Row) {
			r.Reserved = int64(1 + i%9)
			r.Debits[0].Tokens = r.Reserved
			r.Deadline = r.Deadline.Add(time.Duration(i) * time.Millisecond)
		})
		tokens += rows[i].Reserved
	}
	return rows, tokens
}

// allRefunded fails unless every quota item has all that it was granted, and was written.
func (g *sweepRig) allRefunded() {
	g.Helper()
	for key, item := range g.all() {
		if id, err := schema.ParseKey(key); err != nil || id.Kind != schema.KindQuota {
			continue
		}
		q, err := schema.DecodeQuota(schema.FieldsOf(item))
		g.must(err)
		if q.Remaining != q.Granted || q.Version < 2 {
			g.Errorf("%s %s: %d of %d remain, version %d", key.PK, key.SK, q.Remaining, q.Granted, q.Version)
		}
	}
}

// Promise: an expired row says all that later attempts, audits and events need: why it failed, that nobody knows, what
// its deadline was, where a late settlement debits again, and when it may be forgotten; and nothing that a pending one has.
func TestSweepExpiresWhole(t *testing.T) {
	g := newSweepRig(t)
	row := g.overdueRow("acme", "s", "k", func(r *schema.Row) {
		r.SweepAt = g.now().Add(-time.Minute)
		r.Lookup, r.Cursor, r.Keep, r.CompensatedBy = "pnr=X", "step-3", 3*time.Hour, "session:undo"
	})
	g.seed(row)
	g.sweep(sweeper.Config{})
	got := g.row(row.Key)
	want := *row
	want.Version, want.State, want.Failure, want.Unverified = 2, schema.StateFailed, schema.FailureExpired, schema.UnverifiedExpired
	want.LastDeadline, want.Deadline, want.SweepAt, want.PendingBucket = row.Deadline, time.Time{}, time.Time{}, ""
	want.UpdatedAt = g.now()
	want.ExpiresAt = time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC) // the books of November close two days late
	if a, b := fmt.Sprintf("%+v", *got), fmt.Sprintf("%+v", want); a != b {
		t.Errorf("the row is\n%s\nwant\n%s", a, b)
	}
	if q := g.quota("acme", "2026-11", 0); q.Remaining != q.Granted || q.Version != 2 {
		t.Errorf("quota %+v", q)
	}
}

// Promise: no reservation is swept whose deadline may not have passed by the clock of the process that made it.
func TestSweepKeepsTheMargin(t *testing.T) {
	for name, tt := range map[string]struct {
		age   time.Duration
		swept bool
	}{
		"live":                    {-time.Minute, false},
		"just passed":             {time.Millisecond, false},
		"within the margin":       {2*time.Minute - time.Millisecond, false},
		"at the margin":           {2 * time.Minute, false},
		"a moment after":          {2*time.Minute + time.Millisecond, true},
		"long after":              {100 * 24 * time.Hour, true},
		"live for another decade": {-10 * 365 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			row := g.overdueRow("acme", "s", "k", func(r *schema.Row) { r.Deadline = g.now().Add(-tt.age) })
			g.seed(row)
			report := g.sweep(sweeper.Config{})
			if got := g.row(row.Key).State == schema.StateFailed; got != tt.swept || report.Expired == 1 != tt.swept {
				t.Errorf("swept: %v, want %v; %+v", got, tt.swept, report)
			}
		})
	}
}

// Promise: writers and sweepers whose clocks are 90 s apart, either way round, never take a live reservation from its
// holder.
func TestSweepClocksApart(t *testing.T) {
	g := newSweepRig(t)
	ctx := t.Context()
	const lease = time.Minute
	for i, off := range []time.Duration{-90 * time.Second, 90 * time.Second} {
		g.setTime(sweepStart)
		worker := g.ledgerOf(g.db, off)
		tenant := worker.Tenant(writers.TenantID(fmt.Sprintf("acme-%d", i)))
		g.must(tenant.PutPlan(ctx, writers.Plan{Tokens: 1000}))
		hold, _, err := tenant.Session("s").Reserve(ctx, writers.Call{
			Key: writers.SessionKey("k"), Tool: "ping", Args: map[string]int{}, Tokens: 7, Lease: lease, Idempotent: true,
		})
		g.must(err)
		for range 60 { // until just before the deadline by the worker's clock
			g.advance(time.Second - time.Millisecond)
			if report := g.sweep(sweeper.Config{}); report.Found != 0 {
				t.Fatalf("offset %s: swept %s before the deadline", off, hold.Deadline.Sub(g.now().Add(off)))
			}
			if g.now().Add(off).After(hold.Deadline.Add(-2 * time.Second)) {
				break
			}
			g.advance(5 * time.Second)
		}
		_, err = hold.Finalize(ctx, "done", 7)
		g.must(err)
	}
	g.wantStates(map[string]int{schema.StateApplied: 2})
}

// Promise: a refund lands on the quota items that were debited, whatever the month, the day, the shards or the plan are by
// now; the running period gets nothing.
func TestSweepRefundsWhereDebited(t *testing.T) {
	for name, tt := range map[string]struct {
		debits  []schema.Debit
		reserve time.Time
		sweep   time.Time
		today   string
	}{
		"month": {[]schema.Debit{{Period: "2026-10", Tokens: 9}}, at("2026-10-31T23:59:30Z"), at("2026-11-01T00:03:00Z"), "2026-11"},
		"year":  {[]schema.Debit{{Period: "2026-12", Tokens: 9}}, at("2026-12-31T23:59:59Z"), at("2027-01-01T00:05:00Z"), "2027-01"},
		"leap day": {
			[]schema.Debit{{Period: "2028-02-29", Tokens: 9}}, at("2028-02-29T23:59:00Z"), at("2028-03-01T00:03:00Z"), "2028-03-01",
		},
		"shards": {
			[]schema.Debit{{Period: "2026-11", Tokens: 2}, {Period: "2026-11", Shard: 3, Tokens: 4}, {Period: "2026-11", Shard: 63, Tokens: 3}},
			at("2026-11-03T10:00:00Z"), at("2026-11-03T12:00:00Z"), "",
		},
		"plan changed to days": {[]schema.Debit{{Period: "2026-11", Tokens: 9}}, at("2026-11-03T10:00:00Z"), at("2026-11-03T12:00:00Z"), "2026-11-03"},
		"always":               {[]schema.Debit{{Period: "ALWAYS", Tokens: 9}}, at("2026-11-03T10:00:00Z"), at("2026-11-03T12:00:00Z"), "2026-11"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			g.setTime(tt.sweep)
			row := g.overdueRow("acme", "s", "k", func(r *schema.Row) {
				r.Debits, r.Reserved = tt.debits, 9
				r.CreatedAt, r.UpdatedAt, r.Deadline = tt.reserve, tt.reserve, tt.reserve.Add(30*time.Second)
			})
			g.seed(row)
			var current schema.Item
			if tt.today != "" {
				current = (&schema.Quota{
					Key: schema.QuotaKey("acme", tt.today, 0), QuotaID: "q", Version: 1, Granted: 50, Remaining: 50, PlanVersion: 2,
					CreatedAt: tt.sweep, UpdatedAt: tt.sweep,
				}).Item()
				g.put(current)
			}
			if report := g.sweep(sweeper.Config{}); report.Expired != 1 || report.RefundedTokens != 9 {
				t.Fatalf("%+v", report)
			}
			for _, d := range tt.debits {
				if q := g.quota("acme", d.Period, d.Shard); q.Remaining != q.Granted {
					t.Errorf("%s/%d: %d of %d remain", d.Period, d.Shard, q.Remaining, q.Granted)
				}
			}
			if tt.today != "" {
				if q := g.quota("acme", tt.today, 0); q.Remaining != 50 || q.Version != 1 {
					t.Errorf("the running period was touched: %+v", q)
				}
			}
		})
	}
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// Promise: a row that somebody else moves between the sweeper's query and its write is theirs: dropped by its own reason,
// no refund for it, while the other rows of the same transaction go on.
func TestSweepLosesRaces(t *testing.T) {
	for name, move := range map[string]func(*sweepRig, *writers.Reservation) error{
		"finalize": func(g *sweepRig, r *writers.Reservation) error {
			_, err := r.Finalize(g.Context(), "late", r.Tokens)
			return err
		},
		"release":      func(g *sweepRig, r *writers.Reservation) error { return r.Release(g.Context(), "no seats") },
		"extend":       func(g *sweepRig, r *writers.Reservation) error { return r.Extend(g.Context(), time.Hour) },
		"expired, too": func(g *sweepRig, _ *writers.Reservation) error { return g.expireOne("victim") },
		"replaced": func(g *sweepRig, r *writers.Reservation) error {
			row := g.row(schema.RowKey("acme", "s", schema.ScopeSession, "victim"))
			row.RowID = "another"
			g.put(row.Item())
			return nil
		},
		"gone": func(g *sweepRig, r *writers.Reservation) error {
			key := schema.RowKey("acme", "s", schema.ScopeSession, "victim")
			_, err := g.db.DeleteItem(g.Context(), &dynamodb.DeleteItemInput{
				TableName: &g.table, Key: schema.Item{schema.PK: schema.S(key.PK), schema.SK: schema.S(key.SK)},
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			var rows []*schema.Row
			for i := range 10 {
				rows = append(rows, g.overdueRow("acme", "s", keyN(i)))
			}
			rows = append(rows, g.overdueRow("acme", "s", "victim", func(r *schema.Row) { r.Horizon = time.Minute }))
			g.seed(rows...)
			hold, err := g.ledgerOf(g.db, 0).Tenant("acme").Session("s").
				Reservation(t.Context(), writers.SessionKey("victim"), "row-acme-s-victim", 1)
			g.must(err)
			var moved schema.Item
			var once atomic.Bool
			g.faults.harm(func(op string, _ any) error {
				if op == "write" && once.CompareAndSwap(false, true) {
					g.must(move(g, hold))
					moved = g.item(rows[10].Key)
				}
				return nil
			}, nil)
			report := g.sweep(sweeper.Config{})
			if report.LostRaces != 1 || report.Expired != 10 || report.RefundedTokens != 50 || report.Errors != 0 {
				t.Errorf("%+v", report)
			}
			if got := g.item(rows[10].Key); !sameItem(got, moved) {
				t.Errorf("the row that was moved became %v, was %v", got, moved)
			}
			if name != "gone" && name != "replaced" {
				g.balanced()
			}
		})
	}
}

// expireOne is another sweeper that was faster.
func (g *sweepRig) expireOne(string) error {
	s, err := sweeper.New(g.ledgerOf(&onlyRow{DynamoDB: g.db, key: "victim"}, 0), sweeper.Config{})
	if err != nil {
		return err
	}
	_, err = s.Run(g.Context())
	return err
}

// onlyRow shows a sweeper one call key.
type onlyRow struct {
	writers.DynamoDB
	key string
}

func (o *onlyRow) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	out, err := o.DynamoDB.Query(ctx, in, opts...)
	if err != nil {
		return nil, err
	}
	var items []map[string]types.AttributeValue
	for _, item := range out.Items {
		if item[schema.SK].(*types.AttributeValueMemberS).Value == schema.RowPrefix+o.key {
			items = append(items, item)
		}
	}
	out.Items = items
	return out, nil
}

func sameItem(a, b schema.Item) bool {
	return maps.EqualFunc(a, b, func(x, y types.AttributeValue) bool {
		return fmt.Sprint(schema.ValueOf(x)) == fmt.Sprint(schema.ValueOf(y))
	})
}

// verdictTool is a tool whose Verify answers what the test says.
func verdictTool(answer func(writers.CallInfo) (string, writers.Verdict, error)) writers.AnyTool {
	return &writers.Tool[struct{}, string]{
		Name:   "book_flight",
		Act:    func(context.Context, writers.Attempt[struct{}]) (string, error) { return "", errors.New("not called") },
		Verify: func(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) { return answer(c) },
	}
}

// remoteVerdict is the same as a remote verifier.
func remoteVerdict(answer func(writers.CallInfo) (string, writers.Verdict, error)) func(context.Context, sweeper.VerifyRequest) (sweeper.VerifyAnswer, error) {
	handle := sweeper.VerifierHandler(verdictTool(answer))
	return func(ctx context.Context, r sweeper.VerifyRequest) (a sweeper.VerifyAnswer, err error) {
		b, err := json.Marshal(r)
		if err != nil {
			return a, err
		}
		if b, err = handle(ctx, b); err != nil {
			return a, err
		}
		return a, json.Unmarshal(b, &a)
	}
}

// Promise: the outside world decides about a tool with a verifier, in process or remote: what it says happened is recorded
// with its result and charged, what surely did not happen is given back, and what nobody knows stays as it is until a
// person looks. No deferral moves a deadline.
func TestSweepVerdicts(t *testing.T) {
	const applied, absent, unknown = writers.EffectApplied, writers.EffectAbsent, writers.EffectUnknown
	down := errors.New("GET https://forge/pulls?head=secret-branch: refused")
	for name, tt := range map[string]struct {
		age     time.Duration
		verdict writers.Verdict
		err     error
		state   string
		held    bool
		comes   time.Duration // until sweepAt
		report  sweeper.Report
	}{
		"applied, early":   {3 * time.Minute, applied, nil, schema.StateApplied, false, 0, sweeper.Report{Verified: 1, Finalized: 1}},
		"applied, late":    {5 * time.Hour, applied, nil, schema.StateApplied, false, 0, sweeper.Report{Verified: 1, Finalized: 1}},
		"absent, early":    {3 * time.Minute, absent, nil, schema.StatePending, false, 9*time.Minute + time.Millisecond, sweeper.Report{Verified: 1, Early: 1}},
		"absent, late":     {13 * time.Minute, absent, nil, schema.StateFailed, false, 0, sweeper.Report{Verified: 1, Expired: 1, RefundedTokens: 5}},
		"unknown, early":   {3 * time.Minute, unknown, nil, schema.StatePending, false, time.Minute + time.Millisecond, sweeper.Report{Unknown: 1}},
		"unknown, later":   {30 * time.Minute, unknown, nil, schema.StatePending, false, 15*time.Minute + time.Millisecond, sweeper.Report{Unknown: 1}},
		"unknown for long": {61 * time.Minute, unknown, nil, schema.StatePending, true, 0, sweeper.Report{Held: 1}},
		"down":             {3 * time.Minute, applied, down, schema.StatePending, false, time.Minute + time.Millisecond, sweeper.Report{Unknown: 1}},
		"down for long":    {61 * time.Minute, absent, down, schema.StatePending, true, 0, sweeper.Report{Held: 1}},
	} {
		for _, where := range []string{"in process", "remote"} {
			t.Run(name+", "+where, func(t *testing.T) {
				g := newSweepRig(t)
				row := g.overdueRow("acme", "s", "k", func(r *schema.Row) {
					r.Deadline, r.Horizon, r.Idempotent, r.Lookup = g.now().Add(-tt.age), 10*time.Minute, false, "secret-branch"
					r.Cursor, r.ExpectCursor = "step-2", new("")
				})
				g.seed(row)
				asked := 0
				answer := func(c writers.CallInfo) (string, writers.Verdict, error) {
					asked++
					if c.Tenant != "acme" || c.Session != "s" || c.Key != writers.SessionKey("k") || c.RowID != row.RowID || c.Attempt != 1 ||
						c.EffectKey != schema.EffectKey(row.Key) || c.Lookup != "secret-branch" || !c.Deadline.Equal(row.Deadline) {
						t.Errorf("asked about %+v", c)
					}
					return "PNR-7", tt.verdict, tt.err
				}
				cfg := sweeper.Config{Tools: []writers.AnyTool{verdictTool(answer)}}
				if where == "remote" {
					cfg = sweeper.Config{Remote: remoteVerdict(answer)}
				}
				report := g.sweep(cfg)
				got := g.row(row.Key)
				if got.State != tt.state || got.Held != tt.held || asked != 1 {
					t.Errorf("%s, held %v, asked %d times; want %s, %v", got.State, got.Held, asked, tt.state, tt.held)
				}
				if tt.comes != 0 && (got.SweepAt.Sub(g.now()) != tt.comes || !got.Deadline.Equal(row.Deadline)) {
					t.Errorf("comes back in %s with the deadline moved by %s, want %s", got.SweepAt.Sub(g.now()), got.Deadline.Sub(row.Deadline), tt.comes)
				}
				if tt.state == schema.StateApplied {
					if got.ResultJSON == nil || *got.ResultJSON != `"PNR-7"` || got.Charged != 5 || got.SettledBy != schema.SettledByVerify {
						t.Errorf("recorded as %+v", got)
					}
					if cursor := g.item(schema.SessionKey("acme", "s")); cursor == nil {
						t.Error("the cursor did not move")
					}
				}
				tt.report.Found = 1
				sameReport(t, report, tt.report)
				if strings.Contains(g.log.String(), "secret") || strings.Contains(g.log.String(), "PNR-7") {
					t.Errorf("the log tells what it must not: %s", g.log)
				}
				g.balanced()
				if tt.comes != 0 { // nobody is asked again before
					if again := g.sweep(cfg); again.Waiting != 1 || again.Found != 0 || asked != 1 {
						t.Errorf("the next sweep: %+v, asked %d times", again, asked)
					}
				}
			})
		}
	}
}

// sameReport compares what was done.
func sameReport(t *testing.T, got, want sweeper.Report) {
	t.Helper()
	got.OldestAge, got.Requests, got.Started, got.Took, got.HeldNow, got.OpenNow = 0, 0, time.Time{}, 0, 0, 0
	want.Complete = true
	if got != want {
		t.Errorf("report\n%+v, want\n%+v", got, want)
	}
}

// Promise: what can neither be asked about nor repeated is left to a person at once: pending for good, debited, out of the
// sweeper's way, never removed by TTL; also where the verifier exists but was not given to this sweeper, an hour later.
func TestSweepHolds(t *testing.T) {
	g := newSweepRig(t)
	plain := g.overdueRow("acme", "s", "plain", func(r *schema.Row) { r.Idempotent = false })
	elsewhere := g.overdueRow("acme", "s", "elsewhere", func(r *schema.Row) { r.Idempotent, r.Verifier = false, true })
	elsewhere.Deadline = g.now().Add(-30 * time.Minute)
	none := func(context.Context, sweeper.VerifyRequest) (sweeper.VerifyAnswer, error) {
		return sweeper.VerifyAnswer{}, sweeper.ErrNoVerifier
	}
	g.seed(plain, elsewhere)
	sameReport(t, g.sweep(sweeper.Config{Remote: none, DryRun: true}), sweeper.Report{Found: 2, Held: 1, Unknown: 1, DryRun: true})
	sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 2, Held: 1, Unknown: 1})
	got := g.row(plain.Key)
	if !got.Held || got.State != schema.StatePending || got.PendingBucket != schema.HeldBucket("plain") || !got.ExpiresAt.IsZero() ||
		!got.Deadline.Equal(plain.Deadline) || got.Version != 2 {
		t.Errorf("held as %+v", got)
	}
	if !strings.Contains(g.log.String(), "tool has a verifier that this sweeper was not given") {
		t.Error("nothing says that a verifier is missing")
	}
	g.advance(time.Hour)
	report := g.sweep(sweeper.Config{Remote: none})
	sameReport(t, report, sweeper.Report{Found: 1, Held: 1})
	if report.HeldNow != 2 {
		t.Errorf("%d wait for a person, want 2", report.HeldNow)
	}
	if report := g.sweep(sweeper.Config{}); report.Found != 0 || report.OldestAge != 0 {
		t.Errorf("held rows are swept: %+v", report)
	}
	if q := g.quota("acme", "2026-11", 0); q.Granted-q.Remaining != 10 {
		t.Errorf("a held row was refunded: %+v", q)
	}
	g.wantStates(map[string]int{schema.StatePending: 2})
}

// Promise: a quota item that is gone does not keep a row from ending, nor the other items from their refunds; the report
// tells what could not be given back.
func TestSweepQuotaItemGone(t *testing.T) {
	g := newSweepRig(t)
	gone := g.overdueRow("acme", "s", "gone", func(r *schema.Row) {
		r.Debits = []schema.Debit{{Period: "2025-01", Tokens: 3}, {Period: "2026-11", Tokens: 2}}
	})
	g.seed(gone, g.overdueRow("acme", "s", "other"))
	_, err := g.db.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &g.table, Key: schema.Item{schema.PK: schema.S("TENANT#acme"), schema.SK: schema.S("QUOTA#2025-01")},
	})
	g.must(err)
	sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 2, Expired: 2, RefundedTokens: 7, GoneTokens: 3})
	if q := g.quota("acme", "2026-11", 0); q.Remaining != q.Granted {
		t.Errorf("%+v", q)
	}
}

// Promise: a dry run asks and tells what it would do, and writes nothing at all.
func TestSweepDryRun(t *testing.T) {
	g := newSweepRig(t)
	verdicts := map[string]writers.Verdict{"a": writers.EffectApplied, "b": writers.EffectAbsent, "c": writers.EffectUnknown}
	for key := range verdicts {
		g.seed(g.overdueRow("acme-"+key, "s", key, func(r *schema.Row) { r.Idempotent = false; r.Deadline = g.now().Add(-30 * time.Minute) }))
	}
	g.seed(g.overdueRow("acme", "s", "d", func(r *schema.Row) { r.Tool = "ping" }),
		g.overdueRow("acme", "s", "e", func(r *schema.Row) { r.Tool, r.Idempotent = "pay", false }))
	before := g.all()
	g.faults.harm(func(op string, _ any) error {
		if op == "write" {
			t.Error("a dry run writes")
		}
		return nil
	}, nil)
	tool := verdictTool(func(c writers.CallInfo) (string, writers.Verdict, error) { return "r", verdicts[c.Key.String()], nil })
	sameReport(t, g.sweep(sweeper.Config{DryRun: true, Tools: []writers.AnyTool{tool}}), sweeper.Report{
		DryRun: true, Found: 5, Verified: 2, Finalized: 1, Expired: 2, Unknown: 1, Held: 1, RefundedTokens: 10,
	})
	if after := g.all(); !maps.EqualFunc(before, after, sameItem) {
		t.Error("a dry run changed the table")
	}
}

// Promise: one tenant's flood of old rows does not keep the others waiting: in a run that is cut short after a few
// transactions, all others have been swept.
func TestSweepFair(t *testing.T) { sweepFair(t, 1_500) }

func TestSoakSweepFair(t *testing.T) {
	if !soaking() {
		t.Skip("only in a soak")
	}
	sweepFair(t, 20_000) // more than one reading keeps
}

func sweepFair(t *testing.T, flood int) {
	g := newSweepRig(t)
	var rows []*schema.Row
	for i := range flood {
		rows = append(rows, g.overdueRow("flood", "s", keyN(i), func(r *schema.Row) { r.Deadline = r.Deadline.Add(-24 * time.Hour) }))
	}
	for i := range 40 {
		rows = append(rows, g.overdueRow(fmt.Sprintf("small-%d", i%8), "s", keyN(flood+i)))
	}
	g.seed(rows...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writes atomic.Int64
	g.faults.harm(func(op string, _ any) error {
		if op == "write" && writes.Add(1) == 20 {
			cancel()
		}
		return nil
	}, nil)
	report, err := g.sweeper(sweeper.Config{Concurrency: 1}).Run(ctx)
	if !errors.Is(err, context.Canceled) || report.Complete {
		t.Fatalf("%v, %+v", err, report)
	}
	g.checkReport(report)
	for _, row := range rows[flood:] {
		if g.row(row.Key).State != schema.StateFailed {
			t.Fatalf("%v was starved by the flood", row.Key)
		}
	}
	g.faults.harm(nil, nil)
	rest := g.sweep(sweeper.Config{})
	if !rest.Complete {
		t.Errorf("the run without a bound left something: %+v", rest)
	}
	g.wantStates(map[string]int{schema.StateFailed: len(rows)})
}

// Promise: tenants take turns with verifiers, too: a flood of rows to ask about does not keep the others' waiting.
func TestSweepFairToAsk(t *testing.T) {
	g := newSweepRig(t)
	var rows []*schema.Row
	for i := range 200 {
		rows = append(rows, g.overdueRow("flood", "s", keyN(i), func(r *schema.Row) { r.Deadline = r.Deadline.Add(-24 * time.Hour) }))
	}
	for i := range 8 {
		rows = append(rows, g.overdueRow(fmt.Sprintf("small-%d", i), "s", keyN(200+i)))
	}
	g.seed(rows...)
	var asked []writers.TenantID
	tool := verdictTool(func(c writers.CallInfo) (string, writers.Verdict, error) {
		asked = append(asked, c.Tenant)
		return "", writers.EffectAbsent, nil
	})
	report := g.sweep(sweeper.Config{Tools: []writers.AnyTool{tool}, Concurrency: 1})
	if report.Expired != 208 || len(asked) != 208 {
		t.Fatalf("%+v, asked %d times", report, len(asked))
	}
	for i, tenant := range asked[:9] {
		if tenant == "flood" && i != 0 {
			t.Fatalf("the flood had turn %d: %v", i, asked[:9])
		}
	}
}

// Promise: "absent" counts from when it was asked, not from when it was answered: what landed while a slow verifier was
// thinking is not given back.
func TestSweepSlowAnswer(t *testing.T) {
	g := newSweepRig(t)
	row := g.overdueRow("acme", "s", "k", func(r *schema.Row) { r.Deadline = g.now().Add(-150 * time.Second) })
	g.seed(row)
	tool := verdictTool(func(writers.CallInfo) (string, writers.Verdict, error) {
		g.advance(10 * time.Minute)
		return "", writers.EffectAbsent, nil
	})
	cfg := sweeper.Config{Tools: []writers.AnyTool{tool}}
	sameReport(t, g.sweep(cfg), sweeper.Report{Found: 1, Verified: 1, Early: 1})
	if got := g.row(row.Key); got.State != schema.StatePending {
		t.Errorf("%+v", got)
	}
	sameReport(t, g.sweep(cfg), sweeper.Report{Found: 1, Verified: 1, Expired: 1, RefundedTokens: 5})
}

// Promise: a run begins nothing new once Config.Reserve is all that is left of its time, finishes what is under way, says
// that it is not complete, and the next run goes on.
func TestSweepStopsInTime(t *testing.T) {
	g := newSweepRig(t)
	rows, _ := g.manyRows(300, 4)
	g.seed(rows...)
	var begun atomic.Int64
	var report sweeper.Report
	for work := 500 * time.Millisecond; begun.Load() == 0 && work < time.Minute; work *= 2 { // a busy machine may need it all to read
		report = g.sweepWithin(work, &begun)
	}
	if report.Complete || begun.Load() > 2 || report.Expired == 0 || report.Left != report.Found-report.Expired {
		t.Errorf("%d transactions begun, %+v", begun.Load(), report)
	}
	g.faults.harm(nil, nil)
	if rest := g.sweep(sweeper.Config{}); rest.Expired != 300-report.Expired || !rest.Complete {
		t.Errorf("the next run: %+v", rest)
	}
	g.wantStates(map[string]int{schema.StateFailed: 300})
}

// sweepWithin runs a sweep of two transactions at once whose first ones outlast the time for beginning anything.
func (g *sweepRig) sweepWithin(work time.Duration, begun *atomic.Int64) sweeper.Report {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), work+time.Minute)
	defer cancel()
	deadline, _ := ctx.Deadline()
	stop := deadline.Add(-time.Minute)
	g.faults.harm(func(op string, _ any) error {
		if op == "write" {
			begun.Add(1)
			time.Sleep(time.Until(stop) + 5*time.Millisecond)
		}
		return nil
	}, nil)
	report, err := g.sweeper(sweeper.Config{Reserve: time.Minute, Concurrency: 2}).Run(ctx)
	g.must(err)
	g.checkReport(report)
	return report
}

// Promise: a row that cannot be read stops nobody else's refund, is counted, and its contents are not told.
func TestSweepUnreadableRow(t *testing.T) {
	g := newSweepRig(t)
	rows, _ := g.manyRows(20, 2)
	g.seed(rows...)
	bad := g.overdueRow("acme", "s", "bad", func(r *schema.Row) { r.Lookup = "secret" }).Item()
	bad[schema.AVersion] = schema.S("secret")
	g.put(bad)
	report := g.sweep(sweeper.Config{})
	if report.Expired != 20 || report.Errors != 1 || report.Found != 21 {
		t.Errorf("%+v", report)
	}
	if log := g.log.String(); !strings.Contains(log, "overdue reservation unreadable") || strings.Contains(log, "secret") {
		t.Error(log)
	}
	if !sameItem(g.item(schema.RowKey("acme", "s", schema.ScopeSession, "bad")), bad) {
		t.Error("it was changed")
	}
}

// Promise: a verifier that hangs, panics or fails costs bounded time and stops nobody: its rows stay pending, after five
// failures in a row it is not asked again in this run, and other tools' rows are swept meanwhile.
func TestSweepBrokenVerifiers(t *testing.T) {
	for name, broken := range map[string]func() (string, writers.Verdict, error){
		"hangs":  func() (string, writers.Verdict, error) { select {} },
		"panics": func() (string, writers.Verdict, error) { panic("secret") },
		"fails":  func() (string, writers.Verdict, error) { return "", writers.EffectApplied, errors.New("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			var rows []*schema.Row
			for i := range 60 {
				rows = append(rows, g.overdueRow("acme", "s", keyN(i), func(r *schema.Row) {
					if r.Idempotent = i%2 == 0; r.Idempotent {
						r.Tool = "ping"
					}
					r.Deadline = g.now().Add(-30 * time.Minute)
				}))
			}
			g.seed(rows...)
			var asked atomic.Int64
			tool := verdictTool(func(writers.CallInfo) (string, writers.Verdict, error) { asked.Add(1); return broken() })
			report := g.sweep(sweeper.Config{Tools: []writers.AnyTool{tool}, VerifyTimeout: 20 * time.Millisecond, Concurrency: 4})
			sameReport(t, report, sweeper.Report{Found: 60, Expired: 30, RefundedTokens: 150, Unknown: 30})
			if asked.Load() > 5+4 {
				t.Errorf("asked %d times", asked.Load())
			}
			if strings.Contains(g.log.String(), "secret") {
				t.Error(g.log)
			}
			g.wantStates(map[string]int{schema.StateFailed: 30, schema.StatePending: 30})
		})
	}
}

// Promise: a sweep says where it cannot work at all: a table that is not there is an error, with a report.
func TestSweepNoTable(t *testing.T) {
	g := newSweepRig(t)
	l, err := writers.New(g.db, writers.Config{Table: "no-such-table"})
	g.must(err)
	s, err := sweeper.New(l, sweeper.Config{})
	g.must(err)
	report, err := s.Run(t.Context())
	if !errors.Is(err, writers.ErrUnavailable) || report.Complete || report.Errors == 0 {
		t.Errorf("%v, %+v", err, report)
	}
	if e, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok || aws.ToString(e.Message) == "" {
		t.Errorf("the cause is lost: %v", err)
	}
}

// Promise: a row that DynamoDB does not take keeps none of the rows that share its transaction from being given back.
func TestSweepPoisonedRow(t *testing.T) {
	g := newSweepRig(t)
	rows, tokens := g.manyRows(40, 1)
	poison := g.overdueRow("t-00", "s", "poison", func(r *schema.Row) {
		r.Debits = nil
		for i := range 120 { // no transaction holds so many quota items
			r.Debits = append(r.Debits, schema.Debit{Period: "2026-10", Shard: i, Tokens: 1})
		}
	})
	g.seed(append(rows, poison)...)
	g.faults.harm(func(op string, in any) error {
		if op == "write" && len(in.(*dynamodb.TransactWriteItemsInput).TransactItems) > 100 {
			return &smithy.GenericAPIError{Code: "ValidationException", Message: "too many items"} // as AWS does
		}
		return nil
	}, nil)
	sameReport(t, g.sweep(sweeper.Config{}), sweeper.Report{Found: 41, Expired: 40, Errors: 1, RefundedTokens: tokens})
	if !strings.Contains(g.log.String(), "overdue reservation cannot be written") {
		t.Error("nothing tells where the row is")
	}
}

// Promise: a table that refuses or swallows every write ends the run soon, with an error and every row as it was.
func TestSweepCannotWrite(t *testing.T) {
	for name, harm := range map[string]error{
		"refused":     &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "no"},
		"unreachable": errLost,
	} {
		t.Run(name, func(t *testing.T) {
			g := newSweepRig(t)
			rows, _ := g.manyRows(600, 8)
			g.seed(rows...)
			before := g.all()
			g.faults.harm(func(op string, _ any) error {
				if op == "write" || op == "read" {
					return harm
				}
				return nil
			}, nil)
			report, err := g.sweeper(sweeper.Config{}).Run(t.Context())
			if !errors.Is(err, writers.ErrUnavailable) || report.Complete || report.Expired != 0 || report.Errors == 0 || report.RefundedTokens != 0 {
				t.Errorf("%v, %+v", err, report)
			}
			g.checkReport(report)
			if n := g.faults.count(); n > 100 {
				t.Errorf("%d requests before it gave up", n)
			}
			if after := g.all(); !maps.EqualFunc(before, after, sameItem) {
				t.Error("something was written")
			}
		})
	}
}

// Promise: the report is logged whole, one line a run.
func TestSweepLogsItsReport(t *testing.T) {
	g := newSweepRig(t)
	g.seed(g.overdueRow("acme", "s", "k"))
	g.sweep(sweeper.Config{})
	var line map[string]any
	if err := json.Unmarshal([]byte(strings.TrimSpace(g.log.String())), &line); err != nil {
		t.Fatalf("%v: %s", err, g.log)
	}
	for _, name := range []string{
		"found", "verified", "finalized", "expired", "unknown", "held", "lost_races", "errors", "refunded_tokens", "oldest_age",
		"complete", "early", "left", "waiting", "held_now", "open_now", "gone_tokens", "requests", "dry_run", "started", "took",
	} {
		if _, ok := line[name]; !ok {
			t.Errorf("no %s in %s", name, g.log)
		}
	}
	if line["msg"] != "sweep finished" || line["expired"] != 1.0 || line["oldest_age"] != float64(time.Hour) {
		t.Error(g.log)
	}
}

// Promise: a sweep says how many reservations it leaves open: those in time, and not what it settled or holds for a person.
func TestSweepCountsOpen(t *testing.T) {
	g := newSweepRig(t)
	inTime := g.overdueRow("acme", "s", "in-time", func(*schema.Row) {})
	inTime.Deadline = g.now().Add(time.Minute)
	g.seed(inTime, g.overdueRow("acme", "s", "overdue", func(*schema.Row) {}),
		g.overdueRow("acme", "s", "held", func(r *schema.Row) { r.Idempotent = false }))
	report := g.sweep(sweeper.Config{})
	if report.Expired != 1 || report.HeldNow != 1 || report.OpenNow != 1 {
		t.Errorf("%+v: want one expired, one held, one open", report)
	}
	for _, d := range report.Metrics() {
		if d.Name == metrics.ReservationsOpen && d.Value != 1 {
			t.Errorf("%s is %v", d.Name, d.Value)
		}
	}
}
