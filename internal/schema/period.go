package schema

import (
	"fmt"
	"time"
)

// PeriodKind is how long a plan's tokens last.
type PeriodKind int

// The kinds of periods; they begin at midnight UTC.
const (
	Monthly PeriodKind = iota
	Daily
	Always
)

// AlwaysPeriod names the period that never ends.
const AlwaysPeriod = "ALWAYS"

// PeriodAt is the name of the period that t falls in: "2026-11", "2026-11-30" or "ALWAYS".
func PeriodAt(kind PeriodKind, t time.Time) string {
	t = t.UTC()
	switch kind {
	case Daily:
		return fmt.Sprintf("%04d-%02d-%02d", t.Year(), t.Month(), t.Day())
	case Always:
		return AlwaysPeriod
	case Monthly:
	}
	return fmt.Sprintf("%04d-%02d", t.Year(), t.Month())
}

// PeriodEnd is the moment that the named period ends, which is when the next begins; zero for "ALWAYS" and for a name
// that is no period.
func PeriodEnd(period string) time.Time {
	if t, err := time.Parse("2006-01", period); err == nil {
		return t.AddDate(0, 1, 0)
	}
	if t, err := time.Parse("2006-01-02", period); err == nil {
		return t.AddDate(0, 0, 1)
	}
	return time.Time{}
}

// ValidPeriod tells whether period names a period.
func ValidPeriod(period string) bool { return period == AlwaysPeriod || !PeriodEnd(period).IsZero() }
