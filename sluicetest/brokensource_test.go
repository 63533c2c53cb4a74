package sluicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// bentSource is a source whose methods, and those of its readers, can be
// replaced.
type bentSource struct {
	*Hub
	describe func(ctx context.Context) (sluice.Topic, error)
	bounds   func(ctx context.Context, partition string) (driver.Bounds, error)
	seek     func(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error)
	open     func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error)
	read     func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error)
	close    func(ctx context.Context, r *reader) error
}

func (b *bentSource) Describe(ctx context.Context) (sluice.Topic, error) {
	if b.describe != nil {
		return b.describe(ctx)
	}
	return b.Hub.Describe(ctx)
}

func (b *bentSource) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	if b.bounds != nil {
		return b.bounds(ctx, partition)
	}
	return b.Hub.Bounds(ctx, partition)
}

func (b *bentSource) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	if b.seek != nil {
		return b.seek(ctx, partition, start, epoch)
	}
	return b.Hub.Seek(ctx, partition, start, epoch)
}

func (b *bentSource) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	open := b.Hub.Open
	if b.open != nil {
		open = b.open
	}
	r, err := open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	return &bentReader{r.(*reader), b}, nil
}

type bentReader struct {
	*reader
	source *bentSource
}

func (b *bentReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if b.source.read != nil {
		return b.source.read(ctx, b.reader, max)
	}
	return b.reader.Read(ctx, max)
}

func (b *bentReader) Close(ctx context.Context) error {
	if b.source.close != nil {
		return b.source.close(ctx, b.reader)
	}
	return b.reader.Close(ctx)
}

// unlink takes a hub's live reader away, so that it is not compared. It is
// still reported when the topic is recreated.
func (h *Hub) unlink(partition string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, err := h.find(partition); err == nil {
		p.readers = nil
	}
}

func TestSourceSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[storetest.SourceHarness]
	whole := func(how string, bend func(h *storetest.SourceHarness, b *bentSource, good *Hub)) {
		drivers = append(drivers, suite.Broken[storetest.SourceHarness]{How: how, New: func(testing.TB) storetest.SourceHarness {
			good := NewHub(testGroup, 2)
			b := &bentSource{Hub: good}
			h := hubHarness(good)
			h.Connect = func(testing.TB) driver.Source { return b }
			bend(&h, b, good)
			return h
		}})
	}
	add := func(how string, bend func(b *bentSource, good *Hub)) {
		whole(how, func(_ *storetest.SourceHarness, b *bentSource, good *Hub) { bend(b, good) })
	}

	whole("ignores its deadline while the server is silent", func(h *storetest.SourceHarness, b *bentSource, good *Hub) {
		server := new(silentServer)
		h.Silence = server.begin
		b.describe = func(ctx context.Context) (sluice.Topic, error) {
			server.await()
			return good.Describe(ctx)
		}
	})
	describe := func(how string, after func(topic *sluice.Topic)) {
		add(how, func(b *bentSource, good *Hub) {
			b.describe = func(ctx context.Context) (sluice.Topic, error) {
				topic, err := good.Describe(ctx)
				after(&topic)
				return topic, err
			}
		})
	}
	describe("does not tell incarnations apart", func(topic *sluice.Topic) { topic.Incarnation = "1" })
	asked := 0
	describe("has another incarnation each time", func(topic *sluice.Topic) { asked++; topic.Incarnation = fmt.Sprint(asked) })
	describe("has one partition twice", func(topic *sluice.Topic) { topic.Partitions = append(topic.Partitions, topic.Partitions...) })
	describe("does not say which consumer group", func(topic *sluice.Topic) { topic.Name = "" })

	bounds := func(how string, after func(b *driver.Bounds)) {
		add(how, func(b *bentSource, good *Hub) {
			b.bounds = func(ctx context.Context, partition string) (driver.Bounds, error) {
				bounds, err := good.Bounds(ctx, partition)
				after(&bounds)
				return bounds, err
			}
		})
	}
	bounds("takes an empty partition to end at 0", func(b *driver.Bounds) { b.Last.Sequence = max(b.Last.Sequence, 0) })
	bounds("says that all begins at 0", func(b *driver.Bounds) { b.First = 0 })
	bounds("loses the end's offset", func(b *driver.Bounds) { b.Last.Offset = "" })
	bounds("loses the end's time", func(b *driver.Bounds) { b.LastEnqueued = time.Time{} })
	bounds("stamps an empty partition", func(b *driver.Bounds) { b.LastEnqueued = b.LastEnqueued.Add(1) })
	add("knows every partition", func(b *bentSource, good *Hub) {
		b.bounds = func(ctx context.Context, partition string) (driver.Bounds, error) {
			bounds, err := good.Bounds(ctx, partition)
			if errors.Is(err, sluice.ErrRefused) {
				return driver.Bounds{}, nil
			}
			return bounds, err
		}
	})
	add("has one partition only", func(b *bentSource, good *Hub) {
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			return good.Open(ctx, "0", after, epoch)
		}
	})
	add("works on after it was cancelled", func(b *bentSource, good *Hub) {
		b.bounds = func(ctx context.Context, partition string) (driver.Bounds, error) {
			return good.Bounds(context.WithoutCancel(ctx), partition)
		}
	})

	event := func(how string, after func(e *sluice.Event)) {
		add(how, func(b *bentSource, good *Hub) {
			b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
				events, err := r.Read(ctx, max)
				for _, e := range events {
					after(e)
				}
				return events, err
			}
		})
	}
	event("numbers from 1 what it hands out", func(e *sluice.Event) { e.Sequence++ })
	event("loses the partition", func(e *sluice.Event) { e.Partition = "" })
	event("loses offsets", func(e *sluice.Event) { e.Offset = "" })
	event("loses times", func(e *sluice.Event) { e.Enqueued = time.Time{} })
	event("loses message ids", func(e *sluice.Event) { e.MessageID = "" })
	event("makes up a key", func(e *sluice.Event) { e.Key = e.Partition })
	event("takes bodies for text", func(e *sluice.Event) { e.Body = []byte(strings.ToValidUTF8(string(e.Body), "?")) })
	event("cuts bodies at 64 KiB", func(e *sluice.Event) { e.Body = e.Body[:min(len(e.Body), 1<<16)] })
	event("makes whole numbers fractions", func(e *sluice.Event) {
		for name, v := range e.Properties {
			if n, whole := v.(int64); whole {
				e.Properties[name] = float64(n)
			}
		}
	})
	add("hands out more than asked for", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) { return r.Read(ctx, max+1) }
	})
	add("returns from a read with nothing", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			events, err := r.Read(ctx, max)
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			return events, err
		}
	})
	add("loses what came while a read gave up", func(b *bentSource, good *Hub) {
		var gaveUp atomic.Bool
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			events, err := r.Read(ctx, max)
			if gaveUp.Swap(err != nil && ctx.Err() != nil) && len(events) > 1 {
				events = events[1:]
			}
			return events, err
		}
	})
	add("can't read on after a read gave up", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			events, err := r.Read(ctx, max)
			if err != nil && ctx.Err() != nil {
				_ = r.Close(ctx)
			}
			return events, err
		}
	})
	add("reads the first event twice", func(b *bentSource, good *Hub) {
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			return good.Open(ctx, partition, sluice.Position{Sequence: max(after.Sequence-1, -1)}, epoch)
		}
	})
	add("opens at the offset, which need not be there", func(b *bentSource, good *Hub) {
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			if after.Offset == "" {
				after = driver.Origin
			}
			return good.Open(ctx, partition, after, epoch)
		}
	})
	add("does not close while it reads", func(b *bentSource, good *Hub) {
		b.close = func(context.Context, *reader) error { return nil }
	})
	add("can't be closed twice", func(b *bentSource, good *Hub) {
		b.close = func(ctx context.Context, r *reader) error {
			if r.err != nil {
				return r.err
			}
			return r.Close(ctx)
		}
	})

	seek := func(how string, after func(start sluice.Start, p *sluice.Position, err error) error) {
		add(how, func(b *bentSource, good *Hub) {
			b.seek = func(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
				p, err := good.Seek(ctx, partition, start, epoch)
				err = after(start, &p, err)
				return p, err
			}
		})
	}
	seek("begins after the event that is meant", func(start sluice.Start, p *sluice.Position, err error) error {
		if start.Kind == driver.StartSequence {
			p.Sequence++
		}
		return err
	})
	seek("takes every start for the earliest", func(start sluice.Start, p *sluice.Position, err error) error {
		p.Sequence = -1
		return err
	})
	seek("seeks beyond the end", func(start sluice.Start, p *sluice.Position, err error) error {
		if start.Kind == driver.StartSequence {
			p.Sequence = start.Sequence - 1
		}
		return err
	})
	seek("takes an unknown kind of start for the earliest", func(start sluice.Start, p *sluice.Position, err error) error {
		if start.Kind > driver.StartOffset {
			*p, err = driver.Origin, nil
		}
		return err
	})
	add("seeks the event after a time", func(b *bentSource, good *Hub) {
		b.seek = func(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
			start.Time = start.Time.Add(1)
			return good.Seek(ctx, partition, start, epoch)
		}
	})
	add("skips to the oldest event without a word", func(b *bentSource, good *Hub) {
		b.seek = func(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
			p, err := good.Seek(ctx, partition, start, epoch)
			if bounds, berr := good.Bounds(ctx, partition); berr == nil {
				p.Sequence = max(p.Sequence, bounds.First-1)
			}
			return p, err
		}
	})

	open := func(how string, before func(good *Hub, partition string, after *sluice.Position)) {
		add(how, func(b *bentSource, good *Hub) {
			b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
				before(good, partition, &after)
				return good.Open(ctx, partition, after, epoch)
			}
		})
	}
	open("waits past the end", func(good *Hub, partition string, after *sluice.Position) {
		if b, err := good.Bounds(context.Background(), partition); err == nil {
			after.Sequence = min(after.Sequence, b.Last.Sequence)
		}
	})
	open("opens at the oldest event when older ones are gone", func(good *Hub, partition string, after *sluice.Position) {
		if b, err := good.Bounds(context.Background(), partition); err == nil && after.Sequence >= 0 {
			after.Sequence = max(after.Sequence, b.First-1)
		}
	})
	open("opens at no position", func(_ *Hub, _ string, after *sluice.Position) { after.Sequence = max(after.Sequence, -1) })
	open("does not compare epochs", func(good *Hub, partition string, _ *sluice.Position) { good.unlink(partition) })
	add("reads over a gap", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			good.mu.Lock()
			if r.log.first > r.sequence+1 {
				r.sequence = r.log.first - 1
			}
			good.mu.Unlock()
			return r.Read(ctx, max)
		}
	})
	whole("reads on in the topic that was recreated", func(h *storetest.SourceHarness, b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			good.mu.Lock()
			if p, _ := good.find(r.log.id); p != r.log {
				r.log, r.err, r.gone = p, nil, nil
			}
			good.mu.Unlock()
			return r.Read(ctx, max)
		}
	})
	whole("lets everything begin at 0 again after retention", func(h *storetest.SourceHarness, b *bentSource, good *Hub) {
		h.Trim = func(_ context.Context, partition string, before int64) error {
			good.mu.Lock()
			defer good.mu.Unlock()
			p := good.must(partition)
			if before > p.last.Sequence {
				*p = *good.newPartition(p.id)
				return nil
			}
			p.events, p.first = slices.Clone(p.events[before-p.first:]), before
			return nil
		}
	})
	add("disconnects readers without an epoch for another", func(b *bentSource, good *Hub) {
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			good.mu.Lock()
			if p, err := good.find(partition); err == nil && epoch == driver.NoEpoch && len(p.readers) > 0 && p.readers[0].epoch == epoch {
				p.detach(&driver.StolenError{Partition: partition, Epoch: epoch})
			}
			good.mu.Unlock()
			return good.Open(ctx, partition, after, epoch)
		}
	})
	add("refuses readers of the same epoch", func(b *bentSource, good *Hub) {
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			good.mu.Lock()
			p, err := good.find(partition)
			held := err == nil && len(p.readers) > 0 && p.readers[0].epoch == epoch
			good.mu.Unlock()
			if held && epoch > 1 {
				return nil, &driver.StolenError{Partition: partition, Epoch: epoch}
			}
			return good.Open(ctx, partition, after, epoch)
		}
	})
	add("remembers the highest epoch", func(b *bentSource, good *Hub) {
		var highest int64
		b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
			good.mu.Lock()
			highest = max(highest, epoch)
			seen := highest
			good.mu.Unlock()
			if epoch < seen && epoch > 1 {
				return nil, &driver.StolenError{Partition: partition, Epoch: seen}
			}
			return good.Open(ctx, partition, after, epoch)
		}
	})
	add("does not tell who was evicted", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			events, err := r.Read(ctx, max)
			if errors.Is(err, sluice.ErrStolen) {
				err = errors.New("link detached")
			}
			return events, err
		}
	})
	add("evicts only who waits", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			good.mu.Lock()
			if r.sequence == 0 && r.err != nil {
				r.err, r.gone = nil, nil
			}
			good.mu.Unlock()
			return r.Read(ctx, max)
		}
	})
	whole("says that it does not compare epochs, and does", func(h *storetest.SourceHarness, b *bentSource, good *Hub) { h.Features.NoEpochs = true })
	whole("says that it has no offsets, and has", func(h *storetest.SourceHarness, b *bentSource, good *Hub) { h.Features.NoOffsets = true })
	whole("says that it carries no ids, and does", func(h *storetest.SourceHarness, b *bentSource, good *Hub) { h.Features.Bare = true })
	suite.Caught(t, storetest.TestSource, append(drivers, brokenSparseSources()...))
}
