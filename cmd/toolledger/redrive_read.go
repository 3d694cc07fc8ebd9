package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"toolledger/streams/events"
)

// The bounds of reading: a Lambda batch has 6 MB, which are more as a JSON string.
const (
	maxRedriveValue  = 64 << 20
	maxRedriveFaults = 100 // of one file, before the rest of it is left
)

// piece is one thing to redrive: a stream record, or an event that is ready.
type piece struct {
	offset int64 // of the JSON value that holds it
	record json.RawMessage
	event  events.Event
}

// size is how many bytes the piece holds in memory.
func (p *piece) size() int {
	if u, ok := p.event.(*events.Unknown); ok {
		return len(u.Detail)
	}
	return len(p.record)
}

// redriveReader takes a file apart, value by value: no more than one is in memory.
type redriveReader struct {
	table string // records must be of this table, "" means any
	piece func(piece) error
	fault func(offset int64, rule string)

	src  io.Reader
	left int64 // bytes that may be read for the value at hand
	dec  *json.Decoder
	base int64 // offset of what dec reads
}

var errTooLarge = fmt.Errorf("it is larger than %d MB", maxRedriveValue>>20)

// Read bounds what one value may take.
func (r *redriveReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLarge
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// read hands on every piece of a file. What is none is a fault, and reading goes on in the next line. Errors: those of piece.
func (r *redriveReader) read(from io.Reader) error {
	buffered := bufio.NewReader(from)
	r.src = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(buffered)
		if err != nil {
			r.fault(0, "its compressed data cannot be read: "+err.Error())
			return nil //nolint:nilerr // the fault is reported, and reading goes on
		}
		r.src = unzip
	}
	r.dec = json.NewDecoder(r)
	values, faults := 0, 0
	for faults < maxRedriveFaults {
		r.left = maxRedriveValue
		r.dec.More() // moves to where the value begins
		at := r.base + r.dec.InputOffset()
		var value json.RawMessage
		err := r.dec.Decode(&value)
		switch {
		case errors.Is(err, io.EOF):
			if values == 0 {
				r.fault(at, "it is empty")
			}
			return nil
		case err == nil:
			values++
			if err := r.value(at, value); err != nil {
				return err
			}
			continue
		}
		values++
		faults++
		r.fault(at, readRule(err))
		if errors.Is(err, errTooLarge) || !r.nextLine(at) {
			return nil
		}
	}
	r.fault(r.base+r.dec.InputOffset(), "the rest is not read: too much of it is wrong")
	return nil
}

func readRule(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends in the middle of a JSON value"
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "it is not JSON: " + syntax.Error()
	}
	return "it cannot be read: " + err.Error()
}

// nextLine goes on behind the end of the line at which a broken value begins; false: there is none.
func (r *redriveReader) nextLine(at int64) bool {
	rest := bufio.NewReader(io.MultiReader(r.dec.Buffered(), r.src))
	skipped := int64(0)
	for {
		line, err := rest.ReadSlice('\n')
		skipped += int64(len(line))
		switch {
		case err == nil:
			r.src, r.base = rest, at+skipped
			r.dec = json.NewDecoder(r)
			return true
		case !errors.Is(err, bufio.ErrBufferFull):
			return false
		}
	}
}

// redriveValue is every form in which a record is kept, or an event.
type redriveValue struct {
	Records    *json.RawMessage `json:"Records"` // a Lambda batch
	Payload    *json.RawMessage `json:"payload"` // of a record in an S3 on-failure destination: the batch
	Info       *batchInfo       `json:"DDBStreamBatchInfo"`
	Request    *json.RawMessage `json:"requestContext"`
	Content    *json.RawMessage `json:"dynamodb"` // a stream record
	EventName  *json.RawMessage `json:"eventName"`
	Source     string           `json:"source"`      // an event, "" where it is kept as refused
	DetailType *string          `json:"detail-type"` // an event
	Detail     json.RawMessage  `json:"detail"`
}

type batchInfo struct {
	Shard string `json:"shardId"`
	First string `json:"startSequenceNumber"`
	Last  string `json:"endSequenceNumber"`
}

// value takes one JSON value apart.
func (r *redriveReader) value(at int64, value json.RawMessage) error {
	if list := bytes.TrimSpace(value); len(list) > 0 && list[0] == '[' {
		return r.list(at, list, r.value)
	}
	var v redriveValue
	if err := json.Unmarshal(value, &v); err != nil {
		r.fault(at, "it is no stream record, batch, failed invocation or event: "+kindOf(err))
		return nil
	}
	switch {
	case v.Payload != nil:
		return r.payload(at, *v.Payload)
	case v.Records != nil:
		return r.list(at, *v.Records, r.record)
	case v.Info != nil:
		r.fault(at, fmt.Sprintf("it names records %s to %s of shard %s and holds none: only S3 destinations hold them. "+
			"While the stream has them (24 hours) they can be read there; after that, rebuild", printable(v.Info.First), printable(v.Info.Last), printable(v.Info.Shard)))
		return nil
	case v.DetailType != nil:
		return r.event(at, &v)
	case v.Content != nil || v.EventName != nil:
		return r.record(at, value)
	case v.Request != nil:
		r.fault(at, "it is a failed invocation without payload and without DDBStreamBatchInfo: not one of a DynamoDB stream")
		return nil
	}
	r.fault(at, "it is no stream record, batch, failed invocation or event")
	return nil
}

// kindOf tells what json.Unmarshal found, without what it found.
func kindOf(err error) string {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if t.Field == "" {
			return "it is a JSON " + t.Value
		}
		return fmt.Sprintf("%s is a JSON %s", t.Field, strings.Fields(t.Value)[0])
	}
	return "it is not JSON"
}

// payload reads the batch of a failed invocation: a string that holds JSON, or the JSON itself.
func (r *redriveReader) payload(at int64, payload json.RawMessage) error {
	batch := []byte(payload)
	if len(batch) > 0 && batch[0] == '"' {
		var text string
		if err := json.Unmarshal(batch, &text); err != nil {
			r.fault(at, "payload is not JSON")
			return nil //nolint:nilerr // the fault is reported, and reading goes on
		}
		batch = []byte(text)
	}
	var v struct{ Records *json.RawMessage }
	if err := json.Unmarshal(batch, &v); err != nil || v.Records == nil {
		r.fault(at, "payload holds no Records: it is not the batch of a stream")
		return nil //nolint:nilerr // the fault is reported, and reading goes on
	}
	return r.list(at, *v.Records, r.record)
}

func (r *redriveReader) list(at int64, list json.RawMessage, each func(int64, json.RawMessage) error) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil || elements == nil {
		r.fault(at, "its Records are no list")
		return nil //nolint:nilerr // the fault is reported, and reading goes on
	}
	for _, e := range elements {
		if err := each(at, e); err != nil {
			return err
		}
	}
	return nil
}

// record hands on a stream record. What is inside is for the consumer to judge, except where it is from.
func (r *redriveReader) record(at int64, record json.RawMessage) error {
	var v struct {
		EventSource string           `json:"eventSource"`
		ARN         string           `json:"eventSourceARN"`
		Content     *json.RawMessage `json:"dynamodb"`
	}
	if len(record) == 0 || record[0] != '{' {
		r.fault(at, "a record is no JSON object")
		return nil
	}
	// A record that is broken inside is still one, and is kept as such.
	_ = json.Unmarshal(record, &v)
	switch table := tableOf(v.ARN); {
	case v.EventSource != "" && v.EventSource != "aws:dynamodb":
		r.fault(at, "a record is of "+printable(v.EventSource)+", not of a DynamoDB stream")
	case v.EventSource == "" && v.ARN == "" && v.Content == nil:
		r.fault(at, "a record is not of a DynamoDB stream")
	case r.table != "" && table != r.table && table != r.table+controlSuffix:
		r.fault(at, fmt.Sprintf("a record is of table %s, not of %s", printable(table), r.table))
	default:
		return r.piece(piece{offset: at, record: record})
	}
	return nil
}

// tableOf is the name of the table in the ARN of its stream.
func tableOf(stream string) string {
	_, rest, _ := strings.Cut(stream, ":table/")
	table, _, _ := strings.Cut(rest, "/")
	return table
}

// event hands on an event: one that the bus refused, as it is kept, or one in the envelope of EventBridge.
func (r *redriveReader) event(at int64, v *redriveValue) error {
	if v.Source != "" && v.Source != events.Source {
		r.fault(at, "it is an event of "+printable(v.Source)+", not of "+events.Source)
		return nil
	}
	ev, err := events.ParseDetail(*v.DetailType, v.Detail)
	if err != nil {
		rule := "its detail cannot be read"
		if p, ok := errors.AsType[*events.ParseError](err); ok && p.Err == nil {
			rule = p.Field + " is missing"
		}
		r.fault(at, "it is no event of "+events.Source+": "+rule)
		return nil
	}
	// Its bytes stay as they are, with what a newer program may have put into them.
	return r.piece(piece{offset: at, event: &events.Unknown{Header: ev.Head(), Type: ev.DetailType(), Detail: v.Detail}})
}
