package main

import (
	"context"
	"encoding/json"
	"errors"

	"toolledger/writers"
	"toolledger/writers/api"
)

// openArgs, cancelArgs and readArgs are what a model fills in.
type openArgs struct {
	Title string `json:"title" jsonschema:"what is wrong, in one line"`
}

type cancelArgs struct {
	TicketID string `json:"ticketId" jsonschema:"the id that opening the ticket answered"`
}

const ticketCost = 10

// tools are the desk's tools.
func tools(d *desk) (*api.Toolset, error) {
	return api.NewToolset(
		&writers.Tool[openArgs, Ticket]{
			Name: "open_ticket", Description: "Open a ticket at the service desk.", Cost: ticketCost,
			Idempotent: true, // the desk files a ticket once per effect key
			Act: func(ctx context.Context, a writers.Attempt[openArgs]) (Ticket, error) {
				return d.open(ctx, string(a.Tenant), a.EffectKey, a.Args.Title, call{a.Session, a.Key.String()})
			},
			Verify: func(ctx context.Context, c writers.CallInfo) (Ticket, writers.Verdict, error) {
				return verdict(d.find(ctx, string(c.Tenant), ticketID(c.EffectKey)))
			},
		},
		compensation{desk: d, AnyTool: &writers.Tool[cancelArgs, Ticket]{
			Name: "cancel_ticket", Description: "Cancel a ticket. What it cost is given back.",
			Idempotent: true,
			Lookup:     func(a cancelArgs) string { return a.TicketID },
			Act: func(ctx context.Context, a writers.Attempt[cancelArgs]) (Ticket, error) {
				t, err := d.cancel(ctx, string(a.Tenant), a.Args.TicketID)
				if errors.Is(err, errNoTicket) {
					return t, writers.NotApplied(err)
				}
				return t, err
			},
			Verify: func(ctx context.Context, c writers.CallInfo) (Ticket, writers.Verdict, error) {
				t, by, err := d.find(ctx, string(c.Tenant), c.Lookup)
				if err == nil && t.Status == statusOpen {
					return t, writers.EffectAbsent, nil
				}
				return verdict(t, by, err)
			},
		}},
		&writers.Tool[cancelArgs, Ticket]{
			Name: "get_ticket", Description: "Read a ticket.", ReadOnly: true,
			Act: func(ctx context.Context, a writers.Attempt[cancelArgs]) (Ticket, error) {
				t, _, err := d.find(ctx, string(a.Tenant), a.Args.TicketID)
				if errors.Is(err, errNoTicket) {
					return t, writers.NotApplied(err)
				}
				return t, err
			},
		},
	)
}

func verdict(t Ticket, _ call, err error) (Ticket, writers.Verdict, error) {
	switch {
	case errors.Is(err, errNoTicket):
		return Ticket{}, writers.EffectAbsent, nil
	case err != nil:
		return Ticket{}, writers.EffectUnknown, err
	}
	return t, writers.EffectApplied, nil
}

// compensation makes of a tool that cancels a ticket the compensation of the call that opened it: the ledger links the
// two, refunds what the ticket cost, and lets nobody undo it a second time.
type compensation struct {
	writers.AnyTool
	desk *desk
}

// DoJSON cancels in the session of the call that it undoes, under a key of its own: whoever cancels a ticket, from whatever
// conversation and under whatever key, means the same one action.
func (c compensation) DoJSON(ctx context.Context, s writers.Session, _ writers.Key, args json.RawMessage, opts ...func(*writers.Call)) (writers.Raw, error) {
	var a cancelArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return writers.Raw{}, err
	}
	_, opened, err := c.desk.find(ctx, string(s.Tenant().ID()), a.TicketID)
	if errors.Is(err, errNoTicket) {
		return writers.Raw{}, writers.NotApplied(err)
	}
	if err != nil {
		return writers.Raw{}, &writers.Error{Code: writers.ErrUnavailable, Op: "cancel", Reason: "the desk did not answer; nothing was done", Err: err}
	}
	link := func(call *writers.Call) { call.Compensates, call.RefundOriginal = writers.SessionKey(opened.key), true }
	return c.AnyTool.DoJSON(ctx, s.Tenant().Session(opened.session), writers.SessionKey("cancel-"+a.TicketID), args, append(opts, link)...)
}
