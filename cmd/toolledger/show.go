package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolledger/internal/schema"
)

// showFlags is what a command line says about show.
type showFlags struct {
	scope     string
	noHistory bool
	within    time.Duration
	result    bool
}

// showResult is what show prints with --json.
type showResult struct {
	place
	Row         rowView          `json:"row"`
	Open        string           `json:"open,omitempty"` // why it is still open
	Observation *observationView `json:"observation,omitempty"`
	History     *historyView     `json:"history,omitempty"`
	Outside     outsideView      `json:"outside"`
	Resolve     resolveView      `json:"resolve"`
}

// rowView is a ledger row for programs.
type rowView struct {
	Tenant         string          `json:"tenant"`
	Session        string          `json:"session"`
	Key            string          `json:"key"`
	Scope          string          `json:"scope"`
	Tool           string          `json:"tool"`
	State          string          `json:"state"`
	Forgotten      bool            `json:"forgotten,omitempty"` // past its retention: it counts as absent
	Held           bool            `json:"held,omitempty"`
	RowID          string          `json:"row_id"`
	Version        int64           `json:"version"`
	Attempt        int64           `json:"attempt"`
	AppliedAttempt int64           `json:"applied_attempt,omitempty"`
	Idempotent     bool            `json:"idempotent"`
	Verifier       bool            `json:"verifier"`
	Reserved       int64           `json:"reserved_tokens"`
	Charged        int64           `json:"charged_tokens"`
	Shortfall      int64           `json:"shortfall_tokens,omitempty"`
	Debits         []debitView     `json:"debits"`
	Failure        string          `json:"failure,omitempty"`
	Unverified     bool            `json:"unverified,omitempty"`
	Suspects       []string        `json:"suspects,omitempty"`
	SettledBy      string          `json:"settled_by,omitempty"`
	By             string          `json:"by,omitempty"`
	Why            string          `json:"why,omitempty"`
	Compensates    string          `json:"compensates,omitempty"`
	CompensatedBy  string          `json:"compensated_by,omitempty"`
	CompensatedIn  string          `json:"compensated_in,omitempty"` // session of that call, where the shown one is its tenant's
	CreatedAt      time.Time       `json:"created_at"`
	ReservedAt     time.Time       `json:"reserved_at"` // of the running attempt
	UpdatedAt      time.Time       `json:"updated_at"`
	Deadline       time.Time       `json:"deadline,omitzero"` // the last one, once the call ended
	SweepAt        time.Time       `json:"sweep_at,omitzero"`
	ExpiresAt      time.Time       `json:"expires_at,omitzero"`
	Trace          string          `json:"trace,omitempty"`
	ResultSHA256   string          `json:"result_sha256,omitempty"`
	ResultBytes    int64           `json:"result_bytes,omitempty"`
	ResultRef      string          `json:"result_ref,omitempty"` // where it is, in the result store
	Result         json.RawMessage `json:"result,omitempty"`     // where it was asked for and is in the row
}

type debitView struct {
	Period string `json:"period"`
	Shard  int    `json:"shard"`
	Tokens int64  `json:"tokens"`
}

// observationView counts what left no trace in the row.
type observationView struct {
	Replays      int64     `json:"replays"`
	InFlight     int64     `json:"in_flight"`
	KeyConflicts int64     `json:"key_conflicts"`
	QuotaDenials int64     `json:"quota_denials"`
	GiveUps      int64     `json:"contention_give_ups"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// outsideView is what there is to look for in the outside world.
type outsideView struct {
	EffectKey string    `json:"effect_key"`
	Lookup    string    `json:"lookup,omitempty"`
	From      time.Time `json:"from"`           // an act of the running attempt landed after this
	Until     time.Time `json:"until,omitzero"` // and before this
}

// resolveView are the commands with which a person decides.
type resolveView struct {
	Applied        string    `json:"applied,omitempty"`
	NotApplied     string    `json:"not_applied,omitempty"`
	NotAppliedFrom time.Time `json:"not_applied_from,omitzero"` // before that it proves nothing, and is refused
}

func newShowCommand(a *app) *cobra.Command {
	f := &showFlags{}
	cmd := &cobra.Command{
		Use: "show TENANT SESSION KEY", GroupID: groupLook, Args: names("TENANT", "SESSION", "KEY"),
		Short: "Show all that is known of one call, and how to look outside and decide",
		Long: `Shows the row of one call, what was counted beside it, its history as long as the stream remembers (24 hours), what to look
for in the outside world, and the exact commands with which a person decides what became of it. Of a tenant-wide key
(--scope tenant) the session says nothing: any will do.`,
		Example: `  toolledger show acme conversation-17 plan-3/step-1 --region eu-west-1 --table toolledger
  toolledger show acme - order-4711 --scope tenant --local ledger.db --json`,
	}
	o := addOperator(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "session", "session or tenant: how far the key reaches")
	flags.BoolVar(&f.noHistory, "no-history", false, "do not read the stream")
	flags.DurationVar(&f.within, "history-time", 20*time.Second, "read the stream for `TIME` at most: a busy table's is long")
	flags.BoolVar(&f.result, "result", false, "print the stored result too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), o, f, args) }
	return cmd
}

func (a *app) show(ctx context.Context, o *operator, f *showFlags, args []string) error {
	scope, err := scopeFlag(f.scope)
	if err != nil {
		return err
	}
	if f.within <= 0 {
		return badInput("--history-time %s: want more than 0", f.within)
	}
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	key := schema.RowKey(args[0], args[1], scope, args[2])
	row, err := b.row(ctx, key)
	if err != nil {
		return err
	}
	r := showResult{place: b.place}
	if r.Observation, err = b.observation(ctx, key); err != nil {
		return err
	}
	if !f.noHistory {
		if r.History, err = a.history(ctx, b, key, f.within); err != nil {
			return err
		}
	}
	if row == nil {
		return a.showAbsent(ctx, b, r, scope, args)
	}
	now, d := a.now().UTC(), b.diagnosis(row, a.now().UTC())
	r.Row = viewRow(row, args[0], args[2], now, f.result)
	r.Open, r.Outside = d.why, outsideOf(row, d)
	r.Resolve = o.resolveCommands(row, d, args)
	if a.json {
		return a.printJSON(r)
	}
	a.printShow(r, now)
	return nil
}

// showAbsent tells what there is where the row is not: history, a row under the other scope.
func (a *app) showAbsent(ctx context.Context, b *bench, r showResult, scope schema.Scope, args []string) error {
	if r.History != nil && len(r.History.Changes) > 0 {
		a.printHistory(r.History)
	}
	other := map[schema.Scope]schema.Scope{schema.ScopeSession: schema.ScopeTenant, schema.ScopeTenant: schema.ScopeSession}[scope]
	item, err := b.getItem(ctx, b.table, schema.RowKey(args[0], args[1], other, args[2]))
	if err != nil {
		return err
	}
	hint := ""
	if item != nil {
		hint = "; there is one with --scope " + string(other)
	}
	return badInput("there is no call %s of tenant %s, session %s, in %s%s", args[2], args[0], args[1], b.place, hint)
}

// row reads a ledger row, also one that counts as absent; nil where there is none.
func (b *bench) row(ctx context.Context, key schema.Key) (*schema.Row, error) {
	item, err := b.getItem(ctx, b.table, key)
	if err != nil || item == nil {
		return nil, err
	}
	row, err := schema.DecodeRow(schema.FieldsOf(item))
	if err != nil {
		return nil, broken("the row %s %s in %s cannot be read: %w", key.PK, key.SK, b.place, err)
	}
	return row, nil
}

func (b *bench) observation(ctx context.Context, row schema.Key) (*observationView, error) {
	item, err := b.getItem(ctx, b.table, schema.ObservationKey(row))
	if err != nil || item == nil {
		return nil, err
	}
	n, err := schema.DecodeObservation(schema.FieldsOf(item))
	if err != nil {
		return nil, broken("the observations of %s %s in %s cannot be read: %w", row.PK, row.SK, b.place, err)
	}
	return &observationView{n.Duplicates, n.InFlight, n.KeyConflicts, n.QuotaDenials, n.GiveUps, n.UpdatedAt}, nil
}

func viewRow(r *schema.Row, tenant, key string, now time.Time, result bool) rowView {
	v := rowView{
		Tenant: tenant, Session: r.Session, Key: key, Scope: string(r.Scope), Tool: r.Tool, State: r.State,
		Forgotten: r.Expired(now), Held: r.Held, RowID: r.RowID, Version: r.Version, Attempt: r.Attempt,
		AppliedAttempt: r.AppliedAttempt, Idempotent: r.Idempotent, Verifier: r.Verifier, Reserved: r.Reserved, Charged: r.Charged,
		Shortfall: r.Shortfall, Debits: []debitView{}, Failure: r.Failure, Unverified: r.Unverified != 0, Suspects: r.Suspects,
		SettledBy: r.SettledBy, By: r.By, Why: r.Why, Compensates: r.Compensates, CompensatedBy: r.CompensatedBy, CompensatedIn: r.CompensatedIn,
		CreatedAt: r.CreatedAt, ReservedAt: reservedAt(r), UpdatedAt: r.UpdatedAt, Deadline: deadlineOf(r), SweepAt: r.SweepAt,
		ExpiresAt: r.ExpiresAt, Trace: r.Trace,
	}
	for _, d := range r.Debits {
		v.Debits = append(v.Debits, debitView{d.Period, d.Shard, d.Tokens})
	}
	switch {
	case r.ResultRef != nil:
		v.ResultSHA256, v.ResultBytes, v.ResultRef = hex.EncodeToString(r.ResultRef.SHA256), r.ResultRef.Bytes, r.ResultRef.Ref
	case r.ResultJSON != nil:
		sum := sha256.Sum256([]byte(*r.ResultJSON))
		v.ResultSHA256, v.ResultBytes = hex.EncodeToString(sum[:]), int64(len(*r.ResultJSON))
		if result && json.Valid([]byte(*r.ResultJSON)) {
			v.Result = json.RawMessage(*r.ResultJSON)
		}
	}
	return v
}

func reservedAt(r *schema.Row) time.Time {
	if r.ReservedAt.IsZero() {
		return r.CreatedAt
	}
	return r.ReservedAt
}

func deadlineOf(r *schema.Row) time.Time {
	if r.Deadline.IsZero() {
		return r.LastDeadline
	}
	return r.Deadline
}

func outsideOf(r *schema.Row, d diagnosis) outsideView {
	return outsideView{EffectKey: schema.EffectKey(r.Key), Lookup: r.Lookup, From: reservedAt(r), Until: d.settles}
}

// resolveCommands are the commands to copy: those that the ledger would not refuse, or not for long.
func (o *operator) resolveCommands(r *schema.Row, d diagnosis, args []string) resolveView {
	var v resolveView
	if r.State == schema.StateApplied || d.forgotten {
		return v
	}
	command := func(verdict ...string) string {
		return o.callLine("resolve", args, r.Scope, append([]string{"--attempt", strconv.FormatInt(r.Attempt, 10)}, verdict...)...)
	}
	if r.State == schema.StatePending || r.Unverified != 0 {
		v.Applied = command("--applied", `{"RESULT": "of the effect, as JSON"}`)
	}
	if r.State == schema.StatePending || r.Unverified != 0 && r.Failure != schema.FailureResolved {
		v.NotApplied, v.NotAppliedFrom = command("--not-applied"), d.settles
	}
	return v
}
