package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"toolledger/internal/jitter"
	"toolledger/internal/schema"
)

// Client sends transactions.
type Client interface {
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Codes of cancellation reasons.
const (
	codeNone      = "None"
	codeCondition = "ConditionalCheckFailed"
	codeConflict  = "TransactionConflict"
	codeCapacity  = "ProvisionedThroughputExceeded"
	codeThrottled = "ThrottlingError"
)

// Reason is why one item was refused; Code "None" means that it was not.
type Reason struct {
	Code string
	Item schema.Item // the old item where its condition failed; nil: there is none
}

func (r Reason) passed() bool { return r.Code == codeNone }

func (r Reason) failed() bool { return r.Code == codeCondition }

func (r Reason) contended() bool {
	return r.Code == codeConflict || r.Code == codeCapacity || r.Code == codeThrottled
}

// Send sends a transaction. The client request token is left to the SDK: it covers the SDK's own retries, whose bytes are
// equal, and hides nothing from ours. Errors: *Refused, *Unsure, *Rejected; ctx's only where nothing was sent.
func Send(ctx context.Context, client Client, tx *Tx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: tx.Items})
	if err == nil {
		return nil
	}
	return classify(err, tx.Parts)
}

func classify(err error, parts []Part) error {
	if e, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		if len(e.CancellationReasons) != len(parts) {
			return &Unsure{err}
		}
		reasons := make([]Reason, len(parts))
		for i, r := range e.CancellationReasons {
			reasons[i] = Reason{Code: aws.ToString(r.Code), Item: r.Item}
			if reasons[i].Code == "" {
				reasons[i].Code = codeNone
			}
			if len(r.Item) == 0 {
				reasons[i].Item = nil
			}
		}
		return &Refused{Parts: parts, Reasons: reasons, Cause: err}
	}
	if definite(err) {
		return &Rejected{err}
	}
	return &Unsure{err}
}

// definite tells whether err means that no try of the request can have been applied: these errors are about the request
// itself and would have met every try alike.
func definite(err error) bool {
	if _, ok := errors.AsType[smithy.InvalidParamsError](err); ok {
		return true // the SDK sent nothing
	}
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	switch e.ErrorCode() {
	case "ValidationException", "AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException",
		"InvalidSignatureException", "MissingAuthenticationTokenException", "SerializationException", "IncompleteSignatureException":
		return true
	}
	return false
}

// Answer is what a refused transaction comes down to.
type Answer int

// The answers, in the order in which they are believed.
const (
	RowRefused      Answer = iota // the row's condition failed: the old row decides
	Contended                     // another transaction was at one of the items: the same again, a little later
	OriginalRefused               // the compensated call is not what it was
	WriteRefused                  // the tool's own write failed its own condition
	GrantRefused                  // the grant has been made before
	PlanRefused                   // the plan has another version
	QuotaRefused                  // a quota item is absent, suspended, or has too little
	SessionRefused                // the cursor is elsewhere
	Broken                        // DynamoDB refuses the item itself (size, type): the same again would not help
)

// Decide reads all reasons and returns what to believe first, and the index of the part that says so. While the row
// itself is contended nothing else is believed: the transaction in its way may be our own, or another attempt's.
func (e *Refused) Decide() (Answer, int) {
	order := []struct {
		kind   Kind
		answer Answer
	}{
		{PartOriginal, OriginalRefused},
		{PartWrite, WriteRefused},
		{PartGrant, GrantRefused},
		{PartPlan, PlanRefused},
		{PartQuota, QuotaRefused},
		{PartSession, SessionRefused},
	}
	if i := e.find(PartRow, Reason.failed); i >= 0 {
		return RowRefused, i
	}
	if i := e.find(PartRow, Reason.contended); i >= 0 {
		return Contended, i
	}
	for _, o := range order {
		if i := e.find(o.kind, Reason.failed); i >= 0 {
			return o.answer, i
		}
	}
	for i, r := range e.Reasons {
		if !r.passed() && !r.contended() {
			return Broken, i
		}
	}
	for i, r := range e.Reasons {
		if r.contended() {
			return Contended, i
		}
	}
	return Broken, 0
}

func (e *Refused) find(kind Kind, is func(Reason) bool) int {
	for i, p := range e.Parts {
		if p.Kind == kind && is(e.Reasons[i]) {
			return i
		}
	}
	return -1
}

// The bounds of contention retries: with full jitter under a growing ceiling, 40 callers of one item all get through.
const (
	MaxTries     = 30
	MaxLost      = 3 // tries whose answer was lost: the SDK has made several of each
	backoffFirst = 8 * time.Millisecond
	backoffMost  = 400 * time.Millisecond
)

// Pause sleeps before try n (from 1) with full jitter. Errors: ctx's.
func Pause(ctx context.Context, n int) error {
	ceiling := min(backoffFirst<<min(n, 16), backoffMost)
	return Sleep(ctx, jitter.N(ceiling))
}

// Sleep waits for d. Errors: ctx's.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
