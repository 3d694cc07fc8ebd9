package stepfn_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"toolledger/tests/rig"
	"toolledger/writers"
	"toolledger/writers/api"
	"toolledger/writers/writerstest"
)

//go:embed statemachine.asl.json
var stateMachine []byte

// machine runs as much of the Amazon States Language as statemachine.asl.json uses.
type machine struct {
	t      *testing.T
	states map[string]state
	tasks  map[string]func(context.Context, json.RawMessage) (json.RawMessage, error)
	waits  func(seconds float64)
	trail  []string
}

type state struct {
	Type, Resource, Next, Default, ResultPath, Error string
	Seconds                                          float64
	Parameters                                       map[string]any
	Retry                                            []struct {
		ErrorEquals []string
		MaxAttempts int
	}
	Choices []struct {
		Variable, StringEquals, Next string
		IsPresent                    *bool
	}
}

// run goes from state to state; the error is that of a Fail state or of a task that no Retry mends.
func (m *machine) run(input map[string]any) error {
	name := "Reserve"
	for range 50 {
		m.trail = append(m.trail, name)
		s, ok := m.states[name]
		if !ok {
			m.t.Fatalf("no state %q", name)
		}
		switch s.Type {
		case "Task":
			out, err := m.task(s, input)
			if err != nil {
				return err
			}
			input[strings.TrimPrefix(s.ResultPath, "$.")] = out
			name = s.Next
		case "Choice":
			name = s.Default
			for _, c := range s.Choices {
				v, there := at(input, c.Variable)
				if c.IsPresent != nil && there == *c.IsPresent || c.StringEquals != "" && v == c.StringEquals {
					name = c.Next
					break
				}
			}
		case "Wait":
			m.waits(s.Seconds)
			name = s.Next
		case "Succeed":
			return nil
		case "Fail":
			return errors.New(s.Error)
		default:
			m.t.Fatalf("state %q is a %q", name, s.Type)
		}
	}
	m.t.Fatalf("the machine does not end: %q", m.trail)
	return nil
}

func at(input map[string]any, path string) (any, bool) {
	var v any = input
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "$."), ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[part]; !ok {
			return nil, false
		}
	}
	return v, true
}

// task invokes the function, again where a Retry names the error.
func (m *machine) task(s state, input map[string]any) (any, error) {
	event := map[string]any{}
	for name, v := range s.Parameters {
		if plain, ok := strings.CutSuffix(name, ".$"); ok {
			path, _ := v.(string)
			if event[plain], ok = at(input, path); !ok {
				m.t.Fatalf("%s: nothing at %s", s.Resource, path)
			}
			continue
		}
		event[name] = v
	}
	text, err := json.Marshal(event)
	if err != nil {
		m.t.Fatal(err)
	}
	for tries := 0; ; tries++ {
		raw, err := m.tasks[s.Resource](m.t.Context(), text)
		var out any
		if err == nil {
			err = json.Unmarshal(raw, &out)
			return out, err
		}
		retry := slices.IndexFunc(s.Retry, func(r struct {
			ErrorEquals []string
			MaxAttempts int
		},
		) bool {
			return slices.Contains(r.ErrorEquals, lambdaError(err)) && tries < r.MaxAttempts
		})
		if retry < 0 {
			return nil, err
		}
	}
}

// transportError is an error by which Step Functions cannot tell whether the function ran.
type transportError string

func (e transportError) Error() string { return string(e) }

// lambdaError is the name that Step Functions gives to an error of a function: that of its type, as aws-lambda-go reports it.
func lambdaError(err error) string {
	if t, ok := errors.AsType[transportError](err); ok {
		return string(t)
	}
	name := fmt.Sprintf("%T", err)
	return name[strings.LastIndex(name, ".")+1:]
}

// hall is a machine on a ledger whose function meets the given errors before and after it runs, in turns.
type hall struct {
	*rig.Rig
	*machine
	renders map[string]int
	meets   []string // "" for nothing, a name for an error before, "+" and a name for one after the function ran
	calls   int
}

func newHall(t *testing.T, meets ...string) *hall {
	t.Helper()
	h := &hall{Rig: rig.New(t), renders: map[string]int{}, meets: meets}
	h.machine = &machine{t: t, waits: func(float64) {}}
	var doc struct{ States map[string]state }
	if err := json.Unmarshal(stateMachine, &doc); err != nil {
		t.Fatal(err)
	}
	h.states = doc.States
	ledger := api.Direct(h.Ledger)
	h.tasks = map[string]func(context.Context, json.RawMessage) (json.RawMessage, error){
		"${LedgerFunction}": func(ctx context.Context, e json.RawMessage) (json.RawMessage, error) {
			what := ""
			if h.calls < len(h.meets) {
				what = h.meets[h.calls]
			}
			h.calls++
			after, late := strings.CutPrefix(what, "+")
			if what != "" && !late {
				return nil, transportError(what)
			}
			out, err := ledger(ctx, e)
			if late {
				return nil, transportError(after)
			}
			return out, err
		},
		"${RenderFunction}": func(_ context.Context, e json.RawMessage) (json.RawMessage, error) {
			var in struct {
				EffectKey string `json:"effect_key"`
			}
			if err := json.Unmarshal(e, &in); err != nil {
				return nil, err
			}
			h.renders[in.EffectKey]++
			return json.RawMessage(`{"result":{"url":"v1"},"tokens":300}`), nil
		},
	}
	return h
}

func start(key string) map[string]any {
	return map[string]any{"tenant": "acme", "session": "wf-1", "key": key, "args": map[string]any{"clip": "a"}}
}

// TestHC76TransportErrors: errors by which Step Functions cannot tell whether the function ran are retried with the same key,
// wherever they come: the video is rendered and paid once.
func TestHC76TransportErrors(t *testing.T) {
	for _, meets := range [][]string{
		{},
		{"Lambda.ServiceException", "Lambda.TooManyRequestsException"},
		{"", "+Lambda.Unknown", "+Lambda.ClientExecutionTimeoutException", ""},
		{"", "Lambda.SdkClientException", "+Lambda.Unknown"},
	} {
		h := newHall(t, meets...)
		if err := h.run(start("render")); err != nil {
			t.Fatalf("%q: %v by %q", meets, err, h.trail)
		}
		if h.calls != 2+len(slices.DeleteFunc(slices.Clone(meets), func(s string) bool { return s == "" })) {
			t.Errorf("%q: %d calls", meets, h.calls)
		}
		if total := sum(h.renders); total != 1 || h.Remaining("acme") != 700 {
			t.Errorf("%q: %d videos, %d tokens left", meets, total, h.Remaining("acme"))
		}
		if err := h.run(start("render")); err != nil || sum(h.renders) != 1 { // the workflow is started again
			t.Errorf("%q: again: %v", meets, err)
		}
		writerstest.Balanced(t, h.Ledger)
	}
}

func sum(m map[string]int) (n int) {
	for v := range maps.Values(m) {
		n += v
	}
	return n
}

// TestHC76BusinessErrors: a refusal is an answer to branch on, and is asked for once.
func TestHC76BusinessErrors(t *testing.T) {
	h := newHall(t)
	h.Plan("acme", writers.Plan{Tokens: 100})
	if err := h.run(start("render")); err == nil || err.Error() != "NotDone" || h.calls != 1 || sum(h.renders) != 0 {
		t.Fatalf("%v after %d calls, %d videos", err, h.calls, sum(h.renders))
	}
	bad := newHall(t)
	input := start("render")
	input["tenant"] = ""
	if err := bad.run(input); err == nil || bad.calls != 1 {
		t.Fatalf("%v after %d calls", err, bad.calls)
	}
}

// TestLostReserve: where the reserve took effect and its answer was lost, the next try finds the workflow's own reservation in
// progress. The machine waits instead of rendering at once; after the lease it takes over, which is harmless to a renderer
// that knows the effect key.
func TestLostReserve(t *testing.T) {
	h := newHall(t, "+Lambda.Unknown")
	waited := 0
	h.waits = func(seconds float64) {
		if waited++; seconds != 60 || sum(h.renders) != 0 {
			t.Errorf("waited %v seconds, %d videos", seconds, sum(h.renders))
		}
		if waited == 3 {
			h.Advance(3 * time.Hour)
		}
	}
	if err := h.run(start("render")); err != nil || waited != 3 || sum(h.renders) != 1 || h.Remaining("acme") != 700 {
		t.Fatalf("%v, waited %d times, %d videos, %d tokens left", err, waited, sum(h.renders), h.Remaining("acme"))
	}
	writerstest.Balanced(t, h.Ledger)
}
