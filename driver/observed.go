package driver

import (
	"fmt"
	"time"
)

// BacklogError is observed when an event is not done although one of its records was
// first submitted more than sluice.AtLeastOnceConfig.MaxAge ago.
type BacklogError struct {
	Partition string
	Sequence  int64
	Age       time.Duration // since a record of it was first submitted
	InFlight  int           // events of the partition
}

func (e *BacklogError) Error() string {
	return fmt.Sprintf("partition %s: event %d stuck in flight for %v since its first submission to the sink (%d events of the partition are in flight): check why the store does not accept it",
		e.Partition, e.Sequence, e.Age.Round(time.Second), e.InFlight)
}

// LostDeadLettersError is observed when the log has lost events that are dead letters and has given
// their numbers to others. The dead letters stay, apart from those of the other events.
type LostDeadLettersError struct {
	Partition string
	Events    []ParkedEvent // of one history
}

func (e *LostDeadLettersError) Error() string {
	return fmt.Sprintf("partition %s: the log lost %d events between %v and %v (%s) that are dead letters; other events have their numbers and are handled: the dead letters stay, redrive or discard them",
		e.Partition, len(e.Events), e.Events[0].Position, e.Events[len(e.Events)-1].Position, e.Events[0].Position.History())
}

// SilentReaderError is observed when a reader of the log has returned nothing for
// sluice.Config.SilentAfter although the log holds further events. The reader is replaced.
type SilentReaderError struct {
	Partition string
	Read      int64         // sequence number of the newest event read
	Last      int64         // of the newest event in the log
	For       time.Duration // since the log was first seen to hold more
}

func (e *SilentReaderError) Error() string {
	return fmt.Sprintf("partition %s: the reader has returned nothing for %v although the log holds events up to %d and only those up to %d were read: the connection is silent; opening another reader",
		e.Partition, e.For.Truncate(time.Second), e.Last, e.Read)
}
