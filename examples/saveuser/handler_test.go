package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/tests/rig"
	"toolledger/writers"
)

func newHandler(t *testing.T) (*handler, *rig.Rig) {
	t.Helper()
	g := rig.New(t)
	users := g.Table + "-users"
	if err := createUsers(t.Context(), g.DB, users); err != nil {
		t.Fatal(err)
	}
	return &handler{g.Ledger, users}, g
}

// call invokes the function as the gateway does.
func call(ctx context.Context, h *handler, tenant, key string, u User) (int, answer, error) {
	body, err := json.Marshal(request{Session: "s", Key: key, User: u})
	if err != nil {
		return 0, answer{}, err
	}
	res, err := h.overHTTP(ctx, event(string(body), tenant))
	if err != nil {
		return 0, answer{}, err
	}
	var a answer
	return res.StatusCode, a, json.Unmarshal([]byte(res.Body), &a)
}

func event(body, tenant string) (e events.APIGatewayV2HTTPRequest) {
	e.Body = body
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"tenant": tenant}},
	}
	return e
}

// TestCreate: created once; a retry gets the same answer; another action on the same id, and the same key for another
// user, are conflicts of different kinds. The same through both doors.
func TestCreate(t *testing.T) {
	for door, ask := range map[string]func(context.Context, *handler, string, string, User) (int, answer, error){
		"http": call,
		"invoke": func(ctx context.Context, h *handler, tenant, key string, u User) (int, answer, error) {
			text, err := json.Marshal(invocation{tenant, request{Session: "s", Key: key, User: u}})
			if err != nil {
				return 0, answer{}, err
			}
			a, err := h.overInvoke(ctx, text)
			return a.Status, a, err
		},
	} {
		t.Run(door, func(t *testing.T) {
			h, g := newHandler(t)
			ann := User{UserID: "u1", Email: "ann@example.com", Name: "Ann"}
			for _, tc := range []struct {
				name, tenant, key string
				user              User
				status            int
				replayed          bool
			}{
				{"create", "acme", "k1", ann, 200, false},
				{"retry", "acme", "k1", ann, 200, true},
				{"another action", "acme", "k2", ann, 409, false},
				{"another action again", "acme", "k2", ann, 409, false},
				{"the key for another user", "acme", "k1", User{UserID: "u2"}, 422, false},
				{"another user", "acme", "k2", User{UserID: "u2"}, 200, false},
				{"no tenant", "", "k3", ann, 403, false},
				{"no plan", "nobody", "k3", User{UserID: "u3"}, 403, false},
				{"no key", "acme", "", ann, 400, false},
			} {
				status, a, err := ask(t.Context(), h, tc.tenant, tc.key, tc.user)
				if err != nil || status != tc.status || a.Replayed != tc.replayed || (status == 200) != (a.User != nil) {
					t.Fatalf("%s: %d %+v, %v", tc.name, status, a, err)
				}
				if a.User != nil && *a.User != tc.user {
					t.Fatalf("%s: %+v", tc.name, *a.User)
				}
			}
			if left := g.Remaining("acme"); left != 998 {
				t.Fatalf("remaining %d", left)
			}
		})
	}
}

// TestBodies: a body is read as the gateway encodes it, whole or not at all; an event of another door is refused.
func TestBodies(t *testing.T) {
	h, g := newHandler(t)
	good := `{"session":"s","key":"k","args":{"userId":"u1","email":"","name":""}}`
	for body, want := range map[string]int{
		"": 400, "{": 400, `{"tenant":"victim","session":"s","key":"k","args":{}}`: 400, good + "{}": 400, "%%": 400, good + "}": 400, good + "]": 400,
		strings.Replace(good, "u1", "", 1): 400, strings.Replace(good, "u1", strings.Repeat("u", 1025), 1): 400,
		strings.Replace(good, `"name":""`, `"name":"`+strings.Repeat("n", 450<<10)+`"`, 1): 413,
	} {
		res, err := h.overHTTP(t.Context(), event(body, "acme"))
		if err != nil || res.StatusCode != want {
			t.Errorf("%.200s: %d %v", body, res.StatusCode, err)
		}
	}
	e := event(base64.StdEncoding.EncodeToString([]byte(good)), "acme")
	e.IsBase64Encoded = true
	if res, err := h.overHTTP(t.Context(), e); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("base64: %d %v", res.StatusCode, err)
	}
	for _, bad := range []string{`{}x`, `[]`, `{"op":"reserve","tenant":"acme"}`} {
		if _, err := h.overInvoke(t.Context(), json.RawMessage(bad)); !errors.Is(err, errShape) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if n := len(g.Items(h.users)); n != 1 {
		t.Fatalf("%d users", n)
	}
}

// TestTenantsShareNothing: an id that one tenant has taken is free to every other, says nothing to it, and a token that names
// several tenants, or none, is nobody's.
func TestTenantsShareNothing(t *testing.T) {
	h, g := newHandler(t)
	g.Plan("globex", writers.Plan{Tokens: 10})
	for _, tenant := range []string{"acme", "globex"} {
		status, a, err := call(t.Context(), h, tenant, "k", User{UserID: "u1", Name: tenant})
		if err != nil || status != 200 || a.Replayed || a.User.Name != tenant {
			t.Fatalf("%s: %d %+v %v", tenant, status, a, err)
		}
	}
	for _, claim := range []string{"", "[acme]", "[acme globex]", "{acme}", "acme ", "acme#SESSION#s", "a\x00b"} {
		status, a, err := call(t.Context(), h, claim, "k2", User{UserID: "u2"})
		if err != nil || status != 403 && status != 400 || a.User != nil {
			t.Errorf("%q: %d %+v %v", claim, status, a, err)
		}
	}
	names := map[string]bool{}
	for _, item := range g.Items(h.users) {
		tenant, _ := item["tenant"].(*types.AttributeValueMemberS)
		name, _ := item["name"].(*types.AttributeValueMemberS)
		names[tenant.Value+" has "+name.Value] = true
	}
	if len(names) != 2 || !names["acme has acme"] || !names["globex has globex"] {
		t.Fatal(names)
	}
}

// TestConcurrentCreates: of actions that want the same id at once, one makes the user.
func TestConcurrentCreates(t *testing.T) {
	h, g := newHandler(t)
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			status, _, err := call(t.Context(), h, "acme", fmt.Sprintf("k%d", i), User{UserID: "u1", Name: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
			}
			statuses[i] = status
		})
	}
	wg.Wait()
	won := 0
	for _, s := range statuses {
		if s == 200 {
			won++
		} else if s != 409 {
			t.Errorf("status %d", s)
		}
	}
	if n := len(g.Items(h.users)); won != 1 || n != 1 {
		t.Fatalf("%d won, %d users", won, n)
	}
}

// never is a pause that does not pause.
func never(context.Context, int) error { return nil }

// ways are both transports of a front.
func ways(g *rig.Rig, l *local) map[string]Way {
	return map[string]Way{
		"http":   viaHTTP(http.DefaultClient, l.url+"/users", "token"),
		"lambda": viaLambda(g.AWS, l.url, "saveuser", "acme"),
	}
}

// TestCallerRetries: whatever is lost on the way, a caller ends with the function's answer and one user; what retrying
// cannot mend it asks for once; and what never answers it gives up.
func TestCallerRetries(t *testing.T) {
	h, g := newHandler(t)
	var script atomic.Pointer[[]trouble]
	play := func(all ...trouble) { script.Store(&all) }
	play(overloaded, lost, answerLost, fine)
	l, err := openLocal(h, map[string]string{"token": "acme"}, func(n int64) trouble {
		all := *script.Load()
		return all[(n-1)%int64(len(all))]
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	for name, way := range ways(g, l) {
		c := &Caller{Way: way, Pause: never}
		before := l.n.Load()
		a, err := c.Call(t.Context(), request{Session: "s", Key: name, User: User{UserID: name}})
		if err != nil || a.Status != 200 || !a.Replayed || l.n.Load()-before != 4 { // the lost answer was the effect
			t.Fatalf("%s: %+v %v after %d", name, a, err, l.n.Load()-before)
		}
		play(fine)
		for _, in := range []request{{Session: "s", Key: name + "2", User: User{UserID: name}}, {Session: "s", Key: name, User: User{UserID: "x"}}, {}} {
			before = l.n.Load()
			if a, err := c.Call(t.Context(), in); err != nil || a.Status < 400 || l.n.Load()-before != 1 {
				t.Fatalf("%s: %+v %v after %d", name, a, err, l.n.Load()-before)
			}
		}
		play(lost)
		before = l.n.Load()
		if _, err := c.Call(t.Context(), request{Session: "s", Key: "never"}); !errors.Is(err, ErrUnknown) || l.n.Load()-before < 5 {
			t.Fatalf("%s: %v after %d", name, err, l.n.Load()-before)
		}
		play(overloaded, lost, answerLost, fine)
		l.n.Store(0)
	}
	if n := len(g.Items(h.users)); n != 2 {
		t.Fatalf("%d users", n)
	}
}

// TestFunctionErrorsAreTriedAgain: a function that ran and failed may have written: the key finds out.
func TestFunctionErrorsAreTriedAgain(t *testing.T) {
	_, g := newHandler(t)
	l, err := openLocal(&handler{g.Ledger, "no-such-table"}, map[string]string{"token": "acme"}, func(int64) trouble { return fine })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	for name, way := range ways(g, l) {
		before := l.n.Load()
		_, err := (&Caller{Way: way, Tries: 3, Pause: never}).Call(t.Context(), request{Session: "s", Key: name, User: User{UserID: "u"}})
		if !errors.Is(err, ErrUnknown) || l.n.Load()-before != 3 {
			t.Fatalf("%s: %v after %d", name, err, l.n.Load()-before)
		}
	}
}

// TestPlanActObserve: an agent whose user is taken takes another id; an agent that dies between acting and seeing goes on
// with the same key; and the audit log, made from the table's own stream, has all of it once, however often it is told.
func TestPlanActObserve(t *testing.T) {
	for _, door := range []string{"http", "lambda"} {
		t.Run(door, func(t *testing.T) {
			h, g := newHandler(t)
			l, err := openLocal(h, map[string]string{"token": "acme"}, rough)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.close)
			way := ways(g, l)[door]
			first, err := live(t.Context(), way, Memory{Session: "first"}, User{UserID: "ann", Name: "first"})
			if err != nil || len(first.Steps) != 1 || !first.Steps[0].Seen.Replayed {
				t.Fatalf("%+v %v", first, err)
			}
			second, err := live(t.Context(), way, Memory{Session: "second"}, User{UserID: "ann", Name: "second"})
			if err != nil || len(second.Steps) != 2 || second.Steps[0].Seen.Status != 409 || second.Steps[1].User.UserID != "ann-2" {
				t.Fatalf("%+v %v", second, err)
			}
			if n := len(g.Items(h.users)); n != 2 || g.Remaining("acme") != 998 {
				t.Fatalf("%d users, %d tokens", n, g.Remaining("acme"))
			}
			audited(t, g, map[string]string{
				"first-step-1 save_user": "ToolEffectApplied ToolCallReplayed", "second-step-1 save_user_refused": "ToolEffectApplied", "second-step-2 save_user": "ToolEffectApplied",
			})
		})
	}
}

// audited compares what the audit log says of each key and tool with what is wanted at least.
func audited(t *testing.T, g *rig.Rig, want map[string]string) {
	t.Helper()
	var out bytes.Buffer
	log := &auditLog{out: &out}
	for range 2 {
		for _, ev := range g.Events() {
			if err := log.handle(t.Context(), rig.Envelope(t, ev)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, ids := map[string]map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var l auditLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Tenant != "acme" || l.Tool != saveUser.Name && l.Tool != refusedTool || ids[l.ID] || strings.Contains(line, "ann") {
			t.Fatalf("%v: %s", err, line)
		}
		ids[l.ID] = true
		action := l.Key + " " + l.Tool
		if got[action] == nil {
			got[action] = map[string]bool{}
		}
		got[action][l.What] = true
	}
	for key, whats := range want {
		for what := range strings.FieldsSeq(whats) {
			if !got[key][what] {
				t.Errorf("the audit log does not tell of %s of %s: %s", what, key, out.String())
			}
		}
	}
	if err := log.handle(t.Context(), json.RawMessage(`{"source":"aws.s3","detail-type":"x","detail":{}}`)); err == nil {
		t.Error("a foreign event was taken")
	}
}

// TestPlannerGivesUp: what no other id mends ends the loop, and no agent goes on for ever.
func TestPlannerGivesUp(t *testing.T) {
	save := func(Memory) error { return nil }
	for status, want := range map[int]error{429: errStuck, 422: errStuck, 409: errNoEnd} {
		c := &Caller{Way: func(context.Context, request) (answer, error) { return answer{Status: status}, nil }}
		if err := run(t.Context(), namer{User{UserID: "u"}}, c, &Memory{Session: "s"}, save); !errors.Is(err, want) {
			t.Errorf("%d: %v", status, err)
		}
	}
}
