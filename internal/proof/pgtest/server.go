//go:build unix

package pgtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// user is the database's superuser; it is the tests' own server.
const user = "sluice"

// startWithin is how long a server may take to start, recovery included.
const startWithin = time.Minute

// ErrMissing says that PostgreSQL's programs are not installed.
var ErrMissing = errors.New("PostgreSQL's programs (initdb, postgres) are not installed: run scripts/install-postgres, or leave these tests out by leaving out -tags postgres")

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Durable turns fsync on: for tests that cut the power, not just the process.
	Durable bool
	// Settings are lines of postgresql.conf, such as "max_connections = 20".
	Settings []string
}

// Server is a private PostgreSQL server. Its methods are not safe for
// concurrent use, except URL.
type Server struct {
	bin, dir string
	password string
	port     int
	settings []string

	process *process
	tether  *exec.Cmd // ends the server and removes its directory when it loses us
	leash   io.Closer
}

// process is a running postgres.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{}
	done  chan struct{} // closed once it has ended and its output was read

	mu   sync.Mutex
	tail []string // the last lines of its log
}

// Start makes and starts a server. A nil cfg takes every default.
func Start(cfg *Config) (*Server, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-pg-")
	if err != nil {
		return nil, fmt.Errorf("make PostgreSQL's directory: %w", err)
	}
	s := &Server{bin: bin, dir: dir, password: rand.Text()}
	s.settings = append([]string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = '" + dir + "'",
		"lc_messages = 'C'",
		"max_connections = 200",
		"max_wal_size = '2GB'",
		"shared_buffers = '128MB'",
	}, cfg.Settings...)
	if !cfg.Durable {
		s.settings = append(s.settings, "fsync = off", "full_page_writes = off")
	}
	if err := s.init(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// programs finds the directory of initdb and postgres: the one in PATH, else
// the newest of those that Debian keeps out of PATH.
func programs() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well-formed
	if len(found) == 0 {
		return "", ErrMissing
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // 9 before 15
	})), nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) init() error {
	if err := s.fasten(); err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.password+"\n"), 0o644); err != nil {
		return fmt.Errorf("write PostgreSQL's password: %w", err)
	}
	cmd := s.command("initdb", "--pgdata", s.data(), "--username", user, "--pwfile", secret, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Remove(secret); err != nil {
		return fmt.Errorf("remove PostgreSQL's password: %w", err)
	}
	return s.launch()
}

// own gives the directory to the user that runs the server.
func (s *Server) own() error {
	who, err := unprivileged()
	if err != nil || who == nil {
		return err
	}
	if err := os.Chown(s.dir, int(who.Uid), int(who.Gid)); err != nil {
		return fmt.Errorf("give PostgreSQL its directory: %w", err)
	}
	return nil
}

// launch finds a free port and starts the server on it. Another process may
// take the port in between, so it tries again.
func (s *Server) launch() error {
	var err error
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.Restart(); err == nil || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	who, _ := unprivileged() // its error has been reported
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	return cmd
}

// fasten starts the tether: a shell that waits for the end of its standard input,
// which comes with the end of this process, even by kill -9, and ends the server.
func (s *Server) fasten() error {
	const script = `trap '' HUP INT TERM; read -r _
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
rm -rf "$0"`
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	s.tether = exec.Command("sh", "-c", script, s.dir)
	s.tether.Dir, s.tether.Stdin = "/", r
	s.tether.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.leash = w
	if err := s.tether.Start(); err != nil {
		s.tether = nil
		return fmt.Errorf("start the server's tether: %w", err)
	}
	return nil
}

// Restart starts the server after [Server.Stop], on the same port, and returns
// once it takes connections.
func (s *Server) Restart() error {
	args := []string{"-D", s.data(), "-p", fmt.Sprint(s.port)}
	for _, line := range s.settings {
		args = append(args, "-c", setting(line))
	}
	p := &process{cmd: s.command("postgres", args...), ready: make(chan struct{}), done: make(chan struct{})}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("read PostgreSQL's log: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	go p.read(log)
	timeout := time.NewTimer(startWithin)
	defer timeout.Stop()
	select {
	case <-p.ready:
		s.process = p
		return nil
	case <-p.done:
		return fmt.Errorf("PostgreSQL did not start: %s", p.log())
	case <-timeout.C:
		p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		return fmt.Errorf("PostgreSQL did not start within %v: %s", startWithin, p.log())
	}
}

// setting turns a line of postgresql.conf into an argument of -c.
func setting(line string) string {
	name, value, _ := strings.Cut(line, "=")
	return strings.TrimSpace(name) + "=" + strings.Trim(strings.TrimSpace(value), "'")
}

// read follows the log until the process ends.
func (p *process) read(log io.Reader) {
	defer close(p.done)
	started := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		p.mu.Lock()
		p.tail = append(p.tail[max(0, len(p.tail)-19):], lines.Text())
		p.mu.Unlock()
		if !started && readyLine(lines.Text()) {
			started = true
			close(p.ready)
		}
	}
	io.Copy(io.Discard, log) // after a line too long to scan
	p.cmd.Wait()             // an immediate stop has an exit status of its own
}

// readyLine reports whether a line of the log says that the server, or the standby, is ready.
func readyLine(line string) bool {
	return strings.Contains(line, "ready to accept") && strings.Contains(line, "connections")
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail, "; ")
}

// Stop ends the server at once, as a crash does: sessions are cut off, and the next
// start recovers from the log. It returns when the server has ended.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	err := s.process.cmd.Process.Signal(syscall.SIGQUIT)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	<-s.process.done
	s.process = nil
	return nil
}

// Log returns the last lines of the server's log.
func (s *Server) Log() string {
	if s.process == nil {
		return ""
	}
	return s.process.log()
}

// Close stops the server and removes its directory.
func (s *Server) Close() error {
	err := s.Stop()
	if s.leash == nil {
		return err
	}
	err = errors.Join(err, s.leash.Close())
	if s.tether != nil {
		err = errors.Join(err, s.tether.Wait())
	}
	return err
}

// URL is the connection URL of a database, over TCP and without TLS.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, s.password, s.Addr(), database)
}

// Addr is the server's TCP address.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Dir is the server's directory; its unix socket lies in it.
func (s *Server) Dir() string { return s.dir }

// CreateDatabase makes an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.admin(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}
