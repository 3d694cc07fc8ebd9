// Command simulate runs the real code against the real local DynamoDB in a hostile world, for as long as it is told, from one
// seed, and checks every promise after every step.
//
//	go run ./tests/simulate --seed 7 --steps 200 --profile storm
//	go run ./tests/simulate --seed 1 --seeds 1000 --profile all --coverage table.txt
//
// A violation is one line that names seed, step and invariant; the same seed, steps and profile find it again. The exit code
// is 0 without a violation, 1 with one (with --covered also where a cell of the table is empty), 2 where the program itself could not go on. With
// --until-violation the first one ends the program; --minimise=false leaves its history as it is, which is faster.
//
// # How it works
//
// A run lives in a bubble of package testing/synctest, so that time is simulated: pauses, leases, horizons and retries take
// no real time. Every request of every process to DynamoDB, EventBridge, CloudWatch, a stream and the outside system waits at
// the gate (gate.go), which is the HTTP client below the real SDK clients. When nobody can go on by itself, the scheduler
// (world.go) takes one step: it begins an operation, lets time pass, or picks one waiting request and decides what happens
// to it (faults.go). Real requests are made by one goroutine outside the bubble (store.go), and time stands still meanwhile.
//
// Every decision is drawn from the seed and from what it is about (operation 7; the third request of operation 7), never from
// a common source: leaving one operation or fault out leaves the others as they were, which is what the minimiser lives on
// (minimise.go). What the code under test draws itself comes from crypto/rand, which the seed decides too (random.go).
//
// # The world
//
// process.go has the processes, each with a clock of its own: workers that use the library, HTTP and direct doors, sweepers,
// operators, a stream function, a poller. actors.go and rivals.go have what they do. outside.go has the outside system, with and
// without idempotency keys, with and without a way to ask it. feed.go and shards.go deliver the tables' streams as Lambda does,
// and as shards that split and close. A process that is killed makes no further request; another one takes its place.
//
// # Aimed runs
//
// Calm, storm and chaos leave to chance what meets what. A run of profile aimed is about one line of the coverage table (lines.go): requests
// of one kind that find their row in one state, such as a finalize that finds its row taken over. Such requests are kept back at the gate
// (aim.go), as a process does that stops just before it sends; other operations move the row to that state meanwhile (drive.go), and then the
// request goes on, mostly into a fault, each class of faults in turn. Of its steps only those count that may change a row.
//
// # Coverage
//
// The table (coverage.go) has a line for each operation of the protocol and state of its row, and a cell for each class of faults; faults
// of one class come to the same for the row (never applied; applied and not told; late). Which kinds of a class met which operation has lines
// of its own. What counts is what happened (cover.go): a request that was delayed counts by the state that it found when it arrived, and a fault
// that needs an occasion, such as a second reason beside a cancellation, where there was one. lines.go says which states an operation can meet.
//
// A line that a run has met once can be filled without luck, since a seed is one history: --fill runs that world again and puts the fault
// that is missing at that request. It aims runs at lines that nobody has met. --add counts earlier runs as well, --covered fails where a cell is
// empty, --put puts one fault by hand. The faults of an aimed run are dealt in turn, so that one that is left out changes those after it: the
// minimiser shortens such a history less.
//
// # The oracle
//
// oracle.go, promises.go, transitions.go and drain.go hold the promises against the raw items, as the store's own stream tells of
// them, and against the outside system's log: rows and books. beside.go holds what a write of a row needs beside it, said.go what requests
// ask and callers are told, details.go what events and metrics come to, readback.go what reading gives. None of them uses code of the
// ledger. What nobody can hold (an effect that lands beyond its horizon, a key used again after its retention) and what follows from a
// lie that the ledger believed is counted under "beyond promise"; everything else that goes wrong is a violation. answers.go holds that a
// ledger does not keep its promises by doing nothing: in the end everybody asks once more, and every refusal has to have its reason in the
// raw items.
package main
