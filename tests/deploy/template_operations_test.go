package deploy_test

import (
	"slices"
	"strings"

	"toolledger/metrics"
)

// operationRules are what an operations team asks of a stack that has to live for years: that it can be updated, rolled back and
// deployed twice, that its alarms see what comes late, and that its roles can do what they do only once in a while.
func operationRules() []rule {
	return []rule{
		{"names", names},
		{"rollouts work", rollouts},
		{"rare permissions", rarePermissions},
		{"own key", ownKey},
		{"alarms see what is late", lateData},
		{"somebody is told", told},
		{"the index is as warm as its table", func(v *view, bad report) {
			t := v.ledger()
			if t == nil {
				return
			}
			want := mustJSON(t.props["WarmThroughput"])
			for _, g := range list(t.props["GlobalSecondaryIndexes"]) {
				if got := mustJSON(asObject(g)["WarmThroughput"]); got != want {
					bad("%s: warm throughput %s, of its index %s: the colder holds up the other", t.id, want, got)
				}
			}
		}},
	}
}

// namedByStack are properties that name a resource in its account; those of other kinds are CloudFormation's to choose, since a
// resource with a fixed name can neither be replaced nor be there twice.
var namedByStack = map[string]string{
	"AWS::CloudWatch::Alarm": "AlarmName", "AWS::CloudWatch::CompositeAlarm": "AlarmName", "AWS::CloudWatch::Dashboard": "DashboardName",
	"AWS::Events::EventBus": "Name", "AWS::EventSchemas::Registry": "RegistryName", "AWS::Logs::LogGroup": "LogGroupName",
	"AWS::Scheduler::Schedule": "Name",
}

var neverNamed = map[string]string{
	"AWS::DynamoDB::Table": "TableName", "AWS::S3::Bucket": "BucketName", "AWS::SQS::Queue": "QueueName", "AWS::IAM::Role": "RoleName",
	"AWS::Lambda::Function": "FunctionName", "AWS::Events::Archive": "ArchiveName", "AWS::Events::Rule": "Name",
}

// nameLimits are AWS's, in characters.
var nameLimits = map[string]int{"AWS::EventSchemas::Registry": 64, "AWS::Scheduler::Schedule": 64, "AWS::CloudWatch::Alarm": 255}

// longestStack is what docs/deploy.md says of the names of stacks.
const longestStack = 57

func names(v *view, bad report) {
	stackName := str(v.params["AWS::StackName"])
	for _, id := range sorted(v.resources) {
		r := v.resources[id]
		if field := neverNamed[r.kind]; field != "" && r.props[field] != nil {
			bad("%s: its fixed name %v stands in the way of a replacement and of a second stack", r.id, r.props[field])
		}
		field := namedByStack[r.kind]
		if field == "" || r.props[field] == nil {
			continue
		}
		name := str(r.props[field])
		if !strings.Contains(name, stackName) {
			bad("%s: another stack of the account would have the name %s too", r.id, name)
		}
		if limit := nameLimits[r.kind]; limit > 0 && len(name)-len(stackName)+longestStack > limit {
			bad("%s: %s is too long for stacks of %d characters", r.id, field, longestStack)
		}
	}
}

// rollouts: CodeDeploy can look at the alarms and move every alias, the alarms are about the new version's alias, and silence
// is no reason to roll back.
func rollouts(v *view, bad report) {
	for _, g := range v.of("AWS::CodeDeploy::DeploymentGroup") {
		role := v.target(g.props["ServiceRoleArn"])
		if role == nil {
			bad("%s: no role of this stack", g.id)
			continue
		}
		trusts(role, "codedeploy.amazonaws.com", bad)
		if !v.can(role, "cloudwatch:DescribeAlarms", func(on string) bool { return strings.HasSuffix(on, ":alarm:*") || on == "*" }, free) {
			bad("%s: %s cannot look at alarms: no deployment would begin", g.id, role.id)
		}
		for _, f := range v.functions() {
			if !strings.HasPrefix(g.id, f.id) || v.aliasOf(f.id) == nil {
				continue
			}
			for _, action := range []string{"lambda:GetAlias", "lambda:UpdateAlias"} {
				if !v.can(role, action, exactly("${"+f.id+".Arn}:"+str(v.aliasOf(f.id).props["Name"])), free) || !v.can(role, action, exactly("${"+f.id+".Arn}"), free) {
					bad("%s: %s cannot %s of %s", g.id, role.id, action, f.id)
				}
			}
		}
	}
	for _, a := range v.of("AWS::CloudWatch::Alarm") {
		if !rollsBack(v, a) {
			continue
		}
		if a.props["TreatMissingData"] != "notBreaching" {
			bad("%s: a function that nobody calls would be rolled back", a.id)
		}
		for _, s := range alarmSeries(a) {
			if s.namespace == "AWS/Lambda" && s.dims["Resource"] == nil {
				bad("%s: counts what never went through the alias", a.id)
			}
		}
	}
}

// rarePermissions: what a function does on some days only is allowed, too.
func rarePermissions(v *view, bad report) {
	for _, f := range v.functions() {
		if f.role == nil {
			continue
		}
		if bucket := v.target(f.env["RESULT_BUCKET"]); bucket != nil {
			for _, action := range []string{"s3:GetObject", "s3:PutObject"} {
				if !v.can(f.role, action, exactly("${"+bucket.id+".Arn}/results/*"), free) {
					bad("%s: cannot %s where large results are kept", f.role.id, action)
				}
			}
		} else if f.env["RESULT_BUCKET"] != nil {
			bad("%s: RESULT_BUCKET is no bucket of this stack", f.id)
		}
		if f.door != "sweeper" {
			continue
		}
		for _, arn := range texts(v.params["SweepVerifierArns"]) {
			if !v.can(f.role, "lambda:InvokeFunction", exactly(arn), free) {
				bad("%s: cannot ask the verifier %s", f.role.id, arn)
			}
		}
	}
	for _, p := range v.of("AWS::Events::EventBusPolicy") {
		for _, s := range statements(object{"Statement": p.props["Statement"]}) {
			for _, on := range s.resources {
				if !strings.Contains(on, ":rule/${") {
					bad("%s: is about %s, not about rules on this bus", p.id, on)
				}
			}
		}
	}
}

// ownKey: a key that is given is used by everything that keeps data, and through these services only.
func ownKey(v *view, bad report) {
	key := str(v.params["KmsKeyArn"])
	if key == "" {
		return
	}
	for _, b := range v.of("AWS::S3::Bucket") {
		for _, r := range list(dig(b.props, "BucketEncryption", "ServerSideEncryptionConfiguration")) {
			if dig(r, "ServerSideEncryptionByDefault", "KMSMasterKeyID") != key {
				bad("%s: does not use the given key", b.id)
			}
		}
	}
	for _, f := range v.functions() {
		if f.role == nil {
			continue
		}
		for _, s := range v.granted(f.role) {
			if !slices.Contains(s.resources, key) {
				continue
			}
			through := strings.Split(s.cond["StringEquals"]["kms:ViaService"], ",")
			slices.Sort(through)
			if !slices.Equal(through, []string{"dynamodb.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com"}) {
				bad("%s: uses the key through %v, not through DynamoDB and S3", f.role.id, through)
			}
		}
	}
}

// lateData: points come late, and those that tell of the past bear its time. An alarm on one occurrence looks back; FILL leaves
// room for the newest period; a queue that is full and unused reports nothing.
func lateData(v *view, bad report) {
	for _, a := range v.of("AWS::CloudWatch::Alarm") {
		of, points, missing := number(a.props["EvaluationPeriods"]), number(a.props["DatapointsToAlarm"]), str(a.props["TreatMissingData"])
		for _, q := range list(a.props["Metrics"]) {
			if strings.Contains(str(asObject(q)["Expression"]), "FILL(") && of <= points {
				bad("%s: FILL hides the newest period while its metric is late", a.id)
			}
		}
		for _, s := range alarmSeries(a) {
			switch {
			case s.namespace == "AWS/SQS" && missing != "ignore":
				bad("%s: is off again after six hours, with the messages still there", a.id)
			case s.name == metrics.SweepRuns && of*number(a.props["Period"]) > 600:
				bad("%s: notices after %v seconds that nobody sweeps", a.id, of*number(a.props["Period"]))
			case slices.Contains([]string{metrics.DoubleEffectsSuspected, metrics.RowsTampered, metrics.AuditGaps, metrics.RecordsUnreadable}, s.name) &&
				(points != 1 || of*number(a.props["Period"]) < 900):
				bad("%s: does not look back a quarter of an hour for one %s", a.id, s.name)
			}
		}
	}
}

// told: the topics that are given are notified, each by a composite alarm of its own.
func told(v *view, bad report) {
	for parameter, must := range map[string][]string{
		"PageTopicArn":   {metrics.DoubleEffectsSuspected, metrics.RowsTampered, metrics.SweepRuns, "IteratorAge", "OnFailureDestinationDeliveredEventCount"},
		"NoticeTopicArn": {metrics.QuotaDenials, metrics.ReservationsHeld, metrics.RecordsUnreadable},
	} {
		topic := str(v.params[parameter])
		if topic == "" {
			continue
		}
		var reads []string
		for _, c := range v.of("AWS::CloudWatch::CompositeAlarm") {
			if !slices.Contains(texts(c.props["AlarmActions"]), topic) {
				continue
			}
			if !slices.Contains(texts(c.props["OKActions"]), topic) {
				bad("%s: nobody hears that it is over", c.id)
			}
			for _, m := range stateOf.FindAllStringSubmatch(str(c.props["AlarmRule"]), -1) {
				if a := v.alarm(strings.TrimSpace(m[1])); a != nil {
					for _, s := range alarmSeries(a) {
						reads = append(reads, s.name)
					}
				}
			}
		}
		for _, name := range must {
			if !slices.Contains(reads, name) {
				bad("%s is not told of %s", parameter, name)
			}
		}
	}
}

// operationMutants are faults that show only after months, or on the day on which they matter.
func operationMutants() []mutant {
	deploy, result := policyOf("DeployRole"), policyOf("WriterHttpRole")
	const index = "LedgerTable/Properties/GlobalSecondaryIndexes/0"
	return []mutant{
		{"table with a fixed name", 3, add("LedgerTable/Properties", "TableName", "ledger")},
		{"function with a fixed name", 3, add("StreamFunction/Properties", "FunctionName", "toolledger-stream")},
		{"alarm under the name of another stack's", 3, put("StreamLagAlarm/Properties/AlarmName", "toolledger-stream-lag")},
		{"bus under the name of another stack's", 3, put("EventBus/Properties/Name", "toolledger-events")},
		{"name too long for the registry", 3, put("EventRegistry/Properties/RegistryName", object{"Fn::Sub": "${AWS::StackName}-tool-events"})},
		{"index cold", 3, drop(index + "/WarmThroughput")},
		{"rollouts may not look at alarms", 3, without(deploy, "Sid=WatchAlarms")},
		{"rollouts may not move the sweeper's alias", 3, put(deploy+"/Sid=MoveAliases/Resource", []any{
			att("StreamFunction", "Arn"), object{"Fn::Sub": "${StreamFunction.Arn}:live"}, att("SweeperFunction", "Arn"),
		})},
		{"rollouts by another service", 3, put("DeployRole/Properties/AssumeRolePolicyDocument/Statement/0/Principal/Service", "lambda.amazonaws.com")},
		{"silence rolls back", 3, put("StreamDeployAlarm/Properties/TreatMissingData", "breaching")},
		{"rollback by errors of any version", 3, without("StreamDeployAlarm/Properties/Dimensions", "Name=Resource")},
		{"writer may not keep large results", 3, without(result, "Sid=KeepLargeResults")},
		{"large results under another prefix", 3, put(result+"/Sid=KeepLargeResults/Resource", object{"Fn::Sub": "${ResultBucket.Arn}/large/*"})},
		{"sweeper may not ask verifiers", 1, drop("VerifierPolicy")},
		{"subscribers change the bus itself", 3, put("EventBusPolicy/Properties/Statement/Resource", att("EventBus", "Arn"))},
		{"everybody subscribes", 3, put("EventBusPolicy/Properties/Statement/Principal", "*")},
		{"key not usable through S3", 3, put("KeyPolicy/Properties/PolicyDocument/Statement/0/Condition/StringEquals/kms:ViaService", object{"Fn::Sub": "dynamodb.${AWS::Region}.${AWS::URLSuffix}"})},
		{"bucket does not use the key", 3, put("ResultBucket/Properties/BucketEncryption/ServerSideEncryptionConfiguration",
			[]any{object{"ServerSideEncryptionByDefault": object{"SSEAlgorithm": "AES256"}}})},
		{"queue's alarm goes off by itself", 3, put("EventDeadLettersAlarm/Properties/TreatMissingData", "notBreaching")},
		{"late failures not seen", 3, put("StreamFailuresAlarm/Properties/EvaluationPeriods", 1)},
		{"tampering told late not seen", 3, put("TamperedRowsAlarm/Properties/EvaluationPeriods", 1)},
		{"silence noticed after an hour", 3, both(put("SweepSilenceAlarm/Properties/EvaluationPeriods", 60), put("SweepSilenceAlarm/Properties/DatapointsToAlarm", 60))},
		{"API's alarm by its name", 3, put("WriterErrorsAlarm/Properties/Metrics/Id=bad/MetricStat/Metric/Dimensions/0/Name", "ApiName")},
		{"index's alarm without its table", 3, without("IndexThrottlingAlarm/Properties/Metrics/Id=onindex/MetricStat/Metric/Dimensions", "Name=TableName")},
		{"nobody is woken", 3, drop("PageAlarm/Properties/AlarmActions")},
		{"nobody hears that it is over", 3, drop("PageAlarm/Properties/OKActions")},
		{"pages as notices", 1, both(put("PageAlarm/Properties/AlarmActions", []any{ref("NoticeTopicArn")}), put("NoticeAlarm/Properties/AlarmActions", []any{ref("PageTopicArn")}))},
	}
}
