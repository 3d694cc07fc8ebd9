package api

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"toolledger/writers"
)

// AgentCoreOptions tune AgentCore.
type AgentCoreOptions struct {
	Tool        func(target, tool string) string            // the tool's name in the Toolset; nil means tool
	KeyHeader   string                                      // the header that holds the call key; "" means Idempotency-Key
	KeyArgument string                                      // the argument that holds it otherwise; "" means idempotencyKey
	Session     func(headers map[string]string) (id string) // the ledger's session; nil or "" means one for all, "agentcore"
	Wait        time.Duration                               // for a call in flight; 0 means 10 seconds
}

// The names in the client context of a call through an AgentCore gateway.
const (
	agentCoreTool    = "bedrockAgentCoreToolName"
	agentCoreHeaders = "bedrockAgentCorePropagatedHeaders"
	agentCoreSession = "agentcore"
)

// AgentCore serves the Lambda targets of an AgentCore gateway. The event is the tool's bare arguments, which a model wrote;
// everything else is in the client context: the tool, as <target>___<tool>, and the headers that the target's configuration
// lets through. Hand the result to lambda.Start, and let nobody but the gateway invoke the function.
//
// tenant is asked who the caller is; it gets the headers, their names in lower case, and nothing of the event. Let it read
// only a header that a request interceptor sets after it verified the caller's token, and overwrites where a caller sent
// it: the gateway passes on what callers send. An error, or "", refuses the call; the error's text is told to nobody.
//
// The call key comes from the Idempotency-Key header, which has to be among the headers let through, or from an argument
// that the target's tool schema declares, idempotencyKey; both and different are refused, and so is a call with neither,
// unless its tool only reads. Since a client that reconnects has a new MCP session but must keep its key, all calls of a
// tenant share one session of the ledger, unless AgentCoreOptions.Session says otherwise.
//
// The answer is the tool's result; a refusal is {"content":[{"type":"text","text":…}],"isError":true} with a text that
// tells the model what happened and what to do, and ends with the code in brackets. An event of another shape, or one that
// did not come through a gateway, is a *ShapeError.
func AgentCore(l *writers.Ledger, t *Toolset, tenant func(headers map[string]string) (writers.TenantID, error),
	opts ...func(*AgentCoreOptions),
) function {
	if l == nil || t == nil {
		return func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errNoLedger }
	}
	a := &agentCore{ledger: l, tools: t, tenant: tenant}
	for _, opt := range opts {
		opt(&a.o)
	}
	a.o.KeyHeader = strings.ToLower(cmp.Or(a.o.KeyHeader, "Idempotency-Key"))
	a.o.KeyArgument = cmp.Or(a.o.KeyArgument, keyField)
	if a.o.Tool == nil {
		a.o.Tool = func(_, tool string) string { return tool }
	}
	if a.o.Session == nil {
		a.o.Session = func(map[string]string) string { return "" }
	}
	return a.handle
}

type agentCore struct {
	ledger *writers.Ledger
	tools  *Toolset
	tenant func(headers map[string]string) (writers.TenantID, error)
	o      AgentCoreOptions
}

// handle serves one event. Errors: *ShapeError.
func (a *agentCore) handle(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
	target, tool, headers, rule := gatewayCall(ctx)
	if rule != "" {
		return nil, &ShapeError{doorAgentCore, rule}
	}
	args, rule := members(event)
	if rule != "" {
		return nil, &ShapeError{doorAgentCore, "the event " + rule}
	}
	ctx, cancel := withMargin(ctx)
	defer cancel()
	res := a.run(ctx, target, tool, headers, args)
	if !res.IsError {
		return json.RawMessage(res.Content), nil
	}
	return encode(mcpRefusal(res))
}

// mcpError is how an MCP tool says that it failed.
type mcpError struct {
	Content []mcpText `json:"content"`
	IsError bool      `json:"isError"`
}

type mcpText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func mcpRefusal(res ToolResult) mcpError {
	return mcpError{[]mcpText{{"text", res.Content + " [" + problemOf(res.Err).Code + "]"}}, true}
}

// gatewayCall reads the client context. It returns the rule that it breaks where it is none of a gateway's.
func gatewayCall(ctx context.Context) (target, tool string, headers map[string]string, rule string) {
	lc, ok := lambdacontext.FromContext(ctx)
	if !ok || lc == nil || lc.ClientContext.Custom[agentCoreTool] == "" {
		return "", "", nil, "the client context names no tool of an AgentCore gateway"
	}
	custom := lc.ClientContext.Custom
	target, tool, ok = strings.Cut(custom[agentCoreTool], "___")
	if !ok || target == "" || tool == "" {
		return "", "", nil, agentCoreTool + " is not <target>___<tool>"
	}
	headers = map[string]string{}
	raw, ok := custom[agentCoreHeaders]
	if !ok || raw == "" {
		return target, tool, headers, ""
	}
	m, bad := members([]byte(raw))
	if bad != "" {
		return "", "", nil, agentCoreHeaders + " is not an object of strings"
	}
	for name, value := range m {
		var v string
		lower := strings.ToLower(name)
		if _, doubled := headers[lower]; doubled || text(&v)(value) != "" {
			return "", "", nil, agentCoreHeaders + " is not an object of strings, each name once"
		}
		headers[lower] = v
	}
	return target, tool, headers, ""
}

// run calls the tool.
func (a *agentCore) run(ctx context.Context, target, tool string, headers map[string]string, args map[string]json.RawMessage) (res ToolResult) {
	var err error
	defer func() {
		if err != nil {
			res = refused(ToolUse{}, err)
		}
	}()
	defer guard(ctx, a.ledger.Plumbing().Logger, &err)
	c := toolCall{tool: a.o.Tool(target, tool), session: cmp.Or(a.o.Session(headers), agentCoreSession)}
	if a.tenant == nil {
		err = missingTenant(nil)
		return res
	}
	if c.tenant, err = a.tenant(headers); err != nil || c.tenant == "" {
		err = missingTenant(err)
		return res
	}
	if c.key, err = a.key(headers, args, c.tool); err != nil {
		return res
	}
	if c.input, err = encode(args); err != nil {
		return res
	}
	return runTool(ctx, a.ledger, a.tools, c, a.o.Wait)
}

// key takes the call key from the header or out of the arguments, where it stays if the tool has an argument of that
// name. Errors: writers.ErrInvalid.
func (a *agentCore) key(headers map[string]string, args map[string]json.RawMessage, tool string) (string, error) {
	var fromArgument string
	if raw, ok := args[a.o.KeyArgument]; ok {
		if rule := text(&fromArgument)(raw); rule != "" {
			return "", notAccepted(a.o.KeyArgument, a.o.KeyArgument+" "+rule)
		}
		if _, declared := a.tools.tools[tool].args[a.o.KeyArgument]; !declared {
			delete(args, a.o.KeyArgument)
		}
	}
	fromHeader := headers[a.o.KeyHeader]
	if fromHeader != "" && fromArgument != "" && fromHeader != fromArgument {
		return "", notAccepted(a.o.KeyArgument, a.o.KeyArgument+" differs from the header "+a.o.KeyHeader)
	}
	return cmp.Or(fromHeader, fromArgument), nil
}
