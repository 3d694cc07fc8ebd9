// Package sweeper settles or gives back reservations whose deadline has passed: a worker that dies between reserve and
// finalize leaves quota debited and an effect of which nobody knows. Run it every minute; runs may overlap, may be killed
// anywhere and may be started twice, since every write is conditional on the row as it was read.
//
// # What becomes of an overdue reservation
//
// Overdue means that the deadline passed longer ago than the clocks of the ledger's processes may differ (Config.Skew of
// writers). A later deadline, a finalize, a release in between makes the sweeper's write fail, which is a lost race and no
// error.
//
//	the tool has      the outside world says    the sweeper
//	a verifier        applied                   finalizes with what was reserved
//	                  absent                    after the effect horizon: expires and refunds; before: comes back then
//	                  unknown, or no answer     comes back after growing gaps; past Config.GiveUp: holds it for a person
//	                                            (an idempotent tool: expires and refunds)
//	no verifier, and is idempotent              expires and refunds
//	no verifier, and is not                     holds it for a person at once; never expires
//	one that this sweeper was not given         as unknown: until Config.GiveUp a caller may still verify
//
// The effect horizon is how long after the deadline an act that was issued in time may still land; until then "absent"
// proves nothing, while "applied" counts at any time. It is stored in the row.
//
// # How
//
// A run reads the sparse index of pending rows, oldest first, in all its partitions, then works through what it found one
// tenant after the other in turns, so that one tenant's flood does not keep the others waiting. Rows are written about 25
// to a transaction, those that share quota items together, the refunds of a quota item in one amount: a tenth of the
// requests and a tenth of the load on the quota items. A row whose condition fails drops out and the rest goes on.
//
// A refund goes to the quota items that the row says it debited, whatever the period or the plan is by now. A quota item
// that is gone is left out: the row still ends.
package sweeper
