package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// demoOptions is what demo was asked for.
type demoOptions struct {
	intents, tenants int
	seed             uint64
	sabotage         string // hidden: which promise to break, so that the proof can be seen to fail
}

const (
	minIntents, maxIntents = 10, 100_000
	maxTenants             = 100
)

func newDemoCommand(a *app) *cobra.Command {
	o := demoOptions{}
	cmd := &cobra.Command{
		Use: "demo", GroupID: groupTry, Args: noArgs,
		Short: "Tell the story of a retry storm on the local stack, and prove that nothing happened twice",
		Long: `Agents of several tenants want things done. Each is tried by 2 to 8 callers at once and again later; workers die
between act and finalize, answers are lost on the way, a worker stalls past its deadline, one tenant runs out of quota, one
key is used again with other arguments. An outside world that knows no idempotency keys counts what really happens.
Then the clock is moved past the deadlines, a sweep settles what was left, everybody tries once more, and the books, the
events and the metrics are held against the ledger. Exits with 1 where a promise is broken.`,
	}
	w := addWhere(cmd)
	f := cmd.Flags()
	f.IntVar(&o.intents, "intents", 200, "`N` things that agents want done")
	f.IntVar(&o.tenants, "tenants", 3, "`N` tenants that they belong to; the last one runs out of quota")
	f.Uint64Var(&o.seed, "seed", 1, "`N` that decides what goes wrong where")
	f.StringVar(&o.sabotage, "sabotage", "", "break a promise: "+sabotages)
	_ = f.MarkHidden("sabotage") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.intents < minIntents || o.intents > maxIntents:
			return badInput("--intents %d: want %d to %d", o.intents, minIntents, maxIntents)
		case o.tenants < 1 || o.tenants > maxTenants || o.tenants > o.intents:
			return badInput("--tenants %d: want 1 to %d, and no more than intents", o.tenants, maxTenants)
		case !validSabotage(o.sabotage):
			return badInput("--sabotage %q: want %s", o.sabotage, sabotages)
		}
		return a.demo(cmd.Context(), w, o)
	}
	return cmd
}

func (a *app) demo(ctx context.Context, w *where, o demoOptions) error {
	place, err := a.tryLocation(ctx, w)
	if err != nil {
		return err
	}
	defer place.close()
	began := a.now()
	r, err := a.demoAt(ctx, place, o)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	r.finish(a.now().Sub(began))
	took := a.now().Sub(began).Round(time.Millisecond)
	return a.printReport(r, fmt.Sprintf("\n%d calls of %d tenants at %s in %s, seed %d", r.Calls, o.tenants, place, took, o.seed))
}
