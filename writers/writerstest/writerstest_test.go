package writerstest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolledger/writers"
	"toolledger/writers/writerstest"
)

// outside is a system that creates tickets; with keys it creates one per effect key, without it creates one per request.
type outside struct {
	mu      sync.Mutex
	keys    bool
	tickets []string
	byKey   map[string]string
	byTitle map[string]string
}

func newOutside(keys bool) *outside {
	return &outside{keys: keys, byKey: map[string]string{}, byTitle: map[string]string{}}
}

func (o *outside) create(key, title string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id, ok := o.byKey[key]; ok && o.keys {
		return id
	}
	id := fmt.Sprint("T-", len(o.tickets))
	o.tickets = append(o.tickets, id)
	o.byKey[key], o.byTitle[title] = id, id
	return id
}

func (o *outside) find(title string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, ok := o.byTitle[title]
	return id, ok
}

func (o *outside) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.tickets)
}

type args struct {
	Title string `json:"title"`
}

func create(o *outside) func(context.Context, writers.Attempt[args]) (string, error) {
	return func(_ context.Context, a writers.Attempt[args]) (string, error) {
		return o.create(a.EffectKey, a.Args.Title), nil
	}
}

func round(n int) args { return args{fmt.Sprint("ticket ", n)} }

// A tool that can verify acts once although the outside system knows no keys.
func TestExactlyOnceWithVerify(t *testing.T) {
	o := newOutside(false)
	writerstest.ExactlyOnce(t, &writers.Tool[args, string]{
		Name: "create_ticket", Cost: 3, Act: create(o), Lookup: func(a args) string { return a.Title },
		Verify: func(_ context.Context, c writers.CallInfo) (string, writers.Verdict, error) {
			if id, ok := o.find(c.Lookup); ok {
				return id, writers.EffectApplied, nil
			}
			return "", writers.EffectAbsent, nil
		},
	}, round, o.count)
}

// A tool whose outside system honours keys may simply be repeated.
func TestExactlyOnceWithKeys(t *testing.T) {
	o := newOutside(true)
	writerstest.ExactlyOnce(t, &writers.Tool[args, string]{Name: "create_ticket", Cost: 3, Act: create(o), Idempotent: true}, round, o.count)
}

// recorder is a testing.TB that notes failures instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (r *recorder) Errorf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

func (r *recorder) Failed() bool { return len(r.errors) > 0 }

// The test can fail: a tool that claims to be idempotent and is not acts twice, and its verify that always says "absent"
// too; both are reported with the crash point.
func TestExactlyOnceNoticesALie(t *testing.T) {
	for name, tool := range map[string]func(*outside) *writers.Tool[args, string]{
		"idempotent": func(o *outside) *writers.Tool[args, string] {
			return &writers.Tool[args, string]{Name: "create_ticket", Cost: 3, Act: create(o), Idempotent: true}
		},
		"verify": func(o *outside) *writers.Tool[args, string] {
			return &writers.Tool[args, string]{
				Name: "create_ticket", Cost: 3, Act: create(o),
				Verify: func(context.Context, writers.CallInfo) (string, writers.Verdict, error) {
					return "", writers.EffectAbsent, nil
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(false)
			r := &recorder{TB: t}
			writerstest.ExactlyOnce(r, tool(o), round, o.count)
			if !strings.Contains(strings.Join(r.errors, "\n"), "dies between Act and finalize: 2 effects") {
				t.Errorf("the lie was not noticed: %q", r.errors)
			}
		})
	}
}
