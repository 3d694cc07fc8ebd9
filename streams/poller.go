package streams

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// StreamReader is the part of *dynamodbstreams.Client that a Poller calls.
type StreamReader interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// PollerConfig configures a Poller. Streams and StreamARN are required; DynamoDB and Control too, unless FromHorizon or
// FromLatest is set.
type PollerConfig struct {
	Streams   StreamReader
	StreamARN string
	DynamoDB  LeaseTable
	Control   string // table for leases and checkpoints

	// FromHorizon reads everything that the stream still has, leaves leases and checkpoints of others alone, and
	// remembers its own in memory only.
	FromHorizon bool

	// FromLatest is FromHorizon without the past: what is written from the first look at the stream on is read. Drain returns
	// once every shard is found at its end, and Run goes on from there. A shard without a record since then that cannot be
	// read for 15 minutes is begun at its end again.
	FromLatest bool

	Owner    string        // names this process in leases, and no other one that runs; "" means random. With the same name a restart after a crash need not wait
	Lease    time.Duration // for how long a crashed process keeps a shard, and no request takes more than half of it; 0 means 1 minute
	Discover time.Duration // how often to look for new shards; 0 means 10 seconds
	Idle     time.Duration // the longest pause after an empty answer; 0 means 1 second
	Now      func() time.Time
	Logger   *slog.Logger
}

// Poller reads a stream without Lambda and feeds a Consumer.
//
// Every shard is read by one goroutine, parents to their end before their children, children from their first record.
// Checkpoints move only after the events are out, and only while the lease is ours, so any number of pollers may run: each
// shard has one reader, and what a crashed one had published but not yet noted is published again with the same ids.
type Poller struct {
	cfg      PollerConfig
	consumer *Consumer
	leases   leases

	mu        sync.Mutex
	running   bool   // somebody polls
	run       bool   // that is Run, or Run waits for it
	asked     uint64 // how often Drain was called
	described uint64 // value of asked before the newest list of shards was requested
	looked    bool   // the shards have been listed once
	stale     bool   // a shard has ended since: it may have children that are not in the list
	shards    map[string]*shardState
	asks      chan struct{} // closed and renewed when Drain is called
	steps     chan struct{} // closed and renewed when a shard gets anywhere
}

// shardState is what the goroutines of one Poller know of a shard. Poller.mu guards it.
type shardState struct {
	id, parent string
	listed     bool // in the newest list
	running    bool
	finished   bool
	declined   bool   // since the newest list its reader ended without finishing: not ours, or failing
	first      bool   // it was there when the poller first looked
	iterator   string // of FromLatest: where a reader left off that had no record yet
	emptied    uint64 // value of Poller.asked before the newest empty answer was requested
	failures   int    // in a row
	err        error  // of the last failure
}

// maxFailures is how many failures in a row make Drain give up.
const maxFailures = 8

// NewPoller returns a Poller that feeds c. It makes no request. Errors: ErrConfig.
func NewPoller(cfg PollerConfig, c *Consumer) (*Poller, error) {
	switch {
	case c == nil:
		return nil, configError("consumer", "is required")
	case cfg.Streams == nil:
		return nil, configError("Streams", "is required")
	case cfg.StreamARN == "":
		return nil, configError("StreamARN", "is required")
	case cfg.FromHorizon && cfg.FromLatest:
		return nil, configError("FromHorizon and FromLatest", "exclude each other")
	case !cfg.alone() && cfg.DynamoDB == nil:
		return nil, configError("DynamoDB", "is required to keep leases and checkpoints")
	case !cfg.alone() && cfg.Control == "":
		return nil, configError("Control", "is required to keep leases and checkpoints")
	case cfg.Lease < 0 || cfg.Discover < 0 || cfg.Idle < 0:
		return nil, configError("Lease, Discover and Idle", "must not be negative")
	}
	setDefault(&cfg.Owner, rand.Text())
	setDefault(&cfg.Lease, time.Minute)
	setDefault(&cfg.Discover, 10*time.Second)
	setDefault(&cfg.Idle, time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Streams = timedStreams{cfg.Streams, cfg.Lease / 2}
	p := &Poller{
		cfg: cfg, consumer: c, shards: make(map[string]*shardState), asks: make(chan struct{}), steps: make(chan struct{}),
	}
	if cfg.alone() {
		p.leases = &memoryLeases{known: make(map[string]progress)}
	} else {
		p.leases = &tableLeases{timedLeases{cfg.DynamoDB, cfg.Lease / 2}, cfg.Control, cfg.StreamARN, cfg.Owner, cfg.Lease, cfg.Now}
	}
	return p, nil
}

// alone tells whether the poller reads beside others, with leases in memory only.
func (c *PollerConfig) alone() bool { return c.FromHorizon || c.FromLatest }

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// Run polls until ctx ends, and returns nil then, with its leases given back. Throttling, time-outs and failing publishers
// are waited out. Errors: what no waiting can mend, such as a stream that does not exist or may not be read; ErrRunning.
func (p *Poller) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.run {
		p.mu.Unlock()
		return ErrRunning
	}
	p.run = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.run = false
	}()
	for {
		err := p.loop(ctx, func() (bool, error) { return false, nil })
		if !errors.Is(err, ErrRunning) {
			return err
		}
		// A drain polls; it ends by itself.
		if !p.waitStep(ctx, func() bool { return !p.running }) {
			return nil
		}
	}
}

// waitStep waits until what p.mu guards is as wanted; false: ctx ended before.
func (p *Poller) waitStep(ctx context.Context, wanted func() bool) bool {
	for {
		p.mu.Lock()
		steps, ok := p.steps, wanted()
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-steps:
		}
	}
}

// Drain polls until every shard has answered empty once after the call began, or is closed and read to its end: all that
// was written before is published then. (AWS shows a write in the stream a little later, usually within a second.) It may
// be called while Run runs, and waits for it then, and again after it returned.
// Errors: as Run; ctx's; what kept a shard from moving eight times in a row.
func (p *Poller) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.asked++
	mine := p.asked
	close(p.asks)
	p.asks = make(chan struct{})
	running := p.running
	p.mu.Unlock()
	drained := func() (bool, error) { return p.drained(mine) }
	if !running {
		if err := p.loop(ctx, drained); !errors.Is(err, ErrRunning) {
			return p.unlessDrained(ctx, mine, err)
		}
	}
	for {
		p.mu.Lock()
		steps, running := p.steps, p.running
		p.mu.Unlock()
		if done, err := drained(); done || err != nil {
			return err
		}
		if !running {
			return p.unlessDrained(ctx, mine, nil)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-steps:
		}
	}
}

// unlessDrained tells why polling ended before the stream was drained; nil where it was.
func (p *Poller) unlessDrained(ctx context.Context, mine uint64, cause error) error {
	done, err := p.drained(mine)
	switch {
	case cause != nil:
		return cause
	case err != nil || done:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errStopped
}

// drained tells whether all shards have been empty since Drain was called for the nth time.
func (p *Poller) drained(n uint64) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.described >= n
	for _, s := range p.shards {
		if s.failures >= maxFailures {
			return false, fmt.Errorf("shard %s: %w", s.id, s.err)
		}
		if s.listed && !s.finished && s.emptied < n {
			done = false
		}
	}
	return done, nil
}

// loop finds shards and reads them, until ctx ends, stop says so, or something cannot be mended.
func (p *Poller) loop(ctx context.Context, stop func() (bool, error)) error {
	if !p.begin() {
		return ErrRunning
	}
	l := pollLoop{p: p, stop: stop, outer: ctx, retry: backoff{most: p.cfg.Discover}}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer func() {
		l.cancel(nil)
		l.readers.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = false
		p.step()
	}()
	for {
		if done, err := l.turn(); done || err != nil {
			return err
		}
	}
}

// begin claims the Poller for one loop.
func (p *Poller) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return false
	}
	p.running = true
	for _, s := range p.shards {
		s.failures, s.err = 0, nil
	}
	return true
}

// pollLoop is one call of Run or Drain that polls.
type pollLoop struct {
	p       *Poller
	stop    func() (bool, error)
	outer   context.Context // the caller's
	ctx     context.Context // of the readers
	cancel  context.CancelCauseFunc
	readers sync.WaitGroup
	retry   backoff
}

// turn looks for shards once and lets their readers work until it is worth looking again.
func (l *pollLoop) turn() (done bool, err error) {
	p := l.p
	p.mu.Lock()
	asks := p.asks
	p.mu.Unlock()
	pause := p.cfg.Discover
	err = p.discover(l.ctx)
	if l.ctx.Err() != nil {
		return true, l.ended()
	}
	switch {
	case err == nil:
		l.retry.reset()
	case permanent(err), l.retry.failures >= maxFailures && p.draining():
		return true, fmt.Errorf("describe stream: %w", err)
	default:
		pause = l.retry.next()
		p.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "stream cannot be described", slog.String("cause", err.Error()))
	}
	return l.wait(asks, pause)
}

// ended is nil where the caller ended the loop, else the failure that did.
func (l *pollLoop) ended() error {
	if l.outer.Err() != nil {
		return nil //nolint:nilerr // the end that the caller asked for is no failure
	}
	return context.Cause(l.ctx)
}

// wait starts the readers of shards as they become ready, until it is worth looking at the list of shards again: a shard
// ended, Drain was called, or pause is over.
func (l *pollLoop) wait(asks chan struct{}, pause time.Duration) (done bool, err error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if done, err := l.stop(); done || err != nil {
			return true, err
		}
		l.p.mu.Lock()
		l.startReaders()
		steps, stale := l.p.steps, l.p.stale
		l.p.mu.Unlock()
		if stale {
			return false, nil
		}
		select {
		case <-l.ctx.Done():
			return true, l.ended()
		case <-timer.C:
			return false, nil
		case <-asks:
			return false, nil
		case <-steps:
		}
	}
}

// draining tells whether somebody waits for the end of what is there.
func (p *Poller) draining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked > p.described
}

// step wakes whoever waits for a shard to get anywhere. p.mu must be held.
func (p *Poller) step() {
	close(p.steps)
	p.steps = make(chan struct{})
}

// discover lists the shards of the stream.
func (p *Poller) discover(ctx context.Context) error {
	p.mu.Lock()
	asked := p.asked
	p.stale = false
	p.mu.Unlock()
	found, err := listShards(ctx, p.cfg.Streams, p.cfg.StreamARN)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shards {
		s.listed, s.declined = false, false
	}
	for _, f := range found {
		s := p.shards[f.id]
		if s == nil {
			s = &shardState{id: f.id, parent: f.parent, first: !p.looked}
			p.shards[f.id] = s
		}
		s.listed = true
	}
	for id, s := range p.shards {
		if !s.listed && !s.running {
			delete(p.shards, id)
		}
	}
	p.described, p.looked = asked, true
	p.step()
	return nil
}

// ready tells whether a shard may be read: nobody here does, and its parent is read to its end or gone. p.mu must be held.
func (p *Poller) ready(s *shardState) bool {
	if s.running || s.finished || s.declined || !s.listed {
		return false
	}
	parent := p.shards[s.parent]
	return s.parent == "" || parent == nil || parent.finished
}

// startReaders reads every shard that is ready. p.mu must be held.
func (l *pollLoop) startReaders() {
	p := l.p
	for _, s := range p.shards {
		if !p.ready(s) {
			continue
		}
		s.running = true
		r := &shardReader{
			p: p, state: s, id: s.id, parent: s.parent, orphan: s.parent != "" && p.shards[s.parent] == nil,
			failed: backoff{most: failurePause}, idle: backoff{most: p.cfg.Idle},
			latest: p.cfg.FromLatest && s.first, iterator: s.iterator,
		}
		l.readers.Go(func() {
			err := r.read(l.ctx)
			p.mu.Lock()
			defer p.mu.Unlock()
			s.running, s.declined = false, !s.finished
			if r.latest {
				s.iterator = r.iterator
			}
			p.step()
			if err != nil && l.ctx.Err() == nil {
				l.cancel(fmt.Errorf("shard %s: %w", r.id, err))
			}
		})
	}
}
