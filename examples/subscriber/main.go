// Subscriber keeps one item per tool call and the totals of each tenant, made from the events alone, whatever their order
// and repetition.
//
// As a Lambda function it stands behind an EventBridge rule. Anywhere else it reads the events that `toolledger dev --json`
// shows, from the file that TOOLLEDGER_EVENTS names, and prints what it made of them.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func main() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	v := &view{db: dynamodb.NewFromConfig(cfg), table: os.Getenv("VIEW_TABLE"), now: time.Now}
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(v.handle)
	}
	if err := story(ctx, v, os.Getenv("LEDGER_TABLE"), os.Getenv("TOOLLEDGER_EVENTS"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// replay hands the events of a file to the view, each twice: EventBridge may do that too.
func replay(ctx context.Context, v *view, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan() // what dev says of itself
	for lines.Scan() {
		for range 2 {
			if err := v.handle(ctx, lines.Bytes()); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// show prints the view.
func show(ctx context.Context, v *view, out io.Writer) error {
	pages := dynamodb.NewScanPaginator(v.db, &dynamodb.ScanInput{TableName: &v.table})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if str(item, "state") != "" {
				fmt.Fprintf(out, "%-28s %-10s %s\n", str(item, "row"), str(item, "state"), str(item, "tool"))
			} else if n := num(item, "applied"); n > 0 {
				fmt.Fprintf(out, "%-28s %d calls, %d tokens\n", str(item, "row"), n, num(item, "tokens"))
			}
		}
	}
	return nil
}
