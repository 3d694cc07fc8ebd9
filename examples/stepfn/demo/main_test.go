package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"toolledger/examples/stepfn"
	"toolledger/writers/writerstest"
)

// TestStory: the workflow charges once what was rendered, and a second run renders nothing.
func TestStory(t *testing.T) {
	ledger, _ := writerstest.NewLedger(t)
	before, err := ledger.Tenant("acme").Quota(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ran := []string{}
	var out bytes.Buffer
	err = story(&out, "s", func(name string, st stepfn.State) (stepfn.State, error) {
		ran = append(ran, name)
		text, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &st); err != nil {
			t.Fatal(err)
		}
		return functions()[name](t.Context(), ledger, st)
	})
	if err != nil || strings.Join(ran, " ") != "reserve render finalize finalize reserve" || strings.Count(out.String(), "done=true") != 3 {
		t.Fatalf("%v, %v: %s", ran, err, out.String())
	}
	after, err := ledger.Tenant("acme").Quota(t.Context())
	if err != nil || before.Remaining-after.Remaining != 300 {
		t.Fatalf("charged %d, %v", before.Remaining-after.Remaining, err)
	}
	writerstest.Balanced(t, ledger)
}

// TestUnknownState: a function that is configured wrongly says so before it takes an event.
func TestUnknownState(t *testing.T) {
	if err := serve(t.Context(), "act"); !errors.Is(err, errState) {
		t.Error(err)
	}
	if err := once(t.Context(), "", strings.NewReader("{}"), &bytes.Buffer{}); !errors.Is(err, errState) {
		t.Error(err)
	}
}
