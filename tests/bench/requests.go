package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolledger/writers"
)

// requests counts what each operation sends. The floor is what nobody can do without: one transaction for a commit, two
// for what cannot be undone, and for a replay the transaction that is refused and the write that counts it.
func requests(ctx context.Context, _ *env) ([]result, error) {
	fix, err := newHotFixture(ctx)
	if err != nil {
		return nil, err
	}
	var results []result
	for _, c := range []struct {
		name  string
		path  string
		do    func(writers.Session) call
		floor int
	}{
		{"commit_requests", "ok", commitCall, 1},
		{"replay_requests", "applied", replayCall, 2},
		{"replay_read_requests", "applied", replayReadCall, 2},
		{"reserve_finalize_requests", "ok", reserveCall, 2},
	} {
		sent, err := sentBy(ctx, fix.scripts[c.path], c.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, result{
			Name: c.name, Value: float64(len(sent)), Unit: "requests/call", Floor: float64(c.floor),
			Ratio: float64(len(sent)) / float64(c.floor), target: target{most: 1}, note: operations(sent),
		})
	}
	return results, nil
}

// sentBy returns what one call sends once the plan is known.
func sentBy(ctx context.Context, s script, do func(writers.Session) call) ([]captured, error) {
	net := &capture{script: s, keep: true}
	ledger, err := newLedger(net.client())
	if err != nil {
		return nil, err
	}
	one := do(ledger.Tenant(tenant).Session(session))
	if err := one(ctx, 1); err != nil {
		return nil, err
	}
	net.take()
	if err := one(ctx, 2); err != nil {
		return nil, err
	}
	return net.take(), nil
}

func operations(sent []captured) string {
	counts := map[string]int{}
	for _, r := range sent {
		counts[r.operation]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}
