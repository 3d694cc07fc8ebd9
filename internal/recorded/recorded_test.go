package recorded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `{"session":"s1","seq":1,"tool_call_id":"call_1","tool":"refund","mutating":true,` +
	`"args":{"order":7},"result":"ok","is_error":false}`

func with(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }

// A recording says more than a ledger needs, repeats itself, and has long lines; none of that is an error.
func TestReadTakesWhatRecordingsHold(t *testing.T) {
	long := with(`"mutating":true`, `"mutating":false`)
	long = strings.Replace(long, `"ok"`, `"`+strings.Repeat("x", 3<<20)+`"`, 1)
	file := strings.Join([]string{
		"\uFEFF" + good, good, "", "  ", with(`"seq":1`, `"seq":2,"model":"m","usage":{"a":[1,null]}`), long,
		with(`"is_error":false`, `"is_error":true,"tokens":0`),
	}, "\n") + "\r\n"
	calls, err := Read("calls.jsonl", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 5 || calls[4].Line != 7 || calls[4].Tokens == nil || *calls[4].Tokens != 0 || !calls[4].IsError {
		t.Fatalf("got %d calls, the last is %+v", len(calls), calls[len(calls)-1])
	}
	first := calls[0]
	if first.Session != "s1" || first.Seq != 1 || first.ID != "call_1" || first.Tool != "refund" || !first.Mutating ||
		string(first.Args) != `{"order":7}` || first.Result != "ok" || first.IsError || first.Tokens != nil {
		t.Fatalf("%+v", first)
	}
	if len(calls[3].Result) != 3<<20 {
		t.Fatal("the long result was cut")
	}
}

// Every refusal names file, line, field and rule, and no value of the file.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"not JSON":          {`{"session":"secret",`, "f:2: is not JSON"},
		"two values":        {good + good, "f:2: is not JSON: data after the JSON value"},
		"no object":         {`["secret"]`, "f:2: is not a JSON object"},
		"null":              {`null`, "f:2: is not a JSON object"},
		"not UTF-8":         {"\"\xff\"", "f:2: is not valid UTF-8"},
		"lone surrogate":    {with(`"ok"`, `"\ud800"`), "f:2: is refused: lone surrogate"},
		"duplicate field":   {with(`"seq":1`, `"seq":1,"seq":2`), `f:2: has the duplicate key "seq"`},
		"duplicate arg":     {with(`{"order":7}`, `{"order":7,"order":8}`), `f:2: has the duplicate key "order"`},
		"missing session":   {with(`"session":"s1",`, ""), "f:2: session: is missing"},
		"other case":        {with(`"session"`, `"Session"`), "f:2: session: is missing"},
		"missing seq":       {with(`"seq":1,`, ""), "f:2: seq: is missing"},
		"missing id":        {with(`"tool_call_id":"call_1",`, ""), "f:2: tool_call_id: is missing"},
		"missing tool":      {with(`"tool":"refund",`, ""), "f:2: tool: is missing"},
		"missing mutating":  {with(`"mutating":true,`, ""), "f:2: mutating: is missing"},
		"missing args":      {with(`"args":{"order":7},`, ""), "f:2: args: is missing"},
		"missing result":    {with(`"result":"ok",`, ""), "f:2: result: is missing"},
		"missing is_error":  {with(`,"is_error":false`, ""), "f:2: is_error: is missing"},
		"# in session":      {with(`"s1"`, `"secret#1"`), "f:2: session: must not contain '#'"},
		"# in id":           {with(`"call_1"`, `"secret#1"`), "f:2: tool_call_id: must not contain '#'"},
		"empty id":          {with(`"call_1"`, `""`), "f:2: tool_call_id: is required"},
		"blank id":          {with(`"call_1"`, `"  "`), "f:2: tool_call_id: is required"},
		"control character": {with(`"call_1"`, `"secret\u0007"`), "f:2: tool_call_id: must not contain control characters"},
		"long session":      {with(`"s1"`, `"`+strings.Repeat("s", 129)+`"`), "f:2: session: is 129 bytes long; the limit is 128"},
		"number as id":      {with(`"call_1"`, `1`), "f:2: tool_call_id: must be a string"},
		"null id":           {with(`"call_1"`, `null`), "f:2: tool_call_id: must be a string"},
		"seq zero":          {with(`"seq":1`, `"seq":0`), "f:2: seq: must be a whole number of at least 1"},
		"seq fraction":      {with(`"seq":1`, `"seq":1.5`), "f:2: seq: must be a whole number of at least 1"},
		"seq null":          {with(`"seq":1`, `"seq":null`), "f:2: seq: must be a whole number of at least 1"},
		"mutating as text":  {with(`"mutating":true`, `"mutating":"true"`), "f:2: mutating: must be true or false"},
		"args array":        {with(`{"order":7}`, `[7]`), "f:2: args: must be a JSON object"},
		"args null":         {with(`{"order":7}`, `null`), "f:2: args: must be a JSON object"},
		"result object":     {with(`"ok"`, `{"secret":1}`), "f:2: result: must be a string"},
		"large result":      {with(`"ok"`, `"`+strings.Repeat("x", MaxResult-1)+`"`), "f:2: result: is 262145 bytes long as JSON"},
		"negative tokens":   {with(`"seq":1`, `"seq":1,"tokens":-5`), "f:2: tokens: must be a whole number between 0 and 2^53"},
		"too many tokens":   {with(`"seq":1`, `"seq":1,"tokens":9007199254740993`), "f:2: tokens: must be a whole number between 0 and 2^53"},
		"tokens as text":    {with(`"seq":1`, `"seq":1,"tokens":"5"`), "f:2: tokens: must be a whole number between 0 and 2^53"},
	} {
		t.Run(name, func(t *testing.T) {
			calls, err := Read("f", strings.NewReader(good+"\n"+c.line+"\n"+good))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || calls != nil {
				t.Fatalf("got %d calls and %v\nwant %s", len(calls), err, c.want)
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.File != "f" || e.Line != 2 {
				t.Fatalf("%#v", err)
			}
		})
	}
}

// A file that is not there, is no file or holds nothing is refused by its name.
func TestReadFileRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.jsonl")
	if err := os.WriteFile(empty, []byte("\n \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "absent"): "absent: cannot be read: no such file or directory",
		dir:                          ": cannot be read: is a directory",
		empty:                        "empty.jsonl: holds no tool call",
	} {
		if _, err := ReadFile(name); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), dir) {
			t.Errorf("got %v, want …%s", err, want)
		}
	}
}

// No line makes the reader panic, and what it takes keeps the rules that it states.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(with(`"seq":1`, `"seq":1e0,"tokens":5`)))
	f.Add([]byte(`{"session":{}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := Parse(line)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		if c.Session == "" || strings.Contains(c.Session+c.ID, "#") || c.Seq < 1 || c.Args[0] != '{' || c.Tokens != nil && *c.Tokens < 0 {
			t.Fatalf("%+v", c)
		}
	})
}
