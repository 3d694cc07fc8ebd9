package owndo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"toolledger/examples/owndo"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

type args struct {
	Name string `json:"name"`
}

// TestDo: acts once and replays, gives tokens back where the tool refused, and leaves an unknown effect to Verify.
func TestDo(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	var effects atomic.Int64
	var fail error
	tool := &writers.Tool[args, int64]{
		Name: "greet", Cost: 3,
		Act: func(context.Context, writers.Attempt[args]) (int64, error) { return effects.Add(1), fail },
		Verify: func(context.Context, writers.CallInfo) (int64, writers.Verdict, error) {
			return 7, writers.EffectApplied, nil
		},
	}
	s := ledger.Tenant("acme").Session("s")
	for _, want := range []writers.Outcome{writers.OutcomeApplied, writers.OutcomeReplayed} {
		got, err := owndo.Do(t.Context(), tool, s, writers.SessionKey("a"), args{"x"})
		if err != nil || got.Outcome != want || string(got.JSON) != "1" || effects.Load() != 1 {
			t.Fatalf("%+v, %v, %d effects", got, err, effects.Load())
		}
	}
	fail = errors.New("time-out")
	if _, err := owndo.Do(t.Context(), tool, s, writers.SessionKey("b"), args{"x"}); !errors.Is(err, writers.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	got, err := owndo.Do(t.Context(), tool, s, writers.SessionKey("b"), args{"x"})
	if err != nil || string(got.JSON) != "7" || effects.Load() != 2 {
		t.Fatalf("%+v, %v, %d effects", got, err, effects.Load())
	}
	fail = writers.NotApplied(errors.New("no"))
	if _, err := owndo.Do(t.Context(), tool, s, writers.SessionKey("c"), args{"x"}); !errors.Is(err, writers.ErrNotApplied) {
		t.Fatal(err)
	}
	writerstest.Balanced(t, ledger)
}
