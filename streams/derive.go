package streams

import (
	"strconv"
	"time"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// Derive says what one change of an item means: its audit events, and the metrics that these feed (see Measure). It is
// pure and total: the same change gives the same events whatever came before, and any change gives events, nothing, or
// an error. A write that changed nothing, and the coming and going of sessions, observations, grants and leases, give
// nothing. Errors: *UnreadableError.
func Derive(c Change) ([]events.Event, []metrics.Datum, error) {
	var d deriver
	evs, err := d.derive(nil, &c)
	if err != nil {
		return nil, nil, err
	}
	var data []metrics.Datum
	for _, ev := range evs {
		data = Measure(data, ev, c.Time)
	}
	return evs, data, nil
}

// deriver keeps the memory of one reading for the next one.
type deriver struct {
	was, is schema.Row
	id      schema.ItemID
	row     rowChange
}

// derive appends the events of c to evs.
func (d *deriver) derive(evs []events.Event, c *Change) ([]events.Event, error) {
	if c.Err != nil {
		return evs, c.Err
	}
	if rule := checkShape(c); rule != "" {
		return evs, &UnreadableError{Rule: rule}
	}
	var err error
	if d.id, err = schema.ParseKey(c.Keys); err != nil {
		return evs, unreadable(err)
	}
	switch d.id.Kind {
	case schema.KindRow:
		return d.deriveRow(evs, c)
	case schema.KindObservation:
		return deriveObservation(evs, c, &d.id)
	case schema.KindQuota:
		return deriveQuota(evs, c, &d.id)
	case schema.KindPlan:
		return derivePlan(evs, c, &d.id)
	case schema.KindSession, schema.KindGrant, schema.KindLease, schema.KindUnknown:
	}
	return evs, nil
}

func checkShape(c *Change) string {
	switch c.Op {
	case OpInsert:
		if c.New == nil || c.Old != nil {
			return "an insert must carry the new image alone; the stream's view must be NEW_AND_OLD_IMAGES"
		}
	case OpModify:
		if c.New == nil || c.Old == nil {
			return "a modification must carry both images; the stream's view must be NEW_AND_OLD_IMAGES"
		}
	case OpRemove:
		if c.Old == nil || c.New != nil {
			return "a removal must carry the old image alone; the stream's view must be NEW_AND_OLD_IMAGES"
		}
	default:
		return "its operation is not INSERT, MODIFY or REMOVE"
	}
	return ""
}

// decodeImage reads an image with its type's decoder; nil stays nil. The image must be of the item that the record names.
func decodeImage[T any](c *Change, im Image, decode func(schema.Fields) (*T, error), key func(*T) schema.Key) (*T, error) {
	if im == nil {
		return nil, nil
	}
	item, err := decode(im.Fields())
	if err != nil {
		return nil, unreadable(err)
	}
	if key(item) != c.Keys {
		return nil, &UnreadableError{Rule: "the keys in the image must be those of the record"}
	}
	return item, nil
}

func decodeBoth[T any](c *Change, decode func(schema.Fields) (*T, error), key func(*T) schema.Key) (was, is *T, err error) {
	if was, err = decodeImage(c, c.Old, decode, key); err != nil {
		return nil, nil, err
	}
	if is, err = decodeImage(c, c.New, decode, key); err != nil {
		return nil, nil, err
	}
	return was, is, nil
}

// deriveObservation turns counters that went up into one event each. An observation that is gone, or that another
// one of the same key has replaced, begins at 0 again: its id differs.
func deriveObservation(evs []events.Event, c *Change, id *schema.ItemID) ([]events.Event, error) {
	if c.New == nil {
		return evs, nil
	}
	was, is, err := decodeBoth(c, schema.DecodeObservation, func(o *schema.Observation) schema.Key { return o.Key })
	if err != nil {
		return evs, err
	}
	if was == nil || was.ObsID != is.ObsID {
		was = &schema.Observation{}
	}
	head := events.Header{
		Schema: events.Schema, Tenant: id.Tenant, Session: is.Session, Scope: string(id.Scope), Key: id.CallKey, Tool: is.Tool,
		RowID: is.ObsID, Version: is.Version, Time: orTime(is.UpdatedAt, c.Time),
	}
	if id.Session != "" {
		head.Session = id.Session
	}
	for _, counter := range [...]struct {
		attr    string
		was, is int64
		event   func(events.Header, events.Observation) events.Event
	}{
		{schema.ADuplicates, was.Duplicates, is.Duplicates, func(h events.Header, o events.Observation) events.Event {
			return &events.ToolCallReplayed{Header: h, Observation: o}
		}},
		{schema.AInFlight, was.InFlight, is.InFlight, func(h events.Header, o events.Observation) events.Event {
			return &events.ToolCallInFlight{Header: h, Observation: o}
		}},
		{schema.AKeyConflicts, was.KeyConflicts, is.KeyConflicts, func(h events.Header, o events.Observation) events.Event {
			return &events.IdempotencyKeyConflict{Header: h, Observation: o}
		}},
		{schema.AQuotaDenials, was.QuotaDenials, is.QuotaDenials, func(h events.Header, o events.Observation) events.Event {
			return &events.QuotaExhausted{Header: h, Observation: o}
		}},
		{schema.AGiveUps, was.GiveUps, is.GiveUps, func(h events.Header, o events.Observation) events.Event {
			return &events.ContentionGaveUp{Header: h, Observation: o}
		}},
	} {
		switch delta := counter.is - counter.was; {
		case delta < 0:
			return evs, &UnreadableError{counter.attr, "must not count backwards"}
		case delta > 0:
			ev := counter.event(head, events.Observation{Delta: delta, Count: counter.is})
			evs = append(evs, events.Identify(ev, is.ObsID))
		}
	}
	return evs, nil
}

// derivePlan reports every change of a plan.
func derivePlan(evs []events.Event, c *Change, id *schema.ItemID) ([]events.Event, error) {
	was, is, err := decodeBoth(c, schema.DecodePlan, func(p *schema.Plan) schema.Key { return p.Key })
	if err != nil || was != nil && is != nil && *was == *is {
		return evs, err
	}
	removed := is == nil
	if removed {
		is = was
	}
	// A plan that is made anew after it was removed begins at version 1 again. '#' is in no tenant's name.
	entity := id.Tenant + "#" + strconv.FormatInt(is.UpdatedAt.UnixMilli(), 10)
	if removed {
		entity += "#removed"
	}
	ev := &events.PlanChanged{
		Header: events.Header{
			Schema: events.Schema, Tenant: id.Tenant, RowID: id.Tenant, Version: is.Version, Time: orTime(is.UpdatedAt, c.Time),
		},
		Tokens: is.Tokens, Period: is.Period.String(), Shards: int(is.Shards), Overdraft: is.Overdraft, Suspended: is.Suspended,
		Removed: removed,
	}
	if removed {
		ev.Time = c.Time
	}
	return append(evs, events.Identify(ev, entity)), nil
}

func orTime(t, fallback time.Time) time.Time {
	if t.IsZero() {
		return fallback
	}
	return t
}
