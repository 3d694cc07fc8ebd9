package faults

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Level says whether an Event is a call of the client or one of its tries.
type Level int

// The levels.
const (
	Call Level = iota // a call of the client, outside the SDK's retries
	Try               // an HTTP request, inside the SDK's retries
)

// Event is one request about to be made.
type Event struct {
	Level Level
	Op    string // "TransactWriteItems"
	N     int    // counts the events of this level and operation, from 1
	Seq   int    // counts the events of this level, from 1
	Try   int    // Level Try: the try within its call, from 1
	Token string // Level Try: the client request token, where the operation has one
	Input any    // *dynamodb.TransactWriteItemsInput and so on, to be read only
}

// Hook decides what happens to a request. It is called from any goroutine, one event at a time, and must not use the
// client that it belongs to: what has to happen at that moment goes into Fault.Before or Fault.After.
type Hook func(Event) Fault

// opOf is the operation of an input.
func opOf(input any) string {
	name := fmt.Sprintf("%T", input)
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.TrimSuffix(name, "Input")
}

func tokenOf(input any) string {
	if in, ok := input.(*dynamodb.TransactWriteItemsInput); ok && in.ClientRequestToken != nil {
		return *in.ClientRequestToken
	}
	return ""
}

// Find returns the indexes of the transaction's items whose sort key begins with prefix: "TOOL#" for rows, "QUOTA#" for
// quota items, "META" for sessions, "PLAN", "GRANT#". It returns none for inputs that are no transaction.
func Find(input any, prefix string) []int {
	var found []int
	for i, key := range Keys(input) {
		if sk, ok := key["sk"].(*types.AttributeValueMemberS); ok && strings.HasPrefix(sk.Value, prefix) {
			found = append(found, i)
		}
	}
	return found
}

// Keys returns the key of each item that an input names, for puts the item itself, in request order.
func Keys(input any) []map[string]types.AttributeValue {
	switch in := input.(type) {
	case *dynamodb.TransactWriteItemsInput:
		keys := make([]map[string]types.AttributeValue, len(in.TransactItems))
		for i, item := range in.TransactItems {
			keys[i] = keyOf(item)
		}
		return keys
	case *dynamodb.TransactGetItemsInput:
		keys := make([]map[string]types.AttributeValue, len(in.TransactItems))
		for i, item := range in.TransactItems {
			keys[i] = item.Get.Key
		}
		return keys
	case *dynamodb.GetItemInput:
		return []map[string]types.AttributeValue{in.Key}
	case *dynamodb.UpdateItemInput:
		return []map[string]types.AttributeValue{in.Key}
	}
	return nil
}

func keyOf(item types.TransactWriteItem) map[string]types.AttributeValue {
	switch {
	case item.Put != nil:
		return item.Put.Item
	case item.Update != nil:
		return item.Update.Key
	case item.Delete != nil:
		return item.Delete.Key
	case item.ConditionCheck != nil:
		return item.ConditionCheck.Key
	}
	return nil
}
