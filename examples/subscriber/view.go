package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/streams/events"
)

// view is a table with the string key "row": an item per call, named by its row id; an item of totals per tenant
// ("total#acme"); and a marker per counted event ("seen#<id>"), which DynamoDB removes after expiresAt.
type view struct {
	db    *dynamodb.Client
	table string
	now   func() time.Time
}

// remember is how long events are recognised: longer than EventBridge, its targets' queues and a redrive keep one.
const remember = 30 * 24 * time.Hour

// handle takes one event. An error sends it to the dead-letter queue: it is not ours, or the table did not take it.
func (v *view) handle(ctx context.Context, envelope json.RawMessage) error {
	ev, err := events.Parse(envelope)
	if err != nil {
		return err
	}
	h := ev.Head()
	switch e := ev.(type) {
	case *events.ToolCallReserved:
		return v.put(ctx, h, "pending", e.ReservedTokens)
	case *events.ToolEffectApplied:
		return errors.Join(v.put(ctx, h, "applied", e.ChargedTokens), v.count(ctx, h, e.ChargedTokens))
	case *events.ToolEffectSettledLate:
		return errors.Join(v.put(ctx, h, "applied", e.ChargedTokens), v.count(ctx, h, e.ChargedTokens))
	case *events.ReservationReleased, *events.ReservationExpired, *events.ReservationResolved:
		return v.put(ctx, h, "failed", 0)
	case *events.Unknown:
		slog.InfoContext(ctx, "an event newer than this program", slog.String("type", e.Type))
	}
	return nil // of no concern to the view
}

// put moves the item of a row forward, never back: a late event has a lower version than what is stored, and a repeated
// one the same. This is all that a view needs whose items are set, not added to.
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

// count adds to the tenant's totals, once per event: what adds must know what it has added, so the event's id is kept beside
// the sum, in one transaction. Order does not matter to a sum.
func (v *view) count(ctx context.Context, h events.Header, tokens int64) error {
	_, err := v.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{
			TableName: &v.table, ConditionExpression: new("attribute_not_exists(#row)"), ExpressionAttributeNames: map[string]string{"#row": "row"},
			Item: map[string]types.AttributeValue{"row": text("seen#" + h.ID), "expiresAt": number(v.now().Add(remember).Unix())},
		}},
		{Update: &types.Update{
			TableName: &v.table, Key: map[string]types.AttributeValue{"row": text("total#" + h.Tenant)},
			UpdateExpression:          new("ADD #applied :one, #tokens :tokens"),
			ExpressionAttributeNames:  map[string]string{"#applied": "applied", "#tokens": "tokens"},
			ExpressionAttributeValues: map[string]types.AttributeValue{":one": number(1), ":tokens": number(tokens)},
		}},
	}})
	if no, ok := errors.AsType[*types.TransactionCanceledException](err); ok && len(no.CancellationReasons) > 0 {
		if code := no.CancellationReasons[0].Code; code != nil && *code == "ConditionalCheckFailed" {
			return nil // counted before
		}
	}
	return err
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func str(item map[string]types.AttributeValue, name string) string {
	s, ok := item[name].(*types.AttributeValueMemberS)
	if !ok {
		return ""
	}
	return s.Value
}

func num(item map[string]types.AttributeValue, name string) int64 {
	n, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return 0
	}
	return i
}
