package partition

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// explainSilence returns an driver.ErrRetention for a [driver.SilentReaderError] if the log does
// not hold the next event any more: where retention has removed all events after a position, a
// broker opens it and has nothing to send. No reader may be open. It returns other errors as they
// are.
func (a *Assignment) explainSilence(err error) error {
	silent := new(driver.SilentReaderError)
	if !errors.As(err, &silent) {
		return err
	}
	var oldest driver.Position
	seekErr := a.Request(a.Idle, "seek the oldest event", func(ctx context.Context) (err error) {
		oldest, err = a.Host.Source.Seek(ctx, a.Lease.Partition, driver.Start{Kind: driver.StartEarliest}, a.Lease.Epoch)
		return err
	})
	if seekErr != nil || oldest.Sequence <= silent.Read || a.checkIncarnation() != nil {
		return err
	}
	return &driver.RetentionError{Partition: a.Lease.Partition, After: silent.Read, First: oldest.Sequence + 1}
}

// reading is a reader that is open, the buffer that it fills, and the incarnation of the
// topic that it reads.
type reading struct {
	reader      driver.Reader
	buffer      *Buffer
	incarnation string
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
func (r watchedReader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	defer r.track.Doing(activityRead, 0, 0).Done()
	return r.Reader.Read(ctx, max)
}

// silenceWatch looks for a reader that is silent. Brokers have been seen to keep a link
// open and to send nothing over it. Only the watching goroutine uses it.
type silenceWatch struct {
	a       *Assignment
	changes uint64        // of the reader's track
	answers int64         // how often the log had been asked for its end
	began   time.Duration // when the read in progress was first seen to miss events, by Clock.Elapsed
	last    int64         // the newest event that the log was known to hold since then
}

// look ends the reading if one Read has been in progress for SilentAfter while the log
// holds more. The end must have been asked for since: the topic may have been recreated. An
// answer that is out of date takes nothing back.
func (w *silenceWatch) look(now time.Duration) {
	a := w.a
	what, changes, _, _ := a.reader.load()
	read, reading := a.Lag.read.Load(), a.reading.Load()
	if what == nil || changes != w.changes || reading == nil || reading.paused() {
		w.changes, w.answers, w.began, w.last = changes, a.Lag.answers.Load(), now, read
		return
	}
	if w.last = max(w.last, read+a.Lag.missing()); w.last <= read {
		w.answers, w.began = a.Lag.answers.Load(), now
		return
	}
	silent := now - w.began
	if silent < a.Settings.SilentAfter || a.Lag.answers.Load() == w.answers {
		return
	}
	reading.buffer.fail(&driver.SilentReaderError{Partition: a.Lease.Partition, Read: read, Last: w.last, For: silent})
	w.began = now
}
