package tests_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolledger/internal/outside"
	"toolledger/internal/stack"
	"toolledger/streams/events"
)

// devTime bounds everything that a test waits for in a running dev.
const devTime = 30 * time.Second

// devProcess is a running dev --json.
type devProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr bytes.Buffer // to be read after the end
	done   chan struct{}
	ready  struct {
		HTTP     string `json:"http"`
		DynamoDB string `json:"dynamodb"`
		Region   string `json:"region"`
		Table    string `json:"table"`
		Control  string `json:"control_table"`
	}

	mu     sync.Mutex
	events []events.Event
}

func startDev(t *testing.T, args ...string) *devProcess {
	t.Helper()
	args = append([]string{"dev", "--json", "--addr", "127.0.0.1:0", "--skew", "1s", "--sweep-every", "1s"}, args...)
	if _, err := stack.Find(stack.Config{}); err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	d := &devProcess{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	d.cmd.Stderr = &d.stderr
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		_ = d.cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	first := make(chan error, 1)
	go d.read(lines, first)
	select {
	case err := <-first:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(devTime):
		t.Fatal("dev does not say that it is ready")
	}
	return d
}

// read takes the lines of dev: what is ready, then events.
func (d *devProcess) read(lines *bufio.Scanner, first chan<- error) {
	defer close(d.done)
	if !lines.Scan() {
		first <- errors.New("dev ended")
		return
	}
	first <- json.Unmarshal(lines.Bytes(), &d.ready)
	for lines.Scan() {
		ev, err := parseLine(lines.Bytes())
		if err != nil {
			d.t.Errorf("a line that is no event: %v: %s", err, lines.Bytes())
			continue
		}
		d.mu.Lock()
		d.events = append(d.events, ev)
		d.mu.Unlock()
	}
}

// stop interrupts dev as Ctrl-C does and returns its exit code once it has ended.
func (d *devProcess) stop() int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(devTime):
		d.t.Fatal("dev does not stop")
	}
	_ = d.cmd.Wait()
	return d.cmd.ProcessState.ExitCode()
}

// counts are the events by type, each id once.
func (d *devProcess) counts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, seen := map[string]int{}, map[string]bool{}
	for _, ev := range d.events {
		if id := ev.Head().ID; !seen[id] {
			seen[id] = true
			n[ev.DetailType()]++
		}
	}
	return n
}

// ask sends one request as acme and returns its status and answer.
func (d *devProcess) ask(method, path, body string) (int, map[string]any) {
	d.t.Helper()
	return d.askAs("", method, path, body)
}

// askAs is ask under the name of another host; "" means dev's own.
func (d *devProcess) askAs(host, method, path, body string) (int, map[string]any) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.ready.HTTP+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("X-Tenant-Id", "acme")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	var doc map[string]any
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, doc
}

// within asks again until it is true.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(devTime); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", devTime, what)
		}
	}
}

func refused(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// TestDevRuns: the whole system answers, shows events and sweeps, and nothing of it is left after Ctrl-C.
func TestDevRuns(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	if d.ready.Table != "toolledger" || d.ready.Control != "toolledger-control" || d.ready.Region == "" || d.ready.DynamoDB == "" {
		t.Fatalf("%+v", d.ready)
	}
	if status, doc := d.ask("POST", "/v1/commit", `{"session":"s","key":"a","tool":"t","tokens":5,"result":1}`); status != 200 || doc["outcome"] != "applied" {
		t.Fatal(status, doc)
	}
	if status, doc := d.ask("POST", "/v1/commit", `{"session":"s","key":"a","tool":"t","tokens":5,"result":2}`); status != 200 || doc["outcome"] != "replayed" || doc["result"] != 1.0 {
		t.Fatal(status, doc)
	}
	// A web page whose name was made to resolve to this machine gets nothing, as a problem document.
	if status, doc := d.askAs("evil.example", "PUT", "/v1/tenants/acme/plan", `{"tokens":1}`); status != 403 || doc["code"] != "forbidden" {
		t.Fatal(status, doc)
	}
	// A harmless call whose holder dies is given back by the sweeper.
	const dying = `{"session":"s","key":"b","tool":"t","tokens":5,"idempotent":true,"lease_seconds":1,"horizon_seconds":1}`
	if status, doc := d.ask("POST", "/v1/reserve", dying); status != 200 || doc["outcome"] != "reserved" {
		t.Fatal(status, doc)
	}
	within(t, "the sweep of the reservation", func() bool { return d.counts()["ReservationExpired"] == 1 })
	if _, doc := d.ask("GET", "/v1/quota", ""); doc["remaining_tokens"] != 999_995.0 {
		t.Fatal(doc)
	}
	if status, doc := d.ask("PUT", "/v1/tenants/globex/plan", `{"tokens":7}`); status != 200 || doc["tokens"] != 7.0 {
		t.Fatal(status, doc)
	}
	if status, _ := d.ask("POST", "/v1/commit", `{"session":"s","key":"c","tool":"t","tokens":1}`); status != 200 {
		t.Fatal(status) // right before the end: its event must still come
	}
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d: %s", code, d.stderr.String())
	}
	if !refused(d.ready.HTTP) || !refused(d.ready.DynamoDB) {
		t.Error("something still listens after dev has stopped")
	}
	got := d.counts()
	for kind, n := range map[string]int{
		"ToolEffectApplied": 2, "ToolCallReserved": 1, "ReservationExpired": 1, "ToolCallReplayed": 1, "QuotaGranted": 1, "PlanChanged": 2,
	} {
		if got[kind] != n {
			t.Errorf("%d %s, want %d: %v", got[kind], kind, n, got)
		}
	}
}

// TestDevKeepsData: with --data the ledger is there after a restart, and events that were shown are not shown again.
func TestDevKeepsData(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	first := startDev(t, "--data", file)
	first.ask("POST", "/v1/commit", `{"session":"s","key":"a","tool":"t","tokens":5,"result":"kept"}`)
	if code := first.stop(); code != 0 || first.counts()["ToolEffectApplied"] != 1 {
		t.Fatalf("exit code %d, %v: %s", code, first.counts(), first.stderr.String())
	}
	second := startDev(t, "--data", file)
	if status, doc := second.ask("GET", "/v1/calls?session=s&key=a", ""); status != 200 || doc["result"] != "kept" {
		t.Fatal(status, doc)
	}
	second.ask("POST", "/v1/commit", `{"session":"s","key":"b","tool":"t","tokens":5}`)
	if code := second.stop(); code != 0 || second.counts()["ToolEffectApplied"] != 1 {
		t.Fatalf("exit code %d, %v: %s", code, second.counts(), second.stderr.String())
	}
}

// TestDevRefuses: what cannot work is one line on stderr with exit code 2, before anything is started.
func TestDevRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"port in use":   {[]string{"--addr", taken.Addr().String()}, "the address is in use"},
		"no port":       {[]string{"--addr", "127.0.0.1"}, `--addr "127.0.0.1"`},
		"no host":       {[]string{"--addr", "no.such.host.invalid:1"}, "--addr no.such.host.invalid:1"},
		"bad tenant":    {[]string{"--addr", "127.0.0.1:0", "--tenant", "a#b"}, "--tenant"},
		"bad tokens":    {[]string{"--addr", "127.0.0.1:0", "--tokens", "-1"}, "--tokens -1"},
		"sweep at once": {[]string{"--addr", "127.0.0.1:0", "--sweep-every", "1ms"}, "--sweep-every 1ms"},
		"endpoint down": {[]string{"--addr", "127.0.0.1:0", "--endpoint", "http://127.0.0.1:1"}, "no DynamoDB answers"},
		"data a folder": {[]string{"--addr", "127.0.0.1:0", "--data", t.TempDir()}, "folder"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runProgram(t, nil, append([]string{"dev"}, tc.args...)...)
			if got.code != 2 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, tc.says) {
				t.Fatalf("%+v", got)
			}
		})
	}
}

// unreliable is a network between a client and dev: some requests meet a gateway that is overloaded, some are lost on the
// way there, and some answers on the way back.
func unreliable(t *testing.T, target string) *httptest.Server {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 7 {
		case 1:
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<h1>overloaded</h1>")
		case 3:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status":503,"code":"unavailable","detail":"later"}`)
		case 5: // the request is lost
			panic(http.ErrAbortHandler)
		case 6: // it arrives and takes effect, and the answer is lost
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestClientPython and TestClientTypeScript: a client in another language makes every effect once, through lost requests,
// lost answers, an overloaded gateway, an outside world that drops an answer, and the death of a worker after its act.
func TestClientPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	t.Parallel()
	clientStory(t, python, "-B", "../examples/clients/python/demo.py")
}

// TestClientTypeScript: the client keeps to the strictest types, and runs as the pinned compiler leaves it on any Node.
func TestClientTypeScript(t *testing.T) {
	t.Parallel()
	node, dir := compiledClient(t)
	clientStory(t, node, filepath.Join(dir, "demo.js"))
}

// compiledClient compiles the client into a folder of its own.
func compiledClient(t *testing.T) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	const source = "../examples/clients/typescript"
	modules := typescriptModules(t, source)
	dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), node, filepath.Join(modules, "typescript/bin/tsc"),
		"-p", source, "--outDir", dir, "--typeRoots", filepath.Join(modules, "@types")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return node, dir
}

// typescriptModules is where make setup has installed the compiler that the client's package.json pins.
func typescriptModules(t *testing.T, source string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs(filepath.Join("../.local/typescript", manifest.DevDependencies["typescript"], "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		t.Skip("the TypeScript compiler is not installed: run make setup")
	}
	return modules
}

// clientStory runs a demo program again and again, as an orchestrator would, until it ends well.
func clientStory(t *testing.T, command ...string) {
	t.Helper()
	const things, maxRuns = 4, 6
	d := startDev(t)
	var dropped atomic.Bool
	world, err := outside.Start(t.Context(), outside.Config{Script: func(r outside.Request) outside.Answer {
		return outside.Answer{Result: "made", Drop: r.Ref == "thing-2" && dropped.CompareAndSwap(false, true)}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close(t.Context()) })
	network := unreliable(t, d.ready.HTTP)

	ids, codes := map[string]string{}, []int{}
	die := "thing-1"
	for range maxRuns {
		cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], network.URL, world.URL(), fmt.Sprint(things), die)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		codes = append(codes, cmd.ProcessState.ExitCode())
		for line := range strings.Lines(string(out)) {
			key, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			if ids[key] != "" && ids[key] != id {
				t.Errorf("%s was %s, and is %s now", key, ids[key], id)
			}
			ids[key] = id
		}
		if err == nil {
			break
		}
		die = ""
		t.Logf("run ended with %v: %s", err, lastLine(stderr.String()))
	}
	if codes[0] != 9 || codes[len(codes)-1] != 0 {
		t.Fatalf("exit codes %v: want 9, where the worker died, and 0 at last", codes)
	}
	for n := range things {
		key := fmt.Sprintf("thing-%d", n)
		effects := world.Find(key)
		if len(effects) != 1 || ids[key] != fmt.Sprint(effects[0].ID) {
			t.Errorf("%s: %d effects, answered %q", key, len(effects), ids[key])
		}
	}
	if _, doc := d.ask("GET", "/v1/quota", ""); doc["remaining_tokens"] != float64(1_000_000-5*things) {
		t.Errorf("quota %v", doc)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, d.stderr.String())
	}
	got := d.counts()
	if got["ToolEffectApplied"] != things || got["SuspectedDoubleEffect"]+got["LedgerRowTampered"] != 0 {
		t.Errorf("events %v, in types %q", got, slices.Sorted(maps.Keys(got)))
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
