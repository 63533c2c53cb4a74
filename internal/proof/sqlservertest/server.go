//go:build unix

package sqlservertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	_ "github.com/microsoft/go-mssqldb" // the driver of Server.admin

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// ErrMissing says that there is no server to test against.
var ErrMissing = errors.New("no server that speaks SQL Server's protocol: run scripts/install-sqlserver with SLUICE_SQLSERVER_ARCHIVE, or set SLUICE_SQLSERVER_URL to the URL of a server")

// password is that of sa in Babelfish; start-babelfish takes it from a variable.
const password = "Babelfish-1"

var program = testserver.Program{Name: "Babelfish", Ready: "sqlserver://", End: syscall.SIGTERM, Users: []string{"postgres", "nobody"}}

// Server is a private Babelfish, or a server that was there before.
type Server struct {
	process *testserver.Process // nil: the server was there before
	path    string
	address *url.URL
	prefix  string // of its databases' names: others may test on the same server
	one     sync.Mutex
}

// find returns the path of the program that starts a Babelfish.
func find() (path string, err error) {
	dir := os.Getenv("SLUICE_SQLSERVER_DIR")
	if dir == "" {
		root, err := testserver.Repository()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, ".dev", "sqlserver")
	}
	// The path without links: the server's user may not be able to get to them.
	if dir, err = filepath.EvalSymlinks(dir); err == nil {
		path = filepath.Join(dir, "bin", "start-babelfish")
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrMissing, err)
	}
	return path, nil
}

// Start makes and starts a Babelfish.
func Start() (*Server, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	process, err := testserver.NewProcess(program)
	if err != nil {
		return nil, err
	}
	s := &Server{process: process, path: path}
	err = process.Launch(s.Restart)
	if err == nil {
		err = s.allowDatabases()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.address = &url.URL{Scheme: "sqlserver", User: url.UserPassword("sa", password), Host: process.Addr(), RawQuery: "encrypt=true&TrustServerCertificate=true"}
	return s, nil
}

// severalDatabases is a setting of PostgreSQL that has Babelfish take any number of databases at a
// time.
const severalDatabases = "babelfishpg_tsql.migration_mode = 'multi-db'"

// allowDatabases removes the setting for one database at a time, which comes before that of the
// server. PostgreSQL listens on a socket beside the data.
func (s *Server) allowDatabases() error {
	pid, err := os.ReadFile(s.process.File("data/postmaster.pid"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(pid), "\n")
	if len(lines) < 5 {
		return fmt.Errorf("postmaster.pid of Babelfish has %d lines, want its port in the 4th and its socket in the 5th", len(lines))
	}
	cmd := s.process.Command(filepath.Join(filepath.Dir(s.path), "psql"), "-qX", "-p", lines[3], "-h", lines[4], "-U", "babelfish_admin", "-d", "babelfish_db",
		"-c", "ALTER DATABASE babelfish_db RESET babelfishpg_tsql.migration_mode")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("allow several databases in Babelfish: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// existing returns the server of SLUICE_SQLSERVER_URL; nil if there is none.
func existing() (*Server, error) {
	address := os.Getenv("SLUICE_SQLSERVER_URL")
	if address == "" {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("SLUICE_SQLSERVER_URL cannot be read: it must have the form sqlserver://user:password@host:1433")
	}
	return &Server{address: u, prefix: "sluice_" + rand.Text() + "_"}, nil
}

// Addr is a Babelfish's TCP address.
func (s *Server) Addr() string { return s.process.Addr() }

// Dir is a Babelfish's directory.
func (s *Server) Dir() string { return s.process.Dir() }

// Stop ends a Babelfish at once, as a crash does. It returns when it has ended.
func (s *Server) Stop() error {
	stop := filepath.Join(filepath.Dir(s.path), "stop-babelfish")
	if out, err := s.process.Command(stop, s.process.File("data"), "immediate").CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("stop-babelfish: %w: %s", err, bytes.TrimSpace(out)), s.process.Stop())
	}
	return s.process.Stop()
}

// sent are the statements that Sluice sends.
//
//go:embed statements.sql
var sent []byte

// Restart starts a Babelfish after [Server.Stop], on the same port, and returns once it takes
// connections. Where scripts/install-sqlserver could compile the library for that, the server
// parses Sluice's statements first: that takes some seconds of a CPU, and saves half a second for
// each connection.
func (s *Server) Restart() error {
	settings, list := severalDatabases, s.process.File("statements.sql")
	library := filepath.Join(filepath.Dir(s.path), "..", "lib", "postgresql", "babelfish-parser.so")
	if _, err := os.Stat(library); err == nil {
		settings += fmt.Sprintf("\nshared_preload_libraries = 'babelfishpg_tds, %s'", filepath.Clean(library))
	}
	if err := os.WriteFile(list, sent, 0o644); err != nil {
		return err
	}
	return s.process.Start("/usr/bin/env", "BABELFISH_FOREGROUND=1", "BABELFISH_PASSWORD="+password, "BABELFISH_SETTINGS="+settings,
		"BABELFISH_STATEMENTS="+list, s.path, s.process.File("data"), fmt.Sprint(s.process.Port()))
}

// Log returns the last lines of a Babelfish's log.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.process.File("data/server.log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "; ")
}

// Close ends the server, unless it was there before.
func (s *Server) Close() error {
	if s.process == nil {
		return nil
	}
	return s.process.Close()
}

// URL is the connection URL of a database.
func (s *Server) URL(database string) string {
	u := *s.address
	q := u.Query()
	q.Set("database", database)
	u.RawQuery = q.Encode()
	return u.String()
}

// CreateDatabase makes an empty database and returns its URL. It allows snapshots, as Babelfish
// does.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	name = s.prefix + name
	if err := s.admin(ctx, "CREATE DATABASE "+name+"; "+set(name, "ALLOW_SNAPSHOT_ISOLATION ON")); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// set is a statement that sets an option of a database, where the server is not Babelfish, which
// has none.
func set(name, option string) string {
	return "IF @@VERSION NOT LIKE N'Babelfish%' EXEC(N'ALTER DATABASE " + name + " SET " + option + "')"
}

// DropDatabase removes a database, and ends the sessions in it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	name = s.prefix + name
	return s.admin(ctx, set(name, "SINGLE_USER WITH ROLLBACK IMMEDIATE")+"; DROP DATABASE "+name)
}

// version says which server it is.
func (s *Server) version(ctx context.Context) (string, error) {
	db, err := sql.Open("sqlserver", s.URL("master"))
	if err != nil {
		return "", err
	}
	defer db.Close()
	var text string
	err = db.QueryRowContext(ctx, "SELECT @@VERSION").Scan(&text)
	first, _, _ := strings.Cut(text, "\n")
	return first, err
}

// admin runs a batch outside the tests' databases, one at a time.
func (s *Server) admin(ctx context.Context, text string) error {
	s.one.Lock()
	defer s.one.Unlock()
	db, err := sql.Open("sqlserver", s.URL("master"))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, text)
	return err
}
