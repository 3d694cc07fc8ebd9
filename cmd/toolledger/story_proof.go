package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/audit"
	"toolledger/internal/schema"
	"toolledger/metrics"
	"toolledger/streams/events"
)

// shelf is what the ledger table holds of the story's tenants at the end.
type shelf struct {
	rows   []*schema.Row
	obs    []*schema.Observation
	quotas []*schema.Quota
	plans  []*schema.Plan
}

// shelf reads the items of the story's tenants.
func (s *story) shelf(ctx context.Context, tenants map[string]bool) (*shelf, error) {
	all := &shelf{}
	for tenant := range tenants {
		plan, err := s.plan(ctx, tenant)
		if err != nil {
			return nil, err
		}
		all.plans = append(all.plans, plan)
	}
	in := &dynamodb.ScanInput{TableName: aws.String(s.place.table), ConsistentRead: aws.Bool(true)}
	for {
		out, err := s.place.client.Scan(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.place.table, err)
		}
		for _, item := range out.Items {
			if err := all.add(item, tenants); err != nil {
				return nil, err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return all, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// plan reads a tenant's plan.
func (s *story) plan(ctx context.Context, tenant string) (*schema.Plan, error) {
	key := schema.PlanKey(tenant)
	out, err := s.place.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(s.place.control), ConsistentRead: aws.Bool(true),
		Key: key.Item(),
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.place.control, err)
	}
	plan, err := schema.DecodePlan(schema.FieldsOf(out.Item))
	if err != nil {
		return nil, fmt.Errorf("plan of %s: %w", tenant, err)
	}
	return plan, nil
}

func (all *shelf) add(item schema.Item, tenants map[string]bool) error {
	id, err := schema.ParseKey(schema.Key{PK: schema.ValueOf(item[schema.PK]).Text, SK: schema.ValueOf(item[schema.SK]).Text})
	if err != nil || !tenants[id.Tenant] {
		return nil //nolint:nilerr // somebody else's, which is the audit's business
	}
	switch id.Kind {
	case schema.KindRow:
		r, err := schema.DecodeRow(schema.FieldsOf(item))
		all.rows = append(all.rows, r)
		return err
	case schema.KindObservation:
		o, err := schema.DecodeObservation(schema.FieldsOf(item))
		all.obs = append(all.obs, o)
		return err
	case schema.KindQuota:
		q, err := schema.DecodeQuota(schema.FieldsOf(item))
		all.quotas = append(all.quotas, q)
		return err
	case schema.KindSession, schema.KindPlan, schema.KindGrant, schema.KindLease, schema.KindUnknown:
	}
	return nil
}

// prove checks the promises that are the same in every story: the books, the events against the ledger, the metrics against
// the events, the second reading against the first.
func (s *story) prove(ctx context.Context, r *report, tenants map[string]bool) error {
	books, err := audit.Run(ctx, s.place.client, audit.Config{Table: s.place.table, Segments: auditSegments, Now: s.clock.Now})
	if err != nil {
		return err
	}
	r.Books, r.Tokens = books.Books, books.Tokens
	r.check("books", books.OK && books.Moving.Count == 0, "%s: %d tokens granted - %d left = %d debited by calls; %d items illegal",
		books.Books, books.Tokens.Granted, books.Tokens.Remaining, books.Tokens.Debited, books.Illegal.Count)

	held, err := s.shelf(ctx, tenants)
	if err != nil {
		return err
	}
	for _, row := range held.rows {
		if row.State == schema.StatePending {
			r.Pending++
		}
	}
	r.check("nothing pending", r.Pending == 0, "%d rows are pending after the last of %d sweeps", r.Pending, s.sweeps)

	return s.proveStream(ctx, r, held, tenants)
}

// proveStream reads the streams twice and compares.
func (s *story) proveStream(ctx context.Context, r *report, held *shelf, tenants map[string]bool) error {
	first, err := s.newReader(tenants)
	if err != nil {
		return err
	}
	second, err := s.newReader(tenants)
	if err != nil {
		return err
	}
	wrong, err := s.drainUntil(ctx, first, func() []string { return compareEvents(held, first.reading) })
	if err != nil {
		return err
	}
	if s.dropEvent {
		first.lose()
		wrong = compareEvents(held, first.reading)
	}
	r.Events, r.Metrics = first.counts(), first.sums()
	r.check("events", len(wrong) == 0, "%s", orWrong(wrong,
		"%d events, one for each of the transitions of %d rows, %d observations, %d quota items and %d plans",
		len(first.events), len(held.rows), len(held.obs), len(held.quotas), len(held.plans)))
	wrong = compareMetrics(first.reading)
	r.check("metrics", len(wrong) == 0, "%s", orWrong(wrong, "%d metrics add up to what the events say", len(r.Metrics)))
	wrong, err = s.drainUntil(ctx, second, func() []string { return compareReadings(first.reading, second.reading) })
	r.check("events, read again", len(wrong) == 0, "%s", orWrong(wrong, "a second consumer from the beginning found the same %d event ids",
		len(second.events)))
	return err
}

const wrongShown = 3

// orWrong says what is wrong, or else what holds.
func orWrong(wrong []string, format string, args ...any) string {
	if len(wrong) == 0 {
		return fmt.Sprintf(format, args...)
	}
	text := strings.Join(wrong[:min(len(wrong), wrongShown)], "; ")
	if more := len(wrong) - wrongShown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// entity is what has been told about one row, observation or quota item.
type entity struct {
	versions map[int64]int // transitions told, by version
	types    map[string]int
	deltas   map[string]int64
	counts   map[string]int64 // highest running count
	granted  int64
}

// told sorts events by what they are about.
func told(evs map[string]events.Event) map[string]*entity {
	all := map[string]*entity{}
	for _, ev := range evs {
		h := ev.Head()
		e := all[h.RowID]
		if e == nil {
			e = &entity{map[int64]int{}, map[string]int{}, map[string]int64{}, map[string]int64{}, 0}
			all[h.RowID] = e
		}
		e.types[ev.DetailType()]++
		if _, beside := ev.(*events.SuspectedDoubleEffect); !beside {
			e.versions[h.Version]++
		}
		if q, ok := ev.(*events.QuotaGranted); ok {
			e.granted += q.DeltaTokens
		}
		if o, ok := observationOf(ev); ok {
			e.deltas[ev.DetailType()] += o.Delta
			e.counts[ev.DetailType()] = max(e.counts[ev.DetailType()], o.Count)
		}
	}
	return all
}

func observationOf(ev events.Event) (events.Observation, bool) {
	switch e := ev.(type) {
	case *events.ToolCallReplayed:
		return e.Observation, true
	case *events.ToolCallInFlight:
		return e.Observation, true
	case *events.IdempotencyKeyConflict:
		return e.Observation, true
	case *events.QuotaExhausted:
		return e.Observation, true
	case *events.ContentionGaveUp:
		return e.Observation, true
	}
	return events.Observation{}, false
}

// compareEvents holds the events against the ledger: a row's version counts its transitions, its attempt its reservations, so
// that what must have been told can be read off the table itself.
func compareEvents(held *shelf, r *reading) []string {
	var wrong []string
	all := told(r.events)
	for _, row := range held.rows {
		wrong = append(wrong, compareRow(row, all[row.RowID])...)
		delete(all, row.RowID)
	}
	for _, o := range held.obs {
		wrong = append(wrong, compareObservation(o, all[o.ObsID])...)
		delete(all, o.ObsID)
	}
	for _, q := range held.quotas {
		wrong = append(wrong, compareQuota(q, all[q.QuotaID])...)
		delete(all, q.QuotaID)
	}
	for _, p := range held.plans {
		tenant := strings.TrimPrefix(p.Key.PK, "TENANT#")
		if e := all[tenant]; e == nil || len(e.versions) != int(p.Version) || e.types["PlanChanged"] != int(p.Version) {
			wrong = append(wrong, fmt.Sprintf("not each of the %d versions of %s's plan was told of", p.Version, tenant))
		}
		delete(all, tenant)
	}
	for id, e := range all {
		wrong = append(wrong, fmt.Sprintf("%v were told of %q, which is not in the table", slices.Sorted(maps.Keys(e.types)), id))
	}
	slices.Sort(wrong)
	return wrong
}

// compareQuota holds the grants told against what the item was granted, and what it has left against the warnings.
func compareQuota(q *schema.Quota, e *entity) []string {
	if e == nil {
		e = &entity{}
	}
	var wrong []string
	name := q.Key.PK + " " + q.Key.SK
	if e.granted != q.Granted {
		wrong = append(wrong, "the grants told of "+name+" do not add up to what it holds")
	}
	if q.Granted > 0 && q.Remaining <= 0 && e.types["QuotaLow"] == 0 {
		wrong = append(wrong, name+" is used up and nobody was told that it is low")
	}
	return wrong
}

func compareRow(row *schema.Row, e *entity) []string {
	name := row.Session + "/" + strings.TrimPrefix(row.Key.SK, schema.RowPrefix)
	if e == nil {
		return []string{"nothing was told of " + name}
	}
	var wrong []string
	require := func(what string, got, want int) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %d %s told, %d happened", name, got, what, want))
		}
	}
	for version := range row.Version {
		require(fmt.Sprintf("events of version %d", version+1), e.versions[version+1], 1)
	}
	require("versions", len(e.versions), int(row.Version))
	is := func(state string) int {
		if row.State == state {
			return 1
		}
		return 0
	}
	late := e.types["ToolEffectSettledLate"]
	require("reservations", e.types["ToolCallReserved"], int(row.Attempt))
	require("effects", e.types["ToolEffectApplied"]+late, is(schema.StateApplied))
	require("attempts given back", e.types["ReservationReleased"]+e.types["ReservationExpired"],
		int(row.Attempt)-is(schema.StateApplied)-is(schema.StatePending)+late)
	require("double effects suspected", e.types["SuspectedDoubleEffect"], 0)
	require("tampered changes", e.types["LedgerRowTampered"], 0)
	return wrong
}

func compareObservation(o *schema.Observation, e *entity) []string {
	if e == nil {
		return []string{"nothing was told of the refusals and replays of " + o.Key.SK}
	}
	var wrong []string
	for _, c := range []struct {
		event string
		want  int64
	}{
		{"ToolCallReplayed", o.Duplicates},
		{"ToolCallInFlight", o.InFlight},
		{"IdempotencyKeyConflict", o.KeyConflicts},
		{"QuotaExhausted", o.QuotaDenials},
		{"ContentionGaveUp", o.GiveUps},
	} {
		if e.deltas[c.event] != c.want || e.counts[c.event] != c.want {
			wrong = append(wrong, fmt.Sprintf("%s: %s adds up to %d, counted were %d", o.Key.SK, c.event, e.deltas[c.event], c.want))
		}
	}
	if len(e.versions) != int(o.Version) {
		wrong = append(wrong, fmt.Sprintf("%s: %d of %d versions told", o.Key.SK, len(e.versions), o.Version))
	}
	return wrong
}

// compareMetrics counts the events again. The first metric that names an event counts it: once, or as often as the event says
// that something happened.
func compareMetrics(r *reading) []string {
	want := map[string]float64{}
	for _, ev := range r.events {
		n := 1.0
		if o, ok := observationOf(ev); ok {
			n = float64(o.Delta)
		}
		want[ev.DetailType()] += n
	}
	var wrong []string
	counted := map[string]bool{}
	for _, d := range metrics.Definitions() {
		if d.Event == "" || counted[d.Event] {
			continue
		}
		counted[d.Event] = true
		if got := r.metrics[d.Name]; got != want[d.Event] {
			wrong = append(wrong, fmt.Sprintf("%s is %v, the events say %v", d.Name, got, want[d.Event]))
		}
		delete(want, d.Event)
	}
	for event := range want {
		wrong = append(wrong, "no metric counts "+event)
	}
	return append(wrong, compareTokens(r)...)
}

// compareTokens adds up the tokens of the events by hand.
func compareTokens(r *reading) []string {
	var reserved, charged, refunded int64
	for _, ev := range r.events {
		switch e := ev.(type) {
		case *events.ToolCallReserved:
			reserved += e.ReservedTokens
		case *events.ToolEffectApplied:
			charged += e.ChargedTokens
			refunded += e.RefundedTokens
		case *events.ToolEffectSettledLate:
			charged += e.ChargedTokens
		case *events.ReservationReleased:
			refunded += e.RefundedTokens
		case *events.ReservationExpired:
			refunded += e.RefundedTokens
		}
	}
	var wrong []string
	for name, want := range map[string]int64{
		metrics.TokensReserved: reserved, metrics.TokensCharged: charged, metrics.TokensRefunded: refunded,
	} {
		if got := r.metrics[name]; got != float64(want) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, the events say %d", name, got, want))
		}
	}
	return wrong
}

func compareReadings(first, second *reading) []string {
	var wrong []string
	for id, ev := range first.events {
		if second.events[id] == nil {
			wrong = append(wrong, "only the first reading has "+ev.DetailType()+" "+id)
		}
	}
	for id, ev := range second.events {
		if first.events[id] == nil {
			wrong = append(wrong, "only the second reading has "+ev.DetailType()+" "+id)
		}
	}
	slices.Sort(wrong)
	return wrong
}
