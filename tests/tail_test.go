package tests_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/streams/events"
	"toolledger/writers"
)

// tailed is a running tail.
type tailed struct {
	t   *testing.T
	cmd *exec.Cmd

	mu     sync.Mutex
	lines  []string
	stderr strings.Builder
	wait   sync.WaitGroup
}

// startTail starts a tail of the rig's ledger and returns when it follows.
func (g *operatorRig) startTail(env []string, args ...string) *tailed {
	g.Helper()
	path, err := program()
	g.must(err)
	p := &tailed{t: g.T, cmd: exec.Command(path, append(append([]string{"tail"}, args...), g.at()...)...)}
	p.cmd.Env = append(os.Environ(), env...)
	stdout, err := p.cmd.StdoutPipe()
	g.must(err)
	stderr, err := p.cmd.StderrPipe()
	g.must(err)
	g.must(p.cmd.Start())
	g.Cleanup(func() { _ = p.cmd.Process.Kill() })
	following := make(chan struct{})
	read := func(from io.Reader, line func(string)) {
		p.wait.Go(func() {
			scan := bufio.NewScanner(from)
			scan.Buffer(nil, 1<<20)
			for scan.Scan() {
				p.mu.Lock()
				line(scan.Text())
				p.mu.Unlock()
			}
		})
	}
	read(stdout, func(line string) {
		p.lines = append(p.lines, line)
		if strings.HasPrefix(line, "{") {
			if _, err := parseLine([]byte(line)); err != nil {
				g.Errorf("%v: %s", err, line)
			}
		}
	})
	read(stderr, func(line string) {
		p.stderr.WriteString(line + "\n")
		if strings.HasPrefix(line, "following ") {
			close(following)
		}
	})
	select {
	case <-following:
	case <-time.After(devTime):
		g.Fatal("tail does not say that it follows")
	}
	return p
}

// until waits until there are n lines.
func (p *tailed) until(n int) []string {
	p.t.Helper()
	for range int(devTime / (20 * time.Millisecond)) {
		p.mu.Lock()
		lines := slices.Clone(p.lines)
		p.mu.Unlock()
		if len(lines) >= n {
			return lines
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Fatalf("%d lines, want %d: %q %s", len(p.lines), n, p.lines, p.stderr.String())
	return nil
}

// stop ends the tail as Ctrl-C does and returns all that it said.
func (p *tailed) stop() (code int, lines []string, stderr string) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	p.wait.Wait()
	if err := p.cmd.Wait(); err != nil {
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			p.t.Fatal(err)
		}
	}
	return p.cmd.ProcessState.ExitCode(), p.lines, p.stderr.String()
}

func commitOne(g *operatorRig, l *writers.Ledger, tenant writers.TenantID, key string) {
	g.Helper()
	_, err := l.Tenant(tenant).Session("s1").Commit(g.Context(), writers.Call{
		Key: writers.SessionKey(key), Tool: "note", Args: map[string]string{"text": "secret"}, Tokens: 1,
	}, json.RawMessage(`{"ok":"<b>"}`))
	g.must(err)
}

// Promise: tail shows what happens from now on, of one tenant where one is named, each event as it is published and in the
// order of each row, and Ctrl-C ends it well. It takes no lease from anybody.
func TestTailFollows(t *testing.T) {
	g := newOperatorRig(t)
	l := g.planned(0, "acme", "globex")
	commitOne(g, l, "acme", "before")
	p := g.startTail(nil, "--json", "--tenant", "acme")
	before := g.items()
	for n := range 20 {
		commitOne(g, l, "globex", fmt.Sprint("k", n))
		commitOne(g, l, "acme", fmt.Sprint("k", n))
	}
	p.until(20)
	hold := g.reserve(l, "acme", writers.Call{Key: writers.SessionKey("late"), Tool: "<tool>&", Tokens: 2})
	g.must(hold.Release(t.Context(), "no"))
	g.must(l.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 2000, Period: writers.Always}))
	p.until(24)
	code, lines, stderr := p.stop()
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	want := map[string]events.Event{}
	for _, ev := range g.told().Events() {
		want[ev.Head().ID] = ev
	}
	counts := map[string]int{}
	for _, line := range lines {
		ev, err := events.Parse([]byte(line))
		g.must(err)
		head := ev.Head()
		counts[ev.DetailType()]++
		if head.Tenant != "acme" || head.Key == "before" || want[head.ID] == nil {
			t.Errorf("not wanted: %s", line)
			continue
		}
		published, err := json.Marshal(want[head.ID])
		g.must(err)
		if !strings.Contains(line, `"detail":`+string(published)) {
			t.Errorf("got %s, published is %s", line, published)
		}
		delete(want, head.ID)
	}
	if counts["ToolEffectApplied"] != 20 || counts["ToolCallReserved"] != 1 || counts["ReservationReleased"] != 1 ||
		counts["PlanChanged"] != 1 || counts["QuotaGranted"] != 1 {
		t.Errorf("%v", counts)
	}
	if strings.Contains(strings.Join(lines, ""), "secret") {
		t.Error("arguments are shown")
	}
	for _, key := range g.items() {
		if strings.HasPrefix(key, "STREAM#") && !slices.Contains(before, key) {
			t.Errorf("tail wrote %s", key)
		}
	}
}

// Promise: --from-horizon begins with the oldest change, lines are for a person without --json, and where nobody looks at a
// terminal there are no colours.
func TestTailFromHorizonForAPerson(t *testing.T) {
	g := newOperatorRig(t)
	l := g.planned(0, "acme")
	commitOne(g, l, "acme", "first")
	// A foreign item and half a row: tail shows that they cannot be read and goes on.
	for _, item := range []schema.Item{
		{schema.PK: schema.S("USER#\x1b[31m1"), schema.SK: schema.S("x")},
		{schema.PK: schema.S("TENANT#acme#SESSION#s1"), schema.SK: schema.S("TOOL#half"), "st": schema.N(4)},
	} {
		_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: item})
		g.must(err)
	}
	p := g.startTail([]string{"CLICOLOR_FORCE=1"}, "--from-horizon")
	p.until(5)
	commitOne(g, l, "acme", "second")
	lines := p.until(6)
	code, _, stderr := p.stop()
	text := strings.Join(lines, "\n")
	if code != 0 || strings.Contains(text, "\x1b") || strings.Contains(stderr, "\x1b") {
		t.Errorf("exit code %d, %q, %q", code, text, stderr)
	}
	for _, want := range []string{"PlanChanged", "QuotaGranted", "ToolEffectApplied      acme/s1/first note attempt 1", "acme/s1/second", "AuditRecordUnreadable"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	for _, key := range g.items() {
		if strings.HasPrefix(key, "STREAM#") {
			t.Errorf("tail wrote %s", key)
		}
	}
}

// Promise: a tail beside a consumer that polls with leases takes nothing from it: the consumer publishes everything, and the
// tail shows everything.
func TestTailBesideAPoller(t *testing.T) {
	g := newOperatorRig(t)
	l := g.planned(0, "acme")
	out := &streams.Collector{}
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{Publisher: checked(g, out)})
	g.must(err)
	poller, err := streams.NewPoller(streams.PollerConfig{Streams: g.streams, StreamARN: g.arns[0], DynamoDB: g.db, Control: g.control()}, consumer)
	g.must(err)
	g.must(poller.Drain(t.Context()))
	p := g.startTail(nil, "--json")
	for n := range 10 {
		commitOne(g, l, "acme", fmt.Sprint("k", n))
	}
	g.must(poller.Drain(t.Context()))
	p.until(10)
	if code, lines, stderr := p.stop(); code != 0 || out.Count()["ToolEffectApplied"] != 10 || out.Delivered() != len(out.Events()) {
		t.Errorf("exit code %d, %d lines, %v, %s", code, len(lines), out.Count(), stderr)
	}
}

// Promise: what cannot be followed is said in one line: no ledger, a table without a stream, bad flags.
func TestTailBadInput(t *testing.T) {
	g := newOperatorRig(t)
	still := g.table + "-still"
	_, err := stack.CreateTables(t.Context(), g.db, still, still+"-control", false)
	g.must(err)
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"nowhere":      {[]string{"tail"}, "say where the ledger is"},
		"no table":     {[]string{"tail", "--endpoint", g.endpoint, "--table", "nothing-here"}, "there is no table"},
		"no tenant":    {append([]string{"tail", "--tenant", ""}, g.at()...), "--tenant"},
		"bad tenant":   {append([]string{"tail", "--tenant", "a#b"}, g.at()...), "--tenant"},
		"an argument":  {append([]string{"tail", "acme"}, g.at()...), `unexpected argument "acme"`},
		"keys alone":   {[]string{"tail", "--endpoint", g.endpoint, "--table", g.keysOnly()}, "NEW_AND_OLD_IMAGES"},
		"stream off":   {[]string{"tail", "--endpoint", g.endpoint, "--table", still}, "has no stream"},
		"unknown flag": {[]string{"tail", "--follow"}, "--follow"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runProgram(t, nil, tt.args...)
			if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, tt.text) || strings.Count(lastLines(got.stderr), "\n") > 0 {
				t.Errorf("exit code %d, %q, %q: want %q", got.code, got.stdout, got.stderr, tt.text)
			}
		})
	}
}

// keysOnly is a ledger table whose stream shows keys alone.
func (g *operatorRig) keysOnly() string {
	g.Helper()
	name := g.table + "-keys"
	for _, table := range []string{name, name + "-control"} {
		_, err := g.db.CreateTable(g.Context(), &dynamodb.CreateTableInput{
			TableName: aws.String(table), BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "S"}},
			StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeKeysOnly},
		})
		g.must(err)
	}
	return name
}
