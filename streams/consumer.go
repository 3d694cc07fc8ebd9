package streams

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// MetricSink takes the metrics of records that will not be delivered again. An error means that some of them could not be
// sent and are lost to this call: it is logged and never makes a record fail, since delivering the record again would
// count twice what did get through. A sink that can, keeps what it could not send for its next call.
type MetricSink interface {
	Record(ctx context.Context, data []metrics.Datum) error
}

// ConsumerConfig configures a Consumer. Publisher is required.
type ConsumerConfig struct {
	Publisher  Publisher
	Metrics    MetricSink                                     // nil: none
	Unreadable func(ctx context.Context, record []byte) error // keeps what cannot be understood, as Lambda's JSON; nil: the batch fails there
	Margin     time.Duration                                  // stop publishing this long before ctx's deadline; 0 means 5 seconds; never more than a quarter of the time there is
	Now        func() time.Time                               // nil means time.Now
	Logger     *slog.Logger                                   // nil means silent
}

// Consumer derives events and metrics from stream records and sends them. It is safe for concurrent use.
type Consumer struct{ cfg ConsumerConfig }

// defaultMargin is what is left of an invocation to send metrics and answer.
const defaultMargin = 5 * time.Second

// window is how many records are published together: enough to keep a bus busy, few enough to bound memory. Of those, so
// many at most have to be kept elsewhere, one after the other: else keeping them could use up the time to publish any.
const (
	window     = 500
	windowKept = 20
)

// NewConsumer returns a Consumer. Errors: ErrConfig.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if cfg.Publisher == nil {
		return nil, configError("Publisher", "is required")
	}
	if cfg.Margin < 0 {
		return nil, configError("Margin", "must not be negative")
	}
	if cfg.Margin == 0 {
		cfg.Margin = defaultMargin
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Consumer{cfg}, nil
}

// HandleRecords publishes the events of changes, which must be in the order of their shard, and then counts their
// metrics. It returns how many of them, from the first, are done with: the next delivery begins there. err says why that
// are not all; it wraps ctx's where time ran out.
func (c *Consumer) HandleRecords(ctx context.Context, changes []Change) (done int, err error) {
	r := c.newRun(len(changes))
	next := 0
	err = r.all(ctx, func() *Change {
		if next == len(changes) {
			return nil
		}
		next++
		return &changes[next-1]
	})
	c.count(ctx, r.data, r.done, c.cfg.Margin)
	return r.done, err
}

// handleStream is HandleRecords for records as a client of the stream decoded them.
func (c *Consumer) handleStream(ctx context.Context, stream string, records []streamtypes.Record) (done int, err error) {
	var conv recordConverter
	var change Change
	r := c.newRun(len(records))
	next := 0
	err = r.all(ctx, func() *Change {
		if next == len(records) {
			return nil
		}
		conv.convert(stream, &records[next], &change)
		next++
		return &change
	})
	c.count(ctx, r.data, r.done, c.cfg.Margin)
	return r.done, err
}

// run is one pass over a list of records.
type run struct {
	c        *Consumer
	done     int             // records that are done with, from the first
	data     []metrics.Datum // of those
	ends     []int           // for each of those, where its data ends
	evs      []events.Event  // of the window
	evEnds   []int           // for each record of the window, where its events end
	at       []time.Time     // for each record of the window, its time
	replaced []bool          // for each record of the window, whether that time is ours
	events   int             // events that are out
	deriver  deriver
}

func (c *Consumer) newRun(n int) *run {
	n = min(n, window)
	return &run{
		c: c, evs: make([]events.Event, 0, 2*n), evEnds: make([]int, 0, n), at: make([]time.Time, 0, n), replaced: make([]bool, 0, n),
	}
}

// all goes through records window by window until one of them fails or next returns nil. The change that next returns is
// used before the next one is asked for.
func (r *run) all(ctx context.Context, next func() *Change) error {
	ctx, cancel := r.c.publishing(ctx)
	defer cancel()
	for {
		more, broken := r.derive(ctx, next)
		if err := r.publish(ctx); err != nil {
			return err
		}
		if broken != nil || !more {
			return broken
		}
	}
}

// publishing returns a context that ends early enough to answer before ctx does.
func (c *Consumer) publishing(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline) //nolint:forbidigo // a context's deadline is in real time, whatever Config.Now says
	margin := max(min(c.cfg.Margin, left/4), 0)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// derive fills the window with the events of the next records, up to the last one that may be kept in it, or to the first
// one that cannot be understood and cannot be kept either, whose error it returns.
func (r *run) derive(ctx context.Context, next func() *Change) (more bool, err error) {
	r.evs, r.evEnds, r.at, r.replaced = r.evs[:0], r.evEnds[:0], r.at[:0], r.replaced[:0]
	kept := 0
	for len(r.evEnds) < window && kept < windowKept {
		record := next()
		if record == nil {
			return false, nil
		}
		change := *record
		untimed := change.Time.IsZero()
		if untimed {
			change.Time = r.c.cfg.Now().UTC()
		}
		evs, err := r.deriver.derive(r.evs, &change)
		if err != nil {
			text := record.lambdaJSON() // as it was delivered: a time of ours would make it another one with each delivery
			if err := r.c.keep(ctx, record, text, err); err != nil {
				return false, err
			}
			evs = append(r.evs, unreadableEvent(&change, text, err))
			kept++
		}
		r.evs = evs
		r.evEnds = append(r.evEnds, len(r.evs))
		r.at, r.replaced = append(r.at, change.Time), append(r.replaced, untimed)
	}
	return true, nil
}

// keep hands a record that cannot be understood to whoever keeps such records.
func (c *Consumer) keep(ctx context.Context, change *Change, text []byte, cause error) error {
	if c.cfg.Unreadable == nil {
		return fmt.Errorf("record %s is not kept, since no place is configured: %w", change.Sequence, cause)
	}
	if err := c.cfg.Unreadable(ctx, text); err != nil {
		return fmt.Errorf("keep unreadable record %s: %w", change.Sequence, errors.Join(err, cause))
	}
	c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "stream record cannot be understood and is kept",
		slog.String("sequence", change.Sequence), slog.String("stream", change.Stream), slog.String("cause", cause.Error()))
	return nil
}

// unreadableEvent tells of a record; text tells those apart that have no number.
func unreadableEvent(c *Change, text []byte, cause error) events.Event {
	ev := &events.AuditRecordUnreadable{
		Header: events.Header{Schema: events.Schema, Time: c.Time},
		Stream: c.Stream, Sequence: c.Sequence, Operation: operations[c.Op], Rule: cause.Error(),
	}
	if id, err := schema.ParseKey(c.Keys); err == nil {
		ev.Tenant, ev.Session, ev.Scope, ev.Key = id.Tenant, id.Session, string(id.Scope), id.CallKey
	}
	if u, ok := errors.AsType[*UnreadableError](cause); ok {
		ev.Attribute, ev.Rule = u.Attr, u.Rule
	}
	entity := c.Stream + "/" + c.Keys.PK + "/" + c.Keys.SK + "/" + c.Sequence
	if c.Sequence == "" {
		sum := sha256.Sum256(text)
		entity += hexDigest(sum[:])
	}
	return events.Identify(ev, entity)
}

// publish sends the window and notes the metrics of the records whose events are all out.
func (r *run) publish(ctx context.Context) error {
	out := 0
	err := ctx.Err()
	if len(r.evs) == 0 {
		err = nil
	} else if err == nil {
		out, err = r.c.cfg.Publisher.Publish(ctx, r.evs)
		out = max(0, min(out, len(r.evs)))
	}
	r.events += out
	begin := 0
	for i, end := range r.evEnds {
		if end > out {
			if err == nil {
				err = errSilent
			}
			return fmt.Errorf("publish: %w", err)
		}
		for _, ev := range r.evs[begin:end] {
			r.data = Measure(r.data, ev, r.at[i])
		}
		if r.replaced[i] {
			r.data = append(r.data, metrics.Datum{Name: metrics.RecordTimesReplaced, Value: 1, Time: r.at[i]})
		}
		begin = end
		r.ends = append(r.ends, len(r.data))
		r.done++
	}
	return nil
}

// count sends the metrics of the records that are done with and will not be delivered again. It has its own time, most:
// what is out must be counted even where ctx ended while it was published.
func (c *Consumer) count(ctx context.Context, data []metrics.Datum, done int, most time.Duration) {
	if c.cfg.Metrics == nil || done == 0 {
		return
	}
	data = append(data, metrics.Datum{Name: metrics.RecordsProcessed, Value: float64(done), Time: c.cfg.Now().UTC()})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	if err := c.cfg.Metrics.Record(ctx, data); err != nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "metrics not sent", slog.Int("data", len(data)), slog.String("cause", err.Error()))
	}
}

var errSilent = errors.New("the publisher sent less than all events and gave no reason")

// announce publishes an event that no record stands behind, and counts it. Errors: *publishError.
func (c *Consumer) announce(ctx context.Context, ev events.Event) error {
	switch out, err := c.cfg.Publisher.Publish(ctx, []events.Event{ev}); {
	case err != nil:
		return &publishError{fmt.Errorf("%s: %w", ev.DetailType(), err)}
	case out < 1:
		return &publishError{errSilent}
	}
	if c.cfg.Metrics == nil {
		return nil
	}
	if err := c.cfg.Metrics.Record(ctx, Measure(nil, ev, ev.Head().Time)); err != nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "metrics not sent", slog.Int("data", 1), slog.String("cause", err.Error()))
	}
	return nil
}
