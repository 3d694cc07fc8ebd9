package streams

import (
	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// Rebuilt is what one item says of its own past.
type Rebuilt struct {
	Events []events.Event // marked as rebuilt; those of a row in the order of their versions
	Untold string         // why the event of its present state is not among them; "" where it is, or where the item makes none
}

// RebuildItem says which events the item's last write, and its first where that is still plain, gave when they were in the
// stream: pure, total, and with the very ids that Derive gave them, so that a subscriber who had one sees nothing twice.
// They are marked as rebuilt, and they hold what they held then, except what the item no longer knows:
//
//   - A reservation that was written again since carries the deadline that holds now, and the grant of a quota item the
//     time at which the writer, not the stream, saw it.
//   - An attempt that began and took effect in one millisecond leaves RefundedTokens and ContentionRetries empty.
//
// An item keeps its present, not its past. What cannot be rebuilt: earlier attempts, extensions, suspects (but for the first
// one of a commit), the first link of a compensation, counts before the last, what quota items granted or how low they
// fell once they were written again, and everything of items that are gone. Where an item leaves open which event its
// last write was, or at which version, the event is left out and Untold says so. With likely, what only the times
// of the row tell is taken for true too: that no attempt is extended, and none released and then settled late, within the
// time that its deadline gives.
// Errors: *UnreadableError, for an item that Derive could not read either.
func RebuildItem(item Image, likely bool) (Rebuilt, error) {
	var rb Rebuilt
	c := Change{Op: OpInsert, New: item}
	for i := range item {
		switch a := &item[i]; {
		case a.Name == schema.PK && a.Value.Type == schema.TypeString:
			c.Keys.PK = a.Value.Text
		case a.Name == schema.SK && a.Value.Type == schema.TypeString:
			c.Keys.SK = a.Value.Text
		}
	}
	id, err := schema.ParseKey(c.Keys)
	if err != nil {
		return rb, unreadable(err)
	}
	switch id.Kind {
	case schema.KindRow:
		r := rebuilder{rowChange: rowChange{c: &c, id: &id}, likely: likely}
		if rb, err = r.rebuild(); err != nil {
			return Rebuilt{}, err
		}
	case schema.KindQuota, schema.KindObservation, schema.KindPlan:
		if rb, err = rebuildCounted(&c, id.Kind); err != nil {
			return Rebuilt{}, err
		}
	case schema.KindSession, schema.KindGrant, schema.KindLease, schema.KindUnknown:
	}
	for i, ev := range rb.Events {
		rb.Events[i] = events.MarkRebuilt(ev)
	}
	return rb, nil
}

// rebuildCounted reads items whose first write is an event of what they hold then, and a plan, of which every write is.
func rebuildCounted(c *Change, kind schema.Kind) (rb Rebuilt, err error) {
	version := int64(1)
	if kind == schema.KindQuota {
		var q *schema.Quota
		if q, err = decodeImage(c, c.New, schema.DecodeQuota, func(q *schema.Quota) schema.Key { return q.Key }); err == nil {
			version, c.Time = q.Version, q.UpdatedAt
		}
	}
	if kind == schema.KindObservation {
		var o *schema.Observation
		if o, err = decodeImage(c, c.New, schema.DecodeObservation, func(o *schema.Observation) schema.Key { return o.Key }); err == nil {
			version, c.Time = o.Version, o.UpdatedAt
		}
	}
	switch {
	case err != nil:
		return rb, err
	case version > 1:
		rb.Untold = "it was counted on since: what each write added is not kept"
		return rb, nil
	}
	rb.Events, _, err = Derive(*c)
	return rb, err
}

// rebuilder reads one row. Its rowChange stands for the write whose event is wanted.
type rebuilder struct {
	rowChange
	likely bool
	untold string
}

func (r *rebuilder) rebuild() (Rebuilt, error) {
	var row schema.Row
	if err := r.c.New.ReadRow(&row, r.c.Keys, r.id); err != nil {
		return Rebuilt{}, unreadable(err)
	}
	r.is = &row
	r.c.Time = row.UpdatedAt
	var broken *breach
	switch row.State {
	case schema.StatePending:
		if broken = checkPending(&row, r.id); broken == nil {
			r.pending()
		}
	case schema.StateFailed:
		if broken = checkFailed(&row); broken == nil {
			r.ended()
		}
	default:
		// A compensation clears the debits, which ends what checkApplied says of charge and debits.
		if broken = checkApplied(&row); broken == nil ||
			!row.CompensatedAt.IsZero() && len(row.Debits) == 0 && broken.attrs == aCharged|aDebits|aShortfall {
			broken = nil
			r.took()
		}
	}
	if broken != nil {
		r.evs, r.untold = nil, "its state is not lawful (toolledger audit): "+broken.rule
	}
	return Rebuilt{r.evs, r.untold}, nil
}

// The reasons why an event is not told.
const (
	untoldTouched = "it was written again since, and how often is not kept"
	untoldSuspect = "it has suspects, and which write named them is not kept"
	untoldErasing = "it is marked for erasure"
	untoldVerdict = "whether it had failed or was held before a person decided is not kept"
	untoldLate    = "whether its effect was settled late is not kept"
)

// first makes the row look as it did when it was new for what emit does: at version 1, and at the time of its creation.
func (r *rebuilder) first(emit func()) {
	now := *r.is
	if r.is.Version > 1 {
		r.is.Version, r.is.UpdatedAt = 1, r.is.CreatedAt
	}
	emit()
	*r.is = now
}

// pending reads a reservation. Its first attempt began at version 1, whatever came since; a later one began at the last
// write if there are no more writes than all attempts need: two for each that failed.
func (r *rebuilder) pending() {
	is := r.is
	least := 2*is.Attempt - 1
	atOnce := is.Version == least ||
		r.likely && is.UpdatedAt.Equal(is.ReservedAt) && !is.Held && is.SweepAt.IsZero() && len(is.Suspects) == 0
	switch {
	case is.Attempt == 1:
		r.first(r.reserved)
	case atOnce:
		r.reserved()
	}
	switch {
	case atOnce:
	case is.Held && is.SweepAt.IsZero() && len(is.Suspects) == 0:
		r.emit(&events.ReservationStuck{Header: r.header(), ReservedTokens: is.Reserved, Deadline: is.Deadline})
	case len(is.Suspects) > 0:
		r.untold = untoldSuspect
	case is.Held || is.Attempt > 1:
		r.untold = untoldTouched
	}
}

// ended reads a failed row. After its failure only suspects, a verdict, which is its failure then, and the mark for
// erasure can have touched it.
func (r *rebuilder) ended() {
	is := r.is
	switch {
	case len(is.Suspects) > 0:
		r.untold = untoldSuspect
		return
	case is.Erasing:
		r.untold = untoldErasing
		return
	}
	refund := schema.SumDebits(is.Debits)
	switch is.Failure {
	case schema.FailureReleased:
		r.emit(&events.ReservationReleased{Header: r.header(), RefundedTokens: refund})
	case schema.FailureExpired:
		r.emit(&events.ReservationExpired{Header: r.header(), RefundedTokens: refund, Deadline: is.LastDeadline})
	default:
		if is.Version > 2 {
			r.untold = untoldVerdict
			return
		}
		ev := &events.ReservationResolved{Header: r.header(), From: schema.StatePending, RefundedTokens: refund}
		ev.By = is.By
		r.emit(ev)
	}
}

// took reads an applied row: the event of its effect where its version is plain, and what came after it.
func (r *rebuilder) took() {
	is := r.is
	inserted := is.LastDeadline.IsZero() || is.SettledFrom != ""
	switch {
	case is.SettledFrom != "":
		// The row keeps the time of its reservation as the one of its creation.
		if is.Version == 1 {
			r.settledLate()
		}
	case inserted:
		r.first(func() { r.applied(0) })
	}
	switch {
	case inserted && is.Version == 1:
	case is.Erasing:
		r.untold = untoldErasing
	case len(is.Suspects) > 0:
		r.suspects(inserted)
	case !is.CompensatedAt.IsZero():
		r.undone()
	case is.CompensatedBy != "":
		r.emit(&events.CompensationStarted{Header: r.header(), CompensatedBy: is.CompensatedBy})
	case inserted:
		r.untold = untoldTouched
	default:
		r.last()
	}
}

// suspects tells of the one suspect of a commit that nothing else has touched: any other one may be of any write.
func (r *rebuilder) suspects(inserted bool) {
	is := r.is
	if inserted && is.SettledFrom == "" && is.Version == 2 && len(is.Suspects) == 1 {
		r.suspected()
		return
	}
	r.untold = untoldSuspect
}

func (r *rebuilder) undone() {
	is := r.is
	ev := &events.ToolEffectCompensated{Header: r.header(), CompensatedBy: is.CompensatedBy}
	if len(is.Debits) == 0 {
		ev.RefundedTokens = is.Charged - is.Shortfall
	}
	r.emit(ev)
}

// last reads the last write, which recorded the effect: of a reservation, of a failed row, or of a new attempt that was a
// commit. Counting tells them apart: an effect that is settled late has one write more than all attempts need.
func (r *rebuilder) last() {
	is := r.is
	most := 2 * is.Attempt
	late := is.Attempt == 1 && is.Unverified != 0 || is.AppliedAttempt < is.Attempt
	if is.Version > most && !late {
		if !r.likely {
			r.untold = untoldLate
			return
		}
		late = is.Unverified != 0 && is.UpdatedAt.After(is.LastDeadline.Add(skewMargin))
	}
	if late {
		r.settledLate()
		return
	}
	begun := is.ReservedAt
	var held int64
	if is.Version >= most { // else it was a commit, which counts its own retries and gives nothing back
		r.was = &schema.Row{State: schema.StatePending}
		if is.Attempt == 1 || !begun.IsZero() && begun.Before(is.UpdatedAt) {
			held = is.Reserved
		}
	}
	r.applied(held)
	r.was = nil
}
