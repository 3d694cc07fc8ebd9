package main

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/tests/faults"
	"toolledger/tests/rig"
	"toolledger/writers"
)

// What simulations found, one test each.

// Promise: suspending a tenant, or changing its plan, reaches the period that began while the change was being prepared.
func TestFoundPlanChangeAcrossPeriods(t *testing.T) {
	for _, op := range []string{"GetItem", "TransactGetItems"} {
		t.Run(op, func(t *testing.T) {
			g := rig.New(t)
			g.Plan("acme", writers.Plan{Tokens: 100, Period: writers.Daily})
			g.Advance(22*time.Hour + 3*time.Minute) // 23:56:02
			slow := faults.New(faults.At(faults.Call, op, 1, faults.Pass().Before(func() {
				g.Advance(5 * time.Minute) // the answer takes until after midnight, when somebody has begun the new day
				now := g.Process(g.DB)
				if _, err := now.Tenant("acme").Session("s").Commit(t.Context(), writers.Call{
					Key: writers.SessionKey("k"), Tool: "note", Tokens: 1, Args: map[string]any{},
				}, nil); err != nil {
					t.Error(err)
				}
			})))
			operator := g.Process(dynamodb.NewFromConfig(g.AWS, slow.Attach))
			if err := operator.Tenant("acme").Suspend(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			_, err := g.Process(g.DB).Tenant("acme").Session("s").Commit(t.Context(), writers.Call{
				Key: writers.SessionKey("k2"), Tool: "note", Tokens: 1, Args: map[string]any{},
			}, nil)
			if codeOf(err) != string(writers.ErrSuspended) {
				t.Errorf("the suspended tenant's call gave %v", err)
			}
		})
	}
}

// Promise: a call that waits for another one verifies what it finds in the end, like any other: a row that was given up while it waited
// is not taken over blindly. (Aimed at "settle late, unverified", seed 2035.)
func TestFoundTakeoverAfterWaiting(t *testing.T) {
	g := rig.New(t)
	g.Plan("acme", writers.Plan{Tokens: 100, Period: writers.Daily})
	asked := 0
	pay := &writers.Tool[map[string]any, string]{
		Name: "pay", Lease: 30 * time.Second, Horizon: 10 * time.Second,
		Act: func(context.Context, writers.Attempt[map[string]any]) (string, error) { return "paid", nil },
		Verify: func(context.Context, writers.CallInfo) (string, writers.Verdict, error) {
			asked++
			return "paid", writers.EffectApplied, nil
		},
	}
	key, args := writers.SessionKey("k"), map[string]any{"n": 1}
	first := g.Process(g.DB).Tenant("acme").Session("s")
	hold, _, err := first.Reserve(t.Context(), pay.Call(key, args))
	if err != nil {
		t.Fatal(err)
	}
	// Its holder pays, and is not heard of again. While another caller waits, a person who looked too early gives the call up.
	slow := faults.New(faults.At(faults.Call, "GetItem", 1, faults.Pass().Before(func() {
		g.Advance(time.Hour)
		if _, err := g.Process(g.DB).Tenant("acme").Session("s").Resolve(t.Context(), key, writers.Resolution{
			Verdict: writers.EffectAbsent, RowID: hold.RowID, Attempt: hold.Attempt, By: "eve",
		}); err != nil {
			t.Error(err)
		}
	})))
	other := g.Process(dynamodb.NewFromConfig(g.AWS, slow.Attach)).Tenant("acme").Session("s")
	again, _, err := other.Reserve(t.Context(), pay.Call(key, args, func(c *writers.Call) { c.Wait = 5 * time.Second }))
	if codeOf(err) != string(writers.ErrOutcomeUnknown) || again != nil {
		t.Errorf("the waiting caller was given attempt %v, %v", again, err)
	}
	if out, err := pay.Do(t.Context(), first, key, args); err != nil || out.JSON == nil || asked != 1 {
		t.Errorf("then: %+v, %v, asked %d times", out, err, asked)
	}
}
