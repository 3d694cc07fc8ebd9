// Package progress shows how far a long command has come: a bar on a terminal, and nothing anywhere else, so that what is
// piped or read by a program holds results only.
package progress

import (
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

const (
	refresh   = 100 * time.Millisecond
	barLength = 30
	stopPause = 5 * time.Millisecond
)

// Bar is one task's progress. The nil Bar shows nothing; all methods may be called on it and from several goroutines.
type Bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	drawn   chan struct{} // closed when the drawing goroutine has ended
}

// Start shows a bar for total steps on out, where out is a terminal and quiet is not set; a total of 0 means unknown.
// Done must be called.
func Start(out io.Writer, quiet bool, message string, total int64) *Bar {
	if quiet || !Terminal(out) {
		return nil
	}
	return start(out, message, total)
}

// Terminal reports whether out is a terminal.
func Terminal(out any) bool {
	f, ok := out.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

func start(out io.Writer, message string, total int64) *Bar {
	b := &Bar{
		writer:  progress.NewWriter(),
		tracker: &progress.Tracker{Message: message, Total: total},
		drawn:   make(chan struct{}),
	}
	b.writer.SetOutputWriter(out)
	b.writer.SetAutoStop(false)
	b.writer.SetUpdateFrequency(refresh)
	b.writer.SetTrackerLength(barLength)
	b.writer.SetTrackerPosition(progress.PositionRight)
	b.writer.Style().Visibility.ETA = total > 0
	b.writer.Style().Visibility.Percentage = total > 0
	b.writer.AppendTracker(b.tracker)
	go func() {
		defer close(b.drawn)
		b.writer.Render()
	}()
	return b
}

// Add counts n more steps.
func (b *Bar) Add(n int64) {
	if b != nil {
		b.tracker.Increment(n)
	}
}

// Message changes what stands beside the bar.
func (b *Bar) Message(text string) {
	if b != nil {
		b.tracker.UpdateMessage(text)
	}
}

// Done draws the last state and returns when nothing more will be drawn. It may be called again.
func (b *Bar) Done() {
	if b == nil {
		return
	}
	b.tracker.MarkAsDone()
	for { // a Stop before the drawing began is lost, so it is said until it was heard
		b.writer.Stop()
		select {
		case <-b.drawn:
			return
		case <-time.After(stopPause):
		}
	}
}
