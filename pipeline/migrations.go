package pipeline

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/sluice-go/sluice/sqlstore"
)

// Migrate creates Sluice's tables in the database of the pipeline, or brings them up to date, as
// opening the pipeline does. It does nothing for a container, which has no tables.
func (p *Pipeline) Migrate(ctx context.Context) error { return p.openTables(ctx, false) }

// CheckMigrations returns an error if a migration of the tables is missing. It changes no table.
func (p *Pipeline) CheckMigrations(ctx context.Context) error { return p.openTables(ctx, true) }

func (p *Pipeline) openTables(ctx context.Context, noMigrate bool) error {
	db, ok := p.storage.database.(sqlDatabase)
	if !ok {
		return nil
	}
	parts := &Parts{Group: p.Group}
	err := db.open(ctx, &Pipeline{Group: p.Group, storage: storage{noMigrate: noMigrate}}, parts)
	return p.problem(p.places.database, errors.Join(err, parts.Close(ctx)))
}

// Migrations returns what [Pipeline.Migrate] runs on a new database, see [sqlstore.Migrations];
// false for a container. It does not connect: a URL that begins with mysql: stands for MySQL, and
// one that begins with mariadb: for MariaDB.
func (p *Pipeline) Migrations() (fs.FS, bool) {
	db, ok := p.storage.database.(sqlDatabase)
	if !ok {
		return nil, false
	}
	scheme, _, _ := strings.Cut(db.address(), ":")
	if scheme == "postgresql" {
		scheme = "postgres"
	}
	return sqlstore.Migrations(sqlstore.Dialect(scheme)), true
}
