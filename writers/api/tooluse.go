package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolledger/internal/canon"
	"toolledger/writers"
)

const (
	defaultAnswerWait  = 10 * time.Second
	defaultConcurrency = 8
)

// ToolUse is a tool_use block.
type ToolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// ToolResult is a tool_result block.
type ToolResult struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   string `json:"content"` // for the model: the result, or what happened and what to do next
	IsError   bool   `json:"is_error,omitempty"`

	Outcome writers.Outcome `json:"-"` // for the host
	Err     error           `json:"-"` // for the host: as Tool.Do
}

// AnswerOptions tune Answer.
type AnswerOptions struct {
	Key         func(ToolUse) writers.Key // nil means KeyByUse
	Wait        time.Duration             // for a call in flight, instead of telling the model to; 0 means 10 seconds
	Concurrency int                       // 0 means 8
}

// Answer runs the tool_use blocks of one message, concurrently, and returns one tool_result for each, in order. It
// never fails: what went wrong is in the results. Arguments are checked against the schema before anything is written.
func (t *Toolset) Answer(ctx context.Context, s writers.Session, uses []ToolUse, opts ...func(*AnswerOptions)) []ToolResult {
	var o AnswerOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.Key == nil {
		o.Key = KeyByUse
	}
	if o.Wait == 0 {
		o.Wait = defaultAnswerWait
	}
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	results := make([]ToolResult, len(uses))
	slots := make(chan struct{}, o.Concurrency)
	var wg sync.WaitGroup
	for i, u := range uses {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i] = t.answer(ctx, s, u, o)
		})
	}
	wg.Wait()
	return results
}

// answer runs one block.
func (t *Toolset) answer(ctx context.Context, s writers.Session, u ToolUse, o AnswerOptions) (res ToolResult) {
	reads := false
	defer func() {
		if v := recover(); v != nil { // a panic of the host's tool: what it did is not known, and its value may quote arguments
			err := &writers.Error{Code: writers.ErrOutcomeUnknown, Op: "do", Reason: fmt.Sprintf("the tool panicked with a %T", v)}
			res = failed(u, err, reads)
		}
	}()
	tool, err := t.check(u)
	if err != nil {
		return refused(u, err)
	}
	reads = tool.Spec().ReadOnly
	// In canonical form, since 1.0 is an integer to a model and to the schema, and not to a Go decoder.
	input, err := canonical(u.Input)
	if err != nil {
		return refused(u, err)
	}
	raw, err := tool.DoJSON(ctx, s, o.Key(u), input, func(c *writers.Call) { c.Wait = o.Wait })
	if err != nil && raw.Outcome == "" {
		return failed(u, err, reads)
	}
	// Beside ErrSessionMoved the effect is recorded: to the model the call went well.
	return ToolResult{Type: "tool_result", ToolUseID: u.ID, Content: string(orNull(raw.JSON)), Outcome: raw.Outcome, Err: err}
}

func canonical(input json.RawMessage) (json.RawMessage, error) {
	if len(input) == 0 {
		return input, nil
	}
	text, err := canon.Append(nil, input)
	if err != nil {
		return nil, &writers.Error{Code: writers.ErrInvalid, Op: "do", Field: "input", Reason: err.Error()}
	}
	return text, nil
}

// check finds the tool and holds the input against its schema. Errors: writers.ErrInvalid.
func (t *Toolset) check(u ToolUse) (writers.AnyTool, error) {
	e, ok := t.tools[u.Name]
	if !ok {
		return nil, &writers.Error{Code: writers.ErrInvalid, Op: "do", Field: toolField, Reason: "there is no tool of that name"}
	}
	rule := e.checkInput(u)
	if rule != "" {
		return nil, &writers.Error{Code: writers.ErrInvalid, Op: "do", Field: "input", Reason: rule}
	}
	return e.tool, nil
}

// checkInput says which rule the input breaks; "" for none.
func (e entry) checkInput(u ToolUse) string {
	if _, err := canon.HashArgs(u.Name, u.Input); err != nil {
		return err.Error()
	}
	input := map[string]any{}
	if len(u.Input) > 0 && json.Unmarshal(u.Input, &input) != nil {
		return "the input is not an object"
	}
	return e.check(input)
}

func refused(u ToolUse, err error) ToolResult {
	return ToolResult{Type: "tool_result", ToolUseID: u.ID, Content: advice(err), IsError: true, Err: err}
}

// failed is refused for a tool that was called. One that only reads has changed nothing, whatever became of it.
func failed(u ToolUse, err error, reads bool) ToolResult {
	res := refused(u, err)
	if code, ok := errors.AsType[writers.Code](err); reads && (!ok || code == writers.ErrOutcomeUnknown || code == writers.ErrUnavailable) {
		res.Content = "It could not be read now. Nothing was changed. You may call it again; if that does not help, tell the user."
	}
	return res
}

// advice tells a model what happened and what to do next.
func advice(err error) string {
	code, _ := errors.AsType[writers.Code](err)
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		e = &writers.Error{}
	}
	switch code {
	case writers.ErrInvalid:
		if callers(e) {
			return "Not accepted: " + because(e) + ". Nothing was done. It is no argument of yours: do not call again; tell the user."
		}
		return "Not accepted: " + because(e) + ". Nothing was done. Correct and call again."
	case writers.ErrInProgress:
		return "Started earlier and still running; it was not started again. Do not call it again or try another way. " +
			"Tell the user it is under way."
	case writers.ErrNotApplied:
		return "Refused: " + because(e) + ". It did not happen. Correct the arguments if that can help, or tell the user."
	case writers.ErrQuotaExhausted:
		until := ""
		if !e.ResetsAt.IsZero() {
			until = " until " + e.ResetsAt.UTC().Format(time.RFC3339)
		}
		return "Not done: the budget is used up" + until + ". Nothing was done. Do not call it again; tell the user."
	case writers.ErrNotProvisioned, writers.ErrSuspended, writers.ErrMissingTenant:
		return "Not done: this account may not do that now. Nothing was done. Do not call it again; tell the user."
	case writers.ErrKeyConflict:
		return "Not done: this call's key belongs to another action. Nothing was done. Ask the user before calling again."
	case writers.ErrNotCompensable:
		return "Not done: there is nothing to undo, or it was undone already. Nothing was done. Tell the user."
	case writers.ErrWriteRefused:
		return "Not done: it conflicts with what is stored. Nothing was done. Look before you call again."
	case writers.ErrNotFound: // of a tool that reads the ledger itself: Do never answers it
		return "Not done: there is no such call. Nothing was done. Look at what there is before you call again."
	case writers.ErrSessionMoved:
		return "Not done: the session has moved on. Nothing was done. Look at its present state before you call again."
	default: // also what is not a refusal: a cancelled context, an AWS error
		return "It is not known whether this happened. It must not be repeated. Tell the user it needs checking."
	}
}

// callers tells whether a refusal is about what the application, and no model, says of a call.
func callers(e *writers.Error) bool { return e.Field == "tenant" || e.Field == "session" }

// because is what a refusal says of its reason.
func because(e *writers.Error) string {
	switch {
	case e.Err == nil && e.Reason == "":
		return string(e.Code)
	case e.Err == nil:
		return e.Reason
	case e.Reason == "":
		return e.Err.Error()
	default:
		return e.Reason + ": " + e.Err.Error()
	}
}
