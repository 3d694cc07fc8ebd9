package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolledger/internal/stack"
)

// programTime bounds one run of the program.
const programTime = 3 * time.Minute

// program builds the command line once for all tests of this package.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "toolledger-program-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "toolledger")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/toolledger").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// ran is what one run of the program came to.
type ran struct {
	code           int
	stdout, stderr string
}

// runProgram runs the program in this folder, below which the local stack is found; change alters how it is started.
func runProgram(t *testing.T, change func(*exec.Cmd), args ...string) ran {
	t.Helper()
	if _, err := stack.Find(stack.Config{}); err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, 5*time.Second
	if change != nil {
		change(cmd)
	}
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// proof is what demo and replay promise to print with --json.
type proof struct {
	OK            bool           `json:"ok"`
	Calls         int            `json:"calls"`
	Mutating      int            `json:"mutating"`
	Applied       int            `json:"applied"`
	Replayed      int            `json:"replayed"`
	KeyConflicts  int            `json:"key_conflicts"`
	Released      int            `json:"released"`
	Refunded      int            `json:"refunded"`
	QuotaDenied   int            `json:"quota_denied"`
	Effects       int            `json:"effects"`
	DoubleEffects int            `json:"double_effects"`
	WrongReplays  int            `json:"wrong_replays"`
	Pending       int            `json:"pending"`
	Crashes       int            `json:"crashes"`
	Books         string         `json:"books"`
	Events        map[string]int `json:"events"`
	Metrics       map[string]int `json:"metrics"`
	Checks        []proofCheck   `json:"checks"`
}

type proofCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// prove runs demo or replay with --json and reads its one object.
func prove(t *testing.T, code int, args ...string) proof {
	t.Helper()
	got := runProgram(t, nil, append(args, "--json")...)
	if got.code != code {
		t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	var p proof
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	if err := decoder.Decode(&p); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, got.stdout)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("%v: more than one object on stdout:\n%s", args, got.stdout)
	}
	if code == 0 && (!p.OK || p.Books != "balanced" || p.Pending != 0 || p.DoubleEffects != 0 || p.WrongReplays != 0) {
		t.Errorf("%v: exit code 0 with a broken promise: %s", args, got.stdout)
	}
	return p
}

// outcomes are the figures that do not depend on who came first.
func (p *proof) outcomes() string {
	return fmt.Sprintf("calls %d, mutating %d, applied %d, replayed %d, key_conflicts %d, released %d, refunded %d, quota_denied %d, effects %d",
		p.Calls, p.Mutating, p.Applied, p.Replayed, p.KeyConflicts, p.Released, p.Refunded, p.QuotaDenied, p.Effects)
}

// consistent holds events and metrics against the outcomes, beyond what the program checks itself.
func (p *proof) consistent(t *testing.T) {
	t.Helper()
	if sum := p.Applied + p.Replayed + p.KeyConflicts + p.Released + p.QuotaDenied; sum != p.Mutating {
		t.Errorf("%d outcomes for %d mutating calls", sum, p.Mutating)
	}
	if told := p.Events["ToolEffectApplied"] + p.Events["ToolEffectSettledLate"]; told != p.Applied {
		t.Errorf("%d effects told, %d applied", told, p.Applied)
	}
	for event, metric := range map[string]string{
		"ToolCallReserved": "CallsReserved", "ToolEffectApplied": "EffectsApplied", "ReservationReleased": "ReservationsReleased",
		"ReservationExpired": "ReservationsExpired",
	} {
		if p.Events[event] != p.Metrics[metric] {
			t.Errorf("%d %s, but %s is %d", p.Events[event], event, metric, p.Metrics[metric])
		}
	}
	ended := p.Events["ToolEffectApplied"] + p.Events["ReservationReleased"] + p.Events["ReservationExpired"]
	if p.Events["ToolCallReserved"] != ended {
		t.Errorf("%d reservations, %d of them ended", p.Events["ToolCallReserved"], ended)
	}
}

// sharedCalls are the recorded calls of a real model that lie beside a checkout where somebody put them.
func sharedCalls(t *testing.T) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", "airline_tool_calls.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no recorded calls of a real model are here: %v", err)
	}
	return path
}

// What a real model did: every call comes to the outcome that its key means, under a storm and with workers dying too.
func TestReplayRealCalls(t *testing.T) {
	file := sharedCalls(t)
	const (
		byID     = "calls 572, mutating 143, applied 107, replayed 0, key_conflicts 4, released 32, refunded 32, quota_denied 0, effects 107"
		byIntent = "calls 572, mutating 143, applied 110, replayed 0, key_conflicts 0, released 33, refunded 33, quota_denied 0, effects 110"
	)
	storm := fmt.Sprint(soak(3, 8))
	for name, c := range map[string]struct {
		want string
		args []string
	}{
		"by id":               {byID, []string{"--key", "tool_call_id"}},
		"by intent":           {byIntent, []string{"--key", "intent"}},
		"by id in a storm":    {byID, []string{"--key", "tool_call_id", "--storm", storm, "--crash", "0.2"}},
		"by intent, in storm": {byIntent, []string{"--key", "intent", "--storm", storm, "--crash", "0.2", "--seed", "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := prove(t, 0, append([]string{"replay", file}, c.args...)...)
			if got := p.outcomes(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			p.consistent(t)
			if slices.Contains(c.args, "--crash") && p.Crashes == 0 {
				t.Error("no worker died: the storm proves little")
			}
		})
	}
}

// Every way in which a recorded call can be named and end, by hand: an id used again for the same and for another action,
// another spelling of a number, a refused call that succeeds later, costs, no cost, quota that runs out.
func TestReplayOwnRecording(t *testing.T) {
	const (
		byID     = "calls 13, mutating 11, applied 7, replayed 1, key_conflicts 1, released 2, refunded 2, quota_denied 0, effects 7"
		byIntent = "calls 13, mutating 11, applied 7, replayed 2, key_conflicts 0, released 2, refunded 2, quota_denied 0, effects 7"
		poor     = "calls 13, mutating 11, applied 4, replayed 1, key_conflicts 0, released 1, refunded 1, quota_denied 5, effects 4"
		nothing  = "calls 13, mutating 11, applied 1, replayed 0, key_conflicts 0, released 0, refunded 0, quota_denied 10, effects 1"
	)
	for name, c := range map[string]struct {
		want string
		args []string
	}{
		"by id":                        {byID, nil},
		"by intent":                    {byIntent, []string{"--key=intent"}},
		"by id, everybody dies":        {byID, []string{"--crash=1"}},
		"by id, in a storm":            {byID, []string{"--storm=8", "--crash=0.5", "--seed=3"}},
		"by intent, in a storm":        {byIntent, []string{"--key=intent", "--storm=8", "--crash=0.5", "--tenant=somebody else"}},
		"quota runs out":               {poor, []string{"--quota=3"}},
		"quota runs out in a storm":    {poor, []string{"--quota=3", "--storm=4", "--crash=0.5"}},
		"nothing to spend":             {nothing, []string{"--quota=0"}},
		"calls that cost nothing else": {byIntent, []string{"--key=intent", "--tokens=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := prove(t, 0, append([]string{"replay", filepath.Join("testdata", "calls.jsonl")}, c.args...)...)
			want := c.want
			if slices.Contains(c.args, "--tokens=0") { // what is released was free
				want = strings.Replace(want, "refunded 2", "refunded 0", 1)
			}
			if got := p.outcomes(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			p.consistent(t)
		})
	}
}

// A recording that is played a second time on the same ledger takes no effect again: what took effect is replayed, and the
// audit of the file agrees.
func TestReplayTwice(t *testing.T) {
	data := filepath.Join(t.TempDir(), "ledger.db")
	args := []string{"replay", filepath.Join("testdata", "calls.jsonl"), "--key=intent", "--data", data}
	first := prove(t, 0, args...)
	second := prove(t, 0, args...)
	const want = "calls 13, mutating 11, applied 0, replayed 9, key_conflicts 0, released 2, refunded 2, quota_denied 0, effects 0"
	// Call 5 is refused when it is recorded as refused, and replayed once call 6 has succeeded.
	replayedToo := strings.NewReplacer("replayed 9", "replayed 10", "released 2", "released 1", "refunded 2", "refunded 1").Replace(want)
	if got := second.outcomes(); first.Effects != 7 || got != replayedToo {
		t.Errorf("got  %s\nwant %s", got, replayedToo)
	}
	if got := runProgram(t, nil, "audit", "--local", data); got.code != 0 || !strings.Contains(got.stdout, "✓ the books balance") {
		t.Errorf("audit: %+v", got)
	}
}

// A person sees what became of the calls and each promise with its verdict, and no JSON.
func TestReplayForAPerson(t *testing.T) {
	got := runProgram(t, nil, "replay", filepath.Join("testdata", "calls.jsonl"))
	if got.code != 0 || got.stderr != "" || strings.Contains(got.stdout, "✗") || strings.Count(got.stdout, "✓") < 8 ||
		!strings.Contains(got.stdout, "key conflicts") || strings.Contains(got.stdout, "{") {
		t.Fatalf("%+v", got)
	}
	if words := []string{"margherita", "paid", "amount"}; slices.ContainsFunc(words, func(w string) bool { return strings.Contains(got.stdout, w) }) {
		t.Errorf("arguments or results are shown:\n%s", got.stdout)
	}
}

// An existing DynamoDB is used where it is named; the tables that are missing there are made.
func TestReplayAtEndpoint(t *testing.T) {
	g := bareLedgerRig(t)
	at := []string{"--endpoint", *g.db.Options().BaseEndpoint, "--table", g.table + "-replay"}
	if p := prove(t, 0, append([]string{"replay", filepath.Join("testdata", "calls.jsonl")}, at...)...); p.Effects != 7 {
		t.Fatalf("%+v", p)
	}
	got := runProgram(t, nil, append([]string{"audit", "--json"}, at...)...)
	if got.code != 0 || !strings.Contains(got.stdout, `"states":{"applied":7,"failed":1}`) {
		t.Fatalf("%+v", got)
	}
	if items := g.items(); len(items) != 0 {
		t.Fatalf("another table was written to: %d items", len(items))
	}
}
