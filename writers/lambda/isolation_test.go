package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/tests/rig"
	"toolledger/writers"
)

// ledgerDoor is a door of this binary before a real ledger, in which victim has a call and mallory has none.
func ledgerDoor(t *testing.T, g *rig.Rig, env map[string]string) served {
	t.Helper()
	h, err := open(settings(env), g.Ledger, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, h)
}

// serve is what main passes to lambda.Start; of the direct door, which answers no HTTP, the answer is the body.
func serve(t *testing.T, h any) served {
	t.Helper()
	switch handle := h.(type) {
	case func(context.Context, json.RawMessage) (events.APIGatewayV2HTTPResponse, error):
		return handle
	case func(context.Context, json.RawMessage) (json.RawMessage, error):
		return func(ctx context.Context, e json.RawMessage) (events.APIGatewayV2HTTPResponse, error) {
			raw, err := handle(ctx, e)
			return events.APIGatewayV2HTTPResponse{Body: string(raw)}, err
		}
	}
	t.Fatalf("the door is a %T", h)
	return nil
}

// items are all items under a tenant's partition keys, in both tables.
func items(g *rig.Rig, tenant string) map[string]string {
	out := map[string]string{}
	for _, table := range []string{g.Table, g.Table + "-control"} {
		for _, item := range g.Items(table) {
			pk, _ := item["pk"].(*types.AttributeValueMemberS)
			sk, _ := item["sk"].(*types.AttributeValueMemberS)
			if strings.HasSuffix(pk.Value, "TENANT#"+tenant) || strings.Contains(pk.Value, "TENANT#"+tenant+"#") {
				text, err := json.Marshal(item)
				if err != nil {
					g.TB.Fatal(err)
				}
				out[table+" "+pk.Value+" "+sk.Value] = string(text)
			}
		}
	}
	return out
}

// sent is an event of an HTTP API with parts of a caller's choice.
type sent struct {
	method, path, query, body string
	encoded                   bool
	headers                   map[string]string
	authorizer                string // JSON
	domain, stage             string
	more                      string // further JSON members
}

func (s sent) event(t *testing.T) json.RawMessage {
	t.Helper()
	if s.method == "" {
		s.method = "GET"
	}
	if s.path == "" {
		s.path, s.query = "/v1/calls", "session=s&key=applied"
	}
	e := map[string]any{
		"version": "2.0", "rawPath": s.path, "rawQueryString": s.query, "headers": s.headers, "body": s.body, "isBase64Encoded": s.encoded,
		"requestContext": map[string]any{
			"http": map[string]string{"method": s.method, "path": s.path}, "domainName": s.domain, "stage": s.stage, "authorizer": json.RawMessage(s.authorizer),
		},
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if s.more != "" {
		text = append(text[:len(text)-1], ","+s.more+"}"...)
	}
	return text
}

const victimsAuthorizer = `{"jwt":{"claims":{"tenant":"victim"}}}`

// gatewayAttacks are events as an HTTP API makes them of what mallory sends; its authorizer has verified who she is.
func gatewayAttacks() map[string]sent {
	const mallory = `{"jwt":{"claims":{"sub":"victim","tenant":"mallory"},"scopes":["victim"]}}`
	planner := func(arn string) string { return byRole("123456789012", arn) }
	all := map[string]sent{
		// HC74: what the gateway makes of a body.
		"HC74 body absent":        {method: "POST", path: "/v1/commit", authorizer: mallory},
		"HC74 body of a form":     {method: "POST", path: "/v1/commit", authorizer: mallory, encoded: true, body: base64.StdEncoding.EncodeToString([]byte("tenant=victim&session=s&key=applied"))},
		"HC74 body in base64":     {method: "POST", path: "/v1/commit", authorizer: mallory, encoded: true, body: base64.StdEncoding.EncodeToString([]byte(`{"session":"s","key":"applied","tool":"t","tenant":"victim"}`))},
		"HC74 base64 that is not": {method: "POST", path: "/v1/commit", authorizer: mallory, encoded: true, body: `{"session":"s"}`},

		"header x-tenant-id":          {authorizer: mallory, headers: map[string]string{"x-tenant-id": "victim"}},
		"header twice, joined":        {authorizer: mallory, headers: map[string]string{"x-tenant-id": "mallory,victim", "tenant": "victim,victim"}},
		"header authorization":        {authorizer: mallory, headers: map[string]string{"authorization": "Bearer victim"}},
		"header of the gateway":       {authorizer: mallory, headers: map[string]string{"x-amzn-oidc-identity": "victim", "x-amz-security-token": "victim", "x-amzn-request-context": victimsAuthorizer}},
		"header of another method":    {method: "POST", authorizer: mallory, headers: map[string]string{"x-http-method-override": "PUT", "x-original-uri": "/v1/tenants/victim/plan"}},
		"header with a line break":    {authorizer: mallory, headers: map[string]string{"x-a": "b\r\nx-tenant-id: victim"}},
		"a name with a line break":    {authorizer: mallory, headers: map[string]string{"x-a\r\nx-tenant-id": "victim"}},
		"a key in the header":         {method: "POST", path: "/v1/commit", authorizer: mallory, headers: map[string]string{"idempotency-key": "applied"}, body: `{"session":"s","tool":"t"}`},
		"two keys in the header":      {method: "POST", path: "/v1/commit", authorizer: mallory, headers: map[string]string{"idempotency-key": "applied,applied"}, body: `{"session":"s","tool":"t"}`},
		"tenant in the body":          {method: "POST", path: "/v1/commit", authorizer: mallory, body: `{"session":"s","key":"applied","tool":"t","tenant":"victim"}`},
		"tenant in the query":         {authorizer: mallory, path: "/v1/calls", query: "session=s&key=applied&tenant=victim"},
		"tenant in the path":          {authorizer: mallory, path: "/victim/v1/calls", query: "session=s&key=applied"},
		"a plan":                      {method: "PUT", authorizer: mallory, path: "/v1/tenants/victim/plan", body: `{"tokens":0}`},
		"a stage named victim":        {authorizer: mallory, path: "/victim/v1/calls", stage: "victim", query: "session=s&key=applied"},
		"a session with separators":   {authorizer: mallory, path: "/v1/sessions/s#TOOL#applied/calls"},
		"an escaped separator":        {authorizer: mallory, path: "/v1/sessions/victim%23SESSION%23s/calls", domain: "x.lambda-url.eu-central-1.on.aws"},
		"a path into another":         {authorizer: mallory, path: "/v1/sessions/x/../../victim/calls"},
		"a separator in the query":    {authorizer: mallory, path: "/v1/calls", query: "session=victim%23SESSION%23s&key=applied"},
		"a semicolon in the query":    {authorizer: mallory, path: "/v1/calls", query: "session=s;tenant=victim&key=applied"},
		"a fragment":                  {authorizer: mallory, path: "/v1/calls", query: "session=s&key=applied#tenant=victim"},
		"an authority in the path":    {authorizer: mallory, path: "//victim/v1/calls", query: "session=s&key=applied"},
		"two authorizers":             {authorizer: `{"jwt":{"claims":{"tenant":"victim"}},"iam":{"accountId":"123456789012","userArn":"arn:aws:sts::123456789012:assumed-role/planner/run"}}`},
		"a Lambda authorizer":         {authorizer: `{"lambda":{"tenant":"victim","claims":{"tenant":"victim"}}}`},
		"no authorizer":               {authorizer: `null`, headers: map[string]string{"x-tenant-id": "victim"}},
		"an authorizer in the body":   {method: "POST", path: "/v1/commit", authorizer: `null`, body: `{"requestContext":{"authorizer":` + victimsAuthorizer + `}}`},
		"an authorizer in the header": {authorizer: `null`, headers: map[string]string{"requestcontext": `{"authorizer":` + victimsAuthorizer + `}`}},
		"an authorizer beside":        {authorizer: `null`, more: `"authorizer":` + victimsAuthorizer},
		"identity of version 1":       {authorizer: `null`, more: `"identity":{"user":"victim"},"authorizerContext":{"tenant":"victim"}`},
		"another claim":               {authorizer: `{"jwt":{"claims":{"Tenant":"victim","tenant_id":"victim","custom:tenant":"victim"}}}`},
		"role: the session's name":    {authorizer: planner("arn:aws:sts::123456789012:assumed-role/planner/victim")},
		"role: victim's, by session":  {authorizer: planner("arn:aws:sts::123456789012:assumed-role/other/victims-role")},
		"role: a path in the session": {authorizer: planner("arn:aws:sts::123456789012:assumed-role/x/assumed-role/victims-role/y")},
		"role: another account":       {authorizer: byRole("999999999999", "arn:aws:sts::999999999999:assumed-role/victims-role/x")},
		"role: two accounts":          {authorizer: byRole("999999999999", "arn:aws:sts::123456789012:assumed-role/victims-role/x")},
		"role: a user of that name":   {authorizer: planner("arn:aws:iam::123456789012:user/victims-role")},
		"role: upper case":            {authorizer: planner("arn:aws:sts::123456789012:assumed-role/VICTIMS-ROLE/x1")},
		"role: a line break":          {authorizer: planner(`arn:aws:sts::123456789012:assumed-role/victims-role/x\n`)},
		"role: the administrator's":   {method: "PUT", path: "/v1/tenants/victim/plan", body: `{"tokens":0}`, authorizer: planner("arn:aws:sts::123456789012:assumed-role/ops/x1")},
	}
	for _, claim := range []string{
		"", " ", "victim ", " victim", "[victim]", "[mallory victim]", "[victim mallory]", `{"id":"victim"}`, "victim,mallory", "VICTIM", "v\u0131ctim", "vict\u0456m", "victim\u0000", "victim\u200b",
		"victim#SESSION#s", "#victim", "%76ictim", "victim/x", "null", "undefined", "*", "victim\n", strings.Repeat("v", 129),
	} {
		quoted, err := json.Marshal(claim)
		if err != nil {
			continue
		}
		all["claim "+string(quoted)] = sent{authorizer: `{"jwt":{"claims":{"tenant":` + string(quoted) + `}}}`}
	}
	for op, more := range map[string]string{"finalize": `,"result":"stolen","tool":"t","args":{}`, "release": "", "extend": "", "resolve": `,"verdict":"applied","result":"stolen"`} {
		all["the victim's row by "+op] = sent{method: "POST", path: "/v1/" + op, authorizer: mallory, body: `{"session":"s","key":"pending","row_id":"VICTIMSROW","attempt":1` + more + `}`}
	}
	return all
}

// Promise: nothing that a caller sends through an HTTP API or a function URL, and no event at the wrong door, lets one tenant's
// call touch another's items.
func TestIsolationOfTheFunctions(t *testing.T) {
	g := rig.New(t)
	g.Plan("victim", writers.Plan{Tokens: 100})
	g.Plan("mallory", writers.Plan{Tokens: 100})
	ses := g.Ledger.Tenant("victim").Session("s")
	if _, err := ses.Commit(t.Context(), writers.Call{Key: writers.SessionKey("applied"), Tool: "t", Tokens: 5, Lookup: "s3cr3t"}, "s3cr3t"); err != nil {
		t.Fatal(err)
	}
	held, _, err := ses.Reserve(t.Context(), writers.Call{Key: writers.SessionKey("pending"), Tool: "t", Tokens: 5})
	if err != nil {
		t.Fatal(err)
	}
	before := items(g, "victim")
	if len(before) < 4 {
		t.Fatalf("the victim has %d items", len(before))
	}
	env := func(door string) map[string]string {
		return map[string]string{
			"DOOR": door, "ADMIN_ROLES": `["123456789012/ops"]`, "IAM_TENANTS": `{"123456789012/planner":"mallory","123456789012/victims-role":"victim"}`,
		}
	}
	front, admin, direct := ledgerDoor(t, g, env("http")), ledgerDoor(t, g, env("admin")), ledgerDoor(t, g, env("direct"))
	try := func(ctx context.Context, name string, door served, event json.RawMessage) {
		t.Helper()
		got, err := door(ctx, event)
		if said := fmt.Sprint(got, err); strings.Contains(said, "s3cr3t") {
			t.Errorf("%s: got %s", name, said)
		}
		if now := items(g, "victim"); !maps.Equal(before, now) {
			t.Fatalf("%s: the victim's items changed:\n%v\n%v", name, before, now)
		}
	}
	attacks := gatewayAttacks()
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		event := json.RawMessage(strings.ReplaceAll(string(attacks[name].event(t)), "VICTIMSROW", held.RowID))
		try(t.Context(), name, front, event)
		try(t.Context(), name+" at the direct door", direct, event)
		if !strings.Contains(name, "administrator") {
			try(t.Context(), name+" at the admin door", admin, event)
		}
	}
	read := json.RawMessage(`{"op":"get","tenant":"victim","session":"s","key":"applied"}`)
	theirs := sent{authorizer: victimsAuthorizer}.event(t)
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: map[string]string{"bedrockAgentCoreToolName": "t___get"}}})
	try(t.Context(), "a direct event at the http door", front, read)
	try(t.Context(), "a direct event at the admin door", admin, read)
	try(ctx, "a direct event through a gateway of models", direct, read)
	try(ctx, "an http event through a gateway of models", front, theirs)
	try(t.Context(), "the victim's own token at the admin door", admin, theirs)
	t.Logf("%d events", 3*len(attacks)+4)

	// It can notice a breach: the victim's own token reads what is theirs.
	if got, err := front(t.Context(), theirs); err != nil || !strings.Contains(got.Body, "s3cr3t") {
		t.Errorf("the victim got %d %s, %v", got.StatusCode, got.Body, err)
	}
}

// Promise: a wait ends before the function does, so that whoever asked has an answer and not a time-out.
func TestWaitsEndBeforeTheFunction(t *testing.T) {
	g := rig.New(t)
	if _, _, err := g.Ledger.Tenant("acme").Session("s").Reserve(t.Context(), writers.Call{Key: writers.SessionKey("k"), Tool: "t"}); err != nil {
		t.Fatal(err)
	}
	front := ledgerDoor(t, g, map[string]string{"DOOR": "http"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // what Lambda gives a function whose timeout is 2 s
	defer cancel()
	got, err := front(ctx, sent{
		method: "POST", path: "/v1/reserve", authorizer: `{"jwt":{"claims":{"tenant":"acme"}}}`, body: `{"session":"s","key":"k","tool":"t","wait_seconds":20}`,
	}.event(t))
	if err != nil || got.StatusCode != http.StatusConflict || !strings.Contains(got.Body, `"in_progress"`) || ctx.Err() != nil {
		t.Errorf("%d %s, %v, %v", got.StatusCode, got.Body, err, ctx.Err())
	}
}
