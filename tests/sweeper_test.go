package tests_test

import (
	"fmt"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/sweeper"
)

// Promise: reservations that died are all given back, to the token, in a tenth of the requests that one transaction a
// row would take; the sweep after it finds nothing.
func TestSweepRefundsExactly(t *testing.T) {
	g := newSweepRig(t)
	n := soak(1_000, 10_000)
	rows := make([]*schema.Row, n)
	var tokens int64
	for i := range rows {
		rows[i] = g.overdueRow(fmt.Sprintf("t-%02d", i%50), fmt.Sprintf("s-%d", i%7), keyN(i), func(r *schema.Row) {
			r.Reserved = int64(1 + i%9)
			r.Debits[0].Tokens = r.Reserved
		})
		tokens += rows[i].Reserved
	}
	g.seed(rows...)

	g.faults.harm(nil, nil)
	start := time.Now()
	report := g.sweep(sweeper.Config{})
	t.Logf("%d rows in %d requests, %s: %+v", n, g.faults.count(), time.Since(start), report)
	if report.Found != n || report.Expired != n || report.RefundedTokens != tokens || !report.Complete {
		t.Errorf("report %+v, want %d rows and %d tokens", report, n, tokens)
	}
	if got := g.faults.count(); got > n/10 || got != report.Requests {
		t.Errorf("%d requests (reported %d) for %d rows", got, report.Requests, n)
	}
	g.wantStates(map[string]int{schema.StateFailed: n})

	if again := g.sweep(sweeper.Config{}); again.Found != 0 || again.RefundedTokens != 0 {
		t.Errorf("the second sweep did %+v", again)
	}
}
