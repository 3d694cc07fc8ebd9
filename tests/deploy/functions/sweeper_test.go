package functions_test

import (
	"encoding/json"
	"testing"
	"time"

	"toolledger/sweeper"
	"toolledger/writers"
)

// abandon reserves as a worker would have done two hours ago that died at once.
func (d *database) abandon(t *testing.T, key string) {
	t.Helper()
	past, err := writers.New(d.client, writers.Config{
		Table: table, Control: control, Now: func() time.Time { return time.Now().Add(-2 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = past.Tenant("acme").Session("conversation-17").Reserve(t.Context(), writers.Call{
		Key: writers.SessionKey(key), Tool: "send_mail", Args: json.RawMessage(`{}`), Tokens: 20, Idempotent: true, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Promise: the schedule's event makes the sweeper give back what dead workers hold, answer its report and count it, and any
// further event finds nothing to do.
func TestSchedule(t *testing.T) {
	d, s := newDatabase(t), newServices(t)
	before := d.remaining(t)
	d.abandon(t, "plan-3/step-1")
	l := start(t, "sweeper/lambda", append(d.environ(), "AWS_ENDPOINT_URL="+s.url, "METRICS_NAMESPACE=toolledger")...)
	for i, want := range []int{1, 0} {
		var r sweeper.Report
		body := l.invoke(golden(t, "schedule.json"))
		if err := json.Unmarshal(body, &r); err != nil || !r.Complete || r.Expired != want {
			t.Fatalf("sweep %d: %v %s", i, err, body)
		}
	}
	if left := d.remaining(t); left != before {
		t.Errorf("%d tokens left of %d", left, before)
	}
	if !s.counted("SweepRuns") {
		t.Error("the sweep was not counted")
	}
}

// Promise: a sweep that cannot work fails the invocation, so that somebody hears of it.
func TestSweepWithoutTable(t *testing.T) {
	d, s := newDatabase(t), newServices(t)
	l := start(t, "sweeper/lambda", append(d.environ(), "LEDGER_TABLE=functions-nowhere", "AWS_ENDPOINT_URL="+s.url)...)
	l.refuses("no table", golden(t, "schedule.json"), "")
}
