// Lambda is the ledger's writer as a Lambda function: one binary, one function and role per door. DOOR says which; an
// event of another shape is refused, never guessed at.
//
//	DOOR                  required: http, direct or admin
//	LEDGER_TABLE          required: the ledger table
//	LEDGER_CONTROL_TABLE  the control table; default: LEDGER_TABLE and "-control"
//	LEDGER_KEEP           how long ended calls are remembered, as 720h; default: 30 days
//	LEDGER_SKEW           how far apart clocks may be, as 2m; default: 2 minutes
//	TENANT_CLAIM          http: the JWT claim that names the tenant; default: tenant
//	IAM_TENANTS           http: tenants of IAM callers, as {"123456789012/planner":"acme"}; default: they have none
//	ADMIN_ROLES           admin, required: who may set plans, as ["123456789012/ops"]
//	RESULT_BUCKET         http and direct: the bucket of results above 256 KB; default: they are refused
//	LOG_LEVEL             debug, info, warn or error; default: info
//
// LEDGER_KEEP and LEDGER_SKEW must be those of the sweeper. Endpoints and credentials are the SDK's own variables. Give the function a
// timeout of 26 to 29 seconds: with less its requests wait for calls in flight less long than they ask for, and a gateway in front
// gives up at 30.
//
// The doors:
//
//   - http takes requests from an HTTP API or a function URL. A JWT's claim or the role of an IAM caller says who the tenant
//     is; a role is account and name, never the name of the session, which callers choose.
//   - direct takes {"op":"reserve","tenant":…} from backends and Step Functions; see api.Direct. Whoever may invoke the function
//     may name any tenant.
//   - admin takes PUT /v1/tenants/{tenant}/plan from IAM callers in ADMIN_ROLES, and acts for no tenant itself. Its role is
//     the only one that needs to write the control table.
//
// Bedrock agents and AgentCore gateways call tools, and tools are the user's own code: their doors are handlers that a
// program of the user's passes to lambda.Start (api.Bedrock, api.AgentCore); examples/tickets is such a program.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/writers"
	"toolledger/writers/api"
	"toolledger/writers/results"
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

// setUp reads the settings and makes the handler. It makes no request.
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
	c := writers.Config{Table: table, Control: getenv("LEDGER_CONTROL_TABLE"), Keep: keep, Skew: skew, Logger: logger}
	if bucket := getenv("RESULT_BUCKET"); bucket != "" {
		if c.Results, err = results.NewS3(s3.NewFromConfig(cfg), bucket, ""); err != nil {
			return nil, fmt.Errorf("RESULT_BUCKET: %w", err)
		}
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), c)
	if err != nil {
		return nil, err
	}
	return open(getenv, ledger, logger)
}

// open makes the handler of the configured door.
func open(getenv func(string) string, ledger *writers.Ledger, logger *slog.Logger) (any, error) {
	who := callers{claim: cmp.Or(getenv("TENANT_CLAIM"), "tenant")}
	var err error
	switch door := getenv("DOOR"); door {
	case "http":
		if who.tenants, err = readTenants("IAM_TENANTS", getenv("IAM_TENANTS")); err != nil {
			return nil, err
		}
		h, err := api.NewHandler(ledger, api.HandlerConfig{Tenant: tenantOf, Logger: logger})
		if err != nil {
			return nil, err
		}
		return gateway{h, who}.handle, nil
	case "admin":
		if who.admins, err = readRoles("ADMIN_ROLES", getenv("ADMIN_ROLES")); err != nil {
			return nil, err
		}
		if len(who.admins) == 0 {
			return nil, fmt.Errorf("%w ADMIN_ROLES is required", errSetting)
		}
		h, err := api.NewHandler(ledger, api.HandlerConfig{Tenant: nobody, Admin: adminOf, Logger: logger})
		if err != nil {
			return nil, err
		}
		return gateway{h, who}.handle, nil
	case "direct":
		return api.Direct(ledger), nil
	case "bedrock", "agentcore":
		return nil, fmt.Errorf("%w: %s calls tools, which are your own code: pass its handler of package api to lambda.Start", errDoor, door)
	default:
		return nil, fmt.Errorf("%w %q: DOOR must be http, direct or admin", errDoor, door)
	}
}
