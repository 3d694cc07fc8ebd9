package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
	"toolledger/sweeper"
	"toolledger/writers"
	"toolledger/writers/api"
)

// process is one program of the world, with a clock of its own. A process that was killed is replaced by a new one.
type process struct {
	w          *world
	n          int // incarnation, over all slots
	slot       string
	skew       time.Duration
	dead       chan struct{}
	background *operation // what its goroutines do for no operation
	ledger     *writers.Ledger
	tools      map[string]*writers.Tool[args, receipt]
	handler    http.Handler
	direct     func(context.Context, []byte) ([]byte, error)
	sweeper    *sweeper.Sweeper
	dynamo     *dynamodb.Client
}

// slots are the places that processes have, by what they do.
var slots = []string{
	"worker-0", "worker-1", "worker-2", "http-0", "http-1", "direct-0", "sweeper-0", "sweeper-1", "operator-0", "consumer-0", "poller-0",
}

// slotsOf are those of one kind.
func slotsOf(kind string) (out []int) {
	for i, s := range slots {
		if len(s) > len(kind) && s[:len(kind)] == kind {
			out = append(out, i)
		}
	}
	return out
}

func (p *process) killed() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// clock is what the process takes the true time t for.
func (p *process) clock(t time.Time) time.Time { return t.Add(p.skew) }

func (p *process) now() time.Time { return p.clock(p.w.now()) }

// spawn starts a process in a slot.
func (w *world) spawn(slot int) *process {
	w.mu.Lock()
	w.incarnation++
	n := w.incarnation
	w.mu.Unlock()
	r := w.rng("process", slots[slot], n)
	p := &process{w: w, n: n, slot: slots[slot], dead: make(chan struct{}), skew: time.Duration(r.Int64N(int64(skew))) - skew/2}
	p.background = &operation{w: w, id: -n, kind: &opKind{name: "background"}, proc: p}
	cfg := stack.AWSConfig("http://store.invalid")
	p.dynamo = dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.HTTPClient = &processClient{w, p} }, seededRetries)
	ledger, err := writers.New(p.dynamo, writers.Config{
		Table: w.store.ledger.name, Control: w.store.control.name, Skew: skew, Now: p.now, Keep: keep,
	})
	if err != nil {
		panic(err) // a configuration of ours
	}
	p.ledger, p.tools = ledger, map[string]*writers.Tool[args, receipt]{}
	var tools []writers.AnyTool
	for i := range services {
		t := w.tool(&services[i])
		p.tools[services[i].name] = t
		tools = append(tools, t)
	}
	p.handler, err = api.NewHandler(ledger, api.HandlerConfig{
		Tenant: func(r *http.Request) (writers.TenantID, error) {
			return writers.TenantID(r.Header.Get("X-Tenant-Id")), nil
		},
		Now: p.now, Timeout: w.cfg.profile.patience(25 * time.Second),
	})
	if err != nil {
		panic(err)
	}
	door := api.Direct(ledger)
	p.direct = func(ctx context.Context, event []byte) ([]byte, error) { return door(ctx, event) }
	p.sweeper, err = sweeper.New(ledger, sweeper.Config{Tools: tools, GiveUp: giveUp, Concurrency: 3, Batch: 4})
	if err != nil {
		panic(err)
	}
	return p
}

// kill ends a process as kill -9 does, and starts another one in its place. Whatever it was doing comes to nothing.
func (w *world) kill(p *process) {
	if p.killed() {
		return
	}
	close(p.dead)
	w.count("crash", p.slot[:len(p.slot)-2])
	w.note("killed %s", p.slot)
	slot := slices.Index(slots, p.slot)
	w.procs[slot] = w.spawn(slot)
	w.gate.nudge()
}

// tenantPlan is a tenant and what it may spend.
type tenantPlan struct {
	id     string
	plan   writers.Plan
	erases bool // somebody erases it now and then
}

// keep is how long a call is remembered: short, so that keys are used again within a run that lets days pass.
const keep = 30 * time.Minute

// intent is one intended action. It comes in two variants, which differ in their arguments: the same key must not do both.
type intent struct {
	n           int
	tenant      *tenantPlan
	session     string
	id          string
	wide        bool
	service     *service
	variants    [2]args
	cursor      string
	expect      *string
	compensates *intent
	refund      bool
}

func (in *intent) key() writers.Key {
	if in.wide {
		return writers.TenantKey(in.id)
	}
	return writers.SessionKey(in.id)
}

// rowKey is where the ledger keeps the call, by the words of the design.
func (in *intent) rowKey() key { return rowKeyOf(in.tenant.id, in.session, in.id, in.wide) }

func rowKeyOf(tenant, session, id string, wide bool) key {
	if !wide {
		return key{"TENANT#" + tenant + "#SESSION#" + session, "TOOL#" + id}
	}
	sum := sha256.Sum256([]byte(id))
	return key{"TENANT#" + tenant + "#CALLS#" + strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])%16, 10), "TOOL#" + id}
}

// populate makes the tenants, the actions that will be intended, and the processes.
func (w *world) populate() {
	w.procs = make([]*process, len(slots))
	for i := range slots {
		w.procs[i] = w.spawn(i)
	}
	w.tenants = []*tenantPlan{
		{id: "tiny", plan: writers.Plan{Tokens: 9, Period: writers.Daily}},
		{id: "wide", plan: writers.Plan{Tokens: 90, Period: writers.Monthly, Shards: 4}},
		{id: "shards", plan: writers.Plan{Tokens: 25, Period: writers.Daily, Shards: 3, Overdraft: 10}},
		{id: "always", plan: writers.Plan{Tokens: 2000, Period: writers.Always, Shards: 2, Overdraft: 5}},
		{id: "leaving", plan: writers.Plan{Tokens: 300, Period: writers.Daily}, erases: true},
	}
	if w.cfg.profile.aimed { // what is refused for want of tokens has other profiles
		for _, t := range w.tenants {
			t.plan.Tokens *= 40
		}
	}
	r := w.rng("intents")
	for n := range w.cfg.steps/14 + 10 {
		in := &intent{
			n: n, tenant: w.tenants[r.IntN(len(w.tenants))], session: sessions[r.IntN(len(sessions))], id: fmt.Sprintf("k%d", n),
			wide: r.IntN(4) == 0, service: &services[[]int{0, 0, 1, 2, 3, 3, 4}[r.IntN(7)]],
		}
		if w.cfg.profile.aimed {
			w.favour(in, w.rng("favour", n))
		}
		w.shareKey(in)
		for v := range in.variants {
			in.variants[v] = args{Ref: fmt.Sprintf("ref-%d-%c", n, 'a'+v), Amount: int64(1 + r.IntN(12))}
			if r.IntN(8) == 0 {
				in.variants[v].Amount = 0
			}
			w.oracle.asked[in.variants[v].Ref] = in.variants[v]
		}
		if r.IntN(3) == 0 {
			in.cursor = fmt.Sprintf("cursor-%d", n)
			if r.IntN(2) == 0 && (!w.cfg.profile.aimed || r.IntN(6) == 0) {
				in.expect = new(string)
			}
		}
		w.compensating(in, r.IntN(4) == 0, r.IntN(2) == 0)
		w.pool = append(w.pool, in)
	}
	w.feed = newFeed(w)
	w.calm = true
	for _, t := range w.tenants {
		w.start(kindPlanSet, func(op *operation) { op.tenant, op.plan = t, t.plan })
	}
	if w.isParallel() {
		w.parallel.join()
	} else {
		w.settleDown(2000)
	}
	w.calm = false
}

// shareKey gives some actions the key of the one before, in another tenant, session or scope: to the ledger that is another key.
func (w *world) shareKey(in *intent) {
	r := w.rng("same key", in.n)
	if len(w.pool) == 0 {
		return
	}
	if last := w.pool[len(w.pool)-1]; last.compensates != nil && last.compensates.wide && !last.wide && r.IntN(2) == 0 {
		twin := &intent{tenant: last.tenant, session: otherThan(last.session), id: last.id}
		if w.intentOf(twin.rowKey()) == nil { // two sessions are to undo one call of their tenant
			in.tenant, in.session, in.wide, in.id, in.compensates, in.refund = twin.tenant, twin.session, false, twin.id, last.compensates, last.refund
			return
		}
	}
	mine := in.id
	if in.id = w.pool[len(w.pool)-1].id; r.IntN(4) > 0 || w.intentOf(in.rowKey()) != nil {
		in.id = mine
	}
}

func otherThan(session string) string {
	if session == sessions[0] {
		return sessions[1]
	}
	return sessions[0]
}

// favour makes most actions of an aimed run such as can become what it is about.
func (w *world) favour(in *intent, r *rand.Rand) {
	if r.IntN(3) == 0 {
		return
	}
	for range 20 {
		if w.aim().favours(in.service) {
			break
		}
		in.service = &services[r.IntN(len(services))]
	}
	if strings.HasPrefix(w.aim().purpose, "erase") {
		in.tenant = w.tenants[slices.IndexFunc(w.tenants, func(t *tenantPlan) bool { return t.erases })]
	}
}

// compensating makes an intent undo an earlier one of the same tenant, where there is one that can be reached.
func (w *world) compensating(in *intent, want, refund bool) {
	if !want || in.compensates != nil {
		return
	}
	for _, other := range slices.Backward(w.pool) {
		if other.tenant == in.tenant && other.compensates == nil && (other.wide || other.session == in.session) {
			in.compensates, in.refund = other, refund
			return
		}
	}
}

// settleDown lets what is under way come to its end.
func (w *world) settleDown(most int) {
	for range most {
		if len(w.alive) == 0 && len(w.timers) == 0 || w.failure != nil {
			return
		}
		if err := w.tick(); err != nil {
			return
		}
	}
	if len(w.alive) > 0 {
		_ = w.broken("every call ends within its bound", "after %d steps without faults, operation %d %s is still under way",
			most, w.alive[0].id, w.alive[0].name())
	}
}

// end kills everything that is left, so that every goroutine of the bubble can end.
func (w *world) end() {
	for _, p := range w.procs {
		if !p.killed() {
			close(p.dead)
		}
	}
	for _, op := range w.alive {
		op.cancel()
	}
	w.timers = nil
	w.wg.Wait()
}
