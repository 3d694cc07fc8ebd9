package streams

import (
	"context"
	"errors"
	"slices"
	"testing"

	"toolledger/streams/events"
)

// batchText is a Lambda batch of n committed calls.
func batchText(t *testing.T, n int) []byte {
	shard := shardOf("s", "", false, 1, n)
	return batchOf(t, shard.records)
}

// A redriven batch gives the events of its first delivery, with the same ids, and counts nothing, whatever sink there is.
func TestRedriveCountsNoMetrics(t *testing.T) {
	first, again, count := &Collector{}, &Collector{}, &sums{}
	batch := batchText(t, 1200)
	if _, err := newTestConsumer(t, first, nil).HandleBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	out, err := newTestConsumer(t, again, count).Redrive(t.Context(), batch)
	if err != nil || out != (Redriven{1200, 1200, 1200}) || count.calls != 0 {
		t.Errorf("%+v, %v; metrics %v", out, err, count.total)
	}
	if !slices.Equal(idsOf(first.Events()), idsOf(again.Events())) {
		t.Error("other ids")
	}
}

// Where the bus fails, what is out is told from what is not; what is no batch is refused.
func TestRedriveStops(t *testing.T) {
	left := 700
	c := newTestConsumer(t, PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) {
		n := min(left, len(evs))
		if left -= n; n < len(evs) {
			return n, errors.New("no bus")
		}
		return n, nil
	}), nil, func(cfg *ConsumerConfig) { cfg.Unreadable = func(context.Context, []byte) error { return nil } })
	if out, err := c.Redrive(t.Context(), batchText(t, 1200)); err == nil || out != (Redriven{1200, 700, 700}) {
		t.Errorf("%+v, %v", out, err)
	}
	left = 100
	for _, bad := range []string{"", "{}", "[]", `{"Records":7}`, `{"Records":[{}`, `{"Records":[{}]} x`} {
		if _, err := c.Redrive(t.Context(), []byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		} else if _, ok := errors.AsType[*BatchError](err); !ok {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
