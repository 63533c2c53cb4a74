// Package feed sends records to an event hub in batches, through the official
// SDK.
//
// Records go out in windows. Within a window those of one key, or without keys
// those of one partition, are one group in the order in which they were read; a
// group belongs to a lane, and a lane has one batch in flight at a time. So
// several batches are under way at any moment, and none overtakes another of
// its key or partition.
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/internal/records"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// KeyField names the field whose value is the partition key. Default:
	// records have no key and go to the partitions in turn.
	KeyField string
	// Rate is how many records are sent a second. Default: as fast as the hub
	// takes them.
	Rate float64
	// Lanes is the number of batches that may be in flight. Default: 16, and
	// without keys no more than partitions.
	Lanes int
	// Window is how many records are gathered at most before they are parted
	// into batches. Default: 65,536.
	Window int
	// Refused is called for each record that is too large for the hub, from
	// several goroutines; the others are sent.
	Refused func(*records.TooLargeError)
}

const (
	windowBytes = 16 << 20
	maxRate     = 1e7
	// linger is how long a record waits for others to share its batch.
	linger = 50 * time.Millisecond
	// parting is what batches in flight are given when the caller gives up.
	parting = 3 * time.Second
)

// Feed sends to one hub.
type Feed struct {
	client     *azeventhubs.ProducerClient
	partitions []string
	cfg        Config
	seed       maphash.Seed
	acked      atomic.Int64
	refused    atomic.Int64
}

// New makes a feed of a client of a hub with these partitions. The client stays
// the caller's to close.
func New(client *azeventhubs.ProducerClient, partitions []string, cfg *Config) (*Feed, error) {
	f := &Feed{client: client, partitions: partitions, seed: maphash.MakeSeed()}
	if cfg != nil {
		f.cfg = *cfg
	}
	f.cfg.Lanes = cmp.Or(f.cfg.Lanes, 16)
	f.cfg.Window = cmp.Or(f.cfg.Window, 1<<16)
	switch {
	case len(partitions) == 0:
		return nil, errors.New("the hub has no partitions")
	case f.cfg.Lanes < 0 || f.cfg.Window < 0:
		return nil, fmt.Errorf("%d lanes, windows of %d records: must be positive", f.cfg.Lanes, f.cfg.Window)
	case f.cfg.Rate < 0 || f.cfg.Rate > maxRate:
		return nil, fmt.Errorf("rate of %v a second: must be positive and at most %d", f.cfg.Rate, int(maxRate))
	}
	if f.cfg.KeyField == "" {
		f.cfg.Lanes = min(f.cfg.Lanes, len(partitions))
	}
	return f, nil
}

// Acknowledged is how many records the hub has confirmed.
func (f *Feed) Acknowledged() int64 { return f.acked.Load() }

// Refused is how many records were too large.
func (f *Feed) Refused() int64 { return f.refused.Load() }

// Send sends all records and returns once each is acknowledged. After an error
// of the hub or of the file, or once ctx ends, it sends no further batch, waits
// for those in flight and returns the error; how much was acknowledged then
// says [Feed.Acknowledged]. It may be called again, for the next file.
func (f *Feed) Send(ctx context.Context, in *records.Reader) error {
	reading, give := context.WithCancelCause(ctx)
	defer give(nil)
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(parting, cut) })()

	lanes := make([]chan *group, f.cfg.Lanes)
	var work sync.WaitGroup
	for i := range lanes {
		lanes[i] = make(chan *group)
		work.Go(func() {
			for g := range lanes[i] {
				if reading.Err() != nil {
					continue
				}
				if err := f.sendGroup(reading, sending, g); err != nil {
					give(err)
				}
			}
		})
	}
	err := f.deal(reading, in, lanes)
	for _, l := range lanes {
		close(l)
	}
	work.Wait()
	if cause := context.Cause(reading); cause != nil {
		return cause
	}
	return err
}

// group is a run of records with one destination.
type group struct {
	lane      int
	partition string // or
	key       string
	records   []records.Record
}

func (g *group) String() string {
	if g.key != "" {
		return fmt.Sprintf("key %q", g.key)
	}
	return "partition " + g.partition
}

// deal reads the records, parts them into groups, window by window, and hands
// the groups to their lanes. What was read before an error still goes out.
//
// It does not wait for its reader, which may be waiting for input that never
// comes; the reader ends with the next record, or with the input.
func (f *Feed) deal(ctx context.Context, in *records.Reader, lanes []chan *group) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan records.Record, 1024)
	failed := make(chan error, 1)
	go func() {
		failed <- f.read(reading, in, incoming)
		close(incoming)
	}()
	w := window{feed: f, lanes: lanes}
	timer := time.NewTicker(linger)
	defer timer.Stop()
	for {
		var err error
		select {
		case r, more := <-incoming:
			if !more {
				return cmp.Or(w.flush(ctx), <-failed)
			}
			if err = w.add(ctx, r); err != nil {
				return cmp.Or(w.flush(ctx), err)
			}
		case <-timer.C:
			err = w.flush(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// read passes records on at the configured rate.
func (f *Feed) read(ctx context.Context, in *records.Reader, out chan<- records.Record) error {
	pace := newPace(f.cfg.Rate)
	for {
		r, err := in.Next()
		var large *records.TooLargeError
		switch {
		case errors.As(err, &large):
			f.refuse(large)
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := pace.wait(ctx); err != nil {
			return err
		}
		select {
		case out <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *Feed) refuse(e *records.TooLargeError) {
	f.refused.Add(1)
	if f.cfg.Refused != nil {
		f.cfg.Refused(e)
	}
}
