// Bench measures what the ledger costs its caller, each figure against a floor that does the same work without it, in
// the same process and the same run: figures of two runs, or of two machines, cannot be compared, ratios can.
//
//	go run ./tests/bench [-run NAME] [-out FILE] [-quick]
//
// It prints a table and, with -out, writes {name: {value, unit, floor, ratio}}. To add a benchmark, write a
// func(context.Context, *env) ([]result, error) and name it in the list in main.go.
//
// # The hot path
//
// The floor is a transaction written by hand with the SDK that sends the bytes that the ledger sends (a test compares
// them), but for the ids and times of the call. What it need not do, it does not do: no hashing and no checks. Both are given
// arguments and result as JSON text. Both clients are made from one configuration and talk to a child process that answers fixed bytes,
// so that the processor time of this process is that of the client alone. Rounds are short and alternate between
// the two, and the median over the rounds of the ratio is given.
package main
