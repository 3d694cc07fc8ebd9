package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolledger/streams/events"
	"toolledger/sweeper"
)

// devReady is the first line that dev --json prints.
type devReady struct {
	HTTP     string `json:"http"`
	DynamoDB string `json:"dynamodb,omitempty"` // absent for AWS itself
	Region   string `json:"region"`
	Table    string `json:"table"`
	Control  string `json:"control_table"`
}

// devEvent is one further line: the envelope in which EventBridge delivers the event, as far as it is ours.
type devEvent struct {
	Source     string       `json:"source"`
	DetailType string       `json:"detail-type"`
	Detail     events.Event `json:"detail"`
}

// devShow prints what happens. It is the publisher of dev's consumer.
type devShow struct {
	app *app
	mu  sync.Mutex // one line at a time
}

// ready says where everything is and, to a person, what to try.
func (s *devShow) ready(d *devSystem) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	base := "http://" + d.listener.Addr().String()
	if s.app.json {
		return s.app.printJSON(devReady{base, d.place.endpoint, d.place.region, d.place.table, d.place.control})
	}
	kept := ""
	if d.place.server != nil {
		kept = ", in memory"
		if d.flags.data != "" {
			kept = ", kept in " + d.flags.data
		}
	}
	s.app.print(`toolledger is running. Ctrl-C stops it.

  HTTP      %s   (whom you are: header X-Tenant-Id; what there is: /openapi.yaml)
  DynamoDB  %s%s   (tables %s and %s)
  tenant    %s has a plan

Commit, and again: the second time is a replay. Reserve, act, and finalize with the row_id of the answer:

  %s
  %s
  %s
  %s

For programs of your own, and the examples:

  export %s

Events:
`, base, d.place, kept, d.place.table, d.place.control, d.flags.tenant,
		curl(base, d.flags.tenant, "commit", `{"session":"s1","key":"note-1","tool":"note","args":{"text":"hello"},"tokens":1,"result":"noted"}`),
		curl(base, d.flags.tenant, "reserve", `{"session":"s1","key":"pr-1","tool":"open_pr","args":{"branch":"fix"},"tokens":20}`),
		curl(base, d.flags.tenant, "finalize", `{"session":"s1","key":"pr-1","row_id":"…","attempt":1,"result":{"number":1}}`),
		fmt.Sprintf("curl -H 'X-Tenant-Id: %s' %s/v1/quota", d.flags.tenant, base),
		strings.Join(d.environment(), " "))
	return nil
}

func curl(base, tenant, op, body string) string {
	return fmt.Sprintf("curl -H 'X-Tenant-Id: %s' %s/v1/%s -d '%s'", tenant, base, op, body)
}

// Publish prints events, one on a line.
func (s *devShow) Publish(_ context.Context, evs []events.Event) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ev := range evs {
		if err := s.event(ev); err != nil {
			return i, err
		}
	}
	return len(evs), nil
}

func (s *devShow) event(ev events.Event) error {
	if s.app.json {
		return s.app.printJSON(devEvent{events.Source, ev.DetailType(), ev})
	}
	h := ev.Head()
	what := h.Tenant
	for _, part := range []string{h.Session, h.Key} {
		if part != "" {
			what += "/" + part
		}
	}
	if h.Attempt > 0 {
		what += fmt.Sprintf(" attempt %d", h.Attempt)
	}
	more, err := beside(ev)
	if err != nil {
		return err
	}
	s.app.print("  %s  %-22s %s %s\n", h.Time.Local().Format("15:04:05.000"), ev.DetailType(), printable(what), more)
	return nil
}

// beside lists what an event says beyond the header that all have.
func beside(ev events.Event) (string, error) {
	all, err := fieldsOf(ev)
	if err != nil {
		return "", err
	}
	header, err := fieldsOf(ev.Head())
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { _, common := header[name]; return common })
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if n, ok := all[name].(float64); ok {
			out = append(out, fmt.Sprintf("%s=%.0f", name, n))
			continue
		}
		out = append(out, name+"="+printable(fmt.Sprint(all[name])))
	}
	return strings.Join(out, " "), nil
}

func fieldsOf(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(b, &m)
}

// swept tells of a sweep that found something.
func (s *devShow) swept(r sweeper.Report) {
	if r.Found == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app.print("  sweep: ")
	s.app.printSweep(r)
}
