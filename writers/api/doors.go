package api

import (
	"context"
	"encoding/json"

	"toolledger/writers"
)

// function is what lambda.Start takes.
type function = func(context.Context, json.RawMessage) (json.RawMessage, error)

// AgentCore serves Lambda targets of an AgentCore gateway: bare arguments, the tool's name in the client context; tenant
// is asked of headers that an interceptor set. Hand the result to lambda.Start. In this version every call returns
// ErrNotYet, and nothing is written.
func AgentCore(*writers.Ledger, *Toolset, func(headers map[string]string) (writers.TenantID, error)) function {
	return notYet
}

// Direct serves trusted backends: {"op":"reserve","tenant":…}. Whoever may invoke it may name any tenant. In this version
// every call returns ErrNotYet, and nothing is written.
func Direct(*writers.Ledger) function { return notYet }

// Bedrock serves action groups: tenant from session attributes only, key from session attributes or the parameter that
// keyParam names for the action ("" where it has none). Hand the result to lambda.Start. In this version every call
// returns ErrNotYet, and nothing is written.
func Bedrock(_ *writers.Ledger, _ *Toolset, _ func(action string) string) function { return notYet }

func notYet(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, ErrNotYet }
