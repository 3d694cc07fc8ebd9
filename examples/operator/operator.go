// Package operator settles overdue calls from a team's own console, with the tool's verifier in place of a person's eyes.
package operator

import (
	"context"
	"log/slog"
	"time"

	"toolledger/writers"
)

// Overdue is how long after its deadline a call is looked at here: later than the sweeper, which comes every minute.
const Overdue = 5 * time.Minute

// Settled counts what one run of Settle did.
type Settled struct{ Applied, Absent, Unknown int }

// Settle asks tool about each of its overdue calls and records the verdict in the name of who. A call whose effect is
// unknown stays as it is. It stops at the first error of the ledger; the counts hold beside it.
func Settle(ctx context.Context, l *writers.Ledger, tool writers.AnyTool, who string, log *slog.Logger) (Settled, error) {
	var n Settled
	name := tool.Spec().Name
	for row, err := range l.Pending(ctx, Overdue) {
		if err != nil {
			return n, err
		}
		if row.Tool != name {
			continue
		}
		result, verdict, err := tool.VerifyJSON(ctx, row.CallInfo)
		if err != nil || verdict == writers.EffectUnknown {
			n.Unknown++
			log.WarnContext(ctx, "still unknown", slog.String("tenant", string(row.Tenant)), slog.String("session", row.Session),
				slog.String("key", row.Key.String()), slog.Any("error", err))
			continue
		}
		// Row id and attempt make the verdict count for the attempt that was looked at and for no newer one.
		_, err = l.Tenant(row.Tenant).Session(row.Session).Resolve(ctx, row.Key, writers.Resolution{
			Verdict: verdict, RowID: row.RowID, Attempt: row.Attempt, Result: result, By: who, Why: "asked the tool's verifier",
		})
		if err != nil {
			return n, err
		}
		if verdict == writers.EffectApplied {
			n.Applied++
		} else {
			n.Absent++
		}
	}
	return n, nil
}
