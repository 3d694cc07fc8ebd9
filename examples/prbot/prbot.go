// Package prbot opens a pull request once, at a forge that knows no idempotency keys.
package prbot

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"toolledger/writers"
)

// Args is what the model fills in.
type Args struct {
	Repo   string `json:"repo" jsonschema:"the repository as owner/name"`
	Branch string `json:"branch" jsonschema:"a pushed branch, to be merged"`
	Title  string `json:"title" jsonschema:"one line"`
}

// PR is an open pull request.
type PR struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
}

// Forge hosts the code.
type Forge interface {
	// Open creates a pull request. ErrRefused says that it surely did not; any other error says nothing.
	Open(ctx context.Context, repo, branch, title string) (PR, error)
	// FindByBranch looks for the pull request of a branch.
	FindByBranch(ctx context.Context, repo, branch string) (PR, bool, error)
}

// ErrRefused is returned by Forge.Open where the forge answered with a 4xx status.
var ErrRefused = errors.New("prbot: the forge refused")

// New returns the tool.
func New(forge Forge) *writers.Tool[Args, PR] {
	b := bot{forge}
	return &writers.Tool[Args, PR]{
		Name:        "create_pull_request",
		Description: "Open a pull request for a branch that has been pushed.",
		Cost:        20,
		Timeout:     45 * time.Second,
		Lookup:      func(a Args) string { return a.Repo + " " + a.Branch },
		Act:         b.open,
		Verify:      b.find,
	}
}

type bot struct{ forge Forge }

var (
	errName  = errors.New("prbot: repo must be owner/name, and branch a branch's name")
	repoName = regexp.MustCompile(`^[\w-][\w.-]*/[\w-][\w.-]*$`)
)

// open asks the forge. What a model wrote becomes a path and is looked up again by Lookup, so it must be names and no more.
func (b bot) open(ctx context.Context, a writers.Attempt[Args]) (PR, error) {
	if !repoName.MatchString(a.Args.Repo) || a.Args.Branch == "" || strings.ContainsFunc(a.Args.Branch, unicode.IsSpace) {
		return PR{}, writers.NotApplied(errName)
	}
	pr, err := b.forge.Open(ctx, a.Args.Repo, a.Args.Branch, a.Args.Title)
	if errors.Is(err, ErrRefused) {
		return PR{}, writers.NotApplied(err)
	}
	return pr, err
}

// find has no arguments, only what Lookup kept: open lets no space into a repository's name nor into a branch's.
func (b bot) find(ctx context.Context, c writers.CallInfo) (PR, writers.Verdict, error) {
	repo, branch, _ := strings.Cut(c.Lookup, " ")
	pr, found, err := b.forge.FindByBranch(ctx, repo, branch)
	if err != nil {
		return PR{}, writers.EffectUnknown, err
	}
	if found {
		return pr, writers.EffectApplied, nil
	}
	return PR{}, writers.EffectAbsent, nil
}

// Step is one step of a workflow that has pushed a branch. An error asks the orchestrator to come back with the same key;
// everything that would be the same next time is an answer.
func Step(ctx context.Context, tool *writers.Tool[Args, PR], s writers.Session, planKey string, args Args) (string, error) {
	pr, err := tool.Do(ctx, s, writers.SessionKey(planKey), args, func(c *writers.Call) {
		c.ExpectCursor, c.Cursor = new("branch-pushed"), "pr-opened"
		c.Wait = 10 * time.Second
	})
	if e, ok := errors.AsType[*writers.Error](err); ok && e.RetryAfter == 0 && pr.Outcome == "" {
		if e.Code == writers.ErrOutcomeUnknown {
			return "not known, a person has to look: " + e.Error(), nil
		}
		return "not done: " + e.Error(), nil
	}
	if err != nil && pr.Outcome == "" { // with an outcome it is recorded, though the session has moved on meanwhile
		return "", err
	}
	return fmt.Sprintf("#%d %s (%s)", pr.Value.Number, pr.Value.URL, pr.Outcome), nil
}
