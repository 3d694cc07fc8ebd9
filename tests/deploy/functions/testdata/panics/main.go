// Panics is a Bedrock agent's function whose one tool panics in the middle of its act, and which panics itself for one session.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
	"toolledger/writers/api"
)

type args struct {
	Title string `json:"title"`
}

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{
		Table: os.Getenv("LEDGER_TABLE"), Control: os.Getenv("LEDGER_CONTROL_TABLE"),
	})
	if err != nil {
		log.Fatal(err)
	}
	tools, err := api.NewToolset(&writers.Tool[args, int]{
		Name: "open_ticket", Cost: 10,
		Act: func(context.Context, writers.Attempt[args]) (int, error) {
			log.Print("the tool acts")
			panic("the tool's own mistake")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	door := api.Bedrock(ledger, tools, func(string) string { return "requestId" })
	lambda.Start(func(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
		if strings.Contains(string(event), `"sessionId":"panic"`) {
			panic("the function's own mistake")
		}
		return door(ctx, event)
	})
}
