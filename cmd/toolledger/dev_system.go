package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"toolledger/internal/stack"
	"toolledger/streams"
	"toolledger/sweeper"
	"toolledger/writers"
	"toolledger/writers/api"
)

const (
	devOwner     = "toolledger-dev"       // of the leases: a restart on the same file need not wait for its own
	devIdle      = 100 * time.Millisecond // between looks at a quiet stream, so that events show at once
	devCoalesce  = 100 * time.Millisecond
	devStopTime  = 5 * time.Second // for requests under way, and then for the last events
	devBodyTime  = 30 * time.Second
	devReplyTime = time.Minute
)

// devSystem is everything that dev runs in one process.
type devSystem struct {
	app      *app
	flags    *devFlags
	place    *location
	listener net.Listener
	ledger   *writers.Ledger
	server   *http.Server
	sweeper  *sweeper.Sweeper
	pollers  []*streams.Poller
	show     *devShow
}

func (a *app) newDevSystem(ctx context.Context, place *location, listener net.Listener, f *devFlags) (*devSystem, error) {
	d := &devSystem{app: a, flags: f, place: place, listener: listener, show: &devShow{app: a}}
	var err error
	d.ledger, err = writers.New(place.client, writers.Config{
		Table: place.table, Control: place.control, Skew: f.skew, Coalesce: devCoalesce, Now: a.now, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	if err := d.provision(ctx); err != nil {
		return nil, fmt.Errorf("plan of %s at %s: %w", f.tenant, place, err)
	}
	if d.sweeper, err = sweeper.New(d.ledger, sweeper.Config{}); err != nil {
		return nil, err
	}
	if err := d.readStreams(); err != nil {
		return nil, err
	}
	handler, err := api.NewHandler(d.ledger, api.HandlerConfig{
		Tenant: devTenantOf, Admin: func(*http.Request) bool { return true }, Now: a.now, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	d.server = &http.Server{
		Handler: devFront(f.addr, handler), ReadHeaderTimeout: devStopTime, ReadTimeout: devBodyTime, WriteTimeout: devReplyTime,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	return d, nil
}

var errTenantHeader = errors.New("want exactly one header X-Tenant-Id")

// devTenantOf believes the caller, which is why dev listens to this machine alone.
func devTenantOf(r *http.Request) (writers.TenantID, error) {
	ids := r.Header.Values("X-Tenant-Id")
	if len(ids) != 1 {
		return "", errTenantHeader
	}
	return writers.TenantID(ids[0]), nil
}

// provision gives the tenant a plan unless it has one.
func (d *devSystem) provision(ctx context.Context) error {
	t := d.ledger.Tenant(writers.TenantID(d.flags.tenant))
	if _, err := t.Quota(ctx); !errors.Is(err, writers.ErrNotProvisioned) {
		return err
	}
	return t.PutPlan(ctx, writers.Plan{Tokens: d.flags.tokens})
}

// readStreams makes a poller for each table's stream: calls and quota in one, plans in the other.
func (d *devSystem) readStreams() error {
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: d.show, Now: d.app.now, Logger: d.app.log,
		Unreadable: func(context.Context, []byte) error { return nil }, // there is an event for it, and no place to keep the record
	})
	if err != nil {
		return err
	}
	owner := "" // somebody else's tables may have another dev
	if d.place.server != nil {
		owner = devOwner
	}
	for _, arn := range []string{d.place.ledgerStream, d.place.planStream} {
		p, err := streams.NewPoller(streams.PollerConfig{
			Streams: d.place.streams, StreamARN: arn, DynamoDB: d.place.client, Control: d.place.control,
			Owner: owner, Idle: devIdle, Now: d.app.now, Logger: d.app.log,
		}, consumer)
		if err != nil {
			return fmt.Errorf("the stream of %s: %w", d.place, err)
		}
		d.pollers = append(d.pollers, p)
	}
	return nil
}

// run serves until ctx ends or a part fails, then stops all parts in an order that loses no event.
func (d *devSystem) run(ctx context.Context) error {
	if err := d.show.ready(d); err != nil {
		return err
	}
	serving, fail := context.WithCancelCause(ctx)
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	var front, readers sync.WaitGroup
	front.Go(func() {
		if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("the HTTP front: %w", err))
		}
	})
	front.Go(func() { d.sweepUntil(serving) })
	for _, p := range d.pollers {
		readers.Go(func() {
			if err := p.Run(reading); err != nil {
				fail(fmt.Errorf("the stream: %w", err))
			}
		})
	}
	select {
	case <-serving.Done():
	case <-d.stackEnded():
		fail(fmt.Errorf("the local stack at %s ended", d.place))
	}
	failed := context.Cause(serving)
	if ctx.Err() != nil {
		failed = nil // stopped, as it was meant to be
	}
	fail(nil)
	d.stop(context.WithoutCancel(ctx), failed == nil)
	stopReading()
	front.Wait()
	readers.Wait()
	return failed
}

// stackEnded never tells where the stack is not ours.
func (d *devSystem) stackEnded() <-chan struct{} {
	if d.place.server == nil {
		return nil
	}
	return d.place.server.Exited()
}

// stop lets requests under way end, then shows the events of what they did.
func (d *devSystem) stop(ctx context.Context, orderly bool) {
	closing, cancel := context.WithTimeout(ctx, devStopTime)
	defer cancel()
	if err := d.server.Shutdown(closing); err != nil {
		_ = d.server.Close()
	}
	if !orderly {
		return
	}
	if err := d.ledger.Close(closing); err != nil {
		d.app.log.Warn("observations are lost", slog.Any("error", err))
	}
	draining, cancel := context.WithTimeout(ctx, devStopTime)
	defer cancel()
	for _, p := range d.pollers {
		if err := p.Drain(draining); err != nil {
			d.app.log.Warn("the last events are left for the next start", slog.Any("error", err))
		}
	}
}

// sweepUntil sweeps again and again until ctx ends. What one sweep could not do the next one may.
func (d *devSystem) sweepUntil(ctx context.Context) {
	for {
		sleepFor(ctx, d.flags.sweepEvery)
		if ctx.Err() != nil {
			return
		}
		report, err := d.sweeper.Run(ctx)
		if err != nil && ctx.Err() == nil {
			d.app.log.Warn("sweep failed", slog.Any("error", err))
		}
		d.show.swept(report)
	}
}

// environment is the variables with which other programs find the same ledger.
func (d *devSystem) environment() []string {
	vars := []string{"LEDGER_TABLE=" + d.place.table}
	if d.place.server != nil {
		vars = append(stack.Environ(d.place.endpoint), vars...)
	}
	return vars
}
