// Claude is a tool-use loop whose mutating tools go through the ledger.
//
// As a Lambda function it takes {"tenant":…,"session":…,"ask":…} from a trusted application and goes on with the session's conversation,
// which it keeps in HISTORY_TABLE; ANTHROPIC_API_KEY is the model's key, TICKETS_TABLE the desk. Anywhere else it plays the story
// of README.md beside `toolledger dev`: with the model where ANTHROPIC_API_KEY is set, with a recorded one where it is not.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
	"toolledger/writers/api"
)

func main() {
	if err := start(context.Background(), os.Getenv, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func start(ctx context.Context, getenv func(string) string, words []string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	db := dynamodb.NewFromConfig(cfg)
	ledger, err := writers.New(db, writers.Config{Table: cmp.Or(getenv("LEDGER_TABLE"), "toolledger")})
	if err != nil {
		return err
	}
	h := &host{
		ledger: ledger, desk: &desk{db, cmp.Or(getenv("TICKETS_TABLE"), "claude-tickets")},
		db: db, histories: cmp.Or(getenv("HISTORY_TABLE"), "claude-history"), claude: anthropic.NewClient(),
	}
	if h.tools, err = h.desk.toolset(); err != nil {
		return err
	}
	if getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(h.handle)
		return nil
	}
	return h.story(ctx, os.Stdout, getenv("ANTHROPIC_API_KEY") == "", words)
}

// host runs conversations.
type host struct {
	ledger    *writers.Ledger
	desk      *desk
	tools     *api.Toolset
	db        *dynamodb.Client
	histories string
	claude    anthropic.Client
}

// request is the event of the Lambda function. Whoever may invoke it may name any tenant.
type request struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Ask     string `json:"ask"`
}

// handle goes on with a conversation to its end. An error asks the invoker to send the same event again.
func (h *host) handle(ctx context.Context, r request) (string, error) {
	s := h.ledger.Tenant(writers.TenantID(r.Tenant)).Session(r.Session)
	return converse(ctx, h.claude, h.tools, s, r.Ask, stored{h.db, h.histories, conversationOf(r.Tenant, r.Session)})
}

// tickets prints how many the desk has of a tenant.
func (h *host) tickets(ctx context.Context, tenant string) (string, error) {
	all, err := h.desk.list(ctx, tenant)
	return fmt.Sprintf("tickets at the desk: %d", len(all)), err
}
