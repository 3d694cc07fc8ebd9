package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	horizon  bool      // what comes after the checkpoint is lost: begin with what is still there
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

// next reads one page and hands it on.
func (r *shardReader) next(ctx context.Context) error {
	if err := r.renew(ctx); err != nil {
		return err
	}
	if r.iterator == "" {
		if err := r.seek(ctx); err != nil || r.iterator == "" {
			return err
		}
	}
	r.p.mu.Lock()
	asked, asks := r.p.asked, r.p.asks
	r.p.mu.Unlock()
	limit := int32(pageRecords)
	out, err := r.p.cfg.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &r.iterator, Limit: &limit})
	if err != nil {
		return r.readFailed(ctx, err)
	}
	changes := r.changes(out.Records)
	if len(changes) > 0 {
		if err := r.process(ctx, changes); err != nil {
			r.iterator = "" // the rest of the page is read again from the checkpoint
			return err
		}
		r.idle.reset()
	}
	r.advanced(asked, len(changes) == 0)
	if out.NextShardIterator == nil || *out.NextShardIterator == "" {
		return errEnd
	}
	r.iterator = *out.NextShardIterator
	if len(changes) == 0 {
		sleep(ctx, r.idle.next(), asks)
	}
	return nil
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
	return r.p.consumer.announce(ctx, ev)
}

// changes decodes a page up to its last record that is not of pollers' own doing. A page of leases alone is an empty one:
// a checkpoint that moved for it would be written, and be the next record, for ever.
func (r *shardReader) changes(records []streamtypes.Record) []Change {
	changes, n := make([]Change, len(records)), 0
	for i := range records {
		changes[i] = ChangeOf(r.p.cfg.StreamARN, &records[i])
		if id, err := schema.ParseKey(changes[i].Keys); err != nil || id.Kind != schema.KindLease {
			n = i + 1
		}
	}
	return changes[:n]
}

// process hands records to the consumer until all are out, and moves the checkpoint behind those that are.
func (r *shardReader) process(ctx context.Context, changes []Change) error {
	for len(changes) > 0 {
		done, err := r.handle(ctx, changes)
		if done > 0 {
			r.progress.checkpoint, r.horizon = changes[done-1].Sequence, false
			changes = changes[done:]
			r.renewed = time.Time{}
			r.failed.reset()
		}
		if err := r.renew(ctx); err != nil {
			return err
		}
		if len(changes) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.stumble(ctx, err)
	}
	return nil
}

// handle gives the consumer as long as the lease surely lasts.
func (r *shardReader) handle(ctx context.Context, changes []Change) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.p.cfg.Lease/2)
	defer cancel()
	return r.p.consumer.HandleRecords(ctx, changes)
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
	r.failed.reset()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.state.failures, r.state.err = 0, nil
	if empty && r.state.emptied < asked {
		r.state.emptied = asked
		r.p.step()
	}
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
