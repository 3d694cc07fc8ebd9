package functions_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// gate stands in front of the local DynamoDB. While it is armed, the first transaction is carried out and never answered:
// the moment at which a worker's death hurts most.
type gate struct {
	url     string
	backend string

	mu    sync.Mutex
	armed chan struct{} // closed once the transaction is in the table
	block bool          // answer nothing at all
	over  chan struct{}
}

func newGate(t *testing.T, backend string) *gate {
	t.Helper()
	g := &gate{backend: backend, over: make(chan struct{})}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(g.over) })
	g.url = srv.URL
	return g
}

// arm returns what is closed once a transaction has been carried out whose answer is withheld.
func (g *gate) arm() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = make(chan struct{})
	return g.armed
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	g.mu.Lock()
	block, armed := g.block, g.armed
	if armed != nil && strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") {
		g.armed = nil
	} else {
		armed = nil
	}
	g.mu.Unlock()
	if block {
		g.wait(r)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, g.backend, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header = r.Header.Clone()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	if armed != nil {
		close(armed)
		g.wait(r)
		return
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// wait keeps a request without an answer for as long as its sender or the test lasts.
func (g *gate) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-g.over:
	}
}

// commitEvent is a call whose effect is in the ledger's transaction.
const commitEvent = `{"op":"commit","tenant":"acme","session":"s","key":"k","tool":"post_note","args":{"text":"hi"},"tokens":20,"result":{"id":1}}`

// once checks what must hold after whatever happened to the first attempt: the retry replays it, and it was paid for once.
func once(t *testing.T, d *database, l *lambda) {
	t.Helper()
	var doc map[string]any
	body := l.invoke([]byte(commitEvent))
	if err := json.Unmarshal(body, &doc); err != nil || doc["outcome"] != "replayed" {
		t.Fatalf("the retry: %v %s", err, body)
	}
	if left := d.remaining(t); left != 1000-2*20 {
		t.Errorf("%d tokens left", left)
	}
}

// warmUp makes the function's process, and the quota item of the period: the next transaction is that of a call.
func warmUp(t *testing.T, l *lambda) {
	t.Helper()
	if body := l.invoke([]byte(strings.Replace(commitEvent, `"key":"k"`, `"key":"first"`, 1))); !strings.Contains(string(body), `"applied"`) {
		t.Fatalf("%s", body)
	}
}

// environBehind is environ with a DynamoDB that stands behind the gate.
func (d *database) environBehind(g *gate) []string {
	return append(d.environ(), "AWS_ENDPOINT_URL_DYNAMODB="+g.url)
}

// Promise: a writer whose DynamoDB does not answer answers itself, before Lambda kills it, that the same request may be sent
// again; and once DynamoDB answers, so does the same process.
func TestDynamoDBSilent(t *testing.T) {
	d := newDatabase(t)
	g := newGate(t, d.srv.Endpoint())
	l := start(t, "writers/lambda", append(d.environBehind(g), "DOOR=http", "AWS_LAMBDA_FUNCTION_TIMEOUT=3")...)
	g.mu.Lock()
	g.block = true
	g.mu.Unlock()
	a, doc := l.ask(golden(t, "http-jwt.json"))
	if a.StatusCode != http.StatusServiceUnavailable || doc["code"] != "unavailable" || a.Headers["Retry-After"] == "" {
		t.Errorf("%+v", a)
	}
	g.mu.Lock()
	g.block = false
	g.mu.Unlock()
	if a, doc = l.ask(golden(t, "http-jwt.json")); a.StatusCode != http.StatusOK || doc["outcome"] != "reserved" {
		t.Errorf("%+v", a)
	}
}

// Promise: a function that Lambda kills at its time-out, after its transaction came through, has not acted twice when the
// same call comes again.
func TestTimeout(t *testing.T) {
	needsProc(t)
	d := newDatabase(t)
	g := newGate(t, d.srv.Endpoint())
	l := start(t, "writers/lambda", append(d.environBehind(g), "DOOR=direct", "AWS_LAMBDA_FUNCTION_TIMEOUT=2")...)
	warmUp(t, l)
	written := g.arm()
	answered := make(chan []byte, 1)
	go func() { // ends with the invocation, which the emulator ends
		body, err := l.send(t.Context(), []byte(commitEvent), "")
		if err != nil {
			body = []byte(err.Error())
		}
		answered <- body
	}()
	<-written
	if err := syscall.Kill(l.child(), syscall.SIGSTOP); err != nil { // a function that hangs and keeps no deadline
		t.Fatal(err)
	}
	if body := string(<-answered); body != "Task timed out after 2.00 seconds" {
		t.Fatalf("the emulator answered %s", body)
	}
	once(t, d, l)
}

// Promise: a function that crashes after its transaction came through is started anew, and the same call has no second
// effect.
func TestCrash(t *testing.T) {
	needsProc(t)
	d := newDatabase(t)
	g := newGate(t, d.srv.Endpoint())
	l := start(t, "writers/lambda", append(d.environBehind(g), "DOOR=direct")...)
	warmUp(t, l)
	written := g.arm()
	answered := make(chan []byte, 1)
	go func() { // ends with the invocation, which ends with the function
		body, err := l.send(t.Context(), []byte(commitEvent), "")
		if err != nil {
			body = []byte(err.Error())
		}
		answered <- body
	}()
	<-written
	if err := syscall.Kill(l.child(), syscall.SIGQUIT); err != nil { // the Go runtime ends as it does after a panic: stacks, exit code 2
		t.Fatal(err)
	}
	if body := string(<-answered); !strings.Contains(body, "Runtime.ExitError") {
		t.Fatalf("the emulator answered %s", body)
	}
	// The emulator answers before it has read all that the function wrote.
	eventually(t, "the stacks that a crash leaves", func() bool {
		return strings.Contains(l.log.String(), "goroutine ") && strings.Contains(l.log.String(), "exit status 2")
	})
	once(t, d, l)
}

// Promise: when Lambda ends an environment, nothing that was answered is lost with it, a replay's observation included: what
// is in a function's memory is in the table too.
func TestEndOfEnvironment(t *testing.T) {
	needsProc(t)
	d := newDatabase(t)
	for _, pkg := range []string{"writers/lambda", "streams/lambda", "sweeper/lambda"} {
		s := newServices(t)
		l := start(t, pkg, append(d.environ(), "DOOR=direct", "EVENT_BUS=audit", "AWS_ENDPOINT_URL="+s.url)...)
		switch pkg {
		case "writers/lambda":
			for range 2 {
				l.invoke([]byte(commitEvent))
			}
		case "streams/lambda":
			l.batch([]byte(`{"Records":[]}`))
		default:
			l.invoke(golden(t, "schedule.json"))
		}
		child := l.child()
		if child == 0 {
			t.Fatalf("%s: no process", pkg)
		}
		if err := syscall.Kill(child, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, pkg+" ends", func() bool { return gone(child) })
	}
	out, err := d.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	observed := false
	for _, item := range out.Items {
		pk, err := json.Marshal(item["pk"])
		observed = observed || err == nil && strings.Contains(string(pk), "OBS#")
	}
	call, err := d.ledger.Tenant("acme").Session("s").Get(t.Context(), writers.SessionKey("k"))
	if err != nil || call.State != writers.StateApplied || !observed {
		t.Errorf("%+v %v, observed %v", call, err, observed)
	}
}
