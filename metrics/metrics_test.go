package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)

// Every metric has what a dashboard, an alarm and a reader need, and a name of its own.
func TestDefinitionsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, d := range Definitions() {
		if d.Name == "" || d.Unit == "" || d.Emitter == "" || !strings.HasSuffix(d.Meaning, ".") {
			t.Errorf("%+v is incomplete", d)
		}
		if d.Statistic != StatisticSum && d.Statistic != StatisticMax {
			t.Errorf("%s: statistic %q", d.Name, d.Statistic)
		}
		if names[d.Name] {
			t.Errorf("%s is defined twice", d.Name)
		}
		names[d.Name] = true
	}
}

// A tenant's series cannot be blank, cannot break CloudWatch's rules, and cannot be mistaken for another's or for the rest.
func TestTenantValue(t *testing.T) {
	for tenant, want := range map[string]string{
		"acme": "acme", "a b/c:d": "a b/c:d", "Zürich": "Z%C3%BCrich", "100%": "100%25", "_other": "%5Fother", " x ": "%20x%20",
		" ": "%20", "": "%", "_x": "_x", "東": "%E6%9D%B1",
	} {
		if got := TenantValue(tenant); got != want {
			t.Errorf("%q: got %q, want %q", tenant, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(rapid.String(), rapid.StringMatching(`[%_ a-z0-9~é]{0,6}`), rapid.StringOfN(rapid.Rune(), 300, 500, -1))
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		va, vb := TenantValue(a), TenantValue(b)
		if (a == b) != (va == vb) {
			t.Fatalf("%q and %q become %q and %q", a, b, va, vb)
		}
		if va == OtherTenants || strings.TrimSpace(va) == "" || len(va) > 1024 || strings.ContainsFunc(va, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q becomes %q", a, va)
		}
	})
}

// Totals without dimensions hold everything; tenants' series add up to them, whoever gets a name; each minute stands alone.
func TestAggregatorTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 4).Draw(t, "limit")
		a := NewAggregator(limit)
		want := map[string]float64{}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			n := rapid.IntRange(0, 30).Draw(t, "data")
			for range n {
				d := Datum{
					Name:   rapid.SampledFrom([]string{CallsReserved, TokensCharged}).Draw(t, "name"),
					Tenant: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "_other"}).Draw(t, "tenant"),
					Value:  float64(rapid.IntRange(1, 100).Draw(t, "value")),
					Time:   noon.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "s")) * time.Second),
				}
				want[d.Name+d.Time.Truncate(time.Minute).String()] += d.Value
				a.Add(d)
			}
			total, byTenant, named := map[string]float64{}, map[string]float64{}, map[string]bool{}
			for _, p := range a.Take(noon) {
				key := p.Name + p.Minute.String()
				if p.Tenant == "" {
					total[key] += p.Sum
				} else {
					byTenant[key] += p.Sum
					named[p.Tenant] = true
				}
				if p.Min > p.Max || p.Samples < 1 || p.Sum < p.Min || p.Unit != UnitCount {
					t.Fatalf("%+v", p)
				}
			}
			delete(named, OtherTenants)
			if len(named) > limit {
				t.Fatalf("%d tenants are named, %d were asked for", len(named), limit)
			}
			for key := range want {
				if total[key] != want[key] || byTenant[key] != want[key] {
					t.Fatalf("%s: total %v, by tenant %v, want %v", key, total[key], byTenant[key], want[key])
				}
			}
			clear(want)
		}
	})
}

// The busiest tenants are named, the rest is one series, and the names within an hour are bounded however the load wanders.
func TestAggregatorBusiest(t *testing.T) {
	a := NewAggregator(2)
	load := func(loads map[string]int) map[string]float64 {
		for tenant, n := range loads {
			for range n {
				a.Add(Datum{Name: CallsReserved, Tenant: tenant, Value: 1, Time: noon})
			}
		}
		got := map[string]float64{}
		for _, p := range a.Take(noon) {
			got[p.Tenant] = p.Sum
		}
		return got
	}
	if got := load(map[string]int{"big": 9, "mid": 5, "s1": 2, "s2": 1}); got["big"] != 9 || got["mid"] != 5 || got[OtherTenants] != 3 || got[""] != 17 || len(got) != 4 {
		t.Errorf("got %v", got)
	}
	names := map[string]bool{}
	for i := range 20 {
		for tenant := range load(map[string]int{fmt.Sprintf("rising-%d", i): 20 * (i + 1), "mid": 1}) {
			if tenant != "" && tenant != OtherTenants {
				names[tenant] = true
			}
		}
	}
	if len(names) > 4 {
		t.Errorf("%d names within an hour: %v", len(names), names)
	}
}

// HC68, HC69: every metric with tenant series also has a total with no dimension at all, which is what an alarm can name; the
// dimension sets are exactly those of the definitions.
func TestHC68HC69ExactDimensionSets(t *testing.T) {
	cw := &fakeCloudWatch{}
	sink := newSink(t, cw)
	var data []Datum
	for _, d := range Definitions() {
		data = append(data, Datum{Name: d.Name, Tenant: "acme", Value: 2, Time: noon})
	}
	if err := sink.Record(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	sets := map[string][]string{}
	for _, p := range cw.taken {
		sets[p.Name] = append(sets[p.Name], p.Tenant)
	}
	for _, d := range Definitions() {
		want := []string{""}
		if slices.Equal(d.Dimensions, []string{DimensionTenant}) {
			want = []string{"", "acme"}
		}
		if got := sets[d.Name]; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%s: sent for %q, want %q", d.Name, got, want)
		}
	}
}

// fakeCloudWatch takes requests as CloudWatch does: whole or not at all.
type fakeCloudWatch struct {
	taken    []Point
	requests int
	answer   func(n int, points []Point) error
	lost     bool // with an error from answer: the request was taken all the same
}

func (f *fakeCloudWatch) PutMetricData(
	_ context.Context, in *cloudwatch.PutMetricDataInput, opts ...func(*cloudwatch.Options),
) (*cloudwatch.PutMetricDataOutput, error) {
	var o cloudwatch.Options
	for _, opt := range opts {
		opt(&o)
	}
	if o.Retryer == nil || o.Retryer.MaxAttempts() != 1 || !o.DisableRequestCompression {
		return nil, errors.New("the SDK may repeat this request")
	}
	points := make([]Point, len(in.MetricData))
	for i, d := range in.MetricData {
		s := d.StatisticValues
		points[i] = Point{
			Name: *d.MetricName, Unit: string(d.Unit), Minute: *d.Timestamp, Samples: *s.SampleCount, Sum: *s.Sum, Min: *s.Minimum, Max: *s.Maximum,
		}
		if len(d.Dimensions) == 1 && *d.Dimensions[0].Name == DimensionTenant {
			points[i].Tenant = *d.Dimensions[0].Value
		}
	}
	f.requests++
	var err error
	switch {
	case len(points) == 0 || len(points) > 1000:
		err = &smithy.GenericAPIError{Code: "InvalidParameterValue"}
	case f.answer != nil:
		err = f.answer(f.requests, points)
	}
	if err == nil || f.lost {
		f.taken = append(f.taken, points...)
	}
	return &cloudwatch.PutMetricDataOutput{}, err
}

func (f *fakeCloudWatch) sum(name string) (sum float64) {
	for _, p := range f.taken {
		if p.Name == name && p.Tenant == "" {
			sum += p.Sum
		}
	}
	return sum
}

func newSink(t testing.TB, client CloudWatchClient) *CloudWatch {
	t.Helper()
	sink, err := NewCloudWatch(client, CloudWatchConfig{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func reserved(n int) []Datum {
	data := make([]Datum, n)
	for i := range data {
		data[i] = Datum{Name: CallsReserved, Tenant: fmt.Sprintf("t-%d", i%7), Value: 1, Time: noon.Add(-time.Duration(i) * time.Minute)}
	}
	return data
}

// Requests keep CloudWatch's limit of 1,000 datums, and nothing is lost between them.
func TestCloudWatchRequests(t *testing.T) {
	cw := &fakeCloudWatch{}
	if err := newSink(t, cw).Record(t.Context(), reserved(1500)); err != nil {
		t.Fatal(err)
	}
	if cw.requests != 3 || cw.sum(CallsReserved) != 1500 || len(cw.taken) != 3000 {
		t.Errorf("%d requests, sum %v, %d points", cw.requests, cw.sum(CallsReserved), len(cw.taken))
	}
}

// One datum that CloudWatch refuses does not take the others of its request with it: it is found, dropped and counted.
func TestCloudWatchBadDatum(t *testing.T) {
	cw := &fakeCloudWatch{}
	bad := noon.Add(-17 * time.Minute).Truncate(time.Minute)
	cw.answer = func(_ int, points []Point) error {
		if slices.ContainsFunc(points, func(p Point) bool { return p.Minute.Equal(bad) && p.Tenant == "" }) {
			return &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "scripted"}
		}
		return nil
	}
	sink := newSink(t, cw)
	if err := sink.Record(t.Context(), reserved(100)); err == nil {
		t.Error("no error")
	}
	if cw.sum(CallsReserved) != 99 || cw.sum(MetricsDropped) != 1 || sink.Backlog() != 0 || cw.requests > 20 {
		t.Errorf("sum %v, dropped %v, %d requests", cw.sum(CallsReserved), cw.sum(MetricsDropped), cw.requests)
	}
	// What is no number is left out before it spoils a sum.
	cw = &fakeCloudWatch{}
	data := append(reserved(10), Datum{CallsReserved, "a", math.NaN(), noon}, Datum{CallsReserved, "a", math.Inf(1), noon}, Datum{CallsReserved, "a", math.Ldexp(1, 361), noon}, Datum{"", "a", 1, noon})
	if err := newSink(t, cw).Record(t.Context(), data); err != nil || cw.sum(CallsReserved) != 10 || cw.sum(MetricsDropped) != 4 {
		t.Errorf("got %v, sum %v, dropped %v", err, cw.sum(CallsReserved), cw.sum(MetricsDropped))
	}
}

// What CloudWatch surely did not take is sent with the next call, once; what it may have taken is never sent again: neither
// counts twice, whichever request of a call fails.
func TestCloudWatchNeverTwice(t *testing.T) {
	throttled := &smithy.GenericAPIError{Code: "Throttling", Message: "scripted"}
	for failing := 1; failing <= 3; failing++ {
		cw := &fakeCloudWatch{answer: func(n int, _ []Point) error {
			if n == failing {
				return throttled
			}
			return nil
		}}
		sink := newSink(t, cw)
		if err := sink.Record(t.Context(), reserved(1500)); !errors.Is(err, throttled) || sink.Backlog() == 0 {
			t.Errorf("request %d: got %v, backlog %d", failing, err, sink.Backlog())
		}
		cw.answer = nil
		if err := sink.Record(t.Context(), nil); err != nil || cw.sum(CallsReserved) != 1500 || sink.Backlog() != 0 {
			t.Errorf("request %d: got %v, sum %v, backlog %d", failing, err, cw.sum(CallsReserved), sink.Backlog())
		}
	}
	cut := errors.New("connection reset by peer")
	cw := &fakeCloudWatch{lost: true, answer: func(n int, _ []Point) error {
		if n == 2 {
			return cut
		}
		return nil
	}}
	sink := newSink(t, cw)
	if err := sink.Record(t.Context(), reserved(1500)); !errors.Is(err, cut) {
		t.Errorf("got %v", err)
	}
	_ = sink.Record(t.Context(), nil)
	if cw.sum(CallsReserved) != 1500 || cw.sum(MetricsUncertain) != 1000 {
		t.Errorf("answer lost: sum %v, uncertain %v", cw.sum(CallsReserved), cw.sum(MetricsUncertain))
	}
}

// HC63: a time that nobody set is replaced by the time of processing and counted; a time out of CloudWatch's window is
// dropped and counted; the edges of the window are sent.
func TestHC63Times(t *testing.T) {
	cw := &fakeCloudWatch{}
	at := func(d time.Duration) Datum { return Datum{CallsReserved, "", 1, noon.Add(d)} }
	data := []Datum{
		{CallsReserved, "", 1, time.Time{}},
		{CallsReserved, "", 1, time.Unix(0, 0)},
		{CallsReserved, "", 1, time.Unix(59, 0)},
		at(-15 * 24 * time.Hour), at(3 * time.Hour), at(-14*24*time.Hour + 10*time.Minute), at(110 * time.Minute), at(0),
	}
	if err := newSink(t, cw).Record(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if cw.sum(CallsReserved) != 6 || cw.sum(MetricsDropped) != 2 || cw.sum(RecordTimesReplaced) != 3 {
		t.Errorf("sent %v, dropped %v, replaced %v", cw.sum(CallsReserved), cw.sum(MetricsDropped), cw.sum(RecordTimesReplaced))
	}
	for _, p := range cw.taken {
		if p.Minute.Year() < 2026 || p.Minute.Second() != 0 {
			t.Errorf("%+v", p)
		}
	}
}

// HC67: no line names more than 100 metrics or holds an array of more than 100 values; none of 120 tenants is lost.
func TestHC67EMFLimits(t *testing.T) {
	var out strings.Builder
	sink, err := NewEMF(EMFConfig{Out: &out, Tenants: 500, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	var data []Datum
	for i := range 120 {
		for _, name := range []string{CallsReserved, TokensReserved, KeyConflicts} {
			data = append(data, Datum{name, fmt.Sprintf("tenant-%d", i), 3, noon})
		}
	}
	for i := range 300 {
		data = append(data, Datum{OldestReservationAge, "", float64(i), noon}, Datum{fmt.Sprintf("Extra%d", i), "", 1, noon})
	}
	if err := sink.Record(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	tenants, metrics := map[string]float64{}, map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var doc map[string]json.RawMessage
		var meta struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		}
		if json.Unmarshal([]byte(line), &doc) != nil || json.Unmarshal(doc["_aws"], &meta) != nil || len(meta.CloudWatchMetrics) != 1 {
			t.Fatalf("line %s", line)
		}
		directive := meta.CloudWatchMetrics[0]
		if len(directive.Metrics) > 100 || directive.Namespace != DefaultNamespace || meta.Timestamp != noon.Truncate(time.Minute).UnixMilli() {
			t.Errorf("%d metrics, %+v", len(directive.Metrics), meta)
		}
		tenant := ""
		if len(directive.Dimensions[0]) == 1 {
			_ = json.Unmarshal(doc[directive.Dimensions[0][0]], &tenant)
		}
		for _, m := range directive.Metrics {
			metrics[m.Name] = true
			var list []float64
			if json.Unmarshal(doc[m.Name], &list) == nil && len(list) > 100 {
				t.Errorf("%s has %d values", m.Name, len(list))
			}
			var value float64
			if json.Unmarshal(doc[m.Name], &value) == nil {
				tenants[tenant] += value
			}
		}
	}
	if len(tenants) != 121 || tenants["tenant-7"] != 9 || tenants[""] != 120*9+300 || len(metrics) != 304 {
		t.Errorf("%d tenants, %v, %v, %d metrics", len(tenants), tenants["tenant-7"], tenants[""], len(metrics))
	}
}

// A sink that cannot work is refused.
func TestSinksRefuse(t *testing.T) {
	if _, err := NewCloudWatch(nil, CloudWatchConfig{}); err == nil {
		t.Error("no client: no error")
	}
	if _, err := NewEMF(EMFConfig{}); err == nil {
		t.Error("no writer: no error")
	}
}

// BenchmarkAggregate adds 1,000 data of 64 metrics and tenants up, per datum, against a bare map.
func BenchmarkAggregate(b *testing.B) {
	data := make([]Datum, 1000)
	for i := range data {
		data[i] = Datum{Definitions()[i%8].Name, fmt.Sprintf("t-%d", i/8%8), 1, noon}
	}
	b.Run("aggregator", func(b *testing.B) {
		a := NewAggregator(50)
		for b.Loop() {
			a.Add(data...)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/datum")
	})
	b.Run("map", func(b *testing.B) {
		sums := map[sumKey]float64{}
		for b.Loop() {
			for i := range data {
				minute := data[i].Time.Unix() / 60
				sums[sumKey{data[i].Name, "", minute}] += data[i].Value
				sums[sumKey{data[i].Name, data[i].Tenant, minute}] += data[i].Value
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/datum")
	})
}

// A namespace that CloudWatch would refuse every request for is refused when the sink is made: taken apart point by point,
// its data would all be dropped, at two requests a point.
func TestNamespace(t *testing.T) {
	for name, good := range map[string]bool{
		"": true, "ToolLedger": true, "team/tool ledger:prod#1": true, strings.Repeat("n", 255): true,
		"AWS/ToolLedger": false, ":x": false, " ": false, "a\nb": false, "größe": false, "a\xff": false, strings.Repeat("n", 256): false,
	} {
		_, err := NewCloudWatch(&fakeCloudWatch{}, CloudWatchConfig{Namespace: name})
		_, emf := NewEMF(EMFConfig{Out: io.Discard, Namespace: name})
		if (err == nil) != good || (emf == nil) != good {
			t.Errorf("%.20q: got %v, %v", name, err, emf)
		}
	}
}

// A log line whose time is out of CloudWatch's window makes no metric, without an error: what would be in it is dropped and
// counted as it is where CloudWatch is asked directly.
func TestEMFWindow(t *testing.T) {
	var out strings.Builder
	sink, err := NewEMF(EMFConfig{Out: &out, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	data := []Datum{
		{CallsReserved, "", 1, noon.Add(-15 * 24 * time.Hour)},
		{CallsReserved, "", 2, noon.Add(3 * time.Hour)},
		{CallsReserved, "", 4, noon},
		{CallsReserved, "", math.NaN(), noon},
	}
	if err := sink.Record(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		var doc map[string]any
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatal(err)
		}
		for name, v := range doc {
			if n, ok := v.(float64); ok {
				got[name] += n
			}
		}
	}
	if got[CallsReserved] != 4 || got[MetricsDropped] != 3 {
		t.Errorf("wrote %v", got)
	}
}

// What could not be sent for want of a connection is surely not taken: it is kept for the next call, not lost as uncertain.
func TestCloudWatchUnreachable(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	cw := &fakeCloudWatch{answer: func(n int, _ []Point) error {
		if n == 1 {
			return fmt.Errorf("operation error: %w", refused)
		}
		return nil
	}}
	sink := newSink(t, cw)
	if err := sink.Record(t.Context(), reserved(1)); !errors.Is(err, refused) || sink.Backlog() != 2 {
		t.Errorf("got %v, backlog %d", err, sink.Backlog())
	}
	if err := sink.Record(t.Context(), nil); err != nil || cw.sum(CallsReserved) != 1 || cw.sum(MetricsUncertain) != 0 {
		t.Errorf("got %v, sum %v", err, cw.sum(CallsReserved))
	}
}

// What CloudWatch does not take for so long that the backlog overflows is counted as dropped once it takes requests again, and
// what a log did not take as uncertain: nothing is lost without a number.
func TestLostPointsAreCounted(t *testing.T) {
	down := true
	cw := &fakeCloudWatch{answer: func(int, []Point) error {
		if down {
			return &smithy.GenericAPIError{Code: "Throttling"}
		}
		return nil
	}}
	sink := newSink(t, cw)
	for i := range 5 { // of 5,000 minutes each
		data := make([]Datum, 5000)
		for j := range data {
			data[j] = Datum{RecordsProcessed, "", 1, noon.Add(-time.Duration((i*5000+j)%19_000) * time.Minute)}
		}
		if err := sink.Record(t.Context(), data); err == nil {
			t.Error("no error")
		}
	}
	down = false
	if err := sink.Record(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if sent, dropped := cw.sum(RecordsProcessed), cw.sum(MetricsDropped); dropped == 0 || sent+dropped != 25_000 {
		t.Errorf("sent %v, dropped %v", sent, dropped)
	}
	var out failingWriter
	emf, err := NewEMF(EMFConfig{Out: &out, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	if err := emf.Record(t.Context(), []Datum{{CallsReserved, "", 1, noon}, {CallsReserved, "", 1, noon.Add(-time.Hour)}}); err == nil {
		t.Error("no error")
	}
	out.works = true
	if err := emf.Record(t.Context(), nil); err != nil || !strings.Contains(out.text, `"MetricsUncertain":2`) {
		t.Errorf("got %v, wrote %s", err, out.text)
	}
}

type failingWriter struct {
	works bool
	text  string
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if !w.works {
		return 0, io.ErrShortWrite
	}
	w.text += string(p)
	return len(p), nil
}
