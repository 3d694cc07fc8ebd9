package schema

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// PendingProjection lists what the sparse index holds beside the keys: all that expiring a row or asking a verifier needs.
// DynamoDB takes 20 names at most. The state is not among them: only pending rows are in the index.
func PendingProjection() []string {
	return []string{
		AFormat, ARowID, AVersion, AAttempt, ATool, ASession, AScope, AIdempotent, AVerifier, AHorizon, AKeep, ALookup,
		AReserved, ADebits, ASweepAt, AHeld, ACreatedAt, AUpdatedAt, AReservedAt, AUnverified,
	}
}

// LedgerTable describes the ledger table; without a stream where nobody reads one. TTL on AExpiresAt is switched on apart.
func LedgerTable(name string, stream bool) *dynamodb.CreateTableInput {
	in := baseTable(name, stream)
	in.AttributeDefinitions = append(in.AttributeDefinitions,
		types.AttributeDefinition{AttributeName: aws.String(APendingBucket), AttributeType: types.ScalarAttributeTypeS},
		types.AttributeDefinition{AttributeName: aws.String(ADeadline), AttributeType: types.ScalarAttributeTypeN})
	in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
		IndexName: aws.String(PendingIndex),
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(APendingBucket), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(ADeadline), KeyType: types.KeyTypeRange},
		},
		Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: PendingProjection()},
	}}
	return in
}

// ControlTable describes the control table, whose stream carries plan changes.
func ControlTable(name string, stream bool) *dynamodb.CreateTableInput {
	return baseTable(name, stream)
}

func baseTable(name string, stream bool) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName:   aws.String(name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(PK), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(SK), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(PK), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(SK), KeyType: types.KeyTypeRange},
		},
	}
	if stream {
		in.StreamSpecification = &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		}
	}
	return in
}
