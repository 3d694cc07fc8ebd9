package schema

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"
)

var anyText = rapid.OneOf(rapid.SampledFrom([]string{"", "", "x"}), rapid.String())

var anyCount = rapid.OneOf(rapid.SampledFrom([]int64{0, 0, 1, MaxTokens}), rapid.Int64Range(0, MaxTokens))

func anyMillis(t *rapid.T, name string) time.Time {
	if rapid.Bool().Draw(t, name+" set") {
		return anyTime.Draw(t, name).Truncate(time.Millisecond)
	}
	return time.Time{}
}

func anySeconds(t *rapid.T, name string) time.Time { return anyMillis(t, name).Truncate(time.Second) }

func anyDuration(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.Int64Range(0, maxDuration.Milliseconds()).Draw(t, name)) * time.Millisecond
}

var anyDebits = rapid.Custom(func(t *rapid.T) []Debit {
	amounts := rapid.MapOfN(rapid.Custom(func(t *rapid.T) Debit {
		return Debit{Period: rapid.SampledFrom([]string{AlwaysPeriod, "2026-11", "2026-11-30"}).Draw(t, "period"), Shard: rapid.IntRange(0, 63).Draw(t, "shard")}
	}), rapid.Int64Range(1, MaxTokens), 0, 5).Draw(t, "debits")
	var debits []Debit
	for d, n := range amounts {
		debits = append(debits, Debit{d.Period, d.Shard, n})
	}
	return debits
})

var anyRow = rapid.Custom(func(t *rapid.T) *Row {
	id := anyItem.Filter(func(id ItemID) bool { return id.Kind == KindRow }).Draw(t, "id")
	r := &Row{
		Key: keyOf(id), RowID: "r" + anyText.Draw(t, "rowId"), Holder: anyText.Draw(t, "holder"), Version: rapid.Int64Min(1).Draw(t, "version"),
		Attempt: rapid.Int64Min(1).Draw(t, "attempt"), State: rapid.SampledFrom([]string{StatePending, StateApplied, StateFailed}).Draw(t, "state"),
		Tool: anyText.Draw(t, "tool"), IntentHash: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"), Session: id.Session, Scope: id.Scope,
		Idempotent: rapid.Bool().Draw(t, "idempotent"), Verifier: rapid.Bool().Draw(t, "verifier"), Horizon: anyDuration(t, "horizon"),
		Keep: anyDuration(t, "keep"), Cursor: anyText.Draw(t, "cursor"), Trace: anyText.Draw(t, "trace"), Lookup: anyText.Draw(t, "lookup"),
		Reserved: anyCount.Draw(t, "reserved"), Charged: anyCount.Draw(t, "charged"), Shortfall: anyCount.Draw(t, "shortfall"),
		Debits: anyDebits.Draw(t, "debits"), Failure: anyText.Draw(t, "failure"), Unverified: anyCount.Draw(t, "unverified"),
		Suspects:       rapid.SliceOfNDistinct(rapid.String(), 0, 3, rapid.ID[string]).Draw(t, "suspects"),
		AppliedAttempt: anyCount.Draw(t, "applied"), Contention: anyCount.Draw(t, "contention"), CreatedAt: anyTime.Draw(t, "created").Truncate(time.Millisecond),
		UpdatedAt: anyTime.Draw(t, "updated").Truncate(time.Millisecond), ReservedAt: anyMillis(t, "reservedAt"), Deadline: anyMillis(t, "deadline"),
		LastDeadline: anyMillis(t, "lastDeadline"), PendingBucket: anyText.Draw(t, "bucket"), SweepAt: anyMillis(t, "sweepAt"),
		Held: rapid.Bool().Draw(t, "held"), SettledBy: anyText.Draw(t, "settledBy"), SettledFrom: anyText.Draw(t, "settledFrom"),
		By: anyText.Draw(t, "by"), Why: anyText.Draw(t, "why"), ExpiresAt: anySeconds(t, "expires"), Compensates: anyText.Draw(t, "compensates"),
		RefundOriginal: rapid.Bool().Draw(t, "refund"), CompensatedBy: anyText.Draw(t, "compensatedBy"), CompensatedIn: anyText.Draw(t, "compensatedIn"), CompensatedAt: anyMillis(t, "compensatedAt"),
		Erasing: rapid.Bool().Draw(t, "erasing"),
	}
	if id.Scope == ScopeTenant {
		r.Session = anyID(MaxSession).Draw(t, "session")
	}
	if rapid.Bool().Draw(t, "expects") {
		r.ExpectCursor = new(anyText.Draw(t, "expect"))
	}
	switch rapid.IntRange(0, 2).Draw(t, "result") {
	case 1:
		r.ResultJSON = new(anyText.Draw(t, "json"))
	case 2:
		r.ResultRef = &ResultRef{Ref: "ref", SHA256: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sum"), Bytes: anyCount.Draw(t, "bytes")}
	}
	if hashes := rapid.SliceOf(rapid.Byte()).Draw(t, "argHashes"); len(hashes) > 0 {
		r.ArgHashes = hashes
	}
	return r
})

// normal makes what is equal look equal: an absent list or set and an empty one, the order of a map and of a set.
func normal(r *Row) *Row {
	c := *r
	c.Debits, c.Suspects = nil, nil
	if len(r.Debits) > 0 {
		if err := readDebits(ValueOf(DebitsValue(r.Debits)), &c.Debits); err != "" {
			panic(err)
		}
	}
	if len(r.Suspects) > 0 {
		c.Suspects = r.Suspects
	}
	return &c
}

// Promise: what is written is read, whole.
func TestRowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRow.Draw(t, "row")
		got, err := DecodeRow(FieldsOf(r.Item()))
		if err != nil || !reflect.DeepEqual(got, normal(r)) {
			t.Fatalf("%v\nwrote %+v\nread  %+v", err, normal(r), got)
		}
		if again := got.Item(); !reflect.DeepEqual(again, normal(r).Item()) {
			t.Fatalf("the second item differs: %v", again)
		}
	})
}

// Promise: an item has no attribute that says nothing: a smallest row is its thirteen, so that sparse indexes stay sparse.
func TestZeroFieldsAreNotStored(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	r := &Row{
		Key: RowKey("a", "s", ScopeSession, "k"), RowID: "r", Version: 1, Attempt: 1, State: StateApplied, Tool: "t", IntentHash: make([]byte, 32),
		Session: "s", Scope: ScopeSession, CreatedAt: now, UpdatedAt: now,
	}
	if got := len(r.Item()); got != 13 {
		t.Errorf("%d attributes: %v", got, r.Item())
	}
	for name, av := range r.Item() {
		if s, ok := av.(*types.AttributeValueMemberS); ok && s.Value == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

var anyQuota = rapid.Custom(func(t *rapid.T) *Quota {
	id := anyItem.Filter(func(id ItemID) bool { return id.Kind == KindQuota }).Draw(t, "id")
	return &Quota{
		Key: keyOf(id), QuotaID: "q" + anyText.Draw(t, "id"), Version: rapid.Int64Min(1).Draw(t, "version"), Granted: rapid.Int64().Draw(t, "granted"),
		Remaining: rapid.Int64().Draw(t, "remaining"), Extra: rapid.Int64().Draw(t, "extra"), Shard: int64(id.Shard), PlanVersion: anyCount.Draw(t, "plan"),
		Suspended: rapid.Bool().Draw(t, "suspended"), CreatedAt: anyTime.Draw(t, "created").Truncate(time.Millisecond),
		UpdatedAt: anyTime.Draw(t, "updated").Truncate(time.Millisecond), ExpiresAt: anySeconds(t, "expires"),
	}
})

// Promise: as for rows.
func TestQuotaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := anyQuota.Draw(t, "quota")
		got, err := DecodeQuota(FieldsOf(q.Item()))
		if err != nil || !reflect.DeepEqual(got, q) {
			t.Fatalf("%v\nwrote %+v\nread  %+v", err, q, got)
		}
	})
}

var anyPlan = rapid.Custom(func(t *rapid.T) *Plan {
	return &Plan{
		Key: PlanKey(anyID(MaxTenant).Draw(t, "tenant")), Version: rapid.Int64Min(1).Draw(t, "version"), Tokens: anyCount.Draw(t, "tokens"),
		Period: rapid.SampledFrom([]PeriodKind{Monthly, Daily, Always}).Draw(t, "period"), Shards: rapid.Int64Range(1, MaxShards).Draw(t, "shards"),
		Overdraft: anyCount.Draw(t, "overdraft"), Suspended: rapid.Bool().Draw(t, "suspended"), UpdatedAt: anyTime.Draw(t, "updated").Truncate(time.Millisecond),
	}
})

// Promise: as for rows.
func TestPlanRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan.Draw(t, "plan")
		got, err := DecodePlan(FieldsOf(p.Item()))
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%v\nwrote %+v\nread  %+v", err, p, got)
		}
	})
}

// samples are one whole item of each kind, with a decoder that tells only whether it could be read.
func samples() map[Kind]Item {
	now := time.UnixMilli(1_800_000_000_123)
	rowKey := RowKey("acme", "s", ScopeSession, "k")
	row := &Row{
		Key: rowKey, RowID: "r", Holder: "h", Version: 3, Attempt: 2, State: StateApplied, Tool: "book", IntentHash: make([]byte, 32),
		ArgHashes: []byte{1}, Session: "s", Scope: ScopeSession, Idempotent: true, Verifier: true, Horizon: time.Minute, Keep: time.Hour, Cursor: "c",
		ExpectCursor: new(""), Trace: "t", Lookup: "l", Reserved: 5, Charged: 5, Shortfall: 1, Debits: []Debit{{"2026-11", 0, 4}},
		ResultJSON: new("1"), ResultRef: &ResultRef{"ref", make([]byte, 32), 9}, Failure: "expired", Unverified: 1, Suspects: []string{"r/1"},
		AppliedAttempt: 2, Contention: 1, CreatedAt: now, UpdatedAt: now, ReservedAt: now, Deadline: now, LastDeadline: now, PendingBucket: "PENDING#1",
		SweepAt: now, Held: true, SettledBy: "holder", SettledFrom: "q", By: "ann", Why: "seen", ExpiresAt: now.Truncate(time.Second), Compensates: "session:o",
		RefundOriginal: true, CompensatedBy: "session:u", CompensatedAt: now, Erasing: true,
	}
	quota := &Quota{
		Key: QuotaKey("acme", "2026-11", 1), QuotaID: "q", Version: 1, Granted: 9, Remaining: -1, Extra: 1, Shard: 1, PlanVersion: 1, Suspended: true,
		CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Truncate(time.Second),
	}
	plan := &Plan{Key: PlanKey("acme"), Version: 1, Tokens: 9, Shards: 1, Overdraft: 1, Suspended: true, UpdatedAt: now}
	obsKey, sessionKey := ObservationKey(rowKey), SessionKey("acme", "s")
	return map[Kind]Item{
		KindRow: row.Item(), KindQuota: quota.Item(), KindPlan: plan.Item(),
		KindSession: {
			PK: S(sessionKey.PK), SK: S(sessionKey.SK), AFormat: N(1), AVersion: N(1), ACursor: S("c"), AUpdatedAt: Millis(now), AExpiresAt: Seconds(now),
		},
		KindObservation: {
			PK: S(obsKey.PK), SK: S(obsKey.SK), AFormat: N(1), AVersion: N(1), AObsID: S("o"), ATool: S("t"), ASession: S("s"), AUpdatedAt: Millis(now),
			AExpiresAt: Seconds(now), ADuplicates: N(1), AInFlight: N(2), AKeyConflicts: N(3), AQuotaDenials: N(4), AGiveUps: N(5),
		},
	}
}

var decoders = map[Kind]func(Fields) error{
	KindRow:         func(f Fields) error { _, err := DecodeRow(f); return err },
	KindQuota:       func(f Fields) error { _, err := DecodeQuota(f); return err },
	KindPlan:        func(f Fields) error { _, err := DecodePlan(f); return err },
	KindSession:     func(f Fields) error { _, err := DecodeSession(f); return err },
	KindObservation: func(f Fields) error { _, err := DecodeObservation(f); return err },
}

// Promise: an item is read as its own kind and as no other.
func TestDecodeKinds(t *testing.T) {
	for kind, item := range samples() {
		for other, decode := range decoders {
			if err := decode(FieldsOf(item)); (err == nil) != (kind == other) {
				t.Errorf("%s read as %s: %v", kind, other, err)
			}
		}
	}
}

// wrong are values that no attribute holds: each is wrong for all attributes, or of a type that its attribute has not.
var wrong = []types.AttributeValue{
	S("secret"), N(-7), &types.AttributeValueMemberN{Value: "1.5"}, &types.AttributeValueMemberN{Value: "99999999999999999999999999999999999999"},
	&types.AttributeValueMemberNULL{Value: true}, &types.AttributeValueMemberL{Value: []types.AttributeValue{S("secret")}}, Bool(true), B([]byte("secret")), SS("secret"),
	&types.AttributeValueMemberM{Value: Item{"secret": S("secret")}}, &types.AttributeValueMemberNS{Value: []string{"1"}}, nil,
}

// Promise: an attribute of another type or out of range is named, with the rule, and its value is not told; whatever is
// wrong, nothing panics. Attributes that are not known are passed over.
func TestDecodeWrongAttributes(t *testing.T) {
	for kind, item := range samples() {
		for name, good := range item {
			refused := false
			for _, bad := range wrong {
				item[name] = bad
				err := decoders[kind](FieldsOf(item))
				if err == nil {
					continue
				}
				refused = true
				e, ok := errors.AsType[*DecodeError](err)
				if !ok || e.Rule == "" || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s %s %T: %v", kind, name, bad, err)
				}
				if fmt.Sprintf("%T", bad) != fmt.Sprintf("%T", good) && e.Attr != name && e.Attr != "" {
					t.Errorf("%s %s %T: blames %s", kind, name, bad, e.Attr)
				}
			}
			if !refused {
				t.Errorf("%s %s: anything is accepted", kind, name)
			}
			item[name] = good
		}
		item["fromTheFuture"] = Bool(true)
		if err := decoders[kind](FieldsOf(item)); err != nil {
			t.Errorf("%s with an unknown attribute: %v", kind, err)
		}
	}
}

// Promise: items that lack what every reader relies on are refused.
func TestDecodeMissingAttributes(t *testing.T) {
	needed := map[Kind][]string{
		KindRow:     {PK, SK, AFormat, AVersion, AAttempt, ARowID, AState, AIntentHash, ASession, AScope},
		KindQuota:   {PK, SK, AFormat, AVersion, AQuotaID},
		KindPlan:    {PK, SK, AFormat, AVersion, AShards},
		KindSession: {PK, SK, AFormat, AVersion}, KindObservation: {PK, SK, AFormat, AVersion, AObsID},
	}
	for kind, names := range needed {
		for _, name := range names {
			item := samples()[kind]
			delete(item, name)
			if err := decoders[kind](FieldsOf(item)); err == nil {
				t.Errorf("%s without %s is accepted", kind, name)
			}
		}
	}
	item := samples()[KindRow]
	delete(item, AIntentHash)
	if _, err := DecodePending(FieldsOf(item)); err != nil {
		t.Errorf("what the index has: %v", err)
	}
	item[AFormat] = N(Format + 1)
	if _, err := DecodePending(FieldsOf(item)); err == nil {
		t.Error("a newer format is accepted")
	}
}

// Promise: a row that is told to be of another session or scope than its key is refused: nobody could be billed for it.
func TestRowAgreesWithItsKey(t *testing.T) {
	for name, change := range map[string]func(Item){
		"session": func(it Item) { it[ASession] = S("other") },
		"scope":   func(it Item) { it[AScope] = S(string(ScopeTenant)) },
		"no id":   func(it Item) { it[ASession] = S("a#b") },
		"state":   func(it Item) { it[AState] = S("done") },
		"hash":    func(it Item) { it[AIntentHash] = B(make([]byte, 31)) },
	} {
		item := samples()[KindRow]
		change(item)
		if _, err := DecodeRow(FieldsOf(item)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Promise: debits name quota items in one way only, and hold what can have been debited.
func TestDebitNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"2026-11/0": true, "ALWAYS/63": true, "2026-11-30/7": true, "2026-11": false, "2026-11/": false, "2026-11/00": false, "2026-11/-1": false,
		"2026-11/+1": false, "2026-13/0": false, "/0": false, "2026-11/0/0": false, "2026-11/x": false, "": false,
	} {
		var debits []Debit
		value := ValueOf(&types.AttributeValueMemberM{Value: Item{name: N(1)}})
		if rule := readDebits(value, &debits); (rule == "") != ok {
			t.Errorf("%q: %s", name, rule)
		}
	}
	for _, amount := range []types.AttributeValue{N(0), N(-1), N(MaxTokens + 1), S("1")} {
		var debits []Debit
		if rule := readDebits(ValueOf(&types.AttributeValueMemberM{Value: Item{"ALWAYS/0": amount}}), &debits); rule == "" {
			t.Errorf("%v is accepted", amount)
		}
	}
}

// FuzzDecode puts one arbitrary value into one attribute of an item: reading it never panics, and what is read can be
// written and read again to the same.
func FuzzDecode(f *testing.F) {
	names := []string{}
	for _, item := range samples() {
		for name := range item {
			names = append(names, name)
		}
	}
	for i := range names {
		f.Add(uint16(i), uint8(i), "1", []byte{1})
	}
	f.Add(uint16(3), uint8(1), "1e3", []byte("x"))
	f.Add(uint16(9), uint8(5), "2026-11/0", []byte("9"))
	f.Fuzz(func(t *testing.T, which uint16, kind uint8, text string, data []byte) {
		value := fuzzedValue(kind, text, data)
		for k, item := range samples() {
			name := names[int(which)%len(names)]
			item[name] = value
			if decoders[k](FieldsOf(item)) != nil || k != KindRow {
				continue
			}
			r, _ := DecodeRow(FieldsOf(item))
			again, err := DecodeRow(FieldsOf(r.Item()))
			if err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%s = %v: %v\nread  %+v\nagain %+v", name, value, err, r, again)
			}
		}
	})
}

func fuzzedValue(kind uint8, text string, data []byte) types.AttributeValue {
	switch kind % 8 {
	case 0:
		return S(text)
	case 1:
		return &types.AttributeValueMemberN{Value: text}
	case 2:
		return B(data)
	case 3:
		return Bool(len(data) > 0)
	case 4:
		return SS(text, string(data))
	case 5:
		return &types.AttributeValueMemberM{Value: Item{text: &types.AttributeValueMemberN{Value: string(data)}}}
	case 6:
		return &types.AttributeValueMemberM{Value: Item{"ref": S(text), "sha256": B(data), "bytes": N(int64(len(data)))}}
	}
	return &types.AttributeValueMemberNULL{Value: true}
}
