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

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/datadir"
)

// MaxWorkers is the largest number of workers of a pool.
const MaxWorkers = 1000

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Instances is the number of workers until the first Scale. If the directory has
	// the number of an earlier pool, that counts instead. Default: 1.
	Instances int
	// Grace is the time between the interrupt of a worker and its kill. Default:
	// 45 s; `sluice run` cancels its work after 30 s.
	Grace time.Duration
	// RestartMin and RestartMax bound the wait before a worker that died is restarted.
	// It doubles with each restart, and is RestartMin again once a worker has lived
	// longer than RestartMax. Defaults: 1 s and 30 s.
	RestartMin, RestartMax time.Duration
	// Env holds variables, "NAME=value", that the workers get in addition to those of
	// this process.
	Env []string
	// DiscardPrevious stops the workers of an earlier pool instead of taking them over,
	// and ignores the number that it has saved.
	DiscardPrevious bool
	// StopWithParent interrupts the workers when this process ends, however it ends.
	// Only Linux can do that. Elsewhere, and by default, workers continue, and the
	// next pool takes them over.
	StopWithParent bool
	// Log receives starts, stops and crashes of workers. Default: nothing is logged.
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
	lock     *datadir.DirLock
	changing chan struct{} // semaphore: one change at a time

	stop    sync.Once
	stopped error

	mu     sync.Mutex
	wanted int           // changed only by the holder of changing
	slots  map[int]*slot // by number; includes workers that are stopping
}

var _ autoscale.Target = (*Target)(nil)

// New starts the workers, or takes over those of an earlier pool with the same
// directory, which is created if it is missing. New fails if another pool uses the
// directory. Close or Stop ends the workers.
//
// In the command's arguments {worker} stands for the worker's number, counted
// from 0, which is also in the environment variable SLUICE_WORKER.
func New(dir string, command []string, cfg *Config) (*Target, error) {
	if len(command) == 0 {
		return nil, errors.New("workers: the command is empty: give the program and its arguments")
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
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("workers: make directory: %w", err)
	}
	if t.lock, err = datadir.Lock(t.dir); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	if err := t.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("workers: %w", err), t.Close())
	}
	return t, nil
}

// resume takes over the number and the workers of an earlier pool, and starts those
// that are missing.
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
		// No longer wanted: if it lives, take it over to stop it.
		if s := t.slot(n); s.takeOver() {
			t.slots[n] = s
			s.stop()
			go s.run()
		}
	}
	for n := range wanted {
		if err := t.ensure(context.Background(), n); err != nil { // waits for Grace at most
			return err
		}
	}
	return nil
}

// readInstances reads the wanted number of workers from the directory.
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
		return 0, fmt.Errorf("%s does not contain a number from 0 to %d: write one into it, or remove it", path, MaxWorkers)
	}
	return n, nil
}

// writeInstances saves the wanted number of workers, atomically.
func (t *Target) writeInstances(wanted int) error {
	path := filepath.Join(t.dir, "instances")
	return datadir.WriteFile(path, fmt.Appendln(nil, wanted), 0o600)
}

// Instances returns the wanted number of workers. A worker that has just died counts:
// it will be restarted.
func (t *Target) Instances(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted, nil
}

// Scale starts or stops workers until there are to of them. It returns when the new
// workers run and the stopped ones have ended. If a worker cannot be started, the
// new ones are stopped again. If ctx ends while workers are stopping, Scale returns
// an error, but they are still stopped.
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

// ensure starts the worker of this number, unless it runs. If it is stopping, ensure
// first waits for its end.
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

// stopFrom stops the workers from this number on, and waits until they have ended.
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

// Worker describes a process of a pool.
type Worker struct {
	Number   int
	PID      int
	Started  time.Time
	Restarts int // how often it was restarted by this pool
}

// Workers returns the running workers, sorted by number.
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

// Stop stops all workers gracefully, each within Grace, and frees the directory. The
// next pool with it starts the same number of workers. Workers that are left when ctx
// ends are killed. Later calls return the result of the first.
func (t *Target) Stop(ctx context.Context) error {
	t.stop.Do(func() {
		t.changing <- struct{}{} // never released: nothing changes after this
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

// Close is [Target.Stop] without a limit other than Grace.
func (t *Target) Close() error { return t.Stop(context.Background()) }
