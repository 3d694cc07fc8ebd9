package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/smithy-go/encoding/cbor"
)

// The verdicts hold for what the real client makes of real answers: refused data, a fault, an answer that never comes, and
// a fault page of something in between. No case makes the client repeat a request by itself.
func TestCloudWatchOverHTTP(t *testing.T) {
	for name, tc := range map[string]struct {
		status            int
		code              string
		html, cut         bool
		requests, backlog int
	}{
		"taken":            {status: 200, requests: 1},
		"bad data":         {status: 400, code: "InvalidParameterValueException", requests: 2},
		"throttled":        {status: 400, code: "ThrottlingException", requests: 1, backlog: 1},
		"fault":            {status: 500, code: "InternalServiceFault", requests: 1, backlog: 1},
		"fault of a proxy": {status: 503, html: true, requests: 1, backlog: 1},
		"answer lost":      {cut: true, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if v, err := cbor.Decode(body); err != nil || v.(cbor.Map)["Namespace"] != cbor.String(DefaultNamespace) || r.Header.Get("Content-Encoding") != "" {
					t.Errorf("request %x: %v", body, err)
				}
				if requests.Add(1) > 1 {
					tc.cut, tc.status, tc.code = false, 200, "" // the report of what was dropped
				}
				switch {
				case tc.cut:
					panic(http.ErrAbortHandler)
				case tc.html:
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, "<html>no</html>")
					return
				}
				w.Header().Set("Content-Type", "application/cbor")
				w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
				w.WriteHeader(tc.status)
				if tc.code != "" {
					_, _ = w.Write(cbor.Encode(cbor.Map{"__type": cbor.String("com.amazonaws.cloudwatch#" + tc.code), "message": cbor.String("scripted")}))
					return
				}
				_, _ = w.Write(cbor.Encode(cbor.Map{}))
			}))
			defer server.Close()
			sink := newSink(t, cloudwatch.New(cloudwatch.Options{
				Region: "eu-central-1", BaseEndpoint: aws.String(server.URL), HTTPClient: server.Client(),
				Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
			}))
			err := sink.Record(t.Context(), []Datum{{CallsReserved, "", 1, noon}})
			if (err == nil) != (name == "taken") || sink.Backlog() != tc.backlog || requests.Load() != int64(tc.requests) {
				t.Errorf("got %v, backlog %d after %d requests", err, sink.Backlog(), requests.Load())
			}
		})
	}
}
