package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"toolledger/writers"
)

// What was said: by requests, of which the store tells why it refused them, and to callers.

// effectKeyOf is what the outside system gets for the call of a row, by the words of the protocol.
func effectKeyOf(row key) string {
	sum := sha256.Sum256([]byte(row.pk + "\x00" + row.sk))
	return hex.EncodeToString(sum[:16])
}

// recordings are the requests that record an effect which happened: they ask no quota item for tokens.
var recordings = []string{"settle late", "settle new", "settle fenced", "verify settle", "resolve applied", "sweep finalize"}

// answeredWith looks at a request that was sent, and at what the store answered.
func (o *oracle) answeredWith(e *entry, a backendAnswer) error {
	if err := o.inCircles(e, a); err != nil {
		return err
	}
	switch {
	case e.purpose == "read shards" && a.status == 200:
		e.op.together = e.op.together || o.allShards(e.body)
	case slices.Contains(recordings, e.purpose):
		return o.neverForQuota(e)
	}
	return nil
}

// roundsMost is how often the store itself may refuse one thing to an operation on end. Two that are in each other's way come past each
// other long before.
const roundsMost = 20

// inCircles holds that nobody sends again and again what the store refuses.
func (o *oracle) inCircles(e *entry, a backendAnswer) error {
	if !writes(e.target) || e.op.kind.name == "background" {
		return nil
	}
	if e.op.refused == nil {
		e.op.refused = map[part]int{}
	}
	what := part{purpose: e.purpose, row: e.row}
	if a.status != 400 {
		delete(e.op.refused, what)
		return nil
	}
	if e.op.refused[what]++; e.op.refused[what] < roundsMost {
		return nil
	}
	return o.w.broken(invBound, "operation %d %s sends %s of %s again and again, and it is refused", e.op.id, e.op.name(), e.purpose, e.row.sk)
}

// neverForQuota holds that recording an effect can not be refused because of what a quota item has left.
func (o *oracle) neverForQuota(e *entry) error {
	for _, it := range transactionOf(e.body) {
		if it.Update != nil && isQuota(keyOf(it.Update.Key)) && strings.Contains(it.Update.ConditionExpression, "remaining") {
			return o.w.broken(invRecorded, "operation %d %s: %s asks %v for tokens, and can be refused", e.op.id, e.op.name(), e.purpose, keyOf(it.Update.Key))
		}
	}
	return nil
}

// allShards tells whether one read names a tenant's plan and all quota items of its period.
func (o *oracle) allShards(body []byte) bool {
	var in struct {
		TransactItems []struct{ Get struct{ Key item } }
	}
	if json.Unmarshal(body, &in) != nil {
		return false
	}
	var plan item
	named := map[key]bool{}
	for _, it := range in.TransactItems {
		k := keyOf(it.Get.Key)
		if named[k] = true; k.sk == "PLAN" {
			plan = o.w.store.control.items[k]
		}
	}
	return plan != nil && int64(len(named)) > plan.num("shards")
}

// theRightRow holds that a request which names its row by id changes that row and no other one of its key.
func (o *oracle) theRightRow(op *operation, r *record) error {
	e := o.w.sending
	if op == nil || e == nil || e.op != op || e.rowID == "" || r.key != e.row || r.old.str("rowId") == e.rowID {
		return nil
	}
	return o.w.broken(invFence, "operation %d %s: %s is about row %s, and changed row %s", op.id, op.name(), e.purpose, e.rowID, r.old.str("rowId"))
}

// saidTruly holds what a caller was told against what the operation wrote.
func (o *oracle) saidTruly(op *operation, code string) error {
	for _, check := range []func(*operation, string) error{o.exhausted, o.tooEarly, o.cursorTold, o.counted} {
		if err := check(op, code); err != nil {
			return err
		}
	}
	for _, got := range op.results {
		if err := o.appliedBy(op, got); err != nil {
			return err
		}
	}
	return nil
}

// exhausted holds that a quota is called exhausted only once its shards were read together, with the plan.
func (o *oracle) exhausted(op *operation, code string) error {
	if code != string(writers.ErrQuotaExhausted) || op.together {
		return nil
	}
	return o.w.broken(invAnswers, "operation %d %s was told that the quota is exhausted; nobody has read its items together", op.id, op.name())
}

// tooEarly holds that nobody is told that an outcome is unknown while the act may still land: until then it is in progress.
func (o *oracle) tooEarly(op *operation, code string) error {
	if code != string(writers.ErrOutcomeUnknown) {
		return nil
	}
	var rowID string
	var deadline time.Time
	if e, ok := errors.AsType[*writers.Error](op.err); ok {
		rowID, deadline = e.Call.RowID, e.Call.Deadline
	} else if e, ok := errors.AsType[*doorError](op.err); ok {
		rowID = e.rowID
		deadline, _ = time.Parse(time.RFC3339Nano, e.deadline)
	}
	it := o.w.store.ledger.items[op.rowKey()]
	if slices.ContainsFunc(op.wrote, func(r *record) bool { return beginsAnew(r) && r.new.str("rowId") == rowID }) {
		return nil // its own act may have happened
	}
	lands := deadline.Add(skew + time.Duration(it.num("horizon"))*time.Millisecond)
	if it.str("rowId") == rowID && !deadline.IsZero() && op.proc.now().Before(lands) {
		return o.w.broken(invAnswers, "operation %d %s was told at %s that nobody knows what became of an act which may land until %s",
			op.id, op.name(), op.proc.now().Format(time.TimeOnly), lands.UTC().Format(time.TimeOnly))
	}
	return nil
}

// cursorTold holds that a holder is told where its session has gone elsewhere.
func (o *oracle) cursorTold(op *operation, code string) error {
	if code != "ok" || !op.cursorKept {
		return nil
	}
	return o.w.broken(invAnswers, "operation %d %s was not told that its session's cursor is elsewhere", op.id, op.name())
}

// counted holds that an answer is observed as what it was.
func (o *oracle) counted(op *operation, code string) error {
	rose := func(attr string) bool {
		return slices.ContainsFunc(op.wrote, func(r *record) bool {
			another := r.old.str("obsId") != r.new.str("obsId")
			return strings.HasPrefix(r.key.pk, "OBS#") && (r.new.num(attr) > r.old.num(attr) || another && r.new.has(attr))
		})
	}
	conflict := code == string(writers.ErrKeyConflict)
	switch {
	case conflict && rose("duplicates"):
		return o.w.broken(invAnswers, "operation %d %s was told of a key conflict, which is counted as a replay", op.id, op.name())
	case code == "ok" && rose("keyConflicts"):
		return o.w.broken(invAnswers, "operation %d %s was told a result, which is counted as a key conflict", op.id, op.name())
	case op.last && conflict && !rose("keyConflicts"):
		return o.w.broken(invAnswers, "operation %d %s was told of a key conflict, which nobody has counted", op.id, op.name())
	case op.last && code == "ok" && op.seen.str("state") == "applied" && op.replayed() && !rose("duplicates"):
		return o.w.broken(invAnswers, "operation %d %s was told a stored result, which nobody has counted", op.id, op.name())
	}
	return nil
}

func (op *operation) replayed() bool {
	return slices.ContainsFunc(op.results, func(r returned) bool { return r.outcome == string(writers.OutcomeReplayed) })
}

// appliedBy holds that "applied" is said to whose attempt it was, and "replayed" to everybody else.
func (o *oracle) appliedBy(op *operation, got returned) error {
	it := o.w.store.ledger.items[op.rowKey()]
	if it.str("rowId") != got.rowID || got.rowID == "" || op.kind.name == "look" {
		return nil
	}
	attempt := it.num("appliedAttempt")
	mine := op.kind == kindCoHolder && op.seen.num("attempt") == attempt || slices.ContainsFunc(op.wrote, func(r *record) bool {
		return r.key == op.rowKey() && r.new.str("rowId") == got.rowID && r.new.num("attempt") == attempt && beginsAnew(r)
	})
	if got.outcome == string(writers.OutcomeApplied) && !mine {
		return o.w.broken(invAnswers, "operation %d %s was told that it applied %s, whose attempt %d is not its own", op.id, op.name(), op.rowKey().sk, attempt)
	}
	if op.last && op.seen.str("state") == "applied" && op.seen.str("rowId") == got.rowID && got.outcome != string(writers.OutcomeReplayed) {
		return o.w.broken(invAnswers, "operation %d %s was told %q of %s, which had been applied before", op.id, op.name(), got.outcome, op.rowKey().sk)
	}
	return nil
}
