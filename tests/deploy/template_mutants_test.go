package deploy_test

import "strings"

// mutant is the template with one fault.
type mutant struct {
	fault string
	rung  int // the first that catches it
	edit  edit
}

// kinds are what a mutant changes, from its edit's place; see TestTemplateFaults.
func mutants() []mutant {
	var all []mutant
	for _, part := range [][]mutant{
		tableMutants(), storageMutants(), busMutants(), functionMutants(), roleMutants(), streamMutants(), sweepMutants(), doorMutants(),
		alarmMutants(), dashboardMutants(), sourceMutants(), operationMutants(),
	} {
		all = append(all, part...)
	}
	return all
}

func tableMutants() []mutant {
	const table, control = "LedgerTable/Properties/", "ControlTable/Properties/"
	return []mutant{
		{"ledger table goes with the stack", 3, put("LedgerTable/DeletionPolicy", "Delete")},
		{"control table may be replaced", 1, drop("ControlTable/UpdateReplacePolicy")},
		{"no deletion protection", 3, put(table+"DeletionProtectionEnabled", false)},
		{"no backups in prod", 3, put(control+"PointInTimeRecoverySpecification/PointInTimeRecoveryEnabled", false)},
		{"TTL off", 3, put(table+"TimeToLiveSpecification/Enabled", false)},
		{"TTL on another attribute", 3, put(table+"TimeToLiveSpecification/AttributeName", "expires")},
		{"stream of keys only", 3, put(table+"StreamSpecification/StreamViewType", "KEYS_ONLY")},
		{"control stream of new images", 3, put(control+"StreamSpecification/StreamViewType", "NEW_IMAGE")},
		{"index lacks an attribute", 3, without(table+"GlobalSecondaryIndexes/0/Projection/NonKeyAttributes", "debits")},
		{"index under another name", 3, put(table+"GlobalSecondaryIndexes/0/IndexName", "Pending")},
		{"deadline is a string", 3, put(table+"AttributeDefinitions/AttributeName=deadline/AttributeType", "S")},
		{"table without encryption by KMS", 3, put(table+"SSESpecification", object{"SSEEnabled": false})},
		{"own key not used", 3, drop(control + "SSESpecification/KMSMasterKeyId")},
		{"provisioned throughput", 1, put(table+"BillingMode", "PROVISIONED")},
		{"property misspelt", 1, add("LedgerTable/Properties", "StreamSpecificaton", object{})},
		{"ceiling without its parameter", 1, drop(table + "OnDemandThroughput")},
	}
}

func storageMutants() []mutant {
	return []mutant{
		{"failure bucket may be public", 3, put("FailureBucket/Properties/PublicAccessBlockConfiguration/BlockPublicPolicy", false)},
		{"result bucket goes with the stack", 3, put("ResultBucket/DeletionPolicy", "Delete")},
		{"failures never expire", 2, drop("FailureBucket/Properties/LifecycleConfiguration")},
		{"bucket without encryption", 3, drop("ResultBucket/Properties/BucketEncryption")},
		{"bucket without TLS", 3, put("FailureBucketPolicy/Properties/PolicyDocument/Statement/0/Condition/Bool/aws:SecureTransport", "true")},
		{"queue forgets after a day", 3, put("SweepFailures/Properties/MessageRetentionPeriod", 86400)},
		{"queue keeps for a year", 1, put("SweepFailures/Properties/MessageRetentionPeriod", 31536000)},
		{"queue without encryption", 3, put("EventDeadLetters/Properties/SqsManagedSseEnabled", false)},
		{"queue policy for another queue", 3, put("EventDeadLettersPolicy/Properties/Queues/0", ref("SweepFailures"))},
	}
}

func busMutants() []mutant {
	statement := "EventBusPolicy/Properties/Statement/"
	schema := "ToolEffectAppliedSchema/Properties/"
	return []mutant{
		{"bus without dead letters", 3, drop("EventBus/Properties/DeadLetterConfig")},
		{"bus may not send its dead letters", 3, without("EventDeadLettersPolicy/Properties/PolicyDocument/Statement", "Sid=FromTheBus")},
		{"archive of another source", 3, put("EventArchive/Properties/EventPattern/source/0", "toolleger")},
		{"subscribers publish", 3, add(statement+"Action", "", "events:PutEvents")},
		{"subscribers change each other's rules", 3, drop(statement + "Condition")},
		{"condition key of subscribers misspelt", 3, put(statement+"Condition", object{"StringEqualsIfExists": object{"events:createrAccount": "${aws:PrincipalAccount}"}})},
		{"schema is not JSON", 3, reword(schema+"Content", `{"openapi"`, `{"openapi`)},
		{"schema is stale", 3, reword(schema+"Content", "1.0.0", "1.0.1")},
		{"schema of a type the registry lacks", 3, put(schema+"Type", "JSONSchemaDraft7")},
		{"schema missing", 3, drop("QuotaLowSchema")},
		{"schema in no registry", 3, put(schema+"RegistryName", "discovered-schemas")},
		{"registry missing", 1, drop("EventRegistry")},
	}
}

func functionMutants() []mutant {
	const http, stream, sweeper = "WriterHttpFunction/Properties/", "StreamFunction/Properties/", "SweeperFunction/Properties/"
	return []mutant{
		{"runtime that is none", 2, put("/Globals/Function/Runtime", "provided.al2033")},
		{"runtime of another language", 3, put("/Globals/Function/Runtime", "python3.13")},
		{"handler that is none", 3, put("/Globals/Function/Handler", "main")},
		{"one processor for all", 3, put("/Globals/Function/Architectures/0", "x86_64")},
		{"tracing off", 3, put("/Globals/Function/Tracing", "PassThrough")},
		{"logs as text", 3, put(stream+"LoggingConfig/LogFormat", "Text")},
		{"log group shared", 3, put(sweeper+"LoggingConfig/LogGroup", ref("StreamLogs"))},
		{"log group of Lambda's own", 3, drop(sweeper + "LoggingConfig/LogGroup")},
		{"logs kept for ever", 3, drop("StreamLogs/Properties/RetentionInDays")},
		{"logs kept for 31 days", 1, put("StreamLogs/Properties/RetentionInDays", 31)},
		{"heap above the memory", 3, put(stream+"Environment/Variables/GOMEMLIMIT", "4096MiB")},
		{"no heap limit", 3, drop(http + "Environment/Variables/GOMEMLIMIT")},
		{"variable misspelt", 3, both(drop(stream+"Environment/Variables/FAILURE_BUCKET"), add(stream+"Environment/Variables", "FAILURES_BUCKET", ref("FailureBucket")))},
		{"required variable missing", 3, drop(stream + "Environment/Variables/EVENT_BUS")},
		{"retention differs from the sweeper's", 3, put(sweeper+"Environment/Variables/LEDGER_KEEP", "24h")},
		{"skew left to its default", 3, drop(http + "Environment/Variables/LEDGER_SKEW")},
		{"door that is none", 3, put(http+"Environment/Variables/DOOR", "web")},
		{"function outlives the API's patience", 3, put(http+"Timeout", 60)},
		{"time-out above Lambda's", 2, put(stream+"Timeout", 1000)},
		{"concurrency reserved by default", 1, put(stream+"ReservedConcurrentExecutions", 10)},
		{"no alias", 2, drop(http + "AutoPublishAlias")},
		{"no rollout", 3, drop(stream + "DeploymentPreference")},
		{"writer all at once", 3, put(http+"DeploymentPreference/Type", "AllAtOnce")},
		{"rollout without alarms", 3, drop(http + "DeploymentPreference/Alarms")},
		{"rollout that is none", 3, put(http+"DeploymentPreference/Type", "Canary11Percent5Minutes")},
		{"no tags", 3, drop("/Globals/Function/Tags")},
		{"layer that is none", 1, add("StreamFunction/Properties", "Layers", "arn:nothing")},
	}
}

func roleMutants() []mutant {
	http, stream, sweeper := policyOf("WriterHttpRole")+"/", policyOf("StreamRole")+"/", policyOf("SweeperRole")+"/"
	ledger, control := att("LedgerTable", "Arn"), att("ControlTable", "Arn")
	inTransaction := object{"StringEquals": object{"dynamodb:EnclosingOperation": "TransactWriteItems"}}
	return []mutant{
		{"role shared", 3, put("SweeperFunction/Properties/Role", att("StreamRole", "Arn"))},
		{"role made by SAM", 3, drop("StreamFunction/Properties/Role")},
		{"role trusts another service", 3, put("StreamRole/Properties/AssumeRolePolicyDocument/Statement/0/Principal/Service", "ec2.amazonaws.com")},
		{"managed policy", 3, add("StreamRole/Properties", "ManagedPolicyArns", []any{"arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess"})},
		{"writes outside transactions", 3, drop(http + "Sid=WriteInTransactionsOnly/Condition")},
		{"condition key misspelt", 3, put(http+"Sid=WriteInTransactionsOnly/Condition/StringEquals", object{"dynamodb:EnclosingOperations": "TransactWriteItems"})},
		{"condition operator of sets", 3, put(http+"Sid=WriteInTransactionsOnly/Condition", object{"ForAnyValue:StringEquals": inTransaction["StringEquals"]})},
		{"observations without the guard", 3, drop(http + "Sid=CountObservations/Condition/Null")},
		{"observations anywhere", 3, put(http+"Sid=CountObservations/Condition/ForAllValues:StringLike/dynamodb:LeadingKeys/0", "*")},
		{"observations with another operator", 3, both(drop(http+"Sid=CountObservations/Condition/ForAllValues:StringLike"), add(http+"Sid=CountObservations/Condition", "StringLike", object{"dynamodb:LeadingKeys": []any{"OBS#*"}}))},
		{"action with a wildcard", 3, put(http+"Sid=Read/Action", "dynamodb:Get*")},
		{"resource with a wildcard", 3, put(http+"Sid=Read/Resource", "*")},
		{"action misspelt", 2, put(http+"Sid=Read/Action", "dynamodb:GetItme")},
		{"effect misspelt", 1, put(http+"Sid=Read/Effect", "Alow")},
		{"stream function writes the ledger", 3, granting("StreamRole", "dynamodb:PutItem", ledger, inTransaction)},
		{"writer writes plans", 3, granting("WriterHttpRole", "dynamodb:PutItem", control, inTransaction)},
		{"sweeper writes plans", 3, granting("SweeperRole", "dynamodb:UpdateItem", control, inTransaction)},
		{"writer reads the stream", 3, granting("WriterHttpRole", "dynamodb:GetRecords", att("LedgerTable", "StreamArn"), nil)},
		{"writer deletes", 3, granting("WriterHttpRole", "dynamodb:DeleteItem", ledger, inTransaction)},
		{"metrics into any namespace", 3, drop(stream + "Sid=Measure/Condition")},
		{"metrics into another namespace", 3, put(sweeper+"Sid=Measure/Condition/StringEquals/cloudwatch:namespace", "toolledger")},
		{"stream function may not publish", 3, without(strings.TrimSuffix(stream, "/"), "Sid=Publish")},
		{"stream function may not read the control stream", 3, put(stream+"Sid=ReadStreams/Resource", []any{att("LedgerTable", "StreamArn")})},
		{"sweeper may not query the index", 3, put(sweeper+"Sid=FindOverdue/Resource", ledger)},
		{"writer may not log", 3, put(http+"Sid=Log/Resource", att("StreamLogs", "Arn"))},
		{"writer may not check plans", 3, without(strings.TrimSuffix(http, "/"), "Sid=CheckPlan")},
		{"own key not allowed", 3, without("KeyPolicy/Properties/Roles", "Ref=SweeperRole")},
		{"schedule's role for everybody", 3, drop("ScheduleRole/Properties/AssumeRolePolicyDocument/Statement/0/Condition")},
		{"rollouts may do anything", 3, put(policyOf("DeployRole")+"/0/Resource", "*")},
	}
}

func streamMutants() []mutant {
	const ledger, control = "StreamFunction/Properties/Events/Ledger/Properties/", "StreamFunction/Properties/Events/Control/Properties/"
	pattern := ledger + "FilterCriteria/Filters/0/Pattern"
	role := policyOf("StreamRole")
	return []mutant{
		{"whole batches fail", 3, drop(ledger + "FunctionResponseTypes")},
		{"no bisecting", 3, put(control+"BisectBatchOnFunctionError", false)},
		{"retries for ever", 3, put(ledger+"MaximumRetryAttempts", -1)},
		{"records of any age", 3, drop(control + "MaximumRecordAgeInSeconds")},
		{"starts at the latest", 3, put(ledger+"StartingPosition", "LATEST")},
		{"starts nowhere", 2, put(ledger+"StartingPosition", "BEGINNING")},
		{"eleven batches at once", 2, put(ledger+"ParallelizationFactor", 11)},
		{"mapping is off", 3, add("StreamFunction/Properties/Events/Ledger/Properties", "Enabled", false)},
		{"no metrics of the mapping", 3, drop(control + "MetricsConfig")},
		{"failures to nowhere", 3, drop(ledger + "DestinationConfig")},
		{"failures to a queue", 3, put(ledger+"DestinationConfig/OnFailure", object{"Type": "SQS", "Destination": att("SweepFailures", "Arn")})},
		{"failures may not be written", 3, without(role, "Sid=FindFailureBucket")},
		{"filter is not JSON", 3, reword(pattern, `]}]}}}}`, `]}]}}}`)},
		{"filter needs an image", 3, put(pattern, `{"dynamodb":{"NewImage":{"sk":{"S":[{"anything-but":["META"]}]}}}}`)},
		{"filter drops removals", 3, put(pattern, `{"eventName":["INSERT","MODIFY"],"dynamodb":{"Keys":{"sk":{"S":[{"anything-but":["META"]}]}}}}`)},
		{"filter drops quota", 3, put(pattern, `{"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"TOOL#"}]}}}}`)},
		{"filter passes sessions", 3, reword(pattern, "META", "SESSION")},
		{"filter without effect", 3, drop(ledger + "FilterCriteria")},
		{"filter with numbers", 3, put(pattern, `{"dynamodb":{"Keys":{"sk":{"S":[{"numeric":[">",0]}]}}}}`)},
		{"one table read twice", 3, put(control+"Stream", att("LedgerTable", "StreamArn"))},
		{"table read as a stream", 3, put(control+"Stream", att("ControlTable", "Arn"))},
		{"event's property misspelt", 2, add("StreamFunction/Properties/Events/Ledger/Properties", "BisectBatchOnError", true)},
	}
}

func sweepMutants() []mutant {
	const minute, async = "SweeperFunction/Properties/Events/Minute/Properties/", "SweeperFunction/Properties/EventInvokeConfig/"
	return []mutant{
		{"swept every five minutes", 3, put(minute+"ScheduleExpression", "rate(5 minutes)")},
		{"schedule that is none", 3, put(minute+"ScheduleExpression", "rate(1 minutes)")},
		{"schedule is off", 3, add("SweeperFunction/Properties/Events/Minute/Properties", "State", "DISABLED")},
		{"schedule may drift", 3, add("SweeperFunction/Properties/Events/Minute/Properties", "FlexibleTimeWindow", object{"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 10})},
		{"schedule's dead letters lost", 3, drop(minute + "DeadLetterConfig")},
		{"schedule may not send dead letters", 3, without(policyOf("ScheduleRole"), "Sid=ReportFailures")},
		{"schedule may call another version only", 3, put(policyOf("ScheduleRole")+"/Sid=Sweep/Resource", att("SweeperFunction", "Arn"))},
		{"schedule retries for a day", 3, drop(minute + "RetryPolicy")},
		{"failed sweeps repeated", 3, put(async+"MaximumRetryAttempts", 2)},
		{"failed sweeps lost", 3, drop(async + "DestinationConfig")},
		{"failed sweeps may not be reported", 3, without(policyOf("SweeperRole"), "Sid=ReportFailures")},
		{"no word on failed sweeps", 3, drop("SweeperFunction/Properties/EventInvokeConfig")},
		{"no schedule", 3, drop("SweeperFunction/Properties/Events")},
	}
}

func doorMutants() []mutant {
	return []mutant{
		{"route for anybody", 3, put("HttpRoute/Properties/AuthorizationType", "NONE")},
		{"admin route by token", 3, put("AdminRoute/Properties/AuthorizationType", "NONE")},
		{"authorization that is none", 3, put("AdminRoute/Properties/AuthorizationType", "AWS-IAM")},
		{"route to the other function", 1, put("AdminRoute/Properties/Target", object{"Fn::Sub": "integrations/${HttpIntegration}"})},
		{"tokens for any audience", 3, put("JwtAuthorizer/Properties/JwtConfiguration/Audience", []any{})},
		{"no throttling", 2, drop("HttpStage/Properties/DefaultRouteSettings")},
		{"API gives up early", 3, put("HttpIntegration/Properties/TimeoutInMillis", 5000)},
		{"payload of version 1", 3, put("HttpIntegration/Properties/PayloadFormatVersion", "1.0")},
		{"API may not call the writer", 3, drop("HttpPermission")},
		{"any API may call the writer", 3, drop("HttpPermission/Properties/SourceArn")},
		{"permission on the function, not its alias", 3, put("HttpPermission/Properties/FunctionName", ref("WriterHttpFunction"))},
		{"direct call of the HTTP door", 3, both(put("HttpPermission/Properties/Principal", "210987654321"), drop("HttpPermission/Properties/SourceArn"))},
		{"direct door for everybody", 3, put("DirectInvokerPermission/Properties/Principal", "*")},
		{"any agent may call", 3, both(drop("BedrockPermission/Properties/SourceArn"), ifThere(drop("BedrockPermission/Properties/SourceAccount")))},
		{"claims are logged", 3, reword("HttpStage/Properties/AccessLogSettings/Format", "$context.requestId", "$context.authorizer.claims")},
		{"door without its condition", 1, put("WriterDirectRole/Condition", "HasHttp")},
	}
}

func alarmMutants() []mutant {
	return []mutant{
		{"alarm on a metric that nobody emits", 3, put("TamperedRowsAlarm/Properties/MetricName", "RowsTamperedWith")},
		{"alarm in another namespace", 3, put("TamperedRowsAlarm/Properties/Namespace", "toolledger")},
		{"alarm on AWS's metric misspelt", 3, put("StreamLagAlarm/Properties/MetricName", "IteratorAgeMilliseconds")},
		{"alarm with a dimension too many", 3, add("TamperedRowsAlarm/Properties", "Dimensions", []any{object{"Name": "Stage", "Value": "prod"}})},
		{"alarm on another function", 3, put("StreamLagAlarm/Properties/Dimensions/0/Value", "stream")},
		{"alarm on the queue's address", 3, put("EventDeadLettersAlarm/Properties/Dimensions/0/Value", ref("EventDeadLetters"))},
		{"silence is well", 3, put("SweepSilenceAlarm/Properties/TreatMissingData", "notBreaching")},
		{"missing data not thought of", 3, drop("StreamLagAlarm/Properties/TreatMissingData")},
		{"comparison that is none", 1, put("StreamLagAlarm/Properties/ComparisonOperator", "Above")},
		{"maximum read as a sum", 3, put("OldestReservationAlarm/Properties/Statistic", "Sum")},
		{"expression of a metric that is not there", 3, reword("SweepFailuresAlarm/Properties/Metrics", "FILL(failed", "FILL(fails")},
		{"search in an alarm", 3, put("SweepFailuresAlarm/Properties/Metrics/0/Expression", "SUM(SEARCH('{AWS/Lambda,FunctionName} Errors','Sum',60)) + errors + failed")},
		{"alarm missing", 1, drop("UnreadableRecordsAlarm")},
		{"runbook entry missing", 3, reword("StreamLagAlarm/Properties/AlarmDescription", "#stream-lag", "#stream-log")},
		{"runbook not named", 3, put("StreamLagAlarm/Properties/AlarmDescription", "The stream lags.")},
		{"composite names an alarm that is not there", 3, reword("PageAlarm/Properties/AlarmRule", `ALARM("${StreamLagAlarm}")`, `ALARM("stream-lag")`)},
		{"composite forgets an alarm", 3, reword("PageAlarm/Properties/AlarmRule", `ALARM("${StreamLagAlarm}") OR`, ``)},
		{"composite's rule cannot be read", 3, reword("PageAlarm/Properties/AlarmRule", `") OR`, `") OR OR`)},
		{"pages and notices together", 1, drop("NoticeAlarm")},
		{"rollback by an alarm on another alias", 3, put("StreamDeployAlarm/Properties/Dimensions/Name=Resource/Value", object{"Fn::Sub": "${StreamFunction}:prod"})},
	}
}

func dashboardMutants() []mutant {
	const body = "Dashboard/Properties/DashboardBody"
	return []mutant{
		{"dashboard is not JSON", 3, reword(body, `{"start"`, `{start`)},
		{"widget of a metric that nobody emits", 3, reword(body, `"EffectsApplied"`, `"EffectsDone"`)},
		{"widget of another function", 3, reword(body, "${StreamFunction}", "stream")},
		{"widget of a kind that is none", 3, reword(body, `"type":"alarm"`, `"type":"alarms"`)},
		{"widget over another", 3, reword(body, `"x":8,"y":3`, `"x":4,"y":3`)},
		{"widget outside", 3, reword(body, `"x":8,"y":3,"width":16`, `"x":8,"y":3,"width":17`)},
		{"widget without runbook", 3, reword(body, "[runbook](${RunbookUrl}#oldest-reservation)", "")},
		{"widget's runbook entry missing", 3, reword(body, "#oldest-reservation", "#oldest-reservations")},
		{"search by a dimension that is not there", 3, reword(body, ",Tenant}", ",TenantId}")},
		{"dashboard under a name with spaces", 3, put("Dashboard/Properties/DashboardName", "tool ledger")},
	}
}

func sourceMutants() []mutant {
	return []mutant{
		{"parameter says nothing", 3, drop("/Parameters/KeepHours/Description")},
		{"parameter without default", 3, drop("/Parameters/KeepHours/Default")},
		{"parameter takes anything", 3, drop("/Parameters/TenantClaim/AllowedPattern")},
		{"default not allowed", 1, put("/Parameters/LogRetentionDays/Default", 31)},
		{"tokens of nobody are taken", 3, drop("/Rules/JwtNeedsIssuer")},
		{"rule that refuses everybody", 3, drop("/Rules/JwtNeedsIssuer/RuleCondition")},
		{"stage missing", 3, put("/Parameters/Stage/AllowedValues", []any{"dev", "prod"})},
		{"parameter unused", 2, add("/Parameters", "Unused", object{"Type": "String", "Default": "a", "AllowedValues": []any{"a", "b"}, "Description": "Does nothing at all."})},
		{"built without make", 3, put("StreamFunction/Metadata/BuildMethod", "go1.x")},
		{"function that make does not know", 3, renamed("AgentCoreFunction", "GatewayFunction")},
		{"output missing", 3, drop("/Outputs/EventBusName")},
		{"output of a resource that is not there", 1, put("/Outputs/EventBusName/Value", ref("Bus"))},
		{"output of an attribute that is none", 1, put("/Outputs/EventBusArn/Value", att("EventBus", "ARN"))},
		{"output says nothing", 3, drop("/Outputs/LedgerTableName/Description")},
		{"output without its condition", 1, drop("/Outputs/HttpApiUrl/Condition")},
		{"condition that is none", 1, put("WriterHttpFunction/Condition", "HasWeb")},
	}
}

// both is one fault that takes two edits.
func both(edits ...edit) edit {
	return func(t object) error {
		for _, e := range edits {
			if err := e(t); err != nil {
				return err
			}
		}
		return nil
	}
}

// ifThere makes an edit where it can.
func ifThere(e edit) edit {
	return func(t object) error {
		_ = e(t)
		return nil
	}
}

// renamed gives a resource another id, everywhere.
func renamed(id, to string) edit {
	return func(t object) error {
		all := renameIn(t, id, to)
		for k, v := range asObject(all) {
			t[k] = v
		}
		return nil
	}
}

func renameIn(v any, id, to string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, id, to)
	case []any:
		for i := range v {
			v[i] = renameIn(v[i], id, to)
		}
	case object:
		for _, k := range sorted(v) {
			e := renameIn(v[k], id, to)
			delete(v, k)
			v[strings.ReplaceAll(k, id, to)] = e
		}
	}
	return v
}
