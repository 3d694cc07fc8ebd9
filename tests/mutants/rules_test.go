package mutants

import "strings"

// loosen lets a mutant leave a part out of one guard: loosely(g, "state") and so on.
func loosen(edits ...edit) []edit {
	return append(edits,
		edit{rowGo, "	Intent  []byte // nil: any\n", "	Intent  []byte // nil: any\n	Loose   string\n"},
		edit{rowGo, "	c.values[\":guardState\"], c.values[\":guardRow\"] = schema.S(g.State), schema.S(g.RowID)\n", `	switch g.Loose {
	case "state":
		cond = "(#state = :guardState OR attribute_exists(#state)) AND #rowId = :guardRow"
	case "rowId":
		cond = "#state = :guardState AND (#rowId = :guardRow OR attribute_exists(#rowId))"
	}
	c.values[":guardState"], c.values[":guardRow"] = schema.S(g.State), schema.S(g.RowID)
`})
}

// looselyFile is what a package needs to use loosen.
const looselyFile = `

import "toolledger/internal/protocol"

func loosely(g protocol.Guard, what string) protocol.Guard {
	switch what {
	case "attempt":
		g.Compare = ""
	case "version":
		g.Version = 0
	default:
		g.Loose = what
	}
	return g
}
`

var looselyIn = map[string]string{"writers/zz_mutant.go": "package writers" + looselyFile}

const (
	rowGo        = "internal/protocol/row.go"
	quotaGo      = "internal/protocol/quota.go"
	exprGo       = "internal/protocol/expr.go"
	compGo       = "internal/protocol/compensate.go"
	debitGo      = "writers/debit.go"
	doGo         = "writers/do.go"
	finalizeGo   = "writers/finalize.go"
	foundGo      = "writers/found.go"
	planGo       = "writers/plan.go"
	requestGo    = "writers/request.go"
	resolveGo    = "writers/resolve.go"
	settleGo     = "writers/settle.go"
	writersComp  = "writers/compensate.go"
	reservation  = "writers/reservation.go"
	holderSettle = "t.Settle(s.row.Key, protocol.Holder(rowID, attempt), st)"
	holderFail   = "protocol.Holder(r.RowID, r.row.Attempt), protocol.Failure{"
)

// looseHolder is a finalize or release whose guard lacks a part.
func looseHolder(rule, test, file, old, what string) mutant {
	at := "protocol.Holder(rowID, attempt)"
	if file == reservation {
		at = "protocol.Holder(r.RowID, r.row.Attempt)"
	}
	loose := "loosely(" + at + ", \"" + what + "\")"
	return mutant{rule: rule, test: test, files: looselyIn, edits: loosen(edit{file, old, strings.Replace(old, at, loose, 1)})}
}

var mutants = []mutant{
	{
		rule: "reserve without the absence test", test: "TestRuleReserveAbsence",
		edits: []edit{{rowGo, `newFixed("attribute_not_exists(#pk) OR (`, `newFixed("attribute_not_exists(#pk) OR attribute_exists(#pk) OR (`}},
	},
	{
		rule: "takeover without attempt and version", test: "TestRuleTakeoverAttemptAndVersion",
		edits: []edit{{rowGo, `RowID: r.RowID, Attempt: r.Attempt, Compare: "=", Version: r.Version, Intent: intent}`, `RowID: r.RowID, Intent: intent}`}},
	},
	{
		rule: "takeover without rowId", test: "TestRuleTakeoverRowID",
		edits: loosen(edit{rowGo, `Version: r.Version, Intent: intent}`, `Version: r.Version, Intent: intent, Loose: "rowId"}`}),
	},
	{
		rule: "takeover without intent", test: "TestRuleTakeoverIntent",
		edits: []edit{
			{rowGo, `Version: r.Version, Intent: intent}`, `Version: r.Version}`},
			{foundGo, "if !bytes.Equal(found.IntentHash, c.intent.Hash[:]) || !c.sameOriginal(found) {", "if found.State != schema.StateFailed && !bytes.Equal(found.IntentHash, c.intent.Hash[:]) {"},
		},
	},
	looseHolder("finalize without state", "TestRuleFinalizeState", settleGo, holderSettle, "state"),
	looseHolder("finalize without attempt", "TestRuleFinalizeAttempt", settleGo, holderSettle, "attempt"),
	looseHolder("finalize without rowId", "TestRuleFinalizeRowID", settleGo, holderSettle, "rowId"),
	looseHolder("release without state", "TestRuleReleaseState", reservation, holderFail, "state"),
	looseHolder("release without attempt", "TestRuleReleaseAttempt", reservation, holderFail, "attempt"),
	looseHolder("release without rowId", "TestRuleReleaseRowID", reservation, holderFail, "rowId"),
	{
		rule: "extend without state", test: "TestRuleExtendState",
		edits: loosen(edit{rowGo, "cond := Holder(rowID, attempt).condition(c)", "loose := Holder(rowID, attempt)\n\tloose.Loose = \"state\"\n\tcond := loose.condition(c)"}),
	},
	{
		rule: "extend without attempt", test: "TestRuleExtendAttempt",
		edits: []edit{{rowGo, "cond := Holder(rowID, attempt).condition(c)", "loose := Holder(rowID, attempt)\n\tloose.Compare = \"\"\n\tcond := loose.condition(c)"}},
	},
	{
		rule: "extend moving the deadline back", test: "TestRuleExtendDeadline",
		edits: []edit{{rowGo, `" AND #deadline < :deadline AND attribute_not_exists(#held)"`, `" AND attribute_not_exists(#held)"`}},
	},
	{
		rule: "extend of a held row", test: "TestRuleExtendHeld",
		edits: []edit{{rowGo, `" AND #deadline < :deadline AND attribute_not_exists(#held)"`, `" AND #deadline < :deadline"`}},
	},
	{
		rule: "expire without version", test: "TestRuleExpireVersion", files: looselyIn,
		edits: loosen(edit{foundGo, "protocol.AsRead(found)", `loosely(protocol.AsRead(found), "version")`}),
	},
	{
		rule: "person's not-applied without version and attempt", test: "TestRuleResolveVersion", files: looselyIn,
		edits: loosen(edit{resolveGo, "protocol.AsRead(row)", `loosely(protocol.AsRead(row), "version")`}),
	},
	{
		rule: "person's not-applied before it counts", test: "TestRuleResolveWaits",
		edits: []edit{{resolveGo, "case !now.After(settles):", "case !now.After(settles) && row.Held:"}},
	},
	{
		rule: "settle without state", test: "TestRuleSettleState",
		edits: loosen(edit{settleGo, `State: schema.StateFailed, RowID: rowID, Attempt: attempt, Compare: ">=", Version: s.found.Version,`, `State: schema.StateFailed, RowID: rowID, Attempt: attempt, Compare: ">=", Loose: "state",`}),
	},
	{
		rule: "settle without the debit", test: "TestRuleSettleDebit",
		edits: []edit{{settleGo, "			b.amounts = append(b.amounts, protocol.Amount{Key: d.Key(tenant), Tokens: -n})\n", ""}},
	},
	{
		rule: "settle obeying quota", test: "TestRuleSettleQuota",
		edits: []edit{{quotaGo, `exprSettle      = newFixed("attribute_exists(#pk)"`, `exprSettle      = newFixed("#remaining >= :n"`}},
	},
	{
		rule: "settle on the same attempt only", test: "TestRuleSettleAttempt",
		edits: []edit{{settleGo, `Attempt: attempt, Compare: ">=", Version`, `Attempt: attempt, Compare: "=", Version`}},
	},
	{
		rule: "suspect without rowId", test: "TestRuleSuspectRowID",
		edits: []edit{{rowGo, `"#rowId = :guardRow AND NOT contains`, `"(#rowId = :guardRow OR attribute_exists(#rowId)) AND NOT contains`}},
	},
	{
		rule: "settle-new without the absence test", test: "TestRuleSettleNewAbsence",
		edits: []edit{{settleGo, "t.PutRow(s.newRow(st, now), now)", "t.PutAnyway(s.newRow(st, now))"}},
		files: map[string]string{"internal/protocol/zz_mutant.go": `package protocol

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

func (t Tables) PutAnyway(r *schema.Row) types.TransactWriteItem {
	return newFixed("attribute_exists(#pk) OR attribute_not_exists(#pk)", "").put(t.Ledger, r.Item(), nil)
}
`},
	},
	{
		rule: "no holder nonce", test: "TestRuleHolderNonce",
		edits: []edit{{foundGo, "return r.Holder == c.nonce", "return r.RowID == c.nonce"}},
	},
	{
		rule: "sticky unverified dropped by the next attempt", test: "TestRuleUnverifiedSticks",
		edits: []edit{{rowGo, "drop(schema.AFailure, schema.ABy, schema.AWhy, ", "drop(schema.AUnverified, schema.AFailure, schema.ABy, schema.AWhy, "}},
	},
	{
		rule: "sticky unverified dropped by a release", test: "TestRuleUnverifiedSticks",
		edits: []edit{{rowGo, "		c.put(schema.AUnverified, schema.N(f.Unverified))\n	}\n", "		c.put(schema.AUnverified, schema.N(f.Unverified))\n	} else {\n		c.drop(schema.AUnverified)\n	}\n"}},
	},
	{
		rule: "verify skipped", test: "TestRuleVerify",
		edits: []edit{{foundGo, "return verified || vouched || c.Idempotent && found.Idempotent", "return verified || vouched || true"}},
	},
	{
		rule: "verdict of another deadline counted", test: "TestRuleVerdictDeadline",
		edits: []edit{{foundGo, " && v.Deadline.Equal(info.Deadline)", ""}},
	},
	{
		rule: "verdict of another attempt counted", test: "TestRuleVerdictDeadline",
		edits: []edit{{foundGo, " && v.Attempt == info.Attempt", ""}},
	},
	{
		rule: "verdict of another row counted", test: "TestRuleVerdictDeadline",
		edits: []edit{{foundGo, "v.RowID == info.RowID && ", ""}},
	},
	{
		rule: "no skew margin", test: "TestRuleSkewAndHorizon",
		edits: []edit{{foundGo, "deadline.Add(l.cfg.Skew + horizon)", "deadline.Add(horizon)"}},
	},
	{
		rule: "no effect horizon", test: "TestRuleSkewAndHorizon",
		edits: []edit{{foundGo, "deadline.Add(l.cfg.Skew + horizon)", "deadline.Add(l.cfg.Skew + 0*horizon)"}},
	},
	{
		rule: "row's version computed by the client", test: "TestRuleVersion",
		edits: []edit{{exprGo, `"#version = #version + :one"`, `"#version = :one"`}},
	},
	{
		rule: "quota's version computed by the client", test: "TestRuleVersion",
		edits: []edit{{quotaGo, `"SET #remaining = #remaining + :n, #version = #version + :one"`, `"SET #remaining = #remaining + :n, #version = :one"`}},
	},
	{
		rule: "a fenced worker dropping its effect", test: "TestRuleFencedEffect",
		edits: []edit{{finalizeGo, "		s.mode, s.found = modeFenced, found\n", "		return Raw{}, true, r.superseded(s.op, found)\n"}},
	},
	{
		rule: "a late finalize on an absent row dropped", test: "TestRuleLateOnAbsent",
		edits: []edit{{finalizeGo, "		s.mode, s.found = modeNew, nil\n		return Raw{}, false, nil\n", "		return Raw{}, true, r.superseded(s.op, nil)\n"}},
	},
	{
		rule: "an ambiguous act releasing", test: "TestRuleAmbiguousAct",
		edits: []edit{{doGo, "	if notApplied(cause) {\n", "	if notApplied(cause) || true {\n"}},
	},
	{
		rule: "a pending row with TTL", test: "TestRulePendingTTL",
		edits: []edit{{requestGo, "	r.PendingBucket = schema.PendingBucket(c.Key.id)\n", "	r.PendingBucket = schema.PendingBucket(c.Key.id)\n	r.ExpiresAt = c.l.expiresAt(r, debits, now)\n"}},
	},
	{
		rule: "a row taken over that keeps its TTL", test: "TestRulePendingTTL",
		edits: []edit{{rowGo, "drop(schema.AExpiresAt, schema.ALastDeadline)", "drop(schema.ALastDeadline)"}},
	},
	{
		rule: "a failed row skipping the intent check", test: "TestRuleFailedIntent",
		edits: []edit{{foundGo, "if !bytes.Equal(found.IntentHash, c.intent.Hash[:]) || !c.sameOriginal(found) {", "if found.State != schema.StateFailed && !bytes.Equal(found.IntentHash, c.intent.Hash[:]) {"}},
	},
	{
		rule: "quota created without the plan check", test: "TestRuleQuotaPlanCheck",
		edits: []edit{{quotaGo, "	tx.Add(Part{Kind: PartPlan}, t.CheckPlan(tenant, plan.Version))\n", ""}},
	},
	{
		rule: "quota created shard by shard", test: "TestRuleQuotaAllShards",
		edits: []edit{{debitGo, "l.tables.CreateQuota(string(t), plan, newShards(string(t), plan, period, now))", "l.tables.CreateQuota(string(t), plan, newShards(string(t), plan, period, now)[:1])"}},
	},
	{
		rule: "refund to today's period", test: "TestRuleRefundPeriod",
		edits: []edit{{quotaGo, "amounts[i] = Amount{d.Key(tenant), d.Tokens}", "amounts[i] = Amount{schema.QuotaKey(tenant, \"2026-11\", d.Shard), d.Tokens}"}},
	},
	{
		rule: "final charge refunding to today's period", test: "TestRuleRefundPeriod",
		edits: []edit{{settleGo, "protocol.Amount{Key: d.Key(tenant), Tokens: d.Tokens - n}", "protocol.Amount{Key: schema.QuotaKey(tenant, \"2026-11\", d.Shard), Tokens: d.Tokens - n}"}},
	},
	{
		rule: "refund to another shard", test: "TestRuleRefundShard",
		edits: []edit{{quotaGo, "amounts[i] = Amount{d.Key(tenant), d.Tokens}", "amounts[i] = Amount{schema.QuotaKey(tenant, d.Period, 0), d.Tokens}"}},
	},
	{
		rule: "refund to today's plan", test: "TestRuleRefundPlan",
		edits: []edit{{quotaGo, "amounts[i] = Amount{d.Key(tenant), d.Tokens}", "amounts[i] = Amount{schema.QuotaKey(tenant, \"2026-10-12\", d.Shard), d.Tokens}"}},
	},
	{
		rule: "shards read one by one", test: "TestRuleShardsTogether",
		edits: []edit{{debitGo, "	out, err := l.transactGet(ctx, items)\n	if err != nil {\n		return nil, nil, err\n	}\n", `	out := make([]types.ItemResponse, len(items))
	var err error
	for i, it := range items {
		k := schema.Key{PK: schema.ValueOf(it.Get.Key[schema.PK]).Text, SK: schema.ValueOf(it.Get.Key[schema.SK]).Text}
		if out[i].Item, err = l.getItem(ctx, *it.Get.TableName, k); err != nil {
			return nil, nil, err
		}
	}
`}},
	},
	{
		rule: "absolute remaining on a plan change", test: "TestRulePlanRelative",
		edits: []edit{
			{planGo, "change := protocol.QuotaChange{Granted: delta, Remaining: delta}", "change := protocol.QuotaChange{Granted: delta, Remaining: remaining[i] + delta}"},
			{quotaGo, "	c.increase(schema.ARemaining, q.Remaining)\n", "	c.put(schema.ARemaining, schema.N(q.Remaining))\n"},
		},
	},
	{
		rule: "suspension not in the debit's condition", test: "TestRuleSuspension",
		edits: []edit{{quotaGo, `"#remaining >= :n AND attribute_not_exists(#suspended)"`, `"#remaining >= :n"`}},
	},
	{
		rule: "suspension not copied to a new period", test: "TestRuleSuspension",
		edits: []edit{{planGo, "PlanVersion: plan.Version, Suspended: plan.Suspended, ", "PlanVersion: plan.Version, "}},
	},
	{
		rule: "compensation linked only at finalize", test: "TestRuleCompensationLinkedAtReserve",
		edits: []edit{{writersComp, "	tx.Add(protocol.Part{Kind: protocol.PartOriginal}, t.Compensate(link, now))\n	refunds", "	if c.commit {\n		tx.Add(protocol.Part{Kind: protocol.PartOriginal}, t.Compensate(link, now))\n	}\n	refunds"}},
	},
	{
		rule: "compensation unlinked on expiry", test: "TestRuleCompensationStaysLinked",
		edits: []edit{{reservation, "	why = clip(why, maxWhy)\n", "	why = clip(why, maxWhy)\n	unlink(ctx, r)\n"}},
		files: map[string]string{"writers/zz_mutant.go": `package writers

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

func unlink(ctx context.Context, r *Reservation) {
	if _, id, ok := strings.Cut(r.row.Compensates, ":"); ok {
		k := r.s.rowKey(SessionKey(id))
		r.s.t.l.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &types.Update{
			TableName: &r.s.t.l.cfg.Table, Key: schema.Item{schema.PK: schema.S(k.PK), schema.SK: schema.S(k.SK)},
			UpdateExpression: new("REMOVE compensatedBy"),
		}}}})
	}
}
`},
	},
	{
		rule: "compensation open to any key", test: "TestRuleCompensationStaysLinked",
		edits: []edit{
			{writersComp, `case o.CompensatedBy != "" && o.Undoer() != c.Key.undoes(o, c.s.id):`, `case o.CompensatedBy == "never":`},
			{compGo, `cond += "(attribute_not_exists(#compensatedBy) OR " + mine + ")"`, `cond += "(attribute_not_exists(#compensatedBy) OR attribute_exists(#compensatedBy) OR " + mine + ")"`},
		},
	},
	{
		rule: "compensation refunded without clearing debits", test: "TestRuleCompensationClearsDebits",
		edits: []edit{{compGo, "			c.drop(schema.ADebits)\n", ""}},
	},
}
