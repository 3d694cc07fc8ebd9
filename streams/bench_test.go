package streams

import (
	"context"
	"syscall"
	"testing"

	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
	"toolledger/streams/events"
)

var nowhere = PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) { return len(evs), nil })

// BenchmarkHandleBatch measures the whole way of a Lambda batch of 1,000 records but for the bus.
func BenchmarkHandleBatch(b *testing.B) {
	var records []string
	all := transitions()
	for i := range 1000 {
		tr := all[i%len(all)]
		records = append(records, lambdaRecord(b, changeOf(tr.was, tr.is)))
	}
	batch := lambdaBatch(records...)
	c := newTestConsumer(b, nowhere, nil)
	b.ReportAllocs()
	cpu := processorTime(b)
	for b.Loop() {
		if _, err := c.HandleBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(cpu()/float64(b.N)/1000, "cpu-ns/record")
}

// BenchmarkHandleRecords measures the same for records that a client of the stream decoded.
func BenchmarkHandleRecords(b *testing.B) {
	all := transitions()
	records := make([]streamtypes.Record, 1000)
	for i := range records {
		c := changeOf(all[i%len(all)].was, all[i%len(all)].is)
		records[i] = *streamRecord(c)
	}
	c := newTestConsumer(b, nowhere, nil)
	b.ReportAllocs()
	cpu := processorTime(b)
	for b.Loop() {
		if _, err := c.handleStream(b.Context(), testStream, records); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(cpu()/float64(b.N)/1000, "cpu-ns/record")
}

// processorTime returns a clock of this process's own processor time in ns, which a busy machine does not spoil.
func processorTime(b *testing.B) func() float64 {
	b.Helper()
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	return func() float64 { return used() - began }
}

func streamItem(im Image) map[string]streamtypes.AttributeValue {
	if im == nil {
		return nil
	}
	item := map[string]streamtypes.AttributeValue{}
	for _, a := range im {
		item[a.Name] = streamAttribute(a.Value)
	}
	return item
}

func streamAttribute(v schema.Value) streamtypes.AttributeValue {
	switch v.Type {
	case schema.TypeString:
		return &streamtypes.AttributeValueMemberS{Value: v.Text}
	case schema.TypeNumber:
		return &streamtypes.AttributeValueMemberN{Value: v.Text}
	case schema.TypeBinary:
		return &streamtypes.AttributeValueMemberB{Value: v.Data}
	case schema.TypeBool:
		return &streamtypes.AttributeValueMemberBOOL{Value: v.Bool}
	case schema.TypeStringSet:
		return &streamtypes.AttributeValueMemberSS{Value: v.Set}
	case schema.TypeMap:
		m := map[string]streamtypes.AttributeValue{}
		for name, inner := range v.Map {
			m[name] = streamAttribute(inner)
		}
		return &streamtypes.AttributeValueMemberM{Value: m}
	case schema.TypeOther:
	}
	return &streamtypes.AttributeValueMemberNULL{Value: true}
}
