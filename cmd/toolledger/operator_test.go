package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// Promise: a command that is printed to be copied means the same to a shell, whatever names are made of.
func TestShellLine(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	word := rapid.StringMatching(`[^\x00]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 1, 8).Draw(t, "words")
		out, err := exec.CommandContext(context.Background(), sh, "-c", "printf '%s\\0' "+shellLine(words...)).Output() //nolint:gosec // what is tested
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
			t.Fatalf("%q became %q", words, got)
		}
	})
	if got := shellLine("toolledger", "show", "acme", "s-1", "plan/3"); got != "toolledger show acme s-1 plan/3" {
		t.Errorf("plain words are quoted: %s", got)
	}
}

// Promise: only a clear yes is one; where nobody can be asked nothing is done without --yes.
func TestConfirm(t *testing.T) {
	for said, yes := range map[string]bool{"y\n": true, "YES\n": true, " yes ": true, "n\n": false, "\n": false, "": false, "yess\n": false} {
		var stderr bytes.Buffer
		a := newApp(strings.NewReader(said), io.Discard, &stderr)
		err := a.ask(t.Context(), "erase everything")
		if (err == nil) != yes || exitCode(t.Context(), err) != map[bool]int{true: 0, false: exitBadInput}[yes] {
			t.Errorf("%q: %v", said, err)
		}
		if stderr.String() != "Erase everything? [y/N] " {
			t.Errorf("asked %q", stderr.String())
		}
	}
	a := newApp(strings.NewReader("y\n"), io.Discard, io.Discard)
	if err := a.confirm(t.Context(), &operator{}, "erase everything"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("where nobody can be asked: %v", err)
	}
	if err := a.confirm(t.Context(), &operator{yes: true}, "erase everything"); err != nil {
		t.Error(err)
	}
	never, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newApp(never, io.Discard, io.Discard).ask(ctx, "erase"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// Promise: a ledger's name says account and Region on AWS, and file or endpoint elsewhere.
func TestPlaceNames(t *testing.T) {
	for want, p := range map[string]place{
		"table t, account 123456789012, Region eu-west-1": {Account: "123456789012", Region: "eu-west-1", Table: "t"},
		"table t at http://127.0.0.1:8000":                {Region: "local", Endpoint: "http://127.0.0.1:8000", Table: "t"},
		"table t in file ledger.db":                       {Region: "local", File: "ledger.db", Table: "t"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Promise: races that were lost end with 1, what was asked wrongly or could not be reached with 2, an interruption with 130.
func TestRefusedCodes(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for code, want := range map[writers.Code]int{
		writers.ErrSuperseded: 1, writers.ErrInProgress: 1, writers.ErrOutcomeUnknown: 1, writers.ErrInvalid: 2, writers.ErrNotFound: 2,
		writers.ErrNotProvisioned: 2, writers.ErrUnavailable: 2,
	} {
		if got := exitCode(t.Context(), refused(t.Context(), &writers.Error{Code: code, Op: "x"})); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	if got := exitCode(stopped, refused(stopped, &writers.Error{Code: writers.ErrUnavailable, Op: "x", Err: context.Canceled})); got != exitInterrupted {
		t.Errorf("interrupted: %d", got)
	}
	if refused(t.Context(), nil) != nil {
		t.Error("nil became an error")
	}
}

// spy keeps the last transaction.
type spy struct {
	writers.DynamoDB
	last *dynamodb.TransactWriteItemsInput
}

func (s *spy) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	s.last = in
	return &dynamodb.TransactWriteItemsOutput{}, nil
}

// Promise: who decides and why is signed into plans and grants, in their own transaction, and into nothing else.
func TestSigned(t *testing.T) {
	s := &spy{}
	put := func(table string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(table), Item: schema.Item{schema.PK: schema.S("x")}}}
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		put("control"), put("ledger"), {Update: &types.Update{TableName: aws.String("control")}},
	}}
	if _, err := (signed{s, "control", "eve", "because"}).TransactWriteItems(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	note := s.last.TransactItems[0].Put.Item
	if schema.ValueOf(note[schema.ABy]).Text != "eve" || schema.ValueOf(note[schema.AWhy]).Text != "because" {
		t.Errorf("%v", note)
	}
	if n := len(s.last.TransactItems[1].Put.Item); n != 1 {
		t.Errorf("an item of the ledger table was signed")
	}
}

// Promise: --results is a bucket and a prefix, or refused.
func TestResultStore(t *testing.T) {
	for text, ok := range map[string]bool{
		"s3://bucket/results": true, "s3://bucket": true, "s3://": false, "bucket/results": false, "http://bucket": false, "s3:///x": false,
	} {
		if _, err := resultStore(text, aws.Config{Region: "eu-west-1"}); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
