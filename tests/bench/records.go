package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

const streamARN = "arn:aws:dynamodb:us-east-1:123456789012:table/" + table + "/stream/2026-11-30T00:00:00.000"

// recordsOf returns n stream records as Lambda and DynamoDB Streams write them: of each call its reservation, the debit of the
// quota and its finalize.
func recordsOf(n int) ([]json.RawMessage, error) {
	intent, err := canon.HashArgs(tool, booked)
	if err != nil {
		return nil, err
	}
	begun := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	records := make([]json.RawMessage, 0, n+2)
	remaining := int64(1 << 40)
	for call := int64(0); len(records) < n; call++ {
		at := begun.Add(time.Duration(call) * 20 * time.Millisecond)
		pending := reservedRow(call, intent, at)
		applied := finalizedRow(pending, at.Add(2*time.Second))
		before := quotaItem(remaining, call+1, begun)
		remaining -= cost
		for _, r := range []record{
			{"INSERT", nil, pending.Item(), at},
			{"MODIFY", before.Item(), quotaItem(remaining, call+2, begun).Item(), at},
			{"MODIFY", pending.Item(), applied.Item(), at.Add(2 * time.Second)},
		} {
			records = append(records, r.text(len(records)))
		}
	}
	return records[:n], nil
}

func reservedRow(call int64, intent canon.Intent, at time.Time) *schema.Row {
	key := keyOf(call)
	id := fmt.Sprintf("ROW%023d", call)
	return &schema.Row{
		Key: schema.RowKey(tenantOf(call), session, schema.ScopeSession, key), RowID: id, Holder: id, Version: 1, Attempt: 1,
		State: schema.StatePending, Tool: tool, IntentHash: intent.Hash[:], ArgHashes: canon.EncodeArgHashes(intent.Args),
		Session: session, Scope: schema.ScopeSession, Horizon: time.Minute, Cursor: cursor, Reserved: cost,
		Debits:    []schema.Debit{{Period: schema.PeriodAt(schema.Monthly, at), Tokens: cost}},
		CreatedAt: at, UpdatedAt: at, Deadline: at.Add(time.Minute), PendingBucket: schema.PendingBucket(key),
	}
}

func finalizedRow(pending *schema.Row, at time.Time) *schema.Row {
	r := *pending
	r.Version, r.State, r.AppliedAttempt, r.SettledBy, r.Charged = 2, schema.StateApplied, 1, schema.SettledByHolder, cost
	text := string(received)
	r.ResultJSON, r.UpdatedAt, r.ExpiresAt = &text, at, at.Add(keep)
	r.LastDeadline, r.Deadline, r.PendingBucket = r.Deadline, time.Time{}, ""
	return &r
}

func quotaItem(remaining, version int64, created time.Time) *schema.Quota {
	period := schema.PeriodAt(schema.Monthly, created)
	return &schema.Quota{
		Key: schema.QuotaKey(tenant, period, 0), QuotaID: "QUOTA000000000000000000000", Version: version, Granted: 1 << 40,
		Remaining: remaining, PlanVersion: 1, CreatedAt: created, UpdatedAt: created, ExpiresAt: schema.PeriodEnd(period).Add(40 * 24 * time.Hour),
	}
}

// tenantOf spreads calls over a few tenants, as a busy table's are.
func tenantOf(call int64) string { return fmt.Sprintf("tenant-%d", call%7) }

// record is one change of one item.
type record struct {
	name     string
	old, new schema.Item
	at       time.Time
}

func (r record) text(n int) json.RawMessage {
	images, item := "", r.new
	if r.new != nil {
		images += `"NewImage":` + string(wire(r.new)) + `,`
	}
	if r.old != nil {
		images += `"OldImage":` + string(wire(r.old)) + `,`
		item = r.old
	}
	keys := wire(schema.Item{schema.PK: item[schema.PK], schema.SK: item[schema.SK]})
	return json.RawMessage(fmt.Sprintf(`{"eventID":"%032x","eventName":%q,"eventVersion":"1.1","eventSource":"aws:dynamodb",`+
		`"awsRegion":"us-east-1","dynamodb":{"ApproximateCreationDateTime":%d,"Keys":%s,%s"SequenceNumber":"%d",`+
		`"SizeBytes":%d,"StreamViewType":"NEW_AND_OLD_IMAGES"},"eventSourceARN":%q}`,
		n, r.name, r.at.Unix(), keys, images, 111_111_000_000_000_000+n, sizeOf(r.old)+sizeOf(r.new), streamARN))
}

// list is {"Records":[...]}, which is both a Lambda batch and an answer to GetRecords.
func list(records []json.RawMessage) json.RawMessage {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = string(r)
	}
	return json.RawMessage(`{"Records":[` + strings.Join(texts, ",") + `]}`)
}
