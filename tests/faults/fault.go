package faults

import (
	"context"
	"net"
	"runtime"
	"syscall"
)

// Fault is what happens to one request. The zero Fault: nothing.
type Fault struct {
	what   what
	err    error
	before func()
	after  func()
}

type what int

const (
	pass what = iota
	fail
	lose
	hang
	stall
	crash
	crashAfter
)

// Fail answers err without sending the request. At level Try an error of package types, or any other smithy.APIError, is
// answered as the service would and decoded by the SDK; everything else is an error of the connection.
func Fail(err error) Fault { return Fault{what: fail, err: err} }

// Lose applies the request and loses its answer: the connection breaks.
func Lose() Fault { return LoseAs(Broken()) }

// LoseAs applies the request and answers err instead.
func LoseAs(err error) Fault { return Fault{what: lose, err: err} }

// Hang sends nothing and waits until the caller's context ends.
func Hang() Fault { return Fault{what: hang} }

// Stall applies the request and then waits until the caller's context ends.
func Stall() Fault { return Fault{what: stall} }

// Crash lets the process die before the request is sent.
func Crash() Fault { return Fault{what: crash} }

// CrashAfter lets the process die once the request was applied.
func CrashAfter() Fault { return Fault{what: crashAfter} }

// Pass does nothing; it is there to carry Before and After.
func Pass() Fault { return Fault{} }

// Before makes f run ahead of everything else.
func (f Fault) Before(run func()) Fault { f.before = run; return f }

// After makes run follow the request, before the caller sees the answer. It does not run where nothing is sent.
func (f Fault) After(run func()) Fault { f.after = run; return f }

// Broken is the error of a connection that broke while the answer was awaited.
func Broken() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// around does f to one request. send sends it.
func around[O any](ctx context.Context, in *Injector, f Fault, send func() (O, error)) (O, error) {
	var none O
	if f.before != nil {
		f.before()
	}
	in.live()
	switch f.what {
	case fail:
		return none, f.err
	case hang:
		<-ctx.Done()
		return none, ctx.Err()
	case crash:
		in.die()
	case pass, lose, stall, crashAfter:
	}
	out, err := send()
	if f.after != nil {
		f.after()
	}
	in.live()
	switch f.what {
	case lose:
		return none, f.err
	case stall:
		<-ctx.Done()
		return none, ctx.Err()
	case crashAfter:
		in.die()
	case pass, fail, hang, crash:
	}
	return out, err
}

// live ends the goroutine where the process is dead.
func (in *Injector) live() {
	if in.dead.Load() {
		runtime.Goexit()
	}
}

func (in *Injector) die() {
	in.dead.Store(true)
	runtime.Goexit()
}
