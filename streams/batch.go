package streams

import (
	"context"
	"encoding/json"
	"log/slog"

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
	records, err := splitBatch(string(batch))
	if err != nil {
		return nil, err
	}
	var decoder recordDecoder
	var change Change
	sequences := make([]string, 0, len(records))
	r := c.newRun(len(records))
	failure := r.all(ctx, len(records), func(i int) *Change {
		decoder.decode(records[i], &change)
		sequences = append(sequences, change.Sequence)
		return &change
	})
	answer := batchAnswer{BatchItemFailures: []batchItemFailure{}}
	data := r.data
	if r.done < len(records) {
		lowest, err := lowestSequence(sequences, records, r.done, failure)
		if err != nil {
			return nil, err
		}
		answer.BatchItemFailures = append(answer.BatchItemFailures, batchItemFailure{lowest})
		data = r.dataBelow(sequences, lowest)
	}
	c.count(ctx, data, r.done)
	c.summarize(ctx, r, len(records), len(data), answer, failure)
	return json.Marshal(answer)
}

// lowestSequence is the lowest sequence number of the records from done on. One without a number cannot be reported, and
// reporting a higher one would lose it.
func lowestSequence(sequences, records []string, done int, cause error) (string, error) {
	lowest := ""
	for i := done; i < len(records); i++ {
		var sequence string
		if i < len(sequences) {
			sequence = sequences[i]
		} else {
			var c Change
			salvage(records[i], &c)
			sequence = c.Sequence
		}
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

// dataBelow is the data of the records that are done with and will not be delivered again.
func (r *run) dataBelow(sequences []string, lowest string) []metrics.Datum {
	var data []metrics.Datum
	begin := 0
	for i := range r.done {
		if compareSequence(sequences[i], lowest) < 0 {
			data = append(data, r.data[begin:r.ends[i]]...)
		}
		begin = r.ends[i]
	}
	return data
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
