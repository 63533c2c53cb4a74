package sqlstore

import (
	_ "embed"
	"strings"
)

// The migrations. A step only adds (tables, indexes, columns that have a
// default), so that programs of the version before go on working beside it; one
// that cannot do so says by its oldest version which programs it excludes.
// A step that was released is never changed.
var (
	//go:embed migrations/sqlite/leases-1.sql
	sqliteLeases1 string
	//go:embed migrations/sqlite/leases-2.sql
	sqliteLeases2 string
	//go:embed migrations/sqlite/store-1.sql
	sqliteStore1 string
	//go:embed migrations/sqlite/store-2.sql
	sqliteStore2 string
	//go:embed migrations/sqlite/store-3.sql
	sqliteStore3 string
	//go:embed migrations/sqlite/store-4.sql
	sqliteStore4 string
	//go:embed migrations/sqlite/store-5.sql
	sqliteStore5 string
	//go:embed migrations/sqlite/store-6.sql
	sqliteStore6 string

	sqliteLeaseSteps = []step{{sql: sqliteLeases1, oldest: 1}, {sql: sqliteLeases2, oldest: 1}}
	sqliteStoreSteps = []step{
		{sql: sqliteStore1, oldest: 1}, {sql: sqliteStore2, oldest: 1}, {sql: sqliteStore3, oldest: 1},
		{sql: sqliteStore4, oldest: 1}, {sql: sqliteStore5, oldest: 1}, {sql: sqliteStore6, oldest: 1},
	}
)

// The clock has milliseconds, in the layout of [timeLayout].
var sqliteTerms = strings.NewReplacer(
	"{now}", `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`,
	"{until}", `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', format('%+.3f seconds', ? / 1000.0))`,
	"{left}", `CAST(round(coalesce(unixepoch(expires_at, 'subsec') - unixepoch('now', 'subsec'), 0) * 1000) AS INTEGER)`,
	"{shifted}", `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', format('%+.3f seconds', unixepoch(expires_at, 'subsec') - unixepoch(renewed_at, 'subsec')))`,
	"{group}", `namespace = ? AND topic = ? AND consumer_group = ?`,
	"{key}", `namespace, topic, consumer_group, partition`,
	"{values}", `?, ?, ?, ?`,
	"{if missing}", `ON CONFLICT DO NOTHING`,
	"{higher epoch}", `max(epoch + 1, ?)`,
	"{upsert}", `ON CONFLICT (namespace, topic, consumer_group, incarnation, partition, sequence_number) DO UPDATE SET
		failed_at = excluded.failed_at, error = excluded.error, attempts = excluded.attempts,
		status = excluded.status, next_attempt = excluded.next_attempt`,
	"{numbers}", `(SELECT value FROM json_each(?))`,
	"{names}", `(SELECT value AS name FROM json_each(?)) AS list`,
	"{name}", `name`,
	"{by status}", ``,
)

var sqliteStatements = newStatements(statements{
	Lock: `SELECT 1 FROM sluice_checkpoints WHERE ` + ofLease + ` AND sequence_number = ?`,
	// SQLite does not write a row that stays as it is: the time must change,
	// also twice in a millisecond.
	Probe: `
		UPDATE sluice_checkpoints
		SET updated_at = CASE WHEN updated_at <> {now} THEN {now} ELSE strftime('%Y-%m-%dT%H:%M:%f000Z', updated_at, '+0.001 seconds') END
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	StatusIn:      `status IN (SELECT value FROM json_each(?))`,
	ErrorContains: `contains_fold(error, ?)`,

	SchemaTable: `
CREATE TABLE IF NOT EXISTS sluice_schema (
	component         TEXT    NOT NULL PRIMARY KEY,
	version           INTEGER NOT NULL,
	oldest_compatible INTEGER NOT NULL, -- programs that know this version or a later one can work here
	applied_at        TEXT    NOT NULL  -- UTC
) STRICT`,
	SchemaFound: `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'sluice_schema'`,
	SchemaStep: `
INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ({component}, {version}, {oldest}, {now})
ON CONFLICT DO UPDATE SET
	version = excluded.version, oldest_compatible = excluded.oldest_compatible, applied_at = excluded.applied_at`,
}, sqliteTerms.Replace)
