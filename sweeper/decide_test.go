package sweeper

import (
	"testing"
	"time"

	"toolledger/internal/plumbing"
	"toolledger/internal/schema"
	"toolledger/writers"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func testSweeper(t *testing.T, cfg Config) *Sweeper {
	t.Helper()
	s, err := newSweeper(plumbing.Ledger{Skew: 2 * time.Minute, Now: func() time.Time { return noon }}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Promise: what the outside world says is believed exactly as far as it proves something: applied always, absent only
// where it was asked after deadline, skew and horizon, unknown never; and nobody waits for an answer for ever.
func TestJudge(t *testing.T) {
	const skew, horizon = 2 * time.Minute, 5 * time.Minute
	counts := skew + horizon
	for name, tt := range map[string]struct {
		verdict    writers.Verdict
		age        time.Duration // since the deadline, when it was asked
		idempotent bool
		horizon    time.Duration // 0: five minutes; below 0: none stored
		do         action
		wait       time.Duration // postpone: from when it was asked
	}{
		"applied at once":                 {writers.EffectApplied, skew + 1, false, 0, settle, 0},
		"applied late":                    {writers.EffectApplied, 5 * time.Hour, true, 0, settle, 0},
		"absent, before the horizon":      {writers.EffectAbsent, skew + time.Minute, false, 0, postpone, horizon - time.Minute + time.Millisecond},
		"absent, at the horizon":          {writers.EffectAbsent, counts, false, 0, postpone, time.Millisecond},
		"absent, after the horizon":       {writers.EffectAbsent, counts + time.Millisecond, false, 0, expire, 0},
		"absent, early, idempotent":       {writers.EffectAbsent, skew + time.Second, true, 0, postpone, horizon - time.Second + time.Millisecond},
		"absent, no horizon stored":       {writers.EffectAbsent, skew + time.Minute, false, -1, postpone, time.Millisecond},
		"absent, default horizon is over": {writers.EffectAbsent, skew + time.Minute + 1e6, false, -1, expire, 0},
		"unknown, first":                  {writers.EffectUnknown, skew + time.Second, false, 0, postpone, time.Minute + time.Millisecond},
		"unknown, again":                  {writers.EffectUnknown, skew + 2*time.Minute, false, 0, postpone, 2*time.Minute + time.Millisecond},
		"unknown, later":                  {writers.EffectUnknown, skew + 4*time.Minute, false, 0, postpone, 4*time.Minute + time.Millisecond},
		"unknown, capped":                 {writers.EffectUnknown, skew + 30*time.Minute, false, 0, postpone, 15*time.Minute + time.Millisecond},
		"unknown, near the end":           {writers.EffectUnknown, 59 * time.Minute, false, 0, postpone, time.Minute + time.Millisecond},
		"unknown, at the end":             {writers.EffectUnknown, time.Hour, false, 0, postpone, time.Millisecond},
		"unknown, past the end":           {writers.EffectUnknown, time.Hour + time.Millisecond, false, 0, hold, 0},
		"unknown, past it, idempotent":    {writers.EffectUnknown, time.Hour + time.Millisecond, true, 0, expire, 0},
		"unknown, in a long horizon":      {writers.EffectUnknown, 2 * time.Hour, false, 3 * time.Hour, postpone, 15*time.Minute + time.Millisecond},
		"unknown, after a long horizon":   {writers.EffectUnknown, 3*time.Hour + skew + 1e6, false, 3 * time.Hour, hold, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSweeper(t, Config{})
			row := &schema.Row{Deadline: noon.Add(-tt.age), Idempotent: tt.idempotent, Horizon: horizon}
			if tt.horizon != 0 {
				row.Horizon = max(tt.horizon, 0)
			}
			got := s.judge(found{row: row}, tt.verdict, nil, noon)
			if got.do != tt.do {
				t.Errorf("does %d, want %d", got.do, tt.do)
			}
			if tt.do == postpone && got.at.Sub(noon) != tt.wait {
				t.Errorf("waits %s, want %s", got.at.Sub(noon), tt.wait)
			}
			if got.do == postpone && !got.at.After(noon) {
				t.Errorf("comes back at %s, which is no later", got.at)
			}
		})
	}
}

// Promise: from the first unknown answer to the hold, a row is looked at a dozen times, not every minute of the hour.
func TestGapsGrow(t *testing.T) {
	s := testSweeper(t, Config{})
	deadline := noon
	now, asked := deadline.Add(2*time.Minute+time.Second), 0
	for ; asked < 100; asked++ {
		got := s.judge(found{row: &schema.Row{Deadline: deadline}}, writers.EffectUnknown, nil, now)
		if got.do == hold {
			break
		}
		now = got.at.Add(time.Minute) // the next run comes when it comes
	}
	if asked < 5 || asked > 12 {
		t.Errorf("asked %d times", asked)
	}
	if late := now.Sub(deadline); late > time.Hour+2*time.Minute {
		t.Errorf("held %s after the deadline, want an hour", late)
	}
}

// Promise: a tool that cannot be asked about is given back only where acting twice is harmless.
func TestBlind(t *testing.T) {
	if got := blind(found{row: &schema.Row{Idempotent: true}}); got.do != expire {
		t.Error("idempotent: ", got.do)
	}
	if got := blind(found{row: &schema.Row{}}); got.do != hold {
		t.Error("not idempotent: ", got.do)
	}
}
