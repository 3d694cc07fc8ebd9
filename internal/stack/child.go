package stack

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

const (
	stopWait  = 2 * time.Second // for an orderly end, before the child is killed
	pipeWait  = time.Second     // for the rest of its output, after its end
	tailBytes = 4 << 10         // of its output that are kept for error texts
)

// child is one run of dynoxide. The goroutine that waits for it is its owner and ends with it.
type child struct {
	proc   *process
	out    *tail
	exited chan struct{} // closed once the process was waited for
	err    error         // how it ended; read only after exited is closed
}

// spawn starts binary. onExit is called by the owning goroutine after the process ended and before exited is closed.
func spawn(binary string, args []string, onExit func(*child)) (*child, error) {
	c := &child{out: newTail(), exited: make(chan struct{})}
	var err error
	if c.proc, err = start(binary, args, c.out); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.proc.wait()
		onExit(c)
		close(c.exited)
	}()
	return c, nil
}

func (c *child) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// kill ends the process without giving it a chance to tidy up, as a crash would, and waits for it.
func (c *child) kill() {
	if c.alive() {
		_ = c.proc.kill() // fails only where it has just ended
	}
	<-c.exited
}

// stop asks the process to end, kills it where it does not, and waits for it.
func (c *child) stop() {
	if !c.alive() {
		return
	}
	if err := c.proc.terminate(); err == nil {
		timer := time.NewTimer(stopWait)
		defer timer.Stop()
		select {
		case <-c.exited:
			return
		case <-timer.C:
		}
	}
	c.kill()
}

// tail keeps the end of what the process printed, and tells when it said that it listens: only then does the port belong
// to it and not to somebody who was there first.
type tail struct {
	listening chan struct{}

	mu   sync.Mutex
	buf  []byte
	said bool
}

func newTail() *tail { return &tail{listening: make(chan struct{})} }

// Write keeps the last tailBytes bytes. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if !t.said && bytes.Contains(t.buf, []byte("listening on ")) {
		t.said = true
		close(t.listening)
	}
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns what was kept, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.buf)), " ")
}
