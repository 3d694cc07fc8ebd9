package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/writers"
	"toolledger/writers/api"
)

// story sends the events of a conversation, as a Bedrock agent sends them, and shows what the agent gets back.
func story(ctx context.Context, l *writers.Ledger, d *desk, out io.Writer) error {
	if err := createTickets(ctx, d.db, d.table); err != nil {
		return err
	}
	set, err := tools(d)
	if err != nil {
		return err
	}
	agent := overBedrock(l, set)
	conversation := fmt.Sprintf("conversation-%d", time.Now().UnixMilli())
	say := func(what, session, method, path string, p ...api.BedrockParameter) (string, error) {
		status, body, err := ask(ctx, agent, event(session, method, path, p...))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(out, "%-34s %d %s\n", what, status, body)
		var t Ticket
		_ = json.Unmarshal([]byte(body), &t) // a refusal has no id
		return t.ID, nil
	}
	left := func() error {
		q, err := l.Tenant("acme").Quota(ctx)
		if err == nil {
			fmt.Fprintf(out, "%-34s %d\n", "tokens left", q.Remaining)
		}
		return err
	}
	title, request := param("title", "printer on fire"), param(requestID, "fire-1")
	id, err := say("open", conversation, "POST", "/tickets", title, request)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what, session, method, path string
		params                      []api.BedrockParameter
	}{
		{"the agent tries again", conversation, "POST", "/tickets", []api.BedrockParameter{title, request}},
		{"the same name for another ticket", conversation, "POST", "/tickets", []api.BedrockParameter{param("title", "other"), request}},
		{"the user names the tenant", conversation, "POST", "/tickets", []api.BedrockParameter{title, param("tenantId", "globex"), param(requestID, "x")}},
		{"cancel, in another conversation", "another-" + conversation, "POST", "/tickets/{ticketId}/cancel", []api.BedrockParameter{param("ticketId", id), param(requestID, "c1")}},
		{"cancel again, by another name", conversation, "POST", "/tickets/{ticketId}/cancel", []api.BedrockParameter{param("ticketId", id), param(requestID, "c2")}},
		{"read", conversation, "GET", "/tickets/{ticketId}", []api.BedrockParameter{param("ticketId", id)}},
	} {
		if err := errors.Join(left(), func() error {
			_, err := say(step.what, step.session, step.method, step.path, step.params...)
			return err
		}()); err != nil {
			return err
		}
	}
	return left()
}

func param(name, value string) api.BedrockParameter {
	return api.BedrockParameter{Name: name, Type: "string", Value: value}
}

// event is what an agent of the tenant acme sends. What is in the path goes to the parameters, the rest to the body.
func event(session, method, path string, params ...api.BedrockParameter) api.BedrockEvent {
	e := api.BedrockEvent{
		MessageVersion: "1.0", SessionID: session, ActionGroup: "tickets", APIPath: path, HTTPMethod: method,
		SessionAttributes: map[string]string{"tenantId": "acme"},
	}
	var body []api.BedrockParameter
	for _, p := range params {
		if strings.Contains(path, "{"+p.Name+"}") {
			e.Parameters = append(e.Parameters, p)
		} else {
			body = append(body, p)
		}
	}
	if body != nil {
		e.RequestBody = &api.BedrockRequestBody{Content: map[string]api.BedrockProperties{"application/json": {Properties: body}}}
	}
	return e
}

// ask sends an event and takes the answer out of its envelope.
func ask(ctx context.Context, door func(context.Context, json.RawMessage) (json.RawMessage, error), e api.BedrockEvent) (int, string, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return 0, "", err
	}
	raw, err := door(ctx, text)
	if err != nil {
		return 0, "", err
	}
	var r api.BedrockResponse
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, "", err
	}
	return r.Response.HTTPStatusCode, r.Response.ResponseBody["application/json"].Body, nil
}

func createTickets(ctx context.Context, db *dynamodb.Client, table string) error {
	_, err := db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("id"), KeyType: types.KeyTypeHash}},
	})
	if _, there := errors.AsType[*types.ResourceInUseException](err); there {
		return nil
	}
	return err
}
