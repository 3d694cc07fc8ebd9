package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"toolledger/writers"
)

var errDied = errors.New("the process died")

// dying is a history whose process dies when it has something to save for the nth time: the tools of the message before have run,
// and what they answered is lost.
type dying struct {
	history
	saves int
}

func (d *dying) save(ctx context.Context, messages []json.RawMessage) error {
	if d.saves--; d.saves == 0 {
		return errDied
	}
	return d.history.save(ctx, messages)
}

// story holds a conversation whose process dies after the first tools have run, and goes on with it in the next.
func (h *host) story(ctx context.Context, out io.Writer, play bool, words []string) error {
	if play {
		model := httptest.NewServer(&recorded{answers: conversation()})
		defer model.Close()
		h.claude = anthropic.NewClient(option.WithBaseURL(model.URL), option.WithAPIKey("none"), option.WithMaxRetries(0))
	}
	for table, key := range map[string]string{h.desk.table: attrNumber, h.histories: attrConversation} {
		if err := createTable(ctx, h.db, table, key); err != nil {
			return err
		}
	}
	r := request{Tenant: "acme", Session: fmt.Sprintf("claude-%d", time.Now().UnixMilli()), Ask: cmp.Or(strings.Join(words, " "), "Open tickets for the printer and the hall.")}
	s := h.ledger.Tenant(writers.TenantID(r.Tenant)).Session(r.Session)
	first := &dying{stored{h.db, h.histories, conversationOf(r.Tenant, r.Session)}, 2}
	said, err := converse(ctx, h.claude, h.tools, s, r.Ask, first)
	if errors.Is(err, errDied) {
		tickets, err := h.tickets(ctx, r.Tenant)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%v after its first tools had run; %s\n", errDied, tickets)
		if said, err = h.handle(ctx, r); err != nil { // as the next process, or the function when it is invoked again
			return err
		}
	} else if err != nil {
		return err
	}
	tickets, err := h.tickets(ctx, r.Tenant)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the model says: %s\n%s\n", said, tickets)
	return h.ledger.Close(ctx)
}
