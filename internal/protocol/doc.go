// Package protocol holds every conditional write of the ledger: one function per transition, its condition in plain
// sight, shared by the writers that act and the sweeper that cleans up after them. It builds transactions and reads
// their refusals; it decides nothing.
//
// Notation of the comments: R is "rowId is the one we mean", P, F and A are "the state is pending, failed, applied".
// Every update raises the item's version inside the expression, never from a number that a client computed, and asks
// for the old item when its condition fails, since the old row is what decides the answer.
//
// One transaction cannot name an item twice, so a transition that refunds two debits of one quota item, or its own and
// those of the call that it compensates, nets them first: see [Net].
package protocol
