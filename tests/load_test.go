package tests_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// How hard dev is driven. A soak takes as long as the promise says.
const (
	loadConnections = 64
	loadTime        = 3 * time.Second
	loadSoakTime    = 30 * time.Second

	// loadGrowth is how much more memory dev may hold at the end than after warming up:
	// it holds nothing of a call that has ended.
	loadGrowth = 48 << 20
)

// loadClient is one connection that makes calls one after the other.
type loadClient struct {
	d     *devProcess
	http  *http.Client
	name  string
	took  []time.Duration
	calls int
	acts  *sync.Map // effect key → *atomic.Int64
}

// post sends a request and returns its answer. Errors of any kind are the test's failure: nothing here is expected to fail.
func (c *loadClient) post(op string, body map[string]any) (map[string]any, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, c.d.ready.HTTP+"/v1/"+op, strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Tenant-Id", "acme")
	began := time.Now()
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	c.took = append(c.took, time.Since(began))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s %s %w", op, res.Status, answer, err)
	}
	var doc map[string]any
	return doc, json.Unmarshal(answer, &doc)
}

// act is the effect: it counts itself by its effect key.
func (c *loadClient) act(doc map[string]any) {
	n, _ := c.acts.LoadOrStore(doc["effect_key"], new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// once makes one call to its end: commits, repeats of them, and reservations, as clients mix them.
func (c *loadClient) once() error {
	c.calls++
	call := map[string]any{
		"session": c.name, "key": fmt.Sprintf("k-%d", c.calls), "tool": "load", "args": map[string]any{"n": c.calls}, "tokens": 1, "result": c.calls,
	}
	if c.calls%4 != 0 {
		for _, want := range []string{"applied", "replayed"} {
			doc, err := c.post("commit", call)
			if err != nil || doc["outcome"] != want || doc["result"] != float64(c.calls) {
				return fmt.Errorf("%s %d: %v %w", c.name, c.calls, doc, err)
			}
			if want == "applied" {
				c.act(doc)
			}
			if c.calls%4 != 1 {
				break
			}
		}
		return nil
	}
	delete(call, "result")
	held, err := c.post("reserve", call)
	if err != nil || held["outcome"] != "reserved" {
		return fmt.Errorf("%s %d: %v %w", c.name, c.calls, held, err)
	}
	c.act(held)
	doc, err := c.post("finalize", map[string]any{
		"session": c.name, "key": call["key"], "row_id": held["row_id"], "attempt": held["attempt"], "result": c.calls,
	})
	if err != nil || doc["outcome"] != "applied" {
		return fmt.Errorf("%s %d: %v %w", c.name, c.calls, doc, err)
	}
	return nil
}

// memory is what a process holds, in bytes; 0 where this system does not tell.
func memory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// TestLoadSoak: 64 connections drive dev without one error; its memory stays where it was, and every effect happens once.
func TestLoadSoak(t *testing.T) {
	d := startDev(t, "--sweep-every", "10s")
	lasts := loadTime
	if soaking() {
		lasts = loadSoakTime
	}
	transport := &http.Transport{MaxIdleConns: loadConnections, MaxIdleConnsPerHost: loadConnections, MaxConnsPerHost: loadConnections}
	t.Cleanup(transport.CloseIdleConnections)
	var acts sync.Map
	clients := make([]*loadClient, loadConnections)
	for i := range clients {
		clients[i] = &loadClient{d: d, http: &http.Client{Transport: transport, Timeout: time.Minute}, name: fmt.Sprintf("s-%d", i), acts: &acts}
	}
	drive := func(until time.Time) {
		t.Helper()
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				for first := true; first || time.Now().Before(until); first = false {
					if err := c.once(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	drive(time.Now().Add(lasts / 3)) // warm: connections, pools and the heap are as large as they get
	before, warm, began := memory(d.cmd.Process.Pid), 0, time.Now()
	for _, c := range clients {
		warm += len(c.took)
	}
	drive(time.Now().Add(lasts))
	after, drove := memory(d.cmd.Process.Pid), time.Since(began)

	total, took := 0, []time.Duration{}
	for _, c := range clients {
		total, took = total+c.calls, append(took, c.took...)
	}
	slices.Sort(took)
	t.Logf("%d calls in %d requests over %d connections, %.0f a second: p50 %s, p99 %s; memory %d MB, then %d MB", total, len(took), loadConnections,
		float64(len(took)-warm)/drove.Seconds(),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), before>>20, after>>20)
	if grown := after - before; grown > loadGrowth {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	effects := 0
	acts.Range(func(key, n any) bool {
		if effects++; n.(*atomic.Int64).Load() != 1 {
			t.Errorf("%v took effect %d times", key, n.(*atomic.Int64).Load())
		}
		return true
	})
	if effects != total {
		t.Errorf("%d effects of %d calls", effects, total)
	}
	if _, doc := d.ask("GET", "/v1/quota", ""); doc["remaining_tokens"] != float64(1_000_000-total) {
		t.Errorf("%v tokens remain after %d calls of one", doc["remaining_tokens"], total)
	}
}
