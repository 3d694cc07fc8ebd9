package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/outside"
	"toolledger/writers"
)

// trouble is what goes wrong with an intent the first time that somebody acts on it.
type trouble int

const (
	none           trouble = iota
	workerDies             // after it acted, before it records that
	workerDiesIdle         // after it reserved, before it acts
	answerLost             // the world acts and drops the connection
	refuses                // the world refuses, each time
	slow                   // the world takes its time
	workerStalls           // and acts only after its reservation was given back
)

// share of the intents that meet each trouble, in percent; at least one intent meets each.
var shares = map[trouble]int{workerDies: 12, workerDiesIdle: 6, answerLost: 10, refuses: 8, slow: 10, workerStalls: 1}

const (
	slowest    = 30 * time.Millisecond
	unseen     = 150 * time.Millisecond // until all other callers have looked: the sweep finds the effect then
	fewCallers = 2
	manyCaller = 8
	poorShare  = 60 // percent of what its calls cost that the last tenant may spend
)

// demoCall is one intent, how many callers want it, and what goes wrong.
type demoCall struct {
	*intent
	trouble trouble
	answers []answer
	last    answer
	reused  bool // another action under a key that is taken
}

// demoPlan is the whole story as it is decided before it begins.
type demoPlan struct {
	calls   []*demoCall
	reuse   *demoCall // the call that uses a key again
	tenants []string
	cost    map[string]int64
	poor    int64 // what the last tenant's calls cost, without those that the world refuses

	calm atomic.Bool // nothing goes wrong any more

	mu    sync.Mutex
	asked map[int]int // acts that reached the world, by case
}

var firstTenants = []string{"acme", "globex", "initech"}

// demoTenants names the tenants; suffix keeps them apart from those of an earlier run at the same place.
func demoTenants(n int, suffix string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "tenant-" + strconv.Itoa(i+1)
		if i < len(firstTenants) {
			names[i] = firstTenants[i]
		}
		names[i] += suffix
	}
	return names
}

// suffix is empty at a place where nothing has happened yet, and else the time.
func (a *app) demoSuffix(ctx context.Context, place *location) (string, error) {
	out, err := place.client.Scan(ctx, &dynamodb.ScanInput{
		TableName: aws.String(place.table), Limit: aws.Int32(1), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return "", fmt.Errorf("read %s: %w", place.table, err)
	}
	if len(out.Items) == 0 {
		return "", nil
	}
	return "-" + strconv.FormatInt(a.now().UnixMilli(), 36), nil
}

// plan decides the story from the seed.
func (o *demoOptions) plan(suffix string) *demoPlan {
	p := &demoPlan{tenants: demoTenants(o.tenants, suffix), cost: map[string]int64{}, asked: map[int]int{}}
	random := rand.New(rand.NewPCG(o.seed, 0))
	troubles := make([]trouble, 0, o.intents)
	for t := workerDies; t <= workerStalls; t++ {
		for range max(1, o.intents*shares[t]/100) {
			troubles = append(troubles, t)
		}
	}
	troubles = append(troubles[:min(len(troubles), o.intents)], make([]trouble, o.intents-min(len(troubles), o.intents))...)
	random.Shuffle(len(troubles), func(i, j int) { troubles[i], troubles[j] = troubles[j], troubles[i] })
	o.spareLast(troubles)
	for i := range o.intents {
		c := p.call(i, troubles[i], random)
		c.answers = make([]answer, fewCallers+random.IntN(manyCaller-fewCallers+1))
		p.calls = append(p.calls, c)
		p.cost[c.tenant] += c.tokens
		if c.tenant == p.tenants[len(p.tenants)-1] && c.trouble != refuses {
			p.poor += c.tokens
		}
	}
	return p
}

// spareLast keeps stalled workers away from the last tenant where there are others: what they settle late is debited beyond the
// quota, and with few calls the tenant would not run out.
func (o *demoOptions) spareLast(troubles []trouble) {
	last := o.tenants - 1
	for i, t := range troubles {
		if t != workerStalls || i%o.tenants != last || last == 0 {
			continue
		}
		for j, other := range troubles {
			if j%o.tenants != last && other != workerStalls {
				troubles[i], troubles[j] = other, t
				break
			}
		}
	}
}

var demoTools = []string{"open_ticket", "send_invoice", "book_room"}

// call makes intent i. Every way to name a call occurs.
func (p *demoPlan) call(i int, t trouble, random *rand.Rand) *demoCall {
	tenant := p.tenants[i%len(p.tenants)]
	session := "session-" + strconv.Itoa(i/(4*len(p.tenants))+1)
	tool := demoTools[random.IntN(len(demoTools))]
	args, _ := json.Marshal(map[string]any{"subject": fmt.Sprintf("matter %d", i+1), "urgent": i%2 == 0}) // encodes always
	key := writers.SessionKey("step-" + strconv.Itoa(i+1))
	switch i % 5 {
	case 3:
		key = writers.TenantKey("order-" + strconv.Itoa(i+1))
	case 4:
		key = writers.IntentKey(tool, json.RawMessage(args))
	}
	n := &intent{
		line: i + 1, tenant: tenant, session: session, key: key, tool: &storyTool{name: tool}, args: args,
		tokens: 1 + random.Int64N(3), ref: refOf(tenant, session, key), action: &action{},
	}
	switch t {
	case workerDies:
		n.fate = p.firstTime(diesAfter)
	case workerDiesIdle:
		n.fate = p.firstTime(diesBefore)
	case workerStalls:
		n.fate, n.wake = p.firstTime(stalls), make(chan struct{})
	case none, answerLost, refuses, slow:
	}
	return &demoCall{intent: n, trouble: t}
}

func (p *demoPlan) firstTime(f fate) func(int) fate {
	return func(act int) fate {
		if act == 1 && !p.calm.Load() {
			return f
		}
		return lives
	}
}

// script is the outside world's part.
func (p *demoPlan) script(o demoOptions) func(outside.Request) outside.Answer {
	return func(req outside.Request) outside.Answer {
		if req.Case < 1 || req.Case > len(p.calls) {
			return outside.Answer{Result: "done by somebody who should not have"}
		}
		c := p.calls[req.Case-1]
		p.mu.Lock()
		p.asked[req.Case]++
		first := p.asked[req.Case] == 1 && !p.calm.Load()
		p.mu.Unlock()
		answer := outside.Answer{Result: fmt.Sprintf("%s no. %d is done", c.tool.name, c.line)}
		switch c.trouble {
		case answerLost:
			answer.Drop = first
		case refuses:
			answer.Refuse = refusedStatus
		case slow:
			answer.Delay = slowest
		case none, workerDies, workerDiesIdle, workerStalls:
		}
		if first && c.line%2 == 1 && (c.trouble == workerDies || c.trouble == answerLost) {
			answer.Delay = unseen
		}
		if o.sabotage == sabotageEffects {
			answer.Repeat = 1
		}
		return answer
	}
}

// plans gives every tenant its tokens: twice what its calls cost, but for the last one, which gets less than what those of its
// calls cost that the world does not refuse: it runs out, whatever comes first.
func (s *story) plans(ctx context.Context, p *demoPlan) error {
	for i, tenant := range p.tenants {
		tokens := p.cost[tenant] * 2
		if i == len(p.tenants)-1 {
			tokens = p.poor * poorShare / 100
		}
		if err := s.ledger.Tenant(writers.TenantID(tenant)).PutPlan(ctx, writers.Plan{Tokens: tokens}); err != nil {
			return err
		}
	}
	return nil
}
