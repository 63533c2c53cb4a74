package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestSource is the conformance suite of [driver.Source]. Every case asks new
// for an empty topic.
func TestSource(t *testing.T, new func(t testing.TB) SourceHarness) {
	suite.Run(t, sourceChecks, new)
}

var sourceChecks = slices.Concat(describeChecks, readChecks, seekChecks, lossChecks, epochChecks, sparseChecks, recordChecks, []suite.Check[SourceHarness]{silenceOfSource})

var describeChecks = []suite.Check[SourceHarness]{
	{Name: "Describe", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		topic, err := s.Describe(suite.Context(t))
		suite.NoError(t, "describe", err)
		if topic.Topic == "" || topic.Name == "" || topic.Incarnation == "" {
			t.Errorf("described as %+v, want topic, consumer group and incarnation", topic)
		}
		seen := make(map[string]bool)
		for _, p := range topic.Partitions {
			if p == "" || seen[p] {
				t.Errorf("partitions %q are not different names", topic.Partitions)
			}
			seen[p] = true
		}
		for _, other := range []driver.Source{s, h.Connect(t)} {
			again, err := other.Describe(suite.Context(t))
			suite.NoError(t, "describe", err)
			if !reflect.DeepEqual(topic, again) {
				t.Errorf("described as %+v, then as %+v", topic, again)
			}
		}
	}},
	{Name: "Bounds", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, q := h.partitions(t, s)
		b, err := s.Bounds(suite.Context(t), p)
		suite.NoError(t, "bounds", err)
		if !h.Features.StaleBounds && (b.Last.Sequence != b.First-1 || !b.LastEnqueued.IsZero()) {
			t.Errorf("bounds of an empty partition: %+v, want Last one before First, and no time", b)
		}
		first := b.First
		h.send(t, p, "a", "b", "c")
		events := read(t, open(t, s, p, start(t, s, p, sluice.Earliest()), 1), 3)
		b, err = s.Bounds(suite.Context(t), p)
		suite.NoError(t, "bounds", err)
		if !h.Features.StaleBounds && (b.First != first || b.First != events[0].Sequence || !h.Features.samePosition(b.Last, events[2]) || !b.LastEnqueued.Equal(events[2].Enqueued)) {
			t.Errorf("bounds are %+v, want from %d (before: %d) to %+v at %v", b, events[0].Sequence, first, events[2].Position(), events[2].Enqueued)
		}
		if b, err = s.Bounds(suite.Context(t), q); err != nil || b.Last.Sequence != b.First-1 {
			t.Errorf("bounds of the other partition: %+v, %v; want it empty", b, err)
		}
	}},
	{Name: "NoSuchPartition", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		for _, p := range []string{"no such partition", ""} {
			if b, err := s.Bounds(suite.Context(t), p); err == nil {
				t.Errorf("bounds of partition %q: %+v", p, b)
			}
			if at, err := s.Seek(suite.Context(t), p, sluice.Earliest(), 1); err == nil {
				t.Errorf("seek in partition %q: %v", p, at)
			}
			if r, err := s.Open(suite.Context(t), p, driver.Origin, 1); err == nil {
				t.Errorf("open of partition %q: no error", p)
				_ = r.Close(suite.Context(t))
			}
		}
	}},
	{Name: "Cancelled", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		ctx, cancel := context.WithCancel(suite.Context(t))
		cancel()
		_, err := s.Describe(ctx)
		suite.ErrorIs(t, "describe", err, context.Canceled)
		_, err = s.Bounds(ctx, p)
		suite.ErrorIs(t, "bounds", err, context.Canceled)
		_, err = s.Seek(ctx, p, sluice.Earliest(), 1)
		suite.ErrorIs(t, "seek", err, context.Canceled)
		_, err = s.Open(ctx, p, driver.Origin, 1)
		suite.ErrorIs(t, "open", err, context.Canceled)
	}},
}

var readChecks = []suite.Check[SourceHarness]{
	{Name: "Read", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		sent := &driver.Event{
			MessageID: "message 1", CorrelationID: "correlation 1", ContentType: "text/plain",
			Properties: map[string]any{"text": "√", "bool": true, "int64": int64(math.MinInt64), "float64": math.Pi},
			Body:       []byte("\x00body\xff"),
		}
		suite.NoError(t, "append", h.Append(suite.Context(t), p, sent, &driver.Event{}, &driver.Event{Body: make([]byte, 100_000)}))
		t.Log("sent: an event with properties, an empty one, and one of 100,000 bytes")
		events := read(t, open(t, s, p, start(t, s, p, sluice.Earliest()), 1), 3)
		for i, e := range events {
			if e.Partition != p || e.Sequence != events[0].Sequence+int64(i) || e.Enqueued.IsZero() || e.Key != "" || (e.Offset == "") != h.Features.NoOffsets {
				t.Errorf("event %d: %+v; want partition, consecutive number, offset (but: %v), time, no key", i, e, h.Features.NoOffsets)
			}
			if i > 0 && (e.Enqueued.Before(events[i-1].Enqueued) || e.Offset == events[i-1].Offset && e.Offset != "" && !h.Features.SharedOffsets) {
				t.Errorf("event %d is enqueued at %v with offset %q, the one before at %v with %q", i, e.Enqueued, e.Offset, events[i-1].Enqueued, events[i-1].Offset)
			}
		}
		if h.Features.Bare {
			sent.MessageID, sent.CorrelationID, sent.ContentType = "", "", ""
		}
		sameProperties := func(e *driver.Event) bool {
			want, have := h.Features.properties(sent.Properties, e.Properties)
			return maps.Equal(want, have)
		}
		if e := events[0]; e.MessageID != sent.MessageID || e.CorrelationID != sent.CorrelationID || e.ContentType != sent.ContentType ||
			!sameProperties(e) || string(e.Body) != string(sent.Body) {
			t.Errorf("sent %+v\nread %+v", sent, e)
		}
		if e := events[1]; len(e.Body) != 0 || len(e.Properties) != 0 {
			t.Errorf("an empty event was read as %+v", e)
		}
		if n := len(events[2].Body); n != 100_000 {
			t.Errorf("a body of 100,000 bytes was read as one of %d", n)
		}
	}},
	{Name: "ReadAfter", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		for i, want := range []string{"abcde", "bcde", "cde", "de", "e"} {
			after := driver.Position{Sequence: events[0].Sequence - 1}
			if i > 0 {
				after = events[i-1].Position()
			}
			if got := bodies(t, open(t, s, p, after, 1), len(want)); got != want {
				t.Errorf("opened at %v, read %q, want %q", after, got, want)
			}
			after.Offset = "" // is not known from every store
			if got := bodies(t, open(t, s, p, after, 1), len(want)); got != want {
				t.Errorf("opened at %v without an offset, read %q, want %q", after, got, want)
			}
		}
	}},
	{Name: "ReadAtMost", Run: func(t testing.TB, h SourceHarness) {
		s, p, _ := h.filled(t)
		r := open(t, s, p, start(t, s, p, sluice.Earliest()), 1)
		got := ""
		for _, most := range []int{1, 2, 1, 100} {
			events, err := r.Read(suite.Context(t), most)
			suite.NoError(t, "read", err)
			if len(events) < 1 || len(events) > most {
				t.Errorf("read %d events, want 1 to %d", len(events), most)
			}
			for _, e := range events {
				got += string(e.Body)
			}
		}
		if rest := len("abcde") - len(got); rest > 0 {
			got += bodies(t, r, rest)
		}
		if got != "abcde" {
			t.Errorf("read %q, want abcde", got)
		}
	}},
	{Name: "ReadWaits", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, q := h.partitions(t, s)
		r := open(t, s, p, start(t, s, p, sluice.Latest()), 1)
		for _, text := range []string{"a", "b"} {
			got := suite.Spawn(t, func() string {
				events, err := r.Read(suite.Context(t), 10)
				if err != nil || len(events) == 0 {
					return fmt.Sprintf("%d events, %v", len(events), err)
				}
				return string(events[0].Body)
			})
			h.send(t, q, "in the other partition")
			if early, came := suite.Settled(got); came {
				t.Fatalf("read on an empty partition: %q", early)
			}
			h.send(t, p, text)
			if late := <-got; late != text {
				t.Errorf("a waiting read returned %q, want %q", late, text)
			}
		}
	}},
	{Name: "ReadGivesUp", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		r := open(t, s, p, start(t, s, p, sluice.Earliest()), 1)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(suite.Context(t), suite.Moment/10)
			events, err := r.Read(ctx, 10)
			cancel()
			if err == nil {
				t.Fatalf("read %d events of an empty partition", len(events))
			}
			suite.ErrorIs(t, "read until a deadline", err, context.DeadlineExceeded)
			if i == 10 {
				ctx, cancel := context.WithCancel(suite.Context(t))
				cancel()
				_, err := r.Read(ctx, 10)
				suite.ErrorIs(t, "read with a cancelled context", err, context.Canceled)
			}
		}
		h.send(t, p, "a", "b")
		if got := bodies(t, r, 2); got != "ab" {
			t.Errorf("after giving up, read %q, want ab", got)
		}
	}},
	{Name: "CloseDuringRead", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		r := open(t, s, p, start(t, s, p, sluice.Latest()), 1)
		got := suite.Spawn(t, func() error {
			_, err := r.Read(suite.Context(t), 10)
			return err
		})
		if err, came := suite.Settled(got); came {
			t.Fatalf("read on an empty partition: %v", err)
		}
		suite.NoError(t, "close", r.Close(suite.Context(t)))
		if err := <-got; err == nil {
			t.Error("a read that was closed returned no error")
		}
		if _, err := r.Read(suite.Context(t), 10); err == nil {
			t.Error("a read after close returned no error")
		}
		suite.NoError(t, "close twice", r.Close(suite.Context(t)))
	}},
	{Name: "Many", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, q := h.partitions(t, s)
		const n = 3000
		got := race(t, 4, func(i int) error {
			if i < 2 {
				for at := range n / 100 {
					var texts []string
					for j := range 100 {
						texts = append(texts, fmt.Sprint(at*100+j))
					}
					if err := h.Append(suite.Context(t), []string{p, q}[i], eventsOf(texts...)...); err != nil {
						return err
					}
				}
				return nil
			}
			partition := []string{p, q}[i-2]
			after, err := s.Seek(suite.Context(t), partition, sluice.Earliest(), 1)
			if err != nil {
				return err
			}
			r, err := s.Open(suite.Context(t), partition, after, 1)
			if err != nil {
				return err
			}
			for next := int64(0); next < n; {
				events, err := r.Read(suite.Context(t), 64)
				if err != nil {
					return fmt.Errorf("read after %d events: %w", next, err)
				}
				for _, e := range events {
					if string(e.Body) != fmt.Sprint(next) || e.Sequence != after.Sequence+1+next {
						return fmt.Errorf("partition %s: read event %d with body %s, want %d with %d", partition, e.Sequence, e.Body, after.Sequence+1+next, next)
					}
					next++
				}
			}
			return r.Close(suite.Context(t))
		})
		for err := range got {
			suite.NoError(t, "append and read both partitions", err)
		}
	}},
}

var seekChecks = []suite.Check[SourceHarness]{
	{Name: "SeekEmpty", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		b, err := s.Bounds(suite.Context(t), p)
		suite.NoError(t, "bounds", err)
		for _, where := range []driver.Start{
			sluice.Earliest(), sluice.Latest(), sluice.At(time.Now()), sluice.At(time.Now().Add(-24 * time.Hour)),
			sluice.Ago(time.Hour), sluice.FromSequence(b.First), sluice.FromSequence(b.First + 1000),
		} {
			if got := start(t, s, p, where); got.Sequence != b.Last.Sequence {
				t.Errorf("seek %v in an empty partition: %v, want its end, %v", where, got, b.Last)
			}
		}
		h.send(t, p, "a")
		if got := bodies(t, open(t, s, p, b.Last, 1), 1); got != "a" {
			t.Errorf("read %q from the end of a partition that was empty, want a", got)
		}
	}},
	{Name: "Seek", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		first, last := events[0], events[4]
		seek := func(where driver.Start, want int64) {
			t.Helper()
			if got := start(t, s, p, where); got.Sequence != want {
				t.Errorf("seek %v: %v, want %d", where, got, want)
			}
		}
		seek(sluice.Earliest(), first.Sequence-1)
		seek(driver.Start{}, first.Sequence-1)
		seek(sluice.Latest(), last.Sequence)
		for _, e := range events {
			seek(sluice.FromSequence(e.Sequence), e.Sequence-1)
			seek(sluice.At(e.Enqueued), e.Sequence-1)
			seek(sluice.At(e.Enqueued.Add(time.Millisecond).In(time.FixedZone("east", 9*3600))), e.Sequence)
			switch {
			case h.Features.SharedOffsets:
				seek(sluice.FromOffset(strconv.FormatInt(e.Sequence, 10)), e.Sequence-1)
			case h.Features.NoOffsets:
				_, err := s.Seek(suite.Context(t), p, sluice.FromOffset("1"), 1)
				suite.ErrorIs(t, "seek an offset, which the log has not", err, driver.ErrRefused)
			default:
				seek(sluice.FromOffset(e.Offset), e.Sequence-1)
			}
		}
		seek(sluice.At(first.Enqueued.Add(-time.Hour)), first.Sequence-1)
		seek(sluice.Ago(24*time.Hour), first.Sequence-1)
		seek(sluice.At(time.Now().Add(time.Hour)), last.Sequence)
		seek(sluice.Ago(time.Nanosecond), last.Sequence)
		seek(sluice.FromSequence(last.Sequence+1), last.Sequence)
		seek(sluice.FromSequence(last.Sequence+1000), last.Sequence)
		_, err := s.Seek(suite.Context(t), p, driver.Start{Kind: 99}, 1)
		suite.ErrorIs(t, "seek of an unknown kind", err, driver.ErrRefused)
		if got := bodies(t, open(t, s, p, start(t, s, p, sluice.At(events[2].Enqueued)), 1), 3); got != "cde" {
			t.Errorf("read %q from the time of c, want cde", got)
		}
	}},
}

var lossChecks = []suite.Check[SourceHarness]{
	{Name: "PastEnd", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		err := openAndRead(t, s, p, driver.Position{Sequence: events[4].Sequence + 1}, 1)
		suite.ErrorIs(t, "open one event past the end", err, driver.ErrPastEnd)
		err = openAndRead(t, s, p, driver.Position{Sequence: events[4].Sequence + 1000, Offset: "1000000"}, 1)
		suite.ErrorIs(t, "open far past the end", err, driver.ErrPastEnd)
		open(t, s, p, events[4].Position(), 1)
	}},
	{Name: "Unset", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, _ := h.partitions(t, s)
		if _, err := s.Open(suite.Context(t), p, driver.Unset, 1); err == nil {
			t.Error("open at no position: no error")
		}
	}},
	{Name: "Retention", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		first := events[3].Sequence
		suite.NoError(t, "trim", h.Trim(suite.Context(t), p, first))
		b, err := s.Bounds(suite.Context(t), p)
		suite.NoError(t, "bounds", err)
		if !h.Features.StaleBounds && (b.First != first || !h.Features.samePosition(b.Last, events[4])) {
			t.Errorf("bounds are %+v, want from %d to %+v", b, first, events[4].Position())
		}
		for i := range 3 {
			after := driver.Position{Sequence: events[0].Sequence - 1}
			if i > 0 {
				after = events[i-1].Position()
			}
			wantRetentionError(t, "open before what is gone", openAndRead(t, s, p, after, 1), p, after.Sequence, first)
		}
		if got := bodies(t, open(t, s, p, events[2].Position(), 1), 2); got != "de" {
			t.Errorf("opened right before the oldest event, read %q, want de", got)
		}
		for _, where := range []driver.Start{sluice.Earliest(), sluice.At(events[0].Enqueued), sluice.FromSequence(first)} {
			if got := start(t, s, p, where); got.Sequence != first-1 {
				t.Errorf("seek %v: %v, want %d", where, got, first-1)
			}
		}
		after, err := s.Seek(suite.Context(t), p, sluice.FromSequence(events[1].Sequence), 1)
		if err == nil {
			err = openAndRead(t, s, p, after, 1)
		}
		wantRetentionError(t, "start with an event that is gone", err, p, events[0].Sequence, first)
	}},
	{Name: "RetentionOfAll", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		end := events[4].Sequence
		suite.NoError(t, "trim", h.Trim(suite.Context(t), p, end+1))
		b, err := s.Bounds(suite.Context(t), p)
		suite.NoError(t, "bounds", err)
		if !h.Features.StaleBounds && (b.First != end+1 || b.Last.Sequence != end) {
			t.Errorf("bounds of a partition whose events are all gone: %+v, want First %d and Last %d", b, end+1, end)
		}
		for _, where := range []driver.Start{sluice.Earliest(), sluice.Latest(), sluice.At(events[0].Enqueued), sluice.FromSequence(end + 1)} {
			if got := start(t, s, p, where); got.Sequence != end {
				t.Errorf("seek %v: %v, want %d", where, got, end)
			}
		}
		r := open(t, s, p, events[4].Position(), 1)
		h.send(t, p, "f")
		if e := read(t, r, 1)[0]; e.Sequence != end+1 || string(e.Body) != "f" {
			t.Errorf("the next event is %d with body %q, want %d with f", e.Sequence, e.Body, end+1)
		}
		wantRetentionError(t, "open before what is gone", openAndRead(t, s, p, events[2].Position(), 1), p, events[2].Sequence, end+1)
	}},
	{Name: "RetentionWhileReading", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		r := open(t, s, p, events[0].Position(), 1)
		suite.NoError(t, "trim", h.Trim(suite.Context(t), p, events[3].Sequence))
		at := events[0].Sequence
		for at < events[4].Sequence {
			more, err := r.Read(suite.Context(t), 1)
			if err != nil {
				wantRetentionError(t, "read on after events are gone", err, p, at, events[3].Sequence)
				if _, again := r.Read(suite.Context(t), 1); again == nil {
					t.Error("a reader went on after it had reported a loss")
				}
				return
			}
			// What was fetched ahead may still come, but nothing may be missing.
			if len(more) != 1 || more[0].Sequence != at+1 {
				t.Fatalf("after event %d came %+v, without an error", at, more)
			}
			at++
		}
	}},
	{Name: "Recreate", Run: func(t testing.TB, h SourceHarness) {
		s, p, events := h.filled(t)
		before, err := s.Describe(suite.Context(t))
		suite.NoError(t, "describe", err)
		old := open(t, s, p, events[4].Position(), 1)
		suite.NoError(t, "recreate", h.Recreate(suite.Context(t)))
		for _, s := range []driver.Source{s, h.Connect(t)} {
			after, err := s.Describe(suite.Context(t))
			suite.NoError(t, "describe", err)
			if after.Incarnation == before.Incarnation || after.Group != before.Group {
				t.Errorf("described as %+v before and %+v after the topic was recreated, want another incarnation", before, after)
			}
			// A log that compares histories takes it for truncated.
			err = openAndRead(t, s, p, events[4].Position(), 1)
			if !errors.Is(err, driver.ErrTruncated) || !h.Features.SharedOffsets {
				suite.ErrorIs(t, "open at a position of the topic of before", err, driver.ErrPastEnd)
			}
		}
		h.send(t, p, "1", "2", "3", "4", "5", "6", "7")
		// A reader of the old topic must never go on in the new one.
		ctx, cancel := context.WithTimeout(suite.Context(t), 4*suite.Moment)
		defer cancel()
		if more, err := old.Read(ctx, 10); err == nil {
			t.Errorf("a reader of the topic of before read %d events of the new one", len(more))
		}
		r := open(t, s, p, start(t, s, p, sluice.Earliest()), 2)
		if got := bodies(t, r, 7); got != "1234567" {
			t.Errorf("read %q from the new topic", got)
		}
	}},
}

// openAndRead returns the error of a reader's opening or of its first Read.
func openAndRead(t testing.TB, s driver.Source, partition string, after driver.Position, epoch int64) error {
	t.Helper()
	r, err := s.Open(suite.Context(t), partition, after, epoch)
	if err != nil {
		return err
	}
	defer r.Close(suite.Context(t))
	_, err = r.Read(suite.Context(t), 1)
	return err
}

// wantRetentionError fails the test for an error that is not the retention error wanted.
func wantRetentionError(t testing.TB, what string, err error, partition string, after, first int64) {
	t.Helper()
	e, found := errors.AsType[*driver.RetentionError](err)
	if want := (driver.RetentionError{Partition: partition, After: after, First: first}); !found || *e != want {
		t.Errorf("%s: got %v, want %v", what, err, &want)
	}
}

// wantStolenError fails the test for an error that is not a StolenError; the epoch need not be
// known.
func wantStolenError(t testing.TB, what string, err error, partition string, epoch int64) {
	t.Helper()
	e, found := errors.AsType[*driver.StolenError](err)
	if !found || e.Partition != partition || e.Epoch != 0 && e.Epoch != epoch {
		t.Errorf("%s: got %v, want a StolenError that names partition %s and epoch %d or none", what, err, partition, epoch)
	}
}
