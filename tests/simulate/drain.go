package main

import (
	"maps"
	"slices"
	"time"

	"toolledger/writers"
)

// drain ends a run: faults stop, everybody comes to an end, what is overdue is swept, a person decides what is held, the
// streams are read to their ends. Then the promises that only hold at rest are checked.
func (w *world) drain() error {
	w.calm = true
	w.settleDown(6000)
	for range 12 {
		if w.failure != nil {
			return w.failure
		}
		open := w.openRows()
		if len(open) == 0 {
			break
		}
		w.pass(4 * time.Minute)
		w.start(kindSweep, nil)
		w.settleDown(3000)
		for _, in := range w.pool {
			if w.store.ledger.items[in.rowKey()].has("held") {
				w.start(kindNamed("resolve"), func(op *operation) { op.intent = in })
				w.settleDown(3000)
			}
		}
	}
	w.askedForOnceMore()
	w.readBack()
	w.start(kindNamed("erase"), func(op *operation) { op.last = true })
	w.settleDown(3000)
	w.readStreams()
	if w.failure != nil {
		return w.failure
	}
	return w.atRest()
}

func kindNamed(name string) *opKind {
	return kinds[slices.IndexFunc(kinds, func(k *opKind) bool { return k.name == name })]
}

func (w *world) openRows() (open []key) {
	for k, it := range w.store.ledger.items {
		if isRow(k) && it.str("state") == "pending" {
			open = append(open, k)
		}
	}
	slices.SortFunc(open, key.compare)
	return open
}

// readStreams delivers everything that has not been delivered.
func (w *world) readStreams() {
	for range 400 {
		left := slices.ContainsFunc(w.feed.lanes, func(l *lane) bool { return l.done < len(l.records) })
		if !left || w.failure != nil {
			break
		}
		for _, l := range w.feed.lanes {
			if l.done < len(l.records) {
				w.start(deliverKind(l), nil)
			}
		}
		w.settleDown(3000)
	}
	for range 3 {
		w.start(kindNamed("poll"), nil)
		w.settleDown(6000)
	}
}

// atRest checks what holds once nothing moves any more.
func (w *world) atRest() error {
	for _, k := range w.openRows() {
		return w.broken(invRecorded, "%s is still %s", k.sk, w.oracle.stateOf(k))
	}
	for _, t := range []*table{w.store.ledger, w.store.control} {
		all, err := w.store.scan(t)
		if err != nil {
			return err
		}
		for _, k := range slices.SortedFunc(maps.Keys(all), key.compare) {
			if it := all[k]; !it.equal(t.items[k]) {
				return w.broken(invLeftovers, "%v is not what its stream told", k)
			}
		}
		if len(all) != len(t.items) {
			return w.broken(invLeftovers, "%s has %d items, its stream told of %d", t.name, len(all), len(t.items))
		}
	}
	if err := w.effectsRecorded(); err != nil {
		return err
	}
	return w.feed.final()
}

// effectsRecorded holds that what happened was recorded, as far as anybody could know, by the row that it was reserved in or by the one that
// took its place.
func (w *world) effectsRecorded() error {
	for _, e := range w.out.log {
		it := w.store.ledger.items[w.oracle.rowOf[e.rowID]]
		switch {
		case w.oracle.recorded[e.rowID], it.str("rowId") == e.rowID && it.suspects()[attemptName(e.rowID, int64(e.attempt))]:
		case e.excused != "", w.lies[e.ref] != "", e.service.idempotent, w.oracle.landsBy(e).Before(e.byClock), w.oracle.reborn[e.rowID]:
			w.count("beyond promise", "effect of a failed row")
		default:
			return w.broken(invRecorded, "%s happened (attempt %d, operation %d) and its row is %s", e.ref, e.attempt, e.opID,
				w.oracle.stateOf(w.oracle.rowOf[e.rowID]))
		}
	}
	return nil
}

// expireItems removes what has expired, as the store itself does, some of it.
func (w *world) expireItems() error {
	t := w.store.ledger
	var due []key
	for k, it := range t.items {
		if end := it.num("expiresAt"); end != 0 && end < w.now().Unix() {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, key.compare)
	for i, k := range due {
		if w.draw("expire", w.step, i)%2 == 0 {
			continue // days late
		}
		if err := w.removeExpired(k); err != nil {
			return err
		}
	}
	return nil
}

// removeExpired removes one item as the store's time to live does.
func (w *world) removeExpired(k key) error {
	t := w.store.ledger
	if err := w.store.remove(t, k); err != nil {
		return err
	}
	w.count("store", "removed by time to live")
	fresh, err := w.store.pull(t, w.now())
	if err != nil {
		return err
	}
	for _, r := range fresh {
		r.ttl = true
	}
	return w.oracle.wrote(nil, fresh)
}

// personMay tells whether a person who finds nothing may say so: not before an act that is under way must have landed.
func personMay(row *writers.Row, now time.Time) bool {
	return now.After(row.Deadline.Add(skew + horizon))
}
