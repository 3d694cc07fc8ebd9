package whole_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

const (
	root    = "../../.."
	region  = "us-east-1"
	account = "000000000000" // of the local AWS
)

// cloud is a running local AWS.
type cloud struct {
	url   string
	cmd   *exec.Cmd // a shell that leads the group of the local AWS and its functions
	input io.Closer
	log   *output
	done  chan struct{}
}

// python is the interpreter of one of the tools' environments.
func python(t *testing.T, environment string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, ".local/python", environment, "bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the tools are missing: run make setup-deploy, once with a network: %v", err)
	}
	return path
}

// watch runs a program until its own input ends, which it does with the process that holds the other end: also after a time-out
// of the tests, which run no clean-up then. What the program has started is in the same group and goes with it.
const watch = `"$@" & pid=$!; cat >/dev/null; kill "$pid"; wait "$pid"; kill -KILL 0`

// startCloud starts an empty local AWS that evaluates IAM policies. It and what it started end with the test.
func startCloud(t *testing.T, env ...string) *cloud {
	t.Helper()
	interpreter := python(t, "ministack")
	port := freePort(t)
	dir := t.TempDir()
	c := &cloud{url: "http://127.0.0.1:" + strconv.Itoa(port), log: &output{}, done: make(chan struct{})}
	c.cmd = exec.Command("sh", "-c", watch, "sh", interpreter, "-m", "ministack")
	c.cmd.Dir = dir
	c.cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "STATE_DIR=" + dir, "BIND_HOST=127.0.0.1", "MINISTACK_HOST=127.0.0.1",
		"GATEWAY_PORT=" + strconv.Itoa(port), "IOT_MTLS_ENABLED=0", "SFTP_ENABLED=0", "AUTH=true",
		// The functions inherit these, so that they call back.
		"AWS_ENDPOINT_URL=" + c.url, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION=" + region,
	}
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its functions are its children: they end with the group
	input, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.input = input
	go func() { // ends with the process, which the clean-up ends
		_ = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() { c.stop(t) })
	c.within(t, 60*time.Second, "the local AWS answers", func() bool {
		select {
		case <-c.done:
			t.Fatalf("the local AWS ended: %s", c.log)
		default:
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/_ministack/health", http.NoBody)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return c
}

func (c *cloud) stop(t *testing.T) {
	_ = c.input.Close()
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // the group that this test made
	<-c.done
	if t.Failed() {
		t.Logf("the local AWS said:\n%s", c.log.tail(60))
	}
}

// config is for clients with a key of the account's own, or of a session.
func (c *cloud) config(key, secret, token string) aws.Config {
	return aws.Config{
		Region: region, BaseEndpoint: aws.String(c.url), Credentials: credentials.NewStaticCredentialsProvider(key, secret, token),
		DisableRequestCompression: true,
	}
}

func (c *cloud) root() aws.Config { return c.config("test", "test", "") }

// within waits until something is so.
func (c *cloud) within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", limit, what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	var cfg net.ListenConfig
	l, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	return addr.Port
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

func (o *output) tail(lines int) string {
	all := strings.Split(o.String(), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// transformed is template.yaml after the SAM transform, as the tools of the earlier rungs make it.
func transformed(t *testing.T, params map[string]string) map[string]any {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(map[string]any{"op": "transform", "template": string(source), "params": params})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t, "sam"), "../check.py")
	cmd.Stdin = bytes.NewReader(append(line, '\n'))
	out, err := cmd.Output()
	var answer struct {
		Template map[string]any   `json:"template"`
		Findings []map[string]any `json:"findings"`
	}
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	if err != nil || answer.Template == nil {
		t.Fatalf("transform: %v %v", err, answer.Findings)
	}
	return answer.Template
}

// packages builds what SAM would build for each function, into a zip for each, by logical id. Functions that are built the
// same way share one.
func packages(t *testing.T, functions []string, arch string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	env := make([]string, 0, len(os.Environ()))
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MAKE") && !strings.HasPrefix(kv, "MFLAGS") {
			env = append(env, kv)
		}
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "make", append(args, "-s", "LAMBDA_ARCH="+arch)...)
		cmd.Dir, cmd.Env = root, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make %s: %v: %s", args, err, out)
		}
		return string(out)
	}
	byRecipe, out := map[string][]byte{}, map[string][]byte{}
	for i, id := range functions {
		recipe := run("-n", "build-"+id, "ARTIFACTS_DIR=@")
		if byRecipe[recipe] == nil {
			to := filepath.Join(dir, fmt.Sprint(i))
			run("build-"+id, "ARTIFACTS_DIR="+to)
			byRecipe[recipe] = zipped(t, filepath.Join(to, "bootstrap"))
		}
		out[id] = byRecipe[recipe]
	}
	return out
}
