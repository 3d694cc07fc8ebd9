package events

import "time"

// All returns one example of every event type, with plausible values in every field that the type commonly carries: for
// schemas, documentation and tests of subscribers. The caller may change what it gets.
func All() []Event { return append(callExamples(), auditExamples()...) }

var exampleTime = time.Date(2026, 11, 30, 18, 30, 15, 123e6, time.UTC)

const exampleRow = "01k9f3t5w2m8q7"

func exampleHead(detailType string, version int64) Header {
	return Header{
		ID: ID(detailType, exampleRow, version), Schema: Schema, Tenant: "acme", Session: "s-41", Scope: "session", Key: "pr-7f3c",
		Tool: "push_branch", RowID: exampleRow, Version: version, Attempt: 1, Time: exampleTime,
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func callExamples() []Event {
	const sum = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	deadline := exampleTime.Add(time.Minute)
	resolved := exampleHead("ReservationResolved", 4)
	resolved.By = "ops@acme.example"
	return []Event{
		&ToolCallReserved{Header: exampleHead("ToolCallReserved", 1), ReservedTokens: 20, Deadline: deadline},
		&ToolEffectApplied{
			Header: exampleHead("ToolEffectApplied", 2), ReservedTokens: 20, ChargedTokens: 15, RefundedTokens: 5,
			ResultSHA256: sum, ResultBytes: 2, AppliedAttempt: 1, SettledBy: "holder",
		},
		&ReservationExtended{
			Header: exampleHead("ReservationExtended", 2), PreviousDeadline: deadline, Deadline: deadline.Add(time.Minute),
		},
		&ReservationStuck{Header: exampleHead("ReservationStuck", 3), ReservedTokens: 20, Deadline: deadline},
		&ReservationReleased{Header: exampleHead("ReservationReleased", 2), RefundedTokens: 20},
		&ReservationExpired{Header: exampleHead("ReservationExpired", 2), RefundedTokens: 20, Deadline: deadline},
		&ReservationResolved{Header: resolved, From: "pending", Held: true, RefundedTokens: 20},
		&ToolEffectSettledLate{
			Header: exampleHead("ToolEffectSettledLate", 3), ChargedTokens: 20, ResultSHA256: sum, ResultBytes: 2,
			AppliedAttempt: 1, SettledBy: "holder", Unverified: true,
		},
		&SuspectedDoubleEffect{Header: exampleHead("SuspectedDoubleEffect", 5), Suspects: []string{exampleRow + "/2"}},
		&CompensationStarted{Header: exampleHead("CompensationStarted", 3), CompensatedBy: "session:undo-pr-7f3c"},
		&ToolEffectCompensated{
			Header: exampleHead("ToolEffectCompensated", 4), CompensatedBy: "session:undo-pr-7f3c", RefundedTokens: 15,
		},
	}
}

func auditExamples() []Event {
	observed := func(detailType string) Header {
		h := exampleHead(detailType, 3)
		h.RowID, h.Attempt, h.Trace = "01k9f3t5w2m8q8", 0, ""
		h.ID = ID(detailType, h.RowID, h.Version)
		return h
	}
	count := Observation{Delta: 1, Count: 3}
	return append([]Event{
		&LedgerRowArchived{Header: exampleHead("LedgerRowArchived", 2), State: "applied", Reason: "ttl"},
		&LedgerRowTampered{
			Header: exampleHead("LedgerRowTampered", 3), Operation: "modify", From: "applied", To: "applied",
			Rule: "an applied row changes only by a suspect, a compensation or an erasure", Attributes: []string{"chargedTokens"},
		},
		&ToolCallReplayed{observed("ToolCallReplayed"), count},
		&ToolCallInFlight{observed("ToolCallInFlight"), count},
		&IdempotencyKeyConflict{observed("IdempotencyKeyConflict"), count},
		&QuotaExhausted{observed("QuotaExhausted"), count},
		&ContentionGaveUp{observed("ContentionGaveUp"), count},
	}, tenantExamples()...)
}

func tenantExamples() []Event {
	const quota, stream = "01k9f3t5w2m8q9", "arn:aws:dynamodb:eu-central-1:111122223333:table/ledger/stream/2026-11-01T00:00:00.000"
	const shard, sequence = "shardId-00000001764525015000-6a8d3c1e", "111100000000012345678901"
	head := func(detailType, entity, rowID string, version int64, tenant string) Header {
		return Header{
			ID: ID(detailType, entity, version), Schema: Schema, Tenant: tenant, RowID: rowID, Version: version, Time: exampleTime,
		}
	}
	return []Event{
		&QuotaGranted{
			Header: head("QuotaGranted", quota, quota, 1, "acme"), Period: "2026-11", Granted: 1000, Remaining: 1000, DeltaTokens: 1000,
		},
		&QuotaLow{
			Header: head("QuotaLow", quota+"/20", quota, 41, "acme"), Period: "2026-11", Granted: 1000, Remaining: 190, Percent: 20,
		},
		&PlanChanged{Header: head("PlanChanged", "acme", "acme", 2, "acme"), Tokens: 1000, Period: "month", Shards: 1, Overdraft: 50},
		&AuditGap{Header: head("AuditGap", stream+"/"+shard+"/"+sequence, "", 0, ""), Stream: stream, Shard: shard, AfterSequence: sequence},
		&AuditRecordUnreadable{
			Header: head("AuditRecordUnreadable", stream+"/"+sequence, "", 0, "acme"), Stream: stream, Sequence: sequence,
			Operation: "modify", Attribute: "resultJson", Rule: "must be a string",
		},
	}
}
