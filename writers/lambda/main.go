// Lambda is the ledger's writer as a Lambda function: one binary, one function and role per door. DOOR says which; an
// event of another shape is refused, never guessed at.
//
//	DOOR                  required: http
//	LEDGER_TABLE          required: the ledger table
//	LEDGER_CONTROL_TABLE  the control table; default: LEDGER_TABLE and "-control"
//	LEDGER_KEEP           how long ended calls are remembered, as 720h; default: 30 days
//	LEDGER_SKEW           how far apart clocks may be, as 2m; default: 2 minutes
//	TENANT_CLAIM          the JWT claim that names the tenant; default: tenant
//	LOG_LEVEL             debug, info, warn or error; default: info
//
// LEDGER_KEEP and LEDGER_SKEW must be those of the sweeper. Endpoints and credentials are the SDK's own variables.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
	"toolledger/writers/api"
)

func main() {
	logger := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: level(os.Getenv("LOG_LEVEL"))}))
	handle, err := setUp(context.Background(), os.Getenv, logger)
	if err != nil {
		logger.Error("writer cannot start", slog.String("error", err.Error()))
		os.Exit(1)
	}
	lambda.Start(handle)
}

func level(name string) slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(name)) != nil {
		return slog.LevelInfo
	}
	return l
}

var (
	errSetting = errors.New("environment variable")
	errDoor    = errors.New("unknown door")
)

func duration(getenv func(string) string, name string) (time.Duration, error) {
	text := getenv(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%w %s must be a duration such as 2m", errSetting, name)
	}
	return d, nil
}

// setUp makes the handler of the configured door.
func setUp(ctx context.Context, getenv func(string) string, logger *slog.Logger) (any, error) {
	table := getenv("LEDGER_TABLE")
	if table == "" {
		return nil, fmt.Errorf("%w LEDGER_TABLE is required", errSetting)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	keep, err := duration(getenv, "LEDGER_KEEP")
	if err != nil {
		return nil, err
	}
	skew, err := duration(getenv, "LEDGER_SKEW")
	if err != nil {
		return nil, err
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{
		Table: table, Control: getenv("LEDGER_CONTROL_TABLE"), Keep: keep, Skew: skew, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	switch door := getenv("DOOR"); door {
	case "http":
		claim := getenv("TENANT_CLAIM")
		if claim == "" {
			claim = "tenant"
		}
		h, err := api.NewHandler(ledger, api.HandlerConfig{Tenant: tenantOf, Logger: logger})
		if err != nil {
			return nil, err
		}
		return gateway{h, claim}.handle, nil
	case "bedrock", "agentcore", "direct", "admin":
		return nil, fmt.Errorf("%w: %s is not built yet", errDoor, door)
	default:
		return nil, fmt.Errorf("%w %q: DOOR must be http", errDoor, door)
	}
}
