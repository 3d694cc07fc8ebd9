// Command verifyaws proves of a stack in a real account what cannot be proved without one; package checks says what.
//
//	go run ./tests/verifyaws -stack NAME [-region R] [-write [-yes]] [-wait 5m] [-json]
//
// It reads only, unless -write says otherwise; then it says what it will write and asks. Region, profile and endpoints are the
// SDK's own variables. Exit code: 0 nothing is wrong, 1 something is, 2 bad input, or the stack cannot be read.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"toolledger/tests/verifyaws/checks"
)

const (
	exitWrong    = 1
	exitBadInput = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	stack, region, url string
	write, yes, json   bool
	wait               time.Duration
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var o options
	f := flag.NewFlagSet("verifyaws", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.stack, "stack", "", "the CloudFormation stack; required")
	f.StringVar(&o.region, "region", "", "its Region; default AWS_REGION")
	f.StringVar(&o.url, "url", "", "where its HTTP API answers; default its output")
	f.BoolVar(&o.write, "write", false, "also make a call and an unreadable item, and look at what becomes of them")
	f.BoolVar(&o.yes, "yes", false, "do not ask before writing")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.DurationVar(&o.wait, "wait", 5*time.Minute, "how long one thing may take to show")
	if err := f.Parse(args); err != nil {
		return exitBadInput
	}
	if o.stack == "" || f.NArg() > 0 {
		fmt.Fprintln(stderr, "verifyaws: -stack NAME is required, and nothing else")
		return exitBadInput
	}
	code, err := verify(ctx, o, stdin, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "verifyaws:", err)
	}
	return code
}

func verify(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	var opts []func(*config.LoadOptions) error
	if o.region != "" {
		opts = append(opts, config.WithRegion(o.region))
	}
	aws, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return exitBadInput, err
	}
	cfg := checks.Config{Stack: o.stack, Clients: clients(aws), Write: o.write, Wait: o.wait, URL: o.url, Tenant: "verify-" + time.Now().UTC().Format("20060102T150405")}
	if o.write && !o.yes {
		if err := agree(cfg, stdin, stderr); err != nil {
			return exitBadInput, err
		}
	}
	report, err := checks.Run(ctx, cfg)
	if err != nil {
		return exitBadInput, err
	}
	if err := show(report, o.json, stdout); err != nil {
		return exitBadInput, err
	}
	if report.Failed > 0 {
		return exitWrong, nil
	}
	return 0, nil
}

var errNotAgreed = errors.New("nothing was done: answer y, or give -yes where nobody can be asked")

// agree says what will be written and asks.
func agree(cfg checks.Config, stdin io.Reader, stderr io.Writer) error {
	fmt.Fprintf(stderr, "On stack %s this will:\n", cfg.Stack)
	for _, line := range checks.Planned(cfg.Tenant) {
		fmt.Fprintln(stderr, " -", line)
	}
	fmt.Fprint(stderr, "Go on? [y/N] ")
	line, _ := bufio.NewReader(stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errNotAgreed
	}
	return nil
}

func show(report checks.Report, asJSON bool, stdout io.Writer) error {
	if asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(report)
	}
	fmt.Fprintf(stdout, "stack %s, account %s, Region %s\n", report.Stack, report.Account, report.Region)
	for _, r := range report.Results {
		fmt.Fprintf(stdout, "%-8s %-9s %s", r.Status, r.Group, r.Name)
		if r.Detail != "" {
			fmt.Fprintf(stdout, ": %s", r.Detail)
		}
		fmt.Fprintln(stdout)
	}
	fmt.Fprintf(stdout, "%d checks, %d failed, %d unknown\n", len(report.Results), report.Failed, report.Unknown)
	return nil
}

func clients(cfg aws.Config) checks.Clients {
	return checks.Clients{
		STS: sts.NewFromConfig(cfg), CloudFormation: cloudformation.NewFromConfig(cfg), IAM: iam.NewFromConfig(cfg), Lambda: lambda.NewFromConfig(cfg),
		DynamoDB: dynamodb.NewFromConfig(cfg), Streams: dynamodbstreams.NewFromConfig(cfg),
		S3:  s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil }),
		API: apigatewayv2.NewFromConfig(cfg), CloudWatch: cloudwatch.NewFromConfig(cfg), HTTP: &http.Client{Timeout: 30 * time.Second},
	}
}
