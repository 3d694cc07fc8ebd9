package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// callers is how many goroutines call at once where nothing else is said.
const callers = 32

// call makes the n-th call of a run; n is never used twice.
type call func(ctx context.Context, n int64) error

// usage is what one call took of this process: processor time and time in microseconds, allocations, bytes.
type usage struct{ cpu, wall, allocs, bytes float64 }

// over returns how many times b goes into u.
func (u usage) over(b usage) usage {
	return usage{
		cpu: quotient(u.cpu, b.cpu), wall: quotient(u.wall, b.wall), allocs: quotient(u.allocs, b.allocs), bytes: quotient(u.bytes, b.bytes),
	}
}

// effort is how long to measure: so many rounds of so many calls of each side, or fewer on a machine that is too busy to make
// them in time.
type effort struct {
	rounds, atLeast int
	time            time.Duration
	calls           int64
	callers         int  // at once; 0 means 32
	units           int  // what one call does so many of is what is measured; 0 means the call itself
	collect         bool // garbage before each side, so that none pays for the other's: where one makes much more of it
}

// crew is the callers of all rounds: the same goroutines, since the first calls of a new one pay for its stack.
type crew struct {
	effort
	work chan func()
	next atomic.Int64
}

func newCrew(e effort) *crew {
	c := &crew{effort: e, work: make(chan func())}
	for range cmp.Or(e.callers, callers) {
		go func() {
			for f := range c.work {
				f()
			}
		}()
	}
	return c
}

// dismiss ends the callers.
func (c *crew) dismiss() { close(c.work) }

// round makes the calls of one side of a round and returns what each took on average.
func (c *crew) round(ctx context.Context, do call) (usage, error) {
	if c.collect {
		runtime.GC()
	}
	var left atomic.Int64
	left.Store(c.calls)
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun, cpu := time.Now(), processorTime()
	for range cmp.Or(c.callers, callers) {
		wg.Add(1)
		c.work <- func() {
			defer wg.Done()
			for left.Add(-1) >= 0 && failure.Load() == nil {
				if err := do(ctx, c.next.Add(1)); err != nil {
					failure.Store(&err)
				}
			}
		}
	}
	wg.Wait()
	cpu = processorTime() - cpu
	wall := time.Since(begun)
	runtime.ReadMemStats(&after)
	if err := failure.Load(); err != nil {
		return usage{}, *err
	}
	n := float64(c.calls) * float64(max(c.units, 1))
	return usage{
		cpu:    float64(cpu.Nanoseconds()) / 1e3 / n,
		wall:   float64(wall.Nanoseconds()) / 1e3 / n,
		allocs: float64(after.Mallocs-before.Mallocs) / n,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compared is what many alternating rounds of two calls took: medians over the rounds, that of the ratios too.
type compared struct{ value, floor, ratio usage }

// compare runs rounds of floor and value. The order within a round alternates, since what runs second finds a warmer
// machine.
func compare(ctx context.Context, e effort, value, floor call) (compared, error) {
	c := newCrew(e)
	defer c.dismiss()
	both := [2]call{floor, value}
	for _, do := range both { // connections, caches, the plan
		if _, err := c.round(ctx, do); err != nil {
			return compared{}, err
		}
	}
	var floors, values, ratios []usage
	begun := time.Now()
	for n := 0; n < e.rounds && (n < e.atLeast || time.Since(begun) < e.time); n++ {
		var used [2]usage
		for i := range both {
			which := (n + i) % 2
			var err error
			if used[which], err = c.round(ctx, both[which]); err != nil {
				return compared{}, err
			}
		}
		floors, values = append(floors, used[0]), append(values, used[1])
		ratios = append(ratios, used[1].over(used[0]))
	}
	return compared{medians(values), medians(floors), medians(ratios)}, nil
}

func medians(us []usage) usage {
	return usage{
		cpu:    median(us, func(u usage) float64 { return u.cpu }),
		wall:   median(us, func(u usage) float64 { return u.wall }),
		allocs: median(us, func(u usage) float64 { return u.allocs }),
		bytes:  median(us, func(u usage) float64 { return u.bytes }),
	}
}

func median[T any](of []T, figure func(T) float64) float64 {
	figures := make([]float64, len(of))
	for i, x := range of {
		figures[i] = figure(x)
	}
	slices.Sort(figures)
	n := len(figures)
	return (figures[(n-1)/2] + figures[n/2]) / 2
}
