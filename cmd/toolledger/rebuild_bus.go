package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"toolledger/streams"
	"toolledger/streams/events"
)

// busFlags is what a command line says about where events go.
type busFlags struct {
	bus    string
	dryRun bool
}

func (f *busFlags) check() error {
	switch {
	case f.dryRun && f.bus != "":
		return badInput("--bus and --dry-run exclude each other: a dry run publishes nothing")
	case !f.dryRun && f.bus == "":
		return badInput("--bus NAME is required, or --dry-run: EventBridge would publish to the default bus")
	}
	return nil
}

// refusedEvent is an event that the bus will never accept.
type refusedEvent struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// outlet is where a command's events go: a bus, or, in a dry run, stdout. It notes what the bus refuses.
type outlet struct {
	next streams.Publisher

	mu       sync.Mutex
	refusals int
	refused  []refusedEvent // the first of them
}

// maxListed is how many of a kind a report lists; all are counted.
const maxListed = 1000

// newOutlet makes the outlet that f names. The bus is at the place of cfg, or where the SDK's own variable says.
func (a *app) newOutlet(cfg aws.Config, f *busFlags) (*outlet, error) {
	o := &outlet{refused: []refusedEvent{}}
	if f.dryRun {
		o.next = &lister{app: a}
		return o, nil
	}
	client := eventbridge.NewFromConfig(cfg, func(opts *eventbridge.Options) {
		if own := os.Getenv("AWS_ENDPOINT_URL_EVENTBRIDGE"); own != "" {
			opts.BaseEndpoint = aws.String(own)
		}
	})
	p, err := streams.NewEventBridgePublisher(client, streams.PublisherConfig{Bus: f.bus, Refused: o.refuse, Now: a.now, Logger: a.log})
	if err != nil {
		return nil, badInput("--bus: %w", err)
	}
	o.next = p
	return o, nil
}

// Publish implements streams.Publisher.
func (o *outlet) Publish(ctx context.Context, evs []events.Event) (int, error) {
	return o.next.Publish(ctx, evs)
}

func (o *outlet) refuse(_ context.Context, r streams.Refusal) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusals++; len(o.refused) < maxListed {
		o.refused = append(o.refused, refusedEvent{r.Event.Head().ID, r.Event.DetailType(), r.Code, r.Message})
	}
	return nil
}

// lister prints events, one on a line.
type lister struct {
	app    *app
	mu     sync.Mutex
	colour bool
}

// publishedEvent is the envelope in which EventBridge delivers an event, as far as it is ours. The detail is byte for byte
// what is published.
type publishedEvent struct {
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Detail     json.RawMessage `json:"detail"`
}

// Publish implements streams.Publisher.
func (l *lister) Publish(_ context.Context, evs []events.Event) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, ev := range evs {
		if err := l.line(ev); err != nil {
			return i, err
		}
	}
	return len(evs), nil
}

func (l *lister) line(ev events.Event) error {
	if !l.app.json {
		return l.app.eventLine(ev, l.colour)
	}
	detail, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	return l.app.printJSON(publishedEvent{events.Source, ev.DetailType(), detail})
}
