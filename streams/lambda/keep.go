package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/streams"
)

// putter is the part of *s3.Client that a keeper calls.
type putter interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// keeper sets aside in a bucket what would stop the audit of everything behind it: records that cannot be understood, and
// events that the bus refuses for good. What is delivered again is the same object.
type keeper struct {
	client putter
	bucket string
}

// record keeps a record that cannot be understood, as Lambda delivered it.
func (k *keeper) record(ctx context.Context, record []byte) error {
	sum := sha256.Sum256(record)
	return k.put(ctx, "unreadable/"+hex.EncodeToString(sum[:])+".json", record)
}

// refusedEvent is a refused event as it is kept: what PutEvents takes again, and why it did not.
type refusedEvent struct {
	DetailType string          `json:"detail-type"`
	Detail     json.RawMessage `json:"detail"`
	Code       string          `json:"code"`
	Message    string          `json:"message"`
}

// event keeps an event that the bus refused for good, with its reason.
func (k *keeper) event(ctx context.Context, r streams.Refusal) error {
	body, err := json.Marshal(refusedEvent{r.Event.DetailType(), r.Detail, r.Code, r.Message})
	if err != nil {
		return err
	}
	return k.put(ctx, "refused/"+r.Event.Head().ID+".json", body)
}

func (k *keeper) put(ctx context.Context, name string, body []byte) error {
	_, err := k.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &k.bucket, Key: &name, Body: bytes.NewReader(body), ContentType: new("application/json"),
	})
	if err != nil {
		return fmt.Errorf("put %s into %s: %w", name, k.bucket, err)
	}
	return nil
}
