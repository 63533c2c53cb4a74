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
	//go:embed migrations/mysql/store-1.sql
	mysqlStore1 string
)

// mysqlSteps returns the migrations of a component with the collation of texts: one in which texts
// are equal only if their bytes are, trailing spaces included.
func mysqlSteps(component, collation string) []step {
	text := mysqlStore1
	if component == leaseComponent {
		text = mysqlLeases1
	}
	return []step{{sql: strings.ReplaceAll(text, "@collation", collation), oldest: 1}}
}

// partitionWord is a column's name that is a reserved word in MySQL.
var partitionWord = regexp.MustCompile(`\bpartition\b`)

func mysqlQuoted(query string) string { return partitionWord.ReplaceAllString(query, "`partition`") }

// mysqlNow is MySQL's clock; it stands still within a statement.
const mysqlNow = `UTC_TIMESTAMP(6)`

// mysqlUntil is now and so many milliseconds.
const mysqlUntil = mysqlNow + ` + INTERVAL (? * 1000) MICROSECOND`

const (
	mysqlProgress = checkpointColumns + `, trial_dead_letter, trial_unreturned, IF(done_epoch = epoch, done, '')`
	mysqlList     = `(SELECT v FROM JSON_TABLE(?, '$[*]' COLUMNS (v BIGINT PATH '$')) AS list)`
)

var mysqlStatements = rewrite(statements{
	TakeLease: `
		UPDATE sluice_leases SET owner = ?, epoch = GREATEST(epoch + 1, ?), expires_at = ` + mysqlUntil + `, renewed_at = ` + mysqlNow + `
		WHERE ` + ofKey + ` AND (expires_at IS NULL OR expires_at <= ` + mysqlNow + ` OR owner = ?)`,
	AddLease: `
		INSERT INTO sluice_leases (namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
		VALUES (?, ?, ?, ?, ?, ?, ` + mysqlUntil + `, ` + mysqlNow + `)`,
	Epoch: `SELECT epoch FROM sluice_leases WHERE ` + ofKey,
	Renew: `
		UPDATE sluice_leases SET expires_at = ` + mysqlUntil + `, renewed_at = ` + mysqlNow + `
		WHERE ` + ofLease + ` AND expires_at IS NOT NULL`,
	Release: `UPDATE sluice_leases SET expires_at = NULL WHERE ` + ofLease,
	Leases: `
		SELECT partition, owner, epoch,
			CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, ` + mysqlNow + `, expires_at) DIV 1000, 0) AS SIGNED), renewed_at, renewed_at > ` + mysqlNow + `
		FROM sluice_leases WHERE ` + ofGroup + ` ORDER BY partition`,
	Future: `
		UPDATE sluice_leases SET
			expires_at = IF(expires_at IS NULL, NULL, ` + mysqlNow + ` + INTERVAL TIMESTAMPDIFF(MICROSECOND, renewed_at, expires_at) MICROSECOND),
			renewed_at = ` + mysqlNow + `
		WHERE ` + ofGroup + ` AND renewed_at > ` + mysqlNow,

	TakeCheckpoint: `
		UPDATE sluice_checkpoints SET
			claims = claims + (? > epoch), done = IF(done_epoch = epoch, done, ''),
			owner = ?, done_epoch = ?, epoch = ?, updated_at = ` + mysqlNow + `
		WHERE ` + ofKey + ` AND (epoch < ? OR epoch = ? AND owner = ?)`,
	AddCheckpoint: `
		INSERT INTO sluice_checkpoints (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, -2, '', ?, ?, 1, 0, 0, '', ` + mysqlNow + `)`,
	Claimed: `
		SELECT ` + mysqlProgress + `, (
			SELECT COALESCE(MAX(sequence_number) + 1, 0) FROM sluice_dead_letters
			WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ?)
		FROM sluice_checkpoints WHERE ` + ofKey,
	Lock: `SELECT 1 FROM sluice_checkpoints WHERE ` + ofLease + ` AND sequence_number = ? FOR UPDATE`,
	Move: `
		UPDATE sluice_checkpoints SET
			sequence_number = ?, event_offset = ?, claims = 1,
			` + noAttempts + `, done = '', updated_at = ` + mysqlNow + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Stay: `UPDATE sluice_checkpoints SET updated_at = ` + mysqlNow + ` WHERE ` + ofLease + ` AND sequence_number = ?`,
	Advance: `
		UPDATE sluice_checkpoints SET
			claims            = IF(sequence_number = ?, claims, 1),
			trial_sequence    = IF(sequence_number = ?, trial_sequence, 0),
			trial_dead_letter = IF(sequence_number = ?, trial_dead_letter, 0),
			trial_error       = IF(sequence_number = ?, trial_error, ''),
			trial_unreturned  = IF(sequence_number = ?, trial_unreturned, 0),
			trial_attempts    = IF(sequence_number = ?, trial_attempts, 0),
			sequence_number = ?, event_offset = ?, done = ?, done_epoch = epoch, updated_at = ` + mysqlNow + `
		WHERE ` + ofLease + ` AND sequence_number <= ?`,
	Probe: `UPDATE sluice_checkpoints SET updated_at = ` + mysqlNow + ` WHERE ` + ofLease + ` AND sequence_number = ?`,
	Record: `
		UPDATE sluice_checkpoints SET
			trial_sequence = ?, trial_dead_letter = ?, trial_attempts = ?, trial_error = ?, trial_unreturned = ?, updated_at = ` + mysqlNow + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Leave:  `UPDATE sluice_checkpoints SET claims = 0, updated_at = ` + mysqlNow + ` WHERE ` + ofLease,
	Read:   `SELECT partition, ` + mysqlProgress + ` FROM sluice_checkpoints WHERE ` + ofGroup + ` ORDER BY partition`,
	Holder: `SELECT owner, epoch, sequence_number FROM sluice_checkpoints WHERE ` + ofKey,
	Reset: `
		UPDATE sluice_checkpoints SET
			incarnation = ?, sequence_number = ?, event_offset = ?, owner = '', epoch = epoch + 1, claims = 0,
			` + noAttempts + `, done = '', updated_at = ` + mysqlNow + `
		WHERE ` + ofKey,
	AddReset: `
		INSERT INTO sluice_checkpoints (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, '', 1, 0, 0, 0, '', ` + mysqlNow + `)`,
	Raised: `SELECT epoch FROM sluice_checkpoints WHERE ` + ofKey,

	ForgetDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND origin = ? AND (top <= ? OR step >= ?)`,
	ExpireDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND seen_at < ?`,
	ResetDedup:  `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND step > ?`,
	StoreDedup: `
		REPLACE INTO sluice_seen (namespace, topic, consumer_group, partition, origin, step, epoch, low, top, seen_at, ids)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	ReadDedup: `
		SELECT origin, s.epoch, low, top, seen_at, ids FROM sluice_seen AS s JOIN sluice_checkpoints USING (namespace, topic, consumer_group, partition)
		WHERE ` + ofKey + ` AND step <= sequence_number ORDER BY step`,

	Park: `
		INSERT INTO sluice_dead_letters (` + strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE
			failed_at = VALUES(failed_at), error = VALUES(error), attempts = VALUES(attempts),
			status = VALUES(status), next_attempt = VALUES(next_attempt)`,
	SettleEvents: `
		DELETE FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? AND sequence_number <= ?
			AND sequence_number NOT IN ` + mysqlList,
	EndRedrive:     `DELETE FROM sluice_dead_letters WHERE ` + ofRedrive,
	FailRedrive:    `UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ? WHERE ` + ofRedrive,
	SettleRedriven: `DELETE FROM sluice_dead_letters WHERE ` + ofGroup + ` AND status = 'retry' AND id IN ` + mysqlList,
	SettleFailed: `
		UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ?
		WHERE ` + ofGroup + ` AND id = ? AND status = 'retry'`,
	Parked: `
		SELECT sequence_number FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? ORDER BY sequence_number`,
	Held: `
		SELECT partition_key, incarnation, MIN(sequence_number) FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status <> 'discarded' AND partition_key <> '' AND id NOT IN ` + mysqlList + `
		GROUP BY partition_key, incarnation`,
	Due: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status = 'retry' AND next_attempt <= ` + mysqlNow + `
		ORDER BY sequence_number, id LIMIT ?`,
	MarkRedrive: `UPDATE sluice_dead_letters SET status = 'retry', next_attempt = COALESCE(?, ` + mysqlNow + `) WHERE`,
	Discard:     `UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE`,

	IdIn:          `id IN ` + mysqlList,
	StatusIn:      `JSON_CONTAINS(?, JSON_QUOTE(status))`,
	ErrorContains: `LOCATE(LOWER(?), LOWER(error)) > 0`,

	SchemaTable: `
		CREATE TABLE IF NOT EXISTS sluice_schema (
			component         VARCHAR(64) NOT NULL PRIMARY KEY,
			version           BIGINT      NOT NULL,
			oldest_compatible BIGINT      NOT NULL, -- programs that know this version or a later one can work here
			applied_at        DATETIME(6) NOT NULL  -- UTC
		) ENGINE = InnoDB`,
	SchemaFound:   `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'sluice_schema'`,
	SchemaVersion: `SELECT version, oldest_compatible FROM sluice_schema WHERE component = ?`,
	SchemaStep: `
		INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES (?, ?, ?, ` + mysqlNow + `)
		ON DUPLICATE KEY UPDATE
			version = VALUES(version), oldest_compatible = VALUES(oldest_compatible), applied_at = VALUES(applied_at)`,
	SchemaLock:   `SELECT COALESCE(GET_LOCK(CONCAT('sluice ', MD5(DATABASE())), 60), 0)`,
	SchemaUnlock: `DO RELEASE_LOCK(CONCAT('sluice ', MD5(DATABASE())))`,
}, mysqlQuoted)
