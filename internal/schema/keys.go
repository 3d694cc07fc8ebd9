package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Byte limits of identifiers. With DynamoDB's own (2,048 for pk, 1,024 for sk) every key built from them fits.
const (
	MaxTenant  = 128
	MaxSession = 128
	MaxCallKey = 255
	MaxTool    = 128
	MaxGrant   = 255
)

// CheckID checks one identifier: UTF-8, 1 to limit bytes, not blank, no control characters, no '#', which joins keys.
// Errors: *IDError.
func CheckID(field, id string, limit int) error {
	if err := CheckText(field, id, limit); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(id) == "":
		return &IDError{field, "is required"}
	case strings.Contains(id, "#"):
		return &IDError{field, "must not contain '#'"}
	}
	return nil
}

// CheckText checks free text kept in an item: UTF-8, at most limit bytes, no control characters; it may be empty.
// Errors: *IDError.
func CheckText(field, s string, limit int) error {
	if len(s) > limit {
		return &IDError{field, fmt.Sprintf("is %d bytes long; the limit is %d", len(s), limit)}
	}
	if isPlain(s) {
		return nil
	}
	if !utf8.ValidString(s) {
		return &IDError{field, "is not valid UTF-8"}
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return &IDError{field, "must not contain control characters"}
		}
	}
	return nil
}

// isPlain tells whether s is printable ASCII, as nearly all identifiers are.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Key is the primary key of an item.
type Key struct{ PK, SK string }

// Item is the key as requests name an item.
func (k Key) Item() Item { return Item{PK: S(k.PK), SK: S(k.SK)} }

// Scope says how far a call key reaches.
type Scope string

// The scopes.
const (
	ScopeSession Scope = "session" // unique within its session
	ScopeTenant  Scope = "tenant"  // unique within its tenant
)

const (
	tenantPrefix = "TENANT#"
	obsPrefix    = "OBS#"
	streamPrefix = "STREAM#"
	toolPrefix   = "TOOL#"
	quotaPrefix  = "QUOTA#"
	grantPrefix  = "GRANT#"
	leasePrefix  = "LEASE#"
	metaSK       = "META"
	planSK       = "PLAN"
)

// RowPrefix begins the sort key of every ledger row.
const RowPrefix = toolPrefix

// SessionKey is the key of a session.
func SessionKey(tenant, session string) Key {
	return Key{tenantPrefix + tenant + "#SESSION#" + session, metaSK}
}

// RowKey is the key of a ledger row. Identifiers must have passed CheckID.
func RowKey(tenant, session string, scope Scope, callKey string) Key {
	if scope == ScopeTenant {
		return Key{tenantPrefix + tenant + "#CALLS#" + strconv.Itoa(Bucket(callKey, Buckets)), toolPrefix + callKey}
	}
	return Key{tenantPrefix + tenant + "#SESSION#" + session, toolPrefix + callKey}
}

// ObservationKey is the key of a row's companion that counts refusals and replays.
func ObservationKey(row Key) Key { return Key{obsPrefix + row.PK, row.SK} }

// QuotaKey is the key of one shard of one period's quota.
func QuotaKey(tenant, period string, shard int) Key {
	if shard == 0 {
		return Key{tenantPrefix + tenant, quotaPrefix + period}
	}
	return Key{tenantPrefix + tenant + "#SHARD#" + strconv.Itoa(shard), quotaPrefix + period}
}

// PlanKey is the key of a tenant's plan in the control table.
func PlanKey(tenant string) Key { return Key{tenantPrefix + tenant, planSK} }

// GrantKey is the key that makes a grant happen once, in the control table.
func GrantKey(tenant, key string) Key { return Key{tenantPrefix + tenant, grantPrefix + key} }

// LeaseKey is the key of a poller's lease and checkpoint of one stream shard, in the control table.
func LeaseKey(stream, shard string) Key { return Key{streamPrefix + stream, leasePrefix + shard} }

// Kind tells items apart.
type Kind int

// The kinds of items.
const (
	KindUnknown Kind = iota
	KindQuota
	KindSession
	KindRow
	KindObservation
	KindPlan
	KindGrant
	KindLease
)

// String returns the kind in words.
func (k Kind) String() string {
	return [...]string{"unknown", "quota", "session", "row", "observation", "plan", "grant", "lease"}[k]
}

// ItemID is what a key says.
type ItemID struct {
	Kind    Kind
	Tenant  string
	Session string // KindSession, KindRow and KindObservation with a session-wide key
	Scope   Scope  // KindRow, KindObservation
	CallKey string // KindRow, KindObservation
	Period  string // KindQuota
	Shard   int    // KindQuota
	Name    string // KindGrant: its key; KindLease: the shard
}

// ParseKey is the inverse of the builders above: it accepts exactly the keys that they make. Errors: *DecodeError.
func ParseKey(k Key) (ItemID, error) {
	id := parseKey(k)
	if id.Kind == KindUnknown || id.key(k) != k {
		return ItemID{}, &DecodeError{"", "its key is not one of toolledger's"}
	}
	return id, nil
}

func parseKey(k Key) ItemID {
	pk, obs := strings.CutPrefix(k.PK, obsPrefix)
	if stream, ok := strings.CutPrefix(pk, streamPrefix); ok && !obs {
		shard, ok := strings.CutPrefix(k.SK, leasePrefix)
		if !ok || stream == "" || shard == "" {
			return ItemID{}
		}
		return ItemID{Kind: KindLease, Name: shard}
	}
	rest, ok := strings.CutPrefix(pk, tenantPrefix)
	if !ok {
		return ItemID{}
	}
	tenant, rest, more := strings.Cut(rest, "#")
	id := ItemID{Tenant: tenant}
	if CheckID("tenant", tenant, MaxTenant) != nil {
		return ItemID{}
	}
	if !more {
		return parseTenantItem(id, k.SK, obs)
	}
	kind, name, _ := strings.Cut(rest, "#")
	switch kind {
	case "SHARD":
		id.Shard, _ = strconv.Atoi(name)
		if id.Shard > 0 && !obs {
			return parseTenantItem(id, k.SK, false)
		}
	case "SESSION":
		id.Session = name
		if CheckID("session", name, MaxSession) == nil {
			return parseCall(id, ScopeSession, k.SK, obs)
		}
	case "CALLS":
		return parseCall(id, ScopeTenant, k.SK, obs)
	}
	return ItemID{}
}

func parseTenantItem(id ItemID, sk string, obs bool) ItemID {
	if obs {
		return ItemID{}
	}
	if period, ok := strings.CutPrefix(sk, quotaPrefix); ok {
		if !ValidPeriod(period) {
			return ItemID{}
		}
		id.Kind, id.Period = KindQuota, period
		return id
	}
	if id.Shard != 0 {
		return ItemID{}
	}
	if sk == planSK {
		id.Kind = KindPlan
		return id
	}
	name, ok := strings.CutPrefix(sk, grantPrefix)
	if !ok || CheckID("key", name, MaxGrant) != nil {
		return ItemID{}
	}
	id.Kind, id.Name = KindGrant, name
	return id
}

func parseCall(id ItemID, scope Scope, sk string, obs bool) ItemID {
	if sk == metaSK && scope == ScopeSession && !obs {
		id.Kind = KindSession
		return id
	}
	key, ok := strings.CutPrefix(sk, toolPrefix)
	if !ok || CheckID("key", key, MaxCallKey) != nil {
		return ItemID{}
	}
	id.Kind, id.Scope, id.CallKey = KindRow, scope, key
	if obs {
		id.Kind = KindObservation
	}
	return id
}

// key builds the key of id again: what does not come back as it was is not ours ("CALLS#07", "SHARD#+1").
func (id ItemID) key(k Key) Key {
	switch id.Kind {
	case KindQuota:
		return QuotaKey(id.Tenant, id.Period, id.Shard)
	case KindSession:
		return SessionKey(id.Tenant, id.Session)
	case KindRow:
		return RowKey(id.Tenant, id.Session, id.Scope, id.CallKey)
	case KindObservation:
		return ObservationKey(RowKey(id.Tenant, id.Session, id.Scope, id.CallKey))
	case KindPlan:
		return PlanKey(id.Tenant)
	case KindGrant:
		return GrantKey(id.Tenant, id.Name)
	case KindLease:
		return LeaseKey(strings.TrimPrefix(k.PK, streamPrefix), id.Name)
	case KindUnknown:
	}
	return Key{}
}

// Bucket spreads names over n partitions: the first 8 bytes of the name's SHA-256 modulo n.
func Bucket(name string, n int) int {
	if n == 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(name))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n)) //nolint:gosec // the remainder is below n
}

// PendingBucket is the index partition of a pending row that the sweeper looks after.
func PendingBucket(callKey string) string {
	return "PENDING#" + strconv.Itoa(Bucket(callKey, Buckets))
}

// HeldBucket is the index partition of a row that is held for a person.
func HeldBucket(callKey string) string { return "HELD#" + strconv.Itoa(Bucket(callKey, Buckets)) }

// BucketNames are all index partitions of held rows, or of the other pending ones.
func BucketNames(held bool) []string {
	prefix := "PENDING#"
	if held {
		prefix = "HELD#"
	}
	names := make([]string, Buckets)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i)
	}
	return names
}

// EffectKey is what the outside system gets for a call: the first 32 hex digits of SHA-256(pk 0x00 sk). It is equal on every
// attempt and differs between tenants, who may share an account outside.
func EffectKey(row Key) string {
	buf := make([]byte, 0, 512)
	buf = append(buf, row.PK...)
	buf = append(buf, 0)
	buf = append(buf, row.SK...)
	sum := sha256.Sum256(buf)
	var digits [32]byte
	hex.Encode(digits[:], sum[:16])
	return string(digits[:])
}
