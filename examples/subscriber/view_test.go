package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"toolledger/tests/rig"
	"toolledger/writers"
)

// world makes calls of every kind and returns the events that the ledger's stream tells of them.
func world(t *testing.T) (*rig.Rig, []json.RawMessage) {
	t.Helper()
	g := rig.New(t)
	s := g.Ledger.Tenant("acme").Session("s")
	if err := calls(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	late, _, err := s.Reserve(t.Context(), writers.Call{Key: writers.SessionKey("late"), Tool: "pay", Tokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	g.Advance(10 * time.Minute)
	if _, err := s.Resolve(t.Context(), late.Key, writers.Resolution{Verdict: writers.EffectAbsent, RowID: late.RowID, Attempt: 1, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Finalize(t.Context(), "paid", 15); err != nil { // pending, failed, and applied after all
		t.Fatal(err)
	}
	if _, _, err := s.Reserve(t.Context(), writers.Call{Key: writers.SessionKey("open"), Tool: "pay", Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	for _, ev := range g.Events() {
		all = append(all, rig.Envelope(t, ev))
	}
	return g, all
}

// fill hands the events to a new view and returns what it has then, without markers.
func fill(t *testing.T, g *rig.Rig, n int, all []json.RawMessage) []string {
	t.Helper()
	table := fmt.Sprintf("%s-view-%d", g.Table, n)
	g.CreateTable(table, "row")
	v := &view{g.DB, table, g.Now}
	var wg sync.WaitGroup
	for part := range slices.Chunk(all, len(all)/4+1) { // four instances of the function at once
		wg.Go(func() {
			for _, e := range part {
				for tries := 0; ; tries++ {
					err := v.handle(t.Context(), e)
					if err == nil {
						break
					}
					if tries > 20 { // an instance that failed is invoked again
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	var has []string
	for _, item := range g.Items(table) {
		if num(item, "expiresAt") == 0 {
			has = append(has, fmt.Sprint(str(item, "row"), " ", str(item, "state"), " ", num(item, "applied"), " ", num(item, "tokens"), " ", num(item, "version")))
		}
	}
	slices.Sort(has)
	return has
}

// TestAnyOrderAndRepetition: a view made of shuffled and repeated events is the one made of each event once, in order.
func TestAnyOrderAndRepetition(t *testing.T) {
	g, all := world(t)
	want := fill(t, g, 0, all)
	total := ""
	for _, line := range want {
		if line == "total#acme  4 30 0" {
			total = line
		}
	}
	if len(want) != 7 || total == "" { // six rows, four of which took effect for 5+5+5+15 tokens
		t.Fatalf("the view has %q", want)
	}
	for n := range 4 {
		rng := rand.New(rand.NewPCG(uint64(n), 1)) //nolint:gosec // a shuffle
		again := slices.Concat(all, all, all[:len(all)/2])
		rng.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if got := fill(t, g, n+1, again); !slices.Equal(got, want) {
			t.Fatalf("shuffle %d:\n got %q\nwant %q", n, got, want)
		}
	}
}

// TestForeignEvents: what is not ours goes to the dead-letter queue, and what is newer than this program does not.
func TestForeignEvents(t *testing.T) {
	v := &view{now: time.Now}
	for event, ok := range map[string]bool{
		`{"source":"aws.s3","detail-type":"Object Created","detail":{}}`: false,
		`[]`: false,
		`{"source":"toolledger","detail-type":"ToolCallTeleported","detail":{"id":"x","schema":1,"x":1}}`: true,
		`{"source":"toolledger","detail-type":"PlanChanged","detail":{"id":"x","schema":1}}`:              true,
	} {
		if err := v.handle(t.Context(), json.RawMessage(event)); (err == nil) != ok {
			t.Errorf("%s: %v", event, err)
		}
	}
}
