package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
	"toolledger/writers"
)

// The call that is measured: a tool that books a flight, with a cursor.
const (
	table   = "toolledger"
	control = "toolledger-control"
	tenant  = "acme"
	session = "conversation-5f1c"
	tool    = "book_flight"
	cost    = 1200
	cursor  = "step-0017"
)

// Arguments and result are JSON text, as a model's are: neither side has to encode them.
var (
	booked   = json.RawMessage(`{"flight":"HAT083","passenger":"mia_li_3668","seats":2}`)
	received = json.RawMessage(`{"reservation":"ZFA04Y","total":1286}`)
)

// keyOf is the call key of the n-th call: of one length, as ids are.
func keyOf(n int64) string { return "call-" + strconv.FormatInt(1_000_000_000+n, 10) }

func committed(n int64) writers.Call {
	return writers.Call{Key: writers.SessionKey(keyOf(n)), Tool: tool, Args: booked, Tokens: cost, Cursor: cursor}
}

// client is made from the configuration that the command line uses, for floor and ledger alike.
func client(url, path string) *dynamodb.Client {
	return dynamodb.NewFromConfig(stack.AWSConfig(url + "/" + path))
}

func newLedger(db writers.DynamoDB) (*writers.Ledger, error) {
	return writers.New(db, writers.Config{Table: table})
}

// done is the answer to a write that went through.
var done = answer{http.StatusOK, json.RawMessage(`{}`)}

// planRead is the read that planAnswer answers.
const planRead = "GetItem " + control

// planAnswer is a plan of so many shards.
func planAnswer(shards int) answer {
	plan := schema.Plan{Key: schema.PlanKey(tenant), Version: 1, Tokens: 1 << 40, Shards: int64(shards), UpdatedAt: time.Now()}
	return answer{http.StatusOK, json.RawMessage(`{"Item":` + string(wire(plan.Item())) + `}`)}
}
