package canon

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// The rules that [Error] names.
const (
	RuleSyntax       = "not valid JSON"
	RuleTrailing     = "data after the JSON value"
	RuleUTF8         = "not valid UTF-8"
	RuleSurrogate    = "lone surrogate"
	RuleDuplicateKey = "duplicate key"
	RuleDepth        = "nested too deep"
	RuleExponent     = "number's exponent out of range"
	RuleNotObject    = "not a JSON object"
	RuleNotEncodable = "cannot be encoded as JSON"
)

// The fields that [Error] names.
const (
	FieldTool      = "tool"
	FieldArguments = "arguments"
)

// ErrArgHashes is returned by [DecodeArgHashes] for bytes that [EncodeArgHashes] cannot have written.
var ErrArgHashes = errors.New("canon: stored argument hashes cannot be read")

// Error says which rule a text breaks and where. It holds names of arguments and of duplicate keys, never values.
// Returned by [Append], [HashIntent], [HashArgs] and [Marshal].
type Error struct {
	// Field is FieldTool or FieldArguments; empty from Append, which does not know what it reads.
	Field string
	// Offset is where in the text the rule is broken, in bytes from 0; in the encoded text where arguments were a Go value.
	// It is 0 for RuleNotEncodable.
	Offset int
	// Arg is the top-level member in which the rule is broken; empty outside of members. At most 64 bytes, then cut with "…".
	Arg string
	// Key is the name of the duplicate key of RuleDuplicateKey, cut likewise.
	Key string
	// Rule is one of the Rule constants.
	Rule string
	// Err is the cause of RuleNotEncodable, or nil. It may quote values: it is for matching, not for printing.
	Err error
}

// Error names field, argument, rule and offset; it never holds a value.
func (e *Error) Error() string {
	b := []byte("canon: ")
	if e.Field != "" {
		b = append(b, e.Field...)
		b = append(b, ": "...)
	}
	if e.Arg != "" {
		b = strconv.AppendQuote(b, e.Arg)
		b = append(b, ": "...)
	}
	b = append(b, e.Rule...)
	if e.Rule == RuleDuplicateKey {
		b = append(b, ' ')
		b = strconv.AppendQuote(b, e.Key)
	}
	if unsupported, ok := errors.AsType[*json.UnsupportedTypeError](e.Err); ok {
		b = append(b, ": Go type "...)
		b = append(b, unsupported.Type.String()...)
	}
	if e.Rule != RuleNotEncodable {
		b = append(b, " at byte "...)
		b = strconv.AppendInt(b, int64(e.Offset), 10)
	}
	return string(b)
}

// Unwrap returns the cause of RuleNotEncodable, or nil.
func (e *Error) Unwrap() error { return e.Err }

// maxNameBytes bounds the names in errors: a key can be as long as the text.
const maxNameBytes = 64

func nameForError(name []byte) string {
	if len(name) <= maxNameBytes {
		return string(name)
	}
	return string(name[:runeBoundary(name, maxNameBytes)]) + ellipsis
}

// runeBoundary returns the largest i ≤ n at which name can be cut without splitting a code point.
func runeBoundary[T []byte | string](name T, n int) int {
	if n >= len(name) {
		return len(name)
	}
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return n
}
