package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolledger/internal/canon"
	"toolledger/writers"
)

// maxTokens is the largest number of tokens that is accepted: what a JSON reader with float64 numbers still reads exactly.
const maxTokens = 1 << 53

// maxSeconds bounds a wait in a request: ten years, far from the range of time.Duration. maxLeaseSeconds is the ledger's own limit
// of leases and horizons, 30 days, here so that a refusal names the field.
const (
	maxSeconds      = 10 * 365 * 24 * 3600
	maxLeaseSeconds = 30 * 24 * 3600
)

// members splits the JSON text of an object into its members, their values as they came. It refuses what package canon
// refuses, at any depth: duplicate keys, invalid UTF-8, lone surrogates, deep nesting, trailing data. Names are compared
// exactly, which encoding/json does not do for a struct.
func members(text []byte) (map[string]json.RawMessage, string) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, "is required: a JSON object"
	}
	if _, err := canon.Append(nil, text); err != nil {
		return nil, "is refused: " + strings.TrimPrefix(err.Error(), "canon: ")
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(text, &m) != nil || m == nil {
		return nil, "must be a JSON object"
	}
	return m, ""
}

// setter reads one value and says which rule it breaks; "" for none. Rules never quote the value.
type setter func(raw json.RawMessage) (rule string)

func text(into *string) setter {
	return func(raw json.RawMessage) string {
		if raw[0] != '"' || json.Unmarshal(raw, into) != nil {
			return "must be a string"
		}
		return ""
	}
}

func optionalText(into **string) setter {
	return func(raw json.RawMessage) string {
		*into = new("")
		return text(*into)(raw)
	}
}

// choice is a string out of a few.
func choice(into *string, among ...string) setter {
	return func(raw json.RawMessage) string {
		if rule := text(into)(raw); rule != "" {
			return rule
		}
		for _, c := range among {
			if *into == c {
				return ""
			}
		}
		return mustBe(among)
	}
}

// mustBe is the rule that a choice breaks. The empty string is a way to leave a choice out, and none to ask for.
func mustBe(among []string) string {
	return "must be one of " + strings.Join(slices.DeleteFunc(slices.Clone(among), func(s string) bool { return s == "" }), ", ")
}

// integer reads an integer that is written as one: 5 but neither 5.0 nor "5", since a reader that rounds would agree to
// numbers that it cannot hold.
func integer(into *int64, low, high int64) setter {
	return func(raw json.RawMessage) string {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Sprintf("must be an integer from %d to %d", low, high)
		}
		*into = n
		return ""
	}
}

func optionalInteger(into **int64, low, high int64) setter {
	return func(raw json.RawMessage) string {
		*into = new(int64(0))
		return integer(*into, low, high)(raw)
	}
}

func count(into *int) setter {
	return func(raw json.RawMessage) string {
		var n int64
		rule := integer(&n, 1, math.MaxInt32)(raw)
		*into = int(n)
		return rule
	}
}

func seconds(into *time.Duration, low, high int64) setter {
	return func(raw json.RawMessage) string {
		var n int64
		rule := integer(&n, low, high)(raw)
		*into = time.Duration(n) * time.Second
		return rule
	}
}

func boolean(into *bool) setter {
	return func(raw json.RawMessage) string {
		switch string(raw) {
		case "true", "false":
			*into = raw[0] == 't'
			return ""
		default:
			return "must be true or false"
		}
	}
}

func object(into *json.RawMessage) setter {
	return func(raw json.RawMessage) string {
		if raw[0] != '{' {
			return "must be an object"
		}
		*into = raw
		return ""
	}
}

func anyValue(into *json.RawMessage) setter {
	return func(raw json.RawMessage) string {
		*into = raw
		return ""
	}
}

// moment reads RFC 3339 with a time zone; what is finer than a millisecond is refused, since no deadline is.
func moment(into *time.Time) setter {
	return func(raw json.RawMessage) string {
		const rule = "must be a time as in RFC 3339 with at most milliseconds, such as 2026-11-30T01:54:02.000Z"
		var s string
		if text(&s)(raw) != "" {
			return rule
		}
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil || at.Nanosecond()%int(time.Millisecond) != 0 {
			return rule
		}
		*into = at.UTC()
		return ""
	}
}

// attemptRef reads {"row_id", "attempt", "deadline"}, all of them: a verdict counts for exactly one attempt as it was
// looked at.
func attemptRef(into *writers.AttemptRef) setter {
	return func(raw json.RawMessage) string {
		return nested(raw, []string{"row_id", "attempt", "deadline"}, map[string]setter{
			"row_id": text(&into.RowID), "attempt": count(&into.Attempt), "deadline": moment(&into.Deadline),
		})
	}
}

// original reads the call that is compensated: its session-wide key, or {"key", "scope"} where the scope must be said.
func original(into *writers.Key) setter {
	return func(raw json.RawMessage) string {
		var key, scope string
		if raw[0] != '{' {
			if text(&key)(raw) != "" {
				return `must be a key, or an object of "key" and "scope"`
			}
		} else if rule := nested(raw, []string{"key"}, map[string]setter{
			"key": text(&key), "scope": choice(&scope, scopeSession, scopeTenant),
		}); rule != "" {
			return rule
		}
		if key == "" {
			return "must not be empty"
		}
		*into = keyOf(scope, key)
		return ""
	}
}

// nested reads an object within a field.
func nested(raw json.RawMessage, required []string, fields map[string]setter) string {
	m, rule := members(raw)
	if rule != "" {
		return rule
	}
	if name, rule := fill(m, required, fields); rule != "" {
		return name + " " + rule
	}
	return ""
}

// nameToShow is a name as a refusal tells it, of 64 bytes at most: a body of nothing but a name would otherwise come back
// twice, and a Lambda function can answer no more than it can be sent.
func nameToShow(name string) string {
	if len(name) <= maxNameShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxNameShown], "") + "…"
}

// fill hands every member to its setter, in the order of names so that of several faults always the same is told. It
// returns the first faulty name and its rule.
func fill(m map[string]json.RawMessage, required []string, fields map[string]setter) (name, rule string) {
	for _, name := range sortedNames(m) {
		set, ok := fields[name]
		if !ok {
			return nameToShow(name), "is not a field here"
		}
		if rule := set(m[name]); rule != "" {
			return name, rule
		}
	}
	for _, name := range required {
		if _, ok := m[name]; !ok {
			return name, "is required"
		}
	}
	return "", ""
}
