package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/jitter"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// EventBridge is the part of *eventbridge.Client that a publisher calls. An answer without an error may still report
// entries that failed, in the order of the request.
type EventBridge interface {
	PutEvents(context.Context, *eventbridge.PutEventsInput, ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// PublisherConfig configures an EventBridgePublisher. Bus is required.
type PublisherConfig struct {
	Bus         string        // name or ARN; a bus that does not exist may answer success, so check it at deployment
	Concurrency int           // requests at a time; 0 means 8
	Attempts    int           // of one entry, beside what the SDK retries by itself; 0 means 5
	Pause       time.Duration // ceiling of the pause before the second attempt, doubled for each further one; 0 means 100 ms

	// Refused takes an event that the bus will never accept, with its reason, and keeps it somewhere. An error means that it
	// could not, and the event counts as not out. nil: such events are logged by id and dropped.
	Refused func(ctx context.Context, r Refusal) error
	Metrics MetricSink // nil: refusals are not counted
	Now     func() time.Time
	Logger  *slog.Logger
}

// Refusal is an event that a bus refuses for good.
type Refusal struct {
	Event   events.Event
	Detail  []byte // as it was sent
	Code    string // EventBridge's error code, or CodeTooLarge
	Message string
}

// CodeTooLarge is the code of an event that is larger than EventBridge takes; it was not sent.
const CodeTooLarge = "EntryTooLarge"

// Limits of PutEvents.
const (
	maxEntries    = 10
	maxEntryBytes = 1 << 20 // of all entries of a request together, and so of one
	timeBytes     = 14      // what EventBridge counts for an entry's time
	maxPause      = 10 * time.Second
)

// EventBridgePublisher publishes to an EventBridge bus: in requests of up to ten entries and 1 MB, several at a time,
// sending again only what failed. It is safe for concurrent use.
type EventBridgePublisher struct {
	client EventBridge
	cfg    PublisherConfig
}

// NewEventBridgePublisher returns a publisher. It makes no request. Errors: ErrConfig.
func NewEventBridgePublisher(client EventBridge, cfg PublisherConfig) (*EventBridgePublisher, error) {
	switch {
	case client == nil:
		return nil, configError("client", "is required")
	case cfg.Bus == "":
		return nil, configError("Bus", "is required: EventBridge would publish to the default bus")
	case cfg.Concurrency < 0 || cfg.Attempts < 0 || cfg.Pause < 0:
		return nil, configError("Concurrency, Attempts and Pause", "must not be negative")
	}
	setDefault(&cfg.Concurrency, 8)
	setDefault(&cfg.Attempts, 5)
	setDefault(&cfg.Pause, 100*time.Millisecond)
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of an injectable clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &EventBridgePublisher{client, cfg}, nil
}

// entry is an event on its way.
type entry struct {
	ev    events.Event
	put   types.PutEventsRequestEntry
	bytes int
	out   bool
	aside bool  // out, since it was set aside
	err   error // why it could not be set aside
}

// Publish implements Publisher.
func (p *EventBridgePublisher) Publish(ctx context.Context, evs []events.Event) (int, error) {
	entries, err := p.entries(ctx, evs)
	if err != nil {
		return 0, err
	}
	errs := p.sendAll(ctx, p.requests(entries))
	out := slices.IndexFunc(entries, func(e entry) bool { return !e.out })
	if out < 0 {
		p.countRefused(ctx, entries)
		return len(entries), nil
	}
	p.countRefused(ctx, entries[:out])
	if errs = errors.Join(entries[out].err, errs, ctx.Err()); errs == nil {
		errs = errNotSent
	}
	return out, errs
}

// countRefused counts what was set aside of the entries that will not be handed over again.
func (p *EventBridgePublisher) countRefused(ctx context.Context, entries []entry) {
	refused := 0
	for i := range entries {
		if entries[i].aside {
			refused++
		}
	}
	if p.cfg.Metrics == nil || refused == 0 {
		return
	}
	datum := metrics.Datum{Name: metrics.EventsRefused, Value: float64(refused), Time: p.cfg.Now().UTC()}
	if err := p.cfg.Metrics.Record(ctx, []metrics.Datum{datum}); err != nil {
		p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "metrics not sent", slog.Int("data", 1), slog.String("cause", err.Error()))
	}
}

var errNotSent = errors.New("not sent, since events before it failed")

// entries makes the request entries. What is too large is set aside here.
func (p *EventBridgePublisher) entries(ctx context.Context, evs []events.Event) ([]entry, error) {
	entries := make([]entry, len(evs))
	for i, ev := range evs {
		detail, err := json.Marshal(ev)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", ev.DetailType(), err)
		}
		entries[i].ev = ev
		entries[i].put = types.PutEventsRequestEntry{
			Source: aws.String(events.Source), DetailType: aws.String(ev.DetailType()), Detail: aws.String(string(detail)),
			EventBusName: &p.cfg.Bus, Time: aws.Time(ev.Head().Time),
		}
		entries[i].bytes = timeBytes + len(events.Source) + len(ev.DetailType()) + len(detail)
		if entries[i].bytes >= maxEntryBytes {
			message := fmt.Sprintf("%d bytes; the limit is %d", entries[i].bytes, maxEntryBytes)
			entries[i].err = p.refuse(ctx, &entries[i], CodeTooLarge, message)
		}
	}
	return entries, nil
}

// requests groups what is to be sent into requests of ten entries and 1 MB.
func (p *EventBridgePublisher) requests(entries []entry) [][]*entry {
	requests := make([][]*entry, 0, len(entries)/maxEntries+1)
	var request []*entry
	bytes := 0
	for i := range entries {
		e := &entries[i]
		if e.out || e.bytes >= maxEntryBytes {
			continue
		}
		if len(request) == maxEntries || bytes+e.bytes >= maxEntryBytes {
			requests, request, bytes = append(requests, request), nil, 0
		}
		request, bytes = append(request, e), bytes+e.bytes
	}
	if len(request) > 0 {
		requests = append(requests, request)
	}
	return requests
}

// sendAll sends requests, several at a time. After a failure it begins no further one: what comes behind it will be
// handed over again anyway.
func (p *EventBridgePublisher) sendAll(ctx context.Context, requests [][]*entry) error {
	if len(requests) == 1 {
		return p.send(ctx, requests[0])
	}
	var mu sync.Mutex
	var errs error
	next := 0
	take := func() []*entry {
		mu.Lock()
		defer mu.Unlock()
		if next == len(requests) || errs != nil {
			return nil
		}
		next++
		return requests[next-1]
	}
	var workers sync.WaitGroup
	for range min(p.cfg.Concurrency, len(requests)) {
		workers.Go(func() {
			for request := take(); request != nil; request = take() {
				if err := p.send(ctx, request); err != nil {
					mu.Lock()
					errs = errors.Join(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return errs
}

// send sends one request until every entry is out or refused for good, or its attempts are used up.
func (p *EventBridgePublisher) send(ctx context.Context, request []*entry) error {
	var last error
	for attempt := range p.cfg.Attempts {
		if attempt > 0 && !p.pause(ctx, attempt) {
			return errors.Join(last, ctx.Err())
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(last, err)
		}
		var err error
		request, err = p.put(ctx, request)
		if len(request) == 0 {
			return err
		}
		if err != nil && !retryable(err) {
			return p.single(ctx, request, err)
		}
		last = err
	}
	return fmt.Errorf("put events: %d entries failed %d times: %w", len(request), p.cfg.Attempts, last)
}

// put makes one request and returns the entries that are worth another, with the reason.
func (p *EventBridgePublisher) put(ctx context.Context, request []*entry) ([]*entry, error) {
	in := &eventbridge.PutEventsInput{Entries: make([]types.PutEventsRequestEntry, len(request))}
	for i, e := range request {
		in.Entries[i] = e.put
	}
	out, err := p.client.PutEvents(ctx, in)
	if err != nil {
		return request, err
	}
	if out.FailedEntryCount == 0 {
		for _, e := range request {
			e.out = true
		}
		return nil, nil
	}
	if len(out.Entries) != len(request) {
		return request, errors.New("the answer has not one result for each entry")
	}
	var again []*entry
	var reason error
	for i, e := range request {
		result := &out.Entries[i]
		switch code := aws.ToString(result.ErrorCode); code {
		case "":
			if e.out = aws.ToString(result.EventId) != ""; !e.out {
				again, reason = append(again, e), errNoResult
			}
		case "InternalFailure", "InternalException", "ThrottlingException":
			again, reason = append(again, e), errors.New(code)
		default:
			if err := p.refuse(ctx, e, code, aws.ToString(result.ErrorMessage)); err != nil {
				again, reason = append(again, e), err
			}
		}
	}
	return again, reason
}

var errNoResult = errors.New("some entries failed, and the answer does not say of this one that it did not")

// single sends the entries of a request that was refused as a whole one by one, where the fault may lie in one of them;
// that one is set aside. Where it lies in the caller (access, signature), nothing is.
func (p *EventBridgePublisher) single(ctx context.Context, request []*entry, cause error) error {
	api, ok := errors.AsType[smithy.APIError](cause)
	if !ok || api.ErrorCode() != "ValidationException" {
		return fmt.Errorf("put events: %w", cause)
	}
	if len(request) == 1 {
		return p.refuse(ctx, request[0], api.ErrorCode(), api.ErrorMessage())
	}
	for _, e := range request {
		if err := p.send(ctx, []*entry{e}); err != nil {
			return err
		}
	}
	return nil
}

// refuse sets an event aside that the bus will never accept: then it is out.
func (p *EventBridgePublisher) refuse(ctx context.Context, e *entry, code, message string) error {
	head := e.ev.Head()
	p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "event refused by the bus for good",
		slog.String("type", e.ev.DetailType()), slog.String("id", head.ID), slog.String("code", code), slog.String("message", message))
	if p.cfg.Refused != nil {
		err := p.cfg.Refused(ctx, Refusal{Event: e.ev, Detail: []byte(aws.ToString(e.put.Detail)), Code: code, Message: message})
		if err != nil {
			return fmt.Errorf("set aside event %s, refused with %s: %w", head.ID, code, err)
		}
	}
	e.out, e.aside = true, true
	return nil
}

// retryable tells whether the same request may succeed later: throttling, faults of the service, lost answers. Sending
// again what was accepted is harmless, since ids are equal.
func retryable(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "Throttling", "InternalException",
			"InternalFailure", "ServiceUnavailable":
			return true
		}
		if api.ErrorFault() == smithy.FaultServer {
			return true
		}
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status := response.HTTPStatusCode()
		return status < http.StatusBadRequest || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
	}
	return true // no answer at all, or half of one
}

// pause waits before an attempt, with full jitter; false: ctx has ended.
func (p *EventBridgePublisher) pause(ctx context.Context, attempt int) bool {
	ceiling := min(p.cfg.Pause<<min(attempt-1, 16), maxPause)
	sleep(ctx, jitter.N(ceiling+1), nil)
	return ctx.Err() == nil
}
