package api

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/writers"
)

// forget removes the row of a key, as TTL does long after its end.
func forget(t *testing.T, l *writers.Ledger, pk, sk string) {
	t.Helper()
	p := l.Plumbing()
	client, ok := p.Client.(*dynamodb.Client)
	if !ok {
		t.Fatalf("the client is a %T", p.Client)
	}
	key := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: sk}}
	if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &p.Tables.Ledger, Key: key}); err != nil {
		t.Fatal(err)
	}
}

// TestFinalizeOfAForgottenCall: an effect that happened is recorded although its row is gone, through HTTP and directly, where
// the caller says what the call was; again gives the stored answer; another action's row is not written over.
func TestFinalizeOfAForgottenCall(t *testing.T) {
	for name, ask := range map[string]func(d *door, f function, op, fields string) map[string]any{
		"http": func(d *door, _ function, op, fields string) map[string]any { return d.post(op, "{"+fields+"}").doc },
		"direct": func(d *door, f function, op, fields string) map[string]any {
			doc, err := d.direct(f, `{"op":"`+op+`","tenant":"acme",`+fields+"}")
			if err != nil {
				d.t.Fatal(err)
			}
			return doc
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			l := newTestLedger(t, c)
			d, f := newDoor(t, l, c), Direct(l)
			const what = `"tool":"pr","args":{"b":1},"tokens":20`
			held := ask(d, f, "reserve", `"session":"s","key":"k","lookup":"x",`+what)
			ref := fmt.Sprintf(`"session":"s","key":"k","row_id":%q,"attempt":1,"result":"made"`, held["row_id"])
			// While the row is there, it decides, and says whether the call is the one that is meant.
			if doc := ask(d, f, "finalize", ref+`,"tool":"pr","args":{"b":2}`); doc["code"] != "key_conflict" || fmt.Sprint(doc["differs"]) != "[b]" {
				t.Fatal(doc)
			}
			forget(t, l, "TENANT#acme#SESSION#s", "TOOL#k")
			if doc := ask(d, f, "finalize", ref); doc["code"] != "not_found" {
				t.Fatal(doc)
			}
			for range 2 {
				doc := ask(d, f, "finalize", ref+`,"charged_tokens":7,`+what)
				if doc["outcome"] != "settled_late" || doc["result"] != "made" || doc["charged_tokens"] != 7.0 || doc["effect_key"] != held["effect_key"] {
					t.Fatal(doc)
				}
			}
			if doc := ask(d, f, "finalize", ref+`,"tool":"pr","args":{"b":3}`); doc["code"] != "key_conflict" {
				t.Fatal(doc)
			}
			if doc := ask(d, f, "reserve", `"session":"s","key":"k",`+what); doc["outcome"] != "replayed" || doc["result"] != "made" {
				t.Fatal(doc)
			}
			if q := d.as("acme", "GET", "/v1/quota", ""); q.doc["remaining_tokens"] != 1000.0-20-7 { // the 20 went with the row that nobody gave back
				t.Fatal(q.raw)
			}
			// Somebody else's row under the same key stays theirs, with a note of the suspicion.
			forget(t, l, "TENANT#acme#SESSION#s", "TOOL#k")
			ask(d, f, "reserve", `"session":"s","key":"k","tool":"other"`)
			if doc := ask(d, f, "finalize", ref+","+what); doc["code"] != "attempt_superseded" {
				t.Fatal(doc)
			}
			row := d.as("acme", "GET", "/v1/calls?session=s&key=k", "")
			if row.doc["state"] != "pending" || fmt.Sprint(row.doc["suspects"]) != fmt.Sprintf("[%s/1]", held["row_id"]) {
				t.Fatal(row.raw)
			}
		})
	}
}

// TestFinalizeOfACompensationThatWasForgotten: the call that was undone is part of what the call was.
func TestFinalizeOfACompensationThatWasForgotten(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c)
	d.post("commit", `{"session":"s","key":"o","tool":"order","tokens":5}`).want(t, 200, "applied")
	const what = `"tool":"cancel","compensates":"o","refund_original":true`
	held := d.post("reserve", `{"session":"s","key":"u",`+what+`}`).want(t, 200, "reserved")
	forget(t, l, "TENANT#acme#SESSION#s", "TOOL#u")
	body := fmt.Sprintf(`{"session":"s","key":"u","row_id":%q,"attempt":1,%s}`, held.doc["row_id"], what)
	d.post("finalize", body).want(t, 200, "settled_late")
	if row := d.as("acme", "GET", "/v1/calls?session=s&key=o", ""); row.doc["compensated_by"] != "u" && row.doc["compensated_by"] != "session:u" {
		t.Fatal(row.raw)
	}
	if q := d.as("acme", "GET", "/v1/quota", ""); q.doc["remaining_tokens"] != 1000.0 {
		t.Fatal(q.raw)
	}
}

// TestWaitsEndBeforeTheFunction: a wait is cut to what the invocation has left, so that there is an answer and no time-out.
func TestWaitsEndBeforeTheFunction(t *testing.T) {
	c := newClock()
	l := newTestLedger(t, c)
	d := newDoor(t, l, c)
	d.post("reserve", `{"session":"s","key":"k","tool":"t"}`).want(t, 200, "reserved")
	for _, event := range []string{
		`{"op":"reserve","tenant":"acme","session":"s","key":"k","tool":"t","wait_seconds":20}`,
		`{"op":"get","tenant":"acme","session":"s","key":"k","wait_seconds":20}`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // a fifth of it to answer in, also on a busy machine
		raw, err := Direct(l)(ctx, json.RawMessage(event))
		left := ctx.Err()
		cancel()
		var doc map[string]any
		if err != nil || left != nil || json.Unmarshal(raw, &doc) != nil || doc["code"] != "in_progress" && doc["state"] != "pending" {
			t.Errorf("%s: %s %v %v", event, raw, err, left)
		}
	}
}
