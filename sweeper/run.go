package sweeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"toolledger/writers"
)

// run is one run: what it has seen, counted and failed at.
type run struct {
	*Sweeper
	ctx  context.Context    // the caller's: what is under way is finished under it
	work context.Context    // ends earlier: nothing new is begun after it
	stop context.CancelFunc // ends work

	seen      map[rowVersion]bool // written between readings only
	verifiers map[string]*verifier
	warned    map[string]bool

	mu      sync.Mutex
	report  Report
	waiting map[rowVersion]bool
	errs    []error
}

// count changes the report.
func (r *run) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// cutShort counts n rows that are left since the run has to stop.
func (r *run) cutShort(n int) {
	r.count(func(p *Report) { p.Left += n; p.Complete = false })
}

// maxErrors is how many failures that are not about single rows end a run: the table is not there, or not allowed.
const maxErrors = 3

// fail keeps an error that the run returns; the rest of the run would fail alike after some of them.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.errs = append(r.errs, err); len(r.errs) >= maxErrors {
		r.stop()
	}
}

func (r *run) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.report.Complete = false
		return err
	}
	if len(r.errs) == 0 {
		return nil
	}
	r.report.Complete = false
	return &writers.Error{
		Code: writers.ErrUnavailable, Op: "sweep", Reason: "some reservations could not be swept; the next run tries again",
		Err: errors.Join(r.errs[:min(len(r.errs), maxErrors)]...),
	}
}

// handle deals with rows that take turns by tenant: those that nobody can be asked about, and beside them those with a
// verifier, so that slow verifiers do not keep refunds waiting.
func (r *run) handle(rows []found) {
	var asks []found
	var direct []step
	for _, f := range rows {
		if r.verifierOf(f.row.Tool) != nil {
			asks = append(asks, f)
		} else {
			direct = append(direct, r.unasked(f, r.l.Now()))
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.write(direct) })
	wg.Go(func() { r.verify(asks) })
	wg.Wait()
}

// unasked decides on a row about whose tool nobody here can be asked at the given time. A tool that its callers can verify
// keeps the time for it that an unknown effect has, even where no sweeper was given its verifier.
func (r *run) unasked(f found, at time.Time) step {
	if f.row.Verifier && !f.row.Idempotent {
		r.warnNoVerifier(f.row.Tool)
		return r.judge(f, writers.EffectUnknown, nil, at)
	}
	return blind(f)
}

// verify asks about rows and does what the answers say, some rows at a time so that answers are not old when they are
// acted on.
func (r *run) verify(rows []found) {
	wave := max(r.cfg.Batch, r.cfg.Concurrency)
	for len(rows) > 0 {
		if r.work.Err() != nil {
			r.cutShort(len(rows))
			return
		}
		n := min(wave, len(rows))
		r.write(r.askAll(rows[:n]))
		rows = rows[n:]
	}
}

// askAll asks about rows at once, as many as Config.Concurrency allows, and returns what is left to write.
func (r *run) askAll(rows []found) []step {
	steps := make([]*step, len(rows))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(r.cfg.Concurrency, len(rows)) {
		wg.Go(func() {
			for i := range next {
				steps[i] = r.askOne(rows[i])
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	wg.Wait()
	var todo []step
	for _, s := range steps {
		if s != nil {
			todo = append(todo, *s)
		}
	}
	return todo
}

// askOne asks about a row; an effect that happened is recorded at once. It returns nil where nothing is left to write.
func (r *run) askOne(f found) *step {
	if r.work.Err() != nil {
		r.cutShort(1)
		return nil
	}
	v := r.verifierOf(f.row.Tool)
	asked := r.l.Now()
	result, verdict, err := v.ask(r.work, f.row)
	switch {
	case errors.Is(err, ErrNoVerifier):
		s := r.unasked(f, asked)
		return &s
	case errors.Is(err, errHungUp):
		r.count(func(p *Report) { p.Unknown++ })
		return nil
	case err != nil && r.work.Err() != nil: // the run stopped, which says nothing of the verifier
		r.cutShort(1)
		return nil
	case err != nil:
		r.verifierFailed(f.row.Tool, err)
		verdict = writers.EffectUnknown
	}
	if verdict != writers.EffectUnknown {
		r.count(func(p *Report) { p.Verified++ })
	}
	s := r.judge(f, verdict, result, asked)
	if s.do == settle {
		return r.settle(s, asked)
	}
	return &s
}
