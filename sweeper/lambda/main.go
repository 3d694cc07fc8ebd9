// Command lambda is the deployed sweeper: a Lambda function that a schedule invokes every minute. It takes any event, since
// a schedule says nothing but that it is time, and answers the report. Its environment:
//
//	LEDGER_TABLE          required: the ledger table
//	LEDGER_CONTROL_TABLE  the control table; default: LEDGER_TABLE and "-control"
//	LEDGER_KEEP           how long ended calls are remembered, as 720h; default: 30 days
//	LEDGER_SKEW           how far apart clocks may be, as 2m; default: 2 minutes
//	SWEEP_GIVE_UP         when an unknown effect is held for a person, as 1h; default: 1 hour
//	SWEEP_RESERVE         stop this long before the invocation's end, as 5s; default: 5 seconds
//	SWEEP_VERIFY_TIMEOUT  of one question to a verifier, as 10s; default: 10 seconds
//	SWEEP_VERIFIERS       {"tool": "function or ARN", …}: whom to ask; default: nobody
//	RESULT_BUCKET         the writers' bucket of results above 256 KB; default: a verified result of that size waits for a person
//	METRICS_NAMESPACE     default: ToolLedger; "-" publishes none
//	LOG_LEVEL             debug, info, warn or error; default: info
//
// The ledger's LEDGER_KEEP and LEDGER_SKEW must be those of the writers. Endpoints and credentials are the SDK's own
// variables.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err == nil {
		var h *handler
		if h, err = newHandler(os.Getenv, cfg, dynamodb.NewFromConfig(cfg), cloudwatch.NewFromConfig(cfg)); err == nil {
			lambda.Start(h.handle)
			return
		}
	}
	fmt.Fprintln(os.Stderr, "sweeper:", err)
	os.Exit(1)
}

// lambdaConfig is cfg for clients that are no SDK clients: these find a service's own endpoint variable themselves.
func lambdaConfig(cfg aws.Config, getenv func(string) string) aws.Config {
	cfg = cfg.Copy()
	if own := getenv("AWS_ENDPOINT_URL_LAMBDA"); own != "" {
		cfg.BaseEndpoint = aws.String(own)
	}
	return cfg
}

func newLogger(level string) (*slog.Logger, error) {
	var l slog.Level
	if level != "" {
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, fmt.Errorf("LOG_LEVEL %q: want debug, info, warn or error", level)
		}
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
