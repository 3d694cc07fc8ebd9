package stepfn_test

import (
	"encoding/json"
	"errors"
	"testing"

	"toolledger/examples/stepfn"
	"toolledger/writers"
	"toolledger/writers/writerstest"
)

// through sends the state from one function to the next as Step Functions does.
func through(t *testing.T, st stepfn.State) stepfn.State {
	t.Helper()
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var out stepfn.State
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReservationCrossesProcesses: reserve, act and finalize in three places charge once, and a second run replays.
func TestReservationCrossesProcesses(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	start := stepfn.State{Tenant: "acme", Session: "wf-1", Key: "render", Args: json.RawMessage(`{"clip":"a"}`)}
	before, err := ledger.Tenant("acme").Quota(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st, err := stepfn.Reserve(t.Context(), ledger, start)
	if err != nil || st.Done || st.Reservation == "" || len(st.EffectKey) != 32 {
		t.Fatalf("%+v, %v", st, err)
	}
	st.Result, st.Seconds = json.RawMessage(`{"url":"v1"}`), 60
	for range 2 { // the state's retry policy may run it again
		if got, err := stepfn.Finalize(t.Context(), ledger, through(t, st)); err != nil || !got.Done {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	again, err := stepfn.Reserve(t.Context(), ledger, start)
	if err != nil || !again.Done || string(again.Result) != `{"url":"v1"}` {
		t.Fatalf("%+v, %v", again, err)
	}
	after, err := ledger.Tenant("acme").Quota(t.Context())
	if err != nil || before.Remaining-after.Remaining != 300 {
		t.Fatalf("charged %d, %v", before.Remaining-after.Remaining, err)
	}
	writerstest.Balanced(t, ledger)
}

// TestTokenOfAnotherTenant: a token does not carry a workflow into another tenant.
func TestTokenOfAnotherTenant(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	st, err := stepfn.Reserve(t.Context(), ledger, stepfn.State{Tenant: "acme", Session: "wf-1", Key: "render"})
	if err != nil {
		t.Fatal(err)
	}
	st.Tenant = "victim"
	if _, err := stepfn.Finalize(t.Context(), ledger, st); !errors.Is(err, writers.ErrInvalid) {
		t.Fatal(err)
	}
}
