package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"toolledger/tests/faults"
	"toolledger/tests/rig"
	"toolledger/writers"
	"toolledger/writers/api"
)

// function is a door that is a Lambda function.
type function = func(context.Context, json.RawMessage) (json.RawMessage, error)

// doorWorld is one ledger with every door that leads to it. Its DynamoDB fails where a test says so.
type doorWorld struct {
	*rig.Rig
	t      *testing.T
	in     *faults.Injector
	tools  *api.Toolset
	own    bool // the table of the tool that has writes of its own is there
	act    func(context.Context, writers.CallInfo, deskArgs) (string, error)
	http   http.Handler
	direct function
	broken struct { // the same doors before a ledger that panics
		http   http.Handler
		direct function
	}
	schemas map[string]*jsonschema.Resolved
}

// deskArgs are the arguments of the tools behind the doors for models.
type deskArgs struct {
	N    int64  `json:"n"`
	Note string `json:"note,omitempty"`
}

func newDoorWorld(t *testing.T) *doorWorld {
	t.Helper()
	w := &doorWorld{Rig: rig.New(t), t: t, in: faults.New(nil)}
	w.Ledger = w.Process(dynamodb.NewFromConfig(w.AWS, w.in.Attach, faults.Quick))
	act := func(ctx context.Context, a writers.Attempt[deskArgs]) (string, error) {
		return w.act(ctx, a.CallInfo, a.Args)
	}
	w.act = func(context.Context, writers.CallInfo, deskArgs) (string, error) { return "done", nil }
	var err error
	w.tools, err = api.NewToolset(
		&writers.Tool[deskArgs, string]{Name: "act", Cost: 10, Act: act},
		&writers.Tool[deskArgs, string]{Name: "big", Cost: 10, MaxResult: 1 << 20, Act: act},
		changed{&writers.Tool[deskArgs, string]{Name: "undo", Act: act}, func(c *writers.Call) { c.Compensates = writers.SessionKey("never") }},
		changed{&writers.Tool[deskArgs, string]{Name: "moved", Act: act}, func(c *writers.Call) { c.Cursor, c.ExpectCursor = "b", new("a") }},
		instead{&writers.Tool[deskArgs, string]{Name: "own", Act: act}, w.refusedWrite},
		instead{&writers.Tool[deskArgs, string]{Name: "missing", Act: act}, func(ctx context.Context, s writers.Session, k writers.Key) (writers.Raw, error) {
			_, err := s.Get(ctx, k)
			return writers.Raw{}, err
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg := api.HandlerConfig{
		Now: w.Now, MaxBody: maxDoorBody,
		Tenant: func(r *http.Request) (writers.TenantID, error) {
			ids := r.Header.Values("X-Tenant-Id")
			if len(ids) != 1 {
				return "", errors.New("want one tenant")
			}
			return writers.TenantID(ids[0]), nil
		},
		Admin: func(r *http.Request) bool { return r.Header.Get("X-Tenant-Id") == "acme" },
	}
	if w.http, err = api.NewHandler(w.Ledger, cfg); err != nil {
		t.Fatal(err)
	}
	dead := w.Process(panicking{})
	if w.broken.http, err = api.NewHandler(dead, cfg); err != nil {
		t.Fatal(err)
	}
	w.direct, w.broken.direct, w.schemas = api.Direct(w.Ledger), api.Direct(dead), documentSchemas(t)
	w.Plan("poor", writers.Plan{Tokens: 9})
	w.Plan("stopped", writers.Plan{Tokens: 1000})
	if err := w.Ledger.Tenant("stopped").Suspend(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	return w
}

// changed is a tool whose calls have something more.
type changed struct {
	writers.AnyTool
	more func(*writers.Call)
}

func (c changed) DoJSON(ctx context.Context, s writers.Session, k writers.Key, args json.RawMessage, opts ...func(*writers.Call)) (writers.Raw, error) {
	return c.AnyTool.DoJSON(ctx, s, k, args, append(opts, c.more)...)
}

// instead is a tool that a host has written by hand.
type instead struct {
	writers.AnyTool
	do func(context.Context, writers.Session, writers.Key) (writers.Raw, error)
}

func (i instead) DoJSON(ctx context.Context, s writers.Session, k writers.Key, _ json.RawMessage, _ ...func(*writers.Call)) (writers.Raw, error) {
	return i.do(ctx, s, k)
}

// refusedWrite commits a write of its own that the outside table refuses.
func (w *doorWorld) refusedWrite(ctx context.Context, s writers.Session, k writers.Key) (writers.Raw, error) {
	table := w.Table + "-own"
	if !w.own {
		w.CreateTable(table, "id")
		w.own = true
	}
	return s.Commit(ctx, writers.Call{Key: k, Tool: "own", Writes: []types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{
		TableName: &table, Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "x"}},
		ConditionExpression: new("attribute_exists(#id)"), ExpressionAttributeNames: map[string]string{"#id": "id"},
	}}}}, "done")
}

// documentSchemas are the answers that the OpenAPI document describes.
func documentSchemas(t *testing.T) map[string]*jsonschema.Resolved {
	t.Helper()
	var doc struct {
		Components struct {
			Schemas map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(api.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	defs, err := json.Marshal(doc.Components.Schemas)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*jsonschema.Resolved{}
	for _, name := range []string{"Answer", "Call", "Problem", "Quota", "Plan"} {
		var s jsonschema.Schema
		text := `{"$ref":"#/$defs/` + name + `","$defs":` + strings.ReplaceAll(string(defs), "#/components/schemas/", "#/$defs/") + `}`
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if out[name], err = s.Resolve(nil); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// doorStep is one request of a story that every door for programs is told in the same way.
type doorStep struct {
	op, tenant string
	fields     map[string]any // "$name.member" stands for a member of an earlier answer
	want       string         // outcome, state of a read, or code
	as         string         // name of the answer for later steps
	advance    time.Duration  // before the request
	down       bool           // DynamoDB does not answer
	broken     bool           // the program behind the door panics
	front      bool           // HTTP only: what direct invocations cannot send, or may not do
	encoded    bool           // HTTP only: with a Content-Encoding
	do         func(w *doorWorld, named map[string]obj)
}

type obj = map[string]any

// callOf are the fields of a call with some of them changed.
func callOf(key string, more ...obj) obj {
	out := obj{"session": "s", "key": key, "tool": "t", "args": obj{"a": 1, "b": "x"}}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// heldAs are the fields that follow a reservation.
func heldAs(key, as string, more ...obj) obj {
	out := obj{"session": "s", "key": key, "row_id": "$" + as + ".row_id", "attempt": "$" + as + ".attempt"}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// programStory drives every operation and every code that the doors for programs offer.
var programStory = []doorStep{
	{op: "quota", want: ""},
	{op: "commit", fields: callOf("c1", obj{"tokens": 5, "result": obj{"n": 1}, "cursor": "one"}), want: "applied"},
	{op: "commit", fields: callOf("c1", obj{"tokens": 5, "retry": true}), want: "replayed"},
	{op: "commit", fields: callOf("c1", obj{"args": obj{"a": 2, "b": "x"}}), want: "key_conflict"},
	{op: "commit", fields: callOf("c2", obj{"cursor": "two", "expect_cursor": "none"}), want: "session_moved"},
	{op: "commit", fields: callOf("c2", obj{"cursor": "two", "expect_cursor": "one", "scope": "tenant"}), want: "applied"},
	{op: "get", fields: obj{"session": "s", "key": "c2", "scope": "tenant"}, want: "applied"},
	{op: "get", fields: obj{"session": "s", "key": "c2"}, want: "not_found"},
	{op: "reserve", fields: callOf("r1", obj{"tokens": 20, "lookup": "x"}), want: "reserved", as: "r1"},
	{op: "reserve", fields: callOf("r1", obj{"tokens": 20}), want: "in_progress"},
	{op: "get", fields: obj{"session": "s", "key": "r1"}, want: "pending"},
	{op: "extend", fields: heldAs("r1", "r1", obj{"lease_seconds": 120}), want: "extended"},
	{op: "finalize", fields: heldAs("r1", "r1", obj{"result": "x", "charged_tokens": 7}), want: "applied"},
	{op: "finalize", fields: heldAs("r1", "r1", obj{"result": "y"}), want: "applied"},
	{op: "release", fields: heldAs("r1", "r1"), want: "attempt_superseded"},
	{op: "reserve", fields: callOf("r2", obj{"tokens": 1, "scope": "intent"}), want: "invalid_request"},
	{op: "reserve", fields: obj{"session": "s", "tool": "t", "scope": "intent", "args": obj{"z": 1}}, want: "reserved", as: "intent"},
	{op: "release", fields: obj{"session": "s", "key": "$intent.key", "row_id": "$intent.row_id", "attempt": 1, "reason": "no"}, want: "released"},
	{op: "release", fields: obj{"session": "s", "key": "$intent.key", "row_id": "$intent.row_id", "attempt": 1}, want: "released"},
	{op: "reserve", fields: callOf("r3", obj{"tokens": 3}), want: "reserved", as: "r3"},
	{op: "resolve", fields: heldAs("r3", "r3", obj{"verdict": "absent", "by": "ann"}), want: "in_progress"},
	{op: "reserve", fields: callOf("r3", obj{"tokens": 3}), want: "outcome_unknown", as: "late", advance: 5 * time.Minute},
	{op: "reserve", fields: callOf("r3", obj{"tokens": 3, "verified_absent": obj{"row_id": "$late.row_id", "attempt": "$late.attempt", "deadline": "$late.deadline"}}), want: "reserved", as: "r3b"},
	{op: "extend", fields: heldAs("r3", "r3"), want: "attempt_superseded"},
	{op: "finalize", fields: heldAs("r3", "r3", obj{"result": 1}), want: "settled_late"},
	{op: "reserve", fields: callOf("r4"), want: "reserved", as: "r4"},
	{op: "resolve", fields: heldAs("r4", "r4", obj{"verdict": "applied", "result": obj{"seen": true}, "by": "ann", "why": "looked"}), want: "applied"},
	{op: "reserve", fields: callOf("r5"), want: "reserved", as: "r5"},
	{op: "resolve", fields: heldAs("r5", "r5", obj{"verdict": "absent", "by": "ann"}), want: "released", advance: 5 * time.Minute},
	{op: "commit", fields: callOf("u1", obj{"compensates": "c1", "refund_original": true}), want: "applied"},
	{op: "commit", fields: callOf("u2", obj{"compensates": "c1"}), want: "not_compensable"},
	{op: "calls", fields: obj{"session": "s", "limit": 2}, want: ""},
	{op: "calls", fields: obj{"session": "s", "after": "r1", "limit": 200}, want: ""},
	{op: "quota", want: ""},
	{op: "commit", fields: callOf("q1", obj{"tokens": 5000}), want: "quota_exhausted"},
	{op: "commit", tenant: "stopped", fields: callOf("q1", obj{"tokens": 1}), want: "tenant_suspended"},
	{op: "commit", tenant: "nobody", fields: callOf("q1", obj{"tokens": 1}), want: "quota_not_provisioned"},
	{op: "quota", tenant: "nobody", want: "quota_not_provisioned"},
	{op: "commit", tenant: "-", fields: callOf("q1"), want: "missing_tenant"},
	{op: "commit", fields: callOf("a#b"), want: "invalid_request"},
	{op: "commit", fields: callOf("q2", obj{"surprise": 1}), want: "invalid_request"},
	{op: "commit", fields: callOf("q2", obj{"tokens": "5"}), want: "invalid_request"},
	{op: "finalize", fields: obj{"session": "s", "key": "none", "row_id": "r", "attempt": 1}, want: "not_found"},
	{op: "reserve", fields: callOf("big"), want: "reserved", as: "big"},
	{op: "reserve", fields: callOf("down"), want: "unavailable", down: true},
	{op: "get", fields: obj{"session": "s", "key": "c1"}, want: "unavailable", down: true},
	{op: "finalize", fields: heldAs("big", "big", obj{"result": 1}), want: "unavailable", down: true},
	{op: "finalize", fields: heldAs("big", "big", obj{"result": 1}), want: "applied"},

	// What the other operations meet of the same codes.
	{op: "commit", fields: callOf("r6", obj{"scope": "tenant"}), want: "applied", as: "r6"},
	{op: "reserve", fields: callOf("r6", obj{"scope": "tenant"}), want: "replayed"},
	{op: "reserve", fields: callOf("r6", obj{"scope": "tenant", "tool": "u"}), want: "key_conflict"},
	{op: "reserve", fields: callOf("r7", obj{"cursor": "x", "expect_cursor": "none"}), want: "session_moved"},
	{op: "reserve", fields: callOf("r7", obj{"compensates": "never"}), want: "not_compensable"},
	{op: "reserve", fields: callOf("r7", obj{"tokens": 5000}), want: "quota_exhausted"},
	{op: "reserve", tenant: "stopped", fields: callOf("r7", obj{"tokens": 1}), want: "tenant_suspended"},
	{op: "reserve", tenant: "nobody", fields: callOf("r7", obj{"tokens": 1}), want: "quota_not_provisioned"},
	{op: "reserve", fields: callOf("r8", obj{"cursor": "y", "expect_cursor": "two"}), want: "reserved", as: "r8"},
	{op: "commit", fields: callOf("r8"), want: "in_progress"},
	{op: "commit", fields: callOf("c3", obj{"cursor": "elsewhere"}), want: "applied"},
	{op: "finalize", fields: heldAs("r8", "r8", obj{"result": 8, "tool": "other"}), want: "key_conflict"},
	{op: "finalize", fields: heldAs("r8", "r8", obj{"result": 8}), want: "session_moved"},
	{op: "get", fields: obj{"session": "s", "key": "r8"}, want: "applied"},
	{op: "reserve", fields: callOf("r9", obj{"lease_seconds": 1, "horizon_seconds": 1}), want: "reserved", as: "r9"},
	{op: "release", fields: obj{"session": "s", "key": "r9", "row_id": "$r9.row_id", "attempt": 2}, want: "attempt_superseded"},
	{op: "finalize", fields: obj{"session": "s", "key": "r9", "row_id": "$r9.row_id", "attempt": 2, "result": 1}, want: "attempt_superseded"},
	{op: "resolve", fields: obj{"session": "s", "key": "r9", "row_id": "$r9.row_id", "attempt": 2, "verdict": "applied"}, want: "attempt_superseded"},
	{op: "commit", fields: callOf("r9"), want: "outcome_unknown", advance: 5 * time.Minute},
	{op: "reserve", fields: callOf("ra", obj{"tokens": 2}), want: "reserved", as: "ra"},
	{
		op: "finalize", fields: heldAs("ra", "ra", obj{"tool": "t", "args": obj{"a": 1, "b": "x"}, "tokens": 2, "result": 1}), want: "settled_late",
		do: func(w *doorWorld, _ map[string]obj) { w.forget("ra") },
	},
	{op: "finalize", fields: heldAs("ra", "ra", obj{"tool": "t", "args": obj{"a": 1, "b": "x"}, "tokens": 2, "result": 2}), want: "settled_late"},

	// Nobody, nothing there, nothing that can be read: the same for all.
	{op: "reserve", tenant: "-", fields: callOf("x"), want: "missing_tenant"},
	{op: "finalize", tenant: "-", fields: rowOf("none"), want: "missing_tenant"},
	{op: "release", tenant: "-", fields: rowOf("none"), want: "missing_tenant"},
	{op: "extend", tenant: "-", fields: rowOf("none"), want: "missing_tenant"},
	{op: "resolve", tenant: "-", fields: rowOf("none", obj{"verdict": "absent"}), want: "missing_tenant"},
	{op: "get", tenant: "-", fields: obj{"session": "s", "key": "c1"}, want: "missing_tenant"},
	{op: "calls", tenant: "-", fields: obj{"session": "s"}, want: "missing_tenant"},
	{op: "quota", tenant: "-", want: "missing_tenant"},
	{op: "release", fields: rowOf("none"), want: "not_found"},
	{op: "extend", fields: rowOf("none"), want: "not_found"},
	{op: "resolve", fields: rowOf("none", obj{"verdict": "absent"}), want: "not_found"},
	{op: "finalize", fields: rowOf("none", obj{"args": obj{}}), want: "invalid_request"},
	{op: "release", fields: rowOf("none", obj{"attempt": 0}), want: "invalid_request"},
	{op: "extend", fields: rowOf("none", obj{"lease_seconds": 1 << 40}), want: "invalid_request"},
	{op: "resolve", fields: rowOf("none", obj{"verdict": "unknown"}), want: "invalid_request"},
	{op: "get", fields: obj{"session": "s", "key": "a#b"}, want: "invalid_request"},
	{op: "calls", fields: obj{"session": "s", "after": "a#b"}, want: "invalid_request"},
	{op: "quota", tenant: "a#b", want: "invalid_request"},
	{op: "commit", fields: callOf("x"), want: "unavailable", down: true},
	{op: "release", fields: rowOf("none"), want: "unavailable", down: true},
	{op: "extend", fields: rowOf("none"), want: "unavailable", down: true},
	{op: "resolve", fields: rowOf("none", obj{"verdict": "absent"}), want: "unavailable", down: true},
	{op: "calls", fields: obj{"session": "s"}, want: "unavailable", down: true},
	{op: "quota", want: "unavailable", down: true},
	{op: "commit", fields: callOf("x"), want: "internal_error", broken: true},
	{op: "reserve", fields: callOf("x"), want: "internal_error", broken: true},
	{op: "finalize", fields: rowOf("none"), want: "internal_error", broken: true},
	{op: "release", fields: rowOf("none"), want: "internal_error", broken: true},
	{op: "extend", fields: rowOf("none"), want: "internal_error", broken: true},
	{op: "resolve", fields: rowOf("none", obj{"verdict": "absent"}), want: "internal_error", broken: true},
	{op: "get", fields: obj{"session": "s", "key": "c1"}, want: "internal_error", broken: true},
	{op: "calls", fields: obj{"session": "s"}, want: "internal_error", broken: true},
	{op: "quota", want: "internal_error", broken: true},

	// The sizes that each door bounds: HTTP the request, the ledger what it stores.
	{op: "commit", fields: callOf("large", obj{"result": strings.Repeat("x", 300<<10)}), want: "too_large"},
	{op: "reserve", fields: callOf("large", obj{"args": obj{"a": strings.Repeat("x", maxDoorBody)}}), want: "too_large", front: true},
	{op: "reserve", fields: callOf("large"), want: "reserved", as: "large"},
	{op: "finalize", fields: heldAs("large", "large", obj{"result": strings.Repeat("x", 300<<10)}), want: "too_large"},
	{op: "resolve", fields: heldAs("large", "large", obj{"verdict": "applied", "result": strings.Repeat("x", 300<<10)}), want: "too_large"},
	{op: "release", fields: rowOf("none", obj{"reason": strings.Repeat("x", maxDoorBody)}), want: "too_large", front: true},
	{op: "extend", fields: rowOf(strings.Repeat("x", maxDoorBody)), want: "too_large", front: true},
	{op: "commit", fields: callOf("x"), want: "unsupported_media_type", front: true, encoded: true},
	{op: "reserve", fields: callOf("x"), want: "unsupported_media_type", front: true, encoded: true},
	{op: "finalize", fields: rowOf("none"), want: "unsupported_media_type", front: true, encoded: true},
	{op: "release", fields: rowOf("none"), want: "unsupported_media_type", front: true, encoded: true},
	{op: "extend", fields: rowOf("none"), want: "unsupported_media_type", front: true, encoded: true},
	{op: "resolve", fields: rowOf("none", obj{"verdict": "absent"}), want: "unsupported_media_type", front: true, encoded: true},

	// The administrator's operation has a door of its own.
	{op: "plan", fields: obj{"tokens": 500}, want: "", front: true},
	{op: "plan", tenant: "mallory", fields: obj{"tokens": 500}, want: "forbidden", front: true},
	{op: "plan", fields: obj{"tokens": -1}, want: "invalid_request", front: true},
	{op: "plan", fields: obj{"tokens": 1, "period": strings.Repeat("x", maxDoorBody)}, want: "too_large", front: true},
	{op: "plan", fields: obj{"tokens": 1}, want: "unsupported_media_type", front: true, encoded: true},
	{op: "plan", fields: obj{"tokens": 1}, want: "unavailable", front: true, down: true},
	{op: "plan", fields: obj{"tokens": 1}, want: "internal_error", front: true, broken: true},
}

// maxDoorBody is the largest body that these tests' HTTP door takes.
const maxDoorBody = 400 << 10

// rowOf are the fields that follow a reservation, of a row that is not there.
func rowOf(key string, more ...obj) obj {
	out := obj{"session": "s", "key": key, "row_id": "r", "attempt": 1}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// forget removes the row of a session key of acme's, as TTL does long after its end.
func (w *doorWorld) forget(key string) {
	w.t.Helper()
	at := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "TENANT#acme#SESSION#s"}, "sk": &types.AttributeValueMemberS{Value: "TOOL#" + key},
	}
	if _, err := w.DB.DeleteItem(w.t.Context(), &dynamodb.DeleteItemInput{TableName: &w.Table, Key: at}); err != nil {
		w.t.Fatal(err)
	}
}

// panicking is a DynamoDB whose client was never made: every use of it panics.
type panicking struct{ writers.DynamoDB }

// TestProgramDoorsAgree: every operation and every code that the document lists for it is the same through HTTP and through
// direct invocation, to the member; every answer is one that the document describes; and the story has a row for each
// pair of operation and code, and meets none that is not listed.
func TestProgramDoorsAgree(t *testing.T) {
	byHTTP, byEvent := tellStory(t, (*doorWorld).overHTTP), tellStory(t, (*doorWorld).overDirect)
	offered, met := operationCodes(t), map[string]map[string]bool{}
	for i, s := range programStory {
		if !s.front && byHTTP[i] != byEvent[i] {
			t.Errorf("step %d %s: over HTTP\n%s\ndirectly\n%s", i, s.op, byHTTP[i], byEvent[i])
		}
		if met[s.op] == nil {
			met[s.op] = map[string]bool{}
		}
		var doc struct{ Code string }
		if err := json.Unmarshal([]byte(byHTTP[i]), &doc); err != nil {
			t.Fatal(err)
		}
		met[s.op][doc.Code] = true
		if doc.Code != "" && !slices.Contains(offered[s.op], doc.Code) {
			t.Errorf("step %d: %s answers %s, which the document does not list", i, s.op, doc.Code)
		}
	}
	for op, codes := range offered {
		for _, code := range append(codes, "") {
			if !met[op][code] && code != "method_not_allowed" {
				t.Errorf("the story does not ask for %s so that it answers %q", op, code)
			}
		}
	}
}

// operationCodes are the codes that the document lists, by the name of the operation at the direct door.
func operationCodes(t *testing.T) map[string][]string {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			ID    string   `yaml:"operationId"`
			Codes []string `yaml:"x-codes"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(api.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{"getCall": "get", "listCalls": "calls", "getQuota": "quota", "putPlan": "plan"}
	out := map[string][]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if len(op.Codes) == 0 {
				t.Errorf("the document lists no codes of %s %s", method, path)
			}
			if path != "/healthz" && path != "/openapi.yaml" { // they refuse another method, and nothing else
				out[or(byName[op.ID], op.ID)] = op.Codes
			}
		}
	}
	return out
}

var randomID = regexp.MustCompile(`[A-Z2-7]{26}`)

// tellStory sends the story through a door and returns every answer, its random ids replaced.
func tellStory(t *testing.T, ask func(w *doorWorld, s doorStep, tenant string, fields obj) obj) []string {
	t.Helper()
	w := newDoorWorld(t)
	named := map[string]obj{}
	var all []string
	for i, s := range programStory {
		w.Advance(s.advance)
		if s.do != nil {
			s.do(w, named)
		}
		if s.down {
			w.in.Set(faults.Every(faults.Try, "", faults.Fail(faults.Broken())))
		}
		doc := ask(w, s, map[string]string{"": "acme", "-": ""}[s.tenant]+strings.Trim(s.tenant, "-"), filled(named, s.fields))
		w.in.Set(nil)
		if doc == nil { // of the front only
			all = append(all, "")
			continue
		}
		word := doc["outcome"]
		if doc["code"] != nil {
			word = doc["code"]
		} else if s.op == "get" {
			word = doc["state"]
		}
		if s.want != "" && word != s.want {
			t.Fatalf("step %d %s: %v, want %s", i, s.op, doc, s.want)
		}
		w.described(s.op, doc)
		named[s.as] = doc
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, randomID.ReplaceAllString(string(text), "ID"))
	}
	return all
}

// filled puts members of earlier answers where they are asked for.
func filled(named map[string]obj, fields obj) obj {
	out := obj{}
	for name, v := range fields {
		switch x := v.(type) {
		case obj:
			v = filled(named, x)
		case string:
			if as, member, ok := strings.Cut(strings.TrimPrefix(x, "$"), "."); ok && strings.HasPrefix(x, "$") {
				v = named[as][member]
			}
		}
		out[name] = v
	}
	return out
}

// described fails the test unless the document describes the answer.
func (w *doorWorld) described(op string, doc obj) {
	w.t.Helper()
	name := map[string]string{"get": "Call", "quota": "Quota", "calls": "", "plan": "Plan"}
	schema, ok := name[op]
	if !ok {
		schema = "Answer"
	}
	if doc["code"] != nil {
		schema = "Problem"
	}
	if schema == "" {
		calls, _ := doc["calls"].([]any)
		for _, c := range calls {
			if err := w.schemas["Call"].Validate(c); err != nil {
				w.t.Errorf("%s: %v", op, err)
			}
		}
		return
	}
	if err := w.schemas[schema].Validate(doc); err != nil {
		w.t.Errorf("%s: not a %s of the document: %v: %v", op, schema, err, doc)
	}
}

func (w *doorWorld) overHTTP(s doorStep, tenant string, fields obj) obj {
	w.t.Helper()
	method, path, body := http.MethodPost, "/v1/"+s.op, ""
	query := url.Values{}
	for name, v := range fields {
		query.Set(name, fmt.Sprint(v))
	}
	switch s.op {
	case "get":
		method, path = http.MethodGet, "/v1/calls?"+query.Encode()
	case "quota":
		method, path = http.MethodGet, "/v1/quota"
	case "calls":
		query.Del("session")
		method, path = http.MethodGet, fmt.Sprintf("/v1/sessions/%v/calls?%s", fields["session"], query.Encode())
	default:
		if s.op == "plan" {
			method, path = http.MethodPut, "/v1/tenants/globex/plan"
		}
		text, err := json.Marshal(fields)
		if err != nil {
			w.t.Fatal(err)
		}
		body = string(text)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	if tenant != "" {
		r.Header.Set("X-Tenant-Id", tenant)
	}
	if s.encoded {
		r.Header.Set("Content-Encoding", "gzip")
	}
	rec, door := httptest.NewRecorder(), w.http
	if s.broken {
		door = w.broken.http
	}
	door.ServeHTTP(rec, r)
	var doc obj
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		w.t.Fatalf("%s %s: %v: %s", method, path, err, rec.Body)
	}
	return doc
}

func (w *doorWorld) overDirect(s doorStep, tenant string, fields obj) obj {
	w.t.Helper()
	if s.front {
		return nil
	}
	event := maps.Clone(fields)
	if event == nil {
		event = obj{}
	}
	event["op"] = s.op
	if tenant != "" {
		event["tenant"] = tenant
	}
	text, err := json.Marshal(event)
	if err != nil {
		w.t.Fatal(err)
	}
	door := w.direct
	if s.broken {
		door = w.broken.direct
	}
	raw, err := door(w.t.Context(), text)
	if u, ok := errors.AsType[*api.UnavailableError](err); ok { // what Step Functions retries, with the answer of HTTP
		return problemOfUnavailable(w.t, u)
	}
	var doc obj
	if err != nil || json.Unmarshal(raw, &doc) != nil {
		w.t.Fatalf("%s: %v %s", text, err, raw)
	}
	return doc
}

// problemOfUnavailable is the problem that HTTP has for an error that says nothing about the request.
func problemOfUnavailable(t *testing.T, u *api.UnavailableError) obj {
	t.Helper()
	doc := obj{
		"type": "urn:problem-type:toolledger:" + u.Code, "title": "The ledger did not answer in time", "status": 503.0, "detail": u.Detail,
		"code": u.Code, "retry_after_seconds": 1.0,
	}
	if u.Code == "internal_error" {
		doc["title"], doc["status"] = "Internal Server Error", 500.0
		delete(doc, "retry_after_seconds")
	}
	if e, ok := errors.AsType[*writers.Error](u.Err); ok && e.Call.RowID != "" {
		doc["row_id"], doc["attempt"], doc["deadline"] = e.Call.RowID, float64(e.Call.Attempt), e.Call.Deadline.Format("2006-01-02T15:04:05.000Z")
	}
	return doc
}

// toolCase is one call of a tool that every door for models is asked for.
type toolCase struct {
	name, tenant, key, tool, args string
	prepare                       func(w *doorWorld)
	act                           func(w *doorWorld, c writers.CallInfo) (string, error)
	want                          string // code; "" for the result "done"
	state                         writers.State
	reprompt                      bool // the model goes on
}

// reserved holds the case's call on behalf of somebody else.
func reserved(w *doorWorld) {
	_, _, err := w.Ledger.Tenant("acme").Session("s").Reserve(w.t.Context(), writers.Call{
		Key: writers.SessionKey("k"), Tool: "act", Args: deskArgs{N: 1}, Tokens: 10,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// toolCases meet every code that the doors for models can answer.
var toolCases = []toolCase{
	{name: "applied", state: writers.StateApplied},
	{name: "bad arguments", args: `{"n":"one"}`, want: "invalid_request", reprompt: true},
	{name: "unknown argument", args: `{"n":1,"tenantId":"acme"}`, want: "invalid_request", reprompt: true},
	{name: "bad key", key: "a#b", want: "invalid_request", reprompt: true},
	{name: "unknown tool", tool: "drop", want: "invalid_request"},
	{name: "no tenant", tenant: "-", want: "missing_tenant"},
	{name: "replayed", prepare: func(w *doorWorld) {
		if _, err := w.Ledger.Tenant("acme").Session("s").Commit(w.t.Context(), writers.Call{Key: writers.SessionKey("k"), Tool: "act", Args: deskArgs{N: 1}}, "done"); err != nil {
			w.t.Fatal(err)
		}
	}, act: func(w *doorWorld, _ writers.CallInfo) (string, error) { w.t.Error("acted again"); return "", nil }, state: writers.StateApplied},
	{name: "other arguments", args: `{"n":2}`, prepare: reserved, want: "key_conflict", state: writers.StatePending, reprompt: true},
	{name: "in flight", prepare: reserved, want: "in_progress", state: writers.StatePending, reprompt: true},
	{name: "in doubt", prepare: func(w *doorWorld) { reserved(w); w.Advance(10 * time.Minute) }, want: "outcome_unknown", state: writers.StatePending},
	{name: "failed in act", act: func(*doorWorld, writers.CallInfo) (string, error) { return "", context.DeadlineExceeded }, want: "outcome_unknown", state: writers.StatePending},
	{name: "panicked in act", act: func(*doorWorld, writers.CallInfo) (string, error) { panic("boom") }, want: "outcome_unknown", state: writers.StatePending},
	{name: "refused", act: func(*doorWorld, writers.CallInfo) (string, error) {
		return "", writers.NotApplied(errors.New("sold out"))
	}, want: "not_applied", state: writers.StateFailed, reprompt: true},
	{name: "no tokens", tenant: "poor", want: "quota_exhausted"},
	{name: "no plan", tenant: "nobody", want: "quota_not_provisioned"},
	{name: "suspended", tenant: "stopped", want: "tenant_suspended"},
	{name: "too large", tool: "big", want: "too_large", reprompt: true},
	{name: "nothing to undo", tool: "undo", want: "not_compensable", reprompt: true},
	{name: "moved on", tool: "moved", want: "session_moved", reprompt: true},
	{name: "a write of its own refused", tool: "own", want: "write_refused", reprompt: true},
	{name: "not there", tool: "missing", want: "not_found", reprompt: true},
	{name: "replaced", act: func(w *doorWorld, c writers.CallInfo) (string, error) {
		w.Advance(10 * time.Minute)
		hold, _, err := w.Ledger.Tenant("acme").Session("s").Reserve(w.t.Context(), writers.Call{
			Key: c.Key, Tool: "act", Args: deskArgs{N: 1}, Tokens: 10, VerifiedAbsent: c.Ref(),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := hold.Finalize(w.t.Context(), "theirs", 10); err != nil {
			w.t.Fatal(err)
		}
		return "ours", nil
	}, want: "attempt_superseded", state: writers.StateApplied},
	{name: "down", prepare: func(w *doorWorld) { w.in.Set(faults.Every(faults.Try, "", faults.Fail(faults.Broken()))) }, want: "unavailable"},
}

// notOfTools are the document's codes that a tool cannot meet, and why.
var notOfTools = map[string]string{
	"forbidden":              "there is no administrator's tool",
	"method_not_allowed":     "there are no methods",
	"unsupported_media_type": "there are no encodings",
	"internal_error":         "what a tool did before it panicked is not known: outcome_unknown",
}

// documentCodes are all codes of the document.
func documentCodes(t *testing.T) []string {
	t.Helper()
	var doc struct {
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Code struct {
							Enum []string `yaml:"enum"`
						} `yaml:"code"`
					} `yaml:"properties"`
				} `yaml:"Problem"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(api.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Components.Schemas.Problem.Properties.Code.Enum
}

// toolDoors ask for a tool. Each returns the result or "", the code, and whether the model may go on (where the door says).
var toolDoors = map[string]func(w *doorWorld, c toolCase) (result, code string, goesOn bool){
	"claude":           (*doorWorld).overClaude,
	"bedrock function": func(w *doorWorld, c toolCase) (string, string, bool) { return w.overBedrock(c, false) },
	"bedrock schema":   func(w *doorWorld, c toolCase) (string, string, bool) { return w.overBedrock(c, true) },
	"agentcore":        (*doorWorld).overAgentCore,
}

// TestToolDoorsAgree: a tool called through any door for models ends in the same way, in the same state of the ledger.
func TestToolDoorsAgree(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range toolCases {
		c.key, c.tool, c.args = or(c.key, "k"), or(c.tool, "act"), or(c.args, `{"n":1}`)
		c.tenant = strings.Trim(or(c.tenant, "acme"), "-")
		seen[c.want] = true
		for name, ask := range toolDoors {
			w := newDoorWorld(t)
			if c.act != nil {
				w.act = func(_ context.Context, info writers.CallInfo, _ deskArgs) (string, error) { return c.act(w, info) }
			}
			if c.prepare != nil {
				c.prepare(w)
			}
			result, code, goesOn := ask(w, c)
			w.in.Set(nil)
			if code != c.want || (code == "") != (result == `"done"`) {
				t.Errorf("%s, %s: %q %q", c.name, name, result, code)
			}
			if name == "bedrock function" && code != "" && goesOn != c.reprompt {
				t.Errorf("%s: the model goes on: %v", c.name, goesOn)
			}
			row, err := w.Ledger.Tenant("acme").Session("s").Get(t.Context(), writers.SessionKey("k"))
			if c.state == "" && !errors.Is(err, writers.ErrNotFound) || c.state != "" && (err != nil || row.State != c.state) {
				t.Errorf("%s, %s: the row is %q, %v", c.name, name, row.State, err)
			}
		}
	}
	codes := documentCodes(t)
	if len(codes) < 15 {
		t.Fatalf("the document has %d codes", len(codes))
	}
	for _, code := range codes {
		if seen[code] == (notOfTools[code] != "") {
			t.Errorf("no case meets %s, or it is said that none can: %v", code, seen[code])
		}
	}
}

func or(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

const briefly = time.Millisecond

func (w *doorWorld) overClaude(c toolCase) (result, code string, goesOn bool) {
	res := w.tools.Answer(w.t.Context(), w.Ledger.Tenant(writers.TenantID(c.tenant)).Session("s"),
		[]api.ToolUse{{Type: "tool_use", ID: "u", Name: c.tool, Input: json.RawMessage(c.args)}}, func(o *api.AnswerOptions) {
			o.Wait = briefly
			o.Key = func(api.ToolUse) writers.Key { return writers.SessionKey(c.key) }
		})[0]
	if !res.IsError {
		return res.Content, "", true
	}
	word, _ := errors.AsType[writers.Code](res.Err)
	return "", string(word), false
}

// bedrockEvent is the case as an agent sends it.
func bedrockEvent(t *testing.T, c toolCase, schema bool) json.RawMessage {
	t.Helper()
	var args map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.args), &args); err != nil {
		t.Fatal(err)
	}
	var params []api.BedrockParameter
	for name, v := range args {
		params = append(params, api.BedrockParameter{Name: name, Type: "string", Value: strings.Trim(string(v), `"`)})
	}
	e := api.BedrockEvent{MessageVersion: "1.0", SessionID: "s", ActionGroup: "g", SessionAttributes: map[string]string{"idempotencyKey": c.key}}
	if c.tenant != "" {
		e.SessionAttributes["tenantId"] = c.tenant
	}
	if schema {
		e.APIPath, e.HTTPMethod = "/"+c.tool, "POST"
		e.RequestBody = &api.BedrockRequestBody{Content: map[string]api.BedrockProperties{"application/json": {Properties: params}}}
	} else {
		e.Function, e.Parameters = c.tool, params
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (w *doorWorld) overBedrock(c toolCase, schema bool) (result, code string, goesOn bool) {
	w.t.Helper()
	door := api.Bedrock(w.Ledger, w.tools, nil, func(o *api.BedrockOptions) {
		o.Wait = briefly
		o.Tool = func(action string) string { return strings.TrimPrefix(action, "POST /") }
	})
	raw, err := door(w.t.Context(), bedrockEvent(w.t, c, schema))
	var r api.BedrockResponse
	if err != nil || json.Unmarshal(raw, &r) != nil || r.MessageVersion != "1.0" || r.Response.ActionGroup != "g" {
		w.t.Fatalf("%s: %v %s", c.name, err, raw)
	}
	var body string
	if schema {
		body, goesOn = r.Response.ResponseBody["application/json"].Body, r.Response.HTTPStatusCode == 200
		if r.Response.APIPath != "/"+c.tool || r.Response.HTTPMethod != "POST" || r.Response.FunctionResponse != nil {
			w.t.Errorf("%s: %s", c.name, raw)
		}
	} else {
		fr := r.Response.FunctionResponse
		if fr == nil || r.Response.Function != c.tool || r.Response.HTTPStatusCode != 0 {
			w.t.Fatalf("%s: %s", c.name, raw)
		}
		body, goesOn = fr.ResponseBody["TEXT"].Body, fr.ResponseState != api.BedrockFailure
	}
	var doc obj
	if json.Unmarshal([]byte(body), &doc) != nil || doc["code"] == nil {
		return body, "", goesOn
	}
	w.described("", doc)
	code, _ = doc["code"].(string)
	return "", code, goesOn
}

// throughAgentCore is the context of an invocation by a gateway.
func throughAgentCore(ctx context.Context, tool string, headers map[string]string) context.Context {
	text, err := json.Marshal(headers)
	if err != nil {
		panic(err)
	}
	return lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{ClientContext: lambdacontext.ClientContext{Custom: map[string]string{
		"bedrockAgentCoreToolName": tool, "bedrockAgentCorePropagatedHeaders": string(text),
	}}})
}

func (w *doorWorld) overAgentCore(c toolCase) (result, code string, goesOn bool) {
	w.t.Helper()
	door := api.AgentCore(w.Ledger, w.tools, interceptorTenant, func(o *api.AgentCoreOptions) {
		o.Wait = briefly
		o.Session = func(map[string]string) string { return "s" }
	})
	headers := map[string]string{"Idempotency-Key": c.key}
	if c.tenant != "" {
		headers["X-Verified-Tenant"] = c.tenant
	}
	raw, err := door(throughAgentCore(w.t.Context(), "target___"+c.tool, headers), json.RawMessage(c.args))
	if err != nil {
		w.t.Fatalf("%s: %v", c.name, err)
	}
	var e struct {
		Content []struct{ Text string }
		IsError bool
	}
	if json.Unmarshal(raw, &e) != nil || !e.IsError {
		return string(raw), "", true
	}
	text := e.Content[0].Text
	return "", strings.TrimSuffix(text[strings.LastIndex(text, "[")+1:], "]"), false
}

// interceptorTenant reads the header that the interceptor of these tests sets.
func interceptorTenant(headers map[string]string) (writers.TenantID, error) {
	return writers.TenantID(headers["x-verified-tenant"]), nil
}
