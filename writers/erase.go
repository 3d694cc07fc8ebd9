package writers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Scanner is the part of *dynamodb.Client that Erase calls beyond DynamoDB: sessions are in no index, so a tenant's items
// are found by reading the whole ledger table.
type Scanner interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// TenantEraser is a ResultStore that can remove all results of a tenant, those too that no row points at any more. It
// returns how many it removed, also beside an error.
type TenantEraser interface {
	EraseTenant(ctx context.Context, tenant TenantID) (removed int, err error)
}

// Erasure configures Tenant.Erase. All fields are optional.
type Erasure struct {
	Scan     Scanner // nil: the client that New was given, which must have Scan then
	Segments int     // parts of the table read at once; 0 means 4, at most 64
	By, Why  string  // kept in the rows until they are gone; up to 256 bytes and 1 KB
	DryRun   bool    // look and report, change nothing

	// Verify asks about calls of which nobody knows whether they took effect; EffectApplied is recorded, and such a call
	// may then be erased. nil: nobody is asked. An error means EffectUnknown.
	Verify func(context.Context, CallInfo) (json.RawMessage, Verdict, error)

	Progress func(ErasureReport) // called, never twice at once, as the work goes on; nil: not
}

// The defaults and bounds of an Erasure.
const (
	defaultSegments = 4
	maxSegments     = 64
)

// ErasedItems counts a tenant's items by kind.
type ErasedItems struct {
	Rows         int `json:"rows"`
	Observations int `json:"observations"`
	Sessions     int `json:"sessions"`
	QuotaItems   int `json:"quota_items"`
	Plans        int `json:"plans"`
	Grants       int `json:"grants"`
}

// Sum returns how many items these are.
func (e ErasedItems) Sum() int {
	return e.Rows + e.Observations + e.Sessions + e.QuotaItems + e.Plans + e.Grants
}

// ErasureBlock is an item that must not be erased yet, or not by this program.
type ErasureBlock struct {
	Session string    `json:"session,omitempty"`
	Key     string    `json:"key,omitempty"`
	Scope   string    `json:"scope,omitempty"` // "session" or "tenant"
	State   State     `json:"state,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	PK      string    `json:"pk"`
	SK      string    `json:"sk"`
	Reason  string    `json:"reason"`
	Until   time.Time `json:"until,omitzero"` // from then on it is in nobody's way; zero: somebody has to act
}

// ErasureReport is what Tenant.Erase found and did.
type ErasureReport struct {
	Found    ErasedItems    `json:"found"`   // at the first look
	Erased   ErasedItems    `json:"erased"`  // by this call
	Results  int            `json:"results"` // removed from the ResultStore
	Settled  int            `json:"settled"` // effects that Erasure.Verify reported and that were recorded
	Blocked  int            `json:"blocked"` // items that keep the tenant from being erased
	Blocks   []ErasureBlock `json:"blocks"`  // the first of them
	DryRun   bool           `json:"dry_run"`
	Complete bool           `json:"complete"` // at the last look nothing of the tenant was left
}

// maxBlocks is how many blocks a report lists.
const maxBlocks = 1000

// maxRounds bounds how often Erase looks whether anything is left.
const maxRounds = 8

// Erase removes everything of a tenant from both tables and the ResultStore. It first looks, and refuses as long as a call
// is pending, may still land, or failed without anybody knowing whether it took effect: nothing is erased then. Else it
// suspends the tenant, looks once more where it was not suspended yet (a call that began meanwhile is in the way like any
// other; the tenant stays suspended then), removes rows, results, observations, sessions and quota items, the plan and the
// grants last, and looks again until nothing is left. An Erase that was interrupted anywhere is finished by the next one.
// Nothing of the tenant being there is no error.
//
// It reads the whole ledger table at least once and, where it erased something, once more. Every row leaves with its
// LedgerRowArchived event. Afterwards a key that is used again is a new action.
//
// The report is valid also beside an error. Errors: ErrMissingTenant, ErrInvalid (also where items of the tenant cannot be
// understood, or are in a ResultStore that Config.Results does not name), ErrInProgress and ErrOutcomeUnknown for calls that
// have to end first, ErrSuperseded where the tenant was given a plan again meanwhile, ErrUnavailable, ctx's.
func (t Tenant) Erase(ctx context.Context, cfg Erasure) (ErasureReport, error) {
	const op = "erase"
	if err := t.check(op); err != nil {
		return ErasureReport{}, err
	}
	e, err := t.newErasure(op, cfg)
	if err != nil {
		return ErasureReport{}, err
	}
	e.report.DryRun = cfg.DryRun
	err = e.run(ctx)
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil && !errors.Is(err, ctxErr) {
		err = failure(ctx, op, errors.Join(ctxErr, err))
	}
	return e.snapshot(), err
}

func (t Tenant) newErasure(op string, cfg Erasure) (*erasure, error) {
	if cfg.Segments < 0 || cfg.Segments > maxSegments {
		return nil, invalid(op, "Segments", "must be between 0 and 64")
	}
	if cfg.Segments == 0 {
		cfg.Segments = defaultSegments
	}
	if cfg.Scan == nil {
		scan, ok := t.l.db.(Scanner)
		if !ok {
			return nil, invalid(op, "Scan", "is required, since the ledger's client cannot scan")
		}
		cfg.Scan = scan
	}
	verdict := Resolution{Verdict: EffectApplied, Attempt: 1, By: cfg.By, Why: cfg.Why} // the limits of by and why are its
	if err := verdict.check(op); err != nil {
		return nil, err
	}
	return &erasure{l: t.l, t: t, op: op, cfg: cfg}, nil
}

func (e *erasure) run(ctx context.Context) error {
	for round := range maxRounds {
		seen, err := e.look(ctx)
		if err != nil {
			return err
		}
		if round == 0 {
			e.count(func(r *ErasureReport) { r.Found = seen.found })
		}
		switch {
		case seen.blocked > 0:
			return e.refuse(seen)
		case e.cfg.DryRun:
			return nil
		case seen.found.Sum() == 0:
			if round == 0 { // a call that was killed at the very end may have left results
				err = e.results(ctx)
			}
			e.count(func(r *ErasureReport) { r.Complete = err == nil })
			return err
		}
		if err := e.stop(ctx, seen, round); err != nil {
			return err
		}
		if seen.plan != nil && !seen.plan.Suspended {
			continue // a call may have begun between the look and the suspension: its quota items must not go before it ends
		}
		if err := e.remove(ctx, seen); err != nil {
			return err
		}
	}
	return &Error{
		Code: ErrUnavailable, Op: e.op, RetryAfter: e.l.cfg.Skew,
		Reason: "items of the tenant come back as fast as they are erased: somebody still calls in its name; stop that, then erase again",
	}
}

// stop suspends the tenant before anything is erased. A plan that is not suspended later on is a new one: its giver wins.
func (e *erasure) stop(ctx context.Context, seen *look, round int) error {
	switch {
	case seen.plan == nil:
		return nil
	case round == 0:
		err := e.t.Suspend(ctx, true)
		if errors.Is(err, ErrNotProvisioned) { // removed meanwhile by another Erase
			return nil
		}
		return err
	case !seen.plan.Suspended:
		return &Error{Code: ErrSuperseded, Op: e.op, Reason: "somebody gave the tenant a plan again while it was erased; erase again if it is to go"}
	}
	return nil
}

// refuse names what is in the way.
func (e *erasure) refuse(seen *look) error {
	e.count(func(r *ErasureReport) { r.Blocked, r.Blocks = seen.blocked, seen.blocks })
	err := &Error{Code: ErrInvalid, Op: e.op, Reason: "items of the tenant cannot be erased by this call; see the report"}
	switch {
	case seen.open > 0:
		err.Code, err.Reason = ErrInProgress, "calls of the tenant are not over; let them end, sweep, or resolve them first"
	case seen.unknown > 0:
		err.Code = ErrOutcomeUnknown
		err.Reason = "failed calls may have taken effect after all; resolve as applied those that did; for the others wait until their " +
			"keys are forgotten, at the time that the report gives: a verdict of not applied does not shorten that"
	}
	if !seen.until.IsZero() && !seen.stuck {
		err.RetryAfter = max(seen.until.Sub(e.l.now()), 0) + time.Millisecond
	}
	return err
}
