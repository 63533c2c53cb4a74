package targetaudit

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

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
