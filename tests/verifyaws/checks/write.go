package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/internal/schema"
)

// The call that is made, and the item that nobody can understand.
const (
	session   = "verify"
	callKey   = "verify"
	poisonKey = "verify-unreadable"
)

// maxObject is how much of a failure object is read; an object holds one record.
const maxObject = 1 << 20

// writes does what Planned says and looks at what becomes of it.
func (r *run) writes(ctx context.Context) {
	if r.call(ctx) {
		r.observation(ctx)
		r.filtered(ctx)
	}
	r.failureObject(ctx)
}

// call makes one call through the direct function, twice: the function's role can do what it must, on AWS itself.
func (r *run) call(ctx context.Context) bool {
	const group = "write"
	function := r.stack.outputs["WriterDirectArn"]
	if function == "" {
		r.add(group, "call", Skipped, "this stack has no direct door (DirectDoor=true)")
		return false
	}
	event, err := json.Marshal(map[string]any{
		"op": "commit", "tenant": r.cfg.Tenant, "session": session, "key": callKey, "tool": "verify", "args": map[string]any{}, "tokens": 0,
		"result": map[string]any{"ok": true}, "cursor": "verified",
	})
	if err != nil {
		r.add(group, "call", Failed, "%v", err)
		return false
	}
	for i, want := range []string{"applied", "replayed"} {
		out, err := r.cfg.Clients.Lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: event})
		if err != nil {
			r.add(group, "call", Failed, "%v", err)
			return false
		}
		var answer struct{ Outcome string }
		if err := json.Unmarshal(out.Payload, &answer); err != nil || out.FunctionError != nil || answer.Outcome != want {
			r.add(group, "call", Failed, "attempt %d: want %s, got %s", i+1, want, out.Payload)
			return false
		}
	}
	r.add(group, "call", OK, "a transaction of the function's role, and its replay")
	return true
}

// observation checks that the replay was counted, under the role's plain permission, and lets the count expire.
func (r *run) observation(ctx context.Context) {
	const group = "write"
	key := schema.ObservationKey(schema.RowKey(r.cfg.Tenant, session, schema.ScopeSession, callKey)).Item()
	var item map[string]types.AttributeValue
	found, err := r.within(ctx, func() (bool, error) {
		out, err := r.cfg.Clients.DynamoDB.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(r.stack.ledger()), Key: key, ConsistentRead: aws.Bool(true)})
		if err == nil {
			item = out.Item
		}
		return len(item) > 0, err
	})
	if !found || err != nil {
		r.add(group, "observation", Failed, "the replay was not counted: the role may not update keys that lead with OBS# (%v)", err)
		return
	}
	r.add(group, "observation", OK, "")
	past := strconv.FormatInt(r.cfg.Now().Add(-time.Hour).Unix(), 10)
	_, err = r.cfg.Clients.DynamoDB.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(r.stack.ledger()), Key: key, UpdateExpression: aws.String("SET #e = :e ADD #v :one"),
		ExpressionAttributeNames:  map[string]string{"#e": schema.AExpiresAt, "#v": schema.AVersion},
		ExpressionAttributeValues: map[string]types.AttributeValue{":e": &types.AttributeValueMemberN{Value: past}, ":one": schema.N(1)},
	})
	if err != nil {
		r.add(group, "an item that expires", Failed, "%v", err)
		return
	}
	r.add(group, "an item that expires", OK, "run this again within a day of its removal, which DynamoDB does within days: the ttl identity then shows")
}

// filtered checks that the change of the call's session was left out by the mapping.
func (r *run) filtered(ctx context.Context) {
	const group = "write"
	all, err := r.listMappings(ctx, r.stack.outputs["StreamFunctionName"])
	if err != nil {
		r.add(group, "filter", Failed, "%v", err)
		return
	}
	found, err := r.within(ctx, func() (bool, error) {
		for _, m := range all {
			if n, err := r.filteredOut(ctx, aws.ToString(m.UUID)); n > 0 || err != nil {
				return n > 0, err
			}
		}
		return false, nil
	})
	switch {
	case err != nil:
		r.add(group, "filter", Failed, "%v", err)
	case !found:
		r.add(group, "filter", Unknown, "no record counted as filtered out within %s; CloudWatch may be late: run again", r.cfg.Wait)
	default:
		r.add(group, "filter", OK, "")
	}
}

// failureObject puts an item that the consumer cannot understand, and checks that its record is kept in the bucket and that
// the shard moves on.
func (r *run) failureObject(ctx context.Context) {
	const group = "write"
	bucket := r.stack.outputs["FailureBucketName"]
	if bucket == "" {
		r.add(group, "failure object", Failed, "the stack has no output FailureBucketName")
		return
	}
	key := schema.RowKey(r.cfg.Tenant, session, schema.ScopeSession, poisonKey).Item()
	item := map[string]types.AttributeValue{schema.AFormat: schema.S("none"), schema.AExpiresAt: schema.Seconds(r.cfg.Now().Add(time.Hour))}
	for name, value := range key {
		item[name] = value
	}
	table := aws.String(r.stack.ledger())
	if _, err := r.cfg.Clients.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: item}); err != nil {
		r.add(group, "failure object", Failed, "%v", err)
		return
	}
	defer r.cleanUp(ctx, bucket, key)
	name := ""
	found, err := r.within(ctx, func() (bool, error) {
		names, err := r.failureObjects(ctx, bucket)
		if len(names) > 0 {
			name = names[0]
		}
		return name != "", err
	})
	if err != nil || !found {
		r.add(group, "failure object", Failed, "no object with the record came into %s within %s (%v)", bucket, r.cfg.Wait, err)
		return
	}
	r.add(group, "failure object", OK, "%s", name)
}

// failureObjects are the objects with records of this run's item.
func (r *run) failureObjects(ctx context.Context, bucket string) ([]string, error) {
	var names []string
	in := &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String("unreadable/")}
	for range maxPages {
		page, err := r.cfg.Clients.S3.ListObjectsV2(ctx, in)
		if err != nil {
			return names, err
		}
		for _, o := range page.Contents {
			if o.LastModified != nil && r.cfg.Now().Sub(*o.LastModified) > r.cfg.Wait+time.Hour {
				continue
			}
			body, err := r.read(ctx, bucket, o.Key)
			if err != nil {
				return names, err
			}
			if strings.Contains(body, "TENANT#"+r.cfg.Tenant+"#") && strings.Contains(body, poisonKey) {
				names = append(names, aws.ToString(o.Key))
			}
		}
		if in.ContinuationToken = page.NextContinuationToken; in.ContinuationToken == nil {
			break
		}
	}
	return names, nil
}

func (r *run) read(ctx context.Context, bucket string, key *string) (string, error) {
	out, err := r.cfg.Clients.S3.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: key})
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	text, err := io.ReadAll(io.LimitReader(out.Body, maxObject))
	return string(text), err
}

// cleanUp removes the item and the objects that came of its coming and its going, also where ctx has ended meanwhile.
func (r *run) cleanUp(ctx context.Context, bucket string, key map[string]types.AttributeValue) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Wait)
	defer cancel()
	if _, err := r.cfg.Clients.DynamoDB.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String(r.stack.ledger()), Key: key}); err != nil {
		r.add("write", "clean up", Failed, "%v: delete the item %v", err, fmt.Sprint(r.cfg.Tenant, " ", poisonKey))
		return
	}
	left := 2 // its coming, and its going
	_, err := r.within(ctx, func() (bool, error) {
		names, err := r.failureObjects(ctx, bucket)
		for _, name := range names {
			if _, err := r.cfg.Clients.S3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &name}); err != nil {
				return false, err
			}
			left--
		}
		return left <= 0, err
	})
	switch {
	case err != nil:
		r.add("write", "clean up", Failed, "%v", err)
	case left > 0:
		r.add("write", "clean up", Unknown, "%d of 2 failure objects did not come within %s: look under unreadable/ for %s", left, r.cfg.Wait, r.cfg.Tenant)
	default:
		r.add("write", "clean up", OK, "")
	}
}
