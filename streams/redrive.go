package streams

import (
	"context"
)

// Redriven is what Redrive has done.
type Redriven struct {
	Records int // in the batch
	Done    int // of these, from the first: done with, since their events are out
	Events  int // that are out
}

// Redrive publishes the events of a Lambda stream batch, {"Records": […]}, that was delivered before and kept elsewhere since.
// It is HandleBatch, with the same ids, but counts no metrics whatever the configuration: what a batch counted that failed
// in part is not known any more, and counting twice is worse than counting late. What cannot be understood is handed to
// ConsumerConfig.Unreadable again. Redriving what is out already publishes the same ids again and does no harm.
// Errors: *BatchError; what kept the rest from being published.
func (c *Consumer) Redrive(ctx context.Context, batch []byte) (Redriven, error) {
	reader, err := newBatchReader(string(batch))
	if err != nil {
		return Redriven{}, err
	}
	var out Redriven
	r := c.newRun(window)
	err = r.all(ctx, func() *Change {
		change := reader.next()
		if change != nil {
			out.Records++
		}
		return change
	})
	for _, more := reader.skip(); more; _, more = reader.skip() {
		out.Records++
	}
	out.Done, out.Events = r.done, r.events
	if err == nil {
		err = reader.err
	}
	return out, err
}
