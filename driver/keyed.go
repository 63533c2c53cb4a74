package driver

import "fmt"

// Keyed says how rows are written to a table that has at most one row for each key: pgstore.Upsert
// and sqlstore.Tx.Upsert take it.
//
// The table needs a unique index or primary key on exactly these columns, all of them NOT NULL. Two
// keys are equal if the database says so: its collations and types count, not the bytes. A row that
// exists keeps the spelling of its key, and its values in columns that are not listed; a new row
// has their defaults.
//
// The rows of one call have an order, and the table is then as if they had been written one after
// the other (for Newer see there). But a database may pass over a row that another one of the call
// replaces, and so over an error of it: a value that does not fit, or a violated constraint. Calls
// of several transactions may write the same keys at the same time: they wait for each other, and
// one may fail by a deadlock, which is an outage and no fault of a row. Without an order between
// the transactions, such as that of one partition, the last commit wins.
type Keyed struct {
	// Key are columns of the row, in any order. A value must not be NULL.
	Key []string
	// OnConflict says what happens to a row whose key exists.
	OnConflict OnConflict
	// Version is the column that Newer compares, one of the row's. It is no part of the key.
	Version string
	// Delete reports whether the row of an index is a delete; nil: none is. Of a delete only the
	// key counts, and for Newer the version. That there is no such row is no error.
	Delete func(row int) bool
}

// OnConflict is what happens to a row whose key exists.
type OnConflict uint8

const (
	// Update replaces the values in the listed columns: the last change of a key wins.
	Update OnConflict = iota
	// Skip leaves the existing row alone: the first row of a key wins. A delete still deletes, and
	// the first row after it counts as new.
	Skip
	// Newer replaces a row, or deletes it, unless its version is higher than that of the change.
	// Of two equal versions the later change wins. A stored version that is NULL is replaced; a
	// change without a version replaces only such a row, or none. Versions compare as the database
	// compares values of the column.
	//
	// Of the changes in one call the one with the highest version counts for each key, also if it
	// is a delete. A delete with a lower version does nothing; one with the same version, before
	// the row, makes it a new row. But the table does not remember what was deleted: an older
	// change in a later call revives the row. To prevent that, keep the row and mark it as deleted
	// in a column.
	Newer
)

func (c OnConflict) String() string {
	switch c {
	case Update:
		return "update"
	case Skip:
		return "skip"
	case Newer:
		return "newer"
	}
	return fmt.Sprintf("OnConflict(%d)", uint8(c))
}

// NoKeyError is an [ErrUnsafeTable]: a keyed write could not rely on the table's unique indexes.
// Nothing was written.
type NoKeyError struct {
	Table string
	Why   string // what it has and what to do
}

func (e *NoKeyError) Error() string { return "table " + e.Table + " " + e.Why }

// Is reports whether target is [ErrUnsafeTable].
func (e *NoKeyError) Is(target error) bool { return target == ErrUnsafeTable }
