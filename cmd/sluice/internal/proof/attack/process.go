//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a run of a program. Its outputs are files.
type process struct {
	cmd      *exec.Cmd
	out, err string // paths
	done     chan struct{}
	expected atomic.Bool // its end was our doing
}

// launch starts a program whose outputs become DIR/NAME.out and DIR/NAME.err.
// It does not outlive this process.
func launch(dir, name string, env []string, args ...string) (*process, error) {
	p := &process{
		cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{}),
		out: filepath.Join(dir, name+".out"), err: filepath.Join(dir, name+".err"),
	}
	out, err := os.Create(p.out)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errs, err := os.Create(p.err)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, errs
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GOTRACEBACK=all"}, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is asked for later
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal; one to a process that has ended is dropped.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// end ends it by a signal that is meant to.
func (p *process) end(s os.Signal) {
	p.expected.Store(true)
	p.signal(s)
}

// code is the exit code of a process that has ended; -1 if by a signal.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// stderr is what it has said so far.
func (p *process) stderr() string {
	text, _ := os.ReadFile(p.err) // launch has made it
	return string(text)
}

func (p *process) stdout() string {
	text, _ := os.ReadFile(p.out) // launch has made it
	return string(text)
}

// ended tells whether it has.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for its end.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended: %w", filepath.Base(p.err), context.Cause(ctx))
	}
}

// service is a program that is started again whenever it ends, as a
// supervisor does.
type service struct {
	start func(life int) (*process, error)

	mu       sync.Mutex
	current  *process
	life     int
	next     chan struct{} // closed when a life begins
	failures []error       // ends that are no supervisor's business
	stopped  bool
	work     sync.WaitGroup
}

// restartAfter is the time between an end and the next start.
const restartAfter = 100 * time.Millisecond

// run starts the service. It ends with retire.
func (s *service) run() error {
	p, err := s.start(1)
	if err != nil {
		return err
	}
	s.current, s.life, s.next = p, 1, make(chan struct{})
	s.work.Go(s.keep)
	return nil
}

func (s *service) keep() {
	for {
		p, life := s.now()
		<-p.done
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return
		}
		// An outage at the start is an exit with 1, after which a supervisor tries
		// again; any other end is nothing that a program may come to by itself.
		if code := p.code(); !p.expected.Load() && code != 1 {
			s.failures = append(s.failures, fmt.Errorf("%s: exit code %d: %s", filepath.Base(p.err), code, tail(p.stderr())))
		}
		s.mu.Unlock()
		<-time.After(restartAfter)
		if !s.again(life + 1) {
			return
		}
	}
}

// again begins another life, unless the service is retired.
func (s *service) again(life int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	p, err := s.start(life)
	if err != nil {
		s.failures = append(s.failures, err)
		return false
	}
	s.current, s.life = p, life
	close(s.next)
	s.next = make(chan struct{})
	return true
}

// now is the process of the service's present life.
func (s *service) now() (*process, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.life
}

// waitForLife waits until a life after the given one has begun.
func (s *service) waitForLife(ctx context.Context, life int) error {
	for {
		s.mu.Lock()
		now, next := s.life, s.next
		s.mu.Unlock()
		if now > life {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shutdown ends the service in good order and tells what went wrong in its lives.
func (s *service) shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	p := s.current
	s.mu.Unlock()
	var err error
	select {
	case <-p.done: // between two lives
	default:
		p.end(syscall.SIGTERM)
		if err = p.wait(ctx); err != nil {
			p.end(syscall.SIGKILL)
			<-p.done
		} else if p.code() != 0 {
			err = fmt.Errorf("%s: exit code %d after SIGTERM: %s", filepath.Base(p.err), p.code(), tail(p.stderr()))
		}
	}
	s.work.Wait()
	return errors.Join(append(s.failures, err)...)
}

// kill kills the service.
func (s *service) kill() {
	s.mu.Lock()
	s.stopped = true
	p := s.current
	s.mu.Unlock()
	if p == nil {
		return
	}
	p.end(syscall.SIGKILL)
	<-p.done
	s.work.Wait()
}

// tail is the end of a text.
func tail(text string) string {
	const most = 2000
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}
