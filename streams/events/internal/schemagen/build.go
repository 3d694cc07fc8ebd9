package main

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"toolledger/streams/events"
)

// field is one member of an event's detail.
type field struct {
	goName, name, about string
	kind                reflect.Type
	optional            bool
	rule                rule
}

// shape is an event type, read.
type shape struct {
	name, about string
	fields      []field
	example     events.Event
}

// generator turns shapes into documents, and remembers which rules it used: one that fits nothing is a mistake.
type generator struct {
	said comments
	used map[string]bool
}

// read reads the type of an example.
func (g *generator) read(example events.Event) (shape, error) {
	t := reflect.TypeOf(example).Elem()
	s := shape{name: example.DetailType(), about: g.said[t.Name()], example: example}
	demanded, ok := always[s.name]
	if !ok || s.about == "" {
		return s, fmt.Errorf("%s: the type has no doc comment, or is not in the table of members that are always there", s.name)
	}
	if err := g.readFields(&s, t); err != nil {
		return s, err
	}
	jsonNames := map[string]string{}
	for _, f := range s.fields {
		jsonNames[f.goName] = f.name
	}
	s.about = translate(s.about, jsonNames)
	for i := range s.fields {
		f := &s.fields[i]
		f.about = translate(f.about, jsonNames)
		f.optional = f.optional && !slices.Contains(demanded, f.name)
	}
	for _, name := range demanded {
		if !slices.ContainsFunc(s.fields, func(f field) bool { return f.name == name }) {
			return s, fmt.Errorf("%s: there is no member %s that could always be there", s.name, name)
		}
	}
	return s, nil
}

// readFields reads the fields of t, those of embedded structs in their place.
func (g *generator) readFields(s *shape, t reflect.Type) error {
	for f := range t.Fields() {
		if f.Anonymous {
			if err := g.readFields(s, f.Type); err != nil {
				return err
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		about := g.said[t.Name()+"."+f.Name]
		if name == "" || about == "" {
			return fmt.Errorf("%s.%s has no JSON name or no comment", t.Name(), f.Name)
		}
		r, key := rules[name], name
		if own, ok := rules[s.name+"."+name]; ok {
			r, key = own, s.name+"."+name
		}
		g.used[key] = true
		if name == "schema" {
			r.enum = []any{events.Schema}
		}
		s.fields = append(s.fields, field{
			goName: f.Name, name: name, about: about, kind: f.Type, optional: options == "omitempty", rule: r,
		})
	}
	return nil
}

// unused are the rules that fit no field.
func (g *generator) unused() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(rules) {
			if !g.used[name] && !yield(name) {
				return
			}
		}
	})
}

// dialect is what JSON Schema and the schemas of OpenAPI 3.0 write differently.
type dialect struct {
	numberFormat bool // "format": "int64" says the range of a whole number
}

// detail is the schema of the detail: its description, members and which of them are always there.
func (s *shape) detail(d dialect) (object, error) {
	var required []string
	var properties object
	for _, f := range s.fields {
		p, err := f.schema(d)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", s.name, f.name, err)
		}
		properties = properties.with(f.name, p)
		if !f.optional {
			required = append(required, f.name)
		}
	}
	return object{
		{"type", "object"},
		{"description", s.about},
		{"required", required},
		{"properties", properties},
		{"additionalProperties", true}, // newer publishers may say more
	}, nil
}

func (f *field) schema(d dialect) (object, error) {
	switch {
	case f.kind == reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}, {"description", f.about}}, nil
	case f.kind == reflect.TypeFor[[]string]():
		o := object{{"type", "array"}, {"items", object{{"type", "string"}}}}
		if f.rule.minItems > 0 {
			o = o.with("minItems", f.rule.minItems)
		}
		return o.with("description", f.about), nil
	}
	switch f.kind.Kind() {
	case reflect.Bool:
		return object{{"type", "boolean"}, {"description", f.about}}, nil
	case reflect.String:
		return f.text(), nil
	case reflect.Int, reflect.Int64:
		return f.number(d)
	default:
		return nil, fmt.Errorf("no schema for %s", f.kind)
	}
}

func (f *field) text() object {
	o := object{{"type", "string"}}
	if f.rule.enum != nil {
		o = o.with("enum", f.rule.enum)
	}
	if f.rule.pattern != "" {
		o = o.with("pattern", f.rule.pattern)
	}
	if f.rule.maxLength > 0 {
		o = o.with("minLength", 1).with("maxLength", f.rule.maxLength)
	}
	return o.with("description", f.about)
}

func (f *field) number(d dialect) (object, error) {
	o := object{{"type", "integer"}}
	if d.numberFormat {
		o = o.with("format", "int64")
	}
	switch {
	case f.rule.enum != nil:
		o = o.with("enum", f.rule.enum)
	case f.rule.min == 0 && f.rule.max == 0:
		return nil, fmt.Errorf("a number needs a rule")
	default:
		if f.rule.min != math.MinInt64 || !d.numberFormat {
			o = o.with("minimum", f.rule.min)
		}
		if f.rule.max != math.MaxInt64 || !d.numberFormat {
			o = o.with("maximum", f.rule.max)
		}
	}
	return o.with("description", f.about), nil
}

// jsonSchema is the document for subscribers: the schema of the detail.
func (s *shape) jsonSchema() (object, error) {
	detail, err := s.detail(dialect{})
	if err != nil {
		return nil, err
	}
	return append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", fmt.Sprintf("urn:%s:event:%s:%d", events.Source, s.name, events.Schema)},
		{"title", s.name},
	}, detail.with("examples", []any{s.example})...), nil
}

// openAPI is the document for EventBridge's schema registry, in the form of the registry's own: the whole envelope under
// the name AWSEvent, and the detail under the event's.
func (s *shape) openAPI() (object, error) {
	detail, err := s.detail(dialect{numberFormat: true})
	if err != nil {
		return nil, err
	}
	text, moment := object{{"type", "string"}}, object{{"type", "string"}, {"format", "date-time"}}
	envelope := object{
		{"type", "object"},
		{"required", []string{"detail-type", "resources", "detail", "id", "source", "time", "region", "version", "account"}},
		{"x-amazon-events-detail-type", s.name},
		{"x-amazon-events-source", events.Source},
		{"properties", object{
			{"detail", object{{"$ref", "#/components/schemas/" + s.name}}},
			{"account", text},
			{"detail-type", text},
			{"id", text},
			{"region", text},
			{"resources", object{{"type", "array"}, {"items", text}}},
			{"source", text},
			{"time", moment},
			{"version", text},
		}},
	}
	return object{
		{"openapi", "3.0.0"},
		{"info", object{{"version", fmt.Sprintf("%d.0.0", events.Schema)}, {"title", s.name}, {"description", s.about}}},
		{"paths", object{}},
		{"components", object{{"schemas", object{
			{"AWSEvent", envelope},
			{s.name, detail.with("example", s.example)},
		}}}},
	}, nil
}
