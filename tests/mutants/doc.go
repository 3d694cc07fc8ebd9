// Package mutants takes the protocol's rules out of the source one at a time and sees the tests fail. A rule whose absence
// no test notices is a rule that the next refactoring may drop.
//
// The checks that every mutant still fits the source, and that its test is there, are part of every test run. Running the
// mutants takes a build each, some minutes in all, and is asked for:
//
//	TOOLLEDGER_MUTANTS=1 go test -timeout 30m ./tests/mutants
//
// The source is never touched: a mutant is an overlay of the go command (go help build, -overlay).
package mutants
