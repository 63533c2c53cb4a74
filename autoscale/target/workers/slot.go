package workers

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// slot supervises one worker: it has a process, waits to restart it, or is stopping.
// Its goroutine, run, owns the process and closes done at the end.
type slot struct {
	number int
	pool   *Target
	log    *slog.Logger

	stopOnce sync.Once
	stopping chan struct{} // closed to stop the worker gracefully
	killOnce sync.Once
	killing  chan struct{} // closed to kill it
	done     chan struct{} // closed when it has ended

	mu       sync.Mutex
	current  *process // nil while waiting to restart
	started  time.Time
	restarts int
}

func (t *Target) slot(n int) *slot {
	return &slot{
		number: n, pool: t, log: t.cfg.Log.With("worker", n),
		stopping: make(chan struct{}), killing: make(chan struct{}), done: make(chan struct{}),
	}
}

// stop starts a graceful stop of the worker.
func (s *slot) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// kill kills the worker if it is stopping.
func (s *slot) kill() { s.killOnce.Do(func() { close(s.killing) }) }

// file returns the path of one of the worker's files.
func (s *slot) file(extension string) string {
	return filepath.Join(s.pool.dir, "worker-"+strconv.Itoa(s.number)+"."+extension)
}

func (s *slot) set(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.started = p, time.Now()
}

func (s *slot) describe() (w Worker, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return w, false
	}
	return Worker{Number: s.number, PID: s.current.id, Started: s.started, Restarts: s.restarts}, true
}

// takeOver looks for a running worker of this number, and reports whether there is
// one.
func (s *slot) takeOver() bool {
	p := find(s.file("lock"), s.file("pid"))
	if p == nil {
		return false
	}
	s.set(p)
	s.log.Info("worker taken over", "process", p.id)
	return true
}

// start starts the worker.
func (s *slot) start() error {
	p, err := launch(s)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", s.number, err)
	}
	s.set(p)
	s.log.Info("worker started", "process", p.id)
	return nil
}

// run restarts the worker whenever it dies, until it is stopped.
func (s *slot) run() {
	defer close(s.done)
	wait := s.pool.cfg.RestartMin
	for {
		s.mu.Lock()
		p, began := s.current, s.started
		s.mu.Unlock()
		select {
		case <-p.ended:
		case <-s.stopping:
			s.terminate(p)
			s.set(nil)
			return
		}
		s.mu.Lock()
		s.current = nil
		s.restarts++
		s.mu.Unlock()
		if time.Since(began) > s.pool.cfg.RestartMax {
			wait = s.pool.cfg.RestartMin
		}
		s.log.Warn("worker died, will be restarted", "process", p.id, "cause", p.cause(), "wait", wait, "output", s.file("log"))
		for {
			if !s.pause(wait) {
				return
			}
			wait = min(2*wait, s.pool.cfg.RestartMax)
			err := s.start()
			if err == nil {
				break
			}
			s.log.Error("starting worker failed, will be retried", "error", err, "wait", wait)
		}
	}
}

// pause waits, and reports whether the worker is still wanted.
func (s *slot) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stopping:
		return false
	}
}

// terminate interrupts the process, kills it when its time is up, and waits for its end.
func (s *slot) terminate(p *process) {
	p.interrupt()
	timer := time.NewTimer(s.pool.cfg.Grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		s.log.Info("worker stopped", "process", p.id)
		return
	case <-timer.C:
		s.log.Warn("killing worker, it did not end within the grace period", "process", p.id, "grace", s.pool.cfg.Grace)
	case <-s.killing:
		s.log.Warn("killing worker, the time for stopping is over", "process", p.id)
	}
	p.kill()
	<-p.ended
}
