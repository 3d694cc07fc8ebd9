package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"toolledger/writers"
)

// Rounds are short, so that what else the machine does meets both sides alike, and many, so that what it does to one does
// not decide. On an idle machine they take half of the time.
var (
	hotEffort     = effort{rounds: 200, atLeast: 9, calls: 2 * callers, time: 10 * time.Second}
	hotEffortMore = effort{rounds: 600, atLeast: 9, calls: 2 * callers, time: 25 * time.Second} // where there is a target
)

// hotPath measures what a call costs the process that makes it.
func hotPath(ctx context.Context, e *env) ([]result, error) {
	fix, err := newHotFixture(ctx)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, fix.scripts)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var results []result
	for _, c := range hotCases {
		db := client(s.url, c.path)
		floor := fix.floor
		floor.db = db
		ledger, err := newLedger(db)
		if err != nil {
			return nil, err
		}
		got, err := compare(ctx, e.cut(c.effort()), c.call(ledger.Tenant(tenant).Session(session)), c.floor(&floor))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, c.results(got)...)
	}
	return results, nil
}

// hotCase is one operation with the floor that sends the same.
type hotCase struct {
	name, path string
	call       func(writers.Session) call
	floor      func(*floor) call
	target     float64 // of the ratio of processor time; 0: none is set
	detail     bool    // allocations are results of their own
}

var hotCases = []hotCase{
	{"commit", "ok", commitCall, func(f *floor) call { return f.commit }, 1.05, true},
	{"replay", "applied", replayCall, func(f *floor) call { return f.replay }, 0, false},
	{"replay_read", "applied", replayReadCall, func(f *floor) call { return f.replayRead }, 0, false},
	{"reserve_finalize", "ok", reserveCall, func(f *floor) call { return f.reserveFinalize }, 0, false},
}

func (c hotCase) effort() effort {
	if c.target != 0 {
		return hotEffortMore
	}
	return hotEffort
}

func (c hotCase) results(m compared) []result {
	allocs := fmt.Sprintf("%+.0f allocations, %+.1f KB a call", m.value.allocs-m.floor.allocs, (m.value.bytes-m.floor.bytes)/1024)
	all := []result{{
		Name: c.name + "_cpu", Value: m.value.cpu, Unit: "us/call", Floor: m.floor.cpu, Ratio: m.ratio.cpu,
		target: target{most: c.target}, note: allocs,
	}}
	if c.detail {
		all[0].note = ""
		all = append(all,
			result{
				Name: c.name + "_allocs", Value: m.value.allocs, Unit: "allocations/call", Floor: m.floor.allocs,
				Ratio: m.ratio.allocs, target: target{above: 20},
			},
			result{
				Name: c.name + "_bytes", Value: m.value.bytes, Unit: "bytes/call", Floor: m.floor.bytes,
				Ratio: m.ratio.bytes, target: target{above: 2048},
			})
	}
	return all
}

func commitCall(s writers.Session) call {
	return func(ctx context.Context, n int64) error {
		out, err := s.Commit(ctx, committed(n), received)
		return expect(out, err, writers.OutcomeApplied)
	}
}

func replayCall(s writers.Session) call {
	return func(ctx context.Context, n int64) error {
		out, err := s.Commit(ctx, committed(n), received)
		return expect(out, err, writers.OutcomeReplayed)
	}
}

func replayReadCall(s writers.Session) call {
	return func(ctx context.Context, n int64) error {
		c := committed(n)
		c.Retry = true
		out, err := s.Commit(ctx, c, received)
		return expect(out, err, writers.OutcomeReplayed)
	}
}

func reserveCall(s writers.Session) call {
	return func(ctx context.Context, n int64) error {
		hold, _, err := s.Reserve(ctx, committed(n))
		if err != nil {
			return err
		}
		out, err := hold.Finalize(ctx, received, cost)
		return expect(out, err, writers.OutcomeApplied)
	}
}

func expect(out writers.Raw, err error, want writers.Outcome) error {
	if err == nil && out.Outcome != want {
		return fmt.Errorf("outcome %q, not %q", out.Outcome, want)
	}
	return err
}

// hotFixture is what the server answers and what the floor is told, both taken from one call of the ledger.
type hotFixture struct {
	scripts scripts
	floor   floor
}

// newHotFixture makes one call into a capture, since the floor has to send the ledger's hashes and the server has to
// answer with the ledger's row.
func newHotFixture(ctx context.Context) (*hotFixture, error) {
	ok := script{Answers: map[string]answer{planRead: planAnswer(1), "TransactWriteItems": done, "UpdateItem": done}}
	net := &capture{script: ok, keep: true}
	ledger, err := newLedger(net.client())
	if err != nil {
		return nil, err
	}
	if err := commitCall(ledger.Tenant(tenant).Session(session))(ctx, 1); err != nil {
		return nil, err
	}
	row, err := putRow(net.take())
	if err != nil {
		return nil, err
	}
	var fields struct {
		IntentHash struct{ B []byte } `json:"intentHash"`
		ArgHashes  struct{ B []byte } `json:"argHashes"`
		ResultJSON struct{ S string } `json:"resultJson"`
	}
	if err := json.Unmarshal(row, &fields); err != nil {
		return nil, err
	}
	found := answer{http.StatusOK, slices.Concat([]byte(`{"Item":`), row, []byte(`}`))}
	refusal := answer{http.StatusBadRequest, cancelled([]reason{{Code: "ConditionalCheckFailed", Item: row}, {Code: "None"}, {Code: "None"}})}
	return &hotFixture{
		scripts: scripts{
			"ok":      ok,
			"applied": {Answers: map[string]answer{planRead: planAnswer(1), "GetItem " + table: found, "TransactWriteItems": refusal, "UpdateItem": done}},
		},
		floor: floor{intentHash: fields.IntentHash.B, argHashes: fields.ArgHashes.B, resultJSON: fields.ResultJSON.S},
	}, nil
}

// putRow returns the row that the transaction among the requests puts.
func putRow(sent []captured) (json.RawMessage, error) {
	for _, r := range sent {
		var tx struct {
			TransactItems []struct {
				Put struct{ Item json.RawMessage }
			}
		}
		if r.operation != "TransactWriteItems" {
			continue
		}
		if err := json.Unmarshal(r.body, &tx); err != nil {
			return nil, err
		}
		if len(tx.TransactItems) > 0 && tx.TransactItems[0].Put.Item != nil {
			return tx.TransactItems[0].Put.Item, nil
		}
	}
	return nil, errors.New("no transaction that puts a row was sent")
}
