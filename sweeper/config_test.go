package sweeper

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"toolledger/internal/plumbing"
	"toolledger/metrics"
	"toolledger/writers"
)

// Promise: a configuration that cannot be meant is refused by the field's name before anything is swept.
func TestConfigRefuses(t *testing.T) {
	for field, cfg := range map[string]Config{
		"GiveUp":        {GiveUp: -1},
		"Reserve":       {Reserve: time.Hour},
		"VerifyTimeout": {VerifyTimeout: -time.Second},
		"Concurrency":   {Concurrency: 65},
		"Batch":         {Batch: 51},
		"Tools":         {Tools: []writers.AnyTool{nil}},
	} {
		_, err := newSweeper(plumbing.Ledger{}, cfg)
		if e, ok := errors.AsType[*writers.Error](err); !ok || e.Code != writers.ErrInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := New(nil, Config{}); !errors.Is(err, writers.ErrInvalid) {
		t.Error("no ledger: ", err)
	}
}

// Promise: everything that a run measures is defined, so that a dashboard can be made from the definitions; a dry run
// measures nothing.
func TestReportMetrics(t *testing.T) {
	defined := map[string]bool{}
	for _, d := range metrics.Definitions() {
		if d.Emitter == "sweeper" {
			defined[d.Name] = true
		}
	}
	r := Report{
		Found: 1, Verified: 2, Finalized: 3, Expired: 4, Unknown: 5, Held: 6, LostRaces: 7, Errors: 8, RefundedTokens: 9,
		OldestAge: 10 * time.Second, Started: noon,
	}
	got := map[string]float64{}
	for _, d := range r.Metrics() {
		if !defined[d.Name] || d.Tenant != "" || !d.Time.Equal(noon) {
			t.Errorf("%+v is not defined as the sweeper's", d)
		}
		got[d.Name] = d.Value
		delete(defined, d.Name)
	}
	if len(defined) != 0 {
		t.Errorf("never emitted: %v", defined)
	}
	if got[metrics.SweepIncomplete] != 1 || got[metrics.OldestReservationAge] != 10 || got[metrics.SweepRefundedTokens] != 9 {
		t.Error(got)
	}
	if r.DryRun = true; r.Metrics() != nil {
		t.Error("a dry run is measured")
	}
}

// Promise: the report's JSON has every figure, under names that do not change.
func TestReportJSON(t *testing.T) {
	b, err := json.Marshal(Report{Found: 1, OldestAge: 90 * time.Second, Started: noon})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"started":"2026-11-03T12:00:00Z","took_seconds":0,"dry_run":false,"complete":false,"found":1,"verified":0,` +
		`"finalized":0,"expired":0,"unknown":0,"early":0,"held":0,"lost_races":0,"left":0,"errors":0,"waiting":0,"held_now":0,"open_now":0,` +
		`"refunded_tokens":0,"gone_tokens":0,"oldest_age_seconds":90,"requests":0}`
	if string(b) != want {
		t.Errorf("%s", b)
	}
}
