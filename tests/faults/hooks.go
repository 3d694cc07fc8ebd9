package faults

import "sync"

// At does f to the nth event (from 1) of a level and operation; op "" counts all operations.
func At(level Level, op string, n int, f Fault) Hook {
	return func(e Event) Fault {
		if e.Level == level && (op == "" && e.Seq == n || op != "" && e.Op == op && e.N == n) {
			return f
		}
		return Fault{}
	}
}

// Every does f to every event of a level and operation; op "" means all operations.
func Every(level Level, op string, f Fault) Hook {
	return func(e Event) Fault {
		if e.Level == level && (op == "" || e.Op == op) {
			return f
		}
		return Fault{}
	}
}

// When does what choose says to the first events of a level and operation that fit, at most times of them; choose returns
// false where an event does not fit.
func When(level Level, op string, times int, choose func(Event) (Fault, bool)) Hook {
	left := times // hooks are called one at a time
	return func(e Event) Fault {
		if e.Level != level || op != "" && e.Op != op || left == 0 {
			return Fault{}
		}
		f, ok := choose(e)
		if !ok {
			return Fault{}
		}
		left--
		return f
	}
}

// All asks each hook; the first that does something decides. All hooks see all events.
func All(hooks ...Hook) Hook {
	return func(e Event) Fault {
		var decided *Fault
		for _, h := range hooks {
			if f := h(e); decided == nil && (f.what != pass || f.before != nil || f.after != nil) {
				decided = &f
			}
		}
		if decided == nil {
			return Fault{}
		}
		return *decided
	}
}

// Recorder is a hook's memory of what was asked.
type Recorder struct {
	mu     sync.Mutex
	events []Event
}

// Hook lets everything pass and remembers it.
func (r *Recorder) Hook(e Event) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return Fault{}
}

// Events returns what was remembered of a level and operation; op "" means all operations.
func (r *Recorder) Events(level Level, op string) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []Event
	for _, e := range r.events {
		if e.Level == level && (op == "" || e.Op == op) {
			events = append(events, e)
		}
	}
	return events
}
