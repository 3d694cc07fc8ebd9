package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"toolledger/internal/schema"
	"toolledger/sweeper"
	"toolledger/writers"
)

// eraseFlags is what a command line says about an erasure.
type eraseFlags struct {
	dryRun    bool
	segments  int
	verifiers []string
}

// eraseResult is what erase prints with --json.
type eraseResult struct {
	place
	Tenant  string  `json:"tenant"`
	Seconds float64 `json:"seconds"`
	writers.ErasureReport
}

func newEraseCommand(a *app) *cobra.Command {
	f := &eraseFlags{}
	cmd := &cobra.Command{
		Use: "erase TENANT", GroupID: groupMend, Args: names("TENANT"),
		Short: "Remove everything of a tenant that leaves: from both tables and the result store",
		Long: `Removes everything of a tenant: rows, their results, observations, sessions, quota items, the plan and the grants. It looks
first, and refuses as long as a call is pending, may still land, or failed without anybody knowing whether it took effect;
nothing is erased then, and the report says what is in the way and until when. Else the tenant is suspended and erased.
It may be stopped, or killed, at any time: run it again, and it goes on. It reads the whole ledger table twice.
Afterwards a key that is used again is a new action, and a late worker's effect makes its row anew.`,
		Example: `  toolledger erase acme --dry-run --region eu-west-1 --table toolledger
  toolledger erase acme --results s3://ledger-results/results --region eu-west-1 --table toolledger --why "contract ended"`,
	}
	o := addMender(cmd)
	o.addResults()
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what there is and what is in the way, change nothing")
	flags.IntVar(&f.segments, "segments", auditSegments, "read the table in `N` parts at once, at most 64")
	flags.StringArrayVar(&f.verifiers, "verifier", nil, "`TOOL=FUNCTION` to ask about calls of which nobody knows; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.erase(cmd.Context(), o, f, args[0]) }
	return cmd
}

func (a *app) erase(ctx context.Context, o *operator, f *eraseFlags, tenant string) error {
	if f.segments < 1 || f.segments > 64 {
		return badInput("--segments %d: want 1 to 64", f.segments)
	}
	functions, err := parseVerifiers(f.verifiers)
	if err != nil {
		return err
	}
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	cfg := writers.Erasure{Scan: b.client, Segments: f.segments, By: o.by, Why: o.why, DryRun: f.dryRun}
	if len(functions) > 0 {
		if cfg.Verify, err = eraseVerifier(b.location, functions); err != nil {
			return badInput("%w", err)
		}
	}
	if !f.dryRun {
		if err := a.confirm(ctx, o, "erase everything of tenant "+tenant); err != nil {
			return err
		}
	}
	bar := a.progress("looking for items of "+printable(tenant), 0)
	done := 0
	cfg.Progress = func(r writers.ErasureReport) {
		if n := r.Erased.Sum(); n > done {
			bar.Message(fmt.Sprintf("erasing %s, %d of %d items", printable(tenant), n, r.Found.Sum()))
			bar.Add(int64(n - done))
			done = n
		}
	}
	began := a.now()
	report, err := b.ledger.Tenant(writers.TenantID(tenant)).Erase(ctx, cfg)
	bar.Done()
	r := eraseResult{b.place, tenant, a.now().Sub(began).Seconds(), report}
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.printErase(r, err)
	}
	if report.Blocked > 0 {
		return broken("%w", err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		a.print("what is erased stays erased: run it again to go on\n")
	}
	return refused(ctx, err)
}

// verifyTime bounds one question to a verifier.
const verifyTime = 10 * time.Second

// eraseVerifier asks the functions that the sweeper would ask.
func eraseVerifier(l *location, functions map[string]string) (func(context.Context, writers.CallInfo) (json.RawMessage, writers.Verdict, error), error) {
	ask, err := remoteVerifiers(l, functions)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, c writers.CallInfo) (json.RawMessage, writers.Verdict, error) {
		ctx, cancel := context.WithTimeout(ctx, verifyTime)
		defer cancel()
		scope := schema.ScopeSession
		if c.Key == writers.TenantKey(c.Key.String()) {
			scope = schema.ScopeTenant
		}
		answer, err := ask(ctx, sweeper.VerifyRequest{
			Tenant: string(c.Tenant), Session: c.Session, Key: c.Key.String(), Scope: string(scope), Tool: c.Tool, RowID: c.RowID,
			Attempt: c.Attempt, EffectKey: c.EffectKey, Lookup: c.Lookup, ReservedAt: c.ReservedAt, Deadline: c.Deadline,
		})
		if err != nil || answer.Verdict != "applied" {
			return nil, writers.EffectUnknown, err
		}
		if len(answer.Result) == 0 {
			answer.Result = json.RawMessage("null")
		}
		return answer.Result, writers.EffectApplied, nil
	}, nil
}

// printErase shows a report to a person. Nothing found says nothing where the look itself failed or met what it cannot read.
func (a *app) printErase(r eraseResult, err error) {
	if r.Found.Sum() == 0 && r.Results == 0 && r.Blocked == 0 {
		if err == nil {
			a.print("there is nothing of tenant %s here\n", printable(r.Tenant))
		}
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"of tenant " + printable(r.Tenant), "found", "erased"})
	for _, line := range []struct {
		what          string
		found, erased int
	}{
		{"calls", r.Found.Rows, r.Erased.Rows},
		{"observations", r.Found.Observations, r.Erased.Observations},
		{"sessions", r.Found.Sessions, r.Erased.Sessions},
		{"quota items", r.Found.QuotaItems, r.Erased.QuotaItems},
		{"plan", r.Found.Plans, r.Erased.Plans},
		{"grants", r.Found.Grants, r.Erased.Grants},
	} {
		t.AppendRow(table.Row{line.what, line.found, line.erased})
	}
	t.AppendRow(table.Row{"results in the store", "", r.Results})
	a.print("%s\n", t.Render())
	if r.Settled > 0 {
		a.print("%d effects that a verifier reported were recorded\n", r.Settled)
	}
	if r.Blocked > 0 {
		t := newTable()
		t.AppendHeader(table.Row{"session", "key", "state", "what is in the way", "until"})
		for _, b := range r.Blocks {
			session, key := b.Session, b.Key
			if key == "" {
				session, key = b.PK, b.SK
			}
			until := ""
			if !b.Until.IsZero() {
				until = stamp(b.Until)
			}
			t.AppendRow(table.Row{printable(session), printable(key), b.State, b.Reason, until})
		}
		a.print("%d items are in the way:\n%s\n", r.Blocked, t.Render())
	}
	if r.Complete {
		a.print("%s nothing of tenant %s is left\n", mark(true), printable(r.Tenant))
	}
}
