package disklog

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/internal/dirlock"
)

// States that callers can ask for with [errors.Is].
var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrLocked: another process, or another log of this one, has the directory open.
	ErrLocked = dirlock.ErrLocked
	// ErrTooLarge: a batch, or a key, that no log takes.
	ErrTooLarge = errors.New("too large for the log")
	// ErrUnusable: the log takes no appends until it is opened anew.
	ErrUnusable = errors.New("log refuses appends until it is opened again")
)

// WriteError is a failed append: nothing of it is in the log, unless that has
// become unusable.
type WriteError struct {
	Dir      string // "" in memory
	Doing    string // what failed, e.g. "sync"
	Err      error
	Unusable bool // the log could not be cut back: it is [ErrUnusable], and what was appended last may be in it when it is opened again
}

func (e *WriteError) Error() string {
	next := "nothing was appended; free space or mend the disk, and append again"
	if e.Unusable {
		next = "the log refuses appends until it is opened again; mend the disk and restart"
	}
	return fmt.Sprintf("log %s: %s: %v: %s", e.Dir, e.Doing, e.Err, next)
}

// Unwrap gives the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Is makes an error that leaves the log unusable an [ErrUnusable].
func (e *WriteError) Is(target error) bool { return e.Unusable && target == ErrUnusable }

// CorruptError is damage to what was acknowledged.
type CorruptError struct {
	File string
	At   int64 // byte position in the file
	Why  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("log file %s is damaged at byte %d: %s: restore it from a copy, or remove the log to start empty", e.File, e.At, e.Why)
}
