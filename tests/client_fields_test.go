package tests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The programs undo a tenant-wide call of a tool, and give back one that surely did not happen; LEDGER is their first argument.
const (
	pythonUndoes = `
import sys
from ledger_client import Ledger, SurelyNot
ledger = Ledger(sys.argv[1], {"X-Tenant-Id": "acme"}, "undoer")
wide = {"scope": "tenant"}
print(ledger.once("order", "order", {"n": 1}, lambda key, timeout: "ordered", lambda: None, tokens=5, **wide))
undo = {"compensates": {"key": "order", "scope": "tenant"}, "refund_original": True, "cursor": "undone"}
print(ledger.once("cancel", "cancel", {"n": 1}, lambda key, timeout: "cancelled", lambda: None, tokens=2, **undo))
def no(key, timeout):
    raise SurelyNot("no")
try:
    ledger.once("never", "order", {}, no, lambda: None, tokens=3, **wide)
except SurelyNot as said:
    print(said)
`
	typescriptUndoes = `
import { Ledger, SurelyNot } from "./ledgerClient.js";
const ledger = new Ledger(process.argv[2], { "X-Tenant-Id": "acme" }, "undoer");
const acts = (result) => ({ act: async () => result, find: async () => undefined });
console.log(await ledger.once("order", "order", { n: 1 }, acts("ordered"), { tokens: 5, scope: "tenant" }));
const undo = { tokens: 2, compensates: { key: "order", scope: "tenant" }, refund_original: true, cursor: "undone" };
console.log(await ledger.once("cancel", "cancel", { n: 1 }, acts("cancelled"), undo));
const never = { act: async () => { throw new SurelyNot("no"); }, find: async () => undefined };
await ledger.once("never", "order", {}, never, { tokens: 3, scope: "tenant" }).catch((e) => console.log(e.message));
`
)

// Promise: whatever a caller of once says of a call, its finalize and its release name the same call: a tenant-wide one is not
// recorded a second time in the session, and what it compensates is part of what it is.
func TestClientPythonNamesTheCall(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), python, "-B", "-c", pythonUndoes)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../examples/clients/python")
	clientUndoes(t, cmd)
}

func TestClientTypeScriptNamesTheCall(t *testing.T) {
	t.Parallel()
	node, dir := compiledClient(t)
	program := filepath.Join(dir, "undo.js")
	if err := os.WriteFile(program, []byte(typescriptUndoes), 0o600); err != nil {
		t.Fatal(err)
	}
	clientUndoes(t, exec.CommandContext(t.Context(), node, program))
}

// clientUndoes runs a program beside dev and looks at what it left.
func clientUndoes(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	d := startDev(t)
	cmd.Args = append(cmd.Args, d.ready.HTTP)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "ordered\ncancelled\nno\n" {
		t.Fatalf("%v: %s", err, out)
	}
	_, doc := d.ask("GET", "/v1/calls?session=undoer&scope=tenant&key=order", "")
	if doc["state"] != "applied" || doc["compensated_by"] == nil {
		t.Errorf("the order is %v", doc)
	}
	if _, doc := d.ask("GET", "/v1/calls?session=undoer&scope=tenant&key=never", ""); doc["failure"] != "released: no" {
		t.Errorf("what never happened is %v", doc)
	}
	_, doc = d.ask("GET", "/v1/sessions/undoer/calls", "")
	if calls, _ := doc["calls"].([]any); len(calls) != 1 { // the cancellation; the others are the tenant's
		t.Errorf("the session's calls: %v", doc)
	}
	if _, doc := d.ask("GET", "/v1/quota", ""); fmt.Sprint(doc["remaining_tokens"]) != fmt.Sprint(float64(1_000_000-2)) {
		t.Errorf("quota %v", doc)
	}
}
