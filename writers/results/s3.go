// Package results keeps results that are too large for a ledger row, in S3.
//
// An object's name is made of tenant, row and content: tenants never share one, the same bytes put twice are one object,
// and no object ever changes. It is written, and durable, before the transaction that points at it, so a row never
// points at nothing; an object whose transaction failed is left over and may be removed by a lifecycle rule that is
// longer than the ledger's Keep.
package results

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"toolledger/writers"
)

// ErrConfig is returned by NewS3 for what cannot be meant.
var ErrConfig = errors.New("results: bad config")

// ErrRef is returned by Get and Delete for a reference that this store has not made.
var ErrRef = errors.New("results: not a reference of this store")

// ErrTooLarge is returned by Get for an object above MaxBytes.
var ErrTooLarge = errors.New("results: object is too large")

// MaxBytes is the largest result that Get reads back: Lambda's payload limit leaves no use for more (6 MB, AWS docs).
const MaxBytes = 64 << 20

// Client is the part of *s3.Client that the store calls.
type Client interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
}

// S3 is a writers.ResultStore. It is safe for concurrent use.
type S3 struct {
	client Client
	bucket string
	prefix string
}

var _ writers.ResultStore = (*S3)(nil)

// NewS3 returns a store in bucket, under prefix ("" means "results/"). It makes no request. Errors: ErrConfig.
func NewS3(client Client, bucket, prefix string) (*S3, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: a client is required", ErrConfig)
	}
	if bucket == "" {
		return nil, fmt.Errorf("%w: a bucket is required", ErrConfig)
	}
	if prefix == "" {
		prefix = "results/"
	}
	if !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return &S3{client, bucket, prefix}, nil
}

// Prefix returns what the names of all of a tenant's objects begin with: for removing them when the tenant leaves.
func (s *S3) Prefix(tenant writers.TenantID) string {
	return s.prefix + base64.RawURLEncoding.EncodeToString([]byte(tenant)) + "/"
}

// Put writes body once; an object of that name has the same bytes and is left as it is. Errors: the client's.
func (s *S3) Put(ctx context.Context, tenant writers.TenantID, rowID string, sum [32]byte, body []byte) (string, error) {
	ref := s.Prefix(tenant) + rowID + "/" + hex.EncodeToString(sum[:])
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &ref, Body: bytes.NewReader(body), ContentType: new("application/json"), IfNoneMatch: new("*"),
	})
	if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() == "PreconditionFailed" {
		return ref, nil
	}
	if err != nil {
		return "", fmt.Errorf("put result: %w", err)
	}
	return ref, nil
}

// Get reads an object. The caller checks the bytes against their hash. Errors: ErrRef, ErrTooLarge, the client's.
func (s *S3) Get(ctx context.Context, ref string) ([]byte, error) {
	if !strings.HasPrefix(ref, s.prefix) {
		return nil, ErrRef
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &ref})
	if err != nil {
		return nil, fmt.Errorf("get result: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, MaxBytes+1))
	if closeErr := out.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if len(body) > MaxBytes {
		return nil, ErrTooLarge
	}
	return body, nil
}

// Delete removes an object; one that is gone is no error. Errors: ErrRef, the client's.
func (s *S3) Delete(ctx context.Context, ref string) error {
	if !strings.HasPrefix(ref, s.prefix) {
		return ErrRef
	}
	if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &ref}); err != nil {
		return fmt.Errorf("delete result: %w", err)
	}
	return nil
}
