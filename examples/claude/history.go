package main

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// history is a conversation, kept where it outlives the process. Messages are kept as the bytes that were sent and received: a tool's
// input that is decoded and encoded again may lose digits, and would then be another action.
type history interface {
	load(ctx context.Context) ([]json.RawMessage, error) // none where the conversation is new
	save(ctx context.Context, messages []json.RawMessage) error
}

// stored is a history in a table with the string key "conversation".
type stored struct {
	db                  *dynamodb.Client
	table, conversation string
}

const (
	attrConversation = "conversation"
	attrMessages     = "messages"
)

// conversationOf names a conversation: neither tenant nor session can have a '#'.
func conversationOf(tenant, session string) string { return tenant + "#" + session }

func (h stored) load(ctx context.Context) ([]json.RawMessage, error) {
	out, err := h.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &h.table, ConsistentRead: new(true), Key: map[string]types.AttributeValue{attrConversation: str(h.conversation)},
	})
	if err != nil || out.Item == nil {
		return nil, err
	}
	var messages []json.RawMessage
	return messages, json.Unmarshal([]byte(text(out.Item, attrMessages)), &messages)
}

func (h stored) save(ctx context.Context, messages []json.RawMessage) error {
	all, err := json.Marshal(messages)
	if err != nil {
		return err
	}
	_, err = h.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &h.table, Item: map[string]types.AttributeValue{
		attrConversation: str(h.conversation), attrMessages: str(string(all)),
	}})
	return err
}
