package api

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"time"

	"toolledger/writers"
)

// MaxWait is the longest that a request may wait for a call in flight, whatever wait_seconds asks for: the gateways in
// front of this handler cut a request off at 30 seconds. A function that is to wait so long needs a timeout of 26 seconds
// or more; with a shorter one it waits for four fifths of what it has left.
const MaxWait = 20 * time.Second

const (
	defaultTimeout = 25 * time.Second
	defaultMaxBody = 6 << 20 // what a Lambda function can be sent at most
)

// HandlerConfig configures NewHandler. Tenant is required.
type HandlerConfig struct {
	// Tenant says on whose behalf a request comes, from what an authorizer verified. An error, or "", refuses the request
	// with missing_tenant; the error's text is not shown to the caller.
	Tenant func(*http.Request) (writers.TenantID, error)
	// Admin says who may PUT /v1/tenants/{tenant}/plan; nil means nobody.
	Admin func(*http.Request) bool

	// Timeout bounds one request, including the time it waits for a call in flight; 0 means 25 seconds. Where the request's
	// context ends earlier, that bounds it, with half a second left to answer. The http.Server
	// around the handler bounds how long a body may take to arrive.
	Timeout time.Duration
	// MaxBody is the largest request body in bytes; 0 means 6 MiB.
	MaxBody int64
	// Now is the clock that lease_seconds is counted by, the same as the ledger's; nil means time.Now.
	Now func() time.Time
	// Logger gets one line per request, and panics; never a body, a key or a result. nil means silent.
	Logger *slog.Logger
}

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the OpenAPI 3.1 document of the handler, in YAML, as it is served at /openapi.yaml.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

// NewHandler serves the ledger over HTTP; see /openapi.yaml. The handler is safe for concurrent use and keeps nothing
// between requests. Errors: writers.ErrInvalid naming the field of cfg.
func NewHandler(l *writers.Ledger, cfg HandlerConfig) (http.Handler, error) {
	switch {
	case l == nil:
		return nil, configError("ledger", "is required")
	case cfg.Tenant == nil:
		return nil, configError("Tenant", "is required")
	case cfg.Timeout < 0:
		return nil, configError("Timeout", "must not be negative")
	case cfg.MaxBody < 0:
		return nil, configError("MaxBody", "must not be negative")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return newServer(l, cfg), nil
}

func configError(field, rule string) error {
	return &writers.Error{Code: writers.ErrInvalid, Op: "new handler", Field: field, Reason: field + " " + rule}
}

// left is how long a request may take: Timeout, or less where ctx ends earlier. A function is killed at that moment, so it
// keeps something to answer in.
func (s *server) left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return s.cfg.Timeout
	}
	return min(s.cfg.Timeout, until(deadline)-answerMargin)
}

// until is the time to a context's deadline.
func until(deadline time.Time) time.Duration {
	return time.Until(deadline) //nolint:forbidigo // a context's deadline is in real time, whatever Now says
}

// maxWait is the longest wait that leaves time to answer before ctx ends.
func maxWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return MaxWait
	}
	return max(0, min(MaxWait, until(deadline)*4/5))
}

// bounded ends with the request, or when its time is over.
func (s *server) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.left(ctx))
}

// recording does not end when the caller hangs up: what has happened outside is recorded whether or not anybody listens. It
// ends with the request's time, since a function that is killed answers nobody.
func (s *server) recording(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.left(ctx))
}
