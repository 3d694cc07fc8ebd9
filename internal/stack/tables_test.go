package stack_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
)

// Promise: tables are made once, and asking again changes nothing.
func TestCreateTablesIsIdempotent(t *testing.T) {
	srv := start(t, stack.Config{})
	client := dynamodb.NewFromConfig(srv.AWSConfig())
	for _, created := range []bool{true, false} {
		tables, err := stack.CreateTables(t.Context(), client, "toolledger-test", "toolledger-test-control", true)
		if err != nil {
			t.Fatal(err)
		}
		if len(tables) != 2 {
			t.Fatalf("%d tables, want 2", len(tables))
		}
		for _, table := range tables {
			if table.Created != created || table.StreamARN == "" || !table.TTL {
				t.Errorf("%+v, want created %v, a stream and TTL", table, created)
			}
		}
	}
}

// Promise: a table of the same name that could not hold the ledger is refused by name and reason, and left alone.
func TestCreateTablesRefusesAnotherTable(t *testing.T) {
	srv := start(t, stack.Config{})
	client := dynamodb.NewFromConfig(srv.AWSConfig())
	for name, tt := range map[string]struct {
		change func(*dynamodb.CreateTableInput)
		text   string
	}{
		"other key": {func(in *dynamodb.CreateTableInput) {
			in.KeySchema = in.KeySchema[:1]
			in.AttributeDefinitions = in.AttributeDefinitions[:1]
			in.GlobalSecondaryIndexes = nil
		}, "its key is"},
		"no index": {func(in *dynamodb.CreateTableInput) {
			in.GlobalSecondaryIndexes = nil
			in.AttributeDefinitions = in.AttributeDefinitions[:2]
		}, "no index " + schema.PendingIndex},
		"thin index": {func(in *dynamodb.CreateTableInput) {
			in.GlobalSecondaryIndexes[0].Projection = &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}
		}, "lacks the attribute"},
		"no stream": {func(in *dynamodb.CreateTableInput) { in.StreamSpecification = nil }, "no stream"},
	} {
		t.Run(name, func(t *testing.T) {
			table := "toolledger-" + strings.ReplaceAll(name, " ", "-")
			in := schema.LedgerTable(table, true)
			tt.change(in)
			if _, err := client.CreateTable(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			_, err := stack.CreateTables(t.Context(), client, table, table+"-control", true)
			if !errors.Is(err, stack.ErrTableDiffers) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), table) {
				t.Errorf("got %v, want ErrTableDiffers naming %s with %q", err, table, tt.text)
			}
			if _, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(table + "-control")}); err == nil {
				t.Error("the control table was made all the same")
			}
		})
	}
}
