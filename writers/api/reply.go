package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"toolledger/writers"
)

// reply is one whole response, built before its first byte is sent.
type reply struct {
	status      int
	contentType string
	body        []byte
	code        string // of a problem, for the log
	replayed    bool
	retryAfter  string
	allow       string
}

// write sends the response; to a HEAD its head alone, since not everything that carries it knows the method.
func (p *reply) write(w http.ResponseWriter, method string) {
	h := w.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("Content-Length", strconv.Itoa(len(p.body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	w.WriteHeader(p.status)
	if method == http.MethodHead {
		return
	}
	_, _ = w.Write(p.body) // the caller may be gone; the ledger has what it needs
}

// answer is what a POST operation says when it went well.
type answer struct {
	Outcome   string   `json:"outcome"`
	Key       string   `json:"key"`
	Attempt   int      `json:"attempt,omitempty"`
	RowID     string   `json:"row_id,omitempty"`
	EffectKey string   `json:"effect_key,omitempty"`
	State     string   `json:"state"`
	Deadline  string   `json:"deadline,omitempty"`
	Lease     *float64 `json:"lease_seconds,omitempty"` // what is left until deadline, so that the caller's clock does not matter
	Charged   *int64   `json:"charged_tokens,omitempty"`
	Remaining *int64   `json:"remaining_tokens,omitempty"`

	result json.RawMessage
}

// reply encodes the answer. The result is put in as it was stored, byte for byte: a JSON encoder would compact it.
func (a *answer) reply() *reply {
	rep := jsonReply(a)
	if a.result != nil {
		rep.body = withMember(rep.body, "result", a.result)
	}
	rep.replayed = a.Outcome == string(writers.OutcomeReplayed)
	return rep
}

// withMember appends a member to an encoded object that has at least one.
func withMember(object []byte, name string, value json.RawMessage) []byte {
	out := append(bytes.TrimSuffix(object, []byte("}")), `,"`+name+`":`...)
	return append(append(out, value...), '}')
}

func jsonReply(v any) *reply {
	body, err := encode(v)
	if err != nil {
		return problemReply(errInternal)
	}
	return &reply{status: http.StatusOK, contentType: "application/json", body: body}
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// applied is the answer for a call that took effect.
func applied(k writers.Key, raw writers.Raw) *answer {
	return &answer{
		Outcome: string(raw.Outcome), Key: k.String(), State: string(writers.StateApplied),
		Attempt: raw.Attempt, RowID: raw.RowID, EffectKey: raw.EffectKey, Charged: &raw.Charged, result: orNull(raw.JSON),
	}
}

// held is the answer for a reservation that is open.
func held(outcome string, hold *writers.Reservation, now time.Time) *answer {
	left := max(0, hold.Deadline.Sub(now).Round(time.Millisecond).Seconds())
	return &answer{
		Outcome: outcome, Key: hold.Key.String(), State: string(writers.StatePending),
		Attempt: hold.Attempt, RowID: hold.RowID, EffectKey: hold.EffectKey,
		Deadline: timestamp(hold.Deadline), Lease: &left,
	}
}

func orNull(result json.RawMessage) json.RawMessage {
	if len(result) == 0 {
		return json.RawMessage("null")
	}
	return result
}
