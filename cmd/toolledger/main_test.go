package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"toolledger/internal/stack"
)

// noAWS keeps the machine's own AWS settings out of a test.
func noAWS(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ACCESS_KEY_ID"} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
}

func local(t *testing.T) *stack.Server {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// Promise: bad input ends with code 2 and one line on stderr that names what and where, and nothing on stdout.
func TestBadInput(t *testing.T) {
	noAWS(t)
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"unknown command":   {[]string{"demmo"}, `unknown command "demmo"`},
		"near miss":         {[]string{"versio"}, "did you mean version?"},
		"miss with flags":   {[]string{"pendng", "--endpoint", "http://127.0.0.1:1"}, "did you mean pending?"},
		"flag of nothing":   {[]string{"--bogus", "x"}, "unknown flag: --bogus (see toolledger --help)"},
		"unknown flag":      {[]string{"init", "--bogus"}, "--bogus (see toolledger init --help)"},
		"stray argument":    {[]string{"version", "now"}, `unexpected argument "now"`},
		"log level":         {[]string{"version", "--log-level", "loud"}, `--log-level "loud"`},
		"nowhere":           {[]string{"init"}, "--endpoint URL"},
		"endpoint down":     {[]string{"init", "--endpoint", "http://127.0.0.1:1"}, "no DynamoDB answers at http://127.0.0.1:1"},
		"no URL":            {[]string{"init", "--endpoint", "127.0.0.1:8000"}, `--endpoint "127.0.0.1:8000"`},
		"table name":        {[]string{"init", "--endpoint", "http://127.0.0.1:1", "--table", "a#b"}, `--table "a#b"`},
		"one table":         {[]string{"init", "--endpoint", "http://127.0.0.1:1", "--control", "toolledger"}, "plans need a table of their own"},
		"no number":         {[]string{"demo", "--intents", "many"}, `--intents "many": want a whole number (see toolledger demo --help)`},
		"below nothing":     {[]string{"demo", "--seed", "-1"}, `--seed "-1": want a whole number of at least 0`},
		"no duration":       {[]string{"sweep", "--every", "60"}, `--every "60": want a time such as 90s`},
		"no file":           {[]string{"replay"}, "want FILE, got 0 arguments"},
		"one file too many": {[]string{"replay", "a", "b"}, "want FILE, got 2 arguments"},
		"demo of what":      {[]string{"demo", "storm"}, `unexpected argument "storm"`},
		"grant of what":     {[]string{"grant", "acme", "--key", "k"}, "--tokens N is required"},
		"tokens of dev":     {[]string{"dev", "--tokens", "-1"}, "--tokens -1: want 0 to 2^53"},
		"flag needs value":  {[]string{"init", "--table"}, "flag needs an argument: --table"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), tt.args, &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if stdout.Len() != 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "toolledger: ") {
				t.Errorf("stdout %q, stderr %q: want one line on stderr", stdout.String(), stderr.String())
			}
			if !strings.Contains(stderr.String(), tt.text) {
				t.Errorf("%q does not say %q", stderr.String(), tt.text)
			}
		})
	}
}

// Promise: who stops a command is told so, and not which function noticed.
func TestInterrupted(t *testing.T) {
	noAWS(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"init", "--endpoint", "http://127.0.0.1:1"}, &stdout, &stderr)
	if code != 130 || stdout.Len() != 0 || stderr.String() != "toolledger: init: interrupted\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

// Promise: an endpoint that accepts and never answers is given up on, not waited for.
func TestSilentEndpoint(t *testing.T) {
	noAWS(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"init", "--endpoint", "http://" + l.Addr().String()}, &stdout, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "no DynamoDB answers at http://"+l.Addr().String()) {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if took := time.Since(began); took > 2*reachWait {
		t.Errorf("took %s", took)
	}
}

// Promise: init makes both tables once, says so in one JSON object, and may be run again.
func TestInit(t *testing.T) {
	noAWS(t)
	srv := local(t)
	for _, created := range []bool{true, false} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"init", "--endpoint", srv.Endpoint(), "--table", "ledger-x", "--json"}, &stdout, &stderr); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		var got initResult
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
		if got.Table != "ledger-x" || got.Control != "ledger-x-control" || got.Endpoint != srv.Endpoint() || got.Region != stack.Region {
			t.Errorf("%+v", got)
		}
		for _, table := range got.Tables {
			if table.Created != created || table.StreamARN == "" {
				t.Errorf("%+v, want created %v and a stream", table, created)
			}
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"init", "--endpoint", srv.Endpoint(), "--table", "ledger-x"}, &stdout, &stderr); code != 0 ||
		strings.Count(stdout.String(), "was there") != 2 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

// Promise: a command that looks is told where, never answers from an empty place, and makes nothing.
func TestLookLocation(t *testing.T) {
	noAWS(t)
	srv := local(t)
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		w    where
		text string
	}{
		"nowhere":          {where{}, "say where the ledger is"},
		"no region":        {where{table: "toolledger"}, "say where the ledger is"},
		"file missing":     {where{local: filepath.Join(dir, "none.db")}, "there is no ledger in this file"},
		"folder":           {where{local: dir}, "there is no ledger in this file"},
		"two places":       {where{local: "x", endpoint: "http://127.0.0.1:1"}, "exclude each other"},
		"stack and table":  {where{stack: "prod", table: "toolledger"}, "knows its tables"},
		"no stack's name":  {where{stack: "prod stack"}, "the name or the ARN"},
		"no table":         {where{endpoint: srv.Endpoint()}, "there is no table toolledger"},
		"nobody listening": {where{endpoint: "http://127.0.0.1:1"}, "no DynamoDB answers"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(strings.NewReader(""), t.Output(), t.Output())
			_, err := a.lookLocation(t.Context(), &tt.w)
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %q", err, tt.text)
			}
			if code := exitCode(t.Context(), err); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
		})
	}
	out, err := dynamodb.NewFromConfig(srv.AWSConfig()).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || len(out.TableNames) != 0 {
		t.Errorf("looking made tables: %v, %v", out.TableNames, err)
	}
}

// Promise: a try command works on a fresh ledger in memory, or keeps it in a file that a look command then reads.
func TestTryThenLook(t *testing.T) {
	noAWS(t)
	local(t) // skips where dynoxide is missing
	a := newApp(strings.NewReader(""), t.Output(), t.Output())
	memory, err := a.tryLocation(t.Context(), &where{})
	if err != nil {
		t.Fatal(err)
	}
	memory.close()
	if memory.table != defaultTable || memory.control != defaultTable+controlSuffix || memory.ledgerStream == "" || memory.planStream == "" {
		t.Errorf("%+v", memory)
	}

	file := filepath.Join(t.TempDir(), "ledger.db")
	kept, err := a.tryLocation(t.Context(), &where{local: file})
	if err != nil {
		t.Fatal(err)
	}
	kept.close()
	seen, err := a.lookLocation(t.Context(), &where{local: file})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.close()
	if seen.ledgerStream != kept.ledgerStream {
		t.Errorf("stream %q, was %q", seen.ledgerStream, kept.ledgerStream)
	}
	there, err := a.lookLocation(t.Context(), &where{endpoint: seen.endpoint})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := there.client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(there.table)}); err != nil {
		t.Error(err)
	}
}

// Promise: --data is what the try commands keep, by the name that look commands read.
func TestDataIsLocal(t *testing.T) {
	a := newApp(strings.NewReader(""), t.Output(), t.Output())
	root := newRootCommand(a)
	var w *where
	cmd := &cobra.Command{Use: "probe", RunE: func(*cobra.Command, []string) error { return nil }}
	w = addWhere(cmd)
	root.AddCommand(cmd)
	root.SetArgs([]string{"probe", "--data", "x.db"})
	if err := root.ExecuteContext(t.Context()); err != nil || w.local != "x.db" {
		t.Errorf("local %q, %v", w.local, err)
	}
}

// Promise: version says what the build says.
func TestVersion(t *testing.T) {
	got := versionOf(&debug.BuildInfo{GoVersion: "go1.26.0", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
	}})
	if got.Version != "(devel)" || got.Revision != "abc" || !got.Modified || got.Go != "go1.26.0" || got.Dynoxide != stack.Version {
		t.Errorf("%+v", got)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"version", "--json"}, &stdout, &stderr); code != 0 || !json.Valid(stdout.Bytes()) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}
