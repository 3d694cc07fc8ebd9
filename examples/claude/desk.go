package main

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// desk is the outside world of this example: a ticket desk that files a ticket under the key it was given, and another one if
// asked again. It knows the tickets of everybody, and shows each tenant its own.
type desk struct {
	db    *dynamodb.Client
	table string
}

type ticket struct {
	Number string `json:"number"`
	Title  string `json:"title"`
}

// The desk's items.
const (
	attrNumber = "number"
	attrTenant = "tenant"
	attrTitle  = "title"
	attrKey    = "effectKey"
)

func (d *desk) file(ctx context.Context, tenant, key, title string) (ticket, error) {
	t := ticket{Number: rand.Text()[:8], Title: title}
	_, err := d.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &d.table, Item: map[string]types.AttributeValue{
		attrNumber: str(t.Number), attrTenant: str(tenant), attrTitle: str(title), attrKey: str(key),
	}})
	return t, err
}

// find looks for the ticket of a key.
func (d *desk) find(ctx context.Context, tenant, key string) (ticket, bool, error) {
	all, err := d.where(ctx, "#tenant = :tenant AND #key = :key", map[string]string{"#tenant": attrTenant, "#key": attrKey},
		map[string]types.AttributeValue{":tenant": str(tenant), ":key": str(key)})
	if err != nil || len(all) == 0 {
		return ticket{}, false, err
	}
	return all[0], true, nil
}

func (d *desk) list(ctx context.Context, tenant string) ([]ticket, error) {
	return d.where(ctx, "#tenant = :tenant", map[string]string{"#tenant": attrTenant}, map[string]types.AttributeValue{":tenant": str(tenant)})
}

// where scans: a desk in an example is small.
func (d *desk) where(ctx context.Context, filter string, names map[string]string, values map[string]types.AttributeValue) ([]ticket, error) {
	found := []ticket{}
	pages := dynamodb.NewScanPaginator(d.db, &dynamodb.ScanInput{
		TableName: &d.table, ConsistentRead: new(true), FilterExpression: &filter, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			found = append(found, ticket{text(item, attrNumber), text(item, attrTitle)})
		}
	}
	return found, nil
}

// createTable makes a table with one string key, unless it is there.
func createTable(ctx context.Context, db *dynamodb.Client, name, key string) error {
	_, err := db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if _, there := errors.AsType[*types.ResourceInUseException](err); there {
		return nil
	}
	return err
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func text(item map[string]types.AttributeValue, name string) string {
	s, ok := item[name].(*types.AttributeValueMemberS)
	if !ok {
		return ""
	}
	return s.Value
}
