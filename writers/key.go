package writers

import (
	"encoding/hex"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

// Key is the call key: it names one intended action, exists before the first attempt and is the same on every retry.
// The zero Key is refused. Whether it is unique in the session or in the tenant is part of it, so that no retry can
// ask for another scope than the first attempt. Keys are comparable.
//
// A key is 1 to 255 bytes of UTF-8, not blank, without '#' and control characters; the first use reports what is wrong.
type Key struct {
	id     string
	tenant bool
	bad    string // why no key could be made; reported by the first use
}

// String returns the key without its scope.
func (k Key) String() string { return k.id }

// SessionKey is a key that is unique within a session: a workflow step's id, a planner's id. The id that a model gives a
// tool call is not safe by itself: in recorded conversations one session uses one id for two different actions, which
// the ledger then refuses with ErrKeyConflict.
func SessionKey(id string) Key { return Key{id: id} }

// TenantKey is a key that is unique within the tenant: the same action from any session, such as an order number.
func TenantKey(id string) Key { return Key{id: id, tenant: true} }

// IntentKey is a session key made of the tool and its arguments: asking twice for the same is asking once. Do not use
// it for tools that a user may want twice with equal arguments.
func IntentKey(tool string, args any) Key {
	text, err := canon.Marshal(args)
	if err != nil {
		return badKey(err)
	}
	intent, err := canon.HashIntent(tool, text)
	if err != nil {
		return badKey(err)
	}
	return Key{id: "intent-" + hex.EncodeToString(intent.Hash[:])}
}

func badKey(err error) Key {
	if field, rule, ok := canonRule(err); ok {
		return Key{bad: field + " " + rule}
	}
	return Key{bad: err.Error()}
}

func (k Key) scope() schema.Scope {
	if k.tenant {
		return schema.ScopeTenant
	}
	return schema.ScopeSession
}

// name is scope and key in one, as compensation links store it.
func (k Key) name() string { return string(k.scope()) + ":" + k.id }

// undoes is the call of that key and session as the one that undoes o.
func (k Key) undoes(o *schema.Row, session string) schema.Undoer {
	return schema.UndoerOf(o, k.name(), session, k.scope())
}

func (k Key) check() error {
	if k.bad != "" {
		return &schema.IDError{Field: "key", Rule: "could not be made: " + k.bad}
	}
	return schema.CheckID("key", k.id, schema.MaxCallKey)
}
