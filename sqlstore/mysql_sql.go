package sqlstore

import (
	_ "embed"
	"regexp"
	"strings"
)

// The migrations of MySQL and MariaDB. Their DDL commits by itself, so that a step that was cut off
// runs again: each of its statements does nothing if it was done.
var (
	//go:embed migrations/mysql/leases-1.sql
	mysqlLeases1 string
	//go:embed migrations/mysql/leases-2.sql
	mysqlLeases2 string
	//go:embed migrations/mysql/store-1.sql
	mysqlStore1 string
	//go:embed migrations/mysql/store-2.sql
	mysqlStore2 string
	//go:embed migrations/mysql/store-3.sql
	mysqlStore3 string
)

// mysqlSteps returns the migrations of a component with the collation of texts: one in which texts
// are equal only if their bytes are, trailing spaces included.
func mysqlSteps(component, collation string) []step {
	texts := []string{mysqlStore1, mysqlStore2, mysqlStore3}
	if component == leaseComponent {
		texts = []string{mysqlLeases1, mysqlLeases2}
	}
	steps := make([]step, len(texts))
	for i, text := range texts {
		steps[i] = step{sql: strings.ReplaceAll(text, "@collation", collation), oldest: 1}
	}
	return steps
}

// partitionWord is a column's name that is a reserved word in MySQL.
var partitionWord = regexp.MustCompile(`\bpartition\b`)

func mysqlQuoted(query string) string { return partitionWord.ReplaceAllString(query, "`partition`") }

var mysqlTerms = strings.NewReplacer(
	"{now}", `UTC_TIMESTAMP(6)`,
	"{until}", `UTC_TIMESTAMP(6) + INTERVAL (? * 1000) MICROSECOND`,
	"{left}", `CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) DIV 1000, 0) AS SIGNED)`,
	"{shifted}", `UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, renewed_at, expires_at) MICROSECOND`,
	"{group}", `namespace = ? AND topic = ? AND consumer_group = ?`,
	"{key}", `namespace, topic, consumer_group, partition`,
	"{values}", `?, ?, ?, ?`,
	"{if missing}", ``,
	"{higher epoch}", `GREATEST(epoch + 1, ?)`,
	"{upsert}", `ON DUPLICATE KEY UPDATE
		failed_at = VALUES(failed_at), error = VALUES(error), attempts = VALUES(attempts),
		status = VALUES(status), next_attempt = VALUES(next_attempt)`,
	"{numbers}", `(SELECT v FROM JSON_TABLE(?, '$[*]' COLUMNS (v BIGINT PATH '$')) AS list)`,
	"{names}", `JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS list`,
	"{by status}", `FORCE INDEX (sluice_dead_letters_status)`, // others begin with group and partition too
	"{name}", `CONVERT(name USING utf8mb4)`, // its collation gives way to the column's, which is binary
)

var mysqlStatements = newStatements(statements{
	Lock:          `SELECT 1 FROM sluice_checkpoints WHERE ` + ofLease + ` AND sequence_number = ? FOR UPDATE`,
	Began:         `SELECT 1 FROM sluice_leases WHERE began_incarnation = ? AND ` + ofLease,
	StatusIn:      `JSON_CONTAINS(?, JSON_QUOTE(status))`,
	ErrorContains: `LOCATE(LOWER(?), LOWER(error)) > 0`,

	SchemaTable: `
CREATE TABLE IF NOT EXISTS sluice_schema (
	component         VARCHAR(64) NOT NULL PRIMARY KEY,
	version           BIGINT      NOT NULL,
	oldest_compatible BIGINT      NOT NULL, -- programs that know this version or a later one can work here
	applied_at        DATETIME(6) NOT NULL  -- UTC
) ENGINE = InnoDB`,
	SchemaFound: `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'sluice_schema'`,
	SchemaStep: `
INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ({component}, {version}, {oldest}, {now})
ON DUPLICATE KEY UPDATE
	version = VALUES(version), oldest_compatible = VALUES(oldest_compatible), applied_at = VALUES(applied_at)`,
	SchemaLock:   `SELECT COALESCE(GET_LOCK(CONCAT('sluice ', MD5(DATABASE())), 60), 0)`,
	SchemaUnlock: `DO RELEASE_LOCK(CONCAT('sluice ', MD5(DATABASE())))`,
}, func(query string) string { return mysqlQuoted(mysqlTerms.Replace(query)) })
