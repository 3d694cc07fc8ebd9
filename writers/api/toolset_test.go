package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"toolledger/writers"
)

type prArgs struct {
	Branch string   `json:"branch" jsonschema:"the branch to merge"`
	Draft  bool     `json:"draft,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

func prTool(act func(context.Context, writers.Attempt[prArgs]) (int64, error)) *writers.Tool[prArgs, int64] {
	return &writers.Tool[prArgs, int64]{Name: "open_pr", Description: "Open a pull request.", Cost: 10, Act: act}
}

// TestDefinitions: a model sees the schema of the arguments, in the same bytes every time.
func TestDefinitions(t *testing.T) {
	var first string
	for range 3 {
		tools, err := NewToolset(prTool(nil), &writers.Tool[struct{}, int]{Name: "look", ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		text := jsonOf(t, tools.Definitions())
		if first == "" {
			first = text
		}
		if text != first {
			t.Fatalf("%s\n%s", text, first)
		}
	}
	for _, want := range []string{`"name":"open_pr"`, `"description":"Open a pull request."`, `"the branch to merge"`, `"required":["branch"]`, `"type":"object"`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s lacks %s", first, want)
		}
	}
}

// TestNewToolsetRefuses: what a model could not call, or must not fill in, is refused when the program starts.
func TestNewToolsetRefuses(t *testing.T) {
	type hidden struct {
		Deep []map[string]struct{ Who writers.TenantID } `json:"deep"`
	}
	tool := prTool(nil)
	for name, tools := range map[string][]writers.AnyTool{
		"no name":      {&writers.Tool[prArgs, int]{}},
		"bad name":     {&writers.Tool[prArgs, int]{Name: "open pr"}},
		"long name":    {&writers.Tool[prArgs, int]{Name: strings.Repeat("x", 65)}},
		"doubled":      {tool, tool},
		"nil":          {nil},
		"a tenant":     {&writers.Tool[struct{ T writers.TenantID }, int]{Name: "t"}},
		"deep tenant":  {&writers.Tool[hidden, int]{Name: "t"}},
		"no object":    {&writers.Tool[string, int]{Name: "t"}},
		"a channel":    {&writers.Tool[struct{ C chan int }, int]{Name: "t"}},
		"second wrong": {tool, &writers.Tool[prArgs, int]{Name: "?"}},
	} {
		got, err := NewToolset(tools...)
		e, ok := errors.AsType[*writers.Error](err)
		if !ok || e.Code != writers.ErrInvalid || e.Field == "" || got != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnswer: parallel blocks give one result each, in order; a repeat replays; what is wrong is told without an effect.
func TestAnswer(t *testing.T) {
	ledger := newTestLedger(t, newClock())
	s := ledger.Tenant("acme").Session("s")
	var effects atomic.Int64
	fail := errors.New("no such branch")
	tools, err := NewToolset(prTool(func(_ context.Context, a writers.Attempt[prArgs]) (int64, error) {
		switch a.Args.Branch {
		case "gone":
			return 0, writers.NotApplied(fail)
		case "boom":
			panic("s3cr3t")
		case "slow":
			return 0, context.DeadlineExceeded
		}
		return effects.Add(1), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	use := func(id, input string) ToolUse {
		return ToolUse{Type: "tool_use", ID: id, Name: "open_pr", Input: json.RawMessage(input)}
	}
	uses := []ToolUse{
		use("u1", `{"branch":"a"}`),
		use("u2", `{"branch":"gone"}`),
		use("u3", `{}`),
		use("u4", `{"branch":5}`),
		use("u5", `{"branch":"a","tenant":"victim"}`),
		use("u6", `{"branch":"a","branch":"b"}`),
		{Type: "tool_use", ID: "u7", Name: "drop_table", Input: json.RawMessage(`{}`)},
		use("u8", `{"branch":"slow"}`),
		use("u9", `{"branch":"boom"}`),
		use("u10", `[]`),
		use("", `{"branch":"a"}`),
		use("u1", `{"branch":"b"}`), // one id, two actions: both happen
	}
	says := []string{
		"1", "no such branch", "branch is required", "branch does not match its schema (string)", "tenant is not an argument", "duplicate key",
		"no tool of that name", "must not be repeated", "must not be repeated", "not a JSON object", "key", "2",
	}
	for round := range 2 {
		results := tools.Answer(t.Context(), s, uses, func(o *AnswerOptions) { o.Concurrency = 1; o.Wait = 1 })
		if len(results) != len(uses) {
			t.Fatalf("%d results", len(results))
		}
		for i, r := range results {
			if r.Type != "tool_result" || r.ToolUseID != uses[i].ID {
				t.Errorf("%d: %+v", i, r)
			}
			ok := says[i] == "1" || says[i] == "2"
			if r.IsError == ok || (r.Err == nil) != ok {
				t.Errorf("round %d, %d: %+v", round, i, r)
			}
			if round == 1 && i >= 7 && i <= 8 {
				continue // in flight now, or unknown still
			}
			if !strings.Contains(r.Content, says[i]) || strings.Contains(r.Content, "s3cr3t") {
				t.Errorf("round %d, %d: %q does not say %q", round, i, r.Content, says[i])
			}
		}
		if want := []writers.Outcome{writers.OutcomeApplied, writers.OutcomeReplayed}[round]; results[0].Outcome != want {
			t.Errorf("round %d: %s", round, results[0].Outcome)
		}
	}
	if effects.Load() != 2 {
		t.Fatalf("%d effects", effects.Load())
	}
}

// TestReadingThatFailsMayBeRepeated: a tool that changes nothing never makes a model believe that something may have happened.
func TestReadingThatFailsMayBeRepeated(t *testing.T) {
	tools, err := NewToolset(&writers.Tool[prArgs, int]{Name: "look", ReadOnly: true, Act: func(_ context.Context, a writers.Attempt[prArgs]) (int, error) {
		switch a.Args.Branch {
		case "boom":
			panic("s3cr3t")
		case "none":
			return 0, writers.NotApplied(errors.New("no such branch"))
		}
		return 0, errors.New("dial 10.0.0.1: s3cr3t")
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestLedger(t, newClock()).Tenant("acme").Session("s")
	for branch, says := range map[string]string{"boom": "may call it again", "down": "may call it again", "none": "no such branch"} {
		use := ToolUse{ID: "u", Name: "look", Input: json.RawMessage(`{"branch":"` + branch + `"}`)}
		got := tools.Answer(t.Context(), s, []ToolUse{use})[0]
		if !got.IsError || !strings.Contains(got.Content, says) || strings.Contains(got.Content, "must not be repeated") || strings.Contains(got.Content, "s3cr3t") {
			t.Errorf("%s: %+v", branch, got)
		}
	}
}

// TestAdviceSaysWhatToDo: for every refusal a model hears whether to call again.
func TestAdviceSaysWhatToDo(t *testing.T) {
	for code := range statuses() {
		text := advice(fmt.Errorf("do: %w", &writers.Error{Code: code, Reason: "because"}))
		again := strings.Contains(text, "call again") || strings.Contains(text, "calling again") || strings.Contains(text, "Correct")
		stop := strings.Contains(text, "ell the user") || strings.Contains(text, "Ask the user")
		if !again && !stop {
			t.Errorf("%s: %q", code, text)
		}
	}
	for _, field := range []string{"tenant", "session"} { // which no model fills in
		if text := advice(&writers.Error{Code: writers.ErrInvalid, Field: field}); strings.Contains(text, "Correct") || !strings.Contains(text, "do not call again") {
			t.Errorf("%s: %q", field, text)
		}
	}
	if text := advice(context.Canceled); !strings.Contains(text, "must not be repeated") {
		t.Error(text)
	}
}
