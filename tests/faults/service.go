package faults

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// The errors of the service that a caller must live with. Their messages are empty, as they are in some versions of the
// SDK: nobody may read them.

// Throttled is too many requests.
func Throttled() error { return &types.ThrottlingException{} }

// OverCapacity is too much throughput.
func OverCapacity() error { return &types.ProvisionedThroughputExceededException{} }

// InProgress is a transaction with the token of one that is still being worked on.
func InProgress() error { return &types.TransactionInProgressException{} }

// Mismatch is a transaction with the token of another one.
func Mismatch() error { return &types.IdempotentParameterMismatchException{} }

// Internal is a failure of the service, which may have come after the request was applied.
func Internal() error { return &types.InternalServerError{} }

// ItemConflict is a plain write to an item that a transaction is at.
func ItemConflict() error { return &types.TransactionConflictException{} }

// Denied is a missing permission.
func Denied() error { return &smithy.GenericAPIError{Code: "AccessDeniedException"} }

// Codes of cancellation reasons.
const (
	None             = "None"
	ConditionFailed  = "ConditionalCheckFailed"
	Conflict         = "TransactionConflict"
	Capacity         = "ProvisionedThroughputExceeded"
	ThrottlingReason = "ThrottlingError"
	Validation       = "ValidationError"
	CollectionSize   = "ItemCollectionSizeLimitExceeded"
)

// Reason is one cancellation reason; Code "nil" leaves the code out altogether.
type Reason struct {
	Code string
	Item map[string]types.AttributeValue
}

// NoCode is the Code of a Reason that carries none.
const NoCode = "nil"

// Cancelled is the cancellation of a transaction: reasons by index of its items, "None" for the others.
func Cancelled(input any, reasons map[int]Reason) error {
	n := len(Keys(input))
	list := make([]types.CancellationReason, n)
	for i := range list {
		list[i].Code = aws.String(None)
		if r, ok := reasons[i]; ok {
			list[i] = types.CancellationReason{Code: aws.String(r.Code), Item: r.Item}
			if r.Code == NoCode {
				list[i].Code = nil
			}
		}
	}
	return &types.TransactionCanceledException{CancellationReasons: list}
}

// CancelledAt cancels a transaction with one code at the given indexes.
func CancelledAt(input any, code string, indexes ...int) error {
	reasons := map[int]Reason{}
	for _, i := range indexes {
		reasons[i] = Reason{Code: code}
	}
	return Cancelled(input, reasons)
}

// serviceAnswer is the HTTP response that the service gives for err; nil where err is no error of the service.
func serviceAnswer(r *http.Request, err error) *http.Response {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return nil
	}
	status := http.StatusBadRequest
	if api.ErrorFault() == smithy.FaultServer {
		status = http.StatusInternalServerError
	}
	body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + api.ErrorCode()}
	if e, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		reasons := make([]map[string]any, len(e.CancellationReasons))
		for i, reason := range e.CancellationReasons {
			reasons[i] = map[string]any{}
			if reason.Code != nil {
				reasons[i]["Code"] = *reason.Code
			}
			if len(reason.Item) > 0 {
				reasons[i]["Item"] = jsonItem(reason.Item)
			}
		}
		body["CancellationReasons"] = reasons
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, ContentLength: int64(len(text)),
		Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}
}

func jsonItem(item map[string]types.AttributeValue) map[string]any {
	out := make(map[string]any, len(item))
	for _, name := range slices.Sorted(maps.Keys(item)) {
		out[name] = jsonValue(item[name])
	}
	return out
}

func jsonValue(v types.AttributeValue) map[string]any {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberSS:
		return map[string]any{"SS": v.Value}
	case *types.AttributeValueMemberM:
		return map[string]any{"M": jsonItem(v.Value)}
	}
	return map[string]any{"NULL": true}
}

// buffered reads an answer to its end.
func buffered(resp *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// Quick makes the SDK's retries follow at once; pass it beside Attach. How often it retries, and what, stays as it is.
func Quick(o *dynamodb.Options) {
	if r, ok := o.Retryer.(aws.RetryerV2); ok {
		o.Retryer = quickRetryer{r}
	}
}

type quickRetryer struct{ aws.RetryerV2 }

// RetryDelay is next to nothing.
func (quickRetryer) RetryDelay(int, error) (time.Duration, error) { return time.Millisecond, nil }
