package protocol

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

var (
	aliasPattern = regexp.MustCompile(`#[A-Za-z]+`)
	valuePattern = regexp.MustCompile(`:[A-Za-z]+`)
)

// Promise: the names of an expression are exactly those that it mentions, each with its attribute.
func TestAliases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom([]string{"#pk", "#state", "#attempt", " AND ", "(", ") OR ", " = :v", " < :now", "#version = #version + :one", ", "}),
			rapid.StringMatching(`[ :=()0-9,.+]{0,6}`),
		)).Draw(t, "parts")
		text := strings.Join(parts, "")
		want := map[string]string{}
		for _, name := range aliasPattern.FindAllString(text, -1) {
			want[name] = name[1:]
		}
		half := len(text) / 2
		for half > 0 && text[half-1] != ' ' {
			half--
		}
		if got := aliases(text[:half], text[half:]); !maps.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}

var tables = Tables{Ledger: "ledger", Control: "control"}

// builtRow is a row with every field that a transition may store, or with none that it may leave out.
func builtRow(full bool) *schema.Row {
	now := time.UnixMilli(1_800_000_000_000)
	r := &schema.Row{
		Key: schema.RowKey("acme", "s", schema.ScopeSession, "k"), RowID: "r", Holder: "h", Version: 2, Attempt: 1, State: schema.StateFailed, Tool: "t",
		IntentHash: make([]byte, 32), Session: "s", Scope: schema.ScopeSession, CreatedAt: now, UpdatedAt: now, Deadline: now, PendingBucket: "PENDING#1",
		ExpiresAt: now,
	}
	if full {
		r.Reserved, r.Charged, r.Debits = 5, 5, []schema.Debit{{Period: "2026-11", Tokens: 5}}
		r.Idempotent, r.Verifier, r.Horizon, r.Keep, r.Cursor, r.ExpectCursor = true, true, time.Minute, time.Hour, "c", new("b")
		r.Trace, r.Lookup, r.Contention, r.Compensates, r.RefundOriginal, r.ResultJSON = "t", "l", 1, "session:o", true, new("1")
		r.CompensatedBy = "session:u"
	}
	return r
}

// built is one item of every transaction that this package makes, in its fullest and in its barest form.
func built() map[string]types.TransactWriteItem {
	now := time.UnixMilli(1_800_000_000_000)
	quota := schema.QuotaKey("acme", "2026-11", 0)
	plan := &schema.Plan{Key: schema.PlanKey("acme"), Version: 1, Shards: 1, UpdatedAt: now}
	shard := &schema.Quota{Key: quota, QuotaID: "q", Version: 1, CreatedAt: now, UpdatedAt: now}
	all := map[string]types.TransactWriteItem{
		"debit": tables.Debit(quota, 5), "debit extra": tables.DebitExtra(quota, 5, 3), "settle": tables.Adjust(quota, -5), "refund": tables.Adjust(quota, 5),
		"check plan": tables.CheckPlan("acme", 1), "check absent": tables.CheckAbsent(quota), "first plan": tables.PutPlan(plan, 0), "plan": tables.PutPlan(plan, 1),
		"put shard": tables.PutShard(shard), "grant": tables.Grant("acme", "g", 5, now),
		"change":     tables.ChangeQuota(quota, QuotaChange{}, now),
		"change all": tables.ChangeQuota(quota, QuotaChange{Granted: 1, Remaining: 1, Extra: 1, AtLeast: 1, Suspend: new(true)}, now),
		"resume":     tables.ChangeQuota(quota, QuotaChange{Suspend: new(false)}, now),
		"cursor is":  tables.CheckCursor(schema.SessionKey("acme", "s"), "c"), "cursor is none": tables.CheckCursor(schema.SessionKey("acme", "s"), ""),
		"move":       tables.MoveCursor(schema.SessionKey("acme", "s"), "c", nil, now, now),
		"move from":  tables.MoveCursor(schema.SessionKey("acme", "s"), "c", new("b"), now, now),
		"move first": tables.MoveCursor(schema.SessionKey("acme", "s"), "c", new(""), now, now),
		"extend":     tables.Extend(quota, "r", 1, now, now), "suspect": tables.Suspect(quota, "r", "r/1", now),
	}
	for _, full := range []bool{false, true} {
		name := map[bool]string{false: "bare ", true: "full "}[full]
		r := builtRow(full)
		pending := builtRow(full)
		pending.State = schema.StatePending
		all[name+"put row"] = tables.PutRow(r, now)
		all[name+"takeover"], all[name+"commit failed"] = tables.Takeover(r, pending), tables.CommitFailed(r, r)
		all[name+"defer"], all[name+"hold"] = tables.Defer(r, now, now), tables.Hold(r, "HELD#1", now)
		for _, state := range []string{schema.StatePending, schema.StateFailed} {
			s := Settlement{Applied: 1, SettledBy: schema.SettledByHolder, Now: now, ExpiresAt: now}
			f := Failure{Kind: schema.FailureReleased, Now: now, ExpiresAt: now}
			if full {
				s.ResultJSON, s.Charged, s.Shortfall, s.Debits, s.By, s.Why, s.Suspect = new("1"), 5, 1, r.Debits, "ann", "seen", "r/2"
				f.Unverified, f.By, f.Why = 1, "ann", "seen"
			}
			g := Guard{State: state, RowID: "r", Attempt: 1, Compare: ">=", Version: 2, Intent: r.IntentHash}
			all[name+"settle "+state], all[name+"fail "+state] = tables.Settle(r.Key, g, s), tables.Fail(r.Key, Guard{State: state, RowID: "r"}, f)
			s.KeepDebits = true
			s.ResultJSON, s.ResultRef = nil, &schema.ResultRef{Ref: "x", SHA256: make([]byte, 32), Bytes: 1}
			all[name+"settle fenced "+state] = tables.Settle(r.Key, g, s)
		}
		for link, l := range map[string]Link{
			"begin": {Begin: true}, "begin and end": {Begin: true, End: true}, "end": {End: true}, "refund": {End: true, Refund: true},
		} {
			l.Original, l.By = r, schema.Undoer{By: "session:u"}
			all[name+"compensate "+link] = tables.Compensate(l, now)
		}
	}
	return all
}

// written is what an item of a transaction says, whatever it does.
type written struct {
	table, condition, update string
	names                    map[string]string
	values                   schema.Item
	old                      types.ReturnValuesOnConditionCheckFailure
}

func writtenOf(item types.TransactWriteItem) written {
	switch {
	case item.Update != nil:
		u := item.Update
		return written{*u.TableName, aws.ToString(u.ConditionExpression), aws.ToString(u.UpdateExpression), u.ExpressionAttributeNames, u.ExpressionAttributeValues, u.ReturnValuesOnConditionCheckFailure}
	case item.Put != nil:
		p := item.Put
		return written{*p.TableName, aws.ToString(p.ConditionExpression), "", p.ExpressionAttributeNames, p.ExpressionAttributeValues, p.ReturnValuesOnConditionCheckFailure}
	}
	c := item.ConditionCheck
	return written{*c.TableName, aws.ToString(c.ConditionExpression), "", c.ExpressionAttributeNames, c.ExpressionAttributeValues, c.ReturnValuesOnConditionCheckFailure}
}

// Promise: DynamoDB accepts every expression: it names what it uses and nothing else, each attribute by an alias, since
// words may be reserved tomorrow, and sets, removes or adds to each attribute once (the local stand-in accepts it twice).
func TestExpressionsAreAccepted(t *testing.T) {
	words := regexp.MustCompile(`#?:?[A-Za-z_]+`)
	keywords := []string{"SET", "REMOVE", "ADD", "AND", "OR", "NOT", "IN", "attribute_not_exists", "attribute_exists", "contains", "if_not_exists"}
	for name, item := range built() {
		w := writtenOf(item)
		text := w.condition + " " + w.update
		if got, want := slices.Sorted(maps.Keys(w.names)), unique(aliasPattern.FindAllString(text, -1)); !slices.Equal(got, want) {
			t.Errorf("%s names %v and uses %v", name, got, want)
		}
		if got, want := slices.Sorted(maps.Keys(w.values)), unique(valuePattern.FindAllString(text, -1)); !slices.Equal(got, want) {
			t.Errorf("%s has the values %v and uses %v", name, got, want)
		}
		for _, word := range words.FindAllString(text, -1) {
			if word[0] != '#' && word[0] != ':' && !slices.Contains(keywords, word) {
				t.Errorf("%s: %s is not aliased in %q", name, word, text)
			}
		}
		if paths := changedPaths(w.update); len(paths) != len(unique(paths)) {
			t.Errorf("%s changes an attribute twice: %v", name, paths)
		}
		for value, av := range w.values {
			if s, ok := av.(*types.AttributeValueMemberSS); ok && len(s.Value) == 0 || av == nil {
				t.Errorf("%s: %s is empty", name, value)
			}
		}
	}
}

func unique(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

// changedPaths are the attributes that an update expression sets, removes or adds to.
func changedPaths(update string) (paths []string) {
	rest := strings.NewReplacer(" REMOVE ", "\x00", " ADD ", "\x00").Replace(strings.TrimPrefix(update, "SET "))
	for clause := range strings.SplitSeq(rest, "\x00") {
		depth, begin := 0, 0
		for i, r := range clause + "," {
			switch {
			case r == '(':
				depth++
			case r == ')':
				depth--
			case r == ',' && depth == 0:
				paths = append(paths, aliasPattern.FindString(clause[begin:min(i, len(clause))]))
				begin = i + 1
			}
		}
	}
	return paths
}

// Promise: every update raises the version inside the expression, by one; every write of ours has a condition and asks for
// the old item when it fails.
func TestEveryWriteIsConditional(t *testing.T) {
	unconditional := []string{"move"} // a cursor that is moved without an expected one
	for name, item := range built() {
		w := writtenOf(item)
		if (w.condition == "") != slices.Contains(unconditional, name) {
			t.Errorf("%s: condition %q", name, w.condition)
		}
		if w.old != types.ReturnValuesOnConditionCheckFailureAllOld {
			t.Errorf("%s does not ask for the old item", name)
		}
		if item.Update == nil {
			continue
		}
		raised := strings.Contains(w.update, "#version = #version + :one") || strings.Contains(w.update, "#version = if_not_exists(#version, :zero) + :one")
		if one, ok := w.values[":one"].(*types.AttributeValueMemberN); !raised || !ok || one.Value != "1" {
			t.Errorf("%s does not raise the version: %q", name, w.update)
		}
	}
}

// Promise: each transition has the condition that the protocol gives it, word for word.
func TestConditions(t *testing.T) {
	const holder = "#state = :guardState AND #rowId = :guardRow AND #attempt = :guardAttempt"
	const asRead = "#state = :guardState AND #rowId = :guardRow AND #version = :guardVersion"
	now := time.UnixMilli(1_800_000_000_000)
	r := builtRow(true)
	all := built()
	all["finalize"] = tables.Settle(r.Key, Holder("r", 1), Settlement{Now: now, ExpiresAt: now})
	all["release"] = tables.Fail(r.Key, Holder("r", 1), Failure{Now: now, ExpiresAt: now})
	all["expire"] = tables.Fail(r.Key, AsRead(r), Failure{Now: now, ExpiresAt: now})
	all["first link"] = tables.Compensate(Link{Original: builtRow(false), By: schema.Undoer{By: "session:u"}, Begin: true}, now)
	in := schema.Undoer{By: "session:u", In: "s"}
	all["first link from a session"] = tables.Compensate(Link{Original: builtRow(false), By: in, Begin: true}, now)
	all["end from a session"] = tables.Compensate(Link{Original: builtRow(false), By: in, End: true}, now)
	for name, want := range map[string]string{
		"full put row":       "attribute_not_exists(#pk) OR (#state IN (:applied, :failed) AND #expiresAt < :now)",
		"full takeover":      "#state = :guardState AND #rowId = :guardRow AND #attempt = :guardAttempt AND #version = :guardVersion AND #intentHash = :guardIntent",
		"full commit failed": "#state = :guardState AND #rowId = :guardRow AND #attempt = :guardAttempt AND #version = :guardVersion AND #intentHash = :guardIntent",
		"finalize":           holder, "release": holder, "expire": asRead, "full defer": asRead, "full hold": asRead,
		"extend":                    holder + " AND #deadline < :deadline AND attribute_not_exists(#held)",
		"suspect":                   "#rowId = :guardRow AND NOT contains(#suspects, :suspect)",
		"debit":                     "#remaining >= :n AND attribute_not_exists(#suspended)",
		"debit extra":               "#remaining >= :floor",
		"settle":                    "attribute_exists(#pk)",
		"refund":                    "attribute_exists(#pk)",
		"check plan":                "#version = :v",
		"plan":                      "#version = :v",
		"first plan":                "attribute_not_exists(#pk)",
		"put shard":                 "attribute_not_exists(#pk)",
		"check absent":              "attribute_not_exists(#pk)",
		"grant":                     "attribute_not_exists(#pk)",
		"change":                    "attribute_exists(#pk)",
		"change all":                "attribute_exists(#pk) AND #remaining >= :atLeast",
		"cursor is":                 "#cursor = :expect",
		"cursor is none":            "attribute_not_exists(#cursor)",
		"move from":                 "#cursor = :expect",
		"move first":                "attribute_not_exists(#cursor)",
		"first link":                "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND (attribute_not_exists(#compensatedBy) OR #compensatedBy = :by)",
		"first link from a session": "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND (attribute_not_exists(#compensatedBy) OR (#compensatedBy = :by AND #compensatedIn = :in))",
		"end from a session":        "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND (#compensatedBy = :by AND #compensatedIn = :in)",
		"full compensate begin":     "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND (attribute_not_exists(#compensatedBy) OR #compensatedBy = :by)",
		"full compensate refund":    "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND #compensatedBy = :by",
		"full settle failed":        "#state = :guardState AND #rowId = :guardRow AND #attempt >= :guardAttempt AND #version = :guardVersion AND #intentHash = :guardIntent",
		"bare compensate begin":     "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND (attribute_not_exists(#compensatedBy) OR #compensatedBy = :by)",
		"full compensate end":       "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND #compensatedBy = :by",
		"bare compensate refund":    "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND #compensatedBy = :by",
		"bare compensate end":       "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND #compensatedBy = :by",
		"bare put row":              "attribute_not_exists(#pk) OR (#state IN (:applied, :failed) AND #expiresAt < :now)",
		"full settle fenced failed": "#state = :guardState AND #rowId = :guardRow AND #attempt >= :guardAttempt AND #version = :guardVersion AND #intentHash = :guardIntent",
	} {
		item, ok := all[name]
		if got := writtenOf(item).condition; !ok || got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	// A link that is there already is only looked at: a retry of the same key writes nothing on the original.
	if all["full compensate begin"].ConditionCheck == nil || all["first link"].Update == nil {
		t.Error("the link is written again, or never")
	}
}

// Promise: leaving pending clears what makes a row pending, and keeps its deadline; beginning an attempt clears what was said
// of the one before, and keeps what is unverified and suspect.
func TestTransitionsClear(t *testing.T) {
	all := built()
	for name, want := range map[string][]string{
		"full settle pending": {"#deadline", "#pendingBucket", "#sweepAt", "#held", "#failure"},
		"full fail pending":   {"#deadline", "#pendingBucket", "#sweepAt", "#held"},
		"full takeover":       {"#expiresAt", "#failure", "#by", "#why", "#sweepAt", "#held", "#shortfall", "#chargedTokens", "#settledBy"},
		"full commit failed":  {"#failure", "#by", "#why", "#shortfall"},
		"bare takeover":       {"#debits", "#reservedTokens", "#cursor", "#expectCursor", "#trace", "#lookup", "#idempotent", "#verifier", "#compensates"},
	} {
		update := writtenOf(all[name]).update
		_, removed, _ := strings.Cut(update, " REMOVE ")
		for _, attr := range want {
			if !slices.Contains(aliasPattern.FindAllString(removed, -1), attr) {
				t.Errorf("%s does not remove %s: %s", name, attr, update)
			}
		}
		for _, attr := range []string{"#unverified", "#suspects", "#rowId", "#createdAt", "#intentHash"} {
			own := attr == "#suspects" && strings.Contains(name, "settle") || attr == "#unverified" && strings.Contains(name, "fail pending")
			if slices.Contains(changedPaths(update), attr) && !own {
				t.Errorf("%s changes %s", name, attr)
			}
		}
	}
	if update := writtenOf(all["full settle pending"]).update; !strings.Contains(update, "#lastDeadline = #deadline") {
		t.Errorf("the deadline is lost: %s", update)
	}
	if update := writtenOf(all["full settle fenced pending"]).update; slices.Contains(changedPaths(update), "#debits") {
		t.Errorf("a fenced worker changes the newer debits: %s", update)
	}
}
