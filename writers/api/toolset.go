package api

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"toolledger/internal/canon"
	"toolledger/writers"
)

// Toolset is the tools that a model may call. It is safe for concurrent use.
type Toolset struct {
	defs  []Definition
	tools map[string]entry
}

// entry is one tool with what its input is checked against.
type entry struct {
	tool     writers.AnyTool
	schema   *jsonschema.Resolved
	required []string
	args     map[string]argument
}

// argument is the schema of one argument, checked apart so that a refusal can name the argument without quoting it.
type argument struct {
	schema *jsonschema.Resolved
	kind   string
	types  []string // what kind is made of, null last
}

// toolName is what the Messages API takes as a tool's name.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// NewToolset checks the tools and makes their schemas from json and jsonschema tags. Errors: writers.ErrInvalid naming
// the tool and the field: a bad or doubled name, an argument type without a schema, a TenantID among the arguments.
func NewToolset(tools ...writers.AnyTool) (*Toolset, error) {
	t := &Toolset{tools: map[string]entry{}}
	for i, tool := range tools {
		if tool == nil {
			return nil, toolError("", fmt.Sprintf("tool %d", i), "is nil", nil)
		}
		spec := tool.Spec()
		if !toolName.MatchString(spec.Name) {
			return nil, toolError(spec.Name, "Name", "must be 1 to 64 letters, digits, '_' or '-'", nil)
		}
		if _, doubled := t.tools[spec.Name]; doubled {
			return nil, toolError(spec.Name, "Name", "is the name of two tools", nil)
		}
		schema, err := argumentSchema(spec)
		if err != nil {
			return nil, err
		}
		input, err := json.Marshal(schema)
		if err != nil {
			return nil, toolError(spec.Name, "Args", "have a schema that cannot be encoded", err)
		}
		e, err := newEntry(tool, schema)
		if err != nil {
			return nil, toolError(spec.Name, "Args", "have a schema that does not hold together", err)
		}
		t.tools[spec.Name] = e
		t.defs = append(t.defs, Definition{spec.Name, spec.Description, input})
	}
	return t, nil
}

func newEntry(tool writers.AnyTool, schema *jsonschema.Schema) (entry, error) {
	e := entry{tool: tool, required: schema.Required, args: map[string]argument{}}
	for name, prop := range schema.Properties {
		resolved, err := prop.CloneSchemas().Resolve(nil)
		if err != nil {
			return e, err
		}
		types := slices.Clone(prop.Types)
		if prop.Type != "" {
			types = []string{prop.Type}
		}
		slices.SortStableFunc(types, func(a, b string) int { return cmp.Compare(isNull(a), isNull(b)) })
		e.args[name] = argument{resolved, strings.Join(types, " or "), types}
	}
	var err error
	e.schema, err = schema.Resolve(nil)
	return e, err
}

func isNull(kind string) int {
	if kind == "null" {
		return 1
	}
	return 0
}

// check says which rule the input breaks; "" for none. It names arguments and never quotes values.
func (e entry) check(input map[string]any) string {
	for _, name := range e.required {
		if _, ok := input[name]; !ok {
			return name + " is required"
		}
	}
	for _, name := range sortedNames(input) {
		arg, known := e.args[name]
		switch {
		case known && arg.schema.Validate(input[name]) == nil:
		case known && arg.kind != "":
			return name + " does not match its schema (" + arg.kind + ")"
		case known:
			return name + " does not match its schema"
		case len(e.args) > 0 && len(name) <= maxNameShown:
			return name + " is not an argument of this tool"
		}
	}
	if e.schema.Validate(input) != nil {
		return "the input does not match the tool's schema"
	}
	return ""
}

// maxNameShown keeps a text that a model passes off as a name from being repeated at length.
const maxNameShown = 64

func argumentSchema(spec writers.ToolSpec) (*jsonschema.Schema, error) {
	if spec.Args == nil {
		return nil, toolError(spec.Name, "Args", "have no type", nil)
	}
	if path := findTenant(spec.Args, nil); path != "" {
		return nil, toolError(spec.Name, "Args", "hold a TenantID at "+path+": a model must never name who pays", nil)
	}
	schema, err := jsonschema.ForType(spec.Args, nil)
	if err != nil {
		return nil, toolError(spec.Name, "Args", "have no JSON schema", err)
	}
	if schema.Type != "object" {
		return nil, toolError(spec.Name, "Args", "must be a struct or a map, as arguments are an object", nil)
	}
	return schema, nil
}

// findTenant returns the path to the first TenantID within t; "" where there is none. seen ends recursive types.
func findTenant(t reflect.Type, seen []reflect.Type) string {
	if t == reflect.TypeFor[writers.TenantID]() {
		return t.String()
	}
	for _, s := range seen {
		if s == t {
			return ""
		}
	}
	seen = append(seen, t)
	switch t.Kind() { //nolint:exhaustive // only these hold other types
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return findTenant(t.Elem(), seen)
	case reflect.Map:
		if path := findTenant(t.Key(), seen); path != "" {
			return path
		}
		return findTenant(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if path := findTenant(f.Type, seen); path != "" {
				return f.Name + "." + path
			}
		}
	}
	return ""
}

func toolError(tool, field, rule string, cause error) error {
	return &writers.Error{
		Code: writers.ErrInvalid, Op: "new toolset", Field: field, Err: cause,
		Reason: fmt.Sprintf("tool %q: %s %s", tool, field, rule),
	}
}

// Definition is one entry of "tools" in a Messages request.
type Definition struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// Definitions returns the tools as a model sees them: the same bytes every time, so that prompts stay cached.
func (t *Toolset) Definitions() []Definition { return append([]Definition(nil), t.defs...) }

// KeyByUse makes the key of the block's id and arguments: safe against retries of the message; a model that asks again
// under a new id acts again. The arguments are part of it because an id alone is not unique: in real conversations one id
// names two different actions. A block without an id, or whose input is not an object, gets the zero Key, which is refused.
func KeyByUse(u ToolUse) writers.Key {
	intent, err := canon.HashArgs(u.Name, u.Input)
	if err != nil || u.ID == "" {
		return writers.Key{}
	}
	return writers.SessionKey(u.ID + "-" + hex.EncodeToString(intent.Hash[:8]))
}

// KeyByIntent makes the key of tool and arguments: a model that asks again gets the first result.
func KeyByIntent(u ToolUse) writers.Key { return writers.IntentKey(u.Name, u.Input) }
