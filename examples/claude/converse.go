package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"

	"toolledger/writers"
	"toolledger/writers/api"
)

const (
	model     = "claude-opus-5"
	maxTurns  = 20
	maxTokens = 4096
)

var errNoEnd = errors.New("the model was still calling tools after its last turn")

// converse lets the model use the tools until it has nothing more to call, and returns its last words. save keeps the
// history; it is called before any tool of a new message runs.
func converse(ctx context.Context, claude anthropic.Client, tools *api.Toolset, s writers.Session, ask string,
	save func([]anthropic.MessageParam) error,
) (string, error) {
	offered, err := offer(tools)
	if err != nil {
		return "", err
	}
	history := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(ask))}
	for range maxTurns {
		msg, err := claude.Messages.New(ctx, anthropic.MessageNewParams{
			Model: model, MaxTokens: maxTokens, Tools: offered, Messages: history,
		})
		if err != nil {
			return "", err // no tool of this message has run: asking again is safe
		}
		history = append(history, msg.ToParam())
		if err := save(history); err != nil {
			return "", err
		}
		uses, text := split(msg)
		if len(uses) == 0 {
			return text, nil
		}
		var blocks []anthropic.ContentBlockParamUnion
		for _, r := range tools.Answer(ctx, s, uses) {
			if errors.Is(r.Err, writers.ErrOutcomeUnknown) {
				return "", fmt.Errorf("a person has to look before the conversation goes on: %w", r.Err)
			}
			blocks = append(blocks, anthropic.NewToolResultBlock(r.ToolUseID, r.Content, r.IsError))
		}
		history = append(history, anthropic.NewUserMessage(blocks...))
	}
	return "", errNoEnd
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

// split takes a message apart: the tools it wants, and its last text.
func split(msg *anthropic.Message) (uses []api.ToolUse, text string) {
	for _, block := range msg.Content {
		switch b := block.AsAny().(type) {
		case anthropic.ToolUseBlock:
			uses = append(uses, api.ToolUse{Type: "tool_use", ID: b.ID, Name: b.Name, Input: b.Input})
		case anthropic.TextBlock:
			text = b.Text
		}
	}
	return uses, text
}
