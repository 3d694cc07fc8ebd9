package main

import (
	"context"
	"slices"
	"sync"

	"toolledger/writers"
	"toolledger/writers/api"
)

// desk is the outside world of this example: a ticket desk that files a ticket under the key it was given, and another one
// if asked again.
type desk struct {
	mu      sync.Mutex
	tickets []ticket
}

type ticket struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	key    string
}

func newDesk() *desk { return &desk{} }

func (d *desk) file(key, title string) ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := ticket{Number: len(d.tickets) + 1, Title: title, key: key}
	d.tickets = append(d.tickets, t)
	return t
}

func (d *desk) find(key string) (ticket, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.tickets, func(t ticket) bool { return t.key == key })
	if i < 0 {
		return ticket{}, false
	}
	return d.tickets[i], true
}

func (d *desk) list() []ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.tickets)
}

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
			Act: func(_ context.Context, a writers.Attempt[openArgs]) (ticket, error) {
				return d.file(a.EffectKey, a.Args.Title), nil
			},
			Verify: func(_ context.Context, c writers.CallInfo) (ticket, writers.Verdict, error) {
				if t, found := d.find(c.EffectKey); found {
					return t, writers.EffectApplied, nil
				}
				return ticket{}, writers.EffectAbsent, nil
			},
		},
		&writers.Tool[listArgs, []ticket]{
			Name:        "list_tickets",
			Description: "List the open tickets.",
			ReadOnly:    true,
			Act:         func(context.Context, writers.Attempt[listArgs]) ([]ticket, error) { return d.list(), nil },
		},
	)
}
