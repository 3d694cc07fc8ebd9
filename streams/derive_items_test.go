package streams

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

func quotaItem(granted, remaining int64) *schema.Quota {
	return &schema.Quota{
		Key: schema.QuotaKey(testTenant, "2026-11", 0), QuotaID: "quota-1", Version: 7, Granted: granted, Remaining: remaining,
		PlanVersion: 1, CreatedAt: t0, UpdatedAt: t0, ExpiresAt: t0.Add(90 * 24 * time.Hour),
	}
}

func planItem(tokens int64) *schema.Plan {
	return &schema.Plan{Key: schema.PlanKey(testTenant), Version: 3, Tokens: tokens, Period: schema.Monthly, Shards: 2, UpdatedAt: t0}
}

// observationItem has every counter at n.
func observationItem(n int64) Image {
	key := schema.ObservationKey(pendingRow().Key)
	item := schema.Item{
		schema.PK: schema.S(key.PK), schema.SK: schema.S(key.SK), schema.AFormat: schema.N(schema.Format), schema.AObsID: schema.S("obs-1"),
		schema.AVersion: schema.N(max(n, 1)), schema.ATool: schema.S("push_branch"), schema.ASession: schema.S(testSession), schema.AUpdatedAt: schema.Millis(t0),
	}
	for _, counter := range []string{schema.ADuplicates, schema.AInFlight, schema.AKeyConflicts, schema.AQuotaDenials, schema.AGiveUps} {
		item[counter] = schema.N(n)
	}
	return ImageOf(item)
}

func itemChange(key schema.Key, was, is Image) Change {
	c := Change{Op: OpModify, Keys: key, Old: was, New: is, Sequence: "12", Time: t0}
	if was == nil {
		c.Op = OpInsert
	} else if is == nil {
		c.Op = OpRemove
	}
	return c
}

// Quota events: what is granted, and each threshold once when it is crossed, with an id of its own.
func TestDeriveQuota(t *testing.T) {
	key := quotaItem(1, 1).Key
	image := func(granted, remaining int64) Image {
		q := quotaItem(granted, remaining)
		return ImageOf(q.Item())
	}
	grown := quotaItem(1500, 1400)
	for name, tc := range map[string]struct {
		was, is Image
		want    []string
		low     []int
	}{
		"created":             {nil, image(1000, 1000), []string{"QuotaGranted"}, nil},
		"created low":         {nil, image(1000, 50), []string{"QuotaGranted", "QuotaLow", "QuotaLow"}, []int{20, 5}},
		"created for nothing": {nil, image(0, 0), nil, nil},
		"raised":              {image(1000, 900), ImageOf(grown.Item()), []string{"QuotaGranted"}, nil},
		"lowered to low":      {image(1000, 900), image(100, 0), []string{"QuotaGranted", "QuotaLow", "QuotaLow", "QuotaLow"}, []int{20, 5, 0}},
		"debited":             {image(1000, 900), image(1000, 201), nil, nil},
		"to 20 %":             {image(1000, 201), image(1000, 200), []string{"QuotaLow"}, []int{20}},
		"below 20 %":          {image(1000, 200), image(1000, 51), nil, nil},
		"to 5 %":              {image(1000, 51), image(1000, 50), []string{"QuotaLow"}, []int{5}},
		"to 0":                {image(1000, 1), image(1000, 0), []string{"QuotaLow"}, []int{0}},
		"all at once":         {image(1000, 1000), image(1000, -5), []string{"QuotaLow", "QuotaLow", "QuotaLow"}, []int{20, 5, 0}},
		"refunded":            {image(1000, 0), image(1000, 500), nil, nil},
		"small, exact":        {image(3, 1), image(3, 0), []string{"QuotaLow", "QuotaLow", "QuotaLow"}, []int{20, 5, 0}},
		"no overflow":         {image(math.MaxInt64, math.MaxInt64), image(math.MaxInt64, math.MaxInt64/5+1), nil, nil},
		"nothing changed":     {image(1000, 10), image(1000, 10), nil, nil},
		"expired":             {image(1000, 10), nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			evs, data, err := derived(t, itemChange(key, tc.was, tc.is))
			if err != nil {
				t.Fatal(err)
			}
			if got := typesOf(evs); !slices.Equal(got, tc.want) {
				t.Fatalf("got %v, want %v", got, tc.want)
			}
			var lows []int
			ids := map[string]bool{}
			for _, ev := range evs {
				ids[ev.Head().ID] = true
				if g, ok := ev.(*events.QuotaGranted); ok && g.ID != events.ID("QuotaGranted", "quota-1", 7) {
					t.Errorf("id of the grant is %s", g.ID)
				}
				if q, ok := ev.(*events.QuotaLow); ok {
					lows = append(lows, q.Percent)
					if q.ID != events.ID("QuotaLow", "quota-1/"+strconv.Itoa(q.Percent), 7) {
						t.Errorf("id of %d %% is %s", q.Percent, q.ID)
					}
				}
			}
			if !slices.Equal(lows, tc.low) || len(ids) != len(evs) {
				t.Errorf("crossed %v with %d ids, want %v", lows, len(ids), tc.low)
			}
			for _, d := range data {
				if d.Name == metrics.TokensWithdrawn && d.Value != 900 {
					t.Errorf("withdrawn %v", d.Value)
				}
			}
		})
	}
}

// HC47: a counter that went up by two is one event that stands for two, with its running count; delivered again it has
// the same id, and clamping plays no part. Its removal, and a decrease, move nothing.
func TestHC47Observations(t *testing.T) {
	key := schema.ObservationKey(pendingRow().Key)
	all := []string{"ToolCallReplayed", "ToolCallInFlight", "IdempotencyKeyConflict", "QuotaExhausted", "ContentionGaveUp"}
	names := []string{metrics.CallsReplayed, metrics.CallsInFlight, metrics.KeyConflicts, metrics.QuotaDenials, metrics.ContentionGiveUps}
	for name, tc := range map[string]struct {
		was, is Image
		delta   int64
	}{
		"first": {nil, observationItem(10), 10}, "more": {observationItem(10), observationItem(12), 2},
	} {
		var ids []string
		for range 3 {
			evs, data, err := derived(t, itemChange(key, tc.was, tc.is))
			if err != nil || !slices.Equal(typesOf(evs), all) {
				t.Fatalf("%s: got %v, %v", name, typesOf(evs), err)
			}
			r := evs[0].(*events.ToolCallReplayed)
			if r.Delta != tc.delta || r.RowID != "obs-1" || r.Session != testSession || r.Key != testCall || r.Tool != "push_branch" {
				t.Errorf("%s: %+v", name, r)
			}
			for i, d := range data {
				if d.Name != names[i] || d.Value != float64(tc.delta) || d.Tenant != testTenant {
					t.Errorf("%s: datum %+v", name, d)
				}
			}
			for _, ev := range evs {
				ids = append(ids, ev.Head().ID)
				if ev.Head().ID != events.ID(ev.DetailType(), "obs-1", ev.Head().Version) {
					t.Errorf("%s: the id of %s is not that of type, observation and version", name, ev.DetailType())
				}
			}
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(ids))); len(unique) != len(all) {
			t.Errorf("%s: three deliveries of five events have %d ids", name, len(unique))
		}
	}
	if evs, _, err := derived(t, itemChange(key, observationItem(10), nil)); err != nil || len(evs) != 0 {
		t.Errorf("removed: got %v, %v", evs, err)
	}
	if _, _, err := derived(t, itemChange(key, observationItem(10), observationItem(9))); err == nil {
		t.Error("a counter went backwards without an error")
	}
}

// planIDs holds that no two changes of plans share an event id: one that is given anew after its tenant was erased counts its
// versions from 1 again, and a tenant may be called what another one's removal is.
func planIDs(t *testing.T, plan *schema.Plan) {
	t.Helper()
	anew, other := *plan, *plan
	anew.UpdatedAt = plan.UpdatedAt.Add(24 * time.Hour)
	other.Key = schema.PlanKey(testTenant + "/removed")
	seen := map[string]bool{}
	for _, c := range []Change{
		itemChange(plan.Key, nil, ImageOf(plan.Item())), itemChange(plan.Key, ImageOf(plan.Item()), nil),
		itemChange(plan.Key, nil, ImageOf(anew.Item())), itemChange(plan.Key, ImageOf(anew.Item()), nil),
		itemChange(other.Key, nil, ImageOf(other.Item())),
	} {
		evs, _, err := derived(t, c)
		if err != nil || len(evs) != 1 {
			t.Fatalf("got %v, %v", evs, err)
		}
		if id := evs[0].Head().ID; seen[id] {
			t.Errorf("%+v has the id of another change", evs[0])
		} else {
			seen[id] = true
		}
	}
}

// Plans report every change; leases, checkpoints, grants and sessions none: a poller must not report on itself.
func TestDeriveControlItems(t *testing.T) {
	plan, more := planItem(1000), planItem(2000)
	more.Version, more.Suspended = 4, true
	key := plan.Key
	evs, _, err := derived(t, itemChange(key, ImageOf(plan.Item()), ImageOf(more.Item())))
	if err != nil || len(evs) != 1 {
		t.Fatalf("got %v, %v", evs, err)
	}
	e := evs[0].(*events.PlanChanged)
	if e.Tokens != 2000 || !e.Suspended || e.Shards != 2 || e.Period != "month" || e.RowID != testTenant || e.Version != 4 {
		t.Errorf("got %+v", e)
	}
	if evs, _, err = derived(t, itemChange(key, ImageOf(plan.Item()), nil)); err != nil || !evs[0].(*events.PlanChanged).Removed {
		t.Errorf("removed: got %v, %v", evs, err)
	}
	planIDs(t, plan)
	if evs, _, err = derived(t, itemChange(key, ImageOf(plan.Item()), ImageOf(plan.Item()))); err != nil || len(evs) != 0 {
		t.Errorf("nothing changed: got %v, %v", evs, err)
	}
	for _, k := range []schema.Key{
		schema.GrantKey(testTenant, "g"), schema.LeaseKey("arn:x", "shard-1"), schema.SessionKey(testTenant, testSession),
	} {
		for _, c := range []Change{itemChange(k, nil, Image{}), itemChange(k, Image{}, Image{{Name: "x"}}), itemChange(k, Image{}, nil)} {
			if evs, _, err := derived(t, c); err != nil || len(evs) != 0 {
				t.Errorf("%v %s: got %v, %v", k, c.Op, evs, err)
			}
		}
	}
}

// A record that changed nothing, which only a stand-in for DynamoDB writes, is not an event and not tampering.
func TestDeriveNothingChanged(t *testing.T) {
	for _, row := range []*schema.Row{pendingRow(), committedRow(), next(pendingRow(), fail(schema.FailureExpired))} {
		if got := deriveTypes(t, changeOf(row, row)); len(got) != 0 {
			t.Errorf("%s: got %v", row.State, got)
		}
	}
	c := changeOf(pendingRow(), pendingRow())
	c.New = append(slices.Clone(c.New), Attr{Name: "note", Value: schema.Value{Type: schema.TypeString, Text: "x"}})
	if got := deriveTypes(t, c); !slices.Equal(got, []string{"LedgerRowTampered"}) {
		t.Errorf("an attribute of somebody else's, without a version: got %v", got)
	}
}

// What cannot be understood is an error that says where, never tampering, never silence, and never holds a value.
func TestDeriveUnreadable(t *testing.T) {
	with := func(c Change, name string, v schema.Value) Change {
		c.New = append(slices.DeleteFunc(slices.Clone(c.New), func(a Attr) bool { return a.Name == name }), Attr{Name: name, Value: v})
		return c
	}
	text := func(s string) schema.Value { return schema.Value{Type: schema.TypeString, Text: s} }
	number := func(s string) schema.Value { return schema.Value{Type: schema.TypeNumber, Text: s} }
	inserted := changeOf(nil, pendingRow())
	foreign := inserted
	foreign.Keys = schema.Key{PK: "USER#1", SK: "PROFILE"}
	other := inserted
	other.Keys.SK += "x"
	noNew, noOld := changeOf(pendingRow(), next(pendingRow(), finalize(20))), changeOf(pendingRow(), next(pendingRow(), finalize(20)))
	noNew.New, noOld.Old = nil, nil
	noOp := inserted
	noOp.Op = "UPSERT"
	for name, tc := range map[string]struct {
		c    Change
		attr string
	}{
		"newer format":     {with(inserted, schema.AFormat, number("2")), schema.AFormat},
		"state of no kind": {with(inserted, schema.AState, text("secret-state")), schema.AState},
		"wrong type":       {with(inserted, schema.AResultJSON, number("4")), schema.AResultJSON},
		"fraction":         {with(inserted, schema.AVersion, number("1.5")), schema.AVersion},
		"TTL in ms":        {with(changeOf(nil, committedRow()), schema.AExpiresAt, number("1790000000000")), schema.AExpiresAt},
		"half an item":     {itemChange(inserted.Keys, nil, Image{{Name: schema.PK, Value: text(inserted.Keys.PK)}, {Name: schema.SK, Value: text(inserted.Keys.SK)}}), schema.AFormat},
		"empty item":       {itemChange(inserted.Keys, nil, Image{}), ""},
		"foreign item":     {foreign, ""},
		"keys disagree":    {other, ""},
		"no new image":     {noNew, ""},
		"no old image":     {noOld, ""},
		"unknown op":       {noOp, ""},
		"nothing":          {Change{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			evs, data, err := derived(t, tc.c)
			u, ok := errors.AsType[*UnreadableError](err)
			if !ok || u.Attr != tc.attr || evs != nil || data != nil {
				t.Errorf("got %v, %v; want an UnreadableError of %q", evs, err, tc.attr)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the value: %v", err)
			}
		})
	}
}

// Metrics equal the events: each event type feeds the metric defined for it, and nothing else is counted.
func TestMeasureFollowsDefinitions(t *testing.T) {
	byEvent := map[string]metrics.Definition{}
	defined := map[string]bool{}
	for _, d := range metrics.Definitions() {
		if defined[d.Name] {
			t.Errorf("%s is defined twice", d.Name)
		}
		defined[d.Name] = true
		if _, found := byEvent[d.Event]; d.Event != "" && !found {
			byEvent[d.Event] = d
		}
	}
	for _, ev := range events.All() {
		data := Measure(nil, ev, t0)
		want, ok := byEvent[ev.DetailType()]
		if !ok || len(data) == 0 || data[0].Name != want.Name || data[0].Value != 1 {
			t.Errorf("%s: got %+v, want 1 in %q", ev.DetailType(), data, want.Name)
		}
		for _, d := range data {
			if !defined[d.Name] || d.Tenant != ev.Head().Tenant || !d.Time.Equal(t0) {
				t.Errorf("%s: %+v", ev.DetailType(), d)
			}
		}
	}
	if data := Measure(nil, &events.Unknown{Type: "New"}, t0); len(data) != 0 {
		t.Errorf("an unknown event is measured: %v", data)
	}
}
