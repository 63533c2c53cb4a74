package eventhubs

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// States that callers can ask for with [errors.Is].
var (
	// ErrClosed: the broker was closed.
	ErrClosed = disklog.ErrClosed
	// ErrDeleted: the hub was deleted, or deleted and created again, since the
	// caller looked it up.
	ErrDeleted = errors.New("event hub was deleted")
	// ErrUnknownHub: there is no event hub of that name.
	ErrUnknownHub = errors.New("no such event hub")
	// ErrUnknownGroup: the hub has no consumer group of that name.
	ErrUnknownGroup = errors.New("no such consumer group")
)

// EpochError refuses a reader because one of a higher epoch is attached, or
// because one with an epoch is and the refused reader has none.
type EpochError struct {
	Held   int64  // epoch of the attached reader
	Holder string // its name, if it gave one
	Epoch  *int64 // of the refused one; nil if it is a plain reader

	scope readerScope
}

func (e *EpochError) Error() string {
	if e.Epoch == nil {
		return fmt.Sprintf("%s: a reader of epoch %d is attached: read with an epoch of at least that, or through another consumer group", e.scope, e.Held)
	}
	return fmt.Sprintf("%s: a reader of epoch %d is attached, higher than %d", e.scope, e.Held, *e.Epoch)
}

// ReaderLimitError refuses one more reader without an epoch.
type ReaderLimitError struct {
	Limit   int
	Holders []string // names of the attached readers, those that gave one or not

	scope readerScope
}

func (e *ReaderLimitError) Error() string {
	return fmt.Sprintf("%s: %d readers are attached, the most that are allowed: close one, or read through another consumer group", e.scope, e.Limit)
}

// StartError refuses a start that cannot be found in the partition's log.
type StartError struct {
	Hub, Partition string
	Start          StartPosition
	Why            string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("partition %s of %s: cannot start at %s: %s", e.Partition, e.Hub, e.Start, e.Why)
}

// ShrinkError refuses to open a hub with fewer partitions than it has on disk.
type ShrinkError struct {
	Hub       string
	Has, Want int
}

func (e *ShrinkError) Error() string {
	return fmt.Sprintf("event hub %s has %d partitions on disk and cannot shrink to %d: ask for at least %d, or remove the hub's data",
		e.Hub, e.Has, e.Want, e.Has)
}
