package api

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

var (
	integerText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// convert turns a parameter's text into the JSON value that the tool's schema asks for, and says which rule it breaks. Where the
// schema has no single type, what the agent says of the parameter decides. Unknown names are left for check to refuse.
func (e entry) convert(p BedrockParameter) (value json.RawMessage, rule string) {
	kind := p.Type
	if arg, ok := e.args[p.Name]; ok && len(arg.types) > 0 {
		kind = arg.types[0]
		if p.Value == "null" && slices.Contains(arg.types, "null") {
			return json.RawMessage("null"), ""
		}
	}
	if kind == "integer" && !integerText.MatchString(p.Value) {
		return nil, "must be an integer, such as 5"
	}
	if kind == "number" && !numberText.MatchString(p.Value) {
		return nil, "must be a number, such as 2.5"
	}
	switch kind {
	case "integer", "number":
		return json.RawMessage(p.Value), ""
	case "boolean":
		if p.Value != "true" && p.Value != "false" {
			return nil, "must be true or false"
		}
		return json.RawMessage(p.Value), ""
	case "array", "object":
		begin := map[string]string{"array": "[", "object": "{"}[kind]
		if !strings.HasPrefix(p.Value, begin) || !json.Valid([]byte(p.Value)) {
			return nil, "must be JSON: an " + kind
		}
		return json.RawMessage(p.Value), ""
	default:
		text, err := encode(p.Value)
		if err != nil {
			return nil, "must be text"
		}
		return text, ""
	}
}
