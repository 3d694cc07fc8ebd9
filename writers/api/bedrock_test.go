package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"toolledger/writers"
)

type orderArgs struct {
	Count  int64    `json:"count"`
	Price  float64  `json:"price,omitempty"`
	Rush   bool     `json:"rush,omitempty"`
	Note   string   `json:"note,omitempty"`
	Labels []string `json:"labels,omitempty"`
	Limit  *int64   `json:"limit,omitempty"`
	Meta   struct {
		A int `json:"a"`
	} `json:"meta,omitzero"`
}

// orders is a tool that keeps what it was called with.
type orders struct {
	tools *Toolset
	acts  atomic.Int64
	last  atomic.Value
}

func newOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{}
	act := func(_ context.Context, a writers.Attempt[orderArgs]) (any, error) {
		o.last.Store(a.Args)
		switch a.Args.Note {
		case "gone":
			return nil, writers.NotApplied(errors.New("sold out"))
		case "slow":
			return nil, context.DeadlineExceeded
		case "boom":
			panic("s3cr3t")
		case "long":
			return strings.Repeat("x", 30<<10), nil
		}
		return map[string]any{"order": o.acts.Add(1)}, nil
	}
	var err error
	o.tools, err = NewToolset(
		&writers.Tool[orderArgs, any]{Name: "place_order", Cost: 10, Act: act},
		&writers.Tool[orderArgs, any]{Name: "post_orders", Cost: 10, Act: act},
		&writers.Tool[struct{}, int64]{Name: "list_orders", ReadOnly: true, Act: func(context.Context, writers.Attempt[struct{}]) (int64, error) {
			return o.acts.Load(), nil
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func function1(params string, attributes string) string {
	return `{"messageVersion":"1.0","agent":{"name":"a","id":"1","alias":"x","version":"1"},"inputText":"buy","sessionId":"conv-1","actionGroup":"orders",` +
		`"function":"place_order","parameters":` + params + `,"sessionAttributes":` + attributes + `,"promptSessionAttributes":{"mood":"good"}}`
}

func apiEvent(body string, attributes string) string {
	return `{"messageVersion":"1.0","sessionId":"conv-1","actionGroup":"orders","apiPath":"/orders","httpMethod":"POST","parameters":[],` +
		`"requestBody":{"content":{"application/json":{"properties":` + body + `}}},"sessionAttributes":` + attributes + `}`
}

func param(name, kind, value string) string {
	return fmt.Sprintf(`{"name":%q,"type":%q,"value":%q}`, name, kind, value)
}

const acme = `{"tenantId":"acme","idempotencyKey":"k1"}`

// TestHC71BedrockEnvelopes: each kind of event gets the envelope of its kind, byte for byte, and a retry gets the same.
func TestHC71BedrockEnvelopes(t *testing.T) {
	o := newOrders(t)
	f := Bedrock(newTestLedger(t, newClock()), o.tools, nil)
	byFunction := `{"messageVersion":"1.0","response":{"actionGroup":"orders","function":"place_order","functionResponse":{"responseBody":{"TEXT":{"body":"{\"order\":1}"}}}},` +
		`"sessionAttributes":{"idempotencyKey":"k1","tenantId":"acme"},"promptSessionAttributes":{"mood":"good"}}`
	byAPI := `{"messageVersion":"1.0","response":{"actionGroup":"orders","apiPath":"/orders","httpMethod":"POST","httpStatusCode":200,` +
		`"responseBody":{"application/json":{"body":"{\"order\":2}"}}},"sessionAttributes":{"idempotencyKey":"k2","tenantId":"acme"}}`
	for range 2 {
		for event, want := range map[string]string{
			function1("["+param("count", "integer", "5")+"]", acme):                                byFunction,
			apiEvent("["+param("count", "integer", "5")+"]", strings.Replace(acme, "k1", "k2", 1)): byAPI,
		} {
			if strings.Contains(event, "k2") && o.acts.Load() == 0 {
				continue // the function's order first
			}
			got, err := f(t.Context(), json.RawMessage(event))
			if err != nil || string(got) != want {
				t.Fatalf("%s: %v\n got %s\nwant %s", event, err, got, want)
			}
		}
	}
	if _, err := f(t.Context(), json.RawMessage(apiEvent("["+param("count", "integer", "5")+"]", strings.Replace(acme, "k1", "k2", 1)))); err != nil {
		t.Fatal(err)
	}
	if o.acts.Load() != 2 {
		t.Fatalf("%d orders", o.acts.Load())
	}
}

// refusal is the problem document within a response, with the response's state or status.
func refusal(t *testing.T, raw json.RawMessage) (code, state string, doc map[string]any) {
	t.Helper()
	var r BedrockResponse
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	body := r.Response.ResponseBody[jsonType].Body
	state = fmt.Sprint(r.Response.HTTPStatusCode)
	if fr := r.Response.FunctionResponse; fr != nil {
		body, state = fr.ResponseBody[textType].Body, fr.ResponseState
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatalf("the body is no document: %s", raw)
	}
	code, _ = doc["code"].(string)
	return code, state, doc
}

// TestHC73BedrockConverts: text becomes what the tool's schema asks for, strictly; nothing is rounded, guessed or taken twice.
func TestHC73BedrockConverts(t *testing.T) {
	o := newOrders(t)
	ledger := newTestLedger(t, newClock())
	f := Bedrock(ledger, o.tools, nil)
	n := 0
	send := func(params ...string) json.RawMessage {
		t.Helper()
		n++
		raw, err := f(t.Context(), json.RawMessage(function1("["+strings.Join(params, ",")+"]", fmt.Sprintf(`{"tenantId":"acme","idempotencyKey":"c%d"}`, n))))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	raw := send(param("count", "string", "5"), param("price", "number", "2.50"), param("rush", "boolean", "true"), param("note", "integer", "7"),
		param("labels", "array", `["a","b"]`), param("limit", "integer", "9007199254740993"), param("meta", "object", `{"a":1}`))
	got, _ := o.last.Load().(orderArgs)
	if o.acts.Load() != 1 || got.Count != 5 || got.Price != 2.5 || !got.Rush || got.Note != "7" || len(got.Labels) != 2 || *got.Limit != 9007199254740993 || got.Meta.A != 1 {
		t.Fatalf("%+v: %s", got, raw)
	}
	count := param("count", "integer", "5")
	for _, bad := range [][]string{
		{param("count", "integer", "5.0")},
		{param("count", "integer", " 5")},
		{param("count", "integer", "0x5")},
		{param("count", "integer", "")},
		{param("count", "integer", "05")},
		{param("count", "integer", "9223372036854775808")},
		{param("count", "integer", "1e3")},
		{count, count},
		{count, param("price", "number", "NaN")},
		{count, param("price", "number", "1 ")},
		{count, param("rush", "boolean", "True")},
		{count, param("labels", "array", "[a, b]")},
		{count, param("labels", "array", `{"a":1}`)},
		{count, param("meta", "object", `{"a":1,"a":2}`)},
		{count, param("tenantId", "string", "victim")},
		{count, param("tokens", "integer", "0")},
		{count, param("", "string", "x")},
		{},
	} {
		code, state, doc := refusal(t, send(bad...))
		if code != "invalid_request" || state != BedrockReprompt || !strings.Contains(fmt.Sprint(doc["detail"]), "Correct and call again") {
			t.Errorf("%v: %s %s %v", bad, code, state, doc)
		}
	}
	if o.acts.Load() != 1 {
		t.Fatalf("%d orders", o.acts.Load())
	}
	if q, err := ledger.Tenant("acme").Quota(t.Context()); err != nil || q.Remaining != 990 {
		t.Fatalf("%+v %v", q, err)
	}
	raw, err := f(t.Context(), json.RawMessage(strings.Replace(apiEvent("["+count+"]", acme), `"parameters":[]`, `"parameters":[`+count+`]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if code, state, _ := refusal(t, raw); code != "invalid_request" || state != "400" {
		t.Fatalf("a parameter in both places: %s", raw)
	}
}

// TestHC73BedrockRefusals: who the tenant is comes from the session attributes alone; every refusal stays in the envelope, and
// the model goes on only where the user can mend it.
func TestHC73BedrockRefusals(t *testing.T) {
	o := newOrders(t)
	l := newTestLedger(t, newClock())
	f := Bedrock(l, o.tools, func(action string) string {
		if action == "place_order" {
			return "orderKey"
		}
		return ""
	})
	if err := l.Tenant("poor").PutPlan(t.Context(), writers.Plan{Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.Tenant("stopped").PutPlan(t.Context(), writers.Plan{Tokens: 100}); err != nil {
		t.Fatal(err)
	}
	if err := l.Tenant("stopped").Suspend(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	count, two := param("count", "integer", "1"), param("count", "integer", "2")
	key := func(k string) string { return param("orderKey", "string", k) }
	tenant := func(id string) string { return fmt.Sprintf(`{"tenantId":%q}`, id) }
	for _, tc := range []struct{ name, params, attributes, code, state string }{
		{"first", "[" + count + "," + key("a") + "]", tenant("acme"), "", ""},
		{"retry", "[" + count + "," + key("a") + "]", tenant("acme"), "", ""},
		{"other arguments", "[" + two + "," + key("a") + "]", tenant("acme"), "key_conflict", BedrockReprompt},
		{"no tenant", "[" + count + "," + key("b") + "]", `{}`, "missing_tenant", BedrockFailure},
		{"null attributes", "[" + count + "," + key("b") + "]", `null`, "missing_tenant", BedrockFailure},
		{"a model's tenant", "[" + count + "," + key("b") + "," + param("tenantId", "string", "acme") + "]", `{}`, "missing_tenant", BedrockFailure},
		{"another spelling", "[" + count + "," + key("b") + "]", `{"tenantid":"acme","TENANTID":"acme"}`, "missing_tenant", BedrockFailure},
		{"no key", "[" + count + "]", tenant("acme"), "invalid_request", BedrockReprompt},
		{"a bad key", "[" + count + "," + key("a#b") + "]", tenant("acme"), "invalid_request", BedrockReprompt},
		{"two keys", "[" + count + "," + key("b") + "]", `{"tenantId":"acme","idempotencyKey":"c"}`, "invalid_request", BedrockReprompt},
		{"equal keys", "[" + count + "," + key("c") + "]", `{"tenantId":"acme","idempotencyKey":"c"}`, "", ""},
		{"no quota", "[" + count + "," + key("a") + "]", tenant("poor"), "quota_exhausted", BedrockFailure},
		{"no plan", "[" + count + "," + key("a") + "]", tenant("nobody"), "quota_not_provisioned", BedrockFailure},
		{"suspended", "[" + count + "," + key("a") + "]", tenant("stopped"), "tenant_suspended", BedrockFailure},
		{"refused outside", "[" + count + "," + key("d") + "," + param("note", "string", "gone") + "]", tenant("acme"), "not_applied", BedrockReprompt},
		{"unknown", "[" + count + "," + key("e") + "," + param("note", "string", "slow") + "]", tenant("acme"), "outcome_unknown", BedrockFailure},
		{"panic", "[" + count + "," + key("f") + "," + param("note", "string", "boom") + "]", tenant("acme"), "outcome_unknown", BedrockFailure},
		{"a forged tenant", "[" + count + "," + key("a") + "]", tenant("acme#SESSION#x"), "invalid_request", BedrockFailure},
		{"a tenant too long", "[" + count + "," + key("a") + "]", tenant(strings.Repeat("a", 129)), "invalid_request", BedrockFailure},
	} {
		raw, err := f(t.Context(), json.RawMessage(function1(tc.params, tc.attributes)))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		code, state, _ := refusal(t, raw)
		if code != tc.code || state != tc.state || strings.Contains(string(raw), "s3cr3t") {
			t.Errorf("%s: %s %s: %s", tc.name, code, state, raw)
		}
	}
	api := strings.Replace(apiEvent("["+count+"]", tenant("acme")), "{", "{", 1)
	raw, err := f(t.Context(), json.RawMessage(api))
	if err != nil {
		t.Fatal(err)
	}
	if code, status, _ := refusal(t, raw); code != "invalid_request" || status != "400" {
		t.Errorf("%s", raw)
	}
	raw, err = f(t.Context(), json.RawMessage(strings.Replace(function1("[]", tenant("acme")), "place_order", "drop_table", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if code, state, _ := refusal(t, raw); code != "invalid_request" || state != BedrockFailure {
		t.Errorf("an unknown function: %s", raw)
	}
	raw, err = f(t.Context(), json.RawMessage(strings.Replace(function1("[]", tenant("acme")), "place_order", "list_orders", 1)))
	if err != nil || !strings.Contains(string(raw), `"TEXT":{"body":"2"}`) {
		t.Errorf("a tool that only reads needs no key: %s %v", raw, err)
	}
	raw, err = f(t.Context(), json.RawMessage(function1("["+count+","+key("g")+","+param("note", "string", "long")+"]", tenant("acme"))))
	if err != nil || len(raw) > 25<<10 || !strings.Contains(string(raw), `\"done\":true`) || strings.Contains(string(raw), "responseState") {
		t.Errorf("a long result: %d bytes %v", len(raw), err)
	}
}

// TestBedrockRefusesOtherEvents: nothing is guessed from an event of another kind.
func TestBedrockRefusesOtherEvents(t *testing.T) {
	o := newOrders(t)
	l := newTestLedger(t, newClock())
	f := Bedrock(l, o.tools, nil)
	good := function1("["+param("count", "integer", "1")+"]", acme)
	for name, event := range map[string]string{
		"nothing":          ``,
		"null":             `null`,
		"list":             `[]`,
		"direct":           `{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"place_order"}`,
		"arguments":        `{"count":1}`,
		"http":             `{"version":"2.0","requestContext":{"http":{"method":"POST"}}}`,
		"version":          strings.Replace(good, `"1.0"`, `"2.0"`, 1),
		"both kinds":       strings.Replace(good, `"function"`, `"apiPath":"/x","httpMethod":"POST","function"`, 1),
		"half a kind":      strings.Replace(good, `"function":"place_order"`, `"apiPath":"/x"`, 1),
		"doubled":          strings.Replace(good, `"function"`, `"sessionAttributes":{"tenantId":"victim"},"function"`, 1),
		"doubled tenant":   strings.Replace(good, `{"tenantId":"acme"`, `{"tenantId":"victim","tenantId":"acme"`, 1),
		"no session":       strings.Replace(good, `"sessionId"`, `"sessionID"`, 1),
		"tenant object":    strings.Replace(good, `"tenantId":"acme"`, `"tenantId":{"id":"acme"}`, 1),
		"parameter object": strings.Replace(good, `"value":"1"`, `"value":1`, 1),
	} {
		if _, err := f(t.Context(), json.RawMessage(event)); !isShape(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f(throughGateway(t.Context(), map[string]string{"bedrockAgentCoreToolName": "a___b"}), json.RawMessage(good)); !isShape(err) {
		t.Error(err)
	}
	if o.acts.Load() != 0 {
		t.Fatalf("%d orders", o.acts.Load())
	}
	if _, err := Bedrock(nil, nil, nil)(t.Context(), json.RawMessage(good)); err == nil {
		t.Error("a door without a ledger answers")
	}
}

// TestBedrockNeverCallsALongRefusalDone: a reason that is too long for an agent is left out. The code stays, and what is told
// is never that it was done.
func TestBedrockNeverCallsALongRefusalDone(t *testing.T) {
	long := errors.New(strings.Repeat("sold out ", 4<<10))
	for _, err := range []error{
		&writers.Error{Code: writers.ErrNotApplied, Err: long},
		&writers.Error{Code: writers.ErrInvalid, Reason: long.Error()},
		&writers.Error{Code: writers.ErrKeyConflict, Differs: []string{long.Error()}},
	} {
		for _, e := range []*BedrockEvent{{Function: "f"}, {APIPath: "/f", HTTPMethod: "POST"}} {
			r := e.answer(refused(ToolUse{}, err)).Response
			body, code := r.ResponseBody[jsonType].Body, problemOf(err)
			if r.FunctionResponse != nil {
				body = r.FunctionResponse.ResponseBody[textType].Body
			}
			var p problem
			if json.Unmarshal([]byte(body), &p) != nil || p.Code != code.Code || p.Status != code.Status || len(body) > maxBedrockBody ||
				!strings.Contains(p.Detail, "too long") && p.Code != "key_conflict" || strings.Contains(body, "recorded") {
				t.Errorf("%s: %d bytes: %.300s", code.Code, len(body), body)
			}
		}
	}
}

// FuzzBedrock: no event makes the door panic, and what it answers is an envelope.
func FuzzBedrock(f *testing.F) {
	f.Add(function1("["+param("count", "integer", "1")+"]", acme))
	f.Add(apiEvent("["+param("count", "integer", "1")+"]", acme))
	f.Add(`{"messageVersion":"1.0","sessionId":"","actionGroup":"","function":"f","parameters":null,"requestBody":null}`)
	tools, err := NewToolset(&writers.Tool[orderArgs, any]{Name: "place_order", Act: func(context.Context, writers.Attempt[orderArgs]) (any, error) { return 1, nil }})
	if err != nil {
		f.Fatal(err)
	}
	l, err := writers.New(&strictDB{t: f, fault: func(context.Context) error { return errors.New("down") }}, writers.Config{Table: "toolledger"})
	if err != nil {
		f.Fatal(err)
	}
	door := Bedrock(l, tools, func(string) string { return "note" })
	f.Fuzz(func(t *testing.T, event string) {
		raw, err := door(t.Context(), json.RawMessage(event))
		if err != nil {
			if !isShape(err) {
				t.Fatal(err)
			}
			return
		}
		var r BedrockResponse
		if json.Unmarshal(raw, &r) != nil || r.MessageVersion != "1.0" || (r.Response.FunctionResponse == nil) == (r.Response.HTTPStatusCode == 0) {
			t.Fatalf("%s", raw)
		}
	})
}
