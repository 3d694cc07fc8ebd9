package sweeper

import "errors"

// ErrNoVerifier is returned by a Config.Remote for a tool that has no verifier there. The sweeper then treats the tool as if
// there were no Remote: idempotent ones expire, others are held, at once unless their callers can verify them. Any other error
// means that the effect is unknown.
var ErrNoVerifier = errors.New("sweeper: no verifier for this tool")

// ErrVerifier is returned by a VerifierHandler for a request that it cannot answer, and counted as unknown by the sweeper
// for an answer that it cannot read: no such tool, a field that is missing or not known, a verdict that is none.
var ErrVerifier = errors.New("sweeper: verifier")

var (
	errPanicked = errors.New("sweeper: verifier panicked")
	errHungUp   = errors.New("sweeper: verifier not asked: it failed too often in this run")
)
