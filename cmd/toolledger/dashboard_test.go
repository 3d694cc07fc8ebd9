package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolledger/internal/ops"
	"toolledger/metrics"
)

// body is a dashboard as somebody else reads it.
type body struct {
	Widgets []struct {
		Type       string
		X, Y       int
		Properties struct {
			Title, Region string
			Alarms        []string
			Metrics       [][]any
		}
	}
}

func dashboardOf(t *testing.T, args ...string) (string, body) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"dashboard", "--json"}, args...), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var b body
	if err := json.Unmarshal(stdout.Bytes(), &b); err != nil || strings.Count(stdout.String(), "\n") != 1 {
		t.Fatalf("%v in %q", err, stdout.String())
	}
	return stdout.String(), b
}

// TestDashboardJSON: without a stack the body keeps the template's references, but for what is said.
func TestDashboardJSON(t *testing.T) {
	noAWS(t)
	text, b := dashboardOf(t, "--region", "eu-west-1", "--set", "LedgerTable=mine", "--set", "RunbookUrl=https://wiki/ledger")
	for _, want := range []string{`"mine"`, "https://wiki/ledger#contention", "${StreamFunction}", "${AWS::StackName}"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "${LedgerTable}") || strings.Contains(text, "${AWS::Region}") || len(b.Widgets) != len(ops.Dashboard().Widgets) {
		t.Error("what was said is not in it, or not all is")
	}
}

// TestDashboardBadInput: what cannot be drawn or named is refused with one line.
func TestDashboardBadInput(t *testing.T) {
	noAWS(t)
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"no folder":           {[]string{"--png", "/there/is/none/x.png"}, "there is no folder /there/is/none"},
		"a folder":            {[]string{"--png", t.TempDir() + "/"}, "want the name of a file"},
		"an unknown name":     {[]string{"--json", "--set", "Ledger=x"}, "the dashboard has no such name"},
		"no value":            {[]string{"--json", "--set", "LedgerTable"}, "want NAME=VALUE"},
		"names for a picture": {[]string{"--png", "x.png", "--set", "LedgerTable=x"}, "--set is for --json"},
		"names for a list":    {[]string{"--set", "LedgerTable=x"}, "--set is for --json"},
		"a place for JSON":    {[]string{"--json", "--local", "x.db"}, "are for --png FILE"},
		"two places":          {[]string{"--png", "x.png", "--local", "x.db", "--endpoint", "http://127.0.0.1:1"}, "exclude each other"},
		"a stack of none":     {[]string{"--json", "--stack", "a b"}, "--stack"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"dashboard"}, tt.args...), &stdout, &stderr)
			if code != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), tt.text) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

// deployedStack is a CloudFormation with one stack that has everything but the doors in without.
func deployedStack(t *testing.T, without ...string) {
	t.Helper()
	raw, err := ops.Dashboard().JSON()
	if err != nil {
		t.Fatal(err)
	}
	var resources strings.Builder
	for _, ref := range ops.References(string(raw)) {
		name, _, _ := strings.Cut(ref, ".")
		if strings.HasPrefix(name, "AWS::") || name == "RunbookUrl" || strings.Contains(strings.Join(without, " "), name) {
			continue
		}
		fmt.Fprintf(&resources, `<member><LogicalResourceId>%s</LogicalResourceId><PhysicalResourceId>https://sqs/1/prod-%s</PhysicalResourceId>`+
			`<ResourceType>x</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus><LastUpdatedTimestamp>2026-11-01T00:00:00Z</LastUpdatedTimestamp></member>`, name, name)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action := r.FormValue("Action")
		inner := `<StackResourceSummaries>` + resources.String() + `</StackResourceSummaries>`
		if action == "DescribeStacks" {
			inner = `<Stacks><member><StackName>prod</StackName><StackId>arn:aws:cloudformation:eu-west-1:123456789012:stack/prod/1</StackId>` +
				`<CreationTime>2026-11-01T00:00:00Z</CreationTime><StackStatus>UPDATE_COMPLETE</StackStatus><Parameters><member>` +
				`<ParameterKey>RunbookUrl</ParameterKey><ParameterValue>https://wiki/runbook</ParameterValue></member></Parameters></member></Stacks>`
		}
		_, _ = fmt.Fprintf(w, "<%sResponse><%sResult>%s</%sResult></%sResponse>", action, action, inner, action, action)
	}))
	t.Cleanup(srv.Close)
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", srv.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
}

// TestDashboardOfStack: a deployed stack's dashboard has its names and no reference, and nothing about doors that it has not.
func TestDashboardOfStack(t *testing.T) {
	noAWS(t)
	deployedStack(t, "WriterDirectFunction", "BedrockFunction")
	text, b := dashboardOf(t, "--stack", "prod", "--region", "eu-west-1")
	if refs := ops.References(text); len(refs) > 0 {
		t.Errorf("references %v are left", refs)
	}
	for _, want := range []string{"prod-WriterHttpFunction", `"QueueName","prod-SweepFailures"`, "https://wiki/runbook#contention", "${PROP('Dim.Tenant')}"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "WriterDirect") || strings.Contains(text, "Bedrock door") || len(b.Widgets) != len(ops.Dashboard().Widgets) {
		t.Error("it shows doors that are not there, or lacks widgets")
	}
	deployedStack(t, "LedgerTable")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"dashboard", "--json", "--stack", "prod", "--region", "eu-west-1"}, &stdout, &stderr); code != 2 ||
		!strings.Contains(stderr.String(), "has no LedgerTable") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

// TestDashboardPicture: the picture of a ledger is drawn from its streams, and the ledger is left as it was.
func TestDashboardPicture(t *testing.T) {
	noAWS(t)
	local(t)
	dir := t.TempDir()
	ledger, file := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "dashboard.png")
	for _, args := range [][]string{
		{"demo", "--local", ledger, "--intents", "20", "--log-level", "error"},
		{"dashboard", "--png", file, "--local", ledger},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err := png.DecodeConfig(f); err != nil || img.Width < 1000 || img.Height < 1000 {
		t.Errorf("%+v, %v", img, err)
	}
}

// TestPictureStory: the story that is drawn without a ledger has its minutes one after the other, and what happens in it: replays,
// refunds by sweeps, effects settled late, denials.
func TestPictureStory(t *testing.T) {
	noAWS(t)
	local(t)
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(""), &stdout, &stderr)
	place, err := a.tryLocation(t.Context(), &where{})
	if err != nil {
		t.Fatal(err)
	}
	defer place.close()
	points, err := a.storyPoints(t.Context(), place, pictureStory{rounds: 14, intents: 70})
	if err != nil {
		t.Fatal(err)
	}
	minutes, sums := map[int64]bool{}, map[string]float64{}
	for _, p := range points {
		if p.Tenant == "" {
			minutes[p.Minute.Unix()] = true
			sums[p.Name] += p.Sum
		}
	}
	if n := len(minutes); n < 14 || n > 16 || sums[metrics.SweepRuns] != 14 {
		t.Errorf("%d minutes, %v sweeps", len(minutes), sums[metrics.SweepRuns])
	}
	for _, name := range []string{
		metrics.EffectsApplied, metrics.CallsReplayed, metrics.CallsInFlight, metrics.ReservationsExpired, metrics.ReservationsReleased,
		metrics.QuotaDenials, metrics.RecordsProcessed, metrics.OldestReservationAge,
	} {
		if sums[name] == 0 {
			t.Errorf("no %s", name)
		}
	}
	if sums[metrics.DoubleEffectsSuspected] != 0 || sums[metrics.RowsTampered] != 0 {
		t.Error(sums)
	}
}
