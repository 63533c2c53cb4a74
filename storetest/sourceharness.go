package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// SourceHarness is what [TestSource] works on: an empty topic of at least two
// partitions, and the means to do to it what its owners do.
type SourceHarness struct {
	// Connect gives a source for the topic. Two of them are like those of two
	// processes, in the same consumer group.
	Connect func(t testing.TB) driver.Source
	// Append sends events to a partition. It returns once they can be read.
	Append func(ctx context.Context, partition string, events ...*driver.Event) error
	// Trim drops the events numbered below before, as retention does.
	Trim func(ctx context.Context, partition string, before int64) error
	// Recreate deletes the topic and creates it again with the same
	// partitions.
	Recreate func(ctx context.Context) error
	// Gap has a partition take numbers without an event, at least one, as an aborted transaction
	// does. It returns once a reader can pass them. Nil leaves out the cases that need it: then the
	// topic must not be Sparse.
	Gap func(ctx context.Context, partition string) error
	// Truncate has a partition lose the numbers from end on, as the unclean election of a leader
	// does: what is appended next gets these numbers. Nil leaves out the cases that need it.
	Truncate func(ctx context.Context, partition string, end int64) error

	// Silence makes the log's server silent. Nil leaves the case out.
	Silence Silence

	Features SourceFeatures
}

// SourceFeatures says where a log may differ from others.
type SourceFeatures struct {
	// NoEpochs: the log doesn't compare the epochs of readers; any number of
	// them read beside each other. The default is that a reader of a lower
	// epoch than a live one's is refused, and others evict it.
	NoEpochs bool
	// NoOffsets: events have no offsets but their sequence numbers; seeking
	// one is refused. The default is that every event has one.
	NoOffsets bool
	// Bare: the log carries no message id, correlation id and content type,
	// and these come back empty.
	Bare bool
	// StaleBounds: Bounds may be out of date or inexact. The default is that they are those
	// of the moment. Seek and Open are exact in either case.
	StaleBounds bool
	// SharedOffsets: an offset names the history of the log, and many events have the same. A start
	// at an offset is one at a sequence number. The default is that an offset names an event.
	SharedOffsets bool
	// TextProperties: values of properties come back as texts, beside others that the log adds. The
	// default is that they keep their types.
	TextProperties bool
	// Headers: events have headers, and their properties are the last value of each. The default is
	// that events have properties alone.
	Headers bool
	// Keys: an event that is appended to a partition may have a key, of any bytes. An empty one is
	// a key.
	Keys bool
	// Nulls: a null value and an empty one differ.
	Nulls bool
	// Created: the log keeps the time that the sender gives an event, in milliseconds.
	Created bool
}

// properties returns properties as they come back.
func (f *SourceFeatures) properties(sent, got map[string]any) (want, have map[string]any) {
	if !f.TextProperties {
		return sent, got
	}
	want, have = map[string]any{}, map[string]any{}
	for name, value := range sent {
		want[name] = fmt.Sprint(value)
		if value, there := got[name]; there {
			have[name] = value
		}
	}
	return want, have
}

// samePosition reports whether a position that the log gave is that of an event.
func (f *SourceFeatures) samePosition(p driver.Position, e *driver.Event) bool {
	return p == e.Position() || f.SharedOffsets && p.Sequence == e.Sequence
}

// send appends events whose bodies are these texts.
func (h *SourceHarness) send(t testing.TB, partition string, texts ...string) {
	t.Helper()
	suite.NoError(t, "append to partition "+partition, h.Append(suite.Context(t), partition, eventsOf(texts...)...))
}

// partitions names the topic's first two partitions.
func (h *SourceHarness) partitions(t testing.TB, s driver.Source) (string, string) {
	t.Helper()
	topic, err := s.Describe(suite.Context(t))
	suite.NoError(t, "describe", err)
	if len(topic.Partitions) < 2 {
		t.Fatalf("the topic has partitions %q, the suite needs two", topic.Partitions)
	}
	return topic.Partitions[0], topic.Partitions[1]
}

// filled connects to the topic with five events, a to e, in its first
// partition, each enqueued later than the one before. It returns them as they
// are read.
func (h *SourceHarness) filled(t testing.TB) (s driver.Source, partition string, events []*driver.Event) {
	t.Helper()
	s = h.Connect(t)
	partition, _ = h.partitions(t, s)
	r := open(t, s, partition, start(t, s, partition, sluice.Earliest()), 1)
	for _, text := range []string{"a", "b", "c", "d", "e"} {
		h.send(t, partition, text)
		e := read(t, r, 1)[0]
		events = append(events, e)
		// A log stamps in milliseconds, so the next one would have the same.
		suite.Eventually(t, "the next event is enqueued later", func() bool {
			return time.Now().After(e.Enqueued.Add(2 * time.Millisecond))
		})
	}
	suite.NoError(t, "close", r.Close(suite.Context(t)))
	return s, partition, events
}

// start seeks.
func start(t testing.TB, s driver.Source, partition string, where driver.Start) driver.Position {
	t.Helper()
	p, err := s.Seek(suite.Context(t), partition, where, 1)
	suite.NoError(t, fmt.Sprintf("seek %v", where), err)
	return p
}

// open opens a reader, which is closed at the end of the test.
func open(t testing.TB, s driver.Source, partition string, after driver.Position, epoch int64) driver.Reader {
	t.Helper()
	r, err := s.Open(suite.Context(t), partition, after, epoch)
	suite.NoError(t, fmt.Sprintf("open partition %s at %v in epoch %d", partition, after, epoch), err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), suite.Patience)
		defer cancel()
		_ = r.Close(ctx)
	})
	return r
}

// read reads n events.
func read(t testing.TB, r driver.Reader, n int) []*driver.Event {
	t.Helper()
	var events []*driver.Event
	for len(events) < n {
		more, err := r.Read(suite.Context(t), n-len(events))
		suite.NoError(t, fmt.Sprintf("read event %d of %d", len(events)+1, n), err)
		if len(more) == 0 || len(more) > n-len(events) {
			t.Fatalf("read at most %d events: got %d", n-len(events), len(more))
		}
		events = append(events, more...)
	}
	return events
}

// bodies reads n events and returns their bodies, joined.
func bodies(t testing.TB, r driver.Reader, n int) string {
	t.Helper()
	text := ""
	for _, e := range read(t, r, n) {
		text += string(e.Body)
	}
	return text
}

// fails reads until there is an error, and returns it: events may have been
// fetched ahead.
func fails(t testing.TB, r driver.Reader) error {
	t.Helper()
	ctx := suite.Context(t)
	for {
		if _, err := r.Read(ctx, 100); err != nil {
			if ctx.Err() != nil {
				t.Fatalf("a reader that can't go on did not return an error for %v", suite.Patience)
			}
			return err
		}
	}
}

// eventsOf makes one event of each body.
func eventsOf(bodies ...string) []*driver.Event {
	events := make([]*driver.Event, len(bodies))
	for i, body := range bodies {
		events[i] = &driver.Event{Body: []byte(body)}
	}
	return events
}
