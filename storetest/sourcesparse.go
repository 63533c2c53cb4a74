package storetest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// sparseChecks are about topics whose numbers may be missing, and about logs that can lose events.
var sparseChecks = []suite.Check[SourceHarness]{
	{Name: "Sparse", Run: func(t testing.TB, h SourceHarness) {
		topic, err := h.Connect(t).Describe(suite.Context(t))
		suite.NoError(t, "describe", err)
		if topic.Sparse != (h.Gap != nil) {
			t.Errorf("described as sparse: %v, want %v", topic.Sparse, h.Gap != nil)
		}
	}},
	{Name: "Gap", Run: func(t testing.TB, h SourceHarness) {
		if h.Gap == nil {
			return
		}
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		h.send(t, p, "a")
		h.gap(t, p)
		h.send(t, p, "b", "c")
		h.gap(t, p)
		h.gap(t, p)
		h.send(t, p, "d")
		var events []*driver.Event
		for _, e := range readSparse(t, open(t, s, p, start(t, s, p, sluice.Earliest()), 1), "abcd") {
			if !e.Control {
				events = append(events, e)
			}
		}
		a, b, c, d := events[0].Sequence, events[1].Sequence, events[2].Sequence, events[3].Sequence
		if b <= a+1 || c != b+1 || d <= c+2 {
			t.Errorf("the events are %d, %d, %d and %d, want gaps between the first two and the last two", a, b, c, d)
		}
		for n := a; n < b; n++ { // a position may be at any number
			readSparse(t, open(t, s, p, driver.Position{Sequence: n}, 1), "bcd")
		}
		if got := start(t, s, p, sluice.FromSequence(b-1)); got.Sequence < a || got.Sequence >= b {
			t.Errorf("seek of a number without an event: %v, want between %d and %d", got, a, b-1)
		}
	}},
	{Name: "GapAtEnd", Run: func(t testing.TB, h SourceHarness) {
		if h.Gap == nil {
			return
		}
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		for _, text := range []string{"", "a"} { // in an empty partition, and after an event
			r := open(t, s, p, start(t, s, p, sluice.Latest()), 1)
			if text != "" {
				h.send(t, p, text)
				readSparse(t, r, text)
			}
			h.gap(t, p)
			first := h.readMarker(t, s, p, r)
			next := suite.Spawn(t, func() *driver.Event {
				events, err := r.Read(suite.Context(t), 10)
				if err != nil || len(events) != 1 {
					return &driver.Event{}
				}
				return events[0]
			})
			if more, came := suite.Settled(next); came {
				t.Fatalf("after a marker for all numbers without an event, at %d, read %+v", first.Sequence, more)
			}
			h.gap(t, p)
			second := <-next
			if !second.Control || second.Sequence <= first.Sequence {
				t.Fatalf("further numbers without an event: read %+v, want a marker after %d", second, first.Sequence)
			}
			h.send(t, p, "x")
			readSparse(t, r, "x")
			for _, marker := range []*driver.Event{first, second} {
				readSparse(t, open(t, s, p, marker.Position(), 1), "x")
			}
		}
	}},
	{Name: "OpenAtGap", Run: func(t testing.TB, h SourceHarness) {
		if h.Gap == nil {
			return
		}
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		h.send(t, p, "a")
		h.gap(t, p)
		end := start(t, s, p, sluice.Latest())
		r := open(t, s, p, end, 1) // not past the end
		h.send(t, p, "b")
		readSparse(t, r, "b")
	}},
	{Name: "RetentionOfGap", Run: func(t testing.TB, h SourceHarness) {
		if h.Gap == nil {
			return
		}
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		r := open(t, s, p, start(t, s, p, sluice.Earliest()), 1)
		h.send(t, p, "a")
		a := readSparse(t, r, "a")[0]
		h.gap(t, p)
		marker := h.readMarker(t, s, p, r)
		h.send(t, p, "b")
		suite.NoError(t, "trim", h.Trim(suite.Context(t), p, marker.Sequence+1))
		// All that is gone was read, also what held no event.
		readSparse(t, open(t, s, p, marker.Position(), 1), "b")
		// Whether these numbers held events is not known any more.
		wantRetentionError(t, "open before what is gone", openAndRead(t, s, p, a.Position(), 1), p, a.Sequence, marker.Sequence+1)
	}},
	{Name: "Truncate", Run: func(t testing.TB, h SourceHarness) {
		if h.Truncate == nil {
			return
		}
		s, p, events := h.filled(t)
		c, d, e := events[2], events[3], events[4]
		old := open(t, s, p, e.Position(), 1)
		suite.NoError(t, "truncate", h.Truncate(suite.Context(t), p, d.Sequence))
		if h.Features.NoEpochs {
			wantTruncatedError(t, "open at an event that is lost", openAndRead(t, s, p, e.Position(), 1), p, e.Position(), d.Sequence)
		}
		h.send(t, p, "x", "y", "z")
		ctx, cancel := context.WithTimeout(suite.Context(t), 4*suite.Moment)
		defer cancel()
		if more, err := old.Read(ctx, 10); err == nil {
			t.Errorf("a reader that had passed what is lost read on, from event %d", more[0].Sequence)
		}
		for _, lost := range []*driver.Event{e, d} {
			wantTruncatedError(t, "open at an event that is lost, whose number another has", openAndRead(t, s, p, lost.Position(), 1), p, lost.Position(), d.Sequence)
		}
		r := open(t, h.Connect(t), p, c.Position(), 1)
		var x *driver.Event
		for _, e := range readSparse(t, r, "xyz") {
			if x == nil && !e.Control {
				x = e
			}
		}
		if x.Sequence < d.Sequence || x.Sequence > e.Sequence || x.Position().History() == d.Position().History() {
			t.Errorf("after what is kept, read event %d with offset %q, want a number of the lost ones and another history than that of %q", x.Sequence, x.Offset, d.Offset)
		}
	}},
}

// recordChecks are about what the events of some logs have.
var recordChecks = []suite.Check[SourceHarness]{
	{Name: "Headers", Run: func(t testing.TB, h SourceHarness) {
		if !h.Features.Headers {
			e := h.roundTrip(t, &driver.Event{Properties: map[string]any{"a": "1"}})[0]
			if e.Headers != nil {
				t.Errorf("an event without headers has %q", e.Headers)
			}
			return
		}
		want := []driver.Header{{Name: "b", Value: []byte("1")}, {Name: "a", Value: []byte("\x00\xff")}, {Name: "b", Value: []byte("2")}, {Name: "null"}, {Name: "empty", Value: []byte{}}}
		events := h.roundTrip(t, &driver.Event{Headers: want}, &driver.Event{})
		if got := events[0].Headers; !reflect.DeepEqual(got, want) {
			t.Errorf("sent headers %q, read %q", want, got)
		}
		properties := events[0].Properties
		if bytes, is := properties["a"].([]byte); !is || string(bytes) != "\x00\xff" || properties["b"] != "2" || properties["empty"] != "" || len(properties) != 4 {
			t.Errorf("sent headers %q, read properties %q, want the last value of each", want, properties)
		}
		if e := events[1]; e.Headers != nil || e.Properties != nil {
			t.Errorf("an event without headers has %q, and properties %q", e.Headers, e.Properties)
		}
	}},
	{Name: "Keys", Run: func(t testing.TB, h SourceHarness) {
		if !h.Features.Keys {
			return
		}
		sent := []*driver.Event{{Key: "text √"}, {Key: "\x00\xff bytes"}, {EmptyKey: true}, {}}
		for i, e := range h.roundTrip(t, sent...) {
			if e.Key != sent[i].Key || e.EmptyKey != sent[i].EmptyKey {
				t.Errorf("sent key %q (empty: %v), read %q (empty: %v)", sent[i].Key, sent[i].EmptyKey, e.Key, e.EmptyKey)
			}
		}
	}},
	{Name: "Nulls", Run: func(t testing.TB, h SourceHarness) {
		e := h.roundTrip(t, &driver.Event{}, &driver.Event{Body: []byte{}}, &driver.Event{Body: []byte("x")})
		if len(e[0].Body)+len(e[1].Body) > 0 || h.Features.Nulls && (e[0].Body != nil || e[1].Body == nil) || string(e[2].Body) != "x" {
			t.Errorf("read %#v, %#v and %q, want a null value, an empty one and x", e[0].Body, e[1].Body, e[2].Body)
		}
	}},
	{Name: "Created", Run: func(t testing.TB, h SourceHarness) {
		created := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		sent := &driver.Event{Body: []byte("x")}
		if h.Features.Created {
			sent.Created = created
		}
		switch e := h.roundTrip(t, sent)[0]; {
		case h.Features.Created && !(e.Created.Equal(created) && e.Enqueued.Equal(created)):
			t.Errorf("sent with the time %v, read with %v and enqueued at %v", created, e.Created, e.Enqueued)
		case !h.Features.Created && !e.Created.IsZero():
			t.Errorf("the log stamps events, and read one created at %v", e.Created)
		}
	}},
}

// gap has a partition take numbers without an event.
func (h *SourceHarness) gap(t testing.TB, partition string) {
	t.Helper()
	suite.NoError(t, "take numbers without an event", h.Gap(suite.Context(t), partition))
}

// roundTrip appends events to the first partition and reads them.
func (h *SourceHarness) roundTrip(t testing.TB, sent ...*driver.Event) []*driver.Event {
	t.Helper()
	s := h.Connect(t)
	p, _ := h.partitions(t, s)
	suite.NoError(t, "append", h.Append(suite.Context(t), p, sent...))
	return read(t, open(t, s, p, start(t, s, p, sluice.Earliest()), 1), len(sent))
}

// readMarker reads the marker for the numbers without an event at the end of a partition.
func (h *SourceHarness) readMarker(t testing.TB, s driver.Source, partition string, r driver.Reader) *driver.Event {
	t.Helper()
	events, err := r.Read(suite.Context(t), 10)
	suite.NoError(t, "read numbers without an event", err)
	marker := events[0]
	if len(events) != 1 || !marker.Control {
		t.Fatalf("read %d events, the first %+v, of numbers without an event, want one marker", len(events), marker)
	}
	wantMarker(t, marker, partition)
	b, err := s.Bounds(suite.Context(t), partition)
	suite.NoError(t, "bounds", err)
	if !h.Features.StaleBounds && b.Last.Sequence != marker.Sequence {
		t.Errorf("bounds are %+v and the marker is at %d, want Last there", b, marker.Sequence)
	}
	return marker
}

// readSparse reads until it has the events whose bodies are the letters of a text, and returns them
// with the markers between them.
func readSparse(t testing.TB, r driver.Reader, text string) (all []*driver.Event) {
	t.Helper()
	for got := ""; len(got) < len(text); {
		events, err := r.Read(suite.Context(t), len(text))
		suite.NoError(t, "read", err)
		for _, e := range events {
			if n := len(all); n > 0 && (e.Sequence <= all[n-1].Sequence || e.Control && all[n-1].Control) {
				t.Fatalf("read %+v after %+v, want ascending numbers and one marker for each gap", e, all[n-1])
			} else if n > 0 {
				wantCounted(t, e, all[n-1].Sequence)
			}
			if all = append(all, e); e.Control {
				wantMarker(t, e, e.Partition)
				continue
			}
			if got += string(e.Body); got != text[:min(len(got), len(text))] {
				t.Fatalf("read %q, want %q", got, text)
			}
		}
	}
	return all
}

// wantCounted fails the test if the numbers between another one and an event are not all counted as
// passed. A marker's own is among them.
func wantCounted(t testing.TB, e *driver.Event, after int64) {
	t.Helper()
	want := e.Sequence - after
	if !e.Control {
		want--
	}
	if got := e.Passed.Total(); got != want {
		t.Errorf("%+v after %d says that %d numbers were passed, want %d", e, after, got, want)
	}
}

// wantMarker fails the test for a marker that has something of an event.
func wantMarker(t testing.TB, e *driver.Event, partition string) {
	t.Helper()
	want := &driver.Event{Partition: partition, Sequence: e.Sequence, Offset: e.Offset, Enqueued: e.Enqueued, Control: true, Passed: e.Passed}
	if partition == "" || !reflect.DeepEqual(e, want) {
		t.Errorf("a marker is %+v, want %+v", e, want)
	}
}

// wantTruncatedError fails the test for an error that is not the truncation error wanted.
func wantTruncatedError(t testing.TB, what string, err error, partition string, at driver.Position, end int64) {
	t.Helper()
	e, found := errors.AsType[*driver.TruncatedError](err)
	if want := (driver.TruncatedError{Partition: partition, Position: at, End: end}); !found || *e != want || !errors.Is(err, driver.ErrTruncated) {
		t.Errorf("%s: got %v, want %v", what, err, &want)
	}
}
