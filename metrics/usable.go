package metrics

import (
	"errors"
	"math"
	"slices"
	"strings"
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

// The window of times that CloudWatch takes, less what a request takes to get there.
const (
	windowPast   = 14*24*time.Hour - time.Minute
	windowFuture = 2*time.Hour - time.Minute
)

// sendable leaves out the points that CloudWatch would refuse a whole request for, or pass over in a log.
func sendable(now time.Time, points []Point) (good []Point, dropped int) {
	good = make([]Point, 0, len(points))
	for _, p := range points {
		age := now.Sub(p.Minute)
		if age > windowPast || -age > windowFuture || p.Name == "" || !finite(p.Sum) || !finite(p.Min) || !finite(p.Max) {
			dropped++
			continue
		}
		good = append(good, p)
	}
	return good, dropped
}

// droppedPoints counts n points that were dropped.
func droppedPoints(now time.Time, n int) []Point {
	if n == 0 {
		return nil
	}
	sums := NewAggregator(0)
	sums.Add(Datum{Name: MetricsDropped, Value: float64(n), Time: now})
	return sums.Take(now)
}

// namespaceOf returns the namespace to use, or an error for one that CloudWatch would refuse every request for.
func namespaceOf(name string) (string, error) {
	if name == "" {
		return DefaultNamespace, nil
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/#: "
	foreign := func(r rune) bool { return !strings.ContainsRune(allowed, r) }
	switch {
	case len(name) > 255 || strings.ContainsFunc(name, foreign) || strings.TrimSpace(name) == "":
		return "", errors.New("metrics: Namespace must have 1 to 255 of the characters a-z A-Z 0-9 . - _ / # : and space")
	case name[0] == ':' || strings.HasPrefix(name, "AWS/"):
		return "", errors.New("metrics: Namespace must not begin with ':' or 'AWS/'")
	}
	return name, nil
}

// unset tells a time that nobody set from one that is merely old.
func unset(t time.Time) bool { return t.Year() < 2001 || t.Year() > 9999 }
