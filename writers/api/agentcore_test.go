package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolledger/writers"
)

// tenantFromInterceptor reads the header that the interceptor of these tests sets.
func tenantFromInterceptor(headers map[string]string) (writers.TenantID, error) {
	if headers["x-verified-tenant"] == "bad" {
		return "", errors.New("signature 123")
	}
	return writers.TenantID(headers["x-verified-tenant"]), nil
}

func gatewayContext(ctx context.Context, tool, headers string) context.Context {
	custom := map[string]string{
		"bedrockAgentCoreToolName": tool, "bedrockAgentCoreGatewayId": "g", "bedrockAgentCoreTargetId": "t", "bedrockAgentCoreMcpMessageId": "m",
	}
	if headers != "" {
		custom["bedrockAgentCorePropagatedHeaders"] = headers
	}
	return throughGateway(ctx, custom)
}

// TestAgentCore: bare arguments in, the bare result or an MCP error out; the tenant comes from the interceptor's header
// alone and the key from a header or a declared argument.
func TestAgentCore(t *testing.T) {
	o := newOrders(t)
	l := newTestLedger(t, newClock())
	f := AgentCore(l, o.tools, tenantFromInterceptor)
	const tool, who = "shop___place_order", `{"X-Verified-Tenant":"acme","Idempotency-Key":"k1"}`
	for _, tc := range []struct{ name, tool, headers, event, want string }{
		{"first", tool, who, `{"count":1}`, `{"order":1}`},
		{"retry", tool, who, `{"count":1.0}`, `{"order":1}`},
		{"another target", "other___place_order", who, `{"count":1}`, `{"order":1}`},
		{"other arguments", tool, who, `{"count":2}`, "[key_conflict]"},
		{"key as argument", tool, `{"x-verified-tenant":"acme"}`, `{"count":1,"idempotencyKey":"k2"}`, `{"order":2}`},
		{"equal keys", tool, `{"x-verified-tenant":"acme","idempotency-key":"k2"}`, `{"count":1,"idempotencyKey":"k2"}`, `{"order":2}`},
		{"two keys", tool, who, `{"count":1,"idempotencyKey":"k3"}`, "[invalid_request]"},
		{"key of a wrong type", tool, who, `{"count":1,"idempotencyKey":3}`, "[invalid_request]"},
		{"no key", tool, `{"x-verified-tenant":"acme"}`, `{"count":1}`, "[invalid_request]"},
		{"no headers", tool, "", `{"count":1}`, "[missing_tenant]"},
		{"tenant as argument", tool, `{"Idempotency-Key":"k1"}`, `{"count":1,"x-verified-tenant":"acme","tenant":"acme"}`, "[missing_tenant]"},
		{"a tenant beside the arguments", tool, who, `{"count":1,"tenant":"victim"}`, "[invalid_request]"},
		{"a token that does not hold", tool, `{"X-Verified-Tenant":"bad","Idempotency-Key":"k"}`, `{"count":1}`, "[missing_tenant]"},
		{"bad arguments", tool, who, `{"count":"1"}`, "[invalid_request]"},
		{"unknown tool", "shop___drop_table", who, `{}`, "[invalid_request]"},
		{"refused outside", tool, `{"X-Verified-Tenant":"acme","Idempotency-Key":"g"}`, `{"count":1,"note":"gone"}`, "[not_applied]"},
		{"panic", tool, `{"X-Verified-Tenant":"acme","Idempotency-Key":"p"}`, `{"count":1,"note":"boom"}`, "[outcome_unknown]"},
		{"no plan", tool, `{"X-Verified-Tenant":"nobody","Idempotency-Key":"k"}`, `{"count":1}`, "[quota_not_provisioned]"},
		{"reading needs no key", "shop___list_orders", `{"X-Verified-Tenant":"acme"}`, `{}`, `2`},
	} {
		raw, err := f(gatewayContext(t.Context(), tc.tool, tc.headers), json.RawMessage(tc.event))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if strings.HasPrefix(tc.want, "[") {
			var e struct {
				Content []struct{ Type, Text string }
				IsError bool
			}
			if json.Unmarshal(raw, &e) != nil || !e.IsError || len(e.Content) != 1 || e.Content[0].Type != "text" ||
				!strings.HasSuffix(e.Content[0].Text, tc.want) || strings.Contains(string(raw), "123") || strings.Contains(string(raw), "s3cr3t") {
				t.Errorf("%s: %s", tc.name, raw)
			}
			continue
		}
		if string(raw) != tc.want {
			t.Errorf("%s: %s", tc.name, raw)
		}
	}
	// A key holds for the whole tenant: a client that reconnects has another MCP session and the same key.
	if row, err := l.Tenant("acme").Session("agentcore").Get(t.Context(), writers.SessionKey("k1")); err != nil || row.State != writers.StateApplied {
		t.Fatal(row, err)
	}
}

// TestAgentCoreRefusesOtherEvents: without a gateway's client context nothing is done, whatever the event says.
func TestAgentCoreRefusesOtherEvents(t *testing.T) {
	o := newOrders(t)
	f := AgentCore(newTestLedger(t, newClock()), o.tools, func(map[string]string) (writers.TenantID, error) { return "acme", nil })
	good := gatewayContext(t.Context(), "shop___place_order", `{"Idempotency-Key":"k"}`)
	for name, tc := range map[string]struct {
		ctx   context.Context
		event string
	}{
		"no client context": {t.Context(), `{"count":1}`},
		"no tool":           {throughGateway(t.Context(), map[string]string{"x": "y"}), `{"count":1}`},
		"no target":         {gatewayContext(t.Context(), "place_order", ""), `{"count":1}`},
		"no name":           {gatewayContext(t.Context(), "shop___", ""), `{"count":1}`},
		"headers a list":    {gatewayContext(t.Context(), "shop___place_order", `["a"]`), `{"count":1}`},
		"headers of lists":  {gatewayContext(t.Context(), "shop___place_order", `{"idempotency-key":["a","b"]}`), `{"count":1}`},
		"headers twice":     {gatewayContext(t.Context(), "shop___place_order", `{"Idempotency-Key":"a","idempotency-key":"b"}`), `{"count":1}`},
		"event a list":      {good, `[1]`},
		"event nothing":     {good, ``},
		"arguments doubled": {good, `{"count":1,"count":2}`},
		"event text":        {good, `"count"`},
	} {
		if _, err := f(tc.ctx, json.RawMessage(tc.event)); !isShape(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o.acts.Load() != 0 {
		t.Fatalf("%d orders", o.acts.Load())
	}
	if raw, err := AgentCore(newTestLedger(t, newClock()), o.tools, nil)(good, json.RawMessage(`{"count":1}`)); err != nil || !strings.Contains(string(raw), "[missing_tenant]") {
		t.Errorf("nobody says who the tenant is: %s %v", raw, err)
	}
}

// TestAgentCoreOptions: sessions, names of tools and places of the key can be those of a team's gateway.
func TestAgentCoreOptions(t *testing.T) {
	o := newOrders(t)
	l := newTestLedger(t, newClock())
	f := AgentCore(l, o.tools, tenantFromInterceptor, func(a *AgentCoreOptions) {
		a.Session = func(h map[string]string) string { return h["x-conversation"] }
		a.Tool = func(target, tool string) string { return target + "_" + tool }
		a.KeyHeader, a.KeyArgument = "X-Key", "key"
	})
	for i, headers := range []string{
		`{"x-verified-tenant":"acme","X-Key":"k","X-Conversation":"c1"}`, `{"x-verified-tenant":"acme","X-Key":"k","X-Conversation":"c2"}`,
	} {
		raw, err := f(gatewayContext(t.Context(), "place___order", headers), json.RawMessage(`{"count":1}`))
		if err != nil || string(raw) != fmt.Sprintf(`{"order":%d}`, i+1) {
			t.Fatalf("%s %v", raw, err)
		}
	}
}
