package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"toolledger/internal/progress"
	"toolledger/streams"
	"toolledger/streams/events"
)

// tailIdle is between looks at a quiet stream: a person waits, and no more than two readers of a shard may come more often
// than that.
const tailIdle = 500 * time.Millisecond

// tailFlags is what a command line says about a tail.
type tailFlags struct {
	tenant  string
	horizon bool
}

func newTailCommand(a *app) *cobra.Command {
	f := &tailFlags{}
	cmd := &cobra.Command{
		Use: "tail", GroupID: groupLook, Args: noArgs,
		Short: "Follow what happens, event by event, until stopped",
		Long: `Follows the streams of both tables and shows the events of every change, from now on or, with --from-horizon, from the oldest
change that the stream still has (24 hours). It publishes nothing and leaves the leases of the real consumer alone, but it is
a reader: DynamoDB takes two of a stream at the same time. Ctrl-C ends it.
With --json every event is a line of its own, in the envelope in which EventBridge delivers it, its detail byte for byte as
it is published. Colours are for terminals only, and NO_COLOR turns them off.`,
		Example: `  toolledger tail --tenant acme --region eu-west-1 --table toolledger
  toolledger tail --from-horizon --json --endpoint http://127.0.0.1:8000`,
	}
	w := addWhere(cmd)
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "only the events of tenant `T`, and those of none")
	cmd.Flags().BoolVar(&f.horizon, "from-horizon", false, "begin with the oldest change that the stream still has")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("tenant") {
			if err := checkTenant(f.tenant); err != nil {
				return err
			}
		}
		err := a.tail(cmd.Context(), w, f)
		if cmd.Context().Err() != nil {
			return nil //nolint:nilerr // stopping it is how it ends
		}
		return err
	}
	return cmd
}

func (a *app) tail(ctx context.Context, w *where, f *tailFlags) error {
	l, err := a.lookLocation(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	at, err := placeOf(ctx, w, l)
	if err != nil {
		return err
	}
	if err := l.checkStream(ctx, l.table); err != nil {
		return err
	}
	arns := []string{l.ledgerStream}
	if err := l.checkStream(ctx, l.control); err != nil {
		_, _ = fmt.Fprintf(a.stderr, "changes of plans are not shown: %s\n", oneLine(err))
	} else {
		arns = append(arns, l.planStream)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	show := &tailShow{
		lister: lister{app: a, colour: progress.Terminal(a.stdout) && os.Getenv("NO_COLOR") == ""}, tenant: f.tenant, stop: stop,
	}
	pollers, err := a.tailPollers(l, arns, f, show)
	if err != nil {
		return badInput("%w", err)
	}
	if !f.horizon {
		for _, p := range pollers { // up to the end of the stream, from where Run goes on
			if err := p.Drain(ctx); err != nil {
				return a.tailFailed(ctx, l, err)
			}
		}
	}
	_, _ = fmt.Fprintf(a.stderr, "following %s; Ctrl-C ends it\n", at)
	readers, reading := errgroup.WithContext(ctx)
	for _, p := range pollers {
		readers.Go(func() error { return p.Run(reading) })
	}
	return a.tailFailed(ctx, l, readers.Wait())
}

// tailFailed tells a failure from the end that was asked for.
func (a *app) tailFailed(ctx context.Context, l *location, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return badInput("the stream at %s: %w", l, err)
	}
	return nil
}

// checkStream makes sure that a table has a stream that says enough.
func (l *location) checkStream(ctx context.Context, table string) error {
	out, err := l.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return badInput("table %s at %s: %w", table, l, err)
	}
	spec := out.Table.StreamSpecification
	switch {
	case spec == nil || !aws.ToBool(spec.StreamEnabled) || aws.ToString(out.Table.LatestStreamArn) == "":
		return badInput("table %s at %s has no stream, so there is nothing to follow: switch it on with the view NEW_AND_OLD_IMAGES", table, l)
	case spec.StreamViewType != types.StreamViewTypeNewAndOldImages:
		return badInput("the stream of table %s at %s shows %s: events need the view NEW_AND_OLD_IMAGES", table, l, spec.StreamViewType)
	}
	return nil
}

func (a *app) tailPollers(l *location, arns []string, f *tailFlags, show streams.Publisher) ([]*streams.Poller, error) {
	consumer, err := streams.NewConsumer(streams.ConsumerConfig{
		Publisher: show, Now: a.now, Logger: a.log,
		Unreadable: func(context.Context, []byte) error { return nil }, // there is an event for it; keeping it is the real consumer's
	})
	if err != nil {
		return nil, err
	}
	var pollers []*streams.Poller
	for _, arn := range arns {
		p, err := streams.NewPoller(streams.PollerConfig{
			Streams: l.streams, StreamARN: arn, FromHorizon: f.horizon, FromLatest: !f.horizon, Idle: tailIdle, Now: a.now,
			Logger: a.log.With(slog.String("stream", arn)),
		}, consumer)
		if err != nil {
			return nil, err
		}
		pollers = append(pollers, p)
	}
	return pollers, nil
}

// tailShow prints the events of one tenant, or all. Where stdout takes no more, it stops the tail.
type tailShow struct {
	lister
	tenant string
	stop   context.CancelCauseFunc
}

// Publish implements streams.Publisher.
func (s *tailShow) Publish(ctx context.Context, evs []events.Event) (int, error) {
	for i, ev := range evs {
		if own := ev.Head().Tenant; s.tenant != "" && own != "" && own != s.tenant {
			continue
		}
		if _, err := s.lister.Publish(ctx, evs[i:i+1]); err != nil {
			s.stop(badInput("stdout: %w", err))
			return i, err
		}
	}
	return len(evs), nil
}
