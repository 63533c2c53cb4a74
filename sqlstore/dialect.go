package sqlstore

// dialect is what differs between databases.
type dialect interface {
	// statements is the dialect's SQL.
	statements() *statements
	// steps are the migrations of a component, oldest first.
	steps(component string) []step
	// fault says what an error of the driver means.
	fault(err error) fault
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
// them in order, each once. Group stands for namespace, topic, consumer_group; key for group,
// partition; lease for key, owner, epoch; progress for the columns of a checkpoint after those of its
// key. Every decision is made inside a single statement: nothing is read first and written later.
type statements struct {
	acquire string // key, owner, lowest new epoch, ms to live → epoch; no row if it is held
	renew   string // ms to live, lease; one row or none
	release string // lease
	leases  string // group → partition, owner, epoch, ms left, renewed_at, whether that is in the future
	future  string // group; has the leases that were renewed in the future renewed now

	claim   string // key, incarnation, owner, epoch, group, incarnation, partition → progress, number after the dead letters; no row if it is fenced
	move    string // sequence_number, event_offset, lease, expected sequence_number; one row or none
	stay    string // lease, expected sequence_number; one row or none
	probe   string // the same, and certainly writes
	advance string // sequence_number, event_offset, done, lease; one row or none
	record  string // trial_sequence, …dead_letter, …attempts, …error, …unreturned, lease, expected sequence_number; one row or none
	leave   string // lease
	read    string // group → partition, progress
	holder  string // key → owner, epoch, sequence_number
	reset   string // key, incarnation, sequence_number, event_offset → epoch

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
	held           string // key, JSON array of ids that do not count → partition_key, incarnation, lowest sequence_number
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
