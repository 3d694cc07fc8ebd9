package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"toolledger/writers"
)

// BedrockOptions tune Bedrock.
type BedrockOptions struct {
	TenantAttribute string                     // the session attribute that names the tenant; "" means "tenantId"
	KeyAttribute    string                     // the session attribute that holds the call key; "" means "idempotencyKey"
	Tool            func(action string) string // the tool of an action; nil means as Bedrock describes
	Wait            time.Duration              // for a call in flight, instead of telling the model to; 0 means 10 seconds
}

// maxBedrockBody is the longest body that is handed to an agent, in bytes: it takes 25 KB in all.
const maxBedrockBody = 20 << 10

// Bedrock serves action groups of Bedrock agents, with an API schema or with function details; each answer has the envelope
// of its kind, refusals included. Hand the result to lambda.Start, and let nobody but the agent invoke the function: its
// event says who the tenant is.
//
// An action is a function's name, or method and path as in "POST /tickets". It runs the tool of that name; of a path, the
// one whose name has the lower-case method and the path's segments joined by '_', as in post_tickets; or the one that
// BedrockOptions.Tool says.
//
// The tenant comes from a session attribute, which the application sets and no model does, and from nothing else. The call
// key comes from the parameter that keyParam names for the action ("" where it has none, as a nil keyParam says), or from
// a session attribute where an application wants exactly one action done; both and different are refused. The ledger's
// session is the agent's. The session attributes are handed back as they came.
//
// Parameters are text; each is converted to the type that the tool's schema has for it, strictly: "5" is an integer, "5.0"
// and " 5" are none. A parameter that is given twice is refused, and so is one that the tool does not have.
//
// A refusal's body is the problem document of the HTTP door with a detail that tells the model what to do. With function
// details, what the user can mend (arguments, a conflict, waiting) is a REPROMPT, everything else a FAILURE, which ends
// the turn with an error for the application. An event of another shape is a *ShapeError.
func Bedrock(l *writers.Ledger, t *Toolset, keyParam func(action string) string, opts ...func(*BedrockOptions)) function {
	if l == nil || t == nil {
		return func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errNoLedger }
	}
	b := &bedrock{ledger: l, tools: t, keyParam: keyParam}
	for _, opt := range opts {
		opt(&b.o)
	}
	b.o.TenantAttribute = cmp.Or(b.o.TenantAttribute, "tenantId")
	b.o.KeyAttribute = cmp.Or(b.o.KeyAttribute, keyField)
	if b.o.Tool == nil {
		b.o.Tool = toolOfAction
	}
	if b.keyParam == nil {
		b.keyParam = func(string) string { return "" }
	}
	return b.handle
}

type bedrock struct {
	ledger   *writers.Ledger
	tools    *Toolset
	keyParam func(action string) string
	o        BedrockOptions
}

// handle serves one event. Errors: *ShapeError.
func (b *bedrock) handle(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
	if fromAgentCore(ctx) {
		return nil, &ShapeError{doorBedrock, "the event came through an AgentCore gateway"}
	}
	e, rule := readBedrockEvent(event)
	if rule != "" {
		return nil, &ShapeError{doorBedrock, rule}
	}
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return encode(e.answer(b.run(ctx, e)))
}

// run calls the tool of the event.
func (b *bedrock) run(ctx context.Context, e *BedrockEvent) (res ToolResult) {
	var err error
	defer func() {
		if err != nil {
			res = refused(ToolUse{}, err)
		}
	}()
	defer guard(ctx, b.ledger.Plumbing().Logger, &err)
	c := toolCall{
		tenant: writers.TenantID(e.SessionAttributes[b.o.TenantAttribute]), session: e.SessionID, tool: b.o.Tool(e.action()),
	}
	if c.tenant == "" { // before anything else: who is nobody learns nothing of the tools
		return refused(ToolUse{}, missingTenant(nil))
	}
	if c.key, c.input, err = b.arguments(e, c.tool); err != nil {
		return res
	}
	return runTool(ctx, b.ledger, b.tools, c, b.o.Wait)
}

// arguments makes the tool's input of the parameters, and takes the key out of them. Errors: writers.ErrInvalid.
func (b *bedrock) arguments(e *BedrockEvent, tool string) (key string, input json.RawMessage, err error) {
	given, name := e.SessionAttributes[b.o.KeyAttribute], b.keyParam(e.action())
	all := e.Parameters
	if e.RequestBody != nil {
		all = append(all[:len(all):len(all)], e.RequestBody.Content[jsonType].Properties...)
	}
	entry := b.tools.tools[tool]
	args, seen := map[string]json.RawMessage{}, map[string]bool{}
	for _, p := range all {
		if seen[p.Name] {
			return "", nil, notAccepted("parameters", showName(p.Name)+" is given more than once")
		}
		seen[p.Name] = true
		if _, declared := entry.args[p.Name]; p.Name == name && name != "" {
			if key = p.Value; !declared {
				continue
			}
		}
		value, rule := entry.convert(p)
		if rule != "" {
			return "", nil, notAccepted("parameters", showName(p.Name)+" "+rule)
		}
		args[p.Name] = value
	}
	switch {
	case key != "" && given != "" && key != given:
		return "", nil, notAccepted(name, "differs from the key that the application gave")
	case key == "" && given == "" && name != "" && entry.tool != nil && !entry.tool.Spec().ReadOnly:
		return "", nil, notAccepted(name, name+" is required: a name of your own for this one action, the same on every retry")
	case key == "":
		key = given
	}
	input, err = encode(args)
	return key, input, err
}

// notAccepted is the refusal of what a model filled in.
func notAccepted(field, rule string) error {
	return &writers.Error{Code: writers.ErrInvalid, Op: "do", Field: field, Reason: rule}
}

// showName keeps a text that a model passes off as a name from being repeated at length.
func showName(name string) string {
	if len(name) > maxNameShown {
		return "a parameter"
	}
	return name
}

// toolOfAction makes a tool's name of an action: method and path in lower case, the segments joined by '_', or the name of
// the function.
func toolOfAction(action string) string {
	method, path, byAPI := strings.Cut(action, " ")
	if !byAPI {
		return action
	}
	name := strings.ToLower(method)
	for segment := range strings.SplitSeq(path, "/") {
		if segment = strings.Trim(segment, "{}"); segment != "" {
			name += "_" + segment
		}
	}
	return name
}

// answer puts the result into the envelope of the event's kind.
func (e *BedrockEvent) answer(res ToolResult) *BedrockResponse {
	status, body, state := http.StatusOK, res.Content, ""
	if res.IsError {
		p := problemOf(res.Err)
		p.Detail, state = res.Content, bedrockState(res.Err)
		status, body = p.Status, mustEncode(p)
		if len(body) > maxBedrockBody { // the reason is a tool's own; the code and the advice for it are not
			p.Detail, p.Differs = advice(&writers.Error{Code: writers.Code(p.Code), Reason: "the reason is too long to be shown here"}), nil
			body = mustEncode(p)
		}
	}
	if len(body) > maxBedrockBody {
		body = mustEncode(struct {
			Done bool   `json:"done"`
			Note string `json:"note"`
		}{true, fmt.Sprintf("It is done and recorded. Its result of %d bytes is too long to be shown here. Do not call again.", len(body))})
	}
	out := &BedrockResponse{
		MessageVersion: bedrockVersion, SessionAttributes: e.SessionAttributes, PromptSessionAttributes: e.PromptSessionAttributes,
		Response: BedrockActionResponse{ActionGroup: e.ActionGroup},
	}
	if e.byAPI() {
		out.Response.APIPath, out.Response.HTTPMethod, out.Response.HTTPStatusCode = e.APIPath, e.HTTPMethod, status
		out.Response.ResponseBody = map[string]BedrockBody{jsonType: {body}}
		return out
	}
	out.Response.Function = e.Function
	out.Response.FunctionResponse = &BedrockFunctionResponse{ResponseState: state, ResponseBody: map[string]BedrockBody{textType: {body}}}
	return out
}

// mustEncode encodes a struct of strings and numbers, which always encodes.
func mustEncode(v any) string {
	b, err := encode(v)
	if err != nil {
		return `{"code":"` + codeInternal + `"}`
	}
	return string(b)
}

// bedrockState sorts refusals: what the user can mend, by other words, another choice or patience, goes back to the model.
func bedrockState(err error) string {
	code, _ := errors.AsType[writers.Code](err)
	switch code {
	case writers.ErrInvalid:
		if e, ok := errors.AsType[*writers.Error](err); ok && (e.Field == keyField || e.Field == toolField || callers(e)) {
			return BedrockFailure // neither user nor model can give the application's key, tenant or session, or a tool that is not there
		}
		return BedrockReprompt
	case writers.ErrInProgress, writers.ErrNotApplied, writers.ErrKeyConflict, writers.ErrNotCompensable, writers.ErrWriteRefused,
		writers.ErrSessionMoved, writers.ErrNotFound, writers.ErrTooLarge:
		return BedrockReprompt
	default:
		return BedrockFailure
	}
}
