package main

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/smithy-go"
)

// The outputs of template.yaml that say where a stack's parts are.
const (
	outputTable    = "LedgerTableName"
	outputControl  = "ControlTableName"
	outputBus      = "EventBusName"
	outputFailures = "FailureBucketName"
)

// deployed are the names of a stack's parts. table and control are always there.
type deployed struct {
	table, control string
	bus            string // events go there
	failures       string // the bucket of what could not be processed
}

// A stack is named as CloudFormation names it, or by its ARN.
var stackName = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]{0,127}|arn:[a-z0-9-]+:cloudformation:[a-z0-9-]+:[0-9]{12}:stack/[A-Za-z0-9/-]{1,200})$`)

func (w *where) checkStack() error {
	if !stackName.MatchString(w.stack) {
		return badInput("--stack %q: want the name or the ARN of a CloudFormation stack", w.stack)
	}
	if w.table != "" || w.control != "" {
		return badInput("--stack %s knows its tables: leave out --table and --control", w.stack)
	}
	return nil
}

// openDeployed opens the ledger of a deployed stack: its outputs say what the tables are called.
func (a *app) openDeployed(ctx context.Context, w *where) (*location, error) {
	cfg, err := a.awsConfig(ctx, w)
	if err != nil {
		return nil, err
	}
	d, err := findStack(ctx, cfg, w.stack)
	if err != nil {
		return nil, err
	}
	named := *w
	named.table, named.control = d.table, d.control
	if err := named.checkTables(); err != nil {
		return nil, badInput("stack %s: %w", w.stack, err)
	}
	l, err := connect(ctx, cfg, &named)
	if err != nil {
		return nil, err
	}
	l.deployed = d
	return l, nil
}

// findStack asks CloudFormation what a stack's parts are called.
func findStack(ctx context.Context, cfg aws.Config, name string) (*deployed, error) {
	bounded, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	client := cloudformation.NewFromConfig(cfg, func(o *cloudformation.Options) { o.RetryMaxAttempts = reachTries })
	out, err := client.DescribeStacks(bounded, &cloudformation.DescribeStacksInput{StackName: &name})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, badInput("no CloudFormation answers in Region %s within %s", cfg.Region, reachWait)
	case err != nil:
		return nil, stackError(err, name, cfg.Region)
	case len(out.Stacks) != 1:
		return nil, badInput("--stack %s: CloudFormation answered %d stacks", name, len(out.Stacks))
	}
	found := map[string]string{}
	for _, o := range out.Stacks[0].Outputs {
		found[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	d := &deployed{table: found[outputTable], control: found[outputControl], bus: found[outputBus], failures: found[outputFailures]}
	if d.table == "" || d.control == "" {
		return nil, badInput("--stack %s has no output %s or %s (its status is %s): is it a toolledger stack?",
			name, outputTable, outputControl, out.Stacks[0].StackStatus)
	}
	return d, nil
}

// stackError says why a stack could not be read. CloudFormation has no code of its own for a stack that is not there.
func stackError(err error, name, region string) error {
	if dial, ok := errors.AsType[*net.OpError](err); ok {
		return badInput("no CloudFormation answers in Region %s: %w", region, dial)
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() == "ValidationError" && strings.Contains(e.ErrorMessage(), "does not exist") {
		return badInput("there is no stack %s in Region %s", name, region)
	}
	return badInput("stack %s in Region %s: %w", name, region, err)
}
