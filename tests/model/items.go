package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ItemKey is an item's primary key.
type ItemKey struct{ PK, SK string }

// Item is an item with its values in text: "S:text", "N:1", "B:<hex>", "BOOL:true", "SS:a,b" sorted, "M:a=1;b=2" sorted.
type Item map[string]string

// Items are all items of both tables.
type Items map[ItemKey]Item

func (it Item) str(name, v string) {
	if v != "" {
		it[name] = "S:" + v
	}
}

func (it Item) num(name string, n int64) {
	if n != 0 {
		it[name] = "N:" + strconv.FormatInt(n, 10)
	}
}

func (it Item) flag(name string, b bool) {
	if b {
		it[name] = "BOOL:true"
	}
}

func (it Item) millis(name string, t time.Time) {
	if !t.IsZero() {
		it.num(name, t.UnixMilli())
	}
}

// text, number and debits read a witness; they are zero where the attribute is absent or something else.
func (it Item) text(name string) string {
	s, _ := strings.CutPrefix(it[name], "S:")
	return s
}

func (it Item) number(name string) int64 {
	s, _ := strings.CutPrefix(it[name], "N:")
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (it Item) debits() Debits {
	d := Debits{}
	s, ok := strings.CutPrefix(it["debits"], "M:")
	if !ok {
		return d
	}
	for part := range strings.SplitSeq(s, ";") {
		name, amount, _ := strings.Cut(part, "=")
		period, shard, _ := strings.Cut(name, "/")
		i, _ := strconv.Atoi(shard)
		d[Purse{period, i}], _ = strconv.ParseInt(amount, 10, 64)
	}
	return d
}

// Purse names one quota item of a tenant.
type Purse struct {
	Period string
	Shard  int
}

// Debits are what a row took from each.
type Debits map[Purse]int64

// Sum adds up.
func (d Debits) Sum() (sum int64) {
	for _, n := range d {
		sum += n
	}
	return sum
}

func (d Debits) String() string {
	var parts []string
	for p, n := range d {
		parts = append(parts, fmt.Sprintf("%s/%d=%d", p.Period, p.Shard, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ";")
}

// Bucket is the hash that spreads keys: the first 8 bytes of SHA-256, modulo n.
func Bucket(key string, n int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n)) //nolint:gosec // below n
}

// The kinds of periods.
const (
	Monthly = "month"
	Daily   = "day"
	Always  = "always"
)

// PeriodOf names the period of a kind at a time.
func PeriodOf(kind string, t time.Time) string {
	switch kind {
	case Daily:
		return t.UTC().Format("2006-01-02")
	case Monthly:
		return t.UTC().Format("2006-01")
	}
	return "ALWAYS"
}

// EndOf is when a period ends; zero for ALWAYS.
func EndOf(period string) time.Time {
	if t, err := time.Parse("2006-01-02", period); err == nil {
		return t.AddDate(0, 0, 1)
	}
	if t, err := time.Parse("2006-01", period); err == nil {
		return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

func seconds(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// All renders everything.
func (m *Model) All() Items {
	all := Items{}
	for k, r := range m.rows {
		all[k] = r.item(k)
	}
	for k, o := range m.observations {
		all[k] = o.item(k)
	}
	for k, s := range m.sessions {
		it := Item{"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1"}
		it.str("cursor", s.cursor)
		it.num("version", s.version)
		it.millis("updatedAt", s.updated)
		it.num("expiresAt", s.expires)
		all[k] = it
	}
	for name, t := range m.tenants {
		for p, q := range t.quotas {
			k := quotaKey(name, p)
			all[k] = q.item(k, p)
		}
		if t.plan != nil {
			k := ItemKey{"TENANT#" + name, "PLAN"}
			all[k] = t.plan.item(k)
		}
		for key, g := range t.grants {
			k := ItemKey{"TENANT#" + name, "GRANT#" + key}
			it := Item{"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1"}
			it.num("tokens", g.tokens)
			it.millis("createdAt", g.at)
			all[k] = it
		}
	}
	return all
}

func quotaKey(tenant string, p Purse) ItemKey {
	pk := "TENANT#" + tenant
	if p.Shard > 0 {
		pk += "#SHARD#" + strconv.Itoa(p.Shard)
	}
	return ItemKey{pk, "QUOTA#" + p.Period}
}

func (q *quota) item(k ItemKey, p Purse) Item {
	it := Item{
		"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1", "granted": "N:" + strconv.FormatInt(q.granted, 10),
		"remaining": "N:" + strconv.FormatInt(q.remaining, 10), "shard": "N:" + strconv.Itoa(p.Shard),
	}
	it.str("quotaId", q.id)
	it.num("version", q.version)
	it.num("planVersion", q.planVersion)
	it.num("extra", q.extra)
	it.flag("suspended", q.suspended)
	it.millis("createdAt", q.created)
	it.millis("updatedAt", q.updated)
	if end := EndOf(p.Period); !end.IsZero() {
		it.num("expiresAt", seconds(end.Add(40*24*time.Hour)))
	}
	return it
}

func (p *plan) item(k ItemKey) Item {
	it := Item{
		"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1", "tokens": "N:" + strconv.FormatInt(p.Tokens, 10),
		"period": "S:" + p.Kind, "shards": "N:" + strconv.Itoa(p.Shards),
	}
	it.num("version", p.version)
	it.num("overdraft", p.Overdraft)
	it.flag("suspended", p.suspended)
	it.millis("updatedAt", p.updated)
	return it
}

func (o *observation) item(k ItemKey) Item {
	it := Item{"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1", "obsId": "S:" + o.id, "tool": "S:" + o.tool, "session": "S:" + o.session}
	it.num("version", o.version)
	it.millis("updatedAt", o.updated)
	it.num("expiresAt", o.expires)
	for name, n := range o.counters {
		it.num(name, n)
	}
	return it
}

func (r *Row) item(k ItemKey) Item {
	c := r.Call
	it := Item{"pk": "S:" + k.PK, "sk": "S:" + k.SK, "format": "N:1"}
	it.num("version", r.Version)
	it.num("attempt", r.Attempt)
	it.str("rowId", r.RowID)
	it.str("holder", r.holder)
	it.str("state", r.State)
	it.str("tool", c.Tool)
	it["intentHash"] = "B:" + hex.EncodeToString(intentOf(c))
	it.str("session", c.Session)
	it.str("scope", c.Key.scope())
	it.flag("idempotent", c.Idempotent)
	it.flag("verifier", c.Verifier)
	it.num("horizon", c.horizon().Milliseconds())
	it.num("keep", c.Keep.Milliseconds())
	it.str("cursor", c.Cursor)
	if c.Expect != nil {
		it["expectCursor"] = "S:" + *c.Expect
	}
	it.str("trace", c.Trace)
	it.str("lookup", c.Lookup)
	it.num("reservedTokens", c.Tokens)
	if c.Compensates != nil {
		it.str("compensates", c.Compensates.name())
		it.flag("refundOriginal", c.Refund)
	}
	r.ended(it)
	it.millis("createdAt", r.created)
	it.millis("updatedAt", r.updated)
	it.millis("reservedAt", r.reserved)
	it.millis("deadline", r.Deadline)
	it.millis("lastDeadline", r.LastDeadline)
	it.str("pendingBucket", r.bucket)
	it.millis("sweepAt", r.sweepAt)
	it.flag("held", r.Held)
	it.num("expiresAt", r.expires)
	return it
}

// ended renders how attempts of the row ended.
func (r *Row) ended(it Item) {
	it.num("chargedTokens", r.Charged)
	it.num("shortfall", r.shortfall)
	if len(r.debits) > 0 {
		it["debits"] = "M:" + r.debits.String()
	}
	if r.State == Applied {
		it["resultJson"] = "S:" + r.Result
	}
	it.str("failure", r.failure)
	it.num("unverified", r.unverified)
	if len(r.suspects) > 0 {
		it["suspects"] = "SS:" + strings.Join(slices.Sorted(maps.Keys(r.suspects)), ",")
	}
	it.num("appliedAttempt", r.AppliedAttempt)
	it.str("settledBy", r.settledBy)
	it.str("settledFrom", r.settledFrom)
	it.str("by", r.by)
	it.str("why", r.why)
	it.str("compensatedBy", r.CompensatedBy)
	it.str("compensatedIn", r.CompensatedIn)
	it.millis("compensatedAt", r.CompensatedAt)
}

// intentOf is the hash of tool and arguments; the model's arguments are canonical as they are.
func intentOf(c Call) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "[%q,%s]", c.Tool, c.Args))
	return sum[:]
}

// Differences lists what is not the same in the table, at most ten lines.
func (m *Model) Differences(table Items) []string {
	var out []string
	want := m.All()
	keys := map[ItemKey]bool{}
	for k := range want {
		keys[k] = true
	}
	for k := range table {
		keys[k] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b ItemKey) int { return strings.Compare(a.PK+"\x00"+a.SK, b.PK+"\x00"+b.SK) }) {
		names := map[string]bool{}
		for n := range want[k] {
			names[n] = true
		}
		for n := range table[k] {
			names[n] = true
		}
		for _, n := range slices.Sorted(maps.Keys(names)) {
			if want[k][n] != table[k][n] {
				out = append(out, fmt.Sprintf("%s %s %s: model %q, table %q", k.PK, k.SK, n, want[k][n], table[k][n]))
			}
		}
	}
	return out[:min(len(out), 10)]
}
