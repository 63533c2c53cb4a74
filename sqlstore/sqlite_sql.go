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
	acquire: `
		INSERT INTO sluice_leases AS held (namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
		VALUES (?, ?, ?, ?, ?, ?, ` + until + `, ` + now + `)
		ON CONFLICT DO UPDATE SET
			owner = excluded.owner, epoch = max(held.epoch + 1, excluded.epoch),
			expires_at = excluded.expires_at, renewed_at = excluded.renewed_at
		WHERE held.expires_at IS NULL OR held.expires_at <= excluded.renewed_at OR held.owner = excluded.owner
		RETURNING epoch`,
	renew: `
		UPDATE sluice_leases SET expires_at = ` + until + `, renewed_at = ` + now + `
		WHERE ` + ofLease + ` AND expires_at IS NOT NULL`,
	release: `UPDATE sluice_leases SET expires_at = NULL WHERE ` + ofLease,
	leases: `
		SELECT partition, owner, epoch,
			CAST(round(coalesce(unixepoch(expires_at, 'subsec') - unixepoch('now', 'subsec'), 0) * 1000) AS INTEGER), renewed_at, renewed_at > ` + now + `
		FROM sluice_leases WHERE ` + ofGroup + ` ORDER BY partition`,
	future: `
		UPDATE sluice_leases SET renewed_at = ` + now + `, expires_at = iif(expires_at IS NULL, NULL,
			strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', format('%+.3f seconds', unixepoch(expires_at, 'subsec') - unixepoch(renewed_at, 'subsec'))))
		WHERE ` + ofGroup + ` AND renewed_at > ` + now,

	claim: `
		INSERT INTO sluice_checkpoints AS known (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, -2, '', ?, ?, 1, 0, 0, '', ` + now + `)
		ON CONFLICT DO UPDATE SET
			claims = known.claims + (excluded.epoch > known.epoch),
			owner = excluded.owner, epoch = excluded.epoch, updated_at = excluded.updated_at,
			done = iif(known.done_epoch = known.epoch, known.done, ''), done_epoch = excluded.epoch
		WHERE excluded.epoch > known.epoch OR excluded.epoch = known.epoch AND excluded.owner = known.owner
		RETURNING ` + progress + `, (
			SELECT coalesce(max(sequence_number) + 1, 0) FROM sluice_dead_letters
			WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ?)`,
	move: `
		UPDATE sluice_checkpoints SET
			sequence_number = ?, event_offset = ?, claims = 1,
			` + noAttempts + `, done = '', updated_at = ` + now + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	stay: `UPDATE sluice_checkpoints SET updated_at = ` + now + ` WHERE ` + ofLease + ` AND sequence_number = ?`,
	advance: `
		UPDATE sluice_checkpoints AS known SET
			sequence_number = next.sequence_number, event_offset = next.event_offset,
			done = next.done, done_epoch = known.epoch, updated_at = ` + now + `,
			claims            = iif(known.sequence_number = next.sequence_number, known.claims, 1),
			trial_sequence    = iif(known.sequence_number = next.sequence_number, known.trial_sequence, 0),
			trial_dead_letter = iif(known.sequence_number = next.sequence_number, known.trial_dead_letter, 0),
			trial_attempts    = iif(known.sequence_number = next.sequence_number, known.trial_attempts, 0),
			trial_error       = iif(known.sequence_number = next.sequence_number, known.trial_error, ''),
			trial_unreturned  = iif(known.sequence_number = next.sequence_number, known.trial_unreturned, 0)
		FROM (SELECT ? AS sequence_number, ? AS event_offset, ? AS done) AS next
		WHERE ` + ofLease + ` AND known.sequence_number <= next.sequence_number`,
	// SQLite does not write a row that stays as it is: the time must change,
	// also twice in a millisecond.
	probe: `
		UPDATE sluice_checkpoints
		SET updated_at = iif(updated_at <> ` + now + `, ` + now + `, strftime('%Y-%m-%dT%H:%M:%f000Z', updated_at, '+0.001 seconds'))
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	record: `
		UPDATE sluice_checkpoints SET
			trial_sequence = ?, trial_dead_letter = ?, trial_attempts = ?, trial_error = ?, trial_unreturned = ?, updated_at = ` + now + `
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	leave:  `UPDATE sluice_checkpoints SET claims = 0, updated_at = ` + now + ` WHERE ` + ofLease,
	read:   `SELECT partition, ` + progress + ` FROM sluice_checkpoints WHERE ` + ofGroup + ` ORDER BY partition`,
	holder: `SELECT owner, epoch, sequence_number FROM sluice_checkpoints WHERE ` + ofKey,
	reset: `
		INSERT INTO sluice_checkpoints AS known (namespace, topic, consumer_group, partition, ` + checkpointColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, '', 1, 0, 0, 0, '', ` + now + `)
		ON CONFLICT DO UPDATE SET
			incarnation = excluded.incarnation, sequence_number = excluded.sequence_number, event_offset = excluded.event_offset,
			owner = '', epoch = known.epoch + 1, claims = 0,
			` + noAttempts + `, done = '', updated_at = excluded.updated_at
		RETURNING epoch`,

	// What lies beyond the step goes as well: a program that knows version 2 may
	// have set the checkpoint back.
	forgetDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND origin = ? AND (top <= ? OR step >= ?)`,
	expireDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND seen_at < ?`,
	resetDedup:  `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND step > ?`,
	storeDedup: `
		INSERT OR REPLACE INTO sluice_seen (namespace, topic, consumer_group, partition, origin, step, epoch, low, top, seen_at, ids)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	readDedup: `
		SELECT origin, s.epoch, low, top, seen_at, ids FROM sluice_seen AS s JOIN sluice_checkpoints USING (namespace, topic, consumer_group, partition)
		WHERE ` + ofKey + ` AND step <= sequence_number ORDER BY step`,

	park: `
		INSERT INTO sluice_dead_letters (` + strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, topic, consumer_group, incarnation, partition, sequence_number) DO UPDATE SET
			failed_at = excluded.failed_at, error = excluded.error, attempts = excluded.attempts,
			status = excluded.status, next_attempt = excluded.next_attempt`,
	settleEvents: `
		DELETE FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? AND sequence_number <= ?
			AND sequence_number NOT IN (SELECT value FROM json_each(?))`,
	endRedrive:     `DELETE FROM sluice_dead_letters WHERE ` + ofRedrive,
	failRedrive:    `UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ? WHERE ` + ofRedrive,
	settleRedriven: `DELETE FROM sluice_dead_letters WHERE ` + ofGroup + ` AND status = 'retry' AND id IN (SELECT value FROM json_each(?))`,
	settleFailed: `
		UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ?
		WHERE ` + ofGroup + ` AND id = ? AND status = 'retry'`,
	parked: `
		SELECT sequence_number FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? ORDER BY sequence_number`,
	held: `
		SELECT partition_key, incarnation, min(sequence_number) FROM sluice_dead_letters AS d
		WHERE ` + ofKey + ` AND status <> 'discarded' AND partition_key <> ''
			AND NOT EXISTS (SELECT 1 FROM json_each(?) WHERE value = d.id)
		GROUP BY partition_key, incarnation`,
	due: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status = 'retry' AND next_attempt <= ` + now + `
		ORDER BY sequence_number, id LIMIT ?`,
	markRedrive: `UPDATE sluice_dead_letters SET status = 'retry', next_attempt = coalesce(?, ` + now + `) WHERE`,
	discard:     `UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE`,

	idIn:          `id IN (SELECT value FROM json_each(?))`,
	statusIn:      `status IN (SELECT value FROM json_each(?))`,
	errorContains: `contains_fold(error, ?)`,

	schemaTable: `
		CREATE TABLE IF NOT EXISTS sluice_schema (
			component         TEXT    NOT NULL PRIMARY KEY,
			version           INTEGER NOT NULL,
			oldest_compatible INTEGER NOT NULL, -- programs that know this version or a later one can work here
			applied_at        TEXT    NOT NULL  -- UTC
		) STRICT`,
	schemaFound:   `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'sluice_schema'`,
	schemaVersion: `SELECT version, oldest_compatible FROM sluice_schema WHERE component = ?`,
	schemaStep: `
		INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES (?, ?, ?, ` + now + `)
		ON CONFLICT DO UPDATE SET
			version = excluded.version, oldest_compatible = excluded.oldest_compatible, applied_at = excluded.applied_at`,
}
