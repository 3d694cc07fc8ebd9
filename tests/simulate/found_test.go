package main

import (
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
