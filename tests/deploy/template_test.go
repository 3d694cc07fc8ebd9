// Package deploy_test proves the deployment as far as a machine without an AWS account can: a ladder of checks over
// template.yaml, each catching what the one before misses.
package deploy_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestTemplateLint is the first rung: cfn-lint finds nothing in template.yaml.
func TestTemplateLint(t *testing.T) {
	t.Parallel()
	for _, f := range ask(t, question{Op: "lint", Template: templateText(t)}).Findings {
		t.Error(f)
	}
}

// TestTemplateTransforms is the second rung: CloudFormation's own transform takes the template for every stage and
// architecture, whatever is switched on, and cfn-lint finds nothing in what comes out, with the rules that it keeps off for
// templates of SAM.
func TestTemplateTransforms(t *testing.T) {
	t.Parallel()
	sam := parsed(t)
	for i, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			// The linter looks at all branches of all conditions at once: once for a stage and architecture is enough.
			for _, f := range transformFindings(t, sam, v, i/doors == i%doors || i/doors == i%doors+doors) {
				t.Error(f)
			}
		})
	}
}

// transformFindings are the second rung's on one variant.
func transformFindings(t *testing.T, sam object, v variant, lint bool) []finding {
	t.Helper()
	out, findings := transform(t, sam, v.params)
	if len(findings) > 0 || !lint {
		return findings
	}
	return ask(t, question{Op: "lint", Template: text(t, out)}).Findings
}

// TestTemplateRules is the third rung: every stack that can be deployed keeps the promises that no linter knows.
func TestTemplateRules(t *testing.T) {
	t.Parallel()
	sam := parsed(t)
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			out, findings := transform(t, sam, v.params)
			for _, f := range append(findings, judge(look(t, v, sam, out))...) {
				t.Error(f)
			}
		})
	}
}

// TestTemplateSchemasAreOpenAPI: the event registry refuses a schema that is not, and with it the deployment.
func TestTemplateSchemasAreOpenAPI(t *testing.T) {
	t.Parallel()
	n := 0
	for id, r := range child(parsed(t), "Resources") {
		o := asObject(r)
		if o["Type"] != "AWS::EventSchemas::Schema" {
			continue
		}
		n++
		content := str(dig(o, "Properties", "Content"))
		switch kind := str(dig(o, "Properties", "Type")); kind {
		case "OpenApi3":
			for _, f := range ask(t, question{Op: "openapi", Template: content}).Findings {
				t.Errorf("%s: %v", id, f)
			}
		case "JSONSchemaDraft4":
			if !json.Valid([]byte(content)) || !strings.Contains(content, "draft-04") {
				t.Errorf("%s: no schema of draft 4", id)
			}
		default:
			t.Errorf("%s: type %s", id, kind)
		}
	}
	if n == 0 {
		t.Error("the template has no event schemas")
	}
}
