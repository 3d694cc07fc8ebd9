package sweeper

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"toolledger/writers"
)

// Promise: a function is asked by a signed Invoke, and only an answer of a function that ended well, and that says one of
// the three words, counts; all else is an error, which means unknown.
func TestFunctions(t *testing.T) {
	var status int
	var functionError, answer, path, auth, body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		path, auth, body = r.URL.EscapedPath(), r.Header.Get("Authorization"), string(b)
		if functionError != "" {
			w.Header().Set("X-Amz-Function-Error", functionError)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	cfg := aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(srv.URL), HTTPClient: srv.Client(),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}
	ask, err := Functions(cfg, map[string]string{"book": "arn:aws:lambda:eu-central-1:1:function:v:live"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		status                int
		functionError, answer string
		verdict               string
		refused               bool
	}{
		"applied":               {200, "", `{"verdict":"applied","result":{"a":1}}`, "applied", false},
		"absent":                {200, "", `{"verdict":"absent"}`, "absent", false},
		"unknown":               {200, "", `{"verdict":"unknown"}`, "unknown", false},
		"failed":                {200, "Unhandled", `{"errorMessage":"secret"}`, "", true},
		"throttled":             {429, "", `{"message":"secret"}`, "", true},
		"no verdict":            {200, "", `{}`, "", true},
		"null":                  {200, "", `null`, "", true},
		"other word":            {200, "", `{"verdict":"Applied"}`, "", true},
		"unknown field":         {200, "", `{"verdict":"absent","more":1}`, "", true},
		"absent with a result":  {200, "", `{"verdict":"absent","result":"secret"}`, "", true},
		"cut off":               {200, "", `{"verdict":"applied","result":"secr`, "", true},
		"trailing":              {200, "", `{"verdict":"absent"} {"verdict":"applied"}`, "", true},
		"accepted asynchronous": {202, "", ``, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			status, functionError, answer = tt.status, tt.functionError, tt.answer
			got, err := ask(t.Context(), VerifyRequest{Tool: "book", Tenant: "acme"})
			if tt.refused != (err != nil) || got.Verdict != tt.verdict {
				t.Errorf("%+v, %v", got, err)
			}
			if err != nil && (!errors.Is(err, ErrVerifier) || strings.Contains(err.Error(), "secret\"")) {
				t.Errorf("error %v", err)
			}
		})
	}
	if path != "/2015-03-31/functions/arn:aws:lambda:eu-central-1:1:function:v:live/invocations" {
		t.Error(path)
	}
	if !strings.Contains(auth, "/eu-central-1/lambda/aws4_request") || !strings.Contains(body, `"tenant":"acme"`) {
		t.Error(auth, body)
	}
	if _, err := ask(t.Context(), VerifyRequest{Tool: "other"}); !errors.Is(err, ErrNoVerifier) {
		t.Error("a tool without a function: ", err)
	}
	for _, bad := range []map[string]string{{"": "f"}, {"t": ""}, {"t": "../x"}, {"t": "f?x"}} {
		if _, err := Functions(cfg, bad); !errors.Is(err, writers.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := Functions(aws.Config{}, map[string]string{"t": "f"}); !errors.Is(err, writers.ErrInvalid) {
		t.Error("no region: ", err)
	}
}
