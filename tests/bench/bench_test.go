package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"

	"toolledger/writers"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fail(err)
		}
		return
	}
	os.Exit(m.Run())
}

// Ratios mean something only while the floor sends what the ledger sends: the same requests of the same bytes, but for
// random ids, times and the index partition of the key.
func TestFloorSendsTheSameBytes(t *testing.T) {
	fix := hotFixtureOf(t)
	for _, c := range hotCases {
		t.Run(c.name, func(t *testing.T) {
			net := &capture{script: fix.scripts[c.path], keep: true}
			floor := fix.floor
			floor.db = net.client()
			ledger, err := newLedger(net.client())
			if err != nil {
				t.Fatal(err)
			}
			one := c.call(ledger.Tenant(tenant).Session(session))
			sent := map[bool][]captured{}
			for _, n := range []int64{1, 2} { // the first reads the plan
				net.take()
				if err := one(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				sent[true] = net.take()
				if err := c.floor(&floor)(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				sent[false] = net.take()
			}
			if ours, floors := masked(t, sent[true]), masked(t, sent[false]); !reflect.DeepEqual(ours, floors) {
				t.Errorf("the ledger sends\n%s\nthe floor\n%s", ours, floors)
			}
		})
	}
}

// varies are the values that differ from call to call, and how much of each is compared: its length, or that it is there.
var (
	varies  = regexp.MustCompile(`^(rowId|holder|createdAt|updatedAt|expiresAt|deadline|:guardRow|:now|:expires|:updatedAt|:expiresAt|:obsId|ClientRequestToken)$`)
	differs = "pendingBucket"
)

// masked is what was sent, by request: the operation and the body in a fixed order of keys.
func masked(t *testing.T, sent []captured) []string {
	t.Helper()
	all := make([]string, len(sent))
	for i, r := range sent {
		var body any
		if err := json.Unmarshal(r.body, &body); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(mask("", body))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = r.operation + " " + string(text)
	}
	return all
}

func mask(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			under := k
			if len(k) == 1 { // the type of the value that is named above
				under = name
			}
			v[k] = mask(under, inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = mask("", inner)
		}
	case string:
		switch {
		case varies.MatchString(name):
			return strings.Repeat("x", len(v))
		case name == differs:
			return "x"
		}
	}
	return v
}

// A commit may take 20 allocations and 2 KB more than the floor: what it costs to hash, check and keep books.
func TestCommitAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	fix := hotFixtureOf(t)
	net := &capture{script: fix.scripts["ok"]}
	floor := fix.floor
	floor.db = net.client()
	ledger, err := newLedger(net.client())
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	run := func(do call) (allocs, bytes float64) {
		const calls = 500
		var before, after runtime.MemStats
		allocs = testing.AllocsPerRun(calls, func() {
			if n++; n%(calls+1) == 1 { // AllocsPerRun calls once more, to warm up
				runtime.ReadMemStats(&before)
			}
			if err := do(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		})
		runtime.ReadMemStats(&after)
		return allocs, float64(after.TotalAlloc-before.TotalAlloc) / (calls + 1)
	}
	one := commitCall(ledger.Tenant(tenant).Session(session))
	if err := one(t.Context(), 0); err != nil { // reads the plan
		t.Fatal(err)
	}
	floorAllocs, floorBytes := run(floor.commit)
	for name, do := range map[string]call{"JSON": one, "Go types": typedCommit(ledger)} {
		allocs, bytes := run(do)
		t.Logf("%s: %.0f allocations (%+.0f), %.0f bytes (%+.0f)", name, allocs, allocs-floorAllocs, bytes, bytes-floorBytes)
		if allocs > floorAllocs+20 {
			t.Errorf("%s: a commit allocates %.0f times, the floor %.0f", name, allocs, floorAllocs)
		}
		if bytes > floorBytes+2048 {
			t.Errorf("%s: a commit allocates %.0f bytes, the floor %.0f", name, bytes, floorBytes)
		}
	}
}

// typedCommit is the same call by a tool that has Go types, which are encoded too.
func typedCommit(l *writers.Ledger) call {
	type (
		booking struct {
			Flight    string `json:"flight"`
			Passenger string `json:"passenger"`
			Seats     int    `json:"seats"`
		}
		receipt struct {
			Reservation string `json:"reservation"`
			Total       int    `json:"total"`
		}
	)
	bookFlight := writers.Tool[booking, receipt]{Name: tool, Cost: cost}
	s := l.Tenant(tenant).Session(session)
	withCursor := func(c *writers.Call) { c.Cursor = cursor }
	return func(ctx context.Context, n int64) error {
		_, err := bookFlight.Commit(ctx, s, writers.SessionKey(keyOf(n)), booking{"HAT083", "mia_li_3668", 2}, receipt{"ZFA04Y", 1286}, withCursor)
		return err
	}
}

// Rows are billed by the kilobyte, on every write: a typical one stays within the first.
func TestTypicalRowIsUnderAKilobyte(t *testing.T) {
	fix := hotFixtureOf(t)
	full := committed(3)
	full.Key = writers.SessionKey("toolu_01A09q90qw90lq917835lq9") // as models name their calls
	full.Lookup = `{"reference":"HAT083/mia_li_3668/2026-11-30"}`
	full.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	full.Idempotent = true
	net := &capture{script: fix.scripts["ok"], keep: true}
	ledger, err := newLedger(net.client())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Tenant("tenant-7f3a9c").Session("conv-2f6e1d0c-9a51-4f7b-8f0e-3f1f5a7d2b90").Commit(t.Context(), full, received); err != nil {
		t.Fatal(err)
	}
	row, err := putRow(net.take())
	if err != nil {
		t.Fatal(err)
	}
	item, err := attributevalue.UnmarshalMapJSON(row)
	if err != nil {
		t.Fatal(err)
	}
	size := sizeOf(item)
	t.Logf("%d bytes", size)
	if size >= 1024 {
		t.Errorf("the row has %d bytes", size)
	}
}

// Every benchmark runs and gives the results that it is listed with, and the file has them in the form that scripts read.
func TestEveryResultIsThere(t *testing.T) {
	results, err := runAll(t.Context(), &env{quick: true}, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sub", "bench.json")
	if err := writeJSON(file, results); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read map[string]map[string]any
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, r := range results {
		given[r.Name] = true
	}
	for _, b := range benchmarks {
		if (b.name == "units" || b.name == "sweep") && !given[b.results[0]] {
			t.Logf("the local DynamoDB is not installed: %s is left out", b.name)
			continue
		}
		for _, name := range b.results {
			if len(read[name]) != 4 || read[name]["unit"] == "" {
				t.Errorf("%s: %v", name, read[name])
			}
		}
	}
}

func hotFixtureOf(t *testing.T) *hotFixture {
	t.Helper()
	fix, err := newHotFixture(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fix
}
