package api

import (
	"math"
	"net/http"

	"toolledger/writers"
)

// planDoc is a tenant's plan as it is set and answered.
type planDoc struct {
	Tenant    string `json:"tenant"`
	Tokens    int64  `json:"tokens"`
	Period    string `json:"period"`
	Shards    int64  `json:"shards"`
	Overdraft int64  `json:"overdraft"`
}

// periods are the words for a plan's period.
func periods() map[string]writers.Period {
	return map[string]writers.Period{"monthly": writers.Monthly, "daily": writers.Daily, "always": writers.Always}
}

func (d *planDoc) fields() map[string]setter {
	return map[string]setter{
		"tokens":    integer(&d.Tokens, 0, maxTokens),
		"period":    choice(&d.Period, "monthly", "daily", "always"),
		"shards":    integer(&d.Shards, 1, math.MaxInt32), // the ledger knows how many it can read at once
		"overdraft": integer(&d.Overdraft, 0, maxTokens),
	}
}

// putPlan answers PUT /v1/tenants/{tenant}/plan, the one operation that names a tenant: it is an administrator's.
func (s *server) putPlan(r *http.Request, _ writers.Tenant) (*reply, error) {
	const op = "put plan"
	if q := readQuery(op, r.URL); q.err != nil {
		return nil, q.err
	}
	body, err := readBody(op, r, s.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	doc := planDoc{Tenant: r.PathValue("tenant"), Period: "monthly", Shards: 1}
	m, rule := members(body)
	if rule != "" {
		return nil, invalid(op, "body", rule)
	}
	if name, rule := fill(m, []string{"tokens"}, doc.fields()); rule != "" {
		return nil, invalid(op, name, rule)
	}
	ctx, cancel := s.bounded(r.Context())
	defer cancel()
	err = s.ledger.Tenant(writers.TenantID(doc.Tenant)).PutPlan(ctx, writers.Plan{
		Tokens: doc.Tokens, Period: periods()[doc.Period], Shards: int(doc.Shards), Overdraft: doc.Overdraft,
	})
	if err != nil {
		return nil, err
	}
	return jsonReply(doc), nil
}
