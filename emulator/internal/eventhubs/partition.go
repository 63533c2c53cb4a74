package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Message is an event to be appended.
type Message = disklog.Message

// Stored is an event of a partition.
type Stored = disklog.Stored

// Batch is the result of [Partition.ReadInto], whose memory the next one reuses.
type Batch = disklog.Batch

// Info describes what a partition holds.
type Info = disklog.Info

// Partition is one log of a [Hub]. Its methods may be called concurrently.
type Partition struct {
	hub     *Hub
	id      string
	log     *disklog.Log
	readers readers
	deleted atomic.Bool // the hub was deleted, which closed the log
}

// ID returns the partition's id, "0" to "n-1".
func (p *Partition) ID() string { return p.id }

// Append appends msgs, all of them or none, and returns the sequence number of the
// first. They are durable when it returns. It does not retain msgs. If ctx ends
// while other appends are being written, nothing is appended; after its own write
// has begun, Append waits for the result.
func (p *Partition) Append(ctx context.Context, msgs []Message) (first int64, err error) {
	first, err = p.log.Append(ctx, msgs)
	return first, p.wrapError(err)
}

// Info returns what the partition holds.
func (p *Partition) Info() Info { return p.log.Info() }

// InfoAt returns what the partition held at a time before now, without the events that were
// removed since then. End is that of now.
func (p *Partition) InfoAt(t time.Time) (Info, error) {
	info := p.log.Info()
	if !info.LastEnqueued.After(t) {
		return info, nil
	}
	next, err := p.log.SeekTime(t.UnixMilli() + 1)
	if err != nil {
		return info, p.wrapError(err)
	}
	info.Last, info.LastOffset, info.LastEnqueued, info.Empty = next-1, "-1", time.Time{}, true
	if next <= info.First {
		info.Last = info.First - 1
		return info, nil
	}
	last, err := p.log.Read(next-1, 1, 1, nil)
	if err != nil || len(last) == 0 || last[0].Sequence != next-1 { // or it was removed just now
		return info, p.wrapError(err)
	}
	info.LastOffset, info.LastEnqueued, info.Empty = last[0].Offset, last[0].Enqueued, false
	return info, nil
}

// Read appends to dst the events from sequence number next on, or from the
// oldest one if next has been removed by retention; it returns dst unchanged if
// there are none yet. It stops after maxEvents events, or before their keys and
// payloads exceed maxBytes, but returns at least one event if there is one.
// The events of one call share their memory.
func (p *Partition) Read(next int64, maxEvents, maxBytes int, dst []Stored) ([]Stored, error) {
	dst, err := p.log.Read(next, maxEvents, maxBytes, dst)
	return dst, p.wrapError(err)
}

// ReadInto is [Partition.Read] for callers that don't use the events after the next
// read: the payloads are valid until the next ReadInto of the batch. It is about
// twice as fast.
func (p *Partition) ReadInto(b *Batch, next int64, maxEvents, maxBytes int) error {
	return p.wrapError(p.log.ReadInto(b, next, maxEvents, maxBytes))
}

// Wait returns nil once the partition holds an event of sequence number next or
// higher, ctx's error if that ends first, and [ErrClosed] or [ErrDeleted] if
// the broker was closed or the hub deleted.
func (p *Partition) Wait(ctx context.Context, next int64) error {
	return p.wrapError(p.log.Wait(ctx, next))
}

// Trim permanently removes the events below sequence number before, as retention
// does.
func (p *Partition) Trim(before int64) error { return p.wrapError(p.log.Trim(before)) }

// Seek returns the sequence number of the first event at or after pos, which may be
// that of the next append. For a position that retention has removed it is the
// oldest event. A position after the end of the log, or an invalid offset, is a
// [*StartError].
func (p *Partition) Seek(pos StartPosition) (next int64, err error) {
	info := p.log.Info()
	refuse := func(why string) (int64, error) {
		return 0, &StartError{Hub: p.hub.name, Partition: p.id, Start: pos, Why: why}
	}
	switch pos.Kind {
	case Earliest:
		return info.First, nil
	case Latest:
		return info.Last + 1, nil
	case AtSequence:
		next = pos.Sequence
		if !pos.Inclusive && next < math.MaxInt64 {
			next++
		}
		if next > info.Last+1 {
			return refuse(fmt.Sprintf("the last sequence number is %d", info.Last))
		}
		return max(next, info.First), nil
	case AtTime:
		t := pos.Time.UnixMilli()
		if !pos.Inclusive || pos.Time.Nanosecond()%1e6 != 0 {
			t++ // enqueued times are whole milliseconds
		}
		next, err = p.log.SeekTime(t)
		return next, p.wrapError(err)
	case AtOffset:
		switch pos.Offset {
		case "-1":
			return info.First, nil
		case "@latest":
			return info.Last + 1, nil
		}
		offset, err := strconv.ParseInt(pos.Offset, 10, 64)
		if err != nil || offset < 0 || offset == math.MaxInt64 {
			return refuse("not an offset of this partition")
		}
		if offset > info.End {
			return refuse(fmt.Sprintf("the last offset is %s", info.LastOffset))
		}
		if !pos.Inclusive {
			offset++
		}
		next, err = p.log.SeekOffset(offset)
		return next, p.wrapError(err)
	}
	return refuse("unknown kind of start position")
}

// Attach registers a reader of a consumer group, plain if epoch is nil. The
// name, which may be "", is only used in messages. The reader is attached until it
// calls detach, which it may do more than once.
//
// A reader with an epoch evicts the group's plain readers and any reader of a
// lower or equal epoch: their stolen is called once, with the new reader's name
// and epoch, without locks held, before Attach returns; it must not block, and
// it may be called while the evicted reader's own Attach is still returning.
// A plain reader, or one of a lower epoch, is refused with an [*EpochError] as
// long as one with an epoch is attached, and a sixth plain reader with a
// [*ReaderLimitError].
func (p *Partition) Attach(group, name string, epoch *int64, stolen func(by string, newEpoch int64)) (detach func(), err error) {
	if p.deleted.Load() {
		return nil, p.wrapError(ErrClosed)
	}
	if !p.hub.HasGroup(group) {
		return nil, fmt.Errorf("event hub %s, consumer group %q: %w", p.hub.name, group, ErrUnknownGroup)
	}
	r := &reader{name: name, stolen: stolen}
	if epoch != nil {
		e := *epoch
		r.epoch = &e
	}
	evicted, err := p.readers.attach(readerScope{p.hub.name, group, p.id}, r)
	if err != nil {
		return nil, err
	}
	for _, old := range evicted {
		if old.stolen != nil {
			old.stolen(name, *r.epoch)
		}
	}
	return func() { p.readers.detach(group, r) }, nil
}

// wrapError adds the partition's name to err, and replaces ErrClosed by ErrDeleted if
// the hub was deleted.
func (p *Partition) wrapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, ErrClosed) && p.deleted.Load():
		err = ErrDeleted
	}
	return fmt.Errorf("partition %s of %s: %w", p.id, p.hub.name, err)
}
