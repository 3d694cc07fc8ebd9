package progress

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Promise: where nobody watches, nothing is written, and the caller need not care.
func TestNothingIsShownOffATerminal(t *testing.T) {
	var out bytes.Buffer
	bar := Start(&out, false, "calls", 10)
	bar.Add(1)
	bar.Message("more calls")
	bar.Done()
	bar.Done()
	if out.Len() != 0 {
		t.Errorf("wrote %q", out.String())
	}
}

// Promise: a bar shows its message and end, takes steps from many goroutines, and stops drawing with Done, even at once.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	bar := start(&out, "calls", 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { bar.Add(1) })
	}
	wg.Wait()
	bar.Done()
	bar.Done()
	if !strings.Contains(out.String(), "calls") {
		t.Errorf("no message in %q", out.String())
	}
	for range 50 {
		start(&bytes.Buffer{}, "short", 1).Done()
	}
}
