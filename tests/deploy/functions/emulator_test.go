package functions_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const root = "../../.."

// buildDir is where the functions are built. TestMain makes and removes it.
var buildDir string

// bootstraps builds the functions once per test process, for this machine and with the flags of the deployed ones.
var bootstraps = sync.OnceValue(func() error {
	for _, pkg := range []string{"writers/lambda", "streams/lambda", "sweeper/lambda", "examples/tickets", "examples/subscriber", "tests/deploy/functions/testdata/panics"} {
		out := filepath.Join(buildDir, strings.ReplaceAll(pkg, "/", "-"), "bootstrap")
		cmd := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", out, "./"+pkg)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", pkg, err, text)
		}
	}
	return nil
})

var buildFlags = []string{"-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w"}

// TestMain removes what was built.
func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "toolledger-functions"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// Promise: what is tested here is built as what is deployed.
func TestBuildFlags(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	want := "go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w'"
	if !strings.Contains(string(text), want) {
		t.Errorf("the Makefile does not build functions with %q: give buildFlags the same ones", want)
	}
}

func bootstrap(t *testing.T, pkg string) string {
	t.Helper()
	if err := bootstraps(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(buildDir, strings.ReplaceAll(pkg, "/", "-"), "bootstrap")
}

// emulatorBinary finds the emulator that make setup-deploy built.
func emulatorBinary(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^LAMBDA_RIE_VERSION := (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile pins no LAMBDA_RIE_VERSION")
	}
	path, err := filepath.Abs(filepath.Join(root, ".local/tools/aws-lambda-rie-"+string(m[1]), "aws-lambda-rie"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the Lambda emulator is not there: run make setup-deploy, once with a network: %v", err)
	}
	return path
}

// lambda is a function under the emulator.
type lambda struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	log  *output
	one  sync.Mutex // the emulator takes one invocation at a time, as an environment of Lambda does
	done chan struct{}
}

// start runs a function with nothing in its environment but what Lambda gives and env. It ends with the test.
func start(t *testing.T, pkg string, env ...string) *lambda {
	t.Helper()
	binary, emulator := bootstrap(t, pkg), emulatorBinary(t)
	for range 3 { // somebody else may take a port that was free a moment ago
		front, api := freePort(t), freePort(t)
		l := &lambda{t: t, url: "http://" + front, log: &output{}, done: make(chan struct{})}
		l.cmd = exec.Command(emulator, "--runtime-interface-emulator-address", front, "--runtime-api-address", api, binary)
		l.cmd.Dir = t.TempDir()
		l.cmd.Env = append([]string{
			"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_LAMBDA_FUNCTION_NAME=" + filepath.Base(pkg),
			"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256", "AWS_LAMBDA_FUNCTION_TIMEOUT=20", "GOGC=400", "GOMEMLIMIT=200MiB",
		}, env...)
		l.cmd.Stdout, l.cmd.Stderr = l.log, l.log
		if err := l.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the emulator, which the clean-up ends
			_ = l.cmd.Wait()
			close(l.done)
		}()
		t.Cleanup(l.stop)
		if l.ready(front) {
			return l
		}
		l.stop()
	}
	t.Fatal("the emulator does not listen")
	return nil
}

func (l *lambda) ready(addr string) bool {
	var d net.Dialer
	for range 500 {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		conn, err := d.DialContext(ctx, "tcp", addr)
		cancel()
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-l.done:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// stop ends the emulator and the function, both by their ids.
func (l *lambda) stop() {
	child := l.child()
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.done:
	case <-time.After(3 * time.Second):
		_ = l.cmd.Process.Kill()
		<-l.done
	}
	if child > 0 {
		_ = syscall.Kill(child, syscall.SIGKILL) // where the emulator did not
	}
	if l.t.Failed() {
		l.t.Logf("%s", l.log)
	}
}

// child is the process id of the function; 0 where none runs, or where this platform does not say.
func (l *lambda) child() int {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, name := range entries {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(l.cmd.Process.Pid) || fields[0] == "Z" {
			continue
		}
		pid, err := strconv.Atoi(strings.Fields(string(text))[0])
		if err == nil {
			return pid
		}
	}
	return 0
}

// needsProc says why a test cannot do to a function's process what it wants to.
func needsProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("finding the function's process needs Linux's /proc")
	}
}

// invoke sends an event and returns the answer, which is an error of the function where it has errorMessage.
func (l *lambda) invoke(event []byte) []byte { return l.invokeAs(event, "") }

// invokeAs sends an event with a client context.
func (l *lambda) invokeAs(event []byte, clientContext string) []byte {
	l.t.Helper()
	body, err := l.send(l.t.Context(), event, clientContext)
	if err != nil {
		l.t.Fatalf("invoke: %v\n%s", err, l.log)
	}
	return body
}

func (l *lambda) send(ctx context.Context, event []byte, clientContext string) ([]byte, error) {
	l.one.Lock()
	defer l.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/2015-03-31/functions/function/invocations", bytes.NewReader(event))
	if err != nil {
		return nil, err
	}
	if clientContext != "" {
		req.Header.Set("X-Amz-Client-Context", base64.StdEncoding.EncodeToString([]byte(clientContext)))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK && len(body) == 0 { // no function answered
		return fmt.Appendf(nil, `{"errorType":"Emulator","errorMessage":%q}`, res.Status), nil
	}
	return body, err
}

// golden reads an event of ../testdata/events.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata/events", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func freePort(t *testing.T) string {
	t.Helper()
	var cfg net.ListenConfig
	l, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// output is what a process has printed.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// eventually waits until something is so, for a few seconds at most.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 500 {
		if so() {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("not within 5 s: " + what)
}

// gone tells whether a process has ended.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
