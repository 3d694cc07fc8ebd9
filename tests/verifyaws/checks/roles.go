package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// The roles of template.yaml by what they may do to the ledger table.
var (
	writerRoles = []string{"WriterHttpRole", "WriterDirectRole", "BedrockRole", "AgentCoreRole"}
	ledgerRoles = slices.Concat(writerRoles, []string{"SweeperRole", "AdminRole"}) // in transactions
	allRoles    = slices.Concat(ledgerRoles, []string{"StreamRole", "SubscriberRole", "ScheduleRole"})
	noPlanRoles = slices.DeleteFunc(slices.Clone(allRoles), func(role string) bool { return role == "AdminRole" })
	noObsRoles  = []string{"SweeperRole", "AdminRole", "StreamRole", "SubscriberRole", "ScheduleRole"}
	noLedger    = []string{"StreamRole", "SubscriberRole", "ScheduleRole"}
)

// The condition keys of the roles, and their values.
const (
	keyEnclosing = "dynamodb:EnclosingOperation"
	keyLeading   = "dynamodb:LeadingKeys"
	keyNamespace = "cloudwatch:namespace"
	transaction  = "TransactWriteItems"
)

// permission is one thing that roles must be able to do, or must not.
type permission struct {
	name     string
	roles    []string
	actions  []string
	resource string
	context  map[string]string
	allowed  bool
}

// permissions are what the roles of a stack must and must not do.
func permissions(s *stack) []permission {
	ledger, control := s.table(s.ledger()), s.table(s.outputs["ControlTableName"])
	in := map[string]string{keyEnclosing: transaction}
	row, observation := "TENANT#acme#SESSION#s", "OBS#TENANT#acme#SESSION#s"
	write := []string{"dynamodb:PutItem", "dynamodb:UpdateItem"}
	bucket := fmt.Sprintf("arn:%s:s3:::%s", s.partition, s.outputs["FailureBucketName"])
	return []permission{
		{"writes the ledger in a transaction", ledgerRoles, write, ledger, in, true},
		{"writes the ledger outside a transaction", allRoles, write, ledger, map[string]string{keyLeading: row}, false},
		{"writes the ledger under no key at all", allRoles, write, ledger, nil, false},
		{"writes the ledger in a batch", allRoles, []string{"dynamodb:BatchWriteItem", "dynamodb:PartiQLUpdate", "dynamodb:PartiQLInsert"}, ledger, nil, false},
		{"deletes from the ledger", allRoles, []string{"dynamodb:DeleteItem", "dynamodb:DeleteTable"}, ledger, in, false},
		{"writes the ledger at all", noLedger, write, ledger, in, false},
		{"counts an observation", writerRoles, []string{"dynamodb:UpdateItem"}, ledger, map[string]string{keyLeading: observation}, true},
		{"counts an observation", noObsRoles, []string{"dynamodb:UpdateItem"}, ledger, map[string]string{keyLeading: observation}, false},
		{"puts an observation", allRoles, []string{"dynamodb:PutItem"}, ledger, map[string]string{keyLeading: observation}, false},
		{"writes a plan in a transaction", []string{"AdminRole"}, []string{"dynamodb:PutItem"}, control, in, true},
		{"writes a plan outside a transaction", allRoles, write, control, map[string]string{keyLeading: "TENANT#acme"}, false},
		{"writes a plan", noPlanRoles, write, control, in, false},
		{"publishes to the bus", []string{"StreamRole"}, []string{"events:PutEvents"}, s.outputs["EventBusArn"], nil, true},
		{"publishes to the bus", slices.Concat(ledgerRoles, []string{"SubscriberRole", "ScheduleRole"}), []string{"events:PutEvents"}, s.outputs["EventBusArn"], nil, false},
		{"counts in the namespace", []string{"StreamRole", "SweeperRole"}, []string{"cloudwatch:PutMetricData"}, "*", map[string]string{keyNamespace: "ToolLedger"}, true},
		{"counts in another namespace", allRoles, []string{"cloudwatch:PutMetricData"}, "*", map[string]string{keyNamespace: "AWS/Lambda"}, false},
		{"keeps what failed", []string{"StreamRole"}, []string{"s3:PutObject"}, bucket + "/unreadable/x.json", nil, true},
		{"reads or removes what failed", allRoles, []string{"s3:GetObject", "s3:DeleteObject"}, bucket + "/unreadable/x.json", nil, false},
		{"makes itself more", allRoles, []string{"iam:PutRolePolicy", "iam:PassRole", "sts:AssumeRole"}, "*", nil, false},
	}
}

// roles asks IAM what it would let each role do.
func (r *run) roles(ctx context.Context) {
	for _, p := range permissions(r.stack) {
		for _, role := range p.roles {
			source := r.stack.role(role)
			if source == "" {
				continue
			}
			if p.resource == "" {
				r.add("roles", role+" "+p.name, Failed, "the stack does not say what to ask about: an output is missing")
				continue
			}
			r.simulate(ctx, role, source, p)
		}
	}
	for _, role := range allRoles {
		if r.stack.role(role) == "" {
			r.add("roles", role, Skipped, "this stack has none")
		}
	}
}

func (r *run) simulate(ctx context.Context, role, source string, p permission) {
	in := &iam.SimulatePrincipalPolicyInput{PolicySourceArn: &source, ActionNames: p.actions, ResourceArns: []string{p.resource}}
	for key, value := range p.context {
		kind := types.ContextKeyTypeEnumString
		if key == keyLeading {
			kind = types.ContextKeyTypeEnumStringList
		}
		in.ContextEntries = append(in.ContextEntries, types.ContextEntry{ContextKeyName: aws.String(key), ContextKeyType: kind, ContextKeyValues: []string{value}})
	}
	name := role + " " + p.name
	out, err := r.cfg.Clients.IAM.SimulatePrincipalPolicy(ctx, in)
	if err != nil {
		r.add("roles", name, Failed, "IAM did not say: %v", err)
		return
	}
	var wrong []string
	seen := map[string]bool{}
	for _, e := range out.EvaluationResults {
		action := aws.ToString(e.EvalActionName)
		seen[strings.ToLower(action)] = true
		if (e.EvalDecision == types.PolicyEvaluationDecisionTypeAllowed) != p.allowed {
			wrong = append(wrong, fmt.Sprintf("%s is %s", action, e.EvalDecision))
		}
	}
	for _, action := range p.actions {
		if !seen[strings.ToLower(action)] {
			wrong = append(wrong, "IAM did not answer for "+action)
		}
	}
	must := "must not"
	if p.allowed {
		must = "must"
	}
	r.must("roles", fmt.Sprintf("%s (%s)", name, must), len(wrong) == 0, "%s", strings.Join(wrong, "; "))
}
