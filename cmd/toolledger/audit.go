package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"toolledger/internal/audit"
	"toolledger/internal/schema"
)

// auditSegments is how many parts of the table are read at once, unless told otherwise.
const auditSegments = 4

// auditFlags is what a command line says about an audit.
type auditFlags struct {
	tenant   string
	segments int
	sweep    time.Duration
	skew     time.Duration
}

func newAuditCommand(a *app) *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "audit", GroupID: groupLook, Args: noArgs,
		Short: "Check that the books balance and that every row is in a legal state",
		Long: `Reads the whole ledger table consistently and checks that for every quota item
granted - remaining is what its pending and applied rows were debited, and that every row is in a legal state.
The table may be in use meanwhile: what seems wrong is looked at again before it is called so, and what changes each time is
called moving, not wrong. Reservations that two sweeps should have taken are listed, and so are refunds without a debit.
Exits with 1, and prints the offending rows, where a promise is broken.`,
		Example: `  toolledger audit --region eu-west-1 --table toolledger --segments 16
  toolledger audit --tenant acme --local ledger.db --json`,
	}
	w := addWhere(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "only the items of tenant `T`")
	flags.IntVar(&f.segments, "segments", auditSegments, "read the table in `N` parts at once, at most 64")
	flags.DurationVar(&f.sweep, "sweep-every", sweepEvery, "how often the sweeper runs")
	flags.DurationVar(&f.skew, "skew", 0, "how far apart clocks may be, as the writers have it (default 2m)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("tenant") {
			if err := checkTenant(f.tenant); err != nil {
				return err
			}
		}
		switch {
		case f.segments < 1 || f.segments > 64:
			return badInput("--segments %d: want 1 to 64", f.segments)
		case f.sweep <= 0:
			return badInput("--sweep-every %s: want more than 0", f.sweep)
		case f.skew < 0 || f.skew > time.Hour:
			return badInput("--skew %s: want 0 to 1h", f.skew)
		}
		return a.audit(cmd.Context(), w, f)
	}
	return cmd
}

func (a *app) audit(ctx context.Context, w *where, f *auditFlags) error {
	l, err := a.lookLocation(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	at, err := placeOf(ctx, w, l)
	if err != nil {
		return err
	}
	whose, tenant := "all tenants", f.tenant
	if tenant != "" {
		whose = "tenant " + tenant
	}
	a.print("Audit of %s, %s, %s\n", at, whose, a.now().UTC().Format(time.RFC3339))
	bar := a.progress("reading "+l.table, 0)
	r, err := audit.Run(ctx, l.client, audit.Config{
		Table: l.table, Tenant: tenant, Segments: f.segments, Sweep: f.sweep, Skew: f.skew, Now: a.now,
		Progress: func(items int) { bar.Add(int64(items)) },
	})
	bar.Done()
	if err != nil {
		return badInput("audit of %s at %s: %w", l.table, l, err)
	}
	if tenant != "" && len(r.Items) == 0 { // "all is well" with a tenant that is not there would be a lie
		return badInput("there is nothing of tenant %s in %s at %s", tenant, l.table, l)
	}
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		a.printAudit(r)
	}
	if !r.OK {
		return broken("%s at %s: %d quota items are unbalanced, %d items are illegal", l.table, l, r.Unbalanced.Count, r.Illegal.Count)
	}
	return nil
}

// printAudit shows a report to a person: the totals, then what is wrong, then what is worth knowing.
func (a *app) printAudit(r *audit.Report) {
	t := newTable()
	t.AppendRows([]table.Row{
		{"quota items", r.Items[schema.KindQuota.String()], fmt.Sprintf("%d tokens granted, %d left, %d debited by calls",
			r.Tokens.Granted, r.Tokens.Remaining, r.Tokens.Debited)},
		{"calls", r.Items[schema.KindRow.String()], fmt.Sprintf("%d applied, %d pending, %d failed", r.States[schema.StateApplied],
			r.States[schema.StatePending], r.States[schema.StateFailed])},
		{"sessions", r.Items[schema.KindSession.String()], ""},
		{"observations", r.Items[schema.KindObservation.String()], "counts of replays and refusals"},
	})
	a.print("%s\n", t.Render())
	a.printBooks("Unbalanced quota items (granted - remaining must be what calls were debited)", r.Unbalanced)
	if n := r.Refunds.Count; n > 0 {
		a.print("On %d of them more was given back than had been taken: refunds without a matching debit\n", n)
	}
	a.printFindings("Illegal items", r.Illegal)
	a.printBooks("Quota items that kept changing while they were read: no verdict, audit again", r.Moving)
	a.printFindings("Overdue reservations, which a sweep or a person should settle", r.Overdue)
	if n := r.Neglected.Count; n > 0 {
		a.print("%d reservations should have been taken by two sweeps since: does the sweeper run? (toolledger pending)\n", n)
	}
	a.printFindings("Passed over", r.Notes)
	a.print("%s the books balance\n%s every item is legal\n", mark(r.Unbalanced.Count == 0), mark(r.Illegal.Count == 0))
}

func (a *app) printBooks(title string, books audit.List[audit.Book]) {
	if books.Count == 0 {
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"tenant", "period", "shard", "granted", "remaining", "debited", "difference"})
	for _, b := range books.Items {
		granted, remaining := any(b.Granted), any(b.Remaining)
		if b.Missing {
			granted, remaining = "no item", ""
		}
		t.AppendRow(table.Row{b.Tenant, b.Period, b.Shard, granted, remaining, b.Debits, b.Difference})
	}
	a.print("%s: %d\n%s\n", title, books.Count, t.Render())
}

func (a *app) printFindings(title string, findings audit.List[audit.Finding]) {
	if findings.Count == 0 {
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"pk", "sk", "state", "attribute", "rule"})
	for _, f := range findings.Items {
		t.AppendRow(table.Row{printable(f.PK), printable(f.SK), f.State, printable(f.Attr), f.Rule})
	}
	a.print("%s: %d\n%s\n", title, findings.Count, t.Render())
}
