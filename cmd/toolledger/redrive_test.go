package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
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
