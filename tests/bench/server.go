package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// serveArg, as the only argument, makes this program the server.
const serveArg = "serve"

// answer is one fixed answer.
type answer struct {
	Status int
	Body   json.RawMessage
}

// script is what the server answers under one path: by operation, whatever is asked.
type script struct {
	Answers map[string]answer // by the operation's name; reads by "GetItem <table>"
	Hold    time.Duration     // each quota item of a transaction is held so long; one that is held refuses others
	Pages   int               // so many reads of a shard give GetRecords' answer, the next one is empty and the shard's end
}

// answer returns the answer to a request.
func (s script) answer(operation string, body []byte) answer {
	var read struct{ TableName, ShardIterator string }
	switch operation {
	case "GetItem":
		if json.Unmarshal(body, &read) != nil {
			return refused
		}
		operation += " " + read.TableName
	case "GetRecords":
		if json.Unmarshal(body, &read) != nil {
			return refused
		}
		n, err := strconv.Atoi(read.ShardIterator)
		if err != nil || n >= s.Pages {
			return answer{http.StatusOK, json.RawMessage(`{"Records":[]}`)}
		}
		a := s.Answers[operation]
		a.Body = slices.Concat([]byte(`{"NextShardIterator":"`+strconv.Itoa(n+1)+`",`), a.Body[1:])
		return a
	}
	if a, ok := s.Answers[operation]; ok {
		return a
	}
	return refused
}

// refused is the answer to an operation that no script expects.
var refused = answer{http.StatusBadRequest, json.RawMessage(`{"__type":"com.amazonaws.dynamodb.v20120810#ValidationException"}`)}

// scripts are what the server answers, by the first element of the path.
type scripts map[string]script

// serve answers scripts, read from in as one line, on a free port that it writes to out, until in ends: the server cannot
// outlive the process that has the other end.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var s scripts
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(s), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(out, "http://"+listener.Addr().String()); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, lines) // until the parent closes it, or is gone
	err = server.Close()
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		return e
	}
	return err
}

func handler(s scripts) http.Handler {
	held := &holder{items: map[string]bool{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if err != nil {
			return // the client has gone
		}
		script := s[strings.Trim(r.URL.Path, "/")]
		a := script.answer(operation, body)
		if script.Hold > 0 && operation == "TransactWriteItems" {
			if refusal := held.transact(body, script.Hold); refusal != nil {
				a = answer{http.StatusBadRequest, refusal}
			}
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body) // a client that has gone has no use for it
	})
}

// holder is the part of DynamoDB that contention needs: a transaction meets others only on the quota items it shares.
type holder struct {
	mu    sync.Mutex
	items map[string]bool
}

// transact holds the quota items of a transaction for d; where one is held already it returns the refusal at once.
func (h *holder) transact(body []byte, d time.Duration) json.RawMessage {
	keys, err := quotaKeys(body)
	if err != nil {
		return json.RawMessage(`{"__type":"com.amazon.coral.service#SerializationException"}`)
	}
	if refusal := h.hold(keys); refusal != nil {
		return refusal
	}
	time.Sleep(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range keys {
		delete(h.items, k)
	}
	return nil
}

func (h *holder) hold(keys []string) json.RawMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	reasons, refused := make([]reason, len(keys)), false
	for i, k := range keys {
		reasons[i].Code = "None"
		if h.items[k] {
			reasons[i].Code, refused = "TransactionConflict", true
		}
	}
	if refused {
		return cancelled(reasons)
	}
	for _, k := range keys {
		if k != "" {
			h.items[k] = true
		}
	}
	return nil
}

// quotaKeys returns the key of each item of a transaction that is a quota item, "" for others.
func quotaKeys(body []byte) ([]string, error) {
	var tx struct {
		TransactItems []map[string]struct {
			TableName string
			Key       map[string]struct{ S string }
		}
	}
	if err := json.Unmarshal(body, &tx); err != nil {
		return nil, err
	}
	keys := make([]string, len(tx.TransactItems))
	for i, actions := range tx.TransactItems {
		for action := range maps.Values(actions) {
			if sk := action.Key["sk"].S; strings.HasPrefix(sk, "QUOTA#") {
				keys[i] = action.TableName + " " + action.Key["pk"].S + " " + sk
			}
		}
	}
	return keys, nil
}

// reason is a cancellation reason as DynamoDB writes it.
type reason struct {
	Code string
	Item json.RawMessage `json:",omitempty"`
}

// cancelled is the answer to a transaction that was refused.
func cancelled(reasons []reason) json.RawMessage {
	text, err := json.Marshal(map[string]any{
		"__type":              "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
		"Message":             "Transaction cancelled",
		"CancellationReasons": reasons,
	})
	if err != nil {
		return nil // reasons hold JSON that was made by this program
	}
	return text
}

// server is the child process.
type server struct {
	url string
	in  io.Closer
	cmd *exec.Cmd
}

// start starts the server. Its processor time is its own, not that of the clients that are measured.
func start(ctx context.Context, s scripts) (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, serveArg)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	child := &server{in: in, cmd: cmd}
	if _, err := in.Write(append(text, '\n')); err != nil {
		child.stop()
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		child.stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	child.url = strings.TrimSpace(line)
	return child, nil
}

// stop ends the server by closing what it reads, and waits for it.
func (s *server) stop() {
	_ = s.in.Close()
	_ = s.cmd.Wait() // how it ended is of no interest
}
