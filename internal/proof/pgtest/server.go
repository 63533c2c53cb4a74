//go:build unix

package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// user is the database's superuser; it is the tests' own server.
const user = "sluice"

// ErrMissing says that PostgreSQL's programs are not installed.
var ErrMissing = errors.New("PostgreSQL's programs (initdb, postgres) are not installed: run scripts/install-postgres")

var program = testserver.Program{Name: "PostgreSQL", Ready: "is ready to accept", End: syscall.SIGQUIT, Users: []string{"postgres", "nobody"}}

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
	*testserver.Process
	bin      string // the directory of the programs
	password string
	settings []string
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
	process, err := testserver.NewProcess(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: process, bin: bin, password: rand.Text()}
	s.settings = append([]string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = '" + s.Dir() + "'",
		"lc_messages = 'C'",
		"max_connections = 200",
		"max_prepared_transactions = 20",
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

func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }

func (s *Server) init() error {
	secret := s.File("password")
	if err := os.WriteFile(secret, []byte(s.password+"\n"), 0o644); err != nil {
		return fmt.Errorf("write PostgreSQL's password: %w", err)
	}
	cmd := s.Command(s.program("initdb"), "--pgdata", s.File("data"), "--username", user, "--pwfile", secret, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Remove(secret); err != nil {
		return fmt.Errorf("remove PostgreSQL's password: %w", err)
	}
	return s.Launch(s.Restart)
}

// Restart starts the server after [testserver.Process.Stop], on the same port, and returns
// once it takes connections.
func (s *Server) Restart() error {
	args := []string{"-D", s.File("data"), "-p", fmt.Sprint(s.Port())}
	for _, line := range s.settings {
		args = append(args, "-c", setting(line))
	}
	return s.Process.Start(s.program("postgres"), args...)
}

// setting turns a line of postgresql.conf into an argument of -c.
func setting(line string) string {
	name, value, _ := strings.Cut(line, "=")
	return strings.TrimSpace(name) + "=" + strings.Trim(strings.TrimSpace(value), "'")
}

// URL is the connection URL of a database, over TCP and without TLS.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, s.password, s.Addr(), database)
}

// CreateDatabase makes an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.admin(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// DropDatabase removes a database, and ends the connections to it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
}

// admin runs one statement outside the tests' databases.
func (s *Server) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
