package streams

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"toolledger/metrics"
)

// batchAnswer is Lambda's partial batch response. The list is never null and no identifier is ever empty: either would
// mean something else than it says.
type batchAnswer struct {
	BatchItemFailures []batchItemFailure `json:"batchItemFailures"`
}

type batchItemFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// HandleBatch takes a Lambda stream batch and returns the partial batch response: no failures, or the lowest sequence
// number of those that must be delivered again. Hand it to lambda.Start; the mapping needs ReportBatchItemFailures.
// Errors: *BatchError, after which Lambda delivers the whole batch again and no metrics are counted.
func (c *Consumer) HandleBatch(ctx context.Context, batch json.RawMessage) (json.RawMessage, error) {
	reader, err := newBatchReader(string(batch))
	if err != nil {
		return nil, err
	}
	var sequences []string
	r := c.newRun(window)
	failure := r.all(ctx, func() *Change {
		change := reader.next()
		if change != nil {
			sequences = append(sequences, change.Sequence)
		}
		return change
	})
	read := len(sequences)
	for sequence, more := reader.skip(); more; sequence, more = reader.skip() {
		sequences = append(sequences, sequence)
	}
	if reader.err != nil {
		return nil, reader.err
	}
	answer := batchAnswer{BatchItemFailures: []batchItemFailure{}}
	data, done := r.data, r.done
	if r.done < len(sequences) {
		lowest, err := lowestSequence(sequences[r.done:], failure)
		if err != nil {
			return nil, err
		}
		answer.BatchItemFailures = append(answer.BatchItemFailures, batchItemFailure{lowest})
		data, done = r.below(sequences[:read], lowest)
	}
	c.count(ctx, data, done, c.countingTime(ctx))
	c.summarize(ctx, r, len(sequences), len(data), answer, failure)
	return json.Marshal(answer)
}

// lowestSequence is the lowest of the sequence numbers of records that were not done with. One without a number cannot be
// reported, and reporting a higher one would lose it.
func lowestSequence(sequences []string, cause error) (lowest string, err error) {
	for _, sequence := range sequences {
		if !isSequence(sequence) {
			return "", &BatchError{"a record that failed has no sequence number", cause}
		}
		if lowest == "" || compareSequence(sequence, lowest) < 0 {
			lowest = sequence
		}
	}
	return lowest, nil
}

func isSequence(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// countingTime is how long the metrics of a batch may take. Lambda ends the function at ctx's deadline, and delivers the
// whole batch again if it has no answer by then: what was counted would be counted twice.
func (c *Consumer) countingTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.cfg.Margin
	}
	left := time.Until(deadline) //nolint:forbidigo // a context's deadline is in real time, whatever Config.Now says
	return max(min(c.cfg.Margin, left/2), 0)
}

// below is the data and the number of the records that are done with and will not be delivered again.
func (r *run) below(sequences []string, lowest string) (data []metrics.Datum, records int) {
	begin := 0
	for i := range r.done {
		if compareSequence(sequences[i], lowest) < 0 {
			data = append(data, r.data[begin:r.ends[i]]...)
			records++
		}
		begin = r.ends[i]
	}
	return data, records
}

func (c *Consumer) summarize(ctx context.Context, r *run, records, counted int, answer batchAnswer, failure error) {
	attrs := []slog.Attr{
		slog.Int("records", records), slog.Int("done", r.done), slog.Int("events", r.events), slog.Int("metrics", counted),
	}
	if failure == nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "stream batch done", attrs...)
		return
	}
	attrs = append(attrs, slog.String("from_sequence", answer.BatchItemFailures[0].ItemIdentifier), slog.String("cause", failure.Error()))
	c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "stream batch failed in part and will be delivered again from there", attrs...)
}
