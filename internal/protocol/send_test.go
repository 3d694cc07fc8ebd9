package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

var anyAmounts = rapid.SliceOf(rapid.Custom(func(t *rapid.T) Amount {
	key := schema.QuotaKey("acme", "2026-11", rapid.IntRange(0, 4).Draw(t, "shard"))
	return Amount{key, rapid.Int64Range(-5, 5).Draw(t, "tokens")}
}))

// Promise: netting conserves the tokens of every item, names no item twice, and none for nothing, in the order of their
// first mention, whatever order the parts came in.
func TestNet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amounts := anyAmounts.Draw(t, "amounts")
		sums := map[schema.Key]int64{}
		var order []schema.Key
		for _, a := range amounts {
			if !slices.Contains(order, a.Key) {
				order = append(order, a.Key)
			}
			sums[a.Key] += a.Tokens
		}
		var want []Amount
		for _, k := range order {
			if sums[k] != 0 {
				want = append(want, Amount{k, sums[k]})
			}
		}
		before := slices.Clone(amounts)
		if got := Net(amounts); !slices.Equal(got, want) {
			t.Fatalf("%v became %v, want %v", amounts, got, want)
		}
		if !slices.Equal(before, amounts) {
			t.Fatal("its argument was changed")
		}
	})
}

// Promise: refunds are the debits themselves, item by item, and give back what was taken.
func TestRefunds(t *testing.T) {
	debits := []schema.Debit{{Period: "2026-11", Shard: 0, Tokens: 5}, {Period: "2026-10", Shard: 3, Tokens: 7}}
	got := Refunds("acme", debits)
	want := []Amount{{schema.QuotaKey("acme", "2026-11", 0), 5}, {schema.QuotaKey("acme", "2026-10", 3), 7}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	tx := NewTx(2)
	tables.AddAmounts(tx, append(got, Amount{want[0].Key, -5}, Amount{want[1].Key, -9}))
	if len(tx.Items) != 1 || tx.Parts[0].Key != want[1].Key || tx.Items[0].Update.ExpressionAttributeValues[":n"].(*types.AttributeValueMemberN).Value != "2" {
		t.Errorf("%+v", tx)
	}
}

var (
	partKinds = []Kind{PartRow, PartQuota, PartSession, PartOriginal, PartWrite, PartPlan, PartGrant}
	allCodes  = []string{"None", "ConditionalCheckFailed", "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "ValidationError", "ItemCollectionSizeLimitExceeded", "FromTheFuture"}
)

// decide is Decide written the other way round: for each answer, from the one that is believed last.
func decide(kinds []Kind, codes []string) Answer {
	has := func(kind Kind, want ...string) bool {
		for i := range kinds {
			if (kind < 0 || kinds[i] == kind) && slices.Contains(want, codes[i]) {
				return true
			}
		}
		return false
	}
	contended := []string{"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}
	answer := Broken
	if has(-1, contended...) && !has(-1, "ConditionalCheckFailed", "ValidationError", "ItemCollectionSizeLimitExceeded", "FromTheFuture") {
		answer = Contended
	}
	for _, later := range []struct {
		kind   Kind
		answer Answer
	}{{PartSession, SessionRefused}, {PartQuota, QuotaRefused}, {PartPlan, PlanRefused}, {PartGrant, GrantRefused}, {PartWrite, WriteRefused}, {PartOriginal, OriginalRefused}} {
		if has(later.kind, "ConditionalCheckFailed") {
			answer = later.answer
		}
	}
	if has(PartRow, contended...) {
		answer = Contended
	}
	if has(PartRow, "ConditionalCheckFailed") {
		answer = RowRefused
	}
	return answer
}

// Promise: of all reasons the row's own is believed first; while the row is contended nothing else is; then come the
// original, the tool's own writes, the plan, the quota and the session, in this order wherever they stand; contention
// alone is tried again, and what DynamoDB refuses for good is not.
func TestDecide(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, kinds []Kind, codes []string) {
		e := &Refused{}
		for i := range kinds {
			e.Parts = append(e.Parts, Part{Kind: kinds[i]})
			e.Reasons = append(e.Reasons, Reason{Code: codes[i]})
		}
		got, i := e.Decide()
		if want := decide(kinds, codes); got != want {
			t.Fatalf("%v %v: %d, want %d", kinds, codes, got, want)
		}
		if i < 0 || i >= len(kinds) {
			t.Fatalf("%v %v: part %d", kinds, codes, i)
		}
		if e.Reasons[i].passed() && got != Broken {
			t.Fatalf("%v %v: part %d says nothing", kinds, codes, i)
		}
	}
	for _, first := range partKinds {
		for _, second := range partKinds {
			for _, a := range allCodes {
				for _, b := range allCodes {
					check(t, []Kind{first, second}, []string{a, b})
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom(partKinds), 1, 8).Draw(t, "kinds")
		codes := rapid.SliceOfN(rapid.SampledFrom(allCodes), len(kinds), len(kinds)).Draw(t, "codes")
		check(t, kinds, codes)
	})
}

// Promise: the index says which part: of two quota items the one that refused.
func TestDecideSaysWhich(t *testing.T) {
	e := &Refused{
		Parts:   []Part{{Kind: PartRow}, {Kind: PartQuota}, {Kind: PartQuota}, {Kind: PartWrite, Index: 0}, {Kind: PartWrite, Index: 1}},
		Reasons: []Reason{{Code: "None"}, {Code: "None"}, {Code: "ConditionalCheckFailed"}, {Code: "None"}, {Code: "None"}},
	}
	if answer, i := e.Decide(); answer != QuotaRefused || i != 2 {
		t.Error(answer, i)
	}
	e.Reasons[4].Code = "ConditionalCheckFailed"
	if answer, i := e.Decide(); answer != WriteRefused || i != 4 {
		t.Error(answer, i)
	}
	e.Reasons[4].Code = "ValidationError"
	e.Reasons[2].Code = "TransactionConflict"
	if answer, i := e.Decide(); answer != Broken || i != 4 {
		t.Error(answer, i)
	}
}

// answering is a client that always answers the same.
type answering struct {
	err   error
	calls int
}

func (a *answering) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	a.calls++
	if in.ClientRequestToken != nil {
		panic("the token is the SDK's")
	}
	return &dynamodb.TransactWriteItemsOutput{}, a.err
}

func cancelled(codes ...*string) error {
	e := &types.TransactionCanceledException{Message: aws.String("")}
	for _, c := range codes {
		e.CancellationReasons = append(e.CancellationReasons, types.CancellationReason{Code: c, Item: schema.Item{}})
	}
	return e
}

// Promise: an answer is read for what it says about the table: surely refused, surely not accepted, or nobody knows.
// What is not known to be certain is unsure.
func TestSendClassifies(t *testing.T) {
	tx := NewTx(2)
	tx.Add(Part{Kind: PartRow}, tables.CheckPlan("a", 1))
	tx.Add(Part{Kind: PartQuota}, tables.CheckPlan("a", 1))
	api := func(code string) error { return &smithy.GenericAPIError{Code: code} }
	wrapped := func(err error) error { return fmt.Errorf("operation error DynamoDB: %w", err) }
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"fine":                      {nil, "ok"},
		"cancelled":                 {wrapped(cancelled(aws.String("None"), aws.String("ConditionalCheckFailed"))), "refused"},
		"a code that is absent":     {cancelled(nil, aws.String("ConditionalCheckFailed")), "refused"},
		"reasons missing":           {cancelled(), "unsure"},
		"too few reasons":           {cancelled(aws.String("None")), "unsure"},
		"too many reasons":          {cancelled(aws.String("None"), aws.String("None"), aws.String("None")), "unsure"},
		"conflict with a plain":     {&types.TransactionConflictException{}, "unsure"},
		"in progress":               {&types.TransactionInProgressException{}, "unsure"},
		"parameter mismatch":        {&types.IdempotentParameterMismatchException{}, "unsure"},
		"throttled":                 {api("ThrottlingException"), "unsure"},
		"capacity":                  {&types.ProvisionedThroughputExceededException{}, "unsure"},
		"their fault":               {&types.InternalServerError{}, "unsure"},
		"a time-out":                {context.DeadlineExceeded, "unsure"},
		"cut off":                   {wrapped(errors.New("connection reset")), "unsure"},
		"an answer that is no JSON": {&smithy.DeserializationError{Err: errors.New("x")}, "unsure"},
		"not valid":                 {wrapped(api("ValidationException")), "rejected"},
		"not allowed":               {api("AccessDeniedException"), "rejected"},
		"no table":                  {&types.ResourceNotFoundException{}, "rejected"},
		"unknown client":            {api("UnrecognizedClientException"), "rejected"},
		"refused by the SDK itself": {wrapped(smithy.InvalidParamsError{Context: "x"}), "rejected"},
		"unknown code":              {api("SomethingNew"), "unsure"},
	} {
		client := &answering{err: tt.err}
		err := Send(t.Context(), client, tx)
		got := "ok"
		var refused *Refused
		var rejected *Rejected
		var unsure *Unsure
		switch {
		case errors.As(err, &refused):
			got = "refused"
			if len(refused.Reasons) != 2 || refused.Reasons[0].Code != "None" || refused.Reasons[1].Item != nil {
				t.Errorf("%s: %+v", name, refused)
			}
		case errors.As(err, &rejected):
			got = "rejected"
		case errors.As(err, &unsure):
			got = "unsure"
		}
		if got != tt.want || client.calls != 1 {
			t.Errorf("%s: %s (%v), want %s", name, got, err, tt.want)
		}
		if tt.err != nil && (!errors.Is(err, tt.err) || err.Error() == "") {
			t.Errorf("%s: the cause is lost in %v", name, err)
		}
	}
}

// Promise: where the context has ended before, nothing is sent, and the answer says so.
func TestSendAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client := &answering{}
	if err := Send(ctx, client, NewTx(0)); err != context.Canceled || client.calls != 0 { //nolint:errorlint // as it is
		t.Error(err, client.calls)
	}
}

// Promise: pauses are bounded, so that all tries of a call together take seconds, and end with the context.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{-1, 0, 1, 2, 10, MaxTries, 63, 1 << 40} {
			began := time.Now()
			if err := Pause(t.Context(), max(n, 0)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took >= min(8*time.Millisecond<<min(max(n, 0), 16), 400*time.Millisecond) {
				t.Errorf("pause %d took %s", n, took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Pause(ctx, MaxTries); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
