package pipeline

import (
	"context"
	"database/sql"
	"errors"

	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/sqlstore"
)

// Schema is the version of Sluice's tables in a database.
type Schema struct {
	Version int // 0: there are none
	Oldest  int // version that a program must know at least to use them
	Known   int // version that this program makes; 0: the store is a container, which has no versions
}

// Exists reports whether the tables, or the container, are there.
func (s Schema) Exists() bool { return s.Version > 0 }

// Schema returns the version of the tables. It connects to the database and changes nothing.
func (p *Pipeline) Schema(ctx context.Context) (Schema, error) {
	s := Schema{Known: knownSchema(p.storage.database)}
	found, done, err := p.storage.database.inspect(ctx)
	if err != nil {
		return s, p.problem(p.places.database, err)
	}
	defer done()
	if found == nil {
		return s, nil
	}
	db, ok := p.storage.database.(sqlDatabase)
	if !ok {
		s.Version = 1
		return s, nil
	}
	columns, err := found.columns(ctx, "sluice_schema")
	if err == nil && len(columns) > 0 {
		err = s.read(ctx, db)
	}
	return s, p.problem(p.places.database, err)
}

func (s *Schema) read(ctx context.Context, from sqlDatabase) error {
	db, err := from.reader()
	if err != nil {
		return err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT version, oldest_compatible FROM sluice_schema WHERE component = 'store'").Scan(&s.Version, &s.Oldest)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// knownSchema is the version that this program makes.
func knownSchema(db database) int {
	lite, my, server := sqlstore.SchemaVersions()
	switch db := db.(type) {
	case sqliteDatabase:
		return lite
	case postgresDatabase:
		return len(internalpostgres.Migrations)
	case serverDatabase:
		if db.dialect().engine == mysql {
			return my
		}
		return server
	}
	return 0
}
