package results

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/writers"
)

// Lister is the part of *s3.Client that EraseTenant calls beyond Client.
type Lister interface {
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// ErrLister is returned by EraseTenant where the client that NewS3 was given cannot list.
var ErrLister = errors.New("results: the client cannot list objects")

var _ writers.TenantEraser = (*S3)(nil)

// maxPages bounds one EraseTenant: a thousand objects a page.
const maxPages = 1_000_000

// EraseTenant removes all objects of a tenant, those too that no row points at, and returns how many. It may be run again
// after it was interrupted. In a bucket with versions their older versions stay, for a lifecycle rule to remove.
// Errors: ErrLister, the client's.
func (s *S3) EraseTenant(ctx context.Context, tenant writers.TenantID) (int, error) {
	lister, ok := s.client.(Lister)
	if !ok {
		return 0, ErrLister
	}
	prefix := s.Prefix(tenant)
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix}
	removed := 0
	for range maxPages {
		out, err := lister.ListObjectsV2(ctx, in)
		if err != nil {
			return removed, fmt.Errorf("list results: %w", err)
		}
		for _, object := range out.Contents {
			if object.Key == nil || !strings.HasPrefix(*object.Key, prefix) {
				continue
			}
			if err := s.Delete(ctx, *object.Key); err != nil {
				return removed, err
			}
			removed++
		}
		if out.IsTruncated == nil || !*out.IsTruncated || out.NextContinuationToken == nil {
			return removed, nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
	return removed, nil
}
