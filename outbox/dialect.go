package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// Dialect is the kind of a database.
type Dialect string

// The databases that can have an outbox. MySQL is MariaDB too, SQLServer is Azure SQL too.
const (
	PostgreSQL Dialect = "postgres"
	MySQL      Dialect = "mysql"
	SQLServer  Dialect = "sqlserver"
	SQLite     Dialect = "sqlite"
)

// terms are what differs between the dialects.
type terms struct {
	placeholder func(i int) string
	variables   int    // placeholders in one statement
	binary      string // an argument that is bytes
	micros      string // created_at, in microseconds since 1970
	now         string // the time of the statement, for created_at
	database    string // the name of the database
	uuid        string
	orderNew    string // orders rows without a number by id, as an index does
	// lock locks the row of a partition until the end of the transaction, and returns what is
	// committed there. In a transaction of SQLite it is the first statement, and writes, so that it
	// waits for its turn.
	lock string
	// number numbers the rows of a JSON array of ids, which drives the join, so that no other rows
	// are locked.
	number string
	check  func(ctx context.Context, db *sql.DB) error
	schema []string // see [Schema]
}

var dialects = map[Dialect]*terms{
	PostgreSQL: {
		placeholder: dollar, variables: 65_535, binary: "{a}",
		micros:   "(extract(epoch FROM created_at) * 1000000)::bigint",
		now:      "clock_timestamp()",
		database: "current_database()",
		uuid:     "gen_random_uuid()::text",
		orderNew: "id",
		// A process that is paused in the transaction loses the lock.
		lock: `SELECT ` + stateColumns + ` FROM @p p
			WHERE p.partition_id = {part} AND set_config('idle_in_transaction_session_timeout', '30000', true) <> '' FOR NO KEY UPDATE`,
		number: `UPDATE @t AS t SET n = {head} + j.i - 1, tag = {tag}
			FROM json_array_elements_text({ids}::json) WITH ORDINALITY AS j (id, i) WHERE t.id = j.id::bigint AND t.n IS NULL`,
		check: unchecked,
		schema: []string{`CREATE TABLE IF NOT EXISTS @t (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	partition_id   integer     NOT NULL DEFAULT 0 CHECK (partition_id >= 0 AND partition_id < @count),
	event_key      text,
	message_id     text        NOT NULL DEFAULT @uuid,
	correlation_id text,
	content_type   text,
	properties     text,       -- a JSON object
	body           bytea       NOT NULL,
	created_at     timestamptz NOT NULL DEFAULT @now,
	n              bigint,     -- the sequence number; writers leave it and tag out
	tag            bigint
)`,
			`CREATE UNIQUE INDEX IF NOT EXISTS @i_number ON @t (partition_id, n) WHERE n IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS @i_new ON @t (partition_id, id) WHERE n IS NULL`,
			partitionsTable("CREATE TABLE IF NOT EXISTS @p", "integer", "text", "")},
	},
	MySQL: {
		placeholder: question, variables: 65_535, binary: "{a}",
		micros:   "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', created_at)",
		now:      "UTC_TIMESTAMP(6)",
		database: "DATABASE()",
		uuid:     "UUID()",
		orderNew: "id",
		lock:     `SELECT ` + stateColumns + ` FROM @p p WHERE p.partition_id = {part} FOR UPDATE`,
		number: `UPDATE JSON_TABLE({ids}, '$[*]' COLUMNS (i FOR ORDINALITY, id BIGINT PATH '$')) AS j
			STRAIGHT_JOIN @t AS t FORCE INDEX (PRIMARY) ON t.id = j.id SET t.n = {head} + j.i - 1, t.tag = {tag} WHERE t.n IS NULL`,
		check: unchecked,
		schema: []string{`CREATE TABLE IF NOT EXISTS @t (
	id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
	partition_id   INT          NOT NULL DEFAULT 0 CHECK (partition_id >= 0 AND partition_id < @count),
	event_key      VARCHAR(512),
	message_id     VARCHAR(255) NOT NULL DEFAULT (@uuid),
	correlation_id VARCHAR(512),
	content_type   VARCHAR(255),
	properties     LONGTEXT,    -- a JSON object
	body           LONGBLOB     NOT NULL,
	created_at     DATETIME(6)  NOT NULL DEFAULT (@now), -- UTC
	n              BIGINT,      -- the sequence number; writers leave it and tag out
	tag            BIGINT,
	UNIQUE KEY @i_number (partition_id, n),
	KEY @i_new (partition_id, n, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`,
			partitionsTable("CREATE TABLE IF NOT EXISTS @p", "INT", "VARCHAR(64)", " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")},
	},
	SQLServer: {
		placeholder: atNumber, variables: 2000, binary: "CONVERT(varbinary(max), {a})",
		micros:   "DATEDIFF_BIG(microsecond, CAST('1970-01-01' AS datetime2), created_at)",
		now:      "SYSUTCDATETIME()",
		database: "DB_NAME()",
		uuid:     "LOWER(CONVERT(nvarchar(36), NEWID()))",
		orderNew: "n, id",
		// What the UPDATE returns may be the state before it has waited (Babelfish).
		lock: `UPDATE @p SET head = head WHERE partition_id = {part}; SELECT ` + stateColumns + ` FROM @p p WHERE p.partition_id = {part}`,
		number: `UPDATE t SET n = {head} + j.i, tag = {tag}
			FROM (SELECT CAST([key] AS bigint) AS i, CAST(value AS bigint) AS id FROM OPENJSON({ids})) AS j
			INNER JOIN @t AS t ON t.id = j.id WHERE t.n IS NULL OPTION (LOOP JOIN, FORCE ORDER)`,
		check: checkSnapshots,
		schema: []string{`IF OBJECT_ID(N'@t') IS NULL
BEGIN
CREATE TABLE @t (
	id             bigint         IDENTITY NOT NULL PRIMARY KEY,
	partition_id   int            NOT NULL DEFAULT 0 CHECK (partition_id >= 0 AND partition_id < @count),
	event_key      nvarchar(512)  COLLATE Latin1_General_100_BIN2,
	message_id     nvarchar(255)  NOT NULL DEFAULT @uuid,
	correlation_id nvarchar(512),
	content_type   nvarchar(255),
	properties     nvarchar(max), -- a JSON object
	body           varbinary(max) NOT NULL,
	created_at     datetime2(6)   NOT NULL DEFAULT @now, -- UTC
	n              bigint,        -- the sequence number; writers leave it and tag out
	tag            bigint
);
CREATE INDEX @i_number ON @t (partition_id, n, id);
END`,
			partitionsTable("IF OBJECT_ID(N'@p') IS NULL CREATE TABLE @p", "int", "nvarchar(64)", "")},
	},
	SQLite: {
		placeholder: question, variables: 32_766, binary: "{a}",
		micros:   "created_at",
		now:      "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)",
		database: "(SELECT file FROM pragma_database_list WHERE name = 'main')",
		uuid:     "lower(hex(randomblob(16)))",
		orderNew: "id",
		lock:     `UPDATE @p SET head = head WHERE partition_id = {part} RETURNING incarnation, head, first_n, first_tag, last_tag`,
		number: `UPDATE @t SET n = {head} + j.key, tag = {tag} FROM json_each({ids}) AS j
			WHERE @t.id = j.value AND @t.n IS NULL`,
		check: unchecked,
		schema: []string{`CREATE TABLE IF NOT EXISTS @t (
	id             INTEGER PRIMARY KEY AUTOINCREMENT,
	partition_id   INTEGER NOT NULL DEFAULT 0 CHECK (partition_id >= 0 AND partition_id < @count),
	event_key      TEXT,
	message_id     TEXT    NOT NULL DEFAULT (@uuid),
	correlation_id TEXT,
	content_type   TEXT,
	properties     TEXT,   -- a JSON object
	body           BLOB    NOT NULL,
	created_at     INTEGER NOT NULL DEFAULT @now, -- microseconds since 1970
	n              INTEGER, -- the sequence number; writers leave it and tag out
	tag            INTEGER
)`,
			`CREATE UNIQUE INDEX IF NOT EXISTS @i_number ON @t (partition_id, n) WHERE n IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS @i_new ON @t (partition_id, id) WHERE n IS NULL`,
			partitionsTable("CREATE TABLE IF NOT EXISTS @p", "INTEGER", "TEXT", "")},
	},
}

func partitionsTable(create, integer, text, options string) string {
	return create + ` (
	partition_id ` + integer + ` NOT NULL PRIMARY KEY,
	incarnation  ` + text + ` NOT NULL,
	head         bigint NOT NULL DEFAULT 0, -- the next sequence number
	first_n      bigint NOT NULL DEFAULT 0, -- the oldest that is held
	first_tag    bigint NOT NULL DEFAULT 0, -- of the number before first_n
	last_tag     bigint NOT NULL DEFAULT 0  -- of the number before head
)` + options
}

// Schema returns the statements that create the tables of an outbox, with a semicolon after each,
// for those who create tables by themselves. cfg may be nil.
func Schema(dialect Dialect, cfg *Config) (string, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	if dialects[dialect] == nil {
		_, err := newStatements(dialect, c.Table)
		return "", err
	}
	return strings.Join(schema(dialect, c), ";\n\n") + ";\n", nil
}

func schema(d Dialect, c Config) []string {
	t := dialects[d]
	count := max(c.Partitions, 1)
	var numbers []string
	for i := range count {
		numbers = append(numbers, fmt.Sprintf("SELECT %d AS i", i))
	}
	// One statement, so that nobody sees some of the partitions. Those of a table in use are not
	// created again: they would begin with numbers that were given.
	list := append(append([]string(nil), t.schema...), `INSERT INTO @p (partition_id, incarnation)
SELECT v.i, @uuid FROM (`+strings.Join(numbers, " UNION ALL ")+`) v
WHERE NOT EXISTS (SELECT 1 FROM @p) AND NOT EXISTS (SELECT 1 FROM @t WHERE n IS NOT NULL)`)
	name := c.Table[strings.LastIndex(c.Table, ".")+1:]
	replace := strings.NewReplacer("@t", c.Table, "@p", c.Table+"_partitions", "@i", name, "@count", fmt.Sprint(count), "@uuid", t.uuid, "@now", t.now)
	for i := range list {
		list[i] = replace.Replace(list[i])
	}
	return list
}

// create creates the tables. Several processes may do so at the same time: the statements of one
// that lost the race fail or change nothing.
func (s *Source) create(ctx context.Context) error {
	var failed error
	for range 3 {
		failed = nil
		for _, statement := range schema(s.dialect, s.cfg) {
			if _, err := s.db.ExecContext(ctx, statement); err != nil {
				failed = fmt.Errorf("create the tables: %w", err)
				break
			}
		}
		if failed == nil {
			return nil
		}
	}
	return failed
}

func unchecked(context.Context, *sql.DB) error { return nil }

// checkSnapshots: without row versions a reader waits for the writers that are open, and passes
// rows of lower ids that appear behind it.
func checkSnapshots(ctx context.Context, db *sql.DB) error {
	var on bool
	var name string
	err := newQuery("SELECT name, is_read_committed_snapshot_on FROM sys.databases WHERE name = DB_NAME()", atNumber).one(ctx, db, nil, &name, &on)
	if err == nil && !on {
		err = fmt.Errorf("database %s has no row versions, without which rows may be read out of order: run ALTER DATABASE [%[1]s] SET READ_COMMITTED_SNAPSHOT ON", name)
	}
	return err
}

// txOptions are those of a transaction that numbers or deletes rows: each statement sees what is
// committed when it begins.
func (d Dialect) txOptions() *sql.TxOptions {
	if d == SQLite {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// time returns a time as an argument.
func (d Dialect) time(t time.Time) any {
	switch d {
	case SQLite:
		return t.UnixMicro()
	case MySQL:
		return t.UTC().Format("2006-01-02 15:04:05.000000")
	}
	return t.UTC()
}

// missing reports whether an error says that a table does not exist.
func (d Dialect) missing(err error) bool {
	if e, is := errors.AsType[*pgconn.PgError](err); is {
		return e.Code == "42P01"
	}
	if e, is := errors.AsType[*mysql.MySQLError](err); is {
		return e.Number == 1146
	}
	if e, is := errors.AsType[mssql.Error](err); is {
		return e.Number == 208 || strings.Contains(e.Message, "does not exist") // Babelfish passes PostgreSQL's message on
	}
	return d == SQLite && strings.Contains(err.Error(), "no such table")
}
