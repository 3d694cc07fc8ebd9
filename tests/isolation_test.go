package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/tests/rig"
	"toolledger/writers"
	"toolledger/writers/api"
)

// The two tenants of these tests. The victim has a call of every state, under the names that attacks use.
const (
	attacker = "mallory"
	victim   = "victim"
)

// siege is a ledger in which victim has calls and mallory has none.
type siege struct {
	*doorWorld
	held map[string]writers.Row // the victim's calls by key
}

func newSiege(t *testing.T) *siege {
	t.Helper()
	s := &siege{doorWorld: newDoorWorld(t), held: map[string]writers.Row{}}
	s.Plan(attacker, writers.Plan{Tokens: 500})
	s.Plan(victim, writers.Plan{Tokens: 500})
	ses := s.Ledger.Tenant(victim).Session("s")
	call := func(key writers.Key) writers.Call {
		return writers.Call{Key: key, Tool: "act", Args: deskArgs{N: 1}, Tokens: 7, Lookup: "s3cr3t-lookup", Cursor: "s3cr3t-cursor"}
	}
	for _, key := range []string{"applied", "k"} {
		if _, err := ses.Commit(t.Context(), call(writers.SessionKey(key)), "s3cr3t-result"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ses.Commit(t.Context(), call(writers.TenantKey("wide")), "s3cr3t-result"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ses.Reserve(t.Context(), call(writers.SessionKey("pending"))); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"applied", "pending"} {
		row, err := ses.Get(t.Context(), writers.SessionKey(key))
		if err != nil {
			t.Fatal(err)
		}
		s.held[key] = row
	}
	return s
}

// victims are the victim's items: everything under its partition keys, as stored.
func (s *siege) victims() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, table := range []string{s.Table, s.Table + "-control"} {
		for _, item := range s.Items(table) {
			pk := attr(item, "pk")
			if strings.Contains(pk, "TENANT#"+victim+"#") || strings.HasSuffix(pk, "TENANT#"+victim) {
				out[table+" "+pk+" "+attr(item, "sk")] = fmt.Sprint(plain(item))
			}
		}
	}
	return out
}

// strangers are the partition keys of items that belong neither to the victim nor to anybody who may be here.
func (s *siege) strangers() []string {
	s.t.Helper()
	var out []string
	for _, item := range s.Items(s.Table) {
		pk := attr(item, "pk")
		_, tenant, _ := strings.Cut(pk, "TENANT#")
		tenant, _, _ = strings.Cut(tenant, "#")
		if !slices.Contains([]string{attacker, victim, "acme", "poor", "stopped"}, tenant) {
			out = append(out, pk)
		}
	}
	return out
}

func attr(item map[string]types.AttributeValue, name string) string {
	v, _ := item[name].(*types.AttributeValueMemberS)
	if v == nil {
		return ""
	}
	return v.Value
}

func plain(item map[string]types.AttributeValue) map[string]string {
	out := map[string]string{}
	for name, v := range item {
		text, err := json.Marshal(v)
		if err != nil {
			continue
		}
		out[name] = string(text)
	}
	return out
}

// attack does one thing on behalf of mallory, or of nobody, and returns all that came back.
type attack struct {
	name string
	do   func(s *siege) string
}

// request makes an HTTP request of mallory with further headers.
func (s *siege) request(method, path, body string, headers ...string) string {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("X-Tenant-Id", attacker)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.http.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, w.Header(), w.Body)
}

// event sends an event to a function.
func (s *siege) event(ctx context.Context, door function, event string) string {
	s.t.Helper()
	raw, err := door(ctx, json.RawMessage(event))
	return fmt.Sprint(string(raw), err)
}

// ids that try to reach into other items, see HC39.
var crookedIDs = []string{
	victim + "#SESSION#s", victim + "#", "#" + victim, victim + "#SHARD#1", "TENANT#" + victim, victim + "\x00", "..", "../" + victim, "%23",
	victim + "%23SESSION%23s", "s#TOOL#applied", "META", "TOOL#applied", "QUOTA#2026-11", "OBS#TENANT#" + victim, "\u2028", victim + " ", "*", "$", "{{" + victim + "}}",
	strings.Repeat("v", 129), "\xff", "",
	// Look-alikes, and spellings that somebody might decode, fold or trim: they are other names, and stay it.
	"VICTIM", "Victim", "v\u0131ctim", "vict\u0456m", "\uff56\uff49\uff43\uff54\uff49\uff4d", "victim\u200b", "\ufeffvictim", "vict\u0131\u0307m", "\u202emitciv",
	"%76ictim", "victim%00", "victim%20", "victim/../victim", "victim;", "victim,mallory", "mallory,victim", "[victim]", "[mallory victim]", "victim:s", "session:applied",
}

// httpAttacks try every place of a request.
func httpAttacks() []attack {
	var all []attack
	add := func(name string, do func(s *siege) string) { all = append(all, attack{"http: " + name, do}) }
	for _, header := range []string{
		"X-Tenant", "Tenant", "X-Forwarded-Tenant", "X-Amz-Tenant-Id", "Authorization", "X-Verified-Tenant", "X-Original-Url", "X-Http-Method-Override", "Forwarded",
	} {
		add("header "+header, func(s *siege) string { return s.request("GET", "/v1/calls?session=s&key=applied", "", header, victim) })
	}
	for _, query := range []string{"tenant=victim", "tenant_id=victim", "X-Tenant-Id=victim", "session=s&session=victim%23s", "pk=TENANT%23victim"} {
		add("query "+query, func(s *siege) string { return s.request("GET", "/v1/calls?session=s&key=applied&"+query, "") })
		add("quota "+query, func(s *siege) string { return s.request("GET", "/v1/quota?"+query, "") })
	}
	for _, id := range crookedIDs {
		quoted, _ := json.Marshal(id)
		for _, field := range []string{"session", "key", "compensates", "tool", "tenant", "pk"} {
			add(field+" "+id, func(s *siege) string {
				fields := map[string]json.RawMessage{"session": []byte(`"s"`), "key": []byte(`"mine-` + field + `"`), "tool": []byte(`"act"`), "tokens": []byte("1")}
				fields[field] = quoted
				text, err := json.Marshal(fields)
				if err != nil {
					return ""
				}
				return s.request("POST", "/v1/commit", string(text)) + s.request("POST", "/v1/reserve", string(text))
			})
		}
		add("path "+id, func(s *siege) string {
			r := httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, "/v1/sessions/x/calls", nil)
			r.URL.Path = "/v1/sessions/" + id + "/calls"
			r.Header.Set("X-Tenant-Id", attacker)
			w := httptest.NewRecorder()
			s.http.ServeHTTP(w, r)
			return fmt.Sprint(w.Body)
		})
		add("idempotency key "+id, func(s *siege) string {
			return s.request("POST", "/v1/commit", `{"session":"s","tool":"act"}`, "Idempotency-Key", id)
		})
	}
	for _, op := range []string{"finalize", "release", "extend", "resolve"} {
		for _, key := range []string{"pending", "applied"} {
			add("the victim's row id: "+op+" "+key, func(s *siege) string {
				row := s.held[key]
				more := map[string]string{"resolve": `,"verdict":"applied","result":1`, "finalize": `,"result":1`}[op]
				return s.request("POST", "/v1/"+op, fmt.Sprintf(`{"session":"s","key":%q,"row_id":%q,"attempt":1%s}`, key, row.RowID, more))
			})
		}
	}
	add("the victim's attempt verified absent", func(s *siege) string {
		row := s.held["pending"]
		return s.request("POST", "/v1/reserve", fmt.Sprintf(`{"session":"s","key":"pending","tool":"act","args":{"n":1},"verified_absent":{"row_id":%q,"attempt":1,"deadline":%q}}`,
			row.RowID, row.Deadline.Format("2006-01-02T15:04:05.000Z")))
	})
	add("undo the victim's call", func(s *siege) string {
		return s.request("POST", "/v1/commit", `{"session":"s","key":"undo","tool":"act","compensates":"applied","refund_original":true}`) +
			s.request("POST", "/v1/commit", `{"session":"s","key":"undo2","tool":"act","compensates":{"key":"wide","scope":"tenant"},"refund_original":true}`)
	})
	add("the victim's plan", func(s *siege) string { return s.request("PUT", "/v1/tenants/victim/plan", `{"tokens":0}`) })
	add("everything that is there to read", func(s *siege) string {
		return s.request("GET", "/v1/calls?session=s&key=applied", "") + s.request("GET", "/v1/calls?session=s&key=wide&scope=tenant", "") +
			s.request("GET", "/v1/sessions/s/calls", "") + s.request("GET", "/v1/quota", "") + s.request("GET", "/v1/sessions/s/calls?after=a&limit=200", "")
	})
	return all
}

// bedrockAttacks are events in which only the session attributes say who is there.
func bedrockAttacks() []attack {
	event := func(attributes, parameters string) string {
		return `{"messageVersion":"1.0","sessionId":"s","actionGroup":"g","function":"act","inputText":"I am ` + victim + `","parameters":[{"name":"n","type":"integer","value":"1"}` +
			parameters + `],"sessionAttributes":` + attributes + `,"promptSessionAttributes":{"tenantId":"` + victim + `"}}`
	}
	param := func(name, value string) string {
		return fmt.Sprintf(`,{"name":%q,"type":"string","value":%q}`, name, value)
	}
	mine := `{"tenantId":"` + attacker + `","idempotencyKey":"applied"}`
	events := map[string]string{
		"prompt attributes alone":   event(`{}`, ""),
		"a parameter":               event(mine, param("tenantId", victim)),
		"a parameter alone":         event(`{"idempotencyKey":"applied"}`, param("tenantId", victim)),
		"the victim's key":          event(mine, ""),
		"attributes twice":          strings.Replace(event(mine, ""), `"promptSessionAttributes"`, `"sessionAttributes":{"tenantId":"victim","idempotencyKey":"applied"},"promptSessionAttributes"`, 1),
		"attributes misspelt":       event(`{"TenantId":"victim","tenantid":"victim","idempotencyKey":"applied"}`, ""),
		"tenant a list":             event(`{"tenantId":["victim"],"idempotencyKey":"applied"}`, ""),
		"members misspelt":          strings.Replace(event(`{}`, ""), `"sessionAttributes":{}`, `"SessionAttributes":{"tenantId":"victim","idempotencyKey":"applied"}`, 1),
		"nothing":                   `{}`,
		"a direct call":             `{"op":"get","tenant":"victim","session":"s","key":"applied"}`,
		"a direct call in an event": strings.Replace(event(mine, ""), `{"messageVersion"`, `{"op":"get","tenant":"victim","key":"applied","messageVersion"`, 1),
	}
	var all []attack
	for _, name := range slices.Sorted(maps.Keys(events)) {
		all = append(all, attack{"bedrock: " + name, func(s *siege) string {
			return s.event(s.t.Context(), api.Bedrock(s.Ledger, s.tools, func(string) string { return "key" }), events[name])
		}})
	}
	for _, id := range crookedIDs {
		quoted, _ := json.Marshal(id)
		all = append(all, attack{"bedrock: tenant and session " + id, func(s *siege) string {
			door := api.Bedrock(s.Ledger, s.tools, nil)
			crooked := strings.Replace(event(mine, ""), `"sessionId":"s"`, `"sessionId":`+string(quoted), 1)
			return s.event(s.t.Context(), door, event(`{"tenantId":`+string(quoted)+`,"idempotencyKey":"applied"}`, "")) + s.event(s.t.Context(), door, crooked)
		}})
	}
	return all
}

// agentCoreAttacks are calls in which only the interceptor's header says who is there.
func agentCoreAttacks() []attack {
	mine := map[string]string{"x-verified-tenant": attacker, "idempotency-key": "applied"}
	with := func(more ...string) map[string]string {
		h := maps.Clone(mine)
		for i := 0; i+1 < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	type try struct {
		tool    string
		headers map[string]string
		event   string
	}
	tries := map[string]try{
		"the victim's key":     {"t___act", mine, `{"n":1}`},
		"an argument":          {"t___act", mine, `{"n":1,"x-verified-tenant":"victim"}`},
		"tenant argument":      {"t___act", mine, `{"n":1,"tenant":"victim","tenantId":"victim"}`},
		"an argument alone":    {"t___act", map[string]string{"idempotency-key": "applied"}, `{"n":1,"tenant":"victim"}`},
		"other headers":        {"t___act", with("tenant", victim, "x-tenant-id", victim, "authorization", victim), `{"n":1}`},
		"a direct call":        {"t___act", mine, `{"op":"get","tenant":"victim","session":"s","key":"applied"}`},
		"a tool of the ledger": {"t___reserve", mine, `{"op":"reserve","tenant":"victim","session":"s","key":"applied","tool":"act"}`},
		"headers as arguments": {"t___act", map[string]string{}, `{"n":1,"bedrockAgentCorePropagatedHeaders":{"x-verified-tenant":"victim"}}`},
	}
	var all []attack
	for _, name := range slices.Sorted(maps.Keys(tries)) {
		c := tries[name]
		all = append(all, attack{"agentcore: " + name, func(s *siege) string {
			return s.event(throughAgentCore(s.t.Context(), c.tool, c.headers), api.AgentCore(s.Ledger, s.tools, interceptorTenant), c.event)
		}})
	}
	all = append(all, attack{"agentcore: the header in two spellings", func(s *siege) string {
		ctx := lambdacontext.NewContext(s.t.Context(), &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: map[string]string{
			"bedrockAgentCoreToolName": "t___act", "bedrockAgentCorePropagatedHeaders": `{"x-verified-tenant":"mallory","X-Verified-Tenant":"victim","idempotency-key":"applied"}`,
		}}})
		return s.event(ctx, api.AgentCore(s.Ledger, s.tools, interceptorTenant), `{"n":1}`)
	}})
	return all
}

// wrongDoors send what belongs to one door to another.
func wrongDoors() []attack {
	direct := `{"op":"get","tenant":"victim","session":"s","key":"applied"}`
	bedrock := `{"messageVersion":"1.0","sessionId":"s","actionGroup":"g","function":"act","parameters":[{"name":"n","value":"1"}],"sessionAttributes":{"tenantId":"victim","idempotencyKey":"applied"}}`
	gateway := `{"version":"2.0","rawPath":"/v1/quota","headers":{"x-tenant-id":"victim"},"requestContext":{"http":{"method":"GET"},"authorizer":{"jwt":{"claims":{"tenant":"victim"}}}}}`
	var all []attack
	for name, event := range map[string]string{"direct": direct, "bedrock": bedrock, "http": gateway} {
		for door, open := range map[string]func(s *siege) function{
			"direct":    func(s *siege) function { return s.direct },
			"bedrock":   func(s *siege) function { return api.Bedrock(s.Ledger, s.tools, nil) },
			"agentcore": func(s *siege) function { return api.AgentCore(s.Ledger, s.tools, interceptorTenant) },
		} {
			if door == name {
				// Even its own door does not take it from a gateway that passes on what a model wrote.
				all = append(all, attack{name + " through a gateway", func(s *siege) string {
					return s.event(throughAgentCore(s.t.Context(), "t___act", map[string]string{"x-verified-tenant": attacker}), open(s), event)
				}})
				continue
			}
			all = append(all, attack{name + " at the " + door + " door", func(s *siege) string { return s.event(s.t.Context(), open(s), event) }})
		}
	}
	return all
}

// tokenAttacks bring a reservation's token to a tenant that it is not of.
func tokenAttacks() []attack {
	return []attack{{"a token of the victim", func(s *siege) string {
		hold, err := s.Ledger.Tenant(victim).Session("s").Reservation(s.t.Context(), writers.SessionKey("pending"), s.held["pending"].RowID, 1)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.Ledger.Tenant(attacker).Resume(hold.Token()); err == nil {
			s.t.Error("mallory resumed the victim's reservation")
		}
		return ""
	}}}
}

// directAttacks are invocations of the direct function, which believes the tenant that it is told, by what must not reach it: a model's
// words around mallory's name, and events and contexts of other doors.
func directAttacks() []attack {
	mine := `"op":"get","tenant":"` + attacker + `","session":"s","key":"applied"`
	write := `"op":"commit","tenant":"` + attacker + `","session":"s","key":"mine","tool":"act"`
	events := map[string]string{
		"tenant twice":             `{` + mine + `,"tenant":"victim"}`,
		"tenant twice, mine last":  `{"tenant":"victim",` + mine + `}`,
		"Tenant":                   `{` + mine + `,"Tenant":"victim"}`,
		"tenantId":                 `{` + mine + `,"tenantId":"victim"}`,
		"tenant in the arguments":  `{` + write + `,"args":{"tenant":"victim","n":1}}`,
		"tenant in the result":     `{` + write + `,"result":{"tenant":"victim"}}`,
		"tenant a list":            `{"op":"get","tenant":["victim"],"session":"s","key":"applied"}`,
		"tenant an object":         `{"op":"get","tenant":{"id":"victim"},"session":"s","key":"applied"}`,
		"no tenant":                `{"op":"get","session":"s","key":"applied"}`,
		"op twice":                 `{` + mine + `,"op":"resolve"}`,
		"op of an administrator":   `{"op":"put_plan","tenant":"victim","tokens":0}`,
		"op of the table":          `{"op":"PutItem","tenant":"` + attacker + `","pk":"TENANT#victim"}`,
		"a forged authorizer":      `{` + mine + `,"requestContext":{"authorizer":{"jwt":{"claims":{"tenant":"victim"}}}}}`,
		"a forged HTTP event":      `{"version":"2.0","rawPath":"/v1/calls","rawQueryString":"session=s&key=applied","requestContext":{"authorizer":{"jwt":{"claims":{"tenant":"victim"}}},"http":{"method":"GET"}}}`,
		"an HTTP event with an op": `{"op":"quota","version":"2.0","requestContext":{"authorizer":{"iam":{"userArn":"arn:aws:sts::123456789012:assumed-role/planner/victim"}},"http":{"method":"GET"}}}`,
		"a path of Step Functions": `{"op":"get","tenant.$":"$.tenant","session":"s","key":"applied"}`,
		"an intrinsic function":    `{"op":"get","tenant":"States.Format('{}','victim')","session":"s","key":"applied"}`,
		"a list of events":         `[{` + mine + `},{"op":"get","tenant":"victim","session":"s","key":"applied"}]`,
		"an event in an event":     `{"Payload":{"op":"get","tenant":"victim","session":"s","key":"applied"}}`,
	}
	var all []attack
	for _, name := range slices.Sorted(maps.Keys(events)) {
		all = append(all, attack{"direct: " + name, func(s *siege) string { return s.event(s.t.Context(), s.direct, events[name]) }})
	}
	for _, header := range []string{"bedrockAgentCoreToolName", "BEDROCKAGENTCOREGATEWAYID", "bedrockAgentCorePropagatedHeaders"} {
		all = append(all, attack{"direct: through a gateway that says " + header, func(s *siege) string {
			ctx := lambdacontext.NewContext(s.t.Context(), &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: map[string]string{header: "x"}}})
			return s.event(ctx, s.direct, `{"op":"get","tenant":"victim","session":"s","key":"applied"}`)
		}})
	}
	return all
}

// rawAttacks are requests that no careful client writes.
func rawAttacks() []attack {
	var all []attack
	ask := func(change func(r *http.Request)) func(s *siege) string {
		return func(s *siege) string {
			r := httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, "/v1/calls?session=s&key=applied", nil)
			r.Header.Set("X-Tenant-Id", attacker)
			change(r)
			w := httptest.NewRecorder()
			s.http.ServeHTTP(w, r)
			return fmt.Sprint(w.Code, w.Header(), w.Body)
		}
	}
	for name, values := range map[string][]string{
		"mallory first": {attacker, victim}, "victim first": {victim, attacker}, "in one line": {attacker + "," + victim}, "in one line, victim first": {victim + ", " + attacker},
		"a folded line": {attacker + "\r\n " + victim}, "smuggled": {attacker + "\r\nX-Tenant-Id: " + victim}, "none": {}, "empty first": {"", victim},
	} {
		all = append(all, attack{"raw: the tenant's header: " + name, ask(func(r *http.Request) { r.Header["X-Tenant-Id"] = values })})
	}
	for name, header := range map[string]string{
		"x-tenant-id": victim, "X_Tenant_Id": victim, "X-Tenant-Id ": victim, "X-Tenant-ID": victim, "Connection": "X-Tenant-Id", "Transfer-Encoding": "chunked", "Host": victim,
		"X-Forwarded-Host": victim, "X-Rewrite-Url": "/v1/tenants/victim/plan", "Cookie": "tenant=victim",
	} {
		all = append(all, attack{"raw: a header as " + name, ask(func(r *http.Request) { r.Header[name] = []string{header} })})
	}
	for _, user := range []string{victim, victim + ":s"} {
		all = append(all, attack{"raw: a user in the address: " + user, ask(func(r *http.Request) { r.SetBasicAuth(user, "x") })})
	}
	for _, target := range []string{
		"/v1/tenants/victim/plan", "/v1/sessions/victim%23SESSION%23s/calls", "/v1/sessions/s%2F..%2F..%2Fvictim/calls", "//victim/v1/calls", "/v1/../victim/v1/calls?session=s&key=applied",
		"/v1/calls?session=s&key=applied&tenant=victim", "/v1/calls?session=s;tenant=victim&key=applied", "/v1/calls?session=s&key=applied#tenant=victim",
		"/v1/calls?session=s%00&key=applied", "/victim/v1/calls?session=s&key=applied", "/v1/calls/victim?session=s&key=applied", "/v1/sessions/s/calls?after=applied%23&limit=200",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			all = append(all, attack{"raw: " + method + " " + target, func(s *siege) string {
				r := httptest.NewRequestWithContext(s.t.Context(), method, "http://ledger"+target, strings.NewReader(`{"tokens":0}`))
				r.Header.Set("X-Tenant-Id", attacker)
				w := httptest.NewRecorder()
				s.http.ServeHTTP(w, r)
				return fmt.Sprint(w.Code, w.Header(), w.Body)
			}})
		}
	}
	return all
}

// caseAttacks are the inputs of the known cases of the areas bedrock, api-gateway, step-functions and dynamodb-model, turned
// against the victim. The names begin with the cases' ids.
func caseAttacks() []attack {
	bedrock := func(event string) func(s *siege) string {
		return func(s *siege) string {
			return s.event(s.t.Context(), api.Bedrock(s.Ledger, s.tools, nil), event)
		}
	}
	attributes := `"sessionId":"s","actionGroup":"victim","sessionAttributes":{"tenantId":"` + attacker + `","idempotencyKey":"applied"}`
	all := []attack{
		{"HC71: an event of both shapes", bedrock(`{"messageVersion":"1.0",` + attributes + `,"function":"act","apiPath":"/victim","httpMethod":"GET","parameters":[]}`)},
		{"HC71: an event of functions", bedrock(`{"messageVersion":"1.0",` + attributes + `,"function":"act","parameters":[{"name":"n","type":"integer","value":"1"}]}`)},
		{"HC71: an event of a schema", bedrock(`{"messageVersion":"1.0",` + attributes + `,"apiPath":"/act","httpMethod":"POST","requestBody":{"content":{"application/json":{"properties":[{"name":"n","type":"integer","value":"1"}]}}}}`)},
		{"HC71: a body that is an object", bedrock(`{"messageVersion":"1.0",` + attributes + `,"apiPath":"/act","httpMethod":"POST","requestBody":{"tenantId":"victim"}}`)},
		{"HC73: a parameter names the tenant", bedrock(`{"messageVersion":"1.0",` + attributes + `,"function":"act","parameters":[{"name":"tenantId","type":"string","value":"victim"},{"name":"n","type":"integer","value":"5"}]}`)},
		{"HC73: a parameter twice", bedrock(`{"messageVersion":"1.0",` + attributes + `,"function":"act","parameters":[{"name":"n","type":"integer","value":"5"},{"name":"n","type":"integer","value":"6"},{"name":"tenantId","type":"string","value":"victim"}]}`)},
		{"HC76: the same task again and again", func(s *siege) string {
			said := ""
			for _, key := range []string{"pending", "applied", "pending"} {
				said += s.event(s.t.Context(), s.direct, `{"op":"reserve","tenant":"`+attacker+`","session":"s","key":"`+key+`","tool":"act","args":{"n":1},"tokens":7,"retry":true}`)
			}
			return said
		}},
		{"HC76: a business error", func(s *siege) string {
			return s.event(s.t.Context(), s.direct, `{"op":"reserve","tenant":"`+attacker+`","session":"s","key":"q","tool":"act","tokens":501}`)
		}},
		{"HC76: the victim's execution finalized by another's", func(s *siege) string {
			return s.event(s.t.Context(), s.direct, fmt.Sprintf(`{"op":"finalize","tenant":%q,"session":"s","key":"pending","row_id":%q,"attempt":1,"tool":"act","args":{"n":1},"tokens":7,"result":"stolen"}`,
				attacker, s.held["pending"].RowID))
		}},
	}
	for _, kind := range []string{"", "application/x-www-form-urlencoded", "application/octet-stream", "application/json", "multipart/form-data"} {
		for _, body := range []string{"", "tenant=victim&session=s&key=applied", "eyJ0ZW5hbnQiOiJ2aWN0aW0ifQ==", `{"session":"s","key":"applied","tool":"act","tenant":"victim"}`} {
			all = append(all, attack{"HC74: a body of " + kind + " " + body, func(s *siege) string { return s.request("POST", "/v1/commit", body, "Content-Type", kind) }})
		}
	}
	commit := func(fields obj) func(s *siege) string {
		return func(s *siege) string {
			text, err := json.Marshal(fields)
			if err != nil {
				s.t.Fatal(err)
			}
			return s.request("POST", "/v1/commit", string(text))
		}
	}
	for _, id := range []string{"victim#SESSION#s", "s#TOOL#applied", "s1#SESSION#x", "META", "TOOL", "QUOTA#2026-11", "a%b", "a/b", "a\x00b", "\x7f"} {
		all = append(all, attack{"HC39: session " + id, commit(obj{"session": id, "key": "applied", "tool": "act"})}, attack{"HC39: key " + id, commit(obj{"session": "s", "key": id, "tool": "act"})})
	}
	for _, word := range []string{"state", "status", "cursor", "ttl", "year", "#pk", ":v", "pk", "attribute_not_exists(pk)"} {
		all = append(all, attack{"HC40: a reserved word, " + word, commit(obj{"session": word, "key": word, "tool": word, "args": obj{word: victim}, "cursor": word, "lookup": word})})
	}
	for _, field := range []string{"session", "key", "tool", "cursor", "lookup", "result", "expect_cursor", "trace"} {
		fields := obj{"session": "s", "key": "empty-" + field, "tool": "act"}
		fields[field] = ""
		all = append(all, attack{"HC41: empty " + field, commit(fields)})
	}
	// Last: the victim's rows have expired by then, and are still in the table.
	return append(all, attack{"HC43: rows that have expired", func(s *siege) string {
		s.Advance(365 * 24 * time.Hour)
		said := ""
		for _, key := range []string{"applied", "pending", "wide"} {
			said += s.request("GET", "/v1/calls?session=s&key="+key, "") + s.request("POST", "/v1/commit", `{"session":"s","key":"`+key+`","tool":"act","args":{"n":1}}`) +
				s.request("POST", "/v1/finalize", fmt.Sprintf(`{"session":"s","key":%q,"row_id":%q,"attempt":1,"tool":"act","args":{"n":1},"result":"stolen"}`, key, s.held["applied"].RowID))
		}
		return said + s.request("GET", "/v1/sessions/s/calls", "") + s.request("GET", "/v1/quota", "")
	}})
}

// isolationCases are the known cases of these four areas.
var isolationCases = []string{"HC39", "HC40", "HC41", "HC43", "HC71", "HC73", "HC74", "HC76"}

// TestIsolation: no header, parameter, body, session id, key, forged event or wrong door lets a call of one tenant touch
// another's items, read what they hold, or make items of a tenant that there is not.
func TestIsolation(t *testing.T) {
	s := newSiege(t)
	before := s.victims()
	if len(before) < 6 { // plan, quota, session, and the calls
		t.Fatalf("the victim has %d items", len(before))
	}
	groups := map[string][]attack{
		"http": httpAttacks(), "bedrock": bedrockAttacks(), "agentcore": agentCoreAttacks(), "wrong doors": wrongDoors(), "tokens": tokenAttacks(), "direct": directAttacks(), "raw": rawAttacks(),
	}
	for _, a := range caseAttacks() {
		id, _, _ := strings.Cut(a.name, ":")
		groups[id] = append(groups[id], a)
	}
	for _, id := range isolationCases {
		if len(groups[id]) == 0 {
			t.Errorf("no attack is made of %s", id)
		}
	}
	n := 0
	// HC43 moves the clock: last.
	order := slices.SortedFunc(maps.Keys(groups), func(a, b string) int { return strings.Compare(last(a, "HC43"), last(b, "HC43")) })
	for _, name := range order {
		t.Run(name, func(t *testing.T) {
			for _, a := range groups[name] {
				n++
				if said := a.do(s); strings.Contains(said, "s3cr3t") {
					t.Errorf("%s: got %s", a.name, said)
				}
				if n%25 == 0 {
					s.untouched(t, before, a.name)
				}
			}
			s.untouched(t, before, "the last of "+name)
		})
	}
	if strange := s.strangers(); len(strange) > 0 {
		t.Errorf("items of nobody: %q", strange)
	}
	t.Logf("%d attacks", n)
}

// last sorts one name behind all others.
func last(name, which string) string {
	if name == which {
		return "~"
	}
	return name
}

// untouched fails the test unless the victim's items are as they were.
func (s *siege) untouched(t *testing.T, before map[string]string, after string) {
	t.Helper()
	if now := s.victims(); !maps.Equal(before, now) {
		t.Fatalf("by %s at the latest: the victim's items changed:\n%v\n%v", after, before, now)
	}
}

// TestIsolationNoticesABreach: the test above sees an item of the victim's that changed, and one that should not be.
func TestIsolationNoticesABreach(t *testing.T) {
	s := newSiege(t)
	before := s.victims()
	if _, err := s.Ledger.Tenant(victim).Session("s").Commit(t.Context(), writers.Call{Key: writers.SessionKey("k"), Tool: "act", Args: deskArgs{N: 1}, Tokens: 7}, 1); err != nil {
		t.Fatal(err)
	}
	if maps.Equal(before, s.victims()) { // an observation of a replay, under the victim's name
		t.Error("a call of the victim's was not noticed")
	}
	if _, err := s.Ledger.Tenant("nobody").Session("s").Commit(t.Context(), writers.Call{Key: writers.SessionKey("k"), Tool: "act"}, 1); err != nil {
		t.Fatal(err)
	}
	if len(s.strangers()) == 0 {
		t.Error("items of nobody were not noticed")
	}
}

// TestNeighboursKeepTheirNames: tenants whose names begin alike, or whose sessions and keys read like each other's keys, have
// nothing in common (HC39).
func TestNeighboursKeepTheirNames(t *testing.T) {
	g := rig.New(t)
	places := []struct{ tenant, session, key string }{
		{"acme", "s", "k"},
		{"acme2", "s", "k"},
		{"acm", "es", "k"},
		{"acme", "s2", "k"},
		{"acme", "s", "k2"},
		{"acme", "SESSION", "s"},
		{"SESSION", "acme", "k"},
		{"acme", "s", "META"},
		{"acme", "META", "s"},
		{"acme", "SHARD", "1"},
		{"acme", "CALLS", "0"},
		{"OBS", "s", "k"},
		{"Acme", "s", "k"},
	}
	for i, p := range places {
		got, err := g.Ledger.Tenant(writers.TenantID(p.tenant)).Session(p.session).Commit(t.Context(), writers.Call{Key: writers.SessionKey(p.key), Tool: "t", Args: obj{"i": i}}, i)
		if err != nil || got.Outcome != writers.OutcomeApplied {
			t.Fatalf("%v: %v %v", p, got.Outcome, err)
		}
	}
	effects := map[string]bool{}
	for i, p := range places {
		s := g.Ledger.Tenant(writers.TenantID(p.tenant)).Session(p.session)
		row, err := s.Get(t.Context(), writers.SessionKey(p.key))
		if err != nil || !bytes.Equal(row.Result, fmt.Append(nil, i)) || effects[row.EffectKey] {
			t.Errorf("%v: %s %v", p, row.Result, err)
		}
		effects[row.EffectKey] = true
		for other, err := range s.Calls(t.Context()) {
			if err != nil || string(other.Tenant) != p.tenant || other.Session != p.session {
				t.Errorf("%v lists a call of %s/%s: %v", p, other.Tenant, other.Session, err)
			}
		}
	}
}
