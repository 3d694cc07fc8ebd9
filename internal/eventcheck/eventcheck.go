package eventcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"toolledger/streams/events"
	"toolledger/streams/events/schemas"
)

// Event returns an error unless ev fits the schema of its type, says no more than it, and comes back from its detail as it
// was published. An error names the type and what is wrong.
func Event(ev events.Event) error {
	detail, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("%s: %w", ev.DetailType(), err)
	}
	return Detail(ev.DetailType(), detail)
}

// Detail is Event for an event of which a bus has the detail alone.
func Detail(detailType string, detail []byte) error {
	if seen.has(detailType, detail) {
		return nil
	}
	schema, err := strict(detailType)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(detail, &value); err != nil {
		return fmt.Errorf("%s: %w", detailType, err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("%s: %w\n%s", detailType, err, detail)
	}
	if err := moments(detailType, schema.Schema(), value); err != nil {
		return err
	}
	if err := comesBack(detailType, detail, value); err != nil {
		return err
	}
	seen.add(detailType, detail)
	return nil
}

// Reporter is the part of a test that hears of what does not fit.
type Reporter interface {
	Errorf(format string, args ...any)
}

// All fails the test for each event that does not fit.
func All(t Reporter, evs []events.Event) {
	for _, ev := range evs {
		if err := Event(ev); err != nil {
			t.Errorf("an event does not fit its schema: %v", err)
		}
	}
}

// Publish makes a publishing function that fails the test for each event that does not fit, and hands all of them to next.
func Publish(
	t Reporter, next func(context.Context, []events.Event) (int, error),
) func(context.Context, []events.Event) (int, error) {
	return func(ctx context.Context, evs []events.Event) (int, error) {
		All(t, evs)
		return next(ctx, evs)
	}
}

// moments checks what the validator takes for a remark: the format of times.
func moments(detailType string, schema *jsonschema.Schema, value any) error {
	members, _ := value.(map[string]any)
	for name, p := range schema.Properties {
		text, ok := members[name].(string)
		if p.Format != "date-time" || !ok {
			continue
		}
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			return fmt.Errorf("%s: %s: %w", detailType, name, err)
		}
	}
	return nil
}

// comesBack checks that a subscriber reads what was published.
func comesBack(detailType string, detail []byte, value any) error {
	ev, err := events.ParseDetail(detailType, detail)
	if err != nil {
		return err
	}
	if _, unknown := ev.(*events.Unknown); unknown {
		return fmt.Errorf("%s is unknown to its own package", detailType)
	}
	again, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	var back any
	if err := json.Unmarshal(again, &back); err != nil {
		return err
	}
	if !reflect.DeepEqual(value, back) {
		return fmt.Errorf("%s: published as %s, comes back as %s", detailType, detail, again)
	}
	return nil
}

var resolved sync.Map // detail-type to *jsonschema.Resolved

// strict is the schema of a type without its openness.
func strict(detailType string) (*jsonschema.Resolved, error) {
	if r, ok := resolved.Load(detailType); ok {
		return r.(*jsonschema.Resolved), nil //nolint:forcetypeassert // nothing else is stored
	}
	text, ok := schemas.JSONSchema(detailType)
	if !ok {
		return nil, fmt.Errorf("%s has no schema", detailType)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", detailType, err)
	}
	s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", detailType, err)
	}
	resolved.Store(detailType, r)
	return r, nil
}

// seen spares the repetitions: tests publish the same events very often.
var seen cache

const maxSeen = 20_000

type cache struct {
	mu  sync.Mutex
	n   int
	fit map[string]map[string]struct{} // detail-type to details
}

func (c *cache) has(detailType string, detail []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.fit[detailType][string(detail)]
	return ok
}

func (c *cache) add(detailType string, detail []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fit == nil || c.n >= maxSeen {
		c.fit, c.n = make(map[string]map[string]struct{}), 0
	}
	if c.fit[detailType] == nil {
		c.fit[detailType] = make(map[string]struct{})
	}
	c.fit[detailType][string(detail)] = struct{}{}
	c.n++
}
