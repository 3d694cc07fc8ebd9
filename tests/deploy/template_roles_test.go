package deploy_test

import (
	"regexp"
	"slices"
	"strings"
)

// statement is one statement of a policy, its values as lists.
type statement struct {
	sid, effect        string
	actions, resources []string
	cond               map[string]map[string]string // operator, key, values joined by a comma
	principal          any
}

func statements(policy any) []statement {
	var all []statement
	for _, v := range list(asObject(policy)["Statement"]) {
		s := asObject(v)
		st := statement{
			sid: str(s["Sid"]), effect: str(s["Effect"]), actions: texts(s["Action"]), resources: texts(s["Resource"]),
			cond: map[string]map[string]string{}, principal: s["Principal"],
		}
		for operator, of := range child(s, "Condition") {
			st.cond[operator] = map[string]string{}
			for key, values := range asObject(of) {
				st.cond[operator][key] = strings.Join(texts(values), ",")
			}
		}
		all = append(all, st)
	}
	return all
}

// granted are the statements of a role, those of policies that name it included.
func (v *view) granted(role *resource) []statement {
	var all []statement
	for _, p := range list(role.props["Policies"]) {
		all = append(all, statements(asObject(p)["PolicyDocument"])...)
	}
	for _, kind := range []string{"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"} {
		for _, p := range v.of(kind) {
			for _, of := range append(list(p.props["Roles"]), p.props["RoleName"]) {
				if v.target(of) == role {
					all = append(all, statements(p.props["PolicyDocument"])...)
				}
			}
		}
	}
	return all
}

// The condition keys and operators that policies here may use. A misspelt key is accepted by IAM and never matches, which
// denies in some operators and allows in others.
var (
	conditionKeys = []string{
		"dynamodb:EnclosingOperation", "dynamodb:LeadingKeys", "cloudwatch:namespace", "aws:SourceAccount", "aws:SourceArn",
		"aws:SecureTransport", "aws:PrincipalOrgID", "events:creatorAccount", "events:source", "events:detail-type", "kms:ViaService",
	}
	conditionOperators = []string{
		"StringEquals", "StringEqualsIfExists", "StringLike", "ForAllValues:StringLike", "Null", "ArnLike", "ArnEquals", "Bool",
	}
)

// May says what each kind of function may do at most, and must be able to do.
var (
	traced = []string{"xray:PutTraceSegments", "xray:PutTelemetryRecords", "logs:CreateLogStream", "logs:PutLogEvents"}
	keyed  = []string{"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:DescribeKey"}
	writes = []string{"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"}
	may    = map[string][]string{
		"http":    append([]string{"dynamodb:Query", "s3:GetObject", "s3:PutObject"}, writes...),
		"direct":  append([]string{"dynamodb:Query", "s3:GetObject", "s3:PutObject"}, writes...),
		"admin":   writes,
		"sweeper": append([]string{"dynamodb:Query", "cloudwatch:PutMetricData", "s3:GetObject", "s3:PutObject", "sqs:SendMessage", "lambda:InvokeFunction"}, writes...),
		"stream": {
			"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams", "events:PutEvents",
			"cloudwatch:PutMetricData", "s3:PutObject", "s3:ListBucket",
		},
		"example": append([]string{"dynamodb:Query", "dynamodb:DeleteItem", "s3:GetObject", "s3:PutObject", "sqs:SendMessage"}, writes...),
	}
)

// changes are the actions that change a table's items.
var changes = []string{
	"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem", "dynamodb:PartiQLInsert",
	"dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete", "dynamodb:ImportTable", "dynamodb:RestoreTableFromBackup", "dynamodb:DeleteTable",
	"dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive",
}

// roleRules: each function may do what it must, and nothing else.
func roleRules() []rule {
	return []rule{
		{"a role each", func(v *view, bad report) {
			used := map[string]string{}
			for _, f := range v.functions() {
				if f.role == nil || f.role.kind != "AWS::IAM::Role" || child(v.sam, "Resources")[f.role.id] == nil {
					bad("%s: no role of its own in the template: SAM's brings broad managed policies", f.id)
					continue
				}
				if other := used[f.role.id]; other != "" {
					bad("%s and %s share %s", f.id, other, f.role.id)
				}
				used[f.role.id] = f.id
				trusts(f.role, "lambda.amazonaws.com", bad)
			}
			for _, r := range v.of("AWS::IAM::Role") {
				if len(list(r.props["ManagedPolicyArns"])) > 0 {
					bad("%s: managed policies", r.id)
				}
			}
		}},
		{"least privilege", func(v *view, bad report) {
			for _, f := range v.functions() {
				if f.role != nil {
					leastPrivilege(v, f, bad)
				}
			}
		}},
		{"permissions", permissions},
		{"policies are spelt right", func(v *view, bad report) {
			for _, id := range sorted(v.resources) {
				for _, doc := range policyDocuments(v.resources[id].props) {
					for _, s := range statements(doc) {
						spelling(id, s, bad)
					}
				}
			}
		}},
		{"other roles", func(v *view, bad report) {
			mine := map[string]bool{}
			for _, f := range v.functions() {
				if f.role != nil {
					mine[f.role.id] = true
				}
			}
			for _, r := range v.of("AWS::IAM::Role") {
				if mine[r.id] {
					continue
				}
				for _, s := range v.granted(r) {
					if slices.Contains(s.resources, "*") || strings.Contains(strings.Join(s.actions, " "), "*") {
						bad("%s: %s has a wildcard", r.id, s.sid)
					}
				}
			}
		}},
	}
}

func trusts(role *resource, service string, bad report) {
	for _, s := range statements(role.props["AssumeRolePolicyDocument"]) {
		if got := scalar(asObject(s.principal)["Service"]); got != service || len(asObject(s.principal)) != 1 || strings.Join(s.actions, "") != "sts:AssumeRole" {
			bad("%s: trusts %v with %v, not %s", role.id, s.principal, s.actions, service)
		}
	}
}

// policyDocuments are all policies in a resource's properties.
func policyDocuments(v any) []any {
	var all []any
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			all = append(all, policyDocuments(e)...)
		}
	case object:
		for _, k := range sorted(v) {
			e := v[k]
			if k == "Statement" {
				return []any{v}
			}
			all = append(all, policyDocuments(e)...)
		}
	}
	return all
}

func spelling(id string, s statement, bad report) {
	if s.effect != "Allow" && s.effect != "Deny" {
		bad("%s: effect %q", id, s.effect)
	}
	for operator, of := range s.cond {
		if !slices.Contains(conditionOperators, operator) {
			bad("%s: condition operator %s is not known here", id, operator)
		}
		for key := range of {
			if !slices.Contains(conditionKeys, key) {
				bad("%s: condition key %s is not known here", id, key)
			}
		}
		if operator == "StringLike" && of["dynamodb:LeadingKeys"] != "" {
			bad("%s: dynamodb:LeadingKeys has many values: ForAllValues:StringLike", id)
		}
	}
	if s.effect == "Allow" && (s.principal == "*" || dig(s.principal, "AWS") == "*") {
		bad("%s: %s allows everybody", id, s.sid)
	}
}

func leastPrivilege(v *view, f function, bad report) {
	allowed := slices.Concat(traced, keyed, may[f.door])
	for _, s := range v.granted(f.role) {
		if s.effect != "Allow" {
			continue
		}
		for _, a := range s.actions {
			if !slices.Contains(allowed, a) {
				bad("%s: may %s, which a function for %s never does", f.role.id, a, f.door)
			}
		}
		for _, r := range s.resources {
			fenced(v, f, s, r, bad)
			ledgerFence(v, f, s, r, bad)
		}
	}
}

var bucketContents = regexp.MustCompile(`^\$\{\w+\.Arn\}(/[A-Za-z0-9_-]+)*/\*$`)

// fenced: no wildcard but where AWS knows no resources, and there another fence.
func fenced(v *view, f function, s statement, resource string, bad report) {
	if !strings.Contains(resource, "*") {
		return
	}
	if resource != "*" {
		if m := variable.FindString(resource); !bucketContents.MatchString(resource) || v.target(m) == nil || v.target(m).kind != "AWS::S3::Bucket" {
			bad("%s: %s on %s", f.role.id, s.sid, resource)
		}
		return
	}
	for _, a := range s.actions {
		switch a {
		case "xray:PutTraceSegments", "xray:PutTelemetryRecords":
		case "cloudwatch:PutMetricData":
			if ns := s.cond["StringEquals"]["cloudwatch:namespace"]; ns == "" || ns != str(f.env["METRICS_NAMESPACE"]) {
				bad("%s: puts metrics into %q, but measures in %q", f.role.id, ns, f.env["METRICS_NAMESPACE"])
			}
		default:
			bad("%s: %s on every resource", f.role.id, a)
		}
	}
}

// ledgerFence: ledger, quota and session items change in transactions only, observations alone by plain updates, and only
// the admin's function writes plans.
func ledgerFence(v *view, f function, s statement, resource string, bad report) {
	changing := slices.ContainsFunc(s.actions, func(a string) bool { return slices.Contains(changes, a) })
	inTransaction := s.cond["StringEquals"]["dynamodb:EnclosingOperation"] == "TransactWriteItems"
	switch {
	case about(resource, v.control()):
		if changing && f.door != "admin" {
			bad("%s: writes the control table; only admin does", f.role.id)
		}
		if (changing || slices.Contains(s.actions, "dynamodb:ConditionCheckItem")) && !inTransaction {
			bad("%s: %s on the control table outside transactions", f.role.id, s.sid)
		}
	case about(resource, v.ledger()):
		if changing && f.door == "stream" {
			bad("%s: the stream function writes the ledger table", f.role.id)
		}
		observing := strings.Join(s.actions, ",") == "dynamodb:UpdateItem" && s.cond["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] == "OBS#*" &&
			s.cond["Null"]["dynamodb:LeadingKeys"] == "false"
		if changing && !inTransaction && !observing {
			bad("%s: %s changes the ledger outside transactions and observations", f.role.id, s.sid)
		}
		if slices.Contains(s.actions, "dynamodb:ConditionCheckItem") && !inTransaction {
			bad("%s: %s checks outside transactions", f.role.id, s.sid)
		}
	}
}

// can tells whether a statement of the role allows the action on a resource, and under which condition.
func (v *view) can(role *resource, action string, on func(string) bool, cond func(statement) bool) bool {
	return slices.ContainsFunc(v.granted(role), func(s statement) bool {
		return s.effect == "Allow" && slices.Contains(s.actions, action) && slices.ContainsFunc(s.resources, on) && (cond == nil || cond(s))
	})
}

func exactly(want string) func(string) bool { return func(s string) bool { return s == want } }

func anywhere(s string) bool { return s == "*" }

func inTransactions(s statement) bool {
	return s.cond["StringEquals"]["dynamodb:EnclosingOperation"] == "TransactWriteItems" && len(s.cond) == 1
}

func ofObservations(s statement) bool {
	return s.cond["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] == "OBS#*" && len(s.cond["StringEquals"]) == 0
}

func free(s statement) bool { return len(s.cond) == 0 }

// permissions: what the code does is allowed.
func permissions(v *view, bad report) {
	ledger, control := v.ledger(), v.control()
	if ledger == nil || control == nil {
		return // said by another rule
	}
	ledgerARN, controlARN := "${"+ledger.id+".Arn}", "${"+control.id+".Arn}"
	for _, f := range v.functions() {
		if f.role == nil {
			continue
		}
		need := func(action, on string, cond func(statement) bool) {
			if !v.can(f.role, action, exactly(on), cond) {
				bad("%s: cannot %s on %s as it must", f.role.id, action, on)
			}
		}
		if !v.can(f.role, "xray:PutTraceSegments", anywhere, free) {
			bad("%s: cannot send traces", f.role.id)
		}
		group := v.target(dig(f.props, "LoggingConfig", "LogGroup"))
		if group != nil {
			need("logs:CreateLogStream", "${"+group.id+".Arn}", free)
			need("logs:PutLogEvents", "${"+group.id+".Arn}", free)
		}
		switch f.door {
		case "http", "direct", "admin", "sweeper":
			need("dynamodb:GetItem", ledgerARN, free)
			need("dynamodb:GetItem", controlARN, free)
			for _, action := range []string{"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"} {
				need(action, ledgerARN, inTransactions)
			}
		}
		switch f.door {
		case "http", "direct":
			need("dynamodb:Query", ledgerARN, free)
			need("dynamodb:UpdateItem", ledgerARN, ofObservations)
			need("dynamodb:ConditionCheckItem", controlARN, inTransactions)
		case "admin":
			need("dynamodb:PutItem", controlARN, inTransactions)
		case "sweeper":
			need("dynamodb:Query", ledgerARN+"/index/PendingByDeadline", free)
			need("dynamodb:ConditionCheckItem", controlARN, inTransactions)
		case "stream":
			for _, action := range []string{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"} {
				need(action, "${"+ledger.id+".StreamArn}", free)
				need(action, "${"+control.id+".StreamArn}", free)
			}
			if bus := v.target(f.env["EVENT_BUS"]); bus != nil {
				need("events:PutEvents", "${"+bus.id+".Arn}", free)
			} else {
				bad("%s: EVENT_BUS is no bus of this stack", f.id)
			}
			if bucket := v.target(f.env["FAILURE_BUCKET"]); bucket != nil {
				need("s3:PutObject", "${"+bucket.id+".Arn}/*", free)
			} else {
				bad("%s: FAILURE_BUCKET is no bucket of this stack", f.id)
			}
		}
		if f.door == "stream" || f.door == "sweeper" {
			if !v.can(f.role, "cloudwatch:PutMetricData", anywhere, nil) {
				bad("%s: cannot put metrics", f.role.id)
			}
		}
		usesKey(v, f, bad)
	}
}

// usesKey: with an own key, whoever touches the tables may use it.
func usesKey(v *view, f function, bad report) {
	key := str(v.params["KmsKeyArn"])
	if key == "" || f.door == "example" && f.env["LEDGER_TABLE"] == nil {
		return
	}
	if !v.can(f.role, "kms:Decrypt", exactly(key), nil) || !v.can(f.role, "kms:GenerateDataKey", exactly(key), nil) {
		bad("%s: cannot use the key of the tables", f.role.id)
	}
}
