package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Ticket is a ticket as the desk keeps it.
type Ticket struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Status string `json:"status"` // "open" or "cancelled"
}

// call names the ledger's call that opened a ticket, so that cancelling it can undo exactly that one.
type call struct{ session, key string }

// desk keeps tickets in a table of its own. It is the outside world here: it knows the ledger's effect keys and makes each
// of its writes conditional on them, so doing one again is harmless.
type desk struct {
	db    *dynamodb.Client
	table string
}

// The desk's items: id, tenant, title, status, and the call that opened the ticket. The id is made of the effect key, which
// no other tenant and no other call has.
const (
	statusOpen      = "open"
	statusCancelled = "cancelled"
)

var errNoTicket = errors.New("there is no such ticket")

// open files the ticket of an effect key, once.
func (d *desk) open(ctx context.Context, tenant, effectKey, title string, by call) (Ticket, error) {
	t := Ticket{ID: ticketID(effectKey), Title: title, Status: statusOpen}
	_, err := d.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, ConditionExpression: new("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": "id"},
		Item: map[string]types.AttributeValue{
			"id": str(t.ID), "tenant": str(tenant), "title": str(title), "status": str(statusOpen),
			"session": str(by.session), "key": str(by.key),
			"openedAt": &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().UnixMilli(), 10)},
		},
	})
	if _, there := errors.AsType[*types.ConditionalCheckFailedException](err); there { // by an earlier try of the same action
		t, _, err = d.find(ctx, tenant, t.ID)
	}
	return t, err
}

// find looks for a tenant's ticket. Errors: errNoTicket.
func (d *desk) find(ctx context.Context, tenant, id string) (Ticket, call, error) {
	if id == "" || len(id) > maxTicketID { // DynamoDB would not look for it, and what a model makes up is no fault of the desk's
		return Ticket{}, call{}, errNoTicket
	}
	out, err := d.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &d.table, Key: map[string]types.AttributeValue{"id": str(id)}, ConsistentRead: new(true),
	})
	if err != nil {
		return Ticket{}, call{}, err
	}
	if text(out.Item, "tenant") != tenant { // also where there is none
		return Ticket{}, call{}, errNoTicket
	}
	return Ticket{id, text(out.Item, "title"), text(out.Item, "status")}, call{text(out.Item, "session"), text(out.Item, "key")}, nil
}

// cancel marks a tenant's ticket as cancelled; again is harmless. Errors: errNoTicket.
func (d *desk) cancel(ctx context.Context, tenant, id string) (Ticket, error) {
	out, err := d.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &d.table, Key: map[string]types.AttributeValue{"id": str(id)}, ReturnValues: types.ReturnValueAllNew,
		ConditionExpression: new("#tenant = :tenant"), UpdateExpression: new("SET #status = :cancelled"),
		ExpressionAttributeNames:  map[string]string{"#tenant": "tenant", "#status": "status"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":tenant": str(tenant), ":cancelled": str(statusCancelled)},
	})
	if _, none := errors.AsType[*types.ConditionalCheckFailedException](err); none {
		return Ticket{}, errNoTicket
	}
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{id, text(out.Attributes, "title"), statusCancelled}, nil
}

// maxTicketID is longer than any id of a ticket, in bytes.
const maxTicketID = 64

func ticketID(effectKey string) string { return "T-" + effectKey }

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func text(item map[string]types.AttributeValue, name string) string {
	s, ok := item[name].(*types.AttributeValueMemberS)
	if !ok {
		return ""
	}
	return s.Value
}
