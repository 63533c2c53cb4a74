//go:build unix

package mariadbtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of Server.admin
)

// user is the user of the tests; it may do everything on the tests' own server.
const user = "sluice"

// startWithin is how long a server may take to start, recovery included.
const startWithin = time.Minute

// ErrMissing says that MariaDB's programs are not installed.
var ErrMissing = errors.New("MariaDB's programs (mariadbd, mariadb-install-db) are not installed: run scripts/install-mariadb, or leave these tests out by leaving out -tags mariadb")

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Durable has every commit wait for the disk: for tests that cut the power, not just the process.
	Durable bool
	// Options are options of mariadbd, such as "--max-connections=20".
	Options []string
}

// Server is a private MariaDB server. Its methods are not safe for
// concurrent use, except URL.
type Server struct {
	dir      string
	password string
	port     int
	options  []string

	process *exec.Cmd
	done    chan struct{} // closed once the process has ended
	tether  *exec.Cmd     // ends the server and removes its directory when it loses us
	leash   io.Closer
}

// Start makes and starts a server. A nil cfg takes every default.
func Start(cfg *Config) (*Server, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	install, err := program("mariadb-install-db")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-mariadb-")
	if err != nil {
		return nil, fmt.Errorf("make MariaDB's directory: %w", err)
	}
	s := &Server{dir: dir, password: rand.Text()}
	s.options = append([]string{
		"--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(dir, "socket"),
		"--max-connections=300",
		"--innodb-buffer-pool-size=128M",
		"--skip-name-resolve",
	}, cfg.Options...)
	if !cfg.Durable {
		s.options = append(s.options, "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0")
	}
	if err := s.init(install); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// program finds one of MariaDB's programs. Debian keeps the server out of the PATH of users.
func program(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/bin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", ErrMissing
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

func (s *Server) init(install string) error {
	if err := s.fasten(); err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	cmd := s.command(install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, bytes.TrimSpace(out))
	}
	first := filepath.Join(s.dir, "first.sql")
	text := fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\nDROP USER IF EXISTS root@localhost;\n", user, s.password)
	if err := os.WriteFile(first, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write MariaDB's first statements: %w", err)
	}
	s.options = append(s.options, "--init-file="+first)
	return s.launch()
}

// own gives the directory to the user that runs the server.
func (s *Server) own() error {
	who, err := unprivileged()
	if err != nil || who == nil {
		return err
	}
	if err := os.Chown(s.dir, int(who.Uid), int(who.Gid)); err != nil {
		return fmt.Errorf("give MariaDB its directory: %w", err)
	}
	return nil
}

// launch finds a free port and starts the server on it. Another process may
// take the port in between, so it tries again.
func (s *Server) launch() (err error) {
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.Restart(); err == nil || !bytes.Contains([]byte(err.Error()), []byte("Can't start server: Bind")) {
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

func (s *Server) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin", "LC_ALL=C", "TZ=UTC"}
	who, _ := unprivileged() // its error has been reported
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	return cmd
}

// unprivileged is whom the server runs as where the tests run as root, which
// MariaDB refuses; nil where they don't.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := osuser.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("MariaDB does not run as root, and there is no user nobody to run it as: %w", err)
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uerr, gerr)
}

// fasten starts the tether: a shell that waits for the end of its standard input,
// which comes with the end of this process, even by kill -9, and ends the server.
func (s *Server) fasten() error {
	const script = `trap '' HUP INT TERM; read -r _
pid=$(cat "$0/pid" 2>/dev/null) && kill -KILL "$pid" 2>/dev/null
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
	path, err := program("mariadbd")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open MariaDB's log: %w", err)
	}
	defer log.Close()
	args := append([]string{"--no-defaults", "--datadir=" + s.data(), fmt.Sprintf("--port=%d", s.port)}, s.options...)
	cmd := s.command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start MariaDB: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // a kill has an exit status of its own
	}()
	s.process, s.done = cmd, done
	if err := os.WriteFile(filepath.Join(s.dir, "pid"), fmt.Append(nil, cmd.Process.Pid), 0o644); err != nil {
		return errors.Join(err, s.Stop())
	}
	return s.await()
}

// await waits until the server takes connections.
func (s *Server) await() error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startWithin); ; <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := s.admin(ctx, "DO 0")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("MariaDB did not start: %s", s.Log())
		default:
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("MariaDB did not start within %v: %w: %s", startWithin, err, s.Log()), s.Stop())
		}
	}
}

// Stop ends the server at once, as a crash does: sessions are cut off, and the next
// start recovers from the log. It returns when the server has ended.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop MariaDB: %w", err)
	}
	<-s.done
	s.process = nil
	return nil
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(signal os.Signal) error { return s.process.Process.Signal(signal) }

// Log returns the last lines of the server's log.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.log())
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("; ")))
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
	return fmt.Sprintf("mariadb://%s:%s@%s/%s", user, s.password, s.Addr(), database)
}

// Addr is the server's TCP address.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Dir is the server's directory.
func (s *Server) Dir() string { return s.dir }

// CreateDatabase makes an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.admin(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// admin runs one statement outside the tests' databases.
func (s *Server) admin(ctx context.Context, text string) error {
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/", user, s.password, s.Addr()))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, text)
	return err
}
