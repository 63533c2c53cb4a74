package sqlstore

import (
	_ "embed"
	"strconv"
	"strings"
)

// The migrations of SQL Server. A step is one transaction, with its DDL.
var (
	//go:embed migrations/mssql/leases-1.sql
	mssqlLeases1 string
	//go:embed migrations/mssql/leases-2.sql
	mssqlLeases2 string
	//go:embed migrations/mssql/store-1.sql
	mssqlStore1 string
	//go:embed migrations/mssql/store-2.sql
	mssqlStore2 string
	//go:embed migrations/mssql/store-3.sql
	mssqlStore3 string

	mssqlLeaseSteps = []step{{sql: mssqlLeases1, oldest: 1}, {sql: mssqlLeases2, oldest: 1}}
	mssqlStoreSteps = []step{{sql: mssqlStore1, oldest: 1}, {sql: mssqlStore2, oldest: 1}, {sql: mssqlStore3, oldest: 1}}
)

// mssqlNumbered replaces each ? of a statement by @p1, @p2 and so on, which it may use more than
// once.
func mssqlNumbered(query string) string {
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("@p" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

const (
	// The columns' clock; it stands still within a statement.
	mssqlNow = `CAST(SYSUTCDATETIME() AS datetime2(6))`
	// A group's key: = compares texts without their trailing blanks, a hash does not.
	mssqlGroupKey  = `CAST(HASHBYTES('SHA2_256', CONCAT(?, NCHAR(31), ?, NCHAR(31), ?)) AS binary(32))`
	mssqlGroupKey1 = `CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32))`
)

var mssqlTerms = strings.NewReplacer(
	"{now}", mssqlNow,
	"{until}", `DATEADD(millisecond, CAST(? AS int), `+mssqlNow+`)`,
	"{left}", `COALESCE(DATEDIFF_BIG(millisecond, `+mssqlNow+`, expires_at), 0)`,
	"{shifted}", `DATEADD(millisecond, DATEDIFF(millisecond, renewed_at, expires_at), `+mssqlNow+`)`,
	"{group}", `group_key = `+mssqlGroupKey,
	"{key}", `group_key, namespace, topic, consumer_group, partition`,
	"{values}", mssqlGroupKey1+`, ?, ?, ?, ?`, // they come first in every INSERT
	"{if missing}", ``,
	"{higher epoch}", `(SELECT MAX(e) FROM (VALUES (epoch + 1), (?)) AS v (e))`,
	"{numbers}", `(SELECT CAST(value AS bigint) FROM OPENJSON(?))`,
	"{names}", `(SELECT CAST(value AS nvarchar(64)) COLLATE Latin1_General_100_BIN2 AS name FROM OPENJSON(?)) AS list`,
	"{by status}", `WITH (INDEX (sluice_dead_letters_status))`, // others begin with group and partition too
	"{name}", `name`,
)

// mssqlPark updates a dead letter, and inserts it if it is missing. Of two processes that insert it
// at the same time one gets a duplicate, and updates it.
const (
	mssqlPark = mssqlParkAgain + `;
		IF @@ROWCOUNT = 0
		BEGIN TRY
			INSERT INTO sluice_dead_letters (group_key, namespace, topic, consumer_group, incarnation, partition, sequence_number,
				event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id,
				correlation_id, content_type, has_body, body, properties)
			VALUES (` + mssqlGroupKey1 + `, @p1, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9, @p10, @p11, @p12, @p13, @p14, @p15,
				@p16, @p17, @p18, CONVERT(varbinary(max), @p19), @p20);
		END TRY
		BEGIN CATCH
			IF ERROR_NUMBER() NOT IN (2601, 2627) THROW;
			` + mssqlParkAgain + `;
		END CATCH`
	mssqlParkAgain = `
		UPDATE sluice_dead_letters SET failed_at = @p9, error = @p10, attempts = @p11, status = @p12, next_attempt = @p13
		WHERE group_key = ` + mssqlGroupKey1 + ` AND partition = @p5 AND incarnation = @p4 AND sequence_number = @p6`
)

var mssqlOwn = statements{
	// An UPDATE reads the row as it was committed last, and locks it until the end of the
	// transaction, whatever the database's row versioning. Babelfish ignores the hint UPDLOCK of a
	// SELECT. The time that it writes is seen later only if the handler commits, see Committed.
	Lock: `
		UPDATE sluice_checkpoints SET updated_at = @p9 WHERE ` + ofLease + ` AND sequence_number = ?;
		DECLARE @found int = @@ROWCOUNT, @result int = 0;
		IF @found = 1 EXEC @result = ` + mssqlMark + `;
		SELECT @found, @result`,
	Committed: `SELECT 1 FROM sluice_checkpoints WHERE ` + ofKey + ` AND updated_at = ?`,
	// Within an UPDATE @@TRANCOUNT may count a transaction of the statement's own.
	MoveIntact: `
		DECLARE @level int = @@TRANCOUNT, @mine int = CASE WHEN ` + mssqlMine + ` THEN 1 ELSE 0 END;
		IF @level = 1 AND @mine = 1` + strings.Replace(portable.Move, "WHERE", "OUTPUT 1 WHERE", 1),
	// SQL Server does not log a row that stays as it is: the time must change, also between two
	// ticks of the clock.
	Probe: `
		UPDATE sluice_checkpoints
		SET updated_at = CASE WHEN updated_at <> {now} THEN {now} ELSE DATEADD(microsecond, 1, updated_at) END
		WHERE ` + ofLease + ` AND sequence_number = ?`,

	ForgetDedup: `
		DELETE FROM sluice_seen
		WHERE ` + ofKey + ` AND origin_key = CAST(HASHBYTES('SHA2_256', ?) AS binary(32)) AND ([top] <= ? OR step >= ?)`,
	// ForgetDedup, which comes before it, has removed the row of the same step.
	StoreDedup: `
		INSERT INTO sluice_seen (origin_key, {key}, origin, step, epoch, low, [top], seen_at, ids)
		VALUES (CAST(HASHBYTES('SHA2_256', @p5) AS binary(32)), {values}, ?, ?, ?, ?, ?, ?, ?)`,
	ReadDedup: `
		SELECT origin, s.epoch, low, [top], seen_at, ids FROM sluice_seen AS s
		JOIN (SELECT sequence_number FROM sluice_checkpoints WHERE ` + ofKey + `) AS c ON step <= c.sequence_number
		WHERE s.group_key = ` + mssqlGroupKey1 + ` AND s.partition = @p4 ORDER BY step`,

	Park: mssqlPark,
	// Keys that differ in trailing blanks are equal for =, <> and GROUP BY, but not for DATALENGTH.
	Held: `
		SELECT partition_key, incarnation, MIN(sequence_number) FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status <> 'discarded' AND DATALENGTH(partition_key) > 0 AND id NOT IN {numbers}
		GROUP BY partition_key, DATALENGTH(partition_key), incarnation`,
	Due: `
		SELECT TOP (@p5) ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status = 'retry' AND next_attempt <= {now}
		ORDER BY sequence_number, id`,
	Uncopied: `
		SELECT TOP (@p6) ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND copied = 0 AND id > ? ORDER BY id`,

	KeyIs: `partition_key + N'.' = ? + N'.'`, // = does not compare trailing blanks
	// Of the sessions in the way, those of this program alone may be ended. Without the right to
	// see them there are none.
	Session: `SELECT CAST(@@SPID AS bigint)`,
	Blockers: `
		SELECT CAST(s.session_id AS bigint), s.original_login_name, COALESCE(s.program_name, N''),
			CAST(CASE WHEN s.original_login_name = ORIGINAL_LOGIN() AND s.program_name = APP_NAME() AND s.database_id = DB_ID() THEN 1 ELSE 0 END AS bit)
		FROM sys.dm_exec_requests AS r JOIN sys.dm_exec_sessions AS s ON s.session_id = r.blocking_session_id
		WHERE r.session_id = ?`,
	EndSession: `KILL %d`,

	StatusIn:      `status IN (SELECT value COLLATE Latin1_General_100_BIN2 FROM OPENJSON(?))`,
	ErrorContains: `CHARINDEX(LOWER(?), LOWER(error)) > 0`,

	SchemaTable: `
IF OBJECT_ID(N'sluice_schema', N'U') IS NULL CREATE TABLE sluice_schema (
	component         nvarchar(64) NOT NULL PRIMARY KEY,
	version           bigint       NOT NULL,
	oldest_compatible bigint       NOT NULL, -- programs that know this version or a later one can work here
	applied_at        datetime2(6) NOT NULL  -- UTC
)`,
	SchemaFound: `SELECT CASE WHEN OBJECT_ID(N'sluice_schema', N'U') IS NULL THEN 0 ELSE 1 END`,
	SchemaStep: `
UPDATE sluice_schema SET version = {version}, oldest_compatible = {oldest}, applied_at = {now} WHERE component = {component};
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ({component}, {version}, {oldest}, {now})`,
	SchemaLock: `
		DECLARE @result int;
		EXEC @result = sp_getapplock @Resource = N'sluice migration', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000;
		SELECT CASE WHEN @result >= 0 THEN 1 ELSE 0 END`,
	SchemaUnlock: `EXEC sp_releaseapplock @Resource = N'sluice migration', @LockOwner = N'Session'`,
}

var mssqlStatements = func() *statements {
	whole := newStatements(mssqlOwn, mssqlTerms.Replace)
	s := newStatements(*whole, mssqlNumbered)
	s.takeParts(whole)
	return s
}()
