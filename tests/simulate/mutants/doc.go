// Package mutants plants faults in the ledger, the streams, the sweeper and the metrics, one rule at a time, and sees the
// simulation find them. A rule whose absence no simulated world notices is one that the worlds are too friendly for.
//
// Each patch of this folder is the source without one rule; its head says which rule, and what should break. The source is
// never touched: a patch is applied to copies, which an overlay of the go command puts in place (go help build, -overlay).
//
// That every patch applies, and that the simulation still finds some of them, is part of every test run. All of them take a
// build and up to 800 worlds each, and are asked for; -update writes README.md, which says what was found with which seed:
//
//	TOOLLEDGER_MUTANTS=1 go test -timeout 150m ./tests/simulate/mutants [-update]
package mutants
