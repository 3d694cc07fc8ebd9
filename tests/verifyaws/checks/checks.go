package checks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Clients are the parts of the SDK's clients that the checks call. All must be set.
type Clients struct {
	STS interface {
		GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
	}
	CloudFormation interface {
		DescribeStacks(context.Context, *cloudformation.DescribeStacksInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error)
		ListStackResources(context.Context, *cloudformation.ListStackResourcesInput, ...func(*cloudformation.Options)) (*cloudformation.ListStackResourcesOutput, error)
	}
	IAM interface {
		SimulatePrincipalPolicy(context.Context, *iam.SimulatePrincipalPolicyInput, ...func(*iam.Options)) (*iam.SimulatePrincipalPolicyOutput, error)
	}
	Lambda interface {
		ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error)
		Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
	}
	DynamoDB interface {
		DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
		GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
		PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
		UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
		DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	}
	Streams interface {
		DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
		GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
		GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
	}
	S3 interface {
		ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
		GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
		DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
	}
	API interface {
		GetRoutes(context.Context, *apigatewayv2.GetRoutesInput, ...func(*apigatewayv2.Options)) (*apigatewayv2.GetRoutesOutput, error)
		GetAuthorizer(context.Context, *apigatewayv2.GetAuthorizerInput, ...func(*apigatewayv2.Options)) (*apigatewayv2.GetAuthorizerOutput, error)
	}
	CloudWatch interface {
		GetMetricStatistics(context.Context, *cloudwatch.GetMetricStatisticsInput, ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricStatisticsOutput, error)
	}
	HTTP interface {
		Do(*http.Request) (*http.Response, error)
	}
}

// Config says what to check. Stack and Clients are required.
type Config struct {
	Stack   string // name or ARN
	Clients Clients
	Write   bool             // also do what Planned says
	Wait    time.Duration    // how long one thing may take to show; default 5 minutes
	Pause   time.Duration    // between two looks; default 5 seconds, or a fifth of Wait where that is less
	Now     func() time.Time // default time.Now
	Tenant  string           // whose call Write makes; default verify- and the time
	URL     string           // of the HTTP API; default the stack's output
}

// Status is how a check ended.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Failed  Status = "failed"  // the stack does what it must not, or does not do what it must
	Unknown Status = "unknown" // nothing showed either way; the detail says what would
	Skipped Status = "skipped" // the stack has no such part
)

// Result is one check.
type Result struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Report is what was found.
type Report struct {
	Stack   string   `json:"stack"`
	Account string   `json:"account"`
	Region  string   `json:"region"`
	Wrote   bool     `json:"wrote"`
	Tenant  string   `json:"tenant,omitempty"` // whose call was made
	Results []Result `json:"results"`
	Failed  int      `json:"failed"`
	Unknown int      `json:"unknown"`
}

// ErrNoStack is returned where the stack cannot be read, or is none of toolledger's.
var ErrNoStack = errors.New("no toolledger stack")

// ErrNoCaller is returned where AWS does not take the credentials, or there are none.
var ErrNoCaller = errors.New("no credentials that AWS takes: set AWS_PROFILE or log in, and AWS_REGION")

// Run checks a stack. What could not be asked is a failed check, not an error. Errors: ErrNoCaller, ErrNoStack, ctx's.
func Run(ctx context.Context, cfg Config) (Report, error) {
	r, err := newRun(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	for _, check := range []func(context.Context){r.roles, r.mappings, r.timeToLive, r.front} {
		if check(ctx); ctx.Err() != nil {
			return r.report, ctx.Err()
		}
	}
	if r.cfg.Write {
		r.report.Wrote, r.report.Tenant = true, r.cfg.Tenant
		r.writes(ctx)
	}
	return r.report, ctx.Err()
}

// Planned says what Write does beyond reading, for a person to agree to.
func Planned(tenant string) []string {
	return []string{
		"invoke the direct function twice for one call of tenant " + tenant + ", for 0 tokens: a row, a session and an observation stay until their retention ends",
		"let that observation expire at once, so that a later run finds in the stream who removes expired items",
		"put one item that nobody can understand into the ledger table and delete it again: its alarm (unreadable records) will go off",
		"delete the failure objects that this item leads to",
	}
}

// run is one Run.
type run struct {
	cfg    Config
	stack  *stack
	report Report
}

func newRun(ctx context.Context, cfg Config) (*run, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 5 * time.Minute
	}
	if cfg.Pause <= 0 {
		cfg.Pause = min(5*time.Second, cfg.Wait/5)
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "verify-" + cfg.Now().UTC().Format("20060102T150405")
	}
	s, err := readStack(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &run{cfg: cfg, stack: s, report: Report{Stack: cfg.Stack, Account: s.account, Region: s.region}}, nil
}

// add notes a result. The format is fmt.Sprintf's.
func (r *run) add(group, name string, status Status, format string, args ...any) {
	switch status {
	case Failed:
		r.report.Failed++
	case Unknown:
		r.report.Unknown++
	case OK, Skipped:
	}
	r.report.Results = append(r.report.Results, Result{group, name, status, fmt.Sprintf(format, args...)})
}

// must notes whether something is as it must be.
func (r *run) must(group, name string, ok bool, format string, args ...any) {
	if ok {
		r.add(group, name, OK, "")
		return
	}
	r.add(group, name, Failed, format, args...)
}

// within looks again and again until something is so; false where it never was.
func (r *run) within(ctx context.Context, so func() (bool, error)) (bool, error) {
	for range max(1, int(r.cfg.Wait/r.cfg.Pause)) {
		if found, err := so(); found || err != nil {
			return found, err
		}
		timer := time.NewTimer(r.cfg.Pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		}
	}
	return so()
}
