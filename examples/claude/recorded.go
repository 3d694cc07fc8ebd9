package main

import (
	"encoding/json"
	"net/http"
	"sync"
)

// recorded is a model that says what it said before: the answer to a conversation depends on how often it has spoken in it. It keeps
// what it was sent.
type recorded struct {
	answers []string

	mu   sync.Mutex
	sent []string
}

// ServeHTTP answers a Messages request.
func (m *recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	var body struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
	}
	if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &body) != nil {
		http.Error(w, "not a Messages request", http.StatusBadRequest)
		return
	}
	spoken := 0
	for _, said := range body.Messages {
		if said.Role == "assistant" {
			spoken++
		}
	}
	if spoken >= len(m.answers) {
		http.Error(w, "no answer is recorded for this", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.sent = append(m.sent, string(raw))
	m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(m.answers[spoken]))
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
