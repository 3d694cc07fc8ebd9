// Command fence keeps calls that a restored ledger table has forgotten from taking effect a second time. It reads events of
// the time after the restore point, one a line, and is the seventh step of "restore from backup" in docs/runbook.md.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"toolledger/streams/events"
	"toolledger/writers"
)

// forgotten is the tool of the rows that are planted: no tool of anybody's has its name, so that whoever retries the
// forgotten call gets a key conflict, and a subscriber can tell the row from an effect.
const forgotten = "forgotten-effect"

// maxLine is longer than EventBridge lets an event be.
const maxLine = 1 << 20

// call names a call across its rows.
type call struct {
	Tenant, Session, Key string
	TenantWide           bool
}

// Case is a call that a person has to look at.
type Case struct {
	Call    call
	State   string // of its row in the restored table: absent, pending or failed
	Attempt int    // of that row
	Event   string // id of the event that tells of it
}

// Report is what a fence did.
type Report struct {
	Events  int
	Known   int    // effects that the table remembers
	Planted int    // effects that it had forgotten: fenced
	Settle  []Case // took effect, and stand as pending or failed: record them with toolledger resolve
	Unclear []Case // reserved or expired, and forgotten: nobody knows whether they took effect; look outside
}

// history is what the events tell of one call.
type history struct {
	effect   string // id of the event of its effect, "" for none
	reserved int    // highest attempts
	released int    // of which it is sure that they took no effect
	last     string // id of the event of the highest reservation
}

// read collects what events tell, in whatever order and however often they come. Errors: a line that is no event, by number.
func read(from io.Reader) (map[call]*history, int, error) {
	calls := map[call]*history{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		n++
		ev, err := events.Parse(lines.Bytes())
		if err != nil {
			return nil, n, fmt.Errorf("event %d: %w", n, err)
		}
		h := ev.Head()
		if h.Tool == forgotten || h.Key == "" {
			continue
		}
		c := call{h.Tenant, h.Session, h.Key, h.Scope == "tenant"}
		if c.TenantWide {
			c.Session = "-" // any session reaches it
		}
		if calls[c] == nil {
			calls[c] = &history{}
		}
		calls[c].add(ev, h)
	}
	return calls, n, lines.Err()
}

func (s *history) add(ev events.Event, h events.Header) {
	switch ev.(type) {
	case *events.ToolEffectApplied, *events.ToolEffectSettledLate:
		s.effect = h.ID
	case *events.ToolCallReserved:
		if h.Attempt > s.reserved {
			s.reserved, s.last = h.Attempt, h.ID
		}
	case *events.ReservationReleased, *events.ReservationResolved:
		s.released = max(s.released, h.Attempt)
	}
}

// Fence plants an applied row for every effect that the ledger has forgotten. It may be run again: what it planted is known
// then. The ledger must be the restored one, and nobody else may call it meanwhile.
// Errors: those of the ledger, and a line that is no event; what was planted before stays.
func Fence(ctx context.Context, l *writers.Ledger, from io.Reader) (Report, error) {
	calls, n, err := read(from)
	r := Report{Events: n}
	if err != nil {
		return r, err // before anything is written
	}
	order := make([]call, 0, len(calls))
	for c := range calls {
		order = append(order, c)
	}
	slices.SortFunc(order, func(a, b call) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Key, b.Key))
	})
	for _, c := range order {
		if err := r.fence(ctx, l, c, calls[c]); err != nil {
			return r, fmt.Errorf("%s %s %s: %w", c.Tenant, c.Session, c.Key, err)
		}
	}
	return r, nil
}

func (r *Report) fence(ctx context.Context, l *writers.Ledger, c call, s *history) error {
	session, key := l.Tenant(writers.TenantID(c.Tenant)).Session(c.Session), writers.SessionKey(c.Key)
	if c.TenantWide {
		key = writers.TenantKey(c.Key)
	}
	row, err := session.Get(ctx, key)
	absent := errors.Is(err, writers.ErrNotFound)
	switch {
	case err != nil && !absent:
		return err
	case row.State == writers.StateApplied:
		r.Known++
	case s.effect != "" && absent:
		_, err := session.Commit(ctx, writers.Call{Key: key, Tool: forgotten, Args: map[string]string{"event": s.effect}}, map[string]string{"event": s.effect})
		if err != nil {
			return err
		}
		r.Planted++
	case s.effect != "":
		r.Settle = append(r.Settle, Case{c, string(row.State), row.Attempt, s.effect})
	case absent && s.reserved > s.released:
		r.Unclear = append(r.Unclear, Case{c, "absent", s.reserved, s.last})
	}
	return nil
}
