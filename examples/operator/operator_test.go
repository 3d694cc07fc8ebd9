package operator_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"toolledger/examples/operator"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

type args struct {
	Name string `json:"name"`
}

// TestSettle: overdue calls get the verdict of the tool's verifier, an unknown one stays, and other tools are left alone.
func TestSettle(t *testing.T) {
	ledger, clock := writerstest.NewLedger(t)
	verdicts := map[string]writers.Verdict{"there": writers.EffectApplied, "gone": writers.EffectAbsent}
	tool := &writers.Tool[args, string]{
		Name: "mail", Cost: 2,
		Lookup: func(a args) string { return a.Name },
		Act:    func(context.Context, writers.Attempt[args]) (string, error) { return "", context.DeadlineExceeded },
		Verify: func(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
			return "sent", verdicts[c.Lookup], nil
		},
	}
	s := ledger.Tenant("acme").Session("s")
	for _, name := range []string{"there", "gone", "unclear"} {
		if _, _, err := s.Reserve(t.Context(), tool.Call(writers.SessionKey(name), args{name})); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Reserve(t.Context(), writers.Call{Key: writers.SessionKey("other"), Tool: "other", Args: args{"x"}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(15 * time.Minute)
	got, err := operator.Settle(t.Context(), ledger, tool, "ann", slog.New(slog.DiscardHandler))
	if want := (operator.Settled{Applied: 1, Absent: 1, Unknown: 1}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, want := range map[string]writers.State{
		"there": writers.StateApplied, "gone": writers.StateFailed, "unclear": writers.StatePending, "other": writers.StatePending,
	} {
		if row, err := s.Get(t.Context(), writers.SessionKey(name)); err != nil || row.State != want {
			t.Errorf("%s: %s, %v", name, row.State, err)
		}
	}
}
