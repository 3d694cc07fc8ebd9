package tests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolledger/internal/schema"
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

// TestTemplateEnvironment: every variable that the template gives a function is one that a function reads, under that very
// name: a misspelt one stops it when it starts, or leaves it with a default that nobody chose.
func TestTemplateEnvironment(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read := ""
	mains, err := filepath.Glob("../*/lambda/*.go")
	if err != nil || len(mains) == 0 {
		t.Fatal("no functions", err)
	}
	for _, name := range mains {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		read += string(source)
	}
	sections := regexp.MustCompile(`(?m)^( +)Variables:\n((?:^ +(?:#.*|\w+: .*)\n)+)`).FindAllStringSubmatch(string(text), -1)
	n := 0
	for _, s := range sections {
		for _, v := range regexp.MustCompile(`(?m)^`+s[1]+`  (\w+): `).FindAllStringSubmatch(s[2], -1) {
			n++
			if name := v[1]; !strings.HasPrefix(name, "GO") && !strings.Contains(read, `"`+name+`"`) {
				t.Errorf("no function reads %s", name)
			}
		}
	}
	if n < 8 {
		t.Errorf("found %d variables only: has the template another form?", n)
	}
}
