package whole_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// leftOut are the kinds of resources that the local AWS cannot create, each with the rung that covers it instead.
var leftOut = map[string]string{
	"AWS::EventSchemas::Registry":              "3: names and references; aws: verify-aws reads it back",
	"AWS::EventSchemas::Schema":                "3: each is the schema that the events package has, and an OpenAPI 3 document",
	"AWS::Events::EventBusPolicy":              "3: who may subscribe, and that a condition fences it",
	"AWS::Events::Archive":                     "3: its bus and its days",
	"AWS::CloudWatch::CompositeAlarm":          "3: the rule's syntax, and that every alarm in it exists",
	"AWS::S3::BucketPolicy":                    "3: nobody without TLS; the local AWS has none, so they would keep the functions out",
	"AWS::CodeDeploy::Application":             "2: made by the transform; 3: alarms and role of the deployment",
	"AWS::CodeDeploy::DeploymentGroup":         "2: made by the transform; 3: alarms and role of the deployment",
	"AWS::CloudWatch::Alarm with Metrics":      "3: each expression and each metric that it names",
	"UpdatePolicy.CodeDeployLambdaAliasUpdate": "3: the canary; a new stack shifts no traffic",
}

// adaptations spell what the local AWS reads otherwise. Each must be found.
var adaptations = []struct{ onAWS, here, why string }{
	{
		`{"StringEquals":{"dynamodb:EnclosingOperation":`, `{"ForAnyValue:StringEquals":{"dynamodb:EnclosingOperation":`,
		"on AWS this key has one value, and StringEquals is the operator for it; the local one takes it for a list",
	},
	{
		`"ParallelizationFactor":{"Ref":"StreamParallelism"}`, `"ParallelizationFactor":1`,
		"AWS turns a parameter into a number where a property is one; the local one answers a text that the SDK cannot read",
	},
}

func adapted(t *testing.T, template []byte) []byte {
	t.Helper()
	for _, a := range adaptations {
		if !bytes.Contains(template, []byte(a.onAWS)) {
			t.Errorf("the template has no %s any more (%s)", a.onAWS, a.why)
		}
		template = bytes.ReplaceAll(template, []byte(a.onAWS), []byte(a.here))
	}
	return template
}

// deployment is the stack in the local AWS.
type deployment struct {
	*cloud
	name    string
	params  map[string]string
	outputs map[string]string
	ids     map[string]string // physical ids by logical id
}

// deploy creates the stack and waits for it.
func deploy(t *testing.T, c *cloud, params map[string]string) *deployment {
	t.Helper()
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]
	params["Architecture"] = arch
	template := transformed(t, params)
	store := s3.NewFromConfig(c.root(), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := store.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("artifacts")}); err != nil {
		t.Fatal(err)
	}
	put := func(key string, body []byte) {
		if _, err := store.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("artifacts"), Key: &key, Body: bytes.NewReader(body)}); err != nil {
			t.Fatal(err)
		}
	}
	functions := map[string]map[string]any{}
	for id, r := range resources(template) {
		if r["Type"] == "AWS::Lambda::Function" {
			functions[id], _ = r["Properties"].(map[string]any)
		}
	}
	for id, body := range packages(t, slices.Sorted(maps.Keys(functions)), arch) {
		put(id+".zip", body)
		functions[id]["Code"] = map[string]any{"S3Bucket": "artifacts", "S3Key": id + ".zip"}
	}
	t.Logf("left out: %s", strings.Join(leaveOut(t, template), ", "))
	text, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	put("template.json", adapted(t, text))
	d := &deployment{cloud: c, name: "ledger", params: params, outputs: map[string]string{}, ids: map[string]string{}}
	d.create(t)
	return d
}

func (d *deployment) create(t *testing.T) {
	t.Helper()
	client := cloudformation.NewFromConfig(d.root())
	if _, err := client.CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: &d.name, TemplateURL: d.template(), Capabilities: capabilities, Parameters: d.parameters(),
	}); err != nil {
		t.Fatal(err)
	}
	d.settle(t, client, types.StackStatusCreateComplete)
}

// update deploys the same template again, with other parameters.
func (d *deployment) update(t *testing.T) {
	t.Helper()
	client := cloudformation.NewFromConfig(d.root())
	if _, err := client.UpdateStack(t.Context(), &cloudformation.UpdateStackInput{
		StackName: &d.name, TemplateURL: d.template(), Capabilities: capabilities, Parameters: d.parameters(),
	}); err != nil {
		t.Fatal(err)
	}
	d.settle(t, client, types.StackStatusUpdateComplete)
}

var capabilities = []types.Capability{types.CapabilityCapabilityIam, types.CapabilityCapabilityNamedIam}

func (d *deployment) template() *string { return aws.String(d.url + "/artifacts/template.json") }

func (d *deployment) parameters() []types.Parameter {
	var out []types.Parameter
	for _, name := range slices.Sorted(maps.Keys(d.params)) {
		out = append(out, types.Parameter{ParameterKey: &name, ParameterValue: aws.String(d.params[name])})
	}
	return out
}

// settle waits until the stack has come to rest, and learns what its parts are called.
func (d *deployment) settle(t *testing.T, client *cloudformation.Client, want types.StackStatus) {
	t.Helper()
	var found types.Stack
	d.within(t, 3*time.Minute, "the stack has come to rest", func() bool {
		out, err := client.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &d.name})
		if err != nil || len(out.Stacks) != 1 {
			t.Fatalf("%v", err)
		}
		found = out.Stacks[0]
		return !strings.HasSuffix(string(found.StackStatus), "_IN_PROGRESS")
	})
	if found.StackStatus != want {
		why, err := client.DescribeStackEvents(t.Context(), &cloudformation.DescribeStackEventsInput{StackName: &d.name})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range why.StackEvents {
			if strings.Contains(string(e.ResourceStatus), "FAILED") {
				t.Errorf("%s: %s", aws.ToString(e.LogicalResourceId), aws.ToString(e.ResourceStatusReason))
			}
		}
		t.Fatalf("%s: %s", found.StackStatus, aws.ToString(found.StackStatusReason))
	}
	for _, o := range found.Outputs {
		d.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	made, err := client.DescribeStackResources(t.Context(), &cloudformation.DescribeStackResourcesInput{StackName: &d.name})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range made.StackResources {
		d.ids[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
	}
}

// resources are the template's, by logical id.
func resources(template map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	all, _ := template["Resources"].(map[string]any)
	for id, r := range all {
		out[id], _ = r.(map[string]any)
	}
	return out
}

// leaveOut takes out of the template what leftOut lists, and the outputs that speak of it. It returns what was taken.
func leaveOut(t *testing.T, template map[string]any) []string {
	t.Helper()
	all, _ := template["Resources"].(map[string]any)
	gone := map[string]bool{}
	counts := map[string]int{}
	for id, r := range resources(template) {
		kind := fmt.Sprint(r["Type"])
		if props, _ := r["Properties"].(map[string]any); kind == "AWS::CloudWatch::Alarm" && props["Metrics"] != nil {
			kind += " with Metrics"
		}
		if _, listed := leftOut[kind]; listed {
			gone[id] = true
			counts[kind]++
			delete(all, id)
		}
		if policy, _ := r["UpdatePolicy"].(map[string]any); policy["CodeDeployLambdaAliasUpdate"] != nil {
			counts["UpdatePolicy.CodeDeployLambdaAliasUpdate"]++
			delete(r, "UpdatePolicy")
		}
	}
	for kind := range leftOut {
		if counts[kind] == 0 {
			t.Errorf("the list leaves out %s, which the template does not have", kind)
		}
	}
	outputs, _ := template["Outputs"].(map[string]any)
	for name, o := range outputs {
		if text, err := json.Marshal(o); err == nil && mentions(string(text), gone) {
			delete(outputs, name)
		}
	}
	for id, r := range resources(template) {
		if on, ok := r["DependsOn"]; ok {
			var rest []any
			list, isList := on.([]any)
			if !isList {
				list = []any{on}
			}
			for _, o := range list {
				if !gone[fmt.Sprint(o)] {
					rest = append(rest, o)
				}
			}
			r["DependsOn"] = rest
		}
		if text, err := json.Marshal(r); err == nil && mentions(string(text), gone) {
			t.Errorf("%s speaks of what is left out", id)
		}
	}
	var out []string
	for kind, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(out)
	return out
}

// mentions tells whether a part of a template refers to one of ids.
func mentions(text string, ids map[string]bool) bool {
	for id := range ids {
		for _, form := range []string{`{"Ref":"` + id + `"}`, `{"Fn::GetAtt":["` + id + `"`, "${" + id + "}", "${" + id + "."} {
			if strings.Contains(text, form) {
				return true
			}
		}
	}
	return false
}

// zipped is a zip with an executable bootstrap at its root.
func zipped(t *testing.T, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	if err == nil {
		if _, err = w.Write(body); err == nil {
			err = z.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
