package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// The ways to break a promise, so that the proof can be seen to fail.
const (
	sabotageEffects = "effects" // the world acts twice
	sabotageBooks   = "books"   // a token appears from nowhere
	sabotageReplays = "replays" // a stored result is changed
	sabotageEvents  = "events"  // an event is lost

	sabotages = sabotageEffects + ", " + sabotageBooks + ", " + sabotageReplays + " or " + sabotageEvents
)

func validSabotage(s string) bool {
	switch s {
	case "", sabotageEffects, sabotageBooks, sabotageReplays, sabotageEvents:
		return true
	}
	return false
}

// sabotageBooks gives the first tenant a token that nobody granted.
func (s *story) sabotageBooks(ctx context.Context, p *demoPlan, o demoOptions) error {
	if o.sabotage != sabotageBooks {
		return nil
	}
	held, err := s.shelf(ctx, map[string]bool{p.tenants[0]: true})
	if err != nil {
		return err
	}
	for _, q := range held.quotas {
		return s.overwrite(ctx, q.Key, schema.ARemaining, schema.N(q.Remaining+1))
	}
	return nil
}

// sabotageReplay changes a result that is stored, behind the ledger's back.
func (s *story) sabotageReplay(ctx context.Context, p *demoPlan, o demoOptions) error {
	if o.sabotage != sabotageReplays {
		return nil
	}
	held, err := s.shelf(ctx, map[string]bool{p.tenants[0]: true})
	if err != nil {
		return err
	}
	for _, r := range held.rows {
		if r.State == schema.StateApplied {
			return s.overwrite(ctx, r.Key, schema.AResultJSON, schema.S(`"something else"`))
		}
	}
	return nil
}

func (s *story) overwrite(ctx context.Context, key schema.Key, attr string, value types.AttributeValue) error {
	_, err := s.place.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        aws.String(s.place.table),
		Key:              key.Item(),
		UpdateExpression: aws.String("SET #attr = :value"), ExpressionAttributeNames: map[string]string{"#attr": attr},
		ExpressionAttributeValues: schema.Item{":value": value},
	})
	return err
}
