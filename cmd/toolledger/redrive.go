package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// redriveFlags is what a command line says about a redrive.
type redriveFlags struct {
	busFlags
	where  where // the region and, where it is said, the table
	remove bool
	after  string
}

// redriveResult is what redrive prints with --json.
type redriveResult struct {
	Source         string              `json:"source"`
	Bus            string              `json:"bus,omitempty"`
	DryRun         bool                `json:"dry_run"`
	Files          int                 `json:"files"` // read to their end
	Records        int                 `json:"records"`
	Events         int                 `json:"events"`  // published
	Deleted        int                 `json:"deleted"` // objects
	Faults         int                 `json:"faults"`  // parts of files that are nothing to redrive
	FaultList      []redriveFault      `json:"fault_list"`
	Unreadable     int                 `json:"unreadable"` // records that the consumer cannot understand either
	UnreadableList []redriveUnreadable `json:"unreadable_list"`
	Refusals       int                 `json:"refusals"` // events that the bus will never accept
	Refused        []refusedEvent      `json:"refused"`
	After          string              `json:"after,omitempty"` // the last object that is done, for --after
	Done           bool                `json:"done"`
}

// redriveFault is a part of a file that is nothing to redrive.
type redriveFault struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // of the JSON value, in bytes of the file as it is without compression
	Rule   string `json:"rule"`
}

// redriveUnreadable is a record that the consumer cannot understand.
type redriveUnreadable struct {
	File      string `json:"file"`
	Offset    int64  `json:"offset"`
	Sequence  string `json:"sequence,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Rule      string `json:"rule"`
}

func newRedriveCommand(a *app) *cobra.Command {
	f := &redriveFlags{}
	cmd := &cobra.Command{
		Use: "redrive s3://BUCKET/PREFIX | FILE", GroupID: groupMend, Args: oneSource,
		Short: "Publish the events of stream records that failed before and were kept",
		Long: `Feeds what a failure destination keeps through the consumer again. The events have the ids that they had, and no metric is
counted; redriving twice does no harm. It takes what Lambda writes into an S3 on-failure destination of a stream, the
records that the consumer could not understand (unreadable/), the events that the bus refused (refused/), and JSON or JSON
lines of stream records, batches ({"Records": […]}) or events, compressed with gzip or not; "-" is stdin.

What cannot be taken is reported with file, offset and rule, all else is published, and the exit code is 1. Nothing is
deleted, unless --delete is given and everything in an object is out. --table refuses records of other tables.
Stopped, it says with which --after it goes on. With --dry-run the events are printed instead, with --json as one JSON object
on a line, and the report goes to stderr.`,
		Example: `  toolledger redrive s3://toolledger-failures/unreadable/ --bus toolledger --region eu-west-1 --delete
  toolledger redrive records.jsonl.gz --dry-run`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.bus, "bus", "", "publish to the event bus `NAME` or ARN")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the events, publish and delete nothing")
	flags.BoolVar(&f.remove, "delete", false, "delete each object once everything in it is out")
	flags.StringVar(&f.after, "after", "", "go on behind the object of `KEY`")
	flags.StringVar(&f.where.table, "table", "", "take records of ledger table `NAME` and its control table only")
	flags.StringVar(&f.where.region, "region", "", "AWS region `R` of bus and bucket (default AWS_REGION)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.redrive(cmd.Context(), args[0], f) }
	return cmd
}

func oneSource(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return badInput("want s3://BUCKET/PREFIX or FILE, got %d arguments (see %s --help)", len(args), cmd.CommandPath())
	}
	return nil
}

func (f *redriveFlags) checkSource(source string) error {
	if err := f.busFlags.check(); err != nil {
		return err
	}
	if f.where.table != "" && !tableName.MatchString(f.where.table) {
		return badInput("--table %q: a table's name has 3 to 255 of the characters a-z A-Z 0-9 _ . -", f.where.table)
	}
	if !strings.HasPrefix(source, s3Scheme) && (f.remove || f.after != "") {
		return badInput("--delete and --after are for objects in S3, not for %s", printable(source))
	}
	if f.remove && f.dryRun {
		return badInput("--delete and --dry-run exclude each other: a dry run deletes nothing")
	}
	return nil
}

func (a *app) redrive(ctx context.Context, source string, f *redriveFlags) error {
	if err := f.checkSource(source); err != nil {
		return err
	}
	d, err := a.newRedriver(ctx, source, f)
	if err != nil {
		return err
	}
	err = d.run(ctx, source)
	d.bar.Done()
	r := d.result
	r.Refusals, r.Refused = d.out.refusals, d.out.refused
	r.Done = err == nil
	if err == nil || r.Files > 0 || exitCode(ctx, err) != exitBadInput { // no report of a source that cannot be read
		if perr := a.printRedrive(r); perr != nil {
			return perr
		}
	}
	if err != nil {
		if r.After != "" {
			_, _ = fmt.Fprintf(a.stderr, "not finished; the same command goes on with --after %s\n", shellLine(r.After))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	switch {
	case r.Faults > 0:
		first := r.FaultList[0]
		return broken("%d parts of files are nothing to redrive, the first in %s at byte %d: %s", r.Faults, printable(first.File), first.Offset, first.Rule)
	case r.Unreadable > 0:
		first := r.UnreadableList[0]
		return broken("%d records cannot be understood, the first in %s at byte %d: %s", r.Unreadable, printable(first.File), first.Offset, first.Rule)
	case r.Refusals > 0:
		return broken("the bus refused %d events for good, the first with %s", r.Refusals, r.Refused[0].Code)
	}
	return nil
}

// printRedrive reports to stdout, or to stderr where the events of a dry run are on stdout.
func (a *app) printRedrive(r *redriveResult) error {
	out := a.stdout
	if r.DryRun {
		out = a.stderr
	}
	if a.json {
		return (&app{stdout: out}).printJSON(r)
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	verb := "published"
	if r.DryRun {
		verb = "found (dry run: nothing was published)"
	}
	say("%d files with %d records: %d events %s\n", r.Files, r.Records, r.Events, verb)
	if r.Deleted > 0 {
		say("%d objects deleted\n", r.Deleted)
	}
	for i, fault := range r.FaultList {
		if i == printedFaults {
			say("  … (--json lists %d)\n", len(r.FaultList))
			break
		}
		say("  %s at byte %d: %s\n", printable(fault.File), fault.Offset, fault.Rule)
	}
	for i, u := range r.UnreadableList {
		if i == printedFaults {
			say("  … (--json lists %d)\n", len(r.UnreadableList))
			break
		}
		rule := u.Rule
		if u.Attribute != "" {
			rule = u.Attribute + ": " + rule
		}
		say("  %s at byte %d, record %s cannot be understood: %s\n", printable(u.File), u.Offset, printable(u.Sequence), rule)
	}
	return nil
}

// printedFaults are how many of each kind a person is shown.
const printedFaults = 20
