package metrics

import (
	"math"
	"slices"
	"time"
)

// usable prepares data for any sink. A number that is none (NaN, infinite, beyond ±2^360) or a missing name is left out and
// counted, before it can spoil a sum; a time that was never set (the zero time, 1970) is replaced by now, which
// RecordTimesReplaced counts.
func usable(now time.Time, data []Datum) (good []Datum, malformed int) {
	untimed := 0
	for i := range data {
		if !wellFormed(&data[i]) {
			malformed++
		} else if unset(data[i].Time) {
			untimed++
		}
	}
	if malformed == 0 && untimed == 0 {
		return data, 0
	}
	good = slices.DeleteFunc(slices.Clone(data), func(d Datum) bool { return !wellFormed(&d) })
	for i := range good {
		if unset(good[i].Time) {
			good[i].Time = now
		}
	}
	if untimed > 0 {
		good = append(good, Datum{Name: RecordTimesReplaced, Value: float64(untimed), Time: now})
	}
	return good, malformed
}

func wellFormed(d *Datum) bool { return d.Name != "" && finite(d.Value) }

var maxValue = math.Ldexp(1, 360)

func finite(v float64) bool { return !math.IsNaN(v) && math.Abs(v) <= maxValue }

// unset tells a time that nobody set from one that is merely old.
func unset(t time.Time) bool { return t.Year() < 2001 || t.Year() > 9999 }
