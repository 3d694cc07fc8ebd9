package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Point is what one metric came to in one minute, as a total or for one tenant.
type Point struct {
	Name    string
	Unit    string
	Tenant  string    // value of DimensionTenant; "" for the total
	Minute  time.Time // its beginning
	Samples float64
	Sum     float64
	Min     float64
	Max     float64
}

// Aggregator adds data up per minute of their own time. It is safe for concurrent use.
//
// Every datum counts in the total without dimensions. Those of a metric that has a tenant dimension also count for their
// tenant, by name for the busiest tenants, as OtherTenants for the rest. Who is busiest is decided anew each time the
// points are taken, over an hour of counts and more, and at most twice as many tenants are named within an hour as were
// asked for: each name is a series that is paid for.
type Aggregator struct {
	mu      sync.Mutex
	tenants int
	units   map[string]string
	named   map[string]bool // metrics with a tenant dimension
	sums    map[sumKey]*Point
	busy    busiest
}

type sumKey struct {
	name, tenant string
	minute       int64
}

// NewAggregator returns an Aggregator that names the busiest tenants; 0 names none and keeps OtherTenants alone.
func NewAggregator(tenants int) *Aggregator {
	a := &Aggregator{
		tenants: max(tenants, 0), units: make(map[string]string), named: make(map[string]bool), sums: make(map[sumKey]*Point),
	}
	for _, d := range Definitions() {
		a.units[d.Name] = d.Unit
		a.named[d.Name] = slices.Contains(d.Dimensions, DimensionTenant)
	}
	a.busy.limit = a.tenants
	return a
}

// Add adds data.
func (a *Aggregator) Add(data ...Datum) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range data {
		d := &data[i]
		minute := floorMinute(d.Time)
		a.add(sumKey{d.Name, "", minute}, d.Value)
		if d.Tenant != "" && a.named[d.Name] {
			a.add(sumKey{d.Name, d.Tenant, minute}, d.Value)
		}
	}
}

func floorMinute(t time.Time) int64 {
	s := t.Unix()
	return s - ((s%60)+60)%60
}

func (a *Aggregator) add(k sumKey, v float64) {
	p := a.sums[k]
	if p == nil {
		a.sums[k] = &Point{Name: k.name, Tenant: k.tenant, Samples: 1, Sum: v, Min: v, Max: v}
		return
	}
	p.Samples++
	p.Sum += v
	p.Min, p.Max = min(p.Min, v), max(p.Max, v)
}

// Take returns the points so far, in a fixed order, and begins anew. now tells the hours apart in which tenants are named.
func (a *Aggregator) Take(now time.Time) []Point {
	a.mu.Lock()
	sums := a.sums
	a.sums = make(map[sumKey]*Point, len(sums))
	for k, p := range sums {
		if k.tenant != "" {
			a.busy.count(k.tenant, p.Samples)
		}
	}
	named := a.busy.choose(now)
	a.mu.Unlock()
	points := make(map[sumKey]*Point, len(sums))
	for k, p := range sums {
		switch {
		case k.tenant == "":
		case named[k.tenant]:
			k.tenant = TenantValue(k.tenant)
		default:
			k.tenant = OtherTenants
		}
		p.Tenant = k.tenant
		p.Unit = cmp.Or(a.units[k.name], UnitCount)
		p.Minute = time.Unix(k.minute, 0).UTC()
		if other := points[k]; other != nil {
			other.merge(p)
			continue
		}
		points[k] = p
	}
	return sorted(points)
}

// merge adds another point of the same metric and minute.
func (p *Point) merge(other *Point) {
	p.Samples += other.Samples
	p.Sum += other.Sum
	p.Min, p.Max = min(p.Min, other.Min), max(p.Max, other.Max)
}

func sorted(points map[sumKey]*Point) []Point {
	list := make([]Point, 0, len(points))
	for _, p := range points {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Point) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// busiest chooses the tenants that are named.
type busiest struct {
	limit  int
	counts map[string]float64
	named  map[string]bool // this hour, also those that others have displaced since
	hour   int64
}

// remembered bounds how many tenants' counts are kept, as a multiple of the limit, beside a fixed number.
const (
	rememberedTenants   = 1000
	rememberedPerTenant = 16
)

func (b *busiest) count(tenant string, n float64) {
	if b.limit == 0 {
		return
	}
	if b.counts == nil {
		b.counts = make(map[string]float64)
	}
	b.counts[tenant] += n
}

// choose returns the tenants with the most data. Within an hour no more than twice the limit get a name: once that many
// have, only they can.
func (b *busiest) choose(now time.Time) map[string]bool {
	if b.limit == 0 {
		return nil
	}
	if hour := now.Unix() / 3600; hour != b.hour || b.named == nil {
		b.hour, b.named = hour, make(map[string]bool)
		for t, n := range b.counts {
			b.counts[t] = n / 2 // what was an hour ago matters less
		}
	}
	order := make([]string, 0, len(b.counts))
	for t := range b.counts {
		order = append(order, t)
	}
	slices.SortFunc(order, func(x, y string) int {
		return cmp.Or(cmp.Compare(b.counts[y], b.counts[x]), cmp.Compare(x, y))
	})
	chosen := make(map[string]bool, b.limit)
	for _, t := range order {
		if len(chosen) == b.limit {
			break
		}
		if b.named[t] || len(b.named) < 2*b.limit {
			b.named[t], chosen[t] = true, true
		}
	}
	if keep := rememberedTenants + rememberedPerTenant*b.limit; len(order) > keep {
		for _, t := range order[keep:] {
			delete(b.counts, t)
		}
	}
	return chosen
}
