package eventhub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/asazure"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
)

func TestReadsInOrder(t *testing.T) {
	receivers(t, func(t *testing.T) {
		brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
			const n = 5000
			s := open(nil)
			b.send("1", 0, n, 100)
			r := b.open(s, "1", driver.Origin, 1)
			for i, e := range b.read(r, n, 700) {
				number, _, _ := strings.Cut(string(e.Body), " ")
				if e.Sequence != int64(i) || number != fmt.Sprint(i) || e.Partition != "1" || e.Offset == "" || time.Since(e.Enqueued) > 2*time.Minute {
					t.Fatalf("event %d: %+v", i, e)
				}
			}
			b.send("1", n, 1, 0)
			if e := b.read(r, 1, 1)[0]; e.Sequence != n {
				t.Errorf("then came %d", e.Sequence)
			}
			middle := b.open(s, "1", driver.Position{Sequence: 1233}, 1)
			if e := b.read(middle, 10, 3)[0]; e.Sequence != 1234 {
				t.Errorf("after 1233 came %d", e.Sequence)
			}
		})
	})
}

func TestDescribe(t *testing.T) {
	brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
		s := open(&Config{ConsumerGroup: "other"})
		topic, err := s.Describe(b.now)
		b.ok("describe", err)
		at, err := time.Parse(time.RFC3339Nano, topic.Incarnation)
		if err != nil || !strings.HasSuffix(topic.Incarnation, "Z") || time.Since(at) > 2*time.Minute {
			t.Errorf("incarnation %q: %v", topic.Incarnation, err)
		}
		want := driver.Topic{
			Group:       driver.Group{Namespace: "127.0.0.1", Topic: hubName, Name: "other"},
			Incarnation: topic.Incarnation, Partitions: []string{"0", "1", "2", "3"}, AnyCase: true,
		}
		if !reflect.DeepEqual(topic, want) || topic.Group != s.Group() {
			t.Errorf("got %+v, group %+v", topic, s.Group())
		}
	})
}

func TestBounds(t *testing.T) {
	b := newBroker(t, &emulator.Config{AsAzure: asazure.Kind()}) // Azure's bounds are inexact
	s := b.source(nil)
	check := func(first, last int64) driver.Bounds {
		t.Helper()
		got, err := s.Bounds(b.now, "2")
		b.ok("bounds", err)
		if got.First != first || got.Last.Sequence != last || got.LastEnqueued.IsZero() != (last < 0) || (got.Last.Offset == "") != (last < 0) {
			t.Errorf("got %+v, want %d to %d", got, first, last)
		}
		return got
	}
	check(0, -1)
	b.send("2", 0, 10, 0)
	end := check(0, 9)
	if e := b.read(b.open(s, "2", driver.Position{Sequence: 8}, 1), 1, 1)[0]; e.Position() != end.Last || !e.Enqueued.Equal(end.LastEnqueued) {
		t.Errorf("the last event is %+v, the bounds %+v", e, end)
	}
	b.ok("trim", b.Trim(hubName, "2", 4))
	check(4, 9)
	b.ok("trim", b.Trim(hubName, "2", 10))
	check(10, 9)
}

func TestEventsOfAllKinds(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		b.sendEvents("0", &azeventhubs.EventData{
			Body: []byte(`{"a":1}`), ContentType: to.Ptr("application/json"), MessageID: to.Ptr("id"), CorrelationID: uuid,
			Properties: map[string]any{"n": int64(1), "u": uuid, "t": time.UnixMilli(1767323045006).UTC()},
		})
		batch, err := b.producer.NewEventDataBatch(b.now, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("0")})
		b.ok("new batch", err)
		for _, m := range []*azeventhubs.AMQPAnnotatedMessage{
			{Body: azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("two "), []byte("sections")}}},
			{Body: azeventhubs.AMQPAnnotatedMessageBody{Value: "text"}, Properties: &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: uint64(7), CorrelationID: []byte{1, 2}}},
			{Body: azeventhubs.AMQPAnnotatedMessageBody{Value: map[string]any{"a": int32(1)}}},
			{Body: azeventhubs.AMQPAnnotatedMessageBody{Sequence: [][]any{{"a", int64(1)}, {uuid}}}},
			{Body: azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{{}}}, Properties: &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: amqp.UUID(uuid)}},
		} {
			b.ok("add", batch.AddAMQPAnnotatedMessage(m, nil))
		}
		b.ok("send", b.producer.SendEventDataBatch(b.now, batch, nil))
		keyed, err := b.producer.NewEventDataBatch(b.now, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr("Grüße")})
		b.ok("new batch", err)
		b.ok("add", keyed.AddEventData(&azeventhubs.EventData{Body: []byte("keyed")}, nil))
		b.ok("send", b.producer.SendEventDataBatch(b.now, keyed, nil))

		events := b.read(b.open(s, "0", driver.Origin, 1), 6, 10)
		first := *events[0]
		first.Offset, first.Enqueued = "", time.Time{}
		if want := (driver.Event{
			Partition: "0", ContentType: "application/json", MessageID: "id", CorrelationID: uuidText, Body: []byte(`{"a":1}`),
			Properties: map[string]any{"n": int64(1), "u": uuidText, "t": time.UnixMilli(1767323045006).UTC()},
		}); !reflect.DeepEqual(first, want) {
			t.Errorf("got  %+v\nwant %+v", first, want)
		}
		var got []string
		for _, e := range events[1:] {
			if len(e.MessageID) == 36 && e.MessageID != uuidText {
				e.MessageID = "" // the SDK's invention, where there was none
			}
			got = append(got, fmt.Sprintf("%s|%s|%s", e.Body, e.MessageID, e.CorrelationID))
		}
		want := []string{"two sections||", "text|7|0102", `{"a":1}||`, `["a",1,"` + uuidText + `"]||`, "|" + uuidText + "|"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, p := range []string{"0", "1", "2", "3"} {
			end, err := s.Seek(b.now, p, sluice.Latest(), 2)
			b.ok("seek", err)
			if p == "0" && end.Sequence == 5 || end.Sequence < 0 {
				continue
			}
			e := b.read(b.open(s, p, driver.Position{Sequence: end.Sequence - 1}, 2), 1, 1)[0]
			if e.Key != "Grüße" || string(e.Body) != "keyed" {
				t.Errorf("partition %s: %+v", p, e)
			}
			return
		}
		t.Error("the event with a key is nowhere")
	})
}

func TestSeek(t *testing.T) {
	receivers(t, func(t *testing.T) {
		brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
			s := open(nil)
			at := func(what string, start driver.Start, want int64) {
				t.Helper()
				got, err := s.Seek(b.now, "0", start, 1)
				if err != nil || got.Sequence != want {
					t.Errorf("%s (%v): got %v, %v; want %d", what, start, got, err, want)
				}
			}
			long, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
			for _, start := range []driver.Start{sluice.Earliest(), sluice.Latest(), sluice.At(long), sluice.At(soon), sluice.Ago(time.Hour), sluice.FromSequence(0), sluice.FromSequence(7), sluice.FromOffset("100")} {
				at("empty", start, -1)
			}
			var events []*driver.Event
			r := b.open(s, "0", driver.Origin, 1)
			for i := range 5 { // each at a millisecond of its own
				b.send("0", i, 1, 0)
				events = append(events, b.read(r, 1, 1)...)
				b.eventually("the next millisecond", func() bool { return time.Now().After(events[i].Enqueued.Add(2 * time.Millisecond)) })
			}
			r.Close(b.now)
			all := func(first int64) {
				t.Helper()
				at("earliest", sluice.Earliest(), first-1)
				at("latest", sluice.Latest(), 4)
				at("long ago", sluice.At(long), first-1)
				at("an hour ago", sluice.Ago(time.Hour), first-1)
				at("no time ago", sluice.Ago(time.Nanosecond), 4)
				at("to come", sluice.At(soon), 4)
				at("far sequence", sluice.FromSequence(99), 4)
				at("the next sequence", sluice.FromSequence(5), 4)
				for i := first; i < 5; i++ {
					e := events[i]
					at("sequence", sluice.FromSequence(i), i-1)
					at("offset", sluice.FromOffset(e.Offset), i-1)
					at("time", sluice.At(e.Enqueued), i-1)
					at("a nanosecond later", sluice.At(e.Enqueued.Add(1)), i)
					at("a nanosecond earlier", sluice.At(e.Enqueued.Add(-1)), i-1)
				}
			}
			all(0)
			b.ok("trim", b.Trim(hubName, "0", 2))
			all(2)
			at("a sequence gone", sluice.FromSequence(1), 0)
			at("an offset gone", sluice.FromOffset(events[0].Offset), 1)
			at("an offset to come", sluice.FromOffset("9999999"), 4)
			b.ok("trim", b.Trim(hubName, "0", 5))
			at("emptied", sluice.Earliest(), 4)
			at("emptied", sluice.At(long), 4)
			at("emptied", sluice.FromOffset(events[0].Offset), 4)
			b.send("0", 0, 1, 0)
			if _, err := s.Seek(b.now, "0", sluice.FromOffset("nonsense"), 1); !errors.Is(err, driver.ErrRefused) {
				t.Errorf("seek of a bad offset: %v", err)
			}
		})
	})
}

// A Seek that opens a link respects epochs.
func TestSeekUnderEpoch(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		b.send("0", 0, 1, 0)
		r := b.open(s, "0", driver.Origin, 5)
		b.read(r, 1, 1)
		_, err := s.Seek(b.now, "0", sluice.Ago(time.Hour), 4)
		if stolen, ok := errors.AsType[*driver.StolenError](err); !ok || *stolen != (driver.StolenError{Partition: "0", Epoch: 5}) {
			t.Errorf("seek under a lower epoch: %v", err)
		}
		if _, err := s.Seek(b.now, "0", sluice.Ago(time.Hour), 6); err != nil {
			t.Errorf("seek under a higher epoch: %v", err)
		}
		_, err = r.Read(b.now, 1)
		if stolen, ok := errors.AsType[*driver.StolenError](err); !ok || stolen.Epoch != 6 {
			t.Errorf("the reader saw %v", err)
		}
	})
}

// Whoever only looks ends no link, not even one of the lowest epoch, which other processors have.
func TestNoEpoch(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		b.send("0", 0, 2, 0)
		hourAgo := sluice.Ago(time.Hour)
		if at, err := s.Seek(b.now, "0", hourAgo, driver.NoEpoch); err != nil || at.Sequence != -1 {
			t.Errorf("seek where nobody reads: %v, %v", at, err)
		}
		r := b.open(s, "0", driver.Origin, 0)
		b.read(r, 1, 1)
		_, err := s.Seek(b.now, "0", hourAgo, driver.NoEpoch)
		if !errors.Is(err, driver.ErrStolen) {
			t.Errorf("seek where a reader has an epoch: %v", err)
		}
		err = b.refusal(s, "0", driver.Origin, driver.NoEpoch)
		if !errors.Is(err, driver.ErrStolen) {
			t.Errorf("open where a reader has an epoch: %v", err)
		}
		b.read(r, 1, 1)
		r.Close(b.now)
		plain := b.openLower(s, "0", driver.Origin, driver.NoEpoch)
		b.read(plain, 2, 2)
	})
}

func TestEpochs(t *testing.T) {
	receivers(t, func(t *testing.T) {
		brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
			mine, other := open(nil), open(nil)
			low := b.open(mine, "0", driver.Origin, 3)
			b.send("0", 0, 10, 0)
			b.read(low, 10, 10)
			waiting := make(chan error, 1)
			go func() {
				_, err := low.Read(b.now, 10)
				waiting <- err
			}()
			high := b.open(other, "0", driver.Position{Sequence: 9}, 7)
			err := <-waiting
			if stolen, ok := errors.AsType[*driver.StolenError](err); !ok || *stolen != (driver.StolenError{Partition: "0", Epoch: 7}) {
				t.Errorf("the evicted reader saw %v", err)
			}
			if _, again := low.Read(b.now, 10); !errors.Is(again, driver.ErrStolen) {
				t.Errorf("and then %v", again)
			}
			err = b.refusal(mine, "0", driver.Position{Sequence: 9}, 6)
			if stolen, ok := errors.AsType[*driver.StolenError](err); !ok || *stolen != (driver.StolenError{Partition: "0", Epoch: 7}) {
				t.Errorf("a lower epoch saw %v", err)
			}
			b.send("0", 10, 1, 0)
			b.read(high, 1, 1) // nothing has happened to it
			b.open(mine, "1", driver.Origin, 1)
			high.Close(b.now)
			b.openLower(mine, "0", driver.Position{Sequence: 9}, 6) // live links alone count
		})
	})
}

func TestRetentionBeforeOpen(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		b.send("0", 0, 100, 0)
		b.ok("trim", b.Trim(hubName, "0", 50))
		for _, after := range []int64{-1, 0, 48} {
			_, err := b.open(s, "0", driver.Position{Sequence: after}, 1).Read(b.now, 10)
			if gone, ok := errors.AsType[*driver.RetentionError](err); !ok || *gone != (driver.RetentionError{Partition: "0", After: after, First: 50}) {
				t.Errorf("read after %d: %v", after, err)
			}
		}
		if e := b.read(b.open(s, "0", driver.Position{Sequence: 49}, 1), 50, 100)[0]; e.Sequence != 50 {
			t.Errorf("after 49 came %d", e.Sequence)
		}
		err := b.refusal(s, "0", driver.Position{Sequence: 100}, 1)
		if !errors.Is(err, driver.ErrPastEnd) {
			t.Errorf("open past the end: %v", err)
		}
		checkMessage(t, fmt.Sprint(err), "position 100, but the newest event is 99")
		if _, err := s.Open(b.now, "0", driver.Unset, 1); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("open at no position: %v", err)
		}
		b.ok("trim", b.Trim(hubName, "0", 100))
		r := b.open(s, "0", driver.Position{Sequence: 99}, 1)
		b.send("0", 100, 1, 0)
		if e := b.read(r, 1, 1)[0]; e.Sequence != 100 {
			t.Errorf("after the end came %d", e.Sequence)
		}
	})
}

// Events that pass retention while a reader is on its way to them are never
// skipped in silence.
func TestRetentionPassesReader(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(&Config{Prefetch: 10})
		b.send("0", 0, 1000, 0)
		r := b.open(s, "0", driver.Origin, 1)
		next := b.read(r, 10, 10)[9].Sequence + 1
		b.ok("trim", b.Trim(hubName, "0", 500))
		for {
			events, err := r.Read(b.now, 10)
			if err != nil {
				if gone, ok := errors.AsType[*driver.RetentionError](err); !ok || *gone != (driver.RetentionError{Partition: "0", After: next - 1, First: 500}) {
					t.Errorf("before %d came %v", next, err)
				}
				break
			}
			for _, e := range events {
				if e.Sequence != next {
					t.Fatalf("%d came before %d", e.Sequence, next)
				}
				next++
			}
		}
		if _, err := r.Read(b.now, 10); !errors.Is(err, driver.ErrRetention) {
			t.Errorf("the next read: %v", err)
		}
		if next < 10 || next > 100 {
			t.Errorf("%d events were under way, 10 were asked for ahead", next)
		}
	})
}

// A hub that is deleted and created again has another incarnation, and a reader
// of the old one never gets an event of the new one, even if that has grown
// past the reader's position before the reader notices.
func TestRecreatedHub(t *testing.T) {
	receivers(t, func(t *testing.T) {
		for range 20 {
			b := newBroker(t, nil)
			s := b.source(nil)
			before, err := s.Describe(b.now)
			b.ok("describe", err)
			b.send("0", 0, 3, 0)
			busy := b.open(s, "0", driver.Origin, 1) // has read something
			b.read(busy, 3, 3)
			idle := b.open(s, "1", driver.Origin, 1) // waits from the start
			waiting := make(chan error, 1)
			go func() {
				events, err := idle.Read(b.now, 10)
				if err == nil {
					err = fmt.Errorf("%d events, the first %+v", len(events), events[0])
				}
				waiting <- err
			}()
			b.ok("recreate", b.Recreate(hubName))
			b.producer.Close(b.now)
			b.connect()
			b.send("0", 0, 9, 0)
			b.send("1", 0, 9, 0)
			after, err := s.Describe(b.now)
			b.ok("describe", err)
			if after.Incarnation == before.Incarnation {
				t.Errorf("incarnation %s, again", before.Incarnation)
			}
			if events, err := busy.Read(b.now, 10); err == nil {
				t.Fatalf("a reader went on in the new hub, with %+v", events[0])
			} else {
				checkMessage(t, err.Error(), errDetached.Error()+", after event 2")
			}
			if err := <-waiting; !strings.Contains(err.Error(), errDetached.Error()) {
				t.Fatalf("the waiting reader: %v", err)
			}
			again := b.open(s, "0", driver.Position{Sequence: 2}, 1)
			b.read(again, 6, 6)
		}
	})
}

// A reader ends with its connection, and the next one continues where it ended.
func TestDroppedConnections(t *testing.T) {
	receivers(t, func(t *testing.T) {
		brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
			const n = 2000
			s := open(&Config{Prefetch: 50})
			b.send("0", 0, n, 1000)
			var got []*driver.Event
			at := driver.Origin
			drops := 0
			for len(got) < n {
				r := b.open(s, "0", at, 1)
				for reads := 0; len(got) < n; reads++ {
					if reads == 5 {
						b.DropConnections()
						drops++
					}
					events, err := r.Read(b.now, 20)
					if err != nil {
						checkMessage(t, err.Error(), "hub flights, partition 0: connection lost: ")
						break
					}
					got = append(got, events...)
					at = events[len(events)-1].Position()
				}
				r.Close(b.now)
			}
			for i, e := range got {
				if e.Sequence != int64(i) {
					t.Fatalf("event %d is number %d", i, e.Sequence)
				}
			}
			if drops < 5 {
				t.Errorf("%d connections dropped", drops)
			}
			if _, err := s.Bounds(b.now, "0"); err != nil {
				t.Errorf("bounds after a lost connection: %v", err)
			}
		})
	})
}

// A Read whose context ends loses no events.
func TestReadContext(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		r := b.open(s, "0", driver.Origin, 1)
		var got []*driver.Event
		for i := range 50 {
			ctx, cancel := context.WithTimeout(b.now, time.Duration(i%5)*time.Millisecond)
			events, err := r.Read(ctx, 10)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			got = append(got, events...)
			b.send("0", i, 1, 0)
		}
		got = append(got, b.read(r, 50-len(got), 10)...)
		for i, e := range got {
			if e.Sequence != int64(i) {
				t.Fatalf("event %d is number %d", i, e.Sequence)
			}
		}
		ended, cancel := context.WithCancel(b.now)
		cancel()
		b.send("0", 50, 1, 0)
		if _, err := r.Read(ended, 10); !errors.Is(err, context.Canceled) {
			t.Errorf("read with an ended context: %v", err)
		}
		if _, err := r.Read(b.now, 0); err == nil {
			t.Error("a read of no events")
		}
		b.read(r, 1, 1)
	})
}

// Large events are requested a few at a time.
func TestPrefetchBytes(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(&Config{PrefetchBytes: 1 << 20})
		b.send("0", 0, 64, 256<<10)
		r := b.open(s, "0", driver.Origin, 1).(*reader)
		for read := 0; read < 64; {
			read += len(b.read(r, 1, 1))
			if held := len(r.buffered); held > 32 {
				t.Fatalf("%d events of 256 KiB are held", held)
			}
		}
		if c := r.window.credit(); c > 4 {
			t.Errorf("%d events of 256 KiB may be under way, in 1 MiB", c)
		}
		b.send("1", 0, 1, 1<<20-1000)
		if e := b.read(b.open(s, "1", driver.Origin, 1), 1, 1)[0]; len(e.Body) < 1<<20-1000 || !bytes.HasSuffix(e.Body, []byte("xxx")) {
			t.Errorf("of an event of 1 MiB came %d bytes", len(e.Body))
		}
	})
}

func TestWebSocket(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		urls := make(chan string, 10)
		s := b.source(&Config{WebSocket: func(ctx context.Context, url string) (net.Conn, error) {
			urls <- url
			return new(net.Dialer).DialContext(ctx, "tcp", b.Addr()) // as good as any
		}})
		b.send("0", 0, 10, 0)
		b.read(b.open(s, "0", driver.Origin, 1), 10, 10)
		_, err := s.Bounds(b.now, "0")
		b.ok("bounds", err)
		for range 2 { // the reader's link, and the one for management requests
			if got, want := <-urls, "wss://"+b.Addr()+"/$servicebus/websocket"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		refused := b.source(&Config{WebSocket: func(context.Context, string) (net.Conn, error) { return nil, errors.New("no proxy") }})
		_, err = refused.Describe(b.now)
		checkMessage(t, fmt.Sprint(err), "connect to wss://"+b.Addr()+"/$servicebus/websocket: no proxy")
	})
}

func TestConcurrentUse(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, &emulator.Config{AsAzure: asazure.Kind()}) // its bounds are up to date
		s := b.source(nil)
		var work sync.WaitGroup
		for _, p := range []string{"0", "1", "2", "3"} {
			b.send(p, 0, 1000, 100)
			work.Go(func() {
				r, err := s.Open(b.now, p, driver.Origin, 1)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close(b.now)
				for n := 0; n < 1000; {
					events, err := r.Read(b.now, 100)
					if err != nil {
						t.Error(err)
						return
					}
					n += len(events)
				}
			})
			for range 4 {
				work.Go(func() {
					for range 20 {
						bounds, err := s.Bounds(b.now, p)
						if err != nil || bounds.Last.Sequence != 999 {
							t.Errorf("bounds of %s: %+v, %v", p, bounds, err)
							return
						}
						if _, err := s.Describe(b.now); err != nil {
							t.Error(err)
							return
						}
						ctx, cancel := context.WithTimeout(b.now, 100*time.Microsecond)
						s.Bounds(ctx, p) // a caller who goes disturbs nobody
						cancel()
					}
				})
			}
		}
		work.Wait()
	})
}
