// Package recorded reads files of recorded tool calls: JSON lines, one call a line, in the order they were made.
//
//	{"session":"s1","seq":1,"tool_call_id":"call_1","tool":"refund","mutating":true,"args":{"order":7},"result":"ok","is_error":false}
//
// All eight fields are required; tokens, the cost of a mutating call, is optional. Other fields are passed over, since
// recordings carry more than a ledger needs. The same id, or the same call, may occur any number of times: that is what
// recordings are read for. A file is read whole before anything is done with it, so that a bad line costs nothing.
package recorded

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 64 << 20

// MaxResult is the largest result of a mutating call, in bytes of JSON: what a ledger keeps in a row by itself.
const MaxResult = 256 << 10

// Call is one recorded tool call.
type Call struct {
	Line     int             // of the file, from 1
	Session  string          // the conversation
	Seq      int64           // position in the session, from 1
	ID       string          // tool_call_id: what the model's API called the call
	Tool     string          // its name
	Mutating bool            // whether the tool changes something
	Args     json.RawMessage // a JSON object
	Result   string          // what the tool answered
	IsError  bool            // the tool refused: it changed nothing
	Tokens   *int64          // what the call costs; nil where the line does not say
}

// Error says which line of which file broke which rule. It never holds a value of the file.
type Error struct {
	File  string
	Line  int    // from 1; 0 where the file itself is meant
	Field string // "" where the whole line is meant
	Rule  string // what is wrong
	Err   error  // cause, or nil
}

// Error names file, line, field and rule.
func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Field != "" {
		return fmt.Sprintf("%s: %s: %s", where, e.Field, e.Rule)
	}
	return where + ": " + e.Rule
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReadFile reads a file of recorded calls. Errors: *Error.
func ReadFile(name string) ([]Call, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &Error{File: name, Rule: "cannot be read: " + reason(err), Err: err}
	}
	defer f.Close()
	return Read(name, f)
}

// reason leaves out the path, which the Error names already.
func reason(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// Read reads recorded calls; name is for errors. A line of white space only is passed over. Errors: *Error.
func Read(name string, r io.Reader) ([]Call, error) {
	var calls []Call
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
	line := 0
	for lines.Scan() {
		line++
		text := lines.Bytes()
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\uFEFF"))
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		call, err := Parse(text)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); ok {
				e.File, e.Line = name, line
			}
			return nil, err
		}
		call.Line = line
		calls = append(calls, call)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &Error{File: name, Line: line + 1, Rule: fmt.Sprintf("is longer than %d MB", MaxLine>>20), Err: err}
	case err != nil:
		return nil, &Error{File: name, Rule: "cannot be read: " + reason(err), Err: err}
	case len(calls) == 0:
		return nil, &Error{File: name, Rule: "holds no tool call"}
	}
	return calls, nil
}

// Parse reads one line. Errors: *Error, without file and line.
func Parse(line []byte) (Call, error) {
	if !utf8.Valid(line) {
		return Call{}, &Error{Rule: "is not valid UTF-8"}
	}
	// The strict reader first: encoding/json lets duplicate keys pass, and two readers may disagree on which one counts.
	if _, err := canon.Append(nil, line); err != nil {
		return Call{}, lineError(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return Call{}, &Error{Rule: "is not a JSON object"}
	}
	var c Call
	if err := c.set(fields); err != nil {
		return Call{}, err
	}
	return c, nil
}

func lineError(err error) error {
	e, ok := errors.AsType[*canon.Error](err)
	if !ok {
		return &Error{Rule: "is not JSON", Err: err}
	}
	switch e.Rule {
	case canon.RuleSyntax, canon.RuleTrailing:
		return &Error{Rule: fmt.Sprintf("is not JSON: %s at byte %d", e.Rule, e.Offset), Err: err}
	case canon.RuleDuplicateKey:
		return &Error{Rule: fmt.Sprintf("has the duplicate key %q", e.Key), Err: err}
	}
	return &Error{Rule: fmt.Sprintf("is refused: %s at byte %d", e.Rule, e.Offset), Err: err}
}

func (c *Call) set(fields map[string]json.RawMessage) error {
	for _, f := range []struct {
		name string
		read func(json.RawMessage) string
	}{
		{"session", c.id(&c.Session, schema.MaxSession)},
		{"seq", c.setSeq},
		{"tool_call_id", c.id(&c.ID, schema.MaxCallKey)},
		{"tool", c.id(&c.Tool, schema.MaxTool)},
		{"mutating", boolean(&c.Mutating)},
		{"args", c.setArgs},
		{"result", text(&c.Result)},
		{"is_error", boolean(&c.IsError)},
	} {
		raw, ok := fields[f.name]
		if !ok {
			return &Error{Field: f.name, Rule: "is missing"}
		}
		if rule := f.read(raw); rule != "" {
			return &Error{Field: f.name, Rule: rule}
		}
	}
	if rule := c.checkResult(); rule != "" {
		return &Error{Field: "result", Rule: rule}
	}
	if raw, ok := fields["tokens"]; ok {
		if rule := c.setTokens(raw); rule != "" {
			return &Error{Field: "tokens", Rule: rule}
		}
	}
	return nil
}

// checkResult refuses a result that could not be recorded; that of a call that only looked or failed is not.
func (c *Call) checkResult() string {
	if !c.Mutating || c.IsError {
		return ""
	}
	stored, err := json.Marshal(c.Result)
	if err != nil {
		return "cannot be encoded as JSON"
	}
	if len(stored) > MaxResult {
		return fmt.Sprintf("is %d bytes long as JSON; the limit for a mutating call is %d", len(stored), MaxResult)
	}
	return ""
}

func (c *Call) id(to *string, limit int) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		if rule := text(to)(raw); rule != "" {
			return rule
		}
		if err, ok := errors.AsType[*schema.IDError](schema.CheckID("", *to, limit)); ok {
			return err.Rule
		}
		return ""
	}
}

func (c *Call) setSeq(raw json.RawMessage) string {
	return whole(raw, &c.Seq, 1, schema.MaxTokens, "must be a whole number of at least 1")
}

func (c *Call) setTokens(raw json.RawMessage) string {
	c.Tokens = new(int64)
	return whole(raw, c.Tokens, 0, schema.MaxTokens, "must be a whole number between 0 and 2^53")
}

func (c *Call) setArgs(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '{' {
		return "must be a JSON object"
	}
	c.Args = bytes.Clone(raw)
	return ""
}

func text(to *string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, to) != nil {
			return "must be a string"
		}
		return ""
	}
}

func boolean(to *bool) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		switch string(raw) {
		case "true", "false":
			*to = string(raw) == "true"
			return ""
		}
		return "must be true or false"
	}
}

func whole(raw json.RawMessage, to *int64, low, high int64, rule string) string {
	if err := json.Unmarshal(raw, to); err != nil || string(raw) == "null" || *to < low || *to > high {
		return rule
	}
	return ""
}
