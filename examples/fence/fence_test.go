package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolledger/streams/events"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

type args struct {
	Name string `json:"name"`
}

// mailer counts what really happens.
type mailer struct{ sent map[string]int }

func (m *mailer) tool() *writers.Tool[args, string] {
	return &writers.Tool[args, string]{
		Name: "mail",
		Act: func(_ context.Context, a writers.Attempt[args]) (string, error) {
			m.sent[a.Args.Name]++
			return "sent", nil
		},
	}
}

// line is an event as it comes out of a queue.
func line(ev events.Event) string {
	detail, _ := json.Marshal(ev)
	return fmt.Sprintf(`{"source":"toolledger","detail-type":%q,"detail":%s}`+"\n", ev.DetailType(), detail)
}

func head(key string, attempt int) events.Header {
	return events.Header{
		ID: "event-" + key, Schema: events.Schema, Tenant: "acme", Session: "s", Scope: "session", Key: key, Tool: "mail", Attempt: attempt,
		RowID: "row-" + key, Version: 2, Time: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC),
	}
}

// TestFence: a call that took effect after the restore point is never acted on again, although the restored table has not
// heard of it; without the fence it would be.
func TestFence(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t) // as restored: it knows nothing of what follows
	m := &mailer{sent: map[string]int{"forgotten": 1, "unfenced": 1, "wide": 1}}
	s := ledger.Tenant("acme").Session("s")
	if _, err := m.tool().Do(t.Context(), s, writers.SessionKey("known"), args{"known"}); err != nil {
		t.Fatal(err)
	}
	hold, _, err := s.Reserve(t.Context(), m.tool().Call(writers.SessionKey("failed"), args{"failed"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(t.Context(), "not yet"); err != nil {
		t.Fatal(err)
	}
	wide := head("wide", 1)
	wide.Scope = "tenant"
	story := line(&events.ToolEffectApplied{Header: head("forgotten", 1)}) + "\n" +
		line(&events.ToolEffectSettledLate{Header: wide}) +
		line(&events.ToolEffectApplied{Header: head("known", 1)}) +
		line(&events.ToolEffectApplied{Header: head("failed", 2)}) +
		line(&events.ToolCallReserved{Header: head("open", 1)}) +
		line(&events.ReservationReleased{Header: head("released", 1)}) + line(&events.ToolCallReserved{Header: head("released", 1)}) +
		line(&events.ToolCallReserved{Header: head("forgotten", 1)})
	for round, planted := range []int{2, 0} {
		r, err := Fence(t.Context(), ledger, strings.NewReader(story))
		if err != nil || r.Planted != planted || r.Known != 3-planted || len(r.Settle) != 1 || len(r.Unclear) != 1 {
			t.Fatalf("round %d: %+v, %v", round, r, err)
		}
		if c := r.Settle[0]; c.Call.Key != "failed" || c.State != "failed" || c.Attempt != 1 {
			t.Errorf("to settle: %+v", c)
		}
		if c := r.Unclear[0]; c.Call.Key != "open" {
			t.Errorf("unclear: %+v", c)
		}
	}
	for name, key := range map[string]writers.Key{"forgotten": writers.SessionKey("forgotten"), "wide": writers.TenantKey("wide")} {
		if _, err := m.tool().Do(t.Context(), s, key, args{name}); !errors.Is(err, writers.ErrKeyConflict) {
			t.Errorf("a retry of %s: %v, want a refusal", name, err)
		}
	}
	if _, err := m.tool().Do(t.Context(), s, writers.SessionKey("unfenced"), args{"unfenced"}); err != nil {
		t.Error(err)
	}
	if m.sent["forgotten"] != 1 || m.sent["wide"] != 1 || m.sent["unfenced"] != 2 {
		t.Errorf("sent %v: want what was fenced once, what was not a second time", m.sent)
	}
	writerstest.Balanced(t, ledger)
}

// TestFenceWritesNothingOnBadInput: a line that is no event is named, and nothing is planted before it.
func TestFenceWritesNothingOnBadInput(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	r, err := Fence(t.Context(), ledger, strings.NewReader(line(&events.ToolEffectApplied{Header: head("x", 1)})+"{}\n"))
	if err == nil || !strings.Contains(err.Error(), "event 2") || r.Planted != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ledger.Tenant("acme").Session("s").Get(t.Context(), writers.SessionKey("x")); !errors.Is(err, writers.ErrNotFound) {
		t.Error(err)
	}
}
