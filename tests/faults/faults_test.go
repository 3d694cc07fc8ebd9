package faults_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/stack"
	"toolledger/tests/faults"
)

// client is a real SDK client of a server that says yes to everything and counts what it got.
func client(t *testing.T, in *faults.Injector) (*dynamodb.Client, *atomic.Int64) {
	t.Helper()
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(srv.Close)
	return dynamodb.NewFromConfig(stack.AWSConfig(srv.URL), in.Attach, faults.Quick), &served
}

func transaction() *dynamodb.TransactWriteItemsInput {
	key := func(sk string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "p"}, "sk": &types.AttributeValueMemberS{Value: sk},
		}
	}
	return &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{TableName: aws.String("t"), Item: key("TOOL#1")}},
		{Delete: &types.Delete{TableName: aws.String("t"), Key: key("QUOTA#1")}},
	}}
}

// TestLosingAnswers: an answer lost on the wire is the SDK's to retry, with the same token; one lost above it is the caller's.
func TestLosingAnswers(t *testing.T) {
	t.Parallel()
	var rec faults.Recorder
	in := faults.New(faults.All(rec.Hook, faults.At(faults.Try, "TransactWriteItems", 1, faults.Lose())))
	db, served := client(t, in)
	if _, err := db.TransactWriteItems(t.Context(), transaction()); err != nil {
		t.Fatal(err)
	}
	tries := rec.Events(faults.Try, "TransactWriteItems")
	if len(tries) != 2 || served.Load() != 2 || tries[0].Token == "" || tries[0].Token != tries[1].Token || tries[1].Try != 2 {
		t.Errorf("want two tries with one token, got %+v, served %d", tries, served.Load())
	}
	if calls := rec.Events(faults.Call, ""); len(calls) != 1 {
		t.Errorf("want one call, got %d", len(calls))
	}

	in.Set(faults.At(faults.Call, "TransactWriteItems", 1, faults.Lose()))
	served.Store(0)
	if _, err := db.TransactWriteItems(t.Context(), transaction()); err == nil || served.Load() != 1 {
		t.Errorf("want an error and one request, got %v and %d", err, served.Load())
	}
}

// TestServiceErrors: what the service would say comes through the SDK's own decoding and retry rules.
func TestServiceErrors(t *testing.T) {
	t.Parallel()
	in := faults.New(nil)
	db, served := client(t, in)
	for _, c := range []struct {
		name  string
		err   error
		tries int
	}{
		{"throttling", faults.Throttled(), 4},
		{"in progress", faults.InProgress(), 4},
		{"internal", faults.Internal(), 4},
		{"mismatch", faults.Mismatch(), 1},
		{"denied", faults.Denied(), 1},
	} {
		in.Set(faults.Every(faults.Try, "", faults.Fail(c.err)))
		_, err := db.TransactWriteItems(t.Context(), transaction())
		if err == nil || in.Count(faults.Try, "") != c.tries {
			t.Errorf("%s: %d tries, want %d; %v", c.name, in.Count(faults.Try, ""), c.tries, err)
		}
	}
	if served.Load() != 0 {
		t.Errorf("%d requests were sent", served.Load())
	}
	in.Set(func(e faults.Event) faults.Fault {
		if e.Level != faults.Try {
			return faults.Fault{}
		}
		return faults.Fail(faults.Cancelled(e.Input, map[int]faults.Reason{
			0: {Code: faults.NoCode},
			1: {Code: faults.ConditionFailed, Item: map[string]types.AttributeValue{"n": &types.AttributeValueMemberN{Value: "1"}}},
		}))
	})
	_, err := db.TransactWriteItems(t.Context(), transaction())
	e, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(e.CancellationReasons) != 2 || e.CancellationReasons[0].Code != nil ||
		aws.ToString(e.CancellationReasons[1].Code) != faults.ConditionFailed || len(e.CancellationReasons[1].Item) != 1 {
		t.Errorf("cancellation came through as %v", err)
	}
}

// TestWaiting: what hangs ends with the caller's context, sent or not.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      faults.Fault
		served int64
	}{"hang": {faults.Hang(), 0}, "stall": {faults.Stall(), 1}} {
		in := faults.New(faults.Every(faults.Call, "", c.f))
		db, served := client(t, in)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := db.TransactWriteItems(ctx, transaction())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || served.Load() != c.served {
			t.Errorf("%s: %v, served %d, want %d", name, err, served.Load(), c.served)
		}
	}
}

// TestDeath: a process that died makes no further request, whatever its deferred calls try.
func TestDeath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      faults.Fault
		served int64
	}{"before": {faults.Crash(), 0}, "after": {faults.CrashAfter(), 1}} {
		in := faults.New(faults.At(faults.Call, "", 1, c.f))
		db, served := client(t, in)
		returned, deferred := false, false
		finished := in.Run(func() {
			defer func() {
				deferred = true
				_, _ = db.TransactWriteItems(t.Context(), transaction())
				returned = true
			}()
			_, _ = db.TransactWriteItems(t.Context(), transaction())
			returned = true
		})
		if finished || returned || !deferred || !in.Dead() || served.Load() != c.served {
			t.Errorf("%s: finished %t, returned %t, deferred %t, served %d", name, finished, returned, deferred, served.Load())
		}
		in.Revive()
		in.Set(nil)
		if !in.Run(func() { _, _ = db.TransactWriteItems(t.Context(), transaction()) }) || served.Load() != c.served+1 {
			t.Errorf("%s: the next process does not work", name)
		}
	}
}

// TestFind: items of a transaction are found by what they are.
func TestFind(t *testing.T) {
	t.Parallel()
	if got := faults.Find(transaction(), "QUOTA#"); len(got) != 1 || got[0] != 1 {
		t.Errorf("quota items at %v", got)
	}
	if got := faults.Find(&dynamodb.QueryInput{}, ""); got != nil {
		t.Errorf("a query has items at %v", got)
	}
}
