package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/smithy-go/logging"
	"github.com/spf13/cobra"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
)

const (
	defaultTable  = "toolledger"
	controlSuffix = "-control"

	reachWait  = 6 * time.Second // until an endpoint counts as down
	reachTries = 2
)

// where is what a command line says about the place of the ledger. Make it with addWhere.
type where struct {
	local, endpoint, stack string
	table, control, region string
}

// location is a ledger that was reached. close ends what was started for it.
type location struct {
	client                   *dynamodb.Client
	streams                  *dynamodbstreams.Client
	config                   aws.Config // for clients of other services
	table, control           string
	region, endpoint         string        // endpoint is "" for AWS itself
	server                   *stack.Server // the local stack that this program started, or nil
	ledgerStream, planStream string        // stream ARNs, "" where a table has none
	deployed                 *deployed     // what else the stack has, or nil where no stack was named
	close                    func()
}

// addWhere gives cmd the flags that say where the ledger is.
func addWhere(cmd *cobra.Command) *where {
	w := &where{}
	f := cmd.Flags()
	f.StringVar(&w.local, "local", "", "a ledger kept in `FILE` by the local stack")
	f.StringVar(&w.endpoint, "endpoint", "", "the DynamoDB at `URL`")
	f.StringVar(&w.stack, "stack", "", "the deployed CloudFormation stack `NAME`, which says what its tables are called")
	w.addTables(cmd)
	return w
}

// addTables gives cmd the flags that name the tables.
func (w *where) addTables(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.table, "table", "", "`NAME` of the ledger table (default "+defaultTable+")")
	f.StringVar(&w.control, "control", "", "`NAME` of the control table (default the ledger table's name and "+controlSuffix+")")
	f.StringVar(&w.region, "region", "", "AWS region `R` (default AWS_REGION)")
}

// tryLocation opens the place where a try command works: a local stack in memory unless told otherwise. Tables that are
// missing there are made.
func (a *app) tryLocation(ctx context.Context, w *where) (*location, error) {
	if w.stack == "" && w.endpoint == "" && w.table == "" && w.region == "" && w.local == "" {
		return a.openTables(ctx, w, a.openStack)
	}
	open, err := a.opener(w)
	if err != nil {
		return nil, err
	}
	return a.openTables(ctx, w, open)
}

// lookLocation opens the place that a look or mend command was told: an empty answer from the wrong place would be a lie,
// so nothing is assumed, made or started anew, and the tables must be there.
func (a *app) lookLocation(ctx context.Context, w *where) (*location, error) {
	if w.local == "" && w.endpoint == "" && w.stack == "" && (w.table == "" || w.region == "" && os.Getenv("AWS_REGION") == "") {
		return nil, badInput("say where the ledger is: --local FILE, --endpoint URL, --stack NAME, or --table NAME --region R")
	}
	open, err := a.opener(w)
	if err != nil {
		return nil, err
	}
	if w.local != "" {
		if info, err := os.Stat(w.local); err != nil || info.IsDir() || info.Size() == 0 {
			return nil, badInput("--local %s: there is no ledger in this file", w.local)
		}
	}
	l, err := open(ctx, w)
	if err != nil {
		return nil, err
	}
	for table, stream := range map[string]*string{l.table: &l.ledgerStream, l.control: &l.planStream} {
		out, err := l.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)})
		if err != nil {
			l.close()
			if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
				return nil, badInput("there is no table %s at %s (toolledger init makes it)", table, l)
			}
			return nil, badInput("table %s at %s: %w", table, l, err)
		}
		*stream = aws.ToString(out.Table.LatestStreamArn)
	}
	return l, nil
}

// opener checks the flags and returns what opens their place.
func (a *app) opener(w *where) (func(context.Context, *where) (*location, error), error) {
	told := 0
	for _, flag := range []string{w.local, w.endpoint, w.stack} {
		if flag != "" {
			told++
		}
	}
	switch {
	case told > 1:
		return nil, badInput("--local, --endpoint and --stack exclude each other")
	case w.stack != "":
		return a.openDeployed, w.checkStack()
	case w.endpoint != "":
		if err := checkEndpoint(w.endpoint); err != nil {
			return nil, err
		}
		return a.openAWS, w.checkTables()
	case w.local != "" || w.table == "" && w.region == "":
		return a.openStack, w.checkTables()
	default:
		return a.openAWS, w.checkTables()
	}
}

// checkTenant checks what --tenant names.
func checkTenant(id string) error {
	if err := schema.CheckID("--tenant", id, schema.MaxTenant); err != nil {
		return badInput("%w", err)
	}
	return nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return badInput("--endpoint %q: want a URL such as http://127.0.0.1:8000", endpoint)
	}
	return nil
}

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// checkTables applies the defaults of the tables' names and checks them as DynamoDB would.
func (w *where) checkTables() error {
	if w.table == "" {
		w.table = defaultTable
	}
	if w.control == "" {
		w.control = w.table + controlSuffix
	}
	for _, flag := range []struct{ name, value string }{{"--table", w.table}, {"--control", w.control}} {
		if !tableName.MatchString(flag.value) {
			return badInput("%s %q: a table's name has 3 to 255 of the characters a-z A-Z 0-9 _ . -", flag.name, flag.value)
		}
	}
	if w.table == w.control {
		return badInput("--table and --control both name %s: plans need a table of their own", w.table)
	}
	return nil
}

// openTables opens a place and makes the tables that are missing there.
func (a *app) openTables(ctx context.Context, w *where, open func(context.Context, *where) (*location, error)) (*location, error) {
	if err := w.checkTables(); err != nil {
		return nil, err
	}
	l, err := open(ctx, w)
	if err != nil {
		return nil, err
	}
	made, err := stack.CreateTables(ctx, l.client, l.table, l.control, true)
	if err != nil {
		l.close()
		return nil, badInput("%s: %w", l, err)
	}
	l.ledgerStream, l.planStream = made[0].StreamARN, made[1].StreamARN
	return l, nil
}

// openStack starts a local stack, in memory or on a file.
func (a *app) openStack(ctx context.Context, w *where) (*location, error) {
	srv, err := stack.Start(ctx, stack.Config{DataFile: w.local, Logger: a.log})
	if err != nil {
		return nil, badInput("%w", err)
	}
	cfg := srv.AWSConfig()
	return &location{
		client: dynamodb.NewFromConfig(cfg), streams: dynamodbstreams.NewFromConfig(cfg), config: cfg,
		table: w.table, control: w.control, region: cfg.Region, endpoint: srv.Endpoint(), server: srv, close: srv.Stop,
	}, nil
}

// openAWS makes clients as the SDK's own environment says, for another endpoint where one is given, and makes sure that
// somebody answers.
func (a *app) openAWS(ctx context.Context, w *where) (*location, error) {
	cfg, err := a.awsConfig(ctx, w)
	if err != nil {
		return nil, err
	}
	return connect(ctx, cfg, w)
}

// connect makes the clients for the tables that w names and makes sure that somebody answers.
func connect(ctx context.Context, cfg aws.Config, w *where) (*location, error) {
	l := &location{config: cfg, table: w.table, control: w.control, region: cfg.Region, close: func() {}}
	l.client = dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if w.endpoint != "" {
			o.BaseEndpoint = aws.String(w.endpoint)
		}
		l.endpoint = aws.ToString(o.BaseEndpoint)
	})
	l.streams = dynamodbstreams.NewFromConfig(cfg, func(o *dynamodbstreams.Options) {
		if w.endpoint != "" {
			o.BaseEndpoint = aws.String(w.endpoint)
		}
	})
	return l, l.reach(ctx)
}

func (a *app) awsConfig(ctx context.Context, w *where) (aws.Config, error) {
	// What the SDK has to say goes into the log: a failure is one line on stderr.
	opts := []func(*config.LoadOptions) error{config.WithLogger(logging.LoggerFunc(func(_ logging.Classification, format string, v ...any) {
		a.log.DebugContext(ctx, "AWS SDK", slog.String("message", fmt.Sprintf(format, v...)))
	}))}
	if w.region != "" {
		opts = append(opts, config.WithRegion(w.region))
	}
	near := loopback(w.endpoint)
	if near { // no machine role is meant for a stand-in on this machine
		opts = append(opts, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return cfg, badInput("AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		if w.endpoint == "" {
			return cfg, badInput("no region: give --region R or set AWS_REGION")
		}
		cfg.Region = stack.Region
	}
	if _, err := cfg.Credentials.Retrieve(ctx); near && err != nil {
		cfg.Credentials = credentials.NewStaticCredentialsProvider(stack.AccessKeyID, stack.SecretAccessKey, "")
	}
	return cfg, nil
}

// loopback reports whether the endpoint is on this machine.
func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// reach makes sure that DynamoDB answers, within a few seconds.
func (l *location) reach(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	_, err := l.client.DescribeTable(bounded, &dynamodb.DescribeTableInput{TableName: aws.String(l.table)},
		func(o *dynamodb.Options) { o.RetryMaxAttempts = reachTries })
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); err == nil || missing {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bounded.Err() != nil {
		return badInput("no DynamoDB answers at %s within %s", l, reachWait)
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok {
		return badInput("no DynamoDB answers at %s: %w", l, dial)
	}
	return badInput("DynamoDB at %s: %w", l, err)
}

// String names the place for messages.
func (l *location) String() string {
	if l.endpoint != "" {
		return l.endpoint
	}
	return fmt.Sprintf("AWS %s", l.region)
}
