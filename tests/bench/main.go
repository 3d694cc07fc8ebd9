package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// benchmarks are run in this order; each may give several results.
var benchmarks = []benchmark{
	{"requests", []string{"commit_requests", "replay_requests", "replay_read_requests", "reserve_finalize_requests"}, requests},
	{"units", unitNames(), units},
	{"sweep", []string{"sweep_requests"}, sweep},
	{"hotpath", []string{
		"commit_cpu", "commit_allocs", "commit_bytes", "replay_cpu", "replay_read_cpu", "reserve_finalize_cpu",
	}, hotPath},
	{"derive", []string{"derive_us", "derive_allocs"}, derive},
	{"putevents", []string{"putevents_us"}, putEvents},
	{"poller", []string{"poller_rate"}, poll},
	{"aggregate", []string{"aggregate_ns"}, aggregate},
	{"contention", []string{"contention_4_shards", "contention_16_shards"}, contention},
}

// limit bounds the whole run, which takes some two minutes.
const limit = 5 * time.Minute

// env is what a benchmark gets.
type env struct {
	quick bool // one short round of everything: shows that it runs, measures nothing
}

// cut is e, or next to nothing where nothing is to be measured.
func (v *env) cut(e effort) effort {
	if v.quick {
		e.rounds, e.atLeast, e.calls = 1, 1, min(e.calls, 2*callers)
	}
	return e
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fail(err)
		}
		return
	}
	run := flag.String("run", "", "run only benchmarks with a result whose name matches this regular expression")
	out := flag.String("out", "", "write the results to this file, as JSON")
	quick := flag.Bool("quick", false, "one short round of each: shows that they run, measures nothing")
	flag.Parse()
	match, err := regexp.Compile(*run)
	if err != nil || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results, err := runAll(ctx, &env{quick: *quick}, match)
	if err != nil {
		fail(err)
	}
	printTable(os.Stdout, results)
	if *out != "" {
		if err := writeJSON(*out, results); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func runAll(ctx context.Context, e *env, match *regexp.Regexp) ([]result, error) {
	var all []result
	for _, b := range benchmarks {
		if !b.matches(match) {
			continue
		}
		begun := time.Now()
		results, err := b.run(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-12s %4.0f s\n", b.name, time.Since(begun).Seconds())
		all = append(all, results...)
	}
	return all, nil
}
