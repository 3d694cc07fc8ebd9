package streams

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolledger/internal/schema"
)

// lambdaValue writes a value as Lambda does.
func lambdaValue(v schema.Value) any {
	switch v.Type {
	case schema.TypeString:
		return map[string]any{"S": v.Text}
	case schema.TypeNumber:
		return map[string]any{"N": v.Text}
	case schema.TypeBinary:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Data)}
	case schema.TypeBool:
		return map[string]any{"BOOL": v.Bool}
	case schema.TypeStringSet:
		return map[string]any{"SS": v.Set}
	case schema.TypeMap:
		m := map[string]any{}
		for name, inner := range v.Map {
			m[name] = lambdaValue(inner)
		}
		return map[string]any{"M": m}
	case schema.TypeOther:
	}
	return map[string]any{"NULL": true}
}

func lambdaImage(im Image) any {
	m := map[string]any{}
	for _, a := range im {
		m[a.Name] = lambdaValue(a.Value)
	}
	return m
}

// lambdaRecord writes a change as a record of a Lambda batch.
func lambdaRecord(t testing.TB, c Change) string {
	t.Helper()
	content := map[string]any{
		"ApproximateCreationDateTime": float64(c.Time.UnixMilli()) / 1000, "SizeBytes": 1234, "StreamViewType": "NEW_AND_OLD_IMAGES",
		"Keys": map[string]any{"pk": map[string]any{"S": c.Keys.PK}, "sk": map[string]any{"S": c.Keys.SK}},
	}
	if c.Time.IsZero() {
		delete(content, "ApproximateCreationDateTime")
	}
	if c.Sequence != "" {
		content["SequenceNumber"] = c.Sequence
	}
	if c.New != nil {
		content["NewImage"] = lambdaImage(c.New)
	}
	if c.Old != nil {
		content["OldImage"] = lambdaImage(c.Old)
	}
	record := map[string]any{
		"eventID": "c4ca4238a0b923820dcc509a6f75849b", "eventName": c.Op, "eventVersion": "1.1", "eventSource": "aws:dynamodb",
		"awsRegion": "eu-central-1", "dynamodb": content, "eventSourceARN": c.Stream,
	}
	if c.TTL {
		record["userIdentity"] = map[string]any{"type": "Service", "principalId": "dynamodb.amazonaws.com"}
	}
	b, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func lambdaBatch(records ...string) json.RawMessage {
	return json.RawMessage(`{"Records":[` + strings.Join(records, ",") + `]}`)
}

// history is n records of n calls, in order: every second one applied, each with its own sequence number. The numbers
// cross a power of ten, so that comparing them as text goes wrong.
func history(n int, edits ...func(*schema.Row)) []Change {
	changes := make([]Change, n)
	for i := range changes {
		call := fmt.Sprintf("call-%d", i)
		row := committedRow()
		row.Key, row.RowID = schema.RowKey(testTenant, testSession, schema.ScopeSession, call), fmt.Sprintf("row-%d", i)
		for _, edit := range edits {
			edit(row)
		}
		changes[i] = changeOf(nil, row)
		changes[i].Sequence = fmt.Sprint(99_990_000_000_000_000 + int64(i)*1e13)
	}
	return changes
}
