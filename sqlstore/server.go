package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// ServerConfig has the settings of a store in a database server. The zero value is ready to use.
type ServerConfig struct {
	// MaxConns is how many connections the store makes for steps at most, each in use while a
	// handler runs; besides them, up to 4 read and 2 serve the leases. Default: 8.
	MaxConns int
	// LeaseFor is the consumers' sluice.Config.LeaseFor: MySQL ends a session that idles for
	// longer, and PostgreSQL one that does so in a transaction. A handler that computes for longer
	// between two statements needs a longer one. A round trip of the store's own is given up after
	// a third of it. Default: 30 s.
	LeaseFor time.Duration
	// LockTimeout is how long a statement waits for a row that another session has locked. MySQL
	// counts whole seconds.
	// Default: 5 s.
	LockTimeout time.Duration
	// Schema is the schema of Sluice's tables in PostgreSQL, created if it is missing; handlers
	// keep the role's search_path. The other databases ignore it. Default: the first schema of the
	// role's search_path that exists, usually public.
	Schema string
	// NoMigrate lets opening only check that the tables are up to date, and fail otherwise: for
	// programs whose user may not create tables, see [Migrations]. Default: opening migrates.
	NoMigrate bool
	// AccessToken returns a token of Microsoft Entra ID: for https://database.windows.net/.default
	// for SQL Server and Azure SQL, for https://ossrdbms-aad.database.windows.net/.default for
	// PostgreSQL. It is called for each connection, and may be called by several goroutines. MySQL
	// ignores it. Default: user and password of the address.
	AccessToken func(ctx context.Context) (string, error)
	// Dial opens the socket of a connection to MySQL, MariaDB, SQL Server or Azure SQL, for example
	// through a tunnel. It may be called by several goroutines. Default: as a [net.Dialer] does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (cfg *ServerConfig) withDefaults() (ServerConfig, error) {
	var c ServerConfig
	if cfg != nil {
		c = *cfg
	}
	c.MaxConns = cmp.Or(c.MaxConns, 8)
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.LockTimeout = cmp.Or(c.LockTimeout, 5*time.Second)
	switch {
	case c.MaxConns < 0 || c.MaxConns > math.MaxInt16:
		return c, fmt.Errorf("%d connections: must be from 1 to %d", c.MaxConns, math.MaxInt16)
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return c, fmt.Errorf("lease of %v: must be from 1 s to 24 h", c.LeaseFor)
	case c.LockTimeout < time.Second || c.LockTimeout > time.Hour:
		return c, fmt.Errorf("lock timeout of %v: must be from 1 s to 1 h", c.LockTimeout)
	}
	return c, nil
}

// patience bounds a round trip of a step, so that several fit into a lease. A wait for a lock ends
// before it.
func (cfg *ServerConfig) patience() time.Duration {
	return max(cfg.LeaseFor/3, cfg.LockTimeout+time.Second)
}

const (
	readingConns = 4
	leaseConns   = 2
)

// openServer opens a store over a server's connections: some for steps, some that read, and some
// for the leases, which are renewed even if handlers use all of the first.
func openServer(ctx context.Context, name string, connector driver.Connector, d dialect, c ServerConfig) (*Store, error) {
	pool := func(conns int) *sql.DB {
		db := sql.OpenDB(&watchedConnector{Connector: connector, dialect: d, patience: c.patience()})
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		// The server ends sessions that idle for a lease.
		db.SetConnMaxIdleTime(c.LeaseFor / 2)
		return db
	}
	return prepareServer(ctx, name, pool, d, c)
}

// prepareServer makes a store of pools, and its tables.
func prepareServer(ctx context.Context, name string, pool func(conns int) *sql.DB, d dialect, c ServerConfig) (_ *Store, err error) {
	s := &Store{name: name, dialect: d, sql: d.statements(), busy: c.LockTimeout, patience: c.patience(), idle: c.LeaseFor}
	s.writer = pool(c.MaxConns)
	s.reader = pool(readingConns)
	s.leases = &Leases{name: name, dialect: d, sql: s.sql, busy: c.LockTimeout, db: pool(leaseConns)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	prepare := migrate
	if c.NoMigrate {
		prepare = current
	}
	for _, component := range []string{storeComponent, leaseComponent} {
		if err := prepare(ctx, s.reader, d, component); err != nil {
			return nil, outage(ctx, d, name, component, err)
		}
	}
	if err := ownSafe(ctx, s.reader, d); err != nil {
		return nil, outage(ctx, d, name, "check Sluice's tables", err)
	}
	return s, nil
}

// ownSafe returns an error if a table of Sluice's own is not safe any more. Tables that are missing
// are made when the store is opened.
func ownSafe(ctx context.Context, q querier, d dialect) error {
	for _, table := range []string{"sluice_checkpoints", "sluice_seen", "sluice_dead_letters", "sluice_leases"} {
		if err := d.safe(ctx, q, table); err != nil {
			return err
		}
	}
	return nil
}

// watchedConnector makes connections that are watched, and whose transactions end within a time.
type watchedConnector struct {
	driver.Connector
	dialect  dialect
	patience time.Duration
	// manyResults: a connection takes statements while the rows of another are open.
	manyResults bool
}

// watchable is a connection that says itself when a transaction was rolled back.
type watchable interface{ watchedBy(w *watch) }

// socketKey is the key of the context's value with a *net.Conn, in which [ServerConfig.dial] leaves
// the socket of the connection that a driver opens.
type socketKey struct{}

// dial opens a socket for a driver's connection.
func (cfg *ServerConfig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
	if socket, ok := ctx.Value(socketKey{}).(*net.Conn); ok {
		*socket = conn
	}
	return conn, err
}

// checkHost is the hint for [undialled].
const checkHost = "check host and port, and whether the server runs"

// undialled reports whether an error is that no socket could be opened.
func undialled(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// Connect opens a connection, unless the server is silent.
func (c *watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var socket net.Conn
	conn, err := c.Connector.Connect(context.WithValue(ctx, socketKey{}, &socket))
	if err != nil {
		return nil, err
	}
	ends := func(query string) bool { return c.dialect.ends(conn, query) }
	w := &watch{fault: c.dialect.fault, ends: ends, oneResult: !c.manyResults}
	if conn, ok := conn.(watchable); ok {
		conn.watchedBy(w)
	}
	return &watchedConn{conn.(fullConn), w, socket, c.patience}, nil
}
