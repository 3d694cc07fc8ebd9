package writers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"toolledger/internal/schema"
)

// How large a result may be inside its row. DynamoDB takes items up to 400 KB; every kilobyte is billed on each write of
// the row and twice in the stream, so with a ResultStore rows stay small.
const (
	inlineMost      = 256 << 10
	inlineWithStore = 16 << 10
)

// stored is a result as the row keeps it.
type stored struct {
	json   json.RawMessage
	inline *string
	ref    *schema.ResultRef
}

// encodeResult turns a result into its bytes: json.RawMessage as it is, an empty one too, which says that there is none;
// everything else by encoding/json.
func encodeResult(op string, result any) (json.RawMessage, error) {
	text := json.RawMessage{}
	switch v := result.(type) {
	case json.RawMessage:
		if v != nil {
			text = v
		}
	case *json.RawMessage:
		if v != nil && *v != nil {
			text = *v
		}
	default:
		b, err := json.Marshal(result)
		if err != nil {
			return nil, &Error{Code: ErrInvalid, Op: op, Field: "result", Reason: "result cannot be encoded as JSON"}
		}
		text = b
	}
	if len(text) > 0 && !json.Valid(text) || !utf8.Valid(text) {
		return nil, &Error{Code: ErrInvalid, Op: op, Field: "result", Reason: "result is not valid JSON in UTF-8"}
	}
	return text, nil
}

// storeResult makes a result ready for the row; a large one is put into the ResultStore first, so that no row ever
// points at a result that is not there.
func (l *Ledger) storeResult(ctx context.Context, op string, tenant TenantID, rowID string, text json.RawMessage) (stored, error) {
	if len(text) <= l.inlineLimit() {
		s := string(text)
		return stored{json: text, inline: &s}, nil
	}
	if l.cfg.Results == nil {
		return stored{}, &Error{Code: ErrTooLarge, Op: op, Field: "result", Reason: fmt.Sprintf(
			"the result is %d bytes long; the limit is %d where no store of large results is configured", len(text), inlineMost)}
	}
	sum := sha256.Sum256(text)
	ref, err := l.cfg.Results.Put(ctx, tenant, rowID, sum, text)
	if err != nil {
		e := unavailable(op, err)
		e.Reason = "the result store did not take the result; nothing was recorded; repeat the call with the same key"
		return stored{}, e
	}
	return stored{json: text, ref: &schema.ResultRef{Ref: ref, SHA256: sum[:], Bytes: int64(len(text))}}, nil
}

func (l *Ledger) inlineLimit() int {
	if l.cfg.Results != nil {
		return inlineWithStore
	}
	return inlineMost
}

// loadResult returns the stored bytes of a row's result, checked against their hash.
func (l *Ledger) loadResult(ctx context.Context, op string, r *schema.Row) (json.RawMessage, error) {
	if r.ResultRef == nil {
		return json.RawMessage(deref(r.ResultJSON)), nil
	}
	if l.cfg.Results == nil {
		return nil, &Error{Code: ErrUnavailable, Op: op, Reason: "the call took effect and its result is in a result store, but Config.Results is not set; set it and repeat the call"}
	}
	body, err := l.cfg.Results.Get(ctx, r.ResultRef.Ref)
	if err != nil {
		e := unavailable(op, err)
		e.Reason = "the call took effect, but the result store did not give its result; repeat the call with the same key"
		return nil, e
	}
	if sum := sha256.Sum256(body); string(sum[:]) != string(r.ResultRef.SHA256) {
		return nil, &Error{Code: ErrUnavailable, Op: op, Reason: "the call took effect, but the result store gave other bytes than were recorded; restore the object"}
	}
	return body, nil
}

// raw makes the answer from a row that is applied.
func (l *Ledger) raw(ctx context.Context, op string, r *schema.Row, outcome Outcome) (Raw, error) {
	text, err := l.loadResult(ctx, op, r)
	if err != nil {
		return Raw{}, err
	}
	return Raw{
		Outcome: outcome, Value: text, JSON: text, Attempt: int(r.AppliedAttempt), Charged: r.Charged,
		RowID: r.RowID, EffectKey: schema.EffectKey(r.Key),
	}, nil
}

func size(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}
