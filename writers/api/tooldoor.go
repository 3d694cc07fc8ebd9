package api

import (
	"context"
	"encoding/json"
	"time"

	"toolledger/writers"
)

// keyField is how the doors for models name the call key in refusals, session attributes and arguments by default.
const keyField = "idempotencyKey"

// toolField is how a refusal names a tool that is not there.
const toolField = "name"

// toolCall is what a door for models has read from an event.
type toolCall struct {
	tenant  writers.TenantID
	session string
	key     string // "" where the caller gave none
	tool    string
	input   json.RawMessage
}

// runTool calls the tool as Answer does, under a key that the caller gave. A tool that changes nothing needs none.
func runTool(ctx context.Context, l *writers.Ledger, t *Toolset, c toolCall, wait time.Duration) ToolResult {
	use := ToolUse{Type: "tool_use", ID: c.key, Name: c.tool, Input: c.input}
	e, known := t.tools[c.tool]
	o := AnswerOptions{Wait: wait, Key: func(ToolUse) writers.Key { return writers.SessionKey(c.key) }}
	switch {
	case c.tenant == "":
		return refused(use, missingTenant(nil))
	case c.key == "" && known && e.tool.Spec().ReadOnly:
		o.Key = KeyByIntent
	case c.key == "" && known:
		return refused(use, &writers.Error{
			Code: writers.ErrInvalid, Op: "do", Field: keyField,
			Reason: "the call has no idempotency key, without which a retry would act again; nothing was done",
		})
	}
	if o.Wait == 0 {
		o.Wait = defaultAnswerWait
	}
	o.Wait = min(o.Wait, maxWait(ctx)) // of what the function has left
	return t.answer(ctx, l.Tenant(c.tenant).Session(c.session), use, o)
}
