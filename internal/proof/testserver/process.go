//go:build unix

package testserver

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/internal/proof/freeport"
)

const (
	// startWithin is how long a server may take to start, recovery included, if its program doesn't
	// say.
	startWithin = time.Minute
	// stopWithin is how long one may take to end.
	stopWithin = time.Minute
	// logWithin is how long its log is read after its end: a child of the program may have the log
	// open.
	logWithin = 2 * time.Second
)

// Program is a server program.
type Program struct {
	Name  string         // such as "MariaDB", for errors
	Ready string         // part of the line of its log that says that it takes connections
	End   syscall.Signal // ends it at once, as a crash does
	Users []string       // run it where the tests run as root: the first one that exists. Empty: root does
	Start time.Duration  // how long it may take to start. Default: a minute
}

// Find returns the path of a program. Debian keeps servers out of the PATH of users.
func Find(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

// Process runs a program with a directory and a port of its own, as an unprivileged user if the
// tests run as root. It ends with the tests, however they end. Its methods are not safe for
// concurrent use, except Addr and Dir.
type Process struct {
	program Program
	dir     string
	port    int
	user    *syscall.Credential // nil: that of the tests
	run     *run                // the last one
	tether  *exec.Cmd           // ends the program and removes the directory when the pipe is closed
	pipe    io.Closer
}

// run is one run of a program.
type run struct {
	cmd   *exec.Cmd
	ready chan struct{}
	done  chan struct{} // closed once it has ended and its output was read

	mu   sync.Mutex
	tail []string // the last lines of its log
}

// NewProcess makes the directory of a process, which does not run yet.
func NewProcess(program Program) (*Process, error) {
	p := &Process{program: program}
	var err error
	if p.user, err = unprivileged(program); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "sluice-"+strings.ToLower(program.Name)+"-"); err != nil {
		return nil, fmt.Errorf("make the directory of %s: %w", program.Name, err)
	}
	if err := p.tie(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	if p.user != nil {
		if err := os.Chown(p.dir, int(p.user.Uid), int(p.user.Gid)); err != nil {
			return nil, errors.Join(fmt.Errorf("give %s its directory: %w", program.Name, err), p.Close())
		}
	}
	return p, nil
}

// unprivileged returns the user of a program where the tests run as root, which many servers
// refuse, and nil where they do not.
func unprivileged(program Program) (*syscall.Credential, error) {
	if os.Geteuid() != 0 || len(program.Users) == 0 {
		return nil, nil
	}
	for _, name := range program.Users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("%s does not run as root, and there is no user to run it as: create one of %s", program.Name, strings.Join(program.Users, ", "))
}

// tie starts the tether: a shell that waits for the end of its standard input, which comes with the
// end of this process, even by kill -9, and ends the program.
func (p *Process) tie() error {
	const script = `trap '' HUP INT TERM; read -r _
pid=$(cat "$0/pid" 2>/dev/null) && kill -"$1" "$pid" 2>/dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
rm -rf "$0"`
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	p.tether = exec.Command("sh", "-c", script, p.dir, strconv.Itoa(int(p.program.End)))
	p.tether.Dir, p.tether.Stdin = "/", r
	p.tether.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.tether.Start(); err != nil {
		return errors.Join(fmt.Errorf("start a shell that ends %s: %w", p.program.Name, err), w.Close())
	}
	p.pipe = w
	return nil
}

// Dir is the directory of the process.
func (p *Process) Dir() string { return p.dir }

// File returns the path of a file in the directory.
func (p *Process) File(name string) string { return filepath.Join(p.dir, name) }

// Port is the port that [Process.Launch] has found.
func (p *Process) Port() int { return p.port }

// Addr is the server's TCP address.
func (p *Process) Addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// Command returns a command that runs in the directory, as the user that runs the program.
func (p *Process) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user, Setpgid: true}
	return cmd
}

// Launch finds a free port and calls start, which starts the program on it. Another process may
// take the port in between, so it tries again. Later the program may start again on the port.
func (p *Process) Launch(start func() error) (err error) {
	for range 5 {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err = start(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

func freePort() (int, error) {
	l, err := freeport.Listen()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Start runs the program, and returns once it takes connections. Its log is what it prints.
func (p *Process) Start(path string, args ...string) error {
	r := &run{cmd: p.Command(path, args...), ready: make(chan struct{}), done: make(chan struct{})}
	log, w := io.Pipe()
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.WaitDelay = w, w, logWithin
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.program.Name, err)
	}
	go r.read(log, p.program.Ready)
	go func() { // ends before read does
		_ = r.cmd.Wait() // a signal has an exit status of its own
		_ = w.Close()
	}()
	p.run = r
	if err := os.WriteFile(p.File("pid"), fmt.Append(nil, r.cmd.Process.Pid), 0o644); err != nil {
		return errors.Join(err, p.Stop())
	}
	within := cmp.Or(p.program.Start, startWithin)
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-r.ready:
		return nil
	case <-r.done:
		return fmt.Errorf("%s did not start: %s", p.program.Name, p.Log())
	case <-timeout.C:
		log, stopped := p.Log(), p.Stop()
		return errors.Join(fmt.Errorf("%s did not start within %v, in which it ran on a CPU for %v: %s", p.program.Name, within, r.cpu(), log), stopped)
	}
}

// cpu is the time for which the program ran on a CPU; 0 while it has not ended. It separates a
// program that hangs from one that the machine is too busy to run.
func (r *run) cpu() time.Duration {
	select {
	case <-r.done:
		return r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	default:
		return 0
	}
}

// read reads the log until the program ends.
func (r *run) read(log io.Reader, ready string) {
	defer close(r.done)
	started := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		r.mu.Lock()
		r.tail = append(r.tail[max(0, len(r.tail)-19):], lines.Text())
		r.mu.Unlock()
		if !started && strings.Contains(lines.Text(), ready) {
			started = true
			close(r.ready)
		}
	}
	_, _ = io.Copy(io.Discard, log) // after a line too long to scan
}

// Stop ends the program at once, as a crash does. It returns when the program has ended.
func (p *Process) Stop() error {
	if p.run == nil {
		return nil
	}
	if err := p.Signal(p.program.End); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.program.Name, err)
	}
	select {
	case <-p.run.done:
	case <-time.After(stopWithin):
		return fmt.Errorf("%s did not end within %v: %s", p.program.Name, stopWithin, p.Log())
	}
	// The tether must not end another process that is given the number later.
	if err := os.Remove(p.File("pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Signal sends a signal to the program, such as SIGSTOP.
func (p *Process) Signal(signal os.Signal) error { return p.run.cmd.Process.Signal(signal) }

// Log returns the last lines of the program's log.
func (p *Process) Log() string {
	if p.run == nil {
		return ""
	}
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	return strings.Join(p.run.tail, "; ")
}

// Close stops the program and removes the directory.
func (p *Process) Close() error {
	return errors.Join(p.Stop(), p.pipe.Close(), p.tether.Wait())
}
