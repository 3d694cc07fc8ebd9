package schema

import "time"

// PeriodKind is how long a plan's tokens last.
type PeriodKind int

// The kinds of periods; they begin at midnight UTC.
const (
	Monthly PeriodKind = iota
	Daily
	Always
)

const (
	monthLayout = "2006-01"
	dayLayout   = "2006-01-02"
)

// AlwaysPeriod names the period that never ends.
const AlwaysPeriod = "ALWAYS"

// PeriodAt is the name of the period that t falls in: "2026-11", "2026-11-30" or "ALWAYS".
func PeriodAt(kind PeriodKind, t time.Time) string {
	t = t.UTC()
	switch kind {
	case Daily:
		return t.Format(dayLayout)
	case Always:
		return AlwaysPeriod
	case Monthly:
	}
	return t.Format(monthLayout)
}

// PeriodEnd is the moment that the named period ends, which is when the next begins; zero for "ALWAYS" and for a name
// that is no period.
func PeriodEnd(period string) time.Time {
	switch {
	case len(period) == len(monthLayout) && period[4] == '-':
		year, month := digits(period[:4]), digits(period[5:])
		if year >= 0 && month >= 1 && month <= 12 {
			return time.Date(year, time.Month(month+1), 1, 0, 0, 0, 0, time.UTC)
		}
	case len(period) == len(dayLayout):
		if t, err := time.Parse(dayLayout, period); err == nil {
			return t.AddDate(0, 0, 1)
		}
	}
	return time.Time{}
}

// digits reads a decimal number without a sign; -1: it is none.
func digits(s string) int {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = 10*n + int(s[i]-'0')
	}
	return n
}

// ValidPeriod tells whether period names a period.
func ValidPeriod(period string) bool { return period == AlwaysPeriod || !PeriodEnd(period).IsZero() }
