package main

import (
	"context"

	"github.com/spf13/cobra"

	"toolledger/writers"
)

func newSuspendCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "suspend TENANT", GroupID: groupMend, Args: names("TENANT"),
		Short: "Refuse every new debit of a tenant, from now on",
		Long: `Refuses every new call of a tenant that costs something, at once and in all processes, until resume. Refunds, final
charges of calls that are under way, and calls that cost nothing go on.`,
		Example: `  toolledger suspend acme --region eu-west-1 --table toolledger --why "runaway agent, ticket 4711"`,
	}
	o := addMender(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.suspend(cmd.Context(), o, args[0], true) }
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume TENANT", GroupID: groupMend, Args: names("TENANT"),
		Short:   "Accept the debits of a suspended tenant again",
		Example: `  toolledger resume acme --region eu-west-1 --table toolledger`,
	}
	o := addMender(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.suspend(cmd.Context(), o, args[0], false) }
	return cmd
}

func (a *app) suspend(ctx context.Context, o *operator, tenant string, suspended bool) error {
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	before, err := b.plan(ctx, tenant)
	switch {
	case err != nil:
		return err
	case before == nil:
		return badInput("tenant %s has no plan in %s", tenant, b.place)
	case before.Suspended == suspended:
		a.print("tenant %s is so already: %s\n", tenant, before)
		return a.printIfJSON(planResult{b.place, tenant, false, before, *before})
	}
	verb := "resume"
	if suspended {
		verb = "suspend"
	}
	a.print("tenant %s has %s\n", tenant, before)
	if err := a.confirm(ctx, o, verb+" tenant "+tenant); err != nil {
		return err
	}
	if err := b.ledger.Tenant(writers.TenantID(tenant)).Suspend(ctx, suspended); err != nil {
		return refused(ctx, err)
	}
	return a.planDone(ctx, b, tenant, before)
}
