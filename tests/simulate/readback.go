package main

import (
	"context"
	"time"

	"toolledger/writers"
)

// readBack lets somebody read what the ledger tells of each tenant, with nobody else under way, and holds it against the raw items.
func (w *world) readBack() {
	for _, t := range w.tenants {
		if w.failure != nil {
			return
		}
		w.start(kindAudit, func(op *operation) { op.tenant = t })
		w.settleDown(1000)
	}
}

var kindAudit = &opKind{name: "audit", slot: "worker", run: runAudit}

func runAudit(ctx context.Context, w *world, op *operation) error {
	t := op.proc.ledger.Tenant(writers.TenantID(op.tenant.id))
	for _, session := range sessions {
		if err := w.auditSession(ctx, op, t.Session(session), session); err != nil {
			return err
		}
	}
	q, err := t.Quota(ctx)
	w.meet()
	switch plan := w.store.control.items[key{"TENANT#" + op.tenant.id, "PLAN"}]; {
	case plan == nil && codeOf(err) == string(writers.ErrNotProvisioned):
		return nil
	case err != nil:
		return err
	case q.Remaining != w.oracle.leftAt(plan, op.tenant.id, op.proc.now()):
		return w.broken(invAnswers, "%s is told that it has %d tokens left, and has %d", op.tenant.id, q.Remaining,
			w.oracle.leftAt(plan, op.tenant.id, op.proc.now()))
	}
	return nil
}

func (w *world) auditSession(ctx context.Context, op *operation, s writers.Session, name string) error {
	told := map[string]string{}
	for row, err := range s.Calls(ctx) {
		if err != nil {
			return err
		}
		told[row.RowID] = string(row.State)
	}
	cursor, err := s.Cursor(ctx)
	if err != nil {
		return err
	}
	w.meet()
	pk := "TENANT#" + op.tenant.id + "#SESSION#" + name
	is := w.store.ledger.items[key{pk, "META"}]
	if want := is.str("cursor"); cursor != want {
		return w.broken(invAnswers, "%s is told the cursor %q, and it is %q", pk, cursor, want)
	}
	for k, it := range w.store.ledger.items {
		if k.pk != pk || !isRow(k) {
			continue
		}
		if told[it.str("rowId")] != it.str("state") && !w.fading(op, it) {
			return w.broken(invAnswers, "%s %s is %s, and told as %q", pk, k.sk, it.str("state"), told[it.str("rowId")])
		}
		delete(told, it.str("rowId"))
	}
	if len(told) > 0 {
		return w.broken(invAnswers, "%s is told of %d calls that it does not have", pk, len(told))
	}
	return nil
}

// fading tells whether an item is past its time, or about to be, and need not be told of.
func (w *world) fading(op *operation, it item) bool {
	end := it.num("expiresAt")
	return end != 0 && end <= op.proc.now().Add(time.Second).Unix()
}

// sessions are those of each tenant.
var sessions = []string{"s0", "s1"}
