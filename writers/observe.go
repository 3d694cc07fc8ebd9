package writers

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
)

// observation is what one refusal or replay adds to a call's counters.
type observation struct {
	duplicates, inFlight, keyConflicts, quotaDenials, giveUps int64
}

func (o *observation) add(p observation) {
	o.duplicates += p.duplicates
	o.inFlight += p.inFlight
	o.keyConflicts += p.keyConflicts
	o.quotaDenials += p.quotaDenials
	o.giveUps += p.giveUps
}

// observedCall is what an observation item says beside its counters.
type observedCall struct {
	key           schema.Key
	tool, session string
	keep          time.Duration
}

// Bounds of gathering: a storm on more calls than this is written out call by call.
const (
	observedMost = 10_000
	observeTime  = 2 * time.Second
)

// observer writes observations: each at once, or gathered for Config.Coalesce. Best effort by contract: what cannot be
// written is counted here and logged, and no call fails for it.
type observer struct {
	l       *Ledger
	dropped atomic.Int64

	mu       sync.Mutex
	gathered map[observedCall]*observation
	running  chan struct{} // closed when the goroutine that writes the gathered ones has ended; nil: there is none
	stop     chan struct{}
}

func (o *observer) init(l *Ledger) { o.l = l }

// observe counts something about a call. found, where there is one, tells which session the row belongs to.
func (c *request) observe(ctx context.Context, what observation, found *schema.Row) {
	call := observedCall{key: schema.ObservationKey(c.key), tool: c.Tool, session: c.s.id, keep: c.l.cfg.Keep}
	if found != nil {
		call.session = found.Session
	}
	o := &c.l.obs
	if c.l.cfg.Coalesce > 0 && o.gather(call, what) {
		return
	}
	o.write(ctx, call, what)
}

// gather adds to what is waiting and makes sure that somebody writes it out; false where too much is waiting.
func (o *observer) gather(call observedCall, what observation) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if sum := o.gathered[call]; sum != nil {
		sum.add(what)
		return true
	}
	if len(o.gathered) >= observedMost {
		return false
	}
	if o.gathered == nil {
		o.gathered = make(map[observedCall]*observation)
	}
	o.gathered[call] = &what
	if o.running == nil {
		o.running, o.stop = make(chan struct{}), make(chan struct{})
		go o.run(o.running, o.stop)
	}
	return true
}

// run writes out what is gathered until nothing was gathered for one interval; then it ends, and the next observation
// starts it anew. So an idle Ledger that nobody closes leaves no goroutine behind.
func (o *observer) run(done, stop chan struct{}) {
	defer close(done)
	for {
		timer := time.NewTimer(o.l.cfg.Coalesce)
		select {
		case <-stop:
			timer.Stop()
		case <-timer.C:
		}
		batch := o.take(done)
		if batch == nil {
			return
		}
		for call, what := range batch {
			o.write(context.Background(), call, *what)
		}
	}
}

// take empties what is gathered; where nothing is, it signs the running goroutine off in the same moment.
func (o *observer) take(done chan struct{}) map[observedCall]*observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch := o.gathered
	o.gathered = nil
	if len(batch) == 0 && o.running == done {
		o.running, o.stop = nil, nil
		return nil
	}
	return batch
}

// close hurries the goroutine and waits for it.
func (o *observer) close(ctx context.Context) error {
	o.mu.Lock()
	running, stop := o.running, o.stop
	if stop != nil {
		select {
		case <-stop:
		default:
			close(stop)
		}
	}
	o.mu.Unlock()
	if running == nil {
		return nil
	}
	select {
	case <-running:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is one ADD on the call's companion item. It needs no condition: counters only grow.
func (o *observer) write(ctx context.Context, call observedCall, what observation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTime)
	defer cancel()
	now := o.l.now()
	values := schema.Item{
		":format": schema.N(schema.Format), ":obsId": schema.S(rand.Text()), ":tool": schema.S(call.tool),
		":session": schema.S(call.session), ":updatedAt": schema.Millis(now), ":one": schema.N(1),
		":expiresAt": schema.Seconds(now.Add(call.keep)),
	}
	names := map[string]string{
		"#format": schema.AFormat, "#obsId": schema.AObsID, "#tool": schema.ATool, "#session": schema.ASession,
		"#updatedAt": schema.AUpdatedAt, "#expiresAt": schema.AExpiresAt, "#version": schema.AVersion,
	}
	var add strings.Builder
	add.WriteString(" ADD #version :one")
	for _, c := range []struct {
		attr string
		n    int64
	}{
		{schema.ADuplicates, what.duplicates},
		{schema.AInFlight, what.inFlight},
		{schema.AKeyConflicts, what.keyConflicts},
		{schema.AQuotaDenials, what.quotaDenials},
		{schema.AGiveUps, what.giveUps},
	} {
		if c.n > 0 {
			names["#"+c.attr], values[":"+c.attr] = c.attr, schema.N(c.n)
			add.WriteString(", #" + c.attr + " :" + c.attr)
		}
	}
	update := "SET #format = :format, #obsId = if_not_exists(#obsId, :obsId), #tool = :tool, #session = :session, " +
		"#updatedAt = :updatedAt, #expiresAt = :expiresAt" + add.String()
	_, err := o.l.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &o.l.cfg.Table, Key: call.key.Item(),
		UpdateExpression: &update, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	if err != nil {
		o.dropped.Add(1)
		o.l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "observation not written",
			slog.String("tool", call.tool), slog.Int64("dropped", o.dropped.Load()), slog.String("error", err.Error()))
	}
}
