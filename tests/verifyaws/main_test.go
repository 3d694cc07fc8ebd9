package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"toolledger/tests/verifyaws/checks"
)

// Promise: nothing is asked of AWS, let alone written, before the command line makes sense and somebody has agreed.
func TestAsksFirst(t *testing.T) {
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusForbidden)
	}))
	defer srv.Close()
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_PROFILE": "",
	} {
		t.Setenv(name, value)
	}
	for _, c := range []struct {
		args  []string
		stdin string
		says  string
		asks  bool // of AWS
	}{
		{nil, "", "-stack NAME is required", false},
		{[]string{"-stack", "prod", "now"}, "", "nothing else", false},
		{[]string{"-stack", "prod", "-bogus"}, "", "-bogus", false},
		{[]string{"-stack", "prod", "-write"}, "", "nothing was done", false},
		{[]string{"-stack", "prod", "-write"}, "no\n", "nothing was done", false},
		{[]string{"-stack", "prod", "-write"}, "y\n", "no credentials that AWS takes", true},
		{[]string{"-stack", "prod", "-write", "-yes"}, "", "no credentials that AWS takes", true},
		{[]string{"-stack", "prod"}, "", "no credentials that AWS takes", true},
	} {
		requests = 0
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), c.args, strings.NewReader(c.stdin), &stdout, &stderr)
		if code != exitBadInput || stdout.Len() != 0 || !strings.Contains(stderr.String(), c.says) || c.asks != (requests > 0) {
			t.Errorf("%v %q: code %d, %d requests, stdout %q, stderr %q", c.args, c.stdin, code, requests, stdout.String(), stderr.String())
		}
	}
}

// Promise: a person reads each check on a line with why, a program reads one JSON object.
func TestShow(t *testing.T) {
	report := checks.Report{Stack: "prod", Account: "123456789012", Region: "eu-central-1", Failed: 1, Results: []checks.Result{
		{Group: "roles", Name: "a", Status: checks.OK}, {Group: "ttl", Name: "enabled", Status: checks.Failed, Detail: "it is off"},
	}}
	var out bytes.Buffer
	if err := show(report, false, &out); err != nil || !strings.Contains(out.String(), "failed   ttl       enabled: it is off\n") || !strings.HasSuffix(out.String(), "2 checks, 1 failed, 0 unknown\n") {
		t.Errorf("%v %q", err, out.String())
	}
	out.Reset()
	if err := show(report, true, &out); err != nil || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), `"status":"failed","detail":"it is off"`) {
		t.Errorf("%v %q", err, out.String())
	}
}
