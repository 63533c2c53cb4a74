//go:build linux

package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// onConsumers are the faults that strike one consumer.
var onConsumers = []Fault{Kill, PauseBegin, PauseWrite, PauseCommit, PauseAny, Jump, Reset, BlackHole, Unplug}

// randomTime is a random time.
func randomTime(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// active reports whether the attack goes on. A fault that is under way completes.
func (w *world) active(ctx context.Context) bool { return ctx.Err() == nil && time.Now().Before(w.end) }

// await waits for a condition, at most for a time, and returns whether it holds.
func await(ctx context.Context, within time.Duration, ok func() bool) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-timer.C:
			return ok()
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// strikeConsumers injects faults into one consumer whenever it commits, until no
// fault is left.
func (w *world) strikeConsumers(ctx context.Context, c *consumer, random *rand.Rand) error {
	for w.active(ctx) {
		if !await(ctx, time.Second, c.working) && w.tally.any(onConsumers...) {
			continue // others have all partitions, so the faults strike those
		}
		f, ok := w.tally.draw(random, onConsumers...)
		if !ok {
			if !w.tally.underWay(onConsumers...) {
				return nil
			}
			sleep(ctx, 100*time.Millisecond) // another consumer may put back what it has drawn, and may own nothing
			continue
		}
		struck, err := w.strikeConsumer(ctx, c, f, random)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("consumer %s: %s: %w", c.name, f, err)
		case struck:
			w.tally.strike(f)
		default:
			w.tally.putBack(f)
		}
		sleep(ctx, randomTime(random, 50*time.Millisecond, 400*time.Millisecond))
	}
	return nil
}

func (w *world) strikeConsumer(ctx context.Context, c *consumer, f Fault, random *rand.Rand) (bool, error) {
	switch f {
	case Kill:
		return w.kill(ctx, c, random)
	case PauseBegin:
		return w.pause(ctx, c, begins, random)
	case PauseWrite:
		return w.pause(ctx, c, writes, random)
	case PauseCommit:
		return w.pause(ctx, c, commits, random)
	case PauseAny:
		return w.pause(ctx, c, never, random)
	case Jump:
		return w.jump(ctx, c)
	case Reset:
		n := 0
		for _, l := range some(c.route, random) {
			n += l.Reset()
		}
		return n > 0, nil
	case BlackHole:
		return w.swallow(ctx, some(c.route, random), randomTime(random, 300*time.Millisecond, w.Engine.LeaseFor+w.Engine.LeaseFor/2))
	case Unplug:
		length := randomTime(random, 300*time.Millisecond, w.Engine.LeaseFor+w.Engine.LeaseFor/2)
		if c.netns == nil {
			return w.swallow(ctx, slices.Concat(c.log, c.stores()), length)
		}
		if err := c.netns.Unplug(); err != nil {
			return false, err
		}
		sleep(ctx, length)
		return true, c.netns.Plug()
	}
	return false, fmt.Errorf("%s is not a fault of a consumer", f)
}

// some returns the links of a route to one of its servers, to all of the log, to where steps are
// stored, or all.
func some(w *route, random *rand.Rand) []*tcplink.Link {
	log, stores := w.log, w.stores()
	if random.IntN(2) == 0 {
		log = w.log[random.IntN(len(w.log)):][:1]
	}
	return [][]*tcplink.Link{log, stores, slices.Concat(log, stores)}[random.IntN(3)]
}

func (w *world) swallow(ctx context.Context, links []*tcplink.Link, length time.Duration) (bool, error) {
	n := 0
	for _, l := range links {
		l.Swallow()
	}
	sleep(ctx, length)
	for _, l := range links {
		n += l.Recover()
	}
	return n > 0, nil
}

// kill kills a consumer, half the time in the middle of a transaction.
func (w *world) kill(ctx context.Context, c *consumer, random *rand.Rand) (bool, error) {
	p, life := c.now()
	end := func() { p.end(syscall.SIGKILL) }
	if at := moment(random.IntN(6)); at > never && at <= commits {
		t := c.setTrap(at, end)
		c.awaitTrap(ctx, t, 2*time.Second)
		close(t.release)
	} else {
		sleep(ctx, randomTime(random, 0, 200*time.Millisecond))
	}
	end()
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return true, c.waitForLife(within, life)
}

// pause stops a consumer until its lease has expired and others have claimed its
// partitions. What it was sending when it was stopped arrives only then.
func (w *world) pause(ctx context.Context, c *consumer, at moment, random *rand.Rand) (bool, error) {
	p, life := c.now()
	pass, ok := w.stop(ctx, c, p, at)
	defer p.signal(syscall.SIGCONT)
	if !ok {
		return false, nil
	}
	began, before, noted, had := time.Now(), c.refusals(), w.noted(c, life), w.owns(ctx, p.pid())
	has := had
	await(ctx, 4*w.Engine.LeaseFor, func() bool { has = w.owns(ctx, p.pid()); return has == 0 })
	if left := w.Engine.LeaseFor + w.Engine.LeaseFor/4 - time.Since(began); left > 0 {
		sleep(ctx, left)
	}
	pass()
	// The database answers before the consumer wakes up.
	await(ctx, randomTime(random, 500*time.Millisecond, time.Second), func() bool { return c.refusals() > before })
	p.signal(syscall.SIGCONT)
	if c.refusals() > before { // it counts once the history has it too: the next fault may be the process's end
		await(ctx, w.Engine.LeaseFor, func() bool { return w.noted(c, life) > noted })
		w.tally.sawFenced(w.noted(c, life) - noted)
	}
	return has < had, nil
}

// stop stops a consumer at a moment of a step. The statement of that moment
// arrives when pass is called; inside the transaction it arrives at once, so that
// the transaction is open.
func (w *world) stop(ctx context.Context, c *consumer, p *process, at moment) (pass func(), ok bool) {
	stop := func() { p.signal(syscall.SIGSTOP) }
	if at == never {
		stop()
		return func() {}, true
	}
	t := c.setTrap(at, stop)
	if !c.awaitTrap(ctx, t, 5*time.Second) {
		return nil, false
	}
	pass = sync.OnceFunc(func() { close(t.release) })
	if at == writes {
		pass()
	}
	return pass, true
}

// jump lets a consumer's leases expire in the database earlier than by the
// consumer's clock, as when the database's clock jumps ahead, while one of its
// transactions is under way. Others take over, and the database refuses the
// transaction. Only that refusal shows the consumer that it has lost its lease.
func (w *world) jump(ctx context.Context, c *consumer) (bool, error) {
	p, life := c.now()
	pass, ok := w.stop(ctx, c, p, begins)
	defer p.signal(syscall.SIGCONT)
	if !ok {
		return false, nil
	}
	defer pass()
	before, noted, owner := c.refusals(), w.noted(c, life), ownerPattern(p.pid())
	if _, err := w.db.ExecContext(ctx, w.Engine.expire, owner); err != nil {
		return false, nil // the database is down just now
	}
	taken := await(ctx, w.Engine.LeaseFor/2, func() bool { return w.owns(ctx, p.pid()) == 0 })
	pass()
	if w.Unfenced {
		return taken, nil
	}
	if !await(ctx, w.Engine.LeaseFor/10, func() bool { return c.refusals() > before }) {
		return false, nil
	}
	p.signal(syscall.SIGCONT)
	// It writes the refusal to its history, and the next fault may be its end.
	return await(ctx, w.Engine.LeaseFor, func() bool { return w.noted(c, life) > noted }), nil
}

// noted is the number of refusals in the history of a consumer's process.
func (w *world) noted(c *consumer, life int) (n int) {
	_ = readHistory(historyOf(w.Dir, c.process(life)), func(r history.Record) { // it may end with a part of a line
		if r.Kind == history.Fenced {
			n++
		}
	})
	return n
}

// owns returns for how many checkpoints a process is the last that has claimed
// them. While the database does not answer, it returns all.
func (w *world) owns(ctx context.Context, pid int) int {
	n := partitions
	_ = w.db.QueryRowContext(ctx, w.Engine.owned, ownerPattern(pid)).Scan(&n)
	return n
}

// ownerPattern is a LIKE pattern for the owner name of a process.
func ownerPattern(pid int) string { return fmt.Sprintf("%%-%d-%%", pid) }

// strikeServers crashes the database and carries out the faults of the source, until no fault is
// left.
func (w *world) strikeServers(ctx context.Context, random *rand.Rand) error {
	for w.active(ctx) {
		sleep(ctx, randomTime(random, time.Second, 4*time.Second))
		f, ok := w.tally.draw(random, append([]Fault{Crash}, w.Source.faults...)...)
		if !ok {
			return nil
		}
		w.source.reset()
		var err error
		if f == Crash {
			err = w.crash(ctx, random)
		} else {
			err = w.source.strike(ctx, f, random)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		w.tally.strike(f)
	}
	return nil
}

func (w *world) crash(ctx context.Context, random *rand.Rand) error {
	if err := w.server.Stop(); err != nil {
		return err
	}
	if random.IntN(4) == 0 {
		w.runFailing(ctx, "without-database", w.env(w.clean), "checkpoints", "list", "--config", w.pipeline())
		w.runFailing(ctx, "check-without-database", w.env(w.clean), "check", "--connect", w.pipeline())
	}
	sleep(ctx, randomTime(random, 0, 1500*time.Millisecond))
	return w.server.Restart()
}

// loseCommits injects faults into the COMMITs of consumers that are committing,
// until no fault is left.
func (w *world) loseCommits(ctx context.Context, random *rand.Rand) error {
	armed := func(c *consumer) bool { return !c.disarmed() }
	for w.active(ctx) {
		sleep(ctx, randomTime(random, 10*time.Millisecond, 200*time.Millisecond))
		c := w.consumers[random.IntN(len(w.consumers))]
		if !c.working() {
			if f := c.disarm(); f != "" {
				w.tally.putBack(f)
			}
			continue
		}
		f, ok := w.tally.draw(random, CutBefore, LoseReply, DeliverLate)
		switch {
		case !ok && !slices.ContainsFunc(w.consumers, armed):
			return nil
		case ok && !c.arm(f):
			w.tally.putBack(f)
		}
	}
	for _, c := range w.consumers {
		c.disarm()
	}
	return nil
}

// struckCommit counts a fault of a COMMIT, and delivers a late one before or
// after the engine re-reads the checkpoint; of an unfenced program, after that.
func (w *world) struckCommit(ctx context.Context, c *consumer, f Fault, random *rand.Rand) {
	w.tally.strike(f)
	if f != DeliverLate {
		return
	}
	w.mu.Lock()
	late := randomTime(random, 100*time.Millisecond, 1500*time.Millisecond)
	if w.Unfenced {
		late = randomTime(random, w.Engine.LeaseFor/3, w.Engine.LeaseFor*5/6)
	}
	w.mu.Unlock()
	w.deliveries.Go(func() {
		sleep(ctx, late)
		c.deliver()
	})
}

// runFailing runs a command that must fail, for the text of its error.
func (w *world) runFailing(ctx context.Context, name string, env []string, args ...string) {
	w.mu.Lock()
	w.failing++
	name = fmt.Sprintf("failing-%03d-%s", w.failing, name)
	w.mu.Unlock()
	p, err := launch(w.Dir, name, env, append([]string{w.Binary}, args...)...)
	if err != nil {
		w.Log("%s: %v", filepath.Base(name), err)
		return
	}
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if p.wait(within) != nil {
		p.end(syscall.SIGKILL)
		<-p.done
	}
}
