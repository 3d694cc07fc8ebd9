package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"toolledger/writers"
	"toolledger/writers/api"
)

const (
	model     = "claude-opus-5"
	maxTurns  = 20
	maxTokens = 4096
)

var (
	errNoEnd   = errors.New("the model was still calling tools after its last turn")
	errHistory = errors.New("the conversation that was kept cannot be read")
)

// converse lets the model use the tools until it has nothing more to call, and returns its last words. The history is saved before
// any tool of a new message runs: a process that goes on with it answers the same blocks again, under the same ids and so with
// the same call keys, and what was done before is replayed.
func converse(ctx context.Context, claude anthropic.Client, tools *api.Toolset, s writers.Session, ask string, h history) (string, error) {
	offered, err := offer(tools)
	if err != nil {
		return "", err
	}
	messages, err := h.load(ctx)
	if err != nil {
		return "", err
	}
	if len(messages) == 0 {
		if messages, err = appended(messages, anthropic.NewUserMessage(anthropic.NewTextBlock(ask))); err != nil {
			return "", err
		}
	}
	for range maxTurns {
		said, err := lastWords(messages)
		if err != nil {
			return "", err
		}
		if said == nil { // it is the model's turn
			if messages, err = next(ctx, claude, offered, messages); err != nil {
				return "", err // no tool has run since the last message: asking again is safe
			}
			if err := h.save(ctx, messages); err != nil {
				return "", err
			}
			continue
		}
		if len(said.uses) == 0 {
			return said.text, nil
		}
		results, err := answers(ctx, tools, s, said.uses)
		if err != nil {
			return "", err
		}
		if messages, err = appended(messages, results); err != nil {
			return "", err
		}
	}
	return "", errNoEnd
}

// next asks the model for its next message.
func next(ctx context.Context, claude anthropic.Client, offered []anthropic.ToolUnionParam, messages []json.RawMessage) ([]json.RawMessage, error) {
	params := make([]anthropic.MessageParam, len(messages))
	for i, m := range messages {
		params[i] = param.Override[anthropic.MessageParam](m)
	}
	msg, err := claude.Messages.New(ctx, anthropic.MessageNewParams{Model: model, MaxTokens: maxTokens, Tools: offered, Messages: params})
	if err != nil {
		return messages, err
	}
	return appended(messages, msg.ToParam())
}

func appended(messages []json.RawMessage, m anthropic.MessageParam) ([]json.RawMessage, error) {
	raw, err := json.Marshal(m)
	return append(messages, raw), err
}

// answers runs the tools of one message, at once.
func answers(ctx context.Context, tools *api.Toolset, s writers.Session, uses []api.ToolUse) (anthropic.MessageParam, error) {
	var blocks []anthropic.ContentBlockParamUnion
	for _, r := range tools.Answer(ctx, s, uses) {
		if errors.Is(r.Err, writers.ErrOutcomeUnknown) {
			return anthropic.MessageParam{}, fmt.Errorf("a person has to look before the conversation goes on: %w", r.Err)
		}
		blocks = append(blocks, anthropic.NewToolResultBlock(r.ToolUseID, r.Content, r.IsError))
	}
	return anthropic.NewUserMessage(blocks...), nil
}

// offer turns the definitions into the SDK's type. Their bytes are the same in every process, so prompts stay cached.
func offer(tools *api.Toolset) ([]anthropic.ToolUnionParam, error) {
	var out []anthropic.ToolUnionParam
	for _, d := range tools.Definitions() {
		tool := anthropic.ToolParam{Name: d.Name, Description: anthropic.String(d.Description)}
		if err := json.Unmarshal(d.InputSchema, &tool.InputSchema); err != nil {
			return nil, err
		}
		out = append(out, anthropic.ToolUnionParam{OfTool: &tool})
	}
	return out, nil
}

// words are what the model said: the tools it wants, and its last text.
type words struct {
	uses []api.ToolUse
	text string
}

// lastWords takes the last message apart; nil where it is not the model's.
func lastWords(messages []json.RawMessage) (*words, error) {
	var m struct {
		Role    string `json:"role"`
		Content []struct {
			api.ToolUse
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(messages[len(messages)-1], &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errHistory, err)
	}
	if m.Role != "assistant" {
		return nil, nil //nolint:nilnil // it is the model's turn
	}
	said := &words{}
	for _, block := range m.Content {
		switch block.Type {
		case "tool_use":
			said.uses = append(said.uses, block.ToolUse)
		case "text":
			said.text = block.Text
		}
	}
	return said, nil
}
