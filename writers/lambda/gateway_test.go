package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

func echo(t *testing.T) gateway {
	t.Helper()
	return gateway{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		tenant, err := tenantOf(r)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.String()+" "+r.Header.Get("Idempotency-Key"))
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, string(tenant)+":"+string(body))
	}), callers{
		claim: "tenant", tenants: map[role]writers.TenantID{"123456789012/planner": "acme"}, admins: map[role]bool{"123456789012/ops": true},
	}}
}

func event(body string, base64Encoded bool, claims string) json.RawMessage {
	quoted, _ := json.Marshal(body)
	encoded := "false"
	if base64Encoded {
		encoded = "true"
	}
	return json.RawMessage(`{"version":"2.0","rawPath":"/v1/reserve","rawQueryString":"a=b","headers":{"idempotency-key":"k1"},"body":` + string(quoted) +
		`,"isBase64Encoded":` + encoded + `,"requestContext":{"authorizer":{"jwt":{"claims":` + claims + `}},"http":{"method":"POST","path":"/v1/reserve"}}}`)
}

// A request reaches the handler as it was sent, whether the gateway encoded its body or not; the tenant comes from the
// authorizer's claim and from nothing that a caller writes.
func TestGatewayPassesRequestsOn(t *testing.T) {
	for name, c := range map[string]struct {
		event  json.RawMessage
		status int
		body   string
	}{
		"text":          {event(`{"a":1}`, false, `{"tenant":"acme"}`), 200, `acme:{"a":1}`},
		"base64":        {event(base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)), true, `{"tenant":"acme"}`), 200, `acme:{"a":1}`},
		"bad base64":    {event("%%%", true, `{"tenant":"acme"}`), 400, "invalid_request"},
		"absent body":   {event("", false, `{"tenant":"acme"}`), 200, "acme:"},
		"no claim":      {event("{}", false, `{"sub":"acme"}`), 403, ""},
		"list of names": {event("{}", false, `{"tenant":"[acme other]"}`), 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := echo(t).handle(t.Context(), c.event)
			if err != nil || got.StatusCode != c.status || !strings.Contains(got.Body, c.body) {
				t.Fatalf("got %d %q %v", got.StatusCode, got.Body, err)
			}
			if seen := got.Headers["X-Seen"]; c.status == 200 && seen != "POST /v1/reserve?a=b k1" {
				t.Fatalf("the handler saw %q", seen)
			}
		})
	}
}

// What is no event of an HTTP API is refused, not guessed at: a model's arguments must never be taken for a request.
func TestGatewayRefusesOtherEvents(t *testing.T) {
	for _, e := range []string{`{}`, `[]`, `null`, `"x"`, `{"op":"reserve","tenant":"victim"}`, `{"version":"1.0","httpMethod":"POST"}`} {
		if _, err := echo(t).handle(t.Context(), json.RawMessage(e)); !errors.Is(err, errShape) {
			t.Errorf("%s: got %v", e, err)
		}
	}
}

// An invocation with a client context is none of an HTTP API, whatever its event says: an AgentCore gateway hands on what a
// model wrote, and a model that writes an authorizer must not become its tenant.
func TestGatewayRefusesAgentCore(t *testing.T) {
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{
		Custom: map[string]string{"bedrockAgentCoreToolName": "t___act"},
	}})
	if got, err := echo(t).handle(ctx, event("{}", false, `{"tenant":"acme"}`)); !errors.Is(err, errContext) {
		t.Fatalf("got %d %q %v", got.StatusCode, got.Body, err)
	}
	if got, err := echo(t).handle(lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{}), event("{}", false, `{"tenant":"acme"}`)); err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("got %d %q %v", got.StatusCode, got.Body, err)
	}
}

// A session in a path is read as it was sent: an HTTP API decodes paths before it hands them on, a function URL does not, and
// neither may turn one session's name into another's, or into a redirect.
func TestGatewayReadsSessionsInPaths(t *testing.T) {
	const api, function = "x1.execute-api.eu-west-1.amazonaws.com", "x1.lambda-url.eu-west-1.on.aws"
	var seen string
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/sessions/{session}/calls", func(_ http.ResponseWriter, r *http.Request) { seen = r.PathValue("session") + "?" + r.URL.RawQuery })
	mux.HandleFunc("/v1/tenants/{tenant}/plan", func(_ http.ResponseWriter, r *http.Request) { seen = r.PathValue("tenant") + "?" + r.URL.RawQuery })
	for _, c := range []struct{ domain, path, query, want string }{
		{api, "/v1/sessions/run-7/calls", "limit=2", "run-7?limit=2"},
		{api, "/v1/sessions/run 7/calls", "", "run 7?"},
		{api, "/v1/sessions/run%207/calls", "", "run%207?"},
		{api, "/v1/sessions/runs/7/calls", "after=a%2Fb", "runs/7?after=a%2Fb"},
		{api, "/v1/sessions/../calls", "", "..?"},
		{api, "/v1/sessions/a/../b/calls", "", "a/../b?"},
		{api, "/v1/sessions/a//b/calls", "", "a//b?"},
		{api, "/v1/sessions/über?x/calls", "", "über?x?"},
		{api, "/prod/v1/tenants/a/b/plan", "", "a/b?"},
		{function, "/v1/sessions/run%207/calls", "limit=2", "run 7?limit=2"},
		{function, "/v1/sessions/run%25207/calls", "", "run%207?"},
		{function, "/v1/sessions/runs%2F7/calls", "", "runs/7?"},
		{function, "/v1/sessions/%2E%2E/calls", "", "..?"},
		{function, "/v1/sessions/%C3%BCber/calls", "", "über?"},
	} {
		text, err := json.Marshal(map[string]any{"version": "2.0", "rawPath": c.path, "rawQueryString": c.query, "requestContext": map[string]any{
			"stage": "prod", "domainName": c.domain, "http": map[string]string{"method": "GET"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		seen = ""
		got, err := gateway{handler: mux}.handle(t.Context(), text)
		if err != nil || got.StatusCode != http.StatusOK || seen != c.want {
			t.Errorf("%s %s: %d, saw %q, want %q, %v", c.domain, c.path, got.StatusCode, seen, c.want, err)
		}
	}
	for _, path := range []string{"/v1/sessions/%zz/calls", "/v1/sessions/a b/calls", "v1", "", "//evil/v1/quota", "/v1/\x7f"} {
		text, err := json.Marshal(map[string]any{"version": "2.0", "rawPath": path, "requestContext": map[string]any{"domainName": function, "http": map[string]string{"method": "GET"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (gateway{handler: mux}).handle(t.Context(), text); err != nil || got.StatusCode == http.StatusInternalServerError {
			t.Errorf("%q: %d %v", path, got.StatusCode, err)
		}
	}
}

// authorized is an event with an authorizer of the given JSON.
func authorized(authorizer string) json.RawMessage {
	return json.RawMessage(`{"version":"2.0","rawPath":"/x","body":"{}","requestContext":{"authorizer":` + authorizer + `,"http":{"method":"POST"}}}`)
}

func byRole(account, arn string) string {
	return `{"iam":{"accessKey":"A","accountId":"` + account + `","callerId":"C:acme","userArn":"` + arn + `","userId":"C:acme"}}`
}

// An IAM caller is known by account and role. The session's name, which it chooses itself, makes nobody anybody.
func TestTenantOfRoles(t *testing.T) {
	const account = "123456789012"
	for name, c := range map[string]struct{ authorizer, tenant string }{
		"the role":               {byRole(account, "arn:aws:sts::123456789012:assumed-role/planner/run-7"), "acme"},
		"another partition":      {byRole(account, "arn:aws-us-gov:sts::123456789012:assumed-role/planner/run-7"), "acme"},
		"another session":        {byRole(account, "arn:aws:sts::123456789012:assumed-role/planner/victim"), "acme"},
		"the name as session":    {byRole(account, "arn:aws:sts::123456789012:assumed-role/other/planner"), ""},
		"another account":        {byRole("999999999999", "arn:aws:sts::999999999999:assumed-role/planner/x1"), ""},
		"two accounts":           {byRole("999999999999", "arn:aws:sts::123456789012:assumed-role/planner/x1"), ""},
		"slashes in the session": {byRole(account, "arn:aws:sts::123456789012:assumed-role/other/planner/x1"), ""},
		"a user":                 {byRole(account, "arn:aws:iam::123456789012:user/planner"), ""},
		"a federated user":       {byRole(account, "arn:aws:sts::123456789012:federated-user/planner"), ""},
		"the root":               {byRole(account, "arn:aws:iam::123456789012:root"), ""},
		"lines":                  {byRole(account, "arn:aws:sts::123456789012:assumed-role/planner/x1\\n"), ""},
		"no ARN":                 {byRole(account, ""), ""},
		"a claim and a role":     {`{"jwt":{"claims":{"tenant":"victim"}},"iam":{"userArn":"arn:aws:sts::123456789012:assumed-role/planner/run-7"}}`, ""},
		"a lambda authorizer":    {`{"lambda":{"tenant":"acme"}}`, ""},
		"an administrator":       {byRole(account, "arn:aws:sts::123456789012:assumed-role/ops/run-7"), ""},
		"none":                   {`null`, ""},
	} {
		got, err := echo(t).handle(t.Context(), authorized(c.authorizer))
		want := http.StatusForbidden
		if c.tenant != "" {
			want = http.StatusOK
		}
		if err != nil || got.StatusCode != want || c.tenant != "" && got.Body != c.tenant+":{}" {
			t.Errorf("%s: %d %q %v", name, got.StatusCode, got.Body, err)
		}
	}
}

// refusing is a DynamoDB that must not be asked.
type refusing struct {
	writers.DynamoDB
	t *testing.T
}

func (r refusing) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	r.t.Error("a refused request reached DynamoDB")
	return nil, errShape
}

func (r refusing) TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	r.t.Error("a refused request reached DynamoDB")
	return nil, errShape
}

func settings(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// served is a door as Lambda sees it.
type served func(context.Context, json.RawMessage) (events.APIGatewayV2HTTPResponse, error)

func doorOf(t *testing.T, env map[string]string) served {
	t.Helper()
	l, err := writers.New(refusing{t: t}, writers.Config{Table: "toolledger"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := open(settings(env), l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handle, ok := h.(func(context.Context, json.RawMessage) (events.APIGatewayV2HTTPResponse, error))
	if !ok {
		t.Fatalf("the door is a %T", h)
	}
	return handle
}

// A path that names an authority or a scheme is a path that is not there, as it is at a server, and never another path.
func TestGatewayTakesNoHostFromAPath(t *testing.T) {
	d := doorOf(t, map[string]string{"DOOR": "admin", "ADMIN_ROLES": `["123456789012/ops"]`})
	for path, status := range map[string]int{
		"//evil.example/v1/tenants/acme/plan": 404, "//healthz/healthz": 404, "http://evil.example/healthz": 400, "healthz": 400, "*": 400, "///healthz": 404,
	} {
		for _, domain := range []string{"", "x.lambda-url.eu-central-1.on.aws"} {
			got, err := d(t.Context(), sent{path: path, domain: domain, authorizer: `null`}.event(t))
			if err != nil || got.StatusCode != status {
				t.Errorf("%q: %d %q %v", path, got.StatusCode, got.Body, err)
			}
		}
	}
}

// A body that would not fit Lambda's 6 MB as a JSON string goes to the gateway in base64, and a small one as it is.
func TestGatewayKeepsAnswersSmall(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		encoded bool
	}{
		"small":                {`{"a":"\""}`, false},
		"large, of quotes":     {`["` + strings.Repeat(`\"`, 2<<20) + `"]`, true},
		"large, of plain text": {`["` + strings.Repeat("x", 5<<20) + `"]`, false},
	} {
		g := gateway{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) }), callers{}}
		got, err := g.handle(t.Context(), event("", false, `{"tenant":"acme"}`))
		text, marshalErr := json.Marshal(got)
		if err != nil || marshalErr != nil || got.IsBase64Encoded != c.encoded || len(text) > 6<<20-1<<10 {
			t.Errorf("%s: encoded %t, %d bytes, %v %v", name, got.IsBase64Encoded, len(text), err, marshalErr)
		}
		body := []byte(got.Body)
		if c.encoded {
			body, err = base64.StdEncoding.DecodeString(got.Body)
		}
		if err != nil || string(body) != c.body {
			t.Errorf("%s: another body, %v", name, err)
		}
	}
}

// HC74: whatever the gateway makes of a body (base64 for most content types, nothing for none) is read or refused with 400,
// and no refusal reaches the table.
func TestHC74Bodies(t *testing.T) {
	d := doorOf(t, map[string]string{"DOOR": "http"})
	bad := `{"session":"s","key":" ","tool":"t"}`
	for name, e := range map[string]json.RawMessage{
		"absent":                 json.RawMessage(strings.Replace(string(event("", false, `{"tenant":"acme"}`)), `"body":"",`, "", 1)),
		"empty":                  event("", false, `{"tenant":"acme"}`),
		"empty base64":           event("", true, `{"tenant":"acme"}`),
		"text":                   event(bad, false, `{"tenant":"acme"}`),
		"base64":                 event(base64.StdEncoding.EncodeToString([]byte(bad)), true, `{"tenant":"acme"}`),
		"base64 of bytes":        event(base64.StdEncoding.EncodeToString([]byte("\xff\xfe")), true, `{"tenant":"acme"}`),
		"not base64":             event("{}", true, `{"tenant":"acme"}`),
		"a form":                 event(base64.StdEncoding.EncodeToString([]byte("session=s&key=k&tool=t")), true, `{"tenant":"acme"}`),
		"base64 that is not one": event(base64.StdEncoding.EncodeToString([]byte(bad)), false, `{"tenant":"acme"}`),
	} {
		e = json.RawMessage(strings.Replace(string(e), `"rawQueryString":"a=b"`, `"rawQueryString":""`, 1))
		got, err := d(t.Context(), e)
		if err != nil || got.StatusCode != http.StatusBadRequest || !strings.Contains(got.Body, "invalid_request") {
			t.Errorf("%s: %d %q %v", name, got.StatusCode, got.Body, err)
		}
	}
}

// The admin door sets plans for the roles that may, and acts for no tenant; the http door sets none for anybody.
func TestAdminDoor(t *testing.T) {
	env := map[string]string{"ADMIN_ROLES": `["123456789012/ops"]`, "IAM_TENANTS": `{"123456789012/ops":"acme"}`}
	request := func(method, path, authorizer string) json.RawMessage {
		return json.RawMessage(`{"version":"2.0","rawPath":"/prod` + path + `","body":"{\"tokens\":-1}","requestContext":{"stage":"prod","authorizer":` + authorizer +
			`,"http":{"method":"` + method + `"}}}`)
	}
	ops := byRole("123456789012", "arn:aws:sts::123456789012:assumed-role/ops/ann1")
	for _, c := range []struct {
		door, method, path, authorizer string
		status                         int
	}{
		{"admin", "PUT", "/v1/tenants/acme/plan", ops, 400}, // may, and the plan is bad
		{"admin", "PUT", "/v1/tenants/acme/plan", byRole("123456789012", "arn:aws:sts::123456789012:assumed-role/dev/ops1"), 403},
		{"admin", "PUT", "/v1/tenants/acme/plan", `{"jwt":{"claims":{"tenant":"acme","admin":"true"}}}`, 403},
		{"admin", "POST", "/v1/commit", ops, 403},
		{"admin", "GET", "/healthz", `null`, 200},
		{"http", "PUT", "/v1/tenants/acme/plan", ops, 403},
		{"http", "POST", "/v1/commit", ops, 400},
	} {
		env["DOOR"] = c.door
		got, err := doorOf(t, env)(t.Context(), request(c.method, c.path, c.authorizer))
		if err != nil || got.StatusCode != c.status {
			t.Errorf("%+v: %d %q %v", c, got.StatusCode, got.Body, err)
		}
	}
}

// A function that is configured wrongly says what is wrong before it takes any event.
func TestSetUpRefusesBadSettings(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"LEDGER_TABLE": "t"},
		{"LEDGER_TABLE": "t", "DOOR": "sniff"},
		{"LEDGER_TABLE": "t", "DOOR": "bedrock"},
		{"LEDGER_TABLE": "t", "DOOR": "agentcore"},
		{"LEDGER_TABLE": "t", "DOOR": "http", "LEDGER_SKEW": "2"},
		{"LEDGER_TABLE": "t", "DOOR": "http", "IAM_TENANTS": `{"planner":"acme"}`},
		{"LEDGER_TABLE": "t", "DOOR": "http", "IAM_TENANTS": `{"123456789012/planner":""}`},
		{"LEDGER_TABLE": "t", "DOOR": "http", "IAM_TENANTS": `{"123456789012/p":"acme","123456789012/p":"victim"}`},
		{"LEDGER_TABLE": "t", "DOOR": "http", "IAM_TENANTS": `["123456789012/p"]`},
		{"LEDGER_TABLE": "t", "DOOR": "http", "IAM_TENANTS": `{"123456789012/*":"acme"}`},
		{"LEDGER_TABLE": "t", "DOOR": "admin"},
		{"LEDGER_TABLE": "t", "DOOR": "admin", "ADMIN_ROLES": `[]`},
		{"LEDGER_TABLE": "t", "DOOR": "admin", "ADMIN_ROLES": `["ops"]`},
	} {
		if _, err := setUp(t.Context(), settings(env), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%v was accepted", env)
		}
	}
	for _, door := range []string{"http", "direct", "admin"} {
		env := map[string]string{"LEDGER_TABLE": "t", "DOOR": door, "ADMIN_ROLES": `["123456789012/ops"]`, "AWS_REGION": "us-east-1"}
		if _, err := setUp(t.Context(), settings(env), slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", door, err)
		}
	}
}
