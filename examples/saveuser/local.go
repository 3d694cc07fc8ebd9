package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// trouble is what a network does to one request.
type trouble int

const (
	fine       trouble = iota
	overloaded         // answered with 503 by something in front of the function
	lost               // never arrives
	answerLost         // arrives and takes effect, and the answer is lost
)

// local stands for API Gateway and for Lambda's Invoke operation in front of the function, on this machine, with a network
// that loses things.
type local struct {
	url    string
	server *http.Server
	h      *handler
	tokens map[string]string // tenant by bearer token: what a JWT authorizer would verify
	what   func(n int64) trouble
	n      atomic.Int64
}

func openLocal(h *handler, tokens map[string]string, what func(n int64) trouble) (*local, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &local{url: "http://" + ln.Addr().String(), h: h, tokens: tokens, what: what}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users", l.troubled(l.gateway))
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", l.troubled(l.invoke))
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = l.server.Serve(ln) }() // ends with close
	return l, nil
}

func (l *local) close() { _ = l.server.Close() }

// troubled lets the network have its way with a request.
func (l *local) troubled(next func(context.Context, *http.Request, []byte) (int, http.Header, any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		t := l.what(l.n.Add(1))
		switch t {
		case overloaded:
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		case lost:
			panic(http.ErrAbortHandler)
		case fine, answerLost:
		}
		status, header, doc := next(r.Context(), r, body)
		if t == answerLost {
			panic(http.ErrAbortHandler)
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(doc)
	}
}

// gateway is an HTTP API with a JWT authorizer.
func (l *local) gateway(ctx context.Context, r *http.Request, body []byte) (int, http.Header, any) {
	tenant := l.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if tenant == "" {
		return http.StatusUnauthorized, nil, map[string]string{"message": "Unauthorized"}
	}
	var e events.APIGatewayV2HTTPRequest
	e.Body = string(body)
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"tenant": tenant}},
	}
	res, err := l.h.overHTTP(ctx, e)
	if err != nil {
		return http.StatusInternalServerError, nil, map[string]string{"message": "Internal Server Error"}
	}
	return res.StatusCode, nil, json.RawMessage(res.Body)
}

var errUnsigned = errors.New("an invocation without a signature")

// invoke is Lambda's Invoke operation.
func (l *local) invoke(ctx context.Context, r *http.Request, body []byte) (int, http.Header, any) {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
		return http.StatusForbidden, nil, map[string]string{"Message": errUnsigned.Error()}
	}
	a, err := l.h.overInvoke(ctx, body)
	if err != nil {
		return http.StatusOK, http.Header{"X-Amz-Function-Error": {"Unhandled"}}, map[string]string{"errorMessage": err.Error()}
	}
	return http.StatusOK, nil, a
}
