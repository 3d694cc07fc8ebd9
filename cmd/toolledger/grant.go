package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// grantView says what a grant did.
type grantView struct {
	Key    string    `json:"key"`
	Tokens int64     `json:"tokens"`
	Done   bool      `json:"done"` // false: it had been made before, and nothing was changed
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Why    string    `json:"why,omitempty"`
}

func newGrantCommand(a *app) *cobra.Command {
	var tokens int64
	var key string
	cmd := &cobra.Command{
		Use: "grant TENANT --tokens N --key K", GroupID: groupMend, Args: names("TENANT"),
		Short: "Add tokens to a tenant's running period, once per key",
		Long: `Adds tokens to the running period, on top of the plan. The key makes it happen once: an order number, a ticket. The same
grant again changes nothing and is no error.`,
		Example: `  toolledger grant acme --tokens 5000 --key order-4711 --region eu-west-1 --table toolledger`,
	}
	o := addMender(cmd)
	cmd.Flags().Int64Var(&tokens, "tokens", 0, "`N` tokens, 1 to 2^53")
	cmd.Flags().StringVar(&key, "key", "", "`K` names this grant")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("tokens"):
			return badInput("--tokens N is required")
		case tokens < 1 || tokens > schema.MaxTokens:
			return badInput("--tokens %d: want 1 to 2^53", tokens)
		}
		if err := schema.CheckID("--key", key, schema.MaxGrant); err != nil {
			return badInput("%w", err)
		}
		return a.grant(cmd.Context(), o, args[0], tokens, key)
	}
	return cmd
}

func (a *app) grant(ctx context.Context, o *operator, tenant string, tokens int64, key string) error {
	b, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	made, err := b.grant(ctx, tenant, key)
	if err != nil {
		return err
	}
	if made == nil {
		if err := a.confirm(ctx, o, fmt.Sprintf("give tenant %s %s for %s", tenant, tokensOf(tokens), key)); err != nil {
			return err
		}
	}
	// Also where it was made before: whether it was the same grant is for the ledger to say.
	if err := b.ledger.Tenant(writers.TenantID(tenant)).Grant(ctx, key, tokens); err != nil {
		return refused(ctx, err)
	}
	if made != nil {
		a.print("grant %s was made before, %s by %s: nothing was changed\n", key, stamp(made.At), printable(made.By))
		return a.quota(ctx, b, tenant, made)
	}
	if made, err = b.grant(ctx, tenant, key); err != nil {
		return err
	}
	if made != nil {
		made.Done = true
	}
	a.print("granted %s\n", tokensOf(tokens))
	return a.quota(ctx, b, tenant, made)
}

// grant reads the record of a grant; nil where there is none.
func (b *bench) grant(ctx context.Context, tenant, key string) (*grantView, error) {
	item, err := b.getItem(ctx, b.control, schema.GrantKey(tenant, key))
	if err != nil || item == nil {
		return nil, err
	}
	g := &grantView{Key: key, By: schema.ValueOf(item[schema.ABy]).Text, Why: schema.ValueOf(item[schema.AWhy]).Text}
	_, _ = fmt.Sscan(schema.ValueOf(item[schema.ATokens]).Text, &g.Tokens)
	var millis int64
	if _, err := fmt.Sscan(schema.ValueOf(item[schema.ACreatedAt]).Text, &millis); err == nil {
		g.At = time.UnixMilli(millis).UTC()
	}
	return g, nil
}
