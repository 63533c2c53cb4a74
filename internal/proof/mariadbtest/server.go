//go:build unix

package mariadbtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// user is the user of the tests; it may do everything on the tests' own server.
const user = "sluice"

// ErrMissing says that MariaDB's programs are not installed.
var ErrMissing = errors.New("MariaDB's programs (mariadbd, mariadb-install-db) are not installed: run scripts/install-mariadb")

var program = testserver.Program{Name: "MariaDB", Ready: "ready for connections", End: syscall.SIGKILL, Users: []string{"nobody"}}

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Durable has every commit wait for the disk: for tests that cut the power, not just the
	// process.
	Durable bool
	// Options are options of mariadbd, such as "--max-connections=20".
	Options []string
}

// Server is a private MariaDB server, or a server that was there before. Its methods are not safe
// for concurrent use, except URL.
type Server struct {
	*testserver.Process // nil: the server was there before
	path                string
	password            string
	options             []string
	address             *url.URL // of a server that was there before
	prefix              string   // of its databases' names: others may test on the same server
}

// Provide returns the server of SLUICE_MYSQL_URL, and starts one where that is not set.
func Provide() (*Server, error) {
	address := os.Getenv("SLUICE_MYSQL_URL")
	if address == "" {
		return Start(nil)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("SLUICE_MYSQL_URL cannot be read: it must have the form mysql://user:password@host:3306")
	}
	s := &Server{address: u, prefix: "sluice_" + rand.Text() + "_"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version, err := s.Version(ctx)
	fmt.Fprintln(os.Stderr, "mariadbtest: the server is", version)
	return s, err
}

// Close ends the server, unless it was there before.
func (s *Server) Close() error {
	if s.Process == nil {
		return nil
	}
	return s.Process.Close()
}

// Start makes and starts a server. A nil cfg takes every default.
func Start(cfg *Config) (*Server, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	install, err1 := testserver.Find("mariadb-install-db")
	path, err2 := testserver.Find("mariadbd")
	if err1 != nil || err2 != nil {
		return nil, ErrMissing
	}
	process, err := testserver.NewProcess(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: process, path: path, password: rand.Text()}
	s.options = append([]string{
		"--no-defaults",
		"--datadir=" + s.File("data"),
		s.tmpdir(),
		"--bind-address=127.0.0.1",
		"--socket=" + s.File("socket"),
		"--init-file=" + s.File("first.sql"),
		"--max-connections=300",
		"--innodb-buffer-pool-size=128M",
		"--skip-name-resolve",
	}, cfg.Options...)
	if !cfg.Durable {
		// The log of a commit is in the operating system, so that Stop loses none.
		s.options = append(s.options, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
	}
	if err := s.init(install); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// tmpdir is the option for a directory of its own: a server that starts removes all temporary
// tables from its directory, those of another server too.
func (s *Server) tmpdir() string { return "--tmpdir=" + s.Dir() }

func (s *Server) init(install string) error {
	cmd := s.Command(install, "--no-defaults", "--datadir="+s.File("data"), s.tmpdir(), "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, bytes.TrimSpace(out))
	}
	text := fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\nDROP USER IF EXISTS root@localhost;\n", user, s.password)
	if err := os.WriteFile(s.File("first.sql"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write MariaDB's first statements: %w", err)
	}
	return s.Launch(s.Restart)
}

// Restart starts the server after [testserver.Process.Stop], on the same port, and returns
// once it takes connections.
func (s *Server) Restart() error {
	return s.Process.Start(s.path, append(s.options, fmt.Sprintf("--port=%d", s.Port()))...)
}

// URL is the connection URL of a database, over TCP and without TLS.
func (s *Server) URL(database string) string {
	if s.Process == nil {
		u := *s.address
		u.Path = "/" + database
		return u.String()
	}
	return fmt.Sprintf("mariadb://%s:%s@%s/%s", user, s.password, s.Addr(), database)
}

// CreateDatabase makes an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	name = s.prefix + name
	if err := s.admin(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// DropDatabase removes a database.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, "DROP DATABASE "+s.prefix+name)
}

// Version says which server it is: 10.11.6-MariaDB, or 8.4.3 of MySQL.
func (s *Server) Version(ctx context.Context) (version string, err error) {
	db, err := s.open()
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	return version, err
}

// admin runs one statement outside the tests' databases.
func (s *Server) admin(ctx context.Context, text string) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, text)
	return err
}

// open opens the server without a database.
func (s *Server) open() (*sql.DB, error) {
	u, err := url.Parse(s.URL(""))
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = u.User.Username(), "tcp", u.Host
	cfg.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	cfg.TLSConfig = u.Query().Get("tls")
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
