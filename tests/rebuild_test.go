package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/eventcheck"
	"toolledger/internal/schema"
	"toolledger/streams/events"
	"toolledger/sweeper"
	"toolledger/writers"
)

// rebuilt is what rebuild promises to print with --json.
type rebuilt struct {
	Items, Events, Untold, Unreadable, Refusals int
	ByType                                      map[string]int `json:"by_type"`
	Reasons                                     map[string]int
	Keys                                        []struct{ PK, SK, Reason string }
	Cursor                                      string
	Done                                        bool
	DryRun                                      bool `json:"dry_run"`
}

// rebuildLedger is a ledger in which all that calls can come to has happened, an hour ago.
func rebuildLedger(t *testing.T) *operatorRig {
	g := newOperatorRig(t)
	past := g.planned(-time.Hour, "acme", "globex")
	commitOne(g, past, "acme", "committed")
	commitOne(g, past, "globex", "committed")
	call := func(key string) writers.Call {
		return writers.Call{Key: writers.SessionKey(key), Tool: "t", Args: map[string]string{"text": "secret"}, Tokens: 5}
	}
	_, err := g.reserve(past, "acme", call("finalized")).Finalize(t.Context(), "ok", 3)
	g.must(err)
	g.must(g.reserve(past, "acme", call("released")).Release(t.Context(), "no"))
	g.must(g.reserve(past, "acme", call("taken")).Release(t.Context(), "no"))
	_, err = g.reserve(past, "acme", call("taken")).Finalize(t.Context(), "ok", 5)
	g.must(err)
	late := g.reserve(past, "acme", writers.Call{Key: writers.SessionKey("late"), Tool: "t", Tokens: 5, Idempotent: true})
	g.reserve(past, "acme", writers.Call{Key: writers.SessionKey("expired"), Tool: "t", Tokens: 5, Idempotent: true})
	g.reserve(past, "acme", call("held"))
	s, err := sweeper.New(g.ledger(0), sweeper.Config{GiveUp: time.Second})
	g.must(err)
	_, err = s.Run(t.Context())
	g.must(err)
	_, err = late.Finalize(t.Context(), "ok", 5)
	g.must(err)
	g.reserve(g.ledger(0), "acme", call("pending"))
	undo := call("undo")
	undo.Compensates, undo.RefundOriginal = writers.SessionKey("committed"), true
	_, err = g.ledger(0).Tenant("acme").Session("s1").Commit(t.Context(), undo, "ok")
	g.must(err)
	return g
}

// copied are all items of both tables, as they are.
func (g *operatorRig) copied() string {
	g.Helper()
	return strings.Join(g.eachItem(func(item map[string]types.AttributeValue) string {
		var fields []string
		for name, v := range item {
			fields = append(fields, fmt.Sprintf("%s=%+v", name, schema.ValueOf(v)))
		}
		slices.Sort(fields)
		return strings.Join(fields, " ")
	}), "\n")
}

// checkAgainst holds what is on the bus against what the stream told: each id is one of the stream's, and everything in the
// event is the same but the mark, and what an item cannot know any more.
func (f *fakeAWS) checkAgainst(g *operatorRig) {
	f.t.Helper()
	told := map[string]events.Event{}
	for _, ev := range g.told().Events() {
		told[ev.Head().ID] = ev
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, detail := range f.details {
		was := told[id]
		if was == nil || was.DetailType() != f.types[id] {
			f.t.Errorf("the stream never told of %s %s", f.types[id], detail)
			continue
		}
		g.must(eventcheck.Detail(f.types[id], detail))
		var got, want map[string]any
		g.must(json.Unmarshal(detail, &got))
		g.must(json.Unmarshal([]byte(jsonOf(g, was)), &want))
		if got["rebuilt"] != true || got["row_id"] == "" {
			f.t.Errorf("not marked: %s", detail)
		}
		delete(got, "rebuilt")
		if f.types[id] == "QuotaGranted" || f.types[id] == "QuotaLow" { // the stream's time is not in the item
			delete(got, "time")
			delete(want, "time")
		}
		if jsonOf(g, got) != jsonOf(g, want) {
			f.t.Errorf("%s: got %v, want %v", f.types[id], got, want)
		}
	}
}

// Promise: rebuild publishes the events of what the tables hold, each with the id and the content that it had, marked, and
// nothing else; it counts no metrics and changes no item; doing it again brings the same ids.
func TestRebuildPublishesWhatWas(t *testing.T) {
	g := rebuildLedger(t)
	f := newFakeAWS(t)
	before := g.copied()
	var r rebuilt
	args := append([]string{"rebuild", "--bus", "the-bus"}, g.at()...)
	f.on(0, &r, args...)
	f.checkAgainst(g)
	want := map[string]int{
		"PlanChanged": 2, "ToolEffectApplied": 5, "ToolCallReserved": 2, "ReservationStuck": 1, "ReservationReleased": 1, "ReservationExpired": 1,
		"ToolEffectSettledLate": 1, "ToolEffectCompensated": 1,
	}
	for name, n := range want {
		if r.ByType[name] != n {
			t.Errorf("%s: %d, want %d", name, r.ByType[name], n)
		}
	}
	if !r.Done || r.Cursor != "" || r.Events != len(f.ids()) || r.Unreadable != 0 || len(r.ByType) != len(want) {
		t.Errorf("%+v", r)
	}
	for _, key := range r.Keys { // the two quota items were debited since they were made
		if !strings.HasPrefix(key.SK, "QUOTA#") {
			t.Errorf("untold: %+v", key)
		}
	}
	first := f.ids()
	f.on(0, &r, args...)
	if !slices.Equal(first, f.ids()) {
		t.Error("other ids at the second time")
	}
	if g.copied() != before {
		t.Error("rebuild wrote")
	}
}

// Promise: --tenant, --since and --until leave out the rest, of another tenant and of other times.
func TestRebuildChooses(t *testing.T) {
	g := rebuildLedger(t)
	f := newFakeAWS(t)
	var r rebuilt
	run := func(more ...string) []string {
		f.forget()
		f.on(0, &r, append(append([]string{"rebuild", "--bus", "the-bus"}, g.at()...), more...)...)
		f.checkAgainst(g)
		var keys []string
		for _, detail := range f.details {
			var h events.Header
			g.must(json.Unmarshal(detail, &h))
			keys = append(keys, h.Tenant+"/"+h.Key)
		}
		slices.Sort(keys)
		return keys
	}
	if got := run("--tenant", "globex"); !slices.Equal(got, []string{"globex/", "globex/committed"}) {
		t.Error(got)
	}
	if got := run("--tenant", "glob"); len(got) != 0 || r.Items != 0 || !r.Done {
		t.Error(got)
	}
	recent := run("--since", "10m")
	if !slices.Contains(recent, "acme/pending") || !slices.Contains(recent, "acme/held") || slices.Contains(recent, "acme/finalized") {
		t.Error(recent)
	}
	old := run("--until", time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339))
	if slices.Contains(old, "acme/pending") || !slices.Contains(old, "acme/finalized") {
		t.Error(old)
	}
}

// Promise: a bus that fails ends a rebuild with exit code 2 and a cursor from which the same command brings the rest; so does
// Ctrl-C, with 130.
func TestRebuildGoesOnFromTheCursor(t *testing.T) {
	g := newOperatorRig(t)
	l := g.planned(0, "acme")
	for n := range 60 {
		commitOne(g, l, "acme", fmt.Sprint("k", n))
	}
	f := newFakeAWS(t)
	args := append([]string{"rebuild", "--bus", "the-bus", "--rate", "20"}, g.at()...)
	f.fail = func(put int) int {
		if put > 3 {
			return 500
		}
		return 0
	}
	var r rebuilt
	got := f.on(2, &r, args...)
	if r.Done || r.Cursor == "" || !strings.Contains(got.stderr, "--from "+r.Cursor) || len(f.ids()) == 0 {
		t.Fatalf("%+v %s", r, got.stderr)
	}
	f.fail = nil
	cursor := r.Cursor

	ctx, cancel := context.WithTimeout(t.Context(), devTime)
	defer cancel()
	path, err := program()
	g.must(err)
	cmd := exec.CommandContext(ctx, path, append(args, "--from", cursor, "--rate", "1", "--json")...)
	f.env(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	g.must(cmd.Start())
	for n := len(f.ids()); len(f.ids()) == n && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	g.must(cmd.Process.Signal(os.Interrupt))
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exit.ExitCode() != 130 {
		t.Fatalf("%v: %s", exit, stderr.String())
	}
	g.must(json.Unmarshal(stdout.Bytes(), &r))
	if r.Done || r.Cursor == "" || r.Cursor == cursor || !strings.Contains(stderr.String(), "--from "+r.Cursor) {
		t.Fatalf("%+v %s", r, stderr.String())
	}
	args[4] = "1000"
	f.on(0, &r, append(args, "--from", r.Cursor)...)
	f.checkAgainst(g)
	if n := len(f.ids()); n != 61 || !r.Done {
		t.Errorf("%d events, want 61: %+v", n, r)
	}
}

// Promise: a dry run publishes nothing; its JSON lines are events that redrive publishes with the same bytes.
func TestRebuildDryRun(t *testing.T) {
	g := rebuildLedger(t)
	f := newFakeAWS(t)
	got := f.run(append([]string{"rebuild", "--dry-run", "--json"}, g.at()...)...)
	var r rebuilt
	if got.code != 0 || f.puts > 0 || strings.Contains(got.stdout+got.stderr, "secret") {
		t.Fatalf("%+v", got)
	}
	g.must(json.Unmarshal([]byte(got.stderr[strings.Index(got.stderr, "{"):]), &r))
	if strings.Count(got.stdout, "\n") != r.Events || !r.DryRun || !r.Done {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(t.TempDir(), "rebuilt.jsonl")
	g.must(os.WriteFile(file, []byte(got.stdout), 0o600))
	f.on(0, nil, "redrive", file, "--bus", "the-bus")
	f.checkAgainst(g)
	if len(f.ids()) != r.Events {
		t.Errorf("%d events, want %d", len(f.ids()), r.Events)
	}
	got = f.run(append([]string{"rebuild", "--dry-run"}, g.at()...)...)
	if got.code != 0 || !strings.Contains(got.stdout, "ToolEffectApplied") || !strings.Contains(got.stderr, "nothing was published") {
		t.Errorf("%+v", got)
	}
}

// Promise: items that are not ours, halves and unlawful rows are counted and named, give no event, and stop nothing; a
// refusing bus is reported.
func TestRebuildOfAHostileTable(t *testing.T) {
	g := newOperatorRig(t)
	commitOne(g, g.planned(0, "acme"), "acme", "good")
	row := g.item(g.table, schema.RowKey("acme", "s1", schema.ScopeSession, "good"))
	row[schema.SK] = schema.S("TOOL#twin")
	row[schema.AState] = schema.S("melted")
	unlawful := g.item(g.table, schema.RowKey("acme", "s1", schema.ScopeSession, "good"))
	unlawful[schema.SK] = schema.S("TOOL#unlawful")
	delete(unlawful, schema.AExpiresAt)
	for _, item := range []schema.Item{
		row, unlawful,
		{schema.PK: schema.S("USER#1"), schema.SK: schema.S("PROFILE"), "name": schema.S("secret")},
		{schema.PK: schema.S("TENANT#acme#SESSION#s1"), schema.SK: schema.S("TOOL#half")},
		{schema.PK: schema.S("TENANT#acme"), schema.SK: schema.S("QUOTA#2026-13")},
		{schema.PK: schema.S("TENANT#a#b#c"), schema.SK: schema.S("TOOL#x")},
		{schema.PK: schema.S("OBS#TENANT#acme#SESSION#s1"), schema.SK: schema.S("TOOL#x"), schema.AVersion: schema.S("one")},
	} {
		_, err := g.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &g.table, Item: item})
		g.must(err)
	}
	f := newFakeAWS(t)
	var r rebuilt
	args := append([]string{"rebuild", "--bus", "the-bus"}, g.at()...)
	got := f.on(1, &r, args...)
	if r.Unreadable != 6 || r.Untold != 2 || r.Events != 2 || !r.Done || len(f.ids()) != 2 || strings.Contains(got.stdout+got.stderr, "secret") {
		t.Errorf("%+v\n%s%s", r, got.stdout, got.stderr)
	}
	f.refuse = "PlanChanged"
	f.on(1, &r, args...)
	if r.Refusals != 1 || !r.Done {
		t.Errorf("%+v", r)
	}
}

// Promise: bad input is one line and exit code 2.
func TestRebuildBadInput(t *testing.T) {
	g := newOperatorRig(t)
	f := newFakeAWS(t)
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"no bus":          {nil, "--bus NAME is required"},
		"bus and dry run": {[]string{"--bus", "b", "--dry-run"}, "exclude each other"},
		"an argument":     {[]string{"x", "--dry-run"}, `unexpected argument "x"`},
		"rate":            {[]string{"--dry-run", "--rate", "0"}, "--rate 0"},
		"tenant":          {[]string{"--dry-run", "--tenant", "a#b"}, "--tenant"},
		"no tenant":       {[]string{"--dry-run", "--tenant", ""}, "--tenant"},
		"since":           {[]string{"--dry-run", "--since", "yesterday"}, `--since "yesterday"`},
		"until":           {[]string{"--dry-run", "--until", "-3h"}, `--until "-3h"`},
		"backwards":       {[]string{"--dry-run", "--since", "1h", "--until", "2h"}, "after --since"},
		"cursor":          {[]string{"--dry-run", "--from", "x"}, "--from: not a cursor"},
		"other's cursor":  {[]string{"--dry-run", "--from", "eyJ0Ijoib3RoZXIifQ"}, "it is of table other"},
		"no table":        {[]string{"--dry-run", "--table", "nothing-here"}, "there is no table"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(append([]string{"rebuild"}, g.at()...), tt.args...)
			got := f.run(args...)
			if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, tt.text) || strings.Count(lastLines(got.stderr), "\n") > 0 || f.puts > 0 {
				t.Errorf("exit code %d, %q, %q: want %q", got.code, got.stdout, got.stderr, tt.text)
			}
		})
	}
}
