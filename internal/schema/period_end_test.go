package schema

import (
	"testing"
	"time"
)

// PeriodEnd reads months by hand, since every call asks for one; it must accept and say what the time package would.
func FuzzPeriodEnd(f *testing.F) {
	for _, s := range []string{
		"2026-11", "2026-12", "2026-02-28", "2024-02-29", "2026-02-29", "2026-12-31", "0000-12", "9999-12", "+026-01", "2026/11",
		"2026-00", "2026-13", "2026-1", "2026-11-3", " 2026-1", "ALWAYS", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, period string) {
		var want time.Time
		if begin, err := time.Parse("2006-01", period); err == nil {
			want = begin.AddDate(0, 1, 0)
		} else if begin, err := time.Parse("2006-01-02", period); err == nil {
			want = begin.AddDate(0, 0, 1)
		}
		if got := PeriodEnd(period); got != want {
			t.Errorf("PeriodEnd(%q) = %v, want %v", period, got, want)
		}
	})
}
