package sqlstore

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/postgres"
)

func newPostgresDialect(schema string) *postgresDialect {
	d := &postgresDialect{schema: pgx.Identifier{schema}.Sanitize() + "."}
	whole := newStatements(postgresOwn, postgresTerms.Replace)
	d.sql = newStatements(*whole, d.rebind)
	d.sql.takeParts(whole)
	return d
}

var postgresTables = regexp.MustCompile(`\bsluice_(leases|checkpoints|dead_letters|seen)\b`)

// rebind replaces each ? by $1, $2 and so on, and names the tables with their schema.
func (d *postgresDialect) rebind(query string) string {
	query = postgresTables.ReplaceAllStringFunc(query, func(table string) string { return d.schema + table })
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

// postgresReleased is the expiry of a released lease: a time that no clock that is set back returns
// to.
const postgresReleased = `'epoch'::timestamptz`

// postgresTerms are as in pgstore: clock_timestamp is the time after a wait for a lock, now() that
// before.
var postgresTerms = strings.NewReplacer(
	"{now}", `clock_timestamp()`,
	"{until}", `clock_timestamp() + CAST(? AS bigint) * interval '1 millisecond'`,
	"{left}", `CASE WHEN expires_at > `+postgresReleased+` THEN CAST(extract(epoch FROM expires_at - clock_timestamp()) * 1000 AS bigint) ELSE 0 END`,
	"{group}", `namespace = ? AND topic = ? AND consumer_group = ?`,
	"{key}", `namespace, topic, consumer_group, partition`,
	"{values}", `?, ?, ?, ?`,
	"{if missing}", `ON CONFLICT DO NOTHING`,
	"{higher epoch}", `greatest(epoch + 1, ?)`,
	"{numbers}", `(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(CAST(? AS text) AS json)))`,
	"{names}", `json_array_elements_text(CAST(CAST(? AS text) AS json)) AS list (name)`,
	"{name}", `name`,
	"{by status}", ``,
	"failed_at = ?", `failed_at = `+postgresFailedAt,
	"ORDER BY partition", `ORDER BY partition COLLATE "C"`,
)

// A time that is not known is NULL, or the database's own, as pgstore stores it.
const (
	postgresKnown    = `NULLIF(CAST(? AS timestamptz), '0001-01-01 00:00:00+00')`
	postgresFailedAt = `coalesce(` + postgresKnown + `, clock_timestamp())`
)

var postgresOwn = statements{
	Lock: `
		SELECT CAST(pg_current_xact_id() AS text) FROM sluice_checkpoints
		WHERE ` + ofLease + ` AND sequence_number = ? FOR NO KEY UPDATE`,
	MoveIntact: `
		WITH mine AS (SELECT CAST(pg_current_xact_id() AS text) = ? AS same)` +
		strings.Replace(portable.Move, "WHERE", "FROM mine WHERE same AND", 1) + ` RETURNING 1`,

	Renew: `UPDATE sluice_leases SET expires_at = {until}, renewed_at = {now} WHERE ` + ofLease + ` AND expires_at > ` + postgresReleased,
	RenewAll: `
		UPDATE sluice_leases SET expires_at = {until}, renewed_at = {now}
		WHERE ` + ofGroup + ` AND owner = ? AND expires_at > ` + postgresReleased + ` AND`,
	Release: `UPDATE sluice_leases SET expires_at = ` + postgresReleased + ` WHERE ` + ofLease,
	// A row that somebody has locked is left for the next time.
	Future: `
		UPDATE sluice_leases
		SET renewed_at = {now}, expires_at = CASE WHEN expires_at > ` + postgresReleased + ` THEN {now} + (expires_at - renewed_at) ELSE expires_at END
		WHERE (namespace, topic, consumer_group, partition) IN (
			SELECT namespace, topic, consumer_group, partition FROM sluice_leases WHERE ` + ofGroup + ` AND renewed_at > {now}
			FOR UPDATE SKIP LOCKED)`,

	StoreDedup: `
		INSERT INTO sluice_seen ({key}, origin, step, epoch, low, top, seen_at, ids)
		VALUES ({values}, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT ({key}, origin, step) DO UPDATE
		SET epoch = excluded.epoch, low = excluded.low, top = excluded.top, seen_at = excluded.seen_at, ids = excluded.ids`,

	Park: `
		INSERT INTO sluice_dead_letters (` + strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ` + postgresKnown + `, ` + postgresFailedAt + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, topic, consumer_group, incarnation, partition, sequence_number) DO UPDATE
		SET failed_at = excluded.failed_at, error = excluded.error, attempts = excluded.attempts, status = excluded.status, next_attempt = excluded.next_attempt`,

	Uncopied: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND NOT copied AND id > ? ORDER BY id LIMIT ?`,
	MarkCopied: `UPDATE sluice_dead_letters SET copied = TRUE WHERE ` + ofKey + ` AND id IN {numbers}`,

	StatusIn:      `status IN (SELECT value FROM json_array_elements_text(CAST(CAST(? AS text) AS json)))`,
	ErrorContains: `position(lower(?) IN lower(error)) > 0`,

	CheckDeferred: `SET CONSTRAINTS ALL IMMEDIATE`,
	Session:       `SELECT pg_backend_pid()`,
	Blockers:      postgres.Blockers,
	EndSession:    `SELECT pg_terminate_backend(%d)`,
}
