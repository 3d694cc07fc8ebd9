// Package writers records tool calls so that each takes effect once: one key per intended action, one transaction for
// quota, ledger row and session. Start with [Tool.Do]; use [Tool.Commit] for effects that live in DynamoDB themselves,
// and [Session.Reserve] when acting and recording happen in different processes.
//
// # The life of a call
//
//	           Reserve                       Finalize
//	absent ───────────────▶ pending ───────────────────────▶ applied ──▶ replayed to whoever asks again
//	   │                    │    ▲                              ▲
//	   │ Commit             │    │ Takeover (attempt + 1)       │ late settlement, verify, a person
//	   └──────────▶ applied │    │                              │
//	                        └──▶ failed ────────────────────────┘
//	             Release, Expire
//
// A reservation debits quota and says "from now on the effect may happen". Only its holder acts. Whoever else comes with
// the same key waits, asks the outside world, or is refused; nobody acts on a pending row because time has passed. What
// did not happen is given back to exactly the quota items that were debited; what did happen is recorded even after
// it was given up for lost, and recording it never fails on quota.
//
// # Many callers
//
// The SDK's HTTP client keeps 10 idle connections to a host. A process with more calls at once than that opens and closes
// connections all the time, on AWS with a TLS handshake each, unless it is told to keep more:
//
//	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.MaxIdleConnsPerHost = 64 })
//
// Calls of one tenant meet at its quota item. From some ten calls a second on they begin to get into each other's way; a
// plan with one shard for every ten calls a second keeps them apart.
//
// # Files
//
// call.go and key.go say what a call is; ledger.go and tenant.go are the handles; write.go sends the first transaction
// of a call and found.go decides what an existing row means for it; debit.go finds the quota items that pay; plan.go
// changes plans; reservation.go and finalize.go end an attempt; settle.go records an effect on somebody else's word;
// do.go is the loop that most tools need; observe.go counts what a cancelled transaction cannot.
package writers
