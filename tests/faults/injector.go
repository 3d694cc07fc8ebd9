package faults

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// Injector sits between a caller and DynamoDB. It is safe for concurrent use.
type Injector struct {
	dead atomic.Bool

	mu     sync.Mutex
	hook   Hook
	seq    map[Level]int
	counts map[Level]map[string]int
}

// New returns an Injector with a hook; nil lets everything pass.
func New(hook Hook) *Injector {
	in := &Injector{}
	in.Set(hook)
	return in
}

// Set replaces the hook and begins to count anew.
func (in *Injector) Set(hook Hook) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hook, in.seq, in.counts = hook, map[Level]int{}, map[Level]map[string]int{Call: {}, Try: {}}
}

// Count returns how many events of a level and operation there were since Set; "" counts all operations.
func (in *Injector) Count(level Level, op string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if op == "" {
		return in.seq[level]
	}
	return in.counts[level][op]
}

// Dead tells whether the process has died.
func (in *Injector) Dead() bool { return in.dead.Load() }

// Kill lets the process die now: whoever makes a request, or waits for an answer, ends.
func (in *Injector) Kill() { in.dead.Store(true) }

// Revive makes the Injector that of a new process.
func (in *Injector) Revive() { in.dead.Store(false) }

// Run runs f in a goroutine of its own and waits for it; finished is false where f died on the way.
func (in *Injector) Run(f func()) (finished bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		finished = true
	}()
	<-done
	return finished
}

// decide numbers an event and asks the hook.
func (in *Injector) decide(e Event) Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seq[e.Level]++
	in.counts[e.Level][e.Op]++
	e.Seq, e.N = in.seq[e.Level], in.counts[e.Level][e.Op]
	if in.hook == nil {
		return Fault{}
	}
	return in.hook(e)
}

// Attach puts both levels into an SDK client: pass it to dynamodb.NewFromConfig or dynamodb.New.
func (in *Injector) Attach(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return s.Initialize.Add(&callMiddleware{in}, middleware.Before)
	})
	o.HTTPClient = &tryClient{in, o.HTTPClient}
}

// callMiddleware is level Call.
type callMiddleware struct{ in *Injector }

// ID names the middleware in the stack.
func (*callMiddleware) ID() string { return "toolledger.faults" }

// HandleInitialize does a fault to one call.
func (m *callMiddleware) HandleInitialize(ctx context.Context, input middleware.InitializeInput, next middleware.InitializeHandler) (
	out middleware.InitializeOutput, meta middleware.Metadata, err error,
) {
	m.in.live()
	f := m.in.decide(Event{Level: Call, Op: opOf(input.Parameters), Input: input.Parameters})
	ctx = context.WithValue(ctx, callKey{}, &call{input: input.Parameters})
	out, err = around(ctx, m.in, f, func() (middleware.InitializeOutput, error) {
		out, m, err := next.HandleInitialize(ctx, input)
		meta = m
		return out, err
	})
	return out, meta, err
}

// call is what the tries of one call share.
type call struct {
	input any
	tries atomic.Int64
}

type callKey struct{}

// tryClient is level Try.
type tryClient struct {
	in   *Injector
	next dynamodb.HTTPClient
}

// Do does a fault to one HTTP request.
func (c *tryClient) Do(r *http.Request) (*http.Response, error) {
	made, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return c.next.Do(r)
	}
	c.in.live()
	f := c.in.decide(Event{
		Level: Try, Op: opOf(made.input), Input: made.input, Token: tokenOf(made.input), Try: int(made.tries.Add(1)),
	})
	return c.answer(r, f)
}

func (c *tryClient) answer(r *http.Request, f Fault) (*http.Response, error) {
	out, err := around(r.Context(), c.in, f, func() (*http.Response, error) {
		resp, err := c.next.Do(r)
		if err == nil && f.what != pass {
			resp, err = buffered(resp) // what is applied is applied, whatever becomes of the answer
		}
		return resp, err
	})
	if err != nil && (f.what == fail || f.what == lose) {
		if resp := serviceAnswer(r, err); resp != nil {
			return resp, nil
		}
	}
	return out, err
}
