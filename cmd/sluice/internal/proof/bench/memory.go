//go:build unix

package main

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// memoryBodies is how many different bodies a [memorySource] has.
const memoryBodies = 4096

// memorySource is a log whose events are made when they are read, which costs next to nothing: what
// a consumer of it takes is what it costs to write. Each partition has as many events as the job
// says.
type memorySource struct {
	group      driver.Group
	partitions int
	events     int
	began      time.Time
	bodies     [][]byte
}

func newMemorySource(group driver.Group, j *job) *memorySource {
	s := &memorySource{group: group, partitions: j.Partitions, events: j.Events, began: time.Now().UTC()}
	for i := range min(memoryBodies, j.Events) {
		s.bodies = append(s.bodies, reading(i, j.Body, s.began))
	}
	return s
}

// Describe implements [driver.Source].
func (s *memorySource) Describe(context.Context) (driver.Topic, error) {
	t := driver.Topic{Group: s.group, Incarnation: s.began.Format(time.RFC3339Nano)}
	for p := range s.partitions {
		t.Partitions = append(t.Partitions, strconv.Itoa(p))
	}
	return t, nil
}

// Bounds implements [driver.Source].
func (s *memorySource) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{Last: driver.Position{Sequence: int64(s.events) - 1}, LastEnqueued: s.began}, nil
}

// Seek implements [driver.Source]. There is no start but the earliest.
func (s *memorySource) Seek(context.Context, string, sluice.Start, int64) (sluice.Position, error) {
	return driver.Origin, nil
}

// Open implements [driver.Source].
func (s *memorySource) Open(_ context.Context, partition string, after sluice.Position, _ int64) (driver.Reader, error) {
	return &memoryReader{s, partition, int(after.Sequence) + 1}, nil
}

type memoryReader struct {
	source    *memorySource
	partition string
	next      int
}

// Read implements [driver.Reader]. At the end of the partition it waits for ctx.
func (r *memoryReader) Read(ctx context.Context, most int) ([]*driver.Event, error) {
	size := len(r.source.bodies[0])
	n := min(most, r.source.events-r.next, max(1, driver.ReadBytes/size))
	if n == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	events, list := make([]driver.Event, n), make([]*driver.Event, n)
	for i := range events {
		e := &events[i]
		e.Partition, e.Sequence, e.Enqueued, e.Body = r.partition, int64(r.next), r.source.began, r.source.bodies[r.next%len(r.source.bodies)]
		list[i] = e
		r.next++
	}
	return list, nil
}

// Close implements [driver.Reader].
func (*memoryReader) Close(context.Context) error { return nil }
