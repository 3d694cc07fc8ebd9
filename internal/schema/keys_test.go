package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oddIDs are identifiers that look like the parts of keys, or are easily mangled.
var oddIDs = []string{
	"a", "acme", "acme2", "META", "PLAN", "TOOL", "QUOTA", "SESSION", "CALLS", "SHARD", "OBS", "STREAM", "GRANT", "ALWAYS", "2026-11",
	"0", "7", "00", "%23", "a%2Fb", "a/b", "..", "a b", " a", "é", "e\u0301", "日本", "\u200b", "\u00a0x", "'", `"`, `\`, "{}", "$", ":", "tenant:x",
	strings.Repeat("x", MaxTenant),
}

func anyID(limit int) *rapid.Generator[string] {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("abz09#/%:.-_ éß日\u2028\U0001F600")), 1, 12, limit)
	return rapid.OneOf(rapid.SampledFrom(oddIDs), text).Filter(func(s string) bool { return CheckID("id", s, limit) == nil })
}

// anyItem is any item that has a key, with the key.
var anyItem = rapid.Custom(func(t *rapid.T) ItemID {
	id := ItemID{Kind: Kind(rapid.IntRange(int(KindQuota), int(KindLease)).Draw(t, "kind"))}
	if id.Kind != KindLease {
		id.Tenant = anyID(MaxTenant).Draw(t, "tenant")
	}
	switch id.Kind {
	case KindQuota:
		id.Period = rapid.SampledFrom([]string{AlwaysPeriod, "2026-11", "2026-11-30", "2024-02-29"}).Draw(t, "period")
		id.Shard = rapid.IntRange(0, MaxShards-1).Draw(t, "shard")
	case KindSession:
		id.Session = anyID(MaxSession).Draw(t, "session")
	case KindRow, KindObservation:
		id.Scope, id.CallKey = ScopeTenant, anyID(MaxCallKey).Draw(t, "key")
		if rapid.Bool().Draw(t, "session-wide") {
			id.Scope, id.Session = ScopeSession, anyID(MaxSession).Draw(t, "session")
		}
	case KindGrant:
		id.Name = anyID(MaxGrant).Draw(t, "grant")
	case KindLease:
		id.Name = anyID(MaxGrant).Draw(t, "shard")
	case KindUnknown, KindPlan:
	}
	return id
})

const anyStream = "arn:aws:dynamodb:us-east-1:1:table/t/stream/2026-11-01T00:00:00.000"

func keyOf(id ItemID) Key { return id.key(Key{PK: streamPrefix + anyStream}) }

// Promise: the parser gives back exactly what the builders were told, whatever the identifiers look like.
func TestParseKeyInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := anyItem.Draw(t, "item")
		got, err := ParseKey(keyOf(id))
		if err != nil || got != id {
			t.Fatalf("%+v became %+v, %v", id, got, err)
		}
	})
}

// Promise: two different items never share a key.
func TestKeysInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyItem.Draw(t, "a"), anyItem.Draw(t, "b")
		if a != b && keyOf(a) == keyOf(b) {
			t.Fatalf("%+v and %+v are both %v", a, b, keyOf(a))
		}
	})
}

// Promise: no two tenants share a partition, not even of companions and shards, and no tenant's partition key begins
// with all of another's up to a boundary.
func TestTenantsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyItem.Draw(t, "a"), anyItem.Draw(t, "b")
		if a.Tenant != b.Tenant && keyOf(a).PK == keyOf(b).PK {
			t.Fatalf("%+v and %+v share %s", a, b, keyOf(a).PK)
		}
		if a.Tenant != "" && b.Tenant != "" && a.Tenant != b.Tenant && strings.HasPrefix(keyOf(b).PK, tenantPrefix+a.Tenant+"#") {
			t.Fatalf("%s begins like a key of %s", keyOf(b).PK, a.Tenant)
		}
	})
}

// Promise (HC39): identifiers that would shift the boundaries of a key are refused before any key is built, and what is
// accepted keeps tenants apart.
func TestHC39Identifiers(t *testing.T) {
	for _, bad := range []string{
		"", " ", "\t", "\u00a0", "acme#SESSION#s1", "s1#SESSION#x", "acme#", "#", "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "\xff", "a\xc3", strings.Repeat("x", 129),
	} {
		var e *IDError
		if err := CheckID("tenant", bad, MaxTenant); !errors.As(err, &e) || e.Field != "tenant" || e.Rule == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range oddIDs {
		if err := CheckID("tenant", good, MaxTenant); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if a, b := RowKey("acme", "s", ScopeSession, "META"), SessionKey("acme", "s"); a == b || a.PK != b.PK {
		t.Error("a call key META is the session")
	}
	if a, b := RowKey("t", "a/b", ScopeSession, "c"), RowKey("t", "a", ScopeSession, "b/c"); a == b {
		t.Error("a slash shifts the boundary")
	}
	for _, pair := range [][2]Key{
		{QuotaKey("acme", AlwaysPeriod, 0), QuotaKey("acme2", AlwaysPeriod, 0)},
		{QuotaKey("acme", AlwaysPeriod, 1), QuotaKey("acme", AlwaysPeriod, 11)},
		{RowKey("acme", "s", ScopeSession, "k"), RowKey("acme", "s", ScopeTenant, "k")},
		{PlanKey("acme"), GrantKey("acme", "PLAN")},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%v twice", pair[0])
		}
	}
}

// Promise: keys that only look like ours are none: each part is spelled in one way.
func TestParseKeyStrict(t *testing.T) {
	wide := RowKey("acme", "", ScopeTenant, "k")
	for _, k := range []Key{
		{},
		{"TENANT#", "PLAN"},
		{"TENANT#acme", ""},
		{"TENANT#acme", "META"},
		{"TENANT#acme", "TOOL#k"},
		{"TENANT#acme", "GRANT#"},
		{"TENANT#acme", "QUOTA#2026-13"},
		{"TENANT#acme", "QUOTA#2026-1"},
		{"TENANT#acme", "QUOTA#always"},
		{"TENANT#acme", "PLAN "},
		{"tenant#acme", "PLAN"},
		{"TENANT#acme#SHARD#0", "QUOTA#ALWAYS"},
		{"TENANT#acme#SHARD#01", "QUOTA#ALWAYS"},
		{"TENANT#acme#SHARD#+1", "QUOTA#ALWAYS"},
		{"TENANT#acme#SHARD#-1", "QUOTA#ALWAYS"},
		{"TENANT#acme#SHARD#1", "PLAN"},
		{"TENANT#acme#SHARD#1", "GRANT#g"},
		{"TENANT#acme#SESSION#", "META"},
		{"TENANT#acme#SESSION#s#x", "META"},
		{"TENANT#acme#SESSION#s", "TOOL#"},
		{"TENANT#acme#SESSION#s", "TOOL#a#b"},
		{"TENANT#acme#SESSION#s", "META#"},
		{"TENANT#acme#OTHER#s", "META"},
		{"TENANT#acme#CALLS#99", wide.SK},
		{"TENANT#acme#CALLS#x", wide.SK},
		{strings.Replace(wide.PK, "CALLS#", "CALLS#0", 1), wide.SK},
		{wide.PK, "META"},
		{"OBS#TENANT#acme", "PLAN"},
		{"OBS#TENANT#acme", "QUOTA#ALWAYS"},
		{"OBS#TENANT#acme#SESSION#s", "META"},
		{"OBS#TENANT#acme#SHARD#1", "QUOTA#ALWAYS"},
		{"OBS#OBS#TENANT#acme#SESSION#s", "TOOL#k"},
		{"OBS#STREAM#a", "LEASE#b"},
		{"STREAM#", "LEASE#b"},
		{"STREAM#a", "LEASE#"},
	} {
		var e *DecodeError
		if id, err := ParseKey(k); !errors.As(err, &e) {
			t.Errorf("%v is %+v, %v", k, id, err)
		}
	}
}

// Promise: any two strings are a key that the builders make, or are refused; nothing panics.
func FuzzParseKey(f *testing.F) {
	f.Add("TENANT#acme", "PLAN")
	f.Add("OBS#TENANT#acme#SESSION#s", "TOOL#k")
	f.Add("TENANT#acme#CALLS#7", "TOOL#k")
	f.Add("TENANT#acme#SHARD#3", "QUOTA#2026-11-30")
	f.Add("STREAM#a", "LEASE#b")
	f.Fuzz(func(t *testing.T, pk, sk string) {
		k := Key{pk, sk}
		id, err := ParseKey(k)
		if err == nil && (id.Kind == KindUnknown || id.key(k) != k) {
			t.Errorf("%v parsed as %+v", k, id)
		}
	})
}

// Promise: buckets are the first 8 bytes of SHA-256 modulo n, in range, and every one of them is used.
func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, n := rapid.String().Draw(t, "name"), rapid.IntRange(1, MaxShards).Draw(t, "n")
		sum := sha256.Sum256([]byte(name))
		if got := Bucket(name, n); uint64(got) != binary.BigEndian.Uint64(sum[:8])%uint64(n) || got < 0 || got >= n {
			t.Fatalf("%q in %d: %d", name, n, got)
		}
	})
	seen := map[string]bool{}
	for i := range 1000 {
		name := hex.EncodeToString([]byte{byte(i), byte(i >> 8)})
		seen[PendingBucket(name)], seen[HeldBucket(name)] = true, true
	}
	for _, held := range []bool{false, true} {
		for _, name := range BucketNames(held) {
			if !seen[name] {
				t.Errorf("%s is never used", name)
			}
			delete(seen, name)
		}
	}
	if len(seen) > 0 {
		t.Errorf("nobody looks into %v", seen)
	}
}

// Promise: the effect key is fixed for good, since outside systems remember it; it tells tenants, sessions and scopes apart.
func TestEffectKey(t *testing.T) {
	k := RowKey("acme", "s", ScopeSession, "k")
	sum := sha256.Sum256([]byte("TENANT#acme#SESSION#s\x00TOOL#k"))
	if got, want := EffectKey(k), hex.EncodeToString(sum[:])[:32]; got != want || len(got) != 32 {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[string]Key{}
	for _, k := range []Key{
		k, RowKey("acme2", "s", ScopeSession, "k"), RowKey("acme", "s2", ScopeSession, "k"), RowKey("acme", "s", ScopeTenant, "k"),
		RowKey("acme2", "s", ScopeTenant, "k"), RowKey("acme", "s", ScopeSession, "k2"),
	} {
		if other, ok := seen[EffectKey(k)]; ok {
			t.Errorf("%v and %v have one effect key", k, other)
		}
		seen[EffectKey(k)] = k
	}
	if RowKey("acme", "s", ScopeTenant, "k") != RowKey("acme", "other", ScopeTenant, "k") {
		t.Error("a tenant-wide key depends on the session")
	}
}

// Promise: keys built from the longest identifiers fit into DynamoDB's limits.
func TestKeysFit(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, k := range []Key{
		ObservationKey(RowKey(long(MaxTenant), long(MaxSession), ScopeSession, long(MaxCallKey))),
		ObservationKey(RowKey(long(MaxTenant), "", ScopeTenant, long(MaxCallKey))),
		QuotaKey(long(MaxTenant), "2026-11-30", MaxShards-1), GrantKey(long(MaxTenant), long(MaxGrant)),
	} {
		if len(k.PK) > 2048 || len(k.SK) > 1024 {
			t.Errorf("%d and %d bytes", len(k.PK), len(k.SK))
		}
		if _, err := ParseKey(k); err != nil {
			t.Error(err)
		}
	}
}

// Promise: text that explains has its own rules: it may be empty and contain '#', never control characters.
func TestCheckText(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "a#b": true, "  ": true, "a\nb": false, "\xff": false, "12345": true, "123456": false} {
		if err := CheckText("why", text, 5); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
