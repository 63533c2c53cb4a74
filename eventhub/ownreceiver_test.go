package eventhub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/proof/need"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	sdk "github.com/Azure/go-amqp"
)

// sourceWith is a source with a receiver.
func (b *broker) sourceWith(receiver Receiver, cfg *Config) *Source {
	b.t.Helper()
	before := b.receiver
	defer func() { b.receiver = before }()
	b.receiver = receiver
	return b.source(cfg)
}

// Both receivers make the same events of what a broker sends, field by field. SLUICE_COMPARE is the
// number of events, if not a few thousand.
func TestReceiversAgree(t *testing.T) {
	n := 20_000
	if text := os.Getenv("SLUICE_COMPARE"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	b := newBroker(t, nil)
	b.now = t.Context() // a million events take longer than a test's patience
	random := rand.New(rand.NewPCG(1, 2))
	const portion = 5000
	after := driver.Origin
	for done := 0; done < n; done += portion {
		events := make([]*azeventhubs.AMQPAnnotatedMessage, portion)
		for i := range events {
			events[i] = randomMessage(random)
		}
		b.sendMessages("0", events)
		a := b.open(b.sourceWith(SDKReceiver, nil), "0", after, 1)
		want := b.read(a, portion, 1000)
		b.ok("close", a.Close(b.now))
		o := b.open(b.sourceWith(OwnReceiver, nil), "0", after, 1)
		got := b.read(o, portion, 1000)
		b.ok("close", o.Close(b.now))
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("event %d\nown %+v\nSDK %+v", done+i, got[i], want[i])
			}
		}
		after = want[portion-1].Position()
	}
	t.Logf("%d events are the same", int(after.Sequence)+1)
}

// sendMessages sends messages as they are.
func (b *broker) sendMessages(partition string, messages []*azeventhubs.AMQPAnnotatedMessage) {
	b.t.Helper()
	for len(messages) > 0 {
		batch, err := b.producer.NewEventDataBatch(b.now, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)})
		b.ok("new batch", err)
		for len(messages) > 0 {
			if err = batch.AddAMQPAnnotatedMessage(messages[0], nil); err != nil {
				break
			}
			messages = messages[1:]
		}
		if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
			b.ok("add", err)
		}
		b.ok("send", b.producer.SendEventDataBatch(b.now, batch, nil))
	}
}

// randomMessage is a message with some of what the SDK can send.
func randomMessage(r *rand.Rand) *azeventhubs.AMQPAnnotatedMessage {
	text := func() string {
		return []string{"", "text", "Grüße", strings.Repeat("long ", 60), strconv.Itoa(r.Int())}[r.IntN(5)]
	}
	value := func() any {
		return []any{text(), r.Int64(), int32(r.Int32()), r.Float64(), float32(r.Float32()), r.IntN(2) == 0, uint64(r.Uint64()), uint8(r.Uint32()),
			[]byte(text()), time.UnixMilli(r.Int64N(1 << 42)).UTC(), sdk.UUID{byte(r.Uint32())}, nil}[r.IntN(12)]
	}
	id := func() any {
		return []any{nil, text(), r.Uint64(), []byte(text()), sdk.UUID{byte(r.Uint32())}}[r.IntN(5)]
	}
	m := &azeventhubs.AMQPAnnotatedMessage{Properties: &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: "id " + strconv.Itoa(r.Int())}}
	switch r.IntN(8) {
	case 0:
		m.Body.Value = value()
	case 1:
		m.Body.Sequence = [][]any{{value(), value()}, {value()}}
	case 2:
		m.Body.Data = [][]byte{[]byte(text()), []byte(text())}
	default:
		m.Body.Data = [][]byte{[]byte(strings.Repeat(text(), r.IntN(20)))}
	}
	if r.IntN(2) == 0 {
		if v := id(); v != nil {
			m.Properties.MessageID = v
		}
		m.Properties.CorrelationID = id()
		if r.IntN(2) == 0 {
			m.Properties.ContentType, m.Properties.ContentEncoding = to.Ptr(text()), to.Ptr(text())
		}
	}
	if n := r.IntN(5); n > 0 {
		m.ApplicationProperties = map[string]any{}
		for i := range n {
			m.ApplicationProperties[text()+strconv.Itoa(i)] = value()
		}
	}
	return m
}

// Decimals, which the SDK cannot decode, are events as any other.
func TestOwnReceiverDecodesDecimals(t *testing.T) {
	b := newBroker(t, nil)
	b.sendDecimal("0")
	b.send("0", 1, 3, 100)
	e := b.read(b.open(b.sourceWith(OwnReceiver, nil), "0", driver.Origin, 1), 4, 4)[0]
	if text, _ := e.Properties["price"].(string); string(e.Body) != "price" || text == "" {
		t.Errorf("got %+v", e)
	}
}

// damagedConn damages the markers that are read from it: the constructor becomes one that AMQP does
// not have.
type damagedConn struct{ net.Conn }

func (c damagedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	text := binary.BigEndian.AppendUint64(nil, marker)
	copy(p[:n], bytes.ReplaceAll(p[:n], append([]byte{0x80}, text...), append([]byte{0x8f}, text...)))
	return n, err
}

// An event that cannot be decoded stops its partition, after those before it were read. The error
// names it, and reading continues after it.
func TestOwnReceiverMeetsUndecodable(t *testing.T) {
	for _, before := range []int{0, 5} {
		b := newBroker(t, nil)
		if before > 0 {
			b.send("0", 0, before, 100)
		}
		b.sendEvents("0", &azeventhubs.EventData{Properties: map[string]any{"price": marker}})
		b.send("0", before+1, 5, 100)
		s := b.sourceWith(OwnReceiver, &Config{WebSocket: func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
			return damagedConn{conn}, err
		}})
		r := b.open(s, "0", driver.Origin, 1)
		if before > 0 {
			b.read(r, before, before)
		}
		for range 2 {
			_, err := r.Read(b.now, 10)
			if u := new(driver.UndecodableError); !errors.As(err, &u) || u.Partition != "0" || u.Sequence != int64(before) {
				t.Fatalf("got %v, want that event %d cannot be decoded", err, before)
			}
			checkMessage(t, err.Error(), "unknown format code 0x8f")
		}
		if n := r.(*reader).link.receiver.failure().sequence; n != int64(before) {
			t.Errorf("the receiver says that event %d cannot be decoded, it is %d", n, before)
		}
		b.read(b.open(s, "0", driver.Position{Sequence: int64(before)}, 1), 5, 5)
	}
}

// sentConn keeps what is written to it.
type sentConn struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
}

func (c *sentConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, p...)
	return c.Conn.Write(p)
}

// A link that the broker has detached is reported as that, also if the connection has ended since.
func TestDetachedThenDropped(t *testing.T) {
	b := newBroker(t, nil)
	b.send("0", 0, 3, 0)
	r := b.open(b.sourceWith(OwnReceiver, nil), "0", driver.Origin, 1)
	b.read(r, 3, 3)
	own := r.(*reader).link.receiver.(*ownReceiver)
	for _, end := range []struct {
		cause func()
		done  <-chan struct{}
	}{
		{func() { b.ok("recreate", b.Recreate(hubName)) }, own.receiver.Done()},
		{func() { b.DropConnections() }, own.client.Done()},
	} {
		end.cause()
		select {
		case <-end.done:
		case <-b.now.Done():
			t.Fatal("neither link nor connection end")
		}
	}
	_, err := r.Read(b.now, 10)
	checkMessage(t, err.Error(), errDetached.Error()+", after event 2 (the broker says: The messaging entity ")
	if errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v: is a refusal", err)
	}
}

// Our own receiver asks the broker for the same as the SDK's: the fields of its attach frame have
// the same values, except for the link's name.
func TestAttachAsTheSDK(t *testing.T) {
	b := newBroker(t, nil)
	b.send("0", 0, 10, 100)
	at := b.read(b.open(b.source(nil), "0", driver.Origin, 1), 10, 10)[4].Position()
	attachOf := func(receiver Receiver, start azeventhubs.StartPosition) []any {
		var conn *sentConn
		s := b.sourceWith(receiver, &Config{Owner: "me", WebSocket: func(ctx context.Context, _ string) (net.Conn, error) {
			inner, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
			conn = &sentConn{Conn: inner}
			return conn, err
		}})
		l, _, err := s.attach(b.now, "0", start, 7, 10)
		b.ok("attach", err)
		l.close(b.now)
		conn.mu.Lock()
		defer conn.mu.Unlock()
		for sent := conn.sent; len(sent) >= frameHeader; {
			n := frameHeader
			if !bytes.HasPrefix(sent, []byte("AMQP")) {
				n = int(binary.BigEndian.Uint32(sent))
			}
			frame := sent[:n]
			sent = sent[n:]
			if performative(frame) != attachFrame || !bytes.Contains(frame, []byte("ConsumerGroups")) {
				continue
			}
			r := amqp.NewReader(frame[frameHeader:])
			fields := r.Value().(amqp.Described).Value.(amqp.List)
			return comparable(fields).([]any)
		}
		t.Fatalf("%s sends no attach", receiver)
		return nil
	}
	for _, start := range []azeventhubs.StartPosition{
		{Earliest: to.Ptr(true)}, {Latest: to.Ptr(true)}, {SequenceNumber: &at.Sequence}, {SequenceNumber: &at.Sequence, Inclusive: true},
		{Offset: &at.Offset}, {Offset: &at.Offset, Inclusive: true}, {EnqueuedTime: to.Ptr(time.Now())}, {},
	} {
		want, got := attachOf(SDKReceiver, start), attachOf(OwnReceiver, start)
		want[0], got[0] = "name", "name"
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v:\nown %v\nSDK %v", start, got, want)
		}
	}
}

// comparable makes values that mean the same equal: maps without order, and the defaults of fields
// as if they were not set.
func comparable(v any) any {
	switch v := v.(type) {
	case amqp.Described:
		return []any{comparable(v.Descriptor), comparable(v.Value)}
	case amqp.Array:
		return v.Values()
	case amqp.List:
		var all []any
		for _, e := range v {
			all = append(all, comparable(e))
		}
		for len(all) > 0 && all[len(all)-1] == nil {
			all = all[:len(all)-1]
		}
		return all
	case amqp.Map:
		all := map[any]any{}
		for _, p := range v {
			all[p.Key] = comparable(p.Value)
		}
		return all
	case uint8:
		if v == 0 || v == 2 { // rcv-settle-mode first, snd-settle-mode mixed
			return nil
		}
	case uint32:
		if v == 0 {
			return nil
		}
	case uint64:
		if v == 0 {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

// A token is renewed before it expires. Failures are repeated until it has expired.
func TestKeepToken(t *testing.T) {
	for _, c := range []struct {
		name    string
		life    time.Duration // of every token; 0: without a time of expiry
		fails   func(time.Duration) bool
		want    []time.Duration // of the first attempts
		expired time.Duration   // when keepToken returns an error; 0: never
	}{
		{name: "two hours", life: 2 * time.Hour, want: []time.Duration{110 * time.Minute, 220 * time.Minute, 330 * time.Minute}},
		{name: "short", life: time.Minute, want: []time.Duration{2 * time.Minute, 4 * time.Minute}},
		{name: "no expiry"},
		{name: "fails for a time", life: time.Hour, fails: func(d time.Duration) bool { return d < 51*time.Minute },
			want: []time.Duration{50 * time.Minute, 50*time.Minute + 30*time.Second, 51 * time.Minute, 101 * time.Minute}},
		{name: "fails", life: time.Hour, fails: func(time.Duration) bool { return true }, expired: time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				expires := func() time.Time {
					if c.life == 0 {
						return time.Time{}
					}
					return time.Now().Add(c.life)
				}
				var all []time.Duration
				done := make(chan struct{})
				time.AfterFunc(24*time.Hour, func() { close(done) })
				err := keepToken(done, expires(), func(time.Duration) (time.Time, error) {
					all = append(all, time.Since(began))
					if c.fails != nil && c.fails(time.Since(began)) {
						return time.Time{}, errors.New("no token")
					}
					return expires(), nil
				})
				if d := time.Since(began); (err != nil) != (c.expired > 0) || err != nil && d != c.expired {
					t.Errorf("ended after %v with %v", d, err)
				}
				if len(all) < len(c.want) || fmt.Sprint(all[:len(c.want)]) != fmt.Sprint(c.want) {
					t.Errorf("attempts at %v, want %v", all, c.want)
				}
				if c.life == 0 && len(all) > 0 {
					t.Errorf("a token without expiry was renewed %d times", len(all))
				}
			})
		})
	}
}

// The error of a link that ended because its token was not renewed is that of the renewal.
func TestExpiredToken(t *testing.T) {
	s, err := New(good, hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	for renewal, want := range map[error]string{
		&amqp.StatusError{Code: 401, Description: "no longer"}: "not authorised",
		&tokenError{errors.New("no route")}:                    "no token from Entra ID: no route",
	} {
		r := &ownReceiver{expired: renewal}
		l := &link{source: s, partition: "0", receiver: r}
		r.link = l
		err := l.explain(r.explain(amqp.ErrLinkClosed))
		checkMessage(t, err.Error(), want)
		if _, final := renewal.(*amqp.StatusError); errors.Is(err, driver.ErrRefused) != final {
			t.Errorf("%v: refused: %v", err, !final)
		}
	}
}

// A token is renewed although the caller of Read is slow, so that more events have come than it may
// hold: the broker's answer comes after them.
func TestRenewalWhileFull(t *testing.T) {
	b := newBroker(t, nil)
	b.send("0", 0, 200, 10_000)
	r := b.open(b.sourceWith(OwnReceiver, &Config{PrefetchBytes: 300_000}), "0", driver.Origin, 1).(*reader)
	read := b.read(r, 1, 1)
	b.eventually("the connection is read no more", func() bool {
		read = append(read, b.read(r, 1, 1)...)
		return r.link.intake.full()
	})
	own := r.link.receiver.(*ownReceiver)
	_, err := own.renew(own.client, time.Minute)
	b.ok("renew", err)
	if r.link.intake.full() == false || r.link.intake.room != 0 {
		t.Errorf("after the renewal the connection is read beyond its limit")
	}
	b.read(r, 200-len(read), 50)
}

// An event that cannot be decoded is named by its own number, also after events that are missing:
// those are what the reader reports first.
func TestUndecodableAfterGap(t *testing.T) {
	s, err := New(good, hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		earlier  []int64 // events that come before it
		sequence int64   // its number
		missing  [2]int64
	}{
		"a gap among those before it": {[]int64{11, 10011}, 10500, [2]int64{11, 10011}},
		"a gap just before it":        {[]int64{11, 12}, 10500, [2]int64{12, 10500}},
		"no number":                   {[]int64{11, 12}, -1, [2]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			own := &ownReceiver{ended: failure{undecodable: "what", sequence: c.sequence}}
			r := &reader{link: &link{source: s, partition: "0", receiver: own}, began: true, next: 11, window: newWindow(10, 1000)}
			own.link = r.link
			var events []*driver.Event
			for _, n := range c.earlier {
				events = append(events, &driver.Event{Sequence: n})
			}
			r.buffer(events)
			if r.err == nil {
				r.fail(r.link.explain(errUndecodable))
			}
			if c.missing == ([2]int64{}) {
				if u := new(driver.UndecodableError); !errors.As(r.err, &u) || u.Sequence != 13 {
					t.Errorf("got %v, want that event 13 cannot be decoded", r.err)
				}
				return
			}
			if gap := new(driver.RetentionError); !errors.As(r.err, &gap) || gap.After != c.missing[0] || gap.First != c.missing[1] {
				t.Errorf("got %v, want that the events after %d and before %d are missing", r.err, c.missing[0], c.missing[1])
			}
		})
	}
}

// allocationsPerEvent is what reading an event of 1 KB allocates at most, with the emulator in the
// same process: 0.2 for memory that events share, and the text of the event. The SDK's receiver
// needs 33.
const allocationsPerEvent = 2.0

func TestReadAllocations(t *testing.T) {
	need.RealTime(t) // the process counts, with all that waits and reads in it
	const n = 20_000
	b := newBroker(t, nil)
	b.send("0", 0, n, 1000)
	r := b.open(b.sourceWith(OwnReceiver, nil), "0", driver.Origin, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for read := 0; read < n; {
		events, err := r.Read(b.now, 1000)
		b.ok("read", err)
		read += len(events)
	}
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / n
	t.Logf("%.2f allocations and %d bytes an event", each, (after.TotalAlloc-before.TotalAlloc)/n)
	if each > allocationsPerEvent {
		t.Errorf("%.2f allocations an event, want at most %v", each, allocationsPerEvent)
	}
}
