package eventhubs

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Errors for [errors.Is].
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

// EpochError refuses a reader because one with a higher epoch is attached, or because
// any with an epoch is and the refused reader has none.
type EpochError struct {
	Held   int64  // epoch of the attached reader
	Holder string // its name, or ""
	Epoch  *int64 // of the refused reader; nil if it has none

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
	Holders []string // names of the attached readers, which may be ""

	scope readerScope
}

func (e *ReaderLimitError) Error() string {
	return fmt.Sprintf("%s: %d readers are attached, the maximum: close one, or read through another consumer group", e.scope, e.Limit)
}

// StartError means that a start position is not in the partition's log.
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
	return fmt.Sprintf("event hub %s has %d partitions on disk and cannot shrink to %d: configure at least %d, or remove the hub's data",
		e.Hub, e.Has, e.Want, e.Has)
}
