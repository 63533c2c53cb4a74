package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sqlstore"
)

// mysqlServer is a database of its own in a server of MySQL or MariaDB. It is dropped at the end.
type mysqlServer struct {
	storeDatabase
	url  string // of the database that the user names
	name string // of the database that the checks make
}

var mysqlWords = func() words {
	w := portable
	w.create = "CREATE TABLE {rows} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, name VARCHAR(3), stored_at DATETIME(6)) ENGINE = InnoDB"
	w.lock = "SELECT n FROM {rows} WHERE id = {id} FOR UPDATE"
	w.patience = "SET innodb_lock_wait_timeout = 2"
	w.session = "SELECT CONNECTION_ID()"
	w.kill = "KILL {id}"
	w.mark = func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, "SAVEPOINT sluice_check")
		return "sluice_check", err
	}
	w.marked = func(ctx context.Context, tx *sql.Tx, mark string) (bool, error) {
		_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+mark)
		if errorNumber(err) == "1305" {
			return false, nil
		}
		return err == nil, err
	}
	w.ends = []string{"CREATE TABLE {rows}_{id} (id INT)", "COMMIT", "ROLLBACK"}
	w.apart, w.paused = 10*time.Second, 30*time.Second // before and after mysqlLimits
	w.snapshot = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	w.readOnly = true
	w.duplicate, w.timeout, w.deadlock = []string{"1062"}, []string{"1205"}, []string{"1213"}
	w.tooLong, w.refused, w.mayNotKill = []string{"1406"}, []string{"1290", "1792", "1836"}, []string{"1095"}
	w.next = map[string]string{
		"db.killed": "GRANT CONNECTION_ADMIN ON *.* to the user, and run the command again",
		"db.strict": "remove sql_mode from the address",
	}
	return w
}()

// OpenMySQL makes a [System] of a database of MySQL or MariaDB, which is named by its URL. It does
// not connect.
func OpenMySQL(address string, opts Options) (System, error) {
	u, err := url.Parse(address)
	if err == nil {
		_, err = sqlstore.MySQLConnector(address)
	} else {
		err = errors.New("not a URL: write mysql://user:password@host:3306/database, with %-encoding for special characters in the password")
	}
	if err != nil {
		return nil, err
	}
	m := &mysqlServer{url: address, name: "sluice_check_" + opts.ID}
	product := map[string]string{"mysql": "MySQL", "mariadb": "MariaDB"}[u.Scheme]
	w := mysqlWords
	return &databaseSystem{
		opts: opts, name: fmt.Sprintf("%s %s%s, as %s", product, u.Host, u.Path, u.User.Username()), leaseFor: 2 * time.Second,
		words:  &w,
		rights: m.rights,
		shown: func(ctx context.Context) (now time.Time, err error) {
			err = m.db.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&now)
			return now, err
		},
		creates: []string{
			"the database " + m.name + " with Sluice's tables and two more; it is dropped at the end",
			"sessions of this user are ended, those that the checks made themselves",
		},
		prepare: m.prepare, closes: m.closeAll,
	}, nil
}

// mysqlLimits make the server end a transaction that is paused before a claim that waits for it
// gives up, and not before a step beside it may be slow.
var mysqlLimits = sqlstore.ServerConfig{LeaseFor: 13 * time.Second, LockTimeout: 20 * time.Second}

// own is the URL of the database that the checks make.
func (m *mysqlServer) own() string {
	u, _ := url.Parse(m.url) // OpenMySQL has parsed it
	u.Path = "/" + m.name
	return u.String()
}

// rights tests the rights that the checks need, or only those that a pipeline needs.
func (m *mysqlServer) rights(ctx context.Context, checks bool) []Right {
	connector, err := sqlstore.MySQLConnector(m.url)
	if err == nil && m.db == nil {
		m.db = sql.OpenDB(connector)
	}
	var user, schema string
	var readOnly bool
	if err == nil {
		err = m.db.QueryRowContext(ctx, "SELECT CURRENT_USER(), DATABASE(), @@global.read_only").Scan(&user, &schema, &readOnly)
	}
	connect := Right{Name: "connect to the database"}
	if connect.grant(err, "correct what the error names: the address, the user, its password, the server's firewall"); !connect.Granted {
		return []Right{connect}
	}
	name, host, _ := strings.Cut(user, "@")
	user = fmt.Sprintf("'%s'@'%s'", name, host)
	write := Right{Name: "write to the server"}
	if readOnly {
		err = errors.New("the server is read-only (read_only is on): it is a replica")
	}
	write.grant(err, "name the primary")
	list := []Right{connect, write}
	if checks {
		create := Right{Name: "CREATE and DROP a database"}
		create.grant(m.mayCreate(ctx), fmt.Sprintf("as an administrator: GRANT ALL ON `sluice\\_check\\_%%`.* TO %s; it can be revoked after the check", user))
		list = append(list, create)
	}
	return append(list, m.tableRights(ctx, schema, user)...)
}

// mayCreate tests the rights on the database that the checks make, which does not exist: the server
// looks at the rights first.
func (m *mysqlServer) mayCreate(ctx context.Context) error {
	if _, err := m.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+m.name); err != nil {
		return err
	}
	const unknownDatabase = "1049"
	_, err := m.db.ExecContext(ctx, "CREATE TABLE "+m.name+".sluice_check (id INT)")
	if errorNumber(err) == unknownDatabase {
		return nil
	}
	return err
}

// tableRights tests the rights of docs/security.md on tables of a pipeline. EXPLAIN needs those of
// the statement.
func (m *mysqlServer) tableRights(ctx context.Context, schema, user string) (list []Right) {
	denied := []string{"1044", "1142", "1143"} // looked at first
	for _, t := range consumerRights {
		r := Right{Name: t.rights + " on " + t.table}
		var err error
		for _, right := range strings.Split(t.rights, ", ") {
			statement := map[string]string{
				"SELECT": "SELECT 1 FROM %s WHERE 1 = 0", "INSERT": "INSERT INTO %s (topic) VALUES ('')",
				"UPDATE": "UPDATE %s SET topic = '' WHERE 1 = 0", "DELETE": "DELETE FROM %s WHERE 1 = 0",
			}[right]
			if _, failure := m.db.ExecContext(ctx, "EXPLAIN "+fmt.Sprintf(statement, t.table)); isOne(failure, denied) {
				err = failure
			}
		}
		r.grant(err, fmt.Sprintf("as an administrator: GRANT %s ON %s.%s TO %s", t.rights, schema, t.table, user))
		list = append(list, r)
	}
	return list
}

func (m *mysqlServer) prepare(ctx context.Context, made *Ledger) (database, error) {
	made.Add("database "+m.name, func(ctx context.Context) error {
		m.close() // its sessions may hold locks
		_, err := m.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+m.name)
		return err
	})
	ctx, cancel := untilDone(ctx)
	defer cancel()
	if _, err := m.db.ExecContext(ctx, "CREATE DATABASE "+m.name); err != nil {
		return nil, err
	}
	m.table, m.rows, m.now, m.durably = effectsTable, rowsTable, "SELECT UTC_TIMESTAMP(6)", mysqlDurable
	m.again = func(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error)) (*sqlstore.Store, error) {
		limits := mysqlLimits
		limits.Dial = dial
		return sqlstore.OpenMySQL(ctx, m.own(), &limits)
	}
	var err error
	if m.store, err = m.again(ctx, nil); err != nil {
		return nil, err
	}
	if err := createTables(ctx, &m.storeDatabase, mysqlWords.create); err != nil {
		return nil, err
	}
	return &m.storeDatabase, nil
}

// createTables creates the tables of the effects and of the sessions.
func createTables(ctx context.Context, d *storeDatabase, create string) error {
	for _, statement := range []string{
		"CREATE TABLE " + d.table + " (id BIGINT NOT NULL PRIMARY KEY)",
		strings.ReplaceAll(create, "{rows}", d.rows),
	} {
		if _, err := d.store.DB().ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// mysqlDurable reads the settings of which commits depend.
func mysqlDurable(ctx context.Context, db *sql.DB) (found, problem string, err error) {
	var version, flush, doublewrite string
	var binlog bool
	var sync, others, packet int64
	err = db.QueryRowContext(ctx, `
		SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@log_bin, @@sync_binlog, @@max_allowed_packet,
			(SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB')`).
		Scan(&version, &flush, &doublewrite, &binlog, &sync, &packet, &others)
	switch {
	case err != nil:
	case others > 0:
		problem = "Sluice's tables are not InnoDB's: the server has no transactions"
	case flush != "1":
		problem = "innodb_flush_log_at_trx_commit is " + flush + " instead of 1"
	case binlog && sync != 1:
		problem = fmt.Sprintf("sync_binlog is %d instead of 1: after a crash the server and its replicas may differ", sync)
	case doublewrite == "0" || strings.EqualFold(doublewrite, "off"):
		problem = "innodb_doublewrite is off"
	}
	return fmt.Sprintf("version %s, InnoDB, innodb_flush_log_at_trx_commit %s, log_bin %t, sync_binlog %d, max_allowed_packet %d", version, flush, binlog, sync, packet), problem, err
}
