//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package workers

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a worker's process: a child of this process, or one that an earlier
// supervisor has started.
type process struct {
	id    int
	ended chan struct{} // closed when it has ended
	err   error         // of a child, when it has ended
}

const (
	// launchScript writes the process id before it becomes the worker: so a worker has
	// an id even if the supervisor dies right after the fork.
	launchScript = `echo $$ >"$0" && exec "$@"`
	// maxLogSize is the size in bytes from which the output file is replaced at the
	// worker's next start; one old file is kept.
	maxLogSize = 8 << 20
	// pollInterval is the time between two checks of a process that is not a child.
	pollInterval = 100 * time.Millisecond
	// pidTimeout is how long a process may take to write its id.
	pidTimeout = 5 * time.Second
)

// tryLock opens and locks a worker's lock file. It succeeds only if the worker does
// not live. If the lock is held, it returns neither a file nor an error.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = nil
	}
	return nil, errors.Join(err, f.Close())
}

// locked reports whether a worker holds the lock.
func locked(path string) bool {
	f, err := tryLock(path)
	if f != nil {
		_ = f.Close()
	}
	return f == nil && err == nil
}

// launch starts a slot's worker. The worker inherits the lock, which is held until the
// last process that has the file open has ended.
func launch(s *slot) (*process, error) {
	lock, err := tryLock(s.file("lock"))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, fmt.Errorf("%s is locked: a process that an earlier worker has started still runs: end it", s.file("lock"))
	}
	defer lock.Close()
	output, err := openLog(s.file("log"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	if err := os.RemoveAll(s.file("pid")); err != nil {
		return nil, err
	}
	number := strconv.Itoa(s.number)
	args := []string{"-c", launchScript, s.file("pid")}
	for _, a := range s.pool.command {
		args = append(args, strings.ReplaceAll(a, "{worker}", number))
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.Env = append(append(os.Environ(), s.pool.cfg.Env...), "SLUICE_WORKER="+number)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{lock}
	// A process group of its own, so that ^C in a terminal does not reach the workers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.pool.cfg.StopWithParent {
		interruptWithParent(cmd.SysProcAttr)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{id: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// openLog opens the file for the worker's output.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// find returns the process of a living worker, nil if there is none.
func find(lock, pid string) *process {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for end := time.Now().Add(pidTimeout); locked(lock); <-tick.C {
		text, _ := os.ReadFile(pid)
		id, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || id <= 1 {
			if time.Now().After(end) {
				return nil // launch returns an error then
			}
			continue
		}
		p := &process{id: id, ended: make(chan struct{})}
		go p.watch(lock)
		return p
	}
	return nil
}

// watch waits until no process holds the lock.
func (p *process) watch(lock string) {
	defer close(p.ended)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for locked(lock) {
		<-tick.C
	}
}

// interrupt sends the process an interrupt, unless it has ended: its id may belong to
// another process then.
func (p *process) interrupt() { p.signal(p.id, syscall.SIGINT) }

// kill kills the process and all processes that it has started.
func (p *process) kill() { p.signal(-p.id, syscall.SIGKILL) }

func (p *process) signal(to int, s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(to, s) // fails if it has just ended, which is what we want
	}
}

// cause returns why the process has ended, as far as is known.
func (p *process) cause() error {
	return cmp.Or(p.err, errors.New("the process has ended by itself"))
}
