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
	"github.com/aws/aws-lambda-go/lambdacontext"

	"toolledger/writers"
)

// gateway turns events of an HTTP API or a function URL (payload version 2.0) into requests of the handler and its answers
// back.
type gateway struct {
	handler http.Handler
	callers callers
}

// errShape is returned for events that are none of an HTTP API; Lambda reports it as a function error.
var errShape = errors.New("not an event of an HTTP API, payload version 2.0: this function serves HTTP only")

// errContext is returned for invocations with a client context, which gateways of HTTP never send: an AgentCore gateway does,
// and its event, which a model wrote, would say who its authorizer verified.
var errContext = errors.New("the invocation has a client context, so it does not come from an HTTP API: this function serves HTTP only")

// handle serves one event. Errors: errShape, errContext.
func (g gateway) handle(ctx context.Context, event json.RawMessage) (events.APIGatewayV2HTTPResponse, error) {
	if lc, ok := lambdacontext.FromContext(ctx); ok && lc != nil && len(lc.ClientContext.Custom) > 0 {
		return events.APIGatewayV2HTTPResponse{}, errContext
	}
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(event, &e); err != nil || e.Version != "2.0" || e.RequestContext.HTTP.Method == "" {
		return events.APIGatewayV2HTTPResponse{}, errShape
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded { // bodies without a text content type arrive like this
		decoded, err := base64.StdEncoding.DecodeString(e.Body)
		if err != nil {
			return problem(http.StatusBadRequest, writers.ErrInvalid, "the body is marked as base64 and is not"), nil //nolint:nilerr // the refusal is the answer
		}
		body = decoded
	}
	target := pathOf(&e)
	if e.RawQueryString != "" {
		target += "?" + e.RawQueryString
	}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, callerKey{}, g.callers.of(&e)), e.RequestContext.HTTP.Method, "/", bytes.NewReader(body))
	if err == nil { // read as a server does: a path that begins with two slashes names no other host
		r.URL, err = url.ParseRequestURI(target)
	}
	if err != nil || !strings.HasPrefix(target, "/") {
		return problem(http.StatusBadRequest, writers.ErrInvalid, "the request line cannot be read"), nil //nolint:nilerr // the refusal is the answer
	}
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	g.handler.ServeHTTP(w, r)
	return w.event(), nil
}

// pathOf is the escaped path without the stage, which the gateway puts in front where the stage has a name. A function URL
// hands the path on as it was sent; an HTTP API decodes it.
func pathOf(e *events.APIGatewayV2HTTPRequest) string {
	path := e.RawPath
	if stage := e.RequestContext.Stage; stage != "" && stage != "$default" {
		if rest, ok := strings.CutPrefix(path, "/"+stage+"/"); ok {
			path = "/" + rest
		}
	}
	if strings.Contains(e.RequestContext.DomainName, ".lambda-url.") {
		return path
	}
	return escaped(path)
}

// escaped escapes a decoded path. An id in the middle of one may hold slashes and dots, which are not those of the path.
func escaped(path string) string {
	for prefix, suffix := range map[string]string{"/v1/sessions/": "/calls", "/v1/tenants/": "/plan"} {
		rest, begins := strings.CutPrefix(path, prefix)
		id, ends := strings.CutSuffix(rest, suffix)
		if begins && ends && id != "" {
			return prefix + strings.ReplaceAll(url.PathEscape(id), ".", "%2E") + suffix
		}
	}
	return (&url.URL{Path: path}).EscapedPath()
}

type callerKey struct{}

var errNoTenant = errors.New("the authorizer names no tenant")

// tenantOf takes the tenant from where handle put it, and from nowhere else.
func tenantOf(r *http.Request) (writers.TenantID, error) {
	c, _ := r.Context().Value(callerKey{}).(caller)
	if c.tenant == "" {
		return "", errNoTenant
	}
	return c.tenant, nil
}

// nobody is the tenant at the admin door: an administrator acts for no tenant.
func nobody(*http.Request) (writers.TenantID, error) { return "", errNoTenant }

func adminOf(r *http.Request) bool {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c.admin
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
	out := events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: headers, Body: a.body.String()}
	// Lambda takes 6 MB of JSON, in which each quote of the body is two bytes. The gateway gives the caller the same either way.
	if n := base64.StdEncoding.EncodedLen(a.body.Len()); a.body.Len() > plainBody && n < quoted(a.body.Bytes()) {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(a.body.Bytes()), true
	}
	return out
}

// plainBody is the longest body, in bytes, that is always handed to the gateway as text: whatever its JSON string makes of it fits.
const plainBody = 1 << 20

// quoted is about how long a JSON text is as a JSON string, in bytes.
func quoted(text []byte) int {
	n := len(text)
	for _, c := range []byte{'"', '\\', '\n', '\r', '\t'} {
		n += bytes.Count(text, []byte{c})
	}
	return n
}

func problem(status int, code writers.Code, detail string) events.APIGatewayV2HTTPResponse {
	body, err := json.Marshal(map[string]any{
		"type": "urn:problem-type:toolledger:" + string(code), "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
	if err != nil {
		status = http.StatusInternalServerError
	}
	return events.APIGatewayV2HTTPResponse{
		StatusCode: status, Headers: map[string]string{"Content-Type": "application/problem+json"}, Body: string(body),
	}
}
