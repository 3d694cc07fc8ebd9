package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"toolledger/writers"
)

// function is what lambda.Start takes.
type function = func(context.Context, json.RawMessage) (json.RawMessage, error)

// answerMargin is what a function keeps of its time for the answer: Lambda kills it at the context's deadline.
const answerMargin = 500 * time.Millisecond

// withMargin ends shortly before ctx does.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-answerMargin))
	}
	return context.WithCancel(ctx)
}

// The names of the doors, in their errors.
const (
	doorDirect    = "direct"
	doorBedrock   = "bedrock"
	doorAgentCore = "agentcore"
)

// agentCorePrefix begins every name that an AgentCore gateway puts into the client context.
const agentCorePrefix = "bedrockagentcore"

// fromAgentCore tells whether an invocation came through an AgentCore gateway, whose event is what a model wrote.
func fromAgentCore(ctx context.Context) bool {
	lc, ok := lambdacontext.FromContext(ctx)
	if !ok || lc == nil {
		return false
	}
	for name := range lc.ClientContext.Custom {
		if strings.HasPrefix(strings.ToLower(name), agentCorePrefix) {
			return true
		}
	}
	return false
}

// Direct serves trusted backends and the states of a Step Functions workflow: {"op":"reserve","tenant":"acme",…}. Whoever
// may invoke it may name any tenant: give it a function and a role of its own, and let nothing invoke it that passes on
// what a model wrote.
//
// op is commit, reserve, finalize, release, extend or resolve, with the fields of the HTTP operation of that name; get with
// session, key, scope and wait_seconds; calls with session, after and limit; or quota. "include":"remaining_tokens" asks a
// mutating operation for the quota. The answer is the document that the HTTP operation has for a body. A refusal is an
// answer too: the problem document, told apart by its member "code", for a workflow to branch on; retry_after_seconds is
// there where the same request may succeed soon. Only what says nothing about the request is an error: *UnavailableError,
// for a workflow's Retry to send again with the same key, and *ShapeError, for an event that is not of this door or that
// came through an AgentCore gateway, whose event a model has written.
//
// Hand the result to lambda.Start.
func Direct(l *writers.Ledger) function {
	if l == nil {
		return func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errNoLedger }
	}
	p := l.Plumbing()
	d := &direct{s: &server{ledger: l, cfg: HandlerConfig{Timeout: defaultTimeout, MaxBody: defaultMaxBody, Now: p.Now, Logger: p.Logger}}}
	return d.handle
}

type direct struct{ s *server }

// handle serves one event.
func (d *direct) handle(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
	rep, err := d.answer(ctx, event)
	if err == nil {
		return rep.body, nil
	}
	if shape, ok := err.(*ShapeError); ok { //nolint:errorlint // made here, and wrapped by nobody
		return nil, shape
	}
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		return nil, &UnavailableError{Code: p.Code, Detail: p.Detail, Err: err}
	}
	return encode(p)
}

// answer does what the event asks for.
func (d *direct) answer(ctx context.Context, event json.RawMessage) (rep *reply, err error) {
	defer guard(ctx, d.s.cfg.Logger, &err)
	if fromAgentCore(ctx) {
		return nil, &ShapeError{doorDirect, "an event that came through an AgentCore gateway is what a model wrote, and names no tenant here"}
	}
	m, rule := members(event)
	if rule != "" {
		return nil, &ShapeError{doorDirect, "the event " + rule}
	}
	var op, tenant, include string
	if raw, ok := m["op"]; !ok || text(&op)(raw) != "" || op == "" {
		return nil, &ShapeError{doorDirect, `the event has no "op"`}
	}
	if raw, ok := m["tenant"]; ok {
		if rule := text(&tenant)(raw); rule != "" {
			return nil, invalid(op, "tenant", rule)
		}
	}
	if tenant == "" {
		return nil, missingTenant(nil)
	}
	if raw, ok := m["include"]; ok {
		if rule := choice(&include, "remaining_tokens")(raw); rule != "" {
			return nil, invalid(op, "include", rule)
		}
		delete(m, "include")
	}
	delete(m, "op")
	delete(m, "tenant")
	t := d.s.ledger.Tenant(writers.TenantID(tenant))
	if i := slices.IndexFunc(operations(), func(o *operation) bool { return o.name == op }); i >= 0 {
		return d.write(ctx, operations()[i], t, m, include != "")
	}
	if include != "" {
		return nil, invalid(op, "include", "is not a field of "+op)
	}
	return d.read(ctx, op, t, m)
}

// write runs one of the operations that the HTTP door posts.
func (d *direct) write(ctx context.Context, o *operation, t writers.Tenant, m map[string]json.RawMessage, remaining bool) (*reply, error) {
	req, err := decodeMembers(o, m, "")
	if err != nil {
		return nil, err
	}
	return o.do(ctx, d.s, t, req, remaining)
}

// read runs one of the operations that change nothing.
func (d *direct) read(ctx context.Context, op string, t writers.Tenant, m map[string]json.RawMessage) (*reply, error) {
	var session, key, after string
	scope, limit := scopeSession, int64(defaultPage)
	var wait time.Duration
	take := func(required []string, fields map[string]setter) error {
		if name, rule := fill(m, required, fields); rule != "" {
			return invalid(op, name, rule)
		}
		return nil
	}
	switch op {
	case "get":
		if err := take([]string{"session", "key"}, map[string]setter{
			"session": text(&session), "key": text(&key), "scope": choice(&scope, scopeSession, scopeTenant), "wait_seconds": seconds(&wait, 0, maxSeconds),
		}); err != nil {
			return nil, err
		}
		return d.s.call(ctx, t.Session(session), keyOf(scope, key), wait)
	case "calls":
		if err := take([]string{"session"}, map[string]setter{
			"session": text(&session), "after": text(&after), "limit": integer(&limit, 1, maxPage),
		}); err != nil {
			return nil, err
		}
		return d.s.page(ctx, t.Session(session), after, limit)
	case "quota":
		if err := take(nil, nil); err != nil {
			return nil, err
		}
		return d.s.quota(ctx, t)
	default:
		return nil, invalid("direct", "op", "is none of commit, reserve, finalize, release, extend, resolve, get, calls and quota")
	}
}
