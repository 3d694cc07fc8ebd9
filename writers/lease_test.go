package writers

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"

	"toolledger/internal/schema"
)

// Promise: what is kept for recording is at most five seconds, at most a fifth, and never more than there is.
func TestActMargin(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 200 * time.Millisecond, 25 * time.Second: 5 * time.Second, time.Hour: 5 * time.Second, -time.Second: -200 * time.Millisecond,
	} {
		if got := actMargin(left); got != want {
			t.Errorf("%s: %s, want %s", left, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		left := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "left"))
		if m := actMargin(left); m < 0 || m > 5*time.Second || m > left/5 {
			t.Fatalf("%s: %s", left, m)
		}
	})
}

// leaseRig is a reservation whose extensions a test answers; time is that of the bubble.
type leaseRig struct {
	db       *fakeDB
	hold     *Reservation
	row      *schema.Row
	extends  atomic.Int64
	deadline atomic.Int64 // that the table has, epoch milliseconds
}

func newLeaseRig(t *testing.T, lease time.Duration) *leaseRig {
	g := &leaseRig{db: &fakeDB{}}
	l, err := New(g.db, Config{Table: "ledger", Now: bubbleNow})
	if err != nil {
		t.Fatal(err)
	}
	s, k := l.Tenant("acme").Session("s"), SessionKey("k")
	now := l.now()
	g.row = &schema.Row{
		Key: s.rowKey(k), RowID: "r", Holder: "r", Version: 1, Attempt: 1, State: schema.StatePending, Tool: "pay", IntentHash: make([]byte, 32),
		Session: "s", Scope: schema.ScopeSession, CreatedAt: now, UpdatedAt: now, Deadline: now.Add(lease), PendingBucket: "PENDING#0",
	}
	g.hold = s.hold(k, g.row)
	g.deadline.Store(g.row.Deadline.UnixMilli())
	g.db.get = func(context.Context, *dynamodb.GetItemInput) (schema.Item, error) {
		row := *g.row
		row.Deadline = time.UnixMilli(g.deadline.Load())
		return row.Item(), nil
	}
	return g
}

// bubbleNow is the bubble's time, which begins in a year that no item may hold, a generation later.
func bubbleNow() time.Time { return time.Now().AddDate(26, 0, 0) }

// extended writes the deadline of an extension as DynamoDB would.
func (g *leaseRig) extended(in *dynamodb.TransactWriteItemsInput) {
	g.extends.Add(1)
	n, _ := strconv.ParseInt(schema.ValueOf(in.TransactItems[0].Update.ExpressionAttributeValues[":deadline"]).Text, 10, 64)
	g.deadline.Store(n)
}

// left is how long the recorded deadline is away.
func (g *leaseRig) left() time.Duration { return time.UnixMilli(g.deadline.Load()).Sub(bubbleNow()) }

// Promise: as long as Act runs the reservation is extended, well before it ends, and Act is not disturbed.
func TestLeaseIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newLeaseRig(t, time.Minute)
		g.db.write = func(_ context.Context, in *dynamodb.TransactWriteItemsInput) error { g.extended(in); return nil }
		k := keep(t.Context(), g.hold, time.Hour)
		for range 100 {
			time.Sleep(6 * time.Second)
			if k.ctx.Err() != nil || g.left() < 30*time.Second {
				t.Fatalf("%v; the deadline is %s away", context.Cause(k.ctx), g.left())
			}
		}
		k.end()
		if n := g.extends.Load(); n < 29 || n > 31 {
			t.Errorf("%d extensions in ten minutes of a lease of one", n)
		}
		time.Sleep(time.Hour)
		if n := g.extends.Load(); n > 31 {
			t.Error("it is extended after Act has ended")
		}
	})
}

// Promise: Act's context ends before the reservation does, whatever becomes of the extensions: refused, failing, hanging,
// or answered late.
func TestActEndsBeforeTheLease(t *testing.T) {
	down := func(context.Context) error { return &smithy.GenericAPIError{Code: "InternalServerError"} }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, tt := range map[string]struct {
		lease  time.Duration
		first  time.Duration // how long the first extension takes, which then succeeds; 0: it is as the others
		others func(ctx context.Context) error
	}{
		"failing":                        {time.Minute, 0, down},
		"hanging":                        {time.Minute, 0, hangs},
		"failing, a short lease":         {100 * time.Millisecond, 0, down},
		"answered late, then hanging":    {time.Minute, 30 * time.Second, hangs},
		"answered late, then failing":    {time.Minute, 25 * time.Second, down},
		"answered at once, then hanging": {time.Minute, time.Millisecond, hangs},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newLeaseRig(t, tt.lease)
				n := 0
				g.db.write = func(ctx context.Context, in *dynamodb.TransactWriteItemsInput) error {
					if n++; n == 1 && tt.first > 0 {
						time.Sleep(tt.first)
						g.extended(in)
						return nil
					}
					return tt.others(ctx)
				}
				k := keep(t.Context(), g.hold, time.Hour)
				<-k.ctx.Done()
				if left := g.left(); left < actMargin(tt.lease)/2 || !errors.Is(context.Cause(k.ctx), errNoTime) {
					t.Errorf("it ended with %s left: %v", left, context.Cause(k.ctx))
				}
				k.end()
			})
		})
	}
}

// Promise: whoever learns that another attempt owns the call stops acting at once.
func TestActEndsWhenSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newLeaseRig(t, time.Minute)
		g.db.write = func(context.Context, *dynamodb.TransactWriteItemsInput) error {
			row := *g.row
			row.Attempt = 2
			return cancelled(1, row.Item())
		}
		k := keep(t.Context(), g.hold, time.Hour)
		began := time.Now()
		<-k.ctx.Done()
		if took := time.Since(began); took > 21*time.Second || !errors.Is(context.Cause(k.ctx), ErrSuperseded) {
			t.Errorf("after %s: %v", took, context.Cause(k.ctx))
		}
		k.end()
	})
}

// Promise: Act ends well before the caller's own deadline, and after the tool's time-out at the latest.
func TestActEndsBeforeTheCaller(t *testing.T) {
	for name, tt := range map[string]struct{ caller, timeout, want time.Duration }{
		"the caller's":   {30 * time.Second, time.Hour, 25 * time.Second},
		"a hasty caller": {time.Second, time.Hour, 800 * time.Millisecond},
		"the tool's":     {time.Hour, 10 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newLeaseRig(t, time.Minute)
				g.db.write = func(_ context.Context, in *dynamodb.TransactWriteItemsInput) error { g.extended(in); return nil }
				ctx, cancel := context.WithTimeout(t.Context(), tt.caller)
				defer cancel()
				began := time.Now()
				k := keep(ctx, g.hold, tt.timeout)
				<-k.ctx.Done()
				if got := time.Since(began); got != tt.want {
					t.Errorf("after %s, want %s", got, tt.want)
				}
				k.end()
			})
		})
	}
}

// Promise: a reservation that has run out by the time that it is there gives no right to act.
func TestNoActWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newLeaseRig(t, time.Minute)
		time.Sleep(2 * time.Minute)
		k := keep(t.Context(), g.hold, time.Hour)
		if !errors.Is(context.Cause(k.ctx), errNoTime) {
			t.Error(context.Cause(k.ctx))
		}
		k.end()
	})
}

// Promise: observations of a storm become one write per call and interval, none is lost, and Close writes what is left;
// a Ledger that nobody closes leaves no goroutine behind.
func TestObservationsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted, written atomic.Int64
		db := &fakeDB{update: func(_ context.Context, in *dynamodb.UpdateItemInput) error {
			n, _ := strconv.ParseInt(schema.ValueOf(in.ExpressionAttributeValues[":duplicates"]).Text, 10, 64)
			counted.Add(n)
			written.Add(1)
			return nil
		}}
		l, err := New(db, Config{Table: "ledger", Coalesce: time.Second, Now: bubbleNow})
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Tenant("acme").Session("s").newRequest("commit", Call{Key: SessionKey("k"), Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			r.observe(t.Context(), observation{duplicates: 1}, nil)
		}
		time.Sleep(5 * time.Second)
		if counted.Load() != 1000 || written.Load() != 1 {
			t.Errorf("%d counted in %d writes", counted.Load(), written.Load())
		}
		for range 3 {
			r.observe(t.Context(), observation{duplicates: 1}, nil)
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if counted.Load() != 1003 {
			t.Errorf("%d counted after Close", counted.Load())
		}
		r.observe(t.Context(), observation{duplicates: 1}, nil)
		time.Sleep(5 * time.Second)
		l.obs.mu.Lock()
		defer l.obs.mu.Unlock()
		if l.obs.running != nil || counted.Load() != 1004 {
			t.Errorf("%d counted, or somebody still waits", counted.Load())
		}
	})
}

// Promise: what waits to be counted is bounded; beyond that each observation is written at once.
func TestObservationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written atomic.Int64
		db := &fakeDB{update: func(context.Context, *dynamodb.UpdateItemInput) error { written.Add(1); return errors.New("down") }}
		l, err := New(db, Config{Table: "ledger", Coalesce: time.Minute, Now: bubbleNow})
		if err != nil {
			t.Fatal(err)
		}
		for i := range observedMost + 10 {
			r, err := l.Tenant("acme").Session("s").newRequest("commit", Call{Key: SessionKey(strconv.Itoa(i)), Tool: "t"})
			if err != nil {
				t.Fatal(err)
			}
			r.observe(t.Context(), observation{duplicates: 1}, nil)
		}
		if len(l.obs.gathered) != observedMost || written.Load() != 10 {
			t.Errorf("%d wait, %d are written", len(l.obs.gathered), written.Load())
		}
		if err := l.Close(t.Context()); err != nil || l.obs.dropped.Load() != observedMost+10 {
			t.Errorf("%v; %d are counted as lost", err, l.obs.dropped.Load())
		}
	})
}

// Promise: Close waits no longer than its caller.
func TestCloseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{update: func(ctx context.Context, _ *dynamodb.UpdateItemInput) error { <-ctx.Done(); return ctx.Err() }}
		l, err := New(db, Config{Table: "ledger", Coalesce: time.Minute, Now: bubbleNow})
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Tenant("acme").Session("s").newRequest("commit", Call{Key: SessionKey("k"), Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		r.observe(t.Context(), observation{duplicates: 1}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * observeTime) // what is under way ends by itself
	})
}

// Promise: a result is stored as it was given, byte for byte; an empty one stays empty.
func TestEncodeResult(t *testing.T) {
	raw := json.RawMessage(` {"b": 1.0, "a": "é"} `)
	for want, result := range map[string]any{
		string(raw): raw, "null": nil, `"x"`: "x", `{"A":1}`: struct{ A int }{1}, ` 1`: new(json.RawMessage(` 1`)),
	} {
		if got, err := encodeResult("commit", result); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v", result, got, err)
		}
	}
	for _, none := range []any{json.RawMessage(nil), json.RawMessage{}, (*json.RawMessage)(nil)} {
		if got, err := encodeResult("commit", none); err != nil || got == nil || len(got) > 0 {
			t.Errorf("%T: %q, %v", none, got, err)
		}
	}
}

// Promise: a reservation may be extended while others use it: what they are told of it is never half of the old deadline and
// half of the new.
func TestReservationIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newLeaseRig(t, time.Minute)
		applied := *g.row
		applied.State, applied.AppliedAttempt, applied.ResultJSON, applied.Deadline, applied.LastDeadline = schema.StateApplied, 1, new("1"), time.Time{}, g.row.Deadline
		g.db.write = func(_ context.Context, in *dynamodb.TransactWriteItemsInput) error {
			time.Sleep(time.Second)
			if _, extends := in.TransactItems[0].Update.ExpressionAttributeValues[":deadline"]; extends {
				g.extended(in)
				return nil
			}
			return cancelled(len(in.TransactItems), applied.Item())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 5 {
				if err := g.hold.Extend(t.Context(), time.Hour); err != nil {
					t.Error(err)
				}
			}
		}()
		for range 5 {
			if err := g.hold.Release(t.Context(), ""); !errors.Is(err, ErrSuperseded) {
				t.Error(err)
			}
			if _, err := g.hold.Finalize(t.Context(), "x", 0); err != nil {
				t.Error(err)
			}
			if g.hold.Token() == "" {
				t.Error("no token")
			}
		}
		<-done
	})
}

// Promise: what Act gets is its own, also where the reservation is extended at that moment.
func TestActGetsItsOwnCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{write: func(context.Context, *dynamodb.TransactWriteItemsInput) error { return nil }}
		l, err := New(db, Config{Table: "ledger", Now: bubbleNow})
		if err != nil {
			t.Fatal(err)
		}
		tool := &Tool[struct{}, string]{Name: "pay", Act: func(_ context.Context, a Attempt[struct{}]) (string, error) {
			before := a.Deadline
			time.Sleep(5 * time.Minute)
			if !a.Deadline.Equal(before) {
				t.Error("it changed")
			}
			return "paid", nil
		}, Timeout: time.Hour}
		out, err := tool.Do(t.Context(), l.Tenant("acme").Session("s"), SessionKey("k"), struct{}{})
		if err != nil || out.Value != "paid" || len(db.writes) < 14 {
			t.Errorf("%+v %v, %d requests", out, err, len(db.writes))
		}
	})
}
