package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRunbookCommands: every command that the runbook tells somebody to type at night exists, with every flag that it names.
func TestRunbookCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile("(?m)(?:^\\s*|`)toolledger ([a-z][^`\n]*)").FindAllStringSubmatch(string(text), -1) {
		n++
		root := newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard))
		cmd, rest, err := root.Find(strings.Fields(m[1]))
		if err != nil || cmd == root {
			t.Errorf("toolledger %s: there is no such command", m[1])
			continue
		}
		for _, word := range rest {
			name, isFlag := strings.CutPrefix(word, "--")
			name, _, _ = strings.Cut(name, "=")
			if isFlag && cmd.Flags().Lookup(name) == nil && root.PersistentFlags().Lookup(name) == nil {
				t.Errorf("toolledger %s: %s has no flag --%s", m[1], cmd.Name(), name)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d commands found", n)
	}
}
