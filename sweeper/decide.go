package sweeper

import (
	"encoding/json"
	"time"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// action is what is to be done with a row.
type action int

const (
	expire   action = iota // pending to failed, with its refund
	hold                   // to a person
	postpone               // come back later
	settle                 // the effect happened
)

// step is one row with what is to be done with it.
type step struct {
	found
	do     action
	at     time.Time       // postpone: until when
	early  bool            // postpone: absent before the horizon, not unknown
	result json.RawMessage // settle
}

// The gaps after which the sweeper comes back to an unknown effect. They grow with the time that the row is overdue, so
// that they double without anybody counting.
const (
	firstGap = time.Minute
	mostGap  = 15 * time.Minute

	defaultHorizon = time.Minute // of a row that stores none
)

// settledAt is the moment from which "absent" counts: an act that was issued before the deadline has landed by then,
// whichever clock the deadline was made by.
func (s *Sweeper) settledAt(row *schema.Row) time.Time {
	horizon := row.Horizon
	if horizon <= 0 {
		horizon = defaultHorizon
	}
	return row.Deadline.Add(s.l.Skew + horizon)
}

// blind decides on a row whose tool nobody can be asked about.
func blind(f found) step {
	if f.row.Idempotent {
		return step{found: f, do: expire}
	}
	return step{found: f, do: hold}
}

// judge decides on a row whose verifier answered; asked is the time before the question, since an answer proves nothing
// about what landed after it was made.
func (s *Sweeper) judge(f found, v writers.Verdict, result json.RawMessage, asked time.Time) step {
	row := f.row
	counts := s.settledAt(row)
	switch v {
	case writers.EffectApplied:
		return step{found: f, do: settle, result: result}
	case writers.EffectAbsent:
		if asked.After(counts) {
			return step{found: f, do: expire}
		}
		return step{found: f, do: postpone, at: inMillis(counts), early: true}
	case writers.EffectUnknown:
	}
	hard := row.Deadline.Add(s.cfg.GiveUp)
	if hard.Before(counts) { // a long horizon: one answer must have had the chance to count
		hard = counts
	}
	if asked.After(hard) {
		return blind(f)
	}
	gap := min(max(asked.Sub(row.Deadline)-s.l.Skew, firstGap), mostGap)
	at := asked.Add(gap)
	if at.After(hard) {
		at = hard
	}
	return step{found: f, do: postpone, at: inMillis(at)}
}

// inMillis is the first moment after t in the resolution of the table.
func inMillis(t time.Time) time.Time { return t.Truncate(time.Millisecond).Add(time.Millisecond) }
