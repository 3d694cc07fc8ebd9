package tests_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolledger/internal/stack"
)

// How large the retry storm is. A soak runs it in full.
const (
	httpStormAttempts = 5_000
	httpStormSoak     = 50_000
	httpStormPerKey   = 50 // attempts for each key: 1,000 keys in full
	httpStormCallers  = 64
	httpStormRestarts = 5
	httpStormCost     = 3
	httpStormTokens   = 100_000_000
	httpStormSettle   = 2 * time.Minute // for the last leases to run out and every key to be settled
)

// httpStorm is many callers that know nothing of each other and try the same calls again and again, through one front.
type httpStorm struct {
	t    *testing.T
	d    *devProcess
	http *http.Client
	keys int

	acts    sync.Map // effect key → *atomic.Int64, the calls of an outside system that takes idempotency keys
	results []atomic.Pointer[string]
	applied []atomic.Int64

	mu       sync.Mutex
	outcomes map[string]int
	took     []time.Duration
}

func newHTTPStorm(t *testing.T, d *devProcess, keys int) *httpStorm {
	transport := &http.Transport{MaxIdleConnsPerHost: httpStormCallers, MaxConnsPerHost: httpStormCallers}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpStorm{
		t: t, d: d, http: &http.Client{Transport: transport, Timeout: time.Minute}, keys: keys,
		results: make([]atomic.Pointer[string], keys), applied: make([]atomic.Int64, keys), outcomes: make(map[string]int),
	}
}

// httpStormAnswer is what the front says, a result or a problem.
type httpStormAnswer struct {
	Outcome   string          `json:"outcome"`
	Code      string          `json:"code"`
	RowID     string          `json:"row_id"`
	Attempt   int64           `json:"attempt"`
	EffectKey string          `json:"effect_key"`
	Result    json.RawMessage `json:"result"`
}

func (s *httpStorm) post(op string, body map[string]any) (*httpStormAnswer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.d.ready.HTTP+"/v1/"+op, strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Tenant-Id", "acme")
	began := time.Now()
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &httpStormAnswer{}
	if err := json.NewDecoder(res.Body).Decode(a); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", op, res.Status, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, time.Since(began))
	s.outcomes[a.Outcome+a.Code]++
	return a, nil
}

// attempt is one try of one call by one caller. Its result is nobody else's, so that a wrong replay shows.
// It returns true once the call is known to have taken effect.
func (s *httpStorm) attempt(key int, mark string, dies bool) (bool, error) {
	call := map[string]any{
		"session": fmt.Sprintf("s-%d", key%50), "key": fmt.Sprintf("k-%d", key), "tool": "storm", "args": map[string]any{"n": key}, "tokens": httpStormCost,
	}
	if key%2 == 0 {
		call["result"] = mark
		a, err := s.post("commit", call)
		if err != nil {
			return false, err
		}
		return s.settled(key, a)
	}
	call["idempotent"], call["lease_seconds"], call["horizon_seconds"] = true, 1, 1
	a, err := s.post("reserve", call)
	if err != nil || a.Outcome != "reserved" {
		if err != nil {
			return false, err
		}
		return s.settled(key, a)
	}
	n, _ := s.acts.LoadOrStore(a.EffectKey, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	if dies {
		return false, nil
	}
	a, err = s.post("finalize", map[string]any{
		"session": call["session"], "key": call["key"], "row_id": a.RowID, "attempt": a.Attempt, "result": mark,
	})
	if err != nil {
		return false, err
	}
	return s.settled(key, a)
}

// settled takes an answer down and holds it against those before.
func (s *httpStorm) settled(key int, a *httpStormAnswer) (bool, error) {
	switch a.Outcome + a.Code {
	case "applied":
		if s.applied[key].Add(1) > 1 {
			return true, fmt.Errorf("call %d was applied more than once", key)
		}
	case "replayed", "settled_late":
	case "in_progress", "unavailable", "attempt_superseded":
		return false, nil
	default:
		return false, fmt.Errorf("call %d: outcome %q, code %q", key, a.Outcome, a.Code)
	}
	got := string(a.Result)
	if first := s.results[key].Swap(&got); first != nil && *first != got {
		return true, fmt.Errorf("call %d: result %s, and %s to somebody else", key, got, *first)
	}
	return true, nil
}

// blow makes the attempts, and has the store crash and come back at even distances among them.
func (s *httpStorm) blow(attempts int, restart func() error) {
	s.t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for caller := range httpStormCallers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(caller))) //nolint:gosec // the storm repeats itself, as far as callers can
			for n := next.Add(1); n <= int64(attempts); n = next.Add(1) {
				if n%int64(attempts/(httpStormRestarts+1)) == 0 && n < int64(attempts) {
					if err := restart(); err != nil {
						s.t.Error(err)
						return
					}
				}
				if _, err := s.attempt(rnd.IntN(s.keys), fmt.Sprintf("%d/%d", caller, n), rnd.IntN(10) == 0); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// settle repeats each call until it has taken effect.
func (s *httpStorm) settle() {
	s.t.Helper()
	deadline := time.Now().Add(httpStormSettle)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range httpStormCallers {
		wg.Go(func() {
			for key := int(next.Add(1)) - 1; key < s.keys; key = int(next.Add(1)) - 1 {
				for done := false; !done; {
					var err error
					if done, err = s.attempt(key, "last", false); err != nil {
						s.t.Error(err)
						return
					}
					if !done && time.Now().After(deadline) {
						s.t.Errorf("call %d has not taken effect", key)
						return
					}
					if !done {
						time.Sleep(100 * time.Millisecond) // between two looks, until the deadline above
					}
				}
			}
		})
	}
	wg.Wait()
}

// check counts effects and holds the books against them.
func (s *httpStorm) check(place []string) {
	s.t.Helper()
	effects := 0
	s.acts.Range(func(_, _ any) bool { effects++; return true })
	if want := s.keys / 2; effects != want {
		s.t.Errorf("the outside system saw %d effect keys of %d calls", effects, want)
	}
	for key := range s.keys {
		if s.results[key].Load() == nil {
			s.t.Errorf("call %d has no result", key)
		}
	}
	if _, doc := s.d.ask("GET", "/v1/quota", ""); doc["remaining_tokens"] != float64(httpStormTokens-httpStormCost*s.keys) {
		s.t.Errorf("%v tokens remain after %d calls of %d", doc["remaining_tokens"], s.keys, httpStormCost)
	}
	if got := runProgram(s.t, nil, append([]string{"audit"}, place...)...); got.code != 0 {
		s.t.Errorf("audit: exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	within(s.t, "an event for each effect", func() bool {
		n := s.d.counts()
		return n["ToolEffectApplied"]+n["ToolEffectSettledLate"] == s.keys
	})
}

// TestHTTPStormSoak: a retry storm through one front, on a store that crashes and comes back five times, makes one effect
// for each call, the same answer for everybody, balanced books and one event for each effect.
func TestHTTPStormSoak(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.db")
	store, err := stack.Start(t.Context(), stack.Config{DataFile: file})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(store.Stop)
	d := startDev(t, "--endpoint", store.Endpoint(), "--tokens", fmt.Sprint(httpStormTokens))
	attempts := soak(httpStormAttempts, httpStormSoak)
	s := newHTTPStorm(t, d, attempts/httpStormPerKey)
	began, before := time.Now(), memory(d.cmd.Process.Pid)
	s.blow(attempts, func() error {
		store.Crash()
		return store.Restart(t.Context())
	})
	took, after := time.Since(began), memory(d.cmd.Process.Pid)
	s.settle()
	s.check([]string{"--endpoint", store.Endpoint()})
	slices.Sort(s.took)
	size := int64(0)
	if info, err := os.Stat(file); err == nil {
		size = info.Size()
	}
	t.Logf("%d attempts on %d keys in %s (%.0f/s), %d requests: p50 %s, p99 %s; memory %d MB, then %d MB; file %d MB; %v",
		attempts, s.keys, took.Round(time.Millisecond), float64(attempts)/took.Seconds(), len(s.took),
		s.took[len(s.took)/2].Round(time.Millisecond), s.took[len(s.took)*99/100].Round(time.Millisecond),
		before>>20, after>>20, size>>20, s.outcomes)
}
