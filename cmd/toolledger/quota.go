package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"toolledger/writers"
)

// quotaResult is what quota and grant print with --json.
type quotaResult struct {
	place
	Tenant    string       `json:"tenant"`
	Plan      planView     `json:"plan"`
	Period    string       `json:"period"`
	ResetsAt  time.Time    `json:"resets_at,omitzero"` // absent: never
	Granted   int64        `json:"granted"`
	Remaining int64        `json:"remaining"`
	Shards    []quotaShard `json:"shards"`
	Grant     *grantView   `json:"grant,omitempty"`
}

type quotaShard struct {
	Shard     int   `json:"shard"`
	Granted   int64 `json:"granted"`
	Remaining int64 `json:"remaining"`
}

func newQuotaCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quota TENANT", GroupID: groupLook, Args: names("TENANT"),
		Short:   "Show a tenant's plan and what is left of the running period, by shard",
		Example: `  toolledger quota acme --region eu-west-1 --table toolledger`,
	}
	o := addOperator(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := a.open(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer b.close()
		return a.quota(cmd.Context(), b, args[0], nil)
	}
	return cmd
}

// quota shows the running period, after a grant with what that did.
func (a *app) quota(ctx context.Context, b *bench, tenant string, grant *grantView) error {
	plan, err := b.plan(ctx, tenant)
	if err != nil {
		return err
	}
	if plan == nil {
		return badInput("tenant %s has no plan in %s (toolledger plan gives it one)", tenant, b.place)
	}
	q, err := b.ledger.Tenant(writers.TenantID(tenant)).Quota(ctx)
	if err != nil {
		return refused(ctx, err)
	}
	r := quotaResult{
		place: b.place, Tenant: tenant, Plan: *plan, Period: q.Period, ResetsAt: q.ResetsAt, Granted: q.Granted,
		Remaining: q.Remaining, Grant: grant,
	}
	for i, s := range q.Shards {
		r.Shards = append(r.Shards, quotaShard{i, s.Granted, s.Remaining})
	}
	if a.json {
		return a.printJSON(r)
	}
	a.printQuota(r)
	return nil
}

func (a *app) printQuota(r quotaResult) {
	a.print("tenant %s has %s\n", r.Tenant, r.Plan)
	if r.Plan.By != "" {
		why := ""
		if r.Plan.Why != "" {
			why = ": " + printable(r.Plan.Why)
		}
		a.print("  last changed %s by %s%s\n", stamp(r.Plan.UpdatedAt), printable(r.Plan.By), why)
	}
	until := ", which does not end"
	if !r.ResetsAt.IsZero() {
		until = ", until " + stamp(r.ResetsAt)
	}
	a.print("period %s%s\n", r.Period, until)
	t := newTable()
	t.AppendHeader(table.Row{"shard", "granted", "used", "remaining"})
	for _, s := range r.Shards {
		t.AppendRow(table.Row{s.Shard, s.Granted, s.Granted - s.Remaining, s.Remaining})
	}
	if len(r.Shards) > 1 {
		t.AppendFooter(table.Row{"all", r.Granted, r.Granted - r.Remaining, r.Remaining})
	}
	a.print("%s\n", t.Render())
	if r.Remaining < 0 {
		a.print("%d tokens more are spent than were granted: late effects and final charges are recorded whatever is left\n", -r.Remaining)
	}
}

func tokensOf(n int64) string {
	if n == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", n)
}
