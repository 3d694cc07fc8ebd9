package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// shardReader reads one shard from its checkpoint to its end.
type shardReader struct {
	p          *Poller
	state      *shardState // guarded by p.mu
	id, parent string
	orphan     bool // it has a parent that the stream no longer lists

	progress progress
	renewed  time.Time // when the lease was last written
	iterator string    // "": none, get one
	latest   bool      // begin at the end of the shard
	horizon  bool      // what comes after the checkpoint is lost: begin with what is still there
	ahead    chan page // the next page, on its way; nil: none is
	failed   backoff
	idle     backoff
}

// The pauses and pages of a reader.
const (
	failurePause = 30 * time.Second
	pageRecords  = 1000
	farewell     = 3 * time.Second // to give a lease back after ctx has ended
)

// read reads until the shard ends, the lease is lost to another poller, or ctx ends. Errors: those that no waiting mends.
func (r *shardReader) read(ctx context.Context) error {
	owned := false
	if err := r.insist(ctx, func() (err error) { owned, err = r.begin(ctx); return err }); err != nil || !owned {
		return err
	}
	defer r.release(ctx)
	reading, cancel := context.WithCancel(ctx)
	defer r.discard()
	defer cancel()
	return r.follow(reading)
}

// follow reads page by page.
func (r *shardReader) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.insist(ctx, func() error { return r.next(ctx) })
		ended := errors.Is(err, errEnd)
		if ended {
			err = r.insist(ctx, func() error { return r.finish(ctx) })
		}
		switch {
		case err == nil && ended:
			return nil
		case errors.Is(err, errLeaseLost):
			r.logger().LogAttrs(ctx, slog.LevelWarn, "shard lost to another poller")
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// errEnd says that a closed shard is read to its end.
var errEnd = errors.New("the shard is read to its end")

// insist does something again and again, with growing pauses, until it succeeds, ends, or fails in a way that no waiting
// mends. It returns nil where ctx ended.
func (r *shardReader) insist(ctx context.Context, do func() error) error {
	for ctx.Err() == nil {
		err := do()
		if err == nil || errors.Is(err, errEnd) || errors.Is(err, errLeaseLost) || permanent(err) {
			return err
		}
		if ctx.Err() == nil {
			r.stumble(ctx, err)
		}
	}
	return nil
}

// begin takes the lease. A shard that somebody has read to its end is marked as finished.
func (r *shardReader) begin(ctx context.Context) (owned bool, err error) {
	r.progress, owned, err = r.p.leases.acquire(ctx, r.id, r.parent)
	if err != nil {
		return false, err
	}
	if r.progress.finished {
		r.markFinished()
		return false, nil
	}
	if !owned {
		return false, nil
	}
	r.renewed = r.p.cfg.Now()
	if r.orphan && r.progress.checkpoint == "" {
		return true, r.checkParent(ctx)
	}
	return true, nil
}

// checkParent reports the end of a parent that vanished from the stream before it was read.
func (r *shardReader) checkParent(ctx context.Context) error {
	p, known, err := r.p.leases.read(ctx, r.parent)
	if err != nil || !known || p.finished {
		return err
	}
	return r.announceGap(ctx, r.parent, p.checkpoint)
}

// page is one answer of the stream.
type page struct {
	records []streamtypes.Record
	next    string // iterator behind it; "": the shard ends here
	err     error
	asked   uint64        // what Drain had asked for before the page was requested
	asks    chan struct{} // closed when Drain asks for more
}

// next reads one page and hands it on. While the stream has more the following page is requested meanwhile.
func (r *shardReader) next(ctx context.Context) error {
	if err := r.renew(ctx); err != nil {
		return err
	}
	if r.iterator == "" {
		if err := r.seek(ctx); err != nil || r.iterator == "" {
			return err
		}
	}
	pg := r.page(ctx)
	if pg.err != nil {
		return r.readFailed(ctx, pg.err)
	}
	records := relevant(pg.records)
	if len(records) > 0 {
		if pg.next != "" {
			r.request(ctx, pg.next)
		}
		if err := r.process(ctx, records); err != nil {
			r.discard()
			if r.progress.checkpoint != "" || !r.latest {
				r.iterator = "" // the rest of the page is read again from the checkpoint
			}
			return err
		}
		r.idle.reset()
	}
	r.advanced(pg.asked, len(records) == 0)
	if pg.next == "" {
		return errEnd
	}
	r.iterator = pg.next
	if len(records) == 0 {
		sleep(ctx, r.idle.next(), pg.asks)
	}
	return nil
}

// request asks for a page in the background; page or discard takes the answer.
func (r *shardReader) request(ctx context.Context, iterator string) {
	ahead := make(chan page, 1)
	r.ahead = ahead
	go func() { ahead <- r.fetch(ctx, iterator) }()
}

// page is the page at the iterator, which may have been requested already.
func (r *shardReader) page(ctx context.Context) page {
	if r.ahead == nil {
		return r.fetch(ctx, r.iterator)
	}
	pg := <-r.ahead
	r.ahead = nil
	return pg
}

// discard waits for a page that nobody wants any more.
func (r *shardReader) discard() {
	if r.ahead != nil {
		<-r.ahead
		r.ahead = nil
	}
}

func (r *shardReader) fetch(ctx context.Context, iterator string) (pg page) {
	r.p.mu.Lock()
	pg.asked, pg.asks = r.p.asked, r.p.asks
	r.p.mu.Unlock()
	limit := int32(pageRecords)
	out, err := r.p.cfg.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &iterator, Limit: &limit})
	if err != nil {
		pg.err = err
		return pg
	}
	pg.records = out.Records
	if out.NextShardIterator != nil {
		pg.next = *out.NextShardIterator
	}
	return pg
}

// readFailed deals with an iterator that leads nowhere any more.
func (r *shardReader) readFailed(ctx context.Context, err error) error {
	if _, expired := errors.AsType[*streamtypes.ExpiredIteratorException](err); expired {
		r.iterator = ""
		return fmt.Errorf("get records: %w", err)
	}
	if _, trimmed := errors.AsType[*streamtypes.TrimmedDataAccessException](err); trimmed {
		return r.gap(ctx)
	}
	if _, gone := errors.AsType[*streamtypes.ResourceNotFoundException](err); gone {
		return r.vanished(ctx)
	}
	return fmt.Errorf("get records: %w", err)
}

// seek gets an iterator behind the last record that was processed, or at the first one there is.
func (r *shardReader) seek(ctx context.Context) error {
	in := &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &r.p.cfg.StreamARN, ShardId: &r.id, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	}
	if r.progress.checkpoint != "" && !r.horizon {
		in.ShardIteratorType, in.SequenceNumber = streamtypes.ShardIteratorTypeAfterSequenceNumber, &r.progress.checkpoint
	} else if r.latest && !r.horizon {
		in.ShardIteratorType = streamtypes.ShardIteratorTypeLatest
	}
	out, err := r.p.cfg.Streams.GetShardIterator(ctx, in)
	if _, trimmed := errors.AsType[*streamtypes.TrimmedDataAccessException](err); trimmed {
		return r.gap(ctx)
	}
	if _, gone := errors.AsType[*streamtypes.ResourceNotFoundException](err); gone {
		return r.vanished(ctx)
	}
	if err != nil {
		return fmt.Errorf("get shard iterator: %w", err)
	}
	if out.ShardIterator == nil || *out.ShardIterator == "" {
		return errEnd
	}
	r.iterator = *out.ShardIterator
	return nil
}

// gap reports that records behind the checkpoint are lost, and goes on with those that are still there.
func (r *shardReader) gap(ctx context.Context) error {
	if err := r.announceGap(ctx, r.id, r.progress.checkpoint); err != nil {
		return err
	}
	r.horizon, r.iterator = true, ""
	return nil
}

// vanished reports a shard that the stream has dropped while it was not read to its end.
func (r *shardReader) vanished(ctx context.Context) error {
	if err := r.announceGap(ctx, r.id, r.progress.checkpoint); err != nil {
		return err
	}
	return errEnd
}

func (r *shardReader) announceGap(ctx context.Context, shard, after string) error {
	ev := &events.AuditGap{
		Header: events.Header{Schema: events.Schema, Time: r.p.cfg.Now().UTC()},
		Stream: r.p.cfg.StreamARN, Shard: shard, AfterSequence: after,
	}
	events.Identify(ev, r.p.cfg.StreamARN+"/"+shard+"/"+after)
	r.p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "records of the stream are lost unread",
		slog.String("shard", shard), slog.String("after_sequence", after))
	ctx, cancel := context.WithTimeout(ctx, r.p.cfg.Lease/2)
	defer cancel()
	return r.p.consumer.announce(ctx, ev)
}

// relevant is a page up to its last record that is not of pollers' own doing. A page of leases alone is an empty one: a
// checkpoint that moved for it would be written, and be the next record, for ever.
func relevant(page []streamtypes.Record) []streamtypes.Record {
	for n := len(page); n > 0; n-- {
		if id, err := schema.ParseKey(recordKeys(&page[n-1])); err != nil || id.Kind != schema.KindLease {
			return page[:n]
		}
	}
	return nil
}

// process hands records to the consumer until all are out, and moves the checkpoint behind those that are.
func (r *shardReader) process(ctx context.Context, records []streamtypes.Record) error {
	for len(records) > 0 {
		if err := r.renew(ctx); err != nil { // the page, or the pause before, may have taken most of the lease
			return err
		}
		done, err := r.handle(ctx, records)
		if done > 0 {
			r.passed(records[:done])
			records = records[done:]
			r.renewed = time.Time{}
			r.moved()
		}
		if err := r.renew(ctx); err != nil {
			return err
		}
		if len(records) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.stumble(ctx, err)
	}
	return nil
}

// passed moves the checkpoint behind records, to the last of them that can be named: one without a sequence number must not
// send the next reader back to where the shard begins.
func (r *shardReader) passed(records []streamtypes.Record) {
	for i := range slices.Backward(records) {
		if sequence := sequenceOf(&records[i]); isSequence(sequence) {
			r.progress.checkpoint, r.horizon = sequence, false
			return
		}
	}
}

func sequenceOf(r *streamtypes.Record) string {
	if r.Dynamodb == nil || r.Dynamodb.SequenceNumber == nil {
		return ""
	}
	return *r.Dynamodb.SequenceNumber
}

// handle gives the consumer as long as the lease surely lasts.
func (r *shardReader) handle(ctx context.Context, records []streamtypes.Record) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.p.cfg.Lease/2)
	defer cancel()
	return r.p.consumer.handleStream(ctx, r.p.cfg.StreamARN, records)
}

// renew writes progress and lease where there is something new to write, or a third of the lease is over. It does so also
// where ctx has just ended: what is out should not be published again.
func (r *shardReader) renew(ctx context.Context) error {
	now := r.p.cfg.Now()
	if !r.renewed.IsZero() && now.Sub(r.renewed) < r.p.cfg.Lease/3 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(farewell, r.p.cfg.Lease/4))
	defer cancel()
	if err := r.p.leases.save(ctx, r.id, &r.progress); err != nil {
		return err
	}
	r.renewed = now
	return nil
}

func (r *shardReader) finish(ctx context.Context) error {
	r.progress.finished, r.renewed = true, time.Time{}
	if err := r.renew(ctx); err != nil {
		return err
	}
	r.markFinished()
	return nil
}

func (r *shardReader) markFinished() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.state.finished, r.state.failures, r.p.stale = true, 0, true
	r.p.step()
}

// advanced notes that the shard was read; asked is what Drain had asked for before.
func (r *shardReader) advanced(asked uint64, empty bool) {
	r.moved()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if empty && r.state.emptied < asked {
		r.state.emptied = asked
		r.p.step()
	}
}

// moved notes that failures are no longer in a row.
func (r *shardReader) moved() {
	r.failed.reset()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.state.failures, r.state.err = 0, nil
}

// stumble notes a failure and waits a little longer each time.
func (r *shardReader) stumble(ctx context.Context, err error) {
	r.logger().LogAttrs(ctx, slog.LevelWarn, "shard does not get on, trying again", slog.String("cause", err.Error()))
	r.p.mu.Lock()
	r.state.failures++
	r.state.err = err
	r.p.step()
	r.p.mu.Unlock()
	sleep(ctx, r.failed.next(), nil)
}

// release gives the lease back, so that the next poller need not wait for its end.
func (r *shardReader) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := r.p.leases.release(ctx, r.id, &r.progress); err != nil && !errors.Is(err, errLeaseLost) {
		r.logger().LogAttrs(ctx, slog.LevelWarn, "lease not given back", slog.String("cause", err.Error()))
	}
}

// logger names the shard.
func (r *shardReader) logger() *slog.Logger { return r.p.cfg.Logger.With(slog.String("shard", r.id)) }
