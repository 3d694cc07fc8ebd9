// Package outside is a small outside world for trying the ledger against: an HTTP server with its own state that does what
// tools do to real services. It knows no idempotency keys unless it is told to honour them, so that acting twice shows;
// it can refuse, take its time, and take effect and then drop the connection before it answers.
//
//	POST /effects          {"tool":…,"args":{…},"ref":…,"case":…}, header Idempotency-Key   → 201 {"id":…,"result":…}
//	GET  /effects?ref=…    what a verifier asks                                             → 200 {"effects":[…]}
//
// What it counts is the truth that the ledger's own books are compared with.
package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Request asks for one effect.
type Request struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	Ref  string          `json:"ref"`            // what the effect can be found by: names the intended action
	Case int             `json:"case,omitempty"` // for Config.Script
	Key  string          `json:"-"`              // from the header Idempotency-Key
}

// Answer is what the world does with a Request.
type Answer struct {
	Result string        // what the effect answers
	Refuse int           // a 4xx status: no effect, Result is the reason
	Drop   bool          // take effect, then close the connection without an answer
	Delay  time.Duration // before the effect
	Repeat int           // effects beyond the first: a world that breaks its promise
}

// Effect is something that happened.
type Effect struct {
	ID     int    `json:"id"` // counts all effects from 1
	Ref    string `json:"ref"`
	Tool   string `json:"tool"`
	Result string `json:"result"`
}

// Config configures a World. All fields are optional.
type Config struct {
	// Script decides what happens; nil means that every request takes effect and answers "done". It may be called by
	// several requests at once, and several times for one action.
	Script func(Request) Answer
	// HonourKeys makes the world answer a request whose Idempotency-Key it has seen with the first effect.
	HonourKeys bool
}

// World is a running outside world.
type World struct {
	cfg    Config
	server *http.Server
	url    string
	done   chan error

	mu    sync.Mutex
	log   []Effect
	byRef map[string][]int // indexes into log
	byKey map[string]int
	drops int
}

// Start starts a World on a free port of 127.0.0.1. Stop it with Close. Errors: those of listening.
func Start(ctx context.Context, cfg Config) (*World, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("outside world: %w", err)
	}
	w := &World{
		cfg: cfg, url: "http://" + listener.Addr().String(), done: make(chan error, 1),
		byRef: make(map[string][]int), byKey: make(map[string]int),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects", w.act)
	mux.HandleFunc("GET /effects", w.find)
	w.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { w.done <- w.server.Serve(listener) }()
	return w, nil
}

// URL is where the world listens.
func (w *World) URL() string { return w.url }

// Close stops the server and waits for it, at most until ctx ends. What was counted can still be read. Errors: ctx's.
func (w *World) Close(ctx context.Context) error {
	err := w.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, w.server.Close())
	}
	if served := <-w.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// maxBody bounds what one request may hold; recorded arguments stay far below.
const maxBody = 64 << 20

func (w *World) act(out http.ResponseWriter, in *http.Request) {
	var req Request
	if err := json.NewDecoder(http.MaxBytesReader(out, in.Body, maxBody)).Decode(&req); err != nil || req.Ref == "" {
		reply(out, http.StatusBadRequest, refusal{"tool, args and ref are required"})
		return
	}
	req.Key = in.Header.Get("Idempotency-Key")
	answer := Answer{Result: "done"}
	if w.cfg.Script != nil {
		answer = w.cfg.Script(req)
	}
	if answer.Delay > 0 {
		pause(in.Context(), answer.Delay) // takes effect also where the caller has gone meanwhile
	}
	if answer.Refuse != 0 {
		reply(out, answer.Refuse, refusal{answer.Result})
		return
	}
	effect := w.record(req, answer)
	if answer.Drop {
		drop(out)
		return
	}
	reply(out, http.StatusCreated, effect)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// record makes the effect, which cannot be undone and is not asked for its key unless the world honours keys.
func (w *World) record(req Request, answer Answer) Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer.Drop {
		w.drops++
	}
	if at, seen := w.byKey[req.Key]; seen && w.cfg.HonourKeys && req.Key != "" {
		return w.log[at]
	}
	first := len(w.log)
	for range 1 + answer.Repeat {
		w.byRef[req.Ref] = append(w.byRef[req.Ref], len(w.log))
		w.log = append(w.log, Effect{ID: len(w.log) + 1, Ref: req.Ref, Tool: req.Tool, Result: answer.Result})
	}
	if _, seen := w.byKey[req.Key]; !seen {
		w.byKey[req.Key] = first
	}
	return w.log[first]
}

// drop closes the connection so that the caller sees no answer at all.
func drop(out http.ResponseWriter) {
	conn, _, err := http.NewResponseController(out).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server's own way of closing a connection without an answer
	}
	_ = conn.Close()
}

func (w *World) find(out http.ResponseWriter, in *http.Request) {
	reply(out, http.StatusOK, found{w.Find(in.URL.Query().Get("ref"))})
}

type (
	refusal struct {
		Reason string `json:"reason"`
	}
	found struct {
		Effects []Effect `json:"effects"`
	}
)

func reply(out http.ResponseWriter, status int, body any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(body) // the caller may have gone
}

// Find returns the effects of one reference, first to last.
func (w *World) Find(ref string) []Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	effects := make([]Effect, 0, 1)
	for _, at := range w.byRef[ref] {
		effects = append(effects, w.log[at])
	}
	return effects
}

// Tally is what a World has counted.
type Tally struct {
	Effects int            // all that happened
	Double  int            // effects beyond the first of their reference
	Dropped int            // effects whose answer was dropped
	Refs    map[string]int // effects of each reference
}

// Tally returns the counts so far.
func (w *World) Tally() Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := Tally{Effects: len(w.log), Dropped: w.drops, Refs: make(map[string]int, len(w.byRef))}
	for ref, effects := range w.byRef {
		t.Refs[ref] = len(effects)
		t.Double += len(effects) - 1
	}
	return t
}

// Client calls a World as a tool calls a service.
type Client struct {
	URL  string
	HTTP *http.Client
}

// RefusedError is an answer that says for certain that nothing happened.
type RefusedError struct {
	Status int
	Reason string // the service's own words
}

// Error names the status, not the service's words, which may hold a tool's result.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the service refused: %d %s", e.Status, http.StatusText(e.Status))
}

// Act asks for an effect and returns its result. Errors: *RefusedError where it surely did not happen; after any other error
// nobody knows.
func (c *Client) Act(ctx context.Context, req Request) (string, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return "", err
	}
	in, err := newRequest(ctx, http.MethodPost, c.URL+"/effects", body)
	if err != nil {
		return "", err
	}
	in.Header.Set("Idempotency-Key", req.Key)
	var effect Effect
	if err := c.send(in, http.StatusCreated, &effect); err != nil {
		return "", err
	}
	return effect.Result, nil
}

// Find asks for the first effect of a reference. Errors: those of the connection; nothing is known then.
func (c *Client) Find(ctx context.Context, ref string) (result string, happened bool, err error) {
	in, err := newRequest(ctx, http.MethodGet, c.URL+"/effects", nil)
	if err != nil {
		return "", false, err
	}
	query := in.URL.Query()
	query.Set("ref", ref)
	in.URL.RawQuery = query.Encode()
	var list found
	if err := c.send(in, http.StatusOK, &list); err != nil || len(list.Effects) == 0 {
		return "", false, err
	}
	return list.Effects[0].Result, true, nil
}

func (c *Client) send(in *http.Request, want int, to any) error {
	out, err := c.HTTP.Do(in)
	if err != nil {
		return err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(io.LimitReader(out.Body, maxBody))
	if err != nil {
		return err
	}
	switch {
	case out.StatusCode == want:
		return json.Unmarshal(body, to)
	case out.StatusCode >= 400 && out.StatusCode < 500:
		var why refusal
		_ = json.Unmarshal(body, &why) // a refusal without a reason is one all the same
		return &RefusedError{out.StatusCode, why.Reason}
	}
	return fmt.Errorf("the service answered %d", out.StatusCode)
}
