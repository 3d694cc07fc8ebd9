package writers

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolledger/internal/protocol"
	"toolledger/internal/schema"
)

// anyDebited draws what a row debited and which of these items are gone.
func anyDebited(t *rapid.T) (debits []schema.Debit, gone map[schema.Key]bool) {
	gone = map[schema.Key]bool{}
	for shard := range rapid.IntRange(0, 4).Draw(t, "items") {
		d := schema.Debit{Period: "2026-11", Shard: shard, Tokens: rapid.Int64Range(1, 20).Draw(t, "tokens")}
		debits = append(debits, d)
		if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
			gone[d.Key("acme")] = true
		}
	}
	return debits, gone
}

// anySettler is a settler of a reservation of the tenant acme, whose plan is known without a request.
func anySettler(t *rapid.T) *settler {
	now := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	l, err := New(&fakeDB{}, Config{Table: "ledger", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	plan := &schema.Plan{Version: 1, Tokens: 100, Shards: rapid.Int64Range(1, 5).Draw(t, "shards"), Overdraft: rapid.SampledFrom([]int64{0, 0, 7, 50}).Draw(t, "overdraft")}
	l.plans.put(plan, "acme", now)
	s := &settler{l: l, op: "finalize", s: l.Tenant("acme").Session("s"), key: SessionKey("k"), charged: rapid.Int64Range(0, 100).Draw(t, "charged")}
	s.row.Debits, s.gone = anyDebited(t)
	s.row.Reserved = schema.SumDebits(s.row.Debits)
	if rapid.Bool().Draw(t, "capped") {
		s.capped, s.cap = true, rapid.Int64Range(-60, 60).Draw(t, "cap")
	}
	return s
}

// checkBill holds a bill to its own sum, to the items that are there, and to what moves: kept debits and refunds are what was
// debited, what is debited on top is in the debits, and nothing moves on an item that is gone.
func checkBill(t *rapid.T, s *settler, b bill, before []schema.Debit) {
	t.Helper()
	if b.charged != schema.SumDebits(b.debits)+b.shortfall || b.shortfall < 0 {
		t.Fatalf("charged %d is not %v and %d", b.charged, b.debits, b.shortfall)
	}
	moved := map[schema.Key]int64{}
	for _, d := range before {
		if key := d.Key("acme"); !s.gone[key] {
			moved[key] += d.Tokens
		}
	}
	for _, d := range b.debits {
		moved[d.Key("acme")] -= d.Tokens
		if d.Tokens <= 0 || s.gone[d.Key("acme")] {
			t.Fatalf("debit %v", d)
		}
	}
	for _, a := range append(append([]protocol.Amount{}, b.amounts...), b.extra...) {
		if s.gone[a.Key] {
			t.Fatalf("%d move on an item that is gone", a.Tokens)
		}
		moved[a.Key] -= a.Tokens
	}
	for key, n := range moved {
		if n != 0 {
			t.Fatalf("%v: %d tokens are lost or found (debits %v, amounts %v, extra %v)", key, n, b.debits, b.amounts, b.extra)
		}
	}
}

// Promise: a final charge keeps what it costs, gives the rest back where it was debited, takes more only as far as quota
// and overdraft go, and says what is uncovered.
func TestFinalBill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettler(t)
		b, err := s.bill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkBill(t, s, b, s.row.Debits)
		extra := s.charged - s.row.Reserved
		var taken int64
		for _, a := range b.extra {
			taken -= a.Tokens
		}
		switch {
		case b.charged != s.charged:
			t.Fatalf("charged %d, not %d", b.charged, s.charged)
		case taken > max(extra, 0) || taken < 0 || len(b.extra) > 1:
			t.Fatalf("%d taken on top of %d", taken, extra)
		case taken > 0 && s.capped && taken > s.cap+b.overdraft:
			t.Fatalf("%d taken where %d are and the overdraft is %d", taken, s.cap, b.overdraft)
		case extra <= 0 && len(s.gone) == 0 && b.shortfall != 0:
			t.Fatalf("a shortfall of %d without a reason", b.shortfall)
		case extra > 0 && !s.capped && len(s.gone) == 0 && b.shortfall != 0:
			t.Fatalf("a shortfall of %d before anybody refused", b.shortfall)
		case taken > 0 && !b.bounded:
			t.Fatal("more is taken whatever remains")
		}
	})
}

// Promise: an effect that is recorded after it was given back is debited again on the same items, as far as they exist.
func TestBillAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettler(t)
		s.mode, s.found = modeFailed, &schema.Row{Debits: s.row.Debits}
		b, err := s.bill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkBill(t, s, b, nil)
		there := s.present("acme", s.row.Debits)
		switch {
		case b.bounded || b.charged != s.charged:
			t.Fatalf("%+v", b)
		case len(s.gone) == 0 && len(there) > 0 && b.shortfall != 0:
			t.Fatalf("a shortfall of %d with all items there", b.shortfall)
		case len(there) == 0 && b.shortfall != s.charged:
			t.Fatalf("%d paid by nobody", s.charged-b.shortfall)
		}
		for i, d := range b.debits {
			if s.charged <= s.row.Reserved && d.Tokens > there[i].Tokens {
				t.Fatalf("%v of %v", b.debits, there)
			}
		}
	})
}

// Promise: whoever looked and says that it happened charges what was reserved: nothing is taken on top.
func TestBillOfAVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettler(t)
		s.mode, s.charged, s.capped = modeRead, s.row.Reserved, false
		s.row.State = rapid.SampledFrom([]string{schema.StatePending, schema.StateFailed}).Draw(t, "state")
		b, err := s.bill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := s.row.Debits
		if s.row.State == schema.StateFailed {
			before = nil
		}
		checkBill(t, s, b, before)
		if len(b.extra) > 0 || b.charged != s.row.Reserved || len(s.gone) == 0 && b.shortfall != 0 {
			t.Fatalf("%+v", b)
		}
	})
}

// Promise: the newer attempt has paid for the one effect that there is: an older one that is recorded moves nothing.
func TestBillOfAFencedWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettler(t)
		s.mode = modeFenced
		s.found = &schema.Row{}
		s.found.Debits, _ = anyDebited(t)
		b, err := s.bill(t.Context())
		if err != nil || len(b.amounts)+len(b.extra) > 0 || b.charged != schema.SumDebits(s.found.Debits) || b.shortfall != 0 {
			t.Fatalf("%+v %v", b, err)
		}
	})
}

// Promise: one transaction names an item once: final charge, refund of the compensated call and debits on top are netted,
// and conserve the tokens of every item.
func TestSettlementNamesAnItemOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettler(t)
		s.row.RefundOriginal = rapid.Bool().Draw(t, "refund")
		s.original = &schema.Row{Key: schema.RowKey("acme", "s", schema.ScopeSession, "o"), RowID: "o", State: schema.StateApplied, CompensatedBy: "session:k"}
		s.original.Debits, _ = anyDebited(t)
		b, err := s.bill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := map[schema.Key]int64{}
		for _, a := range append(append([]protocol.Amount{}, b.amounts...), b.extra...) {
			want[a.Key] += a.Tokens
		}
		if s.row.RefundOriginal {
			for _, d := range s.original.Debits {
				if key := d.Key("acme"); !s.gone[key] {
					want[key] += d.Tokens
				}
			}
		}
		tx := protocol.NewTx(4)
		s.addRest(tx, b, s.l.now())
		seen := map[schema.Key]int64{}
		for i, part := range tx.Parts {
			if part.Kind != protocol.PartQuota {
				continue
			}
			if _, twice := seen[part.Key]; twice {
				t.Fatalf("%v is named twice", part.Key)
			}
			seen[part.Key] = movedBy(tx.Items[i].Update)
		}
		for key, n := range want {
			if seen[key] != n {
				t.Fatalf("%v: %d move, want %d", key, seen[key], n)
			}
		}
		for key, n := range seen {
			if n == 0 || want[key] != n {
				t.Fatalf("%v: %d move, want %d", key, n, want[key])
			}
		}
	})
}

// Promise: a row is kept as long as a retry may come, and as long as the books of the last period that it debited may be looked
// at, whichever is later.
func TestExpiresAt(t *testing.T) {
	now := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	l, err := New(&fakeDB{}, Config{Table: "ledger", Keep: 24 * time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	november := time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		keep    time.Duration
		periods []string
		want    time.Time
	}{
		"nothing debited":       {0, nil, now.Add(24 * time.Hour)},
		"its own retention":     {time.Hour, nil, now.Add(time.Hour)},
		"the period goes on":    {0, []string{"2026-11"}, november},
		"the last of several":   {0, []string{"2026-11-14", "2026-11", "2026-10"}, november},
		"a period long over":    {0, []string{"2026-09"}, now.Add(24 * time.Hour)},
		"longer than the month": {365 * 24 * time.Hour, []string{"2026-11"}, now.Add(365 * 24 * time.Hour)},
		"always":                {0, []string{schema.AlwaysPeriod}, now.Add(24 * time.Hour)},
	} {
		var debits []schema.Debit
		for _, p := range tt.periods {
			debits = append(debits, schema.Debit{Period: p, Tokens: 1})
		}
		if got := l.expiresAt(&schema.Row{Keep: tt.keep}, debits, now); !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
