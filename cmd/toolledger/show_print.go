package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"toolledger/internal/history"
	"toolledger/internal/schema"
	"toolledger/streams"
)

// historyView is what the stream still knows of a call.
type historyView struct {
	Complete bool         `json:"complete"` // all of the stream was read; it remembers 24 hours
	Records  int          `json:"records_read"`
	Changes  []changeView `json:"changes"`
}

// changeView is one write. Values are not shown.
type changeView struct {
	Time    time.Time `json:"time"`
	Item    string    `json:"item"` // "row" or "observation"
	Op      string    `json:"operation"`
	Version string    `json:"version,omitempty"`
	Attempt string    `json:"attempt,omitempty"`
	From    string    `json:"from,omitempty"` // state
	To      string    `json:"to,omitempty"`
	Changed []string  `json:"changed,omitempty"` // attributes
	Events  []string  `json:"events"`            // what subscribers were told
}

// history reads the stream, bounded in time.
func (a *app) history(ctx context.Context, b *bench, key schema.Key, within time.Duration) (*historyView, error) {
	if b.ledgerStream == "" {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	bar := a.progress("reading the stream of "+b.table, 0)
	defer bar.Done()
	h, err := history.Read(bounded, b.streams, history.Config{
		Stream: b.ledgerStream, Keys: []schema.Key{key, schema.ObservationKey(key)}, Until: a.now(), Progress: func() { bar.Add(1) },
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, badInput("the stream of %s: %w", b.place, err)
	}
	v := &historyView{Complete: h.Complete, Records: h.Read, Changes: []changeView{}}
	for i := range h.Records {
		change := streams.ChangeOf(b.ledgerStream, &h.Records[i])
		v.Changes = append(v.Changes, viewChange(change))
	}
	slices.SortStableFunc(v.Changes, func(a, b changeView) int { return a.Time.Compare(b.Time) })
	return v, nil
}

func viewChange(c streams.Change) changeView {
	v := changeView{Time: c.Time.UTC(), Op: strings.ToLower(c.Op), Item: "row", Events: []string{}}
	if strings.HasPrefix(c.Keys.PK, "OBS#") {
		v.Item = "observation"
	}
	was, is := attributes(c.Old), attributes(c.New)
	v.From, v.To = was[schema.AState].Text, is[schema.AState].Text
	now := is
	if len(is) == 0 {
		now = was
	}
	v.Version, v.Attempt = now[schema.AVersion].Text, now[schema.AAttempt].Text
	if c.Op == streams.OpModify {
		for name := range mergeNames(was, is) {
			if fmt.Sprint(was[name]) != fmt.Sprint(is[name]) && name != schema.AVersion && name != schema.AUpdatedAt {
				v.Changed = append(v.Changed, name)
			}
		}
		slices.Sort(v.Changed)
	}
	evs, _, err := streams.Derive(c)
	if err != nil {
		v.Events = append(v.Events, "unreadable")
	}
	for _, ev := range evs {
		v.Events = append(v.Events, ev.DetailType())
	}
	return v
}

func attributes(im streams.Image) map[string]schema.Value {
	m := make(map[string]schema.Value, len(im))
	for name, v := range im.Fields() {
		m[name] = v
	}
	return m
}

func mergeNames(a, b map[string]schema.Value) map[string]bool {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}

// printShow shows a call to a person: what it is, what happened, where to look, what to do.
func (a *app) printShow(r showResult, now time.Time) {
	v := r.Row
	state := v.State
	if v.Failure != "" {
		state += ", " + v.Failure
	}
	if v.Held {
		state += ", held for a person"
	}
	if v.Forgotten {
		state += ", past its retention: it counts as absent"
	}
	t := newTable()
	t.AppendRow(table.Row{"call", printable(v.Key) + " of tenant " + printable(v.Tenant) + ", session " + printable(v.Session)})
	if v.Scope == string(schema.ScopeTenant) {
		t.AppendRow(table.Row{"scope", "the whole tenant"})
	}
	t.AppendRows([]table.Row{
		{"tool", printable(v.Tool) + toolKind(v)},
		{"state", state},
		{"attempt", fmt.Sprintf("%d, reserved %s", v.Attempt, stamp(v.ReservedAt))},
		{"deadline", stamp(v.Deadline) + ago(v.Deadline, now)},
		{"tokens", fmt.Sprintf("%d reserved, %d charged%s", v.Reserved, v.Charged, debitText(v))},
		{"row", fmt.Sprintf("%s, version %d, last written %s", v.RowID, v.Version, stamp(v.UpdatedAt))},
	})
	for _, line := range []struct{ name, text string }{
		{"result", resultText(v)},
		{"unverified", unverifiedText(v)},
		{"suspects", strings.Join(v.Suspects, " ")},
		{"settled by", v.SettledBy},
		{"by", printable(v.By)},
		{"why", printable(v.Why)},
		{"compensates", printable(v.Compensates)},
		{"compensated by", printable(v.CompensatedBy)},
		{"compensated in", printable(v.CompensatedIn)},
		{"trace", printable(v.Trace)},
		{"forgotten", stampIf(v.ExpiresAt)},
	} {
		if line.text != "" && line.text != `""` {
			t.AppendRow(table.Row{line.name, line.text})
		}
	}
	if o := r.Observation; o != nil {
		t.AppendRow(table.Row{"counted", fmt.Sprintf(
			"%d replays, %d in flight, %d key conflicts, %d quota denials, %d gave up on contention",
			o.Replays, o.InFlight, o.KeyConflicts, o.QuotaDenials, o.GiveUps)})
	}
	a.print("%s\n", t.Render())
	if v.Result != nil {
		a.print("Result:\n%s\n", v.Result)
	}
	a.printHistory(r.History)
	a.printNext(r, now)
}

func stampIf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "from " + stamp(t) + " on"
}

func toolKind(v rowView) string {
	switch {
	case v.Idempotent:
		return " (may be repeated)"
	case v.Verifier:
		return " (can be verified)"
	}
	return " (can be neither repeated nor verified)"
}

func debitText(v rowView) string {
	if len(v.Debits) == 0 {
		return ""
	}
	var parts []string
	for _, d := range v.Debits {
		parts = append(parts, fmt.Sprintf("%d of %s shard %d", d.Tokens, d.Period, d.Shard))
	}
	verb := "debited: "
	if v.State == schema.StateFailed {
		verb = "given back: "
	}
	return "; " + verb + strings.Join(parts, ", ")
}

func resultText(v rowView) string {
	if v.ResultSHA256 == "" {
		return ""
	}
	text := fmt.Sprintf("%d bytes, SHA-256 %s", v.ResultBytes, v.ResultSHA256[:16])
	if v.ResultRef != "" {
		text += ", in the result store: " + printable(v.ResultRef)
	}
	return text
}

func unverifiedText(v rowView) string {
	if !v.Unverified {
		return ""
	}
	if v.Failure == schema.FailureResolved {
		return "it did not happen as a person says; nothing in the outside world has confirmed it"
	}
	return "an attempt ended without anybody knowing whether it took effect"
}

// ago says how far a moment is from now.
func ago(t, now time.Time) string {
	switch d := now.Sub(t).Round(time.Second); {
	case t.IsZero():
		return ""
	case d >= 0:
		return ", " + d.String() + " ago"
	default:
		return ", in " + (-d).String()
	}
}

func (a *app) printHistory(h *historyView) {
	if h == nil {
		return
	}
	if len(h.Changes) == 0 {
		a.print("The stream, which remembers 24 hours, has nothing of it%s.\n", incomplete(h))
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"when", "version", "attempt", "what", "changed", "told as"})
	for _, c := range h.Changes {
		what := c.Op
		switch {
		case c.Item == "observation":
			what = "counted"
		case c.From != "" && c.To != "":
			what = c.From + " → " + c.To
		case c.To != "":
			what = "→ " + c.To
		case c.From != "":
			what = c.From + " → gone"
		}
		t.AppendRow(table.Row{c.Time.Format("15:04:05Z"), c.Version, c.Attempt, what, printable(brief(c.Changed)), strings.Join(c.Events, " ")})
	}
	a.print("What the stream remembers%s:\n%s\n", incomplete(h), t.Render())
}

func brief(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], " ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, " ")
}

func incomplete(h *historyView) string {
	if h.Complete {
		return ""
	}
	return " (not all of it was read: --history-time)"
}

// printNext says how to find out what became of the call, and how to decide.
func (a *app) printNext(r showResult, now time.Time) {
	if r.Open != "" {
		a.print("Why it is open: %s.\n", r.Open)
	}
	if r.Resolve.Applied == "" && r.Resolve.NotApplied == "" {
		if r.Row.State == schema.StateApplied {
			a.print("It took effect; there is nothing to decide. Outside its effect key is %s.\n", r.Outside.EffectKey)
		} else {
			a.print("There is nothing to decide.\n")
		}
		return
	}
	a.print("Look outside, in what %s writes to, for\n", printable(r.Row.Tool))
	a.print("  effect key  %s\n", r.Outside.EffectKey)
	if r.Outside.Lookup != "" {
		a.print("  lookup      %s\n", printable(r.Outside.Lookup))
	}
	a.print("  between     %s and %s\n", stamp(r.Outside.From), stamp(r.Outside.Until))
	if r.Resolve.Applied != "" {
		a.print("If it is there:\n  %s\n", r.Resolve.Applied)
	}
	if r.Resolve.NotApplied != "" {
		from := ""
		if r.Resolve.NotAppliedFrom.After(now) {
			from = " (from " + stamp(r.Resolve.NotAppliedFrom) + " on: before, an act may still land)"
		}
		a.print("If it is surely not%s:\n  %s\n", from, r.Resolve.NotApplied)
	}
}
