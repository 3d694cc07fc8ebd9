package writers

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// fakeDB answers as a test tells it to; what it was not told to answer is an error.
type fakeDB struct {
	mu     sync.Mutex
	write  func(ctx context.Context, in *dynamodb.TransactWriteItemsInput) error
	get    func(ctx context.Context, in *dynamodb.GetItemInput) (schema.Item, error)
	update func(ctx context.Context, in *dynamodb.UpdateItemInput) error
	writes []*dynamodb.TransactWriteItemsInput
}

var errNotExpected = errors.New("no request was expected")

func (f *fakeDB) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	f.mu.Lock()
	f.writes = append(f.writes, in)
	f.mu.Unlock()
	if f.write == nil {
		return nil, errNotExpected
	}
	return &dynamodb.TransactWriteItemsOutput{}, f.write(ctx, in)
}

func (f *fakeDB) TransactGetItems(context.Context, *dynamodb.TransactGetItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	return nil, errNotExpected
}

func (f *fakeDB) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if f.get == nil {
		return nil, errNotExpected
	}
	item, err := f.get(ctx, in)
	return &dynamodb.GetItemOutput{Item: item}, err
}

func (f *fakeDB) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if f.update == nil {
		return nil, errNotExpected
	}
	return &dynamodb.UpdateItemOutput{}, f.update(ctx, in)
}

func (f *fakeDB) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return nil, errNotExpected
}

// movedBy is how many tokens an update gives back (or takes, below zero).
func movedBy(u *types.Update) int64 {
	n, _ := strconv.ParseInt(schema.ValueOf(u.ExpressionAttributeValues[":n"]).Text, 10, 64)
	if strings.Contains(aws.ToString(u.UpdateExpression), "#remaining - :n") {
		return -n
	}
	return n
}

// cancelled is what DynamoDB answers where the condition of the first item failed because of item.
func cancelled(n int, item schema.Item) error {
	reasons := make([]types.CancellationReason, n)
	for i := range reasons {
		reasons[i].Code = aws.String("None")
	}
	reasons[0].Code, reasons[0].Item = aws.String("ConditionalCheckFailed"), item
	return &types.TransactionCanceledException{CancellationReasons: reasons}
}
