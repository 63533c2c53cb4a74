package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/atomicfile"
	"github.com/sluice-go/sluice/internal/dirlock"

	"github.com/sluice-go/sluice/autoscale"
)

// MaxWorkers is the largest number of workers that a pool has.
const MaxWorkers = 1000

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Instances is how many workers there are until the first Scale. A
	// directory in which there was one knows better. Default: 1.
	Instances int
	// Grace is how long a worker may take to end after an interrupt before it
	// is killed. Default: 45 s; `sluice run` cancels its work after 30 s.
	Grace time.Duration
	// RestartMin and RestartMax bound the waits before a worker that died is
	// started again; a wait doubles from one to the next, and starts over once
	// a worker has lived longer than RestartMax. Defaults: 1 s and 30 s.
	RestartMin, RestartMax time.Duration
	// Env are variables for the workers besides those of this process,
	// "NAME=value".
	Env []string
	// DiscardPrevious has workers that an earlier pool has left behind stopped, not taken
	// over, and the number that it knew forgotten.
	DiscardPrevious bool
	// StopWithParent has the workers interrupted when this process ends, however it ends.
	// Only Linux does that; elsewhere, and by default, they go on, and are the
	// next pool's.
	StopWithParent bool
	// Log receives starts, ends and deaths. Default: nothing is logged.
	Log *slog.Logger
}

func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Instances = cmp.Or(c.Instances, 1)
	c.Grace = cmp.Or(c.Grace, 45*time.Second)
	c.RestartMin = cmp.Or(c.RestartMin, time.Second)
	c.RestartMax = cmp.Or(c.RestartMax, max(30*time.Second, c.RestartMin))
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Target is a pool of workers. It is safe for concurrent use.
type Target struct {
	dir      string
	command  []string
	cfg      Config
	lock     *dirlock.Lock
	changing chan struct{} // a token: one change at a time

	stop    sync.Once
	stopped error

	mu     sync.Mutex
	wanted int           // changed by who has the turn
	slots  map[int]*slot // by number; those on their way out among them
}

var _ autoscale.Target = (*Target)(nil)

// New starts the workers, or takes over those that an earlier pool has left
// behind in the directory, which is created if it is missing. One pool at a
// time can have it.
//
// In the command's arguments {worker} stands for the worker's number, counted
// from 0, which is also in the environment variable SLUICE_WORKER.
func New(dir string, command []string, cfg *Config) (*Target, error) {
	if len(command) == 0 {
		return nil, errors.New("workers: there is no command: name the program and its arguments")
	}
	t := &Target{cfg: cfg.withDefaults(), changing: make(chan struct{}, 1), slots: make(map[int]*slot)}
	if t.cfg.Instances < 0 || t.cfg.Instances > MaxWorkers {
		return nil, fmt.Errorf("workers: %d instances: must be 0 to %d", t.cfg.Instances, MaxWorkers)
	}
	program, err := exec.LookPath(command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fmt.Errorf("workers: find program: %w", err)
	}
	t.command = append([]string{program}, command[1:]...)
	if t.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, fmt.Errorf("workers: make directory: %w", err)
	}
	if t.lock, err = dirlock.Acquire(t.dir); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	if err := t.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("workers: %w", err), t.Close())
	}
	return t, nil
}

// resume begins where an earlier pool has ended, in whichever way.
func (t *Target) resume() error {
	wanted, keep := t.cfg.Instances, 0
	if !t.cfg.DiscardPrevious {
		var err error
		if wanted, err = t.readInstances(); err != nil {
			return err
		}
		keep = wanted
	}
	t.wanted = wanted
	left, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, file := range left {
		var n int
		if _, err := fmt.Sscanf(file.Name(), "worker-%d.lock", &n); err != nil || n < keep || n >= MaxWorkers {
			continue
		}
		// Not wanted any more: if it lives, it is taken over to be stopped.
		if s := t.slot(n); s.takeOver() {
			t.slots[n] = s
			s.stop()
			go s.run()
		}
	}
	for n := range wanted {
		if err := t.ensure(context.Background(), n); err != nil { // it waits for the grace at most
			return err
		}
	}
	return nil
}

// readInstances reads how many workers were wanted.
func (t *Target) readInstances() (int, error) {
	path := filepath.Join(t.dir, "instances")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t.cfg.Instances, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 || n > MaxWorkers {
		return 0, fmt.Errorf("%s does not hold a number from 0 to %d: write one into it, or remove it", path, MaxWorkers)
	}
	return n, nil
}

// writeInstances writes how many workers are wanted, all at once.
func (t *Target) writeInstances(wanted int) error {
	path := filepath.Join(t.dir, "instances")
	return atomicfile.Write(path, fmt.Appendln(nil, wanted), 0o644)
}

// Instances is how many workers are wanted. One that has just died counts: it
// is about to be started again.
func (t *Target) Instances(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted, nil
}

// Scale starts or stops workers until there are so many, and returns once
// those that were started run and those that were stopped have ended; to ask
// for the number that there is does nothing. If one can't be started, those that
// were are stopped again. Workers whose end is still under way when ctx ends are
// stopped all the same.
func (t *Target) Scale(ctx context.Context, to int) error {
	if to < 0 || to > MaxWorkers {
		return fmt.Errorf("scale workers to %d: must be 0 to %d", to, MaxWorkers)
	}
	select {
	case t.changing <- struct{}{}:
		defer func() { <-t.changing }()
	case <-ctx.Done():
		return fmt.Errorf("scale workers: %w", ctx.Err())
	}
	if err := t.writeInstances(to); err != nil {
		return fmt.Errorf("scale workers: %w", err)
	}
	for n := range to {
		if err := t.ensure(ctx, n); err != nil {
			return fmt.Errorf("scale workers: %w", errors.Join(err, t.writeInstances(t.wanted), t.stopFrom(ctx, t.wanted)))
		}
	}
	t.mu.Lock()
	t.wanted = to
	t.mu.Unlock()
	return t.stopFrom(ctx, to)
}

// ensure sees that there is a worker of this number. It waits for one that is on
// its way out.
func (t *Target) ensure(ctx context.Context, n int) error {
	t.mu.Lock()
	s, there := t.slots[n]
	t.mu.Unlock()
	if there {
		select {
		case <-s.stopping:
		default:
			return nil
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for worker %d to end: %w", n, ctx.Err())
		}
	}
	s = t.slot(n)
	if !s.takeOver() {
		if err := s.start(); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.slots[n] = s
	t.mu.Unlock()
	go s.run()
	return nil
}

// stopFrom stops the workers from this number on, and waits for their ends.
func (t *Target) stopFrom(ctx context.Context, from int) error {
	t.mu.Lock()
	var leaving []*slot
	for n, s := range t.slots {
		if n >= from {
			s.stop()
			leaving = append(leaving, s)
		}
	}
	t.mu.Unlock()
	for _, s := range leaving {
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for worker %d to end: %w", s.number, ctx.Err())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range leaving {
		if t.slots[s.number] == s {
			delete(t.slots, s.number)
		}
	}
	return nil
}

// Worker is one of a pool's processes.
type Worker struct {
	Number   int
	PID      int // id
	Started  time.Time
	Restarts int // how often it was started again
}

// Workers are those that run, by number.
func (t *Target) Workers() []Worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Worker
	for _, n := range slices.Sorted(maps.Keys(t.slots)) {
		if w, runs := t.slots[n].describe(); runs {
			list = append(list, w)
		}
	}
	return list
}

// Stop stops all workers, each in good order within the grace, and leaves the
// directory to the next pool, which starts as many again. When ctx ends those
// that are still there are killed.
func (t *Target) Stop(ctx context.Context) error {
	t.stop.Do(func() {
		t.changing <- struct{}{} // for good: nothing changes after this
		t.stopped = t.stopFrom(ctx, 0)
		if t.stopped != nil {
			t.mu.Lock()
			for _, s := range t.slots {
				s.kill()
			}
			t.mu.Unlock()
			t.stopped = errors.Join(t.stopped, t.stopFrom(context.WithoutCancel(ctx), 0))
		}
		t.stopped = errors.Join(t.stopped, t.lock.Unlock())
	})
	return t.stopped
}

// Close is [Target.Stop] with all the time that the grace allows.
func (t *Target) Close() error { return t.Stop(context.Background()) }
