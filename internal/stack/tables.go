package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

const (
	activeWait  = 2 * time.Minute // for a new table on AWS, which takes some ten seconds
	activePause = 200 * time.Millisecond
)

// TablesClient is the part of *dynamodb.Client that CreateTables calls.
type TablesClient interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// Table is what CreateTables found or made.
type Table struct {
	Name      string `json:"name"`
	ARN       string `json:"arn"`
	StreamARN string `json:"stream_arn,omitempty"`
	Created   bool   `json:"created"` // false: it was there
	TTL       bool   `json:"ttl"`     // rows past expiresAt are removed; false where the endpoint refused to
}

// CreateTables makes the ledger table and the control table, both with a stream where stream is set, waits until they are
// active and switches on TTL. Tables that are there already and have the right shape are left alone.
// Errors: ErrTableDiffers, ErrTableNotReady, the client's, ctx's.
func CreateTables(ctx context.Context, client TablesClient, table, control string, stream bool) ([]Table, error) {
	var made []Table
	for _, want := range []*dynamodb.CreateTableInput{schema.LedgerTable(table, stream), schema.ControlTable(control, stream)} {
		t, err := createTable(ctx, client, want)
		if err != nil {
			return made, err
		}
		made = append(made, t)
	}
	return made, nil
}

func createTable(ctx context.Context, client TablesClient, want *dynamodb.CreateTableInput) (Table, error) {
	name := aws.ToString(want.TableName)
	_, err := client.CreateTable(ctx, want)
	_, exists := errors.AsType[*types.ResourceInUseException](err)
	if err != nil && !exists {
		return Table{}, fmt.Errorf("create table %s: %w", name, err)
	}
	found, err := waitActive(ctx, client, name)
	if err != nil {
		return Table{}, err
	}
	if diff := difference(want, found); diff != "" {
		return Table{}, fmt.Errorf("%w: %s: %s; nothing was changed", ErrTableDiffers, name, diff)
	}
	ttl, err := enableTTL(ctx, client, name)
	if err != nil {
		return Table{}, err
	}
	return Table{
		Name: name, ARN: aws.ToString(found.TableArn), StreamARN: aws.ToString(found.LatestStreamArn), Created: !exists, TTL: ttl,
	}, nil
}

func waitActive(ctx context.Context, client TablesClient, name string) (*types.TableDescription, error) {
	var status types.TableStatus
	for range int(activeWait / activePause) {
		out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(name)})
		if _, missing := errors.AsType[*types.ResourceNotFoundException](err); err != nil && !missing {
			return nil, fmt.Errorf("describe table %s: %w", name, err)
		}
		if err == nil {
			if status = out.Table.TableStatus; status == types.TableStatusActive {
				return out.Table, nil
			}
		}
		if err := sleep(ctx, activePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %s is %q after %s", ErrTableNotReady, name, status, activeWait)
}

// enableTTL reports whether TTL is on. A refusal by something that is not AWS is no error: rows past their end count as
// absent anyway.
func enableTTL(ctx context.Context, client TablesClient, name string) (bool, error) {
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(name)})
	if err == nil && out.TimeToLiveDescription != nil && aws.ToString(out.TimeToLiveDescription.AttributeName) == schema.AExpiresAt {
		return true, nil
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: aws.String(name),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(schema.AExpiresAt), Enabled: aws.Bool(true),
		},
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil, nil
}

// difference says what keeps found from serving as want, or "".
func difference(want *dynamodb.CreateTableInput, found *types.TableDescription) string {
	if a, b := keysOf(want.KeySchema, want.AttributeDefinitions), keysOf(found.KeySchema, found.AttributeDefinitions); a != b {
		return fmt.Sprintf("its key is %s, not %s", b, a)
	}
	for _, index := range want.GlobalSecondaryIndexes {
		at := slices.IndexFunc(found.GlobalSecondaryIndexes, func(g types.GlobalSecondaryIndexDescription) bool {
			return aws.ToString(g.IndexName) == aws.ToString(index.IndexName)
		})
		if at < 0 {
			return fmt.Sprintf("it has no index %s", aws.ToString(index.IndexName))
		}
		got := found.GlobalSecondaryIndexes[at]
		if a, b := keysOf(index.KeySchema, want.AttributeDefinitions), keysOf(got.KeySchema, found.AttributeDefinitions); a != b {
			return fmt.Sprintf("the key of its index %s is %s, not %s", aws.ToString(index.IndexName), b, a)
		}
		if missing := notProjected(index.Projection, got.Projection); missing != "" {
			return fmt.Sprintf("its index %s lacks the attribute %s", aws.ToString(index.IndexName), missing)
		}
	}
	if want.StreamSpecification != nil {
		s := found.StreamSpecification
		if s == nil || !aws.ToBool(s.StreamEnabled) || s.StreamViewType != want.StreamSpecification.StreamViewType {
			return "it has no stream of new and old images"
		}
	}
	return ""
}

// keysOf renders a key as "pk S HASH, sk S RANGE".
func keysOf(key []types.KeySchemaElement, attributes []types.AttributeDefinition) string {
	parts := make([]string, 0, len(key))
	for _, k := range key {
		part := aws.ToString(k.AttributeName)
		for _, a := range attributes {
			if aws.ToString(a.AttributeName) == part {
				part += " " + string(a.AttributeType)
				break
			}
		}
		parts = append(parts, part+" "+string(k.KeyType))
	}
	return strings.Join(parts, ", ")
}

// notProjected returns an attribute that want projects and got does not.
func notProjected(want, got *types.Projection) string {
	if got == nil || want == nil || got.ProjectionType == types.ProjectionTypeAll {
		return ""
	}
	for _, name := range want.NonKeyAttributes {
		if !slices.Contains(got.NonKeyAttributes, name) {
			return name
		}
	}
	return ""
}
