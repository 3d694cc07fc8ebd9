// Saveuser creates users for agents: the effect is a DynamoDB write, made in the ledger's own transaction.
//
// As a Lambda function DOOR says what it is: http (behind an HTTP API), invoke (for trusted backends), or audit (behind an
// EventBridge rule). Anywhere else it plays the story of README.md beside `toolledger dev`.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

func main() {
	ctx := context.Background()
	var err error
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		err = serve(ctx, os.Getenv("DOOR"))
	} else {
		err = story(ctx, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

var errDoor = errors.New("DOOR must be http, invoke or audit")

// serve is the Lambda function. It returns only what keeps it from starting.
func serve(ctx context.Context, door string) error {
	if door == "audit" {
		lambda.Start((&auditLog{out: os.Stdout}).handle)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{
		Table: os.Getenv("LEDGER_TABLE"), Control: os.Getenv("LEDGER_CONTROL_TABLE"),
	})
	if err != nil {
		return err
	}
	h := &handler{ledger: ledger, users: os.Getenv("USERS_TABLE")}
	switch door {
	case "http":
		lambda.Start(h.overHTTP)
	case "invoke":
		lambda.Start(h.overInvoke)
	}
	return fmt.Errorf("%w, not %q", errDoor, door)
}
