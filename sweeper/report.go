package sweeper

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"toolledger/metrics"
)

// Report is what one run did. Every row that was Found is in exactly one of Finalized, Expired, Held, Unknown, Early,
// LostRaces, Errors and Left. A DryRun counts what it would have done.
type Report struct {
	Found     int // overdue reservations whose turn it was
	Verified  int // of these: asked about, and a verifier said applied or absent
	Finalized int // the effect had happened: recorded, charged what was reserved
	Expired   int // given back
	Unknown   int // nobody can tell yet: left pending for a later run
	Held      int // given to a person
	LostRaces int // somebody else moved the row first: nothing was written
	Errors    int // rows that could not be read, settled or written, and reads of the index that failed

	RefundedTokens int64
	OldestAge      time.Duration // since the deadline, of the oldest overdue reservation that is not held, waiting ones included
	Complete       bool          // false: something is left whose turn it is; the next run goes on

	Early      int           // absent before the effect horizon had passed, which proves nothing: the sweeper comes back then
	Left       int           // found, but time ran out or contention did not end
	Waiting    int           // overdue, but not to be looked at before a later time; not in Found
	HeldNow    int           // reservations that a person has to decide on, at most some thousands per partition; not in Found
	OpenNow    int           // other reservations that are open at the end, in time or overdue; bounded in the same way
	GoneTokens int64         // of expired rows whose quota item was gone already: nothing to refund to
	Requests   int           // that were sent to DynamoDB, but for those of Finalized
	DryRun     bool          // nothing was written
	Started    time.Time     // by the ledger's clock
	Took       time.Duration // by the ledger's clock
}

// Metrics are the report's figures under the names that package metrics defines, timed at the start of the run. A dry
// run has none.
func (r Report) Metrics() []metrics.Datum {
	if r.DryRun {
		return nil
	}
	incomplete := 0.0
	if !r.Complete {
		incomplete = 1
	}
	values := []struct {
		name  string
		value float64
	}{
		{metrics.SweepRuns, 1},
		{metrics.SweepFound, float64(r.Found)},
		{metrics.SweepVerified, float64(r.Verified)},
		{metrics.SweepFinalized, float64(r.Finalized)},
		{metrics.SweepExpired, float64(r.Expired)},
		{metrics.SweepUnknown, float64(r.Unknown)},
		{metrics.SweepHeld, float64(r.Held)},
		{metrics.SweepLostRaces, float64(r.LostRaces)},
		{metrics.SweepErrors, float64(r.Errors)},
		{metrics.SweepIncomplete, incomplete},
		{metrics.SweepRefundedTokens, float64(r.RefundedTokens)},
		{metrics.OldestReservationAge, r.OldestAge.Seconds()},
		{metrics.ReservationsOverdue, float64(r.Found + r.Waiting)},
		{metrics.ReservationsHeld, float64(r.HeldNow)},
		{metrics.ReservationsOpen, float64(r.OpenNow)},
	}
	data := make([]metrics.Datum, len(values))
	for i, v := range values {
		data[i] = metrics.Datum{Name: v.name, Value: v.value, Time: r.Started}
	}
	return data
}

// reportJSON is a Report as JSON: durations in seconds.
type reportJSON struct {
	Started        time.Time `json:"started"`
	TookSeconds    float64   `json:"took_seconds"`
	DryRun         bool      `json:"dry_run"`
	Complete       bool      `json:"complete"`
	Found          int       `json:"found"`
	Verified       int       `json:"verified"`
	Finalized      int       `json:"finalized"`
	Expired        int       `json:"expired"`
	Unknown        int       `json:"unknown"`
	Early          int       `json:"early"`
	Held           int       `json:"held"`
	LostRaces      int       `json:"lost_races"`
	Left           int       `json:"left"`
	Errors         int       `json:"errors"`
	Waiting        int       `json:"waiting"`
	HeldNow        int       `json:"held_now"`
	OpenNow        int       `json:"open_now"`
	RefundedTokens int64     `json:"refunded_tokens"`
	GoneTokens     int64     `json:"gone_tokens"`
	OldestSeconds  float64   `json:"oldest_age_seconds"`
	Requests       int       `json:"requests"`
}

// MarshalJSON writes all figures under snake_case names, durations in seconds.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(reportJSON{
		Started: r.Started, TookSeconds: r.Took.Seconds(), DryRun: r.DryRun, Complete: r.Complete, Found: r.Found,
		Verified: r.Verified, Finalized: r.Finalized, Expired: r.Expired, Unknown: r.Unknown, Early: r.Early, Held: r.Held,
		LostRaces: r.LostRaces, Left: r.Left, Errors: r.Errors, Waiting: r.Waiting, HeldNow: r.HeldNow, OpenNow: r.OpenNow,
		RefundedTokens: r.RefundedTokens, GoneTokens: r.GoneTokens, OldestSeconds: r.OldestAge.Seconds(), Requests: r.Requests,
	})
}

func (r Report) log(ctx context.Context, logger *slog.Logger, err error) {
	level := slog.LevelInfo
	if err != nil || r.Errors > 0 {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.Int("found", r.Found), slog.Int("verified", r.Verified), slog.Int("finalized", r.Finalized),
		slog.Int("expired", r.Expired), slog.Int("unknown", r.Unknown), slog.Int("held", r.Held),
		slog.Int("lost_races", r.LostRaces), slog.Int("errors", r.Errors), slog.Int64("refunded_tokens", r.RefundedTokens),
		slog.Duration("oldest_age", r.OldestAge), slog.Bool("complete", r.Complete), slog.Int("early", r.Early),
		slog.Int("left", r.Left), slog.Int("waiting", r.Waiting), slog.Int("held_now", r.HeldNow), slog.Int("open_now", r.OpenNow),
		slog.Int64("gone_tokens", r.GoneTokens), slog.Int("requests", r.Requests), slog.Bool("dry_run", r.DryRun),
		slog.Time("started", r.Started), slog.Duration("took", r.Took),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	logger.LogAttrs(context.WithoutCancel(ctx), level, "sweep finished", attrs...)
}
