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

// auditSegments is how many parts of the table are read at once.
const auditSegments = 4

func newAuditCommand(a *app) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "audit", GroupID: groupLook, Args: cobra.NoArgs,
		Short: "Check that the books balance and that every row is in a legal state",
		Long: `Reads the whole ledger table consistently and checks that for every quota item
granted - remaining is what its pending and applied rows were debited, and that every row is in a legal state.
The table may be in use meanwhile: what seems wrong is looked at again before it is called so.
Exits with 1, and prints the offending rows, where a promise is broken.`,
	}
	w := addWhere(cmd)
	cmd.Flags().StringVar(&tenant, "tenant", "", "only the items of tenant `T`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("tenant") {
			if err := schema.CheckID("--tenant", tenant, schema.MaxTenant); err != nil {
				return badInput("%w", err)
			}
		}
		return a.audit(cmd.Context(), w, tenant)
	}
	return cmd
}

func (a *app) audit(ctx context.Context, w *where, tenant string) error {
	l, err := a.lookLocation(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	bar := a.progress("reading "+l.table, 0)
	r, err := audit.Run(ctx, l.client, audit.Config{Table: l.table, Tenant: tenant, Segments: auditSegments, Now: a.now})
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
		a.printAudit(r, l)
	}
	if !r.OK {
		return broken("%s at %s: %d quota items are unbalanced, %d items are illegal", l.table, l, r.Unbalanced.Count, r.Illegal.Count)
	}
	return nil
}

// printAudit shows a report to a person: the totals, then what is wrong, then what is worth knowing.
func (a *app) printAudit(r *audit.Report, l *location) {
	whose := "all tenants"
	if r.Tenant != "" {
		whose = "tenant " + r.Tenant
	}
	a.print("Audit of %s at %s, %s, %s\n", r.Table, l, whose, r.At.Format(time.RFC3339))
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
	a.printFindings("Illegal items", r.Illegal)
	a.printBooks("Quota items that kept changing while they were read: no verdict, audit again", r.Moving)
	a.printFindings("Overdue reservations, which a sweep should settle", r.Overdue)
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
