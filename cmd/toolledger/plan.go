package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// planFlags is what a command line says about a plan. What it does not say stays as it is.
type planFlags struct {
	tokens, overdraft int64
	period            string
	shards            int
}

// planView is a plan for programs.
type planView struct {
	Tokens    int64     `json:"tokens"`
	Period    string    `json:"period"` // month, day or always
	Shards    int64     `json:"shards"`
	Overdraft int64     `json:"overdraft"`
	Suspended bool      `json:"suspended"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updated_at"`
	By        string    `json:"by,omitempty"` // of the last change, where this program made it
	Why       string    `json:"why,omitempty"`
}

// planResult is what plan, suspend and resume print with --json.
type planResult struct {
	place
	Tenant  string    `json:"tenant"`
	Changed bool      `json:"changed"`
	Before  *planView `json:"before"` // null: there was none
	After   planView  `json:"after"`
}

func newPlanCommand(a *app) *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use: "plan TENANT --tokens N", GroupID: groupMend, Args: names("TENANT"),
		Short: "Give a tenant a plan, or change it, at once for the running period too",
		Long: `Sets how many tokens a tenant may spend in each period: an absolute number, at once for the running period too. What is
spent stays spent, and what was granted on top stays granted. What is not said stays as it is; a new plan is monthly, in
one shard, without overdraft. A busy tenant needs shards: one quota item takes some hundred debits a second.`,
		Example: `  toolledger plan acme --tokens 100000 --region eu-west-1 --table toolledger
  toolledger plan acme --tokens 500 --period day --shards 4 --local ledger.db --yes --why "trial is over"`,
	}
	o := addMender(cmd)
	flags := cmd.Flags()
	flags.Int64Var(&f.tokens, "tokens", 0, "`N` tokens a period, 0 to 2^53")
	flags.StringVar(&f.period, "period", "month", "month, day or always; periods begin at midnight UTC")
	flags.IntVar(&f.shards, "shards", 1, "spread the quota over `K` items, at most 64; they may only grow within a period")
	flags.Int64Var(&f.overdraft, "overdraft", 0, "final charges may take the quota to `N` below zero")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), o, f, args[0]) }
	return cmd
}

var planPeriods = map[string]writers.Period{"month": writers.Monthly, "day": writers.Daily, "always": writers.Always}

func (f *planFlags) check(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("tokens") {
		return badInput("--tokens N is required")
	}
	if _, ok := planPeriods[f.period]; !ok {
		return badInput("--period %q: want month, day or always", f.period)
	}
	switch {
	case f.tokens < 0 || f.tokens > schema.MaxTokens:
		return badInput("--tokens %d: want 0 to 2^53", f.tokens)
	case f.shards < 1 || f.shards > schema.MaxShards:
		return badInput("--shards %d: want 1 to %d", f.shards, schema.MaxShards)
	case f.overdraft < 0 || f.overdraft > schema.MaxTokens:
		return badInput("--overdraft %d: want 0 to 2^53", f.overdraft)
	}
	return nil
}

// over is the plan that the flags make of the one that is there.
func (f *planFlags) over(cmd *cobra.Command, now *planView) writers.Plan {
	p := writers.Plan{Tokens: f.tokens, Period: planPeriods[f.period], Shards: f.shards, Overdraft: f.overdraft}
	if now == nil {
		return p
	}
	if !cmd.Flags().Changed("period") {
		p.Period = planPeriods[now.Period]
	}
	if !cmd.Flags().Changed("shards") {
		p.Shards = int(now.Shards)
	}
	if !cmd.Flags().Changed("overdraft") {
		p.Overdraft = now.Overdraft
	}
	return p
}

func (a *app) plan(ctx context.Context, o *operator, f *planFlags, tenant string) error {
	if err := f.check(o.cmd); err != nil {
		return err
	}
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	before, err := b.plan(ctx, tenant)
	if err != nil {
		return err
	}
	next := f.over(o.cmd, before)
	if before != nil && before.same(next) {
		a.print("tenant %s has this plan already: %s\n", tenant, before)
		return a.printIfJSON(planResult{b.place, tenant, false, before, *before})
	}
	was := "no plan"
	if before != nil {
		was = before.String()
	}
	will := planView{Tokens: next.Tokens, Period: f.periodOf(next), Shards: int64(next.Shards), Overdraft: next.Overdraft}
	a.print("tenant %s has %s\n", tenant, was)
	if err := a.confirm(ctx, o, fmt.Sprintf("give tenant %s %s", tenant, will)); err != nil {
		return err
	}
	if err := b.ledger.Tenant(writers.TenantID(tenant)).PutPlan(ctx, next); err != nil {
		return refused(ctx, err)
	}
	return a.planDone(ctx, b, tenant, before)
}

func (*planFlags) periodOf(p writers.Plan) string {
	for word, period := range planPeriods {
		if period == p.Period {
			return word
		}
	}
	return ""
}

// planDone shows the plan as it is after a change.
func (a *app) planDone(ctx context.Context, b *bench, tenant string, before *planView) error {
	after, err := b.plan(ctx, tenant)
	if err != nil {
		return err
	}
	if after == nil {
		return broken("the plan of tenant %s is gone again", tenant)
	}
	a.print("tenant %s has %s\n", tenant, after)
	return a.printIfJSON(planResult{b.place, tenant, true, before, *after})
}

// printIfJSON prints v where JSON is asked for.
func (a *app) printIfJSON(v any) error {
	if !a.json {
		return nil
	}
	return a.printJSON(v)
}

// plan reads a tenant's plan; nil where there is none.
func (b *bench) plan(ctx context.Context, tenant string) (*planView, error) {
	item, err := b.getItem(ctx, b.control, schema.PlanKey(tenant))
	if err != nil || item == nil {
		return nil, err
	}
	p, err := schema.DecodePlan(schema.FieldsOf(item))
	if err != nil {
		return nil, broken("the plan of tenant %s at %s cannot be read: %w", tenant, b.place, err)
	}
	word := map[schema.PeriodKind]string{schema.Monthly: "month", schema.Daily: "day", schema.Always: "always"}[p.Period]
	return &planView{
		Tokens: p.Tokens, Period: word, Shards: p.Shards, Overdraft: p.Overdraft, Suspended: p.Suspended, Version: p.Version,
		UpdatedAt: p.UpdatedAt, By: schema.ValueOf(item[schema.ABy]).Text, Why: schema.ValueOf(item[schema.AWhy]).Text,
	}, nil
}

func (v *planView) same(p writers.Plan) bool {
	return v.Tokens == p.Tokens && planPeriods[v.Period] == p.Period && v.Shards == int64(p.Shards) && v.Overdraft == p.Overdraft
}

func (v planView) String() string {
	text := fmt.Sprintf("%d tokens %s", v.Tokens, map[string]string{"month": "a month", "day": "a day", "always": "for good"}[v.Period])
	if v.Shards > 1 {
		text += fmt.Sprintf(" in %d shards", v.Shards)
	}
	if v.Overdraft > 0 {
		text += fmt.Sprintf(", overdraft %d", v.Overdraft)
	}
	if v.Suspended {
		text += ", suspended"
	}
	return text
}
