package schemas_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"toolledger/internal/eventcheck"
	"toolledger/streams/events"
	"toolledger/streams/events/schemas"
)

func jsonSchema(t *testing.T, detailType string) map[string]any {
	t.Helper()
	text, ok := schemas.JSONSchema(detailType)
	if !ok {
		t.Fatalf("%s has no JSON Schema", detailType)
	}
	return object(t, text)
}

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func openAPI(t *testing.T, detailType string) *openapi3.T {
	t.Helper()
	text, ok := schemas.OpenAPI(detailType)
	if !ok {
		t.Fatalf("%s has no OpenAPI document", detailType)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatalf("%s: %v", detailType, err)
	}
	return doc
}

func envelope(detailType string, detail any) map[string]any {
	return map[string]any{
		"version": "0", "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718", "detail-type": detailType, "source": events.Source,
		"account": "111122223333", "time": "2026-11-30T18:30:15Z", "region": "eu-central-1", "resources": []any{}, "detail": detail,
	}
}

// Promise: every event type has both documents, and there are documents for no other; each is small enough for a registry.
func TestEveryTypeHasSchemas(t *testing.T) {
	var want []string
	for _, ev := range events.All() {
		want = append(want, ev.DetailType())
	}
	slices.Sort(want)
	if got := schemas.DetailTypes(); !slices.Equal(got, want) || len(got) != 23 {
		t.Errorf("documents for %v, types %v", got, want)
	}
	for _, name := range want {
		jsonSchema(t, name)
		if text, _ := schemas.OpenAPI(name); len(text) > 100_000 {
			t.Errorf("%s: %d bytes are too many for the registry", name, len(text))
		}
	}
	if _, ok := schemas.OpenAPI("ToolCallDreamt"); ok {
		t.Error("a document for a type that is none")
	}
	if name := schemas.RegistryName("QuotaLow"); name != "toolledger@QuotaLow" {
		t.Errorf("registry name %s", name)
	}
}

// Promise: the documented example of each event is the one of package events, and fits its schema with nothing left over.
func TestExamplesFit(t *testing.T) {
	for _, ev := range events.All() {
		name := ev.DetailType()
		if err := eventcheck.Event(ev); err != nil {
			t.Error(err)
		}
		detail, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		want := object(t, detail)
		examples, _ := jsonSchema(t, name)["examples"].([]any)
		if len(examples) != 1 || !reflect.DeepEqual(examples[0], any(want)) {
			t.Errorf("%s: documented as %v, package events has %v", name, examples, want)
		}
	}
}

// Promise: each document is valid OpenAPI 3.0, has the envelope that EventBridge's registry looks for, and takes the event
// as EventBridge delivers it. Its detail says what the JSON Schema says.
func TestOpenAPIForTheRegistry(t *testing.T) {
	for _, ev := range events.All() {
		name := ev.DetailType()
		doc := openAPI(t, name)
		if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		event := doc.Components.Schemas["AWSEvent"].Value
		if doc.OpenAPI != "3.0.0" || event.Extensions["x-amazon-events-detail-type"] != name || event.Extensions["x-amazon-events-source"] != events.Source {
			t.Errorf("%s: version %s, extensions %v", name, doc.OpenAPI, event.Extensions)
		}
		if event.Properties["detail"].Ref != "#/components/schemas/"+name {
			t.Errorf("%s: the detail is %s", name, event.Properties["detail"].Ref)
		}
		example := doc.Components.Schemas[name].Value.Example
		if err := event.VisitJSON(envelope(name, example)); err != nil {
			t.Errorf("%s: its example: %v", name, err)
		}
		for member := range envelope(name, example) {
			short := envelope(name, example)
			delete(short, member)
			if event.VisitJSON(short) == nil {
				t.Errorf("%s: taken without %s", name, member)
			}
		}
		sameDetail(t, name)
	}
}

// sameDetail compares the two documents of a type member by member, beside what their dialects write differently.
func sameDetail(t *testing.T, name string) {
	t.Helper()
	text, _ := schemas.OpenAPI(name)
	var doc struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	plain, api := jsonSchema(t, name), doc.Components.Schemas[name]
	for _, o := range []map[string]any{plain, api} {
		members, _ := o["properties"].(map[string]any)
		for _, m := range members {
			m, _ := m.(map[string]any)
			if m["type"] == "integer" { // the format says it in one of them
				delete(m, "format")
				maps.DeleteFunc(m, func(_ string, v any) bool { return v == float64(1<<63) || v == float64(-1<<63) })
			}
		}
	}
	for _, what := range []string{"type", "description", "required", "properties", "additionalProperties"} {
		if !reflect.DeepEqual(plain[what], api[what]) {
			t.Errorf("%s: %s differs between the documents", name, what)
		}
	}
}

// Promise: the schemas say what their events are and nothing less: every member is described, numbers have their range,
// sets that are closed are listed, and a subscriber's copy lets members of newer publishers pass.
func TestSchemasAreExact(t *testing.T) {
	for _, ev := range events.All() {
		name := ev.DetailType()
		s := jsonSchema(t, name)
		if s["description"] == "" || s["title"] != name || s["additionalProperties"] != true {
			t.Errorf("%s: %v, %v, %v", name, s["title"], s["description"], s["additionalProperties"])
		}
		members, _ := s["properties"].(map[string]any)
		for member, p := range members {
			p, _ := p.(map[string]any)
			if p["description"] == nil || p["type"] == nil {
				t.Errorf("%s.%s: %v", name, member, p)
			}
			if _, listed := p["enum"]; p["type"] == "integer" && !listed && (p["minimum"] == nil || p["maximum"] == nil) {
				t.Errorf("%s.%s has no range", name, member)
			}
		}
		for _, member := range []string{"id", "schema", "time"} {
			if required, _ := s["required"].([]any); !slices.Contains(required, any(member)) {
				t.Errorf("%s does not demand %s", name, member)
			}
		}
		newer := openAPI(t, name).Components.Schemas[name].Value
		example := maps.Clone(newer.Example.(map[string]any))
		example["hue"] = "red"
		if err := newer.VisitJSON(example); err != nil {
			t.Errorf("%s: a newer member is refused: %v", name, err)
		}
	}
}

// Promise: the check that other tests rely on sees a member that is missing, unknown, of another type, out of its range,
// not of its set, or not of its form.
func TestCheckSeesWhatDoesNotFit(t *testing.T) {
	var applied events.Event
	for _, ev := range events.All() {
		if ev.DetailType() == "ToolEffectApplied" {
			applied = ev
		}
	}
	detail, err := json.Marshal(applied)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(map[string]any){
		"unknown member":  func(o map[string]any) { o["arguments"] = "{}" },
		"missing":         func(o map[string]any) { delete(o, "result_sha256") },
		"missing in head": func(o map[string]any) { delete(o, "row_id") },
		"other type":      func(o map[string]any) { o["charged_tokens"] = "15" },
		"below its range": func(o map[string]any) { o["charged_tokens"] = -1 },
		"above its range": func(o map[string]any) { o["charged_tokens"] = float64(1 << 54) },
		"not of its set":  func(o map[string]any) { o["settled_by"] = "nobody" },
		"newer schema":    func(o map[string]any) { o["schema"] = 2 },
		"no hash":         func(o map[string]any) { o["result_sha256"] = strings.ToUpper(o["result_sha256"].(string)) },
		"no id":           func(o map[string]any) { o["id"] = "17" },
		"no tenant":       func(o map[string]any) { o["tenant"] = "a#b" },
		"no time":         func(o map[string]any) { o["time"] = "yesterday" },
		"null":            func(o map[string]any) { o["key"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, detail)
			edit(o)
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if eventcheck.Detail("ToolEffectApplied", text) == nil {
				t.Errorf("accepted: %s", text)
			}
		})
	}
	if err := eventcheck.Detail("ToolEffectApplied", detail); err != nil {
		t.Error(err)
	}
	if eventcheck.Detail("ToolCallDreamt", detail) == nil {
		t.Error("a type without a schema is accepted")
	}
}
