package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
	"toolledger/writers"
)

const (
	killedFresh  = 3  // calls that a worker is the first to make
	killedAgain  = 3  // calls that it makes again, of workers before it
	killedPoints = 18 // requests that a worker makes, about
	killedCost   = 5
	killedTokens = 100_000
	killedKills  = 12
	killedSoak   = 120
	killedTime   = 3 * time.Minute // for the last worker to bring every call to its end
)

// killedWorker is what a worker process is told.
type killedWorker struct {
	Store, Outside, Table string
	From, To              int // of the calls that it makes
}

// TestKilledWorker is the body of a worker process, and no test where nobody told it to be one.
func TestKilledWorker(t *testing.T) {
	told := os.Getenv("SIMULATE_WORKER")
	if told == "" {
		t.Skip("a worker of TestKilledProcessesSoak")
	}
	var w killedWorker
	if err := json.Unmarshal([]byte(told), &w); err != nil {
		t.Fatal(err)
	}
	cfg := stack.AWSConfig(w.Store)
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: w.Table, Skew: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	type none struct{}
	tool := &writers.Tool[none, string]{
		Name: "post", Cost: killedCost, Lease: 2 * time.Second, Timeout: time.Second, Horizon: time.Second,
		Lookup: func(none) string { return "" },
		Act: func(ctx context.Context, a writers.Attempt[none]) (string, error) {
			return outsideCall(ctx, http.MethodPost, w.Outside+"/"+a.EffectKey)
		},
		Verify: func(ctx context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
			got, err := outsideCall(ctx, http.MethodGet, w.Outside+"/"+c.EffectKey)
			switch {
			case err != nil:
				return "", writers.EffectUnknown, err
			case got == "":
				return "", writers.EffectAbsent, nil
			}
			return got, writers.EffectApplied, nil
		},
	}
	s := ledger.Tenant("acme").Session("s")
	var wg sync.WaitGroup
	for n := w.From; n < w.To; n++ {
		wg.Go(func() {
			for deadline := time.Now().Add(killedTime); ; {
				_, err := tool.Do(t.Context(), s, writers.SessionKey(fmt.Sprintf("k-%d", n)), none{})
				if err == nil {
					return
				}
				e, ok := errors.AsType[*writers.Error](err)
				if !ok || e.RetryAfter == 0 && e.Code != writers.ErrNotApplied || time.Now().After(deadline) {
					t.Errorf("call %d: %v", n, err)
					return
				}
				time.Sleep(min(e.RetryAfter, time.Second)) // as the answer says
			}
		})
	}
	wg.Wait()
}

// outsideCall makes an effect, or looks for one: "" where there is none.
func outsideCall(ctx context.Context, method, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// crossing is what all requests of the worker go through: it kills the worker, as kill -9 does, right before or right after the
// request that was chosen, and so between any two statements of the worker that can be told apart from outside.
type crossing struct {
	mu      sync.Mutex
	kill    func()
	left    int  // requests until the kill; below 0 for never
	after   bool // it comes after the request
	effects map[string]int
	points  map[string]int // where workers were killed
}

func moment(after bool) string {
	if after {
		return "after"
	}
	return "before"
}

// pass runs one request.
func (c *crossing) pass(name string, run func()) {
	c.mu.Lock()
	c.left--
	hit, after, kill := c.left == 0, c.after, c.kill
	if hit {
		c.points[moment(after)+" "+name]++
	}
	c.mu.Unlock()
	if hit && !after {
		kill()
		panic(http.ErrAbortHandler) // the request is never seen
	}
	run()
	if hit {
		kill()
		panic(http.ErrAbortHandler) // the answer is never seen
	}
}

// outside is a system without idempotency keys: whatever is posted happens, again and again.
func (c *crossing) outside(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/")
	name := map[string]string{http.MethodPost: "act", http.MethodGet: "verify"}[r.Method]
	answer := ""
	c.pass(name, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method == http.MethodPost {
			c.effects[key]++
		}
		if c.effects[key] > 0 {
			answer = "done"
		}
	})
	_, _ = io.WriteString(w, answer)
}

// aim chooses the request that kill comes at.
func (c *crossing) aim(requests int, after bool, kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.after, c.kill = requests, after, kill
}

// TestKilledProcessesSoak: real worker processes, killed (kill -9) before or after any of their requests, leave nothing behind
// that the next one cannot mend: every call takes effect once, in a system that would do it twice, and the books balance to
// the token.
func TestKilledProcessesSoak(t *testing.T) {
	srv, err := stack.Start(t.Context(), stack.Config{DataFile: filepath.Join(t.TempDir(), "ledger.db")})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	db, name := dynamodb.NewFromConfig(srv.AWSConfig()), "killed-"+strings.ToLower(rand.Text()[:8])
	if _, err := stack.CreateTables(t.Context(), db, name, name+"-control", false); err != nil {
		t.Fatal(err)
	}
	ledger, err := writers.New(db, writers.Config{Table: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: killedTokens}); err != nil {
		t.Fatal(err)
	}
	c := &crossing{effects: map[string]int{}, points: map[string]int{}}
	to, err := url.Parse(srv.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		answer := httptest.NewRecorder()
		c.pass(op, func() { proxy.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context()))) })
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(store.Close)
	outside := httptest.NewServer(http.HandlerFunc(c.outside))
	t.Cleanup(outside.Close)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of workers that are no more
	kills := killedKills
	if os.Getenv("TOOLLEDGER_SOAK") != "" {
		kills = killedSoak
	}
	rnd := mathrand.New(mathrand.NewPCG(8, 8)) //nolint:gosec // the same points on every run
	for n := range kills {
		w := killedWorker{store.URL, outside.URL, name, max(0, killedFresh*n-killedAgain), killedFresh * (n + 1)}
		runKilled(t, c, w, 1+rnd.IntN(killedPoints), rnd.IntN(2) == 0)
	}
	calls := killedFresh * kills
	if out, ok := runKilled(t, c, killedWorker{store.URL, outside.URL, name, 0, calls}, -1, false); !ok {
		t.Fatalf("the last worker: %s", out)
	}
	t.Logf("%d workers were to be killed; killed %v", kills, c.points)
	if len(c.effects) != calls {
		t.Errorf("%d effects of %d calls", len(c.effects), calls)
	}
	for key, n := range c.effects {
		if n != 1 {
			t.Errorf("%s took effect %d times", key, n)
		}
	}
	balanced(t, db, name, int64(calls))
}

// runKilled runs a worker process until it ends or is killed, and tells how it ended.
func runKilled(t *testing.T, c *crossing, w killedWorker, requests int, after bool) (string, bool) {
	t.Helper()
	told, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), killedTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledWorker$")
	cmd.Env = append(os.Environ(), "SIMULATE_WORKER="+string(told))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started := make(chan struct{})
	c.aim(requests, after, func() {
		<-started
		_ = cmd.Process.Kill()
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	err = cmd.Wait()
	c.aim(-1, false, nil)
	return out.String(), err == nil
}

// balanced holds the books by raw items: what is gone from the quota is what applied rows have debited, and no row is open.
func balanced(t *testing.T, db *dynamodb.Client, name string, calls int64) {
	t.Helper()
	out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(name), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	var items []struct {
		PK        string           `dynamodbav:"pk"`
		SK        string           `dynamodbav:"sk"`
		State     string           `dynamodbav:"state"`
		Granted   int64            `dynamodbav:"granted"`
		Remaining int64            `dynamodbav:"remaining"`
		Debits    map[string]int64 `dynamodbav:"debits"`
	}
	if err := attributevalue.UnmarshalListOfMaps(out.Items, &items); err != nil {
		t.Fatal(err)
	}
	var spent, debited int64
	for _, it := range items {
		switch {
		case !strings.HasPrefix(it.PK, "TENANT#"): // an observation
		case strings.HasPrefix(it.SK, "QUOTA#"):
			spent += it.Granted - it.Remaining
		case strings.HasPrefix(it.SK, "TOOL#"):
			if it.State != "applied" {
				t.Errorf("%s is %s", it.SK, it.State)
			}
			for _, n := range it.Debits {
				debited += n
			}
		}
	}
	if want := calls * killedCost; spent != want || debited != want {
		t.Errorf("%d spent and %d debited, want %d", spent, debited, want)
	}
}
