package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// EMFConfig configures an EMF sink. Out is required.
type EMFConfig struct {
	Out       io.Writer // a Lambda function's standard output
	Namespace string    // "" means DefaultNamespace
	Tenants   int       // how many tenants get series of their own; 0 means 50, below 0 none
	Now       func() time.Time
}

// EMF writes metrics as lines of CloudWatch's embedded metric format, from which CloudWatch Logs makes metrics: no
// request, no permission, at least once. It is safe for concurrent use.
//
// Each line holds one minute of one tenant, or of the totals. A metric whose statistic is the sum is written as its sum,
// so its Sum in CloudWatch is right and its SampleCount is not; the others are written as their extremes. A point outside
// CloudWatch's window of 14 days back to 2 hours ahead, where the line would be kept and no metric made of it, is left out
// and counted as MetricsDropped. Where writing fails, some lines may be out: their points are counted as MetricsUncertain.
type EMF struct {
	cfg  EMFConfig
	sums *Aggregator

	mu sync.Mutex // held while writing, so that lines stay whole
}

// maxEMFMetrics is how many metrics one directive may name; CloudWatch passes over the rest without an error.
const maxEMFMetrics = 100

// NewEMF returns a sink. Errors: a missing Out; a namespace that CloudWatch would not take.
func NewEMF(cfg EMFConfig) (*EMF, error) {
	if cfg.Out == nil {
		return nil, errors.New("metrics: EMF needs a writer")
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
	return &EMF{cfg: cfg, sums: NewAggregator(cfg.Tenants)}, nil
}

// Record writes data. Errors: the writer's.
func (e *EMF) Record(_ context.Context, data []Datum) error {
	now := e.cfg.Now()
	data, malformed := usable(now, data)
	e.sums.Add(data...)
	e.mu.Lock()
	defer e.mu.Unlock()
	var out bytes.Buffer
	points, dropped := sendable(now, e.sums.Take(now))
	points = append(points, droppedPoints(now, dropped+malformed)...)
	for begin := 0; begin < len(points); {
		end := begin + 1
		for end < len(points) && end-begin < maxEMFMetrics && points[end].Tenant == points[begin].Tenant &&
			points[end].Minute.Equal(points[begin].Minute) {
			end++
		}
		line, err := e.line(points[begin:end])
		if err != nil {
			return err
		}
		out.Write(line)
		out.WriteByte('\n')
		begin = end
	}
	if _, err := e.cfg.Out.Write(out.Bytes()); err != nil {
		e.sums.Add(Datum{Name: MetricsUncertain, Value: float64(len(points)), Time: now}) // goes out with the next call
		return fmt.Errorf("metrics: write: %w", err)
	}
	return nil
}

type emfMetric struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

type emfDirective struct {
	Namespace  string      `json:"Namespace"`
	Dimensions [][]string  `json:"Dimensions"`
	Metrics    []emfMetric `json:"Metrics"`
}

type emfMetadata struct {
	Timestamp         int64          `json:"Timestamp"`
	CloudWatchMetrics []emfDirective `json:"CloudWatchMetrics"`
}

// line writes points of one minute and tenant.
func (e *EMF) line(points []Point) ([]byte, error) {
	directive := emfDirective{Namespace: e.cfg.Namespace, Dimensions: [][]string{{}}}
	root := make(map[string]any, len(points)+2)
	if tenant := points[0].Tenant; tenant != "" {
		directive.Dimensions = [][]string{{DimensionTenant}}
		root[DimensionTenant] = tenant
	}
	for i := range points {
		p := &points[i]
		directive.Metrics = append(directive.Metrics, emfMetric{p.Name, p.Unit})
		root[p.Name] = emfValue(p)
	}
	root["_aws"] = emfMetadata{Timestamp: points[0].Minute.UnixMilli(), CloudWatchMetrics: []emfDirective{directive}}
	line, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("metrics: encode: %w", err)
	}
	return line, nil
}

func emfValue(p *Point) any {
	if p.Unit == UnitCount {
		return p.Sum
	}
	if p.Min == p.Max {
		return p.Max
	}
	return []float64{p.Min, p.Max}
}
