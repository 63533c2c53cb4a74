package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
)

// controlConns is how many connections serve leases and terminate other sessions. They are apart
// from the connections of steps, so that leases are renewed even if handlers use all of those.
const controlConns = 2

// Config has the settings of a store. The zero value is ready to use.
type Config struct {
	// Schema is the schema of Sluice's tables, created if it is missing. Handlers
	// keep the role's search_path. Default: the first schema of the role's
	// search_path that exists, usually public.
	Schema string
	// NoMigrate lets [Open] and [New] only check that the tables are up to date, and fail
	// otherwise: for programs whose role may not create tables, see [Migrations]. Default: they
	// migrate.
	NoMigrate bool
	// MaxConns is how many connections [Open] makes for steps at most, each
	// in use while a handler runs; two more serve the leases. Default: the
	// URL's pool_max_conns, else the number of CPUs but at least 4.
	MaxConns int
	// LeaseFor is the consumers' sluice.Config.LeaseFor: the server ends a
	// session that idles for longer inside a step's transaction. A handler
	// that computes for longer between two statements needs a longer one.
	// Default: 30 s.
	LeaseFor time.Duration
	// LockTimeout is how long a claim or reset waits for a transaction in
	// progress on the checkpoint before it ends the session, and how long a
	// step waits for the checkpoint. Default: 500 ms.
	LockTimeout time.Duration
	// Password, if set, returns the password for each new connection, in place of that
	// in the URL. With it Azure's servers accept Entra ID: it returns a fresh token for
	// [AzureScope], and the URL's user is the name of the identity. Connections that
	// are open outlive the token. The URL needs sslmode=verify-full, or require, unless
	// the server is on this machine. It is called concurrently. Default: the URL's.
	Password func(context.Context) (string, error)
}

// AzureScope is the scope of tokens of Entra ID for Azure Database for PostgreSQL. The
// clouds of China and of the US Government have https://ossrdbms-aad.database.chinacloudapi.cn
// and https://ossrdbms-aad.database.usgovcloudapi.net in its place.
const AzureScope = "https://ossrdbms-aad.database.windows.net/.default"

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.LockTimeout = cmp.Or(c.LockTimeout, 500*time.Millisecond)
	switch {
	case c.MaxConns < 0 || c.MaxConns > math.MaxInt32:
		return c, fmt.Errorf("%d connections: must be positive", c.MaxConns)
	case c.LeaseFor < time.Millisecond || c.LeaseFor > 24*time.Hour:
		return c, fmt.Errorf("lease of %v: must be from 1 ms to 24 h", c.LeaseFor)
	case c.LockTimeout < time.Millisecond || c.LockTimeout > time.Hour:
		return c, fmt.Errorf("lock timeout of %v: must be from 1 ms to 1 h", c.LockTimeout)
	}
	return c, nil
}

// requestTimeout bounds one round trip of a step, so that several fit into a lease. A wait for a
// lock ends before it.
func (cfg *Config) requestTimeout() time.Duration {
	return max(cfg.LeaseFor/3, 2*cfg.LockTimeout, time.Second)
}

// Store keeps checkpoints and dead letters. It is safe for concurrent use.
type Store struct {
	cfg     Config
	pool    *pgxpool.Pool // steps and everything else
	own     bool          // Close closes pool
	control *pgxpool.Pool // leases, and the ending of sessions
	leases  *Leases
	sql     *statements
}

var (
	_ driver.TxStore[pgx.Tx] = (*Store)(nil)
	_ driver.CheckpointStore = (*Store)(nil)
	_ driver.DeadLetterQueue = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
)

// Connect makes a pool of connections to the database at url, a URL like
// postgres://user:password@host:5432/database or a string of keywords and
// values as libpq takes it. It checks that the server is suitable, and
// creates nothing. Before a pooler that refuses startup parameters, such as PgBouncer,
// it makes do without them. Errors never contain the password. A nil cfg takes every
// default.
func Connect(ctx context.Context, url string, cfg *Config) (*pgxpool.Pool, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pc, err := parse(url, c)
	if err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, pc)
	if postgres.RefusedParameter(err) {
		postgres.AdaptToPooler(pc.ConnConfig)
		pool, err = openPool(ctx, pc)
	}
	return pool, err
}

func openPool(ctx context.Context, pc *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), pc.Copy())
	if err != nil {
		return nil, fmt.Errorf("set up connections to PostgreSQL: %w", err)
	}
	conn, err := acquire(ctx, pool)
	if err == nil {
		err = postgres.Check(conn.Conn())
		conn.Release()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// Migrations returns what [Open] runs to make the tables, as files NNNN_store.up.sql that goose and
// golang-migrate read; the next file of a later version has the next number. The tables go to the
// first schema of the search_path, which must exist. The files record the version in sluice_schema,
// so that Open finds its tables current. Tables that Open has made need no files: mark those as
// applied in the tool.
func Migrations() fs.FS { return postgres.MigrationFiles() }

// Open connects to the database at url as [Connect] does, and brings Sluice's
// tables in it up to date. The context is for opening only.
// [Store.Close] ends the connections.
func Open(ctx context.Context, url string, cfg *Config) (*Store, error) {
	pool, err := Connect(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.own = true
	return s, nil
}

// New is [Open] over a pool that the caller has made and will close after the
// store. Two connections more, made by the same configuration, serve the
// leases. Config.MaxConns does not apply: the pool decides.
func New(ctx context.Context, pool *pgxpool.Pool, cfg *Config) (*Store, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("the *pgxpool.Pool is nil: check the error of what makes it")
	}
	schema, err := prepare(ctx, pool, c)
	if err != nil {
		return nil, err
	}
	pc := pool.Config()
	pc.MaxConns, pc.MinConns, pc.MinIdleConns = controlConns, 0, 0
	control, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), pc)
	if err != nil {
		return nil, fmt.Errorf("set up connections for leases: %w", err)
	}
	sql := newStatements(schema)
	return &Store{
		cfg: c, pool: pool, control: control, sql: sql,
		leases: &Leases{pool: control, sql: sql, limits: limits{idle: c.LeaseFor}},
	}, nil
}

// prepare makes the database ready and returns the schema of Sluice's tables.
func prepare(ctx context.Context, pool *pgxpool.Pool, c Config) (string, error) {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	return postgres.Prepare(ctx, conn.Conn(), c.Schema, c.NoMigrate)
}

// Pool returns the connections of the steps, for other queries. Steps cannot use a connection while
// the caller holds it.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Leases returns the lease store of the same database. It has connections of its
// own, and is closed with the store.
func (s *Store) Leases() *Leases { return s.leases }

// Close ends the store's connections, and those of a pool that [Open] made. It
// waits for operations in progress.
func (s *Store) Close() {
	s.control.Close()
	if s.own {
		s.pool.Close()
	}
}
