package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"toolledger/internal/stack"
	"toolledger/tests/rig"
)

// bucket answers as S3 does for what the functions ask of one, conditional puts included.
type bucket struct {
	mu      sync.Mutex
	objects map[string]string
	gets    int
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, there := b.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPut && there && r.Header.Get("If-None-Match") == "*":
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, "<Error><Code>PreconditionFailed</Code></Error>")
	case r.Method == http.MethodPut:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b.objects[r.URL.Path] = string(text)
	case r.Method == http.MethodGet && there:
		b.gets++
		_, _ = io.WriteString(w, body)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	}
}

// largeDoor is a door as main sets it up from its environment, before a table and, beside it, a bucket.
func largeDoor(t *testing.T, door, resultBucket string) (served, *bucket) {
	t.Helper()
	g := rig.New(t)
	b := &bucket{objects: map[string]string{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	for _, line := range append(stack.Environ(*g.AWS.BaseEndpoint), "AWS_ENDPOINT_URL_S3="+srv.URL) {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
	env := map[string]string{"DOOR": door, "LEDGER_TABLE": g.Table, "RESULT_BUCKET": resultBucket}
	h, err := setUp(t.Context(), settings(env), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, h), b
}

// asked is an operation as the door takes it.
func asked(t *testing.T, door, op, fields string) json.RawMessage {
	t.Helper()
	if door == "direct" {
		return json.RawMessage(`{"op":"` + op + `","tenant":"acme",` + fields + "}")
	}
	return sent{method: "POST", path: "/v1/" + op, authorizer: `{"jwt":{"claims":{"tenant":"acme"}}}`, body: "{" + fields + "}"}.event(t)
}

// resultOf is the result in an answer, in the bytes in which it is there.
func resultOf(t *testing.T, body string) string {
	t.Helper()
	var doc struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	return string(doc.Result)
}

// large is a result of 300 KB, as an encoder would not write it.
var large = `{ "z": "` + strings.Repeat(`é<\"`, 60<<10) + `", "a": 1.0 }`

// Promise: with a bucket, a function keeps a result that no row holds, of a commit and of a finalize, and every replay gives back
// its bytes.
func TestLargeResultsAreKept(t *testing.T) {
	for _, door := range []string{"http", "direct"} {
		t.Run(door, func(t *testing.T) {
			f, b := largeDoor(t, door, "ledger-results")
			ask := func(op, fields string) string {
				t.Helper()
				got, err := f(t.Context(), asked(t, door, op, fields))
				if err != nil || got.IsBase64Encoded {
					t.Fatal(err)
				}
				return got.Body
			}
			var held struct {
				RowID string `json:"row_id"`
			}
			commit := `"session":"s","key":"c","tool":"t","args":{},"result":` + large
			if err := json.Unmarshal([]byte(ask("reserve", `"session":"s","key":"f","tool":"t"`)), &held); err != nil {
				t.Fatal(err)
			}
			finalize := `"session":"s","key":"f","row_id":"` + held.RowID + `","attempt":1,"result":` + large
			for n, body := range []string{
				ask("commit", commit), ask("commit", commit), ask("commit", `"session":"s","key":"c","tool":"t"`),
				ask("finalize", finalize), ask("finalize", finalize), ask("reserve", `"session":"s","key":"f","tool":"t"`),
			} {
				if got := resultOf(t, body); got != large {
					t.Errorf("answer %d has %d bytes of result, want the %d that were given: %.120s", n, len(got), len(large), body)
				}
			}
			// The third is what the repeated commit put before its transaction found the first: a lifecycle rule removes such.
			if len(b.objects) != 3 || b.gets == 0 {
				t.Errorf("%d objects, read %d times", len(b.objects), b.gets)
			}
			for path, body := range b.objects { // under the prefix that the template's roles name
				if !strings.HasPrefix(path, "/ledger-results/results/") || body != large {
					t.Errorf("an object of %d bytes at %s", len(body), path)
				}
			}
		})
	}
}

// Promise: without a bucket such a result is refused as too large before anything is written.
func TestLargeResultsWithoutABucket(t *testing.T) {
	for _, door := range []string{"http", "direct"} {
		f, b := largeDoor(t, door, "")
		got, err := f(t.Context(), asked(t, door, "commit", `"session":"s","key":"c","tool":"t","result":`+large))
		if err != nil || !strings.Contains(got.Body, `"too_large"`) || len(b.objects) != 0 || len(got.Body) > 1<<10 {
			t.Errorf("%s: %.300s, %v, %d objects", door, got.Body, err, len(b.objects))
		}
		if door == "http" && got.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", got.StatusCode)
		}
		got, err = f(t.Context(), asked(t, door, "commit", `"session":"s","key":"c","tool":"t","result":"short"`))
		if err != nil || !strings.Contains(got.Body, `"outcome":"applied"`) {
			t.Errorf("%s: after the refusal: %.300s, %v", door, got.Body, err)
		}
	}
}
