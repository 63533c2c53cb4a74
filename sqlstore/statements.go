package sqlstore

import (
	"cmp"
	"reflect"
	"strings"
)

// statements is the SQL of the store, with ? for its arguments. Comments list them in order; MySQL
// has no way to use one twice. Group stands for namespace, topic, consumer_group; key for group,
// partition; lease for key, owner, epoch; progress for the columns of a checkpoint after those of
// its key. Every decision is made inside a single statement: nothing is read first and written
// later. What a statement has written is read, where that is needed, in the same transaction.
// Assignments are in an order in which none reads a column that one before it has changed: MySQL
// makes them one after the other.
type statements struct {
	TakeLease string // owner, lowest new epoch, ms to live, key, owner; one row, or none if it is held or missing
	AddLease  string // key, owner, epoch, ms to live; one row, or none or a duplicate if there is one
	Epoch     string // key → epoch, began_incarnation
	MarkBegan string // began_incarnation, lease; one row or none
	Began     string // as MarkBegan → a row if it has nothing to change; empty: it counts such a row
	Renew     string // ms to live, lease; one row or none
	RenewAll  string // ms to live, group, owner; ends in AND
	Release   string // lease
	Leases    string // group → partition, owner, epoch, began_incarnation, ms left, renewed_at, whether that is in the future
	Future    string // group; has the leases that were renewed in the future renewed now

	TakeCheckpoint string // epoch, owner, epoch, epoch, key, epoch, epoch, owner; one row, or none if it is fenced or missing
	AddCheckpoint  string // key, incarnation, owner, epoch; one row, or none or a duplicate if there is one
	Claimed        string // group, incarnation, partition, key → progress, number after the dead letters
	Lock           string // lease, expected sequence_number → a row, which is locked until the transaction ends, or none; executed by lock
	Committed      string // key, time → a row if the checkpoint was written last at that time. Empty: lock does not ask
	Move           string // sequence_number, event_offset, lease, expected sequence_number; one row or none
	MoveIntact     string // the transaction's mark, then as Move → a row, or none if the transaction is not intact or the step is fenced. Empty: intact asks, then Move
	Stay           string // lease, expected sequence_number; one row or none
	Probe          string // the same, and certainly writes
	Advance        string // sequence_number seven times, event_offset, done, lease, sequence_number, incarnation; one row or none
	Record         string // trial_sequence, …dead_letter, …attempts, …error, …unreturned, lease, expected sequence_number; one row or none
	Leave          string // lease
	Read           string // group → partition, progress
	Holder         string // key → owner, epoch, sequence_number
	Begin          string // sequence_number, event_offset, began_sequence, began_how, lease, expected sequence_number; one row or none
	Reset          string // incarnation, sequence_number, event_offset, began_sequence, began_how, key; one row, or none if it is missing
	AddReset       string // key, incarnation, sequence_number, event_offset, began_sequence, began_how; one row, or none or a duplicate if there is one
	Raised         string // key → epoch

	ForgetDedup string // key, origin, highest top, step
	ExpireDedup string // key, time
	ResetDedup  string // key, highest step that stays
	StoreDedup  string // key, origin, step, epoch, low, top, seen_at, ids
	ReadDedup   string // key → origin, epoch, low, top, seen_at, ids

	Park           string // all columns of a dead letter but its id
	SettleEvents   string // group, incarnation, partition, sequence_number after, up to, JSON array of those that stay
	EndRedrives    string // key, JSON array of ids
	FailRedrive    string // failed_at, error, attempts, status, next_attempt, key, id; one row or none
	Postpone       string // failed_at, error, attempts, status, milliseconds, key, id; one row or none
	SettleRedriven string // group, JSON array of ids
	SettleFailed   string // failed_at, error, attempts, status, next_attempt, group, id
	Parked         string // group, incarnation, partition, sequence_number → id, sequence_number, event_offset
	SetAside       string // incarnation, group, JSON array of ids
	Drop           string // group, JSON array of ids
	Held           string // key, JSON array of ids that do not count → partition_key, incarnation, lowest sequence_number
	Due            string // key, limit → dead letters with bodies
	DuePartitions  string // JSON array of partitions, group → partition
	Uncopied       string // key, id, limit → dead letters with bodies
	MarkCopied     string // key, JSON array of ids
	MarkRedrive    string // time or NULL for now; ends in WHERE
	Discard        string // ends in WHERE

	CheckDeferred string // checks now what a commit would check; empty: there is no such thing, or no way
	Session       string // → this session's number; empty: no session can be ended
	Blockers      string // a session's number → number, user, application of each session that it waits for, and whether it may be ended
	EndSession    string // ends the session whose number replaces %d

	OfGroup       string // condition with a group
	IdIn          string // condition with a JSON array of ids
	KeyIs         string // condition with a key of events
	StatusIn      string // condition with a JSON array of statuses
	ErrorContains string // condition with a text

	SchemaTable   string // creates the table of versions if it is missing
	SchemaFound   string // → 1 if that table is there, else 0
	SchemaVersion string // component → version or 0, oldest compatible one or 0
	SchemaStep    string // records {version} of {component}, and its {oldest} compatible one
	SchemaLock    string // → 1 if this session may migrate, else 0; empty: a transaction that has begun has the lock
	SchemaUnlock  string
}

// The parts of conditions and lists.
const (
	ofGroup   = `{group}`
	ofKey     = ofGroup + ` AND partition = ?`
	ofLease   = ofKey + ` AND owner = ? AND epoch = ?`
	ofRedrive = ofKey + ` AND id = ? AND status = 'retry'`

	checkpointColumns = `incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at`
	progress          = checkpointColumns + `, trial_dead_letter, trial_unreturned, CASE WHEN done_epoch = epoch THEN done ELSE '' END, began_sequence, ` + beganHow
	// A program that does not know these columns resets a checkpoint without done_epoch.
	beganHow   = `CASE WHEN owner = '' AND done_epoch <> epoch THEN '' ELSE began_how END`
	noAttempts = `trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0`
	failure    = `failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = ?`
)

// portable are the statements that every database understands once these words are replaced:
//
//	{now}           the database's clock, which stands still within a statement
//	{until}         now and ? milliseconds
//	{left}          milliseconds from now to expires_at, 0 if that is NULL
//	{shifted}       now and what is from renewed_at to expires_at
//	{group}         condition for namespace, topic, consumer_group
//	{key}, {values} columns of an INSERT for namespace, topic, consumer_group, partition, and ? for each
//	{if missing}    what makes an INSERT do nothing if there is a row with its key; may be empty
//	{higher epoch}  the higher one of epoch + 1 and ?
//	{upsert}        what makes an INSERT of a dead letter update the columns of the failure if there is a row
//	{numbers}       subquery for the numbers of a JSON array, ?
//	{names}         table of the texts of a JSON array, ?, of at most 64 characters each
//	{by status}     has the index that begins with group, partition and status used; may be empty
//	{name}          a text of {names}, compared as the column partition is
var portable = statements{
	TakeLease: `
		UPDATE sluice_leases SET owner = ?, epoch = {higher epoch}, expires_at = {until}, renewed_at = {now}
		WHERE ` + ofKey + ` AND (expires_at IS NULL OR expires_at <= {now} OR owner = ?)`,
	AddLease: `
		INSERT INTO sluice_leases ({key}, owner, epoch, expires_at, renewed_at)
		VALUES ({values}, ?, ?, {until}, {now}) {if missing}`,
	Epoch:     `SELECT epoch, began_incarnation FROM sluice_leases WHERE ` + ofKey,
	MarkBegan: `UPDATE sluice_leases SET began_incarnation = ? WHERE ` + ofLease,
	Renew:     `UPDATE sluice_leases SET expires_at = {until}, renewed_at = {now} WHERE ` + ofLease + ` AND expires_at IS NOT NULL`,
	RenewAll: `
		UPDATE sluice_leases SET expires_at = {until}, renewed_at = {now}
		WHERE ` + ofGroup + ` AND owner = ? AND expires_at IS NOT NULL AND`,
	Release: `UPDATE sluice_leases SET expires_at = NULL WHERE ` + ofLease,
	Leases: `
		SELECT partition, owner, epoch, began_incarnation, {left}, renewed_at, CASE WHEN renewed_at > {now} THEN 1 ELSE 0 END
		FROM sluice_leases WHERE ` + ofGroup + ` ORDER BY partition`,
	Future: `
		UPDATE sluice_leases SET expires_at = CASE WHEN expires_at IS NOT NULL THEN {shifted} END, renewed_at = {now}
		WHERE ` + ofGroup + ` AND renewed_at > {now}`,

	TakeCheckpoint: `
		UPDATE sluice_checkpoints SET
			claims = claims + CASE WHEN ? > epoch THEN 1 ELSE 0 END,
			done = CASE WHEN done_epoch = epoch THEN done ELSE '' END,
			began_how = ` + beganHow + `,
			owner = ?, done_epoch = ?, epoch = ?, updated_at = {now}
		WHERE ` + ofKey + ` AND (epoch < ? OR epoch = ? AND owner = ?)`,
	AddCheckpoint: `
		INSERT INTO sluice_checkpoints ({key}, ` + checkpointColumns + `)
		VALUES ({values}, ?, -2, '', ?, ?, 1, 0, 0, '', {now}) {if missing}`,
	Claimed: `
		SELECT ` + progress + `, (
			SELECT COALESCE(MAX(sequence_number) + 1, 0) FROM sluice_dead_letters
			WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ?)
		FROM sluice_checkpoints WHERE ` + ofKey,
	Move: `
		UPDATE sluice_checkpoints SET
			sequence_number = ?, event_offset = ?, claims = 1,
			` + noAttempts + `, done = '', updated_at = {now}
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Stay:  `UPDATE sluice_checkpoints SET updated_at = {now} WHERE ` + ofLease + ` AND sequence_number = ?`,
	Probe: `UPDATE sluice_checkpoints SET updated_at = {now} WHERE ` + ofLease + ` AND sequence_number = ?`,
	Advance: `
		UPDATE sluice_checkpoints SET
			claims            = CASE WHEN sequence_number = ? THEN claims ELSE 1 END,
			trial_sequence    = CASE WHEN sequence_number = ? THEN trial_sequence ELSE 0 END,
			trial_dead_letter = CASE WHEN sequence_number = ? THEN trial_dead_letter ELSE 0 END,
			trial_error       = CASE WHEN sequence_number = ? THEN trial_error ELSE '' END,
			trial_unreturned  = CASE WHEN sequence_number = ? THEN trial_unreturned ELSE 0 END,
			trial_attempts    = CASE WHEN sequence_number = ? THEN trial_attempts ELSE 0 END,
			sequence_number = ?, event_offset = ?, done = ?, done_epoch = epoch, updated_at = {now}
		WHERE ` + ofLease + ` AND sequence_number <= ? AND incarnation = ?`,
	Record: `
		UPDATE sluice_checkpoints SET
			trial_sequence = ?, trial_dead_letter = ?, trial_attempts = ?, trial_error = ?, trial_unreturned = ?, updated_at = {now}
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Leave:  `UPDATE sluice_checkpoints SET claims = 0, updated_at = {now} WHERE ` + ofLease,
	Read:   `SELECT partition, ` + progress + ` FROM sluice_checkpoints WHERE ` + ofGroup + ` ORDER BY partition`,
	Holder: `SELECT owner, epoch, sequence_number FROM sluice_checkpoints WHERE ` + ofKey,
	Begin: `
		UPDATE sluice_checkpoints SET
			sequence_number = ?, event_offset = ?, began_sequence = ?, began_how = ?,
			` + noAttempts + `, done = '', updated_at = {now}, claims = 1
		WHERE ` + ofLease + ` AND sequence_number = ?`,
	Reset: `
		UPDATE sluice_checkpoints SET
			incarnation = ?, sequence_number = ?, event_offset = ?, began_sequence = ?, began_how = ?,
			owner = '', done_epoch = epoch + 1, epoch = epoch + 1, claims = 0,
			` + noAttempts + `, done = '', updated_at = {now}
		WHERE ` + ofKey,
	AddReset: `
		INSERT INTO sluice_checkpoints ({key}, ` + checkpointColumns + `, began_sequence, began_how, done_epoch)
		VALUES ({values}, ?, ?, ?, '', 1, 0, 0, 0, '', {now}, ?, ?, 1) {if missing}`,
	Raised: `SELECT epoch FROM sluice_checkpoints WHERE ` + ofKey,

	// What lies beyond the step goes as well: a program that knows version 2 of SQLite's tables may
	// have set the checkpoint back.
	ForgetDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND origin = ? AND (top <= ? OR step >= ?)`,
	ExpireDedup: `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND seen_at < ?`,
	ResetDedup:  `DELETE FROM sluice_seen WHERE ` + ofKey + ` AND step > ?`,
	StoreDedup: `
		REPLACE INTO sluice_seen ({key}, origin, step, epoch, low, top, seen_at, ids)
		VALUES ({values}, ?, ?, ?, ?, ?, ?, ?)`,
	ReadDedup: `
		SELECT origin, s.epoch, low, top, seen_at, ids FROM sluice_seen AS s JOIN sluice_checkpoints USING (namespace, topic, consumer_group, partition)
		WHERE ` + ofKey + ` AND step <= sequence_number ORDER BY step`,

	Park: `
		INSERT INTO sluice_dead_letters (` + strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {upsert}`,
	SettleEvents: `
		DELETE FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? AND sequence_number <= ?
			AND sequence_number NOT IN {numbers}`,
	EndRedrives: `DELETE FROM sluice_dead_letters WHERE ` + ofKey + ` AND status = 'retry' AND id IN {numbers}`,
	FailRedrive: `UPDATE sluice_dead_letters SET ` + failure + ` WHERE ` + ofRedrive,
	Postpone: `
		UPDATE sluice_dead_letters SET failed_at = ?, error = ?, attempts = ?, status = ?, next_attempt = {until}
		WHERE ` + ofRedrive,
	SettleRedriven: `DELETE FROM sluice_dead_letters WHERE ` + ofGroup + ` AND status = 'retry' AND id IN {numbers}`,
	SettleFailed:   `UPDATE sluice_dead_letters SET ` + failure + ` WHERE ` + ofGroup + ` AND id = ? AND status = 'retry'`,
	Parked: `
		SELECT id, sequence_number, event_offset FROM sluice_dead_letters
		WHERE ` + ofGroup + ` AND incarnation = ? AND partition = ? AND sequence_number > ? ORDER BY sequence_number`,
	SetAside: `UPDATE sluice_dead_letters SET incarnation = ? WHERE ` + ofGroup + ` AND id IN {numbers}`,
	Drop:     `DELETE FROM sluice_dead_letters WHERE ` + ofGroup + ` AND id IN {numbers}`,
	Held: `
		SELECT partition_key, incarnation, MIN(sequence_number) FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status <> 'discarded' AND partition_key <> '' AND id NOT IN {numbers}
		GROUP BY partition_key, incarnation`,
	Due: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND status = 'retry' AND next_attempt <= {now}
		ORDER BY sequence_number, id LIMIT ?`,
	// One look into the index for each partition: it reads no dead letters but those marked for
	// redrive.
	DuePartitions: `
		SELECT name FROM {names}
		WHERE EXISTS (SELECT 1 FROM sluice_dead_letters {by status} WHERE ` + ofGroup + ` AND partition = {name} AND status = 'retry' AND next_attempt <= {now})`,
	Uncopied: `
		SELECT ` + deadLetterColumns + heavyColumns + ` FROM sluice_dead_letters
		WHERE ` + ofKey + ` AND copied = 0 AND id > ? ORDER BY id LIMIT ?`,
	MarkCopied:  `UPDATE sluice_dead_letters SET copied = 1 WHERE ` + ofKey + ` AND id IN {numbers}`,
	MarkRedrive: `UPDATE sluice_dead_letters SET status = 'retry', next_attempt = COALESCE(?, {now}) WHERE`,
	Discard:     `UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE`,
	OfGroup:     ofGroup,
	IdIn:        `id IN {numbers}`,
	KeyIs:       `partition_key = ?`,

	SchemaVersion: `SELECT version, oldest_compatible FROM sluice_schema WHERE component = ?`,
}

// newStatements returns a dialect's statements: its own, and else the portable ones, with change
// applied to each.
func newStatements(own statements, change func(query string) string) *statements {
	v, p := reflect.ValueOf(&own).Elem(), reflect.ValueOf(portable)
	for i := range v.NumField() {
		v.Field(i).SetString(change(cmp.Or(v.Field(i).String(), p.Field(i).String())))
	}
	return &own
}

// takeParts takes the parts of statements from those whose arguments are not numbered: the
// dialect's rebind numbers what is made of them.
func (s *statements) takeParts(whole *statements) {
	s.RenewAll, s.MarkRedrive, s.Discard = whole.RenewAll, whole.MarkRedrive, whole.Discard
	s.OfGroup, s.IdIn, s.KeyIs, s.StatusIn, s.ErrorContains = whole.OfGroup, whole.IdIn, whole.KeyIs, whole.StatusIn, whole.ErrorContains
}
