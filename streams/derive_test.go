package streams

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// transition is one lawful write: the events it gives, and the attributes it may change beside version, updatedAt,
// contention, verifier, keep, by and why.
type transition struct {
	name    string
	was, is *schema.Row
	events  []string
	may     attrs
}

// start is what a new attempt may change.
const start = aAttempt | aHolder | aSession | aReserved | aDebits | aIdempotent | aHorizon | aCursor | aExpectCursor | aTrace |
	aLookup | aCompensates | aRefundOriginal | aSweepAt | aReservedAt

func transitions() []transition {
	pending := pendingRow()
	applied := next(pending, finalize(15))
	released := next(pending, fail(schema.FailureReleased))
	expired := next(pending, fail(schema.FailureExpired))
	second := next(expired, takeover)
	held := next(pending, hold)
	linked := next(applied, func(r *schema.Row) { r.CompensatedBy = "session:undo" })
	compensate := func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits = "session:undo", r.UpdatedAt, nil }
	suspect := func(r *schema.Row) { r.Suspects = append(r.Suspects, "row-0/3") }
	erase := func(r *schema.Row) { r.Erasing = true }
	verified := func(r *schema.Row) { finalize(20)(r); r.SettledBy = schema.SettledByVerify }
	anew := func(edits ...func(*schema.Row)) *schema.Row {
		r := pendingRow()
		r.RowID, r.CreatedAt = "row-2", t0.Add(60*24*time.Hour)
		r.UpdatedAt, r.Deadline = r.CreatedAt, r.CreatedAt.Add(time.Minute)
		for _, edit := range edits {
			edit(r)
		}
		return r
	}
	settledNew := func(r *schema.Row) {
		finalize(20)(r)
		r.SettledFrom, r.Attempt, r.AppliedAttempt, r.CreatedAt = testRow, 3, 3, t0
		r.CreatedAt = t0 // of the reservation that it ends, long before the row that it is written over expired
	}
	commit := func(r *schema.Row) { finalize(20)(r); r.LastDeadline = time.Time{} }
	endings := aDeadline | aSweepAt
	effect := aDebits | aCharged | aShortfall
	return []transition{
		{"reserve", nil, pending, []string{"ToolCallReserved"}, ^attrs(0)},
		{"commit", nil, committedRow(), []string{"ToolEffectApplied"}, ^attrs(0)},
		{"settle new", nil, anew(settledNew), []string{"ToolEffectSettledLate"}, ^attrs(0)},
		{"reserve over expired", applied, anew(), []string{"LedgerRowArchived", "ToolCallReserved"}, ^attrs(0)},
		{"commit over expired", expired, anew(commit), []string{"LedgerRowArchived", "ToolEffectApplied"}, ^attrs(0)},
		{"settle new over expired", expired, anew(settledNew), []string{"LedgerRowArchived", "ToolEffectSettledLate"}, ^attrs(0)},
		{"extend", pending, next(pending, func(r *schema.Row) { r.Deadline = r.Deadline.Add(time.Minute) }), []string{"ReservationExtended"}, aDeadline | aSweepAt},
		{"defer", pending, next(pending, func(r *schema.Row) { r.SweepAt = r.UpdatedAt.Add(time.Minute) }), nil, aSweepAt},
		{"hold", pending, held, []string{"ReservationStuck"}, aSweepAt},
		{"finalize", pending, applied, []string{"ToolEffectApplied"}, endings | effect | aResult | aExpiresAt},
		{"sweep finalize", pending, next(pending, verified), []string{"ToolEffectApplied"}, endings | effect | aResult | aExpiresAt},
		{"finalize held", held, next(held, verified), []string{"ToolEffectApplied"}, endings | effect | aResult | aExpiresAt},
		{"fenced", second, next(second, fenced), []string{"ToolEffectApplied", "SuspectedDoubleEffect"}, endings | aCharged | aShortfall | aResult | aExpiresAt | aSuspects},
		{"release", pending, released, []string{"ReservationReleased"}, endings | aExpiresAt},
		{"expire", pending, expired, []string{"ReservationExpired"}, endings | aExpiresAt | aUnverified},
		{"expire held", held, next(held, fail(schema.FailureExpired)), []string{"ReservationExpired"}, endings | aExpiresAt | aUnverified},
		{"resolve pending", pending, next(pending, resolveAbsent), []string{"ReservationResolved"}, endings | aExpiresAt | aUnverified},
		{"resolve held", held, next(held, resolveAbsent), []string{"ReservationResolved"}, endings | aExpiresAt | aUnverified},
		{"resolve failed", expired, next(expired, resolveAbsent), []string{"ReservationResolved"}, aExpiresAt | aUnverified},
		{"takeover", released, next(released, takeover), []string{"ToolCallReserved"}, start | aDeadline},
		{"takeover of expired", expired, second, []string{"ToolCallReserved"}, start | aDeadline},
		{"commit of failed", expired, next(expired, commitFailed), []string{"ToolEffectApplied"}, start | effect | aResult | aExpiresAt},
		{"settle late", expired, next(expired, settleLate(schema.SettledByHolder)), []string{"ToolEffectSettledLate"}, effect | aResult | aExpiresAt | aSuspects},
		{"verify settle", expired, next(expired, settleLate(schema.SettledByVerify)), []string{"ToolEffectSettledLate"}, effect | aResult | aExpiresAt | aSuspects},
		{"person settles", expired, next(expired, settleLate(schema.SettledByPerson)), []string{"ToolEffectSettledLate"}, effect | aResult | aExpiresAt | aSuspects},
		{"suspect pending", pending, next(pending, suspect), []string{"SuspectedDoubleEffect"}, aSuspects},
		{"suspect failed", released, next(released, suspect), []string{"SuspectedDoubleEffect"}, aSuspects},
		{"suspect applied", applied, next(applied, suspect), []string{"SuspectedDoubleEffect"}, aSuspects},
		{"link", applied, linked, []string{"CompensationStarted"}, aCompensatedBy | aCompensatedAt},
		{"link again", linked, next(linked), []string{"CompensationStarted"}, aCompensatedAt | aSuspects | aErasing},
		{"compensate", linked, next(linked, compensate), []string{"ToolEffectCompensated"}, aCompensatedAt},
		{"compensate without refund", linked, next(linked, func(r *schema.Row) { r.CompensatedAt = r.UpdatedAt }), []string{"ToolEffectCompensated"}, aCompensatedAt},
		{"compensate at once", applied, next(applied, compensate), []string{"CompensationStarted", "ToolEffectCompensated"}, aCompensatedBy | aCompensatedAt},
		{"mark applied", applied, next(applied, erase), nil, 0},
		{"mark failed", released, next(released, erase), nil, 0},
	}
}

func typesOf(evs []events.Event) []string {
	var types []string
	for _, ev := range evs {
		types = append(types, ev.DetailType())
	}
	return types
}

func deriveTypes(t testing.TB, c Change) []string {
	t.Helper()
	evs, _, err := derived(t, c)
	if err != nil {
		t.Fatalf("Derive: %v", err)
	}
	for _, ev := range evs {
		h := ev.Head()
		if h.ID == "" || h.Schema != events.Schema || h.Tenant != testTenant || h.Key != testCall || h.Time.IsZero() || h.RowID == "" {
			t.Errorf("%s: header %+v", ev.DetailType(), h)
		}
		if ev.DetailType() != "LedgerRowTampered" && h.ID != events.ID(ev.DetailType(), h.RowID, h.Version) {
			t.Errorf("%s: id %s is not that of type, row and version", ev.DetailType(), h.ID)
		}
	}
	return typesOf(evs)
}

// Every transition of the protocol gives exactly its events.
func TestDeriveLawfulTransitions(t *testing.T) {
	for _, tr := range transitions() {
		t.Run(tr.name, func(t *testing.T) {
			if got := deriveTypes(t, changeOf(tr.was, tr.is)); !slices.Equal(got, tr.events) {
				evs, _, _ := derived(t, changeOf(tr.was, tr.is))
				t.Errorf("got %v (%+v), want %v", got, evs[0], tr.events)
			}
		})
	}
}

// edits change one attribute each to another value of its type.
var edits = []struct {
	attr attrs
	edit func(*schema.Row)
}{
	{aHolder, func(r *schema.Row) { r.Holder += "x" }},
	{aAttempt, func(r *schema.Row) { r.Attempt += 2 }},
	{aTool, func(r *schema.Row) { r.Tool += "x" }},
	{aIntentHash, func(r *schema.Row) { r.IntentHash = hashOf("other") }},
	{aArgHashes, func(r *schema.Row) { r.ArgHashes = []byte("efgh") }},
	{aIdempotent, func(r *schema.Row) { r.Idempotent = !r.Idempotent }},
	{aHorizon, func(r *schema.Row) { r.Horizon++; r.Horizon += time.Second }},
	{aCursor, func(r *schema.Row) { r.Cursor += "x" }},
	{aExpectCursor, func(r *schema.Row) { r.ExpectCursor = nil }},
	{aTrace, func(r *schema.Row) { r.Trace = "" }},
	{aLookup, func(r *schema.Row) { r.Lookup += "x" }},
	{aReserved, func(r *schema.Row) { r.Reserved += 7 }},
	{aCharged, func(r *schema.Row) { r.Charged += 7 }},
	{aShortfall, func(r *schema.Row) { r.Shortfall += 7 }},
	{aDebits, func(r *schema.Row) { r.Debits = append(r.Debits, schema.Debit{Period: "2026-12", Tokens: 7}) }},
	{aResult, func(r *schema.Row) { r.ResultJSON = new(`{"forged":1}`) }},
	{aResult, func(r *schema.Row) { r.ResultRef = &schema.ResultRef{Ref: "x", SHA256: hashOf("x"), Bytes: 1} }},
	{aFailure, func(r *schema.Row) { r.Failure = "bored" }},
	{aUnverified, func(r *schema.Row) { r.Unverified++ }},
	{aUnverified, func(r *schema.Row) { r.Unverified = 0 }},
	{aSuspects, func(r *schema.Row) { r.Suspects = append(r.Suspects, "row-9/9") }},
	{aApplied, func(r *schema.Row) { r.AppliedAttempt++ }},
	{aCreatedAt, func(r *schema.Row) { r.CreatedAt = r.CreatedAt.Add(time.Second) }},
	{aReservedAt, func(r *schema.Row) { r.ReservedAt = t0.Add(time.Second) }},
	{aDeadline, func(r *schema.Row) { r.Deadline = t0.Add(time.Second) }},
	{aLastDeadline, func(r *schema.Row) { r.LastDeadline = t0.Add(time.Second) }},
	{aPendingBucket, func(r *schema.Row) { r.PendingBucket += "7" }},
	{aSweepAt, func(r *schema.Row) { r.SweepAt = t0.Add(time.Hour) }},
	{aHeld, func(r *schema.Row) { r.Held = !r.Held }},
	{aSettledBy, func(r *schema.Row) { r.SettledBy = "nobody" }},
	{aSettledFrom, func(r *schema.Row) { r.SettledFrom += "x" }},
	{aExpiresAt, func(r *schema.Row) { r.ExpiresAt = r.UpdatedAt.Add(time.Hour) }},
	{aCompensates, func(r *schema.Row) { r.Compensates += "x" }},
	{aRefundOriginal, func(r *schema.Row) { r.RefundOriginal = !r.RefundOriginal }},
	{aCompensatedBy, func(r *schema.Row) { r.CompensatedBy += "x" }},
	{aCompensatedAt, func(r *schema.Row) { r.CompensatedAt = t0.Add(time.Second) }},
	{aErasing, func(r *schema.Row) { r.Erasing = !r.Erasing }},
	{aVersion, func(r *schema.Row) { r.Version-- }},
	{aVersion, func(r *schema.Row) { r.Version++ }},
}

// Every attribute that the codec of rows knows is compared, and has its own name: one that is added there and forgotten here
// could be forged unseen.
func TestEveryAttributeIsCompared(t *testing.T) {
	if len(attrNames) != bits.Len64(uint64(aErasing)) {
		t.Fatalf("%d names for %d attributes", len(attrNames), bits.Len64(uint64(aErasing)))
	}
	fields := reflect.TypeFor[schema.Row]()
	seen := map[attrs]string{}
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if name == "Key" {
			continue // of the record
		}
		changed := &schema.Row{}
		switch v := reflect.ValueOf(changed).Elem().Field(i); v.Interface().(type) {
		case time.Time:
			v.Set(reflect.ValueOf(t0))
		case []byte:
			v.SetBytes([]byte{1})
		case []string:
			v.Set(reflect.ValueOf([]string{"x"}))
		case []schema.Debit:
			v.Set(reflect.ValueOf([]schema.Debit{{Tokens: 1}}))
		default:
			switch v.Kind() {
			case reflect.String:
				v.SetString("x")
			case reflect.Bool:
				v.SetBool(true)
			case reflect.Int64:
				v.SetInt(1)
			case reflect.Pointer:
				v.Set(reflect.New(v.Type().Elem()))
			default:
				t.Fatalf("%s is of a type that this test does not know", name)
			}
		}
		got := changedAttrs(&schema.Row{}, changed)
		if bits.OnesCount64(uint64(got)) != 1 || seen[got] != "" && got != aResult {
			t.Errorf("%s: compared as %v, as is %q", name, got.names(), seen[got])
		}
		seen[got] = name
	}
}

// A lawful transition that also changes any attribute beyond its own is tampering, whichever attribute it is.
func TestDeriveOneForgedAttribute(t *testing.T) {
	for _, tr := range transitions() {
		if tr.may == ^attrs(0) {
			continue // a new row: see below
		}
		for i, e := range edits {
			if tr.may.has(e.attr) {
				continue
			}
			forged := clone(tr.is)
			e.edit(forged)
			if changedAttrs(forged, tr.is) == 0 {
				continue // this edit says what the transition says
			}
			t.Run(fmt.Sprintf("%s/%s/%d", tr.name, strings.Join(e.attr.names(), ","), i), func(t *testing.T) {
				got := deriveTypes(t, changeOf(tr.was, forged))
				if !slices.Equal(got, []string{"LedgerRowTampered"}) {
					t.Errorf("got %v", got)
				}
			})
		}
	}
}

// A new row that no reserve, commit or late settlement can have written is tampering, on its own and over an expired row.
func TestDeriveForgedNewRow(t *testing.T) {
	with := func(r *schema.Row, edit func(*schema.Row)) *schema.Row { r = clone(r); edit(r); return r }
	forged := map[string]*schema.Row{
		"later version":      with(pendingRow(), func(r *schema.Row) { r.Version = 2 }),
		"later attempt":      with(pendingRow(), func(r *schema.Row) { r.Attempt = 2 }),
		"commit 2nd attempt": with(committedRow(), func(r *schema.Row) { r.Attempt, r.AppliedAttempt = 2, 2 }),
		"begins failed":      with(next(pendingRow(), fail(schema.FailureReleased)), func(r *schema.Row) { r.Version = 1 }),
		"held":               with(pendingRow(), func(r *schema.Row) { r.Held = true }),
		"no deadline":        with(pendingRow(), func(r *schema.Row) { r.Deadline = time.Time{} }),
		"out of the index":   with(pendingRow(), func(r *schema.Row) { r.PendingBucket = "" }),
		"wrong bucket":       with(pendingRow(), func(r *schema.Row) { r.PendingBucket = "PENDING#99" }),
		"pending with TTL":   with(pendingRow(), func(r *schema.Row) { r.ExpiresAt = t0.Add(time.Hour) }),
		"pending result":     with(pendingRow(), func(r *schema.Row) { r.ResultJSON = new("1") }),
		"pending charged":    with(pendingRow(), func(r *schema.Row) { r.Charged = 1 }),
		"undebited":          with(pendingRow(), func(r *schema.Row) { r.Debits = nil }),
		"suspect":            with(pendingRow(), func(r *schema.Row) { r.Suspects = []string{"x/1"} }),
		"unverified":         with(pendingRow(), func(r *schema.Row) { r.Unverified = 1 }),
		"erasing":            with(committedRow(), func(r *schema.Row) { r.Erasing = true }),
		"compensated":        with(committedRow(), func(r *schema.Row) { r.CompensatedBy = "session:x" }),
		"commit no result":   with(committedRow(), func(r *schema.Row) { r.ResultJSON = nil }),
		"commit no expiry":   with(committedRow(), func(r *schema.Row) { r.ExpiresAt = time.Time{} }),
		"commit no attempt":  with(committedRow(), func(r *schema.Row) { r.AppliedAttempt = 0 }),
		"commit overcharged": with(committedRow(), func(r *schema.Row) { r.Charged++ }),
		"commit undebited":   with(committedRow(), func(r *schema.Row) { r.Debits = nil }),
		"commit deadline":    with(committedRow(), func(r *schema.Row) { r.LastDeadline = t0 }),
		"commit settled by":  with(committedRow(), func(r *schema.Row) { r.SettledBy = "" }),
		"settled from self":  with(committedRow(), func(r *schema.Row) { r.SettledFrom = testRow }),
		"settled pending":    with(pendingRow(), func(r *schema.Row) { r.SettledFrom = "row-0" }),
		"expires at once":    with(committedRow(), func(r *schema.Row) { r.ExpiresAt = t0.Add(-time.Hour) }),
	}
	for name, row := range forged {
		t.Run(name, func(t *testing.T) {
			if got := deriveTypes(t, changeOf(nil, row)); !slices.Equal(got, []string{"LedgerRowTampered"}) {
				t.Errorf("alone: got %v", got)
			}
			old := next(pendingRow(), fail(schema.FailureReleased), func(r *schema.Row) { r.RowID = "row-0" })
			old.ExpiresAt = t0.Add(-time.Hour)
			if got := deriveTypes(t, changeOf(old, row)); !slices.Equal(got, []string{"LedgerRowTampered"}) {
				t.Errorf("over an expired row: got %v", got)
			}
		})
	}
}

// No state leads to another but by the table of the protocol.
func TestDeriveUnlawfulTransitions(t *testing.T) {
	pending := pendingRow()
	applied := next(pending, finalize(15))
	expired := next(pending, fail(schema.FailureExpired))
	held := next(pending, hold)
	second := next(expired, takeover)
	other := clone(pending)
	other.RowID = "row-2"
	for name, c := range map[string]Change{
		"applied to pending":               changeOf(applied, next(applied, takeover)),
		"applied to failed":                changeOf(applied, next(pending, fail(schema.FailureReleased), func(r *schema.Row) { r.Version = applied.Version + 1 })),
		"result changes":                   changeOf(applied, next(applied, func(r *schema.Row) { r.ResultJSON = new("2") })),
		"unlinked":                         changeOf(next(applied, func(r *schema.Row) { r.CompensatedBy = "session:x" }), next(applied, func(r *schema.Row) { r.Version++ })),
		"linked to another":                changeOf(next(applied, func(r *schema.Row) { r.CompensatedBy = "session:x" }), next(applied, func(r *schema.Row) { r.CompensatedBy = "session:y"; r.Version++ })),
		"expired without unverified":       changeOf(pending, next(pending, fail(schema.FailureExpired), func(r *schema.Row) { r.Unverified = 0 })),
		"unverified forgotten":             changeOf(expired, next(expired, takeover, func(r *schema.Row) { r.Unverified = 0 })),
		"suspect forgotten":                changeOf(next(pending, func(r *schema.Row) { r.Suspects = []string{"a/1"} }), next(next(pending), func(r *schema.Row) { r.SweepAt = t0 })),
		"deadline moves back":              changeOf(pending, next(pending, func(r *schema.Row) { r.Deadline = r.Deadline.Add(-time.Second) })),
		"held row extended":                changeOf(held, next(held, func(r *schema.Row) { r.Deadline = r.Deadline.Add(time.Second) })),
		"hold undone":                      changeOf(held, next(held, func(r *schema.Row) { r.Held, r.PendingBucket = false, schema.PendingBucket(testCall) })),
		"takeover of the same attempt":     changeOf(expired, next(expired, takeover, func(r *schema.Row) { r.Attempt = 1 })),
		"fenced without suspect":           changeOf(second, next(second, fenced, func(r *schema.Row) { r.Suspects = nil })),
		"applied by a later attempt":       changeOf(pending, next(pending, finalize(20), func(r *schema.Row) { r.AppliedAttempt = 2 })),
		"nothing but the version":          changeOf(pending, next(pending)),
		"nothing but the version, applied": changeOf(applied, next(applied)),
		"pending replaced":                 changeOf(pending, other),
		"applied replaced too early":       changeOf(applied, other),
		"pending removed":                  changeOf(pending, nil),
		"applied removed too early":        changeOf(applied, nil),
		"erased though unverified":         changeOf(expired, next(expired, func(r *schema.Row) { r.Erasing = true })),
		"mark taken back":                  changeOf(next(applied, func(r *schema.Row) { r.Erasing = true }), next(applied, func(r *schema.Row) { r.Version++ })),
		"refund of more than debited":      changeOf(pending, next(pending, fail(schema.FailureReleased), func(r *schema.Row) { r.Debits[0].Tokens++ })),
		"compensation keeps a debit":       changeOf(applied, next(applied, func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits[0].Tokens = "session:x", t0, 1 })),
	} {
		t.Run(name, func(t *testing.T) {
			if got := deriveTypes(t, c); !slices.Equal(got, []string{"LedgerRowTampered"}) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// HC53: a removal by TTL is an archive entry of an ended row and nothing more; it never refunds, and a pending row cannot
// vanish that way unnoticed. Where the removal does not carry DynamoDB's identity, expiry decides.
func TestHC53RemovalByTTL(t *testing.T) {
	applied, pending := next(pendingRow(), finalize(15)), pendingRow()
	byTTL := func(c Change) Change { c.TTL, c.Time = true, applied.ExpiresAt.Add(time.Hour); return c }
	late := func(c Change) Change { c.Time = applied.ExpiresAt.Add(time.Hour); return c }
	erasing := next(applied, func(r *schema.Row) { r.Erasing = true })
	for name, tc := range map[string]struct {
		c      Change
		want   string
		reason string
	}{
		"applied by TTL":              {byTTL(changeOf(applied, nil)), "LedgerRowArchived", "ttl"},
		"applied, identity unknown":   {late(changeOf(applied, nil)), "LedgerRowArchived", "expired"},
		"applied, within retention":   {changeOf(applied, nil), "LedgerRowTampered", ""},
		"marked for erasure":          {changeOf(erasing, nil), "LedgerRowArchived", "erased"},
		"pending by TTL":              {byTTL(changeOf(pending, nil)), "LedgerRowTampered", ""},
		"pending, identity unknown":   {late(changeOf(pending, nil)), "LedgerRowTampered", ""},
		"pending, marked by a forger": {changeOf(next(pending, func(r *schema.Row) { r.Erasing = true }), nil), "LedgerRowTampered", ""},
	} {
		t.Run(name, func(t *testing.T) {
			evs, data, err := derived(t, tc.c)
			if err != nil || len(evs) != 1 || evs[0].DetailType() != tc.want {
				t.Fatalf("got %v, %v", typesOf(evs), err)
			}
			if a, ok := evs[0].(*events.LedgerRowArchived); ok && a.Reason != tc.reason {
				t.Errorf("reason %q, want %q", a.Reason, tc.reason)
			}
			for _, d := range data {
				if strings.HasPrefix(d.Name, "Tokens") {
					t.Errorf("a removal moves %s by %v", d.Name, d.Value)
				}
			}
		})
	}
}

// The events say what the books need: what was reserved, charged, short and given back.
func TestDeriveTokens(t *testing.T) {
	pending := pendingRow()
	expired := next(pending, fail(schema.FailureExpired))
	evs := func(was, is *schema.Row) events.Event {
		out, _, err := derived(t, changeOf(was, is))
		if err != nil || len(out) == 0 {
			t.Fatalf("%v, %v", out, err)
		}
		return out[len(out)-1]
	}
	if e := evs(nil, pending).(*events.ToolCallReserved); e.ReservedTokens != 20 || !e.Deadline.Equal(pending.Deadline) || e.Unverified {
		t.Errorf("reserve: %+v", e)
	}
	a := evs(pending, next(pending, finalize(15))).(*events.ToolEffectApplied)
	if a.ReservedTokens != 20 || a.ChargedTokens != 15 || a.RefundedTokens != 5 || a.ResultBytes != 8 || len(a.ResultSHA256) != 64 {
		t.Errorf("finalize: %+v", a)
	}
	more := evs(pending, next(pending, finalize(20), func(r *schema.Row) { r.Charged, r.Shortfall = 30, 10 })).(*events.ToolEffectApplied)
	if more.ChargedTokens != 30 || more.ShortfallTokens != 10 || more.RefundedTokens != 0 {
		t.Errorf("finalize with a shortfall: %+v", more)
	}
	if e := evs(pending, expired).(*events.ReservationExpired); e.RefundedTokens != 20 || !e.Deadline.Equal(pending.Deadline) {
		t.Errorf("expire: %+v", e)
	}
	if e := evs(expired, next(expired, takeover)).(*events.ToolCallReserved); !e.Unverified || e.Attempt != 2 {
		t.Errorf("takeover: %+v", e)
	}
	if e := evs(expired, next(expired, settleLate(schema.SettledByHolder))).(*events.ToolEffectSettledLate); e.ChargedTokens != 20 || !e.Unverified {
		t.Errorf("settle late: %+v", e)
	}
	applied := next(pending, finalize(15))
	undone := next(applied, func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits = "session:undo", t0, nil })
	if e := evs(applied, undone).(*events.ToolEffectCompensated); e.RefundedTokens != 15 || e.CompensatedBy != "session:undo" {
		t.Errorf("compensate: %+v", e)
	}
	if e := evs(expired, next(expired, resolveAbsent)).(*events.ReservationResolved); e.By != "ops" || e.From != "failed" || e.RefundedTokens != 0 {
		t.Errorf("resolve: %+v", e)
	}
	byRef := next(pending, finalize(20), func(r *schema.Row) {
		r.ResultJSON, r.ResultRef = nil, &schema.ResultRef{Ref: "k", SHA256: hashOf("big"), Bytes: 1 << 20}
	})
	if e := evs(pending, byRef).(*events.ToolEffectApplied); e.ResultBytes != 1<<20 || e.ResultSHA256 != fmt.Sprintf("%x", hashOf("big")) {
		t.Errorf("result elsewhere: %+v", e)
	}
}
