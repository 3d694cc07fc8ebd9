package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/schema"
)

// sweepEvery is how often the deployed sweeper runs.
const sweepEvery = time.Minute

const defaultHorizon = time.Minute // of rows that store none

// diagnosis is what a row's times mean now.
type diagnosis struct {
	settles   time.Time // from then on "absent" counts
	forgotten bool      // past its retention
	why       string    // a pending row is still open
	neglected bool      // two sweeps should have taken it
}

// diagnosis says why a pending row is still open.
func (b *bench) diagnosis(r *schema.Row, now time.Time) diagnosis {
	skew := b.ledger.Plumbing().Skew
	horizon := r.Horizon
	if horizon <= 0 {
		horizon = defaultHorizon
	}
	deadline := deadlineOf(r)
	if deadline.IsZero() {
		return diagnosis{forgotten: r.Expired(now)}
	}
	d := diagnosis{settles: deadline.Add(skew + horizon), forgotten: r.Expired(now)}
	if r.State != schema.StatePending {
		return d
	}
	taken := deadline.Add(skew) // from then on a sweep takes it
	asks := r.Verifier && !r.Idempotent
	switch {
	case r.Held && r.Verifier:
		d.why = "held: nobody could find out what became of it in time; a person has to decide (toolledger show)"
	case r.Held:
		d.why = "held: its tool can be neither repeated nor verified; a person has to decide (toolledger show)"
	case now.Before(deadline):
		d.why = "its holder has time until " + stamp(deadline)
	case now.Before(taken):
		d.why = fmt.Sprintf("its deadline has passed, but clocks may be %s apart: a sweep takes it from %s on", skew, stamp(taken))
	case r.SweepAt.After(now) && !r.SweepAt.After(d.settles.Add(time.Millisecond)):
		d.why = "waits for the horizon: absent so far, but an act may still land until " + stamp(d.settles)
	case r.SweepAt.After(now):
		d.why = "the verifier cannot tell yet: the sweeper asks again at " + stamp(r.SweepAt)
	default:
		due := taken
		if r.SweepAt.After(due) {
			due = r.SweepAt
		}
		d.neglected = now.After(due.Add(2 * sweepEvery))
		switch {
		case !d.neglected:
			d.why = "the next sweep takes it"
		case asks:
			d.why = "no sweep has settled it: does the sweeper run, and does it know the verifier of this tool?"
		default:
			d.why = "no sweep has taken it: does the sweeper run? (toolledger sweep)"
		}
	}
	return d
}

// pendingResult is what pending prints with --json.
type pendingResult struct {
	place
	At         time.Time     `json:"at"`
	Older      float64       `json:"older_seconds"`
	Count      int           `json:"count"`
	Held       int           `json:"held"`
	Tokens     int64         `json:"tokens"` // that they hold
	Neglected  int           `json:"neglected"`
	More       bool          `json:"more"` // there are more than are listed
	Rows       []pendingView `json:"rows"`
	Unreadable []string      `json:"unreadable"` // keys of rows that cannot be read
}

type pendingView struct {
	Tenant    string    `json:"tenant"`
	Session   string    `json:"session"`
	Key       string    `json:"key"`
	Scope     string    `json:"scope"`
	Tool      string    `json:"tool"`
	Attempt   int64     `json:"attempt"`
	Tokens    int64     `json:"tokens"`
	Deadline  time.Time `json:"deadline"`
	Overdue   float64   `json:"overdue_seconds"`
	Held      bool      `json:"held"`
	SweepAt   time.Time `json:"sweep_at,omitzero"`
	Neglected bool      `json:"neglected"`
	Why       string    `json:"why"`
}

func newPendingCommand(a *app) *cobra.Command {
	var older time.Duration
	var tenant string
	var most int
	cmd := &cobra.Command{
		Use: "pending", GroupID: groupLook, Args: noArgs,
		Short: "List reservations past their deadline, oldest first, and why each is still open",
		Long: `Lists the reservations whose deadline has passed and that nobody has settled, oldest first, those that are held for a person
included, and why each is still open. It reads an index, which may be a moment behind the table.`,
		Example: `  toolledger pending --older 5m --region eu-west-1 --table toolledger`,
	}
	o := addOperator(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&older, "older", 0, "only those whose deadline passed at least `TIME` ago")
	flags.StringVar(&tenant, "tenant", "", "only those of tenant `T`")
	flags.IntVar(&most, "limit", 1000, "list at most `N`; all are counted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case older < 0:
			return badInput("--older %s: want 0 or more", older)
		case most < 1:
			return badInput("--limit %d: want 1 or more", most)
		case cmd.Flags().Changed("tenant"):
			if err := checkTenant(tenant); err != nil {
				return err
			}
		}
		return a.pending(cmd.Context(), o, older, tenant, most)
	}
	return cmd
}

func (a *app) pending(ctx context.Context, o *operator, older time.Duration, tenant string, most int) error {
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	now := a.now().UTC()
	rows, unreadable, err := b.overdue(ctx, now.Add(-older))
	if err != nil {
		return err
	}
	r := pendingResult{
		place: b.place, At: now, Older: older.Seconds(), Rows: []pendingView{}, Unreadable: append([]string{}, unreadable...),
	}
	for _, row := range rows {
		id, err := schema.ParseKey(row.Key)
		if err != nil || tenant != "" && id.Tenant != tenant {
			continue
		}
		d := b.diagnosis(row, now)
		r.add(row, id, d, now, most)
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		a.printPending(r, o)
	}
	if err != nil {
		return err
	}
	if len(r.Unreadable) > 0 {
		return broken("%d pending rows cannot be read (toolledger audit shows them)", len(r.Unreadable))
	}
	return nil
}

func (r *pendingResult) add(row *schema.Row, id schema.ItemID, d diagnosis, now time.Time, most int) {
	r.Count++
	r.Tokens += schema.SumDebits(row.Debits)
	if row.Held {
		r.Held++
	}
	if d.neglected {
		r.Neglected++
	}
	if len(r.Rows) == most {
		r.More = true
		return
	}
	r.Rows = append(r.Rows, pendingView{
		Tenant: id.Tenant, Session: row.Session, Key: id.CallKey, Scope: string(row.Scope), Tool: row.Tool, Attempt: row.Attempt,
		Tokens: row.Reserved, Deadline: row.Deadline, Overdue: now.Sub(row.Deadline).Seconds(), Held: row.Held, SweepAt: row.SweepAt,
		Neglected: d.neglected, Why: d.why,
	})
}

// overdue reads the pending rows whose deadline is not after before, oldest first.
func (b *bench) overdue(ctx context.Context, before time.Time) (rows []*schema.Row, unreadable []string, err error) {
	var mu sync.Mutex
	readers, reading := errgroup.WithContext(ctx)
	readers.SetLimit(8)
	for _, bucket := range slices.Concat(schema.BucketNames(false), schema.BucketNames(true)) {
		readers.Go(func() error {
			pages := dynamodb.NewQueryPaginator(b.client, &dynamodb.QueryInput{
				TableName: aws.String(b.table), IndexName: aws.String(schema.PendingIndex),
				KeyConditionExpression:   aws.String("#bucket = :bucket AND #deadline <= :before"),
				ExpressionAttributeNames: map[string]string{"#bucket": schema.APendingBucket, "#deadline": schema.ADeadline},
				ExpressionAttributeValues: schema.Item{
					":bucket": schema.S(bucket), ":before": schema.Millis(before),
				},
			})
			for pages.HasMorePages() {
				page, err := pages.NextPage(reading)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, item := range page.Items {
					row, err := schema.DecodePending(schema.FieldsOf(item))
					if err != nil {
						unreadable = append(unreadable, printable(schema.ValueOf(item[schema.PK]).Text+" "+schema.ValueOf(item[schema.SK]).Text))
						continue
					}
					rows = append(rows, row)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, badInput("%s: %w", b.place, err)
	}
	slices.SortFunc(rows, func(x, y *schema.Row) int {
		if n := x.Deadline.Compare(y.Deadline); n != 0 {
			return n
		}
		return strings.Compare(x.Key.PK+"\x00"+x.Key.SK, y.Key.PK+"\x00"+y.Key.SK)
	})
	slices.Sort(unreadable)
	return rows, unreadable, nil
}

func (a *app) printPending(r pendingResult, o *operator) {
	if r.Count == 0 && len(r.Unreadable) == 0 {
		a.print("no reservation is past its deadline\n")
		return
	}
	if r.Count == 1 {
		a.print("1 reservation past its deadline holds %s; %d wait for a person\n", tokensOf(r.Tokens), r.Held)
	} else {
		a.print("%d reservations past their deadline hold %s; %d of them wait for a person\n", r.Count, tokensOf(r.Tokens), r.Held)
	}
	for _, v := range r.Rows {
		scope := ""
		if v.Scope == string(schema.ScopeTenant) {
			scope = " (tenant-wide)"
		}
		overdue := time.Duration(v.Overdue * float64(time.Second)).Round(time.Second)
		a.print("\n%s %s %s%s  %s, attempt %d, %s, overdue %s\n  %s\n", printable(v.Tenant), printable(v.Session), printable(v.Key),
			scope, printable(v.Tool), v.Attempt, tokensOf(v.Tokens), overdue, v.Why)
	}
	if r.More {
		a.print("\n… and %d more (--limit)\n", r.Count-len(r.Rows))
	}
	for _, key := range r.Unreadable {
		a.print("\n%s\n  cannot be read\n", key)
	}
	if len(r.Rows) > 0 {
		v := r.Rows[0]
		a.print("\nMore about the first: %s\n", o.callLine("show", []string{v.Tenant, v.Session, v.Key}, schema.Scope(v.Scope)))
	}
}
