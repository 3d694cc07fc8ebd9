package schema

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Type is the type of a Value.
type Type byte

// The types, by DynamoDB's tags.
const (
	TypeOther Type = iota // a tag that no item of ours uses
	TypeString
	TypeNumber
	TypeBinary
	TypeBool
	TypeMap
	TypeStringSet
)

// Value is one attribute value, wherever it was read from: an answer of DynamoDB, a stream record, a Lambda event.
type Value struct {
	Type Type
	Text string // TypeString, TypeNumber
	Data []byte // TypeBinary
	Bool bool
	Map  map[string]Value
	Set  []string
}

// ValueOf turns an SDK value into a Value. What no item of ours holds becomes TypeOther.
func ValueOf(av types.AttributeValue) Value {
	switch v := av.(type) {
	case *types.AttributeValueMemberS:
		return Value{Type: TypeString, Text: v.Value}
	case *types.AttributeValueMemberN:
		return Value{Type: TypeNumber, Text: v.Value}
	case *types.AttributeValueMemberB:
		return Value{Type: TypeBinary, Data: v.Value}
	case *types.AttributeValueMemberBOOL:
		return Value{Type: TypeBool, Bool: v.Value}
	case *types.AttributeValueMemberSS:
		return Value{Type: TypeStringSet, Set: v.Value}
	case *types.AttributeValueMemberM:
		m := make(map[string]Value, len(v.Value))
		for name, inner := range v.Value {
			m[name] = ValueOf(inner)
		}
		return Value{Type: TypeMap, Map: m}
	}
	return Value{}
}

// The readers below put a value into its field, or say by which rule it does not fit.

func readString(v Value, to *string) string {
	if v.Type != TypeString {
		return "must be a string"
	}
	*to = v.Text
	return ""
}

func readInt(v Value, to *int64) string {
	if v.Type != TypeNumber {
		return "must be a number"
	}
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil {
		return "must be a whole number of 64 bits"
	}
	*to = n
	return ""
}

func readCount(v Value, to *int64) string {
	if rule := readInt(v, to); rule != "" {
		return rule
	}
	if *to < 0 || *to > MaxTokens {
		return "must be between 0 and 2^53"
	}
	return ""
}

func readBool(v Value, to *bool) string {
	if v.Type != TypeBool {
		return "must be a boolean"
	}
	*to = v.Bool
	return ""
}

func readBinary(v Value, to *[]byte) string {
	if v.Type != TypeBinary {
		return "must be binary"
	}
	*to = v.Data
	return ""
}

// Times before 2001 or after 5138 in the unit that is asked for are seconds read as milliseconds or the reverse.
const (
	minMillis  = 1e12 - 1
	maxMillis  = 1e14
	minSeconds = 1e9 - 1
	maxSeconds = 1e11
)

func readMillis(v Value, to *time.Time) string {
	var n int64
	if rule := readInt(v, &n); rule != "" {
		return rule
	}
	if n < minMillis || n > maxMillis {
		return "must be epoch milliseconds"
	}
	*to = time.UnixMilli(n).UTC()
	return ""
}

func readSeconds(v Value, to *time.Time) string {
	var n int64
	if rule := readInt(v, &n); rule != "" {
		return rule
	}
	if n < minSeconds || n > maxSeconds {
		return "must be epoch seconds"
	}
	*to = time.Unix(n, 0).UTC()
	return ""
}

func readDuration(v Value, to *time.Duration) string {
	var n int64
	if rule := readInt(v, &n); rule != "" {
		return rule
	}
	if n < 0 || n > int64(maxDuration/time.Millisecond) {
		return "must be milliseconds, at most ten years"
	}
	*to = time.Duration(n) * time.Millisecond
	return ""
}

const maxDuration = 10 * 366 * 24 * time.Hour

// The writers below put a field into an item, or leave it out where it says nothing.

// Item is an item as the SDK sends it.
type Item = map[string]types.AttributeValue

// S makes a string.
func S(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// N makes a number. Values are only ever read, so the commonest are shared.
func N(n int64) types.AttributeValue {
	switch n {
	case 0:
		return zero
	case 1:
		return one
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

var zero, one = &types.AttributeValueMemberN{Value: "0"}, &types.AttributeValueMemberN{Value: "1"}

// B makes a binary value.
func B(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// Bool makes a boolean.
func Bool(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

// SS makes a set of strings; DynamoDB takes no empty one.
func SS(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }

// Millis makes epoch milliseconds.
func Millis(t time.Time) types.AttributeValue { return N(t.UnixMilli()) }

// Seconds makes epoch seconds, rounded up so that nothing expires early.
func Seconds(t time.Time) types.AttributeValue { return N(CeilSeconds(t)) }

// CeilSeconds is t in epoch seconds, rounded up.
func CeilSeconds(t time.Time) int64 { return t.Add(time.Second - time.Nanosecond).Unix() }

func putString(it Item, name, s string) {
	if s != "" {
		it[name] = S(s)
	}
}

func putInt(it Item, name string, n int64) {
	if n != 0 {
		it[name] = N(n)
	}
}

func putBool(it Item, name string, b bool) {
	if b {
		it[name] = Bool(true)
	}
}

func putMillis(it Item, name string, t time.Time) {
	if !t.IsZero() {
		it[name] = Millis(t)
	}
}

func putSeconds(it Item, name string, t time.Time) {
	if !t.IsZero() {
		it[name] = Seconds(t)
	}
}
