package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/examples/prbot/forge"
	"toolledger/internal/stack"
	"toolledger/sweeper"
	"toolledger/tests/rig"
	"toolledger/writers"
)

// functionTime bounds a function's start and its answer.
const functionTime = time.Minute

// runtimeAPI is Lambda's runtime API for one invocation: it hands out the event, and takes the answer.
type runtimeAPI struct {
	event, clientContext string
	once                 sync.Once
	answers              chan string // what the function answered, or "error: …"
}

// ServeHTTP serves the paths under /2018-06-01/runtime/.
func (a *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/2018-06-01/runtime/"); {
	case path == "invocation/next":
		first := false
		a.once.Do(func() { first = true })
		if !first {
			<-r.Context().Done() // there is no second event
			return
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", "one")
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(29*time.Second).UnixMilli()))
		w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:f")
		if a.clientContext != "" {
			w.Header().Set("Lambda-Runtime-Client-Context", a.clientContext)
		}
		_, _ = io.WriteString(w, a.event)
	case strings.HasSuffix(path, "/response"):
		w.WriteHeader(http.StatusAccepted)
		a.answers <- string(body)
	default: // an error of the invocation or of the start
		w.WriteHeader(http.StatusAccepted)
		a.answers <- "error: " + string(body)
	}
}

// functionCase is one function with one event.
type functionCase struct {
	name, program string
	env           []string
	event         any
	clientContext string
	want          string
}

// TestProgramsAreFunctions: every door of the writer, and every example that says so, starts as the binary that Lambda runs, takes an
// event, and answers it.
func TestProgramsAreFunctions(t *testing.T) {
	g := rig.New(t, func(c *writers.Config) { c.Now = nil })
	world := functionWorld(t, g)
	binaries := map[string]string{}
	dir := t.TempDir()
	for _, c := range world {
		if binaries[c.program] == "" {
			path := filepath.Join(dir, strings.ReplaceAll(c.program, "/", "-"))
			if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", path, "../"+c.program).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", c.program, err, out)
			}
			binaries[c.program] = path
		}
		t.Run(c.name, func(t *testing.T) {
			if got := invokeBinary(t, g, binaries[c.program], c); !strings.Contains(got, c.want) {
				t.Errorf("answered %s, want %s", got, c.want)
			}
		})
	}
}

// invokeBinary runs a binary as Lambda does, with nothing of this machine's environment, and returns its answer to the event.
func invokeBinary(t *testing.T, g *rig.Rig, binary string, c functionCase) string {
	t.Helper()
	event, err := json.Marshal(c.event)
	if err != nil {
		t.Fatal(err)
	}
	lambda := &runtimeAPI{event: string(event), clientContext: c.clientContext, answers: make(chan string, 8)}
	server := httptest.NewServer(lambda)
	ctx, cancel := context.WithTimeout(t.Context(), functionTime)
	cmd := exec.CommandContext(ctx, binary)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(stack.Environ(*g.AWS.BaseEndpoint), "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "LEDGER_TABLE="+g.Table)
	cmd.Env = append(cmd.Env, c.env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed below
		close(ended)
	}()
	defer server.Close()
	defer func() {
		cancel()
		<-ended
		server.CloseClientConnections()
	}()
	select {
	case got := <-lambda.answers:
		return got
	case <-ended:
		select {
		case got := <-lambda.answers:
			return got
		default:
			return "ended: " + output.String()
		}
	}
}

// functionTable makes a table with a hash key, and a range key unless that is "".
func functionTable(t *testing.T, g *rig.Rig, name, hash, rang string) string {
	t.Helper()
	name = g.Table + "-" + name
	in := &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &hash, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}},
	}
	if rang != "" {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &rang, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &rang, KeyType: types.KeyTypeRange})
	}
	if _, err := g.DB.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return name
}

// functionWorld is what the functions need around them, and what each is asked.
func functionWorld(t *testing.T, g *rig.Rig) []functionCase {
	t.Helper()
	http2 := func(method, path, body, authorizer string) obj {
		return obj{"version": "2.0", "rawPath": path, "body": body, "requestContext": obj{
			"http": obj{"method": method, "path": path}, "authorizer": json.RawMessage(authorizer),
		}}
	}
	const acme = `{"jwt":{"claims":{"tenant":"acme"}}}`
	const ops = `{"iam":{"accountId":"123456789012","userArn":"arn:aws:sts::123456789012:assumed-role/ops/ann"}}`
	call := obj{"session": "s", "key": "k", "tool": "t", "tokens": 1, "result": "done"}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	direct := obj{"op": "commit", "tenant": "acme"}
	for name, v := range call {
		direct[name] = v
	}

	host := httptest.NewServer(forge.New(nil))
	t.Cleanup(host.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, host.URL+"/repos/acme/api/branches/fix", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if _, err := g.Ledger.Tenant("acme").Session("pr").Commit(t.Context(), writers.Call{Key: writers.SessionKey("push"), Tool: "push_branch", Cursor: "branch-pushed"}, 1); err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"x","stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1},"content":[{"type":"text","text":"nothing to do"}]}`)
	}))
	t.Cleanup(model.Close)

	users, tickets := "USERS_TABLE="+functionTable(t, g, "users", "tenant", "userId"), "TICKETS_TABLE="+functionTable(t, g, "tickets", "id", "")
	user := func(id string) obj {
		return obj{"session": "s", "key": id, "args": obj{"userId": id, "email": "", "name": "Ann"}}
	}
	invoke := user("u2")
	invoke["tenant"] = "acme"
	var applied json.RawMessage
	for _, ev := range g.Events() { // of the push
		if ev.DetailType() == "ToolEffectApplied" {
			applied = rig.Envelope(t, ev)
		}
	}
	if applied == nil {
		t.Fatal("there is no event")
	}
	return []functionCase{
		{name: "writer http", program: "writers/lambda", env: []string{"DOOR=http"}, event: http2("POST", "/v1/commit", text(call), acme), want: `\"outcome\":\"applied\"`},
		{name: "writer direct", program: "writers/lambda", env: []string{"DOOR=direct"}, event: direct, want: `"outcome":"replayed"`},
		{name: "writer direct, through a gateway of models", program: "writers/lambda", env: []string{"DOOR=direct"}, event: direct, clientContext: `{"custom":{"bedrockAgentCoreToolName":"t___x"}}`, want: `"errorType":"ShapeError"`},
		{name: "writer admin", program: "writers/lambda", env: []string{"DOOR=admin", `ADMIN_ROLES=["123456789012/ops"]`}, event: http2("PUT", "/v1/tenants/globex/plan", `{"tokens":5}`, ops), want: `\"tokens\":5`},
		{name: "saveuser http", program: "examples/saveuser", env: []string{"DOOR=http", users}, event: http2("POST", "/users", text(user("u1")), acme), want: `"statusCode":200`},
		{name: "saveuser invoke", program: "examples/saveuser", env: []string{"DOOR=invoke", users}, event: invoke, want: `"status":200`},
		{name: "saveuser audit", program: "examples/saveuser", env: []string{"DOOR=audit"}, event: applied, want: `null`},
		{name: "tickets bedrock", program: "examples/tickets", env: []string{"DOOR=bedrock", tickets}, want: `"httpStatusCode":200`, event: obj{
			"messageVersion": "1.0", "sessionId": "conversation", "actionGroup": "tickets", "apiPath": "/tickets", "httpMethod": "POST", "sessionAttributes": obj{"tenantId": "acme"},
			"requestBody": obj{"content": obj{"application/json": obj{"properties": []obj{
				{"name": "title", "type": "string", "value": "fire"}, {"name": "requestId", "type": "string", "value": "r1"},
			}}}},
		}},
		{
			name: "tickets agentcore", program: "examples/tickets", env: []string{"DOOR=agentcore", tickets, "TENANT_HEADER=X-Tenant"}, event: obj{"title": "smoke", "idempotencyKey": "k9"}, want: `"status":"open"`,
			clientContext: `{"custom":{"bedrockAgentCoreToolName":"tickets___open_ticket","bedrockAgentCorePropagatedHeaders":"{\"X-Tenant\":\"acme\"}"}}`,
		},
		{name: "prbot step", program: "examples/prbot/demo", env: []string{"DOOR=step", "FORGE_URL=" + host.URL}, want: `#1 `, event: obj{
			"tenant": "acme", "session": "pr", "key": "pr-1", "args": obj{"repo": "acme/api", "branch": "fix", "title": "Fix it"},
		}},
		{name: "prbot verify", program: "examples/prbot/demo", env: []string{"DOOR=verify", "FORGE_URL=" + host.URL}, want: `"verdict":"applied"`, event: sweeper.VerifyRequest{
			Tenant: "acme", Session: "pr", Key: "pr-1", Tool: "create_pull_request", RowID: "r", Attempt: 1, EffectKey: strings.Repeat("0", 32), Lookup: "acme/api fix",
		}},
		{name: "claude", program: "examples/claude", env: []string{
			"ANTHROPIC_BASE_URL=" + model.URL, "ANTHROPIC_API_KEY=none", "HISTORY_TABLE=" + functionTable(t, g, "history", "conversation", ""), "TICKETS_TABLE=" + functionTable(t, g, "desk", "number", ""),
		}, event: obj{"tenant": "acme", "session": "chat", "ask": "anything?"}, want: "nothing to do"},
		{name: "stepfn", program: "examples/stepfn/demo", env: []string{"STATE=reserve"}, event: obj{"tenant": "acme", "session": "wf", "key": "render", "args": obj{}}, want: `"effect_key":"`},
		{name: "subscriber", program: "examples/subscriber", env: []string{"VIEW_TABLE=" + functionTable(t, g, "view", "row", "")}, event: applied, want: `null`},
	}
}
