package writers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// Promise: only the two verdicts that say something count. Any other number a Verify gives is EffectUnknown: it is never
// recorded as an effect, and gives nothing back.
func TestVerifyJSONVerdicts(t *testing.T) {
	for verdict, want := range map[Verdict]Verdict{
		EffectUnknown: EffectUnknown, EffectApplied: EffectApplied, EffectAbsent: EffectAbsent, 77: EffectUnknown, -1: EffectUnknown,
	} {
		for _, failed := range []error{nil, errors.New("no answer")} {
			tool := &Tool[any, string]{Verify: func(context.Context, CallInfo) (string, Verdict, error) { return "done", verdict, failed }}
			want, text := want, ""
			if failed != nil {
				want = EffectUnknown
			}
			if want == EffectApplied {
				text = `"done"`
			}
			out, got, err := tool.VerifyJSON(t.Context(), CallInfo{})
			if got != want || string(out) != text || !errors.Is(err, failed) {
				t.Errorf("verdict %d and %v: %s, %d, %v", verdict, failed, out, got, err)
			}
		}
	}
}

// Promise: a tool whose results could never be stored is refused before it acts.
func TestDoRefusesResultsWithoutJSON(t *testing.T) {
	db := &fakeDB{}
	s := testLedger(t, db).Tenant("acme").Session("s")
	acts := 0
	_, err := (&Tool[any, chan int]{Name: "t", Act: func(context.Context, Attempt[any]) (chan int, error) {
		acts++
		return nil, nil
	}}).Do(t.Context(), s, SessionKey("k"), nil)
	checkRefused(t, "a channel", err, "do", "result")
	_, err = (&Tool[any, func()]{Name: "t", Act: func(context.Context, Attempt[any]) (func(), error) {
		acts++
		return nil, nil
	}}).Do(t.Context(), s, SessionKey("k"), nil)
	checkRefused(t, "a function", err, "do", "result")
	if acts > 0 || len(db.writes) > 0 {
		t.Errorf("acted %d times, sent %d requests", acts, len(db.writes))
	}
}

// Promise: arguments of another kind are refused in words that name what they must be.
func TestDoJSONSaysWhatArgumentsMustBe(t *testing.T) {
	tool := &Tool[struct{ N int }, int]{Name: "t", Act: func(context.Context, Attempt[struct{ N int }]) (int, error) { return 1, nil }}
	s := testLedger(t, &fakeDB{}).Tenant("acme").Session("s")
	for args, want := range map[string]string{
		`[]`:        "do: invalid_request: args do not fit the tool: must be struct { N int }; nothing was written",
		`{"N":"x"}`: "do: invalid_request: args do not fit the tool: N must be int; nothing was written",
		`{`:         "do: invalid_request: args do not fit the tool: not JSON at byte 1; nothing was written",
	} {
		if _, err := tool.DoJSON(t.Context(), s, SessionKey("k"), json.RawMessage(args)); err == nil || err.Error() != want {
			t.Errorf("%s: %v", args, err)
		}
	}
}
