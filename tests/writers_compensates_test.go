package tests_test

import (
	"errors"
	"slices"
	"testing"

	"toolledger/writers"
)

// Which call is undone is part of the action. A key that was released is not taken over for another original, which would
// leave the first linked to it for good, and an applied one is no replay for an original that was never undone.
func TestCompensatesIsPartOfTheKey(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	undo := func(key writers.Key, original string) writers.Call {
		return call("u", func(c *writers.Call) { c.Key, c.Compensates = key, writers.SessionKey(original) })
	}
	for _, k := range []string{"o1", "o2"} {
		g.commit(g.session(), call(k), "done")
	}
	refused := func(s writers.Session, c writers.Call) {
		t.Helper()
		_, _, err := s.Reserve(t.Context(), c)
		if e := g.wantCode(err, writers.ErrKeyConflict); !slices.Contains(e.Differs, "compensates") {
			t.Errorf("differs %q", e.Differs)
		}
	}
	hold := g.reserve(g.session(), undo(writers.SessionKey("u"), "o1"))
	g.must(hold.Release(t.Context(), "not now"))
	refused(g.session(), undo(writers.SessionKey("u"), "o2"))
	refused(g.session(), call("u"))
	again := g.reserve(g.session(), undo(writers.SessionKey("u"), "o1"))
	_, err := again.Finalize(t.Context(), "undone", 5)
	g.must(err)
	refused(g.session(), undo(writers.SessionKey("u"), "o2"))
	if out := g.commit(g.session(), undo(writers.SessionKey("u"), "o1"), "x"); out.Outcome != writers.OutcomeReplayed {
		t.Errorf("the same again: %s", out.Outcome)
	}

	other := g.ledger.Tenant("acme").Session("another session")
	g.commit(other, call("o3"), "done")
	g.commit(g.session(), call("o3"), "done")
	g.must(g.reserve(g.session(), undo(writers.TenantKey("wide"), "o3")).Release(t.Context(), "not now"))
	refused(other, undo(writers.TenantKey("wide"), "o3"))
	if _, err := g.session().Get(t.Context(), writers.TenantKey("wide")); errors.Is(err, writers.ErrNotFound) {
		t.Error("the row is gone")
	}
}
