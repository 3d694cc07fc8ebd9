package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"toolledger/writers"
)

// gateway turns events of an HTTP API (payload version 2.0) into requests of the handler and its answers back.
type gateway struct {
	handler http.Handler
	claim   string
}

// errShape is returned for events that are none of an HTTP API; Lambda reports it as a function error.
var errShape = errors.New("not an event of an HTTP API, payload version 2.0: this function serves the http door only")

// handle serves one event. Errors: errShape.
func (g gateway) handle(ctx context.Context, event json.RawMessage) (events.APIGatewayV2HTTPResponse, error) {
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(event, &e); err != nil || e.Version != "2.0" || e.RequestContext.HTTP.Method == "" {
		return events.APIGatewayV2HTTPResponse{}, errShape
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded { // bodies without a text content type arrive like this
		decoded, err := base64.StdEncoding.DecodeString(e.Body)
		if err != nil {
			return problem(http.StatusBadRequest, writers.ErrInvalid, "the body is marked as base64 and is not"), nil
		}
		body = decoded
	}
	target := url.URL{Path: e.RawPath, RawQuery: e.RawQueryString}
	r, err := http.NewRequestWithContext(withTenant(ctx, g.tenant(&e)), e.RequestContext.HTTP.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		return problem(http.StatusBadRequest, writers.ErrInvalid, "the request line cannot be read"), nil
	}
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	g.handler.ServeHTTP(w, r)
	return w.event(), nil
}

// tenant is the one scalar claim that the authorizer verified; "" where there is none.
func (g gateway) tenant(e *events.APIGatewayV2HTTPRequest) writers.TenantID {
	if e.RequestContext.Authorizer == nil || e.RequestContext.Authorizer.JWT == nil {
		return ""
	}
	claim := e.RequestContext.Authorizer.JWT.Claims[g.claim]
	if strings.HasPrefix(claim, "[") { // HTTP APIs flatten a list claim to "[a b]": several tenants are none
		return ""
	}
	return writers.TenantID(claim)
}

type tenantKey struct{}

func withTenant(ctx context.Context, t writers.TenantID) context.Context {
	return context.WithValue(ctx, tenantKey{}, t)
}

var errNoTenant = errors.New("the authorizer names no tenant")

// tenantOf takes the tenant from where handle put it, and from nowhere else.
func tenantOf(r *http.Request) (writers.TenantID, error) {
	t, _ := r.Context().Value(tenantKey{}).(writers.TenantID)
	if t == "" {
		return "", errNoTenant
	}
	return t, nil
}

// answer collects what the handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *answer) event() events.APIGatewayV2HTTPResponse {
	headers := make(map[string]string, len(a.header))
	for name, values := range a.header {
		headers[name] = strings.Join(values, ",")
	}
	return events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: headers, Body: a.body.String()}
}

func problem(status int, code writers.Code, detail string) events.APIGatewayV2HTTPResponse {
	body, err := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
	if err != nil {
		status = http.StatusInternalServerError
	}
	return events.APIGatewayV2HTTPResponse{
		StatusCode: status, Headers: map[string]string{"Content-Type": "application/problem+json"}, Body: string(body),
	}
}
