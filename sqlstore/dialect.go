package sqlstore

import (
	"context"
	"database/sql"
	"reflect"
	"time"
)

// dialect is what differs between databases.
type dialect interface {
	// statements is the dialect's SQL.
	statements() *statements
	// steps are the migrations of a component, oldest first.
	steps(component string) []step
	// script divides a migration into what one call can execute.
	script(text string) []string
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
	// chunk is how many rows one INSERT of Tx.Insert has at most.
	chunk() int
	// time is a time as an argument of a statement.
	time(t time.Time) any
	// ends reports whether a statement would end the transaction; false where the watch is asked
	// before each commit.
	ends(query string) bool
	// guard marks a transaction before the handler gets it.
	guard(ctx context.Context, t *transaction) error
	// intact returns errEnded if the transaction that guard has marked is over, and another has
	// begun or none. It comes before the commit, and after a handler's error.
	intact(ctx context.Context, t *transaction) error
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
	// faultBusy: another process holds the database, or has won a deadlock. The same transaction
	// can succeed at once.
	faultBusy
	// faultRefused: the database could not do it now, and did nothing.
	faultRefused
	// faultMissing: the statement names something that is missing, or may not be used. It fails
	// with any values.
	faultMissing
	// faultTimeLimit: a limit of the database on the time of a statement passed.
	faultTimeLimit
	// faultBroken: the database failed; the outcome of a commit is unknown.
	faultBroken
)

// outage reports whether the database failed, and not the statement.
func (f fault) outage() bool { return f >= faultBusy && f != faultMissing && f != faultTimeLimit }

// statements is the SQL of the store, with ? for its arguments. Comments list
// them in order; MySQL has no way to use one twice. Group stands for namespace, topic, consumer_group; key for group,
// partition; lease for key, owner, epoch; progress for the columns of a checkpoint after those of its
// key. Every decision is made inside a single statement: nothing is read first and written later.
// What a statement has written is read, where that is needed, in the same transaction. Assignments
// are in an order in which none reads a column that one before it has changed: MySQL makes them
// one after the other.
type statements struct {
	TakeLease string // owner, lowest new epoch, ms to live, key, owner; one row, or none if it is held or missing
	AddLease  string // key, owner, epoch, ms to live; one row, or none or a duplicate if there is one
	Epoch     string // key → epoch
	Renew     string // ms to live, lease; one row or none
	Release   string // lease
	Leases    string // group → partition, owner, epoch, ms left, renewed_at, whether that is in the future
	Future    string // group; has the leases that were renewed in the future renewed now

	TakeCheckpoint string // epoch, owner, epoch, epoch, key, epoch, epoch, owner; one row, or none if it is fenced or missing
	AddCheckpoint  string // key, incarnation, owner, epoch; one row, or none or a duplicate if there is one
	Claimed        string // group, incarnation, partition, key → progress, number after the dead letters
	Lock           string // lease, expected sequence_number → a row, which is locked, or none. Empty: the move comes before the handler, and locks
	Move           string // sequence_number, event_offset, lease, expected sequence_number; one row or none
	Stay           string // lease, expected sequence_number; one row or none
	Probe          string // the same, and certainly writes
	Advance        string // sequence_number seven times, event_offset, done, lease, sequence_number; one row or none
	Record         string // trial_sequence, …dead_letter, …attempts, …error, …unreturned, lease, expected sequence_number; one row or none
	Leave          string // lease
	Read           string // group → partition, progress
	Holder         string // key → owner, epoch, sequence_number
	Reset          string // incarnation, sequence_number, event_offset, key; one row, or none if it is missing
	AddReset       string // key, incarnation, sequence_number, event_offset; one row, or none or a duplicate if there is one
	Raised         string // key → epoch

	ForgetDedup string // key, origin, highest top, step
	ExpireDedup string // key, time
	ResetDedup  string // key, highest step that stays
	StoreDedup  string // key, origin, step, epoch, low, top, seen_at, ids
	ReadDedup   string // key → origin, epoch, low, top, seen_at, ids

	Park           string // all columns of a dead letter but its id
	SettleEvents   string // group, incarnation, partition, sequence_number after, up to, JSON array of those that stay
	EndRedrive     string // key, id; one row or none
	FailRedrive    string // failed_at, error, attempts, status, next_attempt, key, id; one row or none
	SettleRedriven string // group, JSON array of ids
	SettleFailed   string // failed_at, error, attempts, status, next_attempt, group, id
	Parked         string // group, incarnation, partition, sequence_number → sequence_number
	Held           string // key, JSON array of ids that do not count → partition_key, incarnation, lowest sequence_number
	Due            string // key, limit → dead letters with bodies
	MarkRedrive    string // time or NULL for now; ends in WHERE
	Discard        string // ends in WHERE

	IdIn          string // condition with a JSON array of ids
	StatusIn      string // condition with a JSON array of statuses
	ErrorContains string // condition with a text

	SchemaTable   string // creates the table of versions if it is missing
	SchemaFound   string // → 1 if that table is there, else 0
	SchemaVersion string // component → version or 0, oldest compatible one or 0
	SchemaStep    string // component, version, oldest compatible one
	SchemaLock    string // → 1 if this session may migrate, else 0; empty: a transaction that has begun has the lock
	SchemaUnlock  string
}

// rewrite returns the statements with change applied to each.
func rewrite(s statements, change func(query string) string) *statements {
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(change(v.Field(i).String()))
	}
	return &s
}
