package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/writers"
)

// User is the tool's argument, its result and the stored item.
type User struct {
	UserID string `json:"userId" dynamodbav:"userId" jsonschema:"unique id of the user"`
	Email  string `json:"email" dynamodbav:"email"`
	Name   string `json:"name" dynamodbav:"name"`
}

// saveUser has no Act: what it does are the writes of the commit.
var saveUser = &writers.Tool[User, User]{
	Name:        "save_user",
	Description: "Create a user. Refused if the id is taken.",
	Cost:        1,
}

// request is the body. The planner chose the key and keeps it in the workflow's state, so a retry brings it again.
type request struct {
	Session string `json:"session"`
	Key     string `json:"key"`
	User    User   `json:"args"`
}

type handler struct {
	ledger *writers.Ledger
	users  string // name of the users table
}

func (h *handler) handle(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	tenant, ok := tenantOf(e)
	if !ok {
		return reply(http.StatusForbidden, answer{Error: "the token names no tenant"})
	}
	var in request
	if err := json.Unmarshal([]byte(e.Body), &in); err != nil {
		return reply(http.StatusBadRequest, answer{Error: "the body is not a valid request"})
	}
	item, err := attributevalue.MarshalMap(in.User)
	if err != nil {
		return reply(http.StatusBadRequest, answer{Error: "the user cannot be stored"})
	}
	create := types.TransactWriteItem{Put: &types.Put{
		TableName:                &h.users,
		Item:                     item,
		ConditionExpression:      new("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": "userId"},
	}}
	session := h.ledger.Tenant(tenant).Session(in.Session)
	got, err := saveUser.Commit(ctx, session, writers.TenantKey(in.Key), in.User, in.User, func(c *writers.Call) {
		c.Writes = []types.TransactWriteItem{create}
	})
	if err != nil {
		return refusal(err)
	}
	return reply(http.StatusOK, answer{User: &got.Value, Replayed: got.Outcome == writers.OutcomeReplayed})
}

// tenantOf is the only place where a string becomes a tenant: a claim that the authorizer verified.
func tenantOf(e events.APIGatewayV2HTTPRequest) (writers.TenantID, bool) {
	a := e.RequestContext.Authorizer
	if a == nil || a.JWT == nil || a.JWT.Claims["tenant"] == "" {
		return "", false
	}
	return writers.TenantID(a.JWT.Claims["tenant"]), true
}

// refusal answers what the caller has to act on. The rest is returned, so that the caller tries again with the same key.
func refusal(err error) (events.APIGatewayV2HTTPResponse, error) {
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	switch e.Code {
	case writers.ErrWriteRefused:
		return reply(http.StatusConflict, answer{Error: "a user of that id exists, made by another action"})
	case writers.ErrKeyConflict:
		return reply(http.StatusUnprocessableEntity, answer{Error: e.Error(), Differs: e.Differs})
	case writers.ErrQuotaExhausted:
		return reply(http.StatusTooManyRequests, answer{Error: e.Error(), ResetsAt: e.ResetsAt.Format("2006-01-02T15:04:05Z07:00")})
	case writers.ErrInvalid:
		return reply(http.StatusBadRequest, answer{Error: e.Error()})
	default:
		return events.APIGatewayV2HTTPResponse{}, err
	}
}

type answer struct {
	User     *User    `json:"user,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
	Error    string   `json:"error,omitempty"`
	Differs  []string `json:"differs,omitempty"`
	ResetsAt string   `json:"resets_at,omitempty"`
}

func reply(status int, a answer) (events.APIGatewayV2HTTPResponse, error) {
	body, err := json.Marshal(a)
	return events.APIGatewayV2HTTPResponse{
		StatusCode: status, Body: string(body), Headers: map[string]string{"content-type": "application/json"},
	}, err
}
