package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"toolledger/tests/rig"
	"toolledger/writers/writerstest"
)

// newHost is a host with a ledger of its own, and the model that it listens to.
func newHost(t *testing.T) (*host, *recorded, *rig.Rig) {
	t.Helper()
	g := rig.New(t)
	h := &host{ledger: g.Ledger, db: g.DB, desk: &desk{g.DB, g.Table + "-tickets"}, histories: g.Table + "-history"}
	g.CreateTable(h.desk.table, attrNumber)
	g.CreateTable(h.histories, attrConversation)
	var err error
	if h.tools, err = h.desk.toolset(); err != nil {
		t.Fatal(err)
	}
	m := &recorded{answers: conversation()}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	h.claude = anthropic.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("none"), option.WithMaxRetries(0))
	return h, m, g
}

func (h *host) count(t *testing.T) int {
	t.Helper()
	all, err := h.desk.list(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestConversation: parallel blocks are answered in order, and bad arguments come back with advice and without an effect.
func TestConversation(t *testing.T) {
	h, m, g := newHost(t)
	said, err := h.handle(t.Context(), request{"acme", "s", "Open tickets"})
	if err != nil || said != "Two tickets are open." || len(m.sent) != 3 || h.count(t) != 2 {
		t.Fatalf("said %q after %d requests, %v; %d tickets", said, len(m.sent), err, h.count(t))
	}
	for _, want := range []string{`"toolu_1"`, "printer on fire", `"toolu_2"`, "title is required", "Correct and call again"} {
		if !strings.Contains(m.sent[1], want) {
			t.Errorf("the model was not told %q: %s", want, m.sent[1])
		}
	}
	if strings.Index(m.sent[1], `"tool_use_id":"toolu_1"`) > strings.Index(m.sent[1], `"tool_use_id":"toolu_2"`) {
		t.Errorf("the results are out of order: %s", m.sent[1])
	}
	if g.Remaining("acme") != 980 {
		t.Errorf("%d tokens remain", g.Remaining("acme"))
	}
	writerstest.Balanced(t, h.ledger)
}

// TestDeadProcesses: whichever message a process dies before saving, the next one goes on with the conversation, and no ticket is
// opened twice. A conversation that has ended asks nobody again.
func TestDeadProcesses(t *testing.T) {
	for dies := 1; dies <= 3; dies++ {
		h, m, g := newHost(t)
		r := request{"acme", "s", "Open tickets"}
		kept := stored{h.db, h.histories, conversationOf(r.Tenant, r.Session)}
		for range 2 { // and again, before the tools' answers are saved
			if _, err := converse(t.Context(), h.claude, h.tools, h.ledger.Tenant("acme").Session("s"), r.Ask, &dying{kept, dies}); err != nil && !strings.Contains(err.Error(), errDied.Error()) {
				t.Fatal(err)
			}
		}
		for range 2 {
			if said, err := h.handle(t.Context(), r); err != nil || said != "Two tickets are open." {
				t.Fatalf("dies %d: %q %v", dies, said, err)
			}
		}
		if h.count(t) != 2 || g.Remaining("acme") != 980 {
			t.Fatalf("dies %d: %d tickets, %d tokens", dies, h.count(t), g.Remaining("acme"))
		}
		asked := len(m.sent)
		if _, err := h.handle(t.Context(), r); err != nil || len(m.sent) != asked {
			t.Errorf("dies %d: an ended conversation asks again: %v", dies, err)
		}
		writerstest.Balanced(t, h.ledger)
	}
}

// TestHistoryKeepsEveryDigit: an input that is kept is the input that was asked for, so its key is the same in the next process.
func TestHistoryKeepsEveryDigit(t *testing.T) {
	h, _, _ := newHost(t)
	kept := stored{h.db, h.histories, "acme#digits"}
	message := json.RawMessage(`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"a":9007199254740993,"b":1.50}}]}`)
	if err := kept.save(t.Context(), []json.RawMessage{message}); err != nil {
		t.Fatal(err)
	}
	got, err := kept.load(t.Context())
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], message) {
		t.Fatalf("%s %v", got, err)
	}
	said, err := lastWords(got)
	if err != nil || string(said.uses[0].Input) != `{"a":9007199254740993,"b":1.50}` {
		t.Fatalf("%+v %v", said, err)
	}
}

// TestStory: what the README promises to show.
func TestStory(t *testing.T) {
	h, _, _ := newHost(t)
	var out bytes.Buffer
	if err := h.story(t.Context(), &out, true, nil); err != nil || !strings.Contains(out.String(), "died") || !strings.HasSuffix(out.String(), "tickets at the desk: 2\n") {
		t.Fatalf("%v: %s", err, out.String())
	}
}
