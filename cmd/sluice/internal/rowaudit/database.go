package rowaudit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
)

// openSQLite opens the SQLite file at path, to read only.
func openSQLite(path string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, fmt.Errorf("open %s: %w: has the pipeline run yet?", path, errors.Unwrap(err))
	}
	name := filepath.ToSlash(abs)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: name, RawQuery: "mode=ro&_pragma=busy_timeout(10000)&_time_format=sqlite"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// openPostgres opens the PostgreSQL database at a URL. It doesn't connect yet.
func openPostgres(url string) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		// The driver's error may show the URL, which may hold a password.
		return nil, errors.New("open PostgreSQL: not a URL that it understands")
	}
	return db, nil
}

// ledger makes the driver's errors fit one line.
type ledger struct{ *audit.SQLLedger }

// Open implements [audit.Ledger].
func (l ledger) Open(ctx context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	view, err := l.SQLLedger.Open(ctx, topic, partition)
	if refused, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		// It takes a line for each address.
		return nil, errors.New("connect to PostgreSQL: " + strings.Join(strings.Fields(refused.Error()), " "))
	}
	return view, err
}
