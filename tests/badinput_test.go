package tests_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
)

const goodCall = `{"session":"s1","seq":1,"tool_call_id":"call_1","tool":"refund","mutating":true,"args":{"order":7},"result":"ok","is_error":false}`

// refuse runs the program and wants exit code 2, nothing on stdout, and one line that names what and where.
func refuse(t *testing.T, change func(*exec.Cmd), want string, args ...string) {
	t.Helper()
	got := runProgram(t, change, args...)
	if got.code != 2 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("%v: exit code %d, want 2; stdout %q; stderr\n%s\nwant one line with %q", args, got.code, got.stdout, got.stderr, want)
	}
}

// A recording with anything wrong in it is refused by file, line and field before anything is started or written, wherever the
// bad line stands.
func TestBadRecordings(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ line, want string }{
		"not JSON":        {`{"session":`, "calls.jsonl:3: is not JSON"},
		"missing field":   {strings.Replace(goodCall, `"tool":"refund",`, "", 1), "calls.jsonl:3: tool: is missing"},
		"negative tokens": {strings.Replace(goodCall, `"seq":1`, `"seq":1,"tokens":-5`, 1), "calls.jsonl:3: tokens: must be a whole number"},
		"# in an id":      {strings.Replace(goodCall, "call_1", "call#1", 1), "calls.jsonl:3: tool_call_id: must not contain '#'"},
		"# in a session":  {strings.Replace(goodCall, "s1", "s#1", 1), "calls.jsonl:3: session: must not contain '#'"},
		"empty id":        {strings.Replace(goodCall, "call_1", "", 1), "calls.jsonl:3: tool_call_id: is required"},
		"duplicate key":   {strings.Replace(goodCall, `{"order":7}`, `{"order":7,"order":8}`, 1), `calls.jsonl:3: has the duplicate key "order"`},
		"too many tokens": {strings.Replace(goodCall, `"seq":1`, `"seq":1,"tokens":9007199254740992`, 1), "calls.jsonl:3: tokens: all calls together"},
	} {
		t.Run(name, func(t *testing.T) {
			file, data := filepath.Join(dir, "calls.jsonl"), filepath.Join(dir, "ledger.db")
			text := strings.Join([]string{goodCall, goodCall, c.line, goodCall}, "\n")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"--key=tool_call_id", "--key=intent"} {
				refuse(t, nil, c.want, "replay", file, key, "--data", data)
				refuse(t, nil, c.want, "replay", file, key, "--data", data, "--json")
			}
			if _, err := os.Stat(data); err == nil {
				t.Error("a ledger was made")
			}
		})
	}
}

// Flags and files that cannot be meant are refused before anything is started.
func TestBadCommandLines(t *testing.T) {
	dir := t.TempDir()
	file, data := filepath.Join(dir, "calls.jsonl"), filepath.Join(dir, "ledger.db")
	if err := os.WriteFile(file, []byte(goodCall), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"absent.jsonl: cannot be read: no such file or directory": {"replay", filepath.Join(dir, "absent.jsonl")},
		": cannot be read: is a directory":                        {"replay", dir},
		"want FILE, got 0 arguments":                              {"replay"},
		"--tokens -1: want 0 to 2^53":                             {"replay", file, "--tokens=-1"},
		"--tokens 9007199254740993: want 0 to 2^53":               {"replay", file, "--tokens=9007199254740993"},
		`--key "id": want tool_call_id or intent`:                 {"replay", file, "--key=id"},
		"--storm 65: want 1 to 64 callers":                        {"replay", file, "--storm=65"},
		"--crash 1.1: want a probability":                         {"replay", file, "--crash=1.1"},
		"--crash NaN: want a probability":                         {"replay", file, "--crash=NaN"},
		"--tenant must not contain '#'":                           {"replay", file, "--tenant=a#b"},
		"--quota -1: want 0 to 2^53":                              {"replay", file, "--quota=-1"},
		"--intents 9: want 10 to":                                 {"demo", "--intents=9"},
		"--tenants 11: want 1 to":                                 {"demo", "--intents=10", "--tenants=11"},
		"--seed":                                                  {"demo", "--seed=-1"},
		"--sabotage":                                              {"demo", "--sabotage=everything"},
		"its folder does not exist":                               {"demo", "--data", filepath.Join(dir, "none", "ledger.db")},
		"holds no ledger":                                         {"audit", "--local", file},
		"say where the ledger is":                                 {"audit"},
		"there is no ledger in this file":                         {"audit", "--local", filepath.Join(dir, "none.db")},
		"exclude each other":                                      {"audit", "--local", file, "--endpoint", "http://127.0.0.1:1"},
		`--endpoint "nowhere": want a URL`:                        {"audit", "--endpoint", "nowhere"},
		"audit: --tenant must not contain '#'":                    {"audit", "--local", file, "--tenant", "a#b"},
		"audit: --tenant is required":                             {"audit", "--local", file, "--tenant", ""},
	} {
		if args[0] != "audit" && len(args) > 1 && args[1] != "--data" {
			args = append(args, "--data", data)
		}
		refuse(t, nil, want, args...)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v: something was written", left, err)
	}
}

// An endpoint where nobody answers is named, at once, by every command.
func TestEndpointDown(t *testing.T) {
	var cfg net.ListenConfig
	l, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	if err := l.Close(); err != nil { // nobody listens there any more
		t.Fatal(err)
	}
	for _, args := range [][]string{{"demo"}, {"replay", filepath.Join("testdata", "calls.jsonl")}, {"audit"}, {"audit", "--json"}} {
		refuse(t, nil, "no DynamoDB answers at "+endpoint, append(args, "--endpoint", endpoint)...)
	}
}

// A bad recording leaves an existing DynamoDB as it was, and so does an audit of a table that is not there.
func TestBadInputWritesNothingAtAnEndpoint(t *testing.T) {
	g := bareLedgerRig(t)
	tables := func() []string {
		out, err := g.db.ListTables(t.Context(), &dynamodb.ListTablesInput{})
		g.must(err)
		return out.TableNames
	}
	before := len(tables())
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	g.must(os.WriteFile(file, []byte(goodCall+"\n{"), 0o600))
	at := []string{"--endpoint", *g.db.Options().BaseEndpoint, "--table", g.table + "-new"}
	refuse(t, nil, "calls.jsonl:2: is not JSON", append([]string{"replay", file}, at...)...)
	refuse(t, nil, "there is no table "+g.table+"-new", append([]string{"audit"}, at...)...)
	if after := tables(); len(after) != before {
		t.Errorf("%d tables before, now %v", before, after)
	}
	refuse(t, nil, "it has no stream", "demo", "--endpoint", at[1], "--table", g.table, "--control", g.table+"-control")
}

// Without a local stack for this platform the program says so, and what to do.
func TestLocalStackMissing(t *testing.T) {
	bare := func(cmd *exec.Cmd) {
		cmd.Dir = t.TempDir() // no project above it
		cmd.Env = []string{"PATH=" + cmd.Dir}
	}
	file, err := filepath.Abs(filepath.Join("testdata", "calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	want := "dynoxide is not installed for " + stack.Platform()
	refuse(t, bare, want, "demo")
	refuse(t, bare, want, "replay", file, "--json")
}
