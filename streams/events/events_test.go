package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func envelopeOf(t testing.TB, ev Event) []byte {
	t.Helper()
	detail, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	env, err := json.Marshal(map[string]any{
		"version": "0", "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718", "detail-type": ev.DetailType(), "source": Source,
		"account": "111122223333", "time": "2026-11-30T18:30:15Z", "region": "eu-central-1", "resources": []string{},
		"detail": json.RawMessage(detail),
	})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// What is published comes back from Parse as it was, for every type; a type that the switch forgets would come as Unknown.
func TestParseReturnsWhatWasPublished(t *testing.T) {
	seen := map[string]bool{}
	for _, want := range All() {
		name := want.DetailType()
		if seen[name] {
			t.Errorf("%s has two examples", name)
		}
		seen[name] = true
		if got := reflect.TypeOf(want).Elem().Name(); got != name {
			t.Errorf("type %s is published as %s", got, name)
		}
		got, err := Parse(envelopeOf(t, want))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if len(seen) != 23 {
		t.Errorf("%d types have an example, want 23", len(seen))
	}
}

// A subscriber that is older than the publisher gets Unknown with what it can still use, and can pass it on unchanged.
func TestParseNewerThanThisPackage(t *testing.T) {
	for name, env := range map[string]string{
		"new type":   `{"source":"toolledger","detail-type":"ToolCallDreamt","detail":{"id":"i","schema":1,"tenant":"t","dream":1}}`,
		"new schema": `{"source":"toolledger","detail-type":"QuotaLow","detail":{"id":"i","schema":2,"tenant":"t","percent":"5 %"}}`,
	} {
		ev, err := Parse([]byte(env))
		u, ok := ev.(*Unknown)
		if err != nil || !ok {
			t.Fatalf("%s: got %T, %v", name, ev, err)
		}
		if u.Head().ID != "i" || u.Tenant != "t" {
			t.Errorf("%s: header %+v", name, u.Header)
		}
		again, err := json.Marshal(u)
		if err != nil || !strings.Contains(env, string(again)) {
			t.Errorf("%s: passed on as %s, %v", name, again, err)
		}
	}
	// New fields of a known type are passed over.
	ev, err := Parse([]byte(`{"source":"toolledger","detail-type":"QuotaLow","detail":{"id":"i","schema":1,"percent":5,"hue":"red"}}`))
	if low, ok := ev.(*QuotaLow); err != nil || !ok || low.Percent != 5 {
		t.Errorf("got %T, %v", ev, err)
	}
}

// What is no event of ours is refused with what and where, never taken for an empty event.
func TestParseRefuses(t *testing.T) {
	for env, field := range map[string]string{
		``:                        "envelope",
		`[]`:                      "envelope",
		`{`:                       "envelope",
		`null`:                    "source",
		`{}`:                      "source",
		`"abc"`:                   "envelope",
		`{"source":"toolledger"}`: "detail-type",
		`{"source":"toolledger","detail-type":"QuotaLow"}`:                                             "detail",
		`{"source":"toolledger","detail-type":"QuotaLow","detail":null}`:                               "detail",
		`{"source":"toolledger","detail-type":"QuotaLow","detail":"x"}`:                                "detail",
		`{"source":"toolledger","detail-type":"QuotaLow","detail":{}}`:                                 "detail.id",
		`{"source":"toolledger","detail-type":"QuotaLow","detail":{"id":"i"}}`:                         "detail.schema",
		`{"source":"toolledger","detail-type":"QuotaLow","detail":{"id":"i","schema":1,"percent":""}}`: "detail",
	} {
		ev, err := Parse([]byte(env))
		p, ok := errors.AsType[*ParseError](err)
		if !ok || p.Field != field || ev != nil {
			t.Errorf("%s: got %v, %v; want a ParseError of %s", env, ev, err, field)
		}
	}
	if _, err := Parse([]byte(`{"source":"aws.s3","detail-type":"x","detail":{}}`)); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
}

// Ids depend on type, entity and version, each kept apart from the others.
func TestIDTellsEventsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, typ := range []string{"A", "AB", ""} {
		for _, entity := range []string{"x", "Bx", "x\x001", strings.Repeat("x", 300)} {
			for _, version := range []int64{0, 1, 11, -1} {
				id := ID(typ, entity, version)
				if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
					t.Fatalf("id %q", id)
				}
				if seen[id] {
					t.Errorf("%q %q %d: id occurs twice", typ, entity, version)
				}
				seen[id] = true
			}
		}
	}
	if a, b := ID("T", "e", 1), ID("T", "e", 1); a != b {
		t.Error("one event has two ids")
	}
}

// Any bytes give an event or an error.
func FuzzParse(f *testing.F) {
	for _, ev := range All() {
		f.Add(envelopeOf(f, ev))
	}
	f.Add([]byte(`{"source":"toolledger","detail-type":"New","detail":{"id":"i","schema":9}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := Parse(b)
		if (ev == nil) == (err == nil) {
			t.Fatalf("got %v, %v", ev, err)
		}
		if err == nil && (ev.DetailType() == "" || ev.Head().ID == "") {
			t.Fatalf("an event without type or id: %+v", ev)
		}
	})
}
