package streams

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/smithy-go"

	"toolledger/metrics"
)

// metricsServer takes metrics as CloudWatch does: a request whole or not at all, and one that comes twice counts twice.
type metricsServer struct {
	mu    sync.Mutex
	taken map[seriesPoint]float64 // sums
	twice []seriesPoint
	fail  func(points []seriesPoint) (err error, took bool) // nil error: taken
}

// seriesPoint is one minute of one series.
type seriesPoint struct {
	name, tenant string
	minute       int64
}

func (s *metricsServer) PutMetricData(
	_ context.Context, in *cloudwatch.PutMetricDataInput, _ ...func(*cloudwatch.Options),
) (*cloudwatch.PutMetricDataOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	points := make([]seriesPoint, len(in.MetricData))
	for i, d := range in.MetricData {
		points[i] = seriesPoint{name: *d.MetricName, minute: d.Timestamp.Unix() / 60}
		if len(d.Dimensions) > 0 {
			points[i].tenant = *d.Dimensions[0].Value
		}
	}
	err, took := s.fail(points)
	if err != nil && !took {
		return nil, err
	}
	for i, p := range points {
		if _, again := s.taken[p]; again && p.name != metrics.RecordsProcessed {
			s.twice = append(s.twice, p)
		}
		s.taken[p] += *in.MetricData[i].StatisticValues.Sum
	}
	return &cloudwatch.PutMetricDataOutput{}, err
}

// sum adds up the totals, which have no tenant.
func (s *metricsServer) sum(name string) (sum float64) {
	for p, v := range s.taken {
		if p.name == name && p.tenant == "" {
			sum += v
		}
	}
	return sum
}

// Wherever PutMetricData fails, no record fails with it, so that no event comes again; no metric is counted twice, and what
// may be missing is counted as such. In a batch of 1,000 records, each with a minute of its own, the request that holds the
// metrics of the record at each position of the first, a middle and the last ten fails once.
func TestPutMetricDataPartialFailure(t *testing.T) {
	t.Parallel()
	metricsPartialFailure(t, false)
}

// Promise: the same with each way to fail at every position, also where the request fails as one.
func TestSoakPutMetricDataPartialFailure(t *testing.T) {
	soak(t)
	t.Parallel()
	metricsPartialFailure(t, true)
}

func metricsPartialFailure(t *testing.T, full bool) {
	changes := history(1000)
	for i := range changes {
		changes[i].Time = t0.Add(-time.Duration(i) * time.Minute)
	}
	cut := errors.New("connection reset by peer")
	for _, tc := range []struct {
		name  string
		err   error
		took  bool
		times int     // how often the request, or what is left of it, fails
		lost  float64 // what may be missing and is said to be, at most; below 0: nothing is missing, and it is said that it may be
	}{
		{"fails", &smithy.GenericAPIError{Code: "InternalServiceFault"}, false, 1, 0},
		{"throttles", &smithy.GenericAPIError{Code: "Throttling"}, false, 1, 0},
		{"refuses one datum", &smithy.GenericAPIError{Code: "InvalidParameterValue"}, false, 100, 1},
		{"drops the answer", cut, true, 1, -1},
		{"drops the request", cut, false, 1, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, at := range positions(full || tc.times > 1) {
				times := tc.times
				bad := seriesPoint{name: metrics.EffectsApplied, minute: changes[at].Time.Unix() / 60}
				server := &metricsServer{taken: map[seriesPoint]float64{}, fail: func(points []seriesPoint) (error, bool) {
					if times == 0 || !slices.Contains(points, bad) {
						return nil, true
					}
					times--
					return tc.err, tc.took
				}}
				missing := recordWith(t, at, server, changes)
				said := server.sum(metrics.MetricsDropped) + server.sum(metrics.MetricsUncertain)
				if missing > max(tc.lost, 0) || missing < min(tc.lost, 1) && tc.lost > 0 || (said > 0) != (tc.lost != 0) || said < missing {
					t.Errorf("at %d: %v of 1000 effects are missing, %v data are said to be", at, missing, said)
				}
			}
		})
	}
}

// recordWith consumes the changes and says how many effects the server misses in the end.
func recordWith(t *testing.T, at int, server *metricsServer, changes []Change) (missing float64) {
	t.Helper()
	sink, err := metrics.NewCloudWatch(server, metrics.CloudWatchConfig{Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	c := &Consumer{ConsumerConfig{Publisher: nowhere, Metrics: sink, Margin: time.Minute, Now: fixedNow, Logger: silent}}
	if done, err := c.HandleRecords(t.Context(), changes); done != len(changes) || err != nil {
		t.Errorf("at %d: %d records are done with, %v", at, done, err)
	}
	for range 2 { // what waits goes with the next batches
		_ = sink.Record(t.Context(), nil)
	}
	if sink.Backlog() != 0 || len(server.twice) > 0 || server.sum(metrics.EffectsApplied) > 1000 || server.sum(metrics.TokensCharged) > 20000 {
		t.Errorf("at %d: %d points wait, %v came twice, %v effects", at, sink.Backlog(), server.twice, server.sum(metrics.EffectsApplied))
	}
	return 1000 - server.sum(metrics.EffectsApplied)
}
