package peek

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// span is what a partition holds when the look begins.
type span struct {
	partition string
	first     int64 // the oldest
	last      int64 // the newest that can be read; first-1 if there is none
	held      *driver.HeldBack
}

func (s *span) size() int64 { return max(0, s.last-s.first+1) }

// readBatch is the most events of one read.
const readBatch = 1000

// parallel is how many partitions are read at the same time: in Event Hubs each takes a connection.
const parallel = 8

// eachPartition calls fn for each partition, several at a time. The first error ends all.
func eachPartition(parent context.Context, partitions []string, most int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	slots := make(chan struct{}, most)
	var all sync.WaitGroup
	for i := range partitions {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := fn(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	switch {
	case parent.Err() != nil:
		return parent.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil
}

// look asks for what a partition holds.
func (l *Log) look(ctx context.Context, partition string) (span, error) {
	s := span{partition: partition}
	err := l.inSomeGroup(ctx, partition, func(source Source) error {
		bounds, err := source.Bounds(ctx, partition)
		if err != nil {
			return err
		}
		end, err := source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, driver.NoEpoch)
		if err != nil {
			return err
		}
		s.first, s.held = max(bounds.First, 0), bounds.Held
		s.last = max(end.Sequence, s.first-1)
		return nil
	})
	return s, err
}

// seek returns the number before the first event that a start selects.
func (l *Log) seek(ctx context.Context, partition string, start driver.Start) (after int64, err error) {
	err = l.inSomeGroup(ctx, partition, func(source Source) error {
		at, err := source.Seek(ctx, partition, start, driver.NoEpoch)
		after = max(at.Sequence, -1)
		return err
	})
	return after, err
}

// reading is how the events of a partition are read, from one number to another.
type reading struct {
	log       *Log
	partition string
	lastRead  int64 // the last that was read, or is to be left out
	end       int64 // the last to read
	// patience bounds the wait for an event that is there. Where new ones are awaited, the log is
	// then opened again.
	patience time.Duration
	// event is called for each event; it may end the reading.
	event func(*driver.Event) (more bool, err error)
	// gone is called if events from number first to number last are gone.
	gone func(first, last int64)

	ended bool // event has ended it
}

// run reads. If events are gone, it goes on with the oldest one.
func (r *reading) run(ctx context.Context) error {
	for r.lastRead < r.end && !r.ended {
		err := r.log.inSomeGroup(ctx, r.partition, func(source Source) error { return r.read(ctx, source) })
		var gone *driver.RetentionError
		switch {
		case errors.As(err, &gone) && gone.First > r.lastRead+1:
			r.gone(r.lastRead+1, gone.First-1)
			r.lastRead = gone.First - 1
		case err != nil:
			return err
		}
	}
	return nil
}

// read reads from one source, up to the end or an error.
func (r *reading) read(ctx context.Context, source Source) error {
	reader, err := source.Open(ctx, r.partition, driver.Position{Sequence: r.lastRead}, driver.NoEpoch)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
		defer cancel()
		_ = reader.Close(closing)
	}()
	for r.lastRead < r.end {
		waiting, cancel := context.WithTimeout(ctx, r.patience)
		events, err := reader.Read(waiting, readBatch)
		late := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && late && r.end == noEnd {
			return nil
		}
		if err != nil && late {
			return fmt.Errorf("%s, partition %s: nothing came within %v after event %d, although the log has events up to %d: try again; if it stays, sluice check --connect examines the log",
				r.log.Name(), r.partition, r.patience, r.lastRead, r.end)
		}
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Sequence > r.end {
				r.lastRead = r.end
				return nil
			}
			r.lastRead = e.Sequence
			if e.Control {
				continue
			}
			if more, err := r.event(e); err != nil || !more {
				r.ended = err == nil
				return err
			}
		}
	}
	return nil
}
