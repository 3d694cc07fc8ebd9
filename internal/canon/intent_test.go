package canon

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func mustHash(t testing.TB, tool, args string) Intent {
	t.Helper()
	intent, err := HashIntent(tool, []byte(args))
	if err != nil {
		t.Fatalf("HashIntent(%q, %s): %v", tool, args, err)
	}
	return intent
}

// The bytes that are hashed are the documented ones, so that a client in another language gets the same hash.
func TestIntentIsTheDocumentedHash(t *testing.T) {
	got := mustHash(t, "create_pr", "{ \"draft\" : false, \"branch\":\"fix\\u002f1\" }")
	if want := sha256.Sum256([]byte(`["create_pr",{"branch":"fix/1","draft":false}]`)); got.Hash != want {
		t.Errorf("intent hash %x, want %x", got.Hash, want)
	}
	draft := sha256.Sum256([]byte(`"draft":false`))
	if len(got.Args) != 2 || got.Args[0].Name != "branch" || got.Args[1].Name != "draft" || string(got.Args[1].Hash[:]) != string(draft[:6]) {
		t.Errorf("argument hashes %+v", got.Args)
	}
}

// HC05: white space, key order and number spelling do not make another call; a changed value does.
func TestHC05HashIsCanonical(t *testing.T) {
	first := mustHash(t, "reserve", `{"cost":5,"args":{"a":1,"b":2}}`)
	for _, same := range []string{
		`{"args":{"b":2, "a":1},"cost":5}`,
		`{"args":{"b":2e0, "a":1.0},"cost":5.0}`,
		"\n{ \"cost\" :\t50e-1, \"args\": { \"a\": 10e-1, \"b\": 0.2e1 } }\r\n",
		`{"c\u006fst":5,"\u0061rgs":{"a":1,"b":2}}`,
	} {
		if got := mustHash(t, "reserve", same); got.Hash != first.Hash || Differs(first.Args, got.Args) != nil {
			t.Errorf("another hash for %s", same)
		}
	}
	for other, names := range map[string][]string{
		`{"cost":6,"args":{"a":1,"b":2}}`:          {"cost"},
		`{"cost":"5","args":{"a":1,"b":2}}`:        {"cost"},
		`{"cost":5,"args":{"a":1,"b":2},"x":null}`: {"x"},
		`{"cost":5}`: {"args"},
		`{"cost":5.0000000000000000000001,"args":1}`: {"args", "cost"},
	} {
		got := mustHash(t, "reserve", other)
		if got.Hash == first.Hash {
			t.Errorf("same hash for %s", other)
		}
		if differs := Differs(first.Args, got.Args); !slices.Equal(differs, names) {
			t.Errorf("%s differs in %q, want %q", other, differs, names)
		}
	}
}

// HC08: nothing is cut before it is hashed or compared. Long names, values and tools that share a beginning stay different.
func TestHC08NothingIsCut(t *testing.T) {
	long := strings.Repeat("x", 36)
	a, b := mustHash(t, "t", `{"id":"`+long+`-1"}`), mustHash(t, "t", `{"id":"`+long+`-2"}`)
	if a.Hash == b.Hash || !slices.Equal(Differs(a.Args, b.Args), []string{"id"}) {
		t.Error("long values that end differently are one intent")
	}
	if mustHash(t, long+"-1", `{}`).Hash == mustHash(t, long+"-2", `{}`).Hash {
		t.Error("long tools that end differently are one intent")
	}
	long = strings.Repeat(long, 10)
	a, b = mustHash(t, "t", `{"`+long+`1":1}`), mustHash(t, "t", `{"`+long+`2":1}`)
	if a.Hash == b.Hash || len(Differs(reencode(t, a.Args), b.Args)) != 2 {
		t.Error("long names that end differently are one argument")
	}
}

// Tool and arguments cannot run into each other, and absent arguments are the empty object.
func TestToolAndArgumentsAreDelimited(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, c := range [][2]string{
		{"", `{}`},
		{"a", `{}`},
		{`a",{}]`, `{}`},
		{`a"`, `{}`},
		{`a\`, `{}`},
		{"a\x00", `{}`},
		{"a", `{"":null}`},
		{"a", `{"":{}}`},
		{"A", `{}`},
		{"\u00e9", `{}`},
		{"e\u0301", `{}`},
		{"\ufffd", `{}`},
	} {
		got := mustHash(t, c[0], c[1])
		if other, ok := seen[got.Hash]; ok {
			t.Errorf("%q and %q have one hash", c, other)
		}
		seen[got.Hash] = fmt.Sprint(c)
	}
	empty := mustHash(t, "a", "{}")
	for _, args := range []string{"", " \n", "null", " null ", "{ }"} {
		if got := mustHash(t, "a", args); got.Hash != empty.Hash || got.Args != nil {
			t.Errorf("%q is not the empty object", args)
		}
	}
}

// Arguments that are not one JSON object are refused, and the error says which field and rule and never a value.
func TestHashIntentRefuses(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		want       Error
		text       string
	}{
		{"t", `[1]`, Error{Field: FieldArguments, Rule: RuleNotObject}, "canon: arguments: not a JSON object at byte 0"},
		{"t", ` "secret"`, Error{Field: FieldArguments, Rule: RuleNotObject, Offset: 1}, "canon: arguments: not a JSON object at byte 1"},
		{"t", `nul`, Error{Field: FieldArguments, Rule: RuleSyntax}, "canon: arguments: not valid JSON at byte 0"},
		{"t", `null{}`, Error{Field: FieldArguments, Rule: RuleTrailing, Offset: 4}, "canon: arguments: data after the JSON value at byte 4"},
		{"t", `{}{}`, Error{Field: FieldArguments, Rule: RuleTrailing, Offset: 2}, "canon: arguments: data after the JSON value at byte 2"},
		{
			"t", `{"a":"secret` + "\xff" + `"}`,
			Error{Field: FieldArguments, Rule: RuleUTF8, Offset: 12, Arg: "a"},
			`canon: arguments: "a": not valid UTF-8 at byte 12`,
		},
		{
			"t", `{"a":{"k":1,"\u006b":2}}`,
			Error{Field: FieldArguments, Rule: RuleDuplicateKey, Offset: 12, Arg: "a", Key: "k"},
			`canon: arguments: "a": duplicate key "k" at byte 12`,
		},
		{
			"t", `{"b\n":1,"a":0,"b\u000a":2}`,
			Error{Field: FieldArguments, Rule: RuleDuplicateKey, Offset: 15, Arg: "b\n", Key: "b\n"},
			`canon: arguments: "b\n": duplicate key "b\n" at byte 15`,
		},
		{"ab\xff", `{}`, Error{Field: FieldTool, Rule: RuleUTF8, Offset: 2}, "canon: tool: not valid UTF-8 at byte 2"},
	} {
		_, err := HashIntent(c.tool, []byte(c.args))
		got, ok := errors.AsType[*Error](err)
		if !ok || *got != c.want || err.Error() != c.text {
			t.Errorf("HashIntent(%q, %s): %+v, want %s", c.tool, c.args, err, c.text)
		}
	}
}

// A name in an error is bounded and not cut within a code point.
func TestNamesInErrorsAreBounded(t *testing.T) {
	_, err := HashIntent("t", []byte(`{"`+strings.Repeat("é", 1000)+`":x}`))
	if got, ok := errors.AsType[*Error](err); !ok || got.Arg != strings.Repeat("é", 32)+"…" {
		t.Errorf("%v", err)
	}
}

type point struct {
	Z string `json:"z"`
	A int64  `json:"a"`
}

// Go values hash as the JSON that they encode to; raw JSON is taken as it is; nil is no arguments.
func TestMarshalAndHashArgs(t *testing.T) {
	raw := json.RawMessage(`{"z":"<&>\u2028","a":9007199254740993}`)
	for _, c := range []struct {
		args any
		text string
	}{
		{nil, `{}`},
		{json.RawMessage(nil), `{}`},
		{(*json.RawMessage)(nil), `{}`},
		{raw, string(raw)},
		{&raw, string(raw)},
		{point{"<&>", 9007199254740993}, `{"z":"<&>","a":9007199254740993}`},
		{(*point)(nil), `null`},
		{map[string]any{"b": 1, "a": 0.5}, `{"a":0.5,"b":1}`},
	} {
		text, err := Marshal(c.args)
		if err != nil || string(text) != c.text {
			t.Errorf("Marshal(%T): %s, %v; want %s", c.args, text, err, c.text)
		}
		got, err := HashArgs("t", c.args)
		if err != nil || got.Hash != mustHash(t, "t", c.text).Hash {
			t.Errorf("HashArgs(%T) is not the hash of its text: %v", c.args, err)
		}
	}
	for _, bad := range []any{make(chan int), func() {}, map[string]any{"a": make(chan int)}} {
		_, err := Marshal(bad)
		_, err2 := HashArgs("t", bad)
		for _, err := range []error{err, err2} {
			if got, ok := errors.AsType[*Error](err); !ok || got.Rule != RuleNotEncodable || got.Err == nil {
				t.Errorf("%T: %v", bad, err)
			}
		}
	}
	_, err := Marshal(map[string]any{"secret": make(chan int)})
	if err == nil || err.Error() != "canon: arguments: cannot be encoded as JSON: Go type chan int" {
		t.Errorf("%v", err)
	}
	if _, err := HashArgs("t", []int{1}); err == nil {
		t.Error("arguments that are a list were hashed")
	}
}

type embedded struct{ Text string }

// Go strings that are not UTF-8 are refused: encoding/json would make one text of different ones. U+FFFD that is meant stays.
func TestMarshalRefusesInvalidUTF8(t *testing.T) {
	for _, bad := range []any{
		"\xff",
		[]any{1, "\xff"},
		map[string]int{"\xff": 1},
		map[string]any{"a": map[string]any{"b": "\xff"}},
		&point{Z: "\xff"},
		struct{ embedded }{embedded{"\xff"}},
		[1]string{"\xff"},
		struct{ P *point }{&point{Z: "\\\xff"}},
	} {
		if _, err := HashArgs("t", map[string]any{"x": bad}); err == nil || !strings.Contains(err.Error(), RuleUTF8) {
			t.Errorf("%#v: %v", bad, err)
		}
	}
	type cyclic struct {
		A    string
		Self *cyclic `json:"-"`
		x    string
	}
	loop := &cyclic{A: `\ufffd`, x: "\xff"}
	loop.Self = loop
	for _, good := range []any{
		"\ufffd", `\ufffd`, json.RawMessage(`"\ufffd"`), loop, map[string]any{"a": json.RawMessage(`"\ufffd"`), "b": nil}, []byte{0xFF},
	} {
		if _, err := HashArgs("t", map[string]any{"x": good}); err != nil {
			t.Errorf("%#v: %v", good, err)
		}
	}
}
