package main

import (
	"context"
	"fmt"
	"net/http"

	"toolledger/writers"
)

// push makes the branch, as an earlier step of the workflow does.
func push(ctx context.Context, forge, branch string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, forge+"/repos/acme/api/branches/"+branch, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("push: %s", res.Status)
	}
	return nil
}

// prepare leaves the session where that step leaves it: the branch is pushed.
func prepare(ctx context.Context, l *writers.Ledger, tenant writers.TenantID, session string) error {
	_, err := l.Tenant(tenant).Session(session).Commit(ctx, writers.Call{
		Key: writers.SessionKey("push-1"), Tool: "push_branch", Cursor: "branch-pushed",
	}, "pushed")
	return err
}
