package tests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
	"toolledger/sweeper"
	"toolledger/writers"
)

// transcriptStep is one command of a transcript and what it prints.
type transcriptStep struct {
	line    int
	command string
	code    int
	output  []string
}

var exitNote = regexp.MustCompile(`\s+# exits with (\d+)$`)

// transcript reads the console blocks of a page.
func transcript(t *testing.T, file string) (steps []transcriptStep) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "```console":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside && strings.HasPrefix(line, "$ "):
			step := transcriptStep{line: n + 1, command: strings.TrimPrefix(line, "$ ")}
			if note := exitNote.FindStringSubmatch(step.command); note != nil {
				step.command = strings.TrimSuffix(step.command, note[0])
				_, _ = fmt.Sscan(note[1], &step.code)
			}
			steps = append(steps, step)
		case inside && len(steps) > 0:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

// matches tells whether the lines printed are those of the transcript: "…" alone stands for any lines, within a line for
// any text.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == "…" {
		return matches(want[1:], got) || len(got) > 0 && matches(want, got[1:])
	}
	return len(got) > 0 && matchesLine(want[0], got[0]) && matches(want[1:], got[1:])
}

func matchesLine(want, got string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// incident makes the ledger of the transcript: two calls that a sweep gave to a person, and one that none has taken since.
func incident(t *testing.T, file string) {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{DataFile: file})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	db := dynamodb.NewFromConfig(srv.AWSConfig())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = stack.CreateTables(t.Context(), db, "toolledger", "toolledger-control", true)
	must(err)
	at := func(d time.Duration) *writers.Ledger {
		l, err := writers.New(db, writers.Config{Table: "toolledger", Now: func() time.Time { return time.Now().Add(-d) }})
		must(err)
		return l
	}
	must(at(3*time.Hour).Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 1000, Period: writers.Always}))
	reserve := func(ago time.Duration, session string, c writers.Call) {
		_, _, err := at(ago).Tenant("acme").Session(session).Reserve(t.Context(), c)
		must(err)
	}
	flight := writers.Call{Key: writers.SessionKey("plan-3/step-1"), Tool: "book_flight", Tokens: 20, Lookup: "LH 400, 3 December, seat 12A"}
	reserve(2*time.Hour, "conversation-17", flight)
	flight.Key, flight.Lookup = writers.SessionKey("plan-1/step-2"), "BA 9, 27 November"
	reserve(110*time.Minute, "conversation-18", flight)
	s, err := sweeper.New(at(100*time.Minute), sweeper.Config{})
	must(err)
	report, err := s.Run(t.Context())
	must(err)
	if report.Held != 2 {
		t.Fatalf("%+v", report)
	}
	status := writers.Call{Key: writers.SessionKey("plan-2/step-1"), Tool: "set_status", Tokens: 20, Idempotent: true}
	reserve(30*time.Minute, "conversation-19", status)
}

// Promise: the on-call page is true: from an alarm to balanced books, every command prints what the page shows.
func TestOnCall(t *testing.T) {
	dynoxide, err := stack.Find(stack.Config{})
	if err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	incident(t, filepath.Join(dir, "ledger.db"))
	steps := transcript(t, filepath.Join("..", "docs", "oncall.md"))
	if len(steps) < 12 {
		t.Fatalf("%d commands in the transcript", len(steps))
	}
	for _, step := range steps {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", step.command) //nolint:gosec // the page's own commands
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+strings.Join([]string{filepath.Dir(path), filepath.Dir(dynoxide), os.Getenv("PATH")}, string(os.PathListSeparator)))
		out, _ := cmd.CombinedOutput()
		got := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
		if code := cmd.ProcessState.ExitCode(); code != step.code || !matches(step.output, got) {
			t.Fatalf("docs/oncall.md:%d: $ %s\nexit code %d, want %d; it prints\n%s\nthe page says\n%s", step.line, step.command, code,
				step.code, strings.Join(got, "\n"), strings.Join(step.output, "\n"))
		}
	}
}

// Promise: the comparison of a page with the program can fail.
func TestTranscriptNotices(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		same      bool
	}{
		{"a\n…\nb", "a\nx\ny\nb", true},
		{"a\n…\nb", "a\nb", true},
		{"a …, c", "a 17, c", true},
		{"a …, c", "a 17, d", false},
		{"a\nb", "a", false},
		{"a", "a\nb", false},
		{"a.c", "abc", false},
		{"…\nb", "a\nc", false},
	} {
		if got := matches(strings.Split(tt.want, "\n"), strings.Split(tt.got, "\n")); got != tt.same {
			t.Errorf("%q against %q: %v", tt.want, tt.got, got)
		}
	}
}
