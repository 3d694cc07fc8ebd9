package tests_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/streams/events"
	"toolledger/writers"
)

// records are the records of a stream as Lambda delivers them.
func (g *operatorRig) records(arn string) []json.RawMessage {
	g.Helper()
	d, err := g.streams.DescribeStream(g.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: &arn})
	g.must(err)
	var out []json.RawMessage
	for _, shard := range d.StreamDescription.Shards {
		it, err := g.streams.GetShardIterator(g.Context(), &dynamodbstreams.GetShardIteratorInput{
			StreamArn: &arn, ShardId: shard.ShardId, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
		})
		g.must(err)
		for next, empty := it.ShardIterator, 0; next != nil && empty < 2; {
			page, err := g.streams.GetRecords(g.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: next})
			g.must(err)
			if next = page.NextShardIterator; len(page.Records) == 0 {
				empty++
			}
			for _, r := range page.Records {
				out = append(out, lambdaRecord(g, arn, r))
			}
		}
	}
	return out
}

func lambdaRecord(g *operatorRig, arn string, r streamtypes.Record) json.RawMessage {
	content := map[string]any{
		"Keys": lambdaItem(r.Dynamodb.Keys), "SequenceNumber": aws.ToString(r.Dynamodb.SequenceNumber),
		"ApproximateCreationDateTime": r.Dynamodb.ApproximateCreationDateTime.Unix(), "StreamViewType": "NEW_AND_OLD_IMAGES",
	}
	if r.Dynamodb.NewImage != nil {
		content["NewImage"] = lambdaItem(r.Dynamodb.NewImage)
	}
	if r.Dynamodb.OldImage != nil {
		content["OldImage"] = lambdaItem(r.Dynamodb.OldImage)
	}
	b, err := json.Marshal(map[string]any{
		"eventID": aws.ToString(r.EventID), "eventName": r.EventName, "eventVersion": "1.1", "eventSource": "aws:dynamodb",
		"awsRegion": "eu-west-1", "eventSourceARN": arn, "dynamodb": content,
	})
	g.must(err)
	return b
}

func lambdaItem(item map[string]streamtypes.AttributeValue) map[string]any {
	m := map[string]any{}
	for name, av := range item {
		m[name] = lambdaValue(av)
	}
	return m
}

func lambdaValue(av streamtypes.AttributeValue) any {
	switch v := av.(type) {
	case *streamtypes.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *streamtypes.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *streamtypes.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *streamtypes.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *streamtypes.AttributeValueMemberSS:
		return map[string]any{"SS": v.Value}
	case *streamtypes.AttributeValueMemberM:
		return map[string]any{"M": lambdaItem(v.Value)}
	}
	panic(fmt.Sprintf("%T is in no item of ours", av))
}

func jsonOf(g *operatorRig, v any) string {
	g.Helper()
	b, err := json.Marshal(v)
	g.must(err)
	return string(b)
}

// failedInvocation is what Lambda writes into the S3 destination of a stream's mapping (AWS docs, Lambda, retaining discarded
// records): the batch is a string.
func failedInvocation(g *operatorRig, arn string, batch any) string {
	return jsonOf(g, map[string]any{
		"requestContext": map[string]any{
			"requestId": "316aa6d0-8154-4a4c-9af7-85d5f4a6bc81", "functionArn": "arn:aws:lambda:eu-west-1:123456789012:function:consumer",
			"condition": "RetryAttemptsExhausted", "approximateInvokeCount": 4,
		},
		"responseContext": map[string]any{"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
		"version":         "1.0", "timestamp": "2026-11-30T21:00:49.717Z",
		"DDBStreamBatchInfo": map[string]any{
			"shardId": "shardId-00000001573689847184-864758bb", "startSequenceNumber": "1", "endSequenceNumber": "9",
			"approximateArrivalOfFirstRecord": "2026-11-30T20:59:19Z", "approximateArrivalOfLastRecord": "2026-11-30T20:59:20Z",
			"batchSize": 1, "streamArn": arn,
		},
		"payload": batch,
	})
}

func zipped(g *operatorRig, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	g.must(err)
	g.must(w.Close())
	return b.String()
}

// redriven is what redrive promises to print with --json.
type redriven struct {
	Files, Records, Events, Deleted, Faults, Unreadable, Refusals int
	DryRun                                                        bool `json:"dry_run"`
	FaultList                                                     []struct {
		File   string
		Offset int64
		Rule   string
	} `json:"fault_list"`
	UnreadableList []struct {
		File, Sequence, Attribute, Rule string
		Offset                          int64
	} `json:"unreadable_list"`
	Refused []struct{ ID, Type, Code string }
	After   string
	Done    bool
}

// redriveLedger is a ledger in which a few things happened, its stream's records, and the ids of their events.
func redriveLedger(t *testing.T) (g *operatorRig, records []json.RawMessage, ids []string) {
	g = newOperatorRig(t)
	l := g.planned(0, "acme")
	commitOne(g, l, "acme", "k1")
	hold := g.reserve(l, "acme", writers.Call{Key: writers.SessionKey("k2"), Tool: "t", Args: map[string]int{"a": 1}, Tokens: 5})
	_, err := hold.Finalize(t.Context(), "done", 3)
	g.must(err)
	g.must(g.reserve(l, "acme", writers.Call{Key: writers.SessionKey("k3"), Tool: "t", Tokens: 5}).Release(t.Context(), "no"))
	records = slices.Concat(g.records(g.arns[0]), g.records(g.arns[1]))
	for _, ev := range g.told().Events() {
		ids = append(ids, ev.Head().ID)
	}
	slices.Sort(ids)
	if len(ids) < 7 {
		t.Fatalf("%d events", len(ids))
	}
	return g, records, ids
}

// Promise: in whatever form records or events were kept, redrive publishes exactly the events that the consumer would have,
// with the same ids, from a file as from a bucket, and counts no metrics.
func TestRedriveForms(t *testing.T) {
	g, records, ids := redriveLedger(t)
	aws := newFakeAWS(t)
	batch := jsonOf(g, map[string]any{"Records": records})
	var lines, envelopes, refused strings.Builder
	for _, r := range records {
		lines.WriteString(string(r) + "\n")
	}
	for _, ev := range g.told().Events() {
		envelopes.WriteString(jsonOf(g, map[string]any{"source": "toolledger", "detail-type": ev.DetailType(), "detail": ev}) + "\n")
		refused.WriteString(jsonOf(g, map[string]any{"detail-type": ev.DetailType(), "detail": ev, "code": "x", "message": "y"}) + "\n")
	}
	pretty := &bytes.Buffer{}
	g.must(json.Indent(pretty, []byte(batch), "", "  "))
	for name, text := range map[string]string{
		"failed invocation":        failedInvocation(g, g.arns[0], batch),
		"failed invocation, plain": failedInvocation(g, g.arns[0], map[string]any{"Records": records}),
		"batch":                    batch, "pretty": pretty.String(), "list": jsonOf(g, records), "lines": lines.String(),
		"without an end of line": strings.TrimSpace(lines.String()), "compressed": zipped(g, lines.String()),
		"events": envelopes.String(), "refused": refused.String(), "mixed": batch + "\n\n" + envelopes.String() + lines.String(),
		"twice": batch + batch, "tail": "\n \t" + batch + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kept.json")
			g.must(os.WriteFile(file, []byte(text), 0o600))
			aws.objects = map[string][]byte{"bucket/aws/lambda/uuid/shard/2026/11/30/x": []byte(text)}
			for _, source := range []string{file, "s3://bucket/aws/lambda/"} {
				aws.forget()
				var r redriven
				aws.on(0, &r, "redrive", source, "--bus", "the-bus", "--table", g.table)
				if !slices.Equal(aws.ids(), ids) || !r.Done || r.Files != 1 || r.Faults+r.Unreadable+r.Refusals != 0 {
					t.Errorf("%s: %d events on the bus, want %d: %+v", source, len(aws.ids()), len(ids), r)
				}
			}
			if len(aws.deletes) > 0 {
				t.Error("an object was deleted")
			}
		})
	}
	want := map[string]events.Event{}
	for _, ev := range g.told().Events() {
		want[ev.Head().ID] = ev
	}
	for id, detail := range aws.details {
		if published := jsonOf(g, want[id]); published != string(detail) {
			t.Errorf("got %s, want %s", detail, published)
		}
	}
}

// Promise: what is nothing to redrive is named by file, offset and rule and changes nothing about the rest of the file, which
// is published; the exit code is 1, and nothing from arguments or lookups is in what is said.
func TestRedriveHostileFiles(t *testing.T) {
	g, records, ids := redriveLedger(t)
	aws := newFakeAWS(t)
	good := jsonOf(g, map[string]any{"Records": records})
	edited := func(edit func(map[string]any)) string {
		var v map[string]any
		g.must(json.Unmarshal(records[len(records)-1], &v))
		edit(v)
		return jsonOf(g, v)
	}
	inside := func(v map[string]any) map[string]any { return v["dynamodb"].(map[string]any) }
	other := strings.ReplaceAll(good, "/"+g.table, "/orders")
	for name, tt := range map[string]struct {
		text       string
		rule       string
		faults     int
		unreadable int
		nothing    bool // nothing is published
	}{
		"empty":            {text: "", rule: "it is empty", faults: 1, nothing: true},
		"white space":      {text: " \n\n ", rule: "it is empty", faults: 1, nothing: true},
		"truncated":        {text: good + "\n" + good[:len(good)/2], rule: "ends in the middle", faults: 1},
		"truncated line":   {text: `{"Records":[{"dynamodb":` + "\n" + good, rule: "", faults: 1},
		"no JSON":          {text: "hello\n" + good, rule: "not JSON", faults: 1},
		"binary":           {text: "\x00\xff\xfe\n" + good, rule: "not JSON", faults: 1},
		"a number":         {text: "7\n" + good, rule: "it is a JSON number", faults: 1},
		"an empty object":  {text: "{}\n" + good, rule: "no stream record", faults: 1},
		"another's JSON":   {text: `{"orders":[1,2]}` + "\n" + good, rule: "no stream record", faults: 1},
		"records no list":  {text: `{"Records":{"a":1}}` + "\n" + good, rule: "no list", faults: 1},
		"no objects":       {text: `{"Records":[1,null,"x"]}` + "\n" + good, rule: "no JSON object", faults: 3},
		"payload a number": {text: failedInvocation(g, "", 7) + "\n" + good, rule: "payload holds no Records", faults: 1},
		"payload broken":   {text: failedInvocation(g, "", good[:40]) + "\n" + good, rule: "payload holds no Records", faults: 1},
		"queue":            {text: strings.Replace(failedInvocation(g, "", 7), `"payload":7,`, "", 1) + "\n" + good, rule: "holds none", faults: 1},
		"SQS":              {text: `{"Records":[{"eventSource":"aws:sqs","body":"{}"}]}` + "\n" + good, rule: "aws:sqs", faults: 1},
		"another table":    {text: other + "\n" + good, rule: "of table orders", faults: len(g.records(g.arns[0])) + len(g.records(g.arns[1]))},
		"foreign event":    {text: `{"source":"aws.s3","detail-type":"x","detail":{}}` + "\n" + good, rule: "event of aws.s3", faults: 1},
		"event without id": {text: `{"source":"toolledger","detail-type":"x","detail":{"schema":1}}` + "\n" + good, rule: "detail.id is missing", faults: 1},
		"half a gzip":      {text: zipped(g, good)[:60], rule: "", faults: 1, nothing: true},
		"a gzip of dirt":   {text: "\x1f\x8bdirt", rule: "compressed", faults: 1, nothing: true},
		"no images": {
			text: edited(func(v map[string]any) { delete(inside(v), "NewImage"); delete(inside(v), "OldImage") }) + "\n" + good,
			rule: "NEW_AND_OLD_IMAGES", unreadable: 1,
		},
		"no keys":           {text: edited(func(v map[string]any) { delete(inside(v), "Keys") }) + "\n" + good, rule: "no keys", unreadable: 1},
		"no content":        {text: edited(func(v map[string]any) { delete(v, "dynamodb") }) + "\n" + good, rule: "no keys", unreadable: 1},
		"unknown tag":       {text: edited(func(v map[string]any) { inside(v)["NewImage"] = map[string]any{"pk": map[string]any{"X": 1}} }) + "\n" + good, rule: "", unreadable: 1},
		"foreign item":      {text: edited(func(v map[string]any) { inside(v)["Keys"] = map[string]any{"id": map[string]any{"S": "1"}} }) + "\n" + good, rule: "", unreadable: 1},
		"operation":         {text: edited(func(v map[string]any) { v["eventName"] = "UPSERT" }) + "\n" + good, rule: "operation", unreadable: 1},
		"dirt in all lines": {text: strings.Repeat("x\n", 200) + good, rule: "too much", faults: 101, nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			aws.forget()
			file := filepath.Join(t.TempDir(), "kept.json")
			g.must(os.WriteFile(file, []byte(tt.text), 0o600))
			var r redriven
			got := aws.on(1, &r, "redrive", file, "--bus", "the-bus", "--table", g.table)
			if r.Faults != tt.faults || r.Unreadable != tt.unreadable || !r.Done {
				t.Errorf("%+v", r)
			}
			if !strings.Contains(got.stderr, file) || !strings.Contains(got.stdout, tt.rule) || strings.Contains(got.stderr+got.stdout, "secret") {
				t.Errorf("%q does not say %q and %s: %q", got.stdout, tt.rule, file, got.stderr)
			}
			published := aws.ids()
			published = slices.DeleteFunc(published, func(id string) bool { return aws.types[id] == "AuditRecordUnreadable" && tt.unreadable > 0 })
			if !tt.nothing && !slices.Equal(published, ids) || tt.nothing && len(published) > 0 {
				t.Errorf("%d events on the bus, want %d", len(published), len(ids))
			}
			for _, f := range r.FaultList {
				if f.File != file || f.Rule == "" || f.Offset < 0 || f.Offset > int64(len(tt.text)) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// Promise: a prefix is redriven object by object over pages; --delete takes away only what is out as a whole; a bus that
// fails stops with exit code 2 and says where to go on, and going on brings the rest; nothing is lost on the way.
func TestRedriveBucket(t *testing.T) {
	_, records, ids := redriveLedger(t)
	aws := newFakeAWS(t)
	for i, r := range records {
		aws.objects[fmt.Sprintf("bucket/unreadable/%02d.json", i)] = r
	}
	aws.objects["bucket/unreadable/"] = nil // a folder
	aws.objects["bucket/unreadable/05x.json"] = []byte("dirt")
	aws.objects["bucket/other/1"] = []byte("not ours")
	n := len(aws.objects)
	var r redriven
	args := []string{"redrive", "s3://bucket/unreadable/", "--bus", "the-bus"}
	aws.fail = func(put int) int {
		if put > 2 {
			return 500
		}
		return 0
	}
	got := aws.on(2, &r, append(args, "--delete")...)
	if r.Done || r.After == "" || r.Deleted == 0 || len(aws.objects) != n-r.Deleted || !strings.Contains(got.stderr, "--after "+r.After) {
		t.Fatalf("%+v, %s", r, got.stderr)
	}
	aws.fail = nil
	aws.on(1, &r, append(args, "--delete", "--after", r.After)...)
	if !slices.Equal(aws.ids(), ids) || len(aws.objects) != 3 || r.Faults != 1 || r.FaultList[0].File != "s3://bucket/unreadable/05x.json" {
		t.Errorf("%d events, %d objects: %+v", len(aws.ids()), len(aws.objects), r)
	}
	if aws.objects["bucket/other/1"] == nil {
		t.Error("another object is gone")
	}

	// One key is one object, also where others begin with it.
	aws.forget()
	aws.objects = map[string][]byte{"bucket/a": records[0], "bucket/a.json": []byte("dirt"), "bucket/gone": nil}
	aws.on(0, &r, "redrive", "s3://bucket/a", "--bus", "the-bus")
	if r.Files != 1 || r.Records != 1 {
		t.Errorf("%+v", r)
	}
	aws.failGets = func(string) int { return 403 }
	got = aws.on(1, &r, "redrive", "s3://bucket/a", "--bus", "the-bus", "--delete")
	if len(aws.objects) != 3 || r.Deleted != 0 || !strings.Contains(got.stdout, "cannot be read") {
		t.Errorf("%+v", r)
	}
}

// Promise: what the bus refuses for good is reported and its object stays.
func TestRedriveRefused(t *testing.T) {
	g, records, _ := redriveLedger(t)
	aws := newFakeAWS(t)
	aws.refuse = "ToolCallReserved"
	aws.objects["bucket/x"] = []byte(jsonOf(g, map[string]any{"Records": records}))
	var r redriven
	aws.on(1, &r, "redrive", "s3://bucket/x", "--bus", "the-bus", "--delete")
	if r.Refusals != 2 || len(r.Refused) != 2 || r.Refused[0].Type != "ToolCallReserved" || len(aws.objects) != 1 || !r.Done {
		t.Errorf("%+v", r)
	}
}

// Promise: a dry run publishes and deletes nothing and needs no bus; its JSON lines are what redrive takes again.
func TestRedriveDryRun(t *testing.T) {
	g, records, ids := redriveLedger(t)
	aws := newFakeAWS(t)
	file := filepath.Join(t.TempDir(), "kept.json")
	g.must(os.WriteFile(file, []byte(jsonOf(g, map[string]any{"Records": records})), 0o600))
	got := aws.run("redrive", file, "--dry-run", "--json")
	if got.code != 0 || aws.puts > 0 || strings.Count(got.stdout, "\n") != len(ids) {
		t.Fatalf("%+v", got)
	}
	again := filepath.Join(t.TempDir(), "again.jsonl")
	g.must(os.WriteFile(again, []byte(got.stdout), 0o600))
	aws.on(0, nil, "redrive", again, "--bus", "the-bus")
	if !slices.Equal(aws.ids(), ids) {
		t.Errorf("%d events, want %d", len(aws.ids()), len(ids))
	}
	for _, ev := range g.told().Events() {
		if string(aws.details[ev.Head().ID]) != jsonOf(g, ev) {
			t.Errorf("got %s, want %s", aws.details[ev.Head().ID], jsonOf(g, ev))
		}
	}
	if got := aws.run("redrive", file, "--dry-run"); got.code != 0 || !strings.Contains(got.stdout, "ToolEffectApplied") ||
		!strings.Contains(got.stderr, "nothing was published") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("%+v", got)
	}
}

// Promise: 10,000 records of one batch, some of them doubled, come out once each by id, in bounded time.
func TestRedriveManyRecords(t *testing.T) {
	g, records, ids := redriveLedger(t)
	aws := newFakeAWS(t)
	var many []json.RawMessage
	for len(many) < 10_000 {
		many = append(many, records...)
	}
	file := filepath.Join(t.TempDir(), "kept.json")
	g.must(os.WriteFile(file, []byte(failedInvocation(g, g.arns[0], jsonOf(g, map[string]any{"Records": many}))), 0o600))
	began := time.Now()
	var r redriven
	aws.on(0, &r, "redrive", file, "--bus", "the-bus")
	if !slices.Equal(aws.ids(), ids) || r.Records != len(many) || r.Events < len(many)/2 {
		t.Errorf("%d events on the bus: %+v", len(aws.ids()), r)
	}
	t.Logf("%d records in %s", r.Records, time.Since(began))
}

// Promise: bad input is one line and exit code 2, before anything is read.
func TestRedriveBadInput(t *testing.T) {
	aws := newFakeAWS(t)
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"nothing":          {[]string{"redrive"}, "want s3://BUCKET/PREFIX or FILE"},
		"two":              {[]string{"redrive", "a", "b"}, "got 2 arguments"},
		"no bus":           {[]string{"redrive", file}, "--bus NAME is required"},
		"bus and dry run":  {[]string{"redrive", file, "--bus", "b", "--dry-run"}, "exclude each other"},
		"no file":          {[]string{"redrive", file + "y", "--dry-run"}, "no such file"},
		"a directory":      {[]string{"redrive", t.TempDir(), "--dry-run"}, "is a directory"},
		"delete a file":    {[]string{"redrive", file, "--bus", "b", "--delete"}, "for objects in S3"},
		"delete dry":       {[]string{"redrive", "s3://b/k", "--dry-run", "--delete"}, "exclude each other"},
		"no bucket":        {[]string{"redrive", "s3:///k", "--dry-run"}, "want s3://BUCKET/KEY"},
		"no object":        {[]string{"redrive", "s3://bucket/none", "--dry-run"}, "there is no object s3://bucket/none"},
		"table":            {[]string{"redrive", file, "--dry-run", "--table", "a#"}, "--table"},
		"an empty one":     {[]string{"redrive", "", "--dry-run"}, "want s3://BUCKET/PREFIX or FILE"},
		"after for a file": {[]string{"redrive", file, "--dry-run", "--after", "k"}, "for objects in S3"},
	} {
		t.Run(name, func(t *testing.T) {
			got := aws.run(tt.args...)
			if got.code != 2 || !strings.Contains(got.stderr, tt.text) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" || aws.puts > 0 {
				t.Errorf("exit code %d, %q: want %q", got.code, got.stderr, tt.text)
			}
		})
	}
}
