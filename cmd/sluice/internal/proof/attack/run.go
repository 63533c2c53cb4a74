//go:build linux

package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// Run carries out an attack and checks the result. The report is complete if the
// error is nil; violations are in the report's Findings.
func Run(ctx context.Context, cfg Config) (_ *Report, err error) {
	cfg.CatchUp = cmp.Or(cfg.CatchUp, 3*time.Minute)
	cfg.Limit = cmp.Or(cfg.Limit, 10*time.Minute)
	cfg.Source = cmp.Or(cfg.Source, EventHubs)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &world{Config: cfg}
	defer func() { err = errors.Join(err, w.close()) }()
	defer cancel(nil)
	if err := w.build(ctx); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	began := time.Now()
	if err := w.attack(ctx, cancel); err != nil {
		return nil, err
	}
	r := &Report{Source: cfg.Source.Name, Engine: cfg.Engine.Name, Plan: cfg.Plan, Attack: time.Since(began), Namespaces: w.hostNetwork != nil}
	r.Struck, r.Fenced = w.tally.counts()
	w.dump(ctx, r)
	database := w.env(w.clean)
	w.source.misconfigured(ctx, database[len(database)-1])
	if err := w.source.settle(ctx); err != nil {
		return nil, err
	}
	if err := w.catchUp(ctx, r); err != nil {
		return nil, err
	}
	if err := w.check(ctx, r); err != nil {
		return nil, err
	}
	r.Took = time.Since(began)
	return r, nil
}

// attack injects faults while records are sent, until the plan is fulfilled or its time is over.
func (w *world) attack(ctx context.Context, cancel context.CancelCauseFunc) error {
	w.end = time.Now().Add(w.Limit)
	var sending, striking, watching sync.WaitGroup
	must := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	enough := make(chan struct{})
	sending.Go(func() { must(w.source.send(ctx, enough)) })
	start := func(n uint64, strike func(random *rand.Rand) error) {
		striking.Go(func() { must(strike(rand.New(rand.NewPCG(w.Plan.Seed, n)))) })
	}
	for i, c := range w.consumers {
		start(uint64(i), func(random *rand.Rand) error { return w.strikeConsumers(ctx, c, random) })
	}
	start(10, func(random *rand.Rand) error { return w.strikeServers(ctx, random) })
	start(11, func(random *rand.Rand) error { return w.loseCommits(ctx, random) })
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { must(w.watch(watched)) })
	striking.Wait()
	if ctx.Err() == nil {
		must(w.recognizes())
	}
	close(enough)
	sending.Wait()
	unwatch()
	watching.Wait()
	return context.Cause(ctx)
}

// recognizes returns an error if the consumers commit, but no statement of theirs was recognized as
// the beginning of a transaction or as a write: then the store's statements have changed, and most
// faults would never strike.
func (w *world) recognizes() error {
	var seen [commits + 1]bool
	for _, c := range w.consumers {
		c.mu.Lock()
		for at, is := range c.seen {
			seen[at] = seen[at] || is
		}
		c.mu.Unlock()
	}
	if seen[begins] && seen[writes] && seen[commits] {
		return nil
	}
	return fmt.Errorf("%s: statements recognized as begin %v, as write %v, as COMMIT %v: adapt Engine.moments to the store's statements",
		w.Engine.Name, seen[begins], seen[writes], seen[commits])
}

// watch logs the progress of the attack. After a minute the moments of a transaction must have been
// recognized.
func (w *world) watch(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if time.Since(began) > time.Minute {
			if err := w.recognizes(); err != nil {
				return err
			}
		}
		counts, fenced := w.tally.counts()
		struck, planned := 0, 0
		for _, f := range Faults {
			struck += counts[f]
			planned += w.Plan.Strike[f]
		}
		w.Log("attack running for %v: %d of %d faults, %d transactions refused after a pause, %d records acknowledged",
			time.Since(began).Round(time.Second), struck, planned, fenced, w.source.acknowledged())
	}
}

// dump ends each consumer by SIGQUIT, which makes it print all stacks.
func (w *world) dump(ctx context.Context, r *Report) {
	for _, c := range w.consumers {
		await(ctx, time.Second, c.working)
		p, life := c.now()
		p.end(syscall.SIGQUIT)
		within, cancel := context.WithTimeout(ctx, time.Minute)
		if c.waitForLife(within, life) == nil {
			r.Dumps++
		}
		cancel()
	}
}

// runMisconfigured runs commands whose settings are wrong in one part and contain
// the secrets in another: their error messages must not show the secrets. It adds those of the
// database to the given ones.
func (w *world) runMisconfigured(ctx context.Context, list map[string][]string) {
	for name, url := range w.Engine.misconfigured(w.secrets.password, w.clean.sql.Addr()) {
		list[name] = append(w.source.env(w.clean.log), "DATABASE_URL="+url)
	}
	for name, env := range list {
		w.runFailing(ctx, name, env, "check", "--connect", w.pipeline())
		w.runFailing(ctx, name+"-run", env, "run", w.pipeline(), "--until-caught-up", "--within", "1s")
	}
}

// catchUp waits until everything that was sent is done, and stops the consumers
// gracefully.
func (w *world) catchUp(ctx context.Context, r *Report) error {
	began := time.Now()
	p, err := launch(w.Dir, "catch-up", w.env(w.clean), w.Binary, "run", w.pipeline(),
		"--history", historyOf(w.Dir, "catch-up"), "--until-caught-up", "--within", w.CatchUp.String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.CatchUp+time.Minute)
	defer cancel()
	if err := p.wait(ctx); err != nil {
		p.end(syscall.SIGKILL)
		<-p.done
		return err
	}
	if p.code() != 0 {
		r.late = true
		r.Findings = append(r.Findings, "the consumers did not catch up within the time for it: "+tail(p.stderr()))
	}
	r.CatchUp = time.Since(began)
	for _, c := range w.consumers {
		// A process that has just started would end by the signal. It makes its history after it
		// has asked for it.
		await(ctx, time.Minute, func() bool {
			_, life := c.now()
			_, err := os.Stat(historyOf(w.Dir, c.process(life)))
			return err == nil
		})
		if err := c.shutdown(ctx); err != nil {
			r.Findings = append(r.Findings, fmt.Sprintf("consumer %s: %v", c.name, err))
		}
	}
	r.slow = len(r.Findings)
	return nil
}
