package schema

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyTime is any time that items can hold, most often near a period's border.
var anyTime = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "near a border") {
		at := time.Date(rapid.IntRange(2002, 5137).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		return at.Add(time.Duration(rapid.Int64Range(-2000, 2000).Draw(t, "offset")) * time.Millisecond)
	}
	return time.UnixMilli(rapid.Int64Range(1e12, 1e14-1).Draw(t, "millis")).UTC()
})

// Promise: periods are what the time package says: every time is in its period, before its end, and the end is the first
// moment of the next.
func TestPeriods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := anyTime.Draw(t, "at")
		for kind, layout := range map[PeriodKind]string{Monthly: "2006-01", Daily: "2006-01-02"} {
			name := PeriodAt(kind, at)
			if want := at.Format(layout); name != want {
				t.Fatalf("%s is in %s, want %s", at, name, want)
			}
			end := PeriodEnd(name)
			if !at.Before(end) || PeriodAt(kind, end.Add(-time.Nanosecond)) != name || PeriodAt(kind, end) == name || end.Location() != time.UTC {
				t.Fatalf("%s ends at %s", name, end)
			}
			begin := end.AddDate(0, 0, -1)
			if kind == Monthly {
				begin = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
			}
			if at.Before(begin) || PeriodAt(kind, begin) != name || PeriodEnd(PeriodAt(kind, begin.Add(-1))) != begin {
				t.Fatalf("%s begins at %s", name, begin)
			}
			if !ValidPeriod(name) {
				t.Fatalf("%s is not valid", name)
			}
		}
		if PeriodAt(Always, at) != AlwaysPeriod || !PeriodEnd(AlwaysPeriod).IsZero() || !ValidPeriod(AlwaysPeriod) {
			t.Fatal("always ends")
		}
	})
}

// Promise: a period does not depend on where the process runs.
func TestPeriodsInUTC(t *testing.T) {
	at := time.Date(2026, 11, 30, 23, 30, 0, 0, time.FixedZone("west", -3600)) // 00:30 of the 1st in UTC
	if PeriodAt(Monthly, at) != "2026-12" || PeriodAt(Daily, at) != "2026-12-01" {
		t.Error(PeriodAt(Monthly, at), PeriodAt(Daily, at))
	}
}

// Promise: the borders that programs get wrong.
func TestPeriodBorders(t *testing.T) {
	for name, end := range map[string]string{
		"2026-12": "2027-01-01", "2026-12-31": "2027-01-01", "2024-02": "2024-03-01", "2024-02-28": "2024-02-29", "2024-02-29": "2024-03-01",
		"2026-02-28": "2026-03-01", "2000-02-29": "2000-03-01", "2100-02-28": "2100-03-01", "2026-01": "2026-02-01", "9999-12-31": "10000-01-01",
	} {
		if got := PeriodEnd(name).Format("2006-01-02"); got != end {
			t.Errorf("%s ends at %s, want %s", name, got, end)
		}
	}
	for _, bad := range []string{
		"", "2026", "2026-00", "2026-13", "2026-1", "2026-02-29", "2100-02-29", "2026-11-31", "2026-11-00", "2026-11-1", "2026-11-30T00", " 2026-11",
		"2026-11 ", "always", "ALWAYS ", "２０２６-11", "-2026-11", "+026-11", "2026-11-30 ",
	} {
		if ValidPeriod(bad) || !PeriodEnd(bad).IsZero() {
			t.Errorf("%q is a period", bad)
		}
	}
}

// Promise: seconds are rounded up, so that nothing expires early.
func TestCeilSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(1e9, 1e11).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		up := time.Unix(CeilSeconds(at), 0)
		if up.Before(at) || up.Sub(at) >= time.Second {
			t.Fatalf("%s became %s", at, up)
		}
	})
}

// Promise: a row counts as absent from the second after its last one, as the condition of a new row says.
func TestExpired(t *testing.T) {
	end := time.Unix(1_800_000_000, 0)
	r := &Row{State: StateApplied, ExpiresAt: end}
	for offset, want := range map[time.Duration]bool{-time.Second: false, 0: false, 999 * time.Millisecond: false, time.Second: true} {
		if got := r.Expired(end.Add(offset)); got != want {
			t.Errorf("%s after: %v", offset, got)
		}
	}
	r.State = StatePending
	if r.Expired(end.AddDate(1, 0, 0)) {
		t.Error("a pending row expired")
	}
	if (&Row{State: StateFailed}).Expired(end) {
		t.Error("a row without an end expired")
	}
}
