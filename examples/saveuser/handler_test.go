package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/stack"
	"toolledger/writers"
)

const usersTable = "saveuser-users"

func newHandler(t *testing.T) (*handler, *dynamodb.Client) {
	t.Helper()
	srv, err := stack.Start(t.Context(), stack.Config{})
	if errors.Is(err, stack.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	client := dynamodb.NewFromConfig(srv.AWSConfig())
	if _, err := stack.CreateTables(t.Context(), client, "saveuser-ledger", "saveuser-control", false); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: new(usersTable), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("userId"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("userId"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	ledger, err := writers.New(client, writers.Config{Table: "saveuser-ledger", Control: "saveuser-control"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Tenant("acme").PutPlan(t.Context(), writers.Plan{Tokens: 100}); err != nil {
		t.Fatal(err)
	}
	return &handler{ledger, usersTable}, client
}

// call invokes the function as the gateway does.
func call(ctx context.Context, h *handler, tenant, key string, u User) (int, answer, error) {
	body, err := json.Marshal(request{Session: "s", Key: key, User: u})
	if err != nil {
		return 0, answer{}, err
	}
	var e events.APIGatewayV2HTTPRequest
	e.Body = string(body)
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"tenant": tenant}},
	}
	res, err := h.handle(ctx, e)
	if err != nil {
		return 0, answer{}, err
	}
	var a answer
	return res.StatusCode, a, json.Unmarshal([]byte(res.Body), &a)
}

// TestCreate: created once; a retry gets the same answer; another action on the same id, and the same key for another
// user, are conflicts of different kinds.
func TestCreate(t *testing.T) {
	h, _ := newHandler(t)
	ann := User{UserID: "u1", Email: "ann@example.com", Name: "Ann"}
	for _, tc := range []struct {
		name, tenant, key string
		user              User
		status            int
		replayed          bool
	}{
		{"create", "acme", "k1", ann, 200, false},
		{"retry", "acme", "k1", ann, 200, true},
		{"another action", "acme", "k2", ann, 409, false},
		{"another action again", "acme", "k2", ann, 409, false},
		{"the key for another user", "acme", "k1", User{UserID: "u2"}, 422, false},
		{"another user", "acme", "k2", User{UserID: "u2"}, 200, false},
		{"no tenant", "", "k3", ann, 403, false},
		{"no key", "acme", "", ann, 400, false},
	} {
		status, a, err := call(t.Context(), h, tc.tenant, tc.key, tc.user)
		if err != nil || status != tc.status || a.Replayed != tc.replayed || (status == 200) != (a.User != nil) {
			t.Fatalf("%s: %d %+v, %v", tc.name, status, a, err)
		}
		if a.User != nil && *a.User != tc.user {
			t.Fatalf("%s: %+v", tc.name, *a.User)
		}
	}
	q, err := h.ledger.Tenant("acme").Quota(t.Context())
	if err != nil || q.Remaining != 98 {
		t.Fatalf("remaining %d, %v", q.Remaining, err)
	}
}

// TestConcurrentCreates: of two actions that want the same id at once, one makes the user.
func TestConcurrentCreates(t *testing.T) {
	h, client := newHandler(t)
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			status, _, err := call(t.Context(), h, "acme", fmt.Sprintf("k%d", i), User{UserID: "u1", Name: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
			}
			statuses[i] = status
		})
	}
	wg.Wait()
	won := 0
	for _, s := range statuses {
		if s == 200 {
			won++
		} else if s != 409 {
			t.Errorf("status %d", s)
		}
	}
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: new(usersTable)})
	if err != nil || won != 1 || len(out.Items) != 1 {
		t.Fatalf("%d won, %d users, %v", won, len(out.Items), err)
	}
}
