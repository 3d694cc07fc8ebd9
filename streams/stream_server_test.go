package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"toolledger/internal/schema"
)

const testStream = "arn:aws:dynamodb:eu-central-1:111122223333:table/ledger/stream/2026-11-01T00:00:00.000"

// streamServer is a DynamoDB stream of any topology, over the real protocol.
type streamServer struct {
	*httptest.Server
	mu     sync.Mutex
	shards []*scriptedShard
	page   int // shards in one answer; 0 means all
	limit  int // records in one answer; 0 means all
	fail   func(r streamRequest) (code string)
	log    []streamRequest
}

type scriptedShard struct {
	id, parent string
	records    []Change
	closed     bool
	trimmed    int  // records that are gone, from the first
	hidden     bool // not listed yet, or no longer
}

// streamRequest is what was asked for.
type streamRequest struct {
	op, shard, kind, after string
	n                      int // how many requests of this operation on this shard came before
}

func newStream(t testing.TB, shards ...*scriptedShard) *streamServer {
	s := &streamServer{shards: shards}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *streamServer) client() *dynamodbstreams.Client {
	return dynamodbstreams.New(dynamodbstreams.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(s.URL), RetryMaxAttempts: 1, HTTPClient: s.Client(),
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	})
}

// shardOf is a shard with records for n calls, whose sequence numbers begin at first.
func shardOf(id, parent string, closed bool, first, n int) *scriptedShard {
	s := &scriptedShard{id: id, parent: parent, closed: closed}
	for i := range n {
		call := fmt.Sprintf("%s-%d", id, i)
		row := committedRow()
		row.Key, row.RowID = schema.RowKey(testTenant, testSession, schema.ScopeSession, call), "row-"+call
		c := changeOf(nil, row)
		c.Sequence = strconv.Itoa(first + i)
		s.records = append(s.records, c)
	}
	return s
}

func (s *streamServer) serve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ExclusiveStartShardId, ShardId, ShardIteratorType, SequenceNumber, ShardIterator string
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	s.mu.Lock()
	defer s.mu.Unlock()
	position := 0
	if op == "GetRecords" {
		shard, at, _ := strings.Cut(in.ShardIterator, "@")
		in.ShardId = shard
		position, _ = strconv.Atoi(at)
	}
	request := streamRequest{op: op, shard: in.ShardId, kind: in.ShardIteratorType, after: in.SequenceNumber}
	for _, earlier := range s.log {
		if earlier.op == op && earlier.shard == in.ShardId {
			request.n++
		}
	}
	s.log = append(s.log, request)
	code := ""
	if s.fail != nil {
		code = s.fail(request)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	var answer any
	switch {
	case code == "drop":
		panic(http.ErrAbortHandler)
	case code != "":
	case op == "DescribeStream":
		answer = s.describe(in.ExclusiveStartShardId)
	case op == "GetShardIterator":
		answer, code = s.iterator(in.ShardId, in.ShardIteratorType, in.SequenceNumber)
	default:
		answer, code = s.records(in.ShardId, position)
	}
	if code != "" {
		status := http.StatusBadRequest
		if code == "InternalServerError" {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		answer = map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "scripted"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *streamServer) describe(after string) any {
	var listed []map[string]any
	for _, sh := range s.shards {
		if sh.hidden {
			continue
		}
		d := map[string]any{"ShardId": sh.id, "SequenceNumberRange": map[string]string{"StartingSequenceNumber": "1"}}
		if sh.parent != "" {
			d["ParentShardId"] = sh.parent
		}
		listed = append(listed, d)
	}
	begin := 0
	if after != "" {
		begin = 1 + slices.IndexFunc(listed, func(d map[string]any) bool { return d["ShardId"] == after })
	}
	listed = listed[begin:]
	d := map[string]any{"StreamArn": testStream}
	if s.page > 0 && len(listed) > s.page {
		listed = listed[:s.page]
		d["LastEvaluatedShardId"] = listed[s.page-1]["ShardId"]
	}
	d["Shards"] = listed
	return map[string]any{"StreamDescription": d}
}

func (s *streamServer) find(id string) *scriptedShard {
	i := slices.IndexFunc(s.shards, func(sh *scriptedShard) bool { return sh.id == id })
	if i < 0 {
		return nil
	}
	return s.shards[i]
}

func (s *streamServer) iterator(id, kind, after string) (any, string) {
	sh := s.find(id)
	if sh == nil {
		return nil, "ResourceNotFoundException"
	}
	position := sh.trimmed
	if kind == "LATEST" {
		position = len(sh.records)
	}
	if kind == "AFTER_SEQUENCE_NUMBER" {
		position = 1 + slices.IndexFunc(sh.records, func(c Change) bool { return c.Sequence == after })
		if position == 0 || position < sh.trimmed {
			return nil, "TrimmedDataAccessException"
		}
	}
	return map[string]string{"ShardIterator": fmt.Sprintf("%s@%d", id, position)}, ""
}

func (s *streamServer) records(id string, position int) (any, string) {
	sh := s.find(id)
	if sh == nil {
		return nil, "ResourceNotFoundException"
	}
	if position < sh.trimmed {
		return nil, "TrimmedDataAccessException"
	}
	end := len(sh.records)
	if s.limit > 0 {
		end = min(end, position+s.limit)
	}
	list := []any{}
	for _, c := range sh.records[position:end] {
		list = append(list, map[string]any{
			"eventID": c.Sequence, "eventName": c.Op,
			"dynamodb": map[string]any{
				"ApproximateCreationDateTime": c.Time.Unix(), "SequenceNumber": c.Sequence, "NewImage": lambdaImage(c.New),
				"Keys": map[string]any{"pk": map[string]string{"S": c.Keys.PK}, "sk": map[string]string{"S": c.Keys.SK}},
			},
		})
	}
	answer := map[string]any{"Records": list}
	if !sh.closed || end < len(sh.records) {
		answer["NextShardIterator"] = fmt.Sprintf("%s@%d", id, end)
	}
	return answer, ""
}

// change runs f while nobody is served.
func (s *streamServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// asked lists requests of one operation.
func (s *streamServer) asked(op string) []streamRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log), func(r streamRequest) bool { return r.op != op })
}

// leaseTable is a control table in memory: it evaluates the expressions that leases use, and no others.
type leaseTable struct {
	mu    sync.Mutex
	items map[string]schema.Item
	fail  func(op string, n int) (after bool, err error) // after: fails although it was done
	n     int
}

func newLeaseTable() *leaseTable { return &leaseTable{items: map[string]schema.Item{}} }

func (l *leaseTable) failing(op string) (bool, error) {
	l.n++
	if l.fail == nil {
		return false, nil
	}
	return l.fail(op, l.n)
}

func (l *leaseTable) GetItem(
	_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !aws.ToBool(in.ConsistentRead) {
		return nil, errors.New("not a consistent read")
	}
	if _, err := l.failing("get"); err != nil {
		return nil, err
	}
	return &dynamodb.GetItemOutput{Item: l.items[stored(in.Key)]}, nil
}

func stored(key schema.Item) string {
	return schema.ValueOf(key[schema.PK]).Text + " " + schema.ValueOf(key[schema.SK]).Text
}

func (l *leaseTable) UpdateItem(
	_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after, failure := l.failing("update")
	if failure != nil && !after {
		return nil, failure
	}
	key := stored(in.Key)
	item := l.items[key]
	if !holds(item, in) {
		return nil, &types.ConditionalCheckFailedException{}
	}
	fresh := schema.Item{}
	for name, v := range item {
		fresh[name] = v
	}
	apply(fresh, in)
	l.items[key] = fresh
	return &dynamodb.UpdateItemOutput{Attributes: fresh}, failure
}

func number(v types.AttributeValue) int64 {
	n, _ := strconv.ParseInt(schema.ValueOf(v).Text, 10, 64)
	return n
}

func holds(item schema.Item, in *dynamodb.UpdateItemInput) bool {
	v := in.ExpressionAttributeValues
	owner := schema.ValueOf(item[schema.AOwner]).Text
	mine := owner == schema.ValueOf(v[":owner"]).Text
	switch *in.ConditionExpression {
	case "attribute_not_exists(#finished) AND (attribute_not_exists(#owner) OR #owner = :owner OR #deadline < :overdue)":
		return item[schema.AFinished] == nil && (owner == "" || mine || number(item[schema.ADeadline]) < number(v[":overdue"]))
	case "#owner = :owner AND #version = :version":
		return mine && number(item[schema.AVersion]) == number(v[":version"])
	}
	panic("unknown condition " + *in.ConditionExpression)
}

func apply(item schema.Item, in *dynamodb.UpdateItemInput) {
	set, remove, _ := strings.Cut(strings.TrimPrefix(*in.UpdateExpression, "SET "), " REMOVE ")
	set = strings.ReplaceAll(set, "if_not_exists(#version, :zero)", "#version")
	for clause := range strings.SplitSeq(set, ", ") {
		name, value, _ := strings.Cut(clause, " = ")
		attr := in.ExpressionAttributeNames[name]
		if value == "#version + :one" {
			item[attr] = schema.N(number(item[attr]) + 1)
			continue
		}
		item[attr] = in.ExpressionAttributeValues[value]
	}
	if remove != "" {
		for name := range strings.SplitSeq(remove, ", ") {
			delete(item, in.ExpressionAttributeNames[name])
		}
	}
}

// lease reads the item of a shard.
func (l *leaseTable) lease(shard string) (p progress, owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := schema.LeaseKey(testStream, shard)
	item := l.items[k.PK+" "+k.SK]
	return progressOf(item), schema.ValueOf(item[schema.AOwner]).Text
}
