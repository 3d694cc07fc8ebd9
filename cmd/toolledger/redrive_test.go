package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"toolledger/streams"
	"toolledger/streams/events"
)

// Promise: whatever a file holds, reading it ends without a panic, within the bound of faults, every fault lies within the
// file, and a record on the last line is found however broken the lines before are, unless the rest was given up aloud.
func FuzzRedriveReader(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[", "[[[[1]]]]", "\x1f\x8b\x08", `{"Records":[{"eventSource":"aws:dynamodb"}]}`, `{"payload":"{\"Records\":[]}"}`,
		`{"payload":"\ud800"}`, `{"detail-type":"X","detail":{"id":"1","schema":1}}`, "x\n{\n}\n", `{"Records":null}`, "\"a\nb\"", "\ufeff{}",
		`{"DDBStreamBatchInfo":{"shardId":"s"}}`, `{"eventName":7}`, "nul", "1e999", `{"Records":[{"dynamodb":`,
	} {
		f.Add([]byte(seed))
	}
	const last = `{"eventName":"INSERT","dynamodb":{"SequenceNumber":"4711"}}`
	f.Fuzz(func(t *testing.T, dirt []byte) {
		faults, found, gaveUp := 0, false, false
		size := int64(len(dirt) + 1 + len(last))
		zipped := bytes.HasPrefix(dirt, []byte{0x1f, 0x8b})
		r := redriveReader{
			piece: func(p piece) error {
				found = found || strings.Contains(string(p.record), "4711")
				if (p.record == nil) == (p.event == nil) {
					t.Errorf("%+v", p)
				}
				return nil
			},
			fault: func(offset int64, rule string) {
				faults++
				gaveUp = gaveUp || strings.Contains(rule, "the rest is not read")
				if rule == "" || offset < 0 || offset > size && !zipped {
					t.Errorf("%d of %d: %q", offset, size, rule)
				}
			},
		}
		if err := r.read(bytes.NewReader(append(append(bytes.Clone(dirt), '\n'), last...))); err != nil {
			t.Error(err)
		}
		if !found && !gaveUp && !zipped && faults == 0 {
			t.Errorf("the last record is lost without a word after %q", dirt)
		}
	})
}

// Promise: a value that is too large is a fault, and not memory.
func TestRedriveReaderBounds(t *testing.T) {
	var rules []string
	r := redriveReader{piece: func(piece) error { return nil }, fault: func(_ int64, rule string) { rules = append(rules, rule) }}
	endless := strings.NewReader(`{"a":"` + strings.Repeat("x", maxRedriveValue+1<<20))
	if err := r.read(endless); err != nil || len(rules) != 1 || !strings.Contains(rules[0], "larger than 64 MB") {
		t.Errorf("%v, %q", err, rules)
	}
	stop := errors.New("stop")
	r = redriveReader{piece: func(piece) error { return stop }, fault: func(int64, string) {}}
	if err := r.read(strings.NewReader(`{"eventName":"X","dynamodb":{}}`)); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Promise: what waits to be published is bounded by its bytes, be it records or events: a file of large events takes no more
// memory than one of large records.
func TestRedriveBoundsWhatWaits(t *testing.T) {
	var file bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&file, `{"detail-type":"Large","detail":{"id":"%d","schema":9,"x":"%s"}}`+"\n", i, strings.Repeat("x", 1<<20))
	}
	largest, total := 0, 0
	a := newApp(nil, io.Discard, io.Discard)
	d := &redriver{app: a, flags: &redriveFlags{}, result: &redriveResult{}, bar: a.progress("", 0), out: &outlet{
		next: streams.PublisherFunc(func(_ context.Context, evs []events.Event) (int, error) {
			largest, total = max(largest, len(evs)), total+len(evs)
			return len(evs), nil
		}),
	}}
	clean, err := d.read(t.Context(), "file", &file)
	d.bar.Done()
	if !clean || err != nil || total != 60 || largest > redriveBytes>>20 {
		t.Errorf("%v, %v: %d events, %d MB of them at a time", clean, err, total, largest)
	}
}

// Promise: a file cannot act on the terminal of whoever looks at its events: neither by the type of one that is not known, nor
// by the names or values of its fields.
func TestEventLineIsHarmless(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard)
	const evil = "\x1b]0;owned\x07\u202e\n\u009b31m"
	detail, err := json.Marshal(map[string]any{"id": "1", "schema": 9, "tenant": evil, "tool": evil, evil: 1, "a" + evil: evil, "b": []any{map[string]any{evil: evil}}})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := events.ParseDetail("New"+evil, detail)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.eventLine(ev, false); err != nil {
		t.Fatal(err)
	}
	line, _ := strings.CutSuffix(out.String(), "\n")
	if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) || !strings.Contains(line, "owned") {
		t.Errorf("%q", line)
	}
}
