package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"toolledger/internal/recorded"
	"toolledger/internal/schema"
	"toolledger/writers"
)

// replayOptions is what replay was asked for.
type replayOptions struct {
	file   string
	key    string // "tool_call_id" or "intent"
	storm  int
	crash  float64
	seed   uint64
	tokens int64
	quota  int64 // tokens of the plan; below 0: enough for all calls
	tenant string
}

const (
	keyToolCallID = "tool_call_id"
	keyIntent     = "intent"
	maxStorm      = 64
)

func newReplayCommand(a *app) *cobra.Command {
	o := replayOptions{}
	cmd := &cobra.Command{
		Use: "replay FILE", GroupID: groupTry, Args: oneFile,
		Short: "Feed recorded tool calls through reserve, act and finalize, and prove that each took effect once",
		Long: `Feeds recorded tool calls (JSON lines with session, seq, tool_call_id, tool, mutating, args, result, is_error, and
optionally tokens) through reserve, act and finalize, in the order of the file, on a local stack in memory unless told
otherwise. An outside world answers with the recorded results and counts effects; where a call is recorded as an error it
refuses, and the reservation is released. Calls that change nothing are counted and not written.

With --storm every call is made by several callers at once, each of which tries again; with --crash a worker may die after
it acted, and whoever comes next asks the outside world. Leases are not shortened: the clock is moved past them.
It ends with the proof, and with exit code 1 where a promise is broken.`,
	}
	w := addWhere(cmd)
	f := cmd.Flags()
	f.StringVar(&o.key, "key", keyToolCallID, "what names a call: `tool_call_id` or intent (tool and arguments)")
	f.IntVar(&o.storm, "storm", 1, "`N` callers at once per call, each of which tries again")
	f.Float64Var(&o.crash, "crash", 0, "a worker that acted dies with probability `P`")
	f.Uint64Var(&o.seed, "seed", 1, "`N` that decides who dies")
	f.Int64Var(&o.tokens, "tokens", 1, "what a mutating call costs where the file does not say, in `N` tokens")
	f.Int64Var(&o.quota, "quota", -1, "`N` tokens for the tenant's month (default as many as the calls cost)")
	f.StringVar(&o.tenant, "tenant", "replay", "the tenant `T` that pays")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.file = args[0]
		if err := o.check(cmd.Flags().Changed("quota")); err != nil {
			return err
		}
		return a.replay(cmd.Context(), w, o)
	}
	return cmd
}

func (o *replayOptions) check(quotaGiven bool) error {
	switch {
	case o.key != keyToolCallID && o.key != keyIntent:
		return badInput("--key %q: want %s or %s", o.key, keyToolCallID, keyIntent)
	case o.storm < 0 || o.storm > maxStorm:
		return badInput("--storm %d: want 1 to %d callers, 0 for no storm", o.storm, maxStorm)
	case math.IsNaN(o.crash) || o.crash < 0 || o.crash > 1:
		return badInput("--crash %v: want a probability between 0 and 1", o.crash)
	case o.tokens < 0 || o.tokens > schema.MaxTokens:
		return badInput("--tokens %d: want 0 to 2^53", o.tokens)
	case quotaGiven && (o.quota < 0 || o.quota > schema.MaxTokens):
		return badInput("--quota %d: want 0 to 2^53", o.quota)
	}
	if err := checkTenant(o.tenant); err != nil {
		return err
	}
	o.storm = max(o.storm, 1)
	return nil
}

// load reads the file, whole and before anything is started, and makes an intent of every mutating call.
func (o *replayOptions) load() ([]recorded.Call, int64, error) {
	calls, err := recorded.ReadFile(o.file)
	if err != nil {
		return nil, 0, badInput("%w", err)
	}
	var total int64
	for i := range calls {
		c := &calls[i]
		if !c.Mutating {
			continue
		}
		if c.Tokens == nil {
			c.Tokens = &o.tokens
		}
		if total += *c.Tokens; total > schema.MaxTokens {
			return nil, 0, badInput("%s:%d: tokens: all calls together cost more than 2^53", o.file, c.Line)
		}
	}
	return calls, total, nil
}

func (a *app) replay(ctx context.Context, w *where, o replayOptions) error {
	calls, total, err := o.load()
	if err != nil {
		return err
	}
	place, err := a.tryLocation(ctx, w)
	if err != nil {
		return err
	}
	defer place.close()
	began := a.now()
	r, err := a.replayAt(ctx, place, o, calls, total)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	r.finish(a.now().Sub(began))
	return a.printReport(r, fmt.Sprintf("Replayed %s at %s in %s, key %s, %d callers per call, seed %d", o.file, place,
		a.now().Sub(began).Round(time.Millisecond), o.key, o.storm, o.seed))
}

// callKey is the key that names a recorded call.
func (o *replayOptions) callKey(c *recorded.Call) writers.Key {
	if o.key == keyIntent {
		return writers.IntentKey(c.Tool, c.Args)
	}
	return writers.SessionKey(c.ID)
}
