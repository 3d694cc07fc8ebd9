package results_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/writers"
	"toolledger/writers/results"
)

// listing is a bucket that can also be listed, two objects a page.
type listing struct {
	*bucket
	deletes int
	failAt  int // the delete that is refused
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		if l.deletes++; l.deletes == l.failAt {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `<Error><Code>AccessDenied</Code></Error>`)
			return
		}
	}
	if r.Method != http.MethodGet || r.URL.Query().Get("list-type") != "2" {
		l.bucket.ServeHTTP(w, r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix, after := r.URL.Query().Get("prefix"), r.URL.Query().Get("continuation-token")
	var keys []string
	for path := range l.objects {
		if key := strings.TrimPrefix(path, "/ledger-results/"); strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	more := len(keys) > 2
	keys = keys[:min(2, len(keys))]
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("<Contents><Key>")
		_ = xml.EscapeText(&b, []byte(key))
		b.WriteString("</Key></Contents>")
	}
	if more {
		b.WriteString("<NextContinuationToken>" + keys[1] + "</NextContinuationToken>")
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = fmt.Fprintf(w, `<ListBucketResult><IsTruncated>%s</IsTruncated>%s</ListBucketResult>`, strconv.FormatBool(more), b.String())
}

func newListing(t *testing.T) (*results.S3, *listing) {
	t.Helper()
	l := &listing{bucket: &bucket{objects: map[string][]byte{}}}
	srv := httptest.NewServer(l)
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
	return s, l
}

// All objects of a tenant leave, over pages, and nobody else's; what was interrupted is gone on with.
func TestEraseTenant(t *testing.T) {
	s, l := newListing(t)
	for _, tenant := range []writers.TenantID{"acme", "acme2", "acm"} {
		for n := range 5 {
			if _, err := s.Put(t.Context(), tenant, fmt.Sprint("ROW", n), [32]byte{byte(n)}, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.failAt = 3
	if n, err := s.EraseTenant(t.Context(), "acme"); err == nil || n != 2 {
		t.Fatalf("interrupted: %d, %v", n, err)
	}
	if n, err := s.EraseTenant(t.Context(), "acme"); err != nil || n != 3 {
		t.Fatalf("gone on: %d, %v", n, err)
	}
	if n, err := s.EraseTenant(t.Context(), "acme"); err != nil || n != 0 || len(l.objects) != 10 {
		t.Fatalf("again: %d, %v; %d objects left", n, err, len(l.objects))
	}
}

// putOnly is a client that cannot list.
type putOnly struct{ results.Client }

// A client that cannot list says so instead of leaving objects behind.
func TestEraseTenantWithoutList(t *testing.T) {
	s, err := results.NewS3(putOnly{}, "b", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseTenant(context.Background(), "acme"); !errors.Is(err, results.ErrLister) {
		t.Error(err)
	}
}
