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

// process is a worker's process: a child of ours, or one left behind by an
// earlier supervisor.
type process struct {
	id    int
	ended chan struct{} // closed once it is gone
	err   error         // of a child, once it is gone
}

const (
	// launchScript has the process note its own id before it becomes the worker:
	// a supervisor that dies right behind the fork leaves no nameless worker.
	launchScript = `echo $$ >"$0" && exec "$@"`
	// maxLogSize is how long a worker's output gets before another file is
	// begun at its next start; one such file is kept.
	maxLogSize = 8 << 20
	// pollInterval is the time between two looks at a process that is no child.
	pollInterval = 100 * time.Millisecond
	// pidTimeout is how long a process may take to note its id.
	pidTimeout = 5 * time.Second
)

// tryLock opens and locks the file, which tells that its worker does not live. A
// held lock is no error: the file is nil.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
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

// locked tells whether somebody holds the lock.
func locked(path string) bool {
	f, err := tryLock(path)
	if f != nil {
		_ = f.Close()
	}
	return f == nil && err == nil
}

// launch starts a slot's worker. The lock goes along: it is held until the
// last process that has the file open is gone.
func launch(s *slot) (*process, error) {
	lock, err := tryLock(s.file("lock"))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, fmt.Errorf("%s is locked: something that an earlier worker has started is still there", s.file("lock"))
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
	// A group of its own: what a terminal sends us on ^C is not for the workers.
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

// openLog opens the file for what the worker prints.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

// find finds a worker that lives, or nil.
func find(lock, pid string) *process {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for end := time.Now().Add(pidTimeout); locked(lock); <-tick.C {
		text, _ := os.ReadFile(pid)
		id, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || id <= 1 {
			if time.Now().After(end) {
				return nil // then launch says what is wrong
			}
			continue
		}
		p := &process{id: id, ended: make(chan struct{})}
		go p.watch(lock)
		return p
	}
	return nil
}

// watch waits until nobody holds the lock.
func (p *process) watch(lock string) {
	defer close(p.ended)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for locked(lock) {
		<-tick.C
	}
}

// interrupt asks the process to end. Of one that is gone nothing is asked: its
// id may be another's.
func (p *process) interrupt() { p.signal(p.id, syscall.SIGINT) }

// kill ends the process and all that it has started.
func (p *process) kill() { p.signal(-p.id, syscall.SIGKILL) }

func (p *process) signal(to int, s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(to, s) // if it has just ended, all the better
	}
}

// cause is why it ended, as far as is known.
func (p *process) cause() error {
	return cmp.Or(p.err, errors.New("it ended by itself"))
}
