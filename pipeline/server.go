package pipeline

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/tables"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sqlstore"
)

// serverKind is what differs between the database servers of package sqlstore.
type serverKind struct {
	dialect   *dialect
	connector func(address string, token accessToken) (sqldriver.Connector, error)
	open      func(ctx context.Context, address string, cfg *sqlstore.ServerConfig) (*sqlstore.Store, error)
	check     func(ctx context.Context, address string, cfg *sqlstore.ServerConfig) error
	tables    *tables.Catalog
	safe      func(ctx context.Context, q tables.Querier, table string) error
	hasKey    func(ctx context.Context, db *sql.DB, table string, columns []string, k driver.Keyed) error
	outboxes  outbox.Dialect
	prepares  bool // a statement can be prepared without executing it
}

// accessToken returns a token of Entra ID; nil: the URL has the password.
type accessToken = func(context.Context) (string, error)

// serverDatabase is a database of a server by its URL.
type serverDatabase struct {
	*serverKind
	given string // the URL as the file has it
	url   string // the URL for sqlstore
	token accessToken
}

// database returns the database of a URL, which given is in the file.
func (s *serverKind) database(given, url string, token accessToken) (sqlDatabase, error) {
	if _, err := s.connector(url, token); err != nil {
		return nil, err
	}
	return serverDatabase{s, given, url, token}, nil
}

func (d serverDatabase) dialect() *dialect { return d.serverKind.dialect }
func (d serverDatabase) address() string   { return d.given }

func (d serverDatabase) reader() (*sql.DB, error) {
	connector, err := d.connector(d.url, d.token)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (d serverDatabase) outbox() (*sql.DB, outbox.Dialect, error) {
	db, err := d.reader()
	return db, d.outboxes, err
}

func (d serverDatabase) open(ctx context.Context, p *Pipeline, parts *Parts) error {
	store, err := d.serverKind.open(ctx, d.url, &sqlstore.ServerConfig{MaxConns: p.storage.connections, LeaseFor: p.config.LeaseFor, NoMigrate: p.storage.noMigrate, AccessToken: d.token})
	if err != nil {
		return err
	}
	parts.useSQLStore(p, store, serverCatalog{d.serverKind, store.DB()})
	return nil
}

func (d serverDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	if err := d.check(ctx, d.url, &sqlstore.ServerConfig{AccessToken: d.token}); err != nil {
		return nil, nil, err
	}
	db, err := d.reader()
	if err != nil {
		return nil, nil, err
	}
	return serverCatalog{d.serverKind, db}, func() { db.Close() }, nil
}

type serverCatalog struct {
	kind *serverKind
	db   *sql.DB
}

func (c serverCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	list, err := c.kind.tables.Columns(ctx, c.db, table)
	return existingColumns(c.kind.dialect, list), err
}

func (c serverCatalog) safe(ctx context.Context, table string) error {
	return c.kind.safe(ctx, c.db, table)
}

func (c serverCatalog) hasKey(ctx context.Context, table string, columns []string, k driver.Keyed) error {
	return c.kind.hasKey(ctx, c.db, table, columns, k)
}

func (c serverCatalog) create(ctx context.Context, sql string) error {
	_, err := c.db.ExecContext(ctx, sql)
	return err
}

// parameters does not know their kinds.
func (c serverCatalog) parameters(ctx context.Context, text string, _ int) ([]existingColumn, error) {
	if !c.kind.prepares {
		return nil, nil
	}
	stmt, err := c.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return nil, stmt.Close()
}
