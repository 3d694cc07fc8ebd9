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

// Sessions may use the same keys. A call that belongs to their tenant is undone by one of them, however the others call their own; the one
// goes on after a retry, and whoever comes to its end afterwards changes nothing.
func TestUndoneFromOneSession(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	one, other := g.session(), g.ledger.Tenant("acme").Session("another session")
	undo := call("undo", func(c *writers.Call) { c.Compensates, c.RefundOriginal = writers.TenantKey("o"), true })
	g.commit(one, call("o", func(c *writers.Call) { c.Key = writers.TenantKey("o") }), "done")
	g.must(g.reserve(one, undo).Release(t.Context(), "not now"))
	for range 2 {
		_, _, err := other.Reserve(t.Context(), undo)
		g.wantCode(err, writers.ErrNotCompensable)
		_, err = other.Commit(t.Context(), undo, "undone elsewhere")
		g.wantCode(err, writers.ErrNotCompensable)
	}
	hold := g.reserve(one, undo)
	_, _, err := other.Reserve(t.Context(), undo)
	g.wantCode(err, writers.ErrNotCompensable)
	_, err = hold.Finalize(t.Context(), "undone", 5)
	g.must(err)
	_, _, err = other.Reserve(t.Context(), undo)
	g.wantCode(err, writers.ErrNotCompensable)
	row, err := one.Get(t.Context(), writers.TenantKey("o"))
	if g.must(err); row.CompensatedBy != "undo" {
		t.Errorf("undone by %q", row.CompensatedBy)
	}
}

// A final charge on top of its reservation is paid from what the same transaction gives back as well.
func TestUndoPaysFromItsRefund(t *testing.T) {
	t.Parallel()
	g := newLedgerRig(t)
	g.commit(g.session(), call("o", func(c *writers.Call) { c.Tokens = 2 }), "done")
	g.commit(g.session(), call("all else", func(c *writers.Call) { c.Tokens = g.remaining() }), "done")
	hold := g.reserve(g.session(), call("u", func(c *writers.Call) {
		c.Compensates, c.RefundOriginal, c.Tokens = writers.SessionKey("o"), true, 0
	}))
	_, err := hold.Finalize(t.Context(), "undone", 3)
	g.must(err)
	if row := g.row("u"); row.Shortfall != 1 || row.Charged != 3 {
		t.Errorf("charged %d, short of %d", row.Charged, row.Shortfall)
	}
	g.wantRemaining(0)
	g.balanced()
}
