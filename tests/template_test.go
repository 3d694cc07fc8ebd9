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
		if want := `!Sub "` + metrics.DefaultNamespace + `/${AWS::StackName}"`; m[1] != want {
			t.Errorf("namespace %s, want %s", m[1], want)
		}
	}
}

// TestTemplateVersions: whatever parameter configures a function, another value of it is another version. Without that the alias
// that everybody calls would keep the old setting, and nothing would tell.
func TestTemplateVersions(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byHand := regexp.MustCompile(`(?m)^  Release:\n(?:    .*\n)*?    Description: (.*)$`).FindString(string(text)) // too long for a description
	var parameters []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(parametersTable(t, string(text)), -1) {
		parameters = append(parameters, m[1])
	}
	for name, part := range functions(t) {
		described := regexp.MustCompile(`(?m)^      VersionDescription: !Sub (.*)$`).FindString(part)
		configured := regexp.MustCompile(`(?m)^      MemorySize: .*\n|^        Variables:\n(?: {10}.*\n)+`).FindAllString(part, -1)
		refers := []string{"Architecture", "LogLevel", "Release"} // in Globals, and in every description
		for _, p := range parameters {
			if regexp.MustCompile(`(?:!Ref |\$\{)` + p + `\b`).MatchString(strings.Join(configured, "")) {
				refers = append(refers, p)
			}
		}
		if len(configured) != 2 {
			t.Errorf("%s: has the template another form? %q", name, configured)
		}
		for _, p := range refers {
			if !strings.Contains(described, "${"+p+"}") && !strings.Contains(byHand, p) {
				t.Errorf("%s: another %s makes no other version: VersionDescription must hold it", name, p)
			}
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

const (
	deployDoc       = "../docs/deploy.md"
	parametersBegin = "<!-- parameters:begin (go test ./tests -run TestDeployParameters -update) -->\n"
	parametersEnd   = "<!-- parameters:end -->"
)

// TestTemplateGroups: every parameter has one place on the page on which the console asks for them.
func TestTemplateGroups(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, _, _ := strings.Cut(string(text), "ParameterLabels:")
	for _, name := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(parametersTable(t, string(text)), -1) {
		if n := len(regexp.MustCompile(`\b`+name[1]+`\b`).FindAllString(groups, -1)); n != 1 {
			t.Errorf("parameter %s is in %d groups of AWS::CloudFormation::Interface", name[1], n)
		}
	}
}

// TestDeployParameters: the document of the deployment says what each parameter of the template does, as the template says it.
func TestDeployParameters(t *testing.T) {
	template, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(deployDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), parametersBegin)
	_, after, ok2 := strings.Cut(rest, parametersEnd)
	if !ok || !ok2 {
		t.Fatal("docs/deploy.md has no place for the table of parameters")
	}
	want := before + parametersBegin + parametersTable(t, string(template)) + parametersEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatal("the table of parameters in docs/deploy.md is not that of template.yaml; run this test with -update")
	}
	if err := os.WriteFile(deployDoc, []byte(want), 0o644); err != nil { //nolint:gosec // a document that everybody reads
		t.Fatal(err)
	}
}

func parametersTable(t *testing.T, template string) string {
	t.Helper()
	_, rest, _ := strings.Cut(template, "\nParameters:\n")
	section := rest[:max(0, regexp.MustCompile(`(?m)^\w`).FindStringIndex(rest + "\nend")[0])]
	entries := regexp.MustCompile(`(?m)^  (\w+):\n((?:    .*\n)+)`).FindAllStringSubmatch(section, -1)
	if len(entries) < 20 {
		t.Fatalf("found %d parameters: has the template another form?", len(entries))
	}
	var b strings.Builder
	b.WriteString("| parameter | default | values | what it does |\n| --- | --- | --- | --- |\n")
	for _, e := range entries {
		field := func(name string) string {
			m := regexp.MustCompile(`(?m)^    ` + name + `: (.*)$`).FindStringSubmatch(e[2])
			if m == nil {
				return ""
			}
			return strings.Trim(m[1], `"[]`)
		}
		values := strings.ReplaceAll(field("AllowedValues"), `"`, "")
		if low, high := field("MinValue"), field("MaxValue"); low != "" && high != "" {
			values = low + " to " + high
		} else if low != "" {
			values = "from " + low
		}
		if field("Description") == "" || !strings.Contains(e[2], "    Default: ") {
			t.Errorf("%s has no description, or no default", e[1])
		}
		b.WriteString("| `" + e[1] + "` | " + field("Default") + " | " + values + " | " + strings.ReplaceAll(field("Description"), "|", `\|`) + " |\n")
	}
	return b.String()
}
