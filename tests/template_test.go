package tests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolledger/internal/schema"
	"toolledger/metrics"
)

// TestTemplateProjection: the deployed index holds what the code reads from it, and DynamoDB accepts so many names.
func TestTemplateProjection(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)NonKeyAttributes:\n((?:\s+- \w+\n)+)`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("template.yaml has no projection")
	}
	got := strings.Fields(strings.ReplaceAll(m[1], "- ", ""))
	if want := schema.PendingProjection(); !slices.Equal(got, want) {
		t.Errorf("template.yaml projects %v, the code %v", got, want)
	}
	if len(got) > 20 {
		t.Errorf("%d attributes: DynamoDB takes 20", len(got))
	}
}

// programs are the functions of template.yaml and the main packages that they are built from.
var programs = map[string]string{
	"WriterHttpFunction": "writers/lambda", "WriterDirectFunction": "writers/lambda", "AdminFunction": "writers/lambda",
	"BedrockFunction": "examples/tickets", "AgentCoreFunction": "examples/tickets", "SubscriberFunction": "examples/subscriber",
	"StreamFunction": "streams/lambda", "SweeperFunction": "sweeper/lambda",
}

// functions are the parts of template.yaml that say what each function is.
func functions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		if m := regexp.MustCompile(`(?m)^  (\w+):\n    Type: AWS::Serverless::Function\n`).FindStringSubmatch(part); m != nil {
			out[m[1]] = part
		}
	}
	if len(out) != len(programs) {
		t.Fatalf("found %d functions, want %d: has the template another form?", len(out), len(programs))
	}
	return out
}

// TestTemplateEnvironment: every variable that the template gives a function is one that its own program reads, under that very
// name: a misspelt one stops it when it starts, or leaves it with a default that nobody chose.
func TestTemplateEnvironment(t *testing.T) {
	for name, part := range functions(t) {
		read := ""
		files, err := filepath.Glob("../" + programs[name] + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no program %q: %v", name, programs[name], err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read += string(source)
		}
		m := regexp.MustCompile(`(?m)^        Variables:\n((?:^ {10}(?:#.*|\w+: .*)\n)+)`).FindStringSubmatch(part)
		if m == nil {
			t.Errorf("%s has no variables", name)
			continue
		}
		for _, v := range regexp.MustCompile(`(?m)^ +(\w+): `).FindAllStringSubmatch(m[1], -1) {
			if !strings.HasPrefix(v[1], "GO") && !strings.Contains(read, `"`+v[1]+`"`) {
				t.Errorf("%s: %s does not read %s", name, programs[name], v[1])
			}
		}
	}
}

// TestTemplateNamespace: the functions count under the namespace that their roles let them count under, and that the dashboard
// and the alarms look at.
func TestTemplateNamespace(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`METRICS_NAMESPACE: (.+)\n`).FindAllStringSubmatch(string(text), -1)
	fenced := regexp.MustCompile(`"cloudwatch:namespace": (.+) }\n`).FindAllStringSubmatch(string(text), -1)
	if len(named) != 2 || len(fenced) != 2 {
		t.Fatalf("%d functions name a namespace, %d roles fence one: want 2 and 2", len(named), len(fenced))
	}
	for _, m := range slices.Concat(named, fenced) {
		if m[1] != metrics.DefaultNamespace {
			t.Errorf("namespace %s, want %s", m[1], metrics.DefaultNamespace)
		}
	}
}

// TestTemplateBuild: each function has a target of the Makefile that builds its own program.
func TestTemplateBuild(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name := range functions(t) {
		rule := regexp.MustCompile(`(?m)^(?:build-\w+ )*build-` + name + `(?: build-\w+)*:\n\t.* \./(\S+)$`).FindStringSubmatch(string(makefile))
		if rule == nil || rule[1] != programs[name] {
			t.Errorf("%s is built by %q, want %s", name, rule, programs[name])
		}
	}
}
