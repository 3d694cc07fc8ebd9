package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolledger/writers"
)

// The gate is where every process of the world waits: each request to DynamoDB, EventBridge, CloudWatch and the outside
// system becomes an entry here, and nothing happens until the scheduler picks it. It is the HTTP client of the real SDK
// clients, below their retries, and the client itself of what is not DynamoDB.
type gate struct {
	mu   sync.Mutex
	all  []*entry
	wake chan struct{} // something happened that the scheduler may be waiting for
}

// answer is what a request came to.
type answer struct {
	resp  *http.Response
	value any
	err   error
	text  []byte // of resp
}

// body is what a refusal of the service says; nil where it is none.
func (a answer) body() []byte {
	if a.resp == nil || a.resp.StatusCode != http.StatusBadRequest {
		return nil
	}
	return a.text
}

// entry is one request that waits for the scheduler.
type entry struct {
	op      *operation
	seq     int // of the requests of its operation, from 1; given in a fixed order
	target  string
	purpose string // what the request is for, in the protocol's words
	row     key    // the ledger row that it is about, where there is one
	order   string // breaks ties between requests that one operation made at one moment
	body    []byte
	header  http.Header
	act     func(fault) answer // what the request does where it is none to DynamoDB
	posted  time.Time          // when the caller sent it
	due     time.Time          // not before
	decided bool               // its fault has been drawn
	gone    bool               // the caller has left
	until   time.Time          // when the caller leaves, by the clock of the bubble; zero: never
	rowID   string             // of the row that the request is about, where it names it
	attempt int64              // that it is about, likewise
	lookup  string             // of the action that it is about, where it is no request to DynamoDB
	undoes  part               // what the request does to the call that it compensates
	asked   bool               // it is decided whether it is kept back (aim.go)
	met     bool               // it was, until its row was where it was wanted
	leads   bool               // it is of use for what comes after it
	late    bool               // it was delayed on its way
	reply   chan answer
}

func (e *entry) dynamo() bool { return e.act == nil }

// errDead is what a process gets that was killed: nothing of it reaches the world any more.
var errDead = errors.New("the process is dead")

// errBroken is a connection that broke.
func errBroken() error { return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET} }

func (g *gate) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// wait posts an entry and waits for its answer.
func (g *gate) wait(ctx context.Context, e *entry) answer {
	proc := e.op.proc
	e.until, _ = ctx.Deadline()
	e.reply, e.posted = make(chan answer, 1), proc.w.now()
	if proc.killed() {
		return answer{err: errDead}
	}
	if p := proc.w.parallel; p != nil {
		return p.answer(ctx, e)
	}
	g.mu.Lock()
	g.all = append(g.all, e)
	g.mu.Unlock()
	g.nudge()
	select {
	case a := <-e.reply:
		if proc.killed() {
			return answer{err: errDead}
		}
		return a
	case <-ctx.Done():
		g.leave(e)
		return answer{err: ctx.Err()}
	case <-proc.dead:
		g.leave(e)
		return answer{err: errDead}
	}
}

// meet is a point where the scheduler and the goroutine of an operation meet. Only one of them runs at a time, but where a pause ends the race
// detector cannot see that.
func (g *gate) meet() {
	g.mu.Lock()
	defer g.mu.Unlock()
}

func (g *gate) leave(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.gone = true
	g.nudge()
}

// ready numbers what is new, forgets what nobody waits for any more, and returns what could run now, in a fixed order.
func (g *gate) ready(now time.Time) []*entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, func(e *entry) bool { return e.gone })
	var fresh []*entry
	for _, e := range g.all {
		if e.seq == 0 {
			fresh = append(fresh, e)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.op.id, b.op.id), cmp.Compare(a.target, b.target), strings.Compare(a.order, b.order))
	})
	for _, e := range fresh {
		g.number(e)
	}
	var out []*entry
	for _, e := range g.all {
		if !e.due.After(now) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.op.id, b.op.id), cmp.Compare(a.seq, b.seq)) })
	return out
}

// number gives a request its number. Requests of one operation that nothing tells apart share one, and one fate: which of
// its goroutines came first is the runtime's choice, and no history may depend on that.
func (g *gate) number(e *entry) {
	for _, o := range g.all {
		if o.seq != 0 && o.op == e.op && o.target == e.target && o.order == e.order && o.decided == e.decided {
			e.seq = o.seq
			return
		}
	}
	e.op.requests++
	e.seq = e.op.requests
	if e.attempt == 0 && slices.Contains(holders, e.purpose) {
		e.attempt = e.op.attemptOf(e.rowID) // a fault of the product may be that it names none
	}
}

// holders are the requests of whoever holds an attempt.
var holders = []string{"extend", "release", "finalize"}

// attemptOf is the attempt of a row that an operation, or the one that it goes on for, began last; 0: none.
func (op *operation) attemptOf(rowID string) (attempt int64) {
	for _, r := range op.wrote {
		if r.new.str("rowId") == rowID && beginsAnew(r) {
			attempt = r.new.num("attempt")
		}
	}
	if attempt == 0 && op.id > childOf {
		return op.w.ops[op.id%childOf-1].attemptOf(rowID)
	}
	return attempt
}

// alike returns the requests that share a number with e, and e.
func (g *gate) alike(e *entry) (all []*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.all {
		if o.op == e.op && o.seq == e.seq && !o.gone {
			all = append(all, o)
		}
	}
	return all
}

// nextDue is when the first delayed entry may run; zero where there is none.
func (g *gate) nextDue() (first time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.all {
		if !e.gone && (first.IsZero() || e.due.Before(first)) {
			first = e.due
		}
	}
	return first
}

// take removes an entry that is about to run.
func (g *gate) take(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, func(o *entry) bool { return o == e })
}

// opKey finds the operation that a request belongs to.
type opKey struct{}

// processClient is the HTTP client of one process's SDK clients.
type processClient struct {
	w    *world
	proc *process
}

// Do hands the request to the scheduler.
func (c *processClient) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	op, ok := r.Context().Value(opKey{}).(*operation)
	if !ok {
		op = c.proc.background
	}
	e := &entry{op: op, body: body, header: r.Header.Clone()}
	_, e.target, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if e.target == "TransactWriteItems" {
		items := transactionOf(body)
		e.purpose, e.row = transactionPurpose(items)
		e.rowID, e.attempt = guardOf(e.row, items)
		e.undoes = undoingOf(items)
	} else {
		e.purpose, e.row = purposeOf(e.target, body)
	}
	e.order = orderOf(e.purpose, body)
	a := c.w.wait(r.Context(), e)
	if a.resp != nil {
		a.resp.Request = r
	}
	return a.resp, a.err
}

// call hands a request that is none to DynamoDB to the scheduler.
func (w *world) call(ctx context.Context, target, order string, act func(fault) answer) answer {
	op, ok := ctx.Value(opKey{}).(*operation)
	if !ok {
		return answer{err: fmt.Errorf("%s: no operation in the context", target)}
	}
	return w.wait(ctx, &entry{op: op, target: target, purpose: target, order: order, act: act, row: op.rowKey()})
}

// callFor is call for an action, or a look at one, of an attempt of a row.
func (w *world) callFor(ctx context.Context, target string, c writers.CallInfo, act func(fault) answer) answer {
	op, ok := ctx.Value(opKey{}).(*operation)
	if !ok {
		return answer{err: fmt.Errorf("%s: no operation in the context", target)}
	}
	row := op.rowKey()
	if row == (key{}) { // a sweep looks after the calls of others
		row = rowKeyOf(string(c.Tenant), c.Session, c.Key.String(), c.Key == writers.TenantKey(c.Key.String()))
	}
	return w.wait(ctx, &entry{
		op: op, target: target, purpose: target, order: c.Lookup, act: act, row: row, rowID: c.RowID, attempt: int64(c.Attempt), lookup: c.Lookup,
	})
}

// httpAnswer makes a response of what the store said, or of what it might have said.
func httpAnswer(a backendAnswer) answer {
	if a.err != nil {
		return answer{err: errBroken()}
	}
	h := a.header.Clone()
	h.Del("X-Amz-Crc32") // of the body as it was
	return answer{text: a.body, resp: &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: int64(len(a.body)), Body: io.NopCloser(bytes.NewReader(a.body)),
	}}
}

// serviceError is an answer of the service; message is empty, as it is in some versions: nobody may read it.
func serviceError(code string, reasons []string) answer {
	status := http.StatusBadRequest
	if code == "InternalServerError" {
		status = http.StatusInternalServerError
	}
	body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code}
	if reasons != nil {
		list := make([]map[string]string, len(reasons))
		for i, r := range reasons {
			list[i] = map[string]string{"Code": r}
		}
		body["CancellationReasons"] = list
	}
	text, _ := json.Marshal(body) // strings only
	return httpAnswer(backendAnswer{status: status, header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, body: text})
}

// transactItem is one action of a transaction as the wire has it.
type transactItem struct {
	Put                            *struct{ Item item }
	Update, Delete, ConditionCheck *struct {
		Key                       item
		UpdateExpression          string
		ConditionExpression       string
		ExpressionAttributeValues item
	}
}

// orderOf tells apart what one operation asks for at one moment, by the items that it names; what is drawn at random, or comes in
// the order of a map, is left out.
func orderOf(purpose string, body []byte) string {
	var in struct {
		Key, ExclusiveStartKey, ExpressionAttributeValues item
		Segment                                           int
		TransactItems                                     []map[string]struct{ Key, Item item }
	}
	_ = json.Unmarshal(body, &in) // what is no object has no order either
	var b strings.Builder
	_, _ = fmt.Fprint(&b, purpose, keyOf(in.Key), keyOf(in.ExclusiveStartKey), in.Segment)
	for _, it := range in.TransactItems {
		for _, part := range it {
			_, _ = fmt.Fprint(&b, keyOf(part.Key), keyOf(part.Item))
		}
	}
	if len(in.TransactItems) == 0 && len(in.Key) == 0 {
		text, _ := json.Marshal(in.ExpressionAttributeValues) // in the order of its names
		_, _ = b.Write(text)
	}
	return b.String()
}

// transactionOf reads a transaction; nil where the request is none.
func transactionOf(body []byte) []transactItem {
	var in struct{ TransactItems []transactItem }
	if json.Unmarshal(body, &in) != nil {
		return nil
	}
	return in.TransactItems
}

// purposeOf says what a request is for that is no transaction of writes, and which ledger row it is about.
func purposeOf(target string, body []byte) (string, key) {
	var in struct {
		Key                       item
		ExpressionAttributeValues item
		TransactItems             []struct{ Get struct{ Key item } }
	}
	_ = json.Unmarshal(body, &in) // what is no object has no purpose either
	k := keyOf(in.Key)
	switch {
	case strings.HasPrefix(k.pk, "OBS#"):
		return "observe", key{} // it is an item of its own, whatever its row is
	case target == "GetItem" && strings.HasPrefix(k.sk, "TOOL#"):
		return "read row", k
	case target == "GetItem" && k.sk == "PLAN":
		return "read plan", key{}
	case target == "GetItem" && k.sk == "META":
		return "read session", key{}
	case target == "TransactGetItems":
		return "read shards", key{}
	case strings.HasPrefix(k.pk, "STREAM#") || strings.HasPrefix(k.pk, "LEASE#"):
		return target + " lease", key{}
	}
	return target, key{}
}

// guardOf is the row id and the attempt that a transaction names of its ledger row.
func guardOf(row key, items []transactItem) (rowID string, attempt int64) {
	for _, it := range items {
		switch {
		case it.Update != nil && keyOf(it.Update.Key) == row:
			v := it.Update.ExpressionAttributeValues
			return v.str(":guardRow"), v.num(":guardAttempt")
		case it.Delete != nil && keyOf(it.Delete.Key) == row:
			return it.Delete.ExpressionAttributeValues.str(":r"), 0
		}
	}
	return "", 0
}

// part is what a transaction does to a second row.
type part struct {
	purpose string
	row     key
	rowID   string
}

// undoingOf is what a transaction does to the call that it compensates: "link" with its reservation, "compensated" in the end.
func undoingOf(items []transactItem) part {
	for _, it := range items {
		if it.Update == nil || !strings.HasPrefix(it.Update.Key.str("sk"), "TOOL#") {
			continue
		}
		v := it.Update.ExpressionAttributeValues
		if p := updatePurpose(it.Update.UpdateExpression, v); p == "link" || p == "compensated" {
			return part{p, keyOf(it.Update.Key), v.str(":guardRow")}
		}
	}
	return part{}
}

func transactionPurpose(items []transactItem) (string, key) {
	best, row := "write", key{}
	for _, it := range items {
		switch {
		case it.Put != nil:
			k := keyOf(it.Put.Item)
			switch {
			case strings.HasPrefix(k.sk, "TOOL#"):
				return putPurpose(it.Put.Item), k
			case k.sk == "PLAN":
				best = "set plan"
			case strings.HasPrefix(k.sk, "GRANT#"):
				best = "grant"
			case strings.HasPrefix(k.sk, "QUOTA#") && best == "write":
				best = "create quota"
			}
		case it.Update != nil && strings.HasPrefix(it.Update.Key.str("sk"), "TOOL#"):
			p := updatePurpose(it.Update.UpdateExpression, it.Update.ExpressionAttributeValues)
			if p != "compensated" && p != "link" {
				return p, keyOf(it.Update.Key)
			}
			best, row = p, keyOf(it.Update.Key)
		case it.Delete != nil && strings.HasPrefix(it.Delete.Key.str("sk"), "TOOL#"):
			return "erase row", keyOf(it.Delete.Key)
		case it.Delete != nil:
			best = "erase"
		}
	}
	return best, row
}

func putPurpose(it item) string {
	switch {
	case it.str("state") == "pending":
		return "reserve"
	case it.has("settledFrom"):
		return "settle new"
	}
	return "commit"
}

func updatePurpose(update string, v item) string {
	guard := v.str(":guardState")
	switch v.str(":state") {
	case "pending":
		return "takeover"
	case "failed":
		return map[string]string{"released": "release", "expired": "expire"}[v.str(":failure")] + map[bool]string{true: "resolve"}[v.str(":failure") == "resolved"]
	case "applied":
		switch {
		case v.has(":appliedAttempt") && v.num(":appliedAttempt") < v.num(":guardAttempt"):
			return "settle fenced"
		case strings.Contains(update, "#attempt = #attempt"):
			return "commit failed"
		case v.str(":settledBy") == "person":
			return "resolve applied"
		case guard == "failed" && v.str(":settledBy") == "holder":
			return "settle late"
		case v.has(":guardVersion") && guard == "failed":
			return "verify settle"
		case v.has(":guardVersion"):
			return "sweep finalize"
		}
		return "finalize"
	}
	for _, c := range []struct{ attr, purpose string }{
		{":compensatedAt", "compensated"},
		{":compensatedBy", "link"},
		{":deadline", "extend"},
		{":sweepAt", "defer"},
		{":held", "hold"},
		{":erasing", "erase mark"},
		{":suspects", "suspect"},
		{":by", "link"},
	} {
		if v.has(c.attr) {
			return c.purpose
		}
	}
	return "update row"
}
