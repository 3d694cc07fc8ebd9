package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"toolledger/streams/events/schemas"
)

// SchemasYAML is the region of the schemas: a registry, and in it the OpenAPI document of every event.
func SchemasYAML() (string, error) {
	var b strings.Builder
	b.WriteString(`  EventRegistry:
    Type: AWS::EventSchemas::Registry
    Properties:
      RegistryName: !Sub "${AWS::StackName}-events"
      Description: Every event that toolledger publishes.
`)
	for _, name := range schemas.DetailTypes() {
		document, ok := schemas.OpenAPI(name)
		if !ok {
			return "", fmt.Errorf("%w: no document of %s", ErrTemplate, name)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, document); err != nil {
			return "", fmt.Errorf("%w: document of %s: %w", ErrTemplate, name, err)
		}
		fmt.Fprintf(&b, `  %sSchema:
    Type: AWS::EventSchemas::Schema
    Properties:
      RegistryName: !GetAtt EventRegistry.RegistryName
      SchemaName: %s
      Type: OpenApi3
      Content: |-
        %s
`, name, schemas.RegistryName(name), line.String())
	}
	return b.String(), nil
}
