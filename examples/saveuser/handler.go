package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

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

// answer is what either door answers. Status is an HTTP status, also where there is no HTTP.
type answer struct {
	Status   int      `json:"status"`
	User     *User    `json:"user,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
	Code     string   `json:"code,omitempty"` // of a refusal
	Error    string   `json:"error,omitempty"`
	Differs  []string `json:"differs,omitempty"`
	ResetsAt string   `json:"resets_at,omitempty"`
}

type handler struct {
	ledger *writers.Ledger
	users  string // name of the users table
}

// maxUserID is the longest sort key in bytes.
const maxUserID = 1024

// The key of the users table: an id is taken within its tenant and says nothing to any other.
const (
	tenantKey = "tenant"
	userKey   = "userId"
)

// save creates the user. An error says nothing about the request: the caller tries again with the same key.
func (h *handler) save(ctx context.Context, tenant writers.TenantID, in request) (answer, error) {
	if in.User.UserID == "" || len(in.User.UserID) > maxUserID { // DynamoDB would refuse the write, now and on every retry
		return answer{Status: http.StatusBadRequest, Code: string(writers.ErrInvalid), Error: "args.userId must have 1 to 1024 bytes"}, nil
	}
	item, err := attributevalue.MarshalMap(in.User)
	if err != nil {
		return answer{Status: http.StatusBadRequest, Code: string(writers.ErrInvalid), Error: "the user cannot be stored"}, nil //nolint:nilerr // the refusal is the answer
	}
	item[tenantKey] = &types.AttributeValueMemberS{Value: string(tenant)} // who it is was verified; an item without is refused by the ledger
	create := types.TransactWriteItem{Put: &types.Put{
		TableName:                &h.users,
		Item:                     item,
		ConditionExpression:      new("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": userKey},
	}}
	session := h.ledger.Tenant(tenant).Session(in.Session)
	got, err := saveUser.Commit(ctx, session, writers.TenantKey(in.Key), in.User, in.User, func(c *writers.Call) {
		c.Writes = []types.TransactWriteItem{create}
	})
	if errors.Is(err, writers.ErrWriteRefused) {
		if err := note(ctx, session, in.Key); err != nil {
			return answer{}, err
		}
	}
	if err != nil {
		return refusal(err)
	}
	return answer{Status: http.StatusOK, User: &got.Value, Replayed: got.Outcome == writers.OutcomeReplayed}, nil
}

// refusedTool is what the audit log calls a try that the users table refused.
const refusedTool = "save_user_refused"

// note records a try that the users table refused. The transaction was cancelled and left nothing, so there would be no event of it,
// while the ledger counts by itself what it refuses for its own reasons. It costs nothing, and is there once however often the
// request is sent; where it cannot be recorded the caller gets no answer yet, and so the log leaves out nobody.
func note(ctx context.Context, s writers.Session, key string) error {
	_, err := s.Commit(ctx, writers.Call{Key: writers.SessionKey(key), Tool: refusedTool}, nil)
	return err
}

// refusal answers what the caller has to act on. The rest is returned.
func refusal(err error) (answer, error) {
	e, ok := errors.AsType[*writers.Error](err)
	if !ok {
		return answer{}, err
	}
	a := answer{Code: string(e.Code), Error: e.Error()}
	switch e.Code {
	case writers.ErrWriteRefused:
		a.Status, a.Error = http.StatusConflict, "a user of that id exists, made by another action"
	case writers.ErrKeyConflict:
		a.Status, a.Differs = http.StatusUnprocessableEntity, e.Differs
	case writers.ErrQuotaExhausted:
		a.Status, a.ResetsAt = http.StatusTooManyRequests, e.ResetsAt.Format("2006-01-02T15:04:05Z07:00")
	case writers.ErrMissingTenant, writers.ErrSuspended, writers.ErrNotProvisioned:
		a.Status = http.StatusForbidden
	case writers.ErrInvalid:
		a.Status = http.StatusBadRequest
	case writers.ErrTooLarge:
		a.Status = http.StatusRequestEntityTooLarge
	default:
		return answer{}, err
	}
	return a, nil
}

// overHTTP is the door behind an HTTP API: the tenant is a claim that the authorizer verified.
func (h *handler) overHTTP(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	tenant, ok := tenantOf(e)
	if !ok {
		return reply(answer{Status: http.StatusForbidden, Code: string(writers.ErrMissingTenant), Error: "the token names no tenant"})
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(e.Body)
		if err != nil {
			return reply(badRequest())
		}
		body = decoded
	}
	var in request
	if strict(body, &in) != nil {
		return reply(badRequest())
	}
	a, err := h.save(ctx, tenant, in)
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	return reply(a)
}

// invocation is the event of the door for trusted backends. Whoever may invoke the function may name any tenant.
type invocation struct {
	Tenant string `json:"tenant"`
	request
}

var errShape = errors.New(`not an event of this door: want {"tenant":…,"session":…,"key":…,"args":{…}}`)

// overInvoke is the door for Lambda Invoke.
func (h *handler) overInvoke(ctx context.Context, event json.RawMessage) (answer, error) {
	var in invocation
	if strict(event, &in) != nil {
		return answer{}, errShape
	}
	return h.save(ctx, writers.TenantID(in.Tenant), in.request)
}

// tenantOf is the only place where a string of an HTTP request becomes a tenant: one scalar claim that the authorizer verified.
// HTTP APIs flatten a claim that is a list to "[a b]": whoever is of several tenants is of none here.
func tenantOf(e events.APIGatewayV2HTTPRequest) (writers.TenantID, bool) {
	a := e.RequestContext.Authorizer
	if a == nil || a.JWT == nil {
		return "", false
	}
	claim := a.JWT.Claims["tenant"]
	if claim == "" || strings.HasPrefix(claim, "[") || strings.HasPrefix(claim, "{") {
		return "", false
	}
	return writers.TenantID(claim), true
}

// strict decodes one JSON value without fields that nobody knows.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // not More: a brace too many is no more to it
		return errShape
	}
	return nil
}

func badRequest() answer {
	return answer{Status: http.StatusBadRequest, Code: string(writers.ErrInvalid), Error: "the body is not a valid request"}
}

func reply(a answer) (events.APIGatewayV2HTTPResponse, error) {
	body, err := json.Marshal(a)
	return events.APIGatewayV2HTTPResponse{
		StatusCode: a.Status, Body: string(body), Headers: map[string]string{"content-type": "application/json"},
	}, err
}
