package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"
)

// CloudWatchClient is the part of *cloudwatch.Client that a CloudWatch sink calls.
//
// Contract: a request is taken as a whole or not at all, and one that is sent twice counts twice.
type CloudWatchClient interface {
	PutMetricData(context.Context, *cloudwatch.PutMetricDataInput, ...func(*cloudwatch.Options)) (*cloudwatch.PutMetricDataOutput, error)
}

// CloudWatchConfig configures a CloudWatch sink. All fields are optional.
type CloudWatchConfig struct {
	Namespace string // "" means DefaultNamespace
	Tenants   int    // how many tenants get series of their own; 0 means 50, below 0 none
	Now       func() time.Time
	Logger    *slog.Logger
}

// DefaultNamespace is the namespace of all metrics unless another is configured.
const DefaultNamespace = "ToolLedger"

// Limits of PutMetricData, and what one point takes at most in a request beside its strings.
const (
	maxDatums     = 1000
	maxBytes      = 900_000 // of 1 MB: the request has other parts
	pointBytes    = 260
	maxBacklog    = 20_000
	defaultSeries = 50
)

// CloudWatch sends metrics with PutMetricData, aggregated per minute as statistic sets. It is safe for concurrent use.
//
// No point is sent twice: PutMetricData cannot tell a repetition. What CloudWatch surely did not take (throttling, an
// error of the service) stays in a bounded backlog for the next call; a request without an answer counts as sent, is
// reported as MetricsUncertain, and is not repeated. A point that CloudWatch refuses, or that is outside its window of 14
// days back to 2 hours ahead, is dropped alone and counted as MetricsDropped.
type CloudWatch struct {
	client CloudWatchClient
	cfg    CloudWatchConfig
	sums   *Aggregator

	mu      sync.Mutex // held while sending, so that a backlog is sent once
	backlog []Point
}

// NewCloudWatch returns a sink. It makes no request. Errors: a missing client; a namespace that CloudWatch would not take.
func NewCloudWatch(client CloudWatchClient, cfg CloudWatchConfig) (*CloudWatch, error) {
	if client == nil {
		return nil, errors.New("metrics: a CloudWatch client is required")
	}
	var err error
	if cfg.Namespace, err = namespaceOf(cfg.Namespace); err != nil {
		return nil, err
	}
	if cfg.Tenants == 0 {
		cfg.Tenants = defaultSeries
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &CloudWatch{client: client, cfg: cfg, sums: NewAggregator(cfg.Tenants)}, nil
}

// Record adds data up and sends them with what is left of earlier calls.
// Errors: what kept points from being sent or made it uncertain; they are in the backlog, or lost, as described above.
func (c *CloudWatch) Record(ctx context.Context, data []Datum) error {
	now := c.cfg.Now()
	data, malformed := usable(now, data)
	c.sums.Add(data...)
	c.mu.Lock()
	defer c.mu.Unlock()
	points, dropped := sendable(now, append(c.backlog, c.sums.Take(now)...))
	c.backlog = nil
	s := sending{sink: c, dropped: dropped + malformed}
	for _, request := range requestsOf(points) {
		s.put(ctx, request)
	}
	s.report(ctx, now)
	if over := len(c.backlog) - maxBacklog; over > 0 {
		c.backlog = slices.Delete(c.backlog, 0, over)
		s.dropped += over
		c.sums.Add(Datum{Name: MetricsDropped, Value: float64(over), Time: now}) // goes out with the next call
	}
	if s.dropped > 0 || s.uncertain > 0 {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "metrics dropped or uncertain",
			slog.Int("dropped", s.dropped), slog.Int("uncertain", s.uncertain), slog.Int("backlog", len(c.backlog)))
	}
	return errors.Join(s.errs...)
}

// Backlog is how many points wait for the next call.
func (c *CloudWatch) Backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.backlog)
}

// requestsOf groups points by the limits of one request.
func requestsOf(points []Point) [][]Point {
	var requests [][]Point
	begin, bytes := 0, 0
	for i := range points {
		size := pointBytes + len(points[i].Name) + len(points[i].Tenant)
		if i-begin == maxDatums || bytes+size > maxBytes {
			requests = append(requests, points[begin:i])
			begin, bytes = i, 0
		}
		bytes += size
	}
	if begin < len(points) {
		requests = append(requests, points[begin:])
	}
	return requests
}

// sending is one call of Record.
type sending struct {
	sink               *CloudWatch
	dropped, uncertain int
	errs               []error
	stopped            bool // CloudWatch does not take requests now: the rest waits
}

// put sends one request. If it is refused for what it holds, halves of it are sent, until the point at fault is alone.
func (s *sending) put(ctx context.Context, points []Point) {
	if s.stopped || ctx.Err() != nil {
		s.sink.backlog = append(s.sink.backlog, points...)
		if !s.stopped {
			s.stopped, s.errs = true, append(s.errs, ctx.Err())
		}
		return
	}
	err := s.sink.send(ctx, points)
	switch verdict(err) {
	case taken:
	case badData:
		if len(points) == 1 {
			s.dropped++
			s.errs = append(s.errs, fmt.Errorf("metrics: %s refused: %w", points[0].Name, err))
			return
		}
		half := len(points) / 2
		s.put(ctx, points[:half])
		s.put(ctx, points[half:])
	case notTaken:
		s.sink.backlog = append(s.sink.backlog, points...)
		s.stopped, s.errs = true, append(s.errs, fmt.Errorf("metrics: not taken: %w", err))
	case unanswered:
		s.uncertain += len(points)
		s.errs = append(s.errs, fmt.Errorf("metrics: no answer: %w", err))
	}
}

// report counts what was dropped or is uncertain.
func (s *sending) report(ctx context.Context, now time.Time) {
	var data []Datum
	if s.dropped > 0 {
		data = append(data, Datum{Name: MetricsDropped, Value: float64(s.dropped), Time: now})
	}
	if s.uncertain > 0 {
		data = append(data, Datum{Name: MetricsUncertain, Value: float64(s.uncertain), Time: now})
	}
	if len(data) == 0 {
		return
	}
	sums := NewAggregator(0)
	sums.Add(data...)
	s.put(ctx, sums.Take(now))
}

// send makes one request. The SDK must not repeat it: a repetition counts twice.
func (c *CloudWatch) send(ctx context.Context, points []Point) error {
	in := &cloudwatch.PutMetricDataInput{Namespace: &c.cfg.Namespace, MetricData: make([]types.MetricDatum, len(points))}
	for i := range points {
		p := &points[i]
		in.MetricData[i] = types.MetricDatum{
			MetricName: &p.Name, Timestamp: &p.Minute, Unit: types.StandardUnit(p.Unit),
			StatisticValues: &types.StatisticSet{SampleCount: &p.Samples, Sum: &p.Sum, Minimum: &p.Min, Maximum: &p.Max},
		}
		if p.Tenant != "" {
			in.MetricData[i].Dimensions = []types.Dimension{{Name: aws.String(DimensionTenant), Value: &p.Tenant}}
		}
	}
	_, err := c.client.PutMetricData(ctx, in, func(o *cloudwatch.Options) {
		o.Retryer = aws.NopRetryer{}
		o.DisableRequestCompression = true // costs more than it saves at this size
	})
	return err
}

// What became of a request.
type outcome int

const (
	taken outcome = iota
	badData
	notTaken
	unanswered
)

func verdict(err error) outcome {
	if err == nil {
		return taken
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination", "ValidationError",
			"InvalidParameterCombinationException", "MissingRequiredParameterException", "MissingParameter", "ValidationException":
			return badData
		}
		return notTaken
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && response.HTTPStatusCode() >= http.StatusBadRequest {
		return notTaken
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notTaken // there was no connection that it could have been sent on
	}
	return unanswered
}
