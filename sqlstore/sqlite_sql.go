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
	//go:embed migrations/sqlite/store-1.sql
	sqliteStore1 string
	//go:embed migrations/sqlite/store-2.sql
	sqliteStore2 string
	//go:embed migrations/sqlite/store-3.sql
	sqliteStore3 string
	//go:embed migrations/sqlite/store-4.sql
	sqliteStore4 string

	sqliteLeaseSteps = []step{{sql: sqliteLeases1, oldest: 1}}
	sqliteStoreSteps = []step{{sql: sqliteStore1, oldest: 1}, {sql: sqliteStore2, oldest: 1}, {sql: sqliteStore3, oldest: 1}, {sql: sqliteStore4, oldest: 1}}
)

// now is SQLite's clock in the layout of [timeLayout]; it has milliseconds. It
// stands still within a statement.
const now = `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`

// until is now and so many milliseconds.
const until = `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', format('%+.3f seconds', ? / 1000.0))`

const (
	ofGroup   = `namespace = ? AND topic = ? AND consumer_group = ?`
	ofKey     = ofGroup + ` AND partition = ?`
	ofLease   = ofKey + ` AND owner = ? AND epoch = ?`
	ofRedrive = ofKey + ` AND id = ? AND status = 'retry'`

	checkpointColumns = `incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at`
	progress          = checkpointColumns + `, trial_dead_letter, trial_unreturned, iif(done_epoch = epoch, done, '')`
	noAttempts        = `trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0`
)

var sqliteStatements = statements{
	TakeLease: `
		UPDATE sluice_leases SET owner = ?, epoch = max(epoch + 1, ?), expires_at = ` + until + `, renewed_at = ` + now + `
		WHERE ` + ofKey + ` AND (expires_at IS NULL OR expires_at <= ` + now + ` OR owner = ?)`,
	AddLease: `
		INSERT INTO sluice_leases (namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
		VALUES (?, ?, ?, ?, ?, ?, ` + until + `, ` + now + `) ON CONFLICT DO NOTHING`,
	Epoch: `SELECT epoch FROM sluice_leases WHERE ` + ofKey,
	Renew: `
		UPDATE sluice_leases SET expires_at = ` + until + `, renewed_at = ` + now + `
		WHERE ` + ofLease + ` AND expires_at IS NOT NULL`,
	Release: `UPDATE sluice_leases SET expires_at = NULL WHERE ` + ofLease,
	Leases: `
		SELECT partition, owner, epoch,
			CAST(round(coalesce(unixepoch(expires_at, 'subsec') - unixepoch('now', 'subsec'), 0) * 1000) AS INTEGER), renewed_at, renewed_at > ` + now + `
		FROM sluice_leases WHERE ` + ofGroup + ` ORDER BY partition`,
	Future: `
		UPDATE sluice_leases SET renewed_at = ` + now + `, expires_at = iif(expires_at IS NULL, NULL,
			strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', format('%+.3f seconds', unixepoch(expires_at, 'subsec') - unixepoch(renewed_at, 'subsec'))))
		WHERE ` + ofGroup + ` AND renewed_at > ` + now,

	TakeCheckpoint: `
		UPDATE sluice_checkpoints SET
			claims = claims + (? > epoch), done = iif(done_epoch = epoch, done, ''),
			owner = ?, done_epoch = ?, epoch = ?, updated_at = ` + now + `
		WHERE ` + ofKey + ` AND (epoch < ? OR epoch = ? AND owner = ?)`,
	AddCheckpoint: `
		INSERT INTO sluice_checkpoints (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, -2, '', ?, ?, 1, 0, 0, '', ` + now + `) ON CONFLICT DO NOTHING`,
	Claimed: `
		SELECT ` + progress + `, (
			SELECT coalesce(max(sequence_number) + 1, 0) FROM sluice_dead_letters
			WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ?)
		FROM sluice_checkpoints WHERE ` + ofKey,
	Move: `
		UPDATE sluice_checkpoints SET
			sequence_number = ?, event_offset = ?, claims = 1,
			` + noAttempts + `, done = '', updated_at = ` + now + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Stay: `UPDATE sluice_checkpoints SET updated_at = ` + now + ` WHERE ` + ofLease + ` AND sequence_number = ?`,
	Advance: `
		UPDATE sluice_checkpoints SET
			claims            = iif(sequence_number = ?, claims, 1),
			trial_sequence    = iif(sequence_number = ?, trial_sequence, 0),
			trial_dead_letter = iif(sequence_number = ?, trial_dead_letter, 0),
			trial_error       = iif(sequence_number = ?, trial_error, ''),
			trial_unreturned  = iif(sequence_number = ?, trial_unreturned, 0),
			trial_attempts    = iif(sequence_number = ?, trial_attempts, 0),
			sequence_number = ?, event_offset = ?, done = ?, done_epoch = epoch, updated_at = ` + now + `
		WHERE ` + ofLease + ` AND sequence_number <= ?`,
	// SQLite does not write a row that stays as it is: the time must change,
	// also twice in a millisecond.
	Probe: `
		UPDATE sluice_checkpoints
		SET updated_at = iif(updated_at <> ` + now + `, ` + now + `, strftime('%Y-%m-%dT%H:%M:%f000Z', updated_at, '+0.001 seconds'))
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Record: `
		UPDATE sluice_checkpoints SET
			trial_sequence = ?, trial_dead_letter = ?, trial_attempts = ?, trial_error = ?, trial_unreturned = ?, updated_at = ` + now + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Leave:  `UPDATE sluice_checkpoints SET claims = 0, updated_at = ` + now + ` WHERE ` + ofLease,
	Read:   `SELECT partition, ` + progress + ` FROM sluice_checkpoints WHERE ` + ofGroup + ` ORDER BY partition`,
	Holder: `SELECT owner, epoch, sequence_number FROM sluice_checkpoints WHERE ` + ofKey,
	Reset: `
		UPDATE sluice_checkpoints SET
			incarnation = ?, sequence_number = ?, event_offset = ?, owner = '', epoch = epoch + 1, claims = 0,
			` + noAttempts + `, done = '', updated_at = ` + now + `
		WHERE ` + ofKey,
	AddReset: `
		INSERT INTO sluice_checkpoints (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, '', 1, 0, 0, 0, '', ` + now + `) ON CONFLICT DO NOTHING`,
	Raised: `SELECT epoch FROM sluice_checkpoints WHERE ` + ofKey,

	// What lies beyond the step goes as well: a program that knows version 2 may
	// have set the checkpoint back.
	ForgetDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND origin = ? AND (top <= ? OR step >= ?)`,
	ExpireDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND seen_at < ?`,
	ResetDedup:  `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND step > ?`,
	StoreDedup: `
		INSERT OR REPLACE INTO sluice_seen (namespace, topic, consumer_group, partition, origin, step, epoch, low, top, seen_at, ids)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	ReadDedup: `
		SELECT origin, s.epoch, low, top, seen_at, ids FROM sluice_seen AS s JOIN sluice_checkpoints USING (namespace, topic, consumer_group, partition)
		WHERE ` + ofKey + ` AND step <= sequence_number ORDER BY step`,

	Park: `
		INSERT INTO sluice_dead_letters (` + strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, topic, consumer_group, incarnation, partition, sequence_number) DO UPDATE SET
			failed_at = excluded.failed_at, error = excluded.error, attempts = excluded.attempts,
			status = excluded.status, next_attempt = excluded.next_attempt`,
	SettleEvents: `
		DELETE FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? AND sequence_number <= ?
			AND sequence_number NOT IN (SELECT value FROM json_each(?))`,
	EndRedrive:     `DELETE FROM sluice_dead_letters WHERE ` + ofRedrive,
	FailRedrive:    `UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ? WHERE ` + ofRedrive,
	SettleRedriven: `DELETE FROM sluice_dead_letters WHERE ` + ofGroup + ` AND status = 'retry' AND id IN (SELECT value FROM json_each(?))`,
	SettleFailed: `
		UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ?
		WHERE ` + ofGroup + ` AND id = ? AND status = 'retry'`,
	Parked: `
		SELECT sequence_number FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? ORDER BY sequence_number`,
	Held: `
		SELECT partition_key, incarnation, min(sequence_number) FROM sluice_dead_letters AS d
		WHERE ` + ofKey + ` AND status <> 'discarded' AND partition_key <> ''
			AND NOT EXISTS (SELECT 1 FROM json_each(?) WHERE value = d.id)
		GROUP BY partition_key, incarnation`,
	Due: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status = 'retry' AND next_attempt <= ` + now + `
		ORDER BY sequence_number, id LIMIT ?`,
	MarkRedrive: `UPDATE sluice_dead_letters SET status = 'retry', next_attempt = coalesce(?, ` + now + `) WHERE`,
	Discard:     `UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE`,

	IdIn:          `id IN (SELECT value FROM json_each(?))`,
	StatusIn:      `status IN (SELECT value FROM json_each(?))`,
	ErrorContains: `contains_fold(error, ?)`,

	SchemaTable: `
		CREATE TABLE IF NOT EXISTS sluice_schema (
			component         TEXT    NOT NULL PRIMARY KEY,
			version           INTEGER NOT NULL,
			oldest_compatible INTEGER NOT NULL, -- programs that know this version or a later one can work here
			applied_at        TEXT    NOT NULL  -- UTC
		) STRICT`,
	SchemaFound:   `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'sluice_schema'`,
	SchemaVersion: `SELECT version, oldest_compatible FROM sluice_schema WHERE component = ?`,
	SchemaStep: `
		INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES (?, ?, ?, ` + now + `)
		ON CONFLICT DO UPDATE SET
			version = excluded.version, oldest_compatible = excluded.oldest_compatible, applied_at = excluded.applied_at`,
}
