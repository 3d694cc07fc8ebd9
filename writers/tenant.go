package writers

import (
	"toolledger/internal/schema"
)

// Tenant is a handle: cheap to copy, bound to its tenant for good.
type Tenant struct {
	l  *Ledger
	id TenantID
}

// ID returns the tenant's id.
func (t Tenant) ID() TenantID { return t.id }

// Session returns the handle of one session of the tenant. It makes no request; a bad id is reported by the first use.
func (t Tenant) Session(id string) Session { return Session{t, id} }

// check reports a tenant that cannot be one. The zero Tenant has no ledger.
func (t Tenant) check(op string) error {
	if t.l == nil {
		return invalid(op, "tenant", "must come from Ledger.Tenant")
	}
	if t.id == "" {
		return &Error{Code: ErrMissingTenant, Op: op, Field: "tenant", Reason: "the caller is not authenticated as a tenant; nothing was written"}
	}
	if err := schema.CheckID("tenant", string(t.id), schema.MaxTenant); err != nil {
		return invalidID(op, err)
	}
	return nil
}

// Session is a handle: cheap to copy, bound to its tenant and session. Its methods are the protocol; most tools need
// only Tool.Do or Tool.Commit.
type Session struct {
	t  Tenant
	id string
}

// ID returns the session's id.
func (s Session) ID() string { return s.id }

// Tenant returns the handle of the session's tenant.
func (s Session) Tenant() Tenant { return s.t }

func (s Session) check(op string) error {
	if err := s.t.check(op); err != nil {
		return err
	}
	if err := schema.CheckID("session", s.id, schema.MaxSession); err != nil {
		return invalidID(op, err)
	}
	return nil
}

func (s Session) checkKey(op string, k Key) (schema.Key, error) {
	if err := s.check(op); err != nil {
		return schema.Key{}, err
	}
	if err := k.check(); err != nil {
		return schema.Key{}, invalidID(op, err)
	}
	return s.rowKey(k), nil
}

func (s Session) rowKey(k Key) schema.Key {
	return schema.RowKey(string(s.t.id), s.id, k.scope(), k.id)
}

func (s Session) key() schema.Key { return schema.SessionKey(string(s.t.id), s.id) }
