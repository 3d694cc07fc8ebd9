// Package schemas holds the schemas of all events: for each a JSON Schema (draft 2020-12) of its detail, and an OpenAPI 3.0
// document of the whole event as EventBridge's schema registry keeps it. They are generated from the types of package events and
// lie beside this file. It imports the standard library only.
//
// The schemas are open: an event may have members that its schema does not name, from a newer publisher.
package schemas

//go:generate go run ../internal/schemagen -types .. -out .

import (
	"embed"
	"slices"
	"strings"

	"toolledger/streams/events"
)

//go:embed *.json
var files embed.FS

const (
	jsonSuffix    = ".schema.json"
	openAPISuffix = ".openapi.json"
)

// JSONSchema returns the JSON Schema of the detail of events of the type, or false for a type that this package does not
// know. The caller may change what it gets.
func JSONSchema(detailType string) ([]byte, bool) { return read(detailType + jsonSuffix) }

// OpenAPI returns the OpenAPI 3.0 document of events of the type, which is the content of an AWS::EventSchemas::Schema of
// type OpenApi3, or false for a type that this package does not know. The caller may change what it gets.
func OpenAPI(detailType string) ([]byte, bool) { return read(detailType + openAPISuffix) }

func read(name string) ([]byte, bool) {
	b, err := files.ReadFile(name)
	return b, err == nil
}

// DetailTypes returns the types that there are schemas for, sorted.
func DetailTypes() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil
	}
	var types []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), openAPISuffix); ok {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}

// RegistryName returns the name under which a registry of EventBridge looks for the schema of a type: source and type.
func RegistryName(detailType string) string { return events.Source + "@" + detailType }
