// Package stepfn shows a reservation that crosses processes: a function reserves, a task acts for hours, another function
// finalizes.
package stepfn

import (
	"context"
	"encoding/json"
	"time"

	"toolledger/writers"
)

const (
	tool          = "render_video"
	reserveTokens = 500
	perSecond     = 5
	lease         = 24 * time.Hour
)

// State is the workflow's state, from one function to the next. Whoever starts the workflow writes Tenant, Session, Key and
// Args; no model does.
type State struct {
	Tenant  string          `json:"tenant"`
	Session string          `json:"session"`
	Key     string          `json:"key"`
	Args    json.RawMessage `json:"args"`

	Reservation string          `json:"reservation,omitempty"` // the token between Reserve and Finalize
	EffectKey   string          `json:"effect_key,omitempty"`  // for the renderer
	Seconds     int64           `json:"seconds,omitempty"`     // rendered, by the renderer
	Result      json.RawMessage `json:"result,omitempty"`      // by the renderer, or of an earlier run
	Done        bool            `json:"done"`                  // nothing is left to do
}

func (s State) tenant(l *writers.Ledger) writers.Tenant { return l.Tenant(writers.TenantID(s.Tenant)) }

// Reserve is the first function. With Done set the workflow ends: an earlier run has rendered the video.
func Reserve(ctx context.Context, l *writers.Ledger, st State) (State, error) {
	hold, done, err := st.tenant(l).Session(st.Session).Reserve(ctx, writers.Call{
		Key: writers.SessionKey(st.Key), Tool: tool, Args: st.Args, Tokens: reserveTokens, Lease: lease,
	})
	if err != nil {
		return st, err
	}
	if done != nil {
		st.Result, st.Done = done.JSON, true
		return st, nil
	}
	st.Reservation, st.EffectKey = hold.Token(), hold.EffectKey
	return st, nil
}

// Finalize is the last function: it charges what was rendered.
func Finalize(ctx context.Context, l *writers.Ledger, st State) (State, error) {
	hold, err := st.tenant(l).Resume(st.Reservation)
	if err != nil {
		return st, err
	}
	if _, err := hold.Finalize(ctx, st.Result, perSecond*st.Seconds); err != nil {
		return st, err
	}
	st.Done = true
	return st, nil
}
