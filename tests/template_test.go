package tests_test

import (
	"os"
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
