package picture

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"slices"
	"testing"
	"time"

	"toolledger/internal/ops"
	"toolledger/metrics"
)

var start = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// counted are n minutes of a metric.
func counted(name, tenant string, values ...float64) []metrics.Point {
	var points []metrics.Point
	for i, v := range values {
		points = append(points, metrics.Point{Name: name, Tenant: tenant, Minute: start.Add(time.Duration(i) * time.Minute), Samples: 1, Sum: v, Max: v})
	}
	return points
}

// TestDraw: every graph is where the dashboard has it, and shows a line in its series' color exactly where there is data.
func TestDraw(t *testing.T) {
	points := slices.Concat(counted(metrics.EffectsApplied, "", 3, 5, 4, 6), counted(metrics.EffectsApplied, "acme", 3, 5, 4, 6))
	body := ops.Dashboard()
	raw, err := Draw(body, Collect(points))
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, w := range body.Widgets {
		if w.Type == ops.TypeMetric && w.Properties.View == ops.ViewTimeSeries {
			// The lower third holds the legend, in the same colors.
			lines[w.Properties.Title] = has(img, w, color.RGBA{0x2c, 0xa0, 0x2c, 0xff}) || has(img, w, color.RGBA{0x1f, 0x77, 0xb4, 0xff})
		}
	}
	for title, drawn := range lines {
		if want := title == "Effects and replays" || title == "Effects, top 10 tenants"; drawn != want {
			t.Errorf("%s: a line is drawn: %v", title, drawn)
		}
	}
}

func has(img image.Image, w ops.Widget, want color.RGBA) bool {
	for y := w.Y * unitY; y < w.Y*unitY+w.Height*unitY*2/3; y++ {
		for x := w.X * unitX; x < (w.X+w.Width)*unitX; x++ {
			if r, g, b, _ := img.At(x, y).RGBA(); uint8(r>>8) == want.R && uint8(g>>8) == want.G && uint8(b>>8) == want.B {
				return true
			}
		}
	}
	return false
}

// TestDrawNothing: no data is an error, not an empty picture.
func TestDrawNothing(t *testing.T) {
	if _, err := Draw(ops.Dashboard(), Collect(nil)); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

// TestOddData: one point, a gap of days, and values out of all measure can be drawn.
func TestOddData(t *testing.T) {
	body := ops.Dashboard()
	body.Widgets = slices.DeleteFunc(body.Widgets, func(w ops.Widget) bool { // a whole page takes its time
		return !slices.Contains([]string{"Must be 0", "Effects and replays", "Effects, top 10 tenants", "Reservations open and their oldest age"}, w.Properties.Title)
	})
	for i := range body.Widgets {
		body.Widgets[i].Y = 0
	}
	for name, points := range map[string][]metrics.Point{
		"one point": counted(metrics.EffectsApplied, "", 1),
		"a gap of days": append(counted(metrics.EffectsApplied, "", 1),
			metrics.Point{Name: metrics.EffectsApplied, Minute: start.Add(72 * time.Hour), Samples: 1, Sum: 1, Max: 1}),
		"far out":         counted(metrics.OldestReservationAge, "", 1e12, 0, 1),
		"below nothing":   counted(metrics.EffectsApplied, "", -5, 2),
		"a name too long": counted(metrics.EffectsApplied, string(bytes.Repeat([]byte("x"), 1000)), 1, 2),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Draw(body, Collect(points)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestState: an alarm on the picture has the color that it would have on AWS, missing data as the alarm says.
func TestState(t *testing.T) {
	alarms := map[string]ops.Alarm{}
	for _, a := range ops.Alarms() {
		alarms[a.Name] = a
	}
	for name, tt := range map[string]struct {
		alarm  string
		points []metrics.Point
		want   State
	}{
		"never happened":     {"tampered-rows", counted(metrics.EffectsApplied, "", 1, 1, 1), StateOK},
		"happened":           {"tampered-rows", counted(metrics.RowsTampered, "", 0, 1, 0), StateAlarm},
		"long ago":           {"tampered-rows", append(counted(metrics.RowsTampered, "", 1), counted(metrics.EffectsApplied, "", make([]float64, 30)...)...), StateOK},
		"sweeps":             {"sweep-silence", counted(metrics.SweepRuns, "", 1, 1, 1, 1, 1), StateOK},
		"one sweep in five":  {"sweep-silence", counted(metrics.SweepRuns, "", 0, 0, 1, 0, 0), StateOK},
		"no sweep":           {"sweep-silence", counted(metrics.EffectsApplied, "", 1, 1, 1, 1, 1), StateAlarm},
		"old":                {"oldest-reservation", counted(metrics.OldestReservationAge, "", 400, 400, 400, 400, 400), StateAlarm},
		"old but once":       {"oldest-reservation", counted(metrics.OldestReservationAge, "", 0, 0, 400, 0, 0), StateOK},
		"measured on AWS":    {"stream-lag", counted(metrics.EffectsApplied, "", 1), StateUnknown},
		"over an expression": {"stream-silence", counted(metrics.EffectsApplied, "", 1), StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Collect(tt.points).state(alarms[tt.alarm]); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
