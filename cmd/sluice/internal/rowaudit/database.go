package rowaudit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline"
)

// dialects are those of databases by their addresses' schemes.
var dialects = map[string]audit.Dialect{
	"sqlite":     audit.SQLite(),
	"postgres":   audit.PostgreSQL(),
	"postgresql": audit.PostgreSQL(),
	"mysql":      audit.MySQL(),
	"mariadb":    audit.MySQL(),
	"sqlserver":  audit.SQLServer(),
}

// openDatabase opens a database for reading. It does not connect.
func openDatabase(address string) (*sql.DB, audit.Dialect, error) {
	scheme, path, _ := strings.Cut(address, ":")
	if scheme == "sqlite" {
		if _, err := os.Stat(path); err != nil {
			return nil, audit.Dialect{}, fmt.Errorf("open %s: %w: has the pipeline run yet?", path, errors.Unwrap(err))
		}
	}
	db, err := pipeline.OpenReader(address)
	return db, dialects[scheme], err
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
