package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// NewMySQL makes a store over the program's own [*sql.DB], which stays open when the store is
// closed, and brings the tables up to date. Its driver is github.com/go-sql-driver/mysql, which may
// be wrapped, for traces or metrics. NewMySQL tries out what the store needs of it, and says what
// is missing: utf8mb4, a strict sql_mode, autocommit, and loc=UTC where parseTime=true. Otherwise
// it is as [OpenMySQL], also without clientFoundRows.
//
// The store borrows a connection for each step, read or renewal. It sets the limits of a step in
// the session, and sets them back, in two round trips. It takes at most [ServerConfig.MaxConns] and
// 6 more connections at once; db must allow 3 at least, and should belong to one store. AccessToken
// and Dial are ignored. With multiStatements=true the end of a transaction inside of a text is
// found before the commit, and is not refused.
func NewMySQL(ctx context.Context, db *sql.DB, cfg *ServerConfig) (*Store, error) {
	c, err := cfg.withDefaults()
	if err := cmp.Or(err, checkHandle(db)); err != nil {
		return nil, err
	}
	h := &handleConnector{db: db, kind: &mysqlHandle{ServerConfig: c}, fault: mysqlDialect{}.fault, patience: c.patience()}
	single := sql.OpenDB(h)
	defer single.Close()
	single.SetMaxIdleConns(-1)
	bounded, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	conn, err := single.Conn(bounded)
	if err != nil {
		return nil, outage(ctx, mysqlDialect{}, ofHandle, "connect", err)
	}
	defer conn.Close()
	name, d, isolation, err := tryMySQL(bounded, conn)
	if err != nil {
		if name == ofHandle {
			err = h.unlike("github.com/go-sql-driver/mysql", err)
		}
		return nil, outage(ctx, mysqlDialect{}, name, "check the *sql.DB", err)
	}
	conn.Close() // the handle may allow few
	h.kind = newMySQLHandle(c, isolation)
	return newHandle(ctx, name, h, d, c)
}

// tryMySQL finds out whether a handle is one that a store can use. It changes nothing.
func tryMySQL(ctx context.Context, conn *sql.Conn) (name string, d mysqlDialect, isolation string, err error) {
	name = ofHandle
	var mode, client, connection string
	var autocommit bool
	if err = conn.QueryRowContext(ctx, "SELECT COALESCE(DATABASE(), ''), @@sql_mode, @@character_set_client, @@character_set_connection, @@autocommit").
		Scan(&name, &mode, &client, &connection, &autocommit); err != nil {
		return name, d, "", err
	}
	switch {
	case name == "":
		return ofHandle, d, "", errors.New("its sessions have no database: name one in the data source name")
	case !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "STRICT_TRANS_TABLES"):
		return name, d, "", errors.New("its sessions cut values that do not fit: add STRICT_TRANS_TABLES to sql_mode")
	case client != "utf8mb4" || connection != "utf8mb4":
		return name, d, "", fmt.Errorf("its sessions use the character set %s, which does not have every text: add charset=utf8mb4 to the data source name", client)
	case !autocommit:
		return name, d, "", errors.New("its sessions do not commit single statements: remove autocommit=0")
	}
	if d, err = mysqlDialectOf(ctx, conn); err != nil {
		return name, d, "", err
	}
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	var back storedTime
	if _, err = one(ctx, conn, "SELECT CAST(? AS DATETIME(6))", []any{d.time(moment)}, &back); err != nil {
		return name, d, "", err
	}
	if !back.Equal(moment) {
		return name, d, "", fmt.Errorf("its driver takes the time %v for %v: remove loc from the data source name, or set it to UTC", moment, back.Time)
	}
	for _, isolation = range []string{"transaction_isolation", "tx_isolation"} { // MariaDB has the former since 11.1
		if _, err = one(ctx, conn, "SELECT @@SESSION."+isolation, nil, new(string)); err == nil {
			break
		}
	}
	if err != nil {
		return name, d, "", err
	}
	_, err = conn.ExecContext(ctx, "SELECT sluice_no_such_column")
	if _, ok := errors.AsType[*mysql.MySQLError](err); !ok {
		return name, d, "", fmt.Errorf("the errors of its driver are not those of github.com/go-sql-driver/mysql (a wrong statement is %T: %w): use that driver, and a wrapper that keeps its errors", err, err)
	}
	return name, d, isolation, nil
}

// mysqlHandle is [handleKind] for MySQL and MariaDB.
type mysqlHandle struct {
	ServerConfig
	set, reset string
}

// newMySQLHandle makes the statements that set the limits of a step in a session, see
// [mysqlConfig], and set them back.
func newMySQLHandle(c ServerConfig, isolation string) *mysqlHandle {
	h := &mysqlHandle{ServerConfig: c}
	seconds := func(d time.Duration) string { return fmt.Sprint(int(math.Ceil(d.Seconds()))) }
	var keep, set, reset []string
	for i, v := range [][2]string{
		{isolation, "'READ-COMMITTED'"},
		{"innodb_lock_wait_timeout", seconds(c.LockTimeout)}, {"lock_wait_timeout", seconds(c.LockTimeout)},
		{"wait_timeout", seconds(c.LeaseFor)}, {"net_read_timeout", seconds(c.LeaseFor)}, {"net_write_timeout", seconds(c.LeaseFor)},
	} {
		kept := fmt.Sprint("@sluice_kept_", i)
		keep = append(keep, kept+" = @@SESSION."+v[0])
		set = append(set, "@@SESSION."+v[0]+" = "+v[1])
		reset = append(reset, "@@SESSION."+v[0]+" = "+kept)
	}
	h.set = "SET " + strings.Join(append(keep, set...), ", ")
	h.reset = "SET " + strings.Join(reset, ", ")
	return h
}

// wrap: [mysqlConn] loads rows by a statement of the driver's, which needs no connection of its
// own.
func (*mysqlHandle) wrap(c *handleConn) fullConn { return &mysqlConn{c} }

func (h *mysqlHandle) begin(ctx context.Context, c *handleConn) error {
	if err := c.exec(ctx, h.set); err != nil {
		c.broken = true
		return err
	}
	c.changed = true
	return c.exec(ctx, "START TRANSACTION")
}

func (*mysqlHandle) end(ctx context.Context, c *handleConn, how string) error {
	return c.exec(ctx, how)
}

func (h *mysqlHandle) restore(ctx context.Context, c *handleConn) error {
	if !c.changed {
		return nil
	}
	return c.exec(ctx, h.reset)
}

func (*mysqlHandle) failure(err error) error { return err }
