// Claude is a tool-use loop whose mutating tools go through the ledger.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

func main() {
	if err := run(context.Background(), strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, ask string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: cmp.Or(os.Getenv("LEDGER_TABLE"), "toolledger")})
	if err != nil {
		return err
	}
	tools, err := newDesk().toolset()
	if err != nil {
		return err
	}
	// A real host keeps the history where it survives the process.
	save := func([]anthropic.MessageParam) error { return nil }
	said, err := converse(ctx, anthropic.NewClient(), tools, ledger.Tenant("acme").Session("claude"), ask, save)
	if err != nil {
		return err
	}
	fmt.Println(said)
	return ledger.Close(ctx)
}
