package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/internal/tables"
)

// OpenSQLite opens the SQLite database in the file at path, creating it if it
// is missing, and brings its tables up to date. The leases are kept beside it,
// in path-leases. A nil cfg takes every default.
//
// Several processes on one machine may use the same file. SQLite's write-ahead log needs memory
// that they share, so a network file system does not work. They write one at a time. A process that
// is stopped (SIGSTOP, a debugger) inside a transaction blocks all the others until it continues or
// exits; one that is killed does not.
//
// A commit is on disk when it returns (synchronous = FULL). Foreign keys are
// enforced. Times that a handler writes become UTC text that SQLite's date
// functions understand.
func OpenSQLite(path string, cfg *Config) (*Store, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := openSQLite(path, c, sqliteDialect{sqliteStoreSteps, sqliteLeaseSteps})
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	return s, nil
}

// leaseSuffix makes the name of the leases' file.
const leaseSuffix = "-leases"

func openSQLite(path string, c Config, d dialect) (*Store, error) {
	return openSQLiteWith(path, c, d, nil)
}

// openSQLiteWith opens a store that writes through writer; nil: through a pool of its own.
func openSQLiteWith(path string, c Config, d dialect, writer *sql.DB) (_ *Store, err error) {
	path, err = sqlitePath(path)
	if err != nil {
		return nil, err
	}
	s := &Store{name: path, dialect: d, sql: d.statements(), busy: c.BusyTimeout, turns: new(turns)}
	leasePath := path + leaseSuffix
	for _, file := range []string{path, leasePath} {
		if !c.NoMigrate {
			_ = datadir.CreateFile(file) // SQLite fails for the same reason, and says more
		} else if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("database %s: %w: apply the migrations (`sluice migrate`, or the files of sqlstore.Migrations), or leave NoMigrate out", file, errors.Unwrap(err))
		}
	}
	s.leases = &Leases{name: leasePath, dialect: d, sql: d.statements()}

	if s.writer = writer; writer == nil {
		s.writer = sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(path, 0, "_txlock=immediate"), guarded: true})
	}
	s.reader = sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(path, c.BusyTimeout)})
	s.leases.db = sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(leasePath, c.BusyTimeout, "_txlock=immediate")})
	s.writer.SetMaxOpenConns(1)
	s.reader.SetMaxOpenConns(c.Readers)
	s.reader.SetMaxIdleConns(c.Readers)
	s.leases.db.SetMaxOpenConns(1)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()

	if err := prepareSQLite(s.writer, d, storeComponent, c); err != nil {
		return nil, outage(context.Background(), d, path, "store", err)
	}
	if err := prepareSQLite(s.leases.db, d, leaseComponent, c); err != nil {
		return nil, outage(context.Background(), d, leasePath, "leases", err)
	}
	return s, nil
}

// prepareSQLite turns the write-ahead log on and runs the migrations, or only looks for them.
// Several processes may do so at the same time on a new file.
func prepareSQLite(db *sql.DB, d dialect, component string, c Config) error {
	ctx := context.Background()
	return retryBusy(ctx, d, c.BusyTimeout, func() error {
		if c.NoMigrate {
			if err := current(ctx, db, d, component); err != nil {
				return err
			}
		}
		var mode string
		if _, err := one(ctx, db, "PRAGMA journal_mode = WAL", nil, &mode); err != nil {
			return err
		}
		if mode != "wal" {
			return fmt.Errorf("no write-ahead log here (journal mode %s): put the file on a local disk", mode)
		}
		return migrate(ctx, db, d, component)
	})
}

// CheckSQLite returns why [OpenSQLite] would fail on path, as far as that can be found without
// creating or changing anything. A missing file is fine if its directory exists.
func CheckSQLite(ctx context.Context, path string) error {
	path, err := sqlitePath(path)
	if err != nil {
		return fmt.Errorf("check %w", err)
	}
	d := sqliteDialect{sqliteStoreSteps, sqliteLeaseSteps}
	for _, component := range []string{storeComponent, leaseComponent} {
		file := path
		if component == leaseComponent {
			file += leaseSuffix
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		db := sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(file, time.Second, "mode=ro")})
		_, err := readVersion(ctx, db, d, component, len(d.steps(component)))
		db.Close()
		if err != nil {
			return outage(ctx, d, file, "check "+component, err)
		}
	}
	return nil
}

// sqlitePath makes a path absolute, so that a change of directory does not matter, and resolves
// symbolic links, so that all processes find the same file of leases.
func sqlitePath(path string) (string, error) {
	if path == "" || strings.HasPrefix(path, ":") || strings.HasPrefix(path, "file:") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("database %q: not the path of a file: give one that can be created, such as sluice.db", path)
	}
	if rest, is := strings.CutPrefix(path, "sqlite:"); is {
		return "", fmt.Errorf("database %q: a URL, not the path of a file: give the path alone, %s", path, rest)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("database %s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fmt.Errorf("database %s: is a symbolic link whose target is missing: create the file it links to, or give that path", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("database %s: there is no directory %s: create it", path, filepath.Dir(path))
	} else if err != nil {
		return "", fmt.Errorf("database %s: %w", path, err)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return "", fmt.Errorf("database %s: %s is not a directory: give another path", path, dir)
	}
	path = filepath.Join(dir, filepath.Base(path))
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("database %s: is not a file: give another path", path)
	}
	return path, nil
}

func sqliteDSN(path string, busy time.Duration, more ...string) string {
	name := filepath.ToSlash(path)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/…
	}
	query := append([]string{
		fmt.Sprintf("_pragma=busy_timeout(%d)", busy.Milliseconds()),
		"_pragma=synchronous(FULL)",
		"_pragma=foreign_keys(ON)",
		"_time_format=sqlite",
		"_timezone=UTC",
		"_error_rc=1", // else an error may come with the words of another
	}, more...)
	return (&url.URL{Scheme: "file", Path: name, RawQuery: strings.Join(query, "&")}).String()
}

// sqliteDriver is a driver of its own, so that other users of the package in the process do not see
// the SQL function that it adds.
var sqliteDriver = func() *sqlite.Driver {
	d := &sqlite.Driver{}
	d.MustRegisterDeterministicScalarFunction("contains_fold", 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		part, _ := args[1].(string)
		return strings.Contains(strings.ToLower(text), strings.ToLower(part)), nil
	})
	return d
}()

type sqliteConnector struct {
	dsn     string
	guarded bool
}

func (c *sqliteConnector) Driver() driver.Driver { return sqliteDriver }

// Connect opens a connection; one that writes is watched.
func (c *sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := sqliteDriver.Open(c.dsn)
	if err != nil || !c.guarded {
		return conn, err
	}
	w := &watch{fault: sqliteDialect{}.fault}
	hooks := conn.(sqlite.HookRegisterer)
	hooks.RegisterCommitHook(func() int32 {
		if w.mayCommit() {
			return 0
		}
		return 1 // SQLite makes a rollback of it
	})
	hooks.RegisterRollbackHook(w.rolledBack)
	return &watchedConn{fullConn: conn.(fullConn), watch: w}, nil
}

type sqliteDialect struct{ store, leases []step }

func (sqliteDialect) statements() *statements    { return sqliteStatements }
func (sqliteDialect) rebind(query string) string { return query }
func (sqliteDialect) variables() int             { return 32766 } // SQLITE_MAX_VARIABLE_NUMBER

func (sqliteDialect) duplicate(error) bool        { return false } // ON CONFLICT DO NOTHING
func (sqliteDialect) txOptions() *sql.TxOptions   { return nil }
func (sqliteDialect) script(text string) []string { return []string{text} }
func (sqliteDialect) time(t time.Time) any        { return formatTime(t) }

// The watch is asked before each commit, and sees each rollback.
func (sqliteDialect) ends(driver.Conn, string) bool             { return false }
func (sqliteDialect) guard(context.Context, *transaction) error { return nil }

// lock locks nothing: the transaction has begun with the database's write lock.
func (sqliteDialect) lock(ctx context.Context, t *transaction, args []any) (bool, error) {
	return one(ctx, t, sqliteStatements.Lock, args, new(int))
}

func (sqliteDialect) intact(context.Context, *transaction) error { return nil }

// chunkRows was measured with rows of 1 KB: 16 and more are a fifth faster than one; 500 are no
// better.
const chunkRows = 64

// conflictClause finds the conflict clause of a constraint in the statement of a table.
var conflictClause = regexp.MustCompile(`(?is)\bON(?:\s|/\*.*?\*/|--[^\n]*\n)+CONFLICT\b`)

// inserting has constraints that would leave out a row, replace another, or end the transaction
// fail as all others do. Other tables get no OR ABORT, which would also hold for the statements of
// their triggers. What is written to a view is not counted.
func (sqliteDialect) inserting(ctx context.Context, q querier, table string) (verb string, counted bool, err error) {
	schema, name, qualified := strings.Cut(table, ".")
	from := "(SELECT * FROM sqlite_temp_schema UNION ALL SELECT * FROM main.sqlite_schema)"
	if !qualified {
		name = table
	} else {
		from = sqliteDialect{}.quote(schema) + ".sqlite_schema"
	}
	var kind, text string
	query := "SELECT type, coalesce(sql, '') FROM " + from + " WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE"
	switch found, err := one(ctx, q, query, []any{name}, &kind, &text); {
	case err != nil:
		return "", false, err
	case !found: // which the INSERT says
		return "INSERT", true, nil
	case conflictClause.MatchString(text):
		return "INSERT OR ABORT", true, nil
	}
	return "INSERT", kind == "table", nil
}

func (sqliteDialect) savepoint(name string) savepoint { return standardSavepoint(name) }

// safe: each table is, also a virtual one or that of a view.
func (sqliteDialect) safe(context.Context, querier, string) error { return nil }
func (sqliteDialect) kept(context.Context, querier) (bool, error) { return false, nil }

func (sqliteDialect) chunk() int { return chunkRows }
func (sqliteDialect) bulk(context.Context, querier, string, []tables.Column, []string, [][]any) (bool, error) {
	return false, nil
}

func (sqliteDialect) catalog() *tables.Catalog { return tables.SQLite }

func (sqliteDialect) park(context.Context, querier, [][]any) (bool, error) { return false, nil }

func (d sqliteDialect) steps(component string) []step {
	if component == leaseComponent {
		return d.leases
	}
	return d.store
}

func (sqliteDialect) quote(name string) string {
	return `"` + strings.ReplaceAll(clean(name), `"`, `""`) + `"`
}

func (sqliteDialect) first(cond string) string {
	return "id IN (SELECT id FROM sluice_dead_letters WHERE " + cond + " ORDER BY id LIMIT ?)"
}

// fault goes by SQLite's result codes, https://sqlite.org/rescode.html.
func (sqliteDialect) fault(err error) fault {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return faultBroken
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return faultStatement
	}
	if e.Code() == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK {
		return faultVetoed
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return faultConstraint
	case sqlite3.SQLITE_BUSY:
		return faultBusy
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_SCHEMA:
		return faultRefused
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH:
		if isValue(e.Error()) {
			return faultStatement
		}
		return faultOpen
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_INTERNAL:
		return faultBroken
	}
	return faultUnknown
}

// isValue reports whether SQLite says that a function refuses a value.
func isValue(text string) bool {
	for _, words := range []string{"malformed JSON", "JSON path", "integer overflow"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// isMissing reports whether SQLite says that a statement names something that is missing, or cannot
// be read. Only the text says so: the code is that of every wrong statement.
func isMissing(text string) bool {
	for _, words := range []string{": no such ", " has no column named ", ": syntax error", "incomplete input", "not authorized"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

func (sqliteDialect) hint(err error) string {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return ""
	}
	if isMissing(e.Error()) {
		return "create what is missing, or correct the statement"
	}
	return sqliteHints[e.Code()&0xff]
}

var sqliteHints = map[int]string{
	sqlite3.SQLITE_BUSY:     "another process holds its write lock: look for a stopped process, or for a handler that takes long",
	sqlite3.SQLITE_FULL:     "free some room on its disk",
	sqlite3.SQLITE_IOERR:    "check its disk, and the room that is left there",
	sqlite3.SQLITE_READONLY: "make the file and its directory writable",
	sqlite3.SQLITE_PERM:     "make the file and its directory writable",
	sqlite3.SQLITE_CANTOPEN: "make sure that the file and its directory can be read and written",
	sqlite3.SQLITE_CORRUPT:  "restore it from a backup",
	sqlite3.SQLITE_NOTADB:   "give another path, or move this file away",
}
