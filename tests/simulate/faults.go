package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is what the world does to one request.
type fault struct {
	kind string
	wait time.Duration // of the kinds that take time
	pick uint64        // which item, which entry
}

// The faults of requests to DynamoDB.
const (
	pass            = "pass"
	refusedConn     = "connection refused"     // never sent
	lostAnswer      = "answer lost"            // applied, the connection breaks
	delayed         = "delayed"                // waits on its way; the caller may have gone by then, and then it never arrives
	straggler       = "arrives later"          // as delayed, but it arrives even if the caller has gone
	slowAnswer      = "slow answer"            // applied, the answer takes its time
	throttled       = "throttled"              //
	overCapacity    = "over capacity"          //
	conflict        = "TransactionConflict"    // on one of the items, or on a plain update
	mixedReasons    = "mixed reasons"          // a real cancellation, with a conflict beside it
	inProgress      = "TransactionInProgress"  //
	internalBefore  = "internal error"         // not applied
	internalApplied = "internal error, though" // applied
	hangs           = "hangs"                  // never sent; the connection breaks in the end
	hangsApplied    = "hangs, applied"         //
	killedBefore    = "process killed before"  // the request
	killedAfter     = "process killed after"   // the request was applied, before the answer
	storeRestart    = "store restarted"        // kill -9 of the store, on its file, before the request
	arrives         = "arrived late"           // what comes of delayed, where the caller is still there
)

// The faults of the outside system, of its verifiers, and of EventBridge and CloudWatch.
const (
	refuses       = "refused"         // surely not done
	unreached     = "unreached"       // not done; the caller cannot know
	dropped       = "dropped"         // done, the connection breaks
	slowAct       = "slow"            // done after a while, the caller waits
	lateAct       = "late"            // the caller sees a broken connection; it lands within the tool's horizon
	tooLateAct    = "too late"        // as late, beyond the horizon: what the protocol says it cannot hold
	verifyFails   = "verifier fails"  //
	verifyUnknown = "verifier unsure" //
	liesAbsent    = "verifier lies: absent"
	liesApplied   = "verifier lies: applied"
	partial       = "partial failure"  // some entries of PutEvents
	permanent     = "refused for good" // an entry, or a datum
	expired       = "iterator expired" //
)

// classOf is what a fault of a request to DynamoDB comes to for the row: which of the kinds that come to the same it was is decided
// before anybody looks at a row. Other faults are classes of their own.
func classOf(kind string) string {
	switch kind {
	case refusedConn, hangs, throttled, overCapacity, internalBefore, inProgress, conflict:
		return "not applied"
	case lostAnswer, internalApplied, hangsApplied:
		return "applied, not told"
	case delayed, arrives, slowAnswer, straggler:
		return "late"
	}
	return kind
}

func classesOf(kinds []string) (out []string) {
	for _, k := range kinds {
		if c := classOf(k); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// hangTime is when a connection that hangs is given up by the network itself.
const hangTime = 5 * time.Minute

// weights of faults by kind of request. What a profile adds is a factor in front of all, and the chaos column.
type weighted struct {
	kind   string
	weight int
	chaos  bool // only there
}

var (
	actFaults = []weighted{
		{refuses, 12, false},
		{unreached, 5, false},
		{dropped, 8, false},
		{slowAct, 5, false},
		{lateAct, 5, false},
		{hangs, 2, false},
		{hangsApplied, 3, false},
		{killedBefore, 4, false},
		{killedAfter, 6, false},
		{tooLateAct, 6, true},
	}
	findFaults = []weighted{
		{verifyFails, 4, false},
		{verifyUnknown, 5, false},
		{hangs, 3, false},
		{delayed, 3, false},
		{killedBefore, 1, false},
		{killedAfter, 1, false},
		{liesAbsent, 3, true},
		{liesApplied, 2, true},
	}
	eventFaults = []weighted{
		{partial, 10, false},
		{throttled, 3, false},
		{internalBefore, 3, false},
		{lostAnswer, 4, false},
		{delayed, 2, false},
		{hangs, 1, false},
		{killedBefore, 2, false},
		{killedAfter, 3, false},
	}
	metricFaults = []weighted{{throttled, 4, false}, {permanent, 3, false}, {lostAnswer, 3, false}, {killedAfter, 2, false}}
	streamFaults = []weighted{{throttled, 3, false}, {internalBefore, 3, false}, {delayed, 2, false}, {killedBefore, 2, false}}
	pageFaults   = []weighted{
		{throttled, 3, false},
		{internalBefore, 3, false},
		{expired, 4, false},
		{delayed, 2, false},
		{killedBefore, 2, false},
		{killedAfter, 2, false},
	}
	dynamoFaults = []weighted{
		{refusedConn, 3, false},
		{lostAnswer, 8, false},
		{delayed, 5, false},
		{slowAnswer, 5, false},
		{throttled, 3, false},
		{overCapacity, 2, false},
		{internalBefore, 3, false},
		{hangs, 1, false},
		{killedBefore, 2, false},
		{killedAfter, 2, false},
		{storeRestart, 1, true},
	}
	transactFaults = []weighted{
		{conflict, 8, false},
		{mixedReasons, 6, false},
		{inProgress, 3, false},
		{internalApplied, 4, false},
		{straggler, 5, false},
		{hangsApplied, 1, false},
		{lostAnswer, 4, false},
		{killedAfter, 3, false},
	}
	updateFaults   = []weighted{{conflict, 4, false}, {internalApplied, 2, false}, {straggler, 2, false}}
	readAllFaults  = []weighted{{conflict, 6, false}}
	nobodysRequest = []weighted{{pass, 1, false}} // a decision of the world itself
)

// faultsFor are the faults that a request may meet.
func faultsFor(target string) []weighted {
	switch target {
	case "outside.act":
		return actFaults
	case "outside.find":
		return findFaults
	case "PutEvents":
		return eventFaults
	case "PutMetricData":
		return metricFaults
	case "GetRecords":
		return pageFaults
	case "DescribeStream", "GetShardIterator":
		return streamFaults
	case "TransactWriteItems":
		return slices.Concat(dynamoFaults, transactFaults)
	case "UpdateItem":
		return slices.Concat(dynamoFaults, updateFaults)
	case "TransactGetItems":
		return slices.Concat(dynamoFaults, readAllFaults)
	case "GetItem", "Query", "Scan":
		return dynamoFaults
	}
	return nobodysRequest
}

// drawFault decides what happens to a request; the seed, the operation and the request's number in it decide alone, so
// that leaving out another operation changes nothing here.
func (w *world) drawFault(e *entry) fault {
	r := w.rng("fault", e.op.id, e.seq)
	if kind, ok := w.cfg.put[faultName(e)]; ok && !w.cfg.without(faultName(e)) {
		w.count("put", kind)
		w.placed[faultName(e)] = true
		return fault{kind: kind, wait: time.Millisecond, pick: r.Uint64()}
	}
	if w.calm || r.Float64() >= w.hostility(e) || w.cfg.without(faultName(e)) {
		return fault{kind: pass}
	}
	if w.cfg.profile.aimed {
		return w.aimedFault(e, r)
	}
	list := faultsFor(e.target)
	sum := 0
	for _, f := range list {
		if !f.chaos || w.cfg.profile.chaos {
			sum += f.weight
		}
	}
	at := r.IntN(sum)
	for _, f := range list {
		if f.chaos && !w.cfg.profile.chaos {
			continue
		}
		if at -= f.weight; at < 0 {
			if e.op.kind.immortal && (f.kind == killedBefore || f.kind == killedAfter) {
				return fault{kind: pass}
			}
			return fault{kind: f.kind, wait: w.drawWait(r), pick: r.Uint64()}
		}
	}
	return fault{kind: pass}
}

// drawWait is from a blink to far beyond every deadline.
func (w *world) drawWait(r *rand.Rand) time.Duration {
	scales := []time.Duration{50 * time.Millisecond, 2 * time.Second, 10 * time.Second, 40 * time.Second, 3 * time.Minute}
	return time.Duration(r.Int64N(int64(scales[r.IntN(len(scales))]))) + time.Millisecond
}

// execute runs one request with its fault, and those that are like it.
func (w *world) execute(e *entry) error {
	f := fault{kind: pass}
	if !e.decided {
		f = w.drawFault(e)
	}
	w.trace(e, f)
	switch {
	case e.purpose == "reserve" || e.purpose == "commit" || e.purpose == "settle new":
		e.op.unanswered = e.op.unanswered || f.kind != pass
	case writes(e.target) && e.row != (key{}):
		e.op.unanswered = false
	}
	for _, one := range w.alike(e) {
		if one.late = one.decided; one.late {
			f.kind = arrives
		}
		one.decided = true
		if err := w.executeOne(one, f); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) executeOne(e *entry, f fault) error {
	switch f.kind {
	case delayed:
		w.delayEntry(e, f.wait)
		return nil
	case killedBefore:
		w.happens(e, f.kind)
		w.kill(e.op.proc)
		return nil
	}
	w.gate.take(e)
	if !e.dynamo() {
		return w.executeAct(e, f)
	}
	return w.executeDynamo(e, f)
}

func (w *world) delayEntry(e *entry, d time.Duration) {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	e.due = w.now().Add(d)
}

// executeAct runs what is no request to DynamoDB. Whatever has to do with the outcome itself is the callee's to know.
func (w *world) executeAct(e *entry, f fault) error {
	if f.kind != slowAct {
		w.happens(e, f.kind)
	}
	switch f.kind {
	case hangs:
		w.later(hangTime, func() { e.reply <- answer{err: errBroken()} })
	case hangsApplied:
		e.act(f)
		w.later(hangTime, func() { e.reply <- answer{err: errBroken()} })
	case slowAct:
		w.later(f.wait, func() {
			if !w.gate.left(e) { // a caller that has gone has broken the connection before anything was done
				w.happens(e, f.kind)
				e.reply <- e.act(f)
			}
		})
	case killedAfter:
		e.act(f)
		w.kill(e.op.proc)
	default:
		e.reply <- e.act(f)
	}
	return w.failure
}

func (g *gate) left(e *entry) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return e.gone
}

// executeDynamo runs a request to DynamoDB.
func (w *world) executeDynamo(e *entry, f fault) error {
	switch f.kind {
	case refusedConn:
		w.happens(e, f.kind)
		e.reply <- answer{err: errBroken()}
	case throttled, overCapacity, inProgress, internalBefore, conflict:
		w.happens(e, f.kind)
		e.reply <- refusal(e, f)
	case hangs:
		w.happens(e, f.kind)
		w.later(hangTime, func() { e.reply <- answer{err: errBroken()} })
	case straggler:
		w.later(f.wait, func() {
			w.happens(e, f.kind)
			a, _ := w.send(e) // its error is kept in w.failure
			e.reply <- a
		})
	default:
		return w.executeSent(e, f)
	}
	return w.failure
}

// executeSent runs what reaches the store now.
func (w *world) executeSent(e *entry, f fault) error {
	if f.kind == storeRestart {
		if err := w.restartStore(); err != nil {
			return err
		}
	}
	met := w.linesOf(e)
	a, err := w.send(e)
	if err != nil {
		return err
	}
	if cancelled(a) {
		w.couldMeet(e, met, mixedReasons)
	} else if f.kind == mixedReasons {
		f.kind = pass // there is nothing to mix
	}
	w.covered(e, met, f.kind)
	switch f.kind {
	case lostAnswer:
		a = answer{err: errBroken()}
	case internalApplied:
		a = serviceError("InternalServerError", nil)
	case mixedReasons:
		a = w.mixed(a, f)
	case slowAnswer:
		w.later(f.wait, func() { e.reply <- a })
		return nil
	case hangsApplied:
		w.later(hangTime, func() { e.reply <- answer{err: errBroken()} })
		return nil
	case killedAfter:
		w.kill(e.op.proc)
		return nil
	}
	e.reply <- a
	return nil
}

// conflictAnswer is what DynamoDB says of a request that met a transaction at one of its items.
func conflictAnswer(e *entry, f fault) answer {
	var in struct{ TransactItems []json.RawMessage }
	_ = json.Unmarshal(e.body, &in) // a plain update has none
	if len(in.TransactItems) == 0 {
		return serviceError("TransactionConflictException", nil)
	}
	reasons := make([]string, len(in.TransactItems))
	for i := range reasons {
		reasons[i] = "None"
	}
	reasons[f.pick%uint64(len(reasons))] = "TransactionConflict"
	if f.pick>>32%3 == 0 {
		reasons[(f.pick>>8)%uint64(len(reasons))] = "ThrottlingError"
	}
	return serviceError("TransactionCanceledException", reasons)
}

// reasonsOf are the reasons for which a transaction was cancelled, as its answer has them; nil where it was not.
func reasonsOf(body []byte) (doc map[string]any, reasons []any) {
	if json.Unmarshal(body, &doc) != nil {
		return nil, nil
	}
	reasons, _ = doc["CancellationReasons"].([]any)
	return doc, reasons
}

// cancelled tells whether an answer has reasons beside which another one could stand.
func cancelled(a answer) bool {
	body := a.body()
	_, reasons := reasonsOf(body)
	return len(passedOf(reasons)) > 0
}

// passedOf are the items of a cancelled transaction that would have passed.
func passedOf(reasons []any) (passed []map[string]any) {
	for _, r := range reasons {
		if m, ok := r.(map[string]any); ok && (m["Code"] == "None" || m["Code"] == nil) {
			passed = append(passed, m)
		}
	}
	return passed
}

// mixed makes another item of a real cancellation say that it met a transaction, or had no capacity.
func (w *world) mixed(a answer, f fault) answer {
	doc, reasons := reasonsOf(a.body())
	passed := passedOf(reasons)
	if len(passed) == 0 {
		return a
	}
	passed[f.pick%uint64(len(passed))]["Code"] = []string{"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}[f.pick>>16%3]
	body, _ := json.Marshal(doc) // it came as JSON
	return httpAnswer(backendAnswer{status: a.resp.StatusCode, header: a.resp.Header, body: body})
}

// writes tells whether a request can change a table.
func writes(target string) bool {
	return strings.HasPrefix(target, "Transact") && target != "TransactGetItems" || target == "UpdateItem" || target == "PutItem" || target == "DeleteItem"
}
