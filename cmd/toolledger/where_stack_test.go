package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
)

// formation is a CloudFormation that knows stacks by name, each with its outputs.
func formation(t *testing.T, stacks map[string]map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.FormValue("StackName")
		outputs, ok := stacks[name]
		switch {
		case r.FormValue("Action") != "DescribeStacks":
			t.Errorf("asked for %q", r.FormValue("Action"))
		case name == "closed":
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>`)
			return
		case !ok:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`, name)
			return
		}
		var members strings.Builder
		for key, value := range outputs {
			fmt.Fprintf(&members, "<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>", key, value)
		}
		_, _ = fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>%s</StackName>`+
			`<CreationTime>2026-11-01T00:00:00Z</CreationTime><StackStatus>UPDATE_COMPLETE</StackStatus><Outputs>%s</Outputs></member></Stacks>`+
			`</DescribeStacksResult></DescribeStacksResponse>`, name, members.String())
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// Promise: --stack finds the tables that a deployed stack says it has, and nothing else; whatever keeps it from that is said.
func TestStackLocation(t *testing.T) {
	noAWS(t)
	srv := local(t)
	if _, err := stack.CreateTables(t.Context(), dynamodb.NewFromConfig(srv.AWSConfig()), "prod-LedgerTable-1X", "prod-ControlTable-2Y", true); err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{
		outputTable: "prod-LedgerTable-1X", outputControl: "prod-ControlTable-2Y", outputBus: "prod-events", outputFailures: "prod-failures",
	}
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", formation(t, map[string]map[string]string{
		"prod": whole, "other": {"BucketName": "b"}, "gone": {outputTable: "gone-LedgerTable", outputControl: "gone-ControlTable"},
		"strange": {outputTable: "a#b", outputControl: "prod-ControlTable-2Y"},
	}))
	for _, kv := range srv.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	a := newApp(strings.NewReader(""), t.Output(), t.Output())
	l, err := a.lookLocation(t.Context(), &where{stack: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	if l.table != whole[outputTable] || l.control != whole[outputControl] || l.ledgerStream == "" || l.deployed == nil ||
		l.deployed.bus != "prod-events" || l.deployed.failures != "prod-failures" {
		t.Errorf("%+v, %+v", l, l.deployed)
	}
	for name, want := range map[string]string{
		"missing": "there is no stack missing in Region us-east-1", "other": "no output LedgerTableName", "closed": "AccessDenied",
		"gone": "there is no table gone-LedgerTable", "strange": `--table "a#b"`,
	} {
		if _, err := a.lookLocation(t.Context(), &where{stack: name}); err == nil || !strings.Contains(err.Error(), want) || exitCode(t.Context(), err) != 2 {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"audit", "--stack", "prod", "--json"}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "prod-LedgerTable-1X") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", "http://127.0.0.1:1")
	if _, err := a.lookLocation(t.Context(), &where{stack: "prod"}); err == nil || !strings.Contains(err.Error(), "no CloudFormation answers") {
		t.Errorf("got %v", err)
	}
}
