package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// server holds what all requests share.
type server struct {
	ledger *writers.Ledger
	cfg    HandlerConfig
	mux    *http.ServeMux
	none   http.Handler // of paths that are not there
}

// access is who may use a route.
type access int

const (
	forTenant access = iota
	forAdmin
	forAnybody
)

// route is one method of one path. run gets the tenant where access is forTenant, and returns what to answer.
type route struct {
	method, path string
	access       access
	run          func(s *server, r *http.Request, t writers.Tenant) (*reply, error)
}

// routes is every endpoint; the OpenAPI document is checked against it.
func routes() []route {
	all := []route{
		{http.MethodGet, "/healthz", forAnybody, (*server).healthz},
		{http.MethodGet, "/openapi.yaml", forAnybody, (*server).document},
		{http.MethodGet, "/v1/calls", forTenant, (*server).getCall},
		{http.MethodGet, "/v1/sessions/{session}/calls", forTenant, (*server).listCalls},
		{http.MethodGet, "/v1/quota", forTenant, (*server).getQuota},
		{http.MethodPut, "/v1/tenants/{tenant}/plan", forAdmin, (*server).putPlan},
	}
	for _, op := range operations() {
		all = append(all, route{http.MethodPost, "/v1/" + op.name, forTenant, op.serve})
	}
	return all
}

func newServer(l *writers.Ledger, cfg HandlerConfig) *server {
	s := &server{ledger: l, cfg: cfg, mux: http.NewServeMux()}
	byPath := map[string][]route{}
	for _, rt := range routes() {
		byPath[rt.path] = append(byPath[rt.path], rt)
	}
	for path, methods := range byPath {
		s.mux.Handle(path, s.endpoint(path, methods))
	}
	s.none = s.endpoint("", nil)
	s.mux.Handle("/", s.none)
	return s
}

// ServeHTTP serves one request. A path that is not clean is no path here: the mux would redirect it, and a client that follows
// sends its body, and whom it speaks for, to where it did not mean to.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !clean(r) {
		s.none.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func clean(r *http.Request) bool {
	p := r.URL.EscapedPath()
	cleaned := path.Clean(p)
	if cleaned != "/" && strings.HasSuffix(p, "/") {
		cleaned += "/"
	}
	return r.RequestURI != "*" && strings.HasPrefix(p, "/") && p == cleaned
}

// endpoint serves one path: it finds the method, the tenant and the answer, and writes exactly one response.
func (s *server) endpoint(path string, methods []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.cfg.Now()
		rep, err := s.answer(path, methods, r)
		if err != nil {
			rep = problemReply(err)
		}
		rep.write(w, r.Method)
		s.log(r, path, rep, err, s.cfg.Now().Sub(began))
	})
}

// answer runs the route, turning a panic into an error: one bad request must not end the process or the connection.
func (s *server) answer(path string, methods []route, r *http.Request) (rep *reply, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { //nolint:errorlint // compared as net/http does
			panic(v)
		}
		// The value may quote a request: its type and the stack are enough to find the fault.
		s.cfg.Logger.ErrorContext(r.Context(), "request panicked",
			slog.String("route", path), slog.String("type", typeName(v)), slog.String("stack", string(debug.Stack())))
		rep, err = nil, errInternal
	}()
	if len(methods) == 0 {
		return nil, &httpError{status: http.StatusNotFound, code: string(writers.ErrNotFound), detail: "there is no such path; see /openapi.yaml"}
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(methods, func(rt route) bool { return rt.method == method })
	if i < 0 {
		return nil, methodNotAllowed(methods)
	}
	rt := methods[i]
	var tenant writers.Tenant
	switch rt.access {
	case forTenant:
		if tenant, err = s.tenant(r); err != nil {
			return nil, err
		}
	case forAdmin:
		if s.cfg.Admin == nil || !s.cfg.Admin(r) {
			return nil, &httpError{status: http.StatusForbidden, code: codeForbidden, detail: "only an administrator may do this at this door"}
		}
	case forAnybody:
	}
	return rt.run(s, r, tenant)
}

// typeName is all that may be told of a value that somebody panicked with.
func typeName(v any) string { return fmt.Sprintf("%T", v) }

func methodNotAllowed(methods []route) error {
	var allow []string
	for _, rt := range methods {
		allow = append(allow, rt.method)
		if rt.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	return &httpError{
		status: http.StatusMethodNotAllowed, code: codeMethod, allow: strings.Join(allow, ", "),
		detail: "use " + strings.Join(allow, " or "),
	}
}

// tenant asks the configuration who the caller is. Why it could not say is for the log, not for the caller.
func (s *server) tenant(r *http.Request) (writers.Tenant, error) {
	id, err := s.cfg.Tenant(r)
	if err != nil || id == "" {
		return writers.Tenant{}, missingTenant(err)
	}
	return s.ledger.Tenant(id), nil
}

func (s *server) log(r *http.Request, path string, rep *reply, err error, took time.Duration) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("route", path), slog.Int("status", rep.status),
		slog.Duration("took", took),
	}
	if rep.code != "" {
		attrs = append(attrs, slog.String("code", rep.code))
	}
	if rep.status >= http.StatusInternalServerError {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("cause", err))
	}
	s.cfg.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

func (s *server) healthz(*http.Request, writers.Tenant) (*reply, error) {
	return jsonReply(struct {
		Status string `json:"status"`
	}{"ok"}), nil
}

func (s *server) document(*http.Request, writers.Tenant) (*reply, error) {
	return &reply{status: http.StatusOK, contentType: "application/yaml", body: openAPI}, nil
}
