package sqlstore

import "database/sql"

// dialect is what differs between databases.
type dialect interface {
	// statements is the dialect's SQL.
	statements() *statements
	// steps are the migrations of a component, oldest first.
	steps(component string) []step
	// fault says what an error of the driver means.
	fault(err error) fault
	// duplicate reports whether an error says that there is a row with this key.
	duplicate(err error) bool
	// txOptions are how a transaction begins; nil if there is no choice.
	txOptions() *sql.TxOptions
	// hint says in a few words what to do about an error; it may be empty.
	hint(err error) string
	// rebind replaces each ? of a statement by the driver's placeholder.
	rebind(query string) string
	// quote quotes the name of a table or column.
	quote(name string) string
	// first is a condition that selects, of the dead letters that meet cond,
	// those with the lowest IDs, at most ? of them.
	first(cond string) string
	// variables is how many placeholders a statement can have.
	variables() int
}

// fault is what an error of the database means.
type fault uint8

const (
	// faultStatement: the statement is wrong.
	faultStatement fault = iota
	// faultVetoed: the watch refused the commit.
	faultVetoed
	// faultConstraint: what was written violates a constraint.
	faultConstraint
	// faultBusy: another process holds the database.
	faultBusy
	// faultRefused: the database could not do it now, and did nothing.
	faultRefused
	// faultMissing: the statement names something that is missing, or may not be used. It fails
	// with any values.
	faultMissing
	// faultBroken: the database failed; the outcome of a commit is unknown.
	faultBroken
)

// outage reports whether the database failed, and not the statement.
func (f fault) outage() bool { return f >= faultBusy && f != faultMissing }

// statements is the SQL of the store, with ? for its arguments. Comments list
// them in order; MySQL has no way to use one twice. Group stands for namespace, topic, consumer_group; key for group,
// partition; lease for key, owner, epoch; progress for the columns of a checkpoint after those of its
// key. Every decision is made inside a single statement: nothing is read first and written later.
// What a statement has written is read, where that is needed, in the same transaction. Assignments
// are in an order in which none reads a column that one before it has changed: MySQL makes them
// one after the other.
type statements struct {
	takeLease string // owner, lowest new epoch, ms to live, key, owner; one row, or none if it is held or missing
	addLease  string // key, owner, epoch, ms to live; one row, or none or a duplicate if there is one
	epoch     string // key → epoch
	renew     string // ms to live, lease; one row or none
	release   string // lease
	leases    string // group → partition, owner, epoch, ms left, renewed_at, whether that is in the future
	future    string // group; has the leases that were renewed in the future renewed now

	takeCheckpoint string // epoch, owner, epoch, epoch, key, epoch, epoch, owner; one row, or none if it is fenced or missing
	addCheckpoint  string // key, incarnation, owner, epoch; one row, or none or a duplicate if there is one
	claimed        string // group, incarnation, partition, key → progress, number after the dead letters
	move           string // sequence_number, event_offset, lease, expected sequence_number; one row or none
	stay           string // lease, expected sequence_number; one row or none
	probe          string // the same, and certainly writes
	advance        string // sequence_number seven times, event_offset, done, lease, sequence_number; one row or none
	record         string // trial_sequence, …dead_letter, …attempts, …error, …unreturned, lease, expected sequence_number; one row or none
	leave          string // lease
	read           string // group → partition, progress
	holder         string // key → owner, epoch, sequence_number
	reset          string // incarnation, sequence_number, event_offset, key; one row, or none if it is missing
	addReset       string // key, incarnation, sequence_number, event_offset; one row, or none or a duplicate if there is one
	raised         string // key → epoch

	forgetDedup string // key, origin, highest top, step
	expireDedup string // key, time
	resetDedup  string // key, highest step that stays
	storeDedup  string // key, origin, step, epoch, low, top, seen_at, ids
	readDedup   string // key → origin, epoch, low, top, seen_at, ids

	park           string // all columns of a dead letter but its id
	settleEvents   string // group, incarnation, partition, sequence_number after, up to, JSON array of those that stay
	endRedrive     string // key, id; one row or none
	failRedrive    string // failed_at, error, attempts, status, next_attempt, key, id; one row or none
	settleRedriven string // group, JSON array of ids
	settleFailed   string // failed_at, error, attempts, status, next_attempt, group, id
	parked         string // group, incarnation, partition, sequence_number → sequence_number
	held           string // key → partition_key
	due            string // key, limit → dead letters with bodies
	markRedrive    string // time or NULL for now; ends in WHERE
	discard        string // ends in WHERE

	idIn          string // condition with a JSON array of ids
	statusIn      string // condition with a JSON array of statuses
	errorContains string // condition with a text

	schemaTable   string // creates the table of versions if it is missing
	schemaFound   string // → 1 if that table is there, else 0
	schemaVersion string // component → version or 0, oldest compatible one or 0
	schemaStep    string // component, version, oldest compatible one
}
