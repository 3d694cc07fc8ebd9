package prbot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/examples/prbot"
	"toolledger/examples/prbot/forge"
	"toolledger/internal/stack"
	"toolledger/tests/rig"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

// The environment that makes this test program a worker, which the tests can kill.
const (
	workerForge    = "PRBOT_WORKER_FORGE"
	workerDynamoDB = "PRBOT_WORKER_DYNAMODB"
	workerTable    = "PRBOT_WORKER_TABLE"
	workerTenant   = "PRBOT_WORKER_TENANT"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerForge) == "" {
		os.Exit(m.Run())
	}
	said, err := workOnce(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(said)
}

// workOnce is one attempt of a worker: a process of its own, with the time that the rig has.
func workOnce(ctx context.Context) (string, error) {
	now := time.Date(2026, time.November, 30, 1, 53, 2, 0, time.UTC)
	ledger, err := writers.New(dynamodb.NewFromConfig(stack.AWSConfig(os.Getenv(workerDynamoDB))), writers.Config{
		Table: os.Getenv(workerTable), Now: func() time.Time { return now },
	})
	if err != nil {
		return "", err
	}
	s := ledger.Tenant(writers.TenantID(os.Getenv(workerTenant))).Session("s")
	return prbot.Step(ctx, prbot.New(&prbot.Client{Base: os.Getenv(workerForge)}), s, "pr-1", args("fix/1"))
}

// site is a forge over HTTP, a ledger whose sessions have pushed a branch, and workers.
type site struct {
	*rig.Rig
	t      *testing.T
	forge  *forge.Server
	server *httptest.Server
}

func newSite(t *testing.T, opened func(string, forge.Pull)) *site {
	t.Helper()
	s := &site{Rig: rig.New(t), t: t, forge: forge.New(opened)}
	s.server = httptest.NewServer(s.forge)
	t.Cleanup(s.server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.server.URL+"/repos/acme/api/branches/fix/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusNoContent {
		t.Fatal(res, err)
	}
	return s
}

func (s *site) pushed(tenant string) {
	s.t.Helper()
	_, err := s.Ledger.Tenant(writers.TenantID(tenant)).Session("s").Commit(s.t.Context(), writers.Call{
		Key: writers.SessionKey("push-1"), Tool: "push_branch", Cursor: "branch-pushed",
	}, "pushed")
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) worker(tenant string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerForge+"="+s.server.URL, workerDynamoDB+"="+*s.AWS.BaseEndpoint, workerTable+"="+s.Table, workerTenant+"="+tenant)
	return cmd
}

// TestWorkerKilledAfterCreation: a worker is killed when the forge has its pull request and has told nobody. Whoever comes
// next, in a storm or alone, finds the pull request by its branch and records it; there is one, paid once.
func TestWorkerKilledAfterCreation(t *testing.T) {
	opened, gone := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	s := newSite(t, func(string, forge.Pull) {
		if once.CompareAndSwap(false, true) {
			close(opened)
			<-gone
		}
	})
	t.Cleanup(func() { close(gone) }) // before the server is closed
	s.pushed("acme")
	dying := s.worker("acme")
	if err := dying.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-opened:
	case <-time.After(30 * time.Second):
		t.Fatal("the worker opens nothing")
	}
	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := dying.Wait(); err == nil {
		t.Fatal("the worker ended well")
	}
	if row, err := s.Ledger.Tenant("acme").Session("s").Get(t.Context(), writers.SessionKey("pr-1")); err != nil || row.State != writers.StatePending {
		t.Fatalf("%s %v", row.State, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			out, err := s.worker("acme").CombinedOutput()
			if err != nil || !bytes.HasPrefix(out, []byte("#1 https://forge.example/acme/api/pull/1 (")) {
				t.Errorf("%s %v", out, err)
			}
		})
	}
	wg.Wait()
	if s.forge.Opens() != 1 || s.Remaining("acme") != 980 {
		t.Fatalf("%d pull requests, %d tokens", s.forge.Opens(), s.Remaining("acme"))
	}
	writerstest.Balanced(t, s.Ledger)
}

// TestStormWithoutQuota: a run whose tenant cannot pay is told so, and does not ask to be repeated; the forge is not asked.
func TestStormWithoutQuota(t *testing.T) {
	s := newSite(t, nil)
	s.Plan("poor", writers.Plan{Tokens: 19})
	s.pushed("poor")
	for range 2 {
		out, err := s.worker("poor").Output()
		if err != nil || !strings.HasPrefix(string(out), "not done: ") || !strings.Contains(string(out), "quota_exhausted") {
			t.Fatalf("%s %v", out, err)
		}
	}
	if s.forge.Opens() != 0 {
		t.Fatalf("%d pull requests", s.forge.Opens())
	}
}

// TestClient: what the forge surely did not do is told apart from what nobody knows.
func TestClient(t *testing.T) {
	s := newSite(t, nil)
	c := &prbot.Client{Base: s.server.URL}
	if _, err := c.Open(t.Context(), "acme/api", "none", "x"); !errors.Is(err, prbot.ErrRefused) {
		t.Errorf("no branch: %v", err)
	}
	if _, found, err := c.FindByBranch(t.Context(), "acme/api", "fix/1"); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	pr, err := c.Open(t.Context(), "acme/api", "fix/1", "x")
	if again, found, ferr := c.FindByBranch(t.Context(), "acme/api", "fix/1"); err != nil || ferr != nil || !found || again != pr {
		t.Errorf("%v %v %v %v", pr, again, err, ferr)
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusBadGateway) }))
	t.Cleanup(broken.Close)
	c.Base = broken.URL
	if _, err := c.Open(t.Context(), "acme/api", "fix/1", "x"); err == nil || errors.Is(err, prbot.ErrRefused) {
		t.Errorf("502: %v", err)
	}
	if _, _, err := c.FindByBranch(t.Context(), "acme/api", "fix/1"); err == nil {
		t.Error("502 is no answer")
	}
}
