package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/audit"
	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/writers"
)

// operatorServer is the dynoxide that the operator's tests share; each has tables of its own, with streams. It ends with
// this process.
var operatorServer = sync.OnceValues(func() (*stack.Server, error) { return stack.Start(context.Background(), stack.Config{}) })

var operatorTables atomic.Int64

// operatorRig is an empty ledger in the real time, which is the program's.
type operatorRig struct {
	*testing.T
	db       *dynamodb.Client
	streams  *dynamodbstreams.Client
	endpoint string
	table    string
	arns     []string // of the streams of both tables
}

func newOperatorRig(t *testing.T) *operatorRig {
	t.Helper()
	srv, err := operatorServer()
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &operatorRig{
		T: t, db: dynamodb.NewFromConfig(srv.AWSConfig()), streams: dynamodbstreams.NewFromConfig(srv.AWSConfig()),
		endpoint: srv.Endpoint(), table: fmt.Sprintf("toolledger-operator-%d", operatorTables.Add(1)),
	}
	made, err := stack.CreateTables(t.Context(), g.db, g.table, g.control(), true)
	g.must(err)
	for _, table := range made {
		g.arns = append(g.arns, table.StreamARN)
	}
	return g
}

func (g *operatorRig) control() string { return g.table + "-control" }

func (g *operatorRig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// ledger is the ledger as a writer has it whose clock is off by d: what it reserves an hour ago is long overdue now.
func (g *operatorRig) ledger(d time.Duration, changes ...func(*writers.Config)) *writers.Ledger {
	g.Helper()
	cfg := writers.Config{Table: g.table, Now: func() time.Time { return time.Now().Add(d) }}
	for _, change := range changes {
		change(&cfg)
	}
	l, err := writers.New(g.db, cfg)
	g.must(err)
	return l
}

// planned is a ledger whose clock is off by d, with a plan for good for each tenant: no month ends within a test.
func (g *operatorRig) planned(d time.Duration, tenants ...writers.TenantID) *writers.Ledger {
	g.Helper()
	l := g.ledger(d)
	for _, tenant := range tenants {
		g.must(l.Tenant(tenant).PutPlan(g.Context(), writers.Plan{Tokens: 1000, Period: writers.Always}))
	}
	return l
}

func (g *operatorRig) reserve(l *writers.Ledger, tenant writers.TenantID, c writers.Call) *writers.Reservation {
	g.Helper()
	hold, _, err := l.Tenant(tenant).Session("s1").Reserve(g.Context(), c)
	g.must(err)
	return hold
}

// at are the flags that name the rig's ledger.
func (g *operatorRig) at() []string {
	return []string{"--endpoint", g.endpoint, "--table", g.table, "--control", g.control()}
}

// run runs the program on the rig's ledger, which must end with code.
func (g *operatorRig) run(code int, args ...string) ran {
	g.Helper()
	got := runProgram(g.T, nil, append(args, g.at()...)...)
	if got.code != code {
		g.Fatalf("%v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	if code != 0 && strings.Count(lastLines(got.stderr), "\n") > 0 {
		g.Errorf("%v: more than one line says what went wrong: %s", args, got.stderr)
	}
	return got
}

func lastLines(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "toolledger: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

// runJSON runs the program with --json and reads its one object into v.
func (g *operatorRig) runJSON(code int, v any, args ...string) {
	g.Helper()
	reflect.ValueOf(v).Elem().SetZero() // what is absent this time must not be there from last time
	got := g.run(code, append(args, "--json")...)
	if strings.Count(got.stdout, "\n") != 1 {
		g.Fatalf("%v: want one line on stdout, got %q", args, got.stdout)
	}
	g.must(json.Unmarshal([]byte(got.stdout), v))
	if !strings.Contains(got.stderr, g.table) {
		g.Errorf("%v: stderr does not name the place: %q", args, got.stderr)
	}
}

// audited audits the table, whose books must balance.
func (g *operatorRig) audited() *audit.Report {
	g.Helper()
	report, err := audit.Run(g.Context(), g.db, audit.Config{Table: g.table})
	g.must(err)
	if !report.OK {
		g.Errorf("the books do not balance: %+v", report)
	}
	return report
}

// items are the keys of all items of both tables.
func (g *operatorRig) items() []string {
	g.Helper()
	return g.eachItem(func(item map[string]types.AttributeValue) string {
		return schema.ValueOf(item[schema.PK]).Text + " " + schema.ValueOf(item[schema.SK]).Text
	})
}

// eachItem is what say makes of each item of both tables, sorted.
func (g *operatorRig) eachItem(say func(map[string]types.AttributeValue) string) []string {
	g.Helper()
	var all []string
	for _, table := range []string{g.table, g.control()} {
		pages := dynamodb.NewScanPaginator(g.db, &dynamodb.ScanInput{TableName: aws.String(table), ConsistentRead: aws.Bool(true)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(g.Context())
			g.must(err)
			for _, item := range page.Items {
				all = append(all, say(item))
			}
		}
	}
	slices.Sort(all)
	return all
}

// of are the items of one tenant.
func (g *operatorRig) of(tenant string) []string {
	g.Helper()
	return slices.DeleteFunc(g.items(), func(key string) bool {
		pk, _, _ := strings.Cut(strings.TrimPrefix(key, "OBS#"), " ")
		return pk != "TENANT#"+tenant && !strings.HasPrefix(pk, "TENANT#"+tenant+"#")
	})
}

func (g *operatorRig) row(tenant, key string, scope schema.Scope) *schema.Row {
	g.Helper()
	item := g.item(g.table, schema.RowKey(tenant, "s1", scope, key))
	if item == nil {
		return nil
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	g.must(err)
	return row
}

func (g *operatorRig) item(table string, key schema.Key) schema.Item {
	g.Helper()
	out, err := g.db.GetItem(g.Context(), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
		Key: schema.Item{schema.PK: schema.S(key.PK), schema.SK: schema.S(key.SK)},
	})
	g.must(err)
	if len(out.Item) == 0 {
		return nil
	}
	return out.Item
}

// told are the events of all that happened to both tables.
func (g *operatorRig) told() *streams.Collector {
	g.Helper()
	var told streams.Collector
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: checked(g, &told), Unreadable: func(context.Context, []byte) error { return nil },
	})
	g.must(err)
	for _, arn := range g.arns {
		p, err := streams.NewPoller(streams.PollerConfig{Streams: g.streams, StreamARN: arn, FromHorizon: true}, consumer)
		g.must(err)
		g.must(p.Drain(g.Context()))
	}
	if n := told.Count()["AuditRecordUnreadable"]; n > 0 {
		g.Errorf("%d records could not be read", n)
	}
	return &told
}

// Promise: plan, grant, suspend, resume and quota do what they say, once, say what was and what is, and keep who decided
// and why.
func TestOperatorQuota(t *testing.T) {
	g := newOperatorRig(t)
	type plan struct {
		Tokens, Shards, Overdraft int64
		Period, By, Why           string
		Suspended                 bool
	}
	var planned struct {
		Changed       bool
		Before, After *plan
		Table         string
	}
	g.runJSON(0, &planned, "plan", "acme", "--tokens", "100", "--period", "always", "--shards", "2", "--yes", "--by", "eve", "--why", "new")
	if want := (plan{100, 2, 0, "always", "eve", "new", false}); planned.Before != nil || *planned.After != want || !planned.Changed || planned.Table != g.table {
		t.Fatalf("%+v", planned)
	}
	g.runJSON(0, &planned, "plan", "acme", "--tokens", "300", "--yes", "--by", "bob") // what is not said stays
	if want := (plan{300, 2, 0, "always", "bob", "", false}); planned.Before.Tokens != 100 || *planned.After != want {
		t.Fatalf("%+v %+v", planned.Before, planned.After)
	}
	g.runJSON(0, &planned, "plan", "acme", "--tokens", "300", "--yes")
	if planned.Changed || planned.After.By != "bob" {
		t.Fatalf("the same plan again: %+v", planned.After)
	}

	var quota struct {
		Granted, Remaining int64
		Shards             []struct{ Granted, Remaining int64 }
		Grant              *struct {
			Tokens  int64
			Done    bool
			By, Why string
		}
	}
	grant := []string{"grant", "acme", "--tokens", "50", "--key", "order-1", "--yes", "--by", "eve", "--why", "paid"}
	for _, done := range []bool{true, false} {
		g.runJSON(0, &quota, grant...)
		if quota.Granted != 350 || quota.Grant.Done != done || quota.Grant.Tokens != 50 || quota.Grant.By != "eve" || quota.Grant.Why != "paid" {
			t.Fatalf("%+v %+v", quota, quota.Grant)
		}
	}
	grant[3] = "51"
	if got := g.run(2, grant...); !strings.Contains(got.stderr, "was used for a grant of 50 tokens") {
		t.Errorf("%s", got.stderr)
	}

	session := g.ledger(0).Tenant("acme").Session("s1")
	if _, err := session.Commit(t.Context(), writers.Call{Key: writers.SessionKey("a"), Tool: "t", Tokens: 30}, "ok"); err != nil {
		t.Fatal(err)
	}
	g.runJSON(0, &planned, "suspend", "acme", "--yes", "--by", "eve", "--why", "runaway")
	if !planned.After.Suspended || planned.After.Why != "runaway" {
		t.Fatalf("%+v", planned.After)
	}
	_, err := g.ledger(0).Tenant("acme").Session("s1").Commit(t.Context(), writers.Call{Key: writers.SessionKey("b"), Tool: "t", Tokens: 1}, "ok")
	if !errors.Is(err, writers.ErrSuspended) {
		t.Errorf("a debit of a suspended tenant: %v", err)
	}
	g.runJSON(0, &planned, "suspend", "acme", "--yes")
	if planned.Changed {
		t.Error("suspended twice")
	}
	g.runJSON(0, &planned, "resume", "acme", "--yes")
	if planned.After.Suspended || !planned.Changed {
		t.Fatalf("%+v", planned.After)
	}
	g.runJSON(0, &quota, "quota", "acme")
	if quota.Granted != 350 || quota.Remaining != 320 || len(quota.Shards) != 2 {
		t.Fatalf("%+v", quota)
	}
	text := g.run(0, "quota", "acme").stdout
	for _, want := range []string{g.table + " at " + g.endpoint, "300 tokens for good in 2 shards", "350", "320"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	g.audited()
	if n := g.told().Count()["LedgerRowTampered"]; n > 0 {
		t.Errorf("%d rows tampered with", n)
	}
}

// Promise: what cannot be meant, and what nobody confirmed, is refused with one line and code 2, and nothing is written.
func TestOperatorRefuses(t *testing.T) {
	g := newOperatorRig(t)
	hold := g.reserve(g.planned(-time.Hour, "acme"), "acme", writers.Call{Key: writers.SessionKey("k"), Tool: "t", Tokens: 5})
	before := g.items()
	for want, args := range map[string][]string{
		"want TENANT, got 0 arguments":                    {"plan", "--tokens", "1"},
		"want TENANT SESSION KEY, got 1 arguments":        {"show", "acme"},
		"TENANT must not contain '#'":                     {"quota", "a#b"},
		"KEY is required":                                 {"show", "acme", "s1", " "},
		"--tokens N is required":                          {"plan", "acme"},
		`--period "week"`:                                 {"plan", "acme", "--tokens", "1", "--period", "week"},
		"--tokens -1: want 0 to 2^53":                     {"plan", "acme", "--tokens=-1"},
		"--shards 65: want 1 to 64":                       {"plan", "acme", "--tokens", "1", "--shards", "65"},
		"--overdraft -1":                                  {"plan", "acme", "--tokens", "1", "--overdraft=-1"},
		"grant: --tokens N is required":                   {"grant", "acme", "--key", "k"},
		"--key is required":                               {"grant", "acme", "--tokens", "1"},
		"give --yes to give tenant acme 7 tokens":         {"plan", "acme", "--tokens", "7"},
		"give --yes to give tenant acme 9 tokens for k":   {"grant", "acme", "--tokens", "9", "--key", "k"},
		"give --yes to suspend tenant acme":               {"suspend", "acme"},
		"give --yes to erase everything of tenant acme":   {"erase", "acme"},
		"give --yes to resolve attempt 1 as not applied":  {"resolve", "acme", "s1", "k", "--attempt", "1", "--not-applied"},
		"tenant nobody has no plan":                       {"suspend", "nobody", "--yes"},
		"tenant noone has no plan":                        {"quota", "noone"},
		"quota_not_provisioned":                           {"grant", "nobody", "--tokens", "1", "--key", "k", "--yes"},
		"say either --applied RESULT or --not-applied":    {"resolve", "acme", "s1", "k", "--attempt", "1", "--yes"},
		"--attempt N is required":                         {"resolve", "acme", "s1", "k", "--not-applied", "--yes"},
		"the result must be JSON":                         {"resolve", "acme", "s1", "k", "--attempt", "1", "--applied", "{", "--yes"},
		`--scope "world": want session or tenant`:         {"show", "acme", "s1", "k", "--scope", "world"},
		"there is no call nix of tenant acme, session s1": {"resolve", "acme", "s1", "nix", "--attempt", "1", "--not-applied", "--yes"},
		"there is no call nix of tenant acme":             {"show", "acme", "s1", "nix"},
		"--older -1s: want 0 or more":                     {"pending", "--older=-1s"},
		"--limit 0: want 1 or more":                       {"pending", "--limit", "0"},
		"--tenant must not contain '#'":                   {"pending", "--tenant", "a#b"},
		"--segments 65: want 1 to 64":                     {"erase", "acme", "--segments", "65", "--yes"},
		`--results "bucket": want s3://BUCKET/PREFIX`:     {"erase", "acme", "--results", "bucket", "--yes"},
		`--verifier "t": want TOOL=FUNCTION`:              {"erase", "acme", "--verifier", "t", "--yes"},
		"--why is 1025 bytes long; the limit is 1024":     {"suspend", "acme", "--yes", "--why", strings.Repeat("x", 1025)},
		"--by: say who decides":                           {"suspend", "acme", "--yes", "--by", " "},
		"--history-time 0s":                               {"show", "acme", "s1", "k", "--history-time", "0s"},
	} {
		got := g.run(2, args...)
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%v: %q does not say %q", args, got.stderr, want)
		}
		if got := runProgram(t, nil, args...); got.code != 2 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v without a place: %+v", args, got)
		}
	}
	if after := g.items(); !slices.Equal(before, after) {
		t.Errorf("items before %v, after %v", before, after)
	}
	if row := g.row("acme", "k", schema.ScopeSession); row.Version != 1 || row.RowID != hold.RowID {
		t.Errorf("the row was written: %+v", row)
	}
}

// Promise: every operator's tool explains itself with an example.
func TestOperatorHelp(t *testing.T) {
	for _, name := range []string{"plan", "grant", "suspend", "resume", "quota", "show", "pending", "resolve", "erase", "sweep", "audit"} {
		got := runProgram(t, nil, name, "--help")
		if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "Examples:\n  toolledger "+name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// pendingRow is what pending --json lists.
type pendingRow struct {
	Key, Scope, Why string
	Held, Neglected bool
	Tokens          int64
}

// Promise: pending lists what is past its deadline, oldest first, says of each why it is still open, and nothing else.
func TestPendingSaysWhy(t *testing.T) {
	g := newOperatorRig(t)
	now := time.Now().Truncate(time.Millisecond)
	seed := func(key string, overdue time.Duration, change func(*schema.Row)) {
		row := &schema.Row{
			Key: schema.RowKey("acme", "s1", schema.ScopeSession, key), RowID: "row-" + key, Holder: "h", Version: 1, Attempt: 1,
			State: schema.StatePending, Tool: "book", IntentHash: make([]byte, 32), Session: "s1", Scope: schema.ScopeSession,
			Horizon: 10 * time.Minute, CreatedAt: now.Add(-2 * time.Hour), UpdatedAt: now.Add(-2 * time.Hour),
			Deadline: now.Add(-overdue), PendingBucket: schema.PendingBucket(key),
		}
		change(row)
		_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: row.Item()})
		g.must(err)
	}
	hold := func(r *schema.Row, key string) { r.Held, r.PendingBucket = true, schema.HeldBucket(key) }
	seed("running", -time.Hour, func(*schema.Row) {})
	seed("margin", 30*time.Second, func(*schema.Row) {})
	seed("next", 3*time.Minute, func(*schema.Row) {})
	seed("horizon", 6*time.Minute, func(r *schema.Row) { r.Verifier, r.SweepAt = true, r.Deadline.Add(12*time.Minute) })
	seed("unknown", 30*time.Minute, func(r *schema.Row) { r.Verifier, r.SweepAt = true, now.Add(5*time.Minute) })
	seed("neglected", 40*time.Minute, func(r *schema.Row) { r.Idempotent = true })
	seed("unasked", 50*time.Minute, func(r *schema.Row) { r.Verifier = true })
	seed("held", time.Hour, func(r *schema.Row) { hold(r, "held") })
	seed("given-up", 2*time.Hour, func(r *schema.Row) { r.Verifier = true; hold(r, "given-up") })

	var got struct {
		Count, Held, Neglected int
		Rows                   []pendingRow
	}
	g.runJSON(0, &got, "pending")
	want := []struct{ key, why string }{
		{"given-up", "held: nobody could find out"},
		{"held", "held: its tool can be neither repeated nor verified"},
		{"unasked", "does it know the verifier"},
		{"neglected", "does the sweeper run?"},
		{"unknown", "the verifier cannot tell yet: the sweeper asks again at "},
		{"horizon", "waits for the horizon"},
		{"next", "the next sweep takes it"},
		{"margin", "clocks may be 2m0s apart"},
	}
	if got.Count != len(want) || got.Held != 2 || got.Neglected != 2 || len(got.Rows) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if r := got.Rows[i]; r.Key != w.key || !strings.Contains(r.Why, w.why) {
			t.Errorf("row %d: %+v, want %s: %s", i, r, w.key, w.why)
		}
	}
	g.runJSON(0, &got, "pending", "--older", "45m")
	if got.Count != 3 {
		t.Errorf("older than 45m: %+v", got)
	}
	g.runJSON(0, &got, "pending", "--tenant", "acme2")
	if got.Count != 0 {
		t.Errorf("of another tenant: %+v", got)
	}
	g.runJSON(0, &got, "pending", "--limit", "2")
	if got.Count != len(want) || len(got.Rows) != 2 {
		t.Errorf("two of them: %+v", got)
	}
	text := g.run(0, "pending").stdout
	if !strings.Contains(text, "8 reservations past their deadline hold 0 tokens; 2 of them wait for a person") ||
		!strings.Contains(text, "toolledger show acme s1 given-up --") {
		t.Errorf("%s", text)
	}

	// A row that cannot be read is a broken promise, and hides nobody else's.
	broken := g.item(g.table, schema.RowKey("acme", "s1", schema.ScopeSession, "next"))
	broken[schema.AAttempt] = schema.S("one")
	_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: broken})
	g.must(err)
	g.runJSON(1, &got, "pending")
	if got.Count != len(want)-1 {
		t.Errorf("beside an unreadable row: %+v", got)
	}
}

// shown is what show --json prints.
type shown struct {
	Row struct {
		State, Failure, Scope, By, Why string
		RowID                          string `json:"row_id"`
		Attempt                        int64
		Held, Unverified               bool
		Result                         json.RawMessage
		ResultSHA256                   string `json:"result_sha256"`
	}
	Open        string
	Observation *struct {
		Replays  int64
		InFlight int64 `json:"in_flight"`
	}
	History *struct {
		Complete bool
		Changes  []struct {
			From, To, Item string
			Events         []string
			Changed        []string
		}
	}
	Outside struct {
		EffectKey string `json:"effect_key"`
		Lookup    string
	}
	Resolve struct {
		Applied        string
		NotApplied     string    `json:"not_applied"`
		NotAppliedFrom time.Time `json:"not_applied_from"`
	}
}

// shell runs a command line as a person would paste it into a shell.
func (g *operatorRig) shell(code int, line string) ran {
	g.Helper()
	path, err := program()
	g.must(err)
	got := runShell(g.T, filepath.Dir(path), line)
	if got.code != code {
		g.Fatalf("%s: exit code %d, want %d\n%s%s", line, got.code, code, got.stdout, got.stderr)
	}
	return got
}

func runShell(t *testing.T, bin, line string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Promise: show gives all that is known of a call: row, counts, history, where to look; and the commands that it prints to
// copy decide it, whatever characters the names are made of.
func TestShowAndResolve(t *testing.T) {
	for name, tt := range map[string]struct {
		key     writers.Key
		scope   schema.Scope
		applied bool
	}{
		"applied":                {writers.SessionKey("it's $(a) key; \"x\" ✓"), schema.ScopeSession, true},
		"not applied":            {writers.SessionKey("-k"), schema.ScopeSession, false},
		"applied, tenant-wide":   {writers.TenantKey("order 1"), schema.ScopeTenant, true},
		"not applied, for all s": {writers.TenantKey("order 2"), schema.ScopeTenant, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newOperatorRig(t)
			l := g.planned(-time.Hour, "acme")
			call := writers.Call{Key: tt.key, Tool: "book", Tokens: 5, Lookup: "seat 7"}
			hold := g.reserve(l, "acme", call)
			if _, _, err := l.Tenant("acme").Session("s1").Reserve(t.Context(), call); !errors.Is(err, writers.ErrInProgress) {
				t.Fatal(err)
			}
			args := []string{"show", "--scope", string(tt.scope)}
			if tt.scope == schema.ScopeTenant {
				args = append(args, "--", "acme", "any", tt.key.String())
			} else {
				args = append(args, "--", "acme", "s1", tt.key.String())
			}
			show := func() (s shown) {
				got := runProgram(t, nil, append(append([]string{args[0], "--json"}, g.at()...), args[1:]...)...)
				if got.code != 0 {
					t.Fatalf("%+v", got)
				}
				g.must(json.Unmarshal([]byte(got.stdout), &s))
				return s
			}
			s := show()
			if s.Row.State != "pending" || s.Row.RowID != hold.RowID || s.Outside.EffectKey != hold.EffectKey || s.Outside.Lookup != "seat 7" ||
				s.Observation == nil || s.Observation.InFlight != 1 || !strings.Contains(s.Open, "does the sweeper run?") {
				t.Fatalf("%+v", s)
			}
			if h := s.History; h == nil || !h.Complete || len(h.Changes) != 2 || h.Changes[0].To != "pending" ||
				!slices.Equal(h.Changes[0].Events, []string{"ToolCallReserved"}) || h.Changes[1].Item != "observation" {
				t.Fatalf("history %+v", s.History)
			}
			text := runProgram(t, nil, append(append([]string{args[0]}, g.at()...), args[1:]...)...).stdout
			line := s.Resolve.NotApplied
			if tt.applied {
				line = s.Resolve.Applied
			}
			for _, want := range []string{s.Resolve.Applied, s.Resolve.NotApplied, hold.EffectKey, "seat 7", "ToolCallReserved"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			and := func(flags string) string { // where a name looks like a flag, names stand at the end
				command, names, last := strings.Cut(line, " -- ")
				if last {
					names = " -- " + names
				}
				return command + flags + names
			}
			g.shell(0, and(" --yes --by 'Eve E.' --why 'I looked'"))
			s = show()
			if s.Row.By != "Eve E." || s.Row.Why != "I looked" || s.Resolve.NotApplied != "" {
				t.Errorf("%+v", s)
			}
			if tt.applied && (s.Row.State != "applied" || s.Row.ResultSHA256 == "" || s.Resolve.Applied != "") ||
				!tt.applied && (s.Row.State != "failed" || s.Row.Failure != "resolved" || s.Resolve.Applied == "") {
				t.Errorf("%+v", s)
			}
			g.shell(0, and(" --yes --by Bob")) // the same verdict again changes nothing
			if again := show(); again.Row.By != "Eve E." {
				t.Errorf("decided twice: %+v", again.Row)
			}
			g.audited()
			told := g.told().Count()
			if told["LedgerRowTampered"] != 0 || tt.applied && told["ToolEffectApplied"] != 1 || !tt.applied && told["ReservationResolved"] != 1 {
				t.Errorf("%v", told)
			}
		})
	}
}

// Promise: a verdict on an attempt that is no longer the last one, on a row that another one has replaced, or too early,
// loses: code 1, and nothing is written. What is recorded as applied is never made undone.
func TestResolveLosesRaces(t *testing.T) {
	g := newOperatorRig(t)
	past, now := g.planned(-time.Hour, "acme"), g.ledger(0)
	call := func(key string) writers.Call {
		return writers.Call{Key: writers.SessionKey(key), Tool: "t", Tokens: 5, Idempotent: true}
	}
	g.reserve(past, "acme", call("newer"))
	taken := g.reserve(now, "acme", call("newer")) // attempt 2, by a caller who may repeat
	g.reserve(now, "acme", call("early"))
	if _, err := past.Tenant("acme").Session("s1").Commit(t.Context(), call("done"), "ok"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		want string
		args []string
	}{
		"a newer attempt":        {"attempt_superseded", []string{"newer", "--attempt", "1", "--not-applied"}},
		"a newer attempt, known": {"attempt_superseded", []string{"newer", "--attempt", "1", "--applied", "1"}},
		"another row":            {"attempt_superseded", []string{"early", "--attempt", "1", "--row-id", "other", "--applied", "1"}},
		"too early":              {"may still land until", []string{"early", "--attempt", "1", "--not-applied"}},
		"recorded as applied":    {"recorded as applied", []string{"done", "--attempt", "1", "--not-applied"}},
	} {
		got := g.run(1, append([]string{"resolve", "acme", "s1", "--yes"}, tt.args...)...)
		if !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%s: %s", name, got.stderr)
		}
	}
	if row := g.row("acme", "newer", schema.ScopeSession); row.RowID != taken.RowID || row.Attempt != 2 || row.State != schema.StatePending {
		t.Errorf("%+v", row)
	}
	if row := g.row("acme", "early", schema.ScopeSession); row.Version != 1 {
		t.Errorf("%+v", row)
	}
	got := runProgram(t, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader(`{"number": 42}`) },
		append([]string{"resolve", "acme", "s1", "early", "--attempt", "1", "--applied", "-", "--yes"}, g.at()...)...)
	if row := g.row("acme", "early", schema.ScopeSession); got.code != 0 || row.ResultJSON == nil || *row.ResultJSON != `{"number": 42}` {
		t.Errorf("from stdin: %+v", got)
	}
	g.audited()
}

// spend debits a tenant a token at a time until the ledger refuses, and returns how many it took.
func (g *operatorRig) spend(l *writers.Ledger, tenant writers.TenantID, name string) (taken int) {
	g.Helper()
	for n := range 500 {
		c := writers.Call{Key: writers.SessionKey(fmt.Sprint(name, n)), Tool: "t", Tokens: 1}
		if _, err := l.Tenant(tenant).Session("s1").Commit(g.Context(), c, "ok"); err != nil {
			if code, _ := errors.AsType[writers.Code](err); code != writers.ErrQuotaExhausted {
				g.Fatal(err)
			}
			return taken
		}
		taken++
	}
	g.Fatal("no end")
	return 0
}

// Promise: a plan that is lowered below use and raised again, short of what is spent, gives nobody tokens to spend while
// another shard owes them: the highest grant is never exceeded.
func TestPlanRaisedBelowUse(t *testing.T) {
	for _, shards := range []int{2, 4} { // 4: the shards grow with the raise
		g := newOperatorRig(t)
		l := g.ledger(0)
		g.must(l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 60, Period: writers.Always, Shards: 2}))
		if n := g.spend(l, "acme", "first"); n != 60 {
			t.Fatalf("spent %d of 60", n)
		}
		g.must(l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 10, Period: writers.Always, Shards: 2}))
		g.must(l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 40, Period: writers.Always, Shards: shards}))
		if n := g.spend(l, "acme", "second"); n != 0 {
			t.Errorf("%d shards: spent 60, and %d more of 40", shards, n)
		}
		g.must(l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 70, Period: writers.Always, Shards: shards}))
		if n := g.spend(l, "acme", "third"); n != 10 {
			t.Errorf("%d shards: spent 60, and %d more of 70", shards, n)
		}
		g.audited()
	}
}

// Promise: a suspended tenant debits nothing more, whatever process it calls: one that read the plan before its kind of
// period was changed would else go on debiting the former period for a minute.
func TestSuspendAfterChangeOfPeriod(t *testing.T) {
	kinds := []writers.Period{writers.Monthly, writers.Daily, writers.Always}
	for _, former := range kinds {
		for _, next := range kinds {
			g := newOperatorRig(t)
			operator, caller := g.ledger(0), g.ledger(0)
			commit := func(key string) error {
				c := writers.Call{Key: writers.SessionKey(key), Tool: "t", Tokens: 1}
				_, err := caller.Tenant("acme").Session("s1").Commit(t.Context(), c, "ok")
				return err
			}
			g.must(operator.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 100, Period: former, Shards: 3}))
			g.must(commit("before"))
			g.must(operator.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 100, Period: next, Shards: 3}))
			g.must(operator.Tenant("acme").Suspend(t.Context(), true))
			err := commit("suspended")
			if e, ok := errors.AsType[*writers.Error](err); !ok || e.Code != writers.ErrSuspended {
				t.Errorf("period %d, then %d: %v", former, next, err)
			}
			if q, err := operator.Tenant("acme").Quota(t.Context()); err != nil || !q.Suspended {
				t.Errorf("period %d, then %d: %+v, %v", former, next, q, err)
			}
			g.must(operator.Tenant("acme").Suspend(t.Context(), false))
			g.must(commit("resumed"))
			g.must(operator.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 100, Period: former, Shards: 3}))
			g.must(commit("back"))
			g.audited()
		}
	}
}
