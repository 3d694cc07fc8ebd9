package functions_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolledger/writers"
)

// Promise: a tool that panics in its act takes no process with it and is never acted again by itself: what it did is not
// known, so its row stays pending, with its tokens, until somebody verifies. A function that panics is reported as failed,
// started anew, and serves the next event.
func TestPanic(t *testing.T) {
	d := newDatabase(t)
	l := start(t, "tests/deploy/functions/testdata/panics", append(d.environ(), "AWS_LAMBDA_FUNCTION_TIMEOUT=3")...)
	event := golden(t, "bedrock-function.json")
	for range 2 {
		body := string(l.invoke(event))
		if strings.Contains(body, "errorMessage") || !strings.Contains(body, `"functionResponse"`) || strings.Contains(body, "own mistake") {
			t.Fatalf("%s", body)
		}
	}
	if n := strings.Count(l.log.String(), "the tool acts"); n != 1 {
		t.Errorf("the tool acted %d times", n)
	}
	call, err := d.ledger.Tenant("acme").Session("204561231232").Get(t.Context(), writers.SessionKey("r1"))
	if err != nil || call.State != writers.StatePending {
		t.Errorf("%+v %v", call, err)
	}
	if left := d.remaining(t); left != 990 {
		t.Errorf("%d tokens left", left)
	}

	var failed struct {
		ErrorMessage string `json:"errorMessage"`
		ErrorType    string `json:"errorType"`
	}
	body := l.invoke([]byte(`{"sessionId":"panic"}`))
	if err := json.Unmarshal(body, &failed); err != nil || failed.ErrorMessage != "the function's own mistake" {
		t.Fatalf("%v %s", err, body)
	}
	if body := string(l.invoke(event)); !strings.Contains(body, `"functionResponse"`) {
		t.Errorf("after the panic: %s", body)
	}
}
