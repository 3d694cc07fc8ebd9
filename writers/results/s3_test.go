package results_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/writers"
	"toolledger/writers/results"
)

// bucket answers as S3 does for what the store asks, conditional puts included.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    int
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		if _, ok := b.objects[r.URL.Path]; ok && r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, `<Error><Code>PreconditionFailed</Code></Error>`)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b.puts++
		b.objects[r.URL.Path] = body
	case http.MethodGet:
		body, ok := b.objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `<Error><Code>NoSuchKey</Code></Error>`)
			return
		}
		_, _ = w.Write(body)
	case http.MethodDelete:
		delete(b.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}
}

func newStore(t *testing.T) (*results.S3, *bucket) {
	t.Helper()
	b := &bucket{objects: map[string][]byte{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true,
		Credentials:                credentials.NewStaticCredentialsProvider("local", "local", ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
	s, err := results.NewS3(client, "ledger-results", "")
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// Put twice is one object, and what comes back is what went in, byte for byte.
func TestPutIsIdempotentAndGetExact(t *testing.T) {
	s, b := newStore(t)
	body := bytes.Repeat([]byte("\u00e9{} "), 100_000)
	sum := sha256.Sum256(body)
	first, err := s.Put(t.Context(), "acme", "ROW1", sum, body)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Put(t.Context(), "acme", "ROW1", sum, body)
	if err != nil || again != first || b.puts != 1 {
		t.Fatalf("again: %q %v after %d puts, want %q", again, err, b.puts, first)
	}
	got, err := s.Get(t.Context(), first)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	if err := s.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), first); err == nil {
		t.Fatal("the object is still there")
	}
	if err := s.Delete(t.Context(), first); err != nil {
		t.Fatal("deleting what is gone:", err)
	}
}

// No tenant's objects begin like another's, whatever the tenants are called.
func TestTenantsNeverShareAPrefix(t *testing.T) {
	s, _ := newStore(t)
	names := []writers.TenantID{"a", "a/", "a/b", "ab", "../a", "a%2Fb", "A", "ä"}
	for _, x := range names {
		for _, y := range names {
			if x != y && strings.HasPrefix(s.Prefix(x), s.Prefix(y)) {
				t.Errorf("%q lies within %q", x, y)
			}
		}
	}
}

// References from elsewhere are refused before any request.
func TestForeignReferencesAreRefused(t *testing.T) {
	s, _ := newStore(t)
	if _, err := s.Get(t.Context(), "other/x"); !errors.Is(err, results.ErrRef) {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), ""); !errors.Is(err, results.ErrRef) {
		t.Error(err)
	}
	if _, err := results.NewS3(nil, "b", ""); !errors.Is(err, results.ErrConfig) {
		t.Error(err)
	}
}
