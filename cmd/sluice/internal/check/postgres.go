package check

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/databasetoken"
	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/pgstore"
)

// postgres is a database in PostgreSQL: a schema of its own, which is dropped at the end.
type postgres struct {
	store  *pgstore.Store
	pool   *pgxpool.Pool
	db     *sql.DB // over the pool
	url    string
	schema string
	// password returns a token of Entra ID; nil: the URL has the password.
	password func(context.Context) (string, error)
}

var postgresWords = func() words {
	w := portable
	w.create = "CREATE TABLE {rows} (id bigint PRIMARY KEY, n bigint NOT NULL, name varchar(3), stored_at timestamptz)"
	w.lock = "UPDATE {rows} SET n = n WHERE id = {id} RETURNING n"
	w.time = "INSERT INTO {rows} (id, n, stored_at) VALUES ({id}, 0, '2026-01-02 03:04:05.123457+00')"
	w.patience = "SET LOCAL lock_timeout = '2s'"
	w.session = "SELECT pg_backend_pid()"
	w.kill = "SELECT pg_terminate_backend({id})"
	w.mark = func(ctx context.Context, tx *sql.Tx) (xid string, err error) {
		err = tx.QueryRowContext(ctx, "SELECT pg_current_xact_id()::text").Scan(&xid)
		return xid, err
	}
	w.marked = func(ctx context.Context, tx *sql.Tx, xid string) (same bool, err error) {
		err = tx.QueryRowContext(ctx, "SELECT pg_current_xact_id()::text = $1", xid).Scan(&same)
		return same, err
	}
	w.ends = []string{"COMMIT AND CHAIN", "ROLLBACK AND CHAIN"}
	w.apart = poolLease - 5*time.Second
	w.snapshot = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	w.readOnly = true
	w.duplicate, w.timeout, w.deadlock = []string{"23505"}, []string{"55P03"}, []string{"40P01"}
	w.tooLong, w.refused, w.mayNotKill = []string{"22001"}, []string{"25006"}, []string{"42501"}
	return w
}()

// OpenPostgres makes a [System] of a PostgreSQL database. It does not connect.
func OpenPostgres(url string, opts Options) (System, error) {
	url, password, err := databasetoken.Postgres(url)
	if err != nil {
		return nil, err
	}
	cfg, err := internalpostgres.ParseURL(url)
	if err != nil {
		return nil, err
	}
	c := cfg.ConnConfig
	schema := "sluice_check_" + opts.ID
	w := postgresWords
	p := &postgres{url: url, schema: schema, password: password}
	return &databaseSystem{
		opts: opts, words: &w, name: fmt.Sprintf("PostgreSQL %s/%s, as %s", net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.Database, c.User), leaseFor: 2 * time.Second,
		rights: p.rights,
		shown:  p.clock,
		creates: []string{
			"the schema " + schema + " with Sluice's tables and two more; it is dropped at the end",
			"sessions of this role are terminated, those that the checks made themselves",
		},
		prepare: p.prepare,
		closes:  p.close,
	}, nil
}

// poolLease is what the pools are made for: their time limits follow from it.
const poolLease = 30 * time.Second

// open connects, and creates nothing.
func (p *postgres) open(ctx context.Context) error {
	if p.pool != nil {
		return nil
	}
	pool, err := pgstore.Connect(ctx, p.url, &pgstore.Config{LeaseFor: poolLease, Password: p.password})
	p.pool = pool
	return err
}

// rights tests the rights that the checks need, or only those that a pipeline needs.
func (p *postgres) rights(ctx context.Context, checks bool) []Right {
	connect := Right{Name: "connect to the database"}
	if connect.grant(p.open(ctx), "correct what the error names: the address, the role, its password, the server's firewall"); !connect.Granted {
		return []Right{connect}
	}
	list := []Right{connect}
	ask := func(name, sql, found, next string) {
		list = append(list, askRight(name, p.pool.QueryRow(ctx, sql), found, next))
	}
	var database, user string
	if err := p.pool.QueryRow(ctx, `SELECT quote_ident(current_database()), quote_ident(current_user)`).Scan(&database, &user); err != nil {
		connect.grant(err, "correct what the error names")
		return []Right{connect}
	}
	ask("write to the database", `SELECT NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::boolean`,
		"the server is a standby, or the role's transactions are read-only", "name the primary, and set default_transaction_read_only to off for the role")
	if checks {
		ask("CREATE a schema and tables", `SELECT has_database_privilege(current_user, current_database(), 'CREATE')`,
			"the role may not create a schema", fmt.Sprintf("as the database's owner: GRANT CREATE ON DATABASE %s TO %s; it can be revoked after the check", database, user))
	} else {
		ask("CREATE tables, if they are missing", `SELECT to_regclass('sluice_checkpoints') IS NOT NULL OR coalesce(has_schema_privilege(current_user, current_schema(), 'CREATE'), false)`,
			"Sluice's tables are missing, and the role may not create them in its schema", fmt.Sprintf("as the schema's owner: GRANT CREATE ON SCHEMA … TO %s, for the first start", user))
	}
	// The role owns what it creates, so SELECT, INSERT, UPDATE and DELETE follow. Tables of a
	// pipeline that exist already may belong to another role.
	for _, t := range consumerRights {
		ask(t.rights+" on "+t.table,
			fmt.Sprintf(`SELECT coalesce((SELECT bool_and(has_table_privilege(current_user, to_regclass('%s'), r)) FROM unnest(string_to_array('%s', ', ')) r), true)`, t.table, t.rights),
			"the table exists, and the role may not do all of them", fmt.Sprintf("as the table's owner: GRANT %s ON %s TO %s", t.rights, t.table, user))
	}
	return list
}

// consumerRights are those of docs/security.md on Sluice's tables.
var consumerRights = []struct{ table, rights string }{
	{"sluice_leases", "SELECT, INSERT, UPDATE"}, {"sluice_checkpoints", "SELECT, INSERT, UPDATE"},
	{"sluice_dead_letters", "SELECT, INSERT, UPDATE, DELETE"}, {"sluice_seen", "SELECT, INSERT, UPDATE, DELETE"},
}

// The tables of the checks, where they have a database or a schema of their own.
const (
	effectsTable = "check_effects"
	rowsTable    = "check_rows"
)

func (p *postgres) prepare(ctx context.Context, made *Ledger) (database, error) {
	name := pgx.Identifier{p.schema}.Sanitize()
	made.Add("schema "+p.schema, func(ctx context.Context) error {
		if p.store != nil {
			p.store.Close() // its connections may hold locks
			p.store = nil
		}
		_, err := p.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		return err
	})
	ctx, cancel := untilDone(ctx)
	defer cancel()
	store, err := pgstore.New(ctx, p.pool, &pgstore.Config{Schema: p.schema, LeaseFor: poolLease})
	if err != nil {
		return nil, err
	}
	p.store = store
	p.db = stdlib.OpenDBFromPool(p.pool)
	_, err = p.pool.Exec(ctx, "CREATE TABLE "+p.qualified(effectsTable)+" (id bigint PRIMARY KEY);"+strings.ReplaceAll(postgresWords.create, "{rows}", p.qualified(rowsTable)))
	return p, err
}

// qualified is the name of a table in the schema of the checks.
func (p *postgres) qualified(table string) string { return pgx.Identifier{p.schema, table}.Sanitize() }

func (p *postgres) sessions() (*sql.DB, string) { return p.db, p.qualified(rowsTable) }

func (p *postgres) close() {
	if p.db != nil {
		_ = p.db.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
}

func (p *postgres) leases() driver.LeaseStore           { return p.store.Leases() }
func (p *postgres) deadLetters() driver.DeadLetterStore { return p.store }

func (p *postgres) claim(ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
	return p.store.Claim(ctx, lease, incarnation)
}

func (p *postgres) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	return p.commitTo(ctx, p.store, step, effects, end)
}

func (p *postgres) commitTo(ctx context.Context, store *pgstore.Store, step driver.Step, effects []int64, end func() error) error {
	return store.Commit(ctx, step, func(ctx context.Context, tx pgx.Tx) error {
		if len(effects) > 0 {
			if _, err := tx.Exec(ctx, "INSERT INTO "+p.qualified(effectsTable)+" SELECT unnest($1::bigint[])", effects); err != nil {
				return err
			}
		}
		if end != nil {
			return end()
		}
		return nil
	})
}

func (p *postgres) effects(ctx context.Context) ([]int64, error) {
	rows, err := p.pool.Query(ctx, "SELECT id FROM "+p.qualified(effectsTable)+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (p *postgres) clock(ctx context.Context) (now time.Time, err error) {
	err = p.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

func (p *postgres) ping(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, "SELECT 1")
	return err
}

// durable reads the settings of which commits depend.
func (p *postgres) durable(ctx context.Context) (found, problem string, err error) {
	var version, fsync, synchronous, pages string
	err = p.pool.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&version, &fsync, &synchronous, &pages)
	switch {
	case err != nil:
	case fsync == "off":
		problem = "fsync is off"
	case synchronous == "off":
		problem = "synchronous_commit is off for this role and database"
	case pages == "off":
		problem = "full_page_writes is off"
	}
	return fmt.Sprintf("version %s, fsync %s, synchronous_commit %s, full_page_writes %s", version, fsync, synchronous, pages), problem, err
}

// losing connects once more.
func (p *postgres) losing(ctx context.Context, nth int) (lossy, error) {
	cfg := p.pool.Config()
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	l := &lossyPostgres{postgres: p, conns: lossyConns{nth: int64(nth), counts: executes}}
	cfg.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return &lossyConn{Conn: conn, conns: &l.conns}, nil
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, errors.New("cannot connect once more")
	}
	l.pool = pool
	if l.own, err = pgstore.New(ctx, pool, &pgstore.Config{Schema: p.schema, LeaseFor: poolLease}); err != nil {
		pool.Close()
		return nil, err
	}
	return l, nil
}

type lossyPostgres struct {
	*postgres
	pool  *pgxpool.Pool
	own   *pgstore.Store
	conns lossyConns
}

func (l *lossyPostgres) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	return l.commitTo(ctx, l.own, step, effects, l.conns.armAfter(end))
}

func (l *lossyPostgres) close() {
	l.own.Close()
	l.pool.Close()
}

// executes reports whether one of the messages runs statements, and does not only prepare them.
func executes(b []byte) bool {
	for len(b) >= 5 {
		if b[0] == 'E' || b[0] == 'Q' {
			return true
		}
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		b = b[min(n, len(b)):]
	}
	return false
}
