package whole_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	lambdasdk "github.com/aws/aws-sdk-go-v2/service/lambda"
)

// sweepWait is what two sweeps take, and some time to start.
const sweepWait = 150 * time.Second

// Promise: the stack that the template describes works as a whole, with the roles that it gives its functions: a call that is
// reserved, whose function dies, and that is tried again has one effect; subscribers hear of it; what a dead worker held comes
// back by the schedule alone; and the books balance.
func TestWholeStack(t *testing.T) {
	i := newIssuer(t)
	d := deploy(t, startCloud(t, "SSL_CERT_FILE="+i.certificate), map[string]string{
		"Stage": "dev", "HttpAuth": "iam", "IamTenants": `{"` + account + `/planner":"acme"}`, "AdminRoles": `["` + account + `/ops"]`,
		"DirectDoor": "true", "BedrockDoor": "true", "AgentCoreDoor": "true", "SubscriberExample": "true", "ClockSkewSeconds": "1",
	})
	deployed := time.Now()
	sub := d.subscribe(t)
	ops := d.assume(t, "ops", d.outputs["AdminInvokeArn"])
	planner := d.assume(t, "planner", d.outputs["HttpApiInvokeArn"])
	d.doors(t, ops, planner)

	// A worker dies right after it has reserved: nobody will finalize this, so the schedule must give it back.
	planner.post(t, http.StatusOK, "reserve", map[string]any{
		"session": "s1", "key": "abandoned", "tool": "send_mail", "args": map[string]any{}, "tokens": 30, "idempotent": true, "lease_seconds": 1, "horizon_seconds": 1,
	})
	d.story(t, planner)
	d.within(t, time.Minute, "the subscriber hears of the effect", func() bool { return sub.has(t, "ToolEffectApplied", "pr") })
	d.verify(t)
	d.tokens(t, i)
	program := d.build(t, "./cmd/toolledger")
	d.within(t, sweepWait, "the scheduled sweep gives the abandoned reservation back", func() bool { return sub.has(t, "ReservationExpired", "abandoned") })
	t.Logf("the schedule has swept %s after the deployment; events%s", time.Since(deployed).Round(time.Second), sub.kinds())
	quota := d.invoke(t, "WriterDirectArn", []byte(`{"op":"quota","tenant":"acme"}`))
	if left := fmt.Sprint(quota["remaining_tokens"]); left != "940" { // of 1,000: 20 for pr, 20 for the direct call, 10 each for two tickets
		t.Errorf("quota %v, want 940 remaining", quota)
	}
	d.views(t)
	d.audit(t, program)
}

// doors calls every function once, through whatever stands in front of it, and shows who may not.
func (d *deployment) doors(t *testing.T, ops, planner *person) {
	t.Helper()
	plan := map[string]any{"tokens": 1000, "period": "monthly"}
	if status, doc := planner.call(t, http.MethodPut, "/v1/tenants/acme/plan", plan); status != http.StatusForbidden {
		t.Errorf("a planner sets plans: %d %v", status, doc)
	}
	if status, doc := ops.call(t, http.MethodPut, "/v1/tenants/acme/plan", plan); status != http.StatusOK {
		t.Fatalf("plan: %d %v", status, doc)
	}
	if status, doc := ops.call(t, http.MethodPost, "/v1/reserve", map[string]any{"session": "s", "key": "k", "tool": "t"}); status != http.StatusForbidden {
		t.Errorf("an administrator reserves: %d %v", status, doc)
	}
	if doc := d.invoke(t, "WriterDirectArn", golden(t, "direct.json")); doc["outcome"] != "reserved" {
		t.Errorf("direct: %v", doc)
	} else {
		done := d.invoke(t, "WriterDirectArn", []byte(fmt.Sprintf(
			`{"op":"finalize","tenant":"acme","session":"conversation-17","key":"plan-3/step-1","row_id":%q,"attempt":1,"result":1}`, doc["row_id"])))
		if done["outcome"] != "applied" {
			t.Errorf("direct: %v", done)
		}
	}
	for _, name := range []string{"bedrock-api.json", "bedrock-function.json"} {
		if text := fmt.Sprint(d.invoke(t, "BedrockArn", golden(t, name))); !strings.Contains(text, `"status":"open"`) {
			t.Errorf("%s: %s", name, text)
		}
	}
	// The local AWS hands no client context on, so this one runs and knows that it was not called by a gateway.
	if doc := d.invoke(t, "AgentCoreArn", golden(t, "agentcore.json")); doc["errorType"] != "ShapeError" {
		t.Errorf("agentcore: %v", doc)
	}
}

// story is one call: reserved, its function killed, tried again, and finalized by whoever came second.
func (d *deployment) story(t *testing.T, planner *person) {
	t.Helper()
	call := map[string]any{"session": "s1", "key": "pr", "tool": "create_pull_request", "args": map[string]any{"repo": "acme/api"}, "tokens": 20}
	first := planner.post(t, http.StatusOK, "reserve", call)
	d.kill(t, d.ids["WriterHttpFunction"])
	again := planner.post(t, http.StatusConflict, "reserve", call)
	if again["code"] != "in_progress" || again["row_id"] != first["row_id"] {
		t.Fatalf("%v after %v", again, first)
	}
	// The second caller finds the pull request by the effect key, so it records it under the attempt that made it.
	finalize := map[string]any{"session": "s1", "key": "pr", "row_id": again["row_id"], "attempt": again["attempt"], "result": map[string]any{"number": 7}}
	if doc := planner.post(t, http.StatusOK, "finalize", finalize); doc["outcome"] != "applied" {
		t.Fatal(doc)
	}
	if doc := planner.post(t, http.StatusOK, "reserve", call); doc["outcome"] != "replayed" || fmt.Sprint(doc["result"]) != "map[number:7]" {
		t.Fatal(doc)
	}
	call["args"] = map[string]any{"repo": "acme/other"}
	if doc := planner.post(t, http.StatusUnprocessableEntity, "reserve", call); doc["code"] != "key_conflict" {
		t.Fatal(doc)
	}
}

// views looks at what others made of the events and metrics: the example subscriber's table, and the sweep's figures.
func (d *deployment) views(t *testing.T) {
	t.Helper()
	db := dynamodb.NewFromConfig(d.root())
	d.within(t, time.Minute, "the example subscriber has seen the effect", func() bool {
		out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(d.ids["SubscriberTable"])})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Items) > 1
	})
	cw := cloudwatch.NewFromConfig(d.root())
	d.within(t, time.Minute, "the sweep has counted itself", func() bool {
		out, err := cw.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{MetricName: aws.String("SweepRuns")})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Metrics) > 0
	})
}

// verify runs what proves a stack in a real account. Here it can see less: the local IAM simulates without condition keys, so
// what must be allowed under one is not; it does not know the key of observations, counts nothing that a mapping filters, and
// its CloudFormation switches no TTL on.
func (d *deployment) verify(t *testing.T) {
	t.Helper()
	program := d.build(t, "./tests/verifyaws")
	cmd := exec.CommandContext(t.Context(), program, "-stack", d.name, "-write", "-yes", "-wait", "10s", "-json", "-url",
		d.url+"/_aws/execute-api/"+d.ids["HttpApi"]+"/$default")
	cmd.Env = d.environ(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // exit code 1 says what the report says
	var report struct {
		Results []struct{ Group, Name, Status, Detail string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("verifyaws: %v: %s%s", err, out, stderr.String())
	}
	count := map[string]int{}
	for _, r := range report.Results {
		count[r.Group+" "+r.Status]++
		blind := r.Group == "roles" && strings.HasSuffix(r.Name, "(must)") || r.Group == "write" && r.Name == "observation" || r.Group == "ttl"
		if r.Status == "failed" && !blind {
			t.Errorf("verifyaws: %s: %s: %s", r.Group, r.Name, r.Detail)
		}
	}
	if count["roles ok"] < 50 || count["mappings ok"] < 10 || count["front ok"] < 8 || count["write ok"] < 2 {
		t.Errorf("verifyaws: %v: %s", count, out)
	}
	t.Logf("verifyaws: %v", count)
}

// environ is what a program on this machine needs to find the local AWS.
func (d *deployment) environ(t *testing.T) []string {
	t.Helper()
	return []string{"AWS_ENDPOINT_URL=" + d.url, "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "HOME=" + t.TempDir()}
}

// build makes one of the project's programs.
func (d *deployment) build(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// audit runs the operator's command against the stack, found by its name.
func (d *deployment) audit(t *testing.T, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "audit", "--stack", d.name, "--skew", "1s", "--json")
	cmd.Env = d.environ(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("audit: %v: %s%s", err, out, stderr.String())
	}
	t.Logf("audit: %s", out)
	var report struct {
		Report struct {
			OK bool `json:"ok"`
		} `json:"report"`
		OK bool `json:"ok"`
	}
	if err := json.Unmarshal(out, &report); err != nil || !report.OK && !report.Report.OK {
		t.Errorf("%v: %s", err, out)
	}
}

// invoke calls a function that an output names.
func (d *deployment) invoke(t *testing.T, output string, event []byte) map[string]any {
	t.Helper()
	out, err := lambdasdk.NewFromConfig(d.root()).Invoke(t.Context(), &lambdasdk.InvokeInput{FunctionName: aws.String(d.outputs[output]), Payload: event})
	if err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	var doc map[string]any
	if err := json.Unmarshal(out.Payload, &doc); err != nil {
		t.Fatalf("%s: %v %s", output, err, out.Payload)
	}
	return doc
}

// kill ends the process of a function as the end of its machine would. Only Linux says which process that is.
func (d *deployment) kill(t *testing.T, function string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Log("the function's process is not killed: finding it needs Linux's /proc")
		return
	}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 3 || fields[2] != strconv.Itoa(d.cmd.Process.Pid) { // not of the group of this test's local AWS
			continue
		}
		env, err := os.ReadFile(filepath.Join(filepath.Dir(name), "environ"))
		if err != nil || !strings.Contains(string(env), "AWS_LAMBDA_FUNCTION_NAME="+function+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no process of %s", function)
}

// golden reads an event of ../testdata/events.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata/events", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
