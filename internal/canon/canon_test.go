package canon

import (
	"bytes"
	"errors"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func canonical(t interface{ Fatalf(string, ...any) }, src string) string {
	out, err := Append(nil, []byte(src))
	if err != nil {
		t.Fatalf("Append(%q): %v", src, err)
	}
	return string(out)
}

// The canonical form is the documented one: spacing, escapes and order as in RFC 8785.
func TestCanonicalForm(t *testing.T) {
	for src, want := range map[string]string{
		" null\n": `null`, "true": `true`, "\tfalse": `false`, `""`: `""`, "[ ]": `[]`, "{ }": `{}`,
		` [ 1 , [ ] , { } , null ] `:              `[1,[],{},null]`,
		`{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":0}`: `{"a":0,"b":{"c":[{"e":2,"f":1}],"d":1}}`,
		`[3,1,2]`: `[3,1,2]`,
		// Short escapes, other controls in lower case, everything else as itself.
		`"\u0008\u0009\u000A\u000c\u000D\u0022\u005C"`: `"\b\t\n\f\r\"\\"`,
		`"\b\t\n\f\r\"\\\/"`:                           `"\b\t\n\f\r\"\\/"`,
		`"\u0000\u001F\u000b\u007f"`:                   "\"\\u0000\\u001f\\u000b\x7f\"",
		`"\u20ac$\u000F\u000aA'\u0042"`:                "\"€$\\u000f\\nA'B\"",
		`"\u2028\u2029<>&\ufeff\uffff"`:                "\"\u2028\u2029<>&\ufeff\uffff\"",
		`"\uD83D\ude00 😀"`:                             `"😀 😀"`,
		`"e\u0301 \u00e9"`:                             "\"e\u0301 \u00e9\"",
		`"\ufffd"`:                                     "\"\ufffd\"",
		// Keys by UTF-16 code units of what they stand for: U+FB33 comes after the surrogates of U+1F600, \n before "1".
		"{\"\u20ac\":1,\"\\r\":2,\"\ufb33\":3,\"1\":4,\"\U0001F600\":5,\"\u0080\":6,\"\u00f6\":7}": "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"\u00f6\":7,\"\u20ac\":1,\"\U0001F600\":5,\"\ufb33\":3}",
		`{"\\":1,"a":2,"\"":3,"\u0000":4,"":5,"aa":6,"A":7}`:                                       `{"":5,"\u0000":4,"\"":3,"A":7,"\\":1,"a":2,"aa":6}`,
		"{\"\ue000\":1,\"\ud7ff\":2,\"\U00010000\":3,\"\U0010ffff\":4,\"\uffff\":5}":               "{\"\ud7ff\":2,\"\U00010000\":3,\"\U0010ffff\":4,\"\ue000\":1,\"\uffff\":5}",
	} {
		if got := canonical(t, src); got != want {
			t.Errorf("Append(%s) = %s, want %s", src, got, want)
		}
	}
}

// Spellings of one decimal value have one form, and it is that of ECMAScript where a double would do.
func TestNumbers(t *testing.T) {
	for want, spellings := range map[string]string{
		`0`:                                 `0 -0 0.0 -0.000 0e9 0E-9 0e+999999999999999999999999 -0.0e-99999999999999999999999999`,
		`5`:                                 `5 5.0 5e0 50e-1 0.5e1 0.0005E+4 5.000e-0 5e-00000000000000000000000000000000000000000`,
		`-5`:                                `-5 -5.0 -50e-1`,
		`100`:                               `100 1e2 1E+2 100.00 10e1 0.1e3`,
		`1.5`:                               `1.5 1.50 15e-1 0.15e1`,
		`0.000001`:                          `0.000001 1e-6 10e-7`,
		`1e-7`:                              `0.0000001 1e-7 0.1e-6`,
		`1.5e-7`:                            `0.00000015 15e-8`,
		`100000000000000000000`:             `1e20 100000000000000000000`,
		`1e+21`:                             `1e21 1000000000000000000000 10E20`,
		`999999999999999999999`:             `999999999999999999999 999999999999999999999.0`,
		`1.234567890123456789012e+21`:       `1234567890123456789012 1234567890123456789012.0`,
		`123456789012345678901.2`:           `123456789012345678901.2 1234567890123456789012e-1`,
		`9007199254740992`:                  `9007199254740992 9007199254740992.0`,
		`9007199254740993`:                  `9007199254740993 9007199254740993.0 90071992547409930e-1`,
		`0.1`:                               `0.1 1e-1 0.10`,
		`0.1000000000000000000000000000001`: `0.1000000000000000000000000000001 1000000000000000000000000000001e-31`,
		`1e+400`:                            `1e400 10e399 0.001e403`,
		`-1.2e+999999999`:                   `-1.2e999999999 -12e999999998 -0.00012e1000000003`,
		`1e-999999999`:                      `1e-999999999 10e-1000000000`,
		`333333333.33333329`:                `333333333.33333329`,
		`4.5`:                               `4.50`,
		`0.002`:                             `2e-3`,
		`1e+30`:                             `1E30`,
		`1e-27`:                             `0.000000000000000000000000001`,
	} {
		for spelling := range strings.FieldsSeq(spellings) {
			if got := canonical(t, spelling); got != want {
				t.Errorf("%s is %s, want %s", spelling, got, want)
			}
		}
		if got := canonical(t, want); got != want {
			t.Errorf("%s is not its own form: %s", want, got)
		}
	}
}

// Every refusal names its rule and where.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		src    string
		rule   string
		offset int
	}{
		{``, RuleSyntax, 0},
		{` `, RuleSyntax, 1},
		{`nul`, RuleSyntax, 0},
		{`True`, RuleSyntax, 0},
		{"\ufeff{}", RuleSyntax, 0},
		{"\x00", RuleSyntax, 0},
		{`[`, RuleSyntax, 1},
		{`[1`, RuleSyntax, 2},
		{`[1,`, RuleSyntax, 3},
		{`[1,]`, RuleSyntax, 3},
		{`[,1]`, RuleSyntax, 1},
		{`[1 2]`, RuleSyntax, 3},
		{`{`, RuleSyntax, 1},
		{`{"a"`, RuleSyntax, 4},
		{`{"a":`, RuleSyntax, 5},
		{`{"a":1`, RuleSyntax, 6},
		{`{"a":1,}`, RuleSyntax, 7},
		{`{a:1}`, RuleSyntax, 1},
		{`{"a" 1}`, RuleSyntax, 5},
		{`{1:1}`, RuleSyntax, 1},
		{`{"a":1 "b":2}`, RuleSyntax, 7},
		{`{,}`, RuleSyntax, 1},
		{`"`, RuleSyntax, 1},
		{`"a`, RuleSyntax, 2},
		{"\"\n\"", RuleSyntax, 1},
		{`"\`, RuleSyntax, 2},
		{`"\x"`, RuleSyntax, 1},
		{`"\u12"`, RuleSyntax, 1},
		{`"\u12g4"`, RuleSyntax, 1},
		{`"\U0041"`, RuleSyntax, 1},
		{`'a'`, RuleSyntax, 0},
		{"\"a\x00\"", RuleSyntax, 2},
		{`01`, RuleSyntax, 1},
		{`-`, RuleSyntax, 1},
		{`-01`, RuleSyntax, 2},
		{`+1`, RuleSyntax, 0},
		{`.5`, RuleSyntax, 0},
		{`1.`, RuleSyntax, 2},
		{`1.e5`, RuleSyntax, 2},
		{`1e`, RuleSyntax, 2},
		{`1e+`, RuleSyntax, 2},
		{`--1`, RuleSyntax, 1},
		{`NaN`, RuleSyntax, 0},
		{`-Infinity`, RuleSyntax, 1},
		{`0x1`, RuleTrailing, 1},
		{`1 2`, RuleTrailing, 2},
		{`{} x`, RuleTrailing, 3},
		{`nullx`, RuleTrailing, 4},
		{`1//`, RuleTrailing, 1},
		{"1\x00", RuleTrailing, 1},
		{"\"a\x80\"", RuleUTF8, 2},
		{"\"\xc0\xaf\"", RuleUTF8, 1},
		{"\"\xed\xa0\x80\"", RuleUTF8, 1},
		{"\"\xf4\x90\x80\x80\"", RuleUTF8, 1},
		{"\"\xe2\x82\"", RuleUTF8, 1},
		{"\"\xe2", RuleUTF8, 1},
		{"{\"\xff\":1}", RuleUTF8, 2},
		{`"\ud800"`, RuleSurrogate, 1},
		{`"a\udc00"`, RuleSurrogate, 2},
		{`"\ud83d\ud83d\ude00"`, RuleSurrogate, 1},
		{`"\ude00\ud83d"`, RuleSurrogate, 1},
		{`"\ud83dx"`, RuleSurrogate, 1},
		{`"\ud83d\n"`, RuleSurrogate, 1},
		{`{"\ud800":1}`, RuleSurrogate, 2},
		{`"\ud83d\u"`, RuleSurrogate, 1},
		{`{"a":1,"a":1}`, RuleDuplicateKey, 7},
		{`{"a":1,"\u0061":2}`, RuleDuplicateKey, 7},
		{`{"":1,"b":0,"":2}`, RuleDuplicateKey, 12},
		{`[{"x":{"a":1,"b":2,"a":3}}]`, RuleDuplicateKey, 19},
		{`{"\n":1,"\u000A":2}`, RuleDuplicateKey, 8},
		{"{\"\U0001F600\":1,\"\\ud83d\\ude00\":2}", RuleDuplicateKey, 10},
		{`1e1000000000`, RuleExponent, 0},
		{`[10e999999999]`, RuleExponent, 1},
		{`1e-1000000000`, RuleExponent, 0},
		{`-1e99999999999999999999999999`, RuleExponent, 0},
		{`1e-99999999999999999999999999`, RuleExponent, 0},
		{`1e18446744073709551617`, RuleExponent, 0},
		{`1e4294967297`, RuleExponent, 0},
	} {
		dst := []byte("before")
		out, err := Append(dst, []byte(c.src))
		got, ok := errors.AsType[*Error](err)
		if !ok || got.Rule != c.rule || got.Offset != c.offset {
			t.Errorf("Append(%q): %v; want %s at %d", c.src, err, c.rule, c.offset)
		}
		if string(out) != "before" {
			t.Errorf("Append(%q) returns %q beside its error", c.src, out)
		}
	}
}

// Exponents of any length are read exactly or as far out of range, with their sign; none wraps around into it.
func TestExponentsDoNotWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-+]?0{0,3}[0-9]{1,60}`).Draw(t, "exponent")
		got, end := parseExponent([]byte(text), 0)
		want, _ := new(big.Int).SetString(text, 10)
		if far := big.NewInt(farExponent); want.CmpAbs(far) > 0 {
			want.Mul(far, big.NewInt(int64(want.Sign())))
		}
		if end != len(text) || want.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("%s is read as %d, want %s", text, got, want)
		}
	})
}

// Nesting is bounded: what is deeper is refused at once and does not use the stack up.
func TestDepth(t *testing.T) {
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		nest := func(n int) []byte {
			return []byte(strings.Repeat(brackets[0], n) + "1" + strings.Repeat(brackets[1], n))
		}
		if _, err := Append(nil, nest(MaxDepth)); err != nil {
			t.Errorf("%d deep: %v", MaxDepth, err)
		}
		for _, n := range []int{MaxDepth + 1, 100_000} {
			_, err := Append(nil, nest(n))
			if got, ok := errors.AsType[*Error](err); !ok || got.Rule != RuleDepth || got.Offset != MaxDepth*len(brackets[0]) {
				t.Errorf("%d deep: %v", n, err)
			}
		}
	}
	if _, err := HashIntent("t", []byte(strings.Repeat(`{"a":`, 100_000))); err == nil {
		t.Error("100000 open objects were hashed")
	}
}

// Large and hostile texts take time in proportion: many digits, many keys, unsorted objects in each other around a long text.
func TestHostileTextsAreQuick(t *testing.T) {
	const size = 400 << 10
	var keys strings.Builder
	for i := range size / 16 {
		keys.WriteString(`"` + strings.Repeat("k", 4) + string(rune('0'+i*7919%10)) + string(rune(0x4E00+i%20000)) + string(rune(0x4E00+i/20000)) + `":0,`)
	}
	nested := strings.Repeat(`{"b":`, MaxDepth-1) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"a":0}`, MaxDepth-1)
	for name, src := range map[string]string{
		"digits":    strings.Repeat("9", size),
		"zeros":     "0." + strings.Repeat("0", size) + "1",
		"trailing":  "1" + strings.Repeat("0", size),
		"exponent":  "1e" + strings.Repeat("0", size) + "1",
		"keys":      "{" + keys.String() + `"z":0}`,
		"unsorted":  nested,
		"escapes":   `"` + strings.Repeat(`\u0001`, size/6) + `"`,
		"backslash": `{"` + strings.Repeat(`\\`, size/2) + `":1}`,
	} {
		start := time.Now()
		out, err := Append(nil, []byte(src))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(out) > len(src)+32 {
			t.Errorf("%s grew from %d to %d bytes", name, len(src), len(out))
		}
		t.Logf("%s: %v", name, time.Since(start))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// Append adds to what is there and keeps nothing of one text for the next, the members of a refused one included.
func TestAppendAppends(t *testing.T) {
	for range 100 {
		if _, err := Append(nil, []byte(`{"z":{"y":[{"x":1,`)); err == nil {
			t.Fatal("half an object was accepted")
		}
		dst := append(make([]byte, 0, 64), "x="...)
		out, err := Append(dst, []byte(`{"b":2e0,"a":[]}`))
		if err != nil || string(out) != `x={"a":[],"b":2}` {
			t.Fatalf("%s, %v", out, err)
		}
	}
}

// compareUTF16 is the order of the UTF-16 code units, by the standard library's encoder.
func TestCompareUTF16(t *testing.T) {
	edge := rapid.SampledFrom([]rune{0, 'a', 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xEFFF, 0xF000, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF})
	text := rapid.StringOf(rapid.OneOf(edge, rapid.Rune()))
	rapid.Check(t, func(t *rapid.T) {
		prefix := text.Draw(t, "prefix")
		a, b := prefix+text.Draw(t, "a"), prefix+text.Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		got := compareUTF16([]byte(a), []byte(b))
		if (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			t.Fatalf("compare %q with %q: %d, want %d", a, b, got, want)
		}
	})
}

// The package stays usable from anywhere: it imports the standard library alone.
func TestImportsStandardLibraryOnly(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := bytes.Cut(text, []byte("\n)\n"))
		for line := range bytes.Lines(head) {
			path := strings.TrimSpace(string(line))
			if strings.HasPrefix(path, `"`) && (strings.Contains(path, ".") || strings.HasPrefix(path, `"toolledger`)) {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
	}
}
