package main

import (
	"context"

	"toolledger/writers"
	"toolledger/writers/api"
)

// openArgs and listArgs are what the model fills in. There is no tenant among them, and there cannot be one.
type openArgs struct {
	Title string `json:"title" jsonschema:"what is wrong, in one line"`
}

type listArgs struct{}

func (d *desk) toolset() (*api.Toolset, error) {
	return api.NewToolset(
		&writers.Tool[openArgs, ticket]{
			Name:        "open_ticket",
			Description: "Open a ticket at the service desk.",
			Cost:        10,
			Act: func(ctx context.Context, a writers.Attempt[openArgs]) (ticket, error) {
				return d.file(ctx, string(a.Tenant), a.EffectKey, a.Args.Title)
			},
			Verify: func(ctx context.Context, c writers.CallInfo) (ticket, writers.Verdict, error) {
				t, found, err := d.find(ctx, string(c.Tenant), c.EffectKey)
				switch {
				case err != nil:
					return ticket{}, writers.EffectUnknown, err
				case found:
					return t, writers.EffectApplied, nil
				}
				return ticket{}, writers.EffectAbsent, nil
			},
		},
		&writers.Tool[listArgs, []ticket]{
			Name:        "list_tickets",
			Description: "List the open tickets.",
			ReadOnly:    true,
			Act: func(ctx context.Context, a writers.Attempt[listArgs]) ([]ticket, error) {
				return d.list(ctx, string(a.Tenant))
			},
		},
	)
}
