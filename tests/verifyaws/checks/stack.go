package checks

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// maxPages bounds every list that is read in pages.
const maxPages = 100

// stack is a deployed stack as CloudFormation describes it.
type stack struct {
	partition, account, region string
	outputs                    map[string]string
	ids                        map[string]string // physical ids by logical id
}

// readStack finds the stack's parts. Errors: ErrNoCaller, ErrNoStack, ctx's.
func readStack(ctx context.Context, cfg Config) (*stack, error) {
	c := cfg.Clients
	who, err := c.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCaller, err)
	}
	caller, err := arn.Parse(aws.ToString(who.Arn))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCaller, err)
	}
	s := &stack{partition: caller.Partition, account: aws.ToString(who.Account), outputs: map[string]string{}, ids: map[string]string{}}
	out, err := c.CloudFormation.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &cfg.Stack})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoStack, cfg.Stack, err)
	}
	if len(out.Stacks) != 1 {
		return nil, fmt.Errorf("%w: %s: %d stacks have this name", ErrNoStack, cfg.Stack, len(out.Stacks))
	}
	if id, err := arn.Parse(aws.ToString(out.Stacks[0].StackId)); err == nil {
		s.region = id.Region
	}
	for _, o := range out.Stacks[0].Outputs {
		s.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	if s.outputs["LedgerTableName"] == "" || s.outputs["ControlTableName"] == "" {
		return nil, fmt.Errorf("%w: %s has no output LedgerTableName or ControlTableName", ErrNoStack, cfg.Stack)
	}
	in := &cloudformation.ListStackResourcesInput{StackName: &cfg.Stack}
	for range maxPages {
		page, err := c.CloudFormation.ListStackResources(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrNoStack, cfg.Stack, err)
		}
		for _, r := range page.StackResourceSummaries {
			s.ids[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
		}
		if in.NextToken = page.NextToken; in.NextToken == nil {
			break
		}
	}
	return s, nil
}

func (s *stack) ledger() string { return s.outputs["LedgerTableName"] }

// table is the ARN of a table.
func (s *stack) table(name string) string {
	return fmt.Sprintf("arn:%s:dynamodb:%s:%s:table/%s", s.partition, s.region, s.account, name)
}

// role is the ARN of a role of the stack; "" where the stack has none of that name.
func (s *stack) role(logical string) string {
	name := s.ids[logical]
	if name == "" || strings.HasPrefix(name, "arn:") {
		return name
	}
	return fmt.Sprintf("arn:%s:iam::%s:role/%s", s.partition, s.account, name)
}
