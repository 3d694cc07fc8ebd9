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

// DecodeQuota reads a quota item. Errors: *DecodeError.
func DecodeQuota(fields Fields) (*Quota, error) {
	q := &Quota{}
	var format int64
	if err := decode(fields, func(name string, v Value) string {
		switch name {
		case AFormat:
			return readFormat(v, &format)
		case PK:
			return readString(v, &q.Key.PK)
		case SK:
			return readString(v, &q.Key.SK)
		case AQuotaID:
			return readString(v, &q.QuotaID)
		case AVersion:
			return readInt(v, &q.Version)
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
		case AUpdatedAt:
			return readMillis(v, &q.UpdatedAt)
		case AExpiresAt:
			return readSeconds(v, &q.ExpiresAt)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	return q, checkItem(q.Key, KindQuota, format, AQuotaID, q.QuotaID, q.Version)
}

func checkItem(k Key, kind Kind, format int64, idAttr, id string, version int64) error {
	parsed, err := ParseKey(k)
	switch {
	case err != nil:
		return err
	case parsed.Kind != kind:
		return &DecodeError{"", "its key is not that of a " + kind.String()}
	case format == 0:
		return &DecodeError{AFormat, "is missing"}
	case idAttr != "" && id == "":
		return &DecodeError{idAttr, "is missing"}
	case version < 1:
		return &DecodeError{AVersion, "must be at least 1"}
	}
	return nil
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
	var format int64
	if err := decode(fields, func(name string, v Value) string {
		switch name {
		case AFormat:
			return readFormat(v, &format)
		case PK:
			return readString(v, &s.Key.PK)
		case SK:
			return readString(v, &s.Key.SK)
		case AVersion:
			return readInt(v, &s.Version)
		case ACursor:
			return readString(v, &s.Cursor)
		case AUpdatedAt:
			return readMillis(v, &s.UpdatedAt)
		case AExpiresAt:
			return readSeconds(v, &s.ExpiresAt)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	return s, checkItem(s.Key, KindSession, format, "", "", s.Version)
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
	var format int64
	if err := decode(fields, func(name string, v Value) string {
		switch name {
		case AFormat:
			return readFormat(v, &format)
		case PK:
			return readString(v, &o.Key.PK)
		case SK:
			return readString(v, &o.Key.SK)
		case AObsID:
			return readString(v, &o.ObsID)
		case AVersion:
			return readInt(v, &o.Version)
		case ATool:
			return readString(v, &o.Tool)
		case ASession:
			return readString(v, &o.Session)
		case AUpdatedAt:
			return readMillis(v, &o.UpdatedAt)
		case AExpiresAt:
			return readSeconds(v, &o.ExpiresAt)
		}
		return o.setCounter(name, v)
	}); err != nil {
		return nil, err
	}
	return o, checkItem(o.Key, KindObservation, format, AObsID, o.ObsID, o.Version)
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
	var format int64
	if err := decode(fields, func(name string, v Value) string {
		switch name {
		case AFormat:
			return readFormat(v, &format)
		case PK:
			return readString(v, &p.Key.PK)
		case SK:
			return readString(v, &p.Key.SK)
		case AVersion:
			return readInt(v, &p.Version)
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
		case AUpdatedAt:
			return readMillis(v, &p.UpdatedAt)
		}
		return ""
	}); err != nil {
		return nil, err
	}
	if p.Shards < 1 || p.Shards > MaxShards {
		return nil, &DecodeError{AShards, "must be between 1 and 64"}
	}
	return p, checkItem(p.Key, KindPlan, format, "", "", p.Version)
}
