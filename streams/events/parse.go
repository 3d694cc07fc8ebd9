package events

import "encoding/json"

type envelope struct {
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Detail     json.RawMessage `json:"detail"`
}

// Parse decodes an EventBridge event as Lambda or a queue delivers it. Types and schemas newer than this package come as
// *Unknown; fields newer than it are passed over.
// Errors: ErrForeign where the source is not toolledger; *ParseError.
func Parse(event []byte) (Event, error) {
	var env envelope
	if err := json.Unmarshal(event, &env); err != nil {
		return nil, &ParseError{Field: "envelope", Err: err}
	}
	switch {
	case env.Source == "":
		return nil, &ParseError{Field: "source"}
	case env.Source != Source:
		return nil, ErrForeign
	case env.DetailType == "":
		return nil, &ParseError{Field: "detail-type"}
	}
	return ParseDetail(env.DetailType, env.Detail)
}

// ParseDetail decodes an event from its detail-type and detail, for those who keep these two without the envelope.
// Errors: *ParseError.
func ParseDetail(detailType string, detail []byte) (Event, error) {
	var head Header
	if len(detail) == 0 || string(detail) == "null" {
		return nil, &ParseError{Type: detailType, Field: "detail"}
	}
	if err := json.Unmarshal(detail, &head); err != nil {
		return nil, &ParseError{detailType, "detail", err}
	}
	if head.ID == "" {
		return nil, &ParseError{Type: detailType, Field: "detail.id"}
	}
	if head.Schema < 1 {
		return nil, &ParseError{Type: detailType, Field: "detail.schema"}
	}
	ev := newEvent(detailType)
	if ev == nil || head.Schema > Schema {
		return &Unknown{Header: head, Type: detailType, Detail: append([]byte(nil), detail...)}, nil
	}
	if err := json.Unmarshal(detail, ev); err != nil {
		return nil, &ParseError{detailType, "detail", err}
	}
	return ev, nil
}

// newEvent returns an empty event of the type, or nil for a type that this package does not know.
func newEvent(detailType string) Event {
	switch detailType {
	case "ToolCallReserved":
		return &ToolCallReserved{}
	case "ToolEffectApplied":
		return &ToolEffectApplied{}
	case "ReservationExtended":
		return &ReservationExtended{}
	case "ReservationStuck":
		return &ReservationStuck{}
	case "ReservationReleased":
		return &ReservationReleased{}
	case "ReservationExpired":
		return &ReservationExpired{}
	case "ReservationResolved":
		return &ReservationResolved{}
	case "ToolEffectSettledLate":
		return &ToolEffectSettledLate{}
	case "SuspectedDoubleEffect":
		return &SuspectedDoubleEffect{}
	case "CompensationStarted":
		return &CompensationStarted{}
	case "ToolEffectCompensated":
		return &ToolEffectCompensated{}
	}
	return newAuditEvent(detailType)
}

func newAuditEvent(detailType string) Event {
	switch detailType {
	case "LedgerRowArchived":
		return &LedgerRowArchived{}
	case "LedgerRowTampered":
		return &LedgerRowTampered{}
	case "AuditGap":
		return &AuditGap{}
	case "AuditRecordUnreadable":
		return &AuditRecordUnreadable{}
	case "ToolCallReplayed":
		return &ToolCallReplayed{}
	case "ToolCallInFlight":
		return &ToolCallInFlight{}
	case "IdempotencyKeyConflict":
		return &IdempotencyKeyConflict{}
	case "QuotaExhausted":
		return &QuotaExhausted{}
	case "ContentionGaveUp":
		return &ContentionGaveUp{}
	case "QuotaGranted":
		return &QuotaGranted{}
	case "QuotaLow":
		return &QuotaLow{}
	case "PlanChanged":
		return &PlanChanged{}
	}
	return nil
}
