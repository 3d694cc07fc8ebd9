package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"toolledger/internal/schema"
)

// devFlags is what a command line says about dev.
type devFlags struct {
	addr       string
	tenant     string
	tokens     int64
	sweepEvery time.Duration
	skew       time.Duration
	data       string // the file that the local stack keeps, from the flags of the place
}

const (
	devAddr   = "127.0.0.1:8700"
	devTenant = "acme"
	devTokens = 1_000_000
)

func newDevCommand(a *app) *cobra.Command {
	f := &devFlags{}
	cmd := &cobra.Command{
		Use: "dev", GroupID: groupTry, Args: noArgs,
		Short: "Run the whole system with an HTTP front until stopped",
		Long: `Runs the whole system until it is stopped (Ctrl-C): the HTTP front, the stream consumer, which shows the events,
and the sweeper, on a local stack in memory unless told otherwise. --local FILE keeps the ledger over restarts.
The front believes whatever tenant the header X-Tenant-Id names and lets everybody set plans: it is for development. Web pages of
other origins may change nothing, and it answers only to addresses, localhost and the name given by --addr.
With --json the first line on stdout is an object that says where everything is (http, dynamodb, region, table,
control_table), and every event is a further line, in the envelope in which EventBridge delivers it.`,
	}
	w := addWhere(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "addr", devAddr, "listen on `HOST:PORT`; port 0 takes a free one")
	flags.StringVar(&f.tenant, "tenant", devTenant, "give tenant `T` a monthly plan, if it has none")
	flags.Int64Var(&f.tokens, "tokens", devTokens, "of `N` tokens")
	flags.DurationVar(&f.sweepEvery, "sweep-every", time.Minute, "sweep `TIME` apart")
	flags.DurationVar(&f.skew, "skew", 0, "how far apart clocks may be (default 2m)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), w, f) }
	return cmd
}

func (f *devFlags) check() error {
	if _, port, err := net.SplitHostPort(f.addr); err != nil || port == "" {
		return badInput("--addr %q: want HOST:PORT, such as %s", f.addr, devAddr)
	}
	if err := checkTenant(f.tenant); err != nil {
		return err
	}
	switch {
	case f.tokens < 0 || f.tokens > schema.MaxTokens:
		return badInput("--tokens %d: want 0 to 2^53", f.tokens)
	case f.sweepEvery < minEvery:
		return badInput("--sweep-every %s: want at least %s", f.sweepEvery, minEvery)
	case f.skew < 0 || f.skew > time.Hour:
		return badInput("--skew %s: want 0 to 1h", f.skew)
	}
	return nil
}

// dev takes the port first: a port in use is known before anything is started.
func (a *app) dev(ctx context.Context, w *where, f *devFlags) error {
	f.data = w.local
	if err := f.check(); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return badInput("--addr %s: the address is in use; give another, or port 0 for a free one", f.addr)
	}
	if err != nil {
		return badInput("--addr %s: %w", f.addr, err)
	}
	defer listener.Close()
	if at, ok := listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		_, _ = fmt.Fprintf(a.stderr, "toolledger: dev: %s is not of this machine alone, and the front believes whoever calls\n", at)
	}
	place, err := a.tryLocation(ctx, w)
	if err != nil {
		return err
	}
	defer place.close()
	d, err := a.newDevSystem(ctx, place, listener, f)
	if err != nil {
		return badInput("%w", err)
	}
	return d.run(ctx)
}
