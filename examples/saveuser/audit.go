package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"toolledger/streams/events"
)

// auditLog writes one line for everything that an agent did to the database, and for everything that it tried. It is made
// from the events alone, so no agent can leave itself out.
type auditLog struct {
	out io.Writer

	mu   sync.Mutex
	seen map[string]bool // event ids: EventBridge delivers at least once. Across processes the lines' ids tell
}

// auditLine is one line.
type auditLine struct {
	Time    string `json:"time"`
	What    string `json:"what"`
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Key     string `json:"key"`
	Tool    string `json:"tool"`
	Attempt int    `json:"attempt,omitempty"`
	Tokens  int64  `json:"tokens,omitempty"`
	ID      string `json:"id"`
}

// handle takes one event as EventBridge delivers it.
func (a *auditLog) handle(_ context.Context, envelope json.RawMessage) error {
	ev, err := events.Parse(envelope)
	if err != nil {
		return err
	}
	h := ev.Head()
	if h.Key == "" { // about a quota or a plan, not about a call
		return nil
	}
	line := auditLine{
		Time: h.Time.UTC().Format("2006-01-02T15:04:05.000Z"), What: ev.DetailType(), Tenant: h.Tenant, Session: h.Session, Key: h.Key,
		Tool: h.Tool, Attempt: h.Attempt, ID: h.ID,
	}
	if applied, ok := ev.(*events.ToolEffectApplied); ok {
		line.Tokens = applied.ChargedTokens
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	if a.seen[h.ID] {
		return nil
	}
	a.seen[h.ID] = true
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}
