package tests_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v4"

	"toolledger/writers/api"
)

// TestDoorsHaveTimeToWait: every function of the template that is a door lives long enough for the longest wait that its requests may
// ask for, and not so long that the gateway in front gives up first.
func TestDoorsHaveTimeToWait(t *testing.T) {
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Resources map[string]struct {
			Type       string `yaml:"Type"`
			Properties struct {
				Timeout     int `yaml:"Timeout"`
				Environment struct {
					Variables map[string]any `yaml:"Variables"`
				} `yaml:"Environment"`
			} `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	longest := int(api.MaxWait.Seconds()) + 6 // MaxWait is four fifths of what a request has
	doors := 0
	for name, r := range doc.Resources {
		door, ok := r.Properties.Environment.Variables["DOOR"]
		if r.Type != "AWS::Serverless::Function" || !ok {
			continue
		}
		doors++
		if r.Properties.Timeout < longest || r.Properties.Timeout > 29 {
			t.Errorf("%s (%v) has %d s: want %d to 29", name, door, r.Properties.Timeout, longest)
		}
	}
	if doors == 0 {
		t.Error("the template has no door")
	}
}
