package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
	"toolledger/writers"
)

// Promise: what cannot be meant is refused before anything is swept, with one line that names it.
func TestSweepBadInput(t *testing.T) {
	noAWS(t)
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"nowhere":        {nil, "say where the ledger is"},
		"both":           {[]string{"--once", "--every", "1m", "--endpoint", "http://127.0.0.1:1"}, "exclude each other"},
		"not at all":     {[]string{"--every", "0s", "--endpoint", "http://127.0.0.1:1"}, "--every 0s: want at least 1s"},
		"too often":      {[]string{"--every", "1ms", "--endpoint", "http://127.0.0.1:1"}, "--every 1ms"},
		"bad verifier":   {[]string{"--verifier", "book", "--endpoint", "http://127.0.0.1:1"}, `--verifier "book"`},
		"endpoint down":  {[]string{"--endpoint", "http://127.0.0.1:1"}, "no DynamoDB answers"},
		"stray argument": {[]string{"now"}, "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), append([]string{"sweep"}, tt.args...), &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if stdout.Len() != 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), tt.text) {
				t.Errorf("stdout %q, stderr %q, want %q", stdout.String(), stderr.String(), tt.text)
			}
		})
	}
}

// Promise: sweep names the place on stderr, prints one JSON object on stdout with --json, writes nothing in a dry run, and
// gives back what is stale.
func TestSweepCommand(t *testing.T) {
	noAWS(t)
	srv := local(t)
	db := dynamodb.NewFromConfig(srv.AWSConfig())
	ctx := t.Context()
	if _, err := stack.CreateTables(ctx, db, defaultTable, defaultTable+controlSuffix, false); err != nil {
		t.Fatal(err)
	}
	past := func() time.Time { return time.Now().Add(-time.Hour) }
	ledger, err := writers.New(db, writers.Config{Table: defaultTable, Now: past})
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Tenant("acme").PutPlan(ctx, writers.Plan{Tokens: 100, Period: writers.Always}); err != nil {
		t.Fatal(err)
	}
	for i, idempotent := range []bool{true, false} {
		_, _, err = ledger.Tenant("acme").Session("s").Reserve(ctx, writers.Call{
			Key: writers.SessionKey(string(rune('a' + i))), Tool: "ping", Args: map[string]int{}, Tokens: 7, Idempotent: idempotent,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		args  []string
		found float64
	}{
		{[]string{"--dry-run"}, 2}, {nil, 2}, {[]string{"--once"}, 0},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"sweep", "--json", "--endpoint", srv.Endpoint()}, tt.args...)
		if code := run(ctx, args, &stdout, &stderr); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		var report map[string]any
		dec := json.NewDecoder(&stdout)
		if err := dec.Decode(&report); err != nil || dec.More() {
			t.Fatal(err, stdout.String())
		}
		if report["found"] != tt.found || report["dry_run"] != (i == 0) || i < 2 && (report["refunded_tokens"] != 7.0 || report["held"] != 1.0) {
			t.Errorf("%v: %v", tt.args, report)
		}
		if !strings.Contains(stderr.String(), "sweeping table toolledger at "+srv.Endpoint()) {
			t.Errorf("stderr %q", stderr.String())
		}
	}
	if q, err := ledger.Tenant("acme").Quota(ctx); err != nil || q.Remaining != 93 {
		t.Errorf("%+v, %v", q, err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"sweep", "--endpoint", srv.Endpoint()}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "1 wait for a person") {
		t.Errorf("%d, %q, %q", code, stdout.String(), stderr.String())
	}
}
