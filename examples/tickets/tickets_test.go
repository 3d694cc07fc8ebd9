package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"toolledger/tests/rig"
	"toolledger/writers"
	"toolledger/writers/api"
	"toolledger/writers/writerstest"
)

type world struct {
	*rig.Rig
	t    *testing.T
	desk *desk
	set  *api.Toolset
	door func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	g := rig.New(t)
	w := &world{Rig: g, t: t, desk: &desk{g.DB, g.Table + "-tickets"}}
	g.CreateTable(w.desk.table, "id")
	var err error
	if w.set, err = tools(w.desk); err != nil {
		t.Fatal(err)
	}
	w.door = overBedrock(g.Ledger, w.set)
	return w
}

func (w *world) ask(want int, e api.BedrockEvent) map[string]any {
	w.t.Helper()
	status, body, err := ask(w.t.Context(), w.door, e)
	var doc map[string]any
	if err != nil || status != want || json.Unmarshal([]byte(body), &doc) != nil {
		w.t.Fatalf("%s %s: %d %s %v", e.HTTPMethod, e.APIPath, status, body, err)
	}
	return doc
}

// TestTickets: a ticket is opened once; cancelling it, from whatever conversation and however often, undoes it once, gives
// back what it cost, and is linked to it in the ledger.
func TestTickets(t *testing.T) {
	w := newWorld(t)
	open := event("conv", "POST", "/tickets", param("title", "fire"), param(requestID, "r1"))
	first := w.ask(200, open)
	if again := w.ask(200, open); fmt.Sprint(again) != fmt.Sprint(first) || first["status"] != "open" || w.Remaining("acme") != 990 {
		t.Fatalf("%v %v %d", first, again, w.Remaining("acme"))
	}
	id := fmt.Sprint(first["id"])
	if p := w.ask(422, event("conv", "POST", "/tickets", param("title", "water"), param(requestID, "r1"))); p["code"] != "key_conflict" {
		t.Fatal(p)
	}
	w.ask(400, event("conv", "POST", "/tickets", param("title", "fire")))
	w.ask(400, event("conv", "POST", "/tickets", param("title", "fire"), param("tenantId", "globex"), param(requestID, "r2")))
	if len(w.Items(w.desk.table)) != 1 {
		t.Fatal("not one ticket")
	}
	cancel := func(session, name, ticket string) api.BedrockEvent {
		return event(session, "POST", "/tickets/{ticketId}/cancel", param("ticketId", ticket), param(requestID, name))
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { // whoever finds another at it waits for its result
			if p := w.ask(200, cancel(fmt.Sprintf("conv-%d", i), fmt.Sprint(i), id)); p["status"] != "cancelled" {
				t.Error(p)
			}
		})
	}
	wg.Wait()
	if left := w.Remaining("acme"); left != 1000 { // the ticket's tokens came back; cancelling costs nothing
		t.Fatalf("%d tokens left", left)
	}
	if p := w.ask(200, event("x", "GET", "/tickets/{ticketId}", param("ticketId", id))); p["status"] != "cancelled" {
		t.Fatal(p)
	}
	for _, none := range []string{"T-none", "", strings.Repeat("T", 3000), "a#b"} { // whatever a model makes up is no ticket
		if p := w.ask(409, cancel("conv", "r9", none)); p["code"] != "not_applied" {
			t.Fatal(p)
		}
		if p := w.ask(409, event("x", "GET", "/tickets/{ticketId}", param("ticketId", none))); p["code"] != "not_applied" {
			t.Fatal(p)
		}
	}
	s := w.Ledger.Tenant("acme").Session("conv")
	opened, err := s.Get(t.Context(), writers.SessionKey("r1"))
	if err != nil || opened.CompensatedBy != "cancel-"+id {
		t.Fatalf("%+v %v", opened, err)
	}
	undone, err := s.Get(t.Context(), writers.SessionKey("cancel-"+id))
	if err != nil || undone.Compensates != "r1" || undone.State != writers.StateApplied {
		t.Fatalf("%+v %v", undone, err)
	}
	count := map[string]int{}
	for _, ev := range w.Events() {
		count[ev.DetailType()]++
	}
	if count["CompensationStarted"] != 1 || count["ToolEffectCompensated"] != 1 || count["ToolEffectApplied"] != 2 || count["LedgerRowTampered"] != 0 {
		t.Fatal(count)
	}
	writerstest.Balanced(t, w.Ledger)
}

// TestOtherTenantsTickets: no id of a ticket opens it to another tenant.
func TestOtherTenantsTickets(t *testing.T) {
	w := newWorld(t)
	w.Plan("globex", writers.Plan{Tokens: 100})
	id := fmt.Sprint(w.ask(200, event("conv", "POST", "/tickets", param("title", "fire"), param(requestID, "r1")))["id"])
	for _, e := range []api.BedrockEvent{
		event("conv", "GET", "/tickets/{ticketId}", param("ticketId", id)),
		event("conv", "POST", "/tickets/{ticketId}/cancel", param("ticketId", id), param(requestID, "r2")),
	} {
		e.SessionAttributes = map[string]string{"tenantId": "globex"}
		if p := w.ask(409, e); p["code"] != "not_applied" {
			t.Fatal(p)
		}
	}
	if p := w.ask(200, event("conv", "GET", "/tickets/{ticketId}", param("ticketId", id))); p["status"] != "open" || w.Remaining("globex") != 100 {
		t.Fatal(p)
	}
}

// TestFunctionDetailsAndGateway: the same tools as functions of an agent, and as targets of an AgentCore gateway.
func TestFunctionDetailsAndGateway(t *testing.T) {
	w := newWorld(t)
	e := api.BedrockEvent{
		MessageVersion: "1.0", SessionID: "conv", ActionGroup: "tickets", Function: "open_ticket", SessionAttributes: map[string]string{"tenantId": "acme"},
		Parameters: []api.BedrockParameter{param("title", "fire"), param(requestID, "r1")},
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := w.door(t.Context(), text)
	if err != nil || !strings.Contains(string(raw), `"functionResponse":{"responseBody":{"TEXT":{"body":"{\"id\":\"T-`) {
		t.Fatalf("%s %v", raw, err)
	}
	gateway := api.AgentCore(w.Ledger, w.set, verifiedTenant("x-tenant"))
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: map[string]string{
		"bedrockAgentCoreToolName": "tickets___open_ticket", "bedrockAgentCorePropagatedHeaders": `{"X-Tenant":"acme","Idempotency-Key":"k"}`,
	}}})
	for range 2 {
		raw, err = gateway(ctx, json.RawMessage(`{"title":"smoke"}`))
		if err != nil || !strings.HasPrefix(string(raw), `{"id":"T-`) {
			t.Fatalf("%s %v", raw, err)
		}
	}
	if n := len(w.Items(w.desk.table)); n != 2 {
		t.Fatalf("%d tickets", n)
	}
	raw, err = api.AgentCore(w.Ledger, w.set, verifiedTenant(""))(ctx, json.RawMessage(`{"title":"smoke"}`))
	if err != nil || !strings.Contains(string(raw), "missing_tenant") {
		t.Fatalf("%s %v", raw, err)
	}
}

// TestStory: what the README promises runs.
func TestStory(t *testing.T) {
	w := newWorld(t)
	var out strings.Builder
	if err := story(t.Context(), w.Ledger, w.desk, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "key_conflict") || !strings.Contains(out.String(), `"status":"cancelled"`) || w.Remaining("acme") != 1000 {
		t.Fatal(out.String())
	}
}
