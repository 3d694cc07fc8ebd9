package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// decode is the oracle's reading of a text: encoding/json into maps, numbers as written.
func decode(t interface{ Fatalf(string, ...any) }, text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", text, err)
	}
	return v
}

// equal is the oracle's notion of the same value.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && equalNumbers(string(a), string(b))
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if v, ok := b[k]; !ok || !equal(a[k], v) {
				return false
			}
		}
		return true
	default:
		return a == b
	}
}

// equalNumbers compares rational numbers, and of exponents too large to expand the digits and the exponents.
func equalNumbers(a, b string) bool {
	ea, ma := exponentOf(a)
	eb, mb := exponentOf(b)
	if ma == "" || mb == "" { // before anything expands 0e999999999
		return ma == mb
	}
	near := big.NewInt(1000)
	if ea.CmpAbs(near) < 0 && eb.CmpAbs(near) < 0 {
		ra, _ := new(big.Rat).SetString(a)
		rb, _ := new(big.Rat).SetString(b)
		return ra.Cmp(rb) == 0
	}
	return ma == mb && strings.HasPrefix(a, "-") == strings.HasPrefix(b, "-") && ea.Cmp(eb) == 0
}

// exponentOf returns the exponent in scientific notation, and the significant digits ("" of zero).
func exponentOf(number string) (*big.Int, string) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	e := new(big.Int)
	e.SetString(strings.TrimPrefix(exponent, "+"), 10)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	significant := strings.TrimLeft(all, "0")
	if significant == "" {
		return new(big.Int), ""
	}
	e.Add(e, big.NewInt(int64(len(whole)-(len(all)-len(significant))-1)))
	return e, strings.TrimRight(significant, "0")
}

var (
	escape       = regexp.MustCompile(`\\(?:u[0-9a-fA-F]{4}|.)`)
	numberOrText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9][-+.eE0-9]*`)
)

// extraRefusals are the documented rules, beside JSON's own, that a valid JSON text breaks.
func extraRefusals(text []byte) map[string]bool {
	broken := map[string]bool{RuleUTF8: !utf8.Valid(text)}
	at, high := -1, rune(0)
	for _, span := range escape.FindAllIndex(text, -1) {
		e := string(text[span[0]:span[1]])
		var r rune
		if len(e) == 6 {
			n, _ := strconv.ParseUint(e[2:], 16, 16)
			r = rune(n)
		}
		if high != 0 {
			paired := span[0] == at && utf16.DecodeRune(high, r) != utf8.RuneError
			high = 0
			if paired {
				continue
			}
			broken[RuleSurrogate] = true
		}
		switch {
		case 0xD800 <= r && r < 0xDC00:
			at, high = span[1], r
		case utf16.IsSurrogate(r):
			broken[RuleSurrogate] = true
		}
	}
	broken[RuleSurrogate] = broken[RuleSurrogate] || high != 0
	for _, token := range numberOrText.FindAll(text, -1) {
		if token[0] != '"' {
			e, _ := exponentOf(string(token))
			broken[RuleExponent] = broken[RuleExponent] || e.CmpAbs(big.NewInt(MaxExponent)) > 0
		}
	}
	structure(text, broken)
	return broken
}

// structure finds duplicate keys and depth by the tokens of encoding/json.
func structure(text []byte, broken map[string]bool) {
	type open struct {
		keys   map[string]bool // nil: an array
		wanted bool            // a key comes next
	}
	var stack []open
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		var top *open
		if len(stack) > 0 {
			top = &stack[len(stack)-1]
		}
		if key, ok := token.(string); ok && top != nil && top.keys != nil && top.wanted {
			broken[RuleDuplicateKey] = broken[RuleDuplicateKey] || top.keys[key]
			top.keys[key], top.wanted = true, false
			continue
		}
		if top != nil {
			top.wanted = true
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, open{keys: map[string]bool{}, wanted: true})
		case json.Delim('['):
			stack = append(stack, open{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		broken[RuleDepth] = broken[RuleDepth] || len(stack) > MaxDepth
	}
}

// FuzzAppend: accepted is exactly what encoding/json accepts but for the documented refusals, each for the rule that it names;
// the canonical form means the same and is its own canonical form; two texts share it exactly when they mean the same.
func FuzzAppend(f *testing.F) {
	for _, seed := range []string{
		``, `null`, ` {"b":[1.50,-0,1e400,{"x":"\u00e9\ud83d\ude00"}],"a":"é\n"} `, `{"a":1,"\u0061":2}`, `"\ud800"`, `"\\ud800\ud83d\\ude00"`, "\"\xff\"",
		`[[[[1e1000000000]]]]`, `{"a":{"a":{"a":"a"}}}`, `0.000001`, `12345678901234567890123`, `{"😀":1,"ﬀ":2,"a":3}`, `[1,"1",true,{}]x`, `-`,
		strings.Repeat("[", 513) + strings.Repeat("]", 513),
	} {
		f.Add([]byte(seed), []byte(`{"b":[15e-1,0,1E+400,{"x":"é😀"}],"a":"\u00e9\u000a"}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		formA, formB := checkOne(t, a), checkOne(t, b)
		if formA != nil && formB != nil && bytes.Equal(formA, formB) != equal(decode(t, a), decode(t, b)) {
			t.Fatalf("%q and %q: forms %s and %s", a, b, formA, formB)
		}
	})
}

// checkOne checks one text against the oracle and returns its canonical form, nil if it is refused.
func checkOne(t *testing.T, src []byte) []byte {
	form, err := Append(nil, src)
	valid := json.Valid(src)
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Offset < 0 || e.Offset > len(src) || form != nil {
			t.Fatalf("%q: %q, %v", src, form, err)
		}
		if valid && !extraRefusals(src)[e.Rule] {
			t.Fatalf("%q is refused for a rule that it keeps: %v", src, err)
		}
		return nil
	}
	if !valid {
		t.Fatalf("%q is not JSON and was accepted as %q", src, form)
	}
	for rule, broken := range extraRefusals(src) {
		if broken {
			t.Fatalf("%q was accepted as %q: %s", src, form, rule)
		}
	}
	if again, err := Append(nil, form); err != nil || !bytes.Equal(again, form) {
		t.Fatalf("%q: the form %q is not its own: %q, %v", src, form, again, err)
	}
	if !equal(decode(t, src), decode(t, form)) {
		t.Fatalf("%q does not mean what %q means", form, src)
	}
	return form
}

// decimal is a number of the generated values: digits × 10^exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

type pair struct {
	key   string
	value any
}

var texts = rapid.OneOf(
	rapid.SampledFrom([]string{"", "a", "b", "1", "\n", "\"", "\\", "/", "\u007f", "é", "e\u0301", "\ufb33", "\uffff", "😀", "\x00", "\\u0061", "\u2028"}),
	rapid.StringOfN(rapid.Rune(), 0, 6, -1),
)

// drawValue draws a value from few enough that two draws are often equal or nearly so.
func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "literal")
	case 1:
		return texts.Draw(t, "text")
	case 2, 3:
		return decimal{
			negative: rapid.Bool().Draw(t, "negative"),
			digits:   rapid.StringMatching(`0|[1-9][0-9]{0,2}|9007199254740992|9007199254740993|[1-9][0-9]{18,30}`).Draw(t, "digits"),
			exponent: rapid.OneOf(rapid.Just(0), rapid.IntRange(-30, 30), rapid.IntRange(-400, 400)).Draw(t, "exponent"),
		}
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "len"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	default:
		return drawObject(t, depth)
	}
}

func drawObject(t *rapid.T, depth int) []pair {
	keys := rapid.SliceOfNDistinct(texts, 0, 5, rapid.ID).Draw(t, "keys")
	object := make([]pair, len(keys))
	for i, key := range keys {
		object[i] = pair{key, drawValue(t, depth-1)}
	}
	return object
}

// spell writes a value in one of its many spellings.
func spell(t *rapid.T, v any) string {
	space := func() string {
		return rapid.SampledFrom([]string{"", "", " ", "\n", "\t\r\n  "}).Draw(t, "space")
	}
	switch v := v.(type) {
	case string:
		return space() + spellString(t, v) + space()
	case decimal:
		return space() + spellNumber(t, v) + space()
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, spell(t, item))
		}
		return space() + "[" + strings.Join(items, ",") + space() + "]"
	case []pair:
		var members []string
		if len(v) > 1 {
			v = rapid.Permutation(v).Draw(t, "order")
		}
		for _, p := range v {
			members = append(members, space()+spellString(t, p.key)+space()+":"+spell(t, p.value))
		}
		return space() + "{" + strings.Join(members, ",") + space() + "}"
	default:
		return strings.Replace(fmt.Sprint(v), "<nil>", "null", 1)
	}
}

func spellString(t *rapid.T, text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x20, r == '"', r == '\\', rapid.IntRange(0, 3).Draw(t, "escape") == 0:
			format := rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "hex")
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, format, unit)
			}
		case r == '/' && rapid.Bool().Draw(t, "slash"):
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func spellNumber(t *rapid.T, n decimal) string {
	digits, exponent := n.digits, n.exponent
	if zeros := rapid.IntRange(0, 3).Draw(t, "zeros"); digits != "0" {
		digits, exponent = digits+strings.Repeat("0", zeros), exponent-zeros
	}
	if point := rapid.IntRange(0, len(digits)+2).Draw(t, "point"); point > 0 {
		digits = strings.Repeat("0", max(0, point-len(digits)+1)) + digits
		digits = digits[:len(digits)-point] + "." + digits[len(digits)-point:]
		exponent += point
	}
	if n.negative {
		digits = "-" + digits
	}
	if exponent == 0 && rapid.Bool().Draw(t, "plain") {
		return digits
	}
	sign := rapid.SampledFrom([]string{"", "0", "000"}).Draw(t, "exponent zeros")
	switch {
	case exponent < 0:
		sign = "-" + sign
	case rapid.Bool().Draw(t, "plus"):
		sign = "+" + sign
	}
	return digits + rapid.SampledFrom([]string{"e", "E"}).Draw(t, "e") + sign + strconv.Itoa(max(exponent, -exponent))
}

// However a value is spelled, it has one canonical form, which is its own; another value has another.
func TestOneFormPerValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawValue(t, 3)
		one, two := spell(t, value), spell(t, value)
		form := canonical(t, one)
		if other := canonical(t, two); other != form {
			t.Fatalf("%s and %s have the forms %s and %s", one, two, form, other)
		}
		if again := canonical(t, form); again != form {
			t.Fatalf("%s becomes %s", form, again)
		}
		if !equal(decode(t, []byte(one)), decode(t, []byte(form))) {
			t.Fatalf("%s does not mean what %s means", form, one)
		}
		changed := spell(t, change(t, value))
		if same := equal(decode(t, []byte(one)), decode(t, []byte(changed))); same != (canonical(t, changed) == form) {
			t.Fatalf("%s and %s: same value %v, forms %s and %s", one, changed, same, form, canonical(t, changed))
		}
	})
}

// change draws a new value for one place of v, which may happen to be the old one.
func change(t *rapid.T, v any) any {
	if rapid.IntRange(0, 3).Draw(t, "here") == 0 {
		return drawValue(t, 1)
	}
	switch v := v.(type) {
	case decimal:
		v.exponent += rapid.IntRange(-1, 1).Draw(t, "shift")
		return v
	case []any:
		if len(v) == 0 {
			return drawValue(t, 1)
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		changed := append([]any(nil), v...)
		changed[i] = change(t, v[i])
		return changed
	case []pair:
		if len(v) == 0 {
			return drawObject(t, 1)
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		changed := append([]pair(nil), v...)
		changed[i].value = change(t, v[i].value)
		return changed
	default:
		return drawValue(t, 1)
	}
}

// The hash of a call is as stable as the form: spelling changes neither it nor the hash of an argument.
func TestIntentIgnoresSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args, tool := drawObject(t, 2), texts.Draw(t, "tool")
		one, err1 := HashIntent(tool, []byte(spell(t, args)))
		two, err2 := HashIntent(tool, []byte(spell(t, args)))
		if err1 != nil || err2 != nil || one.Hash != two.Hash || Differs(one.Args, two.Args) != nil || len(one.Args) != len(args) {
			t.Fatalf("%v, %v: %v and %v", err1, err2, one, two)
		}
		for i, arg := range one.Args[:max(len(one.Args)-1, 0)] {
			if compareUTF16([]byte(arg.Name), []byte(one.Args[i+1].Name)) >= 0 {
				t.Fatalf("%q comes before %q", arg.Name, one.Args[i+1].Name)
			}
		}
	})
}
