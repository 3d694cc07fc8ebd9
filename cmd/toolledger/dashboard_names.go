package main

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"toolledger/internal/ops"
)

// maxResourcePages is more than a stack's 500 resources take.
const maxResourcePages = 20

// dashboardBody is the body for the place that w names. What a deployed stack does not have is left out; without a stack,
// the names that nobody said stay references.
func (a *app) dashboardBody(ctx context.Context, w *where, set []string) (string, error) {
	names := map[string]string{}
	if w.region != "" {
		names["AWS::Region"] = w.region
	}
	body := ops.Dashboard()
	if w.stack != "" {
		if err := w.checkStack(); err != nil {
			return "", err
		}
		if err := a.stackNames(ctx, w, names); err != nil {
			return "", err
		}
	}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" || value == "" {
			return "", badInput("--set %q: want NAME=VALUE, such as LedgerTable=toolledger", s)
		}
		names[name] = value
	}
	if w.stack != "" {
		body = body.Having(func(name string) bool { return names[name] != "" })
	}
	raw, err := body.JSON()
	if err != nil {
		return "", err
	}
	refs := ops.References(string(raw))
	for _, s := range set {
		if name, _, _ := strings.Cut(s, "="); !strings.Contains(string(raw), "${"+name+"}") {
			return "", badInput("--set %s: the dashboard has no such name; it has %s", s, strings.Join(refs, ", "))
		}
	}
	for _, ref := range refs {
		if names[ref] == "" && w.stack == "" {
			names[ref] = "${" + ref + "}"
		}
		if names[ref] == "" {
			return "", badInput("stack %s has no %s, which the dashboard shows: is it a toolledger stack?", w.stack, ref)
		}
	}
	return ops.Expand(string(raw), names)
}

// stackNames adds what CloudFormation says that a stack's resources are called, and itself.
func (a *app) stackNames(ctx context.Context, w *where, names map[string]string) error {
	cfg, err := a.awsConfig(ctx, w)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	client := cloudformation.NewFromConfig(cfg, func(o *cloudformation.Options) { o.RetryMaxAttempts = reachTries })
	out, err := client.DescribeStacks(bounded, &cloudformation.DescribeStacksInput{StackName: &w.stack})
	if err != nil {
		return errors.Join(ctx.Err(), stackError(err, w.stack, cfg.Region))
	}
	if len(out.Stacks) != 1 {
		return badInput("--stack %s: CloudFormation answered %d stacks", w.stack, len(out.Stacks))
	}
	id, err := arn.Parse(aws.ToString(out.Stacks[0].StackId))
	if err != nil {
		return badInput("stack %s: its id: %w", w.stack, err)
	}
	names["AWS::Region"], names["AWS::AccountId"], names["AWS::Partition"] = id.Region, id.AccountID, id.Partition
	names["AWS::StackName"] = aws.ToString(out.Stacks[0].StackName)
	for _, p := range out.Stacks[0].Parameters {
		names[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}
	pages := cloudformation.NewListStackResourcesPaginator(client, &cloudformation.ListStackResourcesInput{StackName: &w.stack})
	for range maxResourcePages {
		if !pages.HasMorePages() {
			break
		}
		page, err := pages.NextPage(bounded)
		if err != nil {
			return errors.Join(ctx.Err(), stackError(err, w.stack, cfg.Region))
		}
		for _, r := range page.StackResourceSummaries {
			name := aws.ToString(r.LogicalResourceId)
			names[name] = aws.ToString(r.PhysicalResourceId)
			names[name+".QueueName"] = path.Base(names[name]) // a queue's physical id is its URL
		}
	}
	return nil
}
