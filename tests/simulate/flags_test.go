package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolledger/internal/stack"
)

// Promise: what cannot be run is refused before anything runs, by an error that names the flag; nothing runs no worlds and says that all is
// well.
func TestFlagsRefused(t *testing.T) {
	for _, tt := range []struct{ args, names string }{
		{"--seed 18446744073709551615 --seeds 2", "--seed"},
		{"--seeds 0", "--seeds"},
		{"--seeds 99999999999", "--seeds"},
		{"--steps -1", "--steps"},
		{"--steps 1000000000", "--steps"},
		{"--profile rough", "rough"},
		{"--aim nothing", "settle late"},
		{"--aim settle_late,_held", "released"},
		{"--aim finalize --profile storm", "--aim"},
		{"--parallel 4 --profile aimed", "--parallel"},
		{"--per-store 0", "--per-store"},
		{"--put 12/3", "--put"},
		{"--put 12/3foo,answer lost", "12/3foo"},
		{"--put 0/1,answer lost", "0/1"},
		{"--put 1/2,earthquake", "earthquake"},
		{"--coverage " + filepath.Join(t.TempDir(), "no-such-folder", "table.txt"), "--coverage"},
		{"more", "more"},
	} {
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(strings.ReplaceAll(args[i], ",_", ", "), "_", " ")
			if args[0] == "--put" {
				args[i] = strings.ReplaceAll(args[i], ",", " ")
			}
		}
		if strings.HasPrefix(tt.args, "--put") && len(args) > 2 {
			args = []string{"--put", strings.Join(args[1:], " ")}
		}
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("%s: got %v, want an error that names %s", tt.args, err, tt.names)
		}
	}
	table := filepath.Join(t.TempDir(), "table.txt")
	if _, err := parse([]string{"--coverage", table}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(table); err == nil {
		t.Error("a table was written before anything ran")
	}
}

// Promise: figures of coverage that no campaign has written are not counted.
func TestFiguresRefused(t *testing.T) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"Runs":3}`, `{"runs":"3"}`, `{"Other":1}`,
		`{"Runs":0,"Cells":[{"Fault":"a","Operation":"b","State":"c","Count":1}]}`,
		`{"Runs":1,"Cells":[{"Fault":"a","Operation":"b","State":"c","Count":-1}]}`,
		`{"Runs":1,"Cells":[{"Fault":"","Operation":"b","State":"c","Count":1}]}`,
	} {
		name := filepath.Join(t.TempDir(), "figures.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := newTotal().read(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names the file", text, err)
		}
	}
}

// Promise: a fault that is put where no request comes is told, and no run without it passes for one with it.
func TestPutIsMissed(t *testing.T) {
	f := &flags{seed: 1, seeds: 1, steps: 5, profile: "calm", profileSelected: profiles[calm], perStore: 1}
	var err error
	if f.putSelected, err = parsePuts("99999/1 answer lost"); err != nil {
		t.Fatal(err)
	}
	s := newSession(1)
	defer s.close()
	cfg := config{seed: 1, steps: 5, profile: profiles[calm], put: f.putSelected}
	err = f.one(t, s, newTotal(), cfg)
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "99999/1") {
		t.Errorf("got %v, want an error that names the request", err)
	}
}

// Promise: what the README and the help tell to aim at can be aimed at.
func TestToldAimsAreTaken(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	help, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	aims := regexp.MustCompile("(?:--aim|as in) \"([a-z ]+, [a-z ]+)\"").FindAllStringSubmatch(string(text)+string(help), -1)
	if len(aims) < 2 {
		t.Errorf("%d aims are told of, want 2", len(aims))
	}
	for _, aim := range aims {
		if _, err := parse([]string{"--aim", aim[1]}); err != nil {
			t.Error(err)
		}
	}
}
