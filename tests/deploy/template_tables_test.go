package deploy_test

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// tableRules: the tables are those that the code expects, survive the stack, and are backed up in prod.
func tableRules() []rule {
	return []rule{
		{"tables", func(v *view, bad report) {
			ledger, control := v.ledger(), v.control()
			if ledger == nil || control == nil || ledger == control {
				bad("the functions are not given a ledger table and a control table")
				return
			}
			sameTable(ledger, schema.LedgerTable("ledger", true), bad)
			sameTable(control, schema.ControlTable("control", true), bad)
			if ttl := child(ledger.props, "TimeToLiveSpecification"); str(ttl["AttributeName"]) != schema.AExpiresAt || !yes(ttl["Enabled"]) {
				bad("%s: TTL must be on, on %s: nothing would ever leave the table", ledger.id, schema.AExpiresAt)
			}
		}},
		{"tables are kept", func(v *view, bad report) {
			for _, t := range []*resource{v.ledger(), v.control()} {
				if t == nil {
					continue
				}
				kept(t, bad)
				prod := scalar(v.params["Stage"]) == "prod"
				if on := yes(dig(t.props, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled")); prod && !on {
					bad("%s: no point-in-time recovery in prod", t.id)
				}
				if on := yes(t.props["DeletionProtectionEnabled"]); on != prod {
					bad("%s: deletion protection is %v in %v: it belongs in prod and nowhere else", t.id, on, v.params["Stage"])
				}
				if !yes(dig(t.props, "SSESpecification", "SSEEnabled")) {
					bad("%s: not encrypted with a key of KMS", t.id)
				}
				if key := str(v.params["KmsKeyArn"]); key != "" && dig(t.props, "SSESpecification", "KMSMasterKeyId") != key {
					bad("%s: does not use the given key", t.id)
				}
			}
		}},
		{"throughput is on demand", func(v *view, bad report) {
			t := v.ledger()
			if t == nil {
				return
			}
			ceiling := dig(t.props, "OnDemandThroughput", "MaxWriteRequestUnits")
			warm := dig(t.props, "WarmThroughput", "WriteUnitsPerSecond")
			if limit, set := v.params["MaxWriteUnits"]; set && (number(limit) > 0) != (ceiling != nil) {
				bad("%s: a ceiling of %v write units gives %v", t.id, limit, ceiling)
			}
			if limit, set := v.params["WarmWriteUnits"]; set && (number(limit) > 0) != (warm != nil) {
				bad("%s: warm throughput of %v write units gives %v", t.id, limit, warm)
			}
		}},
	}
}

// kept: what holds data outlives its stack.
func kept(r *resource, bad report) {
	for _, name := range []string{"DeletionPolicy", "UpdateReplacePolicy"} {
		if p := str(r.attrs[name]); p != "Retain" && p != "RetainExceptOnCreate" {
			bad("%s: %s is %q, not Retain", r.id, name, p)
		}
	}
}

// sameTable compares a table with what the code makes where there is no template.
func sameTable(r *resource, want *dynamodb.CreateTableInput, bad report) {
	p := r.props
	if str(p["BillingMode"]) != string(want.BillingMode) {
		bad("%s: billing mode %v, the code expects %s", r.id, p["BillingMode"], want.BillingMode)
	}
	if got := keys(p["KeySchema"]); got != wantKeys(want.KeySchema) {
		bad("%s: keys %s, the code expects %s", r.id, got, wantKeys(want.KeySchema))
	}
	kinds := map[string]string{}
	for _, a := range list(p["AttributeDefinitions"]) {
		kinds[str(asObject(a)["AttributeName"])] = str(asObject(a)["AttributeType"])
	}
	for _, a := range want.AttributeDefinitions {
		if kinds[aws.ToString(a.AttributeName)] != string(a.AttributeType) {
			bad("%s: attribute %s is not of type %s", r.id, *a.AttributeName, a.AttributeType)
		}
	}
	if view := dig(p, "StreamSpecification", "StreamViewType"); view != string(want.StreamSpecification.StreamViewType) {
		bad("%s: stream view %v, but what a change means is told by both images", r.id, view)
	}
	got := list(p["GlobalSecondaryIndexes"])
	if len(got) != len(want.GlobalSecondaryIndexes) {
		bad("%s: %d indexes, the code expects %d", r.id, len(got), len(want.GlobalSecondaryIndexes))
		return
	}
	for i, w := range want.GlobalSecondaryIndexes {
		g := asObject(got[i])
		if str(g["IndexName"]) != *w.IndexName || keys(g["KeySchema"]) != wantKeys(w.KeySchema) {
			bad("%s: index %v with keys %s, the code expects %s with %s", r.id, g["IndexName"], keys(g["KeySchema"]), *w.IndexName, wantKeys(w.KeySchema))
		}
		names := strings.Join(texts(dig(g, "Projection", "NonKeyAttributes")), ",")
		if str(dig(g, "Projection", "ProjectionType")) != string(w.Projection.ProjectionType) || names != strings.Join(w.Projection.NonKeyAttributes, ",") {
			bad("%s: index %s projects %s, the code expects %v", r.id, *w.IndexName, names, w.Projection.NonKeyAttributes)
		}
	}
}

func keys(v any) string {
	var all []string
	for _, k := range list(v) {
		all = append(all, str(asObject(k)["AttributeName"])+" "+str(asObject(k)["KeyType"]))
	}
	return strings.Join(all, ", ")
}

func wantKeys(k []types.KeySchemaElement) string {
	var all []string
	for _, e := range k {
		all = append(all, aws.ToString(e.AttributeName)+" "+string(e.KeyType))
	}
	return strings.Join(all, ", ")
}

// storageRules: buckets are private and outlive the stack, queues keep what failed as long as they can.
func storageRules() []rule {
	return []rule{
		{"buckets", func(v *view, bad report) {
			if len(v.of("AWS::S3::Bucket")) < 2 {
				bad("no bucket for failed records, or none for large results")
			}
			for _, b := range v.of("AWS::S3::Bucket") {
				kept(b, bad)
				for _, name := range []string{"BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"} {
					if !yes(dig(b.props, "PublicAccessBlockConfiguration", name)) {
						bad("%s: %s is off", b.id, name)
					}
				}
				if len(list(dig(b.props, "BucketEncryption", "ServerSideEncryptionConfiguration"))) == 0 {
					bad("%s: no encryption", b.id)
				}
				rules := list(dig(b.props, "LifecycleConfiguration", "Rules"))
				if len(rules) == 0 || str(asObject(rules[0])["Status"]) != "Enabled" || number(asObject(rules[0])["ExpirationInDays"]) < 1 {
					bad("%s: what is in it never goes", b.id)
				}
				overTLS(v, b, "AWS::S3::BucketPolicy", "Bucket", bad)
			}
		}},
		{"results outlive their rows", func(v *view, bad report) {
			days, hours := v.params["ResultDays"], v.params["KeepHours"]
			if days != nil && number(days)*24 < number(hours)+24*32 {
				bad("by default results go after %v days, but rows may last %v hours and a month of quota", days, hours)
			}
		}},
		{"queues", func(v *view, bad report) {
			for _, q := range v.of("AWS::SQS::Queue") {
				if number(q.props["MessageRetentionPeriod"]) != 14*24*3600 {
					bad("%s: what failed is kept %v seconds, not two weeks", q.id, q.props["MessageRetentionPeriod"])
				}
				if !yes(q.props["SqsManagedSseEnabled"]) && q.props["KmsMasterKeyId"] == nil {
					bad("%s: no encryption", q.id)
				}
				overTLS(v, q, "AWS::SQS::QueuePolicy", "Queues", bad)
			}
		}},
	}
}

// overTLS: the resource has a policy that refuses everybody without TLS.
func overTLS(v *view, r *resource, kind, field string, bad report) {
	for _, p := range v.of(kind) {
		for _, of := range list(p.props[field]) {
			if v.target(of) != r {
				continue
			}
			for _, s := range statements(p.props["PolicyDocument"]) {
				if s.effect == "Deny" && s.cond["Bool"]["aws:SecureTransport"] == "false" && strings.HasSuffix(strings.Join(s.actions, ""), ":*") {
					return
				}
			}
		}
	}
	bad("%s: takes requests without TLS", r.id)
}
