// Tickets is a service desk for agents: tickets are opened once, and cancelled by a compensation that the ledger links to
// the call that opened them.
//
// As a Lambda function DOOR says what it serves: bedrock (an action group with an API schema or with function details) or
// agentcore (a target of an AgentCore gateway). Anywhere else it plays the story of README.md beside `toolledger dev`.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
	"toolledger/writers/api"
)

func main() {
	if err := start(context.Background(), os.Getenv); err != nil {
		log.Fatal(err)
	}
}

var errDoor = errors.New("DOOR must be bedrock or agentcore")

func start(ctx context.Context, getenv func(string) string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	c := writers.Config{Table: cmp.Or(getenv("LEDGER_TABLE"), "toolledger"), Control: getenv("LEDGER_CONTROL_TABLE")}
	// Those of the sweeper: with another skew it would give back what this program still believes to hold.
	for name, into := range map[string]*time.Duration{"LEDGER_KEEP": &c.Keep, "LEDGER_SKEW": &c.Skew} {
		if text := getenv(name); text != "" {
			if *into, err = time.ParseDuration(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	db := dynamodb.NewFromConfig(cfg)
	ledger, err := writers.New(db, c)
	if err != nil {
		return err
	}
	d := &desk{db, cmp.Or(getenv("TICKETS_TABLE"), "tickets")}
	if getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		return story(ctx, ledger, d, os.Stdout)
	}
	set, err := tools(d)
	if err != nil {
		return err
	}
	switch door := getenv("DOOR"); door {
	case "bedrock":
		lambda.Start(overBedrock(ledger, set))
	case "agentcore":
		lambda.Start(api.AgentCore(ledger, set, verifiedTenant(strings.ToLower(getenv("TENANT_HEADER")))))
	default:
		return fmt.Errorf("%w, not %q", errDoor, door)
	}
	return nil
}

// actions are the operations of actiongroup.yaml. With function details the functions have the tools' names.
var actions = map[string]string{
	"POST /tickets":                   "open_ticket",
	"POST /tickets/{ticketId}/cancel": "cancel_ticket",
	"GET /tickets/{ticketId}":         "get_ticket",
}

// requestID is the parameter in which the model names its action; reading needs none.
const requestID = "requestId"

func overBedrock(l *writers.Ledger, set *api.Toolset) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return api.Bedrock(l, set, func(string) string { return requestID }, func(o *api.BedrockOptions) {
		o.Tool = func(action string) string { return cmp.Or(actions[action], action) }
	})
}

var errNoTenant = errors.New("no interceptor has set the tenant's header")

// verifiedTenant reads the header in which the gateway's interceptor puts the tenant of the token that it verified. The
// interceptor must overwrite what a caller sends under that name.
func verifiedTenant(header string) func(map[string]string) (writers.TenantID, error) {
	return func(headers map[string]string) (writers.TenantID, error) {
		if header == "" || headers[header] == "" {
			return "", errNoTenant
		}
		return writers.TenantID(headers[header]), nil
	}
}
