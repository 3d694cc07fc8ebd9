package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"toolledger/internal/schema"
	"toolledger/metrics"
	streamevents "toolledger/streams/events"
)

// decoded reads a whole batch.
func decoded(batch string) (changes []Change, err error) {
	b, err := newBatchReader(batch)
	if err != nil {
		return nil, err
	}
	for c := b.next(); c != nil; c = b.next() {
		change := *c
		change.Old, change.New = slices.Clone(c.Old), slices.Clone(c.New)
		changes = append(changes, change)
	}
	return changes, b.err
}

// The decoder reads from a Lambda batch what a client of the stream reads from the stream: the same change, so the same events.
func TestDecodeEveryTransition(t *testing.T) {
	for _, tr := range transitions() {
		want := changeOf(tr.was, tr.is)
		b, err := newBatchReader(string(lambdaBatch(lambdaRecord(t, want))))
		if err != nil {
			t.Fatal(err)
		}
		c := *b.next()
		if c.Err != nil || b.next() != nil || b.err != nil {
			t.Fatalf("%s: %v, %v", tr.name, c.Err, b.err)
		}
		if c.Op != want.Op || c.Keys != want.Keys || c.Sequence != want.Sequence || !c.Time.Equal(want.Time) || c.Stream != want.Stream {
			t.Errorf("%s: got %+v", tr.name, c)
		}
		if (c.Old == nil) != (want.Old == nil) || (c.New == nil) != (want.New == nil) || !sameImage(c.Old, want.Old) || !sameImage(c.New, want.New) {
			t.Errorf("%s: images differ", tr.name)
		}
		if got := deriveTypes(t, c); !slices.Equal(got, tr.events) {
			t.Errorf("%s: got %v, want %v", tr.name, got, tr.events)
		}
	}
}

// One bad record is one bad record: the others of its batch are read, and it can still be reported by number and key.
func TestDecodeBadRecordKeepsNumberAndKeys(t *testing.T) {
	good := lambdaRecord(t, changeOf(nil, pendingRow()))
	replace := func(old, with string) string {
		bad := strings.Replace(good, old, with, 1)
		if bad == good {
			t.Fatalf("%s does not occur", old)
		}
		return bad
	}
	for name, record := range map[string]string{
		"no type tag":          replace(`"state":{"S":"pending"}`, `"state":{}`),
		"null for a value":     replace(`"state":{"S":"pending"}`, `"state":null`),
		"unknown type tag":     replace(`"state":{"S":"pending"}`, `"state":{"XX":"pending"}`),
		"two type tags":        replace(`"state":{"S":"pending"}`, `"state":{"S":"pending","N":"1"}`),
		"text for a value":     replace(`"state":{"S":"pending"}`, `"state":"pending"`),
		"number for a string":  replace(`"state":{"S":"pending"}`, `"state":{"S":7}`),
		"bad base64":           replace(`"argHashes":{"B":"`, `"argHashes":{"B":"*`),
		"bad boolean":          replace(`"state":{"S":"pending"}`, `"state":{"BOOL":"yes"}`),
		"bad escape":           replace(`"state":{"S":"pending"}`, `"state":{"S":"\q"}`),
		"half an escape":       replace(`"state":{"S":"pending"}`, `"state":{"S":"\u12"}`),
		"control character":    replace(`"state":{"S":"pending"}`, "\"state\":{\"S\":\"pen\nding\"}"),
		"image is a list":      replace(`"NewImage":{`, `"NewImage":[{}],"Other":{`),
		"too deep":             replace(`"state":{"S":"pending"}`, `"state":`+strings.Repeat(`{"M":{"a":`, 40)+`{"S":"x"}`+strings.Repeat(`}}`, 40)),
		"operation is no text": replace(`"eventName":"INSERT"`, `"eventName":1`),
		"time is no number":    replace(`"ApproximateCreationDateTime":`, `"ApproximateCreationDateTime":"x","Other":`),
	} {
		t.Run(name, func(t *testing.T) {
			changes, err := decoded(string(lambdaBatch(good, record, good)))
			if err != nil || len(changes) != 3 {
				t.Fatalf("got %d records, %v", len(changes), err)
			}
			c := changes[1]
			if _, ok := errors.AsType[*UnreadableError](c.Err); !ok || c.text != record {
				t.Errorf("got %v", c.Err)
			}
			if c.Sequence != "4711" || c.Keys != pendingRow().Key || c.Stream == "" {
				t.Errorf("got number %q, keys %v", c.Sequence, c.Keys)
			}
			if c.Op == "" && name != "operation is no text" || c.Time.IsZero() && name != "time is no number" {
				t.Errorf("got operation %q, time %v", c.Op, c.Time)
			}
			if c.Err != nil && strings.Contains(c.Err.Error(), "pending") {
				t.Errorf("the error holds the value: %v", c.Err)
			}
			if changes[0].Err != nil || changes[2].Err != nil {
				t.Errorf("its neighbours: %v, %v", changes[0].Err, changes[2].Err)
			}
		})
	}
}

// What is no batch is an error, never an empty batch: Lambda would take the silence for success.
func TestBatchRefused(t *testing.T) {
	for _, batch := range []string{
		``, `null`, `[]`, `{}`, `{"records":[]}`, `{"Records":null}`, `{"Records":{}}`, `{"Records":[}`, `{"Records":[{}`,
		`{"Records":[{}]`, `{"Records":[{}]} x`, `{"Records":[{"a":"]}`, `{"Records":[,]}`, `{"Records":[],"Records":[{}]}`, `{"Records":[{}],}`, `{"Records":[{} {}]}`, `"Records"`,
	} {
		if changes, err := decoded(batch); err == nil {
			t.Errorf("%s: %d records and no error", batch, len(changes))
		} else if _, ok := errors.AsType[*BatchError](err); !ok {
			t.Errorf("%s: %v", batch, err)
		}
	}
	records, err := decoded(` { "other" : {"Records":[1]} , "Records" : [ ] } `)
	if err != nil || len(records) != 0 {
		t.Errorf("got %v, %v", records, err)
	}
}

// Strings are decoded as encoding/json decodes them.
func TestScannerText(t *testing.T) {
	for _, text := range []string{
		`""`, `"plain"`, `"\"\\\/\b\f\n\r\t"`, `"\u00e9\ud83d\ude00x"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"a\\"`, `"\\\\\""`, `"Zürich 東京"`,
	} {
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		sc := scanner{s: text + `,`}
		got, err := sc.text()
		if err != nil || got != want || sc.pos != len(text) {
			t.Errorf("%s: got %q, %v at %d; want %q", text, got, err, sc.pos, want)
		}
		sc = scanner{s: text + `,`}
		if skipped, err := sc.skip(); err != nil || skipped != text {
			t.Errorf("%s: skipped %q, %v", text, skipped, err)
		}
	}
}

// Sequence numbers are compared as numbers: as text, "9" is above "10".
func TestCompareSequence(t *testing.T) {
	order := []string{"", "0", "1", "9", "10", "99", "100", "099999", "100000000000000000000000000000000000001"}
	for i, a := range order {
		for j, b := range order {
			want := i - j
			if min(i, j) == 0 && max(i, j) == 1 {
				want = 0 // nothing and zero are both below every number
			}
			if got := compareSequence(a, b); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("%q, %q: got %d", a, b, got)
			}
		}
	}
}

// Whatever bytes come: no panic; a record is read or said to be unreadable, and none is lost, by the decoder or the consumer;
// what was read can be written and reads the same; Derive gives events that fit their schemas, nothing, or an error.
func FuzzDecode(f *testing.F) {
	var all []string
	for _, tr := range transitions() {
		record := lambdaRecord(f, changeOf(tr.was, tr.is))
		all = append(all, record)
		f.Add([]byte(lambdaBatch(record)))
	}
	f.Add([]byte(lambdaBatch(all[:3]...)))
	f.Add([]byte(lambdaBatch(all[0], `{"eventName":"INSERT"}`, all[1])))
	f.Add([]byte(strings.Replace(string(lambdaBatch(all[0])), `"S":"pending"`, `"S":"p\u00e9nd\ud83d\ude00\n"`, 1)))
	f.Add([]byte(`{"Records":[{"eventName":"MODIFY","dynamodb":{"Keys":{"pk":{"S":"TENANT#a"},"sk":{"S":"QUOTA#2026-11"}},"NewImage":{"a":{"L":[]}},"OldImage":{}}}]}`))
	f.Add([]byte(`{"Records":[{},null,7,"x",[]]}`))
	f.Add([]byte(`{"x":{"Records":[1]},"\u0052ecords":[{}],"y":[]}`))
	f.Fuzz(func(t *testing.T, batch []byte) {
		want, isBatch := recordsIn(batch)
		b, err := newBatchReader(string(batch))
		if err != nil {
			if isBatch {
				t.Fatalf("a batch of %d records is refused: %v", want, err)
			}
			return
		}
		records, unreadable := 0, 0
		for c := b.next(); c != nil; c = b.next() {
			records++
			if c.Err == nil && utf8.Valid(batch) {
				readsTheSame(t, c)
			}
			if !derives(t, *c) {
				unreadable++
			}
		}
		if isBatch && (b.err != nil || records != want) {
			t.Fatalf("%d records, encoding/json finds %d: %v", records, want, b.err)
		}
		consumed(t, batch, b.err, records, unreadable)
	})
}

// recordsIn counts the records of a batch with encoding/json; false: it is no batch, or has several lists of them.
func recordsIn(batch []byte) (n int, isBatch bool) {
	var members map[string]json.RawMessage
	var records []json.RawMessage
	if json.Unmarshal(batch, &members) != nil || json.Unmarshal(members["Records"], &records) != nil || records == nil {
		return 0, false
	}
	names := json.NewDecoder(bytes.NewReader(batch))
	lists := 0
	_, _ = names.Token()
	for names.More() {
		var value json.RawMessage
		if name, _ := names.Token(); name == "Records" {
			lists++
		}
		if names.Decode(&value) != nil {
			return 0, false
		}
	}
	return len(records), lists == 1
}

// derives tells whether a change can be understood.
func derives(t *testing.T, c Change) bool {
	t.Helper()
	evs, data, err := derived(t, c)
	if _, ok := errors.AsType[*UnreadableError](err); err != nil && (!ok || evs != nil || data != nil) {
		t.Fatalf("got %v, %v, %v", evs, data, err)
	}
	return err == nil
}

// readsTheSame writes a change as Lambda does and reads it again, and reads again what it was read from.
func readsTheSame(t *testing.T, c *Change) {
	t.Helper()
	texts := []string{c.text}
	if ours(c.Old) && ours(c.New) {
		texts = append(texts, lambdaRecord(t, *c))
	}
	for _, text := range texts {
		changes, err := decoded(string(lambdaBatch(text)))
		if err != nil || len(changes) != 1 || changes[0].Err != nil {
			t.Fatalf("%s: %d changes, %v", text, len(changes), err)
		}
		again := changes[0]
		if again.Op != c.Op || again.Keys != c.Keys || again.Sequence != c.Sequence || again.TTL != c.TTL || again.Stream != c.Stream ||
			again.Time.Sub(c.Time).Abs() > time.Millisecond { // the encoder writes a fraction
			t.Fatalf("%s: got %+v, want %+v", text, again, *c)
		}
		if ours(c.Old) && ours(c.New) && (!sameImage(again.Old, c.Old) || !sameImage(again.New, c.New) ||
			(again.Old == nil) != (c.Old == nil) || (again.New == nil) != (c.New == nil)) {
			t.Fatalf("%s: the images differ", text)
		}
	}
}

// ours tells whether an image has each attribute once, and only of types that items of ours have, which alone are kept
// exactly.
func ours(im Image) bool {
	seen := map[string]bool{}
	for _, a := range im {
		if seen[a.Name] || a.Value.Type == schema.TypeOther || !oursInside(a.Value.Map) {
			return false
		}
		seen[a.Name] = true
	}
	return true
}

func oursInside(m map[string]schema.Value) bool {
	for _, v := range m {
		if v.Type == schema.TypeOther || !oursInside(v.Map) {
			return false
		}
	}
	return true
}

// consumed hands the batch to a consumer: every record is published or kept, none is reported.
func consumed(t *testing.T, batch []byte, broken error, records, unreadable int) {
	t.Helper()
	kept, count := 0, &sums{}
	c := newTestConsumer(t, &Collector{}, count, func(cfg *ConsumerConfig) {
		cfg.Unreadable = func(_ context.Context, record []byte) error {
			kept++
			if utf8.Valid(record) && !json.Valid(lambdaBatch(string(record))) && json.Valid(batch) {
				t.Errorf("kept as %s", record)
			}
			return nil
		}
	})
	answer, err := c.HandleBatch(t.Context(), batch)
	if (err != nil) != (broken != nil) {
		t.Fatalf("read with %v, consumed with %v", broken, err)
	}
	if err != nil {
		return
	}
	if len(failures(t, answer)) != 0 || kept != unreadable || count.of(metrics.RecordsProcessed) != float64(records) {
		t.Fatalf("%d records, %d of them unreadable: answer %s, %d kept, %v processed",
			records, unreadable, answer, kept, count.of(metrics.RecordsProcessed))
	}
}

// FuzzDerive changes rows as no writer would: each pair of images gives events or an error, the same ones every time.
func FuzzDerive(f *testing.F) {
	f.Add("state", "applied", "version", "2", "expiresAt", "1", uint8(0))
	f.Add("granted", "9223372036854775807", "remaining", "-9223372036854775808", "version", "7", uint8(1))
	f.Add("duplicates", "9007199254740992", "inFlight", "1", "quotaDenials", "3", uint8(2))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string, kind uint8) {
		was, is := fuzzImages(kind)
		for i, edit := range [][2]string{{n1, v1}, {n2, v2}, {n3, v3}} {
			v := schema.Value{Type: schema.TypeString, Text: edit[1]}
			if strings.Trim(edit[1], "-0123456789") == "" {
				v.Type = schema.TypeNumber
			}
			if i%2 == 0 {
				is = append(is, Attr{Name: edit[0], Value: v})
			} else {
				was = append(was, Attr{Name: edit[0], Value: v})
			}
		}
		c := Change{Op: OpModify, Old: was, New: is, Sequence: "1", Time: t0}
		for _, a := range is {
			if a.Name == schema.PK {
				c.Keys.PK = a.Value.Text
			}
			if a.Name == schema.SK {
				c.Keys.SK = a.Value.Text
			}
		}
		first, _, err := derived(t, c)
		second, _, again := derived(t, c)
		if !reflect.DeepEqual(first, second) || fmt.Sprint(err) != fmt.Sprint(again) {
			t.Fatalf("one change, two readings: %v %v, %v %v", first, err, second, again)
		}
	})
}

func fuzzImages(kind uint8) (was, is Image) {
	switch kind % 4 {
	case 1:
		q := quotaItem(1000, 500)
		return ImageOf(q.Item()), ImageOf(q.Item())
	case 2:
		o := observationItem(3)
		return o, observationItem(4)
	case 3:
		p := planItem(1000)
		return ImageOf(p.Item()), ImageOf(p.Item())
	}
	return ImageOf(pendingRow().Item()), ImageOf(next(pendingRow(), finalize(20)).Item())
}

// BenchmarkDecodeDerive measures decoding and deriving a batch of 1,000 records, per record, against the types of
// aws-lambda-go with encoding/json in the same run.
func BenchmarkDecodeDerive(b *testing.B) {
	var records []string
	all := transitions()
	for i := range 1000 {
		tr := all[i%len(all)]
		records = append(records, lambdaRecord(b, changeOf(tr.was, tr.is)))
	}
	batch := lambdaBatch(records...)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, err := newBatchReader(string(batch))
			if err != nil {
				b.Fatal(err)
			}
			var v deriver
			var evs []streamevents.Event
			for c := r.next(); c != nil; c = r.next() {
				if evs, err = v.derive(evs[:0], c); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
	})
	b.Run("lambda-types", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var ev events.DynamoDBEvent
			if err := json.Unmarshal(batch, &ev); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
	})
}

// Who removed an item is read in both spellings of its names, and only where both values are there, however often a
// member is repeated; a null is as good as a missing member.
func TestDecodeIdentityAndNulls(t *testing.T) {
	record := lambdaRecord(t, changeOf(nil, pendingRow()))
	with := func(members string) Change {
		changes, err := decoded(string(lambdaBatch(strings.Replace(record, `{`, `{`+members+`,`, 1))))
		if err != nil || len(changes) != 1 {
			t.Fatalf("%s: %v", members, err)
		}
		return changes[0]
	}
	for identity, want := range map[string]bool{
		`{"type":"Service","principalId":"dynamodb.amazonaws.com"}`: true,
		`{"PrincipalId":"dynamodb.amazonaws.com","Type":"Service"}`: true,
		`{"type":"Service","principalId":"ecs.amazonaws.com"}`:      false,
		`{"type":"AWS","principalId":"dynamodb.amazonaws.com"}`:     false,
		`{"type":"Service","type":"Service"}`:                       false,
		`{"type":"Service"}`:                                        false,
		`{}`:                                                        false,
		`null`:                                                      false,
	} {
		if c := with(`"userIdentity":` + identity); c.Err != nil || c.TTL != want {
			t.Errorf("%s: got %v, %v", identity, c.TTL, c.Err)
		}
	}
	for member, old := range map[string]string{
		"SequenceNumber": `"SequenceNumber":"4711"`, "ApproximateCreationDateTime": fmt.Sprintf(`"ApproximateCreationDateTime":%d`, changeOf(nil, pendingRow()).Time.Unix()),
	} {
		changed := strings.Replace(record, old, `"`+member+`":null`, 1)
		changes, err := decoded(string(lambdaBatch(changed)))
		if err != nil || changed == record || changes[0].Err != nil {
			t.Errorf("%s: got %+v, %v", member, changes, err)
		}
	}
}
