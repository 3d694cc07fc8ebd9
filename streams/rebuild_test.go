package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"pgregory.net/rapid"

	"toolledger/internal/eventcheck"
	"toolledger/internal/schema"
	"toolledger/streams/events"
)

// detailOf is an event as subscribers read it.
func detailOf(t interface{ Fatal(...any) }, ev events.Event) map[string]any {
	b, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// checkRebuilt holds a rebuilt event against the one that was derived: marked, of the same id and type, each field the
// same or, where the item cannot know it any more, empty.
func checkRebuilt(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, rebuilt events.Event, derived []events.Event, loose ...string,
) {
	if err := eventcheck.Event(rebuilt); err != nil {
		t.Fatal(err)
	}
	if !rebuilt.Head().Rebuilt {
		t.Fatalf("%s is not marked", rebuilt.DetailType())
	}
	at := slices.IndexFunc(derived, func(ev events.Event) bool { return ev.Head().ID == rebuilt.Head().ID })
	if at < 0 {
		t.Fatalf("%s of version %d was never derived: %+v", rebuilt.DetailType(), rebuilt.Head().Version, rebuilt)
	}
	if derived[at].DetailType() != rebuilt.DetailType() {
		t.Fatalf("%s came back as %s", derived[at].DetailType(), rebuilt.DetailType())
	}
	want := detailOf(t, derived[at])
	for name, value := range detailOf(t, rebuilt) {
		if name == "rebuilt" || reflect.ValueOf(value).IsZero() || slices.Contains(loose, name) {
			continue
		}
		if !reflect.DeepEqual(value, want[name]) {
			t.Fatalf("%s: %s is %v, and was %v", rebuilt.DetailType(), name, value, want[name])
		}
	}
}

// stateEvents are the events that a state begins with.
var stateEvents = []string{
	"ToolCallReserved", "ReservationStuck", "ToolEffectApplied", "ToolEffectSettledLate", "ReservationReleased", "ReservationExpired",
	"ReservationResolved", "CompensationStarted", "ToolEffectCompensated",
}

// Whatever lawful life a row had, what is rebuilt of it are events that it gave: nobody who deduplicates by id sees
// anything twice. The last event of its state is among them, or the row says why not.
func TestRebuildItemGivesEventsThatWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes := life(t, "call-1")
		if rapid.Bool().Draw(t, "commit") {
			changes = commitLife(t)
		}
		if rapid.Bool().Draw(t, "noted") {
			changes = noteReservations(t, changes)
		}
		for changes[len(changes)-1].New == nil { // nothing is rebuilt of what is gone
			changes = changes[:len(changes)-1]
		}
		var derived []events.Event
		var last string
		for _, c := range changes {
			evs, _, err := Derive(c)
			if err != nil {
				t.Fatal(err)
			}
			derived = append(derived, evs...)
			for _, ev := range evs {
				if slices.Contains(stateEvents, ev.DetailType()) {
					last = ev.Head().ID
				}
			}
		}
		rb, err := RebuildItem(changes[len(changes)-1].New, false)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, ev := range rb.Events {
			loose := []string{}
			if ev.Head().Version < int64(len(changes)) {
				loose = append(loose, "deadline") // the one that holds now
			}
			checkRebuilt(t, ev, derived, loose...)
			ids = append(ids, ev.Head().ID)
		}
		if !slices.Contains(ids, last) && rb.Untold == "" {
			t.Fatalf("%s: the event of the present state is neither rebuilt nor said to be lost: %+v", typesOf(derived), rb.Events)
		}
	})
}

// noteReservations gives the rows of a life the times at which their later attempts began, as writers do.
func noteReservations(t *rapid.T, changes []Change) []Change {
	var was *schema.Row
	noted := make([]Change, len(changes))
	for i, c := range changes {
		if noted[i] = changeOf(was, nil); c.New == nil {
			noted[i].TTL = c.TTL
			continue
		}
		is, err := schema.DecodeRow(c.New.Fields())
		if err != nil {
			t.Fatal(err)
		}
		if was != nil {
			is.ReservedAt = was.ReservedAt
			if is.Attempt > was.Attempt {
				is.ReservedAt = is.UpdatedAt
			}
		}
		noted[i] = changeOf(was, is)
		was = is
	}
	return noted
}

// commitLife is a life that begins with a commit.
func commitLife(t *rapid.T) []Change {
	row := committedRow()
	changes := []Change{changeOf(nil, row)}
	for n := range rapid.IntRange(0, 4).Draw(t, "moves") {
		is := next(row, map[string]func(*schema.Row){
			"suspect": func(r *schema.Row) { r.Suspects = append(r.Suspects, fmt.Sprintf("x/%d", n)) },
			"link":    func(r *schema.Row) { r.CompensatedBy = "session:undo" },
			"undo":    func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits = "session:undo", r.UpdatedAt, nil },
			"keep":    func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt = "session:undo", r.UpdatedAt },
			"erase":   func(r *schema.Row) { r.Erasing = true },
		}[rapid.SampledFrom([]string{"suspect", "link", "undo", "keep", "erase"}).Draw(t, "step")])
		if _, _, err := Derive(changeOf(row, is)); err != nil || lawless(changeOf(row, is)) {
			continue
		}
		changes = append(changes, changeOf(row, is))
		row = is
	}
	return changes
}

func lawless(c Change) bool {
	evs, _, _ := Derive(c)
	return slices.Contains(typesOf(evs), "LedgerRowTampered")
}

// Each plain life gives back the event of its state, whole.
func TestRebuildItemOfPlainLives(t *testing.T) {
	again := func(r *schema.Row) { takeover(r); r.ReservedAt = r.UpdatedAt }
	undo := func(r *schema.Row) { r.CompensatedBy, r.CompensatedAt, r.Debits = "session:undo", r.UpdatedAt, nil }
	for name, tt := range map[string]struct {
		begin *schema.Row
		moves []func(*schema.Row)
		want  []string
	}{
		"reserved":              {pendingRow(), nil, []string{"ToolCallReserved"}},
		"held":                  {pendingRow(), []func(*schema.Row){hold}, []string{"ToolCallReserved", "ReservationStuck"}},
		"finalized":             {pendingRow(), []func(*schema.Row){finalize(12)}, []string{"ToolEffectApplied"}},
		"released":              {pendingRow(), []func(*schema.Row){fail(schema.FailureReleased)}, []string{"ReservationReleased"}},
		"expired":               {pendingRow(), []func(*schema.Row){fail(schema.FailureExpired)}, []string{"ReservationExpired"}},
		"resolved":              {pendingRow(), []func(*schema.Row){resolveAbsent}, []string{"ReservationResolved"}},
		"settled late":          {pendingRow(), []func(*schema.Row){fail(schema.FailureExpired), settleLate(schema.SettledByHolder)}, []string{"ToolEffectSettledLate"}},
		"taken over":            {pendingRow(), []func(*schema.Row){fail(schema.FailureReleased), again}, []string{"ToolCallReserved"}},
		"second attempt":        {pendingRow(), []func(*schema.Row){fail(schema.FailureReleased), again, finalize(9)}, []string{"ToolEffectApplied"}},
		"failed, committed":     {pendingRow(), []func(*schema.Row){fail(schema.FailureReleased), commitFailed}, []string{"ToolEffectApplied"}},
		"committed":             {committedRow(), nil, []string{"ToolEffectApplied"}},
		"committed, undone":     {committedRow(), []func(*schema.Row){undo}, []string{"ToolEffectApplied", "ToolEffectCompensated"}},
		"finalized, undone":     {pendingRow(), []func(*schema.Row){finalize(12), undo}, []string{"ToolEffectCompensated"}},
		"committed, suspicious": {committedRow(), []func(*schema.Row){func(r *schema.Row) { r.Suspects = []string{"x/1"} }}, []string{"ToolEffectApplied", "SuspectedDoubleEffect"}},
	} {
		t.Run(name, func(t *testing.T) {
			derived, _, err := Derive(changeOf(nil, tt.begin))
			if err != nil {
				t.Fatal(err)
			}
			row := tt.begin
			for _, move := range tt.moves {
				is := next(row, move)
				evs, _, err := Derive(changeOf(row, is))
				if err != nil || lawless(changeOf(row, is)) {
					t.Fatal(err, typesOf(evs))
				}
				derived, row = append(derived, evs...), is
			}
			rb, err := RebuildItem(ImageOf(row.Item()), false)
			if err != nil || rb.Untold != "" || !slices.Equal(typesOf(rb.Events), tt.want) {
				t.Fatalf("%v, %q, %v; want %v", typesOf(rb.Events), rb.Untold, err, tt.want)
			}
			for _, ev := range rb.Events {
				checkRebuilt(t, ev, derived)
			}
			// The last one holds everything, not only what is the same.
			want, got := detailOf(t, derived[len(derived)-1]), detailOf(t, rb.Events[len(rb.Events)-1])
			if delete(got, "rebuilt"); !reflect.DeepEqual(want, got) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A call that was extended and recorded in time is not told apart from one that was released and settled late: only
// with likely is it taken for the first.
func TestRebuildItemLikely(t *testing.T) {
	row := next(next(pendingRow(), func(r *schema.Row) { r.Deadline = r.Deadline.Add(time.Minute) }), finalize(20))
	item := ImageOf(row.Item())
	if rb, err := RebuildItem(item, false); err != nil || len(rb.Events) != 0 || rb.Untold != untoldLate {
		t.Errorf("%+v, %v", rb, err)
	}
	if rb, err := RebuildItem(item, true); err != nil || !slices.Equal(typesOf(rb.Events), []string{"ToolEffectApplied"}) || rb.Untold != "" {
		t.Errorf("%+v, %v", rb, err)
	}
}

// Quota items and observations give what their first write gave, a plan what its last one gave.
func TestRebuildItemOfOtherItems(t *testing.T) {
	quota := &schema.Quota{
		Key: schema.QuotaKey("acme", "2026-11", 0), QuotaID: "q-1", Version: 1, Granted: 100, Remaining: 4, CreatedAt: t0, UpdatedAt: t0,
	}
	plan := &schema.Plan{Key: schema.PlanKey("acme"), Version: 7, Tokens: 10, Shards: 1, UpdatedAt: t0}
	for name, tt := range map[string]struct {
		item  schema.Item
		key   schema.Key
		want  []string
		loose string
	}{
		"quota": {quota.Item(), quota.Key, []string{"QuotaGranted", "QuotaLow", "QuotaLow"}, "time"},
		"plan":  {plan.Item(), plan.Key, []string{"PlanChanged"}, ""},
	} {
		derived, _, err := Derive(Change{Op: OpInsert, Keys: tt.key, New: ImageOf(tt.item), Time: t0.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		rb, err := RebuildItem(ImageOf(tt.item), false)
		if err != nil || !slices.Equal(typesOf(rb.Events), tt.want) {
			t.Fatalf("%s: %v, %v", name, typesOf(rb.Events), err)
		}
		for _, ev := range rb.Events {
			checkRebuilt(t, ev, derived, tt.loose)
		}
	}
	quota.Version = 2
	if rb, err := RebuildItem(ImageOf(quota.Item()), true); err != nil || len(rb.Events) != 0 || rb.Untold == "" {
		t.Errorf("a quota item that was debited: %+v, %v", rb, err)
	}
}

// What is no item of ours, or half of one, is an error and never a panic; an unlawful row gives no event.
func TestRebuildItemOfForeignItems(t *testing.T) {
	whole := pendingRow().Item()
	for name := range whole {
		item := pendingRow().Item()
		delete(item, name)
		_, _ = RebuildItem(ImageOf(item), true)
		item[name] = schema.Bool(true)
		_, _ = RebuildItem(ImageOf(item), true)
	}
	for name, item := range map[string]schema.Item{
		"nothing": {}, "no key": {"a": schema.S("b")}, "another's": {schema.PK: schema.S("USER#1"), schema.SK: schema.S("META")},
		"half":      {schema.PK: whole[schema.PK], schema.SK: whole[schema.SK]},
		"key types": {schema.PK: schema.N(1), schema.SK: schema.N(2)},
	} {
		rb, err := RebuildItem(ImageOf(item), true)
		if _, ok := errors.AsType[*UnreadableError](err); !ok || len(rb.Events) != 0 {
			t.Errorf("%s: %+v, %v", name, rb, err)
		}
	}
	bad := pendingRow()
	bad.PendingBucket = "HELD#0"
	if rb, err := RebuildItem(ImageOf(bad.Item()), true); err != nil || len(rb.Events) != 0 || rb.Untold == "" {
		t.Errorf("%+v, %v", rb, err)
	}
}

// pages is a table in pages of one item.
type pages struct {
	items []schema.Item
	fail  error
	reads int
}

func (p *pages) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	p.reads++
	if p.fail != nil {
		return nil, p.fail
	}
	at := 0
	if in.ExclusiveStartKey != nil {
		at = 1 + slices.IndexFunc(p.items, func(item schema.Item) bool {
			return schema.ValueOf(item[schema.SK]).Text == schema.ValueOf(in.ExclusiveStartKey[schema.SK]).Text
		})
	}
	out := &dynamodb.ScanOutput{Items: p.items[at : at+1], ScannedCount: 1}
	if at+1 < len(p.items) {
		out.LastEvaluatedKey = schema.Item{schema.PK: p.items[at][schema.PK], schema.SK: p.items[at][schema.SK]}
	}
	return out, nil
}

// What a failing bus stopped is gone on with from the cursor: every event comes out, and the cursor never passes one
// that is not out.
func TestRebuildGoesOn(t *testing.T) {
	table := &pages{}
	for n := range 5 {
		row := pendingRow()
		call := fmt.Sprintf("call-%d", n)
		row.Key, row.RowID, row.PendingBucket = schema.RowKey("acme", "s-1", schema.ScopeSession, call), call, schema.PendingBucket(call)
		table.items = append(table.items, row.Item())
	}
	out := &Collector{}
	fails := 0
	cfg := RebuildConfig{DynamoDB: table, Tables: []string{"ledger"}, Rate: 1_000_000, Publisher: PublisherFunc(
		func(ctx context.Context, evs []events.Event) (int, error) {
			if fails++; fails%2 == 1 {
				return 0, errors.New("no bus")
			}
			return out.Publish(ctx, evs)
		})}
	for range 10 {
		before := len(out.Events())
		report, err := Rebuild(t.Context(), cfg)
		if report.Done {
			break
		}
		if err == nil || len(out.Events()) != before+report.Events {
			t.Fatalf("%+v, %v; %d events", report, err, len(out.Events()))
		}
		cfg.From = report.Cursor
	}
	if len(out.Events()) != 5 || out.Delivered() != 5 {
		t.Errorf("%d events, %d delivered", len(out.Events()), out.Delivered())
	}
	for _, from := range []string{"x", "!", rebuildCursor{"other", "a", "b"}.String(), rebuildCursor{"ledger", "a", ""}.String(), "e30"} {
		cfg.From = from
		if _, err := Rebuild(t.Context(), cfg); !errors.Is(err, ErrCursor) {
			t.Errorf("%q: %v", from, err)
		}
	}
}
