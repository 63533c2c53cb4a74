package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/config/databasetoken"
	"github.com/sluice-go/sluice/sqlstore"
)

// sqlServer is a database of SQL Server or Azure SQL. The checks run in the database itself,
// because the settings that count are those of a database.
type sqlServer struct {
	storeDatabase
	url     string
	token   databasetoken.Token // nil: the URL has the password
	id      string
	earlier []string // Sluice's tables that were there
}

var sqlServerWords = func() words {
	w := portable
	w.create = "CREATE TABLE {rows} (id bigint PRIMARY KEY, n bigint NOT NULL, name nvarchar(3), stored_at datetime2(6))"
	w.lock = "UPDATE {rows} SET n = n OUTPUT 1 WHERE id = {id}"
	w.hints = "SELECT n FROM {rows} WITH (UPDLOCK, HOLDLOCK) WHERE id = {id}"
	w.patience = "SET LOCK_TIMEOUT 2000"
	w.session = "SELECT @@SPID"
	w.kill = "KILL {id}"
	w.mark = func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, "EXEC sp_getapplock @Resource = N'sluice check', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 2000")
		return "sluice check", err
	}
	w.marked = func(ctx context.Context, tx *sql.Tx, mark string) (there bool, err error) {
		err = tx.QueryRowContext(ctx, "SELECT CAST(CASE WHEN APPLOCK_MODE(N'public', @p1, N'Transaction') = N'Exclusive' THEN 1 ELSE 0 END AS bit)", mark).Scan(&there)
		return there, err
	}
	w.ends = []string{"EXEC(N'COMMIT; BEGIN TRANSACTION')", "EXEC(N'ROLLBACK; BEGIN TRANSACTION')"}
	w.aborts = []string{"SET XACT_ABORT ON; " + w.long}
	w.apart = 10 * time.Second // a wait for a lock ends before it
	w.snapshot = &sql.TxOptions{Isolation: sql.LevelSnapshot}
	w.duplicate, w.timeout, w.deadlock = []string{"2601", "2627"}, []string{"1222"}, []string{"1205"}
	w.tooLong, w.mayNotKill = []string{"2628", "8152"}, []string{"6102"}
	w.next = map[string]string{
		"db.killed":   "GRANT ALTER ANY CONNECTION TO the login (Azure SQL: GRANT KILL DATABASE CONNECTION TO the user), and run the command again; it can be revoked after that",
		"db.paused":   "GRANT VIEW SERVER STATE and ALTER ANY CONNECTION TO the login: then a claim ends the session of a paused process",
		"db.readers":  "ALTER DATABASE … SET READ_COMMITTED_SNAPSHOT ON, the default of Azure SQL",
		"db.snapshot": "ALTER DATABASE … SET ALLOW_SNAPSHOT_ISOLATION ON, the default of Azure SQL",
		"db.hints":    "do not rely on hints in handlers and statements: lock a row by an UPDATE",
	}
	return w
}()

// sqlServerLimits have a claim give up soon, where the login may not end the session of a paused
// process.
var sqlServerLimits = sqlstore.ServerConfig{LeaseFor: 4 * time.Second, LockTimeout: 6 * time.Second}

// OpenSQLServer makes a [System] of a database of SQL Server or Azure SQL, which is named by its
// URL. It does not connect.
func OpenSQLServer(address string, opts Options) (System, error) {
	clean, token, err := databasetoken.SQLServer(address)
	if err == nil {
		_, err = sqlstore.SQLServerConnector(clean, token)
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(clean)
	if err != nil {
		return nil, errors.New("not a URL: write sqlserver://user:password@host:1433?database=name, with %-encoding for special characters in the password")
	}
	s := &sqlServer{url: clean, token: token, id: opts.ID}
	s.table, s.rows = "sluice_check_"+opts.ID+"_effects", "sluice_check_"+opts.ID+"_rows"
	user := u.User.Username()
	if token != nil {
		user = "Entra ID"
	}
	w := sqlServerWords
	return &databaseSystem{
		opts: opts, name: fmt.Sprintf("SQL Server %s/%s, as %s", u.Host, u.Query().Get("database"), user), leaseFor: 2 * time.Second,
		words:  &w,
		rights: s.rights,
		shown: func(ctx context.Context) (now time.Time, err error) {
			err = s.db.QueryRowContext(ctx, "SELECT SYSUTCDATETIME()").Scan(&now)
			return now, err
		},
		creates: []string{
			"the tables " + s.table + " and " + s.rows + ", which are dropped at the end",
			"Sluice's tables, if the database does not have them; they are dropped at the end, unless others have written to them",
			"rows of the namespace sluice-check in Sluice's tables, which are deleted at the end",
			"sessions of this user are ended, those that the checks made themselves",
		},
		prepare: s.prepare, closes: s.closeAll,
	}, nil
}

// rights tests the rights that the checks need, or only those that a pipeline needs.
func (s *sqlServer) rights(ctx context.Context, checks bool) []Right {
	connector, err := sqlstore.SQLServerConnector(s.url, s.token)
	if err == nil && s.db == nil {
		s.db = sql.OpenDB(connector)
	}
	var user, schema string
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT QUOTENAME(USER_NAME()), SCHEMA_NAME()").Scan(&user, &schema)
	}
	connect := Right{Name: "connect to the database"}
	if connect.grant(err, "correct what the error names: the address, the user, its password, the server's firewall"); !connect.Granted {
		return []Right{connect}
	}
	list := []Right{connect}
	ask := func(name, condition, found, next string) {
		row := s.db.QueryRowContext(ctx, "SELECT CAST(CASE WHEN "+condition+" THEN 1 ELSE 0 END AS bit)")
		list = append(list, askRight(name, row, found, next))
	}
	// A server that does not know the property has one kind of database.
	ask("write to the database", "COALESCE(CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(20)), N'READ_WRITE') <> N'READ_ONLY'",
		"the database is read-only, as a secondary replica is", "name the primary, without ApplicationIntent=ReadOnly")
	there := "OBJECT_ID(N'sluice_checkpoints', N'U') IS NOT NULL"
	if checks {
		there = "1 = 0"
	}
	ask("CREATE tables", fmt.Sprintf(there+" OR HAS_PERMS_BY_NAME(DB_NAME(), 'DATABASE', 'CREATE TABLE') = 1 AND HAS_PERMS_BY_NAME(N'%s', 'SCHEMA', 'ALTER') = 1", schema),
		"the user may not create tables in its schema", fmt.Sprintf("as the database's owner: GRANT CREATE TABLE TO %s; GRANT ALTER ON SCHEMA::%s TO %[1]s; they can be revoked after the check", user, schema))
	for _, t := range consumerRights {
		var conditions []string
		for _, right := range strings.Split(t.rights, ", ") {
			conditions = append(conditions, fmt.Sprintf("HAS_PERMS_BY_NAME(N'%s', 'OBJECT', '%s') = 1", t.table, right))
		}
		ask(t.rights+" on "+t.table, fmt.Sprintf("OBJECT_ID(N'%s', N'U') IS NULL OR (%s)", t.table, strings.Join(conditions, " AND ")),
			"the table exists, and the user may not do all of them", fmt.Sprintf("as the table's owner: GRANT %s ON %s TO %s", t.rights, t.table, user))
	}
	return list
}

// sluiceTables are the tables of a store, those with events and owners first.
var sluiceTables = []string{"sluice_checkpoints", "sluice_leases", "sluice_dead_letters", "sluice_seen", "sluice_schema"}

func (s *sqlServer) existing(ctx context.Context, q querier) (list []string, err error) {
	for _, table := range sluiceTables {
		var there bool
		if err := q.QueryRowContext(ctx, "SELECT CAST(CASE WHEN OBJECT_ID(@p1, N'U') IS NULL THEN 0 ELSE 1 END AS bit)", table).Scan(&there); err != nil {
			return nil, err
		}
		if there {
			list = append(list, table)
		}
	}
	return list, nil
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *sqlServer) prepare(ctx context.Context, made *Ledger) (_ database, err error) {
	if s.earlier, err = s.existing(ctx, s.db); err != nil {
		return nil, err
	}
	for _, table := range []string{s.table, s.rows} {
		made.Add("table "+table, func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
			return err
		})
	}
	made.Add("tables and rows of Sluice", s.remove)
	ctx, cancel := untilDone(ctx)
	defer cancel()
	s.now, s.durably = "SELECT SYSUTCDATETIME()", sqlServerDurable
	s.again = func(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error)) (*sqlstore.Store, error) {
		limits := sqlServerLimits
		limits.Dial, limits.AccessToken = dial, s.token
		return sqlstore.OpenSQLServer(ctx, s.url, &limits)
	}
	if s.store, err = s.again(ctx, nil); err != nil {
		return nil, err
	}
	if err := createTables(ctx, &s.storeDatabase, sqlServerWords.create); err != nil {
		return nil, err
	}
	return &s.storeDatabase, nil
}

// remove deletes the rows of the checks, and drops Sluice's tables if they were made by this run
// and nobody has written to them.
func (s *sqlServer) remove(ctx context.Context) error {
	s.close() // its sessions may hold locks
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	tables, err := s.existing(ctx, tx)
	if err != nil {
		return err
	}
	used, lock := len(s.earlier) > 0, ""
	if !used {
		lock = " WITH (TABLOCKX, HOLDLOCK)" // nobody writes between the count and the drop
	}
	for _, table := range tables {
		if table == "sluice_schema" {
			continue
		}
		var rows int64
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+lock+" WHERE namespace = @p1 AND topic = @p2", group(Options{ID: s.id}).Namespace, s.id); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT COUNT_BIG(*) FROM "+table).Scan(&rows); err != nil {
			return err
		}
		used = used || rows > 0
	}
	for _, table := range slices.Backward(tables) {
		if used {
			break
		}
		if _, err := tx.ExecContext(ctx, "DROP TABLE "+table); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// sqlServerDurable reads the settings of which commits depend, and those that the other checks
// show.
func sqlServerDurable(ctx context.Context, db *sql.DB) (found, problem string, err error) {
	var version string
	var delayed, snapshot, committed sql.NullString
	err = db.QueryRowContext(ctx, `
		SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), delayed_durability_desc, snapshot_isolation_state_desc,
			CASE WHEN is_read_committed_snapshot_on = 1 THEN N'ON' ELSE N'OFF' END
		FROM sys.databases WHERE name = DB_NAME()`).Scan(&version, &delayed, &snapshot, &committed)
	if strings.EqualFold(delayed.String, "FORCED") {
		problem = "delayed durability is FORCED: a commit is reported before it is on disk"
	}
	return fmt.Sprintf("version %s, delayed durability %s, READ_COMMITTED_SNAPSHOT %s, snapshot isolation %s", version, delayed.String, committed.String, snapshot.String), problem, err
}
