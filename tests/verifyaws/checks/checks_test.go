package checks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	apitypes "github.com/aws/aws-sdk-go-v2/service/apigatewayv2/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"toolledger/tests/verifyaws/checks"
)

// statement is one of a role's policy, with at most one condition of each operator.
type statement struct {
	actions   []string
	resources []string
	equals    map[string]string // StringEquals
	leading   string            // ForAllValues:StringLike dynamodb:LeadingKeys
	notNull   bool              // Null dynamodb:LeadingKeys false
}

// account is an AWS account with a stack in it. A test breaks one thing in it and sees who notices.
type account struct {
	roles    map[string][]statement
	outputs  map[string]string
	mappings []lambdatypes.EventSourceMappingConfiguration
	filtered float64
	ttl      dynamodbtypes.TimeToLiveStatus
	removal  *streamtypes.Identity // of the one removal in the stream; nil: there is none
	routes   []apitypes.Route
	issuer   string
	strange  int // what a stranger is answered
	down     map[string]error

	answers  []string // of the direct function, one after the other
	observed bool     // the replay is counted
	keeps    bool     // the consumer keeps what it cannot understand

	items   map[string]map[string]dynamodbtypes.AttributeValue
	objects map[string]string
	wrote   []string
}

const (
	ledgerARN  = "arn:aws:dynamodb:eu-central-1:123456789012:table/prod-LedgerTable"
	controlARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/prod-ControlTable"
	busARN     = "arn:aws:events:eu-central-1:123456789012:event-bus/prod-events"
)

// inTransactions is what every role that writes the ledger has.
func inTransactions() statement {
	return statement{
		actions: []string{"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"}, resources: []string{ledgerARN},
		equals: map[string]string{"dynamodb:EnclosingOperation": "TransactWriteItems"},
	}
}

func observations() statement {
	return statement{actions: []string{"dynamodb:UpdateItem"}, resources: []string{ledgerARN}, leading: "OBS#*", notNull: true}
}

func measures() statement {
	return statement{actions: []string{"cloudwatch:PutMetricData"}, resources: []string{"*"}, equals: map[string]string{"cloudwatch:namespace": "ToolLedger"}}
}

func mapping(table string) lambdatypes.EventSourceMappingConfiguration {
	return lambdatypes.EventSourceMappingConfiguration{
		UUID: aws.String(table), State: aws.String("Enabled"), EventSourceArn: aws.String("arn:aws:dynamodb:eu-central-1:123456789012:table/" + table + "/stream/2026"),
		FunctionResponseTypes: []lambdatypes.FunctionResponseType{lambdatypes.FunctionResponseTypeReportBatchItemFailures}, BisectBatchOnFunctionError: aws.Bool(true),
		MaximumRetryAttempts: aws.Int32(20), MaximumRecordAgeInSeconds: aws.Int32(21600),
		DestinationConfig: &lambdatypes.DestinationConfig{OnFailure: &lambdatypes.OnFailure{Destination: aws.String("arn:aws:s3:::prod-failures")}},
		FilterCriteria: &lambdatypes.FilterCriteria{Filters: []lambdatypes.Filter{
			{Pattern: aws.String(`{ "dynamodb": {"Keys":{"sk":{"S":[{"anything-but":["META"]}]}}}}`)},
		}},
	}
}

// healthy is an account in which everything is as it must be.
func healthy() *account {
	plans := statement{
		actions: []string{"dynamodb:PutItem"}, resources: []string{controlARN}, equals: map[string]string{"dynamodb:EnclosingOperation": "TransactWriteItems"},
	}
	return &account{
		roles: map[string][]statement{
			"WriterHttpRole": {inTransactions(), observations()}, "WriterDirectRole": {inTransactions(), observations()},
			"AdminRole": {inTransactions(), plans}, "SweeperRole": {inTransactions(), measures()},
			"StreamRole": {
				measures(),
				{actions: []string{"events:PutEvents"}, resources: []string{busARN}},
				{actions: []string{"s3:PutObject"}, resources: []string{"arn:aws:s3:::prod-failures/*"}},
			},
			"ScheduleRole": {{actions: []string{"lambda:InvokeFunction"}, resources: []string{"*"}}},
		},
		outputs: map[string]string{
			"LedgerTableName": "prod-LedgerTable", "ControlTableName": "prod-ControlTable", "EventBusArn": busARN, "FailureBucketName": "prod-failures",
			"StreamFunctionName": "prod-stream", "LedgerStreamArn": ledgerARN + "/stream/2026", "HttpApiUrl": "https://api.example.com",
			"WriterDirectArn": "arn:aws:lambda:eu-central-1:123456789012:function:prod-direct:live",
		},
		mappings: []lambdatypes.EventSourceMappingConfiguration{mapping("prod-LedgerTable"), mapping("prod-ControlTable")}, filtered: 3,
		ttl:     dynamodbtypes.TimeToLiveStatusEnabled,
		removal: &streamtypes.Identity{Type: aws.String("Service"), PrincipalId: aws.String("dynamodb.amazonaws.com")},
		routes: []apitypes.Route{
			{RouteKey: aws.String("ANY /{proxy+}"), AuthorizationType: apitypes.AuthorizationTypeJwt, AuthorizerId: aws.String("a1")},
			{RouteKey: aws.String("PUT /v1/tenants/{tenant}/plan"), AuthorizationType: apitypes.AuthorizationTypeAwsIam},
		},
		issuer: "https://login.example.com", strange: http.StatusUnauthorized, down: map[string]error{},
		answers: []string{`{"outcome":"applied"}`, `{"outcome":"replayed"}`}, observed: true, keeps: true,
		items: map[string]map[string]dynamodbtypes.AttributeValue{}, objects: map[string]string{},
	}
}

func (a *account) run(t *testing.T, write bool) checks.Report {
	t.Helper()
	report, err := checks.Run(t.Context(), checks.Config{
		Stack: "prod", Write: write, Wait: 20 * time.Millisecond, Pause: time.Millisecond, Tenant: "verify-1",
		Now: func() time.Time { return time.Date(2026, time.November, 30, 1, 53, 2, 0, time.UTC) },
		Clients: checks.Clients{
			STS: a, CloudFormation: a, IAM: a, Lambda: a, DynamoDB: a, Streams: a, S3: a, API: a, CloudWatch: a, HTTP: a,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func failures(r checks.Report) string {
	var out []string
	for _, f := range r.Results {
		if f.Status == checks.Failed {
			out = append(out, f.Group+": "+f.Name+": "+f.Detail)
		}
	}
	return strings.Join(out, "\n")
}

// Promise: a stack that is as it must be passes, nothing is written unless asked for, and what was written is gone again but
// for what retention removes.
func TestHealthy(t *testing.T) {
	for _, write := range []bool{false, true} {
		a := healthy()
		r := a.run(t, write)
		if r.Failed != 0 || r.Unknown != 0 || len(r.Results) < 60 || r.Wrote != write {
			t.Errorf("write %v: %d failed, %d unknown of %d:\n%s", write, r.Failed, r.Unknown, len(r.Results), failures(r))
		}
		if !write && len(a.wrote) != 0 {
			t.Errorf("reading wrote %v", a.wrote)
		}
		if len(a.items) != 0 || len(a.objects) != 0 {
			t.Errorf("left behind: %v %v", a.items, a.objects)
		}
	}
}

// Promise: each single fault that only an account shows is noticed, and named.
func TestFaults(t *testing.T) {
	direct := func(a *account) *statement { return &a.roles["WriterDirectRole"][0] }
	for name, c := range map[string]struct {
		spoil func(*account)
		says  string
	}{
		"plain writes": {func(a *account) { direct(a).equals = nil }, "WriterDirectRole writes the ledger outside a transaction (must not)"},
		"a misspelt key": {func(a *account) {
			direct(a).equals = map[string]string{"dynamodb:EnclosingOperations": "TransactWriteItems"}
		}, "WriterDirectRole writes the ledger in a transaction (must)"},
		"no guard of missing key": {func(a *account) { a.roles["WriterHttpRole"][1].notNull = false }, "WriterHttpRole writes the ledger under no key at all (must not)"},
		"any key":                 {func(a *account) { a.roles["WriterHttpRole"][1].leading = "*" }, "WriterHttpRole writes the ledger outside a transaction (must not)"},
		"no observations":         {func(a *account) { a.roles["WriterHttpRole"] = a.roles["WriterHttpRole"][:1] }, "WriterHttpRole counts an observation (must)"},
		"the consumer writes":     {func(a *account) { a.roles["StreamRole"] = append(a.roles["StreamRole"], inTransactions()) }, "StreamRole writes the ledger at all (must not)"},
		"the writer sets plans": {func(a *account) {
			direct(a).resources = append(direct(a).resources, controlARN)
		}, "WriterDirectRole writes a plan (must not)"},
		"any namespace":    {func(a *account) { a.roles["SweeperRole"][1].equals = nil }, "SweeperRole counts in another namespace (must not)"},
		"deletes":          {func(a *account) { direct(a).actions = append(direct(a).actions, "dynamodb:DeleteItem") }, "WriterDirectRole deletes from the ledger (must not)"},
		"IAM does not say": {func(a *account) { a.down["SimulatePrincipalPolicy"] = errors.New("denied to you") }, "denied to you"},
		"no mapping":       {func(a *account) { a.mappings = a.mappings[1:] }, "no mapping reads the stream of prod-LedgerTable"},
		"disabled":         {func(a *account) { a.mappings[0].State = aws.String("Disabled") }, `its state is "Disabled"`},
		"whole batches":    {func(a *account) { a.mappings[0].FunctionResponseTypes = nil }, "ReportBatchItemFailures is off"},
		"endless retries":  {func(a *account) { a.mappings[1].MaximumRetryAttempts = aws.Int32(-1) }, "retries -1"},
		"endless age":      {func(a *account) { a.mappings[1].MaximumRecordAgeInSeconds = aws.Int32(86400) }, "until the stream forgets it"},
		"another destination": {func(a *account) {
			a.mappings[0].DestinationConfig.OnFailure.Destination = aws.String("arn:aws:sqs:x:y:z")
		}, "not the bucket"},
		"no filter": {func(a *account) { a.mappings[0].FilterCriteria = nil }, "the filters are []"},
		"another filter": {func(a *account) {
			a.mappings[0].FilterCriteria.Filters[0].Pattern = aws.String(`{"dynamodb":{"NewImage":{}}}`)
		}, "the filter is the template's"},
		"TTL off":         {func(a *account) { a.ttl = dynamodbtypes.TimeToLiveStatusDisabled }, "items do not expire"},
		"another remover": {func(a *account) { a.removal.PrincipalId = aws.String("someone.amazonaws.com") }, "takes it for tampering"},
		"an open route":   {func(a *account) { a.routes[0].AuthorizationType = apitypes.AuthorizationTypeNone }, "asks nobody who they are"},
		"plans by token": {func(a *account) {
			a.routes[1] = a.routes[0]
			a.routes[1].RouteKey = aws.String("PUT /v1/tenants/{tenant}/plan")
		}, "whoever has a token sets plans"},
		"any issuer":              {func(a *account) { a.issuer = "" }, "tokens of any issuer"},
		"no routes":               {func(a *account) { a.routes = nil }, "the API has none"},
		"strangers are served":    {func(a *account) { a.strange = http.StatusOK }, "it was answered 200"},
		"the call fails":          {func(a *account) { a.answers[0] = `{"errorMessage":"AccessDeniedException"}` }, "AccessDeniedException"},
		"the retry acts again":    {func(a *account) { a.answers[1] = `{"outcome":"applied"}` }, "want replayed"},
		"nothing is counted":      {func(a *account) { a.observed = false }, "the replay was not counted"},
		"failures are lost":       {func(a *account) { a.keeps = false }, "no object with the record came"},
		"the item cannot be made": {func(a *account) { a.down["PutItem"] = errors.New("no such table") }, "no such table"},
		"the item stays":          {func(a *account) { a.down["DeleteItem"] = errors.New("not yours") }, "clean up"},
	} {
		t.Run(name, func(t *testing.T) {
			a := healthy()
			c.spoil(a)
			if got := failures(a.run(t, true)); !strings.Contains(got, c.says) {
				t.Errorf("not noticed: want %q in\n%s", c.says, got)
			}
		})
	}
}

// Promise: what has not shown yet is unknown, never well; what a stack does not have is skipped.
func TestUnknownAndSkipped(t *testing.T) {
	a := healthy()
	a.removal, a.filtered = nil, 0
	if r := a.run(t, true); r.Failed != 0 || r.Unknown != 3 { // the filter twice: before and after the call
		t.Errorf("%+v", r)
	}
	a = healthy()
	delete(a.outputs, "WriterDirectArn")
	delete(a.roles, "WriterDirectRole")
	r := a.run(t, true)
	skipped := 0
	for _, c := range r.Results {
		if c.Status == checks.Skipped {
			skipped++
		}
	}
	if r.Failed != 0 || skipped == 0 {
		t.Errorf("%d skipped, failed:\n%s", skipped, failures(r))
	}
}

// Promise: a stack that cannot be read, or is another's, is an error, and so is a caller whom AWS does not know, by another name.
func TestNoStack(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*account)
		want  error
	}{
		"not there":  {func(a *account) { a.down["DescribeStacks"] = errors.New("does not exist") }, checks.ErrNoStack},
		"another's":  {func(a *account) { delete(a.outputs, "LedgerTableName") }, checks.ErrNoStack},
		"no caller":  {func(a *account) { a.down["GetCallerIdentity"] = errors.New("no credentials") }, checks.ErrNoCaller},
		"not listed": {func(a *account) { a.down["ListStackResources"] = errors.New("denied") }, checks.ErrNoStack},
	} {
		a := healthy()
		c.spoil(a)
		_, err := checks.Run(t.Context(), checks.Config{Stack: "prod", Clients: checks.Clients{STS: a, CloudFormation: a}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func (a *account) allows(role, action, resource string, keys map[string]string) bool {
	return slices.ContainsFunc(a.roles[role], func(s statement) bool {
		if !slices.Contains(s.actions, action) || !slices.ContainsFunc(s.resources, func(r string) bool { return like(r, resource) }) {
			return false
		}
		for key, value := range s.equals {
			if keys[key] != value {
				return false
			}
		}
		leading, has := keys["dynamodb:LeadingKeys"]
		return (s.leading == "" || !has || like(s.leading, leading)) && (!s.notNull || has)
	})
}

// like matches IAM's *, at the end of a pattern only.
func like(pattern, text string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	return text == pattern || wild && strings.HasPrefix(text, prefix)
}

func (a *account) SimulatePrincipalPolicy(_ context.Context, in *iam.SimulatePrincipalPolicyInput, _ ...func(*iam.Options)) (*iam.SimulatePrincipalPolicyOutput, error) {
	keys := map[string]string{}
	for _, e := range in.ContextEntries {
		keys[*e.ContextKeyName] = e.ContextKeyValues[0]
	}
	out := &iam.SimulatePrincipalPolicyOutput{}
	for _, action := range in.ActionNames {
		decision := iamtypes.PolicyEvaluationDecisionTypeImplicitDeny
		if a.allows(strings.TrimPrefix(path.Base(*in.PolicySourceArn), "prod-"), action, in.ResourceArns[0], keys) {
			decision = iamtypes.PolicyEvaluationDecisionTypeAllowed
		}
		out.EvaluationResults = append(out.EvaluationResults, iamtypes.EvaluationResult{EvalActionName: aws.String(action), EvalDecision: decision})
	}
	return out, a.down["SimulatePrincipalPolicy"]
}

func (a *account) GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{Account: aws.String("123456789012"), Arn: aws.String("arn:aws:iam::123456789012:user/ann")}, a.down["GetCallerIdentity"]
}

func (a *account) DescribeStacks(context.Context, *cloudformation.DescribeStacksInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error) {
	s := cfntypes.Stack{StackId: aws.String("arn:aws:cloudformation:eu-central-1:123456789012:stack/prod/1")}
	for key, value := range a.outputs {
		s.Outputs = append(s.Outputs, cfntypes.Output{OutputKey: aws.String(key), OutputValue: aws.String(value)})
	}
	return &cloudformation.DescribeStacksOutput{Stacks: []cfntypes.Stack{s}}, a.down["DescribeStacks"]
}

func (a *account) ListStackResources(_ context.Context, in *cloudformation.ListStackResourcesInput, _ ...func(*cloudformation.Options)) (*cloudformation.ListStackResourcesOutput, error) {
	out := &cloudformation.ListStackResourcesOutput{}
	if in.NextToken == nil { // two pages
		out.NextToken = aws.String("more")
		out.StackResourceSummaries = []cfntypes.StackResourceSummary{{LogicalResourceId: aws.String("HttpApi"), PhysicalResourceId: aws.String("a1b2c3")}}
		return out, a.down["ListStackResources"]
	}
	for role := range a.roles {
		out.StackResourceSummaries = append(out.StackResourceSummaries, cfntypes.StackResourceSummary{
			LogicalResourceId: aws.String(role), PhysicalResourceId: aws.String("prod-" + role),
		})
	}
	return out, nil
}

func (a *account) ListEventSourceMappings(_ context.Context, in *lambda.ListEventSourceMappingsInput, _ ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error) {
	if !strings.HasSuffix(*in.FunctionName, ":live") {
		return &lambda.ListEventSourceMappingsOutput{}, nil
	}
	return &lambda.ListEventSourceMappingsOutput{EventSourceMappings: a.mappings}, nil
}

func (a *account) Invoke(_ context.Context, in *lambda.InvokeInput, _ ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	var event struct{ Tenant string }
	if err := json.Unmarshal(in.Payload, &event); err != nil || event.Tenant != "verify-1" {
		return nil, fmt.Errorf("event %s", in.Payload)
	}
	a.wrote = append(a.wrote, "invoke")
	next := a.answers[0]
	a.answers = a.answers[1:]
	return &lambda.InvokeOutput{Payload: []byte(next)}, nil
}

func (a *account) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: &dynamodbtypes.TimeToLiveDescription{AttributeName: aws.String("expiresAt"), TimeToLiveStatus: a.ttl}}, nil
}

func text(v dynamodbtypes.AttributeValue) string {
	if s, ok := v.(*dynamodbtypes.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func (a *account) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if a.observed && text(in.Key["pk"]) == "OBS#TENANT#verify-1#SESSION#verify" {
		return &dynamodb.GetItemOutput{Item: in.Key}, nil
	}
	return &dynamodb.GetItemOutput{}, nil
}

func (a *account) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if err := a.down["PutItem"]; err != nil {
		return nil, err
	}
	a.wrote = append(a.wrote, "put")
	a.items[text(in.Item["pk"])] = in.Item
	a.fail("coming", in.Item)
	return &dynamodb.PutItemOutput{}, nil
}

// fail keeps a record of an item in the failure bucket, as the consumer would.
func (a *account) fail(what string, key map[string]dynamodbtypes.AttributeValue) {
	if a.keeps {
		a.objects["unreadable/"+what+".json"] = text(key["pk"]) + " " + text(key["sk"])
	}
}

func (a *account) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	a.wrote = append(a.wrote, "update")
	if !strings.HasPrefix(text(in.Key["pk"]), "OBS#") {
		return nil, errors.New("only observations may expire at once")
	}
	return &dynamodb.UpdateItemOutput{}, nil
}

func (a *account) DeleteItem(_ context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	if err := a.down["DeleteItem"]; err != nil {
		return nil, err
	}
	delete(a.items, text(in.Key["pk"]))
	a.fail("going", in.Key)
	return &dynamodb.DeleteItemOutput{}, nil
}

func (a *account) DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: &streamtypes.StreamDescription{Shards: []streamtypes.Shard{{ShardId: aws.String("0")}, {ShardId: aws.String("1")}}}}, nil
}

func (a *account) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: in.ShardId}, nil
}

func (a *account) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	removal := streamtypes.Record{EventName: streamtypes.OperationTypeRemove} // somebody deleted an item: that is no service
	switch {
	case *in.ShardIterator == "0":
		return &dynamodbstreams.GetRecordsOutput{Records: []streamtypes.Record{removal}, NextShardIterator: aws.String("0 empty")}, nil
	case *in.ShardIterator == "1" && a.removal != nil:
		removal.UserIdentity = a.removal
		return &dynamodbstreams.GetRecordsOutput{Records: []streamtypes.Record{removal}}, nil
	}
	return &dynamodbstreams.GetRecordsOutput{}, nil
}

func (a *account) ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	a.objects["unreadable/other.json"] = "TENANT#acme#SESSION#s TOOL#verify-unreadable" // of somebody else
	out := &s3.ListObjectsV2Output{}
	for key := range a.objects {
		out.Contents = append(out.Contents, s3types.Object{Key: aws.String(key)})
	}
	return out, nil
}

func (a *account) GetObject(_ context.Context, in *s3.GetObjectInput, _ ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	body := a.objects[*in.Key]
	if *in.Key == "unreadable/other.json" {
		delete(a.objects, *in.Key)
	}
	return &s3.GetObjectOutput{Body: io.NopCloser(bytes.NewReader([]byte(body)))}, nil
}

func (a *account) DeleteObject(_ context.Context, in *s3.DeleteObjectInput, _ ...func(*s3.Options)) (*s3.DeleteObjectOutput, error) {
	if _, ok := a.objects[*in.Key]; !ok || strings.Contains(*in.Key, "other") {
		return nil, fmt.Errorf("deletes %s", *in.Key)
	}
	delete(a.objects, *in.Key)
	return &s3.DeleteObjectOutput{}, nil
}

func (a *account) GetRoutes(context.Context, *apigatewayv2.GetRoutesInput, ...func(*apigatewayv2.Options)) (*apigatewayv2.GetRoutesOutput, error) {
	return &apigatewayv2.GetRoutesOutput{Items: a.routes}, nil
}

func (a *account) GetAuthorizer(context.Context, *apigatewayv2.GetAuthorizerInput, ...func(*apigatewayv2.Options)) (*apigatewayv2.GetAuthorizerOutput, error) {
	return &apigatewayv2.GetAuthorizerOutput{JwtConfiguration: &apitypes.JWTConfiguration{Issuer: &a.issuer, Audience: []string{"toolledger"}}}, nil
}

func (a *account) GetMetricStatistics(context.Context, *cloudwatch.GetMetricStatisticsInput, ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricStatisticsOutput, error) {
	if a.filtered == 0 {
		return &cloudwatch.GetMetricStatisticsOutput{}, nil
	}
	return &cloudwatch.GetMetricStatisticsOutput{Datapoints: []cwtypes.Datapoint{{Sum: aws.Float64(a.filtered)}}}, nil
}

func (a *account) Do(req *http.Request) (*http.Response, error) {
	if req.URL.Host != "api.example.com" {
		return nil, fmt.Errorf("asked %s", req.URL)
	}
	return &http.Response{StatusCode: a.strange, Body: http.NoBody}, nil
}
