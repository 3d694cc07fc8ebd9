// Subscriber keeps one item per tool call, made from the events alone, whatever their order and repetition.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"os"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/streams/events"
)

type view struct {
	db    *dynamodb.Client
	table string
}

// handle takes one event. An error sends it to the dead-letter queue: it is not ours, or the table did not take it.
func (v *view) handle(ctx context.Context, envelope json.RawMessage) error {
	ev, err := events.Parse(envelope)
	if err != nil {
		return err
	}
	switch e := ev.(type) {
	case *events.ToolCallReserved:
		return v.put(ctx, e.Head(), "pending", e.ReservedTokens)
	case *events.ToolEffectApplied:
		return v.put(ctx, e.Head(), "applied", e.ChargedTokens)
	case *events.ToolEffectSettledLate:
		return v.put(ctx, e.Head(), "applied", e.ChargedTokens)
	case *events.ReservationReleased, *events.ReservationExpired, *events.ReservationResolved:
		return v.put(ctx, ev.Head(), "failed", 0)
	case *events.Unknown:
		slog.InfoContext(ctx, "an event newer than this program", slog.String("type", e.Type))
	}
	return nil // of no concern to the view
}

// put moves the item of a row forward, never back.
func (v *view) put(ctx context.Context, h events.Header, state string, tokens int64) error {
	_, err := v.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &v.table,
		Key:                 map[string]types.AttributeValue{"row": text(h.RowID)},
		ConditionExpression: new("attribute_not_exists(#version) OR #version < :version"),
		UpdateExpression:    new("SET #version = :version, #state = :state, #tokens = :tokens, #tenant = :tenant, #tool = :tool"),
		ExpressionAttributeNames: map[string]string{
			"#version": "version", "#state": "state", "#tokens": "tokens", "#tenant": "tenant", "#tool": "tool",
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":version": number(h.Version), ":state": text(state), ":tokens": number(tokens),
			":tenant": text(h.Tenant), ":tool": text(h.Tool),
		},
	})
	if _, stale := errors.AsType[*types.ConditionalCheckFailedException](err); stale {
		return nil
	}
	return err
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	v := &view{db: dynamodb.NewFromConfig(cfg), table: os.Getenv("VIEW_TABLE")}
	lambda.Start(v.handle)
}
