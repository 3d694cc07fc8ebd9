// Command toolledger runs the whole system on a laptop, looks into a ledger, and mends it.
//
// It exits with 0 where all is well, 1 where a promise is broken or a race was lost, 2 on bad input (an unknown flag, an
// unreadable file, an endpoint that is down, a missing local stack), with one line on stderr, and 130 where it was
// interrupted before it was done.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns the exit code. It is main without the process: tests call it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return newApp(os.Stdin, stdout, stderr).execute(ctx, args)
}
