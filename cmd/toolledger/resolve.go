package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// resolveFlags is what a command line says about a verdict.
type resolveFlags struct {
	scope      string
	attempt    int
	rowID      string
	applied    string
	notApplied bool
}

// resolveResult is what resolve prints with --json.
type resolveResult struct {
	place
	Changed  bool    `json:"changed"` // false: the verdict was there already
	Verdict  string  `json:"verdict"` // "applied" or "not_applied"
	Refunded int64   `json:"refunded_tokens"`
	Charged  int64   `json:"charged_tokens"`
	Row      rowView `json:"row"`
}

func newResolveCommand(a *app) *cobra.Command {
	f := &resolveFlags{}
	cmd := &cobra.Command{
		Use: "resolve TENANT SESSION KEY --attempt N --applied RESULT|--not-applied", GroupID: groupMend,
		Args:  names("TENANT", "SESSION", "KEY"),
		Short: "Decide what became of a call, and record who decided",
		Long: `Records a person's verdict on a call that nobody has settled, or that was given back without anybody knowing.
--applied RESULT: the effect happened. RESULT is its result as JSON ("-": read it from stdin); what was reserved is charged,
and every retry gets RESULT from then on.
--not-applied: it surely did not happen, and will not. The reservation is refunded. Before the deadline, the clocks' margin
and the tool's horizon have passed an act may still land, and this is refused.
--attempt is the one that you looked at (toolledger show): if a newer one is there by now, nothing is written.`,
		Example: `  toolledger resolve acme s1 pr-7 --attempt 1 --applied '{"number":42}' --region eu-west-1 --table toolledger --why "found PR 42"
  toolledger resolve acme s1 pr-8 --attempt 2 --not-applied --region eu-west-1 --table toolledger`,
	}
	o := addMender(cmd)
	o.addResults()
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "session", "session or tenant: how far the key reaches")
	flags.IntVar(&f.attempt, "attempt", 0, "the attempt `N` that you looked at")
	flags.StringVar(&f.rowID, "row-id", "", "the row `ID` that you looked at")
	flags.StringVar(&f.applied, "applied", "", "the effect happened, with this `RESULT` as JSON; - reads it from stdin")
	flags.BoolVar(&f.notApplied, "not-applied", false, "the effect did not happen and will not")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.resolve(cmd.Context(), o, f, args) }
	return cmd
}

// verdict checks the flags and makes them what the ledger takes.
func (a *app) verdict(o *operator, f *resolveFlags) (writers.Resolution, error) {
	r := writers.Resolution{Verdict: writers.EffectAbsent, RowID: f.rowID, Attempt: f.attempt}
	said := o.cmd.Flags().Changed("applied")
	switch {
	case said == f.notApplied:
		return r, badInput("say either --applied RESULT or --not-applied")
	case f.attempt < 1:
		return r, badInput("--attempt N is required: the attempt that you looked at (toolledger show)")
	case !said:
		return r, nil
	}
	text := f.applied
	if text == "-" {
		if !o.yes {
			return r, badInput("--applied - takes stdin, so nobody can be asked: give --yes")
		}
		in, err := io.ReadAll(io.LimitReader(a.stdin, 64<<20))
		if err != nil {
			return r, badInput("--applied -: %w", err)
		}
		text = string(in)
	}
	if !json.Valid([]byte(text)) {
		return r, badInput(`--applied: the result must be JSON, such as '{"number":42}', '"done"' or null`)
	}
	r.Verdict, r.Result = writers.EffectApplied, json.RawMessage(text)
	return r, nil
}

func (a *app) resolve(ctx context.Context, o *operator, f *resolveFlags, args []string) error {
	scope, err := scopeFlag(f.scope)
	if err != nil {
		return err
	}
	verdict, err := a.verdict(o, f)
	if err != nil {
		return err
	}
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	verdict.By, verdict.Why = o.by, o.why
	key := schema.RowKey(args[0], args[1], scope, args[2])
	before, err := b.row(ctx, key)
	switch {
	case err != nil:
		return err
	case before == nil || before.Expired(a.now()):
		return badInput("there is no call %s of tenant %s, session %s, in %s", args[2], args[0], args[1], b.place)
	}
	a.print("call %s: %s, attempt %d of %s, %s reserved\n", printable(args[2]), before.State, before.Attempt, printable(before.Tool), tokensOf(before.Reserved))
	word := "not applied"
	if verdict.Verdict == writers.EffectApplied {
		word = "applied"
	}
	if err := a.confirm(ctx, o, fmt.Sprintf("resolve attempt %d as %s", f.attempt, word)); err != nil {
		return err
	}
	session := b.ledger.Tenant(writers.TenantID(args[0])).Session(before.Session)
	if _, err := session.Resolve(ctx, callKey(scope, args[2]), verdict); err != nil {
		return refused(ctx, err)
	}
	after, err := b.row(ctx, key)
	switch {
	case err != nil:
		return err
	case after == nil:
		return broken("the call is recorded, and gone again")
	}
	return a.resolved(b, before, after, verdict, args)
}

// resolved shows what became of the row, and whether this verdict did it.
func (a *app) resolved(b *bench, before, after *schema.Row, verdict writers.Resolution, args []string) error {
	now := a.now()
	r := resolveResult{place: b.place, Verdict: "not_applied", Row: viewRow(after, args[0], args[2], now, false)}
	mine := after.Version > before.Version && after.By == verdict.By && after.Why == verdict.Why
	if verdict.Verdict == writers.EffectApplied {
		r.Verdict, r.Charged = "applied", after.Charged
		r.Changed = mine && after.SettledBy == schema.SettledByPerson
	} else {
		r.Changed = mine && after.Failure == schema.FailureResolved
		if r.Changed && before.State == schema.StatePending {
			r.Refunded = schema.SumDebits(before.Debits)
		}
	}
	switch {
	case !r.Changed:
		a.print("nothing was changed: the call is %s\n", settledText(after))
	case r.Verdict == "applied":
		a.print("recorded as applied by %s: %s charged\n", printable(after.By), tokensOf(r.Charged))
	case before.State == schema.StatePending:
		a.print("recorded as not applied by %s: %s given back\n", printable(after.By), tokensOf(r.Refunded))
	default:
		a.print("recorded as not applied by %s: it had been given back before\n", printable(after.By))
	}
	return a.printIfJSON(r)
}

func settledText(r *schema.Row) string {
	text := r.State
	if r.Failure != "" {
		text += " (" + r.Failure + ")"
	}
	if r.By != "" {
		text += " by " + printable(r.By)
	}
	return text + ", since " + stamp(r.UpdatedAt)
}
