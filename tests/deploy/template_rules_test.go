package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// report takes one fault that a rule finds.
type report func(format string, args ...any)

// rule is one promise of the deployment that cfn-lint does not know of. It is checked on a stack as it would be deployed.
type rule struct {
	name  string
	check func(v *view, bad report)
}

// view is all that a rule may look at.
type view struct {
	*stack
	sam   object // the template before the transform
	mains map[string]string
	given map[string]string // the parameters that somebody chose
	repo  string
}

// ladder3 are the rules of the third rung, by the part of the stack that they are about.
func ladder3() []rule {
	return slices.Concat(tableRules(), storageRules(), functionRules(), sourceRules(), roleRules(), eventRules(), doorRules(), alarmRules(), dashboardRules(), operationRules())
}

// variant is one choice of parameters.
type variant struct {
	name   string
	params map[string]string
}

// doorsOpen switches on all that is optional.
var doorsOpen = map[string]string{
	"HttpAuth": "jwt", "JwtIssuer": "https://issuer.example.com", "JwtAudience": "toolledger", "AdminRoles": `["123456789012/ops"]`,
	"DirectDoor": "true", "DirectInvoker": "arn:aws:iam::210987654321:role/planner", "BedrockDoor": "true",
	"BedrockAgentArn": "arn:aws:bedrock:eu-central-1:123456789012:agent/AGENT12345", "AgentCoreDoor": "true",
	"AgentCoreGatewayRoleArn": "arn:aws:iam::123456789012:role/gateway", "SubscriberExample": "true",
	"SweepVerifiers":    `{"open_pr":"arn:aws:lambda:eu-central-1:123456789012:function:verify"}`,
	"SweepVerifierArns": "arn:aws:lambda:eu-central-1:123456789012:function:verify", "SubscriberAccounts": "210987654321",
	"KmsKeyArn": "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-1111-2222-3333-444444444444", "WriterConcurrency": "50",
	"StreamConcurrency": "10", "SweeperConcurrency": "2", "MaxReadUnits": "4000", "MaxWriteUnits": "4000", "WarmReadUnits": "12000",
	"WarmWriteUnits": "4000", "MetricTenants": "200", "PageTopicArn": "arn:aws:sns:eu-central-1:123456789012:page",
	"NoticeTopicArn": "arn:aws:sns:eu-central-1:123456789012:notice",
}

// doorsIAM is the HTTP door for callers with IAM roles.
var doorsIAM = map[string]string{"HttpAuth": "iam", "IamTenants": `{"123456789012/planner":"acme"}`}

// doors is how many choices of doors variants has for each stage and architecture.
const doors = 3

// variants are every stage and architecture, each with nothing optional, all of it, and the other authorizer.
func variants() []variant {
	var all []variant
	for _, stage := range []string{"dev", "staging", "prod"} {
		for _, arch := range []string{"arm64", "x86_64"} {
			for _, doors := range []variant{{"closed", nil}, {"open", doorsOpen}, {"iam", doorsIAM}} {
				params := map[string]string{"Stage": stage, "Architecture": arch}
				for k, v := range doors.params {
					params[k] = v
				}
				all = append(all, variant{stage + "/" + arch + "/" + doors.name, params})
			}
		}
	}
	return all
}

// look evaluates a transformed template and makes it ready for the rules.
func look(t *testing.T, v variant, sam, transformed object) *view {
	t.Helper()
	w := &view{stack: evaluate(v.name, transformed, v.params), sam: sam, mains: mainsOf(t, sam), given: v.params, repo: root}
	return w
}

// judge runs all rules and returns what they find, once each.
func judge(v *view) []finding {
	var all []finding
	add := func(name, format string, args ...any) {
		f := finding{Rule: name, Message: fmt.Sprintf(format, args...)}
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	for _, p := range v.problems {
		add("evaluates", "%s", p)
	}
	for _, r := range ladder3() {
		r.check(v, func(format string, args ...any) { add(r.name, format, args...) })
	}
	return all
}

var mainsSeen sync.Map // of build target to package, since make is asked once for each

var packageAtEnd = regexp.MustCompile(`(?m)go build .* (\./\S+)\s*$`)

// mainsOf tells which main package each function is built from, by asking make what it would run.
func mainsOf(t *testing.T, sam object) map[string]string {
	t.Helper()
	out := map[string]string{}
	for id, r := range child(sam, "Resources") {
		if str(asObject(r)["Type"]) != "AWS::Serverless::Function" {
			continue
		}
		main, ok := mainsSeen.Load(id)
		if !ok {
			cmd := exec.CommandContext(t.Context(), "make", "-n", "build-"+id, "ARTIFACTS_DIR=artifacts")
			cmd.Dir = root
			says, _ := cmd.CombinedOutput() // no such target is a finding of the rules
			m := packageAtEnd.FindSubmatch(says)
			main = ""
			if m != nil {
				main = string(m[1])
			}
			mainsSeen.Store(id, main)
		}
		if main != "" {
			out[id] = main.(string)
		}
	}
	return out
}

// filesRead are the repository's files that rules have asked for, since they ask for the same ones of every stack.
var filesRead sync.Map

// file reads a file of the repository; "" where there is none.
func (v *view) file(name string) string {
	if text, ok := filesRead.Load(name); ok {
		return text.(string)
	}
	b, err := os.ReadFile(filepath.Join(v.repo, filepath.FromSlash(name)))
	if err != nil {
		b = nil
	}
	filesRead.Store(name, string(b))
	return string(b)
}

// functions are the stack's functions, and what is known of each.
func (v *view) functions() []function {
	var all []function
	for _, r := range v.of("AWS::Lambda::Function") {
		f := function{resource: r, main: v.mains[r.id], env: asObject(dig(r.props, "Environment", "Variables"))}
		f.role = v.target(r.props["Role"])
		switch f.main {
		case "./writers/lambda":
			f.door = str(f.env["DOOR"])
		case "./streams/lambda":
			f.door = "stream"
		case "./sweeper/lambda":
			f.door = "sweeper"
		default:
			f.door = "example"
		}
		all = append(all, f)
	}
	return all
}

// function is a deployed function. door says what it is for: http, direct, admin, stream, sweeper or example.
type function struct {
	*resource
	main, door string
	env        object
	role       *resource
}

// table is the table that functions get under the name of a variable.
func (v *view) table(name string) *resource {
	for _, f := range v.functions() {
		if t := v.target(f.env[name]); t != nil && t.kind == "AWS::DynamoDB::Table" {
			return t
		}
	}
	return nil
}

func (v *view) ledger() *resource  { return v.table("LEDGER_TABLE") }
func (v *view) control() *resource { return v.table("LEDGER_CONTROL_TABLE") }

// about tells whether an ARN or a name is this resource or something in it.
func about(text string, r *resource) bool {
	return r != nil && (strings.Contains(text, "${"+r.id+"}") || strings.Contains(text, "${"+r.id+"."))
}
