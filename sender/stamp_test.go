package sender_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// TestStamped runs a stage twice over the same events, into a hub that fails now
// and then: the duplicates of a message, with a key or without, go to the
// partition of the first, with the same id.
func TestStamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, each = 300, 3
		source := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "raw", Name: "g"}, 2)
		for i := range events {
			source.Append(fmt.Sprint(i%2), &sluice.Event{Properties: map[string]any{"airport": "FRA"}, Body: fmt.Appendf(nil, "%d", i)})
		}
		split := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
			if len(e.Properties) != 1 {
				t.Errorf("the event's own properties became %v", e.Properties)
			}
			return []*sender.Message{
				{Body: fmt.Appendf(nil, "%s first", e.Body), Properties: e.Properties},
				{Body: fmt.Appendf(nil, "%s second", e.Body), Key: fmt.Sprint("key-", e.Sequence%7)},
				{Body: fmt.Appendf(nil, "%s third", e.Body), MessageID: "own"},
			}, nil
		}
		h := &sizeUnawareHub{limit: 1 << 20}
		e, err := sender.NewEstimator(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		sink := newSink(t, e, nil)
		for range 2 {
			store := &sluicetest.Store{}
			c, err := sluice.New(source, &sluicetest.Leases{}, sluice.AtLeastOnce(store, sender.Stamped(split), sink, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()
			time.Sleep(20 * time.Second)
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil {
				t.Error(err)
			}
		}

		type home struct{ id, partition, body string }
		times, partitions := map[home]int{}, map[string]bool{}
		for partition, messages := range h.stored {
			for _, m := range messages {
				stamp, ok, err := stamp.From(m.Properties)
				if err != nil || !ok || stamp.Epoch < 1 || stamp.Low < -1 || stamp.Low >= events/2 {
					t.Fatalf("stamp of %s: %+v, %v, %v", m.Body, stamp, ok, err)
				}
				id := stamp.ID.String()
				if stamp.ID.N == 2 && m.MessageID != "own" || stamp.ID.N != 2 && m.MessageID != id {
					t.Fatalf("message %s has the id %s", id, m.MessageID)
				}
				if stamp.ID.N == 0 && m.Properties["airport"] != "FRA" {
					t.Fatalf("message %s has lost its properties: %v", id, m.Properties)
				}
				if m.Key == "" {
					partitions[partition] = true
				}
				times[home{id, partition, string(m.Body)}]++
			}
		}
		if len(times) != events*each || len(partitions) != 4 {
			t.Errorf("%d messages with ids, want %d; those without keys in %d partitions", len(times), events*each, len(partitions))
		}
		for at, n := range times {
			if n != 2 {
				t.Errorf("message %+v is there %d times", at, n)
			}
		}
	})
}

// TestStampedWithoutEvent uses a context that has no event.
func TestStampedWithoutEvent(t *testing.T) {
	stamped := sender.Stamped(func(context.Context, *sluice.Event) ([]*sender.Message, error) { return []*sender.Message{{}}, nil })
	if _, err := stamped(t.Context(), &sluice.Event{Partition: "0"}); err == nil {
		t.Error("no error")
	}
}

type mapping func(context.Context, *sluice.Event) ([]*sender.Message, error)

// TestForeignStamps has a stage pass on the properties of stamped events: with
// Stamped its messages have stamps of their own, and without it they are
// rejected.
func TestForeignStamps(t *testing.T) {
	for name, c := range map[string]struct {
		wrap    func(mapping) mapping
		headers bool // the properties are passed on as headers
		sent    int
	}{
		"stamped":              {func(m mapping) mapping { return sender.Stamped(m) }, false, 10},
		"passed on":            {func(m mapping) mapping { return m }, false, 0},
		"stamped over headers": {func(m mapping) mapping { return sender.Stamped(m) }, true, 10},
		"headers passed on":    {func(m mapping) mapping { return m }, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "clean", Name: "g"}, 1)
				for i := range 10 {
					properties := map[string]any{}
					stamp.Stamp{ID: stamp.CausationID{Source: "raw@1", Partition: "0", Sequence: int64(i)}, Epoch: 1, Low: -1}.SetTo(properties)
					source.Append("0", &sluice.Event{Properties: properties})
				}
				h := &sizeUnawareHub{limit: 1 << 20}
				e, err := sender.NewEstimator(h, nil)
				if err != nil {
					t.Fatal(err)
				}
				store, sink := &sluicetest.Store{}, newSink(t, e, nil)
				pass := c.wrap(func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
					if !c.headers {
						return []*sender.Message{{Properties: e.Properties}}, nil
					}
					m := &sender.Message{}
					for name, value := range e.Properties {
						m.Headers = append(m.Headers, sluice.Header{Name: name, Value: fmt.Append(nil, value)})
					}
					return []*sender.Message{m}, nil
				})
				stage, err := sluice.New(source, &sluicetest.Leases{}, sluice.AtLeastOnce(store, pass, sink, nil), nil)
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan error, 1)
				go func() { ran <- stage.Run(t.Context()) }()
				time.Sleep(20 * time.Second)
				if err := stage.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-ran; err != nil {
					t.Error(err)
				}
				letters, err := store.List(t.Context(), sluice.Group{Namespace: "test", Topic: "clean", Name: "g"}, sluice.DeadLetterFilter{})
				sent := 0
				for _, messages := range h.stored {
					sent += len(messages)
				}
				if err != nil || sent != c.sent || len(letters) != 10-c.sent {
					t.Errorf("%d sent, %d dead letters: %v", sent, len(letters), err)
				}
			})
		})
	}
}
