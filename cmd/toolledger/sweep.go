package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"toolledger/sweeper"
	"toolledger/writers"
)

// sweepFlags is what a command line says about sweeping.
type sweepFlags struct {
	dryRun    bool
	once      bool
	every     time.Duration
	giveUp    time.Duration
	skew      time.Duration
	keep      time.Duration
	verifiers []string
}

func newSweepCommand(a *app) *cobra.Command {
	f := &sweepFlags{}
	cmd := &cobra.Command{
		Use: "sweep", GroupID: groupMend, Args: noArgs,
		Short: "Settle or give back reservations whose deadline has passed",
		Long: `Settles or gives back reservations whose deadline has passed, as the deployed sweeper does every minute.
Tools that are neither idempotent nor can be verified are held for a person. Where tools have verifier functions, name
them with --verifier: without, their calls stay pending and are held once they are an hour overdue.
Sweeps may overlap with the deployed ones. --dry-run asks verifiers and writes nothing.`,
		Example: `  toolledger sweep --dry-run --region eu-west-1 --table toolledger
  toolledger sweep --every 60s --local ledger.db --verifier create_pr=verify-pr`,
	}
	w := addWhere(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, write nothing")
	flags.BoolVar(&f.once, "once", false, "sweep once (the default)")
	flags.DurationVar(&f.every, "every", 0, "sweep again and again, `TIME` apart, until stopped")
	flags.DurationVar(&f.giveUp, "give-up", 0, "hold unknown effects that are overdue for `TIME` (default 1h)")
	flags.DurationVar(&f.skew, "skew", 0, "how far apart clocks may be, as the writers have it (default 2m)")
	flags.DurationVar(&f.keep, "keep", 0, "how long ended calls are remembered, as the writers have it (default 720h)")
	flags.StringArrayVar(&f.verifiers, "verifier", nil, "`TOOL=FUNCTION` to ask about a tool's calls; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("every") && f.every == 0 { // else it would sweep once, and who wanted a service would have none
			return badInput("--every 0s: want at least %s", minEvery)
		}
		return a.sweep(cmd.Context(), w, f)
	}
	return cmd
}

// minEvery keeps a typing error from becoming a load.
const minEvery = time.Second

func (a *app) sweep(ctx context.Context, w *where, f *sweepFlags) error {
	switch {
	case f.every != 0 && f.once:
		return badInput("--once and --every exclude each other")
	case f.every != 0 && f.every < minEvery:
		return badInput("--every %s: want at least %s", f.every, minEvery)
	}
	functions, err := parseVerifiers(f.verifiers)
	if err != nil {
		return err
	}
	l, err := a.lookLocation(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	s, err := a.newSweeper(l, f, functions)
	if err != nil {
		return badInput("%w", err)
	}
	at, err := placeOf(ctx, w, l)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.stderr, "sweeping %s\n", at)
	if f.every == 0 {
		return a.sweepOnce(ctx, s)
	}
	for ctx.Err() == nil {
		// What one sweep could not do the next one may: only being stopped ends the watch.
		if err := a.sweepOnce(ctx, s); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintf(a.stderr, "toolledger: sweep: %s\n", oneLine(err))
		}
		sleepFor(ctx, f.every)
	}
	return nil
}

func parseVerifiers(pairs []string) (map[string]string, error) {
	byTool := map[string]string{}
	for _, pair := range pairs {
		tool, function, ok := strings.Cut(pair, "=")
		if !ok || tool == "" || function == "" {
			return nil, badInput("--verifier %q: want TOOL=FUNCTION", pair)
		}
		byTool[tool] = function
	}
	return byTool, nil
}

func (a *app) newSweeper(l *location, f *sweepFlags, functions map[string]string) (*sweeper.Sweeper, error) {
	ledger, err := writers.New(l.client, writers.Config{
		Table: l.table, Control: l.control, Skew: f.skew, Keep: f.keep, Now: a.now, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	cfg := sweeper.Config{GiveUp: f.giveUp, DryRun: f.dryRun}
	if len(functions) > 0 {
		if cfg.Remote, err = remoteVerifiers(l, functions); err != nil {
			return nil, err
		}
	}
	return sweeper.New(ledger, cfg)
}

// remoteVerifiers asks Lambda functions at the place of the ledger, or where the SDK's own variable says.
func remoteVerifiers(l *location, functions map[string]string) (func(context.Context, sweeper.VerifyRequest) (sweeper.VerifyAnswer, error), error) {
	where := l.config.Copy()
	if own := os.Getenv("AWS_ENDPOINT_URL_LAMBDA"); own != "" {
		where.BaseEndpoint = aws.String(own)
	}
	return sweeper.Functions(where, functions)
}

func (a *app) sweepOnce(ctx context.Context, s *sweeper.Sweeper) error {
	bar := a.progress("sweeping", 0)
	report, err := s.Run(ctx)
	bar.Done()
	if a.json {
		if jerr := a.printJSON(report); jerr != nil {
			return jerr
		}
	} else {
		a.printSweep(report)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return broken("%w", err)
	case report.Errors > 0:
		return broken("%d reservations could not be swept; --log-level error says why", report.Errors)
	}
	return nil
}

func (a *app) printSweep(r sweeper.Report) {
	verb := ""
	if r.DryRun {
		verb = " (dry run: nothing was written)"
	}
	a.print("%d overdue%s\n", r.Found, verb)
	for _, line := range []struct {
		n    int
		text string
	}{
		{r.Expired, fmt.Sprintf("expired, %d tokens given back", r.RefundedTokens)},
		{r.Finalized, "finalized: a verifier says that the effect happened"},
		{r.Unknown, "unknown: left for a later sweep"},
		{r.Early, "absent so far: looked at again when their horizon has passed"},
		{r.Held, "held for a person"},
		{r.LostRaces, "moved by somebody else meanwhile"},
		{r.Left, "left: no time"},
		{r.Errors, "failed"},
	} {
		if line.n > 0 {
			a.print("%8d %s\n", line.n, line.text)
		}
	}
	if r.Waiting > 0 {
		a.print("%d more are to be looked at later\n", r.Waiting)
	}
	if r.HeldNow > 0 {
		a.print("%d wait for a person: toolledger pending\n", r.HeldNow)
	}
}

// sleepFor waits for d, or until ctx ends.
func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
