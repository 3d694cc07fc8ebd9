package functions_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// answer is what an HTTP API gets back from a function.
type answer struct {
	StatusCode   int               `json:"statusCode"`
	Headers      map[string]string `json:"headers"`
	Body         string            `json:"body"`
	ErrorMessage string            `json:"errorMessage"` // of a function that failed
	ErrorType    string            `json:"errorType"`
}

// ask sends an event of an HTTP API and decodes the answer and the document in it.
func (l *lambda) ask(event []byte) (answer, map[string]any) {
	l.t.Helper()
	body := l.invoke(event)
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		l.t.Fatalf("%v: %s", err, body)
	}
	var doc map[string]any
	if a.Body != "" {
		if err := json.Unmarshal([]byte(a.Body), &doc); err != nil {
			l.t.Fatalf("%v: %s", err, a.Body)
		}
	}
	return a, doc
}

// refuses checks that an event is a function error, which says that it is none of this door.
func (l *lambda) refuses(name string, event []byte, clientContext string) {
	l.t.Helper()
	var a answer
	body := l.invokeAs(event, clientContext)
	if err := json.Unmarshal(body, &a); err != nil || a.ErrorMessage == "" || a.StatusCode != 0 {
		l.t.Errorf("%s: not refused: %s", name, body)
	}
}

// Promise: behind an HTTP API the writer knows its caller by the verified claim or the role, takes a call once, and refuses
// every event that is not of an HTTP API.
func TestHTTPDoor(t *testing.T) {
	d := newDatabase(t)
	l := start(t, "writers/lambda", append(d.environ(), "DOOR=http", "TENANT_CLAIM=tenant", `IAM_TENANTS={"123456789012/planner":"acme"}`)...)
	a, doc := l.ask(golden(t, "http-jwt.json"))
	if a.StatusCode != http.StatusOK || doc["outcome"] != "reserved" || a.Headers["Content-Type"] != "application/json" {
		t.Fatalf("%+v", a)
	}
	a, doc = l.ask(golden(t, "http-iam.json")) // the same call of the same tenant, known by another authorizer
	if a.StatusCode != http.StatusConflict || doc["code"] != "in_progress" || a.Headers["Retry-After"] == "" {
		t.Errorf("%+v", a)
	}
	nobody := strings.Replace(string(golden(t, "http-jwt.json")), `"tenant": "acme"`, `"tenant": "[acme other]"`, 1)
	if a, doc = l.ask([]byte(nobody)); a.StatusCode != http.StatusForbidden || doc["code"] != "missing_tenant" {
		t.Errorf("%+v", a)
	}
	if a, _ = l.ask(golden(t, "admin-plan.json")); a.StatusCode != http.StatusForbidden {
		t.Errorf("the http door sets plans: %+v", a)
	}
	if left := d.remaining(t); left != 980 {
		t.Errorf("%d tokens left", left)
	}
	for _, name := range []string{"direct.json", "bedrock-api.json", "agentcore.json", "schedule.json", "stream.json"} {
		l.refuses(name, golden(t, name), "")
	}
	l.refuses("an event with a client context", golden(t, "http-jwt.json"), string(golden(t, "agentcore-context.json")))
	if got, want := d.remaining(t), int64(980); got != want {
		t.Errorf("refused events cost %d tokens", want-got)
	}
}

// Promise: the direct door takes calls of backends, each once, and nothing that came from a model or a gateway.
func TestDirectDoor(t *testing.T) {
	d := newDatabase(t)
	l := start(t, "writers/lambda", append(d.environ(), "DOOR=direct")...)
	ask := func(event string) map[string]any {
		t.Helper()
		var doc map[string]any
		if err := json.Unmarshal(l.invoke([]byte(event)), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	r := ask(string(golden(t, "direct.json")))
	if r["outcome"] != "reserved" {
		t.Fatal(r)
	}
	held, err := json.Marshal(map[string]any{
		"op": "finalize", "tenant": "acme", "session": "conversation-17", "key": "plan-3/step-1", "row_id": r["row_id"], "attempt": 1,
		"result": map[string]any{"number": 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p := ask(string(held)); p["outcome"] != "applied" && p["outcome"] != "replayed" {
			t.Fatal(p)
		}
	}
	if p := ask(string(golden(t, "direct.json"))); p["outcome"] != "replayed" {
		t.Fatal(p)
	}
	if left := d.remaining(t); left != 980 {
		t.Errorf("%d tokens left", left)
	}
	for _, name := range []string{"http-jwt.json", "bedrock-function.json", "schedule.json", "stream.json"} {
		l.refuses(name, golden(t, name), "")
	}
	l.refuses("through a gateway", golden(t, "direct.json"), string(golden(t, "agentcore-context.json")))
}

// Promise: the admin door sets plans for the roles that may, and does nothing else for anybody.
func TestAdminDoor(t *testing.T) {
	d := newDatabase(t)
	l := start(t, "writers/lambda", append(d.environ(), "DOOR=admin", `ADMIN_ROLES=["123456789012/ops"]`)...)
	if a, _ := l.ask(golden(t, "admin-plan.json")); a.StatusCode != http.StatusOK && a.StatusCode != http.StatusNoContent {
		t.Fatalf("%+v", a)
	}
	if left := d.remaining(t); left != 5000 {
		t.Errorf("%d tokens left of a plan of 5,000", left)
	}
	other := strings.ReplaceAll(string(golden(t, "admin-plan.json")), "assumed-role/ops/ann", "assumed-role/dev/ops")
	if a, _ := l.ask([]byte(other)); a.StatusCode != http.StatusForbidden {
		t.Errorf("a role that may not: %+v", a)
	}
	for _, name := range []string{"http-jwt.json", "http-iam.json"} {
		if a, _ := l.ask(golden(t, name)); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for _, name := range []string{"direct.json", "bedrock-api.json", "stream.json"} {
		l.refuses(name, golden(t, name), "")
	}
}

// Promise: a function that is set up wrongly does not serve: it says why, and every invocation fails.
func TestWrongSettings(t *testing.T) {
	for name, c := range map[string]struct {
		pkg  string
		env  []string
		says string
	}{
		"writer without a door":   {"writers/lambda", []string{"LEDGER_TABLE=t"}, "DOOR must be"},
		"writer without a table":  {"writers/lambda", []string{"DOOR=http"}, "LEDGER_TABLE"},
		"stream without a bus":    {"streams/lambda", nil, "EVENT_BUS"},
		"sweeper without a table": {"sweeper/lambda", nil, "LEDGER_TABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t, c.pkg, c.env...)
			l.refuses(name, []byte("{}"), "")
			eventually(t, "the log says "+c.says, func() bool { return strings.Contains(l.log.String(), c.says) })
		})
	}
}

// Promise: a subscriber behind a rule takes an event once, however often it is delivered, and refuses what is none of ours, so
// that it ends in the queue of dead letters and not in the view.
func TestSubscriber(t *testing.T) {
	d := newDatabase(t)
	d.createTable(t, "functions-view", "row")
	l := start(t, "examples/subscriber", append(d.environ(), "VIEW_TABLE=functions-view")...)
	for range 2 {
		if body := string(l.invoke(golden(t, "event.json"))); body != "null" {
			t.Fatal(body)
		}
	}
	if n := d.count(t, "functions-view"); n != 3 { // the call, its tenant's totals, and that the event was counted
		t.Errorf("%d items", n)
	}
	for _, name := range []string{"http-jwt.json", "schedule.json", "stream.json", "direct.json"} {
		l.refuses(name, golden(t, name), "")
	}
}

// tickets is a function of a user's own, with its table.
func tickets(t *testing.T, d *database, env ...string) *lambda {
	t.Helper()
	d.createTickets(t)
	return start(t, "examples/tickets", append(append(d.environ(), "TICKETS_TABLE="+ticketsTable), env...)...)
}

const ticketsTable = "functions-tickets"

func (d *database) createTickets(t *testing.T) {
	t.Helper()
	d.createTable(t, ticketsTable, "id")
}

func (d *database) createTable(t *testing.T, name, key string) {
	t.Helper()
	_, err := d.client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (d *database) tickets(t *testing.T) int {
	t.Helper()
	return d.count(t, ticketsTable)
}

func (d *database) count(t *testing.T, name string) int {
	t.Helper()
	out, err := d.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &name, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Items)
}

// Promise: a Bedrock agent's action group, with an API schema or with function details, acts once for each request id.
func TestBedrockDoor(t *testing.T) {
	d := newDatabase(t)
	l := tickets(t, d, "DOOR=bedrock")
	for range 2 {
		var r struct {
			MessageVersion string `json:"messageVersion"`
			Response       struct {
				ActionGroup    string `json:"actionGroup"`
				APIPath        string `json:"apiPath"`
				HTTPMethod     string `json:"httpMethod"`
				HTTPStatusCode int    `json:"httpStatusCode"`
				ResponseBody   map[string]struct {
					Body string `json:"body"`
				} `json:"responseBody"`
			} `json:"response"`
		}
		raw := l.invoke(golden(t, "bedrock-api.json"))
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		if r.MessageVersion != "1.0" || r.Response.ActionGroup != "tickets" || r.Response.APIPath != "/tickets" || r.Response.HTTPMethod != http.MethodPost ||
			r.Response.HTTPStatusCode != http.StatusOK || !strings.Contains(r.Response.ResponseBody["application/json"].Body, `"status":"open"`) {
			t.Fatalf("%s", raw)
		}
		raw = l.invoke(golden(t, "bedrock-function.json"))
		if !strings.Contains(string(raw), `"functionResponse":{"responseBody":{"TEXT":{"body":"{\"id\":\"T-`) {
			t.Fatalf("%s", raw)
		}
	}
	if n := d.tickets(t); n != 2 {
		t.Errorf("%d tickets, want one for each of two sessions", n)
	}
	for _, name := range []string{"http-jwt.json", "direct.json", "schedule.json", "agentcore.json"} {
		l.refuses(name, golden(t, name), "")
	}
}

// Promise: a target of an AgentCore gateway acts once for each key, for the tenant of the interceptor's header and no other.
func TestAgentCoreDoor(t *testing.T) {
	d := newDatabase(t)
	l := tickets(t, d, "DOOR=agentcore", "TENANT_HEADER=X-Tenant")
	clientContext := string(golden(t, "agentcore-context.json"))
	for range 2 {
		if raw := l.invokeAs(golden(t, "agentcore.json"), clientContext); !strings.HasPrefix(string(raw), `{"id":"T-`) {
			t.Fatalf("%s", raw)
		}
	}
	if n := d.tickets(t); n != 1 {
		t.Errorf("%d tickets", n)
	}
	nobody := strings.Replace(clientContext, `X-Tenant`, `X-Other`, 1)
	if raw := l.invokeAs([]byte(`{"title":"smoke","tenant":"acme"}`), nobody); !strings.Contains(string(raw), "missing_tenant") || !strings.Contains(string(raw), `"isError":true`) {
		t.Errorf("%s", raw)
	}
	for _, name := range []string{"http-jwt.json", "direct.json", "bedrock-api.json"} {
		l.refuses(name, golden(t, name), "")
	}
	if n := d.tickets(t); n != 1 {
		t.Errorf("%d tickets after refusals", n)
	}
}
