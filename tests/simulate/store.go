package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/stack"
)

// The backend is the real store, outside the bubble of simulated time. One goroutine, made before any bubble, does all real
// input and output: a goroutine of a bubble that waits for a socket, or leaves a connection's reader behind, would keep
// simulated time from ever passing. Its channels are made outside too, so that whoever waits on them holds time still.
type backend struct {
	srv      *stack.Server
	client   *http.Client
	ask      chan backendRequest
	answered chan backendAnswer
	ended    chan struct{}
	tables   atomic.Int64 // made so far
}

type backendRequest struct {
	header  http.Header
	body    []byte
	restart bool // kill -9 of the store, and start it again on its file
}

type backendAnswer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// startBackend starts a store; on a file it survives being killed.
func startBackend(ctx context.Context, file string) (*backend, error) {
	srv, err := stack.Start(ctx, stack.Config{DataFile: file})
	if err != nil {
		return nil, err
	}
	b := &backend{
		srv: srv, client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second},
		ask: make(chan backendRequest), answered: make(chan backendAnswer), ended: make(chan struct{}),
	}
	go b.serve()
	return b, nil
}

func (b *backend) stop() {
	close(b.ask)
	<-b.ended
	b.client.CloseIdleConnections()
	b.srv.Stop()
}

func (b *backend) serve() {
	defer close(b.ended)
	for r := range b.ask {
		b.answered <- b.answer(r)
	}
}

func (b *backend) answer(r backendRequest) backendAnswer {
	if r.restart {
		b.srv.Crash()
		b.client.CloseIdleConnections()
		return backendAnswer{err: b.srv.Restart(context.Background())}
	}
	return b.roundTrip(context.Background(), r)
}

// roundTrip sends one request. The parallel mode calls it from any goroutine.
func (b *backend) roundTrip(ctx context.Context, r backendRequest) backendAnswer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.srv.Endpoint()+"/", bytes.NewReader(r.body))
	if err != nil {
		return backendAnswer{err: err}
	}
	req.Header = r.header
	resp, err := b.client.Do(req)
	if err != nil {
		return backendAnswer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return backendAnswer{resp.StatusCode, resp.Header, body, err}
}

// do is one round trip for whoever is inside the bubble.
func (b *backend) do(r backendRequest) backendAnswer {
	b.ask <- r
	return <-b.answered
}

// raw sends a request of our own, without the SDK: the oracle's way to the store shares nothing with the code under test.
func (b *backend) raw(do func(backendRequest) backendAnswer, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	a := do(backendRequest{header: http.Header{
		"X-Amz-Target": {target}, "Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Date": {"20261031T000000Z"},
		"Authorization": {"AWS4-HMAC-SHA256 Credential=local/20261031/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"},
	}, body: body})
	if a.err != nil {
		return a.err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%s: status %d: %s", target, a.status, a.body)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.body, out)
}

// attr is one attribute value as the wire has it: {"S":"…"}, {"N":"…"} and so on.
type attr map[string]any

// item is an item as the wire has it.
type item map[string]attr

func (it item) str(name string) string {
	s, _ := it[name]["S"].(string)
	return s
}

func (it item) num(name string) int64 {
	s, _ := it[name]["N"].(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (it item) has(name string) bool { return it[name] != nil }

// suspects are the attempts that are suspected of a second effect.
func (it item) suspects() map[string]bool {
	list, _ := it["suspects"]["SS"].([]any)
	out := map[string]bool{}
	for _, v := range list {
		if s, ok := v.(string); ok {
			out[s] = true
		}
	}
	return out
}

// debits are the tokens that the item took from quota items.
func (it item) debits() map[string]int64 {
	m, _ := it["debits"]["M"].(map[string]any)
	out := map[string]int64{}
	for k, v := range m {
		n, _ := v.(map[string]any)
		s, _ := n["N"].(string)
		out[k], _ = strconv.ParseInt(s, 10, 64)
	}
	return out
}

// text is an attribute in a form that compares.
func (it item) text(name string) string {
	if it[name] == nil {
		return ""
	}
	b, _ := json.Marshal(it[name]) // what came as JSON goes as JSON
	return string(b)
}

func (it item) equal(other item) bool {
	if len(it) != len(other) {
		return false
	}
	for name := range it {
		if it.text(name) != other.text(name) {
			return false
		}
	}
	return true
}

// key names an item of one of the two tables.
type key struct{ pk, sk string }

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.pk, o.pk), strings.Compare(k.sk, o.sk))
}

func keyOf(it item) key { return key{it.str("pk"), it.str("sk")} }

// record is one change as the store's stream tells it.
type record struct {
	n        int       // position among the records of its table, from 0
	control  bool      // of the control table
	op       string    // INSERT, MODIFY, REMOVE
	key      key       // of the item
	old, new item      // nil: there was none, there is none
	at       time.Time // simulated, by the store's own clock
	ttl      bool      // removed by the store because its time to live had passed
}

// table is one of the two tables as its stream has told: a mirror that no code under test had a hand in.
type table struct {
	name, arn, shard, iterator, last string
	items                            map[key]item
	records                          []*record
}

// store is the tables of one run.
type store struct {
	b       *backend
	do      func(backendRequest) backendAnswer
	ledger  *table
	control *table

	restarting sync.RWMutex // of the parallel mode: nobody asks while the store is started again
}

// newStore makes the tables of a run; outside the bubble.
func newStore(ctx context.Context, b *backend, name string) (*store, error) {
	db := dynamodb.NewFromConfig(b.srv.AWSConfig())
	made, err := stack.CreateTables(ctx, db, name, name+"-control", true)
	if err != nil {
		return nil, err
	}
	s := &store{b: b, do: b.do}
	s.ledger = &table{name: name, arn: made[0].StreamARN, items: map[key]item{}}
	s.control = &table{name: name + "-control", arn: made[1].StreamARN, items: map[key]item{}}
	return s, nil
}

// drop removes the tables, which keeps a store process that serves many runs fast.
func (s *store) drop() {
	for _, t := range []*table{s.ledger, s.control} {
		_ = s.b.raw(s.do, "DynamoDB_20120810.DeleteTable", map[string]any{"TableName": t.name}, nil)
	}
}

// open finds where the stream of a table begins.
func (s *store) open(t *table) error {
	var d struct {
		StreamDescription struct{ Shards []struct{ ShardId string } }
	}
	if err := s.b.raw(s.do, "DynamoDBStreams_20120810.DescribeStream", map[string]any{"StreamArn": t.arn}, &d); err != nil {
		return err
	}
	if len(d.StreamDescription.Shards) != 1 {
		return fmt.Errorf("the store's stream has %d shards", len(d.StreamDescription.Shards))
	}
	t.shard = d.StreamDescription.Shards[0].ShardId
	return s.seek(t)
}

// seek makes an iterator behind what was read: the one that we have dies with the store.
func (s *store) seek(t *table) error {
	in := map[string]any{"StreamArn": t.arn, "ShardId": t.shard, "ShardIteratorType": "TRIM_HORIZON"}
	if n := len(t.records); n > 0 {
		in["ShardIteratorType"], in["SequenceNumber"] = "AFTER_SEQUENCE_NUMBER", t.last
	}
	var out struct{ ShardIterator string }
	if err := s.b.raw(s.do, "DynamoDBStreams_20120810.GetShardIterator", in, &out); err != nil {
		return err
	}
	t.iterator = out.ShardIterator
	return nil
}

var errStream = errors.New("the store's stream and its tables disagree")

// pull reads what was written since the last call, in order, and brings the mirror up to date.
func (s *store) pull(t *table, now time.Time) ([]*record, error) {
	var fresh []*record
	for {
		var out struct {
			Records []struct {
				EventName string `json:"eventName"`
				Dynamodb  struct {
					Keys, NewImage, OldImage item
					SequenceNumber           string
				} `json:"dynamodb"`
			}
			NextShardIterator string
		}
		if err := s.b.raw(s.do, "DynamoDBStreams_20120810.GetRecords", map[string]any{"ShardIterator": t.iterator}, &out); err != nil {
			return nil, err
		}
		t.iterator = out.NextShardIterator
		for i := range out.Records {
			in := &out.Records[i]
			t.last = in.Dynamodb.SequenceNumber
			r := &record{
				control: t == s.control, op: in.EventName, key: keyOf(in.Dynamodb.Keys), old: in.Dynamodb.OldImage, new: in.Dynamodb.NewImage,
				at: now.Truncate(time.Second),
			}
			if !r.old.equal(t.items[r.key]) {
				return nil, fmt.Errorf("%w: %v", errStream, r.key)
			}
			if r.old.equal(r.new) {
				continue // DynamoDB writes no record for a write that changes nothing
			}
			r.n = len(t.records)
			if r.new == nil {
				delete(t.items, r.key)
			} else {
				t.items[r.key] = r.new
			}
			t.records = append(t.records, r)
			fresh = append(fresh, r)
		}
		if len(out.Records) == 0 || len(out.Records) < 1000 {
			return fresh, nil
		}
	}
}

// scan reads a whole table, page by page: what the mirror has to agree with in the end.
func (s *store) scan(t *table) (map[key]item, error) {
	all := map[key]item{}
	in := map[string]any{"TableName": t.name, "ConsistentRead": true}
	for {
		var out struct {
			Items            []item
			LastEvaluatedKey item
		}
		if err := s.b.raw(s.do, "DynamoDB_20120810.Scan", in, &out); err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			all[keyOf(it)] = it
		}
		if len(out.LastEvaluatedKey) == 0 {
			return all, nil
		}
		in = maps.Clone(in)
		in["ExclusiveStartKey"] = out.LastEvaluatedKey
	}
}

// remove deletes an item as the store itself does when its time to live has passed.
func (s *store) remove(t *table, k key) error {
	return s.b.raw(s.do, "DynamoDB_20120810.DeleteItem", map[string]any{
		"TableName": t.name, "Key": item{"pk": {"S": k.pk}, "sk": {"S": k.sk}},
	}, nil)
}
