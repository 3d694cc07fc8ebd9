package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"toolledger/writers"
)

// doc is the served document, as plain values.
func doc(t testing.TB) map[string]any {
	t.Helper()
	var d map[string]any
	if err := yaml.Unmarshal(OpenAPI(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// at walks into nested maps; "$ref" on the way is followed.
func at(t testing.TB, d map[string]any, path ...string) map[string]any {
	t.Helper()
	cur := d
	for _, name := range path {
		next, ok := cur[name].(map[string]any)
		if !ok {
			t.Fatalf("the document has no %q in %q", name, path)
		}
		cur = next
		if ref, ok := cur["$ref"].(string); ok && len(cur) == 1 {
			cur = at(t, d, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return cur
}

func sortedStrings(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, e := range list {
		s, _ := e.(string)
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// TestDocumentHasTheRoutes: every route is in the document and nothing else is.
func TestDocumentHasTheRoutes(t *testing.T) {
	var want, got []string
	for _, rt := range routes() {
		want = append(want, rt.method+" "+rt.path)
	}
	for path, methods := range at(t, doc(t), "paths") {
		m, ok := methods.(map[string]any)
		if !ok {
			t.Fatal(path)
		}
		for method := range m {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("code     %q\ndocument %q", want, got)
	}
}

// TestDocumentHasTheFields: every operation takes the fields that its document says, and requires the same ones.
func TestDocumentHasTheFields(t *testing.T) {
	d := doc(t)
	used := map[string]bool{}
	for _, op := range operations() {
		schema := at(t, d, "paths", "/v1/"+op.name, "post", "requestBody", "content", "application/json", "schema")
		code := slices.Sorted(slices.Values(slices.Concat(op.required, op.optional)))
		if document := sortedNames(at(t, schema, "properties")); !slices.Equal(code, document) {
			t.Errorf("%s: code %q, document %q", op.name, code, document)
		}
		if document := sortedStrings(schema["required"]); !slices.Equal(slices.Sorted(slices.Values(op.required)), document) {
			t.Errorf("%s requires %q, document %q", op.name, op.required, document)
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the document allows other fields", op.name)
		}
		for _, name := range code {
			used[name] = true
		}
	}
	if fields := sortedNames((&request{}).fields()); !slices.Equal(fields, sortedNames(used)) {
		t.Errorf("fields %q, used %q", fields, sortedNames(used))
	}
	plan := at(t, d, "paths", "/v1/tenants/{tenant}/plan", "put", "requestBody", "content", "application/json", "schema", "properties")
	if fields := sortedNames((&planDoc{}).fields()); !slices.Equal(fields, sortedNames(plan)) {
		t.Errorf("plan: code %q, document %q", fields, sortedNames(plan))
	}
}

// TestDocumentHasTheMembers: what is answered has exactly the members that the document describes.
func TestDocumentHasTheMembers(t *testing.T) {
	d := doc(t)
	for name, v := range map[string]any{"Answer": answer{}, "Call": callDoc{}, "Problem": problem{}, "Plan": planDoc{}} {
		var code, required []string
		for f := range reflect.TypeOf(v).Fields() {
			if tag, options, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				code = append(code, tag)
				if options == "" {
					required = append(required, tag)
				}
			}
		}
		if name == "Answer" || name == "Call" {
			code = append(code, "result") // put in by hand, as stored
		}
		schema := at(t, d, "components", "schemas", name)
		if document := sortedNames(at(t, schema, "properties")); !slices.Equal(slices.Sorted(slices.Values(code)), document) {
			t.Errorf("%s: code %q, document %q", name, code, document)
		}
		if document := sortedStrings(schema["required"]); !slices.Equal(slices.Sorted(slices.Values(required)), document) {
			t.Errorf("%s always has %q, document %q", name, required, document)
		}
	}
}

// TestDocumentHasTheCodes: every code of the ledger and of HTTP is in the document with its status.
func TestDocumentHasTheCodes(t *testing.T) {
	d := doc(t)
	schema := at(t, d, "components", "schemas", "Problem")
	own := map[string]int{codeForbidden: 403, codeMethod: 405, codeMediaType: 415, codeInternal: 500}
	want := maps.Clone(own)
	for code, status := range statuses() {
		want[string(code)] = status
	}
	table, _ := schema["description"].(string)
	for code, status := range want {
		if !strings.Contains(table, "| "+code+" | "+jsonOf(t, status)+" |") {
			t.Errorf("the table does not say that %s is %d", code, status)
		}
		if titles()[writers.Code(code)] == "" && own[code] == 0 {
			t.Errorf("%s has no title", code)
		}
	}
	listed := sortedStrings(at(t, schema, "properties", "code")["enum"])
	if !slices.Equal(listed, slices.Sorted(maps.Keys(want))) {
		t.Errorf("document %q, code %q", listed, sortedNames(want))
	}
	responses := at(t, d, "paths", "/v1/commit", "post", "responses")
	for code, status := range want {
		if code == codeForbidden {
			continue
		}
		if responses[jsonOf(t, status)] == nil {
			t.Errorf("POST answers no %d", status)
		}
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
