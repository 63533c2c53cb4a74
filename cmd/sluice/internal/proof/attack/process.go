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

// process is a running program, or one that has ended. Its outputs are files.
type process struct {
	cmd      *exec.Cmd
	out, err string // paths
	done     chan struct{}
	expected atomic.Bool // we have ended it
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

// end sends a signal that should end the process.
func (p *process) end(s os.Signal) {
	p.expected.Store(true)
	p.signal(s)
}

// code is the exit code of a process that has ended; -1 if by a signal.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// stderr returns what the process has printed to standard error so far.
func (p *process) stderr() string {
	text, _ := os.ReadFile(p.err) // launch has made it
	return string(text)
}

func (p *process) stdout() string {
	text, _ := os.ReadFile(p.out) // launch has made it
	return string(text)
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits until the process has ended.
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
	next     chan struct{} // closed when the next process has started
	failures []error       // ends that a supervisor should not see
	stopped  bool
	work     sync.WaitGroup
}

// restartAfter is the time between an end and the next start.
const restartAfter = 100 * time.Millisecond

// run starts the service. It ends with shutdown.
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
		// A program that finds an outage when it starts exits with 1, and a supervisor
		// starts it again. It must not end in any other way.
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

// again starts the process again, unless the service is shut down.
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

// now returns the current process, and how often the service has started one.
func (s *service) now() (*process, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.life
}

// waitForLife waits until the service has started a process after the given one.
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

// shutdown stops the service gracefully, and returns what went wrong since its
// start.
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
