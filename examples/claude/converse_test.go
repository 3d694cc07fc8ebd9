package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"toolledger/writers/writerstest"
)

// recorded is a model that says what it said before: one answer per request, in order. It keeps what it was sent.
type recorded struct {
	mu      sync.Mutex
	answers []string
	sent    []string
}

func (m *recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var body json.RawMessage
	if json.NewDecoder(r.Body).Decode(&body) != nil || len(m.sent) == len(m.answers) {
		http.Error(w, "no answer is recorded for this", http.StatusBadRequest)
		return
	}
	m.sent = append(m.sent, string(body))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(m.answers[len(m.sent)-1]))
}

func says(stop, content string) string {
	return `{"id":"msg_1","type":"message","role":"assistant","model":"` + model + `","stop_reason":"` + stop +
		`","usage":{"input_tokens":1,"output_tokens":1},"content":[` + content + `]}`
}

// conversation: two parallel calls, one of them with bad arguments, then the corrected call and a list, then words.
func conversation() []string {
	use := func(id, name, input string) string {
		return `{"type":"tool_use","id":"` + id + `","name":"` + name + `","input":` + input + `}`
	}
	return []string{
		says("tool_use", use("toolu_1", "open_ticket", `{"title":"printer on fire"}`)+","+use("toolu_2", "open_ticket", `{"name":"x"}`)),
		says("tool_use", use("toolu_3", "open_ticket", `{"title":"smoke in hall"}`)+","+use("toolu_4", "list_tickets", `{}`)),
		says("end_turn", `{"type":"text","text":"Two tickets are open."}`),
	}
}

// TestConversation: parallel blocks are answered in order, bad arguments come back with advice and without an effect, and
// the same conversation played again after a crash opens no further ticket.
func TestConversation(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	session := ledger.Tenant("acme").Session("claude")
	d := newDesk()
	tools, err := d.toolset()
	if err != nil {
		t.Fatal(err)
	}
	for run := range 2 {
		m := &recorded{answers: conversation()}
		server := httptest.NewServer(m)
		client := anthropic.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("none"), option.WithMaxRetries(0))
		saved := 0
		said, err := converse(t.Context(), client, tools, session, "Open tickets", func(h []anthropic.MessageParam) error {
			saved = len(h)
			return nil
		})
		server.Close()
		if err != nil || said != "Two tickets are open." || saved != 6 {
			t.Fatalf("run %d: said %q, saved %d, %v", run, said, saved, err)
		}
		if n := len(d.list()); n != 2 {
			t.Fatalf("run %d: %d tickets", run, n)
		}
		second := m.sent[1]
		for _, want := range []string{`"toolu_1"`, "printer on fire", `"toolu_2"`, "title is required", "Correct and call again"} {
			if !strings.Contains(second, want) {
				t.Fatalf("run %d: the model was not told %q: %s", run, want, second)
			}
		}
	}
	writerstest.Balanced(t, ledger)
}
