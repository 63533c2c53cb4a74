package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// SilentReaderError is observed when a reader of the log has returned nothing for
// [Config].SilentAfter although the log holds further events, or ends before what was read:
// then the topic may have been recreated. The reader is replaced.
type SilentReaderError struct {
	Partition string
	Read      int64         // sequence number of the newest event read
	Last      int64         // of the newest event in the log
	For       time.Duration // since the log was first seen to hold more, or less
}

func (e *SilentReaderError) Error() string {
	if e.Last < e.Read {
		return fmt.Sprintf("partition %s: the reader has returned nothing for %v, and the log ends at event %d although event %d was read: the topic may have been recreated; opening another reader",
			e.Partition, e.For.Truncate(time.Second), e.Last, e.Read)
	}
	return fmt.Sprintf("partition %s: the reader has returned nothing for %v although the log holds events up to %d and only those up to %d were read: the connection is silent; opening another reader",
		e.Partition, e.For.Truncate(time.Second), e.Last, e.Read)
}

// reading is a reader that is open, and the buffer that it fills.
type reading struct {
	reader driver.Reader
	buffer *prefetchBuffer
}

// paused reports whether the reader returns nothing on purpose.
func (r *reading) paused() bool {
	p, ok := r.reader.(driver.PausedReader)
	return ok && p.Paused()
}

// watchedReader notes on a track when it reads.
type watchedReader struct {
	driver.Reader
	track *track
}

// Read implements [driver.Reader].
func (r watchedReader) Read(ctx context.Context, max int) ([]*Event, error) {
	defer r.track.doing(activityRead, 0, 0).done()
	return r.Reader.Read(ctx, max)
}

// silenceWatch looks for a reader that is silent. Brokers have been seen to keep a link
// open and to send nothing over it. Only the watching goroutine uses it.
type silenceWatch struct {
	a       *assignment
	changes uint64        // of the reader's track
	answers int64         // how often the log had been asked for its end
	since   time.Duration // when the read in progress was first seen to miss events, by Clock.Elapsed
}

// look ends the reading if one Read has been in progress for SilentAfter while the log
// holds more, or ends before what was read. The end must have been asked for since.
func (w *silenceWatch) look(now time.Duration) {
	a := w.a
	what, changes, _, _ := a.reader.load()
	read, last := a.lag.ends()
	reading := a.reading.Load()
	if what == nil || read == last || changes != w.changes || reading == nil || reading.paused() {
		w.changes, w.answers, w.since = changes, a.lag.answers.Load(), now
		return
	}
	silent := now - w.since
	if silent < a.c.cfg.SilentAfter || a.lag.answers.Load() == w.answers {
		return
	}
	reading.buffer.fail(&SilentReaderError{Partition: a.lease.Partition, Read: read, Last: last, For: silent})
	w.since = now
}
