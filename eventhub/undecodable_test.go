package eventhub

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice"
)

// The SDK writes no decimals. This unsigned long becomes one on its way: both have eight
// bytes after the constructor.
const marker uint64 = 0x0123456789abcdef

// decimalConn makes decimals of the markers that are written to it.
type decimalConn struct{ net.Conn }

func (c decimalConn) Write(p []byte) (int, error) { return c.Conn.Write(withDecimals(p)) }

func withDecimals(p []byte) []byte {
	text := []byte("\x01\x23\x45\x67\x89\xab\xcd\xef")
	return bytes.ReplaceAll(p, append([]byte{0x80}, text...), append([]byte{0x84}, text...))
}

// decimalError is what go-amqp, under Azure's client, says of a property of the AMQP type
// decimal64. The reader passes the words on: they are the only hint at which property the sender
// must change.
func decimalError(t *testing.T) string {
	t.Helper()
	encoded, err := (&amqp.Message{ApplicationProperties: map[string]any{"price": marker}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	err = new(amqp.Message).UnmarshalBinary(withDecimals(encoded))
	if err == nil || !strings.Contains(err.Error(), "decimal64") {
		t.Fatalf("go-amqp decodes a decimal, or its error does not name the type: %v", err)
	}
	return err.Error()
}

// sendDecimal sends an event with a property of the AMQP type decimal64, as .NET and Java
// clients write it.
func (b *broker) sendDecimal(partition string) {
	b.t.Helper()
	producer := b.producer
	defer func() { b.producer = producer }()
	var err error
	b.producer, err = azeventhubs.NewProducerClientFromConnectionString(b.ConnectionString(), hubName, &azeventhubs.ProducerClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
			return decimalConn{conn}, err
		},
	})
	b.ok("new producer", err)
	defer b.producer.Close(b.now)
	b.sendEvents(partition, &azeventhubs.EventData{Body: []byte("price"), Properties: map[string]any{"price": marker}})
}

// An event that the SDK cannot decode stops its partition: the error names the event and
// the way out. It does not pass by itself, and is not the broker's fault.
func TestUndecodableEvent(t *testing.T) {
	for _, c := range []struct {
		name           string
		earlier, later int
	}{{"alone", 0, 0}, {"first", 0, 5}, {"last", 5, 0}, {"between", 5, 5}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, nil)
			if c.earlier > 0 {
				b.send("0", 0, c.earlier, 100)
			}
			b.sendDecimal("0")
			if c.later > 0 {
				b.send("0", c.earlier+1, c.later, 100)
			}
			s := b.sourceWith(SDKReceiver, nil)
			r, err := s.Open(b.now, "0", driver.Origin, 1)
			if err == nil {
				defer r.Close(b.now)
				if c.earlier > 0 {
					b.read(r, c.earlier, c.earlier)
				}
				_, err = r.Read(b.now, 10)
			}
			var u *driver.UndecodableError
			if !errors.As(err, &u) || !errors.Is(err, sluice.ErrUndecodable) || u.Partition != "0" || u.Sequence != int64(c.earlier) {
				t.Fatalf("got %v, want that event %d cannot be decoded", err, c.earlier)
			}
			checkMessage(t, err.Error(), decimalError(t))
			checkMessage(t, err.Error(), "`sluice checkpoints set` at sequence")
			if c.later > 0 {
				b.read(b.open(s, "0", driver.Position{Sequence: u.Sequence}, 1), c.later, c.later)
			}
		})
	}
}

// A seek that meets the event says so.
func TestUndecodableSeek(t *testing.T) {
	b := newBroker(t, nil)
	b.sendDecimal("0")
	s := b.sourceWith(SDKReceiver, nil)
	_, err := s.Seek(b.now, "0", sluice.Ago(time.Hour), 1)
	if err == nil {
		t.Fatal("no error")
	}
	checkMessage(t, err.Error(), "hub flights, partition 0: an event cannot be decoded ("+decimalError(t)+"): start after it, by sequence number")
}

// Events that are missing although the log holds older ones than the next were not removed by
// retention, and the error does not say so.
func TestGapWithinTheLog(t *testing.T) {
	receivers(t, func(t *testing.T) {
		for oldest, held := range map[int64]bool{0: true, 3: true, 4: false, 6: false} {
			b := newBroker(t, nil)
			b.send("0", 0, 10, 100)
			r := b.open(b.source(nil), "0", driver.Origin, 1).(*reader)
			b.read(r, 3, 3)
			b.ok("trim", b.Trim(hubName, "0", oldest))
			r.buffered = nil
			r.err = &driver.RetentionError{Partition: "0", After: 2, First: 6} // as if the broker had skipped events
			_, err := r.Read(b.now, 1)
			var gap *driver.RetentionError
			if !errors.As(err, &gap) || gap.Held != held || gap.Unchecked != "" {
				t.Fatalf("the oldest event is %d: got %v, want a gap that is not retention: %v", oldest, err, held)
			}
			if held {
				checkMessage(t, err.Error(), "partition 0: events 3 to 5 are missing, though the log holds older ones, so this is not retention")
			}
		}
	})
}

// Where the log's oldest event cannot be found out, the error says so, and does not say
// that retention was the cause.
func TestGapUnchecked(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 10, 100)
		s := b.source(nil)
		r := b.open(s, "0", driver.Origin, 1).(*reader)
		b.read(r, 3, 3)
		r.buffered = nil
		r.err = &driver.RetentionError{Partition: "0", After: 2, First: 6}
		if err := s.Close(b.now); err != nil {
			t.Fatal(err)
		}
		err := r.explainGap(b.now)
		if !errors.Is(err, sluice.ErrRetention) {
			t.Fatalf("got %v, want a gap", err)
		}
		checkMessage(t, err.Error(), "partition 0: events 3 to 5 are missing; whether retention removed them could not be checked (")
	})
}

// TestParkedUndecodable: our own receiver returns what cannot be decoded, with its position and the
// message, and goes on.
func TestParkedUndecodable(t *testing.T) {
	b := newBroker(t, nil)
	b.send("0", 0, 2, 100)
	b.sendEvents("0", &azeventhubs.EventData{Body: []byte("price"), Properties: map[string]any{"price": marker}})
	b.send("0", 3, 2, 100)
	s := b.sourceWith(OwnReceiver, &Config{Undecodable: ParkUndecodable, WebSocket: func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
		return damagedConn{conn}, err
	}})
	r := b.open(s, "0", driver.Origin, 1)
	var events []*driver.Event
	for len(events) < 5 {
		more, err := r.Read(b.now, 10)
		b.ok("read", err)
		events = append(events, more...)
	}
	for i, e := range events {
		if e.Sequence != int64(i) || e.Offset == "" || e.Enqueued.IsZero() || (e.Undecodable != "") != (i == 2) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	e := events[2]
	if !strings.Contains(e.Undecodable, `application-properties, "price": unknown format code 0x8f`) || !bytes.Contains(e.Body, []byte("price")) || e.Properties != nil {
		t.Errorf("%q, %q, %v", e.Undecodable, e.Body, e.Properties)
	}
}

// Where the sections of a message are broken, its position is known even so, if the broker's
// annotations are whole.
func TestUndecodablePosition(t *testing.T) {
	annotations := framed(0x72, 0xd1, str("x-opt-sequence-number"), "\x55\x07", str("x-opt-offset"), str("4096"), str("x-opt-partition-key"), str("k"))
	for name, c := range map[string]struct {
		message  string
		sequence int64
	}{
		"properties are a list":           {annotations + "\x00\x53\x74\xc0\x04\x02\x54\x01\x41" + "\x00\x53\x75\xa0\x01x", 7},
		"properties are an array":         {annotations + "\x00\x53\x74\xe0\x04\x02\x54\x01\x02" + "\x00\x53\x75\xa0\x01x", 7},
		"properties are of an odd number": {annotations + "\x00\x53\x74\xc1\x02\x01\x41" + "\x00\x53\x75\xa0\x01x", 7},
		"the body is cut off":             {annotations + "\x00\x53\x75\xa0\x05x", 7},
		"an unknown section":              {annotations + "\x00\x53\x01\x45", 7},
		"no annotations":                  {"\x00\x53\x74\x45", -1},
		"annotations are a list":          {"\x00\x53\x72\x45\x00\x53\x75\xa0\x01x", -1},
	} {
		var e driver.Event
		sequence, err := decodeEvent(&e, []byte(c.message), "3")
		if err == nil || sequence != c.sequence {
			t.Errorf("%s: event %d, %v, want %d", name, sequence, err, c.sequence)
			continue
		}
		p := parked(&e, []byte(c.message), err)
		if c.sequence >= 0 && (p.Sequence != 7 || p.Offset != "4096" || p.Key != "k" || p.Partition != "3" || string(p.Body) != c.message || p.Undecodable != err.Error()) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
