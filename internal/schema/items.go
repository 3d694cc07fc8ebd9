package schema

import "time"

// Quota is one shard of one period's quota.
type Quota struct {
	Key         Key
	QuotaID     string
	Version     int64
	Granted     int64 // below 0 only in shard 0, after a plan was lowered below what other shards had spent
	Remaining   int64 // below 0 after an overdraft or a late settlement
	Extra       int64 // the part of Granted that grants added
	Shard       int64
	PlanVersion int64 // of the plan that the item was created from
	Suspended   bool
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ExpiresAt   time.Time // zero for ALWAYS
}

// Item is the quota item as stored.
func (q *Quota) Item() Item {
	it := Item{
		PK: S(q.Key.PK), SK: S(q.Key.SK), AFormat: N(Format), AQuotaID: S(q.QuotaID), AVersion: N(q.Version),
		AGranted: N(q.Granted), ARemaining: N(q.Remaining), AShard: N(q.Shard), APlanVersion: N(q.PlanVersion),
		ACreatedAt: Millis(q.CreatedAt), AUpdatedAt: Millis(q.UpdatedAt),
	}
	putInt(it, AExtra, q.Extra)
	putBool(it, ASuspended, q.Suspended)
	putSeconds(it, AExpiresAt, q.ExpiresAt)
	return it
}

// head is what the small items have in common: where an item is, its format and version, and its times.
type head struct {
	key              *Key
	version          *int64
	updated, expires *time.Time // expires is nil for items that stay
	format           int64
}

// decodeHead hands the attributes of the head to it and all others to set.
func decodeHead(fields Fields, h *head, set func(name string, v Value) string) error {
	return decode(fields, func(name string, v Value) string {
		switch name {
		case PK:
			return readString(v, &h.key.PK)
		case SK:
			return readString(v, &h.key.SK)
		case AFormat:
			return readFormat(v, &h.format)
		case AVersion:
			return readInt(v, h.version)
		case AUpdatedAt:
			return readMillis(v, h.updated)
		case AExpiresAt:
			if h.expires != nil {
				return readSeconds(v, h.expires)
			}
		}
		return set(name, v)
	})
}

// check returns an error unless the item is one of kind, complete, and identified where its kind has an identity.
func (h *head) check(kind Kind, idAttr, id string) error {
	parsed, err := ParseKey(*h.key)
	switch {
	case err != nil:
		return err
	case parsed.Kind != kind:
		return &DecodeError{"", "its key is not that of a " + kind.String()}
	case h.format == 0:
		return &DecodeError{AFormat, "is missing"}
	case idAttr != "" && id == "":
		return &DecodeError{idAttr, "is missing"}
	case *h.version < 1:
		return &DecodeError{AVersion, "must be at least 1"}
	}
	return nil
}

// DecodeQuota reads a quota item. Errors: *DecodeError.
func DecodeQuota(fields Fields) (*Quota, error) {
	q := &Quota{}
	h := head{key: &q.Key, version: &q.Version, updated: &q.UpdatedAt, expires: &q.ExpiresAt}
	if err := decodeHead(fields, &h, func(name string, v Value) string {
		switch name {
		case AQuotaID:
			return readString(v, &q.QuotaID)
		case AGranted:
			return readInt(v, &q.Granted)
		case ARemaining:
			return readInt(v, &q.Remaining)
		case AExtra:
			return readInt(v, &q.Extra)
		case AShard:
			return readCount(v, &q.Shard)
		case APlanVersion:
			return readCount(v, &q.PlanVersion)
		case ASuspended:
			return readBool(v, &q.Suspended)
		case ACreatedAt:
			return readMillis(v, &q.CreatedAt)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	return q, h.check(KindQuota, AQuotaID, q.QuotaID)
}

// Session is the item that holds a session's cursor.
type Session struct {
	Key       Key
	Version   int64
	Cursor    string
	UpdatedAt time.Time
	ExpiresAt time.Time
}

// DecodeSession reads a session. Errors: *DecodeError.
func DecodeSession(fields Fields) (*Session, error) {
	s := &Session{}
	h := head{key: &s.Key, version: &s.Version, updated: &s.UpdatedAt, expires: &s.ExpiresAt}
	if err := decodeHead(fields, &h, func(name string, v Value) string {
		if name == ACursor {
			return readString(v, &s.Cursor)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	return s, h.check(KindSession, "", "")
}

// Observation counts what cancelled transactions cannot record.
type Observation struct {
	Key          Key
	ObsID        string
	Version      int64
	Tool         string
	Session      string
	Duplicates   int64
	InFlight     int64
	KeyConflicts int64
	QuotaDenials int64
	GiveUps      int64
	UpdatedAt    time.Time
	ExpiresAt    time.Time
}

// DecodeObservation reads an observation. Errors: *DecodeError.
func DecodeObservation(fields Fields) (*Observation, error) {
	o := &Observation{}
	h := head{key: &o.Key, version: &o.Version, updated: &o.UpdatedAt, expires: &o.ExpiresAt}
	if err := decodeHead(fields, &h, func(name string, v Value) string {
		switch name {
		case AObsID:
			return readString(v, &o.ObsID)
		case ATool:
			return readString(v, &o.Tool)
		case ASession:
			return readString(v, &o.Session)
		}
		return o.setCounter(name, v)
	}); err != nil {
		return nil, err
	}
	return o, h.check(KindObservation, AObsID, o.ObsID)
}

func (o *Observation) setCounter(name string, v Value) string {
	switch name {
	case ADuplicates:
		return readCount(v, &o.Duplicates)
	case AInFlight:
		return readCount(v, &o.InFlight)
	case AKeyConflicts:
		return readCount(v, &o.KeyConflicts)
	case AQuotaDenials:
		return readCount(v, &o.QuotaDenials)
	case AGiveUps:
		return readCount(v, &o.GiveUps)
	}
	return ""
}

// Plan is what a tenant may spend.
type Plan struct {
	Key       Key
	Version   int64
	Tokens    int64
	Period    PeriodKind
	Shards    int64
	Overdraft int64
	Suspended bool
	UpdatedAt time.Time
}

// Item is the plan as stored.
func (p *Plan) Item() Item {
	it := Item{
		PK: S(p.Key.PK), SK: S(p.Key.SK), AFormat: N(Format), AVersion: N(p.Version), ATokens: N(p.Tokens),
		APeriod: S(p.Period.String()), AShards: N(p.Shards), AUpdatedAt: Millis(p.UpdatedAt),
	}
	putInt(it, AOverdraft, p.Overdraft)
	putBool(it, ASuspended, p.Suspended)
	return it
}

// String returns the word that is stored.
func (k PeriodKind) String() string {
	switch k {
	case Daily:
		return "day"
	case Always:
		return "always"
	case Monthly:
	}
	return "month"
}

func readPeriodKind(v Value, to *PeriodKind) string {
	for _, k := range []PeriodKind{Monthly, Daily, Always} {
		if v.Type == TypeString && v.Text == k.String() {
			*to = k
			return ""
		}
	}
	return "must be month, day or always"
}

// MaxShards is the most quota items that one period may be spread over: they are read, and created, in one transaction.
const MaxShards = 64

// DecodePlan reads a plan. Errors: *DecodeError.
func DecodePlan(fields Fields) (*Plan, error) {
	p := &Plan{}
	h := head{key: &p.Key, version: &p.Version, updated: &p.UpdatedAt}
	if err := decodeHead(fields, &h, func(name string, v Value) string {
		switch name {
		case ATokens:
			return readCount(v, &p.Tokens)
		case APeriod:
			return readPeriodKind(v, &p.Period)
		case AShards:
			return readCount(v, &p.Shards)
		case AOverdraft:
			return readCount(v, &p.Overdraft)
		case ASuspended:
			return readBool(v, &p.Suspended)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	if p.Shards < 1 || p.Shards > MaxShards {
		return nil, &DecodeError{AShards, "must be between 1 and 64"}
	}
	return p, h.check(KindPlan, "", "")
}
