package outside

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"
)

func start(t *testing.T, cfg Config) (*World, *Client) {
	t.Helper()
	w, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w, &Client{URL: w.URL(), HTTP: &http.Client{Transport: transport}}
}

func request(ref, key string) Request {
	return Request{Tool: "pay", Args: json.RawMessage(`{"n":1}`), Ref: ref, Key: key}
}

// A world without keys acts as often as it is asked, however often the key was seen: a double act must show.
func TestDoubleActsShow(t *testing.T) {
	w, c := start(t, Config{})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := c.Act(t.Context(), request("a", "k")); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if got := w.Tally(); got.Effects != 8 || got.Double != 7 || got.Refs["a"] != 8 {
		t.Fatalf("%+v", got)
	}
}

// A world that honours keys acts once a key, and answers the first result.
func TestKeysAreHonoured(t *testing.T) {
	n := 0
	w, c := start(t, Config{HonourKeys: true, Script: func(Request) Answer { n++; return Answer{Result: string(rune('a' + n))} }})
	for _, key := range []string{"k", "k", "other", "", ""} {
		if _, err := c.Act(t.Context(), request("ref-"+key, key)); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Tally(); got.Effects != 4 || got.Refs["ref-k"] != 1 || got.Refs["ref-"] != 2 {
		t.Fatalf("%+v", got)
	}
	if result, err := c.Act(t.Context(), request("ref-k", "k")); err != nil || result != "b" {
		t.Fatal(result, err)
	}
}

// A dropped connection leaves an effect that a verifier finds, though the caller got an error that says nothing. The connection
// is a reused one: there net/http would send the request again.
func TestCommitThenDrop(t *testing.T) {
	w, c := start(t, Config{Script: func(r Request) Answer { return Answer{Result: "paid", Drop: r.Ref == "a"} }})
	if _, err := c.Act(t.Context(), request("first", "k0")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Act(t.Context(), request("a", "k"))
	if _, refused := errors.AsType[*RefusedError](err); err == nil || refused {
		t.Fatalf("got %v", err)
	}
	if result, happened, err := c.Find(t.Context(), "a"); err != nil || !happened || result != "paid" {
		t.Fatal(result, happened, err)
	}
	if got := w.Tally(); got.Effects != 2 || got.Dropped != 1 || got.Double != 0 {
		t.Fatalf("the client sent the request again: %+v", got)
	}
}

// A refusal is certain and leaves nothing behind; its reason is not in the error's text.
func TestRefusal(t *testing.T) {
	w, c := start(t, Config{Script: func(Request) Answer { return Answer{Refuse: http.StatusConflict, Result: "secret"} }})
	_, err := c.Act(t.Context(), request("a", "k"))
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Status != 409 || refused.Reason != "secret" || err.Error() != "the service refused: 409 Conflict" {
		t.Fatalf("got %v", err)
	}
	if _, happened, err := c.Find(t.Context(), "a"); happened || err != nil || w.Tally().Effects != 0 {
		t.Fatal(happened, err)
	}
}

// An act that was sent lands although its caller has gone.
func TestDelayedEffectLands(t *testing.T) {
	arrived := make(chan struct{})
	w, c := start(t, Config{Script: func(Request) Answer { close(arrived); return Answer{Delay: time.Minute} }})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := c.Act(ctx, request("a", "k")); err == nil {
		t.Fatal("an answer came")
	}
	for deadline := time.Now().Add(10 * time.Second); w.Tally().Effects == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the effect never landed")
		}
	}
}

// A world that repeats effects is how the demo's proof is shown to fail.
func TestRepeat(t *testing.T) {
	w, c := start(t, Config{Script: func(Request) Answer { return Answer{Repeat: 1} }})
	if _, err := c.Act(t.Context(), request("a", "k")); err != nil {
		t.Fatal(err)
	}
	if got := w.Tally(); got.Double != 1 {
		t.Fatalf("%+v", got)
	}
}

// A request without a reference could never be found again: refused.
func TestBadRequest(t *testing.T) {
	_, c := start(t, Config{})
	_, err := c.Act(t.Context(), request("", "k"))
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Status != http.StatusBadRequest {
		t.Fatal(err)
	}
}
