package stack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"go.uber.org/goleak"

	"toolledger/internal/stack"
)

// helperMode makes this test binary the parent that TestKilledParent kills.
const helperMode = "TOOLLEDGER_STACK_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperMode) != "" {
		holdServer()
		return
	}
	goleak.VerifyTestMain(m)
}

// holdServer starts a server, says where, and waits to be killed.
func holdServer() {
	srv, err := stack.Start(context.Background(), stack.Config{})
	if err != nil {
		os.Exit(3)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"endpoint": srv.Endpoint(), "pid": srv.Pid()})
	time.Sleep(time.Minute)
}

func start(t *testing.T, cfg stack.Config) *stack.Server {
	t.Helper()
	srv, err := stack.Start(t.Context(), cfg)
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// answers reports whether somebody accepts connections at the endpoint.
func answers(endpoint string) bool {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(endpoint, "http://"), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func put(t *testing.T, srv *stack.Server, table, key string) {
	t.Helper()
	_, err := dynamodb.NewFromConfig(srv.AWSConfig()).PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: aws.String(table),
		Item: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: key}, "sk": &types.AttributeValueMemberS{Value: "x"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, srv *stack.Server, table string) int32 {
	t.Helper()
	out, err := dynamodb.NewFromConfig(srv.AWSConfig()).Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Count
}

// Promise: a server answers until Stop, which may be called again, and then nothing listens any more.
func TestStartStop(t *testing.T) {
	srv := start(t, stack.Config{})
	if !answers(srv.Endpoint()) {
		t.Fatal("the started server does not answer")
	}
	if _, err := dynamodb.NewFromConfig(srv.AWSConfig()).ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	srv.Stop()
	if answers(srv.Endpoint()) {
		t.Error("somebody answers after Stop")
	}
	select {
	case <-srv.Exited():
	default:
		t.Error("Exited is open after Stop")
	}
}

// Promise: several servers at once get ports of their own.
func TestServersDoNotShareAPort(t *testing.T) {
	a, b := start(t, stack.Config{}), start(t, stack.Config{})
	if a.Endpoint() == b.Endpoint() {
		t.Fatalf("both at %s", a.Endpoint())
	}
}

// Promise: a parent that is killed leaves no server behind, and neither does one that a signal ends.
func TestKilledParent(t *testing.T) {
	start(t, stack.Config{}).Stop() // skips where dynoxide is missing
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), helperMode+"=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadBytes('\n')
			if err != nil {
				t.Fatalf("the helper started nothing: %v", err)
			}
			var at struct {
				Endpoint string
				Pid      int
			}
			if err := json.Unmarshal(line, &at); err != nil {
				t.Fatal(err)
			}
			if !answers(at.Endpoint) {
				t.Fatal("the helper's server does not answer")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for range 200 {
				if !answers(at.Endpoint) {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			_ = syscall.Kill(at.Pid, syscall.SIGKILL)
			t.Errorf("the server still answers 2 s after its parent got %s", sig)
		})
	}
}

// Promise: what was acknowledged is still there after kill -9 of the server and a restart on the same file and port.
func TestDataFileSurvivesCrash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.db")
	srv := start(t, stack.Config{DataFile: file})
	if _, err := stack.CreateTables(t.Context(), dynamodb.NewFromConfig(srv.AWSConfig()), "toolledger-test", "toolledger-test-control", true); err != nil {
		t.Fatal(err)
	}
	endpoint, pid := srv.Endpoint(), srv.Pid()
	for n, crash := range []func() error{
		func() error { srv.Crash(); return nil },
		func() error { return syscall.Kill(srv.Pid(), syscall.SIGKILL) }, // by somebody else
		func() error { srv.Stop(); return nil },
		func() error { return nil }, // Restart itself kills
	} {
		put(t, srv, "toolledger-test", strings.Repeat("k", n+1))
		exited := srv.Exited()
		if err := crash(); err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			<-exited
			if answers(endpoint) {
				t.Fatalf("crash %d: the server still answers", n)
			}
		}
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if srv.Endpoint() != endpoint || srv.Pid() == pid {
			t.Fatalf("crash %d: restarted at %s as %d, was at %s as %d", n, srv.Endpoint(), srv.Pid(), endpoint, pid)
		}
		if got := count(t, srv, "toolledger-test"); got != int32(n+1) {
			t.Fatalf("crash %d: %d items, want %d", n, got, n+1)
		}
		pid = srv.Pid()
	}
}

// Promise: a missing dynoxide is named with its platform and the way out, before anything runs.
func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	empty := t.TempDir()
	notExecutable := filepath.Join(empty, "dynoxide")
	if err := os.WriteFile(notExecutable, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]stack.Config{
		"nowhere":        {Dir: empty},
		"no such binary": {Binary: filepath.Join(empty, "none")},
		"not executable": {Binary: notExecutable},
		"a folder":       {Binary: empty},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stack.Start(t.Context(), cfg)
			if !errors.Is(err, stack.ErrNotInstalled) {
				t.Fatalf("got %v, want ErrNotInstalled", err)
			}
			if cfg.Binary == "" && !strings.Contains(err.Error(), stack.Platform()) {
				t.Errorf("%q does not name the platform %s", err, stack.Platform())
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

// Promise: the binary on the PATH serves where the project has none, and .local of a folder above comes first.
func TestFindOrder(t *testing.T) {
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	local := filepath.Join(root, ".local", "dynoxide", stack.Version, "node_modules", "@dynoxide", stack.Platform())
	deep := filepath.Join(root, "a", "b")
	for _, dir := range []string{bin, local, deep} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	onPath, installed := filepath.Join(bin, "dynoxide"), filepath.Join(local, "dynoxide")
	if err := os.WriteFile(onPath, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if got, err := stack.Find(stack.Config{Dir: deep}); err != nil || got != onPath {
		t.Errorf("without .local: %q, %v, want %q", got, err, onPath)
	}
	if err := os.WriteFile(installed, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := stack.Find(stack.Config{Dir: deep}); err != nil || got != installed {
		t.Errorf("with .local: %q, %v, want %q", got, err, installed)
	}
}

// Promise: a server that cannot start is an error that says what dynoxide said, in bounded time, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	noDatabase := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(noDatabase, []byte(strings.Repeat("no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "says-no")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho because of the weather >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cfg  stack.Config
		want error
		text string
	}{
		"folder missing":  {stack.Config{DataFile: filepath.Join(dir, "none", "x.db")}, stack.ErrDataFile, "folder does not exist"},
		"file is folder":  {stack.Config{DataFile: dir}, stack.ErrDataFile, "is a folder"},
		"not a database":  {stack.Config{DataFile: noDatabase}, stack.ErrDataFile, "is no SQLite database"},
		"ends at once":    {stack.Config{Binary: script}, stack.ErrStart, "exit status 7: because of the weather"},
		"not a programme": {stack.Config{Binary: "/bin/false"}, stack.ErrStart, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stack.Start(t.Context(), tt.cfg)
			if errors.Is(err, stack.ErrNotInstalled) {
				t.Skip(err)
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

// Promise: a caller that gives up is not kept, and the half-started server is gone.
func TestStartCancelled(t *testing.T) {
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := stack.Start(ctx, stack.Config{Binary: silent})
	if !errors.Is(err, stack.ErrStart) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrStart and the deadline", err)
	}
}

// Promise: a child process that knows only Environ's variables reaches the local stack with the SDK's defaults, for both
// services.
func TestEnvironIsWhatTheSDKReads(t *testing.T) {
	srv := start(t, stack.Config{})
	for _, variable := range srv.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Region != stack.Region {
		t.Errorf("region %q, want %q", cfg.Region, stack.Region)
	}
	cfg.HTTPClient = srv.AWSConfig().HTTPClient
	if _, err := dynamodb.NewFromConfig(cfg).ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Error(err)
	}
	if _, err := dynamodbstreams.NewFromConfig(cfg).ListStreams(t.Context(), &dynamodbstreams.ListStreamsInput{}); err != nil {
		t.Error(err)
	}
}

// Promise: the version in the code is the one that every manifest pins, with an integrity hash and no registry address.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("npm/*/package-lock.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct{ Version, Integrity, Resolved string }
		}
		if err := json.Unmarshal(data, &lock); err != nil {
			t.Fatal(err)
		}
		pkg := lock.Packages["node_modules/@dynoxide/"+filepath.Base(filepath.Dir(file))]
		if pkg.Version != stack.Version || !strings.HasPrefix(pkg.Integrity, "sha512-") || pkg.Resolved != "" {
			t.Errorf("%s pins %+v, want version %s with a sha512 and no address", file, pkg, stack.Version)
		}
	}
}
