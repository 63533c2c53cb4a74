package disklog

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/internal/datadir"
)

// Errors for [errors.Is].
var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrLocked: another process, or another log of this one, has the directory open.
	ErrLocked = datadir.ErrLocked
	// ErrTooLarge: a batch or a key is above the limit.
	ErrTooLarge = errors.New("too large for the log")
	// ErrUnusable: the log refuses appends until it is opened again.
	ErrUnusable = errors.New("log refuses appends until it is opened again")
)

// WriteError is a failed append. Nothing was appended, unless the log has become
// unusable.
type WriteError struct {
	Dir      string // "" in memory
	Doing    string // what failed, e.g. "sync"
	Err      error
	Unusable bool // the file could not be truncated: see [ErrUnusable]; the batch may be in the log when it is opened again
}

func (e *WriteError) Error() string {
	next := "nothing was appended; free space or repair the disk, then append again"
	if e.Unusable {
		next = "the log refuses appends until it is opened again; repair the disk and restart"
	}
	return fmt.Sprintf("log %s: %s: %v: %s", e.Dir, e.Doing, e.Err, next)
}

// Unwrap gives the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrUnusable] and the log has become unusable.
func (e *WriteError) Is(target error) bool { return e.Unusable && target == ErrUnusable }

// CorruptError means that acknowledged events are damaged or missing.
type CorruptError struct {
	File   string
	Offset int64 // byte position in the file
	Why    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("log file %s is damaged at byte %d: %s: restore it from a backup, or remove the log's directory to start empty", e.File, e.Offset, e.Why)
}
