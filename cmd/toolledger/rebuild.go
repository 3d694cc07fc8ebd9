package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolledger/streams"
)

// rebuildFlags is what a command line says about a rebuild.
type rebuildFlags struct {
	busFlags
	tenant       string
	since, until string
	from         string
	rate         int
	likely       bool
}

// rebuildResult is what rebuild prints with --json.
type rebuildResult struct {
	place
	Bus      string         `json:"bus,omitempty"`
	DryRun   bool           `json:"dry_run"`
	Refusals int            `json:"refusals"` // events that the bus will never accept
	Refused  []refusedEvent `json:"refused"`
	*streams.RebuildReport
}

func newRebuildCommand(a *app) *cobra.Command {
	f := &rebuildFlags{}
	cmd := &cobra.Command{
		Use: "rebuild", GroupID: groupMend, Args: noArgs,
		Short: "Publish again what the tables still know of a stretch of stream that was lost",
		Long: `Walks both tables and publishes, with the ids that they had, the events of what is in them now: after an AuditGap, or where
the consumer stood still for longer than the stream remembers. The events are marked (rebuilt: true), and no metric is
counted. Whoever deduplicates by id sees nothing twice. It writes nothing to the tables, and may be run again.

A table knows the present: attempts that ended, rows that are gone, extensions and counts before the last are lost. Where a row
leaves open which event its state began with, none is published and the row is counted as untold; --likely trusts the row's
times there. --since and --until choose by the time of the last write.

Stopped, it says with which --from it goes on. With --dry-run the events are printed instead, with --json as one JSON object on
a line, which redrive takes again, and the report goes to stderr.`,
		Example: `  toolledger rebuild --dry-run --region eu-west-1 --table toolledger --since 2026-11-30T08:00:00Z
  toolledger rebuild --bus toolledger --tenant acme --region eu-west-1 --table toolledger`,
	}
	w := addWhere(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.bus, "bus", "", "publish to the event bus `NAME` or ARN")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the events, publish nothing")
	flags.StringVar(&f.tenant, "tenant", "", "only the items of tenant `T`")
	flags.StringVar(&f.since, "since", "", "only items last written at `TIME` or later: 2026-11-30T08:00:00Z, or 26h for as long ago")
	flags.StringVar(&f.until, "until", "", "only items last written before `TIME`")
	flags.StringVar(&f.from, "from", "", "go on at the `CURSOR` that an interrupted rebuild printed")
	flags.IntVar(&f.rate, "rate", 1000, "read at most `N` items a second")
	flags.BoolVar(&f.likely, "likely", false, "where a row leaves two readings, take the one that its times speak for")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.rebuild(cmd.Context(), w, f, cmd.Flags().Changed("tenant"))
	}
	return cmd
}

// maxRate keeps a pause between pages from vanishing.
const maxRate = 1_000_000

func (a *app) rebuild(ctx context.Context, w *where, f *rebuildFlags, oneTenant bool) error {
	if err := f.check(); err != nil {
		return err
	}
	cfg := streams.RebuildConfig{Tenant: f.tenant, Likely: f.likely, From: f.from, Rate: f.rate}
	if oneTenant {
		if err := checkTenant(f.tenant); err != nil {
			return err
		}
	}
	if f.rate < 1 || f.rate > maxRate {
		return badInput("--rate %d: want 1 to %d items a second", f.rate, maxRate)
	}
	var err error
	if cfg.Since, err = a.moment("--since", f.since); err != nil {
		return err
	}
	if cfg.Until, err = a.moment("--until", f.until); err != nil {
		return err
	}
	if !cfg.Until.IsZero() && !cfg.Since.Before(cfg.Until) {
		return badInput("--until %s: want a time after --since", f.until)
	}
	l, err := a.lookLocation(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	at, err := placeOf(ctx, w, l)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.stderr, "rebuilding from %s\n", at)
	return a.rebuildFrom(ctx, l, at, f, cfg)
}

// moment reads a time, or how long ago one was.
func (a *app) moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return a.now().UTC().Add(-ago), nil
	}
	return time.Time{}, badInput("%s %q: want a time such as 2026-11-30T08:00:00Z, or how long ago it was, such as 26h", flag, text)
}

func (a *app) rebuildFrom(ctx context.Context, l *location, at place, f *rebuildFlags, cfg streams.RebuildConfig) error {
	out, err := a.newOutlet(l.config, &f.busFlags)
	if err != nil {
		return err
	}
	cfg.DynamoDB, cfg.Tables, cfg.Publisher = l.client, []string{l.table, l.control}, out
	bar := a.progress("rebuilding", 0)
	seen := 0
	cfg.Progress = func(r *streams.RebuildReport) { bar.Add(int64(r.Items - seen)); seen = r.Items }
	report, err := streams.Rebuild(ctx, cfg)
	bar.Done()
	if errors.Is(err, streams.ErrCursor) || errors.Is(err, streams.ErrConfig) {
		return badInput("--from: %s", strings.TrimPrefix(err.Error(), "streams: "))
	}
	result := rebuildResult{at, f.bus, f.dryRun, out.refusals, out.refused, report}
	if perr := a.printRebuild(&result); perr != nil {
		return perr
	}
	switch {
	case err != nil && report.Cursor != "":
		_, _ = fmt.Fprintf(a.stderr, "not finished; the same command goes on with --from %s\n", report.Cursor)
		fallthrough
	case err != nil:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return badInput("%s: %w", at, err)
	case out.refusals > 0:
		return broken("the bus refused %d events for good, the first with %s", out.refusals, out.refused[0].Code)
	case report.Unreadable > 0:
		return broken("%d items cannot be read (toolledger audit shows them)", report.Unreadable)
	}
	return nil
}

// printRebuild reports to stdout, or to stderr where the events of a dry run are on stdout.
func (a *app) printRebuild(r *rebuildResult) error {
	out := a.stdout
	if r.DryRun {
		out = a.stderr
	}
	if a.json {
		return (&app{stdout: out}).printJSON(r)
	}
	verb := "published"
	if r.DryRun {
		verb = "found (dry run: nothing was published)"
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	say("%d items read, %d events %s\n", r.Items, r.Events, verb)
	for _, name := range slices.Sorted(maps.Keys(r.ByType)) {
		say("%8d %s\n", r.ByType[name], name)
	}
	if r.Untold > 0 {
		say("%d items are untold: the table does not say which event their state began with\n", r.Untold)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		say("%8d %s\n", r.Reasons[reason], reason)
	}
	return nil
}
