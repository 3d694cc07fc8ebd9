// Saveuser is a Lambda function whose effect is a DynamoDB write, made in the ledger's own transaction.
package main

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: os.Getenv("LEDGER_TABLE")})
	if err != nil {
		log.Fatal(err)
	}
	h := &handler{ledger: ledger, users: os.Getenv("USERS_TABLE")}
	lambda.Start(h.handle)
}
