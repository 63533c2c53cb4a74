package hub

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/internal/disklog"
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
// because the refused reader has none.
type EpochError struct {
	Hub, Group, Partition string
	Held                  int64  // epoch of the attached reader
	Epoch                 *int64 // of the refused one; nil if it is a plain reader
}

func (e *EpochError) Error() string {
	where := fmt.Sprintf("partition %s of %s, consumer group %s", e.Partition, e.Hub, e.Group)
	if e.Epoch == nil {
		return fmt.Sprintf("%s: a reader of epoch %d is attached: read with an epoch of at least that, or through another consumer group", where, e.Held)
	}
	return fmt.Sprintf("%s: a reader of epoch %d is attached, higher than %d", where, e.Held, *e.Epoch)
}

// ReaderLimitError refuses one more reader without an epoch.
type ReaderLimitError struct {
	Hub, Group, Partition string
	Limit                 int
}

func (e *ReaderLimitError) Error() string {
	return fmt.Sprintf("partition %s of %s, consumer group %s: %d readers are attached, the most that are allowed: close one, or read through another consumer group",
		e.Partition, e.Hub, e.Group, e.Limit)
}

// StartError refuses a start that cannot be found in the partition's log.
type StartError struct {
	Hub, Partition string
	Start          Start
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
