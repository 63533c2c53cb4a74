package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/tables"
)

// OpenSQLServer opens a database of SQL Server 2019 or later, or of Azure SQL, and brings its tables
// up to date. address is a URL such as sqlserver://user:password@host:1433?database=name&encrypt=true,
// whose parameters are those of github.com/microsoft/go-mssqldb; without encrypt only the login is
// encrypted, and the server's certificate is not checked. [ServerConfig.AccessToken] is for Microsoft
// Entra ID. The context is for opening only. Errors never contain the password. A nil cfg takes every
// default.
//
// It was tested against Babelfish, a server that speaks SQL Server's protocol and T-SQL, and
// follows Microsoft's documentation where the two differ; it was not yet tested against SQL Server.
//
// A handler writes parameters as @p1, @p2 and so on, or with [sql.Named]. It must close the rows of
// a query before its next statement. Its transaction is READ COMMITTED, and XACT_ABORT is off: an
// error undoes its statement alone, unless the server or a trigger rolls the transaction back,
// after which nothing is written. Statements that commit, roll back or begin a transaction are
// refused; one that a stored procedure or dynamic SQL contains is found before the commit, and the
// checkpoint does not move.
//
// A Claim ends the session of a paused owner that holds the checkpoint, by KILL, after half of
// [ServerConfig.LockTimeout], if the login has the rights VIEW SERVER STATE and ALTER ANY CONNECTION: only
// a session of the same login, program name and database. Without the rights it waits for LockTimeout.
//
// The database needs compatibility level 130 or higher. With READ_COMMITTED_SNAPSHOT off, what
// reads checkpoints waits for handlers that are running: switch it on, as in Azure SQL.
func OpenSQLServer(ctx context.Context, address string, cfg *ServerConfig) (*Store, error) {
	name, connector, c, err := mssqlServer(address, cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(patientConnector{connector, c.patience()})
	defer db.Close()
	if err := mssqlCheck(ctx, db); err != nil {
		return nil, outage(ctx, mssqlDialect{}, name, "connect", err)
	}
	return openServer(ctx, name, connector, mssqlDialect{}, c)
}

type mssqlDialect struct {
	plain bool // the connections copy nothing in bulk
}

func (mssqlDialect) inserting(context.Context, querier, string) (string, bool, error) {
	return "INSERT", true, nil
}

// savepoint: SQL Server does not release one.
func (mssqlDialect) savepoint(name string) savepoint {
	return savepoint{"SAVE TRANSACTION " + name, "", []string{"ROLLBACK TRANSACTION " + name}}
}

func (mssqlDialect) statements() *statements    { return mssqlStatements }
func (mssqlDialect) rebind(query string) string { return mssqlNumbered(query) }
func (mssqlDialect) variables() int             { return 2098 } // of 2100, sp_executesql has two
func (mssqlDialect) chunk() int                 { return 1000 } // rows of VALUES

func (mssqlDialect) steps(component string) []step {
	if component == leaseComponent {
		return mssqlLeaseSteps
	}
	return mssqlStoreSteps
}

func (mssqlDialect) safe(ctx context.Context, q querier, table string) error {
	return tables.CheckSQLServer(ctx, q, table)
}

func (mssqlDialect) catalog() *tables.Catalog { return tables.SQLServer }

// kept: a rollback undoes what was written to every table but external ones.
func (mssqlDialect) kept(context.Context, querier) (bool, error) { return false, nil }

// script leaves a migration whole: it is one batch.
func (mssqlDialect) script(text string) []string { return []string{text} }

// txOptions: the fence reads the row as it was committed last.
func (mssqlDialect) txOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

func (mssqlDialect) quote(name string) string {
	return "[" + strings.ReplaceAll(clean(name), "]", "]]") + "]"
}

func (mssqlDialect) first(cond string) string {
	return "id IN (SELECT id FROM sluice_dead_letters WHERE " + cond + " ORDER BY id OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY)"
}

var mssqlEarliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)

// time is a time of the years that a column holds.
func (mssqlDialect) time(t time.Time) any {
	if t = storable(t); t.Before(mssqlEarliest) {
		t = mssqlEarliest
	}
	return mssqlTime{t.Truncate(time.Microsecond)}
}

// The name of a transaction's lock is one that the handler does not know: every end of the
// transaction releases it, whichever procedure or dynamic SQL has ended it.
const (
	mssqlMark = `sp_getapplock @Resource = ?, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0`
	mssqlMine = `XACT_STATE() = 1 AND APPLOCK_MODE(N'public', ?, N'Transaction') = N'Exclusive'`

	mssqlIntact = `
		SELECT @@TRANCOUNT, CAST(CASE WHEN XACT_STATE() = 1 AND APPLOCK_MODE(N'public', @p1, N'Transaction') = N'Exclusive' THEN 1 ELSE 0 END AS bit)`
)

// lock also takes a lock that belongs to the transaction: a trigger on a table of [Tx.Insert] may
// roll back, so each transaction is marked. The driver takes a transaction that was committed by a
// procedure for one that was rolled back, and refuses every statement after it. The time that lock
// writes tells the two apart.
func (d mssqlDialect) lock(ctx context.Context, t *transaction, args []any) (bool, error) {
	t.mark = "sluice " + rand.Text()
	receipt := d.time(time.Now())
	t.ended = func(ctx context.Context) (bool, error) {
		return one(ctx, t.reader, d.statements().Committed, slices.Concat(args[:4], []any{receipt}), new(int))
	}
	var found, result int
	if _, err := one(ctx, t, d.statements().Lock, slices.Concat(args, []any{t.mark, receipt}), &found, &result); err != nil {
		return false, err
	}
	if result < 0 {
		return false, fmt.Errorf("sp_getapplock returned %d", result)
	}
	return found == 1, nil
}

// guard has nothing to do: lock has made the mark.
func (mssqlDialect) guard(context.Context, *transaction) error { return nil }

// intact also finds a transaction inside the transaction: the COMMIT of the store would end that
// one alone, without an error.
func (mssqlDialect) intact(ctx context.Context, t *transaction) error {
	var level int
	var intact bool
	_, err := one(ctx, t, mssqlIntact, []any{t.mark}, &level, &intact)
	switch {
	case mssqlUndone(err):
		return t.undone(ctx)
	case err != nil:
		return err
	case !intact || level == 0:
		return errEnded
	case level > 1:
		return errNested
	}
	return nil
}
