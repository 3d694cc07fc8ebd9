package writers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

func testLedger(t interface{ Fatal(...any) }, db DynamoDB) *Ledger {
	l, err := New(db, Config{Table: "ledger", Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var anyName = rapid.StringMatching(`[a-zA-Z0-9é/%.:_ -]{0,20}[a-z]`)

// anyReservation is a reservation as Reserve returns it.
var anyReservation = rapid.Custom(func(t *rapid.T) *Reservation {
	l := testLedger(t, &fakeDB{})
	s := l.Tenant(TenantID(anyName.Draw(t, "tenant"))).Session(anyName.Draw(t, "session"))
	k := Key{id: anyName.Draw(t, "key"), tenant: rapid.Bool().Draw(t, "wide")}
	millis := func(name string) time.Time {
		return time.UnixMilli(rapid.Int64Range(1e12, 1e14-4e6).Draw(t, name)).UTC()
	}
	row := &schema.Row{
		Key: s.rowKey(k), RowID: rapid.StringMatching(`[A-Z2-7]{26}`).Draw(t, "row"), Attempt: rapid.Int64Range(1, 1000).Draw(t, "attempt"),
		State: schema.StatePending, Tool: anyName.Draw(t, "tool"), IntentHash: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "intent"),
		Session: s.id, Scope: k.scope(), Idempotent: rapid.Bool().Draw(t, "idempotent"), Verifier: rapid.Bool().Draw(t, "verifier"),
		Horizon: time.Duration(rapid.IntRange(0, 10_000).Draw(t, "horizon")) * time.Millisecond,
		Keep:    time.Duration(rapid.IntRange(0, 10_000).Draw(t, "keep")) * time.Millisecond,
		Cursor:  rapid.SampledFrom([]string{"", "c"}).Draw(t, "cursor"), Trace: rapid.SampledFrom([]string{"", "t"}).Draw(t, "trace"),
		Lookup: rapid.SampledFrom([]string{"", "é\u2028<>&"}).Draw(t, "lookup"), CreatedAt: millis("reserved"), Deadline: millis("deadline"),
		Compensates:    rapid.SampledFrom([]string{"", "session:o", "tenant:a:b"}).Draw(t, "compensates"),
		RefundOriginal: rapid.Bool().Draw(t, "refund"),
		ExpectCursor:   rapid.SampledFrom([]*string{nil, new(""), new("b")}).Draw(t, "expect"),
	}
	if hashes := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "hashes"); len(hashes) > 0 {
		row.ArgHashes = hashes
	}
	for shard := range rapid.IntRange(0, 3).Draw(t, "debits") {
		row.Debits = append(row.Debits, schema.Debit{Period: "2026-11", Shard: shard, Tokens: rapid.Int64Range(1, 100).Draw(t, "tokens")})
	}
	row.Reserved = schema.SumDebits(row.Debits)
	return s.hold(k, row)
})

// Promise: a reservation survives the way through another process, whole.
func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyReservation.Draw(t, "reservation")
		got, err := r.s.t.Resume(r.Token())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.CallInfo, r.CallInfo) || !reflect.DeepEqual(got.row, r.row) || got.Tokens != r.Tokens {
			t.Fatalf("went  %+v %+v\ncame %+v %+v", r.CallInfo, r.row, got.CallInfo, got.row)
		}
		if again := got.Token(); again != r.Token() {
			t.Fatal("its second token differs")
		}
		r.moved(r.Deadline.Add(time.Hour))
		if got, err = r.s.t.Resume(r.Token()); err != nil || !got.Deadline.Equal(r.Deadline) {
			t.Fatalf("extended to %s, resumed with %s, %v", r.Deadline, got.Deadline, err)
		}
	})
}

// Promise: a token of another tenant is refused, whoever resumes it.
func TestTokenOfAnotherTenant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyReservation.Draw(t, "reservation")
		for _, other := range []TenantID{"other", r.Tenant + "2", r.Tenant[:len(r.Tenant)-1], "", " ", "a#b"} {
			if other == r.Tenant {
				continue
			}
			if got, err := r.s.t.l.Tenant(other).Resume(r.Token()); err == nil {
				t.Fatalf("%q resumed a token of %q: %+v", other, r.Tenant, got)
			}
		}
	})
}

// Promise: a token that was changed by hand puts nothing into the table that no writer could have put there.
func TestTokenChanged(t *testing.T) {
	r := rapid.Custom(func(t *rapid.T) *Reservation {
		return anyReservation.Filter(func(r *Reservation) bool { return len(r.row.Debits) > 0 }).Draw(t, "reservation")
	}).Example(1)
	raw, err := base64.RawURLEncoding.DecodeString(r.Token())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 2000)
	for name, change := range map[string]func(*token){
		"version":            func(k *token) { k.Version = 2 },
		"tenant":             func(k *token) { k.Tenant += "x" },
		"session":            func(k *token) { k.Session = "a#SESSION#b" },
		"no session":         func(k *token) { k.Session = "" },
		"key":                func(k *token) { k.Key = "a#b" },
		"no row":             func(k *token) { k.RowID = "" },
		"row":                func(k *token) { k.RowID = long },
		"row of another":     func(k *token) { k.RowID = "a\nb" },
		"attempt":            func(k *token) { k.Attempt = 0 },
		"tool":               func(k *token) { k.Tool = "" },
		"intent":             func(k *token) { k.Intent = k.Intent[1:] },
		"hashes":             func(k *token) { k.ArgHashes = []byte(long) },
		"tokens":             func(k *token) { k.Tokens = -1 },
		"too many tokens":    func(k *token) { k.Tokens = schema.MaxTokens + 1 },
		"negative debit":     func(k *token) { k.Debits[0].Tokens = -5 },
		"shard":              func(k *token) { k.Debits[0].Shard = 64 },
		"period":             func(k *token) { k.Debits[0].Period = "x" },
		"one item twice":     func(k *token) { k.Debits = append(k.Debits, k.Debits[0]) },
		"deadline":           func(k *token) { k.Deadline = 5 },
		"reserved":           func(k *token) { k.Reserved = -5 },
		"cursor":             func(k *token) { k.Cursor = long },
		"expected cursor":    func(k *token) { k.Expect = &long },
		"control characters": func(k *token) { k.Expect = new("a\x00b") },
		"lookup":             func(k *token) { k.Lookup = long },
		"trace":              func(k *token) { k.Trace = "a\nb" },
		"keep":               func(k *token) { k.Keep = -1 },
		"horizon":            func(k *token) { k.Horizon = 1 << 60 },
		"undoes":             func(k *token) { k.Undoes = "session:a#b" },
		"undoes nothing":     func(k *token) { k.Undoes = "session:" },
		"undoes elsewhere":   func(k *token) { k.Undoes = "stream:o" },
		"undoes no scope":    func(k *token) { k.Undoes = "o" },
	} {
		var k token
		if err := json.Unmarshal(raw, &k); err != nil {
			t.Fatal(err)
		}
		change(&k)
		b, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.s.t.Resume(base64.RawURLEncoding.EncodeToString(b)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is accepted: %v", name, err)
		}
	}
}

// FuzzResume: any text is a token of the tenant that resumes it, or is refused; it never panics, and never yields what
// belongs to another tenant.
func FuzzResume(f *testing.F) {
	for i := range 5 {
		r := anyReservation.Example(i)
		f.Add(r.Token(), string(r.Tenant), false)
		raw, _ := base64.RawURLEncoding.DecodeString(r.Token())
		f.Add(string(raw), string(r.Tenant), true)
	}
	f.Add("", "acme", false)
	f.Add(`{"v":1,"t":"acme"}`, "acme", true)
	f.Fuzz(func(t *testing.T, text, tenant string, encode bool) {
		if encode {
			text = base64.RawURLEncoding.EncodeToString([]byte(text))
		}
		l := testLedger(t, &fakeDB{})
		r, err := l.Tenant(TenantID(tenant)).Resume(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrMissingTenant) {
				t.Errorf("%v", err)
			}
			return
		}
		if string(r.Tenant) != tenant || !strings.HasPrefix(r.row.Key.PK, "TENANT#"+tenant+"#") {
			t.Errorf("%q resumed %v", tenant, r.row.Key)
		}
		if _, err := schema.ParseKey(r.row.Key); err != nil {
			t.Errorf("%v is no key", r.row.Key)
		}
		again, err := l.Tenant(TenantID(tenant)).Resume(r.Token())
		if err != nil || !reflect.DeepEqual(again.row, r.row) {
			t.Errorf("%v: %+v, again %+v", err, r.row, again)
		}
	})
}

// Promise: the zero Reservation, and none, refuse instead of panicking.
func TestZeroReservation(t *testing.T) {
	for _, r := range []*Reservation{nil, {}} {
		if _, err := r.Finalize(t.Context(), 1, 1); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		if err := r.Release(t.Context(), ""); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		if err := r.Extend(t.Context(), time.Minute); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
}
