package tests_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolledger/internal/eventcheck"
	"toolledger/streams/events"
)

// fakeAWS is a bucket, an event bus, and a CloudWatch that must never be called, over HTTP.
type fakeAWS struct {
	t  *testing.T
	s3 *httptest.Server
	eb *httptest.Server

	mu       sync.Mutex
	objects  map[string][]byte // bucket/key
	deletes  []string
	gets     int
	puts     int
	details  map[string]json.RawMessage // by event id, as last delivered
	types    map[string]string
	times    map[string]int // how often each came
	metrics  int
	refuse   string                     // detail-type that the bus refuses for good
	fail     func(put int) (status int) // of PutEvents, counted from 1; 0: none
	failGets func(key string) (status int)
}

func newFakeAWS(t *testing.T) *fakeAWS {
	t.Helper()
	f := &fakeAWS{t: t, objects: map[string][]byte{}}
	f.forget()
	f.s3, f.eb = httptest.NewServer(http.HandlerFunc(f.serveS3)), httptest.NewServer(http.HandlerFunc(f.serveEvents))
	t.Cleanup(func() { f.s3.Close(); f.eb.Close() })
	return f
}

// forget empties the bus.
func (f *fakeAWS) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.details, f.types, f.times, f.puts = map[string]json.RawMessage{}, map[string]string{}, map[string]int{}, 0
}

// run runs the program with the fakes. What a test writes before and reads after it without the lock is ordered by it.
func (f *fakeAWS) run(args ...string) ran {
	f.t.Helper()
	got := runProgram(f.t, f.env, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	return got
}

// env points a program at the fakes.
func (f *fakeAWS) env(cmd *exec.Cmd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+f.s3.URL, "AWS_ENDPOINT_URL_EVENTBRIDGE="+f.eb.URL,
		"AWS_ENDPOINT_URL_CLOUDWATCH="+f.eb.URL, "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_MAX_ATTEMPTS=1")
}

func (f *fakeAWS) serveEvents(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("X-Amz-Target") != "AWSEvents.PutEvents" {
		f.metrics++
		w.WriteHeader(http.StatusNotFound)
		return
	}
	f.puts++
	if f.fail != nil {
		if status := f.fail(f.puts); status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"__type":"InternalException"}`)
			return
		}
	}
	var in struct {
		Entries []struct{ Source, DetailType, Detail, EventBusName string }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		f.t.Error(err)
	}
	failed, results := 0, []map[string]string{}
	for _, e := range in.Entries {
		if e.Source != events.Source || e.EventBusName != "the-bus" {
			f.t.Errorf("%+v", e)
		}
		if f.refuse == e.DetailType {
			failed++
			results = append(results, map[string]string{"ErrorCode": "NotAuthorizedForDetailTypeException", "ErrorMessage": "no"})
			continue
		}
		ev, err := events.ParseDetail(e.DetailType, []byte(e.Detail))
		if err != nil {
			f.t.Error(err)
			continue
		}
		if err := eventcheck.Detail(e.DetailType, []byte(e.Detail)); err != nil {
			f.t.Error(err)
		}
		id := ev.Head().ID
		f.details[id], f.types[id] = json.RawMessage(e.Detail), e.DetailType
		f.times[id]++
		results = append(results, map[string]string{"EventId": fmt.Sprint(f.puts)})
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"FailedEntryCount": failed, "Entries": results})
}

func (f *fakeAWS) serveS3(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		f.list(w, strings.TrimSuffix(path, "/"), r)
	case r.Method == http.MethodGet:
		f.gets++
		body, ok := f.objects[path]
		status := 0
		if f.failGets != nil {
			status = f.failGets(path)
		}
		if !ok {
			status = http.StatusNotFound
		}
		if status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `<Error><Code>NoSuchKey</Code></Error>`)
			return
		}
		_, _ = w.Write(body)
	case r.Method == http.MethodDelete:
		delete(f.objects, path)
		f.deletes = append(f.deletes, path)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.t.Errorf("%s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusBadRequest)
	}
}

// list answers ListObjectsV2, three keys a page.
func (f *fakeAWS) list(w http.ResponseWriter, bucket string, r *http.Request) {
	q := r.URL.Query()
	after := q.Get("start-after")
	if token := q.Get("continuation-token"); token != "" {
		after = token
	}
	var keys []string
	for path := range f.objects {
		if key, ok := strings.CutPrefix(path, bucket+"/"); ok && strings.HasPrefix(key, q.Get("prefix")) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	more := len(keys) > 3
	keys = keys[:min(3, len(keys))]
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("<Contents><Key>")
		_ = xml.EscapeText(&b, []byte(key))
		fmt.Fprintf(&b, "</Key><Size>%d</Size></Contents>", len(f.objects[bucket+"/"+key]))
	}
	if more {
		b.WriteString("<NextContinuationToken>" + keys[2] + "</NextContinuationToken>")
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = fmt.Fprintf(w, `<ListBucketResult><IsTruncated>%t</IsTruncated>%s</ListBucketResult>`, more, b.String())
}

// ids are the ids of the events on the bus, sorted.
func (f *fakeAWS) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.details))
	for id := range f.details {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// on runs the program with the fakes, which must end with code, and reads its JSON report from stdout.
func (f *fakeAWS) on(code int, report any, args ...string) ran {
	f.t.Helper()
	got := f.run(append(args, "--json")...)
	if got.code != code {
		f.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	if strings.Count(lastLines(got.stderr), "\n") > 0 || code != 0 && lastLines(got.stderr) == "" {
		f.t.Errorf("%v: want one line that says what went wrong: %s", args, got.stderr)
	}
	if report != nil {
		if err := json.Unmarshal([]byte(got.stdout), report); err != nil {
			f.t.Fatalf("%v: %v: %s%s", args, err, got.stdout, got.stderr)
		}
	}
	if f.metrics > 0 {
		f.t.Errorf("%v: metrics are counted", args)
	}
	return got
}
